//! Encryption with and without free memory.

use arena::{CHUNK_MAX, CHUNK_MIN};
use smb_auth::crypt::Cipher;
use smb_auth::sign::{SigningAlgorithm, SigningKey};
use smb_wire::Guid;

use super::*;
use crate::commands::tests::user;
use crate::session::BindingFacts;

const CIPHERS: [Cipher; 4] = [Cipher::Aes128Ccm, Cipher::Aes128Gcm, Cipher::Aes256Ccm, Cipher::Aes256Gcm];
const KEY: [u8; 32] = [7; 32];

/// A session that encrypts with a key, and the opener that decrypts its messages.
fn session(cipher: Cipher) -> (Session, Opener) {
    let key = &KEY[..cipher.key_len()];
    let made = "a key of the cipher's length";
    let ciphers = Ciphers {
        sealer: Sealer::new(cipher, key).expect(made),
        opener: Opener::new(cipher, key).expect(made),
    };
    let binding = BindingFacts { dialect: 0x0311, client_guid: Guid([2; 16]), cipher: Some(cipher) };
    let signing = Arc::new(SigningKey::new(SigningAlgorithm::AesCmac, &[3; 16]));
    let now = env::Env::simulated(1).now();
    let session = Session::new(9, user(1000), binding, signing, Some(ciphers), false, false, now);
    (session, Opener::new(cipher, key).expect(made))
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|i| ((i * 31) >> 3) as u8).collect()
}

/// Payload in chunks of the arena that have no other owner.
fn payload(arena: &Arena, data: &[u8]) -> Sg {
    let mut left = data;
    let bufs = arena.try_alloc_sg(data.len(), Class::Payload).expect("there is memory");
    bufs.into_iter()
        .map(|mut b| {
            left = &left[b.append(left)..];
            b.freeze()
        })
        .collect()
}

fn message(arena: &Arena, data: &[u8]) -> OutMessage {
    OutMessage { payload: Data::Bufs(payload(arena, data)), ..OutMessage::plain(bytes(80)) }
}

/// Allocates all free memory of the arena.
fn spend(arena: &Arena) -> Vec<IoBufMut> {
    std::iter::from_fn(|| arena.try_alloc(CHUNK_MIN, Class::Payload)).collect()
}

/// The decrypted bytes of a message, as a client reads them.
fn opened(opener: &Opener, mut sent: OutMessage) -> Vec<u8> {
    let header = sent.head.as_slice().try_into().expect("a transform header");
    let mut body = sg_to_vec(bufs(&mut sent.payload));
    opener.open_message(header, &mut body).expect("the tag is right");
    body
}

fn done(sealed: Sealed) -> OutMessage {
    match sealed {
        Sealed::Done(result) => result.expect("nonces are left"),
        Sealed::NoMemory(_) => panic!("there is memory"),
    }
}

#[test]
fn replies_are_sealed_with_and_without_memory() {
    for cipher in CIPHERS {
        let (session, opener) = session(cipher);
        for length in [0, 1, 4096, 65_536, CHUNK_MAX, 2 * CHUNK_MAX + 5] {
            let arena = Arena::new(16 << 20).expect("a mapping");
            let plain = [bytes(80), bytes(length)].concat();
            let out = done(seal(&arena, &session, &mut message(&arena, &bytes(length))));
            assert_eq!(opened(&opener, out), plain, "{cipher:?}, {length} bytes");
            assert_eq!(arena.usage().used, 0);

            // The arena has no free memory beside the payload's buffers: the result is written into these.
            let mut m = message(&arena, &bytes(length));
            let held = spend(&arena);
            let used = arena.usage().used;
            let out = done(seal(&arena, &session, &mut m));
            assert_eq!(arena.usage().used, used, "no memory was taken beside the payload's");
            drop(held);
            assert_eq!(opened(&opener, out), plain, "{cipher:?}, {length} bytes without memory");
            assert_eq!(arena.usage().used, 0);
        }
    }
}

/// Payload with other owners is not overwritten; the reply waits for memory, and may get it in pieces.
#[tokio::test]
async fn what_is_lent_waits_for_memory() {
    let (session, opener) = session(Cipher::Aes128Gcm);
    let arena = Arena::new(16 << 20).expect("a mapping");
    let lent = IoBuf::from(bytes(3 * CHUNK_MAX));
    let mut m = OutMessage {
        payload: Data::Bufs([lent.clone()].into_iter().collect()),
        ..OutMessage::plain(bytes(80))
    };
    let mut held = spend(&arena);
    let Sealed::NoMemory(memory) = seal(&arena, &session, &mut m) else { panic!("there is no memory") };
    assert_eq!(m.len(), 80 + lent.len(), "it is as it was");
    // The memory that is freed consists of single pages.
    let mut pages = 0;
    held.retain(|_| {
        pages += 1;
        pages % 2 == 0
    });
    assert!(arena.try_alloc_run(3 * CHUNK_MAX, Class::Payload).is_none());
    let out = seal_into(ciphers(&session), session.id, m, memory.await).expect("nonces are left");
    assert_eq!(opened(&opener, out), [bytes(80), bytes(lent.len())].concat());
    assert_eq!(&*lent, bytes(lent.len()));
}

/// A request, as the peer sends it.
fn request(session: &Session, length: usize) -> ([u8; TRANSFORM_LEN], Vec<u8>) {
    let mut body = bytes(length);
    let header = ciphers(session).sealer.seal_message(session.id, &mut body).expect("nonces are left");
    (header, body)
}

#[test]
fn requests_are_opened_where_they_lie() {
    for cipher in CIPHERS {
        let (session, opener) = session(cipher);
        for length in [1, 300, 65_536, 3 * CHUNK_MAX] {
            let arena = Arena::new(16 << 20).expect("a mapping");
            let (header, body) = request(&session, length);
            let whole = [&header[..], &body].concat();
            let mut run = arena.try_alloc_run(whole.len(), Class::Payload).expect("there is memory");
            run.append(&whole);
            for sg in [Sg::from_iter([run.freeze()]), payload(&arena, &whole)] {
                let _held = spend(&arena);
                let used = arena.usage().used;
                let pieces = sg.len();
                let plain = open(&opener, &header, sg).expect("the tag is right");
                assert!(sg_to_vec(&plain) == bytes(length), "{cipher:?}, {length} bytes in {pieces} pieces");
                assert_eq!((plain.len(), arena.usage().used), (pieces, used));
            }
            assert_eq!(arena.usage().used, 0);
            let mut forged = header;
            forged[4] ^= 1;
            assert_eq!(open(&opener, &forged, payload(&arena, &whole)).err(), Some(CryptError::Mismatch));
        }
    }
}

#[test]
fn a_header_may_lie_in_pieces() {
    let sg: Sg = bytes(60).chunks(7).map(|c| IoBuf::from(c.to_vec())).collect();
    assert_eq!(transform_header(&sg).expect("long enough").to_vec(), bytes(TRANSFORM_LEN));
    assert!(transform_header(&[IoBuf::from(bytes(51))].into_iter().collect()).is_none());
}
