use super::*;
use crate::test_hex as hex;

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
    // L is part of the derivation: a 256-bit key does not begin with the 128-bit one.
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

const SMB311_EXAMPLE: [(&str, &str, &str); 5] = [
    (
        "negotiate request",
        "FE534D4240000100000000000000800000000000000000000100000000000000FFFE000000000000\
         00000000000000000000000000000000000000000000000024000500000000003F000000ECD86F32\
         6276024F9F7752B89BB33F3A70000000020000000202100200030203110300000100260000000000\
         010020000100FA49E6578F1F3A9F4CD3E9CC14A67AA884B3D05844E0E5A118225C15887F32FF0000\
         0200060000000000020002000100",
        "DD94EFC5321BB618A2E208BA8920D2F422992526947A409B5037DE1E0FE8C7362B8C47122594CDE0\
         CE26AA9DFC8BCDBDE0621957672623351A7540F1E54A0426",
    ),
    (
        "negotiate response",
        "FE534D4240000100000000000000010001000000000000000100000000000000FFFE000000000000\
         000000000000000000000000000000000000000000000000410001001103020039CBCAF329714942\
         BDCE5D60F09AB3FB2F000000000080000000800000008000D8DAE5ADCBAED00109094AB095AED001\
         80004001C00100006082013C06062B0601050502A08201303082012CA01A3018060A2B0601040182\
         3702021E060A2B06010401823702020AA282010C048201084E45474F455854530100000000000000\
         60000000700000007C7CC0FD06D6362D02DDE1CF343BFE292900F49750B4AA97934D9C4296B26E51\
         FD370471B235E15A50DAE15BD5489C87000000000000000060000000010000000000000000000000\
         5C33530DEAF90D4DB2EC4AE3786EC3084E45474F4558545303000000010000004000000098000000\
         7C7CC0FD06D6362D02DDE1CF343BFE295C33530DEAF90D4DB2EC4AE3786EC3084000000058000000\
         3056A05430523027802530233121301F06035504031318546F6B656E205369676E696E6720507562\
         6C6963204B65793027802530233121301F06035504031318546F6B656E205369676E696E67205075\
         626C6963204B6579010026000000000001002000010060A3C3B95C3C7CCD51EC536648D9B3AC74C4\
         83CA5B65385A251117BEB30712E50000020004000000000001000200",
        "324BFA92A4F3A190E466EBEA08D9C110DC88BFED758D9846ECC6F541CC1D02AE3C94A79F36011E99\
         7E13F841B91B50957AD07B19C8E2539C0B23FDAE09D2C513",
    ),
    (
        "session setup request",
        "FE534D4240000100000000000100800000000000000000000200000000000000FFFE000000000000\
         00000000000000000000000000000000000000000000000019000001010000000000000058004A00\
         0000000000000000604806062B0601050502A03E303CA00E300C060A2B06010401823702020AA22A\
         04284E544C4D5353500001000000978208E200000000000000000000000000000000060380250000\
         000F",
        "AC0B0F2B9986257700365E416D142A6EDC96DF03594A19E52A15F6BD0D041CD5D432F8ED42C55E33\
         197A50C9EC00F1462B50C592211B1471A04B56088FDFD5F9",
    ),
    (
        "session setup response",
        "FE534D4240000100160000C00100010001000000000000000200000000000000FFFE000000000000\
         190000000010000000000000000000000000000000000000090000004800B300A181B03081ADA003\
         0A0101A10C060A2B06010401823702020AA281970481944E544C4D53535000020000000C000C0038\
         00000015828AE20D1D8BA31179D008000000000000000050005000440000000A0092270000000F53\
         005500540033003100310002000C0053005500540033003100310001000C00530055005400330031\
         00310004000C0053005500540033003100310003000C0053005500540033003100310007000800A1\
         A1F5ADCBAED00100000000",
        "2729E3440DFDDD839E37193F6E8F20C20CEFB3469E453A70CD980EEC06B8835740A7376008563336\
         4C8989895ECE81BF102DEEB14D4B7D48AFA76901A7A38387",
    ),
    (
        "second session setup request",
        "FE534D4240000100000000000100800000000000000000000300000000000000FFFE000000000000\
         1900000000100000000000000000000000000000000000001900000101000000000000005800CF01\
         0000000000000000A18201CB308201C7A0030A0101A28201AA048201A64E544C4D53535000030000\
         001800180090000000EE00EE00A80000000C000C00580000001A001A0064000000120012007E0000\
         001000100096010000158288E2060380250000000FECAC77A5F385A8BF9C38C706EEEDDCD3530055\
         005400330031003100610064006D0069006E006900730074007200610074006F0072004400520049\
         0056004500520033003100310000000000000000000000000000000000000000000000000063078E\
         B639FE03E20A231C3AE3BF23080101000000000000A1A1F5ADCBAED001BC4AD05F223CC90F000000\
         0002000C0053005500540033003100310001000C0053005500540033003100310004000C00530055\
         00540033003100310003000C0053005500540033003100310007000800A1A1F5ADCBAED001060004\
         00020000000800300030000000000000000000000000300000B61FEFCAA857EA57BF1EDCEBF8974B\
         8E0EBA5A6DFD9D07A31D11B548F8C9D0CC0A00100000000000000000000000000000000000090016\
         0063006900660073002F005300550054003300310031000000000000000000000000003B9BDFF38F\
         5EE8F9663F11A0F4C03A78A31204100100000063775A9A5FD97F0600000000",
        "0DD13628CC3ED218EF9DF9772D436D0887AB9814BFAE63A80AA845F36909DB7928622DDDAD522D97\
         51640A459762C5A9D6BB084CBB3CE6BDADEF5D5BCE3C6C01",
    ),
];
