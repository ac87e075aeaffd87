//! Writes the seeds of every target of `smb-wire` to `corpus/`: the recorded messages, whole and in the form that the
//! targets take them (a byte that chooses, then the part of the message that the family is about).

use std::path::Path;

use causeway_fuzz::smb_wire::parsers::FAMILIES;
use causeway_fuzz::smb_wire::recordings;

fn main() -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (family, _) in FAMILIES {
        let folder = corpus.join(format!("smb_wire_{family}"));
        std::fs::create_dir_all(&folder)?;
        for (name, bytes) in recordings::all() {
            std::fs::write(folder.join(&name), &bytes)?;
            if let Some(body) = bytes.get(64..) {
                let mut chosen = vec![bytes[12]];
                chosen.extend_from_slice(body);
                std::fs::write(folder.join(format!("{name}-body")), chosen)?;
                for at in [0, 4, 8, 16, 24, 32, 40, 48, 56, 64, 88] {
                    if let Some(part) = body.get(at..) {
                        std::fs::write(folder.join(format!("{name}-from-{at}")), part)?;
                    }
                }
            }
        }
    }
    Ok(())
}
