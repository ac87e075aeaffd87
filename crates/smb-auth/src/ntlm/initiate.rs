//! The client's end (MS-NLMP 3.1).

use aws_lc_rs::constant_time::verify_slices_are_equal;
use zeroize::Zeroizing;

use super::response::build_temp;
use super::{
    Authenticate, AvFlags, AvId, AvPairs, Challenge, Flags, Negotiate, NtHash, NtlmError, Refusal, Side,
    SigningSession, av, lmv2_response, message_mic, nt_proof, rc4, response_key_nt, session_base_key,
    utf16le,
};
use crate::mechanism::{AuthError, FileTime, InitiateMechanism, SessionKey};
use crate::spnego::Oid;

/// The account that logs on.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The account's name.
    pub user: String,
    /// The account's domain; empty for the server's own accounts.
    pub domain: String,
    /// The password's hash ([`NtHash::from_password`]).
    pub nt_hash: NtHash,
    /// Name of this machine, as sent to the server.
    pub workstation: String,
}

/// The random bytes of one log-on: they must be new for each.
#[derive(Clone, Copy)]
pub struct ClientRandom {
    /// Becomes part of the response.
    pub client_challenge: [u8; 8],
    /// Becomes the session key if key exchange is negotiated.
    pub session_key: [u8; 16],
}

/// One log-on by NTLM.
pub struct NtlmInitiator {
    credentials: Credentials,
    random: ClientRandom,
    now: FileTime,
    target_spn: String,
    state: State,
}

enum State {
    Start,
    AwaitChallenge { negotiate: Vec<u8> },
    Done { session_key: SessionKey, session: SigningSession },
    Failed,
}

const WANTED: Flags = Flags::UNICODE
    .union(Flags::REQUEST_TARGET)
    .union(Flags::SIGN)
    .union(Flags::NTLM)
    .union(Flags::ALWAYS_SIGN)
    .union(Flags::EXTENDED_SESSIONSECURITY)
    .union(Flags::TARGET_INFO)
    .union(Flags::VERSION)
    .union(Flags::KEY_128)
    .union(Flags::KEY_EXCH)
    .union(Flags::KEY_56);

/// The longest name or SPN that we send, in UTF-16 units.
const MAX_NAME: usize = 256;

impl NtlmInitiator {
    /// Starts an exchange with the service `target_spn`, such as `cifs/server`. Names are cut to 256 UTF-16 units.
    pub fn new(credentials: Credentials, random: ClientRandom, now: FileTime, target_spn: &str) -> Self {
        Self { credentials, random, now, target_spn: target_spn.to_owned(), state: State::Start }
    }

    // MS-NLMP 3.1.5.1.2
    fn on_challenge(&mut self, negotiate: &[u8], token: &[u8]) -> Result<Vec<u8>, AuthError> {
        let challenge = Challenge::parse(token)?;
        if !challenge.flags.contains(Flags::UNICODE) {
            return Err(Refusal::CharacterSet.into());
        }
        if !challenge.flags.contains(Flags::EXTENDED_SESSIONSECURITY) {
            return Err(Refusal::NoExtendedSessionSecurity.into());
        }
        let flags = WANTED.intersection(challenge.flags);
        let info = match challenge.target_info {
            [] => None,
            bytes => Some(AvPairs::parse(bytes)?),
        };
        let server_time = info.and_then(AvPairs::timestamp);
        let time = server_time.unwrap_or(self.now.0.to_le_bytes());

        let user = name(&self.credentials.user);
        let domain = name(&self.credentials.domain);
        let response_key = Zeroizing::new(response_key_nt(&self.credentials.nt_hash, &user, &domain));
        let temp = build_temp(&time, &self.random.client_challenge, &self.pairs(info));
        let proof = nt_proof(&response_key, &challenge.server_challenge, &temp);
        let base = Zeroizing::new(session_base_key(&response_key, &proof));
        let nt_response = [&proof[..], &temp].concat();
        if nt_response.len() > usize::from(u16::MAX) {
            return Err(NtlmError::BadAvPairs.into());
        }
        // A server that sends its time gets no LMv2 response.
        let lm_response = match server_time {
            Some(_) => [0; 24],
            None => lmv2_response(&response_key, &challenge.server_challenge, &self.random.client_challenge),
        };
        let exchange = flags.contains(Flags::KEY_EXCH);
        let session_key = Zeroizing::new(if exchange { self.random.session_key } else { *base });
        let encrypted = rc4(&base[..], *session_key);

        let mut message = Authenticate {
            flags,
            lm_response: &lm_response,
            nt_response: &nt_response,
            domain: &domain,
            user: &user,
            workstation: &name(&self.credentials.workstation),
            encrypted_session_key: if exchange { &encrypted } else { &[] },
            mic: None,
        };
        message.mic = Some(message_mic(&session_key, negotiate, token, &message.to_bytes()));
        self.state = State::Done {
            session: SigningSession::new(*session_key, flags),
            session_key: Zeroizing::new(session_key.to_vec()),
        };
        Ok(message.to_bytes())
    }

    /// The server's pairs, then ours. Pairs that only a client may set are dropped from the server's list: a man in
    /// the middle could have inserted them.
    fn pairs(&self, info: Option<AvPairs<'_>>) -> Vec<u8> {
        let mut pairs = Vec::new();
        const OURS: [AvId; 4] = [AvId::FLAGS, AvId::SINGLE_HOST, AvId::TARGET_NAME, AvId::CHANNEL_BINDINGS];
        for (id, value) in info.into_iter().flat_map(AvPairs::iter).filter(|(id, _)| !OURS.contains(id)) {
            av::push(&mut pairs, id, value);
        }
        av::push(&mut pairs, AvId::FLAGS, &AvFlags::MIC.0.to_le_bytes());
        av::push(&mut pairs, AvId::CHANNEL_BINDINGS, &[0; 16]);
        av::push(&mut pairs, AvId::TARGET_NAME, &name(&self.target_spn));
        av::push(&mut pairs, AvId::END, &[]);
        pairs
    }

    fn session(&self) -> Option<&SigningSession> {
        match &self.state {
            State::Done { session, .. } => Some(session),
            _ => None,
        }
    }
}

impl InitiateMechanism for NtlmInitiator {
    fn oid(&self) -> Oid<'static> {
        Oid::NTLMSSP
    }

    fn initiate(&mut self, token: &[u8]) -> Result<Vec<u8>, AuthError> {
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Start => {
                let negotiate = Negotiate { flags: WANTED }.to_bytes();
                self.state = State::AwaitChallenge { negotiate: negotiate.clone() };
                Ok(negotiate)
            }
            State::AwaitChallenge { negotiate } => self.on_challenge(&negotiate, token),
            State::Done { .. } | State::Failed => Err(AuthError::OutOfOrder),
        }
    }

    fn session_key(&self) -> Option<SessionKey> {
        match &self.state {
            State::Done { session_key, .. } => Some(session_key.clone()),
            _ => None,
        }
    }

    fn make_mic(&self, mech_list: &[u8]) -> Option<Vec<u8>> {
        self.session().map(|session| session.sign(Side::Client, mech_list).to_vec())
    }

    fn check_mic(&self, mech_list: &[u8], mic: &[u8]) -> bool {
        self.session().is_some_and(|session| {
            verify_slices_are_equal(&session.sign(Side::Server, mech_list), mic).is_ok()
        })
    }
}

fn name(text: &str) -> Vec<u8> {
    let mut bytes = utf16le(text);
    bytes.truncate(MAX_NAME * 2);
    bytes
}
