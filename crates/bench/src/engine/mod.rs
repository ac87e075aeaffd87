//! Runs a profile: opens targets, keeps I/Os outstanding on every thread, and counts.
//!
//! **Course of a run.** [`run`] creates files. Then for each time span it starts the threads, each of which
//! opens its targets and reports that it is ready. When all are ready, they get one timeline: begin, measure,
//! measured, end. I/Os that complete between `measure` and `measured` count. Running threads share only the
//! offset of `-si` and, with `--verify`, the ledger of the written data.
//!
//! **Layout.** `offsets`, `pace`, `random`, `tally`, `verify` and `plan` are pure. `backend` is the interface
//! that a thread uses, implemented by `local`, `smb` and `fabric`. `worker` is the thread; `cpu` and `system`
//! read `/proc` and `/sys`.

mod backend;
mod cpu;
mod create;
mod error;
mod fabric;
mod local;
mod memory;
mod offsets;
mod pace;
mod payload;
mod plan;
mod random;
mod results;
mod run;
mod smb;
mod system;
mod tally;
mod thread;
mod verify;
mod worker;

pub use backend::{Backend, Completion, Fault, Io, Lane, Payload, Setup, TargetLocation, WorkRequests};
pub use cpu::{CpuShares, CpuTimes, ProcessCpu};
pub use error::{OpenError, RunError};
pub use memory::Memory;
pub use offsets::{Kind, Offsets, TooSmall};
pub use pace::{Next, Pace};
pub use random::Random;
pub use results::{SpanResults, TargetResults, ThreadResults, WaitStats};
pub use run::{NoObserver, Observer, Open, Phase, Settings, Tick, open, run};
pub use smb::SmbFile;
pub use system::{Processor, SystemInfo};
pub use tally::{Bucket, Buckets, Latency, Tally};
pub use verify::{Ledger, Mismatch, MismatchKind, SECTOR, VERIFY_MAX, Verified};
