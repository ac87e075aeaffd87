//! Session security (MS-NLMP 3.4): the exchanged key, the MIC, and the signatures that protect SPNEGO's mechanism list.

use ::rc4::{KeyInit, Rc4, StreamCipher};
use md5::{Digest, Md5};
use zeroize::{Zeroize, ZeroizeOnDrop};

use super::Flags;
use super::message::MIC_OFFSET;
use super::response::hmac_md5;

/// RC4 from a fresh state; encrypts and decrypts.
pub fn rc4<const N: usize>(key: &[u8], mut data: [u8; N]) -> [u8; N] {
    Rc4::new_from_slice(key).expect("1 to 256 bytes are an RC4 key").apply_keystream(&mut data);
    data
}

/// `ExportedSessionKey`: the client's key if keys were exchanged, otherwise the key exchange key itself.
// MS-NLMP 3.2.5.1.2
pub fn exported_session_key(key_exchange_key: &[u8; 16], encrypted: Option<[u8; 16]>) -> [u8; 16] {
    match encrypted {
        Some(encrypted) => rc4(key_exchange_key, encrypted),
        None => *key_exchange_key,
    }
}

/// The MIC over the three messages. The MIC field of `authenticate` counts as zeros.
// MS-NLMP 3.1.5.1.2
pub fn message_mic(
    session_key: &[u8; 16],
    negotiate: &[u8],
    challenge: &[u8],
    authenticate: &[u8],
) -> [u8; 16] {
    let (before, rest) = authenticate.split_at(MIC_OFFSET.min(authenticate.len()));
    let after = rest.get(16..).unwrap_or_default();
    hmac_md5(session_key, &[negotiate, challenge, before, &[0; 16], after])
}

/// The end that made a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The initiator.
    Client,
    /// The acceptor.
    Server,
}

/// Signs the first message in each direction. SMB never signs a second one with it.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct SigningSession {
    session_key: [u8; 16],
    #[zeroize(skip)]
    flags: Flags,
}

impl SigningSession {
    /// Creates the signer of an established session.
    pub fn new(session_key: [u8; 16], flags: Flags) -> Self {
        Self { session_key, flags }
    }

    /// NTLMSSP_MESSAGE_SIGNATURE of the first message from `side` (sequence number 0).
    // MS-NLMP 3.4.4.2
    pub fn sign(&self, side: Side, message: &[u8]) -> [u8; 16] {
        let sequence = [0; 4];
        let digest = hmac_md5(&self.signing_key(side), &[&sequence, message]);
        let mut checksum = [0; 8];
        checksum.copy_from_slice(&digest[..8]);
        if self.flags.contains(Flags::KEY_EXCH) {
            checksum = rc4(&self.sealing_key(side), checksum);
        }
        let mut out = [0; 16];
        out[0] = 1;
        out[4..12].copy_from_slice(&checksum);
        out
    }

    // MS-NLMP 3.4.5.2 SIGNKEY
    fn signing_key(&self, side: Side) -> [u8; 16] {
        magic_md5(
            &self.session_key,
            match side {
                Side::Client => b"session key to client-to-server signing key magic constant\0",
                Side::Server => b"session key to server-to-client signing key magic constant\0",
            },
        )
    }

    // MS-NLMP 3.4.5.3 SEALKEY
    fn sealing_key(&self, side: Side) -> [u8; 16] {
        let strength = if self.flags.contains(Flags::KEY_128) {
            16
        } else if self.flags.contains(Flags::KEY_56) {
            7
        } else {
            5
        };
        magic_md5(
            &self.session_key[..strength],
            match side {
                Side::Client => b"session key to client-to-server sealing key magic constant\0",
                Side::Server => b"session key to server-to-client sealing key magic constant\0",
            },
        )
    }
}

fn magic_md5(key: &[u8], magic: &[u8]) -> [u8; 16] {
    Md5::new().chain_update(key).chain_update(magic).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_vectors::hex;

    /// MS-NLMP 4.2.4.4: the client's signing and sealing keys for a session key of 0x55 bytes.
    #[test]
    fn specification_signing_and_sealing_keys() {
        let session = SigningSession::new([0x55; 16], Flags(0xe28a_8233));
        assert_eq!(session.signing_key(Side::Client)[..], hex("4788dc861b4782f35d43fd98fe1a2d39"));
        assert_eq!(session.sealing_key(Side::Client)[..], hex("59f600973cc4960a25480a7c196e4c58"));
    }

    /// Windows 10's own MICs over `[NTLMSSP]` (SMB 2 and SMB 3 security in Windows 10, appendix: second and last
    /// SESSION_SETUP messages of the 3.1.1 example).
    #[test]
    fn windows_mech_list_mics() {
        let session_key = hex("270E1BA896585EEB7AF3472D3B4C75A7").try_into().unwrap();
        let session = SigningSession::new(session_key, Flags(0xe288_8215));
        let mech_list = hex("300C060A2B06010401823702020A");
        assert_eq!(session.sign(Side::Client, &mech_list)[..], hex("0100000063775A9A5FD97F0600000000"));
        assert_eq!(session.sign(Side::Server, &mech_list)[..], hex("010000003B453CDC3524164200000000"));
    }

    #[test]
    fn weaker_keys_have_their_own_sealing_keys() {
        let key = |flags| SigningSession::new([7; 16], flags).sealing_key(Side::Client);
        assert_ne!(key(Flags::KEY_128), key(Flags::KEY_56));
        assert_ne!(key(Flags::KEY_56), key(Flags(0)));
    }

    #[test]
    fn a_message_shorter_than_its_mic_does_not_panic() {
        for length in 0..100 {
            message_mic(&[0; 16], b"", b"", &vec![0; length]);
        }
    }
}
