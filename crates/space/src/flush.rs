//! Flushing: makes earlier writes durable; and handling of disks whose handle failed.

use std::sync::Arc;

use disk::{DiskError, IoRange, Op};
use pool_seam::{Absence, DiskNumber, Membership, Regions};

use crate::SpaceError;
use crate::active::SetKey;
use crate::cache::Cached;
use crate::locks::Mode;
use crate::log::LogError;
use crate::log::commit::FlushSet;
use crate::owner::{Inner, RETRY, ReportOutcome, Space};
use crate::port::Port;
use crate::view::{GroupKey, Member, route};

impl Space {
    /// Makes all completed writes durable.
    pub fn flush(&self) -> env::Io<Result<(), SpaceError>> {
        let inner = Arc::clone(&self.0);
        let env = inner.env.clone();
        let set = FlushSet::everything();
        env::Io::pending(env.run(async move {
            let flushed = inner.flush_groups(None, set).await;
            // A handle that failed in any call since the last flush may have lost acknowledged writes.
            match (flushed, inner.ports.unreported().first()) {
                (Ok(()), Some(disk)) => Err(LogError::NotFlushed(*disk).into()),
                (flushed, _) => flushed,
            }
        }))
    }
}

impl Inner {
    /// Makes the values of some groups, or of all (`None`), durable; `set` has their disks.
    pub(crate) async fn flush_groups(
        &self,
        groups: Option<&[Arc<Cached>]>,
        set: FlushSet,
    ) -> Result<(), SpaceError> {
        let (_flushing, mut blocking) = self.waiting_groups.flush();
        // Values that are being overwritten: no further write of these units begins before this flush ends.
        let is_wanted =
            |cached: &Arc<Cached>| groups.is_none_or(|of| of.iter().any(|of| Arc::ptr_eq(of, cached)));
        blocking.retain(is_wanted);
        blocking.sort_unstable_by_key(|cached| cached.key());
        blocking.dedup_by_key(|cached| cached.key());
        let mut locks = Vec::new();
        for cached in blocking {
            let held = self.with_table(&cached, |table| table.held());
            let mut units = held.iter();
            if let Some(first) = units.next() {
                let last = units.last().unwrap_or(first);
                locks.push(self.locks.lock(cached.key(), first..last + 1, Mode::Shared).await);
            }
        }
        let wait = self.log().flush(set);
        self.confirmed(wait).await
    }

    /// Flushes a disk; returns its number if that failed and the disk is needed: the units that it may have lost are in
    /// doubt then.
    pub(crate) async fn flush_port(&self, port: &Arc<Port>) -> Option<DiskNumber> {
        let (disk, of) = (port.number(), port.membership());
        loop {
            let error = port.flush().await.err()?;
            if !self.ports.has_failed(port) {
                let reported = self.report(disk, of, Absence::FlushFailed, error).await;
                if reported == Ok(ReportOutcome::Removed) {
                    return None;
                }
                if matches!(error, DiskError::Timeout { .. }) && !port.has_ended() {
                    // The disk could not be removed.
                    self.note_retry(disk);
                    self.env.sleep(RETRY).await;
                    continue;
                }
            }
            self.abandon(port);
            // The disk may have been removed after all.
            return self.ports.has(disk, of).then_some(disk);
        }
    }

    /// Closes a failed handle of a disk that stays in service: no flush through it can succeed. Unflushed writes are in
    /// doubt when this returns. The disk is reopened at its next use ([`Inner::port`]).
    pub(crate) fn abandon(&self, port: &Arc<Port>) {
        // Ended first: a change that sets its value after the units were marked in doubt must find that its port has
        // ended.
        port.end();
        let present = self.ports.get(port.number(), port.membership());
        if !present.is_some_and(|present| Arc::ptr_eq(&present, port)) {
            // Another call handles this failure.
            return;
        }
        let view = self.view.get().value;
        for cached in self.cache.dirty() {
            let Some(at) = route(&view, cached.key()) else { continue };
            if at.members.iter().any(|member| member.disk == port.number()) {
                // The disk may have a value of an overwrite that was replaced before a record had it.
                let GroupKey { row, set, group } = cached.key();
                let region = Regions::new(view.slab_bytes).of_group(group);
                self.active.unresolve(SetKey { row, birth: at.birth, set }, region);
                self.with_table(&cached, |table| {
                    // Units that are only in the log do not depend on the disk.
                    let unconfirmed = table.unconfirmed().iter().filter(|unit| table.redo(*unit).is_none());
                    unconfirmed.collect::<Vec<_>>().into_iter().for_each(|unit| table.doubt(unit));
                    if table.has_parity() {
                        // Only the log confirms the value: the unit in place may be lost, but can be recovered from
                        // the others.
                        let stale = table.stale();
                        table.unresolve(stale.iter());
                    }
                });
                self.waiting_groups.add_urgent(&cached);
            }
        }
        self.ports.abandon(port);
    }

    /// The port of a member; `None` if its disk is absent, or was removed meanwhile. Reopens the disk if its handle has
    /// failed. Fails if the disk is needed and cannot be opened.
    pub(crate) async fn port(&self, member: &Member) -> Result<Option<Arc<Port>>, SpaceError> {
        match member.membership {
            Some(of) => self.port_of(member.disk, of).await,
            None => Ok(None),
        }
    }

    /// [`Inner::port`] for a disk in a membership.
    pub(crate) async fn port_of(
        &self,
        disk: DiskNumber,
        of: Membership,
    ) -> Result<Option<Arc<Port>>, SpaceError> {
        if let Some(port) = self.ports.get(disk, of) {
            return Ok(Some(port));
        }
        let opened = self.ports.reopen(disk, of).await;
        if opened.is_some() || self.view.get().value.membership(disk) != Some(of) {
            return Ok(opened);
        }
        let error = DiskError::Gone { at: IoRange::whole(Op::Write) };
        if self.report(disk, of, Absence::Gone, error).await? == ReportOutcome::Needed {
            self.env.sleep(RETRY).await;
            return Err(SpaceError::Disk { disk, error });
        }
        Ok(None)
    }
}
