//! FLUSH (MS-SMB2 2.2.17, 2.2.18).

use crate::FileId;
use crate::macros::fixed_message;

fixed_message! {
    /// FLUSH request (MS-SMB2 2.2.17).
    pub struct FlushRequest [24, "FLUSH request", pad 6] {
        /// The open.
        pub file_id: FileId,
    }
}

fixed_message! {
    /// FLUSH response (MS-SMB2 2.2.18).
    pub struct FlushResponse [4, "FLUSH response", pad 2] {}
}
