//! The messages of SMB Direct (MS-SMBD 2.2). Every field is little-endian.

use smallvec::SmallVec;

use crate::Violation;

/// The only version there is, 1.0 (MS-SMBD 2.2.1).
pub const VERSION: u16 = 0x0100;

/// Bytes of a negotiate request (MS-SMBD 2.2.1).
pub const NEGOTIATE_REQUEST_LEN: usize = 20;

/// Bytes of a negotiate response (MS-SMBD 2.2.2).
pub const NEGOTIATE_RESPONSE_LEN: usize = 32;

/// Bytes of a data transfer message's header without padding (MS-SMBD 2.2.3).
pub const DATA_TRANSFER_LEN: usize = 20;

/// Where we put the data of a data transfer message: the header rounded up to 8 bytes.
pub const DATA_OFFSET: usize = 24;

/// The smallest MaxReceiveSize that a peer may name, in bytes (MS-SMBD 3.1.5.6).
pub const MIN_RECEIVE_SIZE: u32 = 128;

/// The smallest MaxFragmentedSize that a peer may name, in bytes (MS-SMBD 3.1.5.6).
pub const MIN_FRAGMENTED_SIZE: u32 = 131_072;

/// Buffer descriptors in one request at most: a bound of ours, enough for 8 MiB in pieces of 128 pages.
pub const MAX_DESCRIPTORS: usize = 64;

/// Flag of a data transfer message: the peer is to send something soon (MS-SMBD 2.2.3).
pub const RESPONSE_REQUESTED: u16 = 0x0001;

/// NTSTATUS values in a negotiate response.
pub mod status {
    /// Negotiated.
    pub const SUCCESS: u32 = 0;
    /// No common version (MS-SMBD 3.1.5.6).
    pub const NOT_SUPPORTED: u32 = 0xC000_00BB;
    /// No receive buffer could be posted (MS-SMBD 3.1.5.6).
    pub const INSUFFICIENT_RESOURCES: u32 = 0xC000_009A;
}

fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

/// The first message, from the end that connected (MS-SMBD 2.2.1).
///
/// ```text
///  0 MinVersion u16   2 MaxVersion u16         4 Reserved u16       6 CreditsRequested u16
///  8 PreferredSendSize u32   12 MaxReceiveSize u32   16 MaxFragmentedSize u32
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NegotiateRequest {
    /// The lowest version spoken.
    pub min_version: u16,
    /// The highest.
    pub max_version: u16,
    /// Credits that the sender wants.
    pub credits_requested: u16,
    /// The longest message that the sender asks to send, in bytes.
    pub preferred_send_size: u32,
    /// The longest message that the sender takes.
    pub max_receive_size: u32,
    /// The longest fragmented upper-layer message that the sender takes.
    pub max_fragmented_size: u32,
}

impl NegotiateRequest {
    /// Reads one; bytes after it are ignored.
    ///
    /// # Errors
    /// [`Violation::NegotiateLength`].
    pub fn decode(b: &[u8]) -> Result<NegotiateRequest, Violation> {
        if b.len() < NEGOTIATE_REQUEST_LEN {
            return Err(Violation::NegotiateLength(b.len()));
        }
        Ok(NegotiateRequest {
            min_version: u16_at(b, 0),
            max_version: u16_at(b, 2),
            credits_requested: u16_at(b, 6),
            preferred_send_size: u32_at(b, 8),
            max_receive_size: u32_at(b, 12),
            max_fragmented_size: u32_at(b, 16),
        })
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; NEGOTIATE_REQUEST_LEN] {
        let mut b = [0; NEGOTIATE_REQUEST_LEN];
        b[0..2].copy_from_slice(&self.min_version.to_le_bytes());
        b[2..4].copy_from_slice(&self.max_version.to_le_bytes());
        b[6..8].copy_from_slice(&self.credits_requested.to_le_bytes());
        b[8..12].copy_from_slice(&self.preferred_send_size.to_le_bytes());
        b[12..16].copy_from_slice(&self.max_receive_size.to_le_bytes());
        b[16..20].copy_from_slice(&self.max_fragmented_size.to_le_bytes());
        b
    }
}

/// The answer to a [`NegotiateRequest`] (MS-SMBD 2.2.2).
///
/// ```text
///  0 MinVersion u16   2 MaxVersion u16   4 NegotiatedVersion u16   6 Reserved u16   8 CreditsRequested u16
/// 10 CreditsGranted u16   12 Status u32   16 MaxReadWriteSize u32   20 PreferredSendSize u32
/// 24 MaxReceiveSize u32   28 MaxFragmentedSize u32
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NegotiateResponse {
    /// The lowest version spoken.
    pub min_version: u16,
    /// The highest.
    pub max_version: u16,
    /// The version chosen.
    pub negotiated_version: u16,
    /// Credits that the sender wants.
    pub credits_requested: u16,
    /// Credits that the receiver has from now on.
    pub credits_granted: u16,
    /// NTSTATUS.
    pub status: u32,
    /// The longest RDMA transfer for one request, in bytes.
    pub max_read_write_size: u32,
    /// The longest message that the sender asks to send.
    pub preferred_send_size: u32,
    /// The longest message that the sender takes.
    pub max_receive_size: u32,
    /// The longest fragmented upper-layer message that the sender takes.
    pub max_fragmented_size: u32,
}

impl NegotiateResponse {
    /// Reads one; bytes after it are ignored.
    ///
    /// # Errors
    /// [`Violation::NegotiateLength`].
    pub fn decode(b: &[u8]) -> Result<NegotiateResponse, Violation> {
        if b.len() < NEGOTIATE_RESPONSE_LEN {
            return Err(Violation::NegotiateLength(b.len()));
        }
        Ok(NegotiateResponse {
            min_version: u16_at(b, 0),
            max_version: u16_at(b, 2),
            negotiated_version: u16_at(b, 4),
            credits_requested: u16_at(b, 8),
            credits_granted: u16_at(b, 10),
            status: u32_at(b, 12),
            max_read_write_size: u32_at(b, 16),
            preferred_send_size: u32_at(b, 20),
            max_receive_size: u32_at(b, 24),
            max_fragmented_size: u32_at(b, 28),
        })
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; NEGOTIATE_RESPONSE_LEN] {
        let mut b = [0; NEGOTIATE_RESPONSE_LEN];
        b[0..2].copy_from_slice(&self.min_version.to_le_bytes());
        b[2..4].copy_from_slice(&self.max_version.to_le_bytes());
        b[4..6].copy_from_slice(&self.negotiated_version.to_le_bytes());
        b[8..10].copy_from_slice(&self.credits_requested.to_le_bytes());
        b[10..12].copy_from_slice(&self.credits_granted.to_le_bytes());
        b[12..16].copy_from_slice(&self.status.to_le_bytes());
        b[16..20].copy_from_slice(&self.max_read_write_size.to_le_bytes());
        b[20..24].copy_from_slice(&self.preferred_send_size.to_le_bytes());
        b[24..28].copy_from_slice(&self.max_receive_size.to_le_bytes());
        b[28..32].copy_from_slice(&self.max_fragmented_size.to_le_bytes());
        b
    }
}

/// The header of every later message (MS-SMBD 2.2.3).
///
/// ```text
///  0 CreditsRequested u16   2 CreditsGranted u16   4 Flags u16   6 Reserved u16
///  8 RemainingDataLength u32   12 DataOffset u32   16 DataLength u32   20 padding   DataOffset: data
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataTransfer {
    /// Credits that the sender wants to hold in all.
    pub credits_requested: u16,
    /// Further credits that the receiver has from now on.
    pub credits_granted: u16,
    /// See [`RESPONSE_REQUESTED`].
    pub flags: u16,
    /// Bytes of the upper-layer message after this fragment.
    pub remaining_data_length: u32,
    /// Where the data start, from the start of the header; 0 without data.
    pub data_offset: u32,
    /// Bytes of data.
    pub data_length: u32,
}

impl DataTransfer {
    /// Reads the header at the start of a message.
    ///
    /// # Errors
    /// [`Violation::DataLength`].
    pub fn decode(b: &[u8]) -> Result<DataTransfer, Violation> {
        if b.len() < DATA_TRANSFER_LEN {
            return Err(Violation::DataLength(b.len()));
        }
        Ok(DataTransfer {
            credits_requested: u16_at(b, 0),
            credits_granted: u16_at(b, 2),
            flags: u16_at(b, 4),
            remaining_data_length: u32_at(b, 8),
            data_offset: u32_at(b, 12),
            data_length: u32_at(b, 16),
        })
    }

    /// Its bytes with the padding; without data only the first [`DATA_TRANSFER_LEN`] are sent.
    pub fn encode(&self) -> [u8; DATA_OFFSET] {
        let mut b = [0; DATA_OFFSET];
        b[0..2].copy_from_slice(&self.credits_requested.to_le_bytes());
        b[2..4].copy_from_slice(&self.credits_granted.to_le_bytes());
        b[4..6].copy_from_slice(&self.flags.to_le_bytes());
        b[8..12].copy_from_slice(&self.remaining_data_length.to_le_bytes());
        b[12..16].copy_from_slice(&self.data_offset.to_le_bytes());
        b[16..20].copy_from_slice(&self.data_length.to_le_bytes());
        b
    }
}

/// Bytes of a [`BufferDescriptorV1`].
pub const BUFFER_DESCRIPTOR_LEN: usize = 16;

/// A place in the memory of the end that sends it: the channel information of an SMB2 READ or WRITE is an array of
/// these (MS-SMBD 2.2.3.1).
///
/// ```text
///  0 Offset u64   8 Token u32   12 Length u32
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferDescriptorV1 {
    /// Tagged offset of its first byte.
    pub offset: u64,
    /// Its steering tag.
    pub token: u32,
    /// Bytes.
    pub length: u32,
}

impl BufferDescriptorV1 {
    /// Reads an array; `None` when its length is no multiple of 16 bytes or there are more than [`MAX_DESCRIPTORS`].
    pub fn decode_all(b: &[u8]) -> Option<SmallVec<[BufferDescriptorV1; 4]>> {
        let parts = b.chunks_exact(BUFFER_DESCRIPTOR_LEN);
        if !parts.remainder().is_empty() || parts.len() > MAX_DESCRIPTORS {
            return None;
        }
        let one = |p: &[u8]| BufferDescriptorV1 {
            offset: u64::from(u32_at(p, 0)) | u64::from(u32_at(p, 4)) << 32,
            token: u32_at(p, 8),
            length: u32_at(p, 12),
        };
        Some(parts.map(one).collect())
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; BUFFER_DESCRIPTOR_LEN] {
        let mut b = [0; BUFFER_DESCRIPTOR_LEN];
        b[0..8].copy_from_slice(&self.offset.to_le_bytes());
        b[8..12].copy_from_slice(&self.token.to_le_bytes());
        b[12..16].copy_from_slice(&self.length.to_le_bytes());
        b
    }
}

impl From<rdma::Exposure> for BufferDescriptorV1 {
    fn from(e: rdma::Exposure) -> BufferDescriptorV1 {
        BufferDescriptorV1 { offset: e.offset, token: e.stag.0, length: e.length }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages of a Linux 6.12 client and ksmbd, captured.
    #[test]
    fn golden_negotiation() {
        let request = [0, 1, 0, 1, 0, 0, 0xFF, 0, 0x54, 5, 0, 0, 0x54, 5, 0, 0, 0x56, 0xA7, 2, 0];
        let m = NegotiateRequest {
            min_version: VERSION,
            max_version: VERSION,
            credits_requested: 255,
            preferred_send_size: 1364,
            max_receive_size: 1364,
            max_fragmented_size: 173_910,
        };
        assert_eq!((NegotiateRequest::decode(&request), m.encode()), (Ok(m), request));
        let response = [
            0, 1, 0, 1, 0, 1, 0, 0, 0xFF, 0, 0xFE, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0x54, 5, 0, 0, 0x54, 5, 0,
            0, 0x56, 0xA7, 2, 0,
        ];
        let m = NegotiateResponse {
            min_version: VERSION,
            max_version: VERSION,
            negotiated_version: VERSION,
            credits_requested: 255,
            credits_granted: 254,
            status: status::SUCCESS,
            max_read_write_size: 8 << 20,
            preferred_send_size: 1364,
            max_receive_size: 1364,
            max_fragmented_size: 173_910,
        };
        assert_eq!((NegotiateResponse::decode(&response), m.encode()), (Ok(m), response));
    }

    #[test]
    fn golden_data_transfer() {
        let grant = [0xFF, 0, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let m = DataTransfer { credits_requested: 255, credits_granted: 255, ..EMPTY };
        assert_eq!((DataTransfer::decode(&grant), &m.encode()[..20]), (Ok(m), &grant[..]));
        // The first part of a compound, sent as a fragment.
        let fragment = [0xFF, 0, 1, 0, 0, 0, 0, 0, 192, 0, 0, 0, 24, 0, 0, 0, 152, 0, 0, 0, 0, 0, 0, 0];
        let m = DataTransfer {
            credits_requested: 255,
            credits_granted: 1,
            flags: 0,
            remaining_data_length: 192,
            data_offset: 24,
            data_length: 152,
        };
        assert_eq!((DataTransfer::decode(&fragment), m.encode()), (Ok(m), fragment));
    }

    const EMPTY: DataTransfer = DataTransfer {
        credits_requested: 0,
        credits_granted: 0,
        flags: 0,
        remaining_data_length: 0,
        data_offset: 0,
        data_length: 0,
    };

    #[test]
    fn short_messages() {
        for n in 0..20 {
            assert_eq!(NegotiateRequest::decode(&[0; 20][..n]), Err(Violation::NegotiateLength(n)));
            assert_eq!(DataTransfer::decode(&[0; 20][..n]), Err(Violation::DataLength(n)));
        }
        assert_eq!(NegotiateResponse::decode(&[0; 31]), Err(Violation::NegotiateLength(31)));
    }

    #[test]
    fn descriptors() {
        let d = [
            BufferDescriptorV1 { offset: 0x0102_0304_0506_0708, token: 0x0A0B_0C0D, length: 4096 },
            BufferDescriptorV1 { offset: 0, token: u32::MAX, length: 0 },
        ];
        let bytes: Vec<u8> = d.iter().flat_map(BufferDescriptorV1::encode).collect();
        assert_eq!(bytes[..16], [8, 7, 6, 5, 4, 3, 2, 1, 0x0D, 0x0C, 0x0B, 0x0A, 0, 0x10, 0, 0]);
        assert_eq!(BufferDescriptorV1::decode_all(&bytes).as_deref(), Some(&d[..]));
        assert_eq!(BufferDescriptorV1::decode_all(&bytes[..31]), None);
        assert_eq!(BufferDescriptorV1::decode_all(&[0; 16 * (MAX_DESCRIPTORS + 1)]), None);
        assert_eq!(BufferDescriptorV1::decode_all(&[]).as_deref(), Some(&[][..]));
    }
}
