//! Negotiate contexts (MS-SMB2 2.2.3.1 and 2.2.4.1), the same in both directions.

use std::marker::PhantomData;

use crate::cursor::{Field, Reader, fit_u16, pad};
use crate::macros::{flag_set, open_enum};
use crate::{Utf16Le, WireError};

/// Maximum number of contexts in one message. The specification has no limit and eight types.
pub const MAX_NEGOTIATE_CONTEXTS: usize = 64;

open_enum! {
    /// The type of a negotiate context.
    pub struct NegotiateContextType(u16) {
        /// Pre-authentication integrity.
        PREAUTH_INTEGRITY_CAPABILITIES = 1,
        /// Encryption.
        ENCRYPTION_CAPABILITIES = 2,
        /// Compression.
        COMPRESSION_CAPABILITIES = 3,
        /// The server's name as the client wrote it.
        NETNAME_NEGOTIATE_CONTEXT_ID = 5,
        /// Transport security.
        TRANSPORT_CAPABILITIES = 6,
        /// RDMA transforms.
        RDMA_TRANSFORM_CAPABILITIES = 7,
        /// Signing.
        SIGNING_CAPABILITIES = 8,
        /// POSIX extensions (not MS-SMB2).
        POSIX_EXTENSIONS = 0x100,
    }
}

open_enum! {
    /// Hash of pre-authentication integrity.
    pub struct HashAlgorithm(u16) {
        /// SHA-512.
        SHA_512 = 1,
    }
}

open_enum! {
    /// A cipher.
    pub struct Cipher(u16) {
        /// No common cipher (response only).
        NONE = 0,
        /// AES-128-CCM.
        AES_128_CCM = 1,
        /// AES-128-GCM.
        AES_128_GCM = 2,
        /// AES-256-CCM.
        AES_256_CCM = 3,
        /// AES-256-GCM.
        AES_256_GCM = 4,
    }
}

open_enum! {
    /// A compression algorithm.
    pub struct CompressionAlgorithm(u16) {
        /// None.
        NONE = 0,
        /// LZNT1.
        LZNT1 = 1,
        /// LZ77.
        LZ77 = 2,
        /// LZ77 with Huffman.
        LZ77_HUFFMAN = 3,
        /// Runs of one byte at the start and at the end.
        PATTERN_V1 = 4,
        /// LZ4.
        LZ4 = 5,
    }
}

open_enum! {
    /// A signing algorithm.
    pub struct SigningAlgorithm(u16) {
        /// HMAC-SHA256.
        HMAC_SHA256 = 0,
        /// AES-CMAC.
        AES_CMAC = 1,
        /// AES-GMAC.
        AES_GMAC = 2,
    }
}

open_enum! {
    /// A transform of RDMA payload.
    pub struct RdmaTransform(u16) {
        /// None.
        NONE = 0,
        /// Encryption.
        ENCRYPTION = 1,
        /// Signing.
        SIGNING = 2,
    }
}

flag_set! {
    /// Flags of the compression context.
    pub struct CompressionFlags: u32 {
        /// Chained compression is supported.
        const CHAINED = 1;
    }
}

flag_set! {
    /// Flags of the transport context.
    pub struct TransportFlags: u32 {
        /// The transport's security replaces SMB encryption.
        const ACCEPT_TRANSPORT_LEVEL_SECURITY = 1;
    }
}

/// A list of 16-bit identifiers inside a context.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct IdList<'a, T> {
    bytes: &'a [u8],
    of: PhantomData<T>,
}

impl<'a, T: From<u16> + PartialEq + 'a> IdList<'a, T> {
    fn take(r: &mut Reader<'a>, count: u16) -> Result<Self, WireError> {
        Ok(Self { bytes: r.take(usize::from(count) * 2)?, of: PhantomData })
    }

    /// The identifiers in the sender's order of preference.
    pub fn iter(self) -> impl ExactSizeIterator<Item = T> + 'a {
        self.bytes.chunks_exact(2).map(|c| T::from(u16::from_le_bytes([c[0], c[1]])))
    }

    /// Whether `id` is in the list.
    pub fn contains(self, id: T) -> bool {
        self.iter().any(|x| x == id)
    }

    /// Number of elements.
    pub fn len(self) -> usize {
        self.bytes.len() / 2
    }

    /// Whether the list is empty.
    pub fn is_empty(self) -> bool {
        self.bytes.is_empty()
    }
}

impl<'a, T: From<u16> + PartialEq + std::fmt::Debug + 'a> std::fmt::Debug for IdList<'a, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.bytes.chunks_exact(2).map(|c| T::from(u16::from_le_bytes([c[0], c[1]]))))
            .finish()
    }
}

macro_rules! id {
    ($($t:ident),*) => {$(
        impl From<u16> for $t {
            fn from(value: u16) -> Self {
                Self(value)
            }
        }
    )*};
}
id!(HashAlgorithm, Cipher, CompressionAlgorithm, SigningAlgorithm, RdmaTransform);

/// The contexts of a message, undecoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NegotiateContexts<'a> {
    bytes: &'a [u8],
    count: u16,
}

impl<'a> NegotiateContexts<'a> {
    /// Wraps `count` contexts at the start of `bytes`; further bytes are ignored.
    ///
    /// # Errors
    /// `TooLarge` past [`MAX_NEGOTIATE_CONTEXTS`].
    pub fn from_bytes(bytes: &'a [u8], count: u16) -> Result<Self, WireError> {
        let len = usize::from(count);
        if len > MAX_NEGOTIATE_CONTEXTS {
            return Err(WireError::TooLarge { what: "negotiate contexts", len, max: MAX_NEGOTIATE_CONTEXTS });
        }
        Ok(Self { bytes, count })
    }

    /// The bytes.
    pub const fn as_bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The announced number.
    pub const fn count(self) -> u16 {
        self.count
    }

    /// The contexts; ends after the first error.
    pub fn raw(self) -> impl Iterator<Item = Result<RawNegotiateContext<'a>, WireError>> + 'a {
        let mut r = Reader::new(self.bytes, "negotiate context");
        let mut left = self.count;
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            r.align(8);
            let mut step = || {
                let context_type = r.get()?;
                let len: u16 = r.get()?;
                r.skip(4)?;
                Ok(RawNegotiateContext { context_type, data: r.take(len.into())? })
            };
            let item = step();
            if item.is_err() {
                left = 0;
            }
            Some(item)
        })
    }

    /// The decoded contexts. Ends after the first error in the list, but not after an error inside a context.
    pub fn iter(self) -> impl Iterator<Item = Result<NegotiateContext<'a>, WireError>> + 'a {
        self.raw().map(|raw| raw.and_then(|raw| raw.parse()))
    }
}

/// An undecoded context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawNegotiateContext<'a> {
    /// Its type.
    pub context_type: NegotiateContextType,
    /// Its data.
    pub data: &'a [u8],
}

/// A context, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NegotiateContext<'a> {
    /// 2.2.3.1.1.
    Preauth {
        /// Hash algorithms.
        hashes: IdList<'a, HashAlgorithm>,
        /// Salt.
        salt: &'a [u8],
    },
    /// 2.2.3.1.2.
    Encryption(IdList<'a, Cipher>),
    /// 2.2.3.1.3.
    Compression {
        /// Whether payloads may be chained.
        flags: CompressionFlags,
        /// Algorithms.
        algorithms: IdList<'a, CompressionAlgorithm>,
    },
    /// 2.2.3.1.4.
    NetName(Utf16Le<'a>),
    /// 2.2.3.1.5.
    Transport(TransportFlags),
    /// 2.2.3.1.6.
    RdmaTransform(IdList<'a, RdmaTransform>),
    /// 2.2.3.1.7.
    Signing(IdList<'a, SigningAlgorithm>),
    /// Versions of the POSIX extensions, 16 bytes each (not MS-SMB2).
    Posix(&'a [u8]),
    /// Unknown; the receiver must ignore it.
    Unknown(RawNegotiateContext<'a>),
}

impl<'a> RawNegotiateContext<'a> {
    /// Decodes the data.
    ///
    /// # Errors
    /// Malformed input from the peer; an unknown type is not an error.
    pub fn parse(self) -> Result<NegotiateContext<'a>, WireError> {
        let mut r = Reader::new(self.data, "negotiate context data");
        Ok(match self.context_type {
            NegotiateContextType::PREAUTH_INTEGRITY_CAPABILITIES => {
                let (count, salt_len): (u16, u16) = (r.get()?, r.get()?);
                let hashes = IdList::take(&mut r, count)?;
                NegotiateContext::Preauth { hashes, salt: r.take(salt_len.into())? }
            }
            NegotiateContextType::ENCRYPTION_CAPABILITIES => {
                let count = r.get()?;
                NegotiateContext::Encryption(IdList::take(&mut r, count)?)
            }
            NegotiateContextType::COMPRESSION_CAPABILITIES => {
                let count = r.get()?;
                r.skip(2)?;
                let flags = r.get()?;
                NegotiateContext::Compression { flags, algorithms: IdList::take(&mut r, count)? }
            }
            NegotiateContextType::NETNAME_NEGOTIATE_CONTEXT_ID => {
                NegotiateContext::NetName(Utf16Le::new(self.data, "NetName")?)
            }
            NegotiateContextType::TRANSPORT_CAPABILITIES => NegotiateContext::Transport(r.get()?),
            NegotiateContextType::RDMA_TRANSFORM_CAPABILITIES => {
                let count = r.get()?;
                r.skip(6)?;
                NegotiateContext::RdmaTransform(IdList::take(&mut r, count)?)
            }
            NegotiateContextType::SIGNING_CAPABILITIES => {
                let count = r.get()?;
                NegotiateContext::Signing(IdList::take(&mut r, count)?)
            }
            NegotiateContextType::POSIX_EXTENSIONS => NegotiateContext::Posix(self.data),
            _ => NegotiateContext::Unknown(self),
        })
    }
}

/// Builds the contexts of a message.
#[derive(Debug, Clone, Default)]
pub struct NegotiateContextsBuf {
    bytes: Vec<u8>,
    count: u16,
}

impl NegotiateContextsBuf {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Borrows the contexts for a message.
    pub fn as_contexts(&self) -> NegotiateContexts<'_> {
        NegotiateContexts { bytes: &self.bytes, count: self.count }
    }

    /// Appends a context of any type.
    ///
    /// # Errors
    /// `Unencodable` past 65,535 bytes.
    pub fn push(&mut self, context_type: NegotiateContextType, data: &[u8]) -> Result<&mut Self, WireError> {
        let len = fit_u16(data.len(), "negotiate context")?;
        let out = &mut self.bytes;
        pad(out, 0, 8);
        context_type.put(out);
        len.put(out);
        0u32.put(out);
        out.extend_from_slice(data);
        self.count += 1;
        Ok(self)
    }

    /// Pre-authentication integrity.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn preauth(&mut self, hashes: &[HashAlgorithm], salt: &[u8]) -> Result<&mut Self, WireError> {
        let mut data = Vec::with_capacity(4 + hashes.len() * 2 + salt.len());
        fit_u16(hashes.len(), "HashAlgorithmCount")?.put(&mut data);
        fit_u16(salt.len(), "SaltLength")?.put(&mut data);
        hashes.iter().for_each(|x| x.put(&mut data));
        data.extend_from_slice(salt);
        self.push(NegotiateContextType::PREAUTH_INTEGRITY_CAPABILITIES, &data)
    }

    /// Encryption.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn encryption(&mut self, ciphers: &[Cipher]) -> Result<&mut Self, WireError> {
        self.ids(NegotiateContextType::ENCRYPTION_CAPABILITIES, ciphers, &[])
    }

    /// Compression.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn compression(
        &mut self,
        flags: CompressionFlags,
        algorithms: &[CompressionAlgorithm],
    ) -> Result<&mut Self, WireError> {
        let [a, b, c, d] = flags.bits().to_le_bytes();
        self.ids(NegotiateContextType::COMPRESSION_CAPABILITIES, algorithms, &[0, 0, a, b, c, d])
    }

    /// The server's name as the client wrote it.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn net_name(&mut self, name: &str) -> Result<&mut Self, WireError> {
        let mut data = Vec::new();
        crate::put_str(&mut data, name);
        self.push(NegotiateContextType::NETNAME_NEGOTIATE_CONTEXT_ID, &data)
    }

    /// Transport security.
    ///
    /// # Errors
    /// Does not fail in practice.
    pub fn transport(&mut self, flags: TransportFlags) -> Result<&mut Self, WireError> {
        self.push(NegotiateContextType::TRANSPORT_CAPABILITIES, &flags.bits().to_le_bytes())
    }

    /// RDMA transforms.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn rdma_transform(&mut self, transforms: &[RdmaTransform]) -> Result<&mut Self, WireError> {
        self.ids(NegotiateContextType::RDMA_TRANSFORM_CAPABILITIES, transforms, &[0; 6])
    }

    /// Signing.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn signing(&mut self, algorithms: &[SigningAlgorithm]) -> Result<&mut Self, WireError> {
        self.ids(NegotiateContextType::SIGNING_CAPABILITIES, algorithms, &[])
    }

    /// POSIX extensions, of their only version.
    ///
    /// # Errors
    /// Does not fail in practice.
    pub fn posix(&mut self) -> Result<&mut Self, WireError> {
        self.push(NegotiateContextType::POSIX_EXTENSIONS, super::create::name::POSIX)
    }

    /// Writes a count, fixed bytes after it, then identifiers.
    fn ids<T: Field>(
        &mut self,
        context_type: NegotiateContextType,
        ids: &[T],
        between: &[u8],
    ) -> Result<&mut Self, WireError> {
        let mut data = Vec::with_capacity(2 + between.len() + ids.len() * 2);
        fit_u16(ids.len(), "negotiate context count")?.put(&mut data);
        data.extend_from_slice(between);
        ids.iter().for_each(|x| x.put(&mut data));
        self.push(context_type, &data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// POSIX context of a Linux client: the type, 16 bytes of data, the version.
    #[test]
    fn posix_golden() {
        let mut buf = NegotiateContextsBuf::new();
        buf.posix().expect("short");
        let golden = [
            0x00, 0x01, 0x10, 0x00, 0, 0, 0, 0, //
            0x93, 0xAD, 0x25, 0x50, 0x9C, 0xB4, 0x11, 0xE7, 0xB4, 0x23, 0x83, 0xDE, 0x96, 0x8B, 0xCD, 0x7C,
        ];
        let contexts = buf.as_contexts();
        assert_eq!(contexts.as_bytes(), golden);
        let found: Vec<_> = contexts.iter().collect();
        assert_eq!(found, [Ok(NegotiateContext::Posix(&golden[8..]))]);
    }
}
