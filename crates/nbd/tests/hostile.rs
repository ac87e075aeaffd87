//! Protocol violations by a client, byte by byte, and their consequences.

mod wire;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nbd::Limits;
use wire::{request, serve};

fn with_server(client: impl FnOnce(&dyn Fn() -> UnixStream) + Send) {
    with_limits(Limits::default(), client);
}

fn with_limits(limits: Limits, client: impl FnOnce(&dyn Fn() -> UnixStream) + Send) {
    serve(1 << 20, limits, client);
}

/// Negotiates; the next bytes on the stream are the first request.
fn chosen(mut s: UnixStream) -> UnixStream {
    let mut greeting = [0; 18];
    s.read_exact(&mut greeting).expect("a greeting");
    s.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x07\0\0\0\x08\0\0\0\0\0\x01\0\x03").expect("sent");
    // The export (12 bytes) and the block sizes (14), each after a header of 20, then the acknowledgement.
    let mut answers = [0; 20 + 12 + 20 + 14 + 20];
    s.read_exact(&mut answers).expect("answers");
    s
}

fn error(s: &mut UnixStream) -> u32 {
    let mut reply = [0; 16];
    s.read_exact(&mut reply).expect("a reply");
    assert_eq!(reply[8..], 7_u64.to_be_bytes());
    u32::from_be_bytes(reply[4..8].try_into().expect("four"))
}

fn is_closed(mut s: UnixStream) -> bool {
    matches!(s.read(&mut [0; 64]), Ok(0))
        || s.read(&mut [0; 64]).is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset)
}

#[test]
fn requests_that_are_answered_with_errors() {
    with_server(|connect| {
        let mut s = chosen(connect());
        let (einval, enospc) = (22, 28);
        let cases = [
            (0, 0, 100, 4096, einval),             // not a block
            (0, 0, 0, 100, einval),                // not a block
            (0, 0, 0, 0, einval),                  // nothing
            (0, 0, 1 << 20, 4096, einval),         // past the end
            (0, 0, u64::MAX - 4095, 4096, einval), // wraps
            (0, 4, 1 << 20, 4096, enospc),         // trim past the end
            (0, 6, 0, 1 << 21, enospc),            // zeros past the end
            (0, 3, 4096, 0, einval),               // a flush has no range
            (0, 9, 0, 4096, einval),               // no such command
            (0x80, 0, 0, 4096, einval),            // no such flag
            (0, 0, 0, 3 << 30, einval),            // longer than the announced maximum
        ];
        for (flags, command, offset, length, expected) in cases {
            s.write_all(&request(flags, command, offset, length)).expect("sent");
            assert_eq!(error(&mut s), expected, "command {command} at {offset}, {length} bytes");
        }
        // The connection continues: the payload of a WRITE past the end is consumed.
        s.write_all(&request(0, 1, 1 << 20, 4096)).expect("sent");
        s.write_all(&[1; 4096]).expect("sent");
        assert_eq!(error(&mut s), enospc);
        s.write_all(&request(0, 3, 0, 0)).expect("sent");
        assert_eq!(error(&mut s), 0);
    });
}

#[test]
fn a_violation_ends_only_its_connection() {
    with_server(|connect| {
        let mut bystander = chosen(connect());
        let mut wrong = chosen(connect());
        wrong.write_all(&[0; 28]).expect("sent");
        assert!(is_closed(wrong), "no magic number");
        let mut long = chosen(connect());
        long.write_all(&request(0, 1, 0, 64 << 20)).expect("sent");
        assert!(is_closed(long), "a payload longer than it was told");
        let mut within = chosen(connect());
        within.write_all(&request(0, 1, 0, 8192)).expect("sent");
        within.write_all(&[1; 100]).expect("sent");
        drop(within);
        bystander.write_all(&request(0, 3, 0, 0)).expect("sent");
        assert_eq!(error(&mut bystander), 0);
        // A client that stops within a WRITE does not prevent the server from stopping.
        let mut half = chosen(connect());
        half.write_all(&request(0, 1, 0, 8192)).expect("sent");
        std::mem::forget(half);
    });
}

/// More time than any test needs.
const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(300);

#[test]
fn a_write_that_does_not_come_whole_ends_the_connection() {
    with_limits(Limits { payload: SHORT, reply: LONG, end: LONG }, |connect| {
        let mut stalled = chosen(connect());
        stalled.write_all(&request(0, 1, 0, 8192)).expect("sent");
        stalled.write_all(&[1; 100]).expect("sent");
        assert!(is_closed(stalled), "it stalls");
        let mut slow = chosen(connect());
        slow.write_all(&request(0, 1, 0, 8192)).expect("sent");
        let pieces = (0..8191).take_while(|_| {
            std::thread::sleep(SHORT / 10);
            slow.write_all(&[1]).is_ok()
        });
        assert!(pieces.count() < 8191, "it goes on without end");
        // The deadline applies to payload only.
        let mut late = chosen(connect());
        std::thread::sleep(2 * SHORT);
        late.write_all(&request(0, 3, 0, 0)).expect("sent");
        assert_eq!(error(&mut late), 0);
    });
}

#[test]
fn a_client_that_reads_no_replies_delays_no_other_client() {
    with_limits(Limits { payload: LONG, reply: LONG, end: SHORT }, |connect| {
        let mut deaf = chosen(connect());
        // More than all of the memory.
        (0..64).for_each(|_| deaf.write_all(&request(0, 0, 0, 256 << 10)).expect("sent"));
        // The first reply has been sent in part, the rest is outstanding.
        deaf.read_exact(&mut [0; 16]).expect("a reply");
        let mut bystander = chosen(connect());
        bystander.write_all(&request(0, 0, 0, 512 << 10)).expect("sent");
        assert_eq!(error(&mut bystander), 0);
        bystander.read_exact(&mut vec![0; 512 << 10]).expect("all of it");
        // Nor does it prevent the server from stopping.
        std::mem::forget(deaf);
    });
}
