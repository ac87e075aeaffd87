//! Lost units across restarts: a unit that no copy has is noted in memory where it is found, and a background
//! task records it in the metadata. The finder does not wait.
//!
//! A unit counts as lost until a scrub of its whole space finds it valid again: so a reported fault does not
//! end merely because the unit is no longer read.

use std::collections::{BTreeMap, BTreeSet};

use arena::Class;
use disk::sized;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::jobs::Progress;
use crate::space::{Space, SpaceError};
use crate::{DataPath, LOST_MAX, LossRecord, Op, SpaceId, State, UNIT};

/// Addresses of lost units that were found since the pool was opened, by space, each once; of a space
/// [`LOST_MAX`] at most.
#[derive(Default)]
pub(crate) struct Noted {
    at: Mutex<BTreeMap<SpaceId, BTreeSet<u64>>>,
    more: Notify,
}

impl Noted {
    /// Whether it is new, and there is room for it.
    pub(crate) fn add(&self, space: SpaceId, address: u64) -> bool {
        let mut all = self.at.lock();
        let at = all.entry(space).or_default();
        let is_new = at.len() < LOST_MAX && at.insert(address);
        if is_new {
            self.more.notify_one();
        }
        is_new
    }

    pub(crate) fn all(&self) -> BTreeMap<SpaceId, BTreeSet<u64>> {
        self.at.lock().clone()
    }

    pub(crate) fn forget(&self, space: SpaceId, gone: &BTreeSet<u64>) {
        if let Some(at) = self.at.lock().get_mut(&space) {
            at.retain(|a| !gone.contains(a));
        }
    }

    /// Waits until one is found that was not known, if none was since the last time.
    pub(crate) async fn more(&self) {
        self.more.notified().await;
    }
}

impl DataPath {
    /// Makes what was found to be lost known to the metadata, if that may be changed;
    /// whether there was anything new.
    ///
    /// # Errors
    /// When the metadata accepts no changes; the findings are recorded later then.
    pub async fn record_losses(&self) -> Result<bool, SpaceError> {
        if self.options.read_only {
            return Ok(false);
        }
        // One task at a time records losses: otherwise one could overwrite what the other has just recorded.
        let _one = self.losses.lock().await;
        let found = self.events.lost();
        let ops: Vec<Op> = self.read(|s| {
            let op = |(space, at): (&SpaceId, &BTreeSet<u64>)| {
                let (was, now) = (known(s, *space), known(s, *space).with(at));
                // A journal's are its scrub's business.
                let is_users = s.spaces.contains_key(space) && s.owner_of(*space).is_none();
                let is_new = is_users && was != now;
                is_new.then_some(Op::Lost { space: *space, record: now })
            };
            found.iter().filter_map(op).collect()
        });
        let is_new = !ops.is_empty();
        if is_new {
            self.book.commit(ops).await?;
        }
        Ok(is_new)
    }
}

/// A whole reading of a space, as far as what was known to be lost is concerned.
pub(crate) struct FoundAgain {
    /// Known addresses where the unit is there again.
    gone: BTreeSet<u64>,
    /// Lost units that the reader found.
    counted: u64,
}

impl Space {
    /// Reads known lost units once more when all of the space has been read: they may have been written,
    /// before or meanwhile. `None`: the job must end.
    pub(crate) async fn find_again(&self, counted: u64, progress: &Progress) -> Option<FoundAgain> {
        let id = self.id();
        let found = self.path.events.lost().remove(&id).unwrap_or_default();
        let all = self.path.read(|s| known(s, id)).at.into_iter().chain(found);
        let mut gone = BTreeSet::new();
        for address in all.collect::<BTreeSet<u64>>() {
            let _turn = progress.piece(UNIT).await?;
            if self.is_there(address).await {
                gone.insert(address);
            }
        }
        Some(FoundAgain { gone, counted })
    }

    /// Commits the end of a whole reading with what it says is lost.
    ///
    /// # Errors
    /// When the metadata takes no changes.
    pub(crate) async fn end_reading(&self, again: FoundAgain, end: Op) -> Result<(), SpaceError> {
        let (path, space) = (&self.path, self.id());
        let _one = path.losses.lock().await;
        let found = path.events.lost().remove(&space).unwrap_or_default();
        let mut ops = vec![end];
        path.read(|s| {
            let was = known(s, space);
            let record = was.settled(&found, &again.gone, again.counted);
            if s.spaces.contains_key(&space) && was != record {
                ops.push(Op::Lost { space, record });
            }
        });
        path.book.commit(ops).await?;
        path.events.noted.forget(space, &again.gone);
        Ok(())
    }

    /// Whether a lost unit can be read: it was written or discarded, or a copy with it has returned. A unit
    /// that cannot be checked now stays lost.
    async fn is_there(&self, address: u64) -> bool {
        let buffers = self.path.io.arena.alloc_sg(UNIT as usize, Class::Control).await;
        if address + UNIT > self.inner.size() {
            return true;
        }
        self.read_at(address, sized(buffers, UNIT as usize)).await.0.is_ok()
    }
}

/// The recorded losses of a space.
fn known(state: &State, space: SpaceId) -> LossRecord {
    state.losses.get(&space).cloned().unwrap_or_default()
}
