//! Durable and persistent handles, version 2 (MS-SMB2 2.2.13.2.11, 2.2.13.2.12, 2.2.14.2.12). The data of version 1
//! is a FileId or empty.

use crate::macros::{flag_set, record};
use crate::{FileId, Guid};

flag_set! {
    /// Flags of DH2Q and DH2C.
    pub struct DurableFlags: u32 {
        /// Persistent.
        const PERSISTENT = 2;
    }
}

record! {
    /// DH2Q request.
    pub struct DurableRequestV2 [32] {
        /// How long the server is asked to keep the open without a connection, in ms; 0 lets the server choose.
        pub timeout_ms: u32,
        /// Flags.
        pub flags: DurableFlags => pad 8,
        /// The client's identifier of this CREATE.
        pub create_guid: Guid,
    }
}

record! {
    /// DH2C request.
    pub struct DurableReconnectV2 [36] {
        /// The open.
        pub file_id: FileId,
        /// The identifier of the original CREATE.
        pub create_guid: Guid,
        /// Flags.
        pub flags: DurableFlags,
    }
}

record! {
    /// DH2Q response.
    pub struct DurableResponseV2 [8] {
        /// How long the server keeps the open without a connection, in ms.
        pub timeout_ms: u32,
        /// Flags.
        pub flags: DurableFlags,
    }
}
