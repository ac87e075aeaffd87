//! Session keys and the pre-authentication integrity hash (MS-SMB2 3.1.4.2, 3.3.5.4, 3.3.5.5).

use std::fmt;

use aws_lc_rs::{digest, kdf};
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::crypt::Cipher;

/// Length in bytes of the pre-authentication integrity hash (SHA-512).
pub const PREAUTH_LEN: usize = 64;

/// The chain of SHA-512 over every NEGOTIATE and SESSION_SETUP message of a 3.1.1 connection.
///
/// The connection keeps one, updated with the NEGOTIATE request and response. Each session being set up, and each
/// channel being bound, starts from a copy of it and adds its own SESSION_SETUP messages, all but the final
/// successful response. Messages are whole SMB2 messages, header included, without the 4-byte transport prefix.
///
/// ```
/// use smb_auth::derive::PreauthHash;
/// let mut connection = PreauthHash::new();
/// connection.update(&[b"negotiate request"]);
/// connection.update(&[b"negotiate response"]);
/// let mut session = connection; // a copy: the connection's value stays for the next session
/// session.update(&[b"session setup ", b"request, in two segments"]);
/// assert_ne!(session.value(), connection.value());
/// ```
// MS-SMB2 3.3.5.4, 3.3.5.5, 3.2.5.3
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PreauthHash([u8; PREAUTH_LEN]);

impl PreauthHash {
    /// The value before the first message: zeros.
    pub fn new() -> Self {
        Self([0; PREAUTH_LEN])
    }

    /// Adds one message, given in segments: `hash = SHA-512(hash || message)`.
    pub fn update(&mut self, segments: &[&[u8]]) {
        let mut context = digest::Context::new(&digest::SHA512);
        context.update(&self.0);
        for segment in segments {
            context.update(segment);
        }
        self.0.copy_from_slice(context.finish().as_ref());
    }

    /// The current value, which is the context of the 3.1.1 derivation.
    pub fn value(&self) -> &[u8; PREAUTH_LEN] {
        &self.0
    }
}

impl Default for PreauthHash {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for PreauthHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PreauthHash({:02x}{:02x}..)", self.0[0], self.0[1])
    }
}

/// The end that derives the keys. It determines which key encrypts and which decrypts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// We sent the NEGOTIATE request.
    Client,
    /// We answered it.
    Server,
}

/// How a dialect derives its keys from a session key.
#[derive(Clone, Copy, Debug)]
pub enum Schedule<'a> {
    /// 2.0.2 and 2.1: the session key signs; there is no encryption.
    Smb2,
    /// 3.0 and 3.0.2: fixed contexts.
    Smb30,
    /// 3.1.1: the context is the session's (or, binding a channel, the new channel's) pre-authentication hash.
    Smb311(&'a PreauthHash),
}

impl<'a> Schedule<'a> {
    /// The schedule of a dialect revision; `None` when the dialect is unknown.
    pub fn for_dialect(dialect: u16, preauth: &'a PreauthHash) -> Option<Self> {
        match dialect {
            0x0202 | 0x0210 => Some(Self::Smb2),
            0x0300 | 0x0302 => Some(Self::Smb30),
            0x0311 => Some(Self::Smb311(preauth)),
            _ => None,
        }
    }
}

/// A symmetric key of 16 or 32 bytes, wiped when dropped.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct CipherKey {
    bytes: [u8; 32],
    len: usize,
}

impl CipherKey {
    /// The key's 16 or 32 bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl fmt::Debug for CipherKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CipherKey({} bits)", self.len * 8)
    }
}

/// The keys of a session, or the signing key of a channel being bound (its other keys are then ignored: a bound
/// channel encrypts with the session's).
///
/// `encryption` is the key that *we* encrypt with; `decryption` is the key that the peer encrypts with.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct SessionKeys {
    /// `Session.SigningKey`, or `Channel.SigningKey` for the connection it was derived on.
    pub signing: [u8; 16],
    /// Encrypts what we send; `None` below 3.0 and if no cipher was negotiated.
    pub encryption: Option<CipherKey>,
    /// Decrypts what we receive.
    pub decryption: Option<CipherKey>,
    /// `Session.ApplicationKey`, for applications on named pipes.
    pub application: [u8; 16],
}

impl fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionKeys").field("encryption", &self.encryption).finish_non_exhaustive()
    }
}

impl SessionKeys {
    /// Derives every key from the mechanism's session key.
    ///
    /// `full_session_key` is the mechanism's key, of any length (NTLM: 16 bytes; Kerberos: up to 32). Signing and
    /// application keys use its first 16 bytes, zero-padded. With an AES-256 cipher the cipher keys use all of it.
    // MS-SMB2 3.1.4.2, 3.3.5.5.3, 3.2.5.3.3
    pub fn derive(
        schedule: Schedule<'_>,
        full_session_key: &[u8],
        cipher: Option<Cipher>,
        role: Role,
    ) -> Self {
        let mut session_key = session_key_16(full_session_key);
        let label = match schedule {
            // MS-SMB2 3.3.5.5.3: dialects 2.0.2 and 2.1 sign with Session.SessionKey itself.
            Schedule::Smb2 => {
                let keys = Self {
                    signing: session_key,
                    encryption: None,
                    decryption: None,
                    application: session_key,
                };
                session_key.zeroize();
                return keys;
            }
            Schedule::Smb30 => &LABELS_30,
            Schedule::Smb311(_) => &LABELS_311,
        };
        let context = |fixed: &'static [u8]| match schedule {
            Schedule::Smb311(preauth) => preauth.value().to_vec(),
            _ => fixed.to_vec(),
        };
        let short = |label: &[u8], fixed| {
            let mut out = [0; 16];
            smb3_kdf(&session_key, label, &context(fixed), &mut out);
            out
        };
        let long = |label: &[u8], fixed| {
            cipher.map(|cipher| {
                let mut key = CipherKey { bytes: [0; 32], len: cipher.key_len() };
                let from = if cipher.key_len() == 32 && !full_session_key.is_empty() {
                    full_session_key
                } else {
                    &session_key[..]
                };
                smb3_kdf(from, label, &context(fixed), &mut key.bytes[..cipher.key_len()]);
                key
            })
        };
        let client_to_server = long(label.client_to_server, b"ServerIn \0");
        let server_to_client = long(label.server_to_client, b"ServerOut\0");
        let (encryption, decryption) = match role {
            Role::Client => (client_to_server, server_to_client),
            Role::Server => (server_to_client, client_to_server),
        };
        let keys = Self {
            signing: short(label.signing, b"SmbSign\0"),
            encryption,
            decryption,
            application: short(label.application, b"SmbRpc\0"),
        };
        session_key.zeroize();
        keys
    }
}

struct Labels {
    signing: &'static [u8],
    client_to_server: &'static [u8],
    server_to_client: &'static [u8],
    application: &'static [u8],
}

// MS-SMB2 3.1.4.2: labels and contexts include their terminating zero.
const LABELS_30: Labels = Labels {
    signing: b"SMB2AESCMAC\0",
    client_to_server: b"SMB2AESCCM\0",
    server_to_client: b"SMB2AESCCM\0",
    application: b"SMB2APP\0",
};
const LABELS_311: Labels = Labels {
    signing: b"SMBSigningKey\0",
    client_to_server: b"SMBC2SCipherKey\0",
    server_to_client: b"SMBS2CCipherKey\0",
    application: b"SMBAppKey\0",
};

/// `Session.SessionKey`: the first 16 bytes of the mechanism's key, padded with zeros on the right.
// MS-SMB2 3.3.5.5.3
pub fn session_key_16(full: &[u8]) -> [u8; 16] {
    let mut key = [0; 16];
    let n = full.len().min(16);
    key[..n].copy_from_slice(&full[..n]);
    key
}

/// The KDF in counter mode of SP 800-108 with HMAC-SHA256 and a 32-bit counter. `out.len()` determines `L`.
///
/// `label` and `context` include their terminating zeros, if any.
// MS-SMB2 3.1.4.2; NIST SP 800-108 4.1
pub fn smb3_kdf(key: &[u8], label: &[u8], context: &[u8], out: &mut [u8]) {
    let bits = u32::try_from(out.len() * 8).expect("keys are short");
    let mut info = Vec::with_capacity(label.len() + 1 + context.len() + 4);
    info.extend_from_slice(label);
    info.push(0);
    info.extend_from_slice(context);
    info.extend_from_slice(&bits.to_be_bytes());
    let algorithm = kdf::get_kbkdf_ctr_hmac_algorithm(kdf::KbkdfCtrHmacAlgorithmId::Sha256)
        .expect("the library has SHA-256");
    kdf::kbkdf_ctr_hmac(algorithm, key, &info, out).expect("key and output are not empty");
}

#[cfg(test)]
mod tests;
