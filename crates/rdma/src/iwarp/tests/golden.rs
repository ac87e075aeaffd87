//! Captured bytes of Linux's siw: a cifs client (6.12) and ksmbd, mounting, writing and reading over SMB Direct.

use arena::{IoBuf, Sg};

use super::*;
use crate::iwarp::core::{Cursor, Response};
use crate::iwarp::ddp::{Header, Queue, Tagged, Untagged};
use crate::iwarp::mpa::{Enhanced, FRAME_LEN, Frame, Kind};
use crate::iwarp::rdmap::{Opcode, ReadRequest};
use crate::{Done, Remote, Stag};

const REQUEST: &str = "4d504120494420526571204672616d65 1002000c 00200000 2000000001000000";
const REPLY: &str = "4d504120494420526570204672616d65 1002000c 00010008 0000000100000008";
/// SMB Direct's negotiate request, in a Send.
const SEND: &str =
    "0026 4143 00000000 00000000 00000001 00000000 00010001 0000ff00 05400000 54050000 56a70200 00000000";
const WRITE: &str = "0013 c140 aa219901 ff110000042eb000 74696e790a 010001 00000000";
const READ_REQUEST: &str = "002e 4141 00000000 00000001 00000001 00000000 e7bb0501ff11000003c00000 00010000 aa219904ff11000001def000 00000000";
/// An SMB2 READ response, in a Send with Invalidate.
const SEND_INVALIDATE: &str =
    "007a 4144 aa219901 00000000 0000001a 00000000 ff0000000000000000000000180000005000000000000000
    fe534d4240000100000000000800090001000000000000001c0000000000000060000000020000000100000000000000
    0000000000000000000000000000000011005000000000000500000000000000 00000000";

fn frame(kind: Kind, hex: &str) -> Frame {
    let bytes = unhex(hex);
    let (fixed, tail) = bytes.split_first_chunk::<FRAME_LEN>().expect("a fixed part");
    let frame = Frame::parse(kind, fixed, tail).expect("siw's frame is one");
    assert_eq!(frame.to_vec().as_ref(), Ok(&bytes));
    frame
}

/// A golden FPDU's header and payload.
fn fpdu(hex: &str) -> (Header, Vec<u8>) {
    let bytes = unhex(hex);
    let len = usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
    let (header, at) = Header::parse(&bytes[2..2 + len]).expect("version 1").expect("a header");
    let mut again = Vec::new();
    header.write(&mut again);
    assert_eq!(again, bytes[2..2 + at]);
    (header, bytes[2 + at..2 + len].to_vec())
}

fn untagged(control: u8, word: u32, queue: Queue, msn: u32) -> Header {
    Header::Untagged(Untagged { last: true, control, word, queue, msn, offset: 0 })
}

#[test]
fn start_up_frames() {
    let request = frame(Kind::Request, REQUEST);
    let none = Ready::default();
    let enhanced = Enhanced { ird: 32, ord: 0, peer_to_peer: false, ready: none };
    assert_eq!((request.revision, request.enhanced), (2, Some(enhanced)));
    assert_eq!((request.markers, request.crc, request.reject), (false, false, false));
    assert_eq!(request.private_data, [0x20, 0, 0, 0, 1, 0, 0, 0]);
    let reply = frame(Kind::Reply, REPLY);
    assert_eq!(reply.enhanced, Some(Enhanced { ird: 1, ord: 8, peer_to_peer: false, ready: none }));
}

#[test]
fn headers() {
    assert_eq!(fpdu(SEND).0, untagged(0x43, 0, Queue::SEND, 1));
    let (header, data) = fpdu(WRITE);
    let stag = Stag(0xAA21_9901);
    let write = Tagged { last: true, control: 0x40, stag, offset: 0xFF11_0000_042E_B000 };
    assert_eq!((header, &data[..]), (Header::Tagged(write), &b"tiny\n"[..]));
    assert_eq!(fpdu(SEND_INVALIDATE).0, untagged(0x44, stag.0, Queue::SEND, 26));
    let (header, data) = fpdu(READ_REQUEST);
    assert_eq!(header, untagged(0x41, 0, Queue::READ_REQUEST, 1));
    let from = Remote { stag: Stag(0xAA21_9904), offset: 0xFF11_0000_01DE_F000, length: 65536 };
    let request = ReadRequest { sink: Stag(0xE7BB_0501), sink_offset: 0xFF11_0000_03C0_0000, from };
    assert_eq!(ReadRequest::parse(&data), Ok(request));
    let mut again = Vec::new();
    request.write(&mut again);
    assert_eq!(again, data);
}

fn sg(bytes: &[u8]) -> Sg {
    bytes.chunks(7).map(|c| IoBuf::from(c.to_vec())).collect()
}

/// For the same requests, this core sends the same bytes as siw, except that it clears the padding.
#[test]
fn the_core_sends_what_siw_sends() {
    let mut peer = Peer::new(1, config());
    peer.post(1, Wr::Send { sg: sg(&fpdu(SEND).1), invalidate: None });
    assert_eq!(peer.say_all(), unhex(SEND));
    let to = Remote { stag: Stag(0xAA21_9901), offset: 0xFF11_0000_042E_B000, length: 5 };
    peer.post(2, Wr::Write { src: sg(b"tiny\n"), to });
    let write = peer.say_all();
    // siw does not clear the padding; RFC 5044 4.1 requires zeroes.
    let (ours, theirs) = (fpdus(&write)[0], unhex(WRITE));
    assert_eq!((ours.len(), &ours[..21]), (28, &theirs[..21]));
    assert_eq!(ours[21..], [0; 7]);
    peer.core.send_msn = 26;
    peer.post(3, Wr::Send { sg: sg(&fpdu(SEND_INVALIDATE).1), invalidate: Some(Stag(0xAA21_9901)) });
    assert_eq!(peer.say_all(), unhex(SEND_INVALIDATE));
}

/// siw splits 64 KiB into 46 FPDUs of one 1448-byte TCP segment each; so does this core.
#[test]
fn a_read_response_is_cut_like_siws() {
    let mut peer = Peer::new(1, config());
    let e = peer.source(&[7; 65536]);
    let (sink, sink_offset) = (Stag(0xE7BB_0501), 0xFF11_0000_03C0_0000);
    let payload = Cursor::new(sg(&[7; 65536]));
    peer.core.responses.push_back(Response { sink, sink_offset, source: e.stag, payload });
    let said = peer.say_all();
    let all = fpdus(&said);
    assert_eq!(all.len(), 46);
    assert!(all[..45].iter().all(|f| f.len() == 1448));
    assert_eq!(all[0][..16], unhex("05a2 8142 e7bb0501 ff11000003c00000"));
    assert_eq!(all[1][..16], unhex("05a2 8142 e7bb0501 ff11000003c00594"));
    assert_eq!(all[45][..16], unhex("050a c142 e7bb0501 ff11000003c0fb04"));
}

/// siw's bytes have the same effect on this core as on ksmbd.
#[test]
fn the_core_parses_what_siw_sends() {
    let arena = memory();
    let mut peer = Peer::new(1, config());
    for id in 0..2 {
        peer.receive(&arena, id, 1364);
    }
    peer.hear(&unhex(SEND));
    assert!(matches!(&peer.done[0].result, Ok(Done::Recv { buf, .. }) if buf[..] == fpdu(SEND).1));
    // This side chooses the tag here, so the test inserts it.
    let mut theirs = unhex(SEND_INVALIDATE);
    let e = peer.sink(&arena, 4096);
    theirs[4..8].copy_from_slice(&e.stag.0.to_be_bytes());
    theirs[15] = 2;
    peer.hear(&theirs);
    match &peer.done[1].result {
        Ok(Done::Recv { buf, invalidated: Some((stag, _)) }) => {
            assert_eq!((buf.to_vec(), *stag), (fpdu(SEND_INVALIDATE).1, e.stag));
        }
        other => panic!("not {other:?}"),
    }
    assert_eq!(Opcode::parse(0x44), Ok(Opcode::SEND_INVALIDATE));
}
