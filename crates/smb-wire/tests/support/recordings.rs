//! Recorded bytes in text files under `tests/`: hexadecimal digits, and comment lines that start with `#`.

use std::collections::BTreeMap;
use std::path::Path;

/// The recorded messages, by file name without extension.
pub fn all() -> BTreeMap<String, Vec<u8>> {
    let all = folder("golden");
    assert!(all.len() >= 46, "the recordings are there");
    all
}

/// The files of a folder under `tests/`; empty if the folder does not exist.
pub fn folder(name: &str) -> BTreeMap<String, Vec<u8>> {
    // This file is compiled into this crate's tests and into the fuzz crate's seeds; both have different paths.
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tests = [here.join("tests/golden"), here.join("../crates/smb-wire/tests/golden")];
    let tests = tests.iter().find(|f| f.is_dir()).and_then(|f| f.parent()).expect("the folder of the tests");
    let Ok(entries) = std::fs::read_dir(tests.join(name)) else { return BTreeMap::new() };
    entries
        .map(|entry| {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let hex: String = text.lines().filter(|l| !l.starts_with('#')).collect();
            let digits = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
            let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (stem, (0..hex.len()).step_by(2).map(digits).collect())
        })
        .collect()
}
