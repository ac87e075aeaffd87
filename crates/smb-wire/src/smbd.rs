//! SMB Direct messages (MS-SMBD 2.2). All integers are little-endian, whatever the fabric's order.

use crate::WireError;
use crate::cursor::{Field, Reader, zeros};
use crate::macros::{flag_set, record, record_list};
use crate::ntstatus::NtStatus;

/// The only protocol version.
pub const VERSION_1_0: u16 = 0x0100;
/// Bytes in front of the data of a data transfer message when there is data: 20, padded to a multiple of 8.
pub const DATA_OFFSET: usize = 24;
/// The least `max_receive_size` and `preferred_send_size` that a peer may announce (MS-SMBD 3.1.5.2), in bytes.
pub const MIN_RECEIVE_SIZE: u32 = 128;
/// The least `max_fragmented_size` that a peer may announce (MS-SMBD 3.1.5.2), in bytes.
pub const MIN_FRAGMENTED_SIZE: u32 = 131_072;

record! {
    /// SMBDirect Negotiate Request (MS-SMBD 2.2.1).
    pub struct NegotiateRequest [20] {
        /// Lowest version.
        pub min_version: u16,
        /// Highest version.
        pub max_version: u16 => pad 2,
        /// Send credits that the sender would like.
        pub credits_requested: u16,
        /// Bytes that the sender would like to send in one message.
        pub preferred_send_size: u32,
        /// Bytes that the sender can receive in one message.
        pub max_receive_size: u32,
        /// Bytes that the sender can reassemble.
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
        /// Version chosen.
        pub negotiated_version: u16 => pad 2,
        /// Send credits that the sender would like.
        pub credits_requested: u16,
        /// Send credits granted.
        pub credits_granted: u16,
        /// Success, or STATUS_NOT_SUPPORTED.
        pub status: NtStatus,
        /// Bytes that the sender will transfer by one RDMA Read or Write at most.
        pub max_read_write_size: u32,
        /// Bytes that the sender would like to send in one message.
        pub preferred_send_size: u32,
        /// Bytes that the sender can receive in one message.
        pub max_receive_size: u32,
        /// Bytes that the sender can reassemble.
        pub max_fragmented_size: u32,
    }
}

flag_set! {
    /// Flags of a data transfer message.
    pub struct DataTransferFlags: u16 {
        /// The peer is to send something at once.
        const RESPONSE_REQUESTED = 1;
    }
}

record! {
    /// The head of a SMBDirect Data Transfer Message (MS-SMBD 2.2.3).
    pub struct DataTransfer [20] {
        /// Send credits that the sender would like.
        pub credits_requested: u16,
        /// Send credits granted.
        pub credits_granted: u16,
        /// Flags.
        pub flags: DataTransferFlags => pad 2,
        /// Bytes of the upper-layer message that follow in later messages.
        pub remaining_data_length: u32,
        /// Where the data starts, in bytes from the start of the message; 0 without data.
        pub data_offset: u32,
        /// Bytes of data.
        pub data_length: u32,
    }
}

impl DataTransfer {
    /// The data inside `message`, which the head was decoded from.
    ///
    /// # Errors
    /// MS-SMBD 3.1.5.8: `Malformed` when the offset is not a multiple of 8 or points into the head, `Truncated` when
    /// the data is not all there.
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

    /// Appends the head; with data also the four bytes in front of it, so that the data can follow at once.
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
        /// Where, in the address space of the token.
        pub offset: u64,
        /// Steering tag, as the sender's adapter names its memory.
        pub token: u32,
        /// Bytes.
        pub length: u32,
    }
}

record_list! {
    /// The descriptors of a READ or WRITE (ReadChannelInfo, WriteChannelInfo).
    pub struct BufferDescriptors of BufferDescriptor, "buffer descriptors"
}

impl BufferDescriptors<'_> {
    /// Bytes that all descriptors together describe. The sum of 64-bit counts of 32-bit lengths cannot overflow.
    pub fn total_length(self) -> u64 {
        self.iter().map(|d| u64::from(d.length)).sum()
    }
}

/// Decodes the negotiate request, and checks what MS-SMBD 3.1.5.2 says ends the connection: a version range that does
/// not contain 1.0 is not among it (that gets a response with STATUS_NOT_SUPPORTED), sizes and credits are.
///
/// # Errors
/// `Truncated`; `Malformed` when a size is below its least value or no credits are requested.
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
