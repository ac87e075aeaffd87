//! The conformance suite over TCP on the loopback interface, with the variants of the wire format.

use std::net::{Ipv4Addr, SocketAddr};

use env::Env;

use crate::conformance::{Pair, PairOptions, conformance};
use crate::iwarp::{Crc, IwarpQueuePair, Listener, Options, connect};

pub(super) const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Two queue pairs connected over loopback; the first is the initiator.
pub(super) async fn connected(options: Options) -> (IwarpQueuePair, IwarpQueuePair) {
    let listener = Listener::bind(ANY, Env::real(), options.clone()).await.expect("a port");
    let addr = listener.local_addr().expect("bound");
    let (depths, timeout) = ((options.ird, options.ord), options.setup_timeout);
    let responder = async {
        let arriving = listener.accept().await.expect("a connection");
        let incoming = arriving.request().await.expect("a request");
        assert_eq!(incoming.private_data, b"from the initiator");
        incoming.accept(b"from the responder", depths.0, depths.1).await.expect("accepted")
    };
    let initiator = connect(addr, Env::real(), b"from the initiator", options);
    let both = async { tokio::join!(initiator, responder) };
    let (initiator, responder) = tokio::time::timeout(timeout, both).await.expect("in time");
    let (qp, private_data) = initiator.expect("connected");
    assert_eq!(private_data, b"from the responder");
    (qp, responder)
}

fn options(shape: PairOptions) -> Options {
    Options {
        ird: shape.ird,
        ord: shape.ord,
        max_wr: shape.max_wr,
        max_regions: shape.max_regions,
        peer_to_peer: true, // in these tests either side may send first
        ..Options::default()
    }
}

mod without_crc {
    use super::*;

    async fn make(shape: PairOptions) -> Pair {
        let (a, b) = connected(options(shape)).await;
        Pair::new(a, b)
    }

    conformance!(make);
}

mod with_crc {
    use super::*;

    async fn make(shape: PairOptions) -> Pair {
        let (a, b) = connected(Options { crc: Crc::Require, ..options(shape) }).await;
        Pair::new(a, b)
    }

    conformance!(make);
}

mod small_segments {
    use super::*;

    async fn make(shape: PairOptions) -> Pair {
        let (a, b) = connected(Options { max_fpdu: Some(1448), ..options(shape) }).await;
        Pair::new(a, b)
    }

    conformance!(make);
}

mod responder_starts {
    use super::*;

    async fn make(shape: PairOptions) -> Pair {
        let (b, a) = connected(Options { max_fpdu: Some(512), crc: Crc::Require, ..options(shape) }).await;
        Pair::new(a, b)
    }

    conformance!(make);
}
