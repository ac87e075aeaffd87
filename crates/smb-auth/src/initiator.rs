//! The client's end of a log-on (MS-SMB2 3.2.4.2.3, 3.2.5.3).

use crate::mechanism::{AuthError, FileTime, InitiateMechanism, SessionKey};
use crate::ntlm::initiate::{ClientRandom, Credentials, NtlmInitiator};
use crate::spnego::{self, NegState, NegTokenResp, Oid, Token};

/// What to do after the server's token.
#[derive(Debug)]
pub enum InitiatorStep {
    /// Send another SESSION_SETUP request with this security buffer. [`Initiator::session_key`] may already be known.
    Continue(Vec<u8>),
    /// The exchange is complete: the server's last token was valid.
    Done {
        /// The key that both ends now share. Use it to verify the signature of the response that carried the token.
        session_key: SessionKey,
    },
}

/// One log-on.
///
/// Call [`first_token`](Self::first_token), then [`step`](Self::step) with the security buffer of every response
/// until it returns `Done`. That includes the final, successful response, whose MIC it verifies. The keys of 3.1.1
/// depend on the hash of the last request, so derive them after the final response has arrived.
pub struct Initiator {
    mechanism: Box<dyn InitiateMechanism>,
    mech_list: Vec<u8>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    /// The mechanism must send more tokens.
    Exchanging,
    /// The mechanism has finished; the server has not yet accepted.
    Awaiting,
    Ended,
}

impl Initiator {
    /// Creates a log-on by NTLM to the service `target_spn`, such as `cifs/server`.
    pub fn ntlm(credentials: Credentials, random: ClientRandom, now: FileTime, target_spn: &str) -> Self {
        Self::new(Box::new(NtlmInitiator::new(credentials, random, now, target_spn)))
    }

    /// Creates a log-on by any mechanism.
    pub fn new(mechanism: Box<dyn InitiateMechanism>) -> Self {
        let mech_list = spnego::mech_list(&[mechanism.oid()]);
        Self { mechanism, mech_list, state: State::Start }
    }

    /// Returns the first security buffer. `server_hint` is that of the server's NEGOTIATE response, possibly empty.
    ///
    /// # Errors
    /// [`AuthError::NoCommonMechanism`] when the server's hint does not list our mechanism; [`AuthError::Spnego`] when
    /// it is malformed; [`AuthError::OutOfOrder`] when called twice.
    pub fn first_token(&mut self, server_hint: &[u8]) -> Result<Vec<u8>, AuthError> {
        if std::mem::replace(&mut self.state, State::Ended) != State::Start {
            return Err(AuthError::OutOfOrder);
        }
        let oid = self.mechanism.oid();
        if !server_hint.is_empty() {
            match Token::parse(server_hint)? {
                Token::Init(hint) if hint.mechs.contains(&oid) => {}
                _ => return Err(AuthError::NoCommonMechanism),
            }
        }
        let token = self.mechanism.initiate(&[])?;
        self.state = State::Exchanging;
        Ok(spnego::build_init(&[oid], &token))
    }

    /// Processes the security buffer of the server's next response.
    ///
    /// # Errors
    /// [`AuthError`]: the log-on has failed. Every later step returns [`AuthError::OutOfOrder`].
    pub fn step(&mut self, token: &[u8]) -> Result<InitiatorStep, AuthError> {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Exchanging => self.exchange(token),
            State::Awaiting => self.conclude(token),
            State::Start | State::Ended => Err(AuthError::OutOfOrder),
        }
    }

    /// The session key, available once the mechanism has sent its last token. The server has not accepted it yet.
    pub fn session_key(&self) -> Option<SessionKey> {
        self.mechanism.session_key()
    }

    fn exchange(&mut self, token: &[u8]) -> Result<InitiatorStep, AuthError> {
        let Token::Resp(resp) = Token::parse(token)? else { return Err(AuthError::OutOfOrder) };
        let oid: Oid<'static> = self.mechanism.oid();
        match resp.state {
            Some(NegState::REJECT) => return Err(AuthError::Rejected),
            Some(NegState::ACCEPT_COMPLETED) => return Err(AuthError::OutOfOrder),
            _ => {}
        }
        if resp.supported_mech.is_some_and(|chosen| chosen != oid) {
            return Err(AuthError::NoCommonMechanism);
        }
        let token = self.mechanism.initiate(resp.response_token.ok_or(AuthError::OutOfOrder)?)?;
        let mic = self.mechanism.make_mic(&self.mech_list);
        self.state = if mic.is_some() { State::Awaiting } else { State::Exchanging };
        let resp = NegTokenResp {
            response_token: Some(&token),
            mech_list_mic: mic.as_deref(),
            ..NegTokenResp::default()
        };
        Ok(InitiatorStep::Continue(resp.to_bytes()))
    }

    fn conclude(&mut self, token: &[u8]) -> Result<InitiatorStep, AuthError> {
        // Some servers end with an empty buffer. We offered one mechanism, so no downgrade was possible.
        if !token.is_empty() {
            let Token::Resp(resp) = Token::parse(token)? else { return Err(AuthError::OutOfOrder) };
            match resp.state {
                Some(NegState::REJECT) => return Err(AuthError::Rejected),
                Some(NegState::ACCEPT_COMPLETED) | None => {}
                Some(_) => return Err(AuthError::OutOfOrder),
            }
            if resp.mech_list_mic.is_some_and(|mic| !self.mechanism.check_mic(&self.mech_list, mic)) {
                return Err(AuthError::BadMechListMic);
            }
        }
        let session_key = self.mechanism.session_key().ok_or(AuthError::OutOfOrder)?;
        Ok(InitiatorStep::Done { session_key })
    }
}
