//! Owners on several threads, in real time. This finds faults that the single-threaded histories cannot: missed
//! wake-ups between tasks, accesses without a lock, and deadlocks.
//!
//! Several users call one space. Each has its own units, in groups and stripes that all users share. Meanwhile disks
//! are pulled and return, so that views arrive from other threads; checkpoints and jobs run, too. The owner closes on
//! one thread, and the next one opens on another. No call may fail. A hang ends the process and prints the current
//! action of each part.
//!
//! `POOL_SECONDS` is the duration of each shape's run, in seconds.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arena::Sg;
use disk::PowerCut;
use disk::sim::{Machine, SlotId};
use env::Env;
use parking_lot::Mutex;
use pool::{Absence, AdminError, Pool, SpaceRecord};
use pool_seam::{DiskNumber, JobId, JobOrder, Owner, Resiliency, Row, RowNumber, SpaceId, UNIT};

use crate::model::{fill, tell};
use crate::process::Fences;
use crate::world::{OwnedSpace, World, mirror};

const USERS: u64 = 6;
/// Units of a user in each row, adjacent to those of the other users.
const EACH: u64 = 6;
/// After this time without progress the run counts as hung.
const STANDSTILL: Duration = Duration::from_secs(60);

/// The interval between checks for progress.
const LOOK: Duration = Duration::from_millis(500);

struct Server {
    world: World,
    pool: Pool,
    owned: OwnedSpace,
    steps: AtomicU64,
    /// The number of calls begun by each user, and in the last element by the jobs.
    calls: [AtomicU64; USERS as usize + 1],
    doing: Mutex<BTreeMap<String, String>>,
}

impl Server {
    async fn on(world: World, pool: Pool) -> Arc<Server> {
        let owned = world.own(&pool, SpaceId(0)).await.expect("an owner");
        let (steps, calls, doing) = (AtomicU64::new(0), Default::default(), Mutex::default());
        Arc::new(Server { world, pool, owned, steps, calls, doing })
    }

    fn does(&self, part: &str, what: String) {
        self.steps.fetch_add(1, Ordering::Relaxed);
        self.doing.lock().insert(part.into(), what);
    }

    /// Waits until every write that has begun by now has ended, or the run ends.
    async fn writes_end(&self, stop: &AtomicBool) {
        let begun = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let before: Vec<u64> = self.calls.iter().map(begun).collect();
        let waits = || self.calls.iter().zip(&before).any(|(of, before)| begun(of) == *before);
        while waits() && !stop.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // Also places stripes that are only in the log.
        self.owned.space.checkpoint().await.expect("a checkpoint");
    }
}

/// SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The values of a user's units, by unit; other units are zeros.
type Known = BTreeMap<u64, u64>;

async fn user(server: Arc<Server>, number: u64, mut known: Known, stop: Arc<AtomicBool>) -> Known {
    let (part, mut state) = (format!("user {number}"), (number + server.pool.epoch()) << 8);
    while !stop.load(Ordering::Relaxed) {
        let chance = random(&mut state);
        let row = u64::from(chance >> 60 == 0) * 512;
        let first = row + number * EACH + chance % EACH;
        let units = first..first + 1 + (chance >> 8) % (EACH - chance % EACH);
        let (address, length) = (units.start * UNIT, (units.end - units.start) * UNIT);
        let what = (chance >> 16) % 8;
        server.does(&part, format!("{what} of {units:?}"));
        server.calls[number as usize].fetch_add(1, Ordering::Relaxed);
        let space = &server.owned.space;
        let result = match what {
            0..4 => {
                let value = random(&mut state) >> 16 | 1;
                let src: Sg = units.clone().map(|unit| fill(unit, value)).collect();
                let result = space.write(address, src, what == 0).wait().await;
                known.extend(units.map(|unit| (unit, value)));
                result
            }
            4 => {
                let result = space.discard(address, length).wait().await;
                known.retain(|unit, _| !units.contains(unit));
                result
            }
            5 => space.flush().wait().await,
            _ => read(&server, &known, units).await,
        };
        result.unwrap_or_else(|error| panic!("{part}: {error}"));
    }
    server.does(&part, "nothing more".into());
    known
}

async fn read(server: &Server, known: &Known, units: std::ops::Range<u64>) -> Result<(), space::SpaceError> {
    let bytes = server.owned.read(units.clone()).await?;
    for (unit, bytes) in units.zip(bytes.chunks(UNIT as usize)) {
        let value = known.get(&unit).copied().unwrap_or(0);
        let expected = if value == 0 { (0, 0) } else { (unit, value << 8 >> 8) };
        assert_eq!(tell(bytes), Some(expected), "unit {unit}");
    }
    Ok(())
}

/// Fills the stale regions of a disk, until every replica of the log is complete too: only then may another disk be
/// absent.
async fn resync(server: &Server, number: DiskNumber) {
    for attempt in 0.. {
        let (lacks, is_log_whole) = server.pool.read(|s| {
            let record = &s.spaces[&SpaceId(0)];
            let lacks = |(_, row): &(_, &Row)| {
                row.copies().any(|(_, c)| c.place.disk == number && record.stale_regions(c) != 0)
            };
            let log = &record.rows[&RowNumber::LOG];
            (
                record.data_rows().filter(lacks).count(),
                log.copies().all(|(_, c)| record.stale_regions(c) == 0),
            )
        });
        if lacks == 0 && is_log_whole {
            return;
        }
        assert!(
            attempt < 1000,
            "disk {number:?} still lacks something in {lacks} rows; log whole: {is_log_whole}"
        );
        if lacks != 0 {
            let job = JobId(1000 + u64::from(number.0));
            server.owned.space.run(job, JobOrder::Resync(number)).wait().await.expect("a resync");
        } else {
            // A replica joins without a job, and is complete after the next checkpoint.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Removes and returns one disk at a time.
async fn disks(server: Arc<Server>, stop: Arc<AtomicBool>) {
    let mut turn = 0_usize;
    while !stop.load(Ordering::Relaxed) {
        let slot = turn % server.world.machine.slots();
        let number = DiskNumber(slot as u16);
        server.does("disks", format!("disk {slot} leaves"));
        if turn.is_multiple_of(3) {
            server.pool.take_offline(number).await.expect("it may");
        } else {
            let cut = if turn % 3 == 1 { PowerCut::LoseAll } else { PowerCut::KeepAll };
            server.world.machine.pull(SlotId(slot), cut);
        }
        tokio::time::sleep(Duration::from_millis(turn as u64 % 20)).await;
        server.pool.disk_failed(number, Absence::Gone).await.expect("it may");
        server.world.machine.plug(SlotId(slot));
        server.does("disks", format!("disk {slot} returns"));
        loop {
            match server.pool.return_disk(server.world.disk(slot), false).await {
                Ok(_) => break,
                Err(AdminError::StillWriting(_)) => tokio::time::sleep(Duration::from_millis(1)).await,
                Err(error) => panic!("disk {slot} does not return: {error}"),
            }
        }
        server.does("disks", format!("resync of disk {slot}"));
        // The owner may mark regions stale for writes that began while the disk was absent: waits for these writes.
        server.writes_end(&stop).await;
        resync(&server, number).await;
        turn += 1;
    }
    server.does("disks", "nothing more".into());
}

async fn jobs(server: Arc<Server>, stop: Arc<AtomicBool>) {
    for turn in 0_u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        server.does("jobs", format!("{}", turn % 3));
        server.calls[USERS as usize].fetch_add(1, Ordering::Relaxed);
        let space = &server.owned.space;
        match turn % 3 {
            0 => space.checkpoint().await.expect("a checkpoint"),
            1 => drop(space.run(JobId(1), JobOrder::Resolve).wait().await.expect("it resolves")),
            _ => {
                let report =
                    space.run(JobId(2), JobOrder::Scrub(RowNumber(0))).wait().await.expect("a scrub");
                assert_eq!(report.progress.lost, 0);
            }
        }
        tokio::time::sleep(Duration::from_millis(turn % 9)).await;
    }
    server.does("jobs", "nothing more".into());
}

/// Ends the process if there is no progress: a blocked thread cannot report its state.
fn watch(server: &Arc<Server>, done: Arc<AtomicBool>) {
    let server = Arc::clone(server);
    std::thread::spawn(move || {
        let (mut last, mut quiet) = (0, Duration::ZERO);
        while !done.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
            let now = server.steps.load(Ordering::Relaxed);
            if now != last {
                (last, quiet) = (now, Duration::ZERO);
                continue;
            }
            quiet += LOOK;
            if quiet > STANDSTILL {
                let doing = server.doing.lock();
                // Not `eprintln`, because the test harness holds back its output until the test ends.
                drop(writeln!(std::io::stderr(), "nothing has happened for {STANDSTILL:?}: {doing:?}"));
                std::process::abort();
            }
        }
    });
}

fn run(disks_of: usize, record: SpaceRecord) {
    let seconds = std::env::var("POOL_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(2);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let env = Env::real();
        let machine = Machine::new(&env, 1);
        for slot in 0..disks_of {
            machine.add(&disk::MemoryOptions::new(format!("disk{slot}"), 64 << 20));
            // Some disks complete I/O at once, on the calling thread.
            if slot % 2 == 0 {
                machine.shuffle(SlotId(slot), Duration::from_millis(1));
            }
        }
        let mut world = World::on(env, machine, Fences::new(true));
        let mut pool = world.create().await;
        pool.create_space(record).await.expect("a space");
        let mut known: Vec<Known> = (0..USERS).map(|_| Known::new()).collect();
        for run in 0..3 {
            // A separate task opens it, on a worker thread.
            let server = tokio::spawn(Server::on(world, pool)).await.expect("an owner");
            let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            watch(&server, Arc::clone(&done));
            let users: Vec<_> = (0..USERS)
                .zip(known.drain(..))
                .map(|(n, known)| tokio::spawn(user(Arc::clone(&server), n, known, Arc::clone(&stop))))
                .collect();
            let others = [
                tokio::spawn(disks(Arc::clone(&server), Arc::clone(&stop))),
                tokio::spawn(jobs(Arc::clone(&server), Arc::clone(&stop))),
            ];
            tokio::time::sleep(Duration::from_millis(seconds * 1000 / 3)).await;
            stop.store(true, Ordering::Relaxed);
            for user in users {
                known.push(user.await.expect("a user ended"));
            }
            for other in others {
                other.await.expect("it ended");
            }
            for (number, known) in (0..USERS).zip(&known) {
                for row in [0, 512] {
                    let first = row + number * EACH;
                    read(&server, known, first..first + EACH).await.expect("a read");
                }
            }
            done.store(true, Ordering::Relaxed);
            // It ends on another thread than the one it began on.
            let closing = Arc::clone(&server);
            tokio::spawn(async move {
                if run % 2 == 0 {
                    closing.owned.space.close().wait().await.expect("it closes");
                } else {
                    closing.owned.space.flush().wait().await.expect("a flush");
                }
                closing.pool.export().await.expect("it is exported");
            })
            .await
            .expect("closed");
            world = server.world.next_process(None);
            pool = world.open().await;
        }
    });
}

#[test]
fn a_mirror_of_two() {
    run(4, mirror("vm"));
}

#[test]
fn a_mirror_of_three() {
    run(4, SpaceRecord { resiliency: Resiliency::Mirror { copies: 3 }, ..mirror("vm") });
}

#[test]
fn parity() {
    let parity = Resiliency::Parity { parity: 1 };
    run(
        5,
        SpaceRecord { resiliency: parity, columns: 3, size: 12 << 20, interleave: 16 << 10, ..mirror("vm") },
    );
}

#[test]
fn dual_parity() {
    let parity = Resiliency::Parity { parity: 2 };
    run(
        6,
        SpaceRecord { resiliency: parity, columns: 3, size: 12 << 20, interleave: 16 << 10, ..mirror("vm") },
    );
}
