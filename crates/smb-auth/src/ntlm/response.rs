//! The NTLMv2 response (MS-NLMP 3.3.2) and the password hash behind it.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use md4::{Digest, Md4};
use md5::Md5;
use zeroize::{Zeroize, ZeroizeOnDrop};

use super::{AvPairs, NtlmError};

/// MD4 of the password in UTF-16. It is equivalent to the password: a client can log on with it. Wiped when
/// dropped.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct NtHash([u8; 16]);

impl NtHash {
    /// The hash of a password.
    // MS-NLMP 3.3.1 NTOWFv1
    pub fn from_password(password: &str) -> Self {
        let mut units = utf16le(password);
        let hash = Md4::digest(&units).into();
        units.zeroize();
        Self(hash)
    }

    /// Wraps a stored hash.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The hash. Store it only where no other user can read it.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for NtHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NtHash(..)")
    }
}

/// HMAC-MD5 over the concatenation of `parts`.
pub(super) fn hmac_md5(key: &[u8], parts: &[&[u8]]) -> [u8; 16] {
    let mut mac = Hmac::<Md5>::new_from_slice(key).expect("HMAC takes any key");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// `ResponseKeyNT`; `user` and `domain` are UTF-16LE as the client sent them.
// MS-NLMP 3.3.2 NTOWFv2
pub fn response_key_nt(hash: &NtHash, user: &[u8], domain: &[u8]) -> [u8; 16] {
    let upper: Vec<u8> = user
        .chunks_exact(2)
        .flat_map(|unit| upcase(u16::from_le_bytes([unit[0], unit[1]])).to_le_bytes())
        .collect();
    hmac_md5(&hash.0, &[&upper, domain])
}

/// `NTProofStr`, where `temp` is the response without its proof.
// MS-NLMP 3.3.2
pub fn nt_proof(response_key: &[u8; 16], server_challenge: &[u8; 8], temp: &[u8]) -> [u8; 16] {
    hmac_md5(response_key, &[server_challenge, temp])
}

/// `SessionBaseKey`, which is also NTLMv2's `KeyExchangeKey`.
// MS-NLMP 3.3.2, 3.4.5.1
pub fn session_base_key(response_key: &[u8; 16], proof: &[u8; 16]) -> [u8; 16] {
    hmac_md5(response_key, &[proof])
}

/// The LMv2 response, for servers that send no timestamp.
// MS-NLMP 3.3.2
pub fn lmv2_response(
    response_key: &[u8; 16],
    server_challenge: &[u8; 8],
    client_challenge: &[u8; 8],
) -> [u8; 24] {
    let mut out = [0; 24];
    out[..16].copy_from_slice(&hmac_md5(response_key, &[server_challenge, client_challenge]));
    out[16..].copy_from_slice(client_challenge);
    out
}

/// A parsed NTLMv2 response (MS-NLMP 2.2.2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ntlmv2Response<'a> {
    /// `NTProofStr`.
    pub proof: [u8; 16],
    /// Everything after the proof. The proof covers it and the server challenge.
    pub temp: &'a [u8],
    /// The attribute-value pairs within `temp`.
    pub pairs: AvPairs<'a>,
}

/// Offset of the pairs in `temp`: versions, time, client challenge and reserved fields precede them.
const PAIRS_OFFSET: usize = 28;

impl<'a> Ntlmv2Response<'a> {
    /// Parses a response.
    ///
    /// # Errors
    /// [`NtlmError::BadResponse`], [`NtlmError::BadAvPairs`]: the peer's response is malformed.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, NtlmError> {
        let (proof, temp) = bytes.split_first_chunk::<16>().ok_or(NtlmError::BadResponse)?;
        if temp.len() < PAIRS_OFFSET || temp[..2] != [1, 1] {
            return Err(NtlmError::BadResponse);
        }
        Ok(Self { proof: *proof, temp, pairs: AvPairs::parse(&temp[PAIRS_OFFSET..])? })
    }
}

/// The part of the response that the proof covers.
// MS-NLMP 3.3.2
pub(super) fn build_temp(time: &[u8; 8], client_challenge: &[u8; 8], pairs: &[u8]) -> Vec<u8> {
    let mut temp = Vec::with_capacity(PAIRS_OFFSET + pairs.len() + 4);
    temp.extend_from_slice(&[1, 1, 0, 0, 0, 0, 0, 0]);
    temp.extend_from_slice(time);
    temp.extend_from_slice(client_challenge);
    temp.extend_from_slice(&[0; 4]);
    temp.extend_from_slice(pairs);
    temp.extend_from_slice(&[0; 4]);
    temp
}

/// Encodes a string as UTF-16LE.
pub fn utf16le(s: &str) -> Vec<u8> {
    s.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// Converts one UTF-16 unit to upper case by Windows' one-to-one table: no unit expands to two, no unit outside
/// ASCII maps into ASCII, and the micro sign is not mapped.
pub fn upcase(unit: u16) -> u16 {
    const MICRO_SIGN: u16 = 0xb5;
    let Some(c) = char::from_u32(u32::from(unit)).filter(|_| unit != MICRO_SIGN) else { return unit };
    let mut upper = c.to_uppercase();
    match (upper.next().map(u32::from), upper.next()) {
        (Some(code), None) if code >= 0x80 || unit < 0x80 => u16::try_from(code).unwrap_or(unit),
        _ => unit,
    }
}
