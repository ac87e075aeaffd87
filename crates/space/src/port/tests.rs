use disk::{DiskError, DiskInfo, MemoryDisk, MemoryOptions};
use env::Io;
use futures_util::FutureExt;
use pool_seam::Resiliency;
use proptest::prelude::*;

use super::*;
use crate::tests::TestLease;
use crate::view::tests::view;

/// The access of a port with a valid lease.
pub(crate) fn access(env: &Env, epoch: u64) -> Access {
    Access { env: env.clone(), lease: Arc::new(TestLease::new()), epoch: Epoch(epoch) }
}

/// A disk whose calls complete when a test completes them.
struct Manual {
    info: DiskInfo,
    writes: Mutex<Vec<Option<Callback<Written>>>>,
    reads: Mutex<Vec<Option<Callback<Read>>>>,
    /// Flushes and discards.
    others: Mutex<Vec<Option<tokio::sync::oneshot::Sender<Written>>>>,
}

impl Manual {
    fn new() -> Arc<Manual> {
        let info = MemoryDisk::new(&MemoryOptions::new("manual", 1 << 20)).info().clone();
        let (writes, reads, others) = Default::default();
        Arc::new(Manual { info, writes, reads, others })
    }

    fn other(&self) -> Io<Written> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        self.others.lock().push(Some(sender));
        Io::pending(
            async move { receiver.await.unwrap_or_else(|_| Outcome::unknown(IoRange::whole(Op::Flush))) },
        )
    }

    fn calls(&self) -> usize {
        self.writes.lock().len() + self.reads.lock().len() + self.others.lock().len()
    }
}

impl Disk for Manual {
    fn info(&self) -> &DiskInfo {
        &self.info
    }
    fn read(&self, _: &Ctx, _: u64, _: SgMut) -> Io<Read> {
        unreachable!("ports use callbacks")
    }
    fn read_then(&self, _: &Ctx, _: u64, _: SgMut, then: Callback<Read>) {
        self.reads.lock().push(Some(then));
    }
    fn write(&self, _: &Ctx, _: u64, _: Sg) -> Io<Written> {
        unreachable!("ports use callbacks")
    }
    fn write_then(&self, c: &Ctx, _: u64, _: Sg, then: Callback<Written>) {
        assert_eq!(c.epoch, Epoch(9));
        self.writes.lock().push(Some(then));
    }
    fn flush(&self, _: &Ctx) -> Io<Written> {
        self.other()
    }
    fn discard(&self, _: &Ctx, _: u64, _: u64) -> Io<Written> {
        self.other()
    }
    fn fence(&self, _: &Ctx, _: Epoch) -> Io<Written> {
        unreachable!("ports do not fence")
    }
}

/// Keeps each result that it receives, and the port's state at that moment.
#[derive(Default)]
struct Caller {
    port: Mutex<Option<Arc<Port>>>,
    told: Mutex<Vec<(usize, Written, u64)>>,
}

impl Completion<Written> for Caller {
    fn completed(self: Arc<Caller>, which: usize, outcome: Written) {
        let unflushed = self.port.lock().as_ref().map_or(0, |port| port.stats().unflushed);
        self.told.lock().push((which, outcome, unflushed));
    }
}

impl Completion<Read> for Caller {
    fn completed(self: Arc<Caller>, which: usize, (outcome, _): Read) {
        Completion::<Written>::completed(self, which, outcome);
    }
}

const AT: IoRange = IoRange { op: Op::Write, offset: 0, length: 0 };
const BROKEN: DiskError = DiskError::Medium { at: AT };

fn port(disk: &Arc<Manual>) -> (Arc<Port>, Arc<Caller>) {
    let disk: Arc<dyn Disk> = Arc::clone(disk) as Arc<dyn Disk>;
    let port = Port::new(DiskNumber(1), Membership(4), disk, access(&Env::simulated(1), 9));
    let caller = Arc::<Caller>::default();
    *caller.port.lock() = Some(Arc::clone(&port));
    (port, caller)
}

fn then<T: Outcome>(caller: &Arc<Caller>, which: usize) -> Callback<T>
where
    Caller: Completion<T>,
{
    let caller: Arc<Caller> = Arc::clone(caller);
    Callback::new(caller, which, AT)
}

/// A call in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Write,
    Through,
    Flush,
    Discard,
    Read,
}

#[derive(Clone, Debug)]
enum Step {
    Begin(Call),
    Complete(prop::sample::Index, bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let calls =
        prop::sample::select(vec![Call::Write, Call::Through, Call::Flush, Call::Discard, Call::Read]);
    let complete = (any::<prop::sample::Index>(), prop::bool::weighted(0.8));
    let step =
        prop_oneof![calls.prop_map(Step::Begin), complete.prop_map(|(at, is_ok)| Step::Complete(at, is_ok)),];
    prop::collection::vec(step, 1..50)
}

/// All calls in order: the kind, the index among the disk's calls of this kind, and how many writes had completed
/// when it began.
type Begun = Vec<(Call, usize, usize)>;

async fn run(steps: &[Step], ends_at: usize) {
    let disk = Manual::new();
    let (port, caller) = port(&disk);
    let mut begun: Begun = Vec::new();
    let mut outstanding: Vec<usize> = Vec::new();
    // Whether each write is durable, in the order of completion.
    let mut durable: Vec<bool> = Vec::new();
    let mut expected = 0;
    for (number, step) in steps.iter().enumerate() {
        if number == ends_at {
            end(&disk, &port, &caller, &outstanding).await;
            return;
        }
        match step {
            Step::Begin(call) => {
                let which = begun.len();
                let sort = match call {
                    Call::Write | Call::Through => disk.writes.lock().len(),
                    Call::Read => disk.reads.lock().len(),
                    Call::Flush | Call::Discard => disk.others.lock().len(),
                };
                match call {
                    Call::Write => port.write_then(0, Sg::new(), false, then(&caller, which)),
                    Call::Through => port.write_then(0, Sg::new(), true, then(&caller, which)),
                    Call::Flush => port.flush_then(then(&caller, which)),
                    Call::Discard => port.discard_then(0, 4096, then(&caller, which)),
                    Call::Read => port.read_then(0, SgMut::new(), then(&caller, which)),
                }
                begun.push((*call, sort, durable.len()));
                outstanding.push(which);
            }
            Step::Complete(..) if outstanding.is_empty() => {}
            Step::Complete(at, is_ok) => {
                let which = outstanding.remove(at.index(outstanding.len()));
                let (call, sort, before) = begun[which];
                let outcome = if *is_ok { Ok(()) } else { Err(BROKEN) };
                complete(&disk, call, sort, outcome).await;
                match (call, is_ok) {
                    (Call::Write | Call::Discard, _) | (Call::Through, false) => durable.push(false),
                    (Call::Flush, true) => durable[..before].fill(true),
                    _ => {}
                }
                expected += 1;
                let unflushed = durable.iter().filter(|is_durable| !**is_durable).count() as u64;
                let told = caller.told.lock();
                assert_eq!((told.len(), told.last()), (expected, Some(&(which, outcome, unflushed))));
            }
        }
        let unflushed = durable.iter().filter(|is_durable| !**is_durable).count() as u64;
        let stats = port.stats();
        assert_eq!((stats.outstanding, stats.unflushed), (outstanding.len() as u64, unflushed));
        assert_eq!(port.is_dirty(), unflushed > 0);
    }
    end(&disk, &port, &caller, &outstanding).await;
}

async fn complete(disk: &Manual, call: Call, sort: usize, outcome: Written) {
    match call {
        Call::Write | Call::Through => {
            let then = disk.writes.lock()[sort].take().expect("outstanding");
            then.complete(outcome);
        }
        Call::Read => {
            let then = disk.reads.lock()[sort].take().expect("outstanding");
            then.complete((outcome, SgMut::new()));
        }
        Call::Flush | Call::Discard => {
            let other = disk.others.lock()[sort].take().expect("outstanding");
            other.send(outcome).expect("the port waits for it");
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Every outstanding call fails once, with an unknown result, and gets no other.
async fn end(disk: &Arc<Manual>, port: &Arc<Port>, caller: &Arc<Caller>, outstanding: &[usize]) {
    caller.told.lock().clear();
    port.end();
    let unknown = Err(DiskError::Timeout { at: AT });
    let mut told: Vec<_> = caller.told.lock().drain(..).map(|(which, outcome, _)| (which, outcome)).collect();
    told.sort_unstable_by_key(|(which, _)| *which);
    assert_eq!(told, outstanding.iter().map(|which| (*which, unknown)).collect::<Vec<_>>());
    let before = port.stats();
    assert_eq!(before.outstanding, outstanding.len() as u64, "the disk works on them still");
    let calls = disk.calls();
    port.write_then(0, Sg::new(), false, then(caller, 99));
    port.flush_then(then(caller, 99));
    port.read_then(0, SgMut::new(), then(caller, 99));
    assert_eq!(caller.told.lock().iter().map(|t| (t.0, t.1)).collect::<Vec<_>>(), [(99, unknown); 3]);
    assert_eq!(disk.calls(), calls);
    // The disk completes its calls late.
    std::mem::take(&mut *disk.writes.lock()).into_iter().flatten().for_each(|then| then.complete(Ok(())));
    std::mem::take(&mut *disk.reads.lock()).into_iter().flatten().for_each(drop);
    let others = std::mem::take(&mut *disk.others.lock());
    others.into_iter().flatten().for_each(|other| other.send(Ok(())).expect("the port waits for it"));
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
    let after = PortStats { outstanding: 0, ..before };
    assert_eq!((caller.told.lock().len(), port.stats()), (3, after));
    *caller.port.lock() = None;
}

proptest! {
    /// When a caller receives a write's completion, the write counts as not durable; a flush makes the writes durable
    /// that had completed when it began, and no others.
    #[test]
    fn what_is_not_durable_is_counted(steps in steps(), ends_at in 0..60_usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(run(&steps, ends_at));
    }
}

/// The disks that were opened, in their order.
type Opened = Arc<Mutex<Vec<(DiskNumber, Arc<Manual>)>>>;

fn ports(opened: &Opened) -> Ports {
    let opened = Arc::clone(opened);
    Ports::new(access(&Env::simulated(1), 9), move |number, _| {
        let disk = Manual::new();
        opened.lock().push((number, Arc::clone(&disk)));
        // A disk that this process cannot reach.
        (number.0 != 5).then_some(disk as Arc<dyn Disk>)
    })
}

/// The view with another membership of one disk.
fn with(number: u64, disk: u16, of: Option<Membership>) -> SpaceView {
    let mut view = view(number, Resiliency::Simple, Vec::new());
    let mut disks = (*view.disks).clone();
    disks.get_mut(&DiskNumber(disk)).expect("a disk").membership = of;
    view.disks = Arc::new(disks);
    view
}

#[test]
fn ports_end_with_their_membership() {
    let (disks, caller) = (Opened::default(), Arc::<Caller>::default());
    let ports = ports(&disks);
    ports.follow(&with(2, 0, Some(Membership(1))));
    assert_eq!(
        ports.stats().iter().map(|p| p.disk.0).collect::<Vec<_>>(),
        [0, 1, 2, 4],
        "3 is absent, 5 away"
    );
    let old = ports.get(DiskNumber(0), Membership(1)).expect("in service");
    old.write_then(0, Sg::new(), false, then(&caller, 1));
    ports.follow(&with(1, 0, None));
    assert!(caller.told.lock().is_empty(), "an older view changes nothing");
    ports.follow(&with(3, 0, Some(Membership(7))));
    assert_eq!(caller.told.lock().len(), 1);
    assert!(ports.get(DiskNumber(0), Membership(1)).is_none());
    assert!(ports.get(DiskNumber(0), Membership(7)).is_none(), "an old write may follow a new one");
    let reopen = || ports.reopen(DiskNumber(0), Membership(7)).now_or_never();
    assert!(reopen().is_none() && ports.drained(DiskNumber(0)).now_or_never().is_none());
    disks.lock()[0].1.writes.lock()[0].take().expect("outstanding").complete(Ok(()));
    assert!(ports.drained(DiskNumber(0)).now_or_never().is_some());
    let new = reopen().flatten().expect("in service again");
    let again = reopen().flatten().expect("it is there");
    assert!(Arc::ptr_eq(&new, &again), "it is opened once");
    assert!(!new.is_dirty() && !old.is_dirty(), "what the old handle answers is ignored");
    assert_eq!(caller.told.lock().len(), 1);
    assert!(old.has_ended() && !ports.has_failed(&old), "its disk has left");
    new.end();
    assert!(ports.has_failed(&new), "its disk stays");
}

/// Fault 6 of the design: a disk joins while a checkpoint writes to it; the flushes that follow include it.
#[test]
fn a_disk_that_joins_in_a_checkpoint_is_flushed() {
    let (disks, caller) = (Opened::default(), Arc::<Caller>::default());
    let ports = ports(&disks);
    ports.follow(&with(1, 0, None));
    assert!(ports.dirty().is_empty());
    ports.follow(&with(2, 0, Some(Membership(7))));
    let port = ports.get(DiskNumber(0), Membership(7)).expect("it has joined");
    port.write_then(0, Sg::new(), false, then(&caller, 1));
    assert!(ports.dirty().is_empty(), "it is not complete");
    let disk = disks.lock().iter().find(|(number, _)| number.0 == 0).expect("opened").1.clone();
    disk.writes.lock()[0].take().expect("outstanding").complete(Ok(()));
    assert_eq!(ports.dirty().iter().map(|p| p.number()).collect::<Vec<_>>(), [DiskNumber(0)]);
}

#[test]
fn no_write_begins_without_the_lease() {
    let lease = Arc::new(TestLease::new());
    let access = Access { lease: Arc::<TestLease>::clone(&lease), ..access(&Env::simulated(1), 9) };
    let disk = Arc::new(MemoryDisk::new(&MemoryOptions::new("memory", 1 << 20)));
    let port = Port::new(DiskNumber(1), Membership(4), Arc::<MemoryDisk>::clone(&disk), access);
    lease.0.send_replace(false);
    let ones = || Sg::from_iter([arena::IoBuf::from(vec![1; 4096])]);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let mut calls =
            Box::pin(async { tokio::join!(port.write(0, ones(), false), port.discard(8192, 4096)) });
        assert!((&mut calls).now_or_never().is_none());
        assert_eq!(port.stats().outstanding, 2);
        lease.0.send_replace(true);
        assert_eq!(calls.await, (Ok(()), Ok(())));
    });
}
