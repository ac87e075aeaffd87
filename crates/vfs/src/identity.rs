//! Identities of files and streams.

use std::fmt;
use std::sync::Arc;

use crate::StreamName;

/// Identity of a file: the file system and the file on it. Stable while the file exists, across restarts of the server
/// and of the machine, and equal in every tree that contains the file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKey {
    /// The file system: [`crate::VolumeInfo::volume`] of its trees.
    pub volume: u128,
    /// The file on it. The low 64 bits are the file's number there; the high 64 bits distinguish files when a number is
    /// reused.
    pub file: u128,
}

impl FileKey {
    /// The file's number, for 64-bit fields (MS-FSCC 2.1.9).
    pub fn number(self) -> u64 {
        self.file as u64
    }

    /// The volume's serial number in 64 bits.
    pub fn serial(self) -> u64 {
        serial(self.volume)
    }
}

impl fmt::Debug for FileKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}:{:032x}", self.volume, self.file)
    }
}

/// The serial number in 64 bits of a volume.
pub fn serial(volume: u128) -> u64 {
    (volume ^ (volume >> 64)) as u64
}

/// Identity of a stream. Cheap to clone, compare and hash; names that differ in case only are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StreamKey {
    /// The file.
    pub file: FileKey,
    /// The folded name of a named stream; `None` is the unnamed one.
    name: Option<Arc<str>>,
}

impl StreamKey {
    /// The key of the stream `name` of `file`; `None` is the unnamed stream.
    pub fn new(file: FileKey, name: Option<&StreamName>) -> StreamKey {
        StreamKey { file, name: name.map(|n| Arc::clone(n.folded())) }
    }

    /// Whether it is the unnamed stream.
    pub fn is_unnamed(&self) -> bool {
        self.name.is_none()
    }
}

impl From<FileKey> for StreamKey {
    /// The unnamed stream.
    fn from(file: FileKey) -> StreamKey {
        StreamKey { file, name: None }
    }
}
