//! Structured replies and BLOCK_STATUS, byte by byte (NBD, "Structured reply types", "Metadata querying").

mod wire;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use nbd::Limits;
use wire::{request, serve};

const BLOCK: u32 = 4096;
const SIZE: u64 = 16 << 20;
const HOLE: u32 = 3;

const READ: u16 = 0;
const WRITE: u16 = 1;
const TRIM: u16 = 4;
const BLOCK_STATUS: u16 = 7;

const OFFSET_DATA: u16 = 1;
const OFFSET_HOLE: u16 = 2;
const STATUS: u16 = 5;
const ERROR: u16 = 1 << 15 | 1;

fn with_client(contexts: bool, client: impl FnOnce(UnixStream) + Send) {
    serve(SIZE, Limits::default(), |connect| client(chosen(connect(), contexts)));
}

/// Negotiates structured replies, with `contexts` also `base:allocation`, and chooses the export.
fn chosen(mut s: UnixStream, contexts: bool) -> UnixStream {
    let option = |number: u32, data: &[u8]| {
        [b"IHAVEOPT", &number.to_be_bytes()[..], &(data.len() as u32).to_be_bytes(), data].concat()
    };
    s.read_exact(&mut [0; 18]).expect("a greeting");
    s.write_all(&[&[0, 0, 0, 3], &option(8, b"")[..]].concat()).expect("sent");
    s.read_exact(&mut [0; 20]).expect("an acknowledgement");
    if contexts {
        s.write_all(&option(10, b"\0\0\0\0\0\0\0\x01\0\0\0\x0fbase:allocation")).expect("sent");
        let mut answers = [0; 20 + 4 + 15 + 20];
        s.read_exact(&mut answers).expect("answers");
        assert_eq!(answers[20..39], *b"\0\0\0\x01base:allocation");
    }
    s.write_all(&option(7, b"\0\0\0\0\0\x01\0\x03")).expect("sent");
    s.read_exact(&mut [0; 20 + 12 + 20 + 14 + 20]).expect("answers");
    s
}

/// The only chunk of a reply: its type and payload.
fn chunk(s: &mut UnixStream) -> (u16, Vec<u8>) {
    let mut head = [0; 20];
    s.read_exact(&mut head).expect("a chunk");
    assert_eq!(head[..6], *b"\x66\x8e\x33\xef\0\x01", "structured, and the last of its reply");
    assert_eq!(head[8..16], 7_u64.to_be_bytes());
    let mut payload = vec![0; u32::from_be_bytes(head[16..].try_into().expect("four")) as usize];
    s.read_exact(&mut payload).expect("its payload");
    (u16::from_be_bytes([head[6], head[7]]), payload)
}

fn ask(s: &mut UnixStream, flags: u16, command: u16, offset: u64, length: u32) -> (u16, Vec<u8>) {
    s.write_all(&request(flags, command, offset, length)).expect("sent");
    chunk(s)
}

/// The extents of a range, by length and flags.
fn status(s: &mut UnixStream, flags: u16, offset: u64, length: u32) -> Vec<(u32, u32)> {
    let (kind, payload) = ask(s, flags, BLOCK_STATUS, offset, length);
    assert_eq!((kind, &payload[..4]), (STATUS, &[0, 0, 0, 1][..]), "of the context that was agreed upon");
    let words: Vec<u32> =
        payload[4..].chunks_exact(4).map(|b| u32::from_be_bytes(b.try_into().expect("four"))).collect();
    words.chunks_exact(2).map(|extent| (extent[0], extent[1])).collect()
}

/// Sends a WRITE or TRIM of whole blocks; both get simple replies.
fn change(s: &mut UnixStream, command: u16, block: u64, blocks: u32) {
    s.write_all(&request(0, command, block * u64::from(BLOCK), blocks * BLOCK)).expect("sent");
    if command == WRITE {
        s.write_all(&vec![5; (blocks * BLOCK) as usize]).expect("sent");
    }
    let mut reply = [0; 16];
    s.read_exact(&mut reply).expect("a reply");
    assert_eq!(reply[..8], *b"\x67\x44\x66\x98\0\0\0\0");
}

#[test]
fn a_range_is_reported_in_extents_and_discarded_ones_are_holes() {
    with_client(true, |mut s| {
        assert_eq!(status(&mut s, 0, 0, SIZE as u32), [(SIZE as u32, HOLE)], "an empty disk");
        change(&mut s, WRITE, 2, 4);
        let rest = SIZE as u32 - 6 * BLOCK;
        assert_eq!(status(&mut s, 0, 0, SIZE as u32), [(2 * BLOCK, HOLE), (4 * BLOCK, 0), (rest, HOLE)]);
        change(&mut s, TRIM, 3, 2);
        let expected = [(2 * BLOCK, HOLE), (BLOCK, 0), (2 * BLOCK, HOLE), (BLOCK, 0), (rest, HOLE)];
        assert_eq!(status(&mut s, 0, 0, SIZE as u32), expected);
        // The reply covers only the range, even if an extent extends beyond it.
        assert_eq!(status(&mut s, 0, 5 * u64::from(BLOCK), BLOCK), [(BLOCK, 0)]);
        let one = 8;
        assert_eq!(status(&mut s, one, u64::from(BLOCK), 6 * BLOCK), [(BLOCK, HOLE)]);
    });
}

/// NBD, NBD_CMD_BLOCK_STATUS: the client continues at the first offset that a reply does not cover.
#[test]
fn a_reply_has_few_extents_and_all_of_them_are_all() {
    with_client(true, |mut s| {
        let blocks = SIZE / u64::from(BLOCK);
        (0..blocks).step_by(2).for_each(|block| change(&mut s, WRITE, block, 1));
        let (mut at, mut replies) = (0, 0);
        while at < SIZE {
            let extents = status(&mut s, 0, at, (SIZE - at) as u32);
            assert!((1..=512).contains(&extents.len()), "{}", extents.len());
            for (length, flags) in extents {
                let expected = if (at / u64::from(BLOCK)).is_multiple_of(2) { 0 } else { HOLE };
                assert_eq!((length, flags), (BLOCK, expected), "at {at}");
                at += u64::from(length);
            }
            replies += 1;
        }
        assert_eq!((at, replies), (SIZE, blocks / 512));
    });
}

#[test]
fn a_read_of_a_hole_sends_no_zeros() {
    with_client(false, |mut s| {
        change(&mut s, WRITE, 1, 1);
        let hole = [&u64::from(2 * BLOCK).to_be_bytes()[..], &(8 * BLOCK).to_be_bytes()].concat();
        assert_eq!(ask(&mut s, 0, READ, u64::from(2 * BLOCK), 8 * BLOCK), (OFFSET_HOLE, hole));
        let (kind, payload) = ask(&mut s, 4, READ, 0, 3 * BLOCK);
        let block = |byte| vec![byte; BLOCK as usize];
        let data = [&[0; 8][..], &block(0), &block(5), &block(0)].concat();
        assert!((kind, payload) == (OFFSET_DATA, data), "one chunk, of all of it");
        change(&mut s, TRIM, 1, 1);
        assert_eq!(ask(&mut s, 0, READ, 0, 3 * BLOCK).0, OFFSET_HOLE);
    });
}

#[test]
fn an_error_is_a_chunk_of_its_own() {
    let einval = (ERROR, vec![0, 0, 0, 22, 0, 0]);
    with_client(true, |mut s| {
        for (flags, command, offset, length) in [
            (0, READ, SIZE, BLOCK),                                // past the end
            (0, BLOCK_STATUS, SIZE - u64::from(BLOCK), 2 * BLOCK), // past the end
            (0, BLOCK_STATUS, 100, BLOCK),                         // not a block
            (0, BLOCK_STATUS, 0, 0),                               // nothing
            (1, BLOCK_STATUS, 0, BLOCK),                           // flag not valid for this command
        ] {
            assert_eq!(ask(&mut s, flags, command, offset, length), einval, "{command} at {offset}");
        }
        assert_eq!(status(&mut s, 0, 0, BLOCK), [(BLOCK, HOLE)], "the connection continues");
    });
    // NBD, "Metadata querying": EINVAL for a client that selected no context.
    with_client(false, |mut s| assert_eq!(ask(&mut s, 0, BLOCK_STATUS, 0, BLOCK), einval));
}
