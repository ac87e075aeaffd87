//! OPLOCK_BREAK: notifications, acknowledgments and responses for oplocks (MS-SMB2 2.2.23.1, 2.2.24.1, 2.2.25.1)
//! and for leases (2.2.23.2, 2.2.24.2, 2.2.25.2). StructureSize distinguishes them.

use super::OplockLevel;
use crate::cursor::Reader;
use crate::macros::{fixed_message, flag_set};
use crate::{AccessMask, FileId, Guid, ShareAccess, WireError};

flag_set! {
    /// The state of a lease.
    pub struct LeaseState: u32 {
        /// Read caching.
        const READ_CACHING = 1;
        /// Handle caching.
        const HANDLE_CACHING = 2;
        /// Write caching.
        const WRITE_CACHING = 4;
    }
}

flag_set! {
    /// Flags of a lease break notification.
    pub struct LeaseBreakFlags: u32 {
        /// The server waits for an acknowledgment.
        const ACK_REQUIRED = 1;
    }
}

/// The key of a lease, chosen by the client.
pub type LeaseKey = Guid;

fixed_message! {
    /// Oplock break notification, acknowledgment and response, which have the same layout.
    pub struct OplockBreak [24, "oplock break"] {
        /// The new level of the oplock.
        pub oplock_level: OplockLevel => pad 5,
        /// The open.
        pub file_id: FileId,
    }
}

fixed_message! {
    /// Lease break notification (MS-SMB2 2.2.23.2).
    pub struct LeaseBreakNotification [44, "lease break notification"] {
        /// The new epoch (version 2 leases).
        pub new_epoch: u16,
        /// Flags.
        pub flags: LeaseBreakFlags,
        /// The lease.
        pub lease_key: LeaseKey,
        /// The state before the break.
        pub current_lease_state: LeaseState,
        /// The state after the break.
        pub new_lease_state: LeaseState,
        /// Reserved.
        pub break_reason: u32,
        /// Reserved.
        pub access_mask_hint: AccessMask,
        /// Reserved.
        pub share_mask_hint: ShareAccess,
    }
}

fixed_message! {
    /// Lease break acknowledgment (MS-SMB2 2.2.24.2) and response (2.2.25.2), which have the same layout.
    pub struct LeaseBreakAcknowledgment [36, "lease break acknowledgment", pad 2] {
        /// Reserved.
        pub flags: LeaseBreakFlags,
        /// The lease.
        pub lease_key: LeaseKey,
        /// The state that the client keeps.
        pub lease_state: LeaseState,
        /// Reserved.
        pub lease_duration: u64,
    }
}

/// Whether an OPLOCK_BREAK message concerns a lease: its StructureSize is that of [`LeaseBreakNotification`] or of
/// [`LeaseBreakAcknowledgment`], not that of [`OplockBreak`].
///
/// # Errors
/// `Truncated`, or `Malformed` for any other size.
pub fn is_lease_break(msg: &[u8]) -> Result<bool, WireError> {
    let mut r = Reader::new(msg, "oplock break");
    r.skip(crate::HEADER_LEN)?;
    match r.get::<u16>()? {
        24 => Ok(false),
        36 | 44 => Ok(true),
        _ => Err(WireError::malformed("oplock break structure size")),
    }
}
