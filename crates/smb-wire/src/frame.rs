//! The four bytes before every message on TCP (MS-SMB2 2.1): a zero and a 24-bit big-endian length.

use crate::WireError;

/// Length of the frame header in bytes.
pub const FRAME_LEN: usize = 4;
/// The longest message that the length field allows, in bytes.
pub const MAX_FRAME: usize = 0x00FF_FFFF;

/// The length in bytes of the message that follows `header`.
///
/// # Errors
/// `Malformed` if the first byte is not zero: NetBIOS session service, or another protocol.
pub const fn decode(header: [u8; FRAME_LEN]) -> Result<usize, WireError> {
    let [zero, a, b, c] = header;
    if zero != 0 {
        return Err(WireError::malformed("direct TCP transport header"));
    }
    Ok((a as usize) << 16 | (b as usize) << 8 | c as usize)
}

/// The frame header of a message of `len` bytes.
///
/// # Errors
/// `Unencodable` past [`MAX_FRAME`].
pub const fn encode(len: usize) -> Result<[u8; FRAME_LEN], WireError> {
    if len > MAX_FRAME {
        return Err(WireError::Unencodable { what: "direct TCP message", len, max: MAX_FRAME });
    }
    Ok((len as u32).to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_big_endian_in_three_bytes() {
        assert_eq!(encode(0x01_0203), Ok([0, 1, 2, 3]));
        assert_eq!(decode([0, 1, 2, 3]), Ok(0x01_0203));
        assert_eq!(encode(MAX_FRAME), Ok([0, 0xFF, 0xFF, 0xFF]));
        assert!(encode(MAX_FRAME + 1).is_err());
        assert!(decode([0x81, 0, 0, 0x44]).is_err(), "a NetBIOS session request");
    }
}
