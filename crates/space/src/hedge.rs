//! Hedged reads: reading the data elsewhere when a disk is slow.
//!
//! A read is *late* if its disk has not completed it in the usual time. The data is then read from another copy too,
//! or recovered from the other columns, if the disk's supervision allows it ([`disk::SlowReads`]); the first valid
//! result is used. A disk that is far slower than its peers is not read at all while other disks have the data.
//!
//! The superfluous read continues, and its buffers are freed when the disk has completed it. If it finds damaged
//! data, the data is rewritten nevertheless.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arena::{IoBuf, SgMut};
use disk::DiskError;
use pool_seam::DiskNumber;

use crate::blocks::ContentId;
use crate::log::entry::Sums;
use crate::owner::Inner;
use crate::port::Port;
use crate::read::{Reading, SpaceRead, fill, has_sums};
use crate::view::{Member, Route, route};
use crate::write::Target;

/// The interval between attempts to allocate memory.
const MEMORY_WAIT: Duration = Duration::from_millis(1);

impl Inner {
    /// A copy of a content on another disk, and its port; preferably one that is not avoided.
    pub(crate) fn another<'a>(
        &self,
        at: &'a Route,
        content: usize,
        than: DiskNumber,
    ) -> Option<(&'a Member, Arc<Port>)> {
        let others =
            at.members.iter().filter(|m| m.counts && m.disk != than && usize::from(m.content) == content);
        let others =
            others.filter_map(|member| Some((member, self.ports.get(member.disk, member.membership?)?)));
        others.min_by_key(|(_, port)| port.is_avoided())
    }

    /// Reads units of a coded row whose disk is far slower than its peers: recovers them from the other columns.
    pub(crate) fn read_around(
        self: &Arc<Inner>,
        target: Target,
        address: Option<u64>,
        at: Route,
        sums: Sums,
        mut dst: SgMut,
    ) -> env::Io<SpaceRead> {
        let inner = Arc::clone(self);
        env::Io::pending(self.env.run(async move {
            if let Ok(Some(cached)) = inner.loaded(target.key).await
                && let Some(units) = inner.from_others(&target, &at, &cached).await
            {
                fill_all(&mut dst, &units);
                let content = ContentId { space: inner.space(), birth: at.birth, content: target.column };
                if has_sums(content, &target, &sums, &dst) && inner.lease.holds() {
                    return (Ok(()), dst);
                }
            }
            inner.read_slowly(target, address, dst, None).wait().await
        }))
    }
}

impl Reading {
    /// Reads the data elsewhere too, because the disk is late.
    pub(crate) async fn hedge(self: Arc<Reading>) {
        let (inner, target) = (&self.inner, &self.target);
        let view = inner.view.get().value;
        let at = route(&view, target.key).filter(|at| !at.is_new && at.birth == self.content.birth);
        let Some(at) = at else { return };
        if at.code.is_some() {
            if self.may_hedge()
                && let Ok(Some(cached)) = inner.loaded(target.key).await
                && let Some(units) = inner.from_others(target, &at, &cached).await
                && let Some(mut dst) = self.shape.try_alloc(&inner.arena)
            {
                fill_all(&mut dst, &units);
                self.answer_if_valid(dst);
            }
            return;
        }
        let Some((other, port)) = inner.another(&at, 0, self.disk) else { return };
        let Some(dst) = self.shape.try_alloc(&inner.arena).filter(|_| self.may_hedge()) else { return };
        let (result, dst) = port.read(other.data + target.offset(), dst).await;
        let damaged = match result {
            Ok(()) => match self.answer_if_valid(dst) {
                Some(dst) => dst,
                None => return,
            },
            Err(DiskError::Medium { .. }) if !dst.is_empty() => dst,
            // The result of the first disk's read is used.
            Err(_) => return,
        };
        // The checksum differs: either the unit was written meanwhile, or this copy is damaged.
        if result.is_err() || self.has_known_sums() {
            inner.note_retry(other.disk);
        }
        let read = inner.read_slowly(target.clone(), self.address, damaged, Some(other.disk)).wait().await;
        if read.0.is_ok() {
            self.answer(read);
        }
    }

    fn may_hedge(&self) -> bool {
        let may = self.inner.ports.get(self.disk, self.of).is_some_and(|port| port.may_hedge());
        self.inner.hedged.fetch_add(u64::from(may), Ordering::Relaxed);
        may
    }

    /// Answers with these bytes if their checksums match; otherwise returns the buffers.
    fn answer_if_valid(&self, dst: SgMut) -> Option<SgMut> {
        if !self.is_valid(&dst) {
            return Some(dst);
        }
        if self.inner.lease.holds() {
            self.answer((Ok(()), dst));
        }
        None
    }

    /// Allocates buffers of the same shape as the caller's, which the slow disk still uses.
    pub(crate) async fn buffers(&self) -> SgMut {
        loop {
            match self.shape.try_alloc(&self.inner.arena) {
                Some(buffers) => return buffers,
                None => self.inner.env.sleep(MEMORY_WAIT).await,
            }
        }
    }
}

fn fill_all(dst: &mut SgMut, units: &[IoBuf]) {
    units.iter().enumerate().for_each(|(at, bytes)| fill(dst, at, Some(bytes), 1));
}
