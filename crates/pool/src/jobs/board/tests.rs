use futures_util::FutureExt;

use super::*;
use crate::DiskNumber;

const POOL: Subject = Subject::Pool;

fn board() -> Arc<Board> {
    Board::new(Env::simulated(1), Pacing::default())
}

fn disk(n: u16) -> Subject {
    Subject::Disk(DiskNumber(n))
}

fn why(board: &Board, job: &Job) -> Option<DelayReason> {
    board.list().into_iter().find(|j| j.id == job.id()).and_then(|j| j.why)
}

#[tokio::test(start_paused = true)]
async fn paused_resumed_and_stopped() {
    let board = board();
    let job = board.begin(Kind::Resync, disk(2)).expect("the first");
    assert!(board.begin(Kind::Resync, disk(2)).is_none(), "one at a time");
    let _other = board.begin(Kind::Resync, disk(3)).expect("another's");
    assert!(job.wait_for_piece(4096).now_or_never().is_some());
    board.pause(job.id()).expect("it is there");
    assert_eq!(why(&board, &job), Some(DelayReason::Paused));
    let mut piece = Box::pin(job.wait_for_piece(4096));
    assert!(piece.as_mut().now_or_never().is_none());
    board.resume(job.id()).expect("it is there");
    assert!(piece.await.is_some());
    board.pause(job.id()).expect("it is there");
    let id = job.id();
    drop(job);
    assert_eq!(board.pause(id), Err(NoSuchJob(id)));
    // The pause applies to the next job too.
    let again = board.begin(Kind::Resync, disk(2)).expect("again");
    let mut piece = Box::pin(again.wait_for_piece(4096));
    assert!(piece.as_mut().now_or_never().is_none());
    board.stop(again.id()).expect("it is there");
    assert!(piece.await.is_none(), "it ends, paused or not");
    drop(again);
    let anew = board.begin(Kind::Resync, disk(2)).expect("anew");
    assert_eq!(why(&board, &anew), None, "a job that was stopped is not paused any more");
}

#[tokio::test(start_paused = true)]
async fn the_urgent_ones_first() {
    let board = board();
    let scrub = board.begin(Kind::Scrub, POOL).expect("a scrub");
    assert!(scrub.wait_for_piece(4096).await.is_some());
    let resync = board.begin(Kind::Resync, disk(1)).expect("a resync");
    let mut piece = Box::pin(scrub.wait_for_piece(4096));
    assert!(piece.as_mut().now_or_never().is_none());
    assert_eq!(why(&board, &scrub), Some(DelayReason::AfterJob(Kind::Resync, resync.id())));
    // A job that waits for a disk, or is paused, delays no other.
    {
        let mut away =
            Box::pin(resync.wait_for(DelayReason::DisksAbsent(vec![DiskNumber(2)]), std::future::pending()));
        assert!(away.as_mut().now_or_never().is_none());
        assert_eq!(why(&board, &resync), Some(DelayReason::DisksAbsent(vec![DiskNumber(2)])));
        assert!(piece.as_mut().await.is_some());
        board.stop(resync.id()).expect("it is there");
        assert!(!away.await, "stopped while it waits");
    }
    drop(piece);
    let mut piece = Box::pin(scrub.wait_for_piece(4096));
    assert!(piece.as_mut().now_or_never().is_none());
    board.pause(resync.id()).expect("it is there");
    assert!(piece.as_mut().await.is_some());
    drop(piece);
    board.resume(resync.id()).expect("it is there");
    let mut piece = Box::pin(scrub.wait_for_piece(4096));
    assert!(piece.as_mut().now_or_never().is_none());
    drop(resync);
    assert!(piece.await.is_some());
}

#[tokio::test(start_paused = true)]
async fn all_end_before_the_board_does() {
    let env = Env::simulated(1);
    let board = Board::new(env.clone(), Pacing::default());
    let job = board.begin(Kind::Scrub, POOL).expect("a scrub");
    let worker = {
        let env = env.clone();
        async move {
            let mut pieces = 0;
            while let Some(_piece) = job.wait_for_piece(1 << 18).await {
                env.sleep(Duration::from_millis(7)).await;
                pieces += 1;
            }
            pieces
        }
    };
    let stopper = async {
        env.sleep(Duration::from_millis(100)).await;
        board.stop_all().await;
        assert_eq!(board.list(), []);
    };
    let (pieces, ()) = futures_util::future::join(worker, stopper).await;
    assert!(pieces > 10, "{pieces}");
    assert!(board.begin(Kind::Scrub, POOL).is_none(), "it takes no more");
}

#[tokio::test(start_paused = true)]
async fn what_is_shown() {
    let env = Env::simulated(1);
    let board = Board::new(env.clone(), Pacing::default());
    let job = board.begin(Kind::Rebuild, disk(4)).expect("a job");
    job.add_total(100 << 20);
    for _ in 0..20 {
        let _piece = job.wait_for_piece(1 << 18).await.expect("leave");
        env.sleep(Duration::from_secs(1)).await;
        job.add_done(1 << 20);
    }
    let [shown] = &board.list()[..] else { panic!("one job") };
    assert_eq!((shown.done, shown.total, shown.elapsed.as_secs()), (20 << 20, 100 << 20, 20));
    assert!((900_000..1_200_000).contains(&shown.rate), "{}", shown.rate);
    assert!(shown.eta.is_some_and(|eta| (70..95).contains(&eta.as_secs())), "{:?}", shown.eta);
    board.pause(job.id()).expect("it is there");
    let [shown] = &board.list()[..] else { panic!("one job") };
    assert_eq!((shown.eta, shown.why.as_ref()), (None, Some(&DelayReason::Paused)));
}

/// A client's request takes 10 ms, and 5 ms more for each piece of a job in progress: the jobs' rate settles below the
/// target latency, and without clients they run at full speed.
#[tokio::test(start_paused = true)]
async fn a_target_is_kept_in_virtual_time() {
    let env = Env::simulated(1);
    let board = Board::new(env.clone(), Pacing::default());
    let job = board.begin(Kind::Resync, disk(1)).expect("a job");
    let under_way = AtomicU64::new(0);
    let pieces = AtomicU64::new(0);
    let ends = env.now() + Duration::from_secs(30);
    let piece = async || {
        while env.now() < ends {
            let Some(_piece) = job.wait_for_piece(1 << 18).await else { return };
            under_way.fetch_add(1, Ordering::Relaxed);
            env.sleep(Duration::from_millis(20)).await;
            under_way.fetch_sub(1, Ordering::Relaxed);
            pieces.fetch_add(1, Ordering::Relaxed);
        }
    };
    let client = async {
        let mut slow = (0, 0);
        while env.now() < ends - Duration::from_secs(10) {
            let begun = env.now();
            let _io = board.client(true);
            env.sleep(Duration::from_millis(10 + 5 * under_way.load(Ordering::Relaxed))).await;
            slow = (slow.0 + u32::from(env.now() - begun > Duration::from_millis(25)), slow.1 + 1);
        }
        let beside = pieces.load(Ordering::Relaxed);
        // Two at a time at most, so 100 a second; not fewer than the minimum of 16.
        assert!((16 * 20..=100 * 20).contains(&beside), "{beside}");
        assert!(slow.0 * 10 < slow.1, "{slow:?}");
        slow
    };
    let workers = futures_util::future::join_all((0..16).map(|_| piece()));
    futures_util::future::join(workers, client).await;
    // 16 at a time for the last ten seconds: 800 a second.
    assert!(pieces.load(Ordering::Relaxed) > 7000, "{}", pieces.load(Ordering::Relaxed));
}

#[test]
fn reasons_are_told() {
    let paced =
        DelayReason::Paced { p99: Some(Duration::from_millis(31)), target: Duration::from_millis(20) };
    assert_eq!(paced.to_string(), "paced: 99th percentile of client latency is 31 ms, target 20 ms");
    assert_eq!(DelayReason::DisksAbsent(vec![DiskNumber(2)]).to_string(), "disk 2 is absent");
    assert_eq!(DelayReason::AfterJob(Kind::Resync, JobId(7)).to_string(), "waits for job 7 (Resync)");
}
