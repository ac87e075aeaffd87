//! Complete runs without SMB against a listener in this process; and both ends with unexpected peers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use bench::engine::{self, NoObserver, OpenError, RunError, Settings, SpanResults, TargetLocation};
use bench::fabric::{
    Bounds, ConnectionError, FabricAddress, FabricError, FabricTransport, Listener, ListenerEvent, Refusal,
};
use bench::options::{ParseContext, parse};

const CARRIERS: [FabricTransport; 2] = [FabricTransport::Iwarp, FabricTransport::Tcp];

/// A listener for the lifetime of the test program.
struct Peer {
    places: Vec<FabricAddress>,
    heard: Receiver<ListenerEvent>,
}

impl Peer {
    fn new(bounds: Bounds) -> Peer {
        let any = CARRIERS.map(|c| format!("{}://127.0.0.1:0", c.scheme()).parse().expect("a place"));
        let listener = Listener::bind(&any, bounds).expect("ports are free");
        let at =
            |(c, a): (FabricTransport, SocketAddr)| format!("{}://{a}", c.scheme()).parse().expect("a place");
        let places = listener.addresses().expect("addresses").into_iter().map(at).collect();
        let (tell, heard) = channel();
        std::thread::spawn(move || {
            listener.run(move |h| {
                let _ = tell.send(h);
            });
        });
        Peer { places, heard }
    }

    fn at(&self, transport: FabricTransport) -> String {
        let place = self.places.iter().find(|p| p.transport == transport);
        place.expect("it listens on both").to_string()
    }

    fn address(&self, transport: FabricTransport) -> SocketAddr {
        self.at(transport).split_once("://").expect("a place").1.parse().expect("an address")
    }

    /// The result of the next connection that ends.
    fn ended(&self) -> Result<(), ConnectionError> {
        loop {
            match self.heard.recv_timeout(Duration::from_secs(20)).expect("a connection ends") {
                ListenerEvent::Ended(_, how) => return how,
                ListenerEvent::Connected(_) | ListenerEvent::AcceptFailed(_) => {}
            }
        }
    }
}

fn try_run(options: &str, targets: &[&str], verify: bool) -> Result<SpanResults, RunError> {
    let args = options.split_whitespace().chain(targets.iter().copied()).map(str::to_owned);
    let world = ParseContext { read: &|path| std::fs::read_to_string(path), seed: 1 };
    let profile = parse(&args.collect::<Vec<_>>(), &world).expect("options").profile;
    let fabric = |t: &&str| Some(((*t).to_owned(), TargetLocation::Fabric(t.parse().ok()?)));
    let places = targets.iter().filter_map(fabric).collect();
    let settings = Settings { places, verify, ..Settings::default() };
    engine::run(&profile, &settings, &mut NoObserver).map(|mut spans| spans.remove(0))
}

fn refusal(options: &str, target: &str) -> OpenError {
    match try_run(options, &[target], false) {
        Err(RunError::Open(e)) => e,
        other => panic!("{options}: {other:?}"),
    }
}

#[test]
fn reads_and_writes_of_every_length_over_both() {
    let peer = Peer::new(Bounds::default());
    for transport in CARRIERS {
        let target = peer.at(transport);
        for options in [
            "-b1 -r -w50 -o4",
            "-b8K -r -w30 -o32 -L",
            "-b8K -r -w50 -o7 -Zr",
            "-b100K -w50 -o3 -t2 -T200K",
            "-b3M -r1M -w50 -o4",
            "-b16M -r -w100 -o2",
            "-b4K -r -g200i -o4 -L",
            "-b4K -r -w50 -F2 -O6",
        ] {
            let found = try_run(&format!("{options} -d1 -W0"), &[&target], false).expect(options);
            let (reads, writes) = found.targets().fold((0, 0), |s, t| (s.0 + t.read.ios, s.1 + t.write.ios));
            assert_eq!((found.errors(), found.unfinished), (0, 0), "{options}");
            assert!(reads + writes > 1, "{options}: {reads} {writes}");
            assert!(writes > 0 || !options.contains("-w"), "{options}");
            for t in found.targets() {
                assert_eq!((t.size, t.short), (1 << 40, 0), "{options}");
            }
            // The minimum of SMB Direct: one registration and one Send each; the peer's Send invalidates.
            let posted = found.posted().map(|(w, ios)| {
                assert_eq!((w.register, w.send, w.local_invalidate), (ios, ios, 0), "{options}");
                assert_eq!((w.remote_invalidations, w.receive), (ios, ios), "{options}");
            });
            assert_eq!(posted.is_some(), transport == FabricTransport::Iwarp, "{options}");
            for _ in &found.threads {
                assert!(peer.ended().is_ok(), "{options}");
            }
        }
    }
}

#[test]
fn one_thread_on_two_connections() {
    let (a, b) = (Peer::new(Bounds::default()), Peer::new(Bounds::default()));
    for transport in CARRIERS {
        let found = try_run("-b8K -r -w50 -F1 -o3 -d1 -W0", &[&a.at(transport), &b.at(transport)], false);
        let found = found.expect("a run");
        assert!(found.targets().all(|t| t.read.ios > 1 && t.write.ios > 1) && found.errors() == 0);
    }
    let mixed = try_run("-F1 -d1 -W0", &[&a.at(FabricTransport::Iwarp), &a.at(FabricTransport::Tcp)], false);
    assert!(matches!(mixed, Err(RunError::Open(OpenError::MixedPlaces))), "{mixed:?}");
}

#[test]
fn the_listener_is_bounded_and_says_so() {
    let peer = Peer::new(Bounds { size: 1 << 20, block: 64 << 10, depth: 8, connections: 2 });
    for transport in CARRIERS {
        let target = peer.at(transport);
        let why = |options: &str| match refusal(options, &target) {
            OpenError::Fabric { source, .. } => match *source {
                FabricError::Refused(why) => why,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        assert_eq!(why("-b65K -d1 -W0"), Refusal::Block { most: 64 << 10 });
        assert!(matches!(peer.ended(), Err(ConnectionError::Refused(Refusal::Block { .. }))));
        assert_eq!(why("-b4K -o9 -d1 -W0"), Refusal::Depth { most: 8 });
        assert!(matches!(peer.ended(), Err(ConnectionError::Refused(Refusal::Depth { .. }))));
        assert_eq!(why("-b4K -t3 -o2 -d1 -W0 -r"), Refusal::Full);
        for _ in 0..3 {
            let _ = peer.ended();
        }
        // I/O exactly at the listener's limits succeeds.
        let found = try_run("-b64K -o8 -w50 -d1 -W0", &[&target], false).expect("it is allowed");
        assert!(found.ios() > 16 && found.errors() == 0);
        assert!(peer.ended().is_ok());
    }
}

#[test]
fn options_for_what_keeps_bytes_are_refused() {
    let peer = Peer::new(Bounds::default());
    for transport in CARRIERS {
        let target = peer.at(transport);
        for options in ["-c1M -d1 -W0", "-Sm -d1 -W0"] {
            assert!(matches!(refusal(options, &target), OpenError::KeepsNothing { .. }), "{options}");
        }
        let verified = try_run("-b4K -d1 -W0", &[&target], true);
        assert!(
            matches!(verified, Err(RunError::Open(OpenError::KeepsNothing { option: "--verify", .. }))),
            "{verified:?}"
        );
    }
}

/// Another kind of server: it answers `says` to any input.
fn stranger(says: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.read(&mut [0; 16]).and_then(|_| stream.write_all(says));
        }
    });
    address
}

#[test]
fn other_servers_are_recognised() {
    let expect = |target: String| match refusal("-d1 -W0", &target) {
        OpenError::Fabric { source, .. } => *source,
        other => panic!("{target}: {other:?}"),
    };
    let web = stranger(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    let silent = stranger(b"");
    for transport in CARRIERS {
        let said = expect(format!("{}://{web}", transport.scheme()));
        assert!(matches!(said, FabricError::UnknownProtocol), "{said:?}");
        let said = expect(format!("{}://{silent}", transport.scheme()));
        assert!(matches!(said, FabricError::UnknownProtocol | FabricError::Unreachable(_)), "{said:?}");
        let said = expect(format!("{}://127.0.0.1:1", transport.scheme()));
        assert!(
            matches!(said, FabricError::Unreachable(_)) && said.to_string().contains("bench listen"),
            "{said:?}"
        );
    }
    // The protocol of one port on the other port.
    let peer = Peer::new(Bounds::default());
    for (say, port) in
        [(FabricTransport::Iwarp, FabricTransport::Tcp), (FabricTransport::Tcp, FabricTransport::Iwarp)]
    {
        let said = expect(format!("{}://{}", say.scheme(), peer.address(port)));
        assert!(matches!(said, FabricError::UnknownProtocol | FabricError::Unreachable(_)), "{said:?}");
        assert!(peer.ended().is_err());
    }
}

fn raw(peer: &Peer, depth: u8) -> TcpStream {
    let mut stream = TcpStream::connect(peer.address(FabricTransport::Tcp)).expect("it listens");
    let mut hello = *b"CWFABRIC\x01\0\0\0\0\x10\0\0\0\0\0\0\0\0\0\0";
    hello[16] = depth;
    stream.write_all(&hello).expect("it reads");
    let mut welcome = [0; 32];
    stream.read_exact(&mut welcome).expect("it answers");
    assert_eq!(welcome[12], 0);
    stream
}

#[test]
fn an_initiator_that_breaks_its_word_is_cut_off() {
    let peer = Peer::new(Bounds::default());
    // A length above the announcement; an unknown kind; an ID out of range.
    for request in [
        *b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        *b"\0\0\0\0\x07\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        *b"\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    ] {
        let mut stream = raw(&peer, 2);
        stream.write_all(&request).expect("it reads");
        assert_eq!(stream.read(&mut [0; 8]).unwrap_or(0), 0, "it hangs up");
        assert!(matches!(peer.ended(), Err(ConnectionError::Request)));
    }
    let mut stream = raw(&peer, 2);
    stream
        .write_all(b"\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0")
        .expect("it reads");
    let mut reply = [9; 10];
    stream.read_exact(&mut reply).expect("it answers");
    assert_eq!(&reply, b"\x01\0\0\0\x02\0\0\0\0\0", "and two zeros");
    drop(stream);
    assert!(peer.ended().is_ok());
}

/// A listener that dies during a run: outstanding I/Os fail, and the run reports it.
#[test]
fn a_listener_that_goes_away() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let target = format!("tcp://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("it comes");
        let mut hello = [0; 24];
        stream.read_exact(&mut hello).expect("it says hello");
        let mut welcome = [0; 32];
        welcome[..9].copy_from_slice(b"CWFABRIC\x01");
        welcome[21] = 1; // 1 TiB
        stream.write_all(&welcome).expect("it reads");
        stream.read_exact(&mut [0; 32]).expect("a request comes");
    });
    let found = try_run("-b4K -r -o4 -d60 -W0", &[&target], false);
    match found {
        Err(RunError::Failing { fault: engine::Fault::Lost, .. }) => {}
        other => panic!("{other:?}"),
    }
}
