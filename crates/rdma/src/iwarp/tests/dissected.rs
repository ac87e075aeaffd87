//! An independent decoder reads the output of the core: tshark finds MPA, DDP and RDMAP in it, and nothing
//! malformed.

use std::process::{Command, Stdio};

use super::*;
use crate::Remote;
use crate::iwarp::mpa::{Enhanced, Frame, Kind};

/// A capture of one TCP connection, segment by segment.
struct Capture {
    file: Vec<u8>,
    /// The next sequence number of each side.
    next: [u32; 2],
}

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const PORTS: [u16; 2] = [40_000, 5445];

impl Capture {
    /// Starts with the TCP handshake.
    fn new() -> Capture {
        let mut file = Vec::new();
        // pcap: magic, version 2.4, no time zone, snap length, link type 101 (raw IP).
        for word in [0xA1B2_C3D4, 0x0002_0004, 0, 0, 0x0004_0000, 101] {
            file.extend_from_slice(&u32::to_be_bytes(word));
        }
        let mut c = Capture { file, next: [1000, 2000] };
        c.packet(0, SYN, &[]);
        c.next[0] += 1;
        c.packet(1, SYN | ACK, &[]);
        c.next[1] += 1;
        c.packet(0, ACK, &[]);
        c
    }

    fn packet(&mut self, from: usize, flags: u8, payload: &[u8]) {
        let total = (40 + payload.len()) as u16;
        let length = u32::from(total).to_be_bytes();
        self.file.extend_from_slice(&[[0; 4], [0; 4], length, length].concat());
        let addresses = [[10, 0, 0, 1], [10, 0, 0, 2]];
        self.file.extend_from_slice(&[0x45, 0]);
        self.file.extend_from_slice(&total.to_be_bytes());
        self.file.extend_from_slice(&[0, 0, 0x40, 0, 64, 6, 0, 0]);
        self.file.extend_from_slice(&[addresses[from], addresses[1 - from]].concat());
        self.file.extend_from_slice(&PORTS[from].to_be_bytes());
        self.file.extend_from_slice(&PORTS[1 - from].to_be_bytes());
        self.file.extend_from_slice(&self.next[from].to_be_bytes());
        let acknowledged = if flags & ACK == 0 { 0 } else { self.next[1 - from] };
        self.file.extend_from_slice(&acknowledged.to_be_bytes());
        self.file.extend_from_slice(&[0x50, flags, 0xFF, 0xFF, 0, 0, 0, 0]);
        self.file.extend_from_slice(payload);
        self.next[from] += payload.len() as u32;
    }

    fn say(&mut self, from: usize, payload: &[u8]) {
        self.packet(from, ACK, payload);
    }

    /// Captures the output of both peers, one TCP segment for each FPDU.
    fn talk(&mut self, peers: &mut [Peer; 2]) {
        loop {
            let mut quiet = true;
            for from in [0, 1] {
                let said = peers[from].say_all();
                for fpdu in fpdus(&said) {
                    self.say(from, fpdu);
                    peers[1 - from].hear(fpdu);
                    quiet = false;
                }
            }
            if quiet {
                return;
            }
        }
    }

    /// Returns tshark's dissection; prints a notice and returns `None` if tshark is not installed.
    fn dissect(&self, arguments: &[&str]) -> Option<String> {
        let tshark = Command::new("tshark")
            .args(["-o", "tcp.try_heuristic_first:TRUE", "-o", "tcp.desegment_tcp_streams:FALSE"])
            // Disables the protocols that tshark would guess for the payload.
            .args(["--disable-protocol", "rpcordma", "--disable-protocol", "smb_direct"])
            .args(["-o", "tcp.check_checksum:FALSE", "-o", "ip.check_checksum:FALSE", "-r", "-"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = tshark else {
            eprintln!(
                "SKIPPED: tshark is not installed, so the output of iwarp is not checked by another program"
            );
            return None;
        };
        let (file, mut stdin) = (self.file.clone(), child.stdin.take().expect("piped"));
        let writer = std::thread::spawn(move || std::io::Write::write_all(&mut stdin, &file));
        let out = child.wait_with_output().expect("tshark runs");
        writer.join().expect("no panic").expect("tshark reads all of it");
        assert!(out.status.success());
        Some(String::from_utf8_lossy(&out.stdout).into_owned())
    }
}

/// A conversation with every operation, ended by a Terminate.
fn conversation(crc: bool) -> Capture {
    let (arena, mut capture) = (memory(), Capture::new());
    let enhanced =
        Enhanced { ird: 4, ord: 4, peer_to_peer: true, ready: Ready { write: true, ..Ready::default() } };
    for (from, kind) in [(0, Kind::Request), (1, Kind::Reply)] {
        let private_data = b"\0\0\0\x04\0\0\0\x04".to_vec();
        let frame = Frame {
            kind,
            revision: 2,
            markers: false,
            crc,
            reject: false,
            enhanced: Some(enhanced),
            private_data,
        };
        capture.say(from, &frame.to_vec().expect("it fits"));
    }
    let config = Config { crc, ..config() };
    let mut peers = [Peer::new(1, config), Peer::new(2, config)];
    peers[0].core.send_ready();
    let (sink, source) = (peers[1].sink(&arena, 8000), peers[1].source(&[3; 5000]));
    for id in 0..2 {
        peers[0].receive(&arena, id, 4096);
        peers[1].receive(&arena, id, 4096);
    }
    let whole = |e: Exposure| Remote { stag: e.stag, offset: e.offset, length: e.length };
    let sg = |n: usize| [vec![4; n].into()].into_iter().collect();
    peers[0].post(10, Wr::Send { sg: sg(3), invalidate: None });
    peers[0].post(11, Wr::Write { src: sg(8000), to: whole(sink) });
    let buf = arena.try_alloc(5000, Class::Payload).expect("memory");
    peers[0].post(12, Wr::Read { sink: buf, from: whole(source) });
    capture.talk(&mut peers);
    let theirs = peers[0].sink(&arena, 100);
    peers[1].post(13, Wr::Send { sg: sg(2000), invalidate: Some(theirs.stag) });
    capture.talk(&mut peers);
    assert_eq!(peers[0].core.exposed(), 0);
    let beyond = Remote { offset: 4999, length: 2, ..whole(source) };
    let buf = arena.try_alloc(2, Class::Payload).expect("memory");
    peers[0].post(14, Wr::Read { sink: buf, from: beyond });
    capture.talk(&mut peers);
    capture
}

#[test]
fn tshark_understands_it() {
    for crc in [false, true] {
        let capture = conversation(crc);
        let fields = ["-T", "fields", "-E", "separator=|", "-e", "tcp.srcport", "-e", "iwarp_rdma.opcode"];
        let Some(table) = capture.dissect(&fields) else { return };
        let opcodes: Vec<&str> = table.lines().filter_map(|l| l.split_once('|')).map(|(_, o)| o).collect();
        let count = |o: &str| opcodes.iter().filter(|x| **x == o).count();
        // The ready-to-receive Write and 8000 bytes in segments of 1428; 5000 bytes of Read Response.
        assert_eq!((count("0x00"), count("0x01"), count("0x02")), (1 + 6, 2, 4), "{table}");
        assert_eq!((count("0x03"), count("0x04"), count("0x07")), (1, 2, 1), "{table}");
        let text = capture.dissect(&["-V"]).expect("it ran just now");
        for bad in ["Malformed", "malformed", "Bad CRC", "Bad length", "incorrect"] {
            assert!(!text.contains(bad), "tshark says {bad}");
        }
        for good in [
            "Request frame header",
            "Reply frame header",
            "Remote Protection Error",
            "Base or bounds violation",
        ] {
            assert!(text.contains(good), "tshark does not say {good}");
        }
        assert_eq!(text.contains("(Good CRC32)"), crc, "CRCs are checked where there are any");
    }
}
