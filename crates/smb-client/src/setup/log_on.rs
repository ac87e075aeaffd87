//! SESSION_SETUP (MS-SMB2 3.2.4.2.3, 3.2.5.3): creates a session, or adds a channel to one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arena::sg_to_vec;
use env::Env;
use smb_auth::crypt::{Opener, Sealer};
use smb_auth::derive::{PreauthHash, Role, Schedule, SessionKeys};
use smb_auth::initiator::{Initiator, InitiatorStep};
use smb_auth::mechanism::FileTime;
use smb_auth::ntlm::initiate::ClientRandom;
use smb_auth::sign::SigningKey;
use smb_wire::msg::{
    Capabilities, SecurityMode, SessionFlags, SessionSetupFlags, SessionSetupRequest, SessionSetupResponse,
};
use smb_wire::{Command, Decode, HeaderFlags, NtStatus};

use super::Negotiated;
use crate::connection::{Channel, Ciphers, Connection, Request, Response, Setup, protect};
use crate::{ConnectError, ConnectOptions, Lost, RequestError};

/// A session on its first connection.
pub(crate) struct LoggedOn {
    pub(crate) channel: Arc<Channel>,
}

/// A log-on takes three messages; none of our mechanisms needs more rounds than this.
const ROUNDS: usize = 8;
/// Number of NTLM's requests: the same mechanism logs on and binds.
const BINDING_ROUNDS: usize = 2;

/// Logs on.
///
/// # Errors
/// Why the server refused, or why its response is not trusted.
pub(crate) async fn log_on(
    connection: &Connection,
    host: &str,
    options: &ConnectOptions,
    negotiated: &Negotiated,
    env: &Env,
) -> Result<LoggedOn, ConnectError> {
    let done = exchange(connection, host, options, negotiated, env, None).await?;
    let ExchangeResult { session_id, keys, flags, signing } = done;
    // MS-SMB2 3.2.5.3.3: a guest session was not requested.
    if flags.intersects(SessionFlags::IS_GUEST | SessionFlags::IS_NULL) {
        return Err(ConnectError::Refused(
            "the server granted guest access only: it does not know the user name or the password",
        ));
    }
    let encrypt = options.encrypt || flags.contains(SessionFlags::ENCRYPT_DATA);
    let ciphers = match (negotiated.cipher, &keys.encryption, &keys.decryption) {
        (Some(cipher), Some(out), Some(back)) => Some(Arc::new(Ciphers {
            sealer: Sealer::new(cipher, out.as_bytes()).map_err(|_| NO_KEY)?,
            opener: Opener::new(cipher, back.as_bytes()).map_err(|_| NO_KEY)?,
        })),
        _ => None,
    };
    if encrypt && ciphers.is_none() {
        return Err(ConnectError::Refused("the server requires encryption but offered no cipher"));
    }
    let channel = Arc::new(Channel {
        session_id,
        signing,
        signing_required: options.require_signing || negotiated.signing_required,
        ciphers,
        encrypt,
        sequence: Arc::default(),
    });
    connection.set_channel(Arc::clone(&channel));
    Ok(LoggedOn { channel })
}

const NO_KEY: ConnectError = ConnectError::Refused("the session's key does not fit its cipher");

/// Makes a connection a further channel of a session (MS-SMB2 3.2.4.2.3.1). It has its own signing key and shares
/// the session's encryption. If the session is signed with AES-GMAC, call this at most once: see
/// [`crate::WhyNotRdma::BoundOnce`].
///
/// # Errors
/// The errors of [`log_on`].
pub(crate) async fn bind(
    connection: &Connection,
    host: &str,
    options: &ConnectOptions,
    negotiated: &Negotiated,
    session: &Channel,
    env: &Env,
) -> Result<(), ConnectError> {
    let done = exchange(connection, host, options, negotiated, env, Some(session)).await?;
    connection.set_channel(Arc::new(Channel {
        session_id: session.session_id,
        signing: done.signing,
        signing_required: session.signing_required,
        ciphers: session.ciphers.clone(),
        encrypt: session.encrypt,
        sequence: Arc::clone(&session.sequence),
    }));
    Ok(())
}

/// Authenticates an expired session again (MS-SMB2 3.2.5.1.6), on its own channel and with its usual protection.
/// Its keys do not change (3.3.5.5.2).
///
/// # Errors
/// The errors of [`log_on`].
pub(crate) async fn reauthenticate(
    connection: &Connection,
    host: &str,
    options: &ConnectOptions,
    negotiated: &Negotiated,
    env: &Env,
) -> Result<(), ConnectError> {
    let mut initiator = initiator(host, options, env);
    let mut token = initiator.first_token(&negotiated.hint)?;
    for _ in 0..ROUNDS {
        let response = connection.call(message(&token, options, SessionSetupFlags::empty())?).await?;
        let status = response.header.status;
        if status != NtStatus::MORE_PROCESSING_REQUIRED && status != NtStatus::SUCCESS {
            return Err(ConnectError::LogOn(status));
        }
        let body = SessionSetupResponse::decode(response.bytes()).map_err(RequestError::Malformed)?;
        match (initiator.step(body.security_buffer)?, status) {
            (InitiatorStep::Done { .. }, NtStatus::SUCCESS) => return Ok(()),
            (InitiatorStep::Continue(next), NtStatus::MORE_PROCESSING_REQUIRED) => token = next,
            _ => return Err(ConnectError::Refused("server and client disagree when the log-on ends")),
        }
    }
    Err(ConnectError::Refused("the log-on needs too many messages"))
}

fn initiator(host: &str, options: &ConnectOptions, env: &Env) -> Initiator {
    let random = ClientRandom { client_challenge: env.random(), session_key: env.random() };
    let now = FileTime::from_unix(env.unix_time());
    Initiator::ntlm(options.credentials.clone(), random, now, &format!("cifs/{host}"))
}

struct ExchangeResult {
    session_id: u64,
    keys: SessionKeys,
    flags: SessionFlags,
    signing: Arc<SigningKey>,
}

async fn exchange(
    connection: &Connection,
    host: &str,
    options: &ConnectOptions,
    negotiated: &Negotiated,
    env: &Env,
    binding: Option<&Channel>,
) -> Result<ExchangeResult, ConnectError> {
    let mut initiator = initiator(host, options, env);
    let mut token = initiator.first_token(&negotiated.hint)?;
    let mut session_id = binding.map_or(0, |s| s.session_id);
    let mut preauth: PreauthHash = negotiated.preauth;
    // A binding may only use the MessageIds that the session's first connection spent unsigned in its log-on.
    let rounds = if binding.is_some() { BINDING_ROUNDS } else { ROUNDS };
    for _ in 0..rounds {
        let response = connection.call(request(&token, options, session_id, binding)?).await?;
        // MS-SMB2 3.2.5.3: the hash covers every request, and every response except the final one.
        preauth.update(&[response.request.as_deref().unwrap_or_default()]);
        match response.header.status {
            NtStatus::MORE_PROCESSING_REQUIRED => {
                if binding.is_none() {
                    session_id = response.header.session_id;
                }
                preauth.update(&[&sg_to_vec(&response.message)]);
                if let Some(session) = binding
                    && response.header.flags.contains(HeaderFlags::SIGNED)
                {
                    check(&session.signing, &response)?;
                }
                let body = SessionSetupResponse::decode(response.bytes()).map_err(RequestError::Malformed)?;
                match initiator.step(body.security_buffer)? {
                    InitiatorStep::Continue(next) => token = next,
                    InitiatorStep::Done { .. } => {
                        return Err(ConnectError::Refused("the server continues a log-on that is complete"));
                    }
                }
            }
            NtStatus::SUCCESS => {
                let body: SessionSetupResponse<'_> = response.body()?;
                let InitiatorStep::Done { session_key } = initiator.step(body.security_buffer)? else {
                    return Err(ConnectError::Refused(
                        "the server accepted the log-on before the client had authenticated",
                    ));
                };
                let schedule = Schedule::for_dialect(negotiated.dialect, &preauth)
                    .ok_or(ConnectError::Tampered("the response has an unknown dialect"))?;
                let keys = SessionKeys::derive(schedule, &session_key, negotiated.cipher, Role::Client);
                let signing = Arc::new(SigningKey::new(negotiated.signing, &keys.signing));
                // Only a server that knows the user's secret can sign this response. The signature authenticates
                // the server, and in 3.1.1 all earlier messages. A guest's response is not signed, and the caller
                // rejects it. A binding cannot be a guest's: the new channel always signs its response (MS-SMB2
                // 3.2.5.3.3).
                let guest = body.session_flags.intersects(SessionFlags::IS_GUEST | SessionFlags::IS_NULL);
                if guest && binding.is_some() {
                    return Err(ConnectError::Refused(
                        "the server granted guest access only to a further connection of the session",
                    ));
                }
                let signed = response.header.flags.contains(HeaderFlags::SIGNED);
                if !guest && (signed || binding.is_some() || must_be_signed(options, negotiated)) {
                    check(&signing, &response)?;
                }
                let session_id = response.header.session_id;
                return Ok(ExchangeResult { session_id, keys, flags: body.session_flags, signing });
            }
            status => return Err(ConnectError::LogOn(status)),
        }
    }
    Err(ConnectError::Refused("the log-on needs too many messages"))
}

/// Whether the final response must be signed: always from 3.0 on (MS-SMB2 3.3.5.5.3), before that if signing is
/// required.
fn must_be_signed(options: &ConnectOptions, negotiated: &Negotiated) -> bool {
    negotiated.dialect >= 0x0300 || options.require_signing || negotiated.signing_required
}

fn check(key: &SigningKey, response: &Response) -> Result<(), ConnectError> {
    let signed = response.header.flags.contains(HeaderFlags::SIGNED);
    if signed && protect::verify(key, &response.message, &response.header) {
        Ok(())
    } else {
        Err(RequestError::Lost(Lost::NotAuthentic).into())
    }
}

fn request(
    token: &[u8],
    options: &ConnectOptions,
    session_id: u64,
    binding: Option<&Channel>,
) -> Result<Request, ConnectError> {
    let flags = if binding.is_some() { SessionSetupFlags::BINDING } else { SessionSetupFlags::empty() };
    let mut request = message(token, options, flags)?;
    let sequence = binding.map_or(0, |s| s.sequence.load(Ordering::Relaxed));
    request.setup = Some(Setup { session_id, key: binding.map(|s| Arc::clone(&s.signing)), sequence });
    Ok(request)
}

fn message(
    token: &[u8],
    options: &ConnectOptions,
    flags: SessionSetupFlags,
) -> Result<Request, ConnectError> {
    let required =
        if options.require_signing { SecurityMode::SIGNING_REQUIRED } else { SecurityMode::empty() };
    let body = SessionSetupRequest {
        flags,
        security_mode: SecurityMode::SIGNING_ENABLED | required,
        capabilities: Capabilities::empty(),
        channel: 0,
        previous_session_id: 0,
        security_buffer: token,
    };
    Ok(Request::new(Command::SESSION_SETUP, &body)?)
}
