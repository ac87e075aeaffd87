//! On the simulated fabric and memory, a seed replays a run: every byte that the server sends is the same again.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arena::{IoBuf, Sg};
use env::Env;
use parking_lot::Mutex;
use rdma::{Completion, Down, Exposed, Exposure, QueuePair, QueuePairCaps, RdmaError, Rights, Wr, WrId, sim};
use smb_client::{Client, ConnectOptions, OpenOptions, Tree};
use smb_server::Limits;

use crate::world::{World, credentials};

/// Everything that was sent, in order.
type Tape = Arc<Mutex<Vec<u8>>>;

/// A queue pair that records the messages sent through it.
struct Recorder<Q> {
    inner: Q,
    tape: Tape,
}

impl<Q: QueuePair> QueuePair for Recorder<Q> {
    fn caps(&self) -> QueuePairCaps {
        self.inner.caps()
    }

    fn expose(&mut self, what: Exposed, rights: Rights) -> Result<Exposure, RdmaError> {
        self.inner.expose(what, rights)
    }

    fn post(&mut self, id: WrId, wr: Wr) -> Result<(), (RdmaError, Wr)> {
        let mut tape = self.tape.lock();
        let kept = match &wr {
            Wr::Send { sg, invalidate } => Some((sg, format!("send {invalidate:?}"))),
            Wr::Write { src, to } => Some((src, format!("write {to:?}"))),
            Wr::Read { from, .. } => {
                tape.extend(format!("read {from:?}").bytes());
                None
            }
            Wr::Recv(_) | Wr::Invalidate(_) => None,
        };
        if let Some((sg, what)) = kept {
            tape.extend(what.bytes());
            sg.iter().for_each(|b| tape.extend_from_slice(b));
        }
        drop(tape);
        self.inner.post(id, wr)
    }

    fn poll(&mut self, cx: &mut Context<'_>, out: &mut Vec<Completion>) -> Poll<Result<(), Down>> {
        self.inner.poll(cx, out)
    }

    fn close(&mut self) {
        self.inner.close();
    }

    fn exposed(&self) -> usize {
        self.inner.exposed()
    }
}

fn sg(length: usize, salt: usize) -> Sg {
    let bytes: Vec<u8> = (0..length).map(|i| (i * 31 + i / 251 + salt) as u8).collect();
    [IoBuf::from(bytes)].into_iter().collect()
}

/// The operations of one client: names, listings, I/O of all sizes and in parallel, failing requests.
async fn script(tree: &Tree, who: usize) {
    let dir = format!("d{who}");
    tree.create_dir(&dir).await.expect("made");
    for i in 0..40 {
        let name = format!("{dir}/file {i}");
        let file = tree.open(&name, OpenOptions::create()).await.expect("created");
        let length = [10, 5000, 70_000, 300_000][i % 4];
        file.write_at(0, sg(length, i)).await.expect("written");
        let calls: Vec<_> = (0..8u64).map(|k| file.submit_read(k * 1000, 60_000)).collect();
        for (k, call) in calls.into_iter().enumerate() {
            // A READ behind the end of the file fails with END_OF_FILE.
            let outcome = call.await;
            assert!(outcome.is_ok() || k > 0);
        }
        if i % 3 == 0 {
            file.close().await.expect("closed");
        } else if i % 3 == 1 {
            file.metadata().await.expect("metadata");
        }
    }
    assert_eq!(tree.read_dir(&dir, "*").await.expect("opened").all().await.expect("listed").len(), 40);
    tree.rename(&format!("{dir}/file 3"), &format!("{dir}/FILE three"), false).await.expect("renamed");
    tree.remove_file(&format!("{dir}/file 4")).await.expect("removed");
    assert!(tree.stat(&format!("{dir}/file 4")).await.is_err());
    assert!(tree.remove_dir(&dir).await.is_err());
    tree.space().await.expect("space");
}

/// Three clients at once over a fabric with latency and jitter; returns what the server sent to each.
fn run(seed: u64) -> Vec<Vec<u8>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let env = Env::simulated(seed);
        let world = World::new(env.clone(), 64 << 20, Limits::default());
        let tapes: Vec<Tape> = (0..3).map(|_| Tape::default()).collect();
        let mut clients = Vec::new();
        for (who, tape) in tapes.iter().enumerate() {
            let mut options = sim::Options::new(env.clone());
            options.latency = Duration::from_micros(20);
            options.jitter = Duration::from_millis(2);
            options.reorder = true;
            let (ours, theirs) = sim::pair(options);
            let serving = world.serve_direct(Box::new(Recorder { inner: theirs, tape: Arc::clone(tape) }));
            let mut options = ConnectOptions::new(credentials("alice"));
            options.encrypt = who == 2;
            let (arena, env) = (world.arena.clone(), env.clone());
            clients.push(tokio::spawn(async move {
                let client =
                    Client::connect_over(Box::new(ours), "world", options, arena, env).await.expect("in");
                let tree = client.tree("ram").await.expect("the share");
                script(&tree, who).await;
                client.shares().await.expect("listed");
                client.logoff().await.expect("logged off");
                drop((tree, client));
                serving.await.expect("served");
            }));
        }
        for client in clients {
            client.await.expect("it worked");
        }
        assert!(world.server.sessions().is_empty());
        tapes.iter().map(|t| std::mem::take(&mut *t.lock())).collect()
    })
}

#[test]
fn a_seed_replays_byte_for_byte() {
    let (first, again, other) = (run(11), run(11), run(12));
    assert!(first.iter().all(|t| t.len() > 100_000), "little was sent");
    for (who, (a, b)) in first.iter().zip(&again).enumerate() {
        let differs = a.iter().zip(b).position(|(a, b)| a != b);
        assert_eq!((differs, a.len()), (None, b.len()), "client {who}: the first byte that differs");
    }
    for (a, b) in first.iter().zip(&other) {
        assert_ne!(a, b, "another seed says the same");
    }
}
