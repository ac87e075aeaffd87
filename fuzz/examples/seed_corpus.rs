//! Writes the seeds of every target to the folder named: the recorded messages, whole and in the form that the targets
//! take them (a byte that chooses, then the part of the message that the family is about).

use std::path::Path;

use causeway_fuzz::auth;
use causeway_fuzz::smb_wire::parsers::FAMILIES;
use causeway_fuzz::smb_wire::recordings;
// The coverage that the build asks for calls into it.
use libfuzzer_sys as _;

/// Targets beside those of `smb-wire`.
const OTHERS: [&str; 8] = [
    "smb_auth_tokens",
    "smb_auth_acceptor",
    "smb_auth_initiator",
    "smb_auth_opener",
    "rdma_parsers",
    "rdma_connection",
    "smb_direct_connection",
    "vfs_path",
];

fn main() -> std::io::Result<()> {
    let corpus = std::env::args_os().nth(1).expect("the folder to write to");
    let corpus = Path::new(&corpus);
    let families = FAMILIES.iter().map(|(family, _)| format!("smb_wire_{family}"));
    for target in families.chain(OTHERS.map(String::from)) {
        let folder = corpus.join(target);
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
    // The prefixes are what the targets read first.
    let token = auth::client().first_token(&[]).expect("no hint is needed");
    let length = (token.len() as u16).to_le_bytes();
    std::fs::write(corpus.join("smb_auth_acceptor/first"), [&length, &token[..]].concat())?;
    std::fs::write(corpus.join("smb_auth_tokens/first"), &token)?;
    let all = recordings::all();
    let (request, data) = (&all["01-smbd-negotiate-request"], &all["02-smbd-data-request"]);
    let messages =
        [&[0, 20], &request[..], &[data.len().min(128) as u8], &data[..data.len().min(128)]].concat();
    std::fs::write(corpus.join("smb_direct_connection/established"), messages)?;
    for (name, bytes) in &all {
        if let Some(token) = bytes.get(72..).filter(|_| name.contains("session_setup-response")) {
            std::fs::write(
                corpus.join("smb_auth_initiator").join(name.clone() + "-token"),
                [&[0, 0], token].concat(),
            )?;
        }
        if let Some(token) = bytes.get(88..).filter(|_| name.contains("session_setup-request")) {
            let length = (token.len() as u16).to_le_bytes();
            std::fs::write(corpus.join("smb_auth_acceptor").join(name), [&length, token].concat())?;
        }
    }
    std::fs::write(corpus.join("vfs_path/nested"), "folder\\file.txt")?;
    // The pool's golden bytes: whole, as bodies, and the checkpoint's state after the eight bytes before it.
    let folder = corpus.join("pool_formats");
    std::fs::create_dir_all(&folder)?;
    let golden = include_str!("../../crates/pool/src/format/tests/golden.txt");
    let mut frames: Vec<(&str, Vec<u8>)> = Vec::new();
    for line in golden.lines() {
        let digits = line
            .as_bytes()
            .chunks_exact(2)
            .map(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 16).ok());
        match (digits.collect::<Option<Vec<u8>>>(), frames.last_mut()) {
            (Some(bytes), Some((_, frame))) => frame.extend(bytes),
            _ => frames.push((line, Vec::new())),
        }
    }
    for (name, frame) in frames {
        std::fs::write(folder.join(name), &frame)?;
        for at in [64, 72] {
            std::fs::write(folder.join(format!("{name}-from-{at}")), &frame[at..])?;
        }
    }
    Ok(())
}
