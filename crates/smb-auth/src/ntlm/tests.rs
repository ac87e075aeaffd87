use super::response::build_temp;
use super::*;
use crate::test_vectors::{hex, smb311_ntlm_messages};
use proptest::prelude::*;

fn array<const N: usize>(s: &str) -> [u8; N] {
    hex(s).try_into().expect("length")
}

/// MS-NLMP 4.2.4: user "User", domain "Domain", password "Password", server "Server", time 0.
const SERVER_CHALLENGE: [u8; 8] = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];
const CHALLENGE_MESSAGE: &str = "4e544c4d53535000020000000c000c003800000033828ae20123456789abcdef00000000000000002400240044000000\
     0600701700000000\
     53006500720076006500720002000c0044006f006d00610069006e0001000c0053006500720076006500720000000000";
const AUTHENTICATE_MESSAGE: &str = "4e544c4d5353500003000000180018006c00000054005400840000000c000c0048000000080008005400000010001000\
     5c00000010001000d8000000358288e20501280a0000000f44006f006d00610069006e00550073006500720043004f00\
     4d005000550054004500520086c35097ac9cec102554764a57cccc19aaaaaaaaaaaaaaaa68cd0ab851e51c96aabc927b\
     ebef6a1c01010000000000000000000000000000aaaaaaaaaaaaaaaa0000000002000c0044006f006d00610069006e00\
     01000c005300650072007600650072000000000000000000c5dad2544fc9799094ce1ce90bc9d03e";

/// MS-NLMP 4.2.4.1, 4.2.4.2: every intermediate value.
#[test]
fn specification_values() {
    let hash = NtHash::from_password("Password");
    assert_eq!(hash.as_bytes()[..], hex("a4f49c406510bdcab6824ee7c30fd852"));
    let key = response_key_nt(&hash, &utf16le("User"), &utf16le("Domain"));
    assert_eq!(key[..], hex("0c868a403bfd7a93a3001ef22ef02e3f"));
    let pairs = hex("02000c0044006f006d00610069006e0001000c0053006500720076006500720000000000");
    let temp = build_temp(&[0; 8], &[0xaa; 8], &pairs);
    let proof = nt_proof(&key, &SERVER_CHALLENGE, &temp);
    assert_eq!(proof[..], hex("68cd0ab851e51c96aabc927bebef6a1c"));
    let base = session_base_key(&key, &proof);
    assert_eq!(base[..], hex("8de40ccadbc14a82f15cb0ad0de95ca3"));
    assert_eq!(
        lmv2_response(&key, &SERVER_CHALLENGE, &[0xaa; 8])[..],
        hex("86c35097ac9cec102554764a57cccc19aaaaaaaaaaaaaaaa")
    );
    assert_eq!(rc4(&base, [0x55; 16])[..], hex("c5dad2544fc9799094ce1ce90bc9d03e"));
    let encrypted = array("c5dad2544fc9799094ce1ce90bc9d03e");
    assert_eq!(exported_session_key(&base, Some(encrypted)), [0x55; 16]);
    assert_eq!(exported_session_key(&base, None), base);
}

/// MS-NLMP 4.2.4.3: parses the specification's messages.
#[test]
fn specification_messages() {
    let bytes = hex(CHALLENGE_MESSAGE);
    let challenge = Challenge::parse(&bytes).unwrap();
    assert_eq!(challenge.server_challenge, SERVER_CHALLENGE);
    assert_eq!(challenge.target_name, utf16le("Server"));
    let pairs = AvPairs::parse(challenge.target_info).unwrap();
    assert_eq!(pairs.get(AvId::NB_DOMAIN_NAME).unwrap(), utf16le("Domain"));
    assert_eq!(pairs.get(AvId::NB_COMPUTER_NAME).unwrap(), utf16le("Server"));
    assert_eq!(pairs.timestamp(), None);

    let bytes = hex(AUTHENTICATE_MESSAGE);
    let message = Authenticate::parse(&bytes).unwrap();
    assert_eq!(message.user, utf16le("User"));
    assert_eq!(message.domain, utf16le("Domain"));
    assert_eq!(message.workstation, utf16le("COMPUTER"));
    let response = Ntlmv2Response::parse(message.nt_response).unwrap();
    let key = response_key_nt(&NtHash::from_password("Password"), message.user, message.domain);
    assert_eq!(nt_proof(&key, &SERVER_CHALLENGE, response.temp), response.proof);
    assert_eq!(response.pairs.flags(), Ok(AvFlags(0)));
    assert_eq!(message.encrypted_session_key, hex("c5dad2544fc9799094ce1ce90bc9d03e"));
}

/// Windows 10's MIC over its own three messages (SMB 2 and SMB 3 security in Windows 10, appendix).
#[test]
fn windows_message_mic() {
    let [negotiate, challenge, authenticate] = smb311_ntlm_messages();
    let message = Authenticate::parse(&authenticate).unwrap();
    assert_eq!(message.user, utf16le("administrator"));
    let response = Ntlmv2Response::parse(message.nt_response).unwrap();
    assert_eq!(response.pairs.flags(), Ok(AvFlags::MIC));
    assert_eq!(response.pairs.get(AvId::TARGET_NAME).unwrap(), utf16le("cifs/SUT311"));
    let session_key = array("270E1BA896585EEB7AF3472D3B4C75A7");
    assert_eq!(Some(message_mic(&session_key, &negotiate, &challenge, &authenticate)), message.mic);
}

#[test]
fn upper_case_is_one_to_one() {
    for (unit, upper) in [
        ('a', 'A'),
        ('Z', 'Z'),
        ('é', 'É'),
        ('ж', 'Ж'),
        ('ÿ', 'Ÿ'),
        ('ß', 'ß'),
        ('ı', 'ı'),
        ('ſ', 'ſ'),
        ('µ', 'µ'),
        ('ŉ', 'ŉ'),
        ('1', '1'),
    ] {
        assert_eq!(upcase(unit as u16), upper as u16, "{unit}");
    }
    assert_eq!(upcase(0xd801), 0xd801, "half a surrogate pair");
}

/// A second flags pair must not hide the first one's MIC bit.
#[test]
fn flags_of_every_pair_count() {
    let mut pairs = Vec::new();
    av::push(&mut pairs, AvId::FLAGS, &2u32.to_le_bytes());
    av::push(&mut pairs, AvId::FLAGS, &0u32.to_le_bytes());
    av::push(&mut pairs, AvId::END, &[]);
    assert_eq!(AvPairs::parse(&pairs).unwrap().flags(), Ok(AvFlags::MIC));
    let mut bad = Vec::new();
    av::push(&mut bad, AvId::FLAGS, &[2]);
    av::push(&mut bad, AvId::END, &[]);
    assert_eq!(AvPairs::parse(&bad).unwrap().flags(), Err(NtlmError::BadAvPairs));
}

#[test]
fn malformed_messages_are_refused_by_reason() {
    assert_eq!(Negotiate::parse(b"KERBEROS"), Err(NtlmError::NotNtlm));
    assert_eq!(Negotiate::parse(SIGNATURE), Err(NtlmError::Truncated));
    assert_eq!(Negotiate::parse(b"NTLMSSP\0\x02\0\0\0"), Err(NtlmError::UnexpectedType(2)));
    assert_eq!(AvPairs::parse(&[]), Err(NtlmError::BadAvPairs));
    assert_eq!(AvPairs::parse(&[1, 0, 9, 0, 0]), Err(NtlmError::BadAvPairs));
    assert_eq!(Ntlmv2Response::parse(&[0; 43]), Err(NtlmError::BadResponse));
    assert_eq!(Ntlmv2Response::parse(&[0; 60]), Err(NtlmError::BadResponse), "versions must be 1");

    let good = hex(AUTHENTICATE_MESSAGE);
    let with = |at: usize, bytes: &[u8]| {
        let mut message = good.clone();
        message[at..at + bytes.len()].copy_from_slice(bytes);
        Authenticate::parse(&message).map(|_| ())
    };
    assert_eq!(with(40, &[0xff; 4]), Err(NtlmError::FieldOutside));
    assert_eq!(with(36, &[7, 0]), Err(NtlmError::BadName));
    assert_eq!(with(36, &[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]), Ok(()), "an empty field has no place");
    assert_eq!(Authenticate::parse(&good[..70]).map(|_| ()), Err(NtlmError::FieldOutside));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(kind in 1u8..4, tail in proptest::collection::vec(any::<u8>(), 0..200)) {
        let bytes = [SIGNATURE.as_slice(), &[kind, 0, 0, 0], &tail].concat();
        let _ = Negotiate::parse(&bytes);
        let _ = Challenge::parse(&bytes).map(|challenge| AvPairs::parse(challenge.target_info));
        let _ = Authenticate::parse(&bytes).map(|message| Ntlmv2Response::parse(message.nt_response).is_ok());
        let _ = AvPairs::parse(&tail).map(|pairs| pairs.iter().count());
        let _ = Ntlmv2Response::parse(&tail);
    }

    #[test]
    fn messages_are_read_back(
        flags: u32,
        names: [Vec<u16>; 3],
        lm in proptest::collection::vec(any::<u8>(), 0..30),
        nt in proptest::collection::vec(any::<u8>(), 0..300),
        mic: [u8; 16],
    ) {
        let [domain, user, workstation] =
            names.map(|units| units.iter().take(256).flat_map(|unit| unit.to_le_bytes()).collect::<Vec<u8>>());
        let message = Authenticate {
            flags: Flags(flags),
            lm_response: &lm,
            nt_response: &nt,
            domain: &domain,
            user: &user,
            workstation: &workstation,
            encrypted_session_key: &[],
            mic: Some(mic),
        };
        let bytes = message.to_bytes();
        prop_assert_eq!(Authenticate::parse(&bytes), Ok(message));
        let challenge = Challenge {
            flags: Flags(flags | Flags::TARGET_INFO.0),
            server_challenge: SERVER_CHALLENGE,
            target_name: &domain,
            target_info: &nt,
        };
        let bytes = challenge.to_bytes();
        prop_assert_eq!(Challenge::parse(&bytes), Ok(challenge));
        let negotiate = Negotiate { flags: Flags(flags) };
        prop_assert_eq!(Negotiate::parse(&negotiate.to_bytes()), Ok(negotiate));
    }
}
