//! Flushing: what was written before it is durable after it.

use std::sync::Arc;

use crate::SpaceError;
use crate::cache::Cached;
use crate::locks::Mode;
use crate::log::commit::FlushSet;
use crate::owner::{Inner, Space};

impl Space {
    /// Makes all writes durable that have returned.
    ///
    /// # Errors
    /// [`SpaceError`]: some of them may not be.
    pub fn flush(&self) -> env::Io<Result<(), SpaceError>> {
        let inner = Arc::clone(&self.0);
        let env = inner.env.clone();
        let set = FlushSet::everything();
        env::Io::pending(env.run(async move { inner.flush_groups(None, set).await }))
    }
}

impl Inner {
    /// Makes the values of some groups durable, or of all; `set` has their disks.
    pub(crate) async fn flush_groups(
        &self,
        groups: Option<Vec<Arc<Cached>>>,
        set: FlushSet,
    ) -> Result<(), SpaceError> {
        let (_flushing, is_held) = self.waiting.flush();
        let mut locks = Vec::new();
        if is_held {
            // Values that are being overwritten: no other write of these units begins before this has ended.
            let mut groups = groups.unwrap_or_else(|| self.waiting.all());
            groups.sort_unstable_by_key(|cached| cached.key());
            groups.dedup_by_key(|cached| cached.key());
            for cached in groups {
                let held = self.look(&cached, |table| table.held());
                let mut units = held.iter();
                if let Some(first) = units.next() {
                    let last = units.last().unwrap_or(first);
                    locks.push(self.locks.lock(cached.key(), first..last + 1, Mode::Shared).await);
                }
            }
        }
        let wait = self.log().flush(set);
        self.confirmed(wait).await
    }
}
