//! The space, as its log knows it.

use std::sync::{Arc, Weak};

use disk::DiskError;
use env::Io;
use futures_util::future::join_all;
use pool_seam::{Absence, DiskNumber, RowNumber};
use smallvec::SmallVec;

use crate::cache::Cached;
use crate::log::commit::{FlushSet, Room};
use crate::log::{Coordination, Deposed, Source, Taken, Verdict};
use crate::owner::{Inner, RETRY, Reported};
use crate::port::Port;
use crate::view::route;

/// The log's way to its space, which it does not keep.
pub(crate) struct Link(pub(crate) Weak<Inner>);

impl Source for Link {
    fn take(&self, sequence: u64, set: &FlushSet, room: &mut Room) -> Taken {
        self.0.upgrade().map_or_else(Taken::default, |inner| inner.take(sequence, set, room))
    }

    fn flush(&self, _: u64, set: FlushSet) -> Io<SmallVec<[DiskNumber; 1]>> {
        let Some(inner) = self.0.upgrade() else { return Io::Done(SmallVec::new()) };
        let mut ports = if set.everything { inner.ports.dirty() } else { Vec::new() };
        let view = inner.view.get().value;
        for disk in set.disks {
            let port = view.membership(disk).and_then(|of| inner.ports.get(disk, of));
            ports.extend(port.filter(|_| !ports.iter().any(|port| port.number() == disk)));
        }
        if ports.is_empty() {
            return Io::Done(SmallVec::new());
        }
        Io::pending(async move {
            let flushes = join_all(ports.iter().map(|port| inner.flush_port(port))).await;
            flushes.into_iter().flatten().collect()
        })
    }
}

impl Coordination for Link {
    fn replica_failed(&self, index: u8, error: DiskError) -> Io<Result<Verdict, Deposed>> {
        let inner = self.0.upgrade();
        Io::pending(async move { inner.ok_or(Deposed)?.replica_failed(index, error).await })
    }

    fn replica_joined(&self, index: u8) -> Io<Result<(), Deposed>> {
        let inner = self.0.upgrade();
        Io::pending(async move { inner.ok_or(Deposed)?.replica_joined(index).await })
    }
}

impl Inner {
    fn take(&self, sequence: u64, set: &FlushSet, room: &mut Room) -> Taken {
        let (entries, has_rest) = self.active.take(room);
        let mut taken = Taken { has_rest, ..Taken::default() };
        taken.content.entries = entries;
        let (view, mut noted) = (self.view.get().value, Vec::new());
        let is_flushed = |cached: &Cached| {
            let disks = || route(&view, cached.key()).into_iter().flat_map(|route| route.members);
            set.everything || disks().all(|member| set.disks.contains(&member.disk))
        };
        let mut take = |cached: &Arc<Cached>| {
            let is_flushed = is_flushed(cached);
            let (part, waits) = self.look(cached, |table| {
                let part = table.take(sequence, is_flushed, room);
                (part, !table.waiting().is_empty())
            });
            taken.has_rest |= part.has_rest;
            if !part.content.entries.is_empty() {
                taken.content.entries.extend(part.content.entries);
                taken.content.payload.extend(part.content.payload);
                noted.push(Arc::clone(cached));
            }
            waits
        };
        let mut urgent = self.waiting.take_urgent();
        urgent.retain(&mut take);
        urgent.iter().for_each(|cached| self.waiting.add_urgent(cached));
        if set.everything {
            let mut all = self.waiting.take_all();
            all.retain(&mut take);
            all.iter().for_each(|cached| self.waiting.add(cached));
        }
        self.waiting.note(sequence, noted, self.progress().confirmed);
        taken
    }

    /// Flushes a disk; returns it if that failed and it is needed: what it may have lost is in doubt then.
    pub(crate) async fn flush_port(&self, port: &Arc<Port>) -> Option<DiskNumber> {
        let (disk, of) = (port.number(), port.membership());
        let error = port.flush().await.err()?;
        if self.report(disk, of, Absence::FlushFailed, error).await == Ok(Reported::Removed) {
            return None;
        }
        let view = self.view.get().value;
        for cached in self.waiting.unconfirmed() {
            let members = route(&view, cached.key()).map(|route| route.members).unwrap_or_default();
            if members.iter().any(|member| member.disk == disk) {
                self.look(&cached, |table| table.unconfirmed().iter().for_each(|unit| table.doubt(unit)));
                self.waiting.add_urgent(&cached);
            }
        }
        if self.ports.get(disk, of).is_some_and(|present| Arc::ptr_eq(&present, port)) {
            self.ports.reopen(disk, of).await;
        }
        Some(disk)
    }

    async fn replica_failed(&self, index: u8, error: DiskError) -> Result<Verdict, Deposed> {
        let view = self.view.get().value;
        let copy = view.log_row().and_then(|row| row.copy(index.into()).copied());
        let Some(disk) = copy.map(|copy| copy.place.disk) else { return Ok(Verdict::LeftOut) };
        let Some(of) = view.membership(disk) else { return Ok(Verdict::LeftOut) };
        match self.report(disk, of, Absence::WriteFailed, error).await {
            Ok(Reported::Removed) => Ok(Verdict::LeftOut),
            Ok(Reported::Needed) => loop {
                if let Some(port) = self.ports.reopen(disk, of).await {
                    break Ok(Verdict::Again(port.disk()));
                }
                if self.view.get().value.membership(disk) != Some(of) {
                    break Ok(Verdict::LeftOut);
                }
                self.env.sleep(RETRY).await;
            },
            Err(_) => Err(Deposed),
        }
    }

    async fn replica_joined(&self, index: u8) -> Result<(), Deposed> {
        let view = self.view.get().value;
        let copy = view.log_row().and_then(|row| row.copy(index.into()).copied());
        let Some(copy) = copy else { return Err(Deposed) };
        let Some(membership) = view.membership(copy.place.disk) else { return Ok(()) };
        let generation = copy.generation;
        let op = pool_seam::OwnerOp::NotMissed {
            row: RowNumber::LOG,
            index,
            generation,
            regions: u64::MAX,
            membership,
        };
        self.commit(vec![op]).await.map_err(|_| Deposed)
    }
}
