//! CHANGE_NOTIFY (MS-SMB2 2.2.35, 2.2.36) and SERVER_TO_CLIENT_NOTIFICATION (2.2.44).

use super::query_info::{output, put_output};
use crate::macros::{fixed_message, flag_set, open_enum};
use crate::{Decode, Encode, FileId, MessageBuilder, WireError};

flag_set! {
    /// Flags of CHANGE_NOTIFY.
    pub struct ChangeNotifyFlags: u16 {
        /// Watch the whole subtree.
        const WATCH_TREE = 1;
    }
}

flag_set! {
    /// The changes to report.
    pub struct CompletionFilter: u32 {
        /// File names.
        const FILE_NAME = 0x001;
        /// Directory names.
        const DIR_NAME = 0x002;
        /// Attributes.
        const ATTRIBUTES = 0x004;
        /// Size.
        const SIZE = 0x008;
        /// Last write time.
        const LAST_WRITE = 0x010;
        /// Last access time.
        const LAST_ACCESS = 0x020;
        /// Creation time.
        const CREATION = 0x040;
        /// Extended attributes.
        const EA = 0x080;
        /// Security descriptor.
        const SECURITY = 0x100;
        /// Stream names.
        const STREAM_NAME = 0x200;
        /// Stream sizes.
        const STREAM_SIZE = 0x400;
        /// Stream contents.
        const STREAM_WRITE = 0x800;
    }
}

fixed_message! {
    /// CHANGE_NOTIFY request (MS-SMB2 2.2.35).
    pub struct ChangeNotifyRequest [32, "CHANGE_NOTIFY request"] {
        /// Flags.
        pub flags: ChangeNotifyFlags,
        /// Maximum length of the response data in bytes.
        pub output_buffer_length: u32,
        /// The open directory.
        pub file_id: FileId,
        /// The changes to report.
        pub completion_filter: CompletionFilter => pad 4,
    }
}

/// CHANGE_NOTIFY response (MS-SMB2 2.2.36).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChangeNotifyResponse<'a> {
    /// A list of FILE_NOTIFY_INFORMATION ([`crate::fscc::notify`]).
    pub buffer: &'a [u8],
}

impl<'a> Decode<'a> for ChangeNotifyResponse<'a> {
    fn decode(msg: &'a [u8]) -> Result<Self, WireError> {
        output(msg, "CHANGE_NOTIFY response").map(|buffer| Self { buffer })
    }
}

impl Encode for ChangeNotifyResponse<'_> {
    fn encode(&self, m: &mut MessageBuilder<'_>) -> Result<(), WireError> {
        put_output(m, self.buffer)
    }
}

open_enum! {
    /// The notification's type.
    pub struct NotificationType(u32) {
        /// The session was closed.
        SESSION_CLOSED = 0,
    }
}

fixed_message! {
    /// SERVER_TO_CLIENT_NOTIFICATION (MS-SMB2 2.2.44.1).
    pub struct ServerNotification [8, "server notification", pad 2] {
        /// The notification's type.
        pub notification_type: NotificationType,
    }
}
