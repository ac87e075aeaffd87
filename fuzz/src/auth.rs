//! What `smb-auth` takes from peers.

use smb_auth::acceptor::{Acceptor, AcceptorConfig};
use smb_auth::crypt::{Cipher, Opener, TRANSFORM_LEN};
use smb_auth::initiator::Initiator;
use smb_auth::mechanism::FileTime;
use smb_auth::ntlm::initiate::{ClientRandom, Credentials};
use smb_auth::ntlm::{
    Authenticate, AvPairs, Challenge, Negotiate, NtHash, Ntlmv2Response,
};
use smb_auth::spnego::Token;
use smb_auth::users::Table;

/// Every parser on the same bytes.
pub fn tokens(bytes: &[u8]) {
    let _ = Token::parse(bytes);
    let _ = Negotiate::parse(bytes);
    let _ = Challenge::parse(bytes);
    let _ = Authenticate::parse(bytes);
    let _ = Ntlmv2Response::parse(bytes);
    if let Ok(pairs) = AvPairs::parse(bytes) {
        assert!(pairs.iter().count() <= bytes.len() / 4);
        let _ = (pairs.flags(), pairs.timestamp());
    }
}

/// The bytes as two tokens: two bytes say how long the first is.
fn halves(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (n, rest) = bytes.split_first_chunk::<2>()?;
    Some(rest.split_at(usize::from(u16::from_le_bytes(*n)).min(rest.len())))
}

/// A server takes two tokens.
pub fn acceptor(bytes: &[u8]) {
    let Some((first, second)) = halves(bytes) else { return };
    let mut users = Table::new([1, 2, 3]);
    users.add("User", NtHash::from_bytes([1; 16]), "").expect("a valid name");
    let mut acceptor = Acceptor::new(&AcceptorConfig::new("HOST"), [7; 8], FileTime(1));
    let _ = acceptor.step(first, &users);
    let _ = acceptor.step(second, &users);
}

/// A client takes the server's hint and one token.
pub fn initiator(bytes: &[u8]) {
    let Some((hint, token)) = halves(bytes) else { return };
    let mut client = client();
    if client.first_token(hint).is_ok() {
        let _ = client.step(token);
    }
    let mut client = self::client();
    client.first_token(&[]).expect("no hint is needed");
    let _ = client.step(token);
}

/// A client that knows the account of [`acceptor`].
pub fn client() -> Initiator {
    let credentials = Credentials {
        user: "User".into(),
        domain: String::new(),
        nt_hash: NtHash::from_bytes([1; 16]),
        workstation: "CLIENT".into(),
    };
    let random = ClientRandom { client_challenge: [3; 8], session_key: [4; 16] };
    Initiator::ntlm(credentials, random, FileTime(1), "cifs/HOST")
}

/// The first byte chooses the cipher; then a transform header and a message.
pub fn opener(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else { return };
    let Some((header, message)) = rest.split_first_chunk::<TRANSFORM_LEN>() else { return };
    let ciphers = [Cipher::Aes128Ccm, Cipher::Aes128Gcm, Cipher::Aes256Ccm, Cipher::Aes256Gcm];
    let cipher = ciphers[usize::from(which % 4)];
    let opener = Opener::new(cipher, &[5; 32][..cipher.key_len()]).expect("a key of that length");
    let _ = opener.open_message(header, &mut message.to_vec());
}
