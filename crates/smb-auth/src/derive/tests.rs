use super::*;
use crate::test_vectors::{SMB311_EXAMPLE, hex};

fn key(k: &Option<CipherKey>) -> Vec<u8> {
    k.as_ref().expect("derived").as_bytes().to_vec()
}

/// MS-SMB2 3.1.4.2 against Microsoft's published values for 3.0 (SMB 2 and SMB 3 security in Windows 10, appendix).
/// Its "EncryptionKey" is the client's.
#[test]
fn microsoft_smb30_keys() {
    let session_key = hex("7CD451825D0450D235424E44BA6E78CC");
    let client = SessionKeys::derive(Schedule::Smb30, &session_key, Some(Cipher::Aes128Ccm), Role::Client);
    assert_eq!(client.signing[..], hex("0B7E9C5CAC36C0F6EA9AB275298CEDCE"));
    assert_eq!(key(&client.encryption), hex("FAD27796665B313EBB578F388632B4F7"));
    assert_eq!(key(&client.decryption), hex("B0F0427F7CEB416D1D9DCC0CD4F99447"));
    assert_eq!(client.application[..], hex("BB23A4575AA26C721AF525AF15A87B4F"));
    let server = SessionKeys::derive(Schedule::Smb30, &session_key, Some(Cipher::Aes128Ccm), Role::Server);
    assert_eq!(server.encryption, client.decryption);
    assert_eq!(server.decryption, client.encryption);
    let bound =
        SessionKeys::derive(Schedule::Smb30, &hex("4E01A2B313BCF660CC250BEF021AEDE6"), None, Role::Client);
    assert_eq!(bound.signing[..], hex("BA1A17DBBFEC349BCA105563D598952F"));
    assert_eq!(bound.encryption, None);
}

/// The 3.1.1 example of the same article: five messages through the hash, then the keys.
#[test]
fn microsoft_smb311_hash_and_keys() {
    let mut hash = PreauthHash::new();
    for (name, message, expected) in SMB311_EXAMPLE {
        let message = hex(message);
        let (a, b) = message.split_at(64);
        hash.update(&[a, b]);
        assert_eq!(hash.value()[..], hex(expected), "{name}");
    }
    let session_key = hex("270E1BA896585EEB7AF3472D3B4C75A7");
    let client =
        SessionKeys::derive(Schedule::Smb311(&hash), &session_key, Some(Cipher::Aes128Gcm), Role::Client);
    assert_eq!(client.signing[..], hex("73FE7A9A77BEF0BDE49C650D8CCB5F76"));
    assert_eq!(key(&client.encryption), hex("629BCBC54422A0F572B97F45989B6073"));
    assert_eq!(key(&client.decryption), hex("E2AF0DCEFAC68DA71A0DFBD0D1350D74"));
    assert_eq!(client.application[..], hex("6D7AD7954E9EC61E907B4D473DC178FF"));
}

/// MS-SMB2 3.3.5.5.3: AES-256 keys come from the full session key with L = 256; signing stays with 16 bytes.
#[test]
fn aes256_uses_the_full_session_key() {
    let hash = PreauthHash::new();
    let full: Vec<u8> = (0..32).collect();
    let schedule = Schedule::Smb311(&hash);
    let long = SessionKeys::derive(schedule, &full, Some(Cipher::Aes256Gcm), Role::Server);
    let short = SessionKeys::derive(schedule, &full[..16], Some(Cipher::Aes256Gcm), Role::Server);
    let narrow = SessionKeys::derive(schedule, &full, Some(Cipher::Aes128Gcm), Role::Server);
    assert_eq!(long.signing, short.signing);
    assert_eq!(key(&long.encryption).len(), 32);
    assert_ne!(long.encryption, short.encryption);
    assert_eq!(narrow.signing, long.signing);
    assert_eq!(key(&narrow.encryption).len(), 16);
    // L is an input of the derivation: the 128-bit key is not a prefix of the 256-bit key.
    assert_ne!(key(&short.encryption)[..16], key(&narrow.encryption)[..]);
}

#[test]
fn smb2_signs_with_the_session_key_itself() {
    let keys = SessionKeys::derive(Schedule::Smb2, &[9; 5], Some(Cipher::Aes128Ccm), Role::Server);
    assert_eq!(keys.signing, [9, 9, 9, 9, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(keys.encryption, None);
}

#[test]
fn schedules_of_dialects() {
    let hash = PreauthHash::new();
    assert!(matches!(Schedule::for_dialect(0x0202, &hash), Some(Schedule::Smb2)));
    assert!(matches!(Schedule::for_dialect(0x0302, &hash), Some(Schedule::Smb30)));
    assert!(matches!(Schedule::for_dialect(0x0311, &hash), Some(Schedule::Smb311(_))));
    assert!(Schedule::for_dialect(0x02ff, &hash).is_none());
}

/// An independent, naive SP 800-108 counter KDF.
#[test]
fn kdf_agrees_with_a_naive_model() {
    for out_len in [16usize, 32, 48] {
        let (label, context) = (b"label\0", b"context\0");
        let mut model = Vec::new();
        for i in 1u32.. {
            if model.len() >= out_len {
                break;
            }
            let mut input = i.to_be_bytes().to_vec();
            input.extend_from_slice(label);
            input.push(0);
            input.extend_from_slice(context);
            input.extend_from_slice(&(out_len as u32 * 8).to_be_bytes());
            let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, b"key");
            model.extend_from_slice(aws_lc_rs::hmac::sign(&key, &input).as_ref());
        }
        let mut out = vec![0; out_len];
        smb3_kdf(b"key", label, context, &mut out);
        assert_eq!(out, model[..out_len]);
    }
}
