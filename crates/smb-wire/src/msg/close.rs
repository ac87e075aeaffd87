//! CLOSE (MS-SMB2 2.2.15, 2.2.16).

use crate::macros::{fixed_message, flag_set};
use crate::{FileAttributes, FileId, FileTime};

flag_set! {
    /// Flags of CLOSE.
    pub struct CloseFlags: u16 {
        /// The response shall carry (request), or carries (response), the attributes.
        const POSTQUERY_ATTRIB = 1;
    }
}

fixed_message! {
    /// CLOSE request (MS-SMB2 2.2.15).
    pub struct CloseRequest [24, "CLOSE request"] {
        /// Whether attributes are wanted.
        pub flags: CloseFlags => pad 4,
        /// The open.
        pub file_id: FileId,
    }
}

fixed_message! {
    /// CLOSE response (MS-SMB2 2.2.16); everything but `flags` is zero unless attributes were wanted.
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
        /// Bytes allocated.
        pub allocation_size: u64,
        /// Bytes of the file.
        pub end_of_file: u64,
        /// Attributes.
        pub file_attributes: FileAttributes,
    }
}
