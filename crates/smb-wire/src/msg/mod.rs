//! Message bodies, one file for each command of MS-SMB2 2.2.

mod close;
mod create;
mod echo;
mod error;
mod flush;
mod ioctl;
mod lock;
mod negotiate;
mod notify;
mod oplock;
mod query_directory;
mod query_info;
mod read;
mod session;
mod set_info;
mod tree;
mod write;

pub use close::{CloseFlags, CloseRequest, CloseResponse};
pub use create::{
    CreateAction, CreateDisposition, CreateOptions, CreateRequest, CreateResponse, CreateResponseFlags,
    ImpersonationLevel, OplockLevel,
};
pub use echo::{CancelRequest, EchoRequest, EchoResponse};
pub use error::{ErrorContexts, ErrorId, ErrorResponse, RawErrorContext, SymlinkError};
pub use flush::{FlushRequest, FlushResponse};
pub use ioctl::{FsctlCode, IoctlFlags, IoctlRequest, IoctlResponse};
pub use lock::{LockElement, LockElements, LockFlags, LockRequest, LockResponse, MAX_LOCKS};
pub use negotiate::{
    Capabilities, Dialect, Dialects, MAX_DIALECTS, NegotiateRequest, NegotiateResponse, SecurityMode,
};
pub use notify::{
    ChangeNotifyFlags, ChangeNotifyRequest, ChangeNotifyResponse, CompletionFilter, NotificationType,
    ServerNotification,
};
pub use oplock::{
    LeaseBreakAcknowledgment, LeaseBreakFlags, LeaseBreakNotification, LeaseKey, LeaseState, OplockBreak,
    is_lease_break,
};
pub use query_directory::{QueryDirectoryFlags, QueryDirectoryRequest, QueryDirectoryResponse};
pub use query_info::{
    InfoType, QueryInfoFlags, QueryInfoRequest, QueryInfoResponse, QueryQuotaInfo, SecurityInformation,
};
pub use read::{Channel, ReadFlags, ReadRequest, ReadResponse, ReadResponseFlags};
pub use session::{
    LogoffRequest, LogoffResponse, SessionFlags, SessionSetupFlags, SessionSetupRequest, SessionSetupResponse,
};
pub use set_info::{SetInfoRequest, SetInfoResponse};
pub use tree::{
    ShareCapabilities, ShareFlags, ShareType, TreeConnectContexts, TreeConnectFlags, TreeConnectRequest,
    TreeConnectResponse, TreeDisconnectRequest, TreeDisconnectResponse,
};
pub use write::{WriteFlags, WriteRequest, WriteResponse};

use crate::cursor::{fit_u16, fit_u32};
use crate::{MessageBuilder, WireError};

/// Offset (16 bits in most commands) and length of a variable part that is appended next. An empty part gets the
/// offset that it would have, as in Windows.
fn part16(at: usize, bytes: &[u8], what: &'static str) -> Result<(u16, u16), WireError> {
    Ok((fit_u16(at, what)?, fit_u16(bytes.len(), what)?))
}

/// `part16` with a 32-bit length.
fn part32(at: usize, bytes: &[u8], what: &'static str) -> Result<(u16, u32), WireError> {
    Ok((fit_u16(at, what)?, fit_u32(bytes.len(), what)?))
}

/// Appends a request's variable part. An odd StructureSize implies at least one byte, and some servers check that:
/// so an empty part is encoded as one zero byte.
fn put_request_part(m: &mut MessageBuilder<'_>, bytes: &[u8]) {
    if bytes.is_empty() {
        m.out().push(0);
    } else {
        m.out().extend_from_slice(bytes);
    }
}
