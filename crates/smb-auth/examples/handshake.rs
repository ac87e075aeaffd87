//! Runs a log-on with both ends in one process, without a network: `cargo run -p smb-auth --example handshake`.
//!
//! The client and the server exchange the tokens that SESSION_SETUP would carry. Random bytes and the time are
//! fixed, so every run prints the same keys.

use std::error::Error;

use smb_auth::acceptor::{Acceptor, AcceptorConfig, Step};
use smb_auth::crypt::{Cipher, Opener, Sealer};
use smb_auth::derive::{PreauthHash, Role, Schedule, SessionKeys};
use smb_auth::initiator::{Initiator, InitiatorStep};
use smb_auth::mechanism::FileTime;
use smb_auth::ntlm::NtHash;
use smb_auth::ntlm::initiate::{ClientRandom, Credentials};
use smb_auth::sign::{SigningAlgorithm, SigningKey};
use smb_auth::users::Table;

fn main() -> Result<(), Box<dyn Error>> {
    let now = FileTime(133_000_000_000_000_000);
    let mut users = Table::new([1, 2, 3]);
    users.add("alice", NtHash::from_password("wonderland"), "Alice Liddell")?;

    // The server announces its mechanisms; the client sends the first token.
    let config = AcceptorConfig::new("rabbit.example");
    let mut server = Acceptor::new(&config, *b"8 random", now);
    let credentials = Credentials {
        user: "alice".into(),
        domain: String::new(),
        nt_hash: NtHash::from_password("wonderland"),
        workstation: "HOLE".into(),
    };
    let random = ClientRandom { client_challenge: *b"8 others", session_key: *b"sixteen of these" };
    let mut client = Initiator::ntlm(credentials, random, now, "cifs/rabbit.example");

    // Both ends hash every message but the final response; here a message is just its token.
    let mut preauth = PreauthHash::new();
    let mut token = client.first_token(&config.hint())?;
    let (last, server_key) = loop {
        println!("client -> server {:4} bytes", token.len());
        preauth.update(&[&token]);
        match server.step(&token, &users) {
            Step::Continue(answer) => {
                println!("server -> client {:4} bytes, more processing required", answer.len());
                preauth.update(&[&answer]);
                token = match client.step(&answer)? {
                    InitiatorStep::Continue(token) => token,
                    InitiatorStep::Done { .. } => return Err("done too early".into()),
                };
            }
            Step::Done { token, identity, session_key } => {
                println!("server -> client {:4} bytes, success", token.len());
                println!("{} ({}) logged on from {}", identity.user, identity.sid, identity.workstation);
                break (token, session_key);
            }
            Step::Failed(error) => return Err(error.into()),
        }
    };
    let InitiatorStep::Done { session_key: client_key } = client.step(&last)? else {
        return Err("not done".into());
    };

    // Each end derives its keys. The client signs and encrypts; the server verifies and decrypts.
    let derive = |key: &[u8], role| {
        SessionKeys::derive(Schedule::Smb311(&preauth), key, Some(Cipher::Aes128Gcm), role)
    };
    let (client, server) = (derive(&client_key, Role::Client), derive(&server_key, Role::Server));
    let mut header = [0; 64];
    let payload = b"down the rabbit hole";
    let signature = SigningKey::new(SigningAlgorithm::AesGmac, &client.signing).sign(
        &[&header, payload],
        7,
        false,
        false,
    )?;
    header[48..].copy_from_slice(&signature);
    SigningKey::new(SigningAlgorithm::AesGmac, &server.signing).verify(
        &[&header, payload],
        7,
        false,
        false,
    )?;
    println!("signed and verified");

    let sealer = Sealer::new(Cipher::Aes128Gcm, client.encryption.as_ref().expect("derived").as_bytes())?;
    let opener = Opener::new(Cipher::Aes128Gcm, server.decryption.as_ref().expect("derived").as_bytes())?;
    let mut message = [&header[..], payload].concat();
    let transform = sealer.seal_message(1, &mut message)?;
    opener.open_message(&transform, &mut message)?;
    assert!(message.ends_with(payload));
    println!("encrypted and decrypted");
    Ok(())
}
