//! SMB Direct messages (MS-SMBD 2.2). All integers are little-endian, whatever the fabric's order.

use crate::WireError;
use crate::cursor::{Field, Reader, zeros};
use crate::macros::{flag_set, record, record_list};
use crate::ntstatus::NtStatus;

/// The only protocol version.
pub const VERSION_1_0: u16 = 0x0100;
/// Offset of the data in a data transfer message, in bytes: 20, padded to a multiple of 8.
pub const DATA_OFFSET: usize = 24;
/// Minimum `max_receive_size` and `preferred_send_size` of a peer (MS-SMBD 3.1.5.2), in bytes.
pub const MIN_RECEIVE_SIZE: u32 = 128;
/// Minimum `max_fragmented_size` of a peer (MS-SMBD 3.1.5.2), in bytes.
pub const MIN_FRAGMENTED_SIZE: u32 = 131_072;

record! {
    /// SMBDirect Negotiate Request (MS-SMBD 2.2.1).
    pub struct NegotiateRequest [20] {
        /// Lowest version.
        pub min_version: u16,
        /// Highest version.
        pub max_version: u16 => pad 2,
        /// Number of send credits that the sender requests.
        pub credits_requested: u16,
        /// Preferred length of the sender's messages in bytes.
        pub preferred_send_size: u32,
        /// Maximum length of a message that the sender receives, in bytes.
        pub max_receive_size: u32,
        /// Maximum length of a message that the sender reassembles, in bytes.
        pub max_fragmented_size: u32,
    }
}

record! {
    /// SMBDirect Negotiate Response (MS-SMBD 2.2.2).
    pub struct NegotiateResponse [32] {
        /// Lowest version.
        pub min_version: u16,
        /// Highest version.
        pub max_version: u16,
        /// The chosen version.
        pub negotiated_version: u16 => pad 2,
        /// Number of send credits that the sender requests.
        pub credits_requested: u16,
        /// Number of send credits granted.
        pub credits_granted: u16,
        /// Success, or STATUS_NOT_SUPPORTED.
        pub status: NtStatus,
        /// Maximum length of one RDMA Read or Write by the sender, in bytes.
        pub max_read_write_size: u32,
        /// Preferred length of the sender's messages in bytes.
        pub preferred_send_size: u32,
        /// Maximum length of a message that the sender receives, in bytes.
        pub max_receive_size: u32,
        /// Maximum length of a message that the sender reassembles, in bytes.
        pub max_fragmented_size: u32,
    }
}

flag_set! {
    /// Flags of a data transfer message.
    pub struct DataTransferFlags: u16 {
        /// The peer must respond promptly.
        const RESPONSE_REQUESTED = 1;
    }
}

record! {
    /// The head of a SMBDirect Data Transfer Message (MS-SMBD 2.2.3).
    pub struct DataTransfer [20] {
        /// Number of send credits that the sender requests.
        pub credits_requested: u16,
        /// Number of send credits granted.
        pub credits_granted: u16,
        /// Flags.
        pub flags: DataTransferFlags => pad 2,
        /// Number of bytes of the upper-layer message that follow in later messages.
        pub remaining_data_length: u32,
        /// Offset of the data from the start of the message, in bytes; 0 without data.
        pub data_offset: u32,
        /// Length of the data in bytes.
        pub data_length: u32,
    }
}

impl DataTransfer {
    /// Returns the data in `message`, from which this head was decoded.
    ///
    /// # Errors
    /// MS-SMBD 3.1.5.8: `Malformed` if the offset is not a multiple of 8 or points into the head, `Truncated` if
    /// the data is incomplete.
    pub fn data<'a>(&self, message: &'a [u8]) -> Result<&'a [u8], WireError> {
        const WHAT: &str = "SMB Direct data";
        if self.data_length == 0 {
            return Ok(&[]);
        }
        let offset = self.data_offset as usize;
        if offset < Self::LEN || !offset.is_multiple_of(8) {
            return Err(WireError::malformed("SMB Direct DataOffset"));
        }
        crate::cursor::slice(message, offset, self.data_length as usize, WHAT)
    }

    /// Appends the head. If there is data, also appends the four padding bytes, so that the data can follow
    /// immediately.
    pub fn encode_head(&self, out: &mut Vec<u8>) {
        self.put(out);
        if self.data_length != 0 {
            zeros(out, DATA_OFFSET - Self::LEN);
        }
    }
}

record! {
    /// Buffer Descriptor V1 (MS-SMBD 2.2.3.1): memory of the sender that the receiver may read or write.
    #[derive(Hash)]
    pub struct BufferDescriptor [16] {
        /// Offset in the address space of the token.
        pub offset: u64,
        /// Steering tag of the memory, assigned by the sender's adapter.
        pub token: u32,
        /// Length in bytes.
        pub length: u32,
    }
}

record_list! {
    /// The descriptors of a READ or WRITE (ReadChannelInfo, WriteChannelInfo).
    pub struct BufferDescriptors of BufferDescriptor, "buffer descriptors"
}

impl BufferDescriptors<'_> {
    /// Total length of the memory that the descriptors describe, in bytes. A 64-bit sum of 32-bit lengths cannot
    /// overflow.
    pub fn total_length(self) -> u64 {
        self.iter().map(|d| u64::from(d.length)).sum()
    }
}

// The head of a data transfer message includes its padding, as before data; without data only the first 20 bytes
// are sent.
macro_rules! to_bytes {
    ($($name:ident [$len:expr]),*) => {$(
        impl $name {
            /// Encodes the structure for a message without further content.
            pub fn to_bytes(&self) -> [u8; $len] {
                let (mut out, mut bytes) = (Vec::with_capacity($len), [0; $len]);
                self.put(&mut out);
                bytes[..out.len()].copy_from_slice(&out);
                bytes
            }
        }
    )*};
}
to_bytes!(
    NegotiateRequest[Self::LEN],
    NegotiateResponse[Self::LEN],
    BufferDescriptor[Self::LEN],
    DataTransfer[DATA_OFFSET]
);

/// Decodes the negotiate request and checks the sizes and credits; a violation ends the connection (MS-SMBD
/// 3.1.5.2). A version range without 1.0 is not an error here: the server responds with STATUS_NOT_SUPPORTED.
///
/// # Errors
/// `Truncated`; `Malformed` if a size is below its minimum or no credits are requested.
pub fn decode_negotiate_request(message: &[u8]) -> Result<NegotiateRequest, WireError> {
    let request: NegotiateRequest = Reader::new(message, "SMB Direct negotiate request").get()?;
    if request.credits_requested == 0 {
        return Err(WireError::malformed("SMB Direct CreditsRequested"));
    }
    if request.max_receive_size < MIN_RECEIVE_SIZE {
        return Err(WireError::malformed("SMB Direct MaxReceiveSize"));
    }
    if request.max_fragmented_size < MIN_FRAGMENTED_SIZE {
        return Err(WireError::malformed("SMB Direct MaxFragmentedSize"));
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MS-SMBD 3.1.5.8: the data follows the head, 8-byte aligned, and is complete.
    #[test]
    fn data_is_where_it_may_be() {
        let message = [7; 40];
        let head = |data_offset, data_length| DataTransfer { data_offset, data_length, ..Default::default() };
        assert_eq!(head(24, 16).data(&message), Ok(&message[24..]));
        assert_eq!(head(0, 0).data(&message), Ok(&[][..]));
        assert!(matches!(head(24, 17).data(&message), Err(WireError::Truncated { .. })));
        assert!(matches!(head(16, 4).data(&message), Err(WireError::Malformed { .. })));
        assert!(matches!(head(28, 4).data(&message), Err(WireError::Malformed { .. })));
        assert!(matches!(head(u32::MAX - 7, u32::MAX).data(&message), Err(WireError::Truncated { .. })));
    }

    #[test]
    fn a_head_without_data_is_twenty_bytes() {
        let mut out = Vec::new();
        DataTransfer::default().encode_head(&mut out);
        assert_eq!(out.len(), 20);
        out.clear();
        DataTransfer { data_offset: 24, data_length: 1, ..Default::default() }.encode_head(&mut out);
        assert_eq!(out.len(), DATA_OFFSET);
    }

    /// MS-SMBD 3.1.5.2.
    #[test]
    fn sizes_below_the_least_end_the_connection() {
        let good = NegotiateRequest {
            min_version: VERSION_1_0,
            max_version: VERSION_1_0,
            credits_requested: 1,
            preferred_send_size: 1364,
            max_receive_size: MIN_RECEIVE_SIZE,
            max_fragmented_size: MIN_FRAGMENTED_SIZE,
        };
        let check = |request: NegotiateRequest| {
            let mut out = Vec::new();
            request.encode(&mut out);
            decode_negotiate_request(&out)
        };
        assert_eq!(check(good), Ok(good));
        assert!(check(NegotiateRequest { credits_requested: 0, ..good }).is_err());
        assert!(check(NegotiateRequest { max_receive_size: 127, ..good }).is_err());
        assert!(check(NegotiateRequest { max_fragmented_size: 131_071, ..good }).is_err());
    }

    #[test]
    fn descriptors_add_up_past_32_bits() {
        let mut out = Vec::new();
        for _ in 0..3 {
            BufferDescriptor { offset: 1, token: 2, length: u32::MAX }.encode(&mut out);
        }
        let all = BufferDescriptors::from_bytes(&out).unwrap();
        assert_eq!((all.len(), all.total_length()), (3, 3 * u64::from(u32::MAX)));
        assert!(BufferDescriptors::from_bytes(&out[1..]).is_err());
    }
}
