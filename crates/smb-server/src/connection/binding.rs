//! Further channels of a session, and re-authentication (MS-SMB2 3.3.5.5, 3.3.5.2.4).

use std::sync::Arc;

use smb_auth::derive::PreauthHash;
use smb_auth::mechanism::{Identity, SessionKey};
use smb_auth::sign::{SigningAlgorithm, SigningKey};
use smb_wire::msg::SessionFlags;
use smb_wire::{HeaderFlags, NtStatus};

use super::Engine;
use super::chain::RefusedRequest;
use super::channel::Channel;
use super::incoming::{InMessage, Item};
use super::negotiate::Negotiated;
use super::session_setup::derive;
use crate::session::{ChannelFacts, Session};

/// Channels of one session; Windows has the same limit.
const CHANNELS_MAX: usize = 32;

impl Engine {
    /// MS-SMB2 3.3.5.5, step 4: whether this connection may become a channel of the session. The ClientGuid may differ, as
    /// with Windows: the signature proves that the client has the session's key.
    pub(super) fn may_bind(
        &self,
        message: &InMessage,
        item: &Item,
        negotiated: Negotiated,
    ) -> Result<Arc<Session>, RefusedRequest> {
        let id = item.header.session_id;
        let early = self.signs_early(&item.header);
        let session = self
            .server
            .session(id)
            .ok_or(RefusedRequest::new(NtStatus::USER_SESSION_DELETED, early.clone()))?;
        let channel = self.channels.get(&id);
        // The signature comes first: a client that has the key gets signed refusals (3.3.4.1.1).
        let key = channel.map_or(&session.signing, |c| &c.signing);
        let is_signed = item.header.flags.contains(HeaderFlags::SIGNED);
        let verified = is_signed && message.verify(key, item);
        let signs = if verified { Some(Arc::clone(key)) } else { early };
        let refused = |status| Err(RefusedRequest::new(status, signs.clone()));
        // AES-GMAC on one side only is refused whatever the dialects, as Windows does. Other algorithms may differ:
        // the channel signs with its connection's.
        match (session.signing.algorithm(), negotiated.signing) {
            (a, b) if a == b => {}
            (SigningAlgorithm::AesGmac, _) => return refused(NtStatus::REQUEST_OUT_OF_SEQUENCE),
            (_, SigningAlgorithm::AesGmac) => return refused(NtStatus::NOT_SUPPORTED),
            _ => {}
        }
        if negotiated.dialect < 0x0300 {
            return refused(NtStatus::REQUEST_NOT_ACCEPTED);
        }
        let same =
            session.binding.dialect == negotiated.dialect && session.binding.cipher == negotiated.cipher;
        if !same || !is_signed {
            return refused(NtStatus::INVALID_PARAMETER);
        }
        if !verified {
            return refused(NtStatus::ACCESS_DENIED);
        }
        if channel.is_some() {
            return refused(NtStatus::REQUEST_NOT_ACCEPTED);
        }
        if session.is_anonymous() {
            return refused(NtStatus::NOT_SUPPORTED);
        }
        if session.channels.lock().len() >= CHANNELS_MAX {
            return refused(NtStatus::INSUFFICIENT_RESOURCES);
        }
        Ok(session)
    }

    /// MS-SMB2 3.3.5.5.3: this connection becomes a further channel; it signs with a key of its own.
    pub(super) fn bind(
        &mut self,
        session: &Arc<Session>,
        identity: &Identity,
        key: &SessionKey,
        preauth: &PreauthHash,
        negotiated: Negotiated,
    ) -> Result<SessionFlags, NtStatus> {
        if session.is_ended() {
            return Err(NtStatus::USER_SESSION_DELETED);
        }
        if !session.user.is_account(identity) {
            return Err(NtStatus::ACCESS_DENIED);
        }
        let keys = derive(key, preauth, negotiated)?;
        let signing = Arc::new(SigningKey::new(negotiated.signing, &keys.signing));
        self.add_channel(Arc::clone(session), signing)?;
        tracing::info!(peer = %self.facts.peer, session = %format_args!("{:#x}", session.id),
            transport = ?self.facts.transport, "channel bound");
        Ok(if session.encrypt { SessionFlags::ENCRYPT_DATA } else { SessionFlags::empty() })
    }

    /// Makes this connection a channel of the session.
    ///
    /// # Errors
    /// STATUS_INSUFFICIENT_RESOURCES when the session has [`CHANNELS_MAX`] of them.
    pub(super) fn add_channel(
        &mut self,
        session: Arc<Session>,
        signing: Arc<SigningKey>,
    ) -> Result<(), NtStatus> {
        {
            let mut channels = session.channels.lock();
            if channels.len() >= CHANNELS_MAX {
                return Err(NtStatus::INSUFFICIENT_RESOURCES);
            }
            channels.push(ChannelFacts {
                connection: self.facts.id,
                peer: self.facts.peer,
                transport: self.facts.transport,
                credits: self.credits.shared(),
                inbox: Arc::clone(&self.inbox),
            });
        }
        self.unauthenticated = None;
        self.channels.insert(session.id, Channel::new(session, signing));
        Ok(())
    }
}

/// MS-SMB2 3.3.5.2.4: checks a request to authenticate again on a channel.
pub(super) fn may_reauthenticate(
    channel: &Channel,
    message: &InMessage,
    item: &Item,
) -> Result<(), RefusedRequest> {
    let is_signed = item.header.flags.contains(HeaderFlags::SIGNED);
    let key = || Some(Arc::clone(&channel.signing));
    match &message.encrypted {
        Some(encrypted) if encrypted.id == item.header.session_id => Ok(()),
        Some(_) => {
            let key = if is_signed { key() } else { None };
            Err(RefusedRequest::new(NtStatus::USER_SESSION_DELETED, key))
        }
        None if is_signed && message.verify(&channel.signing, item) => Ok(()),
        None if !is_signed && !channel.session.signing_required => Ok(()),
        None => Err(RefusedRequest::new(NtStatus::ACCESS_DENIED, key())),
    }
}
