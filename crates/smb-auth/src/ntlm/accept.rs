//! The server's end (MS-NLMP 3.2).

use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use zeroize::Zeroizing;

use super::{
    Authenticate, AvFlags, AvId, Challenge, Flags, Negotiate, NtHash, NtlmError, Ntlmv2Response, Refusal,
    Side, SigningSession, av, exported_session_key, message_mic, nt_proof, response_key_nt, session_base_key,
    utf16le,
};
use crate::mechanism::{AcceptMechanism, AuthError, Claimed, FileTime, Identity, MechStep, UserLookup};
use crate::sid::Sid;
use crate::spnego::Oid;

/// The names that a stand-alone server puts into its challenges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerNames {
    netbios: String,
    dns: String,
}

/// The longest NetBIOS name, in characters.
const MAX_NETBIOS: usize = 15;
/// The longest DNS name, in bytes.
const MAX_DNS: usize = 253;

impl ServerNames {
    /// Derives the names from `host`, fully qualified or not. The NetBIOS name is the first label in upper case,
    /// cut to 15 characters. It is also the domain name, as on a Windows server outside a domain.
    pub fn standalone(host: &str) -> Self {
        let label = host.split('.').next().filter(|label| !label.is_empty()).unwrap_or("SERVER");
        Self {
            netbios: label.chars().take(MAX_NETBIOS).map(|c| c.to_ascii_uppercase()).collect(),
            dns: host.chars().take(MAX_DNS).collect(),
        }
    }

    /// The NetBIOS name.
    pub fn netbios(&self) -> &str {
        &self.netbios
    }

    /// The DNS name.
    pub fn dns(&self) -> &str {
        &self.dns
    }

    fn target_info(&self, now: FileTime) -> Vec<u8> {
        let (netbios, dns) = (utf16le(&self.netbios), utf16le(&self.dns));
        let mut pairs = Vec::new();
        av::push(&mut pairs, AvId::NB_DOMAIN_NAME, &netbios);
        av::push(&mut pairs, AvId::NB_COMPUTER_NAME, &netbios);
        av::push(&mut pairs, AvId::DNS_DOMAIN_NAME, &dns);
        av::push(&mut pairs, AvId::DNS_COMPUTER_NAME, &dns);
        av::push(&mut pairs, AvId::TIMESTAMP, &now.0.to_le_bytes());
        av::push(&mut pairs, AvId::END, &[]);
        pairs
    }
}

/// One log-on by NTLM.
pub struct NtlmAcceptor {
    names: Arc<ServerNames>,
    server_challenge: [u8; 8],
    now: FileTime,
    anonymous: bool,
    state: State,
    claimed: Option<Claimed>,
}

enum State {
    AwaitNegotiate,
    AwaitAuthenticate { flags: Flags, negotiate: Vec<u8>, challenge: Vec<u8> },
    Done(SigningSession),
    Failed,
}

impl NtlmAcceptor {
    /// Starts an exchange. `server_challenge` must be random and new.
    pub fn new(names: Arc<ServerNames>, server_challenge: [u8; 8], now: FileTime) -> Self {
        Self { names, server_challenge, now, anonymous: false, state: State::AwaitNegotiate, claimed: None }
    }

    /// Whether null sessions are accepted.
    pub fn with_anonymous(mut self, accepted: bool) -> Self {
        self.anonymous = accepted;
        self
    }

    // MS-NLMP 3.2.5.1.1
    fn on_negotiate(&mut self, token: &[u8]) -> Result<MechStep, AuthError> {
        let offered = Negotiate::parse(token)?.flags;
        let character_set = [Flags::UNICODE, Flags::OEM].into_iter().find(|set| offered.contains(*set));
        let character_set = character_set.ok_or(Refusal::CharacterSet)?;
        if !offered.contains(Flags::EXTENDED_SESSIONSECURITY) {
            return Err(Refusal::NoExtendedSessionSecurity.into());
        }
        const ON_REQUEST: Flags = Flags::SIGN
            .union(Flags::SEAL)
            .union(Flags::ALWAYS_SIGN)
            .union(Flags::KEY_EXCH)
            .union(Flags::KEY_128)
            .union(Flags::KEY_56)
            .union(Flags::VERSION)
            .union(Flags::REQUEST_TARGET);
        let flags = character_set
            .union(Flags::NTLM)
            .union(Flags::TARGET_TYPE_SERVER)
            .union(Flags::EXTENDED_SESSIONSECURITY)
            .union(Flags::TARGET_INFO)
            .union(offered.intersection(ON_REQUEST));
        let challenge = Challenge {
            flags,
            server_challenge: self.server_challenge,
            target_name: &match character_set {
                Flags::UNICODE => utf16le(&self.names.netbios),
                _ => oem(&self.names.netbios),
            },
            target_info: &self.names.target_info(self.now),
        }
        .to_bytes();
        self.state =
            State::AwaitAuthenticate { flags, negotiate: token.to_vec(), challenge: challenge.clone() };
        Ok(MechStep::Continue(challenge))
    }

    // MS-NLMP 3.2.5.1.2
    fn on_authenticate(
        &mut self,
        token: &[u8],
        offered: Flags,
        negotiate: &[u8],
        challenge: &[u8],
        users: &dyn UserLookup,
    ) -> Result<MechStep, AuthError> {
        let message = Authenticate::parse(token)?;
        let unicode = message.flags.contains(Flags::UNICODE);
        let [user, domain, workstation] =
            [message.user, message.domain, message.workstation].map(|name| Name::read(name, unicode));
        self.claimed = Some(Claimed {
            user: user.text.clone(),
            domain: domain.text.clone(),
            workstation: workstation.text.clone(),
        });
        if self.anonymous && is_anonymous(&message) {
            return self.on_anonymous(&message, offered);
        }
        refuse(&message, &user.text)?;
        let response = Ntlmv2Response::parse(message.nt_response)?;

        let account = if user.well_formed { users.lookup(&user.text, &domain.text) } else { None };
        // An unknown user takes the same path as a wrong password, so that timing does not reveal valid names.
        let no_hash = NtHash::from_bytes([0x5a; 16]);
        let hash = account.as_ref().map_or(&no_hash, |account| &account.nt_hash);
        let response_key = Zeroizing::new(response_key_nt(hash, &user.utf16, &domain.utf16));
        let proof = nt_proof(&response_key, &self.server_challenge, response.temp);
        let proved = verify_slices_are_equal(&proof, &response.proof).is_ok();
        let account = account.ok_or(AuthError::UnknownUser)?;
        if !proved {
            return Err(AuthError::WrongPassword);
        }

        let flags = message.flags.intersection(offered);
        let encrypted = exchanged_key(&message, flags)?;
        let base = Zeroizing::new(session_base_key(&response_key, &proof));
        let session_key = Zeroizing::new(exported_session_key(&base, encrypted));
        // The proof covers the flag, so an attacker cannot clear it in transit.
        if response.pairs.flags()?.0 & AvFlags::MIC.0 != 0 {
            let expected = message_mic(&session_key, negotiate, challenge, token);
            let mic = message.mic.ok_or(AuthError::BadMic)?;
            verify_slices_are_equal(&expected, &mic).map_err(|_| AuthError::BadMic)?;
        }
        if account.disabled {
            return Err(AuthError::AccountDisabled);
        }
        self.state = State::Done(SigningSession::new(*session_key, flags));
        Ok(MechStep::Done {
            token: None,
            identity: Identity {
                user: account.name,
                domain: domain.text,
                workstation: workstation.text,
                sid: account.sid,
            },
            session_key: Zeroizing::new(session_key.to_vec()),
        })
    }

    /// Accepts a null session: no identity is proved, and the key that protects the exchange is publicly known.
    // MS-NLMP 3.2.5.1.2
    fn on_anonymous(&mut self, message: &Authenticate<'_>, offered: Flags) -> Result<MechStep, AuthError> {
        let flags = message.flags.intersection(offered);
        let encrypted = exchanged_key(message, flags)?;
        let session_key = Zeroizing::new(exported_session_key(&[0; 16], encrypted));
        self.state = State::Done(SigningSession::new(*session_key, flags));
        Ok(MechStep::Done {
            token: None,
            identity: Identity {
                user: "ANONYMOUS LOGON".into(),
                domain: String::new(),
                workstation: String::new(),
                sid: Sid::anonymous(),
            },
            session_key: Zeroizing::new(session_key.to_vec()),
        })
    }

    fn session(&self) -> Option<&SigningSession> {
        match &self.state {
            State::Done(session) => Some(session),
            _ => None,
        }
    }
}

impl AcceptMechanism for NtlmAcceptor {
    fn oid(&self) -> Oid<'static> {
        Oid::NTLMSSP
    }

    fn accept(&mut self, token: &[u8], users: &dyn UserLookup) -> Result<MechStep, AuthError> {
        match std::mem::replace(&mut self.state, State::Failed) {
            State::AwaitNegotiate => self.on_negotiate(token),
            State::AwaitAuthenticate { flags, negotiate, challenge } => {
                self.on_authenticate(token, flags, &negotiate, &challenge, users)
            }
            State::Done(_) | State::Failed => Err(AuthError::OutOfOrder),
        }
    }

    fn make_mic(&self, mech_list: &[u8]) -> Option<Vec<u8>> {
        self.session().map(|session| session.sign(Side::Server, mech_list).to_vec())
    }

    fn check_mic(&self, mech_list: &[u8], mic: &[u8]) -> bool {
        self.session().is_some_and(|session| {
            verify_slices_are_equal(&session.sign(Side::Client, mech_list), mic).is_ok()
        })
    }

    fn claimed(&self) -> Option<&Claimed> {
        self.claimed.as_ref()
    }
}

/// The session key that the client chose, encrypted; `None` if no key exchange was negotiated.
fn exchanged_key(message: &Authenticate<'_>, flags: Flags) -> Result<Option<[u8; 16]>, NtlmError> {
    if !flags.contains(Flags::KEY_EXCH) {
        return Ok(None);
    }
    message.encrypted_session_key.try_into().map(Some).map_err(|_| NtlmError::BadSessionKey)
}

/// MS-NLMP 3.2.5.1.2: the message has neither a user nor a response.
fn is_anonymous(message: &Authenticate<'_>) -> bool {
    message.user.is_empty() && message.nt_response.is_empty() && matches!(message.lm_response, [] | [0])
}

/// Refuses messages that are unacceptable for any account.
fn refuse(message: &Authenticate<'_>, user: &str) -> Result<(), Refusal> {
    /// Length of an NTLMv1 response, in bytes; an NTLMv2 response is longer.
    const NTLMV1_LEN: usize = 24;
    if message.flags.contains(Flags::ANONYMOUS) || user.is_empty() {
        return Err(Refusal::Anonymous);
    }
    if !message.flags.contains(Flags::UNICODE) && !message.flags.contains(Flags::OEM) {
        return Err(Refusal::CharacterSet);
    }
    if user.eq_ignore_ascii_case("guest") {
        return Err(Refusal::Guest);
    }
    match message.nt_response.len() {
        0 => Err(Refusal::Lm),
        NTLMV1_LEN => Err(Refusal::Ntlmv1),
        _ => Ok(()),
    }
}

/// A name of an AUTHENTICATE_MESSAGE.
struct Name {
    /// For messages and look-ups; malformed characters are U+FFFD.
    text: String,
    /// The name as NTLMv2 hashes it (MS-NLMP 3.3.2): as sent, or converted from OEM.
    utf16: Vec<u8>,
    well_formed: bool,
}

impl Name {
    /// Of OEM characters only ASCII is supported: the protocol does not tell which character set it is (MS-NLMP
    /// 2.2).
    fn read(bytes: &[u8], unicode: bool) -> Name {
        if !unicode {
            let ascii = |b: u8| if b.is_ascii() { char::from(b) } else { char::REPLACEMENT_CHARACTER };
            let text: String = bytes.iter().map(|b| ascii(*b)).collect();
            return Name { utf16: utf16le(&text), text, well_formed: bytes.is_ascii() };
        }
        let units: Vec<u16> =
            bytes.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]])).collect();
        let text = String::from_utf16(&units);
        Name {
            well_formed: text.is_ok(),
            text: text.unwrap_or_else(|_| String::from_utf16_lossy(&units)),
            utf16: bytes.to_vec(),
        }
    }
}

/// Encodes a name for a client without Unicode.
fn oem(name: &str) -> Vec<u8> {
    name.chars().map(|c| if c.is_ascii() { c as u8 } else { b'?' }).collect()
}
