use super::*;
use crate::initiator::{Initiator, InitiatorStep};
use crate::mechanism::{FailureKind, InitiateMechanism};
use crate::ntlm::initiate::{ClientRandom, Credentials, NtlmInitiator};
use crate::ntlm::{
    Authenticate, Challenge, Flags, Negotiate, NtHash, NtlmError, Refusal, nt_proof, response_key_nt, utf16le,
};
use crate::spnego::SpnegoError;
use crate::users::Table;
use proptest::prelude::*;

const NOW: FileTime = FileTime(0x01da_0000_0000_0000);
const RANDOM: ClientRandom = ClientRandom { client_challenge: [2; 8], session_key: [3; 16] };

fn users() -> Table {
    let mut users = Table::new([1, 2, 3]);
    users.add("Alice", NtHash::from_password("wonderland"), "").unwrap();
    users.add("bob", NtHash::from_password("builder"), "").unwrap();
    users.set_disabled("bob", true).unwrap();
    users
}

fn config() -> AcceptorConfig {
    AcceptorConfig::new("server.example")
}

fn acceptor() -> Acceptor {
    Acceptor::new(&config(), [1; 8], NOW)
}

fn credentials(user: &str, password: &str) -> Credentials {
    Credentials {
        user: user.into(),
        domain: "WORKGROUP".into(),
        nt_hash: NtHash::from_password(password),
        workstation: "CLIENT".into(),
    }
}

fn initiator(user: &str, password: &str) -> Initiator {
    Initiator::ntlm(credentials(user, password), RANDOM, NOW, "cifs/server")
}

/// Runs both ends up to the client's AUTHENTICATE token.
fn to_authenticate(client: &mut Initiator, server: &mut Acceptor) -> Vec<u8> {
    let first = client.first_token(&config().hint()).unwrap();
    let Step::Continue(challenge) = server.step(&first, &users()) else { panic!("challenge") };
    let InitiatorStep::Continue(authenticate) = client.step(&challenge).unwrap() else {
        panic!("authenticate")
    };
    authenticate
}

fn failure(step: Step) -> AuthError {
    match step {
        Step::Failed(error) => error,
        other => panic!("not a failure: {other:?}"),
    }
}

fn outcome(user: &str, password: &str) -> Step {
    let (mut client, mut server) = (initiator(user, password), acceptor());
    let authenticate = to_authenticate(&mut client, &mut server);
    server.step(&authenticate, &users())
}

#[test]
fn both_ends_agree() {
    let (mut client, mut server) = (initiator("aLICE", "wonderland"), acceptor());
    let authenticate = to_authenticate(&mut client, &mut server);
    let Step::Done { token, identity, session_key } = server.step(&authenticate, &users()) else {
        panic!("done")
    };
    assert_eq!(identity.user, "Alice");
    assert_eq!(identity.domain, "WORKGROUP");
    assert_eq!(identity.workstation, "CLIENT");
    assert_eq!(identity.sid.to_string(), "S-1-5-21-1-2-3-1000");
    assert_eq!(server.claimed().unwrap().user, "aLICE");
    let Ok(Token::Resp(last)) = Token::parse(&token) else { panic!("resp") };
    assert!(last.mech_list_mic.is_some(), "our client protects the list, so the server must");
    assert_eq!(client.session_key().as_deref(), Some(&*session_key));
    let InitiatorStep::Done { session_key: ours } = client.step(&token).unwrap() else { panic!("done") };
    assert_eq!(ours, session_key);
    assert_eq!(failure(server.step(&authenticate, &users())), AuthError::OutOfOrder);
    assert_eq!(client.step(&token).unwrap_err(), AuthError::OutOfOrder);
}

#[test]
fn failures_say_why_to_us_and_little_to_the_peer() {
    let wrong = failure(outcome("alice", "Wonderland"));
    let unknown = failure(outcome("mallory", "wonderland"));
    assert_eq!(wrong, AuthError::WrongPassword);
    assert_eq!(unknown, AuthError::UnknownUser);
    assert_eq!(wrong.kind(), unknown.kind());
    assert_eq!(wrong.kind(), FailureKind::LogonFailure);
    assert_eq!(failure(outcome("bob", "builder")), AuthError::AccountDisabled);
    assert_eq!(
        failure(outcome("bob", "guess")),
        AuthError::WrongPassword,
        "disabled shows only to its owner"
    );
    assert_eq!(failure(outcome("GUEST", "")), Refusal::Guest.into());
    assert_eq!(failure(outcome("", "")), Refusal::Anonymous.into());
    assert_eq!(AuthError::from(Refusal::Anonymous).kind(), FailureKind::AccessDenied);
    assert_eq!(AuthError::from(NtlmError::NotNtlm).kind(), FailureKind::Malformed);
}

#[test]
fn the_claim_is_kept_for_the_log() {
    let (mut client, mut server) = (initiator("mallory", "x"), acceptor());
    let authenticate = to_authenticate(&mut client, &mut server);
    assert_eq!(server.claimed(), None);
    server.step(&authenticate, &users());
    assert_eq!(server.claimed().unwrap().user, "mallory");
    assert_eq!(server.claimed().unwrap().workstation, "CLIENT");
}

/// Runs NTLM without SPNEGO, as the Linux kernel's client does. `change` edits the last message.
fn bare(change: impl FnOnce(&mut Vec<u8>)) -> Step {
    let mut client = NtlmInitiator::new(credentials("alice", "wonderland"), RANDOM, NOW, "cifs/server");
    let mut server = acceptor();
    let Step::Continue(challenge) = server.step(&client.initiate(&[]).unwrap(), &users()) else {
        panic!("challenge")
    };
    let mut authenticate = client.initiate(&challenge).unwrap();
    change(&mut authenticate);
    let step = server.step(&authenticate, &users());
    if let Step::Done { token, session_key, .. } = &step {
        assert!(token.is_empty());
        assert_eq!(client.session_key().as_ref(), Some(session_key));
    }
    step
}

// MS-SMB2 3.3.5.5.3
#[test]
fn ntlm_without_spnego() {
    assert!(matches!(bare(|_| {}), Step::Done { .. }));
}

/// MS-NLMP 3.2.5.1.2: with a MIC, every byte of the message counts.
#[test]
fn no_byte_of_a_message_with_a_mic_can_be_changed() {
    let mut length = 0;
    bare(|message| length = message.len());
    for at in 0..length {
        let step = bare(|message| message[at] ^= 0x04);
        assert!(matches!(step, Step::Failed(_)), "byte {at}");
    }
    let cleared = bare(|message| message[72..88].fill(0));
    assert_eq!(failure(cleared), AuthError::BadMic);
}

/// Tokens of outdated protocols are refused, each with its own reason.
#[test]
fn old_protocols_are_refused() {
    let answer = |lm: &[u8], nt: &[u8], flags: u32, user: &str| {
        let mut server = acceptor();
        let negotiate = Negotiate { flags: Flags(0xe208_8215) };
        let Step::Continue(_) = server.step(&negotiate.to_bytes(), &users()) else { panic!("challenge") };
        let message = Authenticate {
            flags: Flags(flags),
            lm_response: lm,
            nt_response: nt,
            domain: &[],
            user: &utf16le(user),
            workstation: &[],
            encrypted_session_key: &[],
            mic: None,
        };
        failure(server.step(&message.to_bytes(), &users()))
    };
    assert_eq!(answer(&[1; 24], &[2; 24], 0x0008_0001, "alice"), Refusal::Ntlmv1.into());
    assert_eq!(answer(&[1; 24], &[], 0x0008_0001, "alice"), Refusal::Lm.into());
    assert_eq!(answer(&[0], &[], 0x0008_0801, ""), Refusal::Anonymous.into());
    assert_eq!(answer(&[], &[2; 60], 0x0008_0801, "alice"), Refusal::Anonymous.into());
    assert_eq!(answer(&[], &[2; 60], 0x0008_0000, "alice"), Refusal::CharacterSet.into());
    assert_eq!(answer(&[], &[2; 60], 0x0008_0001, "alice"), NtlmError::BadResponse.into());

    let negotiate =
        |flags: u32| failure(acceptor().step(&Negotiate { flags: Flags(flags) }.to_bytes(), &users()));
    assert_eq!(negotiate(0x0008_0000), Refusal::CharacterSet.into());
    assert_eq!(negotiate(0x0000_0001), Refusal::NoExtendedSessionSecurity.into());
}

/// MS-NLMP 2.2.2.5, bits A and B: a client without Unicode sends its names in OEM characters, but its response is
/// still NTLMv2. Only ASCII characters of them are supported. A client may also switch to Unicode in its last
/// message.
#[test]
fn names_in_oem_characters() {
    const OEM: u32 = 0x0008_8206;
    const UNICODE: u32 = OEM - 1;
    let log_on = |flags: u32, user: &[u8], hashed: &str| {
        let mut server = acceptor();
        let offered = Negotiate { flags: Flags(OEM) }.to_bytes();
        let Step::Continue(challenge) = server.step(&offered, &users()) else { panic!("challenge") };
        let challenge = Challenge::parse(&challenge).unwrap();
        assert!(challenge.flags.contains(Flags::OEM) && !challenge.flags.contains(Flags::UNICODE));
        assert_eq!(challenge.target_name, b"SERVER");
        let temp = [&[1, 1][..], &[0; 26], challenge.target_info, &[0; 4]].concat();
        let domain = utf16le("HOME");
        let key = response_key_nt(&NtHash::from_password("wonderland"), &utf16le(hashed), &domain);
        let nt_response = [&nt_proof(&key, &challenge.server_challenge, &temp)[..], &temp].concat();
        let message = Authenticate {
            flags: Flags(flags),
            lm_response: &[],
            nt_response: &nt_response,
            domain: if flags == UNICODE { &domain } else { b"HOME" },
            user,
            workstation: &[],
            encrypted_session_key: &[],
            mic: None,
        };
        server.step(&message.to_bytes(), &users())
    };
    let Step::Done { identity, .. } = log_on(OEM, b"alice", "alice") else { panic!("done") };
    assert_eq!((&*identity.user, &*identity.domain), ("Alice", "HOME"));
    assert!(matches!(log_on(UNICODE, &utf16le("alice"), "alice"), Step::Done { .. }));
    assert_eq!(failure(log_on(OEM, b"alic\xE9", "alic\u{E9}")), AuthError::UnknownUser);
}

/// MS-NLMP 3.2.5.1.2: a null session is refused unless the server accepts anonymous log-ons.
#[test]
fn anonymous_only_where_it_is_accepted() {
    let log_on = |config: AcceptorConfig| {
        let mut server = Acceptor::new(&config, [1; 8], NOW);
        let flags = Flags(0x0008_0801);
        assert!(matches!(server.step(&Negotiate { flags }.to_bytes(), &users()), Step::Continue(_)));
        let message = Authenticate {
            flags,
            lm_response: &[0],
            nt_response: &[],
            domain: &[],
            user: &[],
            workstation: &[],
            encrypted_session_key: &[],
            mic: None,
        };
        server.step(&message.to_bytes(), &users())
    };
    assert_eq!(failure(log_on(config())), Refusal::Anonymous.into());
    let Step::Done { identity, .. } = log_on(config().with_anonymous()) else { panic!("done") };
    assert_eq!(identity.sid.to_string(), "S-1-5-7");
}

/// A user name that is not UTF-16 matches no user, and does no harm.
#[test]
fn ill_formed_names() {
    let mut server = acceptor();
    server.step(&Negotiate { flags: Flags(0xe208_8215) }.to_bytes(), &users());
    let nt_response = [&[0; 16][..], &[1, 1], &[0; 26], &[0; 4]].concat();
    let message = Authenticate {
        flags: Flags(0x0008_0001),
        lm_response: &[],
        nt_response: &nt_response,
        domain: &[],
        user: &[0x00, 0xd8],
        workstation: &[],
        encrypted_session_key: &[],
        mic: None,
    };
    assert_eq!(failure(server.step(&message.to_bytes(), &users())), AuthError::UnknownUser);
    assert_eq!(server.claimed().unwrap().user, "\u{fffd}");
}

/// A client that prefers Kerberos: its optimistic token is ignored, and a MIC must protect the mechanism list.
// RFC 4178 4.2.2, 5
#[test]
fn second_choice_needs_the_mic() {
    let run = |with_mic: bool, tamper: bool| {
        let mechs = [Oid::MS_KERBEROS, Oid::KERBEROS, Oid::NTLMSSP];
        let mut client = NtlmInitiator::new(credentials("alice", "wonderland"), RANDOM, NOW, "cifs/server");
        let mut server = acceptor();
        let first = spnego::build_init(&mechs, b"a Kerberos token");
        let Step::Continue(answer) = server.step(&first, &users()) else { panic!("answer") };
        let Ok(Token::Resp(answer)) = Token::parse(&answer) else { panic!("resp") };
        assert_eq!(answer.state, Some(NegState::REQUEST_MIC));
        assert_eq!(answer.supported_mech, Some(Oid::NTLMSSP));
        assert_eq!(answer.response_token, None);

        let wrap = |token: &[u8], mic: Option<&[u8]>| {
            NegTokenResp { response_token: Some(token), mech_list_mic: mic, ..NegTokenResp::default() }
                .to_bytes()
        };
        let negotiate = client.initiate(&[]).unwrap();
        let Step::Continue(answer) = server.step(&wrap(&negotiate, None), &users()) else {
            panic!("challenge")
        };
        let Ok(Token::Resp(answer)) = Token::parse(&answer) else { panic!("resp") };
        let authenticate = client.initiate(answer.response_token.unwrap()).unwrap();
        // The list as a man in the middle would change it; the client never sent this one.
        let seen = if tamper { &mechs[..1] } else { &mechs[..] };
        let mic = client.make_mic(&spnego::mech_list(seen)).unwrap();
        let step = server.step(&wrap(&authenticate, with_mic.then_some(&mic)), &users());
        if let Step::Done { token, .. } = &step {
            let Ok(Token::Resp(last)) = Token::parse(token) else { panic!("resp") };
            assert!(client.check_mic(&spnego::mech_list(&mechs), last.mech_list_mic.unwrap()));
        }
        step
    };
    assert!(matches!(run(true, false), Step::Done { .. }));
    assert_eq!(failure(run(false, false)), AuthError::BadMechListMic);
    assert_eq!(failure(run(true, true)), AuthError::BadMechListMic);
}

#[test]
fn a_client_without_mech_list_mic_gets_none() {
    let (mut client, mut server) = (initiator("alice", "wonderland"), acceptor());
    let authenticate = to_authenticate(&mut client, &mut server);
    let Ok(Token::Resp(mut resp)) = Token::parse(&authenticate) else { panic!("resp") };
    resp.mech_list_mic = None;
    let Step::Done { token, .. } = server.step(&resp.to_bytes(), &users()) else { panic!("done") };
    let Ok(Token::Resp(last)) = Token::parse(&token) else { panic!("resp") };
    assert_eq!(last.state, Some(NegState::ACCEPT_COMPLETED));
    assert_eq!(last.mech_list_mic, None);
}

#[test]
fn tokens_out_of_order() {
    assert_eq!(failure(acceptor().step(&[], &users())), SpnegoError::Truncated.into());
    let resp = NegTokenResp { response_token: Some(b"x"), ..NegTokenResp::default() }.to_bytes();
    assert_eq!(failure(acceptor().step(&resp, &users())), AuthError::OutOfOrder);
    let kerberos = spnego::build_init(&[Oid::KERBEROS], b"x");
    assert_eq!(failure(acceptor().step(&kerberos, &users())), AuthError::NoCommonMechanism);

    let mut server = acceptor();
    let first = initiator("alice", "wonderland").first_token(&[]).unwrap();
    assert!(matches!(server.step(&first, &users()), Step::Continue(_)));
    assert_eq!(failure(server.step(&first, &users())), AuthError::OutOfOrder);
    assert_eq!(failure(server.step(&first, &users())), AuthError::OutOfOrder, "and it stays ended");

    let mut server = acceptor();
    server.step(&first, &users());
    let reject = NegTokenResp { state: Some(NegState::REJECT), ..NegTokenResp::default() }.to_bytes();
    assert_eq!(failure(server.step(&reject, &users())), AuthError::Rejected);
}

#[test]
fn a_mechanism_without_a_token_is_asked_for_one() {
    let mut server = acceptor();
    let full = spnego::build_init(&[Oid::NTLMSSP], b"");
    let Ok(Token::Init(init)) = Token::parse(&full) else { panic!("init") };
    let no_token = NegTokenInit { mech_token: None, ..init };
    let Ok(Step::Continue(answer)) = server.start(&no_token, &users()) else { panic!("answer") };
    let Ok(Token::Resp(answer)) = Token::parse(&answer) else { panic!("resp") };
    assert_eq!(answer.state, Some(NegState::ACCEPT_INCOMPLETE));
    assert_eq!(answer.supported_mech, Some(Oid::NTLMSSP));
}

#[test]
fn the_client_checks_the_server() {
    let hint = spnego::build_hint(&[Oid::KERBEROS]);
    assert_eq!(initiator("alice", "x").first_token(&hint), Err(AuthError::NoCommonMechanism));
    assert_eq!(initiator("alice", "x").step(&[]).unwrap_err(), AuthError::OutOfOrder);

    let finish = |edit: &dyn Fn(&mut NegTokenResp<'_>)| {
        let (mut client, mut server) = (initiator("alice", "wonderland"), acceptor());
        let authenticate = to_authenticate(&mut client, &mut server);
        let Step::Done { token, .. } = server.step(&authenticate, &users()) else { panic!("done") };
        let Ok(Token::Resp(mut resp)) = Token::parse(&token) else { panic!("resp") };
        edit(&mut resp);
        client.step(&resp.to_bytes()).map(|_| ())
    };
    assert_eq!(finish(&|_| {}), Ok(()));
    assert_eq!(finish(&|resp| resp.mech_list_mic = Some(&[1; 16])), Err(AuthError::BadMechListMic));
    assert_eq!(finish(&|resp| resp.state = Some(NegState::REJECT)), Err(AuthError::Rejected));
    assert_eq!(finish(&|resp| resp.state = Some(NegState::ACCEPT_INCOMPLETE)), Err(AuthError::OutOfOrder));

    // A server that skips the mechanism has not proved its identity.
    let mut client = initiator("alice", "wonderland");
    client.first_token(&[]).unwrap();
    let done = NegTokenResp { state: Some(NegState::ACCEPT_COMPLETED), ..NegTokenResp::default() };
    assert_eq!(client.step(&done.to_bytes()).unwrap_err(), AuthError::OutOfOrder);
}

/// A man in the middle must not be able to put the client's own attributes into the server's challenge.
#[test]
fn the_client_drops_its_own_attributes_from_a_challenge() {
    let mut info = Vec::new();
    for (id, value) in [(6u16, &[0u8; 4][..]), (9, b"c\0"), (10, &[7; 16]), (2, b"D\0"), (0, b"")] {
        info.extend_from_slice(&id.to_le_bytes());
        info.extend_from_slice(&(value.len() as u16).to_le_bytes());
        info.extend_from_slice(value);
    }
    let challenge = Challenge {
        flags: Flags(0xe28a_8215),
        server_challenge: [1; 8],
        target_name: &[],
        target_info: &info,
    };
    let mut client = NtlmInitiator::new(credentials("alice", "wonderland"), RANDOM, NOW, "cifs/server");
    client.initiate(&[]).unwrap();
    let authenticate = client.initiate(&challenge.to_bytes()).unwrap();
    let message = Authenticate::parse(&authenticate).unwrap();
    let pairs: Vec<_> =
        crate::ntlm::Ntlmv2Response::parse(message.nt_response).unwrap().pairs.iter().collect();
    assert_eq!(pairs.iter().map(|pair| pair.0.0).collect::<Vec<_>>(), [2, 6, 10, 9]);
    assert_eq!(pairs[1].1, 2u32.to_le_bytes());
    assert_eq!(pairs[2].1, [0; 16]);
    assert_eq!(pairs[3].1, utf16le("cifs/server"));
    // The challenge has no timestamp, so the client must send an LMv2 response.
    assert_ne!(message.lm_response, [0; 24]);
}

#[test]
fn server_names_fit_their_fields() {
    let names = ServerNames::standalone("averyveryverylongname.example.org");
    assert_eq!(names.netbios(), "AVERYVERYVERYLO");
    assert_eq!(names.dns(), "averyveryverylongname.example.org");
    assert_eq!(ServerNames::standalone("").netbios(), "SERVER");
    let huge = AcceptorConfig::new(&"x".repeat(100_000));
    let mut server = Acceptor::new(&huge, [1; 8], NOW);
    let first = initiator("alice", "wonderland").first_token(&[]).unwrap();
    assert!(matches!(server.step(&first, &users()), Step::Continue(_)));
}

proptest! {
    /// The right password always, another one never.
    #[test]
    fn initiator_and_acceptor(
        user in "[a-zA-Zäöé漢😀]{1,20}",
        password in "\\PC{0,30}",
        guess in "\\PC{0,30}",
        domain in "\\PC{0,20}",
        challenge: [u8; 8],
        client_challenge: [u8; 8],
        session_key: [u8; 16],
        now: u64,
    ) {
        prop_assume!(!user.eq_ignore_ascii_case("guest"));
        let mut users = Table::new([1, 2, 3]);
        users.add(&user, NtHash::from_password(&password), "").unwrap();
        let run = |secret: &str| {
            let mut server = Acceptor::new(&config(), challenge, FileTime(now));
            let mut client = Initiator::ntlm(
                Credentials { domain: domain.clone(), ..credentials(&user, secret) },
                ClientRandom { client_challenge, session_key },
                FileTime(now),
                "cifs/server",
            );
            let first = client.first_token(&config().hint()).unwrap();
            let Step::Continue(answer) = server.step(&first, &users) else { panic!("challenge") };
            let InitiatorStep::Continue(last) = client.step(&answer).unwrap() else { panic!("authenticate") };
            (client.session_key(), server.step(&last, &users))
        };
        let (ours, step) = run(&password);
        let Step::Done { session_key: theirs, identity, .. } = step else { panic!("done") };
        prop_assert_eq!(ours, Some(theirs));
        prop_assert_eq!(&identity.user, &user);
        if guess != password {
            prop_assert_eq!(failure(run(&guess).1), AuthError::WrongPassword);
        }
    }

    /// Random bytes at any step end the exchange without a panic.
    #[test]
    fn arbitrary_tokens_never_panic(
        good_steps in 0usize..2,
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        at: prop::sample::Index,
        to: u8,
    ) {
        let (mut client, mut server) = (initiator("alice", "wonderland"), acceptor());
        let mut valid = client.first_token(&[]).unwrap();
        if good_steps == 1 {
            let Step::Continue(challenge) = server.step(&valid, &users()) else { panic!("challenge") };
            let mut mutated = challenge.clone();
            *at.get_mut(&mut mutated) = to;
            let _ = initiator("alice", "wonderland").step(&mutated);
            let mut twin = initiator("alice", "wonderland");
            twin.first_token(&[]).unwrap();
            let _ = twin.step(&mutated);
            let InitiatorStep::Continue(token) = client.step(&challenge).unwrap() else { panic!("token") };
            valid = token;
        }
        *at.get_mut(&mut valid) = to;
        let _ = server.step(&valid, &users());
        let _ = acceptor().step(&bytes, &users());
        let _ = client.step(&bytes);
    }
}
