//! Access masks, share modes and file attributes: flag sets that several messages share.

use crate::macros::flag_set;

flag_set! {
    /// ACCESS_MASK (MS-SMB2 2.2.13.1, MS-DTYP 2.4.3). For directories the low bits have other names: LIST_DIRECTORY is
    /// READ_DATA, ADD_FILE is WRITE_DATA, ADD_SUBDIRECTORY is APPEND_DATA, TRAVERSE is EXECUTE.
    pub struct AccessMask: u32 {
        /// Read data, list a directory.
        const READ_DATA = 0x0000_0001;
        /// Write data, add a file.
        const WRITE_DATA = 0x0000_0002;
        /// Append data, add a subdirectory.
        const APPEND_DATA = 0x0000_0004;
        /// Read extended attributes.
        const READ_EA = 0x0000_0008;
        /// Write extended attributes.
        const WRITE_EA = 0x0000_0010;
        /// Execute, traverse.
        const EXECUTE = 0x0000_0020;
        /// Delete entries of a directory.
        const DELETE_CHILD = 0x0000_0040;
        /// Read attributes.
        const READ_ATTRIBUTES = 0x0000_0080;
        /// Write attributes.
        const WRITE_ATTRIBUTES = 0x0000_0100;
        /// Delete the object.
        const DELETE = 0x0001_0000;
        /// Read owner, group and DACL.
        const READ_CONTROL = 0x0002_0000;
        /// Change the DACL.
        const WRITE_DAC = 0x0004_0000;
        /// Change the owner.
        const WRITE_OWNER = 0x0008_0000;
        /// Wait on the object.
        const SYNCHRONIZE = 0x0010_0000;
        /// Read or change the SACL.
        const ACCESS_SYSTEM_SECURITY = 0x0100_0000;
        /// The maximal access that the caller may have.
        const MAXIMUM_ALLOWED = 0x0200_0000;
        /// All rights, before mapping.
        const GENERIC_ALL = 0x1000_0000;
        /// Execute, before mapping.
        const GENERIC_EXECUTE = 0x2000_0000;
        /// Write, before mapping.
        const GENERIC_WRITE = 0x4000_0000;
        /// Read, before mapping.
        const GENERIC_READ = 0x8000_0000;
    }
}

impl AccessMask {
    /// The file rights of GENERIC_READ.
    pub const FILE_GENERIC_READ: Self = Self::from_bits_retain(0x0012_0089);
    /// The file rights of GENERIC_WRITE.
    pub const FILE_GENERIC_WRITE: Self = Self::from_bits_retain(0x0012_0116);
    /// The file rights of GENERIC_EXECUTE.
    pub const FILE_GENERIC_EXECUTE: Self = Self::from_bits_retain(0x0012_00A0);
    /// The file rights of GENERIC_ALL.
    pub const FILE_ALL_ACCESS: Self = Self::from_bits_retain(0x001F_01FF);

    /// Replaces the four generic rights by their file rights.
    pub const fn map_generic(self) -> Self {
        const PAIRS: [(AccessMask, AccessMask); 4] = [
            (AccessMask::GENERIC_READ, AccessMask::FILE_GENERIC_READ),
            (AccessMask::GENERIC_WRITE, AccessMask::FILE_GENERIC_WRITE),
            (AccessMask::GENERIC_EXECUTE, AccessMask::FILE_GENERIC_EXECUTE),
            (AccessMask::GENERIC_ALL, AccessMask::FILE_ALL_ACCESS),
        ];
        let mut bits = self.bits();
        let mut i = 0;
        while i < PAIRS.len() {
            if bits & PAIRS[i].0.bits() != 0 {
                bits = (bits & !PAIRS[i].0.bits()) | PAIRS[i].1.bits();
            }
            i += 1;
        }
        Self::from_bits_retain(bits)
    }
}

flag_set! {
    /// ShareAccess of a CREATE (MS-SMB2 2.2.13).
    pub struct ShareAccess: u32 {
        /// Other opens may read.
        const READ = 1;
        /// Other opens may write.
        const WRITE = 2;
        /// Other opens may delete.
        const DELETE = 4;
    }
}

flag_set! {
    /// File attributes (MS-FSCC 2.6).
    pub struct FileAttributes: u32 {
        /// Read-only.
        const READONLY = 0x0000_0001;
        /// Hidden.
        const HIDDEN = 0x0000_0002;
        /// System.
        const SYSTEM = 0x0000_0004;
        /// A directory.
        const DIRECTORY = 0x0000_0010;
        /// To be archived.
        const ARCHIVE = 0x0000_0020;
        /// No other attribute is set.
        const NORMAL = 0x0000_0080;
        /// Temporary.
        const TEMPORARY = 0x0000_0100;
        /// Sparse.
        const SPARSE_FILE = 0x0000_0200;
        /// Has a reparse point.
        const REPARSE_POINT = 0x0000_0400;
        /// Compressed.
        const COMPRESSED = 0x0000_0800;
        /// The data is on offline storage.
        const OFFLINE = 0x0000_1000;
        /// Not to be indexed.
        const NOT_CONTENT_INDEXED = 0x0000_2000;
        /// Encrypted.
        const ENCRYPTED = 0x0000_4000;
        /// Integrity stream.
        const INTEGRITY_STREAM = 0x0000_8000;
        /// Not to be scrubbed.
        const NO_SCRUB_DATA = 0x0002_0000;
        /// Recall on open.
        const RECALL_ON_OPEN = 0x0004_0000;
        /// Pinned.
        const PINNED = 0x0008_0000;
        /// Unpinned.
        const UNPINNED = 0x0010_0000;
        /// Recall on data access.
        const RECALL_ON_DATA_ACCESS = 0x0040_0000;
    }
}
