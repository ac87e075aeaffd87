//! The interface of the space for its log.

use std::sync::{Arc, Weak};

use disk::DiskError;
use env::Io;
use futures_util::future::join_all;
use pool_seam::DiskNumber;
use smallvec::SmallVec;

use crate::cache::Cached;
use crate::log::commit::{FlushSet, RecordCapacity};
use crate::log::{Coordination, Deposed, EntrySource, FailureDecision, Taken};
use crate::owner::Inner;
use crate::view::route;

/// The log's weak reference to its space.
pub(crate) struct WeakSpace(pub(crate) Weak<Inner>);

impl EntrySource for WeakSpace {
    fn take(&self, sequence: u64, set: &FlushSet, capacity: &mut RecordCapacity) -> Taken {
        self.0.upgrade().map_or_else(Taken::default, |inner| inner.take(sequence, set, capacity))
    }

    fn flush(&self, set: FlushSet) -> Io<SmallVec<[DiskNumber; 1]>> {
        let Some(inner) = self.0.upgrade() else { return Io::Done(SmallVec::new()) };
        let mut failed = SmallVec::new();
        let mut ports = if set.everything { inner.ports.dirty() } else { Vec::new() };
        let view = inner.view.get().value;
        for disk in set.disks {
            let Some(of) = view.membership(disk) else { continue };
            match inner.ports.get(disk, of) {
                Some(port) if !ports.iter().any(|port| port.number() == disk) => ports.push(port),
                // The disk was removed, and the new view arrives soon: its stale regions are recorded.
                None if !inner.ports.has(disk, of) => {}
                // The disk's handle has failed.
                None if !failed.contains(&disk) => failed.push(disk),
                _ => {}
            }
        }
        if ports.is_empty() {
            return Io::Done(failed);
        }
        Io::pending(async move {
            let flushes = join_all(ports.iter().map(|port| inner.flush_port(port))).await;
            failed.extend(flushes.into_iter().flatten());
            failed
        })
    }
}

impl Coordination for WeakSpace {
    fn replica_failed(&self, allocation: u32, error: DiskError) -> Io<Result<FailureDecision, Deposed>> {
        let inner = self.0.upgrade();
        Io::pending(async move { inner.ok_or(Deposed)?.replica_failed(allocation, error).await })
    }

    fn replicas_rolled_back(&self, allocations: Vec<u32>) -> Io<Result<Vec<u32>, Deposed>> {
        let inner = self.0.upgrade();
        Io::pending(async move { inner.ok_or(Deposed)?.replicas_rolled_back(allocations).await })
    }

    fn replica_joined(&self, allocation: u32) -> Io<Result<(), Deposed>> {
        let inner = self.0.upgrade();
        Io::pending(async move { inner.ok_or(Deposed)?.replica_joined(allocation).await })
    }
}

impl Inner {
    fn take(&self, sequence: u64, set: &FlushSet, capacity: &mut RecordCapacity) -> Taken {
        let (mut entries, has_rest) = self.active.take(capacity);
        let (marks, more_marks) = self.marks.take(capacity);
        entries.extend(marks);
        let mut taken = Taken { has_rest: has_rest || more_marks, ..Taken::default() };
        taken.content.entries = entries;
        let view = self.view.get().value;
        let is_flushed = |cached: &Cached| {
            let disks = || route(&view, cached.key()).into_iter().flat_map(|route| route.members);
            set.everything || disks().all(|member| set.disks.contains(&member.disk))
        };
        let mut take = |cached: &Arc<Cached>| {
            let is_flushed = is_flushed(cached);
            let (part, waits) = self.with_table(cached, |table| {
                let part = table.take(sequence, is_flushed, capacity);
                (part, !table.waiting().is_empty())
            });
            taken.has_rest |= part.has_rest;
            if !part.content.entries.is_empty() {
                taken.content.entries.extend(part.content.entries);
                taken.content.payload.extend(part.content.payload);
            }
            waits
        };
        let mut urgent = self.waiting_groups.take_urgent();
        urgent.retain(&mut take);
        urgent.iter().for_each(|cached| self.waiting_groups.add_urgent(cached));
        if set.everything {
            let mut all = self.waiting_groups.take_all();
            all.retain(&mut take);
            all.iter().for_each(|cached| self.waiting_groups.add(cached));
        }
        taken
    }
}
