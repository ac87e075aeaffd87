//! The recorded messages under `tests/golden`.

use std::collections::BTreeMap;
use std::path::Path;

/// The recordings, by file name without extension.
pub fn all() -> BTreeMap<String, Vec<u8>> {
    // Compiled into this crate's tests and into the fuzz crate's seeds, which stand side by side.
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = [here.join("tests/golden"), here.join("../crates/smb-wire/tests/golden")];
    let folder = folder.iter().find(|f| f.is_dir()).expect("a folder of recordings");
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let hex: String = text.lines().filter(|l| !l.starts_with('#')).collect();
        let bytes =
            (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect();
        all.insert(path.file_stem().unwrap().to_str().unwrap().to_owned(), bytes);
    }
    assert!(all.len() >= 46, "the recordings are there");
    all
}
