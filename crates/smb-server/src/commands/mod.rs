//! One file per command. A handler gets an owned [`Request`] and returns a [`Reply`](crate::request::Reply); errors are
//! replies. A READ or WRITE of a file begins before its handler returns.

pub(crate) mod close;
pub(crate) mod create;
pub(crate) mod flush;
pub(crate) mod ioctl;
pub(crate) mod lock;
pub(crate) mod metadata;
pub(crate) mod notify;
pub(crate) mod oplock;
pub(crate) mod query_directory;
pub(crate) mod query_info;
pub(crate) mod read;
pub(crate) mod set_info;
pub(crate) mod tree;
pub(crate) mod write;

use rdma::Stag;
use smb_direct::BufferDescriptorV1;
use smb_wire::msg::{Channel, ReadRequest, WriteRequest};
use smb_wire::{Command, Decode, FileId, HEADER_LEN, Header, NtStatus};

use crate::TransportKind;
use crate::request::{ConnectionFacts, Request};

/// MS-SMB2 3.3.5.2.5: a request must pay for its payload, one credit for each 64 KiB begun.
///
/// # Errors
/// STATUS_INVALID_PARAMETER when its charge is too small.
pub(crate) fn check_charge(r: &Request, bytes: u32) -> Result<(), NtStatus> {
    charge_covers(&r.facts, &r.header, bytes)
}

/// Like [`check_charge`], without a [`Request`].
fn charge_covers(facts: &ConnectionFacts, header: &Header, bytes: u32) -> Result<(), NtStatus> {
    if !facts.multi_credit {
        return Ok(());
    }
    let needed = bytes.saturating_sub(1) / 65_536 + 1;
    if u32::from(header.credit_charge.max(1)) < needed { Err(NtStatus::INVALID_PARAMETER) } else { Ok(()) }
}

/// The FileId that a request carries, for the commands that carry one (MS-SMB2 2.2.15 to 2.2.39); `None` for the others
/// and for a message too short.
pub(crate) fn named_file(command: Command, message: &[u8]) -> Option<FileId> {
    let at = match command {
        Command::CLOSE
        | Command::FLUSH
        | Command::LOCK
        | Command::IOCTL
        | Command::QUERY_DIRECTORY
        | Command::CHANGE_NOTIFY => 8,
        Command::READ | Command::WRITE | Command::SET_INFO => 16,
        Command::QUERY_INFO => 24,
        _ => return None,
    };
    let bytes = message.get(HEADER_LEN + at..HEADER_LEN + at + 16)?;
    let half = |b: &[u8]| b.try_into().map(u64::from_le_bytes).ok();
    Some(FileId { persistent: half(&bytes[..8])?, volatile: half(&bytes[8..])? })
}

/// The buffer descriptors of a READ or WRITE, when its payload goes by RDMA (MS-SMB2 3.3.5.12, 3.3.5.13).
///
/// # Errors
/// STATUS_INVALID_PARAMETER for a channel that this connection does not have, or descriptors shorter than the payload.
fn descriptors(
    facts: &ConnectionFacts,
    encrypted: bool,
    channel: Channel,
    info: &[u8],
    length: u32,
) -> Result<Option<Vec<BufferDescriptorV1>>, NtStatus> {
    match channel {
        Channel::NONE => return Ok(None),
        Channel::RDMA_V1 => {}
        Channel::RDMA_V1_INVALIDATE if facts.dialect >= 0x0302 => {}
        _ => return Err(NtStatus::INVALID_PARAMETER),
    }
    // RDMA would move the payload unencrypted, although the session requires encryption.
    if facts.transport != TransportKind::Rdma || facts.dialect < 0x0300 || encrypted {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let list = BufferDescriptorV1::decode_all(info).ok_or(NtStatus::INVALID_PARAMETER)?;
    let room: u64 = list.iter().map(|d| u64::from(d.length)).sum();
    if list.is_empty() || room < u64::from(length) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    Ok(Some(list.into_iter().collect()))
}

/// The steering tag that the reply to a READ or WRITE invalidates, whatever its status: the first descriptor's, with
/// SMB2_CHANNEL_RDMA_V1_INVALIDATE (MS-SMB2 3.3.5.12, 3.3.5.13; S3-15). Linux does not invalidate one by itself.
pub(crate) fn remote_invalidate(facts: &ConnectionFacts, command: Command, message: &[u8]) -> Option<Stag> {
    if facts.transport != TransportKind::Rdma || facts.dialect < 0x0302 {
        return None;
    }
    let (channel, info) = match command {
        Command::READ => ReadRequest::decode(message).map(|q| (q.channel, q.channel_info)).ok()?,
        Command::WRITE => WriteRequest::decode(message).map(|q| (q.channel, q.channel_info)).ok()?,
        _ => return None,
    };
    if channel != Channel::RDMA_V1_INVALIDATE {
        return None;
    }
    BufferDescriptorV1::decode_all(info)?.first().map(|d| Stag(d.token))
}

#[cfg(test)]
pub(crate) mod tests;
