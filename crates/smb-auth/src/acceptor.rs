//! The server's end of a log-on: SPNEGO around a mechanism, or NTLM without SPNEGO (MS-SMB2 3.3.5.5.3).
//!
//! 1. The acceptor picks the client's most preferred mechanism that it supports. If that is not the client's first
//!    choice, the optimistic token is ignored, and a MIC must protect the mechanism list (RFC 4178 5).
//! 2. If the client sends a MIC, the acceptor verifies it and answers with its own, even if no MIC is required.
//! 3. After `Done` or `Failed` every step fails.

use std::sync::Arc;

use crate::mechanism::{
    AcceptMechanism, AuthError, Claimed, FileTime, Identity, MechStep, SessionKey, UserLookup,
};
use crate::ntlm::accept::{NtlmAcceptor, ServerNames};
use crate::spnego::{self, NegState, NegTokenInit, NegTokenResp, Oid, Token};

/// Configuration that all log-ons of a server share.
#[derive(Clone, Debug)]
pub struct AcceptorConfig {
    names: Arc<ServerNames>,
    anonymous: bool,
}

impl AcceptorConfig {
    /// Configuration of a stand-alone server on the machine `host`.
    pub fn new(host: &str) -> Self {
        Self { names: Arc::new(ServerNames::standalone(host)), anonymous: false }
    }

    /// Accepts null sessions too. They get an [`Identity`] with [`Sid::anonymous`](crate::sid::Sid::anonymous).
    pub fn with_anonymous(mut self) -> Self {
        self.anonymous = true;
        self
    }

    /// The names that challenges carry.
    pub fn names(&self) -> &ServerNames {
        &self.names
    }

    /// The security buffer of our NEGOTIATE response: the supported mechanisms, most preferred first.
    // MS-SMB2 3.3.5.4
    pub fn hint(&self) -> Vec<u8> {
        spnego::build_hint(&[Oid::NTLMSSP])
    }
}

/// What to do after a token.
#[derive(Debug)]
pub enum Step {
    /// Answer STATUS_MORE_PROCESSING_REQUIRED with this security buffer.
    Continue(Vec<u8>),
    /// Answer STATUS_SUCCESS, and sign it.
    Done {
        /// The security buffer of the answer; empty if the client sent NTLM without SPNEGO.
        token: Vec<u8>,
        /// Who logged on.
        identity: Identity,
        /// The key that both ends now share.
        session_key: SessionKey,
    },
    /// Answer with the status of [`AuthError::kind`], and drop the acceptor.
    Failed(AuthError),
}

/// One log-on. It lives from the first SESSION_SETUP request to the answer that ends it.
///
/// Reauthentication and the binding of a channel each use a new one.
pub struct Acceptor {
    config: AcceptorConfig,
    server_challenge: [u8; 8],
    now: FileTime,
    state: State,
    claimed: Option<Claimed>,
}

enum State {
    Start,
    Bare(Box<dyn AcceptMechanism>),
    Wrapped(Wrapped),
    Ended,
}

struct Wrapped {
    mechanism: Box<dyn AcceptMechanism>,
    /// The mechanism list as the client encoded it, which the MIC covers.
    mech_list: Vec<u8>,
    mic_needed: bool,
}

impl Acceptor {
    /// Starts a log-on. `server_challenge` must be random and new; the challenge carries `now` to the client.
    pub fn new(config: &AcceptorConfig, server_challenge: [u8; 8], now: FileTime) -> Self {
        Self { config: config.clone(), server_challenge, now, state: State::Start, claimed: None }
    }

    /// Processes the security buffer of the client's next SESSION_SETUP request.
    pub fn step(&mut self, token: &[u8], users: &dyn UserLookup) -> Step {
        match self.try_step(token, users) {
            Ok(step) => step,
            Err(error) => {
                self.remember_claim();
                self.state = State::Ended;
                Step::Failed(error)
            }
        }
    }

    /// The identity that the client claims, for log lines; `None` until the client has sent it. It is kept after a
    /// failure.
    pub fn claimed(&self) -> Option<&Claimed> {
        self.claimed.as_ref()
    }

    fn try_step(&mut self, token: &[u8], users: &dyn UserLookup) -> Result<Step, AuthError> {
        let token = Token::parse(token)?;
        match (&mut self.state, token) {
            (State::Start, Token::Init(init)) => self.start(&init, users),
            (State::Start, Token::RawNtlm(token)) => {
                self.state = State::Bare(self.mechanism(Oid::NTLMSSP).ok_or(AuthError::NoCommonMechanism)?);
                self.bare_step(token, users)
            }
            (State::Bare(_), Token::RawNtlm(token)) => self.bare_step(token, users),
            (State::Wrapped(_), Token::Resp(resp)) => {
                if resp.state == Some(NegState::REJECT) {
                    return Err(AuthError::Rejected);
                }
                let token = resp.response_token.ok_or(AuthError::OutOfOrder)?;
                self.wrapped_step(token, resp.mech_list_mic, None, users)
            }
            _ => Err(AuthError::OutOfOrder),
        }
    }

    /// Creates the mechanism for `oid`; `None` if it is not supported. Kerberos will be a second arm.
    fn mechanism(&self, oid: Oid<'_>) -> Option<Box<dyn AcceptMechanism>> {
        match oid {
            Oid::NTLMSSP => {
                let acceptor = NtlmAcceptor::new(self.config.names.clone(), self.server_challenge, self.now);
                Some(Box::new(acceptor.with_anonymous(self.config.anonymous)))
            }
            _ => None,
        }
    }

    // RFC 4178 4.2.1, 5
    fn start(&mut self, init: &NegTokenInit<'_>, users: &dyn UserLookup) -> Result<Step, AuthError> {
        let (at, mechanism) = init
            .mechs
            .iter()
            .enumerate()
            .find_map(|(at, oid)| Some((at, self.mechanism(*oid)?)))
            .ok_or(AuthError::NoCommonMechanism)?;
        let chosen = mechanism.oid();
        let optimistic = init.mech_token.filter(|_| at == 0);
        let mic_needed = at != 0;
        self.state = State::Wrapped(Wrapped { mechanism, mech_list: init.mech_list.to_vec(), mic_needed });
        match optimistic {
            Some(token) => self.wrapped_step(token, init.mech_list_mic, Some(chosen), users),
            None => Ok(Step::Continue(
                NegTokenResp {
                    state: Some(if mic_needed { NegState::REQUEST_MIC } else { NegState::ACCEPT_INCOMPLETE }),
                    supported_mech: Some(chosen),
                    ..NegTokenResp::default()
                }
                .to_bytes(),
            )),
        }
    }

    fn bare_step(&mut self, token: &[u8], users: &dyn UserLookup) -> Result<Step, AuthError> {
        let State::Bare(mechanism) = &mut self.state else { return Err(AuthError::OutOfOrder) };
        match mechanism.accept(token, users)? {
            MechStep::Continue(token) => Ok(Step::Continue(token)),
            MechStep::Done { token, identity, session_key } => {
                self.remember_claim();
                self.state = State::Ended;
                Ok(Step::Done { token: token.unwrap_or_default(), identity, session_key })
            }
        }
    }

    fn wrapped_step(
        &mut self,
        token: &[u8],
        client_mic: Option<&[u8]>,
        supported_mech: Option<Oid<'static>>,
        users: &dyn UserLookup,
    ) -> Result<Step, AuthError> {
        let State::Wrapped(wrapped) = &mut self.state else { return Err(AuthError::OutOfOrder) };
        match wrapped.mechanism.accept(token, users)? {
            MechStep::Continue(token) => Ok(Step::Continue(
                NegTokenResp {
                    state: Some(NegState::ACCEPT_INCOMPLETE),
                    supported_mech,
                    response_token: Some(&token),
                    mech_list_mic: None,
                }
                .to_bytes(),
            )),
            MechStep::Done { token, identity, session_key } => {
                let mic = wrapped.exchange_mics(client_mic)?;
                let token = NegTokenResp {
                    state: Some(NegState::ACCEPT_COMPLETED),
                    supported_mech,
                    response_token: token.as_deref(),
                    mech_list_mic: mic.as_deref(),
                }
                .to_bytes();
                self.remember_claim();
                self.state = State::Ended;
                Ok(Step::Done { token, identity, session_key })
            }
        }
    }

    fn remember_claim(&mut self) {
        let mechanism = match &self.state {
            State::Bare(mechanism) => mechanism,
            State::Wrapped(wrapped) => &wrapped.mechanism,
            State::Start | State::Ended => return,
        };
        self.claimed = mechanism.claimed().cloned();
    }
}

impl Wrapped {
    /// Verifies the client's MIC and returns ours; `None` if the client sent none and none is required.
    // RFC 4178 5
    fn exchange_mics(&self, client_mic: Option<&[u8]>) -> Result<Option<Vec<u8>>, AuthError> {
        match client_mic {
            Some(mic) if self.mechanism.check_mic(&self.mech_list, mic) => {
                Ok(self.mechanism.make_mic(&self.mech_list))
            }
            None if !self.mic_needed => Ok(None),
            _ => Err(AuthError::BadMechListMic),
        }
    }
}

#[cfg(test)]
mod tests;
