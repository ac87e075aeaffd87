//! Flushing: what was written before it is durable after it; and disks whose handle failed.

use std::sync::Arc;

use disk::{DiskError, Op, Place};
use pool_seam::{Absence, DiskNumber, Membership};

use crate::SpaceError;
use crate::cache::Cached;
use crate::locks::Mode;
use crate::log::LogError;
use crate::log::commit::FlushSet;
use crate::owner::{Inner, RETRY, Reported, Space};
use crate::port::Port;
use crate::view::{Member, route};

impl Space {
    /// Makes all writes durable that have returned.
    pub fn flush(&self) -> env::Io<Result<(), SpaceError>> {
        let inner = Arc::clone(&self.0);
        let env = inner.env.clone();
        let set = FlushSet::everything();
        env::Io::pending(env.run(async move {
            let flushed = inner.flush_groups(None, set).await;
            // A handle that failed since the last flush, in any call, may have lost what was acknowledged before.
            match (flushed, inner.ports.unreported().first()) {
                (Ok(()), Some(disk)) => Err(LogError::NotFlushed(*disk).into()),
                (flushed, _) => flushed,
            }
        }))
    }
}

impl Inner {
    /// Makes the values of some groups durable, or of all; `set` has their disks.
    pub(crate) async fn flush_groups(
        &self,
        groups: Option<&[Arc<Cached>]>,
        set: FlushSet,
    ) -> Result<(), SpaceError> {
        let (_flushing, mut holding) = self.waiting.flush();
        // Values that are being overwritten: no other write of these units begins before this has ended.
        let is_wanted =
            |cached: &Arc<Cached>| groups.is_none_or(|of| of.iter().any(|of| Arc::ptr_eq(of, cached)));
        holding.retain(is_wanted);
        holding.sort_unstable_by_key(|cached| cached.key());
        holding.dedup_by_key(|cached| cached.key());
        let mut locks = Vec::new();
        for cached in holding {
            let held = self.look(&cached, |table| table.held());
            let mut units = held.iter();
            if let Some(first) = units.next() {
                let last = units.last().unwrap_or(first);
                locks.push(self.locks.lock(cached.key(), first..last + 1, Mode::Shared).await);
            }
        }
        let wait = self.log().flush(set);
        self.confirmed(wait).await
    }

    /// Flushes a disk; returns it if that failed and it is needed: what it may have lost is in doubt then.
    pub(crate) async fn flush_port(&self, port: &Arc<Port>) -> Option<DiskNumber> {
        let (disk, of) = (port.number(), port.membership());
        loop {
            let error = port.flush().await.err()?;
            if !self.ports.has_failed(port) {
                let reported = self.report(disk, of, Absence::FlushFailed, error).await;
                if reported == Ok(Reported::Removed) {
                    return None;
                }
                if matches!(error, DiskError::Timeout { .. }) && !port.has_ended() {
                    // It was to leave, and stays.
                    self.env.sleep(RETRY).await;
                    continue;
                }
            }
            self.abandon(port);
            // It may have left after all.
            return self.ports.has(disk, of).then_some(disk);
        }
    }

    /// Ends a handle that failed of a disk that stays, because it makes nothing durable any more. What was written and not
    /// flushed is in doubt when this returns. The disk is opened anew when it is needed ([`Inner::port`]).
    pub(crate) fn abandon(&self, port: &Arc<Port>) {
        // First: a value that is set after the doubts finds that its port has ended.
        port.end();
        let present = self.ports.get(port.number(), port.membership());
        if !present.is_some_and(|present| Arc::ptr_eq(&present, port)) {
            // Another call has done the rest.
            return;
        }
        let view = self.view.get().value;
        for cached in self.cache.dirty() {
            let members = route(&view, cached.key()).map(|route| route.members).unwrap_or_default();
            if members.iter().any(|member| member.disk == port.number()) {
                self.look(&cached, |table| {
                    // What is in the log only does not depend on the disk.
                    let unconfirmed = table.unconfirmed().iter().filter(|unit| table.redo(*unit).is_none());
                    unconfirmed.collect::<Vec<_>>().into_iter().for_each(|unit| table.doubt(unit));
                    if table.has_parity() {
                        // Confirmed by the log alone: the unit in place may be lost, and the others make it.
                        let stale = table.stale();
                        table.unresolve(stale.iter());
                    }
                });
                self.waiting.add_urgent(&cached);
            }
        }
        self.ports.abandon(port);
    }

    /// The port of a member; none if its disk is absent, or has left by now. Opens the disk anew if its handle has failed.
    /// Fails if the disk cannot be reached from here, and is needed.
    pub(crate) async fn port(&self, member: &Member) -> Result<Option<Arc<Port>>, SpaceError> {
        match member.membership {
            Some(of) => self.port_of(member.disk, of).await,
            None => Ok(None),
        }
    }

    /// The same of a disk in a membership.
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
        let error = DiskError::Gone { at: Place::whole(Op::Write) };
        if self.report(disk, of, Absence::Gone, error).await? == Reported::Needed {
            self.env.sleep(RETRY).await;
            return Err(SpaceError::Disk { disk, error });
        }
        Ok(None)
    }
}
