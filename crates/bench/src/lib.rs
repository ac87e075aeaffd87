//! A load generator that speaks DiskSPD's language.
//!
//! **What it is.** [`options`] turns a command line of DiskSPD or SQLIO, or an XML profile, into a
//! [`profile::Profile`]; [`engine`] runs it and counts; [`report`] prints the result as DiskSPD does (text,
//! XML) or as JSON. Each thread of a run has its own connection, ring and counters, so that contention in the
//! generator does not distort the measurement.
//!
//! [`fabric`] measures without SMB: targets on the raw fabric or a raw socket, and their other end.
//!
//! [`demo`] is the demonstrations that the field knows, as profiles of this crate, and what they found elsewhere.
//!
//! **What it is not.** It makes no file systems, tunes nothing, and does not draw conclusions.
//!
//! **I/O model.** One system thread for each DiskSPD thread, which drives one [`engine::Backend`]: io_uring
//! or a mapping for local files, a current-thread Tokio runtime with a connection of its own for SMB and
//! RDMA, a socket for `tcp://`.
//!
//! **Two loops.** Without `-g` a thread keeps `-o` I/Os outstanding: a slow target slows the load. With `-g` I/Os are
//! due at times laid down beforehand and their latency counts from those, so a target that stalls shows it in every
//! I/O that had to wait.
//!
//! **Errors.** [`options::OptionError`]: the command line; [`engine::RunError`]: the run could not start or
//! continue. A failed I/O is counted and reported; it is no error of the run.

pub mod demo;
pub mod engine;
pub mod fabric;
pub mod options;
pub mod profile;
pub mod report;
