//! Connections over `iwarp` on the loopback interface, and tshark's dissection of their bytes.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::pair::{CLIENT, Ends, SERVER, bytes, payload};
use arena::{Arena, Class, sg_to_vec};
use env::Env;
use rdma::iwarp::{Crc, Listener, Options, connect};
use rdma::{Exposed, Rights};
use smb_direct::{BufferDescriptorV1, Event, SmbDirect, SmbDirectOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn small() -> SmbDirectOptions {
    SmbDirectOptions { max_send_size: 1364, max_receive_size: 1364, ..SmbDirectOptions::default() }
}

/// The messages that passed the relay, in order, and whether the client sent each.
type Recording = Arc<Mutex<Vec<(bool, Vec<u8>)>>>;

async fn connected(options: Options, recording: Option<Recording>) -> Ends {
    let (env, arena) = (Env::real(), Arena::new(32 << 20).expect("a mapping"));
    let listener = Listener::bind(ANY, env.clone(), options.clone()).await.expect("a port");
    let mut to = listener.local_addr().expect("bound");
    if let Some(recording) = recording {
        to = relay(to, recording).await;
    }
    let depths = (options.ird, options.ord);
    let passive = async {
        let incoming = listener.accept().await.expect("a connection").request().await.expect("a request");
        let qp = incoming.accept(&[], depths.0, depths.1).await.expect("accepted");
        SmbDirect::accept(Box::new(qp), arena.clone(), env.clone(), small()).await
    };
    let active = async {
        let (qp, _) = connect(to, env.clone(), &[], options).await.expect("connected");
        SmbDirect::connect(Box::new(qp), arena.clone(), env.clone(), small()).await
    };
    let both = async { tokio::join!(active, passive) };
    let (client, server) = tokio::time::timeout(Duration::from_secs(20), both).await.expect("in time");
    Ends { ends: [client.expect("negotiated"), server.expect("negotiated")], arena }
}

#[tokio::test]
async fn messages_and_transfers() {
    for crc in [Crc::IfRequested, Crc::Require] {
        let mut ends = connected(Options { crc, ord: 2, ..Options::default() }, None).await;
        for n in [1, 1340, 1341, 100_000, 1 << 20] {
            ends.client().send(payload(&bytes(n, 1), 5000), None).expect("it fits");
            assert!(ends.message(SERVER).await == bytes(n, 1), "{n}");
            ends.server().send(payload(&bytes(n, 2), 5000), None).expect("it fits");
            assert!(ends.message(CLIENT).await == bytes(n, 2), "{n}");
        }
        for n in [1, 8192, 1_000_000] {
            let what = Exposed::Sink { bufs: ends.sinks(n), length: n as u32 };
            let sink = ends.client().expose(what, Rights::RemoteWrite).expect("a registration");
            let source = Exposed::Source(payload(&bytes(n, 3), 4096));
            let source = ends.client().expose(source, Rights::RemoteRead).expect("a registration");
            ends.client().send(payload(b"go", 2), None).expect("it fits");
            assert_eq!(ends.message(SERVER).await, b"go");

            let half = (n / 2) as u32;
            let from = BufferDescriptorV1::from(source);
            let from = [
                BufferDescriptorV1 { length: half, ..from },
                BufferDescriptorV1 {
                    offset: from.offset + u64::from(half),
                    length: from.length - half,
                    ..from
                },
            ];
            let sinks = ends.sinks(n);
            ends.server().rdma_read(1, &from, sinks).expect("it fits");
            let Event::RdmaDone { id: 1, result: Ok(Some(got)) } = ends.of(SERVER).await else {
                panic!("no data")
            };
            assert!(got.iter().flat_map(|b| b.to_vec()).eq(bytes(n, 3)), "{n}");
            ends.server().rdma_write(2, payload(&bytes(n, 4), 4096), &[sink.into()]).expect("it fits");
            ends.server().send(payload(b"done", 4), Some(sink.stag)).expect("it fits");
            let (mut written, mut told) = (false, false);
            while !(written && told) {
                match ends.next().await {
                    (SERVER, Ok(Event::RdmaDone { id: 2, result: Ok(None) })) => written = true,
                    (
                        CLIENT,
                        Ok(Event::Message {
                            data,
                            invalidated: Some((stag, Exposed::Sink { mut bufs, .. })),
                        }),
                    ) => {
                        assert_eq!((sg_to_vec(&data), stag), (b"done".to_vec(), sink.stag));
                        let placed = bufs.iter_mut().flat_map(|b| b.space().to_vec()).take(n);
                        assert!(placed.eq(bytes(n, 4)), "{n}");
                        told = true;
                    }
                    other => panic!("{other:?}"),
                }
            }
            ends.client().invalidate(source.stag).expect("it is open");
            assert!(matches!(ends.of(CLIENT).await, Event::Invalidated { result: Ok(_), .. }));
        }
        assert_eq!(ends.client().counters().memory_regions, 0);
        let arena = ends.arena.clone();
        ends.client().close();
        assert!(ends.client().event().await.is_err());
        drop(ends);
        assert_eq!(arena.usage().used, 0);
    }
}

/// Many messages both ways at once, with few credits at the start.
#[tokio::test]
async fn both_ends_send_at_once() {
    let mut ends = connected(Options::default(), None).await;
    for i in 0..500 {
        ends.client().send(payload(&bytes(i * 13 % 4000 + 1, i), 900), None).expect("it fits");
        ends.server().send(payload(&bytes(i * 17 % 4000 + 1, i), 900), None).expect("it fits");
    }
    let mut seen = [0; 2];
    while seen != [500; 2] {
        let (side, event) = ends.next().await;
        let Ok(Event::Message { data, .. }) = event else { panic!("{event:?}") };
        let (i, step) = (seen[side], if side == SERVER { 13 } else { 17 });
        assert!(sg_to_vec(&data) == bytes(i * step % 4000 + 1, i), "message {i} to {side}");
        seen[side] += 1;
    }
}

/// An independent decoder reads this crate's messages: negotiation, grants, fragments, Send with Invalidate.
#[tokio::test]
async fn tshark_dissects_it() {
    if Command::new("tshark").arg("--version").output().is_err() {
        eprintln!("SKIPPED: tshark is not installed, so our SMB Direct messages are not checked");
        return;
    }
    let recording = Recording::default();
    let options = Options { max_fpdu: Some(1448), ..Options::default() };
    let mut ends = connected(options, Some(Arc::clone(&recording))).await;
    ends.client().send(payload(&bytes(3000, 1), 3000), None).expect("it fits");
    assert_eq!(ends.message(SERVER).await, bytes(3000, 1));
    let what =
        Exposed::Sink { bufs: ends.arena.try_alloc_sg(4096, Class::Payload).expect("memory"), length: 4096 };
    let sink = ends.client().expose(what, Rights::RemoteWrite).expect("a registration");
    ends.server().send(payload(&bytes(100, 1), 3000), Some(sink.stag)).expect("it fits");
    assert!(matches!(ends.of(CLIENT).await, Event::Message { invalidated: Some(_), .. }));

    let file = std::env::temp_dir().join(format!("smb-direct-{}.pcap", std::process::id()));
    std::fs::File::create(&file)
        .and_then(|mut f| f.write_all(&pcap(&recording.lock().expect("whole"))))
        .expect("a file");
    let fields = [
        "tcp.srcport",
        "smb_direct.version.min",
        "smb_direct.version.negotiated",
        "smb_direct.preferred_send_size",
        "smb_direct.max_fragmented_size",
        "smb_direct.remaining_length",
        "smb_direct.data_offset",
        "smb_direct.data_length",
        "_ws.malformed",
        "iwarp_rdma.opcode",
    ];
    let tshark = Command::new("tshark")
        .args([
            "-o",
            "tcp.try_heuristic_first:TRUE",
            "-o",
            "tcp.desegment_tcp_streams:FALSE",
            "-Y",
            // Grants are excluded: their timing is not deterministic.
            "smb_direct && !(smb_direct.data_length == 0)",
            "-r",
        ])
        .arg(&file)
        .args(["-T", "fields", "-E", "separator=,"])
        .args(fields.iter().flat_map(|f| ["-e", f]))
        .output()
        .expect("tshark runs");
    std::fs::remove_file(&file).expect("it is there");
    let text = String::from_utf8_lossy(&tshark.stdout);
    let want = [
        "40000,0x0100,,1364,1114112,,,,,0x03",
        "5445,0x0100,0x0100,1364,1114112,,,,,0x03",
        "40000,,,,,1660,24,1340,,0x03",
        "40000,,,,,320,24,1340,,0x03",
        "40000,,,,,0,24,320,,0x03",
        "5445,,,,,0,24,100,,0x04", // Send with Invalidate (RFC 5040 4.3)
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), want, "{}", String::from_utf8_lossy(&tshark.stderr));
}

/// Relays bytes in both directions and records them.
async fn relay(to: SocketAddr, recording: Recording) -> SocketAddr {
    let listener = TcpListener::bind(ANY).await.expect("a port");
    let at = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        let (near, _) = listener.accept().await.expect("a connection");
        let far = TcpStream::connect(to).await.expect("connected");
        let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
        for (client, mut from, mut to) in [(true, near_in, far_out), (false, far_in, near_out)] {
            let recording = Arc::clone(&recording);
            tokio::spawn(async move {
                let mut buf = vec![0; 1 << 16];
                while let Ok(n @ 1..) = from.read(&mut buf).await {
                    recording.lock().expect("whole").push((client, buf[..n].to_vec()));
                    if to.write_all(&buf[..n]).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    at
}

/// Encodes a recording as a capture file with invented Ethernet, IPv4 and TCP headers, one packet per MPA frame or
/// FPDU.
fn pcap(recording: &[(bool, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [0xA1B2_C3D4_u32, 0x0004_0002, 0, 0, 65535, 1] {
        out.extend(word.to_le_bytes());
    }
    let (mut streams, mut sequence, mut started) = ([vec![], vec![]], [1u32, 1], [false; 2]);
    for (client, chunk) in recording {
        let side = usize::from(!client);
        streams[side].extend_from_slice(chunk);
        while let Some(n) = unit(&streams[side], started[side]) {
            started[side] = true;
            let data: Vec<u8> = streams[side].drain(..n).collect();
            let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
            packet.extend((40 + n as u16).to_be_bytes());
            packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
            let (from, to) = if *client { (1, 2) } else { (2, 1) };
            packet.extend([10, 0, 0, from, 10, 0, 0, to]);
            let (from, to) = if *client { (40_000u16, 5445u16) } else { (5445, 40_000) };
            packet.extend(from.to_be_bytes());
            packet.extend(to.to_be_bytes());
            packet.extend(sequence[side].to_be_bytes());
            packet.extend(sequence[1 - side].to_be_bytes());
            packet.extend([0x50, 0x18, 0xFF, 0xFF, 0, 0, 0, 0]);
            packet.extend(data);
            sequence[side] += n as u32;
            for word in [0, 0, packet.len() as u32, packet.len() as u32] {
                out.extend(word.to_le_bytes());
            }
            out.extend(packet);
        }
    }
    out
}

/// Length of the MPA frame (RFC 5044 7.1) or FPDU (RFC 5044 3) at the start of a stream; `None` if it is
/// incomplete.
fn unit(stream: &[u8], started: bool) -> Option<usize> {
    let length = |at: usize| Some(usize::from(u16::from_be_bytes([*stream.get(at)?, *stream.get(at + 1)?])));
    let n = if started { (2 + length(0)?).next_multiple_of(4) + 4 } else { 20 + length(18)? };
    (stream.len() >= n).then_some(n)
}
