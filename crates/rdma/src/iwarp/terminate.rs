//! The Terminate message (RFC 5040 4.8): why a connection ends, with the offending header.
//!
//! ```text
//! 0  layer (bits 7–4), error type (bits 3–0)
//! 1  error code
//! 2  header control: bit 7 segment length, bit 6 DDP header, bit 5 RDMAP header are there; the rest reserved
//! 3  reserved
//! 4  length of the offending segment, 2 (if bit 7)
//! 6  its DDP header, 14 or 18 (if bit 6)
//!    its RDMAP header: the Read Request, 28 (if bit 5)
//! ```

use crate::TerminateCode;
use crate::iwarp::ddp::{Header, UNTAGGED_LEN};
use crate::iwarp::rdmap::ReadRequest;
use crate::violation::Violation;

/// Maximum length of a Terminate in bytes.
pub const MAX_LEN: usize = 4 + 2 + UNTAGGED_LEN + ReadRequest::LEN;

/// The offending segment, as far as the Terminate describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offender {
    /// Length of its ULPDU in bytes.
    pub length: u16,
    /// Its DDP header.
    pub header: Option<Header>,
    /// The Read Request in it.
    pub request: Option<ReadRequest>,
}

/// Appends a Terminate for `code`.
pub fn write(code: TerminateCode, offender: &Offender, out: &mut Vec<u8>) {
    let (d, r) = (offender.header.is_some(), offender.request.is_some() && offender.header.is_some());
    // RFC 5040 4.8: bits M, D and R tell which headers follow.
    let control = if d { 0xC0 } else { 0 } | if r { 0x20 } else { 0 };
    out.extend_from_slice(&[code.layer << 4 | code.etype & 0x0F, code.code, control, 0]);
    if let Some(header) = &offender.header {
        out.extend_from_slice(&offender.length.to_be_bytes());
        header.write(out);
        if let Some(request) = &offender.request {
            request.write(out);
        }
    }
}

/// Parses the code in a Terminate; the rest of the message only helps people who read packet dumps.
///
/// # Errors
/// The message is shorter than its fixed part.
pub fn parse(payload: &[u8]) -> Result<TerminateCode, Violation> {
    match payload {
        [first, code, _, _, ..] => Ok(TerminateCode { layer: first >> 4, etype: first & 0x0F, code: *code }),
        _ => Err(Violation::MESSAGE_SIZE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iwarp::ddp::{Queue, Untagged};
    use crate::{Remote, Stag};

    #[test]
    fn with_and_without_the_offender() {
        let code = Violation::READ_BOUNDS.code;
        let mut bytes = Vec::new();
        write(code, &Offender::default(), &mut bytes);
        assert_eq!(bytes, [0x01, 0x01, 0, 0]);
        let header =
            Untagged { last: true, control: 0x41, word: 0, queue: Queue::READ_REQUEST, msn: 1, offset: 0 };
        let from = Remote { stag: Stag(2), offset: 3, length: 4 };
        let offender = Offender {
            length: 46,
            header: Some(Header::Untagged(header)),
            request: Some(ReadRequest { sink: Stag(1), sink_offset: 0, from }),
        };
        bytes.clear();
        write(code, &offender, &mut bytes);
        assert_eq!((bytes.len(), &bytes[..6]), (MAX_LEN, &[0x01, 0x01, 0xE0, 0, 0, 46][..]));
        assert_eq!(parse(&bytes), Ok(code));
        assert_eq!(parse(&bytes[..3]), Err(Violation::MESSAGE_SIZE));
    }
}
