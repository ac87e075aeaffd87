//! The background work of a space: resolving, resync, scrub, repair.
//!
//! A job is a loop over pieces that asks [`Progress::piece`] before each: there it waits while it is paused,
//! while a more urgent one runs, and as long as the clients need the disks ([`pacer`]). [`Board::begin`]
//! gives a job its [`Progress`] and lists it until it is dropped; a `Progress::default()` belongs to no board
//! and never waits. So a new kind of job is one [`Kind`] and one `async fn(.., &Progress)`:
//! [`Progress::expect`] what there is, [`Progress::piece`] before and [`Progress::did`] after each piece, and
//! an end when `piece` gives `None`.
//!
//! Invariants:
//! 1. A job's checkpoint is the metadata (missed bits, rows, a scrub's position) and the activity log: after
//!    a restart it continues there.
//! 2. A region of a copy counts again only after every unit of it was copied under its lock and flushed, and
//!    no write to the copy has failed since.
//! 3. A piece holds the lock of one piece of a group at a time, and no lock while it waits for its turn:
//!    users wait for no more than that.
//! 4. Started pieces complete: a job that fails or is stopped starts no more, and returns when the
//!    outstanding ones are done.

mod board;
mod kinds;
mod moves;
pub mod pacer;
mod pieces;
mod progress;
mod rate;
mod resolve;
mod resync;
mod scrub;

pub use board::{Board, ClientIo, Job};
pub use kinds::{JobState, Kind, NoJob, Subject, Why};
pub use moves::{Evacuated, Moved};
pub use pool_seam::{JobId, Stays};
pub(crate) use progress::Asked;
pub use progress::{Piece, Progress};
