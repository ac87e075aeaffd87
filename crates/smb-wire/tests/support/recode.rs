//! Decodes any message and encodes it again, for the golden, property and fuzz tests.

use smb_wire::msg::*;
use smb_wire::{Command, Decode, Encode, Header, MessageBuilder, NtStatus, WireError};

/// Decodes and encodes header and body of `msg`, one message of a chain; payload and padding are copied.
pub fn recode(msg: &[u8]) -> Result<Vec<u8>, WireError> {
    let header = Header::decode(msg)?;
    let mut out = Vec::new();
    let mut m = MessageBuilder::new(&mut out);
    // The builder sets NextCommand, but a single message keeps its value.
    m.begin(&header);
    if header.is_response() {
        response(&header, msg, &mut m)?
    } else {
        request(&header, msg, &mut m)?
    }
    m.finish();
    if header.next_command != 0 {
        out.resize(out.len().next_multiple_of(8), 0);
    }
    Ok(out)
}

fn again<'a, B: Decode<'a> + Encode>(msg: &'a [u8], m: &mut MessageBuilder<'_>) -> Result<(), WireError> {
    B::decode(msg)?.encode(m)
}

fn request(header: &Header, msg: &[u8], m: &mut MessageBuilder<'_>) -> Result<(), WireError> {
    match header.command {
        Command::NEGOTIATE => again::<NegotiateRequest<'_>>(msg, m),
        Command::SESSION_SETUP => again::<SessionSetupRequest<'_>>(msg, m),
        Command::LOGOFF => again::<LogoffRequest>(msg, m),
        Command::TREE_CONNECT => again::<TreeConnectRequest<'_>>(msg, m),
        Command::TREE_DISCONNECT => again::<TreeDisconnectRequest>(msg, m),
        Command::CREATE => again::<CreateRequest<'_>>(msg, m),
        Command::CLOSE => again::<CloseRequest>(msg, m),
        Command::FLUSH => again::<FlushRequest>(msg, m),
        Command::READ => again::<ReadRequest<'_>>(msg, m),
        Command::WRITE => {
            let body = WriteRequest::decode(msg)?;
            body.encode(m)?;
            m.out().extend_from_slice(body.data(msg)?);
            Ok(())
        }
        Command::LOCK => again::<LockRequest<'_>>(msg, m),
        Command::IOCTL => again::<IoctlRequest<'_>>(msg, m),
        Command::CANCEL => again::<CancelRequest>(msg, m),
        Command::ECHO => again::<EchoRequest>(msg, m),
        Command::QUERY_DIRECTORY => again::<QueryDirectoryRequest<'_>>(msg, m),
        Command::CHANGE_NOTIFY => again::<ChangeNotifyRequest>(msg, m),
        Command::QUERY_INFO => again::<QueryInfoRequest<'_>>(msg, m),
        Command::SET_INFO => again::<SetInfoRequest<'_>>(msg, m),
        Command::OPLOCK_BREAK if is_lease_break(msg)? => again::<LeaseBreakAcknowledgment>(msg, m),
        Command::OPLOCK_BREAK => again::<OplockBreak>(msg, m),
        _ => Err(WireError::Malformed { what: "command" }),
    }
}

fn response(header: &Header, msg: &[u8], m: &mut MessageBuilder<'_>) -> Result<(), WireError> {
    let carries_data = header.status == NtStatus::SUCCESS
        || header.status == NtStatus::MORE_PROCESSING_REQUIRED
        || header.status == NtStatus::BUFFER_OVERFLOW;
    if !carries_data {
        return again::<ErrorResponse<'_>>(msg, m);
    }
    match header.command {
        Command::NEGOTIATE => again::<NegotiateResponse<'_>>(msg, m),
        Command::SESSION_SETUP => again::<SessionSetupResponse<'_>>(msg, m),
        Command::LOGOFF => again::<LogoffResponse>(msg, m),
        Command::TREE_CONNECT => again::<TreeConnectResponse>(msg, m),
        Command::TREE_DISCONNECT => again::<TreeDisconnectResponse>(msg, m),
        Command::CREATE => again::<CreateResponse<'_>>(msg, m),
        Command::CLOSE => again::<CloseResponse>(msg, m),
        Command::FLUSH => again::<FlushResponse>(msg, m),
        Command::READ => {
            let body = ReadResponse::decode(msg)?;
            body.encode(m)?;
            let data = body.data(msg)?;
            if !data.is_empty() {
                let gap = usize::from(body.data_offset) - ReadResponse::HEAD_LEN;
                m.out().extend(std::iter::repeat_n(0, gap));
            }
            m.out().extend_from_slice(data);
            Ok(())
        }
        Command::WRITE => again::<WriteResponse>(msg, m),
        Command::LOCK => again::<LockResponse>(msg, m),
        Command::IOCTL => again::<IoctlResponse<'_>>(msg, m),
        Command::ECHO => again::<EchoResponse>(msg, m),
        Command::QUERY_DIRECTORY => again::<QueryDirectoryResponse<'_>>(msg, m),
        Command::CHANGE_NOTIFY => again::<ChangeNotifyResponse<'_>>(msg, m),
        Command::QUERY_INFO => again::<QueryInfoResponse<'_>>(msg, m),
        Command::SET_INFO => again::<SetInfoResponse>(msg, m),
        Command::OPLOCK_BREAK if is_lease_break(msg)? => {
            again::<LeaseBreakNotification>(msg, m).or_else(|_| again::<LeaseBreakAcknowledgment>(msg, m))
        }
        Command::OPLOCK_BREAK => again::<OplockBreak>(msg, m),
        Command::SERVER_TO_CLIENT_NOTIFICATION => again::<ServerNotification>(msg, m),
        _ => Err(WireError::Malformed { what: "command" }),
    }
}
