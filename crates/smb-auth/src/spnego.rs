//! SPNEGO tokens (RFC 4178, MS-SPNG), with only the DER that they need.
//!
//! The grammar has a fixed depth, so parsing does not recurse, and it allocates only the list of [`MAX_MECHS`]
//! mechanisms. Only definite lengths are accepted. They need not be minimal, because some peers pad them.

use std::fmt;

mod der;

use der::{Reader, wrap};

/// The longest accepted token, in bytes: SecurityBufferLength of SESSION_SETUP is a 16-bit field (MS-SMB2 2.2.5).
pub const MAX_TOKEN: usize = 0xffff;
/// Maximum number of mechanisms in a token.
pub const MAX_MECHS: usize = 32;

/// A mechanism's object identifier: the content bytes of its DER encoding.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Oid<'a>(pub &'a [u8]);

impl Oid<'static> {
    /// SPNEGO itself, 1.3.6.1.5.5.2.
    pub const SPNEGO: Self = Oid(&[0x2b, 6, 1, 5, 5, 2]);
    /// NTLM, 1.3.6.1.4.1.311.2.2.10.
    pub const NTLMSSP: Self = Oid(&[0x2b, 6, 1, 4, 1, 0x82, 0x37, 2, 2, 10]);
    /// Kerberos 5, 1.2.840.113554.1.2.2.
    pub const KERBEROS: Self = Oid(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 1, 2, 2]);
    /// Kerberos 5 with the identifier of Windows 2000, 1.2.840.48018.1.2.2: the same mechanism.
    pub const MS_KERBEROS: Self = Oid(&[0x2a, 0x86, 0x48, 0x82, 0xf7, 0x12, 1, 2, 2]);
    /// NEGOEX, 1.3.6.1.4.1.311.2.2.30.
    pub const NEGOEX: Self = Oid(&[0x2b, 6, 1, 4, 1, 0x82, 0x37, 2, 2, 30]);
}

impl fmt::Debug for Oid<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Oid::SPNEGO => f.write_str("SPNEGO"),
            Oid::NTLMSSP => f.write_str("NTLMSSP"),
            Oid::KERBEROS => f.write_str("Kerberos"),
            Oid::MS_KERBEROS => f.write_str("MS-Kerberos"),
            Oid::NEGOEX => f.write_str("NEGOEX"),
            Oid(bytes) => write!(f, "Oid({bytes:02x?})"),
        }
    }
}

/// `negState` of a response: the state of the negotiation (RFC 4178 4.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NegState(pub u8);

impl NegState {
    /// The context is established.
    pub const ACCEPT_COMPLETED: Self = Self(0);
    /// Another token is needed.
    pub const ACCEPT_INCOMPLETE: Self = Self(1);
    /// The negotiation failed.
    pub const REJECT: Self = Self(2);
    /// Another token is needed, and a MIC must protect the mechanism list.
    pub const REQUEST_MIC: Self = Self(3);
}

/// Why the peer's bytes are not a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpnegoError {
    /// The peer's token ends inside an element.
    #[error("token ends inside an element")]
    Truncated,
    /// The peer's token holds another element than the grammar allows here.
    #[error("unexpected element {0:#04x}")]
    UnexpectedTag(u8),
    /// The peer uses an indefinite length, or one of more than four bytes.
    #[error("unsupported length encoding")]
    Length,
    /// The peer's initial token is for another mechanism than SPNEGO.
    #[error("not a SPNEGO token")]
    NotSpnego,
    /// The peer lists more than [`MAX_MECHS`] mechanisms.
    #[error("more than {MAX_MECHS} mechanisms")]
    TooManyMechs,
    /// The peer's token is longer than [`MAX_TOKEN`].
    #[error("token longer than {MAX_TOKEN} bytes")]
    TooLong,
    /// The peer's token names the same field twice, or lacks its list of mechanisms.
    #[error("field missing or given twice")]
    Fields,
}

/// Content of a security buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token<'a> {
    /// The initiator's first token, or the server's hint in its NEGOTIATE response.
    Init(NegTokenInit<'a>),
    /// Every later token.
    Resp(NegTokenResp<'a>),
    /// NTLM without SPNEGO around it, as some clients send it (MS-SMB2 3.3.5.5.3).
    RawNtlm(&'a [u8]),
}

/// `NegTokenInit` (RFC 4178 4.2.1) and `NegTokenInit2` (MS-SPNG 2.2.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NegTokenInit<'a> {
    /// The mechanisms, most preferred first.
    pub mechs: Vec<Oid<'a>>,
    /// The list as the peer encoded it, with tag and length: the mechListMIC covers it.
    pub mech_list: &'a [u8],
    /// The first mechanism's first token.
    pub mech_token: Option<&'a [u8]>,
    /// The MIC over `mech_list`.
    pub mech_list_mic: Option<&'a [u8]>,
}

/// `NegTokenResp` (RFC 4178 4.2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NegTokenResp<'a> {
    /// State of the negotiation; initiators omit it.
    pub state: Option<NegState>,
    /// The mechanism chosen; in the acceptor's first response only.
    pub supported_mech: Option<Oid<'a>>,
    /// The mechanism's token.
    pub response_token: Option<&'a [u8]>,
    /// The MIC over the initiator's list of mechanisms.
    pub mech_list_mic: Option<&'a [u8]>,
}

impl<'a> Token<'a> {
    /// Parses a security buffer. Bytes after the token and unknown fields are ignored.
    ///
    /// # Errors
    /// [`SpnegoError`]: the peer's bytes are not a token.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, SpnegoError> {
        if bytes.len() > MAX_TOKEN {
            return Err(SpnegoError::TooLong);
        }
        if bytes.starts_with(crate::ntlm::SIGNATURE) {
            return Ok(Self::RawNtlm(bytes));
        }
        let mut reader = Reader::new(bytes);
        match reader.element()? {
            (der::APPLICATION_0, body) => {
                let mut body = Reader::new(body);
                if Oid(body.expect(der::OID)?) != Oid::SPNEGO {
                    return Err(SpnegoError::NotSpnego);
                }
                let inner = body.expect(der::CONTEXT_0)?;
                NegTokenInit::parse(Reader::new(inner).expect(der::SEQUENCE)?).map(Self::Init)
            }
            // Some initiators omit the RFC 2743 framing.
            (der::CONTEXT_0, inner) => {
                NegTokenInit::parse(Reader::new(inner).expect(der::SEQUENCE)?).map(Self::Init)
            }
            (der::CONTEXT_1, inner) => {
                NegTokenResp::parse(Reader::new(inner).expect(der::SEQUENCE)?).map(Self::Resp)
            }
            (tag, _) => Err(SpnegoError::UnexpectedTag(tag)),
        }
    }
}

impl<'a> NegTokenInit<'a> {
    fn parse(fields: &'a [u8]) -> Result<Self, SpnegoError> {
        let mut fields = Reader::new(fields);
        let (mut list, mut mech_token, mut mech_list_mic) = (None, None, None);
        while !fields.is_empty() {
            let (tag, value) = fields.element()?;
            match tag {
                der::CONTEXT_0 => set_once(&mut list, value)?,
                der::CONTEXT_2 => set_once(&mut mech_token, Reader::new(value).expect(der::OCTET_STRING)?)?,
                // In NegTokenInit, [3] is the MIC. In NegTokenInit2, [3] is the hints and [4] is the MIC.
                der::CONTEXT_3 if value.first() == Some(&der::SEQUENCE) => {}
                der::CONTEXT_3 | der::CONTEXT_4 => {
                    set_once(&mut mech_list_mic, Reader::new(value).expect(der::OCTET_STRING)?)?;
                }
                _ => {}
            }
        }
        let mech_list = list.ok_or(SpnegoError::Fields)?;
        let mut oids = Reader::new(Reader::new(mech_list).expect(der::SEQUENCE)?);
        let mut mechs = Vec::new();
        while !oids.is_empty() {
            if mechs.len() == MAX_MECHS {
                return Err(SpnegoError::TooManyMechs);
            }
            mechs.push(Oid(oids.expect(der::OID)?));
        }
        Ok(Self { mechs, mech_list, mech_token, mech_list_mic })
    }
}

impl<'a> NegTokenResp<'a> {
    fn parse(fields: &'a [u8]) -> Result<Self, SpnegoError> {
        let mut fields = Reader::new(fields);
        let mut token = Self::default();
        while !fields.is_empty() {
            let (tag, value) = fields.element()?;
            let mut value = Reader::new(value);
            match tag {
                der::CONTEXT_0 => match value.expect(der::ENUMERATED)? {
                    &[state] => set_once(&mut token.state, NegState(state))?,
                    _ => return Err(SpnegoError::Length),
                },
                der::CONTEXT_1 => set_once(&mut token.supported_mech, Oid(value.expect(der::OID)?))?,
                der::CONTEXT_2 => set_once(&mut token.response_token, value.expect(der::OCTET_STRING)?)?,
                der::CONTEXT_3 => set_once(&mut token.mech_list_mic, value.expect(der::OCTET_STRING)?)?,
                _ => {}
            }
        }
        Ok(token)
    }

    /// Encodes the token.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut fields = Vec::new();
        if let Some(NegState(state)) = self.state {
            fields.extend(wrap(der::CONTEXT_0, &wrap(der::ENUMERATED, &[state])));
        }
        if let Some(Oid(oid)) = self.supported_mech {
            fields.extend(wrap(der::CONTEXT_1, &wrap(der::OID, oid)));
        }
        if let Some(token) = self.response_token {
            fields.extend(wrap(der::CONTEXT_2, &wrap(der::OCTET_STRING, token)));
        }
        if let Some(mic) = self.mech_list_mic {
            fields.extend(wrap(der::CONTEXT_3, &wrap(der::OCTET_STRING, mic)));
        }
        wrap(der::CONTEXT_1, &wrap(der::SEQUENCE, &fields))
    }
}

/// Encodes a list of mechanisms in DER, as the mechListMIC covers it.
pub fn mech_list(mechs: &[Oid<'_>]) -> Vec<u8> {
    let oids: Vec<u8> = mechs.iter().flat_map(|oid| wrap(der::OID, oid.0)).collect();
    wrap(der::SEQUENCE, &oids)
}

/// Encodes the initiator's first token.
// RFC 4178 4.2.1, RFC 2743 3.1
pub fn build_init(mechs: &[Oid<'_>], mech_token: &[u8]) -> Vec<u8> {
    let mut fields = wrap(der::CONTEXT_0, &mech_list(mechs));
    fields.extend(wrap(der::CONTEXT_2, &wrap(der::OCTET_STRING, mech_token)));
    framed(&fields)
}

/// Encodes the server's hint in its NEGOTIATE response: the accepted mechanisms, most preferred first.
// MS-SPNG 2.2.1, MS-SMB2 3.3.5.4
pub fn build_hint(mechs: &[Oid<'_>]) -> Vec<u8> {
    let mut fields = wrap(der::CONTEXT_0, &mech_list(mechs));
    let name = wrap(der::CONTEXT_0, &wrap(der::GENERAL_STRING, b"not_defined_in_RFC4178@please_ignore"));
    fields.extend(wrap(der::CONTEXT_3, &wrap(der::SEQUENCE, &name)));
    framed(&fields)
}

fn framed(fields: &[u8]) -> Vec<u8> {
    let mut body = wrap(der::OID, Oid::SPNEGO.0);
    body.extend(wrap(der::CONTEXT_0, &wrap(der::SEQUENCE, fields)));
    wrap(der::APPLICATION_0, &body)
}

fn set_once<T>(field: &mut Option<T>, value: T) -> Result<(), SpnegoError> {
    if field.replace(value).is_some() { Err(SpnegoError::Fields) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
