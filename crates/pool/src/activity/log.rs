//! The activity log on its disk: writes the decisions of [`Core`].
//!
//! Invariant: while a [`Mark`] exists its regions stay marked, from when [`Log::wait_durable`] says that they are.

use std::sync::Arc;

use arena::IoBuf;
use disk::{DiskError, Place};
use env::{Ctx, Epoch, IoFlags};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::core::{Begun, Core};
use crate::Member;
use crate::blocks::activity::BLOCK;
use crate::format::activity;
use crate::pulse::Pulse;
use crate::{SpaceId, UNIT};

/// The log of a member.
pub(crate) struct Log {
    member: Arc<Member>,
    pulse: Arc<Pulse>,
    ctx: Ctx,
    state: Mutex<State>,
    /// A block was written, or could not be.
    changed: Notify,
}

struct State {
    core: Core,
    /// Its disk was removed from service: no new write begins.
    closed: bool,
}

/// Regions that have a write in flight. They are marked durably when what [`Log::begin`] gave with it has
/// been waited for.
pub(crate) struct Mark {
    log: Arc<Log>,
    slab: u32,
    generation: u32,
    regions: u64,
}

/// Why a write may not begin.
#[derive(Debug)]
pub(crate) enum NotMarked {
    /// All entries are in use.
    Full,
    /// The disk was removed from service.
    Closed,
}

impl Log {
    pub(crate) fn new(member: Arc<Member>, epoch: Epoch, core: Core, pulse: Arc<Pulse>) -> Arc<Log> {
        let flags = IoFlags { write_through: true, ..IoFlags::default() };
        let ctx = Ctx { epoch, flags, ..Ctx::default() };
        Arc::new(Log {
            member,
            pulse,
            ctx,
            state: Mutex::new(State { core, closed: false }),
            changed: Notify::new(),
        })
    }

    /// Marks regions until the mark is dropped and flushed; returns the wait for them to be durable, if they
    /// are not yet.
    pub(crate) fn begin(
        self: &Arc<Log>,
        owner: SpaceId,
        slab: u32,
        generation: u32,
        regions: u64,
    ) -> Result<(Mark, Option<Begun>), NotMarked> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(NotMarked::Closed);
        }
        let begun = state.core.begin(owner, slab, generation, regions).map_err(|_| NotMarked::Full)?;
        let begun = (!state.core.is_durable(begun)).then_some(begun);
        Ok((Mark { log: Arc::clone(self), slab, generation, regions }, begun))
    }

    /// Waits until regions are marked durably.
    pub(crate) async fn wait_durable(&self, begun: Begun) -> Result<(), DiskError> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.state.lock().core.is_durable(begun) {
                return Ok(());
            }
            if !self.write_one().await? {
                changed.await;
            }
        }
    }

    /// Writes one block that is due; false when there is none.
    async fn write_one(&self) -> Result<bool, DiskError> {
        let Some(mut write) = self.state.lock().core.next_write() else { return Ok(false) };
        let at = activity(&self.member.areas).offset + ((write.block * 2 + write.place) * BLOCK) as u64;
        let bytes = std::mem::take(&mut write.bytes);
        let place = Place::new(disk::Op::Write, at, bytes.len() as u64);
        let src = [IoBuf::from(bytes)].into_iter().collect();
        let result = match self.pulse.may_write(&self.ctx, place).await {
            Ok(()) => {
                let io = self.pulse.follow(place, || self.member.disk.write(&self.ctx, at, src));
                io.wait(place).await.and_then(|result| result)
            }
            refused => refused,
        };
        self.state.lock().core.written(&write, result.is_ok());
        self.changed.notify_waiters();
        result.map(|()| true)
    }

    /// Writes every block that is due.
    pub(crate) async fn write_due(&self) -> Result<(), DiskError> {
        while self.write_one().await? {}
        Ok(())
    }

    /// No write begins here any more; those that did are counted in [`Log::active`].
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_waiters();
    }

    /// See [`Core::active`].
    pub(crate) fn active(&self, slab: u32, generation: u32) -> u64 {
        self.state.lock().core.active(slab, generation)
    }

    /// Runs `f` on the core. Does not wait: marks become durable when a block is written.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Core) -> R) -> R {
        f(&mut self.state.lock().core)
    }

    /// The bytes of all blocks' places, as on the disk; unreadable ones are zeros.
    pub(crate) async fn read(io: &crate::disks::RawIo, member: &Member, blocks: usize) -> Vec<[Vec<u8>; 2]> {
        let mut places = Vec::with_capacity(blocks);
        for block in 0..blocks as u64 {
            let mut both = [vec![0; BLOCK], vec![0; BLOCK]];
            for (place, bytes) in both.iter_mut().enumerate() {
                let at = activity(&member.areas).offset + (block * 2 + place as u64) * UNIT;
                if let Ok(read) = io.read(&*member.disk, at, BLOCK).await {
                    *bytes = read;
                }
            }
            places.push(both);
        }
        places
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.log.with(|core| core.end(self.slab, self.generation, self.regions));
    }
}
