//! The part of SMB1 that a multi-protocol negotiate needs (MS-SMB2 3.3.5.3.1, MS-CIFS 2.2.4.52.1): whether the
//! client offers a dialect of SMB2. The rest of SMB1 is not supported.

use crate::WireError;
use crate::cursor::Reader;

/// The protocol identifier of SMB1.
pub const SMB1_PROTOCOL_ID: [u8; 4] = [0xFF, b'S', b'M', b'B'];
/// Maximum number of dialect strings that are read in one message.
pub const MAX_SMB1_DIALECTS: usize = 64;

const SMB1_HEADER_LEN: usize = 32;
const SMB_COM_NEGOTIATE: u8 = 0x72;

/// The SMB2 dialects that a multi-protocol negotiate offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MultiProtocolNegotiate {
    /// "SMB 2.002": respond with [`crate::msg::Dialect::SMB_2_0_2`].
    pub smb_2_002: bool,
    /// "SMB 2.???": respond with [`crate::msg::Dialect::WILDCARD`], and expect an SMB2 NEGOTIATE.
    pub smb_2_wildcard: bool,
}

/// Whether `bytes` start with SMB1's protocol identifier.
pub fn is_smb1(bytes: &[u8]) -> bool {
    bytes.starts_with(&SMB1_PROTOCOL_ID)
}

/// Decodes an SMB1 NEGOTIATE up to its dialects.
///
/// # Errors
/// `Malformed` if it is another message, or its parameters are not those of NEGOTIATE; `Truncated`.
pub fn decode_negotiate(msg: &[u8]) -> Result<MultiProtocolNegotiate, WireError> {
    let mut r = Reader::new(msg, "SMB1 NEGOTIATE");
    let protocol: [u8; 4] = r.array()?;
    let command: u8 = r.get()?;
    if protocol != SMB1_PROTOCOL_ID || command != SMB_COM_NEGOTIATE {
        return Err(WireError::malformed("SMB1 NEGOTIATE"));
    }
    r.skip(SMB1_HEADER_LEN - 5)?;
    // MS-CIFS 2.2.4.52.1: no parameter words, then ByteCount, then dialects.
    if r.get::<u8>()? != 0 {
        return Err(WireError::malformed("SMB1 NEGOTIATE WordCount"));
    }
    let len: u16 = r.get()?;
    let mut rest = r.take(len.into())?;
    let mut found = MultiProtocolNegotiate::default();
    for _ in 0..MAX_SMB1_DIALECTS {
        // Each dialect is a byte 2, a string of 8-bit characters, and a byte 0.
        let Some((2, string)) = rest.split_first() else { break };
        let Some(end) = string.iter().position(|&b| b == 0) else { break };
        match &string[..end] {
            b"SMB 2.002" => found.smb_2_002 = true,
            b"SMB 2.???" => found.smb_2_wildcard = true,
            _ => {}
        }
        rest = &string[end + 1..];
    }
    Ok(found)
}

/// Appends an SMB1 NEGOTIATE that offers the given dialects, as sent by clients that also support SMB1.
pub fn encode_negotiate(out: &mut Vec<u8>, dialects: &[&str]) {
    let bytes: usize = dialects.iter().map(|d| d.len() + 2).sum();
    out.extend_from_slice(&SMB1_PROTOCOL_ID);
    out.push(SMB_COM_NEGOTIATE);
    let start = out.len() - 5;
    crate::cursor::zeros(out, SMB1_HEADER_LEN - 5);
    // Flags2 at 10: Unicode, NT status codes, extended security, long names.
    out[start + 10..start + 12].copy_from_slice(&0xC853u16.to_le_bytes());
    out.push(0);
    out.extend_from_slice(&(bytes as u16).to_le_bytes());
    for dialect in dialects {
        out.push(2);
        out.extend_from_slice(dialect.as_bytes());
        out.push(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dialects_of_smb2_are_found_among_others() {
        let mut out = Vec::new();
        encode_negotiate(&mut out, &["PC NETWORK PROGRAM 1.0", "NT LM 0.12", "SMB 2.002", "SMB 2.???"]);
        assert!(is_smb1(&out));
        let both = MultiProtocolNegotiate { smb_2_002: true, smb_2_wildcard: true };
        assert_eq!(decode_negotiate(&out), Ok(both));

        out.clear();
        encode_negotiate(&mut out, &["NT LM 0.12"]);
        assert_eq!(decode_negotiate(&out), Ok(MultiProtocolNegotiate::default()));
    }

    #[test]
    fn other_commands_are_refused() {
        let mut out = Vec::new();
        encode_negotiate(&mut out, &["SMB 2.002"]);
        out[4] = 0x73;
        assert_eq!(decode_negotiate(&out), Err(WireError::malformed("SMB1 NEGOTIATE")));
        assert!(decode_negotiate(&out[..20]).is_err());
    }
}
