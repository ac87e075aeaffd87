//! The progress of a job, and its permission to continue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use super::board::{Board, Changed, Waiting};
use super::kinds::DelayReason;
use super::rate::Rate;
use super::{JobId, Kind};

/// The state of a job, shared with callers that show, pause or stop it.
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
    healed: AtomicU64,
    lost: AtomicU64,
    stop: AtomicBool,
    rate: Mutex<Rate>,
    why: Mutex<Option<DelayReason>>,
    board: Arc<Board>,
    id: JobId,
    kind: Kind,
}

/// The answer to an owner that works for a job and requests pieces.
pub(crate) enum PieceAnswer {
    /// This many pieces may begin; the owner calls [`Progress::pieces_end`] when they are complete.
    Go(u8),
    /// No piece may begin now: the owner asks again when this completes.
    Wait(NextAttempt),
    /// The job must end.
    Stop,
}

/// Waits for the time at which an owner asks again.
pub(crate) struct NextAttempt {
    board: Arc<Board>,
    changed: Changed,
    until: Option<Instant>,
}

/// Permission to copy or read one piece; it ends on drop.
pub struct Piece<'a>(&'a Progress);

impl Progress {
    pub(super) fn of(board: &Arc<Board>, id: JobId, kind: Kind) -> Progress {
        Progress {
            done: AtomicU64::new(0),
            total: AtomicU64::new(0),
            healed: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            rate: Mutex::default(),
            why: Mutex::default(),
            board: Arc::clone(board),
            id,
            kind,
        }
    }

    /// Bytes done, and bytes in total as far as known.
    pub fn bytes(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    /// The numbers of damaged units: repaired ones and lost ones.
    pub fn findings(&self) -> (u64, u64) {
        (self.healed.load(Ordering::Relaxed), self.lost.load(Ordering::Relaxed))
    }

    /// Bytes per second over the last ten seconds.
    pub fn rate(&self, now: Instant) -> u64 {
        self.rate.lock().per_second(now)
    }

    /// Why it does not run at full speed now, if it does not.
    pub fn why(&self) -> Option<DelayReason> {
        self.why.lock().clone()
    }

    /// Ends the job after the outstanding pieces.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.board.wake();
    }

    /// Whether the job must stop: then it begins no more pieces.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Adds bytes to the total.
    pub fn add_total(&self, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Removes unfinished work from the total, because a retry adds it again.
    pub fn forget_unfinished(&self) {
        self.total.store(self.done.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Adds completed bytes, including those that needed no work.
    pub fn add_done(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
        self.rate.lock().add(bytes, self.board.now());
    }

    /// Adds bytes that were completed before the job began.
    pub fn add_done_before(&self, bytes: u64) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds damaged units.
    pub fn add_damaged_units(&self, healed: u64, lost: u64) {
        self.healed.fetch_add(healed, Ordering::Relaxed);
        self.lost.fetch_add(lost, Ordering::Relaxed);
    }

    /// Waits for permission to do a piece of this many bytes. Returns `None` if the job must end. The caller must
    /// hold no lock of a space.
    pub async fn wait_for_piece(&self, bytes: u64) -> Option<Piece<'_>> {
        loop {
            match self.request_pieces(bytes, 1, 1) {
                PieceAnswer::Stop => return None,
                PieceAnswer::Go(_) => return Some(Piece(self)),
                PieceAnswer::Wait(next) => next.changed.or_at(&next.board, next.until).await,
            }
        }
    }

    /// Asks for up to `most` pieces of `bytes` each, for one of `workers` owners that work for jobs of this board.
    pub(crate) fn request_pieces(&self, bytes: u64, most: u8, workers: usize) -> PieceAnswer {
        // Subscribed before the check, so that no change between the check and the wait is missed.
        let changed = self.board.changed();
        if self.is_stopped() {
            *self.why.lock() = Some(DelayReason::Stopping);
            return PieceAnswer::Stop;
        }
        let share = self.board.at_once().div_ceil(workers.max(1)).max(1);
        let most = most.min(u8::try_from(share).unwrap_or(u8::MAX));
        match self.board.ask(self.id, self.kind, bytes, most) {
            Ok((pieces, why)) => {
                *self.why.lock() = why;
                PieceAnswer::Go(pieces)
            }
            Err(Waiting { why, until }) => {
                *self.why.lock() = Some(why);
                PieceAnswer::Wait(NextAttempt { board: Arc::clone(&self.board), changed, until })
            }
        }
    }

    /// Records that pieces of [`Progress::request_pieces`] have ended; together they had `less` bytes fewer than
    /// announced.
    pub(crate) fn pieces_end(&self, count: u8, less: u64) {
        self.board.pieces_end(count, less);
    }

    /// Waits until `until` completes, showing a reason. Returns `false` if the job must end. Other jobs continue
    /// meanwhile.
    pub async fn wait_for(&self, why: DelayReason, until: impl Future<Output = ()>) -> bool {
        *self.why.lock() = Some(why);
        self.board.idle(self.id, true);
        let mut until = std::pin::pin!(until);
        let goes_on = loop {
            let changed = std::pin::pin!(self.board.changed().or_at(&self.board, None));
            if self.is_stopped() {
                break false;
            }
            match futures_util::future::select(until.as_mut(), changed).await {
                futures_util::future::Either::Left(_) => break !self.is_stopped(),
                futures_util::future::Either::Right(_) => {}
            }
        };
        self.board.idle(self.id, false);
        *self.why.lock() = None;
        goes_on
    }
}

impl NextAttempt {
    /// Waits until something has changed, or until `deadline`.
    pub(crate) async fn wait(self, deadline: Instant) {
        let until = self.until.map_or(deadline, |until| until.min(deadline));
        self.changed.or_at(&self.board, Some(until)).await;
    }
}

impl Drop for Piece<'_> {
    fn drop(&mut self) {
        self.0.pieces_end(1, 0);
    }
}
