//! The background work of a pool: resolving, resync, rebuilding, moving, scrub, repair.
//!
//! The work itself is done by the owners of spaces, which request turns ([`crate::coordinator`]). This module schedules
//! jobs: [`Board::begin`] lists a job until it is dropped and returns its [`Progress`]; the job waits while it is
//! paused, while a more urgent one runs, and as long as the clients need the disks ([`pacer`]).
//!
//! Invariants:
//! 1. A job's checkpoint is the metadata (stale bits, rows, a scrub's position) and the logs of spaces: after a
//!    restart it continues there.
//! 2. A piece that has begun completes: a job that fails or is stopped begins no more pieces, and returns when the
//!    outstanding ones are complete.

mod board;
mod kinds;
pub mod pacer;
mod progress;
mod rate;

pub use board::{Board, ClientIo, Job};
pub use kinds::{DelayReason, EvacuationResult, JobState, Kind, NoSuchJob, Subject};
pub use pool_seam::{JobId, NotMoved};
pub(crate) use progress::PieceAnswer;
pub use progress::{Piece, Progress};
