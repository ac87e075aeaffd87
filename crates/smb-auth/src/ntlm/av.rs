//! Attribute-value pairs (MS-NLMP 2.2.2.1).

use super::NtlmError;

/// The type of a pair. Unknown types are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AvId(pub u16);

impl AvId {
    /// Ends the list.
    pub const END: Self = Self(0);
    /// The server's NetBIOS name.
    pub const NB_COMPUTER_NAME: Self = Self(1);
    /// The domain's NetBIOS name.
    pub const NB_DOMAIN_NAME: Self = Self(2);
    /// The server's DNS name.
    pub const DNS_COMPUTER_NAME: Self = Self(3);
    /// The domain's DNS name.
    pub const DNS_DOMAIN_NAME: Self = Self(4);
    /// [`AvFlags`].
    pub const FLAGS: Self = Self(6);
    /// The server's time, a FILETIME.
    pub const TIMESTAMP: Self = Self(7);
    /// Data on the client machine.
    pub const SINGLE_HOST: Self = Self(8);
    /// The service's principal name, from the client.
    pub const TARGET_NAME: Self = Self(9);
    /// A hash of the outer channel, or zeros.
    pub const CHANNEL_BINDINGS: Self = Self(10);
}

/// The value of [`AvId::FLAGS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AvFlags(pub u32);

impl AvFlags {
    /// The AUTHENTICATE_MESSAGE carries a MIC.
    pub const MIC: Self = Self(2);
}

/// A validated list of pairs, borrowed from a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AvPairs<'a> {
    bytes: &'a [u8],
}

impl<'a> AvPairs<'a> {
    /// Checks that `bytes` hold pairs up to an end marker; bytes after it are ignored.
    ///
    /// # Errors
    /// [`NtlmError::BadAvPairs`]: the peer's list has no end marker.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, NtlmError> {
        let mut rest = bytes;
        loop {
            let (id, _, after) = split_pair(rest).ok_or(NtlmError::BadAvPairs)?;
            rest = after;
            if id == AvId::END {
                return Ok(Self { bytes: &bytes[..bytes.len() - rest.len()] });
            }
        }
    }

    /// The pairs in order, without the end marker.
    pub fn iter(self) -> impl Iterator<Item = (AvId, &'a [u8])> {
        let mut rest = self.bytes;
        std::iter::from_fn(move || {
            let (id, value, after) = split_pair(rest)?;
            rest = after;
            (id != AvId::END).then_some((id, value))
        })
    }

    /// The first pair with this id.
    pub fn get(self, id: AvId) -> Option<&'a [u8]> {
        self.iter().find(|pair| pair.0 == id).map(|pair| pair.1)
    }

    /// The bits set in any [`AvId::FLAGS`] pair: a second pair must not be able to hide the first one's MIC bit.
    ///
    /// # Errors
    /// [`NtlmError::BadAvPairs`]: the peer's flags are not four bytes long.
    pub fn flags(self) -> Result<AvFlags, NtlmError> {
        self.iter().filter(|pair| pair.0 == AvId::FLAGS).try_fold(AvFlags::default(), |flags, (_, value)| {
            let bits: [u8; 4] = value.try_into().map_err(|_| NtlmError::BadAvPairs)?;
            Ok(AvFlags(flags.0 | u32::from_le_bytes(bits)))
        })
    }

    /// The server's time, if the list has one of the right length.
    pub fn timestamp(self) -> Option<[u8; 8]> {
        self.get(AvId::TIMESTAMP)?.try_into().ok()
    }
}

/// Appends a pair.
pub(super) fn push(out: &mut Vec<u8>, id: AvId, value: &[u8]) {
    let length = u16::try_from(value.len()).expect("attributes are short");
    out.extend_from_slice(&id.0.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(value);
}

fn split_pair(bytes: &[u8]) -> Option<(AvId, &[u8], &[u8])> {
    let (header, rest) = bytes.split_first_chunk::<4>()?;
    let length = usize::from(u16::from_le_bytes([header[2], header[3]]));
    let (value, rest) = rest.split_at_checked(length)?;
    Some((AvId(u16::from_le_bytes([header[0], header[1]])), value, rest))
}
