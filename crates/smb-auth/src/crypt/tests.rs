use super::*;
use crate::derive::{PreauthHash, Role, Schedule, SessionKeys, smb3_kdf};
use crate::test_vectors::hex;
use proptest::prelude::*;

const CIPHERS: [Cipher; 4] = [Cipher::Aes128Ccm, Cipher::Aes128Gcm, Cipher::Aes256Ccm, Cipher::Aes256Gcm];

fn header(bytes: &[u8]) -> [u8; TRANSFORM_LEN] {
    bytes.try_into().expect("52 bytes")
}

/// MS-SMB2 3.1.4.3 against Microsoft's published 3.0 messages (Encryption in SMB 3.0: a protocol perspective):
/// AES-128-CCM, a WRITE request encrypted by the client and its response by the server.
#[test]
fn microsoft_smb30_messages() {
    let session_key = hex("B4546771B515F766A86735532DD6C4F0");
    let keys = SessionKeys::derive(Schedule::Smb30, &session_key, Some(Cipher::Aes128Ccm), Role::Client);
    let encryption = keys.encryption.as_ref().unwrap().as_bytes();
    let decryption = keys.decryption.as_ref().unwrap().as_bytes();
    assert_eq!(encryption, hex("261B72350558F2E9DCF613070383EDBF"));
    assert_eq!(decryption, hex("8FE2B57EC34D2DB5B1A9727F526BBDB5"));

    let plain = hex("FE534D4240000100000000000900400008000000000000000400000000000000\
         FFFE0000010000001100001400E4080000000000000000000000000000000000\
         3100700017000000000000000000000015010000390000020100000039020000\
         00000000000000007000000000000000536D623320656E6372797074696F6E20\
         74657374696E67");
    let sealed = hex("FD534D4281A286535415445DAE393921E44FA42E66E69A111892584FB5ED524A\
         744DA3EE87000000000001001100001400E4080025C8FEE16605A437832D1CD5\
         2DA9F4645333482A175FE5384563F45FCDAFAEF38BC62BA4D5C62897996625A4\
         4C29BE5658DE2E6117585779E7B59FFD971278D08580D7FA899E410E910EABF5\
         AA1DB43050B33B49182637759AC15D84BFCDF5B6B238993C0F4CF4D6012023F6\
         C627297075D84B7803912D0A9639634453595EF3E33FFE4E7AC2AB");
    let (transform, cipher_text) = sealed.split_at(TRANSFORM_LEN);
    let sealer = Sealer::new(Cipher::Aes128Ccm, encryption).unwrap();
    let nonce = MessageNonce { field: transform[20..36].try_into().unwrap() };
    let mut message = plain.clone();
    assert_eq!(sealer.seal_in_place(nonce, &transform[20..], &mut message), transform[4..20]);
    assert_eq!(message, cipher_text);
    let opener = Opener::new(Cipher::Aes128Ccm, encryption).unwrap();
    opener.open_message(&header(transform), &mut message).unwrap();
    assert_eq!(message, plain);

    let mut response = hex("FD534D42A6015530A18F6D9AFFE22AFAE8E66484860000000000000011000014\
         00E4080050000000000001001100001400E40800DBF46435C5F14169293CE079\
         E344479BF670227E49873F458672C3098DAC467DD5809F369D67409166515787\
         1483E01F7BECD02064EAC3E235F913668BBC2F097980D4B378F1993EFF6E60D1\
         77309E5B");
    let (transform, message) = response.split_at_mut(TRANSFORM_LEN);
    Opener::new(Cipher::Aes128Ccm, decryption).unwrap().open_message(&header(transform), message).unwrap();
    let expected = hex("FE534D4240000100000000000900210009000000000000000400000000000000\
         FFFE0000010000001100001400E4080000000000000000000000000000000000\
         11000000170000000000000000000000");
    assert_eq!(message, expected);
}

/// MS-SMB2 3.1.4.3 against Microsoft's messages for 3.1.1 and AES-128-GCM (SMB 3.1.1 encryption in Windows 10).
#[test]
fn microsoft_smb311_messages() {
    let session_key = hex("419FDDF34C1E001909D362AE7FB6AF79");
    let preauth = hex("B23F3CBFD69487D9832B79B1594A367CDD950909B774C3A4C412B4FCEA9EDDDBA7DB256BA2EA30E9\
         77F11F9B113247578E0E915C6D2A513B8F2FCA5707DC8770");
    // The article gives the hash, not the messages, so the derivation is called directly.
    let derive = |label: &[u8]| {
        let mut key = [0; 16];
        smb3_kdf(&session_key, label, &preauth, &mut key);
        key
    };
    let (encryption, decryption) = (derive(b"SMBC2SCipherKey\0"), derive(b"SMBS2CCipherKey\0"));
    assert_eq!(encryption[..], hex("A2F5E80E5D59103034F32E52F698E5EC"));
    assert_eq!(decryption[..], hex("748C50868C90F302962A5C35F5F9A8BF"));

    let plain = hex("FE534D4240000100000000000900010008000000000000000500000000000000FFFE000001000000\
         25000000001000000000000000000000000000000000000031007000170000000000000000000000\
         0600000004000000010000000400000000000000000000007000000000000000536D623320656E63\
         72797074696F6E2074657374696E67");
    let sealed = hex("FD534D42BD73D97D2BC9001BCAFAC0FDFF5FEEBCC7D6822D269CAF48904C664C0000000087000000\
         0000010025000000001000006ECDD2A7AFC7B47763057A041B8FD4DAFFE990B70C9E09D36C084E02\
         D14EF247F8BDE38ACF6256F8B1D3B56F77FBDEB312FEA5E92CBCC1ED8FB2EBBFAA75E49A4A394BB4\
         4576545567C24D4C014D47C9FBDFDAFD2C4F9B72F8D256452620A299F48E29E53D6B61D1C13A19E9\
         1AF013F00D17E3ABC2FC3D36C8C1B6B93973253852DBD442E46EE8");
    let (transform, cipher_text) = sealed.split_at(TRANSFORM_LEN);
    let sealer = Sealer::new(Cipher::Aes128Gcm, &encryption).unwrap();
    let nonce = MessageNonce { field: transform[20..36].try_into().unwrap() };
    let mut message = plain.clone();
    assert_eq!(sealer.seal_in_place(nonce, &transform[20..], &mut message), transform[4..20]);
    assert_eq!(message, cipher_text);
    let opener = Opener::new(Cipher::Aes128Gcm, &encryption).unwrap();
    opener.open_message(&header(transform), &mut message).unwrap();
    assert_eq!(message, plain);

    let mut response =
        hex("FD534D42ACBE1CB7ED343ADF1725EF144D90D4B0E06831DD2E8EB7B4000000000000000050000000\
         00000100250000000010000026BBBF949983A6C1C796559D0F2C510CB651D1F7B6AC8DED32A2A0B8\
         F2D793A815C6F6B848D69767A215841A42D400AE6DDB5F0B44173A014973321FDD7950DA6179159B\
         82E03C9E18A050FF0EA1C967");
    let (transform, message) = response.split_at_mut(TRANSFORM_LEN);
    Opener::new(Cipher::Aes128Gcm, &decryption).unwrap().open_message(&header(transform), message).unwrap();
    let expected = hex("FE534D4240000100000000000900010001000000000000000500000000000000FFFE000001000000\
         25000000001000000000000000000000000000000000000011000000170000000000000000000000");
    assert_eq!(message, expected);
}

/// The GCM specification's test cases 4 (AES-128) and 16 (AES-256).
#[test]
fn gcm_specification_vectors() {
    let key = hex("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308");
    let plain = hex("d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
         1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39");
    let aad = hex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
    for (cipher, sealed, tag) in [
        (
            Cipher::Aes128Gcm,
            "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e\
             21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091",
            "5bc94fbc3221a5db94fae95ae7121a47",
        ),
        (
            Cipher::Aes256Gcm,
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa\
             8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662",
            "76fc6ece0f4e1768cddf8853bb2d551b",
        ),
    ] {
        let mut field = [0; 16];
        field[..12].copy_from_slice(&hex("cafebabefacedbaddecaf888"));
        let sealer = Sealer::new(cipher, &key[..cipher.key_len()]).unwrap();
        let mut message = plain.clone();
        assert_eq!(sealer.seal_in_place(MessageNonce { field }, &aad, &mut message)[..], hex(tag));
        assert_eq!(message, hex(sealed));
    }
}

/// AES-256-CCM with an 11-byte nonce and a 16-byte tag, computed once with OpenSSL through Python's `cryptography`.
#[test]
fn aes256_ccm_vector() {
    let key: Vec<u8> = (0..32).collect();
    let mut field = [0; 16];
    field[..11].copy_from_slice(&hex("101112131415161718191a"));
    let aad: Vec<u8> = (0..32).collect();
    let mut message: Vec<u8> = (0x20..0x20 + 40).collect();
    let tag = Sealer::new(Cipher::Aes256Ccm, &key).unwrap().seal_in_place(
        MessageNonce { field },
        &aad,
        &mut message,
    );
    assert_eq!(message, hex(AES256_CCM_SEALED));
    assert_eq!(tag[..], hex(AES256_CCM_TAG));
}

/// MS-SMB2 3.1.4.3: a nonce never repeats, and the counter stops before it would wrap.
#[test]
fn nonces_never_repeat_and_end() {
    let nonces = NonceAllocator::new();
    let first = nonces.allocate().unwrap();
    assert_ne!(first.field(), nonces.allocate().unwrap().field());
    let nonces = NonceAllocator { next: AtomicU64::new(u64::MAX - 1) };
    nonces.allocate().unwrap();
    assert_eq!(nonces.allocate().unwrap_err(), CryptError::NoncesExhausted);
    assert_eq!(nonces.allocate().unwrap_err(), CryptError::NoncesExhausted);

    let sealer = Sealer { key: AeadKey::new(Cipher::Aes128Gcm, &[0; 16]).unwrap(), nonces };
    let mut message = *b"plain";
    assert_eq!(sealer.seal_message(1, &mut message), Err(CryptError::NoncesExhausted));
    assert_eq!(&message, b"plain");
}

#[test]
fn keys_of_the_wrong_length_are_refused() {
    for cipher in CIPHERS {
        for length in [0, 15, 17, 24, 33] {
            assert_eq!(Sealer::new(cipher, &vec![0; length]).unwrap_err(), CryptError::KeyLength);
            assert_eq!(Opener::new(cipher, &vec![0; length]).unwrap_err(), CryptError::KeyLength);
        }
        assert_eq!(Cipher::from_wire(cipher.to_wire()), Some(cipher));
    }
    assert_eq!(Cipher::from_wire(0), None);
    assert_eq!(Cipher::from_wire(5), None);
}

proptest! {
    /// Every sealed message opens again, with every combination of functions; a flipped bit is detected.
    #[test]
    fn sealed_messages_open(
        which in 0usize..4,
        message in proptest::collection::vec(any::<u8>(), 0..3000),
        cut: prop::sample::Index,
        flip: prop::sample::Index,
        session_id: u64,
    ) {
        let cipher = CIPHERS[which];
        let hash = PreauthHash::new();
        let derive = |role| SessionKeys::derive(Schedule::Smb311(&hash), &[5; 16], Some(cipher), role);
        let (client, server) = (derive(Role::Client), derive(Role::Server));
        let sealer = Sealer::new(cipher, client.encryption.as_ref().unwrap().as_bytes()).unwrap();
        let opener = Opener::new(cipher, server.decryption.as_ref().unwrap().as_bytes()).unwrap();
        let (a, b) = message.split_at(cut.index(message.len() + 1));

        let mut in_place = message.clone();
        let first = sealer.seal_message(session_id, &mut in_place).unwrap();
        let mut scattered = vec![0; message.len()];
        let second = sealer.seal_message_into(session_id, &[a, b], &mut scattered).unwrap();
        let mut roomy = vec![0; message.len() + TAG_LEN];
        let fourth = sealer.seal_message_into(session_id, &[a, b], &mut roomy).unwrap();
        roomy.truncate(message.len());
        let mut one = vec![0; message.len()];
        let third = sealer.seal_message_into(session_id, &[&message], &mut one).unwrap();
        prop_assert_ne!(&first[20..36], &second[20..36]);
        prop_assert_ne!(&second[20..36], &third[20..36]);

        for (transform, sealed) in [(first, &in_place), (second, &scattered), (third, &one), (fourth, &roomy)] {
            let mut opened = sealed.clone();
            opener.open_message(&transform, &mut opened).unwrap();
            prop_assert_eq!(&opened, &message);
            let (a, b) = sealed.split_at(cut.index(sealed.len() + 1));
            let mut into = vec![0; sealed.len()];
            opener.open_message_into(&transform, &[a, b], &mut into).unwrap();
            prop_assert_eq!(&into, &message);
            opener.open_message_into(&transform, &[sealed], &mut into).unwrap();
            prop_assert_eq!(&into, &message);
            let mut longer = vec![0; sealed.len() + 1];
            prop_assert_eq!(
                opener.open_message_into(&transform, &[sealed], &mut longer),
                Err(CryptError::BufferLength)
            );
        }

        let mut changed: Vec<u8> = first.iter().chain(&in_place).copied().collect();
        let at = flip.index(changed.len());
        changed[at] ^= 0x10;
        let (transform, sealed) = changed.split_at_mut(TRANSFORM_LEN);
        prop_assert!(opener.open_message(&header(transform), sealed).is_err());
    }
}

const AES256_CCM_SEALED: &str =
    "077fcdbb6be33b2d4750588ece53fbb313e2fd4248a29b14996bb62a67ffad8be756df6bce5b6427";
const AES256_CCM_TAG: &str = "8afb37ed5787cb1daacd572e4ea5ccbe";
