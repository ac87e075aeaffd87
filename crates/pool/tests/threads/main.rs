//! A pool under several threads at a time, in real time, for what the model cannot see, because it runs on
//! one thread: waits between tasks, accesses without a lock, and deadlocks.
//!
//! Users write, read, discard and flush units of their own in groups and stripes that they share; disks are
//! pulled and return meanwhile, as many as the resiliency promises; jobs run beside them. Each user knows the
//! values that it wrote, and no call may fail. A hang is reported by a thread of its own, because nothing
//! else may run any more.
//!
//! `POOL_SECONDS` says how long each shape runs.

mod site;
mod users;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pool::jobs::Progress;
use pool::{Absence, DiskNumber, Resiliency};

use site::{Shape, Site};

/// What is longer is a standstill: the longest single step is a resync of some megabytes.
const STANDSTILL: Duration = Duration::from_secs(60);

/// A resync may find that a write has failed meanwhile; not so often.
const RESYNCS: usize = 1000;

fn seconds() -> u64 {
    std::env::var("POOL_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(3)
}

/// Ends the process when the test takes too long: a thread that is stuck cannot be asked.
fn watch(site: &Arc<Site>) -> Arc<AtomicBool> {
    let done = Arc::new(AtomicBool::new(false));
    let (mine, site) = (Arc::clone(&done), Arc::clone(site));
    std::thread::spawn(move || {
        let mut last = site.steps();
        loop {
            std::thread::sleep(STANDSTILL);
            if mine.load(Ordering::Relaxed) {
                return;
            }
            let now = site.steps();
            if now == last {
                eprintln!("nothing has happened for {STANDSTILL:?}: {}", site.under_way());
                std::process::abort();
            }
            last = now;
        }
    });
    done
}

fn run(shape: Shape) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(async {
        let site = Arc::new(Site::new(shape).await);
        let done = watch(&site);
        let stop = Arc::new(AtomicBool::new(false));
        let users: Vec<_> = (0..site::USERS + site::OWNERS)
            .map(|n| tokio::spawn(users::user(Arc::clone(&site), n, Arc::clone(&stop))))
            .collect();
        let jobs = tokio::spawn(jobs(Arc::clone(&site), Arc::clone(&stop)));
        let disks = tokio::spawn(disks(Arc::clone(&site), Arc::clone(&stop)));
        tokio::time::sleep(Duration::from_secs(seconds())).await;
        stop.store(true, Ordering::Relaxed);
        disks.await.expect("disks came back");
        jobs.await.expect("jobs ended");
        let mut known = Vec::new();
        for user in users {
            known.push(user.await.expect("a user ended"));
        }
        assert!(known.iter().all(|k| k.writes > 0), "a user never wrote");
        for (n, k) in known.iter().enumerate() {
            users::read_all(&site, n, k).await;
        }
        let after = site.opened_again().await;
        for (n, k) in known.iter().enumerate() {
            users::read_all(&after, n, k).await;
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// Disks leave and come back, no more at a time than may.
async fn disks(site: Arc<Site>, stop: Arc<AtomicBool>) {
    let promise = site.shape.resiliency.failures();
    let mut turn = 0;
    while !stop.load(Ordering::Relaxed) {
        let many = 1 + turn % promise;
        let some: Vec<usize> = (0..many).map(|n| (turn + n * 2) % site.shape.disks).collect();
        for n in &some {
            // Pulled without notice, or taken offline.
            match turn % 3 {
                0 => site.leaves("disks", *n, Absence::Asked).await,
                _ => site.pull("disks", *n, turn as u64),
            }
        }
        site.sleep(turn % 20).await;
        for n in &some {
            site.bring_back("disks", *n).await;
        }
        // A slab that was behind may move to a disk that was here all the time.
        for again in 0.. {
            let behind = (0..site.shape.disks).find_map(|n| Some((n, site.lacks(n)?)));
            let Some((n, lacks)) = behind else { break };
            assert!(again < RESYNCS, "disk {n} lacks {lacks} after {again} resyncs");
            site.did("disks", format!("resync of disk {n}"));
            let resynced = site.path.resync(DiskNumber(n as u16), &Progress::default()).await;
            resynced.expect("the others have it");
        }
        turn += 1;
    }
    site.did("disks", "done".to_owned());
}

/// What runs beside users.
async fn jobs(site: Arc<Site>, stop: Arc<AtomicBool>) {
    let mut turn = 0;
    while !stop.load(Ordering::Relaxed) {
        turn += 1;
        let progress = Progress::default();
        match turn % 4 {
            0 => {
                site.did("jobs", "scrub".to_owned());
                site.space.scrub(&progress).await.expect("nothing is lost");
            }
            1 => {
                site.did("jobs", "quiesce".to_owned());
                site.path.quiesce().await.expect("nothing is lost");
            }
            2 => {
                site.did("jobs", "resolve".to_owned());
                site.path.resolve_all(&progress).await.expect("nothing is lost");
            }
            _ => {
                site.did("jobs", "optimize".to_owned());
                // Where it moves to may just be away.
                let _ = site.path.optimize(&progress).await;
            }
        }
        site.sleep(turn % 7).await;
    }
    site.did("jobs", "done".to_owned());
}

#[test]
fn a_mirror_of_two() {
    run(Shape { disks: 4, resiliency: Resiliency::Mirror { copies: 2 }, columns: 2 });
}

#[test]
fn a_mirror_of_three() {
    run(Shape { disks: 4, resiliency: Resiliency::Mirror { copies: 3 }, columns: 1 });
}

#[test]
fn parity() {
    run(Shape { disks: 5, resiliency: Resiliency::Parity { parity: 1 }, columns: 4 });
}

#[test]
fn dual_parity() {
    run(Shape { disks: 6, resiliency: Resiliency::Parity { parity: 2 }, columns: 3 });
}
