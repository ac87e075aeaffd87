//! Session security (MS-NLMP 3.4): the exchanged key, the MIC, and the signatures that protect SPNEGO's mechanism list.

use ::rc4::{KeyInit, Rc4, StreamCipher};
use md5::{Digest, Md5};
use zeroize::{Zeroize, ZeroizeOnDrop};

use super::Flags;
use super::message::MIC_OFFSET;
use super::response::hmac_md5;

/// RC4 with a fresh state: encrypts and decrypts.
pub fn rc4<const N: usize>(key: &[u8], mut data: [u8; N]) -> [u8; N] {
    Rc4::new_from_slice(key).expect("1 to 256 bytes are an RC4 key").apply_keystream(&mut data);
    data
}

/// `ExportedSessionKey`: the one that the client chose if keys were exchanged, else the key exchange key itself.
// MS-NLMP 3.2.5.1.2
pub fn exported_session_key(key_exchange_key: &[u8; 16], encrypted: Option<[u8; 16]>) -> [u8; 16] {
    match encrypted {
        Some(encrypted) => rc4(key_exchange_key, encrypted),
        None => *key_exchange_key,
    }
}

/// The MIC over the three messages; the MIC's own place in `authenticate` counts as zero.
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

/// Which end a signature comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The initiator.
    Client,
    /// The acceptor.
    Server,
}

/// What signs the first message each way. SMB signs no second one with it.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct SigningSession {
    session_key: [u8; 16],
    #[zeroize(skip)]
    flags: Flags,
}

impl SigningSession {
    /// For an established session.
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
