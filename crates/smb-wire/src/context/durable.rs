//! Durable and persistent handles, version 2 (MS-SMB2 2.2.13.2.11, 2.2.13.2.12, 2.2.14.2.12). Version 1 is a FileId
//! or nothing.

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
        /// How long the server shall keep the open without a connection, in ms; 0 leaves it to the server.
        pub timeout_ms: u32,
        /// Flags.
        pub flags: DurableFlags => pad 8,
        /// The client's identifier of this create.
        pub create_guid: Guid,
    }
}

record! {
    /// DH2C request.
    pub struct DurableReconnectV2 [36] {
        /// The open.
        pub file_id: FileId,
        /// The identifier given when it was created.
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
