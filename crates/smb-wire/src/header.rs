//! The SMB2 packet header (MS-SMB2 2.2.1), synchronous and asynchronous.
//!
//! ```text
//!  0 ProtocolId FE 'S' 'M' 'B'     24 MessageId            40 SessionId
//!  4 StructureSize = 64            32 sync: reserved,       48 Signature (16)
//!  6 CreditCharge                     TreeId               64 body
//!  8 Status / ChannelSequence         async: AsyncId
//! 12 Command  14 Credits  16 Flags  20 NextCommand
//! ```

use crate::WireError;
use crate::macros::{flag_set, open_enum};
use crate::ntstatus::NtStatus;

/// Length of the header in bytes.
pub const HEADER_LEN: usize = 64;
/// The protocol identifier of a plain SMB2 message.
pub const PROTOCOL_ID: [u8; 4] = [0xFE, b'S', b'M', b'B'];
/// Offset of StructureSize (u16).
const OFFSET_STRUCTURE_SIZE: usize = 4;
/// Offset of CreditCharge (u16).
pub const OFFSET_CREDIT_CHARGE: usize = 6;
/// Offset of Status (u32). In a request its low 16 bits are ChannelSequence.
pub const OFFSET_STATUS: usize = 8;
/// Offset of Command (u16).
pub const OFFSET_COMMAND: usize = 12;
/// Offset of CreditRequest/CreditResponse (u16).
pub const OFFSET_CREDITS: usize = 14;
/// Offset of Flags (u32).
pub const OFFSET_FLAGS: usize = 16;
/// Offset of NextCommand (u32).
pub const OFFSET_NEXT_COMMAND: usize = 20;
/// Offset of MessageId (u64).
pub const OFFSET_MESSAGE_ID: usize = 24;
/// Offset of AsyncId (u64) in an asynchronous header.
pub const OFFSET_ASYNC_ID: usize = 32;
/// Offset of TreeId (u32) in a synchronous header.
pub const OFFSET_TREE_ID: usize = 36;
/// Offset of SessionId (u64).
pub const OFFSET_SESSION_ID: usize = 40;
/// Offset of Signature (16 bytes).
pub const OFFSET_SIGNATURE: usize = 48;

/// The SessionId and TreeId that a related request inherits (MS-SMB2 3.3.5.2.7.2).
pub const RELATED_SESSION_ID: u64 = u64::MAX;
/// See [`RELATED_SESSION_ID`].
pub const RELATED_TREE_ID: u32 = u32::MAX;
/// The MessageId of unsolicited server messages: oplock breaks, lease breaks, notifications.
pub const UNSOLICITED_MESSAGE_ID: u64 = u64::MAX;

open_enum! {
    /// The command code (MS-SMB2 2.2.1.2).
    pub struct Command(u16) {
        /// NEGOTIATE.
        NEGOTIATE = 0,
        /// SESSION_SETUP.
        SESSION_SETUP = 1,
        /// LOGOFF.
        LOGOFF = 2,
        /// TREE_CONNECT.
        TREE_CONNECT = 3,
        /// TREE_DISCONNECT.
        TREE_DISCONNECT = 4,
        /// CREATE.
        CREATE = 5,
        /// CLOSE.
        CLOSE = 6,
        /// FLUSH.
        FLUSH = 7,
        /// READ.
        READ = 8,
        /// WRITE.
        WRITE = 9,
        /// LOCK.
        LOCK = 10,
        /// IOCTL.
        IOCTL = 11,
        /// CANCEL: has no response.
        CANCEL = 12,
        /// ECHO.
        ECHO = 13,
        /// QUERY_DIRECTORY.
        QUERY_DIRECTORY = 14,
        /// CHANGE_NOTIFY.
        CHANGE_NOTIFY = 15,
        /// QUERY_INFO.
        QUERY_INFO = 16,
        /// SET_INFO.
        SET_INFO = 17,
        /// OPLOCK_BREAK, also lease breaks.
        OPLOCK_BREAK = 18,
        /// SERVER_TO_CLIENT_NOTIFICATION.
        SERVER_TO_CLIENT_NOTIFICATION = 19,
    }
}

flag_set! {
    /// Header flags (MS-SMB2 2.2.1.2).
    pub struct HeaderFlags: u32 {
        /// The message is a response.
        const SERVER_TO_REDIR = 0x0000_0001;
        /// The header carries an AsyncId in place of the TreeId.
        const ASYNC = 0x0000_0002;
        /// A related operation of a compound.
        const RELATED = 0x0000_0004;
        /// The message is signed.
        const SIGNED = 0x0000_0008;
        /// The three bits of the I/O priority.
        const PRIORITY_MASK = 0x0000_0070;
        /// The path is a DFS path.
        const DFS_OPERATIONS = 0x1000_0000;
        /// A replay (SMB 3.x).
        const REPLAY = 0x2000_0000;
    }
}

/// An SMB2 header, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// Number of credits that the request consumes; 0 means one credit, too.
    pub credit_charge: u16,
    /// The status of a response; in a request of dialect 3.x the ChannelSequence, see
    /// [`Header::channel_sequence`].
    pub status: NtStatus,
    /// The command.
    pub command: Command,
    /// Credits requested (request) or granted (response).
    pub credits: u16,
    /// Flags; ASYNC determines whether `async_id` or `tree_id` is valid.
    pub flags: HeaderFlags,
    /// Offset of the next header of a compound from this one, in bytes; 0 in the last message.
    pub next_command: u32,
    /// The message's number.
    pub message_id: u64,
    /// Reserved by MS-SMB2; some clients put a process id here. Zero in an asynchronous header.
    pub process_id: u32,
    /// The tree connect; zero in an asynchronous header.
    pub tree_id: u32,
    /// The asynchronous operation; zero in a synchronous header.
    pub async_id: u64,
    /// The session.
    pub session_id: u64,
    /// The signature; zeros if the message is not signed.
    pub signature: [u8; 16],
}

impl Header {
    /// Decodes the header at the start of `bytes`.
    ///
    /// # Errors
    /// `Truncated`; `Malformed` if the protocol identifier is wrong; `StructureSize`.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        const WHAT: &str = "SMB2 header";
        let Some(bytes) = bytes.first_chunk::<HEADER_LEN>() else {
            return Err(WireError::Truncated { what: WHAT, need: HEADER_LEN, have: bytes.len() });
        };
        if bytes[..OFFSET_STRUCTURE_SIZE] != PROTOCOL_ID {
            return Err(WireError::malformed("SMB2 protocol identifier"));
        }
        let found = u16::from_le_bytes(field(bytes, OFFSET_STRUCTURE_SIZE));
        if usize::from(found) != HEADER_LEN {
            return Err(WireError::StructureSize { what: WHAT, expected: HEADER_LEN as u16, found });
        }
        let flags = HeaderFlags::from_bits_retain(u32::from_le_bytes(field(bytes, OFFSET_FLAGS)));
        let id = u64::from_le_bytes(field(bytes, OFFSET_ASYNC_ID));
        let (async_id, process_id, tree_id) =
            if flags.contains(HeaderFlags::ASYNC) { (id, 0, 0) } else { (0, id as u32, (id >> 32) as u32) };
        Ok(Self {
            credit_charge: u16::from_le_bytes(field(bytes, OFFSET_CREDIT_CHARGE)),
            status: NtStatus(u32::from_le_bytes(field(bytes, OFFSET_STATUS))),
            command: Command(u16::from_le_bytes(field(bytes, OFFSET_COMMAND))),
            credits: u16::from_le_bytes(field(bytes, OFFSET_CREDITS)),
            flags,
            next_command: u32::from_le_bytes(field(bytes, OFFSET_NEXT_COMMAND)),
            message_id: u64::from_le_bytes(field(bytes, OFFSET_MESSAGE_ID)),
            process_id,
            tree_id,
            async_id,
            session_id: u64::from_le_bytes(field(bytes, OFFSET_SESSION_ID)),
            signature: field(bytes, OFFSET_SIGNATURE),
        })
    }

    /// Encodes the header.
    #[inline]
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &PROTOCOL_ID);
        put(OFFSET_STRUCTURE_SIZE, &(HEADER_LEN as u16).to_le_bytes());
        put(OFFSET_CREDIT_CHARGE, &self.credit_charge.to_le_bytes());
        put(OFFSET_STATUS, &self.status.0.to_le_bytes());
        put(OFFSET_COMMAND, &self.command.0.to_le_bytes());
        put(OFFSET_CREDITS, &self.credits.to_le_bytes());
        put(OFFSET_FLAGS, &self.flags.bits().to_le_bytes());
        put(OFFSET_NEXT_COMMAND, &self.next_command.to_le_bytes());
        put(OFFSET_MESSAGE_ID, &self.message_id.to_le_bytes());
        let id = match self.flags.contains(HeaderFlags::ASYNC) {
            true => self.async_id,
            false => u64::from(self.tree_id) << 32 | u64::from(self.process_id),
        };
        put(OFFSET_ASYNC_ID, &id.to_le_bytes());
        put(OFFSET_SESSION_ID, &self.session_id.to_le_bytes());
        put(OFFSET_SIGNATURE, &self.signature);
        bytes
    }

    /// Appends the 64 bytes of the header to `out`.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_bytes());
    }

    /// ChannelSequence of a request (dialect 3.x): the low half of the status field.
    pub const fn channel_sequence(&self) -> u16 {
        self.status.0 as u16
    }

    /// Whether the message is a response.
    pub const fn is_response(&self) -> bool {
        self.flags.contains(HeaderFlags::SERVER_TO_REDIR)
    }

    /// Whether the message is a related operation of a compound.
    pub const fn is_related(&self) -> bool {
        self.flags.contains(HeaderFlags::RELATED)
    }

    /// Returns the header of the response to this request. Command, CreditCharge and all identifiers are copied;
    /// the response flag is set; the flags RELATED, ASYNC, REPLAY and the priority are kept. NextCommand and
    /// signature are cleared.
    pub fn response(&self, status: NtStatus, credits: u16) -> Self {
        let kept =
            HeaderFlags::RELATED | HeaderFlags::ASYNC | HeaderFlags::PRIORITY_MASK | HeaderFlags::REPLAY;
        Self {
            status,
            credits,
            flags: (self.flags & kept) | HeaderFlags::SERVER_TO_REDIR,
            next_command: 0,
            signature: [0; 16],
            ..*self
        }
    }
}

/// The `N` bytes of a header at offset `at`.
#[inline]
fn field<const N: usize>(bytes: &[u8; HEADER_LEN], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("fields lie inside the header")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MS-SMB2 2.2.1.1, 2.2.1.2: offset of each field.
    #[test]
    fn fields_are_where_the_constants_say() {
        let header = Header {
            credit_charge: 0x0102,
            status: NtStatus(0x0304_0506),
            command: Command(0x0708),
            credits: 0x090A,
            flags: HeaderFlags::SIGNED,
            next_command: 0x0B0C_0D0E,
            message_id: 0x0F10_1112_1314_1516,
            process_id: 0x1718_191A,
            tree_id: 0x1B1C_1D1E,
            async_id: 0,
            session_id: 0x1F20_2122_2324_2526,
            signature: [0x27; 16],
        };
        let mut out = Vec::new();
        header.encode(&mut out);
        assert_eq!(out.len(), HEADER_LEN);
        assert_eq!(out[OFFSET_CREDIT_CHARGE], 0x02);
        assert_eq!(out[OFFSET_STATUS], 0x06);
        assert_eq!(out[OFFSET_COMMAND], 0x08);
        assert_eq!(out[OFFSET_CREDITS], 0x0A);
        assert_eq!(out[OFFSET_FLAGS], 0x08);
        assert_eq!(out[OFFSET_NEXT_COMMAND], 0x0E);
        assert_eq!(out[OFFSET_MESSAGE_ID], 0x16);
        assert_eq!(out[OFFSET_TREE_ID], 0x1E);
        assert_eq!(out[OFFSET_SESSION_ID], 0x26);
        assert_eq!(out[OFFSET_SIGNATURE..], [0x27; 16]);
        assert_eq!(Header::decode(&out), Ok(header));
        assert_eq!(header.channel_sequence(), 0x0506);

        let header = Header { flags: HeaderFlags::ASYNC, async_id: 77, process_id: 0, tree_id: 0, ..header };
        out.clear();
        header.encode(&mut out);
        assert_eq!(out[OFFSET_ASYNC_ID], 77);
        assert_eq!(Header::decode(&out), Ok(header));
    }

    #[test]
    fn a_response_keeps_what_it_answers() {
        let request = Header {
            command: Command::READ,
            flags: HeaderFlags::RELATED | HeaderFlags::SIGNED,
            next_command: 112,
            message_id: 5,
            tree_id: 6,
            session_id: 7,
            status: NtStatus(3),
            signature: [1; 16],
            ..Header::default()
        };
        let response = request.response(NtStatus::END_OF_FILE, 9);
        let expected = Header {
            status: NtStatus::END_OF_FILE,
            credits: 9,
            flags: HeaderFlags::RELATED | HeaderFlags::SERVER_TO_REDIR,
            next_command: 0,
            signature: [0; 16],
            ..request
        };
        assert_eq!(response, expected);
    }

    #[test]
    fn other_protocols_and_sizes_are_refused() {
        let mut bytes = [0; HEADER_LEN];
        assert_eq!(Header::decode(&bytes), Err(WireError::malformed("SMB2 protocol identifier")));
        bytes[..4].copy_from_slice(&PROTOCOL_ID);
        bytes[4] = 65;
        let error = WireError::StructureSize { what: "SMB2 header", expected: 64, found: 65 };
        assert_eq!(Header::decode(&bytes), Err(error));
        assert!(matches!(Header::decode(&bytes[..63]), Err(WireError::Truncated { need: 64, have: 63, .. })));
    }
}
