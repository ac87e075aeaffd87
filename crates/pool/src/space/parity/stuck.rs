//! Changes that have begun and could not be completed: too few columns accepted them, or it is unknown
//! whether the journal has them. They are kept, and carried out before their stripes are used.

use std::ops::Range;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::Striped;
use super::carry::Intent;
use super::table::RowKey;
use crate::RowNumber;
use crate::journal::record;
use crate::space::SpaceError;
use crate::space::left::Left;

#[derive(Default)]
pub(super) struct Stuck(Mutex<Vec<Arc<Intent>>>);

impl Stuck {
    pub(super) fn add(&self, intent: Intent) {
        self.0.lock().push(Arc::new(intent));
    }

    pub(super) fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// Whether one of these stripes waits.
    pub(super) fn has(&self, row: RowNumber, units: &Range<u32>) -> bool {
        self.0.lock().iter().any(|i| i.key.row == row && i.overlaps(units))
    }

    /// Waiting changes of a row are no longer wanted.
    pub(super) fn kill(&self, row: RowNumber) {
        self.0.lock().retain(|i| i.key.row != row);
    }

    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }

    fn first(&self, which: impl Fn(&Intent) -> bool) -> Option<Arc<Intent>> {
        self.0.lock().iter().find(|i| which(i)).cloned()
    }

    fn take(&self, intent: &Arc<Intent>) -> Option<Arc<Intent>> {
        let mut all = self.0.lock();
        let at = all.iter().position(|i| Arc::ptr_eq(i, intent))?;
        Some(all.remove(at))
    }
}

impl Striped {
    /// Carries out what waits for some stripes. The caller has no lock.
    pub(super) async fn settle_stripes(&self, row: RowNumber, units: &Range<u32>) -> Result<(), SpaceError> {
        if !self.p.stuck.has(row, units) {
            return Ok(());
        }
        self.settle_stuck(|i| i.key.row == row && i.overlaps(units)).await?.nothing()
    }

    /// Carries out what waits, of some or of all, as far as it can be; the groups of what waits on.
    ///
    /// # Errors
    /// When the journal cannot be written.
    pub(super) fn settle_stuck<'a>(
        &'a self,
        which: impl Fn(&Intent) -> bool + Send + Sync + 'a,
    ) -> BoxFuture<'a, Result<Left, SpaceError>> {
        Box::pin(async move {
            let mut left: Vec<((RowKey, Range<u32>), SpaceError)> = Vec::new();
            let name = |i: &Intent| (i.key, i.units());
            while let Some(intent) =
                self.p.stuck.first(|i| which(i) && left.iter().all(|(waits, _)| *waits != name(i)))
            {
                let name = name(&intent);
                let units = record::units(intent.stripes.len(), self.p.columns(), intent.payload());
                let room = match intent.is_journaled() {
                    true => None,
                    // Room that takes this to be made cannot be waited for here.
                    false => match self.room(units).await {
                        Ok(room) => Some(room),
                        Err(error) => {
                            left.push((name, error));
                            continue;
                        }
                    },
                };
                if self.p.log.is_failed() {
                    self.mend().await?;
                }
                let _stripes = self.lock(intent.key.row, intent.units()).await;
                let Some(taken) = self.p.stuck.take(&intent) else { continue };
                drop(intent);
                let intent = match Arc::try_unwrap(taken) {
                    Ok(intent) => intent,
                    // Another task examines it, and waits for the lock.
                    Err(shared) => {
                        self.p.stuck.0.lock().push(shared);
                        drop(_stripes);
                        self.space.path.env.sleep(std::time::Duration::from_millis(1)).await;
                        continue;
                    }
                };
                if let Err(error) = self.carry_again(intent, room).await {
                    left.push((name, error));
                }
            }
            Ok(left.into_iter().map(|((key, _), error)| (key.group_key(), error)).collect())
        })
    }

    /// Carries out what keeps the journal from being reused.
    pub(super) async fn settle_journaled(&self) -> Result<(), SpaceError> {
        self.settle_stuck(Intent::is_journaled).await?.nothing()
    }
}
