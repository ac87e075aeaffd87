//! Integrity, block cloning, object identifiers, resilient handles.

use crate::macros::{flag_set, record};
use crate::{FileId, Guid};

flag_set! {
    /// Flags of integrity information.
    pub struct IntegrityFlags: u32 {
        /// Checksums are not enforced.
        const CHECKSUM_ENFORCEMENT_OFF = 1;
    }
}

record! {
    /// FSCTL_GET_INTEGRITY_INFORMATION reply (MS-FSCC 2.3).
    pub struct GetIntegrity [16] {
        /// 0 none, 2 CRC64.
        pub checksum_algorithm: u16 => pad 2,
        /// Flags.
        pub flags: IntegrityFlags,
        /// Number of bytes that a checksum covers.
        pub checksum_chunk_size_in_bytes: u32,
        /// Length of a cluster in bytes.
        pub cluster_size_in_bytes: u32,
    }
}

record! {
    /// FSCTL_SET_INTEGRITY_INFORMATION request (MS-FSCC 2.3).
    pub struct SetIntegrity [8] {
        /// 0 none, 2 CRC64, 0xFFFF unchanged.
        pub checksum_algorithm: u16 => pad 2,
        /// Flags.
        pub flags: IntegrityFlags,
    }
}

record! {
    /// SMB2_DUPLICATE_EXTENTS_DATA (MS-FSCC 2.3).
    pub struct DuplicateExtents [40] {
        /// The open to clone from.
        pub source_file_id: FileId,
        /// Offset in the source, in bytes.
        pub source_file_offset: u64,
        /// Offset in the target, in bytes.
        pub target_file_offset: u64,
        /// Length in bytes.
        pub byte_count: u64,
    }
}

record! {
    /// FILE_OBJECTID_BUFFER, type 1 (MS-FSCC 2.1.3.1).
    pub struct ObjectIdBuffer [64] {
        /// The identifier.
        pub object_id: Guid,
        /// The volume on which the file was created.
        pub birth_volume_id: Guid,
        /// The file's object identifier when it was created.
        pub birth_object_id: Guid,
        /// Zero.
        pub domain_id: Guid,
    }
}

record! {
    /// NETWORK_RESILIENCY_REQUEST (MS-SMB2 2.2.31.3).
    pub struct ResiliencyRequest [8] {
        /// How long the server is asked to keep the open without a connection, in ms.
        pub timeout_ms: u32 => pad 4,
    }
}
