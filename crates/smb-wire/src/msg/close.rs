//! CLOSE (MS-SMB2 2.2.15, 2.2.16).

use crate::macros::{fixed_message, flag_set};
use crate::{FileAttributes, FileId, FileTime};

flag_set! {
    /// Flags of CLOSE.
    pub struct CloseFlags: u16 {
        /// Request: return the attributes. Response: the attributes are valid.
        const POSTQUERY_ATTRIB = 1;
    }
}

fixed_message! {
    /// CLOSE request (MS-SMB2 2.2.15).
    pub struct CloseRequest [24, "CLOSE request"] {
        /// Whether to return attributes.
        pub flags: CloseFlags => pad 4,
        /// The open.
        pub file_id: FileId,
    }
}

fixed_message! {
    /// CLOSE response (MS-SMB2 2.2.16); all fields except `flags` are zero unless attributes were requested.
    pub struct CloseResponse [60, "CLOSE response"] {
        /// Whether the attributes below are valid.
        pub flags: CloseFlags => pad 4,
        /// Creation time.
        pub creation_time: FileTime,
        /// Last access time.
        pub last_access_time: FileTime,
        /// Last write time.
        pub last_write_time: FileTime,
        /// Change time.
        pub change_time: FileTime,
        /// Allocated size in bytes.
        pub allocation_size: u64,
        /// Length of the file in bytes.
        pub end_of_file: u64,
        /// Attributes.
        pub file_attributes: FileAttributes,
    }
}
