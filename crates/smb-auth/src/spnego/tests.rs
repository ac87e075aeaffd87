use super::*;
use crate::test_vectors::hex;
use proptest::prelude::*;

/// Tokens of Windows 10 (SMB 2 and SMB 3 security in Windows 10, appendix).
#[test]
fn windows_tokens() {
    let init = hex("604806062B0601050502A03E303CA00E300C060A2B06010401823702020AA22A\
         04284E544C4D5353500001000000978208E200000000000000000000000000000000060380250000000F");
    let Ok(Token::Init(token)) = Token::parse(&init) else { panic!("init") };
    assert_eq!(token.mechs, [Oid::NTLMSSP]);
    assert_eq!(token.mech_list, mech_list(&[Oid::NTLMSSP]));
    assert_eq!(token.mech_token.unwrap().len(), 40);
    assert_eq!(build_init(&[Oid::NTLMSSP], token.mech_token.unwrap()), init);

    let last = hex("A11B3019A0030A0100A3120410010000003B453CDC3524164200000000");
    let Ok(Token::Resp(token)) = Token::parse(&last) else { panic!("resp") };
    assert_eq!(token.state, Some(NegState::ACCEPT_COMPLETED));
    assert_eq!(token.mech_list_mic.unwrap(), hex("010000003B453CDC3524164200000000"));
    assert_eq!(token.to_bytes(), last);

    // The hint of a NEGOTIATE response that contains a NEGOEX token.
    let mut hint = hex(
        "6081D606062B0601050502A081CB3081C8A01A3018060A2B06010401823702021E060A2B06010401823702020AA281A90481A6",
    );
    hint.extend([0x5a; 0xa6]);
    let Ok(Token::Init(token)) = Token::parse(&hint) else { panic!("hint") };
    assert_eq!(token.mechs, [Oid::NEGOEX, Oid::NTLMSSP]);
}

#[test]
fn hint_is_read_back() {
    let hint = build_hint(&[Oid::KERBEROS, Oid::NTLMSSP]);
    let Ok(Token::Init(token)) = Token::parse(&hint) else { panic!("hint") };
    assert_eq!(token.mechs, [Oid::KERBEROS, Oid::NTLMSSP]);
    assert_eq!(token.mech_token, None);
    assert_eq!(token.mech_list_mic, None, "negHints at [3] are no MIC");
}

#[test]
fn malformed_tokens_are_refused_by_reason() {
    assert_eq!(Token::parse(&[]), Err(SpnegoError::Truncated));
    assert_eq!(Token::parse(&[0x60, 0x80, 0, 0]), Err(SpnegoError::Length));
    assert_eq!(Token::parse(&[0x60, 0x85, 0, 0, 0, 0, 1, 0]), Err(SpnegoError::Length));
    assert_eq!(Token::parse(&[0x60, 0x84, 0xff, 0xff, 0xff, 0xff]), Err(SpnegoError::Truncated));
    assert_eq!(Token::parse(&[0x30, 0]), Err(SpnegoError::UnexpectedTag(0x30)));
    assert_eq!(Token::parse(&vec![0x60; MAX_TOKEN + 1]), Err(SpnegoError::TooLong));
    let kerberos_only = wrap(der::APPLICATION_0, &wrap(der::OID, Oid::KERBEROS.0));
    assert_eq!(Token::parse(&kerberos_only), Err(SpnegoError::NotSpnego));
    let many = build_init(&[Oid::NTLMSSP; MAX_MECHS + 1], b"");
    assert_eq!(Token::parse(&many), Err(SpnegoError::TooManyMechs));
    let no_list = framed(&wrap(der::CONTEXT_2, &wrap(der::OCTET_STRING, b"x")));
    assert_eq!(Token::parse(&no_list), Err(SpnegoError::Fields));
    let state = wrap(der::CONTEXT_0, &wrap(der::ENUMERATED, &[0]));
    let twice = wrap(der::CONTEXT_1, &wrap(der::SEQUENCE, &[state.clone(), state].concat()));
    assert_eq!(Token::parse(&twice), Err(SpnegoError::Fields));
}

#[test]
fn raw_ntlm_is_recognised() {
    assert!(matches!(Token::parse(b"NTLMSSP\0\x01\0\0\0"), Ok(Token::RawNtlm(_))));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Token::parse(&bytes);
    }

    /// Mutations of a valid token reach more code than random bytes.
    #[test]
    fn mutated_tokens_never_panic(at: prop::sample::Index, to: u8, cut: prop::sample::Index) {
        let mut bytes = build_init(&[Oid::KERBEROS, Oid::NTLMSSP], &[7; 150]);
        *at.get_mut(&mut bytes) = to;
        let _ = Token::parse(&bytes);
        let _ = Token::parse(&bytes[..cut.index(bytes.len())]);
    }

    #[test]
    fn responses_are_read_back(
        state in proptest::option::of(any::<u8>()),
        mech: bool,
        token in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..700)),
        mic in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..20)),
    ) {
        let resp = NegTokenResp {
            state: state.map(NegState),
            supported_mech: mech.then_some(Oid::NTLMSSP),
            response_token: token.as_deref(),
            mech_list_mic: mic.as_deref(),
        };
        let bytes = resp.to_bytes();
        prop_assert_eq!(Token::parse(&bytes), Ok(Token::Resp(resp)));
    }
}
