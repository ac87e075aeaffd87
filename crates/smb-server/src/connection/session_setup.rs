//! SESSION_SETUP (MS-SMB2 3.3.5.5): new sessions, further channels, re-authentication.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select;
use smb_auth::acceptor::{Acceptor, AcceptorConfig, Step};
use smb_auth::crypt::{Opener, Sealer};
use smb_auth::derive::{PreauthHash, Role, Schedule, SessionKeys};
use smb_auth::mechanism::{AuthError, FailureKind, FileTime, Identity, SessionKey};
use smb_auth::sid::Sid;
use smb_auth::sign::SigningKey;
use smb_wire::msg::{
    SecurityMode, SessionFlags, SessionSetupFlags, SessionSetupRequest, SessionSetupResponse,
};
use smb_wire::{Decode, NtStatus};

use super::binding::may_reauthenticate;
use super::chain::{RefusedRequest, StartedRequest};
use super::incoming::{InMessage, Item};
use super::negotiate::Negotiated;
use super::{Engine, HashInto, Outcome};
use crate::Protection;
use crate::durable::SessionEnd;
use crate::failed_logons::LogonFailure;
use crate::identity::User;
use crate::request::{Cancel, Reply};
use crate::server::{Progress, SessionId};
use crate::session::{BindingFacts, Ciphers, Session};

/// An authentication in progress.
pub(super) struct Setup {
    acceptor: Acceptor,
    pub(super) preauth: PreauthHash,
    purpose: Purpose,
}

pub(super) enum Purpose {
    /// A new session with this id, which is reserved for it.
    New(SessionId),
    /// A further channel of a session.
    Bind(Arc<Session>),
    /// A re-authentication of a session on this channel.
    Reauthenticate(Arc<Session>),
}

/// The most authentications in progress on one connection.
const SETUPS_MAX: usize = 64;

impl Engine {
    /// Starts a SESSION_SETUP.
    pub(super) fn session_setup(&mut self, message: &InMessage, item: &Item) -> StartedRequest {
        let early = self.signs_early(&item.header);
        let invalid = NtStatus::INVALID_PARAMETER;
        let Ok(request) = SessionSetupRequest::decode(message.of(item)) else {
            return StartedRequest::new(invalid, early);
        };
        let Some(negotiated) = self.negotiated else { return StartedRequest::new(invalid, early) };
        let (id, key) = match self.find_setup(message, item, &request, negotiated) {
            Ok(found) => found,
            Err(refusal) => return refusal.into(),
        };
        let peer = self.facts.peer;
        let now = self.server.env.instant(self.now);
        if let Err(refused) = self.server.failed_logons.check(peer.ip(), now) {
            self.setups.remove(&id);
            // Not every refusal is logged: an attacker must not fill the log.
            if refused.is_power_of_two() {
                tracing::warn!(%peer, refused, "log-ons refused without a check: too many log-ons from this address have failed");
            }
            return StartedRequest::new(
                with_session_id(id, Reply::error(NtStatus::REQUEST_NOT_ACCEPTED)),
                key,
            );
        }
        let Some(setup) = self.setups.get_mut(&id) else {
            return StartedRequest::new(NtStatus::USER_SESSION_DELETED, key);
        };
        let hashes = negotiated.dialect == 0x0311;
        if hashes {
            setup.preauth.update(&[message.of(item)]);
        }
        match setup.acceptor.step(request.security_buffer, &*self.server.users) {
            Step::Continue(token) => {
                self.reached(Progress::Challenged);
                let response =
                    SessionSetupResponse { session_flags: SessionFlags::empty(), security_buffer: &token };
                let mut reply = Reply::with_status(NtStatus::MORE_PROCESSING_REQUIRED, &response);
                if hashes {
                    reply = reply.with(|extra| extra.hash_into = Some(HashInto::Setup(id)));
                }
                StartedRequest::new(with_session_id(id, reply), key)
            }
            Step::Failed(error) => self.logon_failed(id, error, key),
            Step::Done { token, identity, session_key } => {
                let done = self.logged_on(id, identity, &session_key, &request, negotiated);
                self.answer_logon(id, done, &token, &request, key)
            }
        }
    }

    /// The authentication of this id has failed: the reply is delayed.
    fn logon_failed(&mut self, id: u64, error: AuthError, key: Option<Arc<SigningKey>>) -> StartedRequest {
        let peer = self.facts.peer;
        let setup = self.setups.remove(&id);
        let claimed = setup.as_ref().and_then(|s| s.acceptor.claimed().cloned()).unwrap_or_default();
        // A malformed token or a null session is no attempt to guess a secret.
        let failed = match error.kind() {
            FailureKind::AccessDenied | FailureKind::Malformed => LogonFailure::default(),
            FailureKind::LogonFailure | FailureKind::AccountDisabled => {
                let (account, now) = (&claimed.user, self.server.env.instant(self.now));
                self.server.failed_logons.failed(peer.ip(), account, now)
            }
        };
        tracing::warn!(%peer, user = ?claimed.user, workstation = ?claimed.workstation, failures = failed.count,
            "log-on refused: {error}");
        let reply = Reply::error(of_auth(error)).with(|extra| extra.session_id = Some(id));
        let outcome = match setup.map(|s| s.purpose) {
            // MS-SMB2 3.3.5.5.3: a failed re-authentication ends the session on all its channels.
            Some(Purpose::Reauthenticate(session)) => self.end_session(&session, SessionEnd::Closed, reply),
            _ => Outcome::Reply(reply),
        };
        let cancel = Cancel::lasting();
        let outcome = self.delay_reply(outcome, failed.delay, cancel.clone());
        StartedRequest { cancel, ..StartedRequest::new(outcome, key) }
    }

    /// The authentication of this id has succeeded.
    fn logged_on(
        &mut self,
        id: u64,
        identity: Identity,
        session_key: &SessionKey,
        request: &SessionSetupRequest<'_>,
        negotiated: Negotiated,
    ) -> Result<SessionFlags, NtStatus> {
        let Some(setup) = self.setups.remove(&id) else { return Err(NtStatus::USER_SESSION_DELETED) };
        match setup.purpose {
            Purpose::New(_reserved) => {
                let flags = self.establish(id, identity, session_key, &setup.preauth, request, negotiated)?;
                // Only here: an anonymous re-authentication does not prove knowledge of a secret.
                let account = setup.acceptor.claimed().map_or("", |claimed| &claimed.user);
                self.server.failed_logons.succeeded(self.facts.peer.ip(), account);
                Ok(flags)
            }
            Purpose::Bind(s) => self.bind(&s, &identity, session_key, &setup.preauth, negotiated),
            Purpose::Reauthenticate(s) => self.reauthenticate(&s, &identity),
        }
    }

    /// The final response to an authentication; `key` signs a refusal.
    fn answer_logon(
        &mut self,
        id: u64,
        done: Result<SessionFlags, NtStatus>,
        token: &[u8],
        request: &SessionSetupRequest<'_>,
        key: Option<Arc<SigningKey>>,
    ) -> StartedRequest {
        let session_flags = match done {
            Ok(flags) => flags,
            Err(status) => return StartedRequest::new(with_session_id(id, Reply::error(status)), key),
        };
        // MS-SMB2 3.3.5.5.3: the final response is signed with the new channel's key.
        let key = self.channels.get(&id).map(|c| Arc::clone(&c.signing));
        let response = SessionSetupResponse { session_flags, security_buffer: token };
        let reply = Reply::ok(&response).with(|extra| extra.session_id = Some(id));
        let previous = request.previous_session_id;
        let outcome = if previous != 0 && previous != id {
            self.end_previous(previous, id, reply)
        } else {
            Outcome::Reply(reply)
        };
        StartedRequest::new(outcome, key)
    }

    /// Delays a reply by this time, unless the connection ends before.
    fn delay_reply(&self, outcome: Outcome, delay: Duration, cancel: Cancel) -> Outcome {
        if delay.is_zero() {
            return outcome;
        }
        let env = self.server.env.clone();
        Outcome::later(async move {
            let reply = match outcome {
                Outcome::Pending(reply) => reply.await,
                Outcome::Reply(reply) => reply,
                Outcome::Pull { .. } | Outcome::Silent => unreachable!("a SESSION_SETUP is answered"),
            };
            select(pin!(env.sleep(delay)), pin!(cancel.cancelled())).await;
            reply
        })
    }

    /// Returns the authentication that a request continues, or a new one, and the key for the reply to the request.
    fn find_setup(
        &mut self,
        message: &InMessage,
        item: &Item,
        request: &SessionSetupRequest<'_>,
        negotiated: Negotiated,
    ) -> Result<(u64, Option<Arc<SigningKey>>), RefusedRequest> {
        let id = item.header.session_id;
        let early = self.signs_early(&item.header);
        let refused = |status| RefusedRequest::new(status, early.clone());
        let binding = request.flags.contains(SessionSetupFlags::BINDING);
        if id == 0 {
            if binding {
                return Err(refused(NtStatus::USER_SESSION_DELETED));
            }
            self.check_room().map_err(refused)?;
            let reserved = self.server.new_session_id();
            let id = reserved.id;
            self.begin_setup(id, Purpose::New(reserved));
            return Ok((id, early));
        }
        if binding {
            let session = self.may_bind(message, item, negotiated)?;
            let key = Some(Arc::clone(&session.signing));
            if !self.setups.contains_key(&id) {
                self.check_room().map_err(|status| RefusedRequest::new(status, key.clone()))?;
                self.begin_setup(id, Purpose::Bind(session));
            }
            return Ok((id, key));
        }
        if let Some(channel) = self.channels.get(&id) {
            let session = Arc::clone(&channel.session);
            if session.is_ended() {
                return Err(refused(NtStatus::USER_SESSION_DELETED));
            }
            may_reauthenticate(channel, message, item)?;
            if !self.setups.contains_key(&id) {
                self.begin_setup(id, Purpose::Reauthenticate(session));
            }
            return Ok((id, early));
        }
        match self.setups.get(&id).map(|s| &s.purpose) {
            Some(Purpose::New(_)) => Ok((id, early)),
            _ => Err(refused(NtStatus::USER_SESSION_DELETED)),
        }
    }

    /// Checks whether one more session or channel may begin on this connection; authentications in progress count.
    fn check_room(&mut self) -> Result<(), NtStatus> {
        let limit = self.server.config.limits.sessions_per_connection;
        if self.channels.len() + self.setups.len() >= limit {
            // Sessions that were ended elsewhere are still in the map.
            self.channels.retain(|_, c| !c.session.is_ended());
        }
        if self.setups.len() >= SETUPS_MAX || self.channels.len() + self.setups.len() >= limit {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        Ok(())
    }

    fn begin_setup(&mut self, id: u64, purpose: Purpose) {
        let mut config = AcceptorConfig::new(&self.server.config.name);
        if matches!(purpose, Purpose::Reauthenticate(_)) {
            config = config.with_anonymous();
        }
        let now = FileTime::from_unix(self.server.env.unix_time());
        let acceptor = Acceptor::new(&config, self.server.env.random(), now);
        self.setups.insert(id, Setup { acceptor, preauth: self.preauth, purpose });
    }

    /// A new session with this connection as its first channel (MS-SMB2 3.3.5.5.3).
    fn establish(
        &mut self,
        id: u64,
        identity: Identity,
        key: &SessionKey,
        preauth: &PreauthHash,
        request: &SessionSetupRequest<'_>,
        negotiated: Negotiated,
    ) -> Result<SessionFlags, NtStatus> {
        let keys = derive(key, preauth, negotiated)?;
        let config = &self.server.config;
        let encrypt = config.encryption == Protection::Required;
        if encrypt && negotiated.cipher.is_none() {
            tracing::warn!(peer = %self.facts.peer, user = ?identity.user,
                "log-on refused: encryption is required and the client offers none (SMB 3.0 or later is needed)");
            return Err(NtStatus::ACCESS_DENIED);
        }
        let ciphers = match (negotiated.cipher, &keys.encryption, &keys.decryption) {
            (Some(cipher), Some(out), Some(back)) => Some(Ciphers {
                sealer: Sealer::new(cipher, out.as_bytes()).map_err(|_| NtStatus::INTERNAL_ERROR)?,
                opener: Opener::new(cipher, back.as_bytes()).map_err(|_| NtStatus::INTERNAL_ERROR)?,
            }),
            _ => None,
        };
        let asked = SecurityMode::SIGNING_REQUIRED;
        let signing_required = config.signing == Protection::Required
            || request.security_mode.contains(asked)
            || self.facts.client_security_mode & asked.bits() != 0;
        let signing = Arc::new(SigningKey::new(negotiated.signing, &keys.signing));
        let membership = self.server.users.membership(&identity.user);
        let session = Arc::new(Session::new(
            id,
            User::new(identity, &membership),
            BindingFacts {
                dialect: negotiated.dialect,
                client_guid: self.facts.client_guid,
                cipher: negotiated.cipher,
            },
            Arc::clone(&signing),
            ciphers,
            encrypt,
            signing_required,
            self.server.env.instant(self.now),
        ));
        tracing::info!(peer = %self.facts.peer, user = ?session.user.name,
            workstation = ?session.user.workstation,
            dialect = %format_args!("{:#06x}", negotiated.dialect), session = %format_args!("{id:#x}"), "session set up");
        self.server.add_session(Arc::clone(&session), self.facts.peer);
        self.add_channel(session, signing)?;
        Ok(if encrypt { SessionFlags::ENCRYPT_DATA } else { SessionFlags::empty() })
    }

    /// MS-SMB2 3.3.5.5.3: re-authentication keeps the keys. It may be anonymous, with no rights until the account logs on
    /// again; another account is refused.
    fn reauthenticate(
        &mut self,
        session: &Arc<Session>,
        identity: &Identity,
    ) -> Result<SessionFlags, NtStatus> {
        let anonymous = identity.sid == Sid::anonymous();
        if !anonymous && !session.user.is_account(identity) {
            return Err(NtStatus::ACCESS_DENIED);
        }
        session.set_anonymous(anonymous);
        Ok(SessionFlags::empty())
    }

    /// MS-SMB2 3.3.5.5.3: a client that reconnects ends the session it had before, if it is the same user's.
    fn end_previous(&mut self, previous: u64, id: u64, reply: Reply) -> Outcome {
        let same = match (self.server.session(previous), self.server.session(id)) {
            (Some(old), Some(new)) => (old.user.sid == new.user.sid).then_some(old),
            _ => None,
        };
        let Some(old) = same else { return Outcome::Reply(reply) };
        self.channels.remove(&previous);
        self.server.remove_session(previous);
        let closing = self.server.end_session(&old, SessionEnd::Disconnected);
        Outcome::later(async move {
            closing.await;
            reply
        })
    }
}

fn with_session_id(id: u64, reply: Reply) -> Outcome {
    Outcome::Reply(reply.with(|extra| extra.session_id = Some(id)))
}

pub(super) fn derive(
    key: &SessionKey,
    preauth: &PreauthHash,
    n: Negotiated,
) -> Result<SessionKeys, NtStatus> {
    let schedule = Schedule::for_dialect(n.dialect, preauth).ok_or(NtStatus::INTERNAL_ERROR)?;
    Ok(SessionKeys::derive(schedule, key, n.cipher, Role::Server))
}

/// The status of a failed log-on (MS-SMB2 3.3.5.5.3).
fn of_auth(error: AuthError) -> NtStatus {
    match error.kind() {
        FailureKind::Malformed => NtStatus::INVALID_PARAMETER,
        FailureKind::LogonFailure => NtStatus::LOGON_FAILURE,
        FailureKind::AccountDisabled => NtStatus::ACCOUNT_DISABLED,
        FailureKind::AccessDenied => NtStatus::ACCESS_DENIED,
    }
}
