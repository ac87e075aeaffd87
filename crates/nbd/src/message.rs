//! The transmission phase: requests and replies (NBD, "Transmission phase"). Replies are simple or, if
//! negotiated, structured with one chunk each.

/// First field of a request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First field of a simple reply.
pub const REPLY_MAGIC: u32 = 0x6744_6698;
/// Bytes of a request before its payload.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of a simple reply before its payload.
pub const REPLY_BYTES: usize = 16;

/// The command; unknown numbers are preserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command(pub u16);

#[allow(missing_docs)] // the specification's names
impl Command {
    pub const READ: Command = Command(0);
    pub const WRITE: Command = Command(1);
    pub const DISCONNECT: Command = Command(2);
    pub const FLUSH: Command = Command(3);
    pub const TRIM: Command = Command(4);
    pub const WRITE_ZEROES: Command = Command(6);
    pub const BLOCK_STATUS: Command = Command(7);
}

/// The result must be durable before the reply.
pub const FLAG_FUA: u16 = 1;
/// WRITE_ZEROES: the blocks must stay allocated.
pub const FLAG_NO_HOLE: u16 = 2;
/// READ: the reply must be one chunk, which is always the case here.
pub const FLAG_DF: u16 = 4;
/// BLOCK_STATUS: the client wants only one extent.
pub const FLAG_REQ_ONE: u16 = 8;

/// First field of a chunk of a structured reply.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;
/// Bytes of a chunk before its payload.
pub const CHUNK_BYTES: usize = 20;
/// The ID of the context `base:allocation`; an arbitrary number.
pub const ALLOCATION_ID: u32 = 1;
/// `base:allocation`: the extent is not allocated and reads as zeros.
pub const HOLE_AND_ZERO: u32 = 3;

/// One request (28 bytes, big-endian): magic u32, flags u16, type u16, cookie u64, offset u64, length u32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// `FLAG_*`.
    pub flags: u16,
    /// The command.
    pub command: Command,
    /// The client's identifier of the request, copied to the reply.
    pub cookie: u64,
    /// In bytes.
    pub offset: u64,
    /// In bytes; for a WRITE, of the payload that follows.
    pub length: u32,
}

impl Request {
    /// Decodes a request. Returns `None` if the magic number is wrong; the start of the next request is then
    /// unknown.
    pub fn decode(b: &[u8; REQUEST_BYTES]) -> Option<Request> {
        let u16_at = |i: usize| u16::from_be_bytes([b[i], b[i + 1]]);
        let u32_at = |i: usize| u32::from_be_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
        let u64_at = |i: usize| u64::from(u32_at(i)) << 32 | u64::from(u32_at(i + 4));
        (u32_at(0) == REQUEST_MAGIC).then(|| Request {
            flags: u16_at(4),
            command: Command(u16_at(6)),
            cookie: u64_at(8),
            offset: u64_at(16),
            length: u32_at(24),
        })
    }
}

/// A reply's error number: one of the values that the protocol allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorNumber(pub u32);

#[allow(missing_docs)] // errno's names
impl ErrorNumber {
    pub const NONE: ErrorNumber = ErrorNumber(0);
    pub const EPERM: ErrorNumber = ErrorNumber(1);
    pub const EIO: ErrorNumber = ErrorNumber(5);
    pub const EINVAL: ErrorNumber = ErrorNumber(22);
    pub const ENOSPC: ErrorNumber = ErrorNumber(28);
    pub const ESHUTDOWN: ErrorNumber = ErrorNumber(108);
}

/// The header of a simple reply: magic u32, error u32, cookie u64. After an error no payload follows.
pub fn reply(cookie: u64, error: ErrorNumber) -> [u8; REPLY_BYTES] {
    let mut b = [0; REPLY_BYTES];
    b[..4].copy_from_slice(&REPLY_MAGIC.to_be_bytes());
    b[4..8].copy_from_slice(&error.0.to_be_bytes());
    b[8..].copy_from_slice(&cookie.to_be_bytes());
    b
}

/// The only chunk of a structured reply (magic u32, flags u16, type u16, cookie u64, length u32), and the
/// first part of its payload.
fn chunk(cookie: u64, kind: u16, begins: &[u8], follows: usize) -> Vec<u8> {
    const DONE: u16 = 1;
    let mut b = Vec::with_capacity(CHUNK_BYTES + begins.len());
    b.extend_from_slice(&CHUNK_MAGIC.to_be_bytes());
    b.extend_from_slice(&DONE.to_be_bytes());
    b.extend_from_slice(&kind.to_be_bytes());
    b.extend_from_slice(&cookie.to_be_bytes());
    b.extend_from_slice(&((begins.len() + follows) as u32).to_be_bytes());
    b.extend_from_slice(begins);
    b
}

/// NBD_REPLY_TYPE_OFFSET_DATA; `length` bytes of data must follow.
pub fn data_chunk(cookie: u64, offset: u64, length: usize) -> Vec<u8> {
    chunk(cookie, 1, &offset.to_be_bytes(), length)
}

/// NBD_REPLY_TYPE_OFFSET_HOLE: `length` zero bytes; no data follows.
pub fn hole_chunk(cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    chunk(cookie, 2, &[&offset.to_be_bytes()[..], &length.to_be_bytes()].concat(), 0)
}

/// NBD_REPLY_TYPE_BLOCK_STATUS: extents by length and flags.
pub fn status_chunk(cookie: u64, extents: &[(u32, u32)]) -> Vec<u8> {
    let extents = extents.iter().flat_map(|(length, flags)| [*length, *flags]);
    let words: Vec<u8> = [ALLOCATION_ID].into_iter().chain(extents).flat_map(u32::to_be_bytes).collect();
    chunk(cookie, 5, &words, 0)
}

/// NBD_REPLY_TYPE_ERROR, without a message.
pub fn error_chunk(cookie: u64, error: ErrorNumber) -> Vec<u8> {
    let [a, b, c, d] = error.0.to_be_bytes();
    chunk(cookie, 1 << 15 | 1, &[a, b, c, d, 0, 0], 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of NBD's own table.
    #[test]
    fn golden() {
        let bytes =
            *b"\x25\x60\x95\x13\0\x01\0\x01\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\0\0\x01\0\0\0\0\x10\0";
        let request = Request::decode(&bytes).expect("a request");
        let cookie = 0x0102_0304_0506_0708;
        let expected =
            Request { flags: FLAG_FUA, command: Command::WRITE, cookie, offset: 0x10000, length: 0x1000 };
        assert_eq!(request, expected);
        assert_eq!(
            &reply(cookie, ErrorNumber::EIO),
            b"\x67\x44\x66\x98\0\0\0\x05\x01\x02\x03\x04\x05\x06\x07\x08"
        );
        assert_eq!(
            data_chunk(cookie, 0x10000, 0x1000),
            b"\x66\x8e\x33\xef\0\x01\0\x01\x01\x02\x03\x04\x05\x06\x07\x08\0\0\x10\x08\0\0\0\0\0\x01\0\0"
        );
        assert_eq!(
            hole_chunk(cookie, 0x10000, 0x1000),
            b"\x66\x8e\x33\xef\0\x01\0\x02\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\x0c\0\0\0\0\0\x01\0\0\0\0\x10\0"
        );
        assert_eq!(
            status_chunk(cookie, &[(0x1000, HOLE_AND_ZERO)]),
            b"\x66\x8e\x33\xef\0\x01\0\x05\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\x0c\0\0\0\x01\0\0\x10\0\0\0\0\x03"
        );
        assert_eq!(
            error_chunk(cookie, ErrorNumber::EIO),
            b"\x66\x8e\x33\xef\0\x01\x80\x01\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\x06\0\0\0\x05\0\0"
        );
        let mut wrong = bytes;
        wrong[0] ^= 1;
        assert_eq!(Request::decode(&wrong), None);
    }
}
