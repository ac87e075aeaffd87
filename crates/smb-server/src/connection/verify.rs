//! The checks of every request of a session, step by step (MS-SMB2 3.3.5.2). The earlier steps, for whole messages, are
//! in [`super::receive`]; 3.3.5.2.5 and 3.3.5.2.6 (credit charge, malformed requests) are each command's own.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustc_hash::FxHashMap;
use smb_auth::sign::SigningKey;
use smb_wire::{Command, FileId, Header, HeaderFlags, NtStatus};

use super::chain::RefusedRequest;
use super::channel::Channel;
use super::incoming::{InMessage, Item};
use crate::Server;
use crate::open::{Open, Sequenced};
use crate::session::Protected;

/// MS-SMB2 3.3.5.2.9, with 3.3.5.2.4 and 3.3.5.2.8: the channel of a request's session. `now_us` becomes the time of
/// the session's last use. `item` has the session that the request names or has inherited.
///
/// # Errors
/// STATUS_USER_SESSION_DELETED when there is none, or it was ended elsewhere: on another channel, or by an
/// administrator; the errors of [`signature`].
#[inline]
pub(super) fn session<'c>(
    channels: &'c mut FxHashMap<u64, Channel>,
    message: &InMessage,
    item: &Item,
    now_us: u64,
) -> Result<&'c mut Channel, RefusedRequest> {
    let deleted = NtStatus::USER_SESSION_DELETED;
    let channel = channels.get_mut(&item.header.session_id).ok_or(RefusedRequest::new(deleted, None))?;
    if channel.session.is_ended() {
        return Err(RefusedRequest::new(deleted, signing_key(channel, message, &item.header).cloned()));
    }
    signature(channel, message, item)?;
    channel.session.last_used_us.store(now_us, Ordering::Relaxed);
    Ok(channel)
}

/// MS-SMB2 3.3.5.2.4, with 3.3.5.2.1.1 and the end of 3.3.5.2.9: checks that a request is signed or encrypted as its
/// session demands; records which it is.
#[inline]
fn signature(channel: &Channel, message: &InMessage, item: &Item) -> Result<(), RefusedRequest> {
    let session = &channel.session;
    let is_signed = item.header.flags.contains(HeaderFlags::SIGNED);
    let refused =
        |status, signs: bool| Err(RefusedRequest::new(status, signs.then(|| Arc::clone(&channel.signing))));
    match &message.encrypted {
        // MS-SMB2 3.3.5.2.1.1: the transform header and the message name the same session.
        Some(e) if e.id != session.id => return refused(NtStatus::USER_SESSION_DELETED, false),
        Some(_) => session.saw(Protected::Encrypted),
        None if session.encrypt => return refused(NtStatus::ACCESS_DENIED, is_signed),
        None if is_signed => {
            if !message.verify(&channel.signing, item) {
                return refused(NtStatus::ACCESS_DENIED, true);
            }
            if item.header.command != Command::TREE_CONNECT {
                session.saw(Protected::Signed);
            }
        }
        None if session.signing_required => return refused(NtStatus::ACCESS_DENIED, true),
        None => session.saw(Protected::No),
    }
    Ok(())
}

/// The key for the reply to a request of a channel (MS-SMB2 3.3.4.1.1): a signed one is answered signed.
#[inline]
pub(super) fn signing_key<'c>(
    channel: &'c Channel,
    message: &InMessage,
    header: &Header,
) -> Option<&'c Arc<SigningKey>> {
    message.signs(header).then_some(&channel.signing)
}

/// MS-SMB2 3.3.5.2.10: the ChannelSequence of a request that works on `file`. For a file that is not open the request's
/// handler reports the error.
///
/// A READ with the newest number is not counted as outstanding while it is being started: most complete at once. See
/// [`waiting_read`].
///
/// # Errors
/// STATUS_FILE_NOT_AVAILABLE.
#[inline]
pub(super) fn channel_sequence(
    channel: &mut Channel,
    server: &Server,
    dialect: u16,
    header: &Header,
    file: Option<FileId>,
) -> Result<Option<Sequenced>, NtStatus> {
    let Some(open) = file.and_then(|id| channel.turn_to_open(server, id)) else { return Ok(None) };
    let at_once = header.command == Command::READ && open.sequence.is_newest(header.channel_sequence());
    if at_once || dialect < 0x0300 {
        return Ok(None);
    }
    Sequenced::begin(Arc::clone(open), header).map_err(|_| NtStatus::FILE_NOT_AVAILABLE)
}

/// MS-SMB2 3.3.5.2.10, for a READ that was not answered at once.
pub(super) fn waiting_read(open: &Arc<Open>, dialect: u16, header: &Header) -> Option<Sequenced> {
    if dialect < 0x0300 {
        return None;
    }
    Sequenced::begin(Arc::clone(open), header).ok().flatten()
}
