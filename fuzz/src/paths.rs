//! What `vfs` takes from peers.

use vfs::VfsPath;

/// The bytes as UTF-8, and as the UTF-16 that they are on the wire.
pub fn path(bytes: &[u8]) {
    let units: Vec<u16> = bytes.chunks_exact(2).map(|c| u16::from_le_bytes([c[0], c[1]])).collect();
    for text in [String::from_utf8_lossy(bytes).into_owned(), String::from_utf16_lossy(&units)] {
        let Ok(path) = VfsPath::parse(&text) else { continue };
        for part in path.components() {
            assert!(!part.is_empty() && part != "." && part != ".." && !part.contains(['/', '\\', '\0']));
        }
    }
}
