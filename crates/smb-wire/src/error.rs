//! Errors of decoding bytes from a peer and of encoding a caller's value.

/// Why a message could not be decoded or encoded.
///
/// Every variant but [`WireError::Unencodable`] means malformed bytes from the peer; a server answers those with
/// `STATUS_INVALID_PARAMETER` or ends the connection, as the command's section specifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The bytes end before the structure does.
    #[error("{what}: needs {need} bytes, has {have}")]
    Truncated {
        /// The structure's name in the specification.
        what: &'static str,
        /// Bytes needed.
        need: usize,
        /// Bytes present.
        have: usize,
    },
    /// The StructureSize field is not the one that the specification fixes.
    #[error("{what}: structure size {found}, expected {expected}")]
    StructureSize {
        /// The structure.
        what: &'static str,
        /// The only legal value.
        expected: u16,
        /// The value on the wire.
        found: u16,
    },
    /// A field has a value that the specification forbids.
    #[error("{what} is malformed")]
    Malformed {
        /// The field.
        what: &'static str,
    },
    /// A count or length exceeds a bound named in this crate.
    #[error("{what}: {len} exceeds the bound {max}")]
    TooLarge {
        /// The field.
        what: &'static str,
        /// The value on the wire.
        len: usize,
        /// The bound.
        max: usize,
    },
    /// A string is not valid UTF-16 (odd length or unpaired surrogate).
    #[error("{what} is not valid UTF-16")]
    Utf16 {
        /// The field.
        what: &'static str,
    },
    /// The caller's value does not fit its length field.
    #[error("{what}: {len} bytes do not fit the field (at most {max})")]
    Unencodable {
        /// The field.
        what: &'static str,
        /// The length wanted.
        len: usize,
        /// The largest length that the field can carry.
        max: usize,
    },
}

impl WireError {
    pub(crate) const fn malformed(what: &'static str) -> Self {
        Self::Malformed { what }
    }
}
