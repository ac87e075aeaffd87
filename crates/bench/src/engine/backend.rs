//! The interface to a thread's targets: it accepts I/Os and returns completions.
//!
//! A [`Backend`] belongs to one thread. Each outstanding I/O occupies a *slot*, which has its own memory.
//! Submission never fails: errors are reported by the I/O's completion.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

use super::memory::Memory;
use super::offsets::Kind;
use crate::fabric::FabricAddress;
use crate::profile::Target;

/// The location of a target.
#[derive(Clone, Debug)]
pub enum TargetLocation {
    /// A file or block device of this machine: the target's path.
    Local,
    /// A file on a server.
    Smb(Arc<super::smb::SmbFile>),
    /// A listener that stores nothing.
    Fabric(FabricAddress),
}

/// A target of a thread, for opening.
#[derive(Clone, Debug)]
pub struct Lane {
    /// The target and its options.
    pub target: Target,
    /// Its location.
    pub place: TargetLocation,
    /// The data of constant writes.
    pub source: Arc<Memory>,
}

/// All targets of a thread, for opening.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The targets.
    pub lanes: Vec<Lane>,
    /// The capacity of each slot, in bytes.
    pub slots: Vec<u32>,
    /// The data of reads is checked: keep it until the slot's next I/O. Targets are opened for reading and
    /// writing.
    pub verify: bool,
}

/// An I/O to submit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// Its slot, which must be free.
    pub slot: usize,
    /// The index of its target within the thread.
    pub lane: usize,
    /// The operation.
    pub kind: Kind,
    /// In bytes.
    pub offset: u64,
    /// In bytes; at most the slot's capacity.
    pub length: u32,
    /// The data of a write.
    pub payload: Payload,
}

/// The data of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// The slot's write buffer, filled through [`Backend::buffer`].
    Buffer,
    /// The target's source, starting at this byte.
    Source(usize),
}

/// The completion of an I/O.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// Its slot.
    pub slot: usize,
    /// Bytes transferred.
    pub result: Result<u32, Fault>,
    /// The completion time, if it was before the call of [`Backend::complete`].
    pub at: Option<Instant>,
}

/// Why an I/O failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// The system's error number.
    System(i32),
    /// The server's NTSTATUS.
    Status(u32),
    /// The connection to the server was lost.
    Lost,
    /// The server violated the protocol.
    Protocol,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::System(errno) => std::io::Error::from_raw_os_error(*errno).fmt(f),
            Fault::Status(status) => write!(f, "the server answered with NTSTATUS {status:#010x}"),
            Fault::Lost => f.write_str("the connection to the server ended"),
            Fault::Protocol => f.write_str("the server's answer is malformed"),
        }
    }
}

/// RDMA work requests of this end, by kind, as accepted by the provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkRequests {
    /// Memory registrations.
    pub register: u64,
    /// Sends, including those that only grant credits.
    pub send: u64,
    /// Local invalidations.
    pub local_invalidate: u64,
    /// Receives; they are posted in advance and not attributed to an I/O.
    pub receive: u64,
    /// Registrations invalidated by the peer's Send; these are no work requests.
    pub remote_invalidations: u64,
}

impl WorkRequests {
    /// Adds all of `other`.
    pub fn merge(&mut self, other: &WorkRequests) {
        self.register += other.register;
        self.send += other.send;
        self.local_invalidate += other.local_invalidate;
        self.receive += other.receive;
        self.remote_invalidations += other.remote_invalidations;
    }

    /// The work requests posted since `before`.
    #[must_use]
    pub fn since(&self, before: &WorkRequests) -> WorkRequests {
        WorkRequests {
            register: self.register.saturating_sub(before.register),
            send: self.send.saturating_sub(before.send),
            local_invalidate: self.local_invalidate.saturating_sub(before.local_invalidate),
            receive: self.receive.saturating_sub(before.receive),
            remote_invalidations: self.remote_invalidations.saturating_sub(before.remote_invalidations),
        }
    }

    /// Work requests caused by I/Os: all except receives.
    pub fn of_ios(&self) -> u64 {
        self.register + self.send + self.local_invalidate
    }

    /// Work requests per I/O. Returns `None` without I/Os.
    pub fn per_io(&self, ios: u64) -> Option<f64> {
        (ios > 0).then(|| self.of_ios() as f64 / ios as f64)
    }
}

/// See the module.
pub trait Backend {
    /// The size of a target, in bytes.
    fn size(&self, lane: usize) -> u64;

    /// The write buffer of a free slot.
    fn buffer(&mut self, slot: usize) -> &mut [u8];

    /// Starts an I/O.
    fn submit(&mut self, io: &Io);

    /// Appends completions to `done`. Waits until `until` for the first one; does not wait if that time has
    /// passed.
    ///
    /// # Errors
    /// No I/O can complete any more.
    fn complete(&mut self, until: Instant, done: &mut Vec<Completion>) -> std::io::Result<()>;

    /// The data of the slot's last read; only if [`Setup::verify`] was set.
    fn data(&mut self, slot: usize, length: usize) -> Cow<'_, [u8]>;

    /// The I/O method, for the report.
    fn describe(&self) -> String;

    /// RDMA work requests posted since the targets were opened; `None` without RDMA.
    fn posted(&self) -> Option<WorkRequests> {
        None
    }
}
