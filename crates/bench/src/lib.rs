//! A load generator with DiskSPD's options and reports.
//!
//! **What it is.** [`options`] parses a command line of DiskSPD or SQLIO, or an XML profile, into a
//! [`profile::Profile`]; [`engine`] runs it and counts; [`report`] prints the result like DiskSPD (text, XML)
//! or as JSON. Each thread of a run has its own connection, ring and counters, so that contention in the
//! generator does not distort the measurement.
//!
//! [`fabric`] measures without SMB: it has targets on the raw fabric or a raw socket, and their listener.
//!
//! [`demo`] has the published demonstrations of SMB Direct as profiles of this crate, with their published
//! results.
//!
//! **What it is not.** It creates no file systems, tunes nothing, and draws no conclusions.
//!
//! **I/O model.** One system thread for each DiskSPD thread, which drives one [`engine::Backend`]: io_uring
//! or a mapping for local files, a current-thread Tokio runtime with its own connection for SMB and RDMA, a
//! socket for `tcp://`.
//!
//! **Two loops.** Without `-g` a thread keeps `-o` I/Os outstanding: a slow target slows the load. With `-g`
//! due times are fixed in advance and latency is measured from them, so a stall of the target shows in every
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
