//! The three messages (MS-NLMP 2.2.1). All integers are little-endian; a field is described by length, allocated
//! length and offset.

use super::{NtlmError, SIGNATURE};

/// `NegotiateFlags` (MS-NLMP 2.2.2.5). Unknown bits are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u32);

impl Flags {
    /// Names are UTF-16.
    pub const UNICODE: Self = Self(0x0000_0001);
    /// Names are in the client's OEM character set.
    pub const OEM: Self = Self(0x0000_0002);
    /// The client wants the target's name.
    pub const REQUEST_TARGET: Self = Self(0x0000_0004);
    /// Signing keys are wanted.
    pub const SIGN: Self = Self(0x0000_0010);
    /// Sealing keys are wanted.
    pub const SEAL: Self = Self(0x0000_0020);
    /// NTLM, not only LM.
    pub const NTLM: Self = Self(0x0000_0200);
    /// The client wants a null session.
    pub const ANONYMOUS: Self = Self(0x0000_0800);
    /// Sign all messages.
    pub const ALWAYS_SIGN: Self = Self(0x0000_8000);
    /// The target is a server, not a domain.
    pub const TARGET_TYPE_SERVER: Self = Self(0x0002_0000);
    /// NTLMv2 session security.
    pub const EXTENDED_SESSIONSECURITY: Self = Self(0x0008_0000);
    /// The challenge carries attribute-value pairs.
    pub const TARGET_INFO: Self = Self(0x0080_0000);
    /// Messages carry a version.
    pub const VERSION: Self = Self(0x0200_0000);
    /// 128-bit keys.
    pub const KEY_128: Self = Self(0x2000_0000);
    /// The client chooses the session key and sends it encrypted.
    pub const KEY_EXCH: Self = Self(0x4000_0000);
    /// 56-bit keys.
    pub const KEY_56: Self = Self(0x8000_0000);

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The bits set in either.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The bits set in both.
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// The version we announce: 6.1, NTLMSSP revision 15. Informational only (MS-NLMP 2.2.2.10).
pub const OUR_VERSION: [u8; 8] = [6, 1, 0, 0, 0, 0, 0, 15];
/// The version field if no version was negotiated.
pub const NO_VERSION: [u8; 8] = [0; 8];

/// NEGOTIATE_MESSAGE (MS-NLMP 2.2.1.1). Its domain and workstation names are ignored, as the specification
/// requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiate {
    /// Flags that the client supports.
    pub flags: Flags,
}

impl Negotiate {
    /// Parses a message.
    ///
    /// # Errors
    /// [`NtlmError`]: the peer's bytes are not a NEGOTIATE_MESSAGE.
    pub fn parse(bytes: &[u8]) -> Result<Self, NtlmError> {
        check_type(bytes, 1)?;
        Ok(Self { flags: Flags(u32_at(bytes, 12)?) })
    }

    /// Encodes the message, without names, with our version.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(40);
        out.extend_from_slice(SIGNATURE);
        out.extend_from_slice(&1u32.to_le_bytes());
        out.extend_from_slice(&self.flags.0.to_le_bytes());
        out.extend_from_slice(&[0; 16]);
        out.extend_from_slice(&OUR_VERSION);
        out
    }
}

/// CHALLENGE_MESSAGE (MS-NLMP 2.2.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge<'a> {
    /// Flags that the server chose.
    pub flags: Flags,
    /// The server's random bytes.
    pub server_challenge: [u8; 8],
    /// The target's name, encoded as the flags say.
    pub target_name: &'a [u8],
    /// Attribute-value pairs.
    pub target_info: &'a [u8],
}

impl<'a> Challenge<'a> {
    /// Parses a message.
    ///
    /// # Errors
    /// [`NtlmError`]: the peer's bytes are not a CHALLENGE_MESSAGE.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, NtlmError> {
        check_type(bytes, 2)?;
        let flags = Flags(u32_at(bytes, 20)?);
        Ok(Self {
            flags,
            server_challenge: array_at(bytes, 24)?,
            target_name: field(bytes, 12)?,
            // Servers without target information may end before these fields.
            target_info: if flags.contains(Flags::TARGET_INFO) { field(bytes, 40)? } else { &[] },
        })
    }

    /// Encodes the message, with our version if the flags say so.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::new(2, 56);
        out.field(12, self.target_name);
        out.bytes[20..24].copy_from_slice(&self.flags.0.to_le_bytes());
        out.bytes[24..32].copy_from_slice(&self.server_challenge);
        out.field(40, self.target_info);
        out.version(48, self.flags);
        out.bytes
    }
}

/// AUTHENTICATE_MESSAGE (MS-NLMP 2.2.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authenticate<'a> {
    /// The negotiated flags, as the client sees them.
    pub flags: Flags,
    /// LM or LMv2 response.
    pub lm_response: &'a [u8],
    /// NTLMv1 or NTLMv2 response.
    pub nt_response: &'a [u8],
    /// The domain, in UTF-16 if the flags say so, else in the client's OEM character set.
    pub domain: &'a [u8],
    /// The user, in the encoding of `domain`.
    pub user: &'a [u8],
    /// The client machine, in the encoding of `domain`.
    pub workstation: &'a [u8],
    /// The session key, RC4-encrypted.
    pub encrypted_session_key: &'a [u8],
    /// The bytes at the offset of the MIC. They are a MIC only if the response's attributes say so.
    pub mic: Option<[u8; 16]>,
}

/// Offset of the MIC in an AUTHENTICATE_MESSAGE.
pub(super) const MIC_OFFSET: usize = 72;
const AUTHENTICATE_FIXED: usize = 88;
/// The longest accepted name, in bytes: 256 UTF-16 units.
const MAX_NAME: usize = 512;

impl<'a> Authenticate<'a> {
    /// Parses a message. Names have at most 512 bytes, an even number of them in UTF-16.
    ///
    /// # Errors
    /// [`NtlmError`]: the peer's bytes are not an AUTHENTICATE_MESSAGE.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, NtlmError> {
        check_type(bytes, 3)?;
        let flags = Flags(u32_at(bytes, 60)?);
        let unit = if flags.contains(Flags::UNICODE) { 2 } else { 1 };
        let name = |at| match field(bytes, at)? {
            name if name.len() % unit == 0 && name.len() <= MAX_NAME => Ok(name),
            _ => Err(NtlmError::BadName),
        };
        Ok(Self {
            flags,
            lm_response: field(bytes, 12)?,
            nt_response: field(bytes, 20)?,
            domain: name(28)?,
            user: name(36)?,
            workstation: name(44)?,
            encrypted_session_key: field(bytes, 52)?,
            mic: array_at(bytes, MIC_OFFSET).ok(),
        })
    }

    /// Encodes the message, with our version if the flags say so, and with `mic` (zeros if `None`).
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::new(3, AUTHENTICATE_FIXED);
        out.field(28, self.domain);
        out.field(36, self.user);
        out.field(44, self.workstation);
        out.field(12, self.lm_response);
        out.field(20, self.nt_response);
        out.field(52, self.encrypted_session_key);
        out.bytes[60..64].copy_from_slice(&self.flags.0.to_le_bytes());
        out.version(64, self.flags);
        out.bytes[MIC_OFFSET..AUTHENTICATE_FIXED].copy_from_slice(&self.mic.unwrap_or_default());
        out.bytes
    }
}

/// Encodes a message: the fixed part, followed by the fields' contents.
struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn new(message_type: u32, fixed: usize) -> Self {
        let mut bytes = vec![0; fixed];
        bytes[..8].copy_from_slice(SIGNATURE);
        bytes[8..12].copy_from_slice(&message_type.to_le_bytes());
        Self { bytes }
    }

    fn field(&mut self, at: usize, content: &[u8]) {
        let length = u16::try_from(content.len()).expect("our own fields are short").to_le_bytes();
        let offset = u32::try_from(self.bytes.len()).expect("our own messages are short").to_le_bytes();
        self.bytes[at..at + 2].copy_from_slice(&length);
        self.bytes[at + 2..at + 4].copy_from_slice(&length);
        self.bytes[at + 4..at + 8].copy_from_slice(&offset);
        self.bytes.extend_from_slice(content);
    }

    fn version(&mut self, at: usize, flags: Flags) {
        let version = if flags.contains(Flags::VERSION) { OUR_VERSION } else { NO_VERSION };
        self.bytes[at..at + 8].copy_from_slice(&version);
    }
}

fn check_type(bytes: &[u8], wanted: u32) -> Result<(), NtlmError> {
    if !bytes.starts_with(SIGNATURE) {
        return Err(NtlmError::NotNtlm);
    }
    match u32_at(bytes, 8)? {
        found if found == wanted => Ok(()),
        found => Err(NtlmError::UnexpectedType(found)),
    }
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], NtlmError> {
    let slice = bytes.get(at..at + N).ok_or(NtlmError::Truncated)?;
    Ok(slice.try_into().expect("N bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, NtlmError> {
    array_at(bytes, at).map(u32::from_le_bytes)
}

/// The content of the field whose descriptor is at offset `at`. The offset of an empty field is ignored.
fn field(bytes: &[u8], at: usize) -> Result<&[u8], NtlmError> {
    let length = usize::from(u16::from_le_bytes(array_at(bytes, at)?));
    let offset = u32_at(bytes, at + 4)? as usize;
    if length == 0 {
        return Ok(&[]);
    }
    bytes.get(offset..).and_then(|rest| rest.get(..length)).ok_or(NtlmError::FieldOutside)
}
