//! Leases in CREATE (MS-SMB2 2.2.13.2.8, 2.2.13.2.10; responses in 2.2.14.2).

use crate::WireError;
use crate::cursor::{Field, Reader, zeros};
use crate::macros::{flag_set, record};
use crate::msg::{LeaseKey, LeaseState};

flag_set! {
    /// Flags of a lease.
    pub struct LeaseFlags: u32 {
        /// A break is in progress (response).
        const BREAK_IN_PROGRESS = 2;
        /// The parent lease key is valid (version 2).
        const PARENT_LEASE_KEY_SET = 4;
    }
}

record! {
    /// The fields that only version 2 of a lease has.
    pub struct LeaseV2 [20] {
        /// The key of the parent directory's lease.
        pub parent_lease_key: LeaseKey,
        /// Counts the changes of state.
        pub epoch: u16 => pad 2,
    }
}

/// A requested or granted lease of version 1 or 2. The length of the context's data determines the version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lease {
    /// The lease key, chosen by the client.
    pub key: LeaseKey,
    /// The requested or granted state.
    pub state: LeaseState,
    /// Flags.
    pub flags: LeaseFlags,
    /// Present in version 2.
    pub v2: Option<LeaseV2>,
}

impl Lease {
    /// Length of version 1 in bytes.
    pub const LEN_V1: usize = 32;
    /// Length of version 2 in bytes.
    pub const LEN_V2: usize = Self::LEN_V1 + LeaseV2::LEN;

    /// Decodes an RqLs context's data.
    ///
    /// # Errors
    /// `Malformed` if the length is neither that of version 1 nor that of version 2.
    pub fn decode(data: &[u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(data, "lease");
        if data.len() != Self::LEN_V1 && data.len() != Self::LEN_V2 {
            return Err(WireError::malformed("lease length"));
        }
        let (key, state, flags) = (r.get()?, r.get()?, r.get()?);
        r.skip(8)?; // LeaseDuration, reserved
        let v2 = if data.len() == Self::LEN_V2 { Some(r.get()?) } else { None };
        Ok(Self { key, state, flags, v2 })
    }

    /// Appends the context's data to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.key.put(out);
        self.state.put(out);
        self.flags.put(out);
        zeros(out, 8);
        if let Some(v2) = &self.v2 {
            v2.put(out);
        }
    }
}
