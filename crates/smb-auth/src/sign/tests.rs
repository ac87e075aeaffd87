use super::*;
use proptest::prelude::*;

fn hex<const N: usize>(s: &str) -> [u8; N] {
    crate::test_vectors::hex(s).try_into().expect("length")
}

fn header(message_id: u64) -> Vec<u8> {
    let mut message = vec![0; HEADER_LEN];
    message[..4].copy_from_slice(b"\xfeSMB");
    message[24..32].copy_from_slice(&message_id.to_le_bytes());
    message
}

/// RFC 4493 section 4: our CMAC returns the published tags.
#[test]
fn rfc4493_vectors() {
    let key = cmac::CmacKey::new(&hex::<16>("2b7e151628aed2a6abf7158809cf4f3c"));
    let message = hex::<64>(
        "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51\
         30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710",
    );
    for (length, tag) in [
        (0, "bb1d6929e95937287fa37d129b756746"),
        (16, "070a16b46b4d4144f79bdd9dd04a287c"),
        (40, "dfa66747de9ae63030ca32611497c827"),
        (64, "51f0bebf7e3b9d92fc49741779363cfe"),
    ] {
        assert_eq!(key.tag([&message[..length]].into_iter()), hex::<16>(tag), "length {length}");
    }
}

/// The library's CMAC is an independent implementation; both give the same tags however the message is split.
#[test]
fn cmac_of_segments() {
    use aws_lc_rs::cmac;
    let ours = SigningKey::new(SigningAlgorithm::AesCmac, &[7; 16]);
    let theirs = cmac::Key::new(cmac::AES_128, &[7; 16]).unwrap();
    let message: Vec<u8> = header(9).into_iter().chain((0..5000).map(|n: u32| (n * 7) as u8)).collect();
    for length in (HEADER_LEN..HEADER_LEN + 70).chain([1000, 4096, 4097, message.len()]) {
        let mut zeroed = message[..length].to_vec();
        zeroed[SIGNATURE_OFFSET..SIGNATURE_OFFSET + SIGNATURE_LEN].fill(0);
        let wanted = cmac::sign(&theirs, &zeroed).unwrap();
        for cut in [HEADER_LEN, HEADER_LEN + 1, HEADER_LEN + 15, HEADER_LEN + 16, length] {
            let (first, rest) = message[..length].split_at(cut.min(length));
            let signature = ours.sign(&[first, rest], 9, true, false).unwrap();
            assert_eq!(signature, wanted.as_ref(), "{length} bytes, cut at {cut}");
        }
    }
}

/// MS-SMB2 3.1.4.1 against Microsoft's published trace (SMB 2 and SMB 3 security in Windows 10, appendix): the final
/// SESSION_SETUP response of the 3.1.1 example, signed with AES-CMAC.
#[test]
fn microsoft_signed_session_setup_response() {
    let message = crate::test_vectors::hex(
        "FE534D4240000100000000000100800009000000000000000300000000000000FFFE000000000000\
         1900000000100000EBE146DA120BA25FC3376A49DFE31BC10900000048001D00A11B3019A0030A01\
         00A3120410010000003B453CDC3524164200000000",
    );
    let key = SigningKey::new(SigningAlgorithm::AesCmac, &hex("73FE7A9A77BEF0BDE49C650D8CCB5F76"));
    assert_eq!(key.verify(&[&message], 3, true, false), Ok(()));
    let (first, second) = message.split_at(70);
    assert_eq!(key.verify(&[first, second], 3, true, false), Ok(()));
}

/// NIST CAVP gcmEncryptExtIV128, [PTlen = 0, AADlen = 128 and 160]: GMAC of short messages.
#[test]
fn gmac_nist_vectors() {
    for (key, iv, aad, tag) in [
        (
            "77be63708971c4e240d1cb79e8d77feb",
            "e0e00f19fed7ba0136a797f3",
            "7a43ec1d9c0a5a78a0b16533a6213cab",
            "209fcc8d3675ed938e9c7166709dd946",
        ),
        (
            "2fb45e5b8f993a2bfebc4b15b533e0b4",
            "5b05755f984d2b90f94b8027",
            "e85491b2202caf1d7dce03b97e09331c32473941",
            "c75b7832b2a2d9bd827412b6ef5769db",
        ),
    ] {
        let key = gmac::GmacKey::new(&hex(key));
        let aad = crate::test_vectors::hex(aad);
        assert_eq!(key.tag(&hex(iv), [&aad[..]].into_iter()), hex::<16>(tag));
        assert_eq!(key.tag(&hex(iv), [&aad[..3], &aad[3..]].into_iter()), hex::<16>(tag));
    }
}

/// MS-SMB2 3.1.4.1: the nonce is MessageId, then role (bit 0) and CANCEL (bit 1).
#[test]
fn gmac_nonce_layout() {
    assert_eq!(gmac_nonce(0x0102_0304_0506_0708, false, false), [8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0]);
    assert_eq!(gmac_nonce(1, true, false), [1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(gmac_nonce(1, false, true), [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
}

/// Runs longer than one pass over the table of powers are split.
#[test]
fn gmac_of_a_very_long_message() {
    let message: Vec<u8> = (0..(17 << 20) + 5u32).map(|i| (i ^ i >> 11) as u8).collect();
    let key = gmac::GmacKey::new(&[9; 16]);
    let nonce = gmac_nonce(1, true, false);
    let (a, b) = message.split_at(33);
    assert_eq!(key.tag(&nonce, [a, b].into_iter()), model_gmac(&[9; 16], &nonce, &message));
    let pieces = message.chunks(500);
    assert_eq!(key.tag(&nonce, pieces), model_gmac(&[9; 16], &nonce, &message));
}

#[test]
fn gmac_depends_on_role_and_cancel() {
    let key = SigningKey::new(SigningAlgorithm::AesGmac, &[7; 16]);
    let message = header(9);
    let client = key.sign(&[&message], 9, false, false).unwrap();
    assert_ne!(client, key.sign(&[&message], 9, true, false).unwrap());
    assert_ne!(client, key.sign(&[&message], 9, false, true).unwrap());
    assert_ne!(client, key.sign(&[&message], 8, false, false).unwrap());
}

#[test]
fn hmac_is_the_first_half_of_hmac_sha256_over_a_zeroed_field() {
    let mut message = header(1);
    message.extend_from_slice(b"body");
    let expected = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &[3; 16]), &message);
    message[48..64].fill(0xaa);
    let key = SigningKey::new(SigningAlgorithm::HmacSha256, &[3; 16]);
    assert_eq!(key.sign(&[&message], 1, false, false).unwrap(), expected.as_ref()[..16]);
}

#[test]
fn short_first_segment_is_refused() {
    let key = SigningKey::new(SigningAlgorithm::AesCmac, &[0; 16]);
    assert_eq!(key.sign(&[], 0, false, false), Err(SignError::ShortHeader));
    assert_eq!(key.verify(&[&[0; 63], &[0; 10]], 0, false, false), Err(SignError::ShortHeader));
}

fn algorithms() -> impl Strategy<Value = SigningAlgorithm> {
    prop_oneof![
        Just(SigningAlgorithm::HmacSha256),
        Just(SigningAlgorithm::AesCmac),
        Just(SigningAlgorithm::AesGmac)
    ]
}

proptest! {
    /// The signature does not depend on how a message is split; for GMAC the model is the library over one slice.
    #[test]
    fn scattering_changes_nothing(
        algorithm in algorithms(),
        key: [u8; 16],
        body_len in prop_oneof![0usize..300, 900usize..1300, 4000usize..9000, 60_000usize..70_000],
        cuts in proptest::collection::vec(0usize..70_000, 0..6),
        seed: u8,
        message_id: u64,
    ) {
        let mut message = header(message_id);
        message.extend((0..body_len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed ^ (i >> 8) as u8)));
        let mut cuts: Vec<usize> =
            cuts.into_iter().map(|c| HEADER_LEN + c % (body_len + 1)).collect();
        cuts.sort_unstable();
        let mut segments = Vec::new();
        let mut from = 0;
        for cut in cuts {
            segments.push(&message[from..cut]);
            from = cut;
        }
        segments.push(&message[from..]);
        let signing = SigningKey::new(algorithm, &key);
        let whole = signing.sign(&[&message], message_id, true, false).unwrap();
        prop_assert_eq!(signing.sign(&segments, message_id, true, false).unwrap(), whole);
        if algorithm == SigningAlgorithm::AesGmac {
            let model = model_gmac(&key, &gmac_nonce(message_id, true, false), &message);
            prop_assert_eq!(whole, model);
        }
        let mut signed = message.clone();
        signed[48..64].copy_from_slice(&whole);
        prop_assert_eq!(signing.verify(&[&signed], message_id, true, false), Ok(()));
        let at = usize::from(seed) * 257 % signed.len();
        signed[at] ^= 1;
        prop_assert_eq!(signing.verify(&[&signed], message_id, true, false), Err(SignError::Mismatch));
    }
}

fn model_gmac(key: &[u8; 16], nonce: &[u8; 12], message: &[u8]) -> [u8; 16] {
    use aws_lc_rs::aead;
    let key = aead::LessSafeKey::new(aead::UnboundKey::new(&aead::AES_128_GCM, key).unwrap());
    let nonce = aead::Nonce::assume_unique_for_key(*nonce);
    let tag = key.seal_in_place_separate_tag(nonce, aead::Aad::from(message), &mut []).unwrap();
    first_16(tag.as_ref())
}
