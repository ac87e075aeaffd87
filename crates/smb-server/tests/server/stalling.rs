//! Clients that hold memory because they do not respond: the memory and the time are bounded.

use std::task::{Context, Poll};
use std::time::Duration;

use arena::{Arena, IoBuf, Sg};
use env::Env;
use rdma::{Completion, Down, Exposed, Exposure, QueuePair, QueuePairCaps, RdmaError, Rights, Wr, WrId, sim};
use smb_client::{Client, ConnectOptions, OpenOptions};
use smb_server::Limits;
use tokio::time::Instant;

use crate::world::{World, credentials};

const MIB: usize = 1 << 20;

/// The requests that the peer never answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Never {
    Reads,
    Writes,
}

/// The server's queue pair with a peer that never answers RDMA Reads or never accepts RDMA Writes, so that these never
/// complete.
struct Stuck {
    inner: sim::SimQueuePair,
    never: Never,
    held: Vec<Wr>,
}

impl QueuePair for Stuck {
    fn caps(&self) -> QueuePairCaps {
        self.inner.caps()
    }

    fn expose(&mut self, what: Exposed, rights: Rights) -> Result<Exposure, RdmaError> {
        self.inner.expose(what, rights)
    }

    fn post(&mut self, id: WrId, wr: Wr) -> Result<(), (RdmaError, Wr)> {
        let held = match &wr {
            Wr::Read { .. } => self.never == Never::Reads,
            Wr::Write { .. } => self.never == Never::Writes,
            _ => false,
        };
        if held {
            self.held.push(wr);
            return Ok(());
        }
        self.inner.post(id, wr)
    }

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Vec<Completion>) -> Poll<Result<(), Down>> {
        self.inner.poll(cx, out)
    }

    fn close(&mut self) {
        self.held.clear();
        self.inner.close();
    }

    fn exposed(&self) -> usize {
        self.inner.exposed()
    }
}

/// The server's end is stuck; the client has an arena of its own and a file of some MiB.
async fn stuck(world: &World, never: Never) -> (tokio::task::JoinHandle<()>, smb_client::File) {
    let (ours, theirs) = sim::pair(sim::Options::new(world.env.clone()));
    let serving = world.serve_direct(Box::new(Stuck { inner: theirs, never, held: Vec::new() }));
    let options = ConnectOptions::new(credentials("alice"));
    let arena = Arena::new(256 * MIB).expect("memory");
    let client = Client::connect_over(Box::new(ours), "world", options, arena, world.env.clone());
    let tree = client.await.expect("a session").tree("ram").await.expect("a share");
    let file = tree.open("f", OpenOptions::open_or_create()).await.expect("a file");
    (serving, file)
}

/// Sends a request every 50 s as long as the connection lasts; returns how long that was, and the most memory that the
/// server held.
async fn chatter(
    world: &World,
    serving: tokio::task::JoinHandle<()>,
    file: &smb_client::File,
) -> (Duration, usize) {
    let (start, mut most) = (Instant::now(), 0);
    let talk = async {
        loop {
            tokio::time::sleep(Duration::from_secs(50)).await;
            let _ = tokio::time::timeout(Duration::from_secs(1), file.submit_read(0, 64)).await;
        }
    };
    let watch = async {
        loop {
            most = most.max(world.arena.usage().used);
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::select! {
        _ = tokio::time::timeout(Duration::from_secs(600), serving) => {}
        () = talk => {}
        () = watch => {}
    }
    (start.elapsed(), most)
}

#[tokio::test(start_paused = true)]
async fn reads_that_are_never_answered() {
    let world = World::new(Env::simulated(3), 64 * MIB, Limits::default());
    let (serving, file) = stuck(&world, Never::Reads).await;
    let data: Sg = [IoBuf::from(vec![7; MIB])].into_iter().collect();
    let calls: Vec<_> = (0..48).map(|_| file.submit_write(0, data.clone())).collect();
    let (lasted, most) = chatter(&world, serving, &file).await;
    drop(calls);
    assert!(lasted < Duration::from_secs(130), "{lasted:?}");
    assert!((MIB..16 * MIB).contains(&most), "{most} bytes were held");
}

#[tokio::test(start_paused = true)]
async fn writes_that_are_never_taken() {
    let world = World::new(Env::simulated(4), 64 * MIB, Limits::default());
    let (serving, file) = stuck(&world, Never::Writes).await;
    let data: Sg = [IoBuf::from(vec![7; MIB])].into_iter().collect();
    for i in 0..4 {
        file.submit_write(i * MIB as u64, data.clone()).await.expect("written");
    }
    let calls: Vec<_> = (0..48).map(|_| file.submit_read(0, MIB as u32)).collect();
    let (lasted, most) = chatter(&world, serving, &file).await;
    drop(calls);
    assert!(lasted < Duration::from_secs(130), "{lasted:?}");
    assert!(most < 32 * MIB, "{most} bytes were held");
}
