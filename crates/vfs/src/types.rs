//! Types of the interface between the server and a backend.

use std::sync::Arc;

use arena::Arena;
use bitflags::bitflags;

use crate::{CreateCheck, FileKey, Node, StreamName, VfsPath};

/// File or directory. Anything else (a device, a socket, a link that leads out) is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A file.
    File,
    /// A directory.
    Directory,
}

/// A point in time: seconds since 1970-01-01 UTC and nanoseconds after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds, negative before 1970.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanoseconds: u32,
}

bitflags! {
    /// File attributes, with the values of MS-FSCC 2.6. `DIRECTORY` and `NORMAL` are derived, not stored.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Attributes: u32 {
        /// FILE_ATTRIBUTE_READONLY.
        const READONLY = 0x1;
        /// FILE_ATTRIBUTE_HIDDEN.
        const HIDDEN = 0x2;
        /// FILE_ATTRIBUTE_SYSTEM.
        const SYSTEM = 0x4;
        /// FILE_ATTRIBUTE_DIRECTORY.
        const DIRECTORY = 0x10;
        /// FILE_ATTRIBUTE_ARCHIVE.
        const ARCHIVE = 0x20;
        /// FILE_ATTRIBUTE_NORMAL: no other.
        const NORMAL = 0x80;
        /// FILE_ATTRIBUTE_TEMPORARY.
        const TEMPORARY = 0x100;
        /// FILE_ATTRIBUTE_SPARSE_FILE.
        const SPARSE_FILE = 0x200;
        /// FILE_ATTRIBUTE_REPARSE_POINT.
        const REPARSE_POINT = 0x400;
        /// FILE_ATTRIBUTE_COMPRESSED.
        const COMPRESSED = 0x800;
        /// FILE_ATTRIBUTE_OFFLINE.
        const OFFLINE = 0x1000;
        /// FILE_ATTRIBUTE_NOT_CONTENT_INDEXED.
        const NOT_CONTENT_INDEXED = 0x2000;
    }
}

impl Attributes {
    /// The attributes that clients may set and backends store.
    pub const STORED: Attributes = Attributes::READONLY
        .union(Attributes::HIDDEN)
        .union(Attributes::SYSTEM)
        .union(Attributes::ARCHIVE)
        .union(Attributes::TEMPORARY)
        .union(Attributes::OFFLINE)
        .union(Attributes::NOT_CONTENT_INDEXED);
}

/// A file's metadata.
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    /// The file's identity.
    pub id: FileKey,
    /// File or directory.
    pub kind: Kind,
    /// End of file, in bytes (0 for a directory).
    pub size: u64,
    /// Space taken, in bytes.
    pub allocation: u64,
    /// Number of names.
    pub links: u32,
    /// Stored attributes plus `DIRECTORY`, `SPARSE_FILE`, `COMPRESSED` and `REPARSE_POINT` where they apply; never
    /// `NORMAL`.
    pub attributes: Attributes,
    /// Its reparse point; all zeros where `attributes` have no `REPARSE_POINT`.
    pub reparse: ReparseKind,
    /// Creation.
    pub created: Timestamp,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of data.
    pub written: Timestamp,
    /// Last change of anything.
    pub changed: Timestamp,
    /// Size of the extended attributes as FILE_FULL_EA_INFORMATION, in bytes.
    pub ea_size: u32,
    /// Owner, group and mode, where the backend has them: they decide the access to a file without a security
    /// descriptor.
    pub posix: Option<Posix>,
}

/// Owner, group and permission bits of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Posix {
    /// The owner's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
    /// `0o7777`: set-uid, set-gid, sticky, and three bits each for owner, group and others. Where the file has a POSIX
    /// access control list, the group's bits are those of its entry for the owning group, and the others' bits are no
    /// more than any of its named entries has.
    pub mode: u32,
}

/// Times and attributes to set; `None` leaves a field unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub struct BasicChange {
    /// Creation.
    pub created: Option<Timestamp>,
    /// Last access.
    pub accessed: Option<Timestamp>,
    /// Last change of data.
    pub written: Option<Timestamp>,
    /// Last change of anything, where the backend can store it.
    pub changed: Option<Timestamp>,
    /// The stored attributes ([`Attributes::STORED`]); others are ignored.
    pub attributes: Option<Attributes>,
}

/// One directory entry.
#[derive(Clone, Debug)]
pub struct DirEntry {
    /// The name as stored.
    pub name: String,
    /// Its metadata.
    pub stat: Stat,
}

/// One extended attribute (MS-FSCC 2.4.16).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtendedAttribute {
    /// FILE_NEED_EA or 0.
    pub flags: u8,
    /// ASCII name, at most 254 bytes.
    pub name: Vec<u8>,
    /// At most 65,535 bytes.
    pub value: Vec<u8>,
}

/// A reparse point (MS-FSCC 2.1.2) of a file or an empty directory. A backend stores it and does not interpret it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReparsePoint {
    /// The type of the data; not 0.
    pub tag: u32,
    /// The owner of a tag that is not Microsoft's.
    pub guid: Option<[u8; 16]>,
    /// At most [`ReparsePoint::DATA_MAX`] bytes.
    pub data: Vec<u8>,
}

impl ReparsePoint {
    /// The most data, in bytes.
    pub const DATA_MAX: usize = 16_384;
}

/// The part of a reparse point that is known without reading it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReparseKind {
    /// Its tag (MS-FSCC 2.1.2.1).
    pub tag: u32,
    /// The first eight bytes of its data, little-endian, zeros behind the end: a special file's type (MS-FSCC 2.1.2.6).
    pub head: u64,
}

impl From<&ReparsePoint> for ReparseKind {
    fn from(point: &ReparsePoint) -> ReparseKind {
        let mut head = [0; 8];
        let length = point.data.len().min(head.len());
        head[..length].copy_from_slice(&point.data[..length]);
        ReparseKind { tag: point.tag, head: u64::from_le_bytes(head) }
    }
}

/// One data stream.
#[derive(Clone, Debug)]
pub struct StreamInfo {
    /// The name as stored; `None` is the unnamed stream.
    pub name: Option<StreamName>,
    /// End of data, in bytes.
    pub size: u64,
    /// Space taken, in bytes.
    pub allocation: u64,
}

/// Facts about a mounted tree.
#[derive(Clone, Debug)]
pub struct VolumeInfo {
    /// Shown to clients.
    pub label: String,
    /// File system name shown to clients; "NTFS" is what Windows programs look for.
    pub file_system: String,
    /// The file system of the root ([`FileKey::volume`]); stable.
    pub volume: u128,
    /// When the volume was created.
    pub created: Timestamp,
    /// Names that differ in case only are different names.
    pub case_sensitive: bool,
    /// Sparse files are supported.
    pub sparse: bool,
    /// Allocation unit, in bytes.
    pub cluster: u32,
    /// Longest name component.
    pub name_max: u32,
    /// Nothing may be changed.
    pub read_only: bool,
    /// Files may be removed: [`crate::Vfs::remove`].
    pub removal: bool,
    /// Opens of a file remain usable after its last name was removed.
    pub removal_keeps_opens: bool,
    /// Files can share blocks: [`Node::clone_to`].
    pub reflinks: bool,
    /// Files can be compressed: [`Node::set_compressed`].
    pub compression: bool,
    /// There may be snapshots: [`crate::Vfs::snapshots`].
    pub snapshots: bool,
    /// Files can be opened by [`crate::short_name`] too.
    pub short_names: bool,
    /// Files and directories can have named streams.
    pub named_streams: bool,
    /// Files and empty directories can be reparse points.
    pub reparse_points: bool,
    /// This machine's clock sets the time of a write, when it is made: not those of another machine, later.
    pub local_times: bool,
}

/// Space, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// All.
    pub total: u64,
    /// Free.
    pub free: u64,
    /// Free and available to this user.
    pub available: u64,
}

/// Whether to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Only what exists.
    Open,
    /// Only what does not exist.
    Create,
    /// Either.
    OpenOrCreate,
}

/// What the node will be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Data will be read (or a directory listed).
    pub read: bool,
    /// Data will be written.
    pub write: bool,
}

/// The longest [`OpenRequest::creation_id`], in bytes.
pub const CREATION_ID_MAX: usize = 128;

/// A request to open or create.
#[derive(Clone)]
pub struct OpenRequest {
    /// Where.
    pub path: VfsPath,
    /// A named stream of the file or directory at `path`; `mode` is about the stream then. Creating the stream of a
    /// file that does not exist creates the file first.
    pub stream: Option<StreamName>,
    /// Whether to create.
    pub mode: OpenMode,
    /// The required kind; `None`: either (a creation makes a file). A stream is a file, also that of a directory.
    pub kind: Option<Kind>,
    /// The intended use.
    pub rights: Rights,
    /// Attributes of a new file.
    pub attributes: Attributes,
    /// Decides whether a new file, or a new stream of an existing file, may be created. Without it every file may be
    /// created, and gets no security descriptor.
    pub create_check: Option<Arc<dyn CreateCheck>>,
    /// Extended attributes of a new file.
    pub extended_attributes: Vec<ExtendedAttribute>,
    /// Stored with a new file before it gets its name: see [`crate::Node::creation_id`]. At most [`CREATION_ID_MAX`]
    /// bytes.
    pub creation_id: Option<Vec<u8>>,
    /// Open a symbolic link of the backend at the end of the path as a file that is a reparse point. Otherwise the
    /// backend follows the link.
    pub link: bool,
}

impl OpenRequest {
    /// A request to read metadata only: it creates nothing, and neither reads nor writes data.
    pub fn for_metadata(path: VfsPath) -> OpenRequest {
        OpenRequest {
            path,
            stream: None,
            mode: OpenMode::Open,
            kind: None,
            rights: Rights { read: false, write: false },
            attributes: Attributes::empty(),
            create_check: None,
            extended_attributes: Vec::new(),
            creation_id: None,
            link: false,
        }
    }

    /// See [`CreateCheck::allows_stream`].
    pub(crate) fn allows_stream(&self, file: FileKey) -> bool {
        self.create_check.as_ref().is_none_or(|check| check.allows_stream(file))
    }
}

/// The result of an open.
pub struct Opened {
    /// The node.
    pub node: Arc<dyn Node>,
    /// Whether this call created it (the stream, where one was requested).
    pub created: bool,
    /// The path as stored (case and all).
    pub path: VfsPath,
    /// The name as stored of the named stream that was opened.
    pub stream: Option<StreamName>,
    /// Its metadata after the open.
    pub stat: Stat,
    /// The directories on the path (the root first, without the file itself) that have no security descriptor and lack
    /// an execute bit for owner, group or others, so that not every user may traverse them.
    pub restricted_directories: Vec<Posix>,
}

/// The memory for a read's payload, and its limits.
pub struct ReadOptions<'a> {
    /// At most this many bytes.
    pub length: u32,
    /// Memory for them.
    pub arena: &'a Arena,
    /// The caller accepts [`crate::Data::File`].
    pub file_ok: bool,
}
