//! The pool: every job completes, in order within a queue, even if its waiter is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use parking_lot::Mutex;

use super::{BATCH, BlockingPool, SerialQueue};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
}

#[test]
fn a_line_keeps_its_order() {
    runtime().block_on(async {
        let (pool, serial_queue, seen) =
            (BlockingPool::new(4), Arc::new(SerialQueue::default()), Arc::new(Mutex::new(Vec::new())));
        let waits: Vec<_> = (0..BATCH * 5 + 3)
            .map(|i| {
                let seen = Arc::clone(&seen);
                tokio::spawn(pool.run_in(&serial_queue, move || {
                    seen.lock().push(i);
                    i
                }))
            })
            .collect();
        for (i, wait) in waits.into_iter().enumerate() {
            assert_eq!(wait.await.expect("it ran"), i);
        }
        assert!(seen.lock().iter().copied().eq(0..BATCH * 5 + 3));
    });
}

#[test]
fn a_blocked_job_holds_nobody_else() {
    runtime().block_on(async {
        let pool = BlockingPool::new(3);
        let (open, closed) = mpsc::channel::<()>();
        let blocked = pool.run(move || closed.recv());
        let serial_queue = Arc::new(SerialQueue::default());
        for i in 0..100 {
            assert_eq!(pool.run(move || i).await, i);
            assert_eq!(pool.run_in(&serial_queue, move || i).await, i);
        }
        open.send(()).expect("it waits");
        blocked.await.expect("released");
    });
}

/// More syncs of a slow disk than there are threads: other jobs continue, and each sync completes.
#[test]
fn slow_jobs_leave_half_of_the_threads() {
    for threads in [1usize, 4] {
        runtime().block_on(async {
            let pool = BlockingPool::new(threads);
            let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let (open, closed) = mpsc::channel::<()>();
            let closed = Arc::new(Mutex::new(closed));
            let waits: Vec<_> = (0..9)
                .map(|i| {
                    let (running, most, closed) = (running.clone(), most.clone(), closed.clone());
                    tokio::spawn(pool.run_slow(move || {
                        most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        if threads > 1 {
                            closed.lock().recv().expect("released");
                        }
                        running.fetch_sub(1, Ordering::SeqCst);
                        i
                    }))
                })
                .collect();
            for i in 0..100 {
                assert_eq!(pool.run(move || i).await, i);
            }
            for _ in 0..9 {
                open.send(()).expect("somebody waits, or nobody needs to");
            }
            for (i, wait) in waits.into_iter().enumerate() {
                assert_eq!(wait.await.expect("it ran"), i);
            }
            assert!(most.load(Ordering::SeqCst) <= (threads / 2).max(1));
            assert!(pool.shared.state.lock().parked.is_empty());
        });
    }
}

#[test]
fn who_waits_behind_a_slow_job_is_told_before_the_next_one() {
    runtime().block_on(async {
        let (pool, serial_queue) = (BlockingPool::new(1), Arc::new(SerialQueue::default()));
        let (told, hears) = mpsc::channel::<()>();
        let slow = pool.run_in(&serial_queue, || std::thread::sleep(Duration::from_millis(20)));
        // This job is in the same batch: it runs until the completion of the previous job is received.
        let next = pool.run_in(&serial_queue, move || hears.recv_timeout(Duration::from_secs(10)));
        let next = tokio::spawn(next);
        tokio::spawn(slow).await.expect("it ran");
        told.send(()).expect("the next one listens");
        next.await.expect("it ran").expect("told before its time was over");
    });
}

#[test]
fn more_work_than_threads() {
    runtime().block_on(async {
        let (pool, sum) = (BlockingPool::new(2), Arc::new(AtomicUsize::new(0)));
        let serial_queues: Vec<Arc<SerialQueue>> = (0..5).map(|_| Arc::default()).collect();
        let mut waits = Vec::new();
        for i in 0..2000 {
            let sum = Arc::clone(&sum);
            let job = move || {
                sum.fetch_add(i, Ordering::Relaxed);
            };
            waits.push(if i % 3 == 0 { pool.run(job) } else { pool.run_in(&serial_queues[i % 5], job) });
        }
        for wait in waits.into_iter().rev() {
            wait.await;
        }
        assert_eq!(sum.load(Ordering::Relaxed), (0..2000).sum());
    });
}

#[test]
fn a_panic_comes_out_where_it_is_awaited() {
    runtime().block_on(async {
        let pool = BlockingPool::new(1);
        let wait: env::BoxFuture<u8> = pool.run(|| panic!("on purpose"));
        assert!(tokio::spawn(wait).await.expect_err("it panics").is_panic());
        assert_eq!(pool.run(|| 7).await, 7);
    });
}

#[test]
fn another_runtime_on_the_same_thread() {
    let pool = BlockingPool::new(1);
    let (a, b) = (runtime(), runtime());
    for i in 0..20 {
        assert_eq!(a.block_on(async { pool.run(move || i).await }), i);
        assert_eq!(b.block_on(async { pool.run(move || i).await }), i);
    }
    drop(a);
    assert_eq!(b.block_on(async { pool.run(|| 1).await }), 1);
    drop(b);
    assert_eq!(runtime().block_on(async { pool.run(|| 2).await }), 2);
}

#[test]
fn what_was_queued_runs_though_pool_and_waiter_are_gone() {
    let (done, ran) = mpsc::channel();
    runtime().block_on(async {
        let pool = BlockingPool::new(1);
        for i in 0..10 {
            let done = done.clone();
            drop(pool.run(move || done.send(i)));
        }
    });
    drop(done);
    assert!(ran.iter().eq(0..10));
}
