//! The interface for a thread's targets: accepts I/Os and returns completions.
//!
//! A [`Backend`] belongs to one thread. I/Os are in *slots*, as many as are outstanding; a slot holds one I/O at a time
//! and has its own memory. Nothing fails on submission: whatever goes wrong comes back as that I/O's completion.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

use super::memory::Memory;
use super::offsets::Kind;
use crate::fabric::FabricPlace;
use crate::profile::Target;

/// Where a target is.
#[derive(Clone, Debug)]
pub enum Place {
    /// A file or block device of this machine: the target's path.
    Local,
    /// A file of a server.
    Smb(Arc<super::smb::SmbPlace>),
    /// A listener that keeps nothing.
    Fabric(FabricPlace),
}

/// One target of a thread, for opening.
#[derive(Clone, Debug)]
pub struct Lane {
    /// The operation.
    pub target: Target,
    /// Where it is.
    pub place: Place,
    /// The source of constant writes.
    pub source: Arc<Memory>,
}

/// All targets of a thread, for opening.
#[derive(Clone, Debug)]
pub struct Setup {
    /// They.
    pub lanes: Vec<Lane>,
    /// Bytes that each slot has room for.
    pub slots: Vec<u32>,
    /// The data of reads is checked: keep it until the next I/O of the slot. Targets are opened to read and
    /// write.
    pub verify: bool,
}

/// An I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// In which slot; free until then.
    pub slot: usize,
    /// On which of the thread's targets.
    pub lane: usize,
    /// The operation.
    pub kind: Kind,
    /// In bytes.
    pub offset: u64,
    /// In bytes; at most what the slot has room for.
    pub length: u32,
    /// The data of a write.
    pub payload: Payload,
}

/// The data of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// The slot's write buffer, as [`Backend::buffer`] was filled.
    Buffer,
    /// The target's source, from this byte on.
    Source(usize),
}

/// How an I/O ended.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    /// In which slot.
    pub slot: usize,
    /// Bytes moved.
    pub result: Result<u32, Fault>,
    /// When, if that was before [`Backend::complete`] was called.
    pub at: Option<Instant>,
}

/// Why an I/O failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// The system's error number.
    System(i32),
    /// The server's NTSTATUS.
    Status(u32),
    /// The connection to the server ended.
    Lost,
    /// The server broke the protocol.
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

/// RDMA work requests of this end, by kind, as the provider took them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkRequests {
    /// Memory registrations.
    pub register: u64,
    /// Sends, those that only grant credits too.
    pub send: u64,
    /// Local invalidations.
    pub local_invalidate: u64,
    /// Receives; they are posted in advance and not counted as an I/O's.
    pub receive: u64,
    /// Registrations that the peer's Send invalidated: no work requests.
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

    /// Those that I/Os cause: without receives.
    pub fn of_ios(&self) -> u64 {
        self.register + self.send + self.local_invalidate
    }

    /// The same for each of `ios`; `None` without I/Os.
    pub fn per_io(&self, ios: u64) -> Option<f64> {
        (ios > 0).then(|| self.of_ios() as f64 / ios as f64)
    }
}

/// See the module.
pub trait Backend {
    /// Bytes that the target of a lane has.
    fn size(&self, lane: usize) -> u64;

    /// The write buffer of a slot that is free.
    fn buffer(&mut self, slot: usize) -> &mut [u8];

    /// Begins an I/O.
    fn submit(&mut self, io: &Io);

    /// Gives out completions: waits for the first one until `until`, and not at all if that has passed.
    ///
    /// # Errors
    /// That nothing will complete any more.
    fn complete(&mut self, until: Instant, done: &mut Vec<Completion>) -> std::io::Result<()>;

    /// The data of the slot's last read; only if [`Setup::verify`] was set.
    fn data(&mut self, slot: usize, length: usize) -> Cow<'_, [u8]>;

    /// How I/O is done, for the report.
    fn describe(&self) -> String;

    /// RDMA work requests posted since the targets were opened; none where there is no RDMA.
    fn posted(&self) -> Option<WorkRequests> {
        None
    }
}
