//! The messages of SMB Direct (MS-SMBD 2.2). The codec is [`smb_wire::smbd`]; this module adds the bounds.

use smallvec::SmallVec;
use smb_wire::smbd::{BufferDescriptor, BufferDescriptors};
pub use smb_wire::smbd::{
    DATA_OFFSET, DataTransfer, DataTransferFlags, MIN_FRAGMENTED_SIZE, MIN_RECEIVE_SIZE, NegotiateRequest,
    NegotiateResponse, VERSION_1_0 as VERSION,
};

/// Maximum number of buffer descriptors in one request: a bound of this crate, enough for 8 MiB in pieces of 128
/// pages.
pub const MAX_DESCRIPTORS: usize = 64;

/// Length of a [`BufferDescriptorV1`] in bytes.
pub const BUFFER_DESCRIPTOR_LEN: usize = BufferDescriptor::LEN;

/// A range of the sender's memory: the channel information of an SMB2 READ or WRITE is an array of these (MS-SMBD
/// 2.2.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferDescriptorV1 {
    /// Tagged offset of the first byte.
    pub offset: u64,
    /// The steering tag.
    pub token: u32,
    /// Length in bytes.
    pub length: u32,
}

impl BufferDescriptorV1 {
    /// Decodes an array. Returns `None` if its length is not a multiple of 16 bytes or it has more than
    /// [`MAX_DESCRIPTORS`] elements.
    pub fn decode_all(b: &[u8]) -> Option<SmallVec<[BufferDescriptorV1; 4]>> {
        let parts = BufferDescriptors::from_bytes(b).ok()?;
        (parts.len() <= MAX_DESCRIPTORS).then(|| parts.iter().map(Self::from).collect())
    }

    /// Encodes the descriptor.
    pub fn encode(&self) -> [u8; BUFFER_DESCRIPTOR_LEN] {
        let BufferDescriptorV1 { offset, token, length } = *self;
        BufferDescriptor { offset, token, length }.to_bytes()
    }
}

impl From<BufferDescriptor> for BufferDescriptorV1 {
    fn from(d: BufferDescriptor) -> BufferDescriptorV1 {
        BufferDescriptorV1 { offset: d.offset, token: d.token, length: d.length }
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
    use smb_wire::NtStatus;

    /// Captured messages of a Linux 6.12 client and ksmbd.
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
        assert_eq!((NegotiateRequest::decode(&request), m.to_bytes()), (Ok(m), request));
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
            status: NtStatus::SUCCESS,
            max_read_write_size: 8 << 20,
            preferred_send_size: 1364,
            max_receive_size: 1364,
            max_fragmented_size: 173_910,
        };
        assert_eq!((NegotiateResponse::decode(&response), m.to_bytes()), (Ok(m), response));
    }

    #[test]
    fn golden_data_transfer() {
        let grant = [0xFF, 0, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let m = DataTransfer { credits_requested: 255, credits_granted: 255, ..Default::default() };
        assert_eq!((DataTransfer::decode(&grant), &m.to_bytes()[..20]), (Ok(m), &grant[..]));
        // The first part of a compound, sent as a fragment.
        let fragment = [0xFF, 0, 1, 0, 0, 0, 0, 0, 192, 0, 0, 0, 24, 0, 0, 0, 152, 0, 0, 0, 0, 0, 0, 0];
        let m = DataTransfer {
            credits_requested: 255,
            credits_granted: 1,
            flags: DataTransferFlags::empty(),
            remaining_data_length: 192,
            data_offset: 24,
            data_length: 152,
        };
        assert_eq!((DataTransfer::decode(&fragment), m.to_bytes()), (Ok(m), fragment));
    }

    #[test]
    fn short_messages() {
        for n in 0..20 {
            assert!(NegotiateRequest::decode(&[0; 20][..n]).is_err());
            assert!(DataTransfer::decode(&[0; 20][..n]).is_err());
        }
        assert!(NegotiateResponse::decode(&[0; 31]).is_err());
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
