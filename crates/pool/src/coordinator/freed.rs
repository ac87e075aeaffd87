//! Discards slabs on their disks after a record has freed them, which frees their space on the medium, too. A slab is
//! not reused before its discard is complete: a late discard would destroy another row's data.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use env::{Ctx, Epoch};
use futures_util::future::{join_all, select};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::DISCARD_TIMEOUT;
use crate::{CommitError, DiskNumber, Op, Pool, SlabPlace, State};

/// Slabs that are free in the metadata and being discarded.
#[derive(Default)]
pub(crate) struct Discarding {
    slabs: Mutex<BTreeSet<SlabPlace>>,
    ended: Notify,
    /// No further discard begins.
    is_stopped: AtomicBool,
}

impl Discarding {
    /// The state for choosing new slabs, in which slabs that are being discarded are used.
    pub(super) fn without(&self, state: &State) -> State {
        let mut s = state.clone();
        self.slabs.lock().iter().for_each(|place| s.take_slab(*place));
        s
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slabs.lock().is_empty()
    }

    /// Waits until one of the discards in progress has ended. Returns at once if there are none.
    pub(super) async fn some_end(&self) {
        let mut ended = pin!(self.ended.notified());
        ended.as_mut().enable();
        if !self.is_empty() {
            ended.await;
        }
    }
}

/// Slabs that are being discarded until this is dropped.
struct Freed {
    discarding: Arc<Discarding>,
    slabs: Vec<SlabPlace>,
}

impl Drop for Freed {
    fn drop(&mut self) {
        if self.slabs.is_empty() {
            return; // otherwise requests that wait for slabs would wake each other for ever
        }
        let mut all = self.discarding.slabs.lock();
        self.slabs.iter().for_each(|place| _ = all.remove(place));
        drop(all);
        self.discarding.ended.notify_waiters();
    }
}

impl Pool {
    /// Chooses operations for the state that precedes their record, and writes the record, even if the caller stops
    /// waiting. In the state for `choose`, slabs that are being discarded are in use. Slabs that the record frees are
    /// then discarded in the background. After an error nothing has changed.
    pub(super) async fn decide<T: Send + 'static>(
        &self,
        choose: impl FnOnce(&State) -> (Vec<Op>, T) + Send + 'static,
    ) -> Result<T, CommitError> {
        let (pool, env) = (self.clone(), self.metadata().env.clone());
        env.run(async move {
            let discarding = Arc::clone(&pool.metadata().owners().discarding);
            let decide = move |s: &State| {
                let (ops, choice) = choose(&discarding.without(s));
                let slabs = s.slabs_freed_by_all(&ops);
                discarding.slabs.lock().extend(slabs.iter().copied());
                (ops, (Freed { discarding, slabs }, choice))
            };
            let (freed, choice) = pool.metadata().decide(decide).await?;
            pool.discard(freed);
            Ok(choice)
        })
        .await
    }

    /// Begins no further discard, and waits for those in progress, but at most for [`DISCARD_TIMEOUT`].
    pub(crate) async fn stop_discards(&self) {
        self.metadata().owners().discarding.is_stopped.store(true, Ordering::Relaxed);
        self.discards_end(|_| true).await;
    }

    /// Waits until all discards on these disks have ended, but at most for [`DISCARD_TIMEOUT`]. Returns whether they
    /// have.
    pub(crate) async fn discards_end(&self, on: impl Fn(DiskNumber) -> bool) -> bool {
        let (env, discarding) = (&self.metadata().env, &self.metadata().owners().discarding);
        let has_some = || discarding.slabs.lock().iter().any(|place| on(place.disk));
        let end = async {
            while has_some() {
                discarding.some_end().await;
            }
        };
        select(pin!(end), pin!(env.sleep(DISCARD_TIMEOUT))).await;
        !has_some()
    }

    /// Discards slabs, with one task for each disk: a hanging disk delays only its own slabs. On a disk that does not
    /// support discards, the slabs become free without one.
    fn discard(&self, mut freed: Freed) {
        let (members, c) = (self.members(), Ctx { epoch: Epoch(self.epoch()), ..Ctx::default() });
        let mut disks: BTreeMap<DiskNumber, Vec<SlabPlace>> = BTreeMap::new();
        std::mem::take(&mut freed.slabs).into_iter().for_each(|p| disks.entry(p.disk).or_default().push(p));
        for (disk, slabs) in disks {
            let here = Freed { discarding: Arc::clone(&freed.discarding), slabs };
            let Some(member) = members.get(disk).cloned() else { continue };
            self.metadata().env.spawn(async move {
                let is_stopped = || here.discarding.is_stopped.load(Ordering::Relaxed);
                for some in here.slabs.chunks(64).take_while(|_| !is_stopped()) {
                    let discards = some.iter().map(|place| {
                        let checksums = member.areas.checksums(place.slab);
                        let length = member.areas.data(place.slab).end() - checksums.offset;
                        member.disk.discard(&c, checksums.offset, length).wait()
                    });
                    drop(join_all(discards).await);
                }
            });
        }
    }
}
