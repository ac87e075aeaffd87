//! The published demonstrations of SMB Direct, as profiles of this crate, with their published results.
//!
//! Three were shown on a server with real storage (S1-15, S1-16, S1-17: sixteen SQLIO processes with a file
//! and a processor each, S1-20), six on a server whose volume completes everything immediately (S3-18 to
//! S3-23). The first three also run on a pool of 48 disks, as a mirror of 24 columns, as they were shown
//! (S1-09). Each runs over TCP and over SMB Direct; those of 8 KiB on the null volume also run over SMB
//! Direct without remote invalidation (S3-13).
//!
//! This module is pure: [`Demonstration::profile`] makes the profile that [`crate::engine`] runs, and
//! [`Row::new`] receives its results. A published figure is shown beside the measured one but not compared
//! with it, because it is from another machine.

mod list;
mod row;

pub use list::ALL;
pub use row::{Comparison, PerIo, PoolCost, Row, comparisons};

use serde::Serialize;

use crate::profile::{CacheMode, Profile, Target, TimeSpan};

/// Threads of the original demonstrations: one for each of sixteen processors (S1-20, S3-17).
pub const FULL_THREADS: u32 = 16;

/// Disks of [`Volume::Pool`], and columns of its mirror (S1-09).
pub const POOL_DISKS: usize = 48;
/// See [`POOL_DISKS`].
pub const POOL_COLUMNS: u8 = 24;

/// The storage of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Volume {
    /// A file system on a disk.
    Storage,
    /// None: I/O completes immediately.
    Null,
    /// A pool of [`POOL_DISKS`] disks; each file is a virtual disk, a mirror of [`POOL_COLUMNS`] columns.
    Pool,
}

/// The transport of the I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Transport {
    /// TCP.
    #[serde(rename = "tcp")]
    Tcp,
    /// SMB Direct.
    #[serde(rename = "rdma")]
    Direct,
    /// SMB Direct without remote invalidation: the client invalidates every buffer.
    #[serde(rename = "rdma-local-invalidate")]
    DirectWithout,
}

/// A demonstration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demonstration {
    /// Its number in the published list.
    pub id: &'static str,
    /// Its description.
    pub name: &'static str,
    /// Its storage.
    pub volume: Volume,
    /// Bytes of an I/O.
    pub block: u32,
    /// Outstanding I/Os per thread.
    pub outstanding: u32,
    /// Writes if true, else reads.
    pub write: bool,
    /// Random offsets if true, else sequential.
    pub random: bool,
    /// The server may answer from its cache (SQLIO `-BYRT`; else `-BN`, S1-23).
    pub cached: bool,
    /// Writes are write-through.
    pub write_through: bool,
    /// Bytes of each thread's file in the original.
    pub full_size: u64,
    /// Whether it also runs without remote invalidation.
    pub compares: bool,
    /// The published results.
    pub published: &'static str,
    /// The parts that cannot be reproduced here.
    pub lacks: &'static str,
}

impl Transport {
    /// The display name.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Tcp => "TCP",
            Transport::Direct => "SMB Direct",
            Transport::DirectWithout => "SMB Direct, local inv.",
        }
    }

    /// Whether it is SMB Direct.
    pub fn is_direct(self) -> bool {
        self != Transport::Tcp
    }
}

impl Demonstration {
    /// Its transports, in order.
    pub fn transports(&self) -> &'static [Transport] {
        const ALL: [Transport; 3] = [Transport::Tcp, Transport::Direct, Transport::DirectWithout];
        if self.compares { &ALL } else { &ALL[..2] }
    }

    /// Bytes of each file in a small run. The server's cache must hold those that are read from it.
    pub fn size(&self, small: Option<u64>) -> u64 {
        small.map_or(self.full_size, |s| s.min(self.full_size))
    }

    /// The name of a thread's file; threads count from 1. All demonstrations on the volume share files of the
    /// same size.
    pub fn file(&self, thread: u32) -> String {
        let kind = if self.cached { "small" } else { "test" };
        // A pool's share accepts only this extension.
        let ending = if self.volume == Volume::Pool { "img" } else { "dat" };
        format!("causeway-bench-{kind}{thread}.{ending}")
    }

    /// The profile of the run: one thread for each of `paths`, each on a file of `size` bytes that is created
    /// if missing; `seconds` are measured after `warmup` seconds.
    pub fn profile(&self, paths: &[String], size: u64, seconds: u32, warmup: u32) -> Profile {
        let target = |path: &String| Target {
            path: path.clone(),
            block: self.block,
            random_percent: if self.random { 100 } else { 0 },
            write_percent: if self.write { 100 } else { 0 },
            outstanding: self.outstanding,
            create: Some(size),
            create_if_missing: true,
            cache: if self.cached { CacheMode::Cached } else { CacheMode::Unbuffered },
            write_through: self.write_through,
            random_hint: self.random && self.cached,
            ..Target::default()
        };
        let span = TimeSpan {
            duration_s: seconds,
            warmup_s: warmup,
            measure_latency: true,
            targets: paths.iter().map(target).collect(),
            ..TimeSpan::default()
        };
        Profile { timespans: vec![span], ..Profile::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn all_are_there_and_two_are_compared() {
        let ids: Vec<_> = ALL.iter().map(|d| d.id).collect();
        assert_eq!(
            ids,
            [
                "S1-15",
                "S1-16",
                "S1-17",
                "S1-15-pool",
                "S1-16-pool",
                "S1-17-pool",
                "S3-18",
                "S3-19",
                "S3-20",
                "S3-21",
                "S3-22",
                "S3-23"
            ]
        );
        assert_eq!(ALL.iter().map(|d| d.transports().len()).sum::<usize>(), 26);
        assert_eq!(ALL.iter().map(|d| d.name).collect::<HashSet<_>>().len(), ALL.len());
        // Only transfers by RDMA have memory to invalidate.
        assert!(ALL.iter().filter(|d| d.compares).all(|d| d.block == 8192 && d.volume == Volume::Null));
    }

    #[test]
    fn a_profile_has_a_file_and_a_thread_of_its_own_for_each() {
        let d = &ALL[1];
        let paths: Vec<String> = (1..=3).map(|n| d.file(n)).collect();
        let profile = d.profile(&paths, d.size(Some(1 << 20)), 2, 1);
        let span = &profile.timespans[0];
        assert_eq!((span.threads(), span.duration_s, span.warmup_s), (3, 2, 1));
        let t = &span.targets[2];
        assert_eq!((t.path.as_str(), t.block, t.outstanding), ("causeway-bench-small3.dat", 8192, 32));
        assert_eq!((t.cache, t.random_percent, t.create), (CacheMode::Cached, 100, Some(1 << 20)));
        assert_eq!((d.size(None), d.size(Some(1 << 30))), (8 << 20, 8 << 20));
        let span = ALL[7].profile(&paths, 1 << 20, 1, 0).timespans.remove(0);
        assert!(span.targets[0].write_through && span.targets[0].cache == CacheMode::Unbuffered);
    }
}
