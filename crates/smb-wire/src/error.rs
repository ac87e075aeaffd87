//! Errors of decoding a peer's bytes and of encoding a caller's value.

/// Why a message could not be decoded or encoded.
///
/// Every variant except [`WireError::Unencodable`] means malformed bytes from the peer. A server answers with
/// `STATUS_INVALID_PARAMETER` or ends the connection, as the command's section specifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The bytes end inside the structure.
    #[error("{what}: needs {need} bytes, has {have}")]
    Truncated {
        /// The structure's name in the specification.
        what: &'static str,
        /// Number of bytes needed.
        need: usize,
        /// Number of bytes present.
        have: usize,
    },
    /// The StructureSize field does not have the specified value.
    #[error("{what}: structure size {found}, expected {expected}")]
    StructureSize {
        /// The structure.
        what: &'static str,
        /// The only valid value.
        expected: u16,
        /// The value on the wire.
        found: u16,
    },
    /// A field has an invalid value.
    #[error("{what} is malformed")]
    Malformed {
        /// The field.
        what: &'static str,
    },
    /// A count or length exceeds a limit of this crate.
    #[error("{what}: {len} exceeds the bound {max}")]
    TooLarge {
        /// The field.
        what: &'static str,
        /// The value on the wire.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// A string is not valid UTF-16 (odd length or unpaired surrogate).
    #[error("{what} is not valid UTF-16")]
    Utf16 {
        /// The field.
        what: &'static str,
    },
    /// The caller's value is too long for its length field.
    #[error("{what}: {len} bytes do not fit the field (at most {max})")]
    Unencodable {
        /// The field.
        what: &'static str,
        /// Length of the value.
        len: usize,
        /// The largest length that the field can hold.
        max: usize,
    },
}

impl WireError {
    pub(crate) const fn malformed(what: &'static str) -> Self {
        Self::Malformed { what }
    }
}
