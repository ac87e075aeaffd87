//! Removing and replacing disks, changing their usage; optimizing, upgrading and configuring pools.

use pool::jobs::Subject;
use pool::{DiskNumber, FaultDomains, Policy, Usage, placement};

use super::error::{StorageError, check_location, check_name};
use super::media::media_of;
use super::open_pool::OpenPool;
use super::pools::{Pools, done};
use crate::control::events::EventKind;
use crate::control::storage::{DiskChange, NewDisks, Place, PoolChange, UsageSetting};
use crate::control::types::Changed;
use crate::output::{human_bytes, human_seconds, quoted};

impl Pools {
    /// Removes a disk from a pool: at once if it is empty, otherwise after its data was moved to other disks.
    ///
    /// # Errors
    /// See [`StorageError`]: other disks have no room for its data, or it has the only copy of some;
    /// nothing has changed then.
    pub async fn remove_disk(&self, name: &str, disk: &str) -> Result<Changed, StorageError> {
        let _one = self.changing.lock().await;
        let open = self.pool_to_change(name)?;
        let number = open.disk(disk)?;
        open.remove_permanently(number).await
    }

    /// Adds a disk and removes another one.
    ///
    /// # Errors
    /// See [`StorageError`]. A new disk that was added stays in the pool.
    pub async fn replace_disk(&self, name: &str, old: &str, new: NewDisks) -> Result<Changed, StorageError> {
        let number = self.pool_to_change(name)?.disk(old)?;
        if new.paths.len() != 1 {
            return Err(StorageError::OneDisk(new.paths.len()));
        }
        let mut added = self.add_disks(name, new).await?;
        let _one = self.changing.lock().await;
        let left = self.pool_to_change(name)?.remove_permanently(number).await?;
        added.done = format!("{}\n{}", added.done, left.done);
        added.notes.extend(left.notes);
        Ok(added)
    }

    /// Changes the usage, the medium and the location of a disk.
    ///
    /// # Errors
    /// See [`StorageError`]: the pool has no such disk, or takes no changes.
    pub async fn change_disk(
        &self,
        name: &str,
        disk: &str,
        change: DiskChange,
    ) -> Result<Changed, StorageError> {
        check_location(&change.place)?;
        let _one = self.changing.lock().await;
        let open = self.pool_to_change(name)?;
        let number = open.disk(disk)?;
        let (mut told, mut notes) = (Vec::new(), Vec::new());
        if change.place != Place::default() {
            let now = open.pool.read(|s| s.disks.get(&number).map(|d| d.domains.clone()));
            let place = location_after(now.unwrap_or_default(), &change.place);
            let parts = [("rack", &place.rack), ("node", &place.node), ("enclosure", &place.enclosure)];
            let parts: Vec<_> = parts
                .iter()
                .filter(|(_, p)| !p.is_empty())
                .map(|(level, p)| format!("{level} {p}"))
                .collect();
            let where_to = if parts.is_empty() { "an unknown location".to_owned() } else { parts.join(", ") };
            open.pool.set_domains(number, place).await?;
            told.push(format!("disk {} of the pool {} is in {where_to} now", number.0, open.name()));
            notes.push(format!(
                "existing data is not moved until you run: causeway pool optimize {}",
                quoted(&open.name())
            ));
        }
        if let Some(media) = change.media {
            let media = media_of(media);
            open.pool.set_media(number, media).await?;
            told.push(format!("disk {} of the pool {} has the medium {media} now", number.0, open.name()));
            notes.extend(open.bring_to_class());
        }
        if let Some(usage) = change.usage {
            let left = open.pool.read(|s| placement::evacuation(s, number)).left;
            open.pool.set_usage(number, usage_of(usage)).await?;
            told.push(format!(
                "disk {} of the pool {}: {}",
                number.0,
                open.name(),
                open.meaning(number, usage)
            ));
            if usage == UsageSetting::Retired && left > 0 {
                notes.push(open.no_room(number, left));
            }
        }
        open.check_for_moves();
        let text = if told.is_empty() { "nothing to change".to_owned() } else { told.join("\n") };
        Ok(done(text, notes))
    }

    /// Starts to move data from full disks to empty ones.
    ///
    /// # Errors
    /// See [`StorageError`]: the pool is open for reading only.
    pub async fn optimize_pool(&self, name: &str) -> Result<Changed, StorageError> {
        let _one = self.changing.lock().await;
        let open = self.pool_to_change(name)?;
        let mover = open.mover().ok_or(StorageError::Commit(pool::CommitError::ReadOnly))?;
        let (step, slabs) = open.pool.read(|s| {
            let step = placement::rebalance(s, &std::collections::BTreeSet::new());
            (step.is_some(), placement::to_rebalance(s) as u64 * s.slab_bytes)
        });
        if !step {
            let text = format!("the disks of the pool {name} are already evenly full");
            return Ok(done(
                text,
                open.misplaced_data()
                    .map(|what| format!("{what}, but there is no room"))
                    .into_iter()
                    .collect(),
            ));
        }
        let about = if slabs > 0 { format!(", about {}", human_bytes(slabs)) } else { String::new() };
        let text = match mover.rebalance() {
            true => format!("data of the pool {name} is being moved{about}: see causeway job list"),
            false => format!("data of the pool {name} is being moved already{about}: see causeway job list"),
        };
        Ok(done(text, Vec::new()))
    }

    /// Changes the name, the capacity warning and the repair delay of a pool.
    ///
    /// # Errors
    /// See [`StorageError`].
    pub async fn change_pool(&self, name: &str, change: PoolChange) -> Result<Changed, StorageError> {
        let _one = self.changing.lock().await;
        let open = self.pool_to_change(name)?;
        let mut told = Vec::new();
        if change.warn_at.is_some() || change.repair_after_s.is_some() {
            let now = open.pool.read(|s| s.policy);
            let policy = Policy {
                warn_at: change.warn_at.unwrap_or(now.warn_at),
                repair_after_s: change.repair_after_s.unwrap_or(now.repair_after_s),
            };
            open.pool.set_policy(policy).await?;
            let repair = match policy.repair_after_s {
                Policy::NEVER => "lost disks are not rebuilt automatically".to_owned(),
                s @ 0..60 => format!("a lost disk is rebuilt after {s} s"),
                s => format!("a lost disk is rebuilt after {}", human_seconds(s.into())),
            };
            told.push(format!("pool {name} warns at {} %, and {repair}", policy.warn_at));
            open.check_for_moves();
        }
        if let Some(new) = change.name {
            check_name(&new)?;
            if self.find(&new).is_ok_and(|(id, _)| id != open.pool.id()) {
                return Err(StorageError::PoolExists(new));
            }
            open.pool.rename(&new).await?;
            self.store_names(&open).await;
            open.reporter.report(EventKind::PoolRenamed, format!("renamed from {name}"));
            told.push(format!("pool {name} renamed to {new}"));
        }
        let text = if told.is_empty() { "nothing to change".to_owned() } else { told.join("\n") };
        Ok(done(text, Vec::new()))
    }
}

impl OpenPool {
    /// Removes a disk permanently; the caller holds the lock of the pools.
    async fn remove_permanently(&self, number: DiskNumber) -> Result<Changed, StorageError> {
        let (pool, disk) = (self.name(), number.0);
        let plan = self.pool.read(|s| placement::evacuation(s, number));
        if plan.moves + plan.left == 0 {
            let object = self.reporter.object(Subject::Disk(number));
            self.pool.remove_disk(number).await?;
            self.reporter.report_object(EventKind::DiskRemoved, object, "it was empty".to_owned());
            return Ok(done(format!("disk {disk} removed from the pool {pool}"), Vec::new()));
        }
        let size = |slabs: usize| human_bytes(self.pool.read(|s| slabs as u64 * s.slab_bytes));
        if let Some(why) = plan.why.filter(|_| plan.left > 0) {
            return Err(StorageError::CannotEmpty {
                pool,
                disk,
                left: size(plan.left),
                why: why.to_string(),
            });
        }
        self.pool.set_usage(number, Usage::Leaving).await?;
        self.check_for_moves();
        let text = format!(
            "disk {disk} will be removed from the pool {pool} when its {} are on other disks: see causeway job list",
            size(plan.moves)
        );
        Ok(done(text, Vec::new()))
    }

    /// Checks for data to move after a command changed the usage of a disk.
    fn check_for_moves(&self) {
        if let Some(mover) = self.mover() {
            mover.check_for_work();
        }
    }

    fn meaning(&self, number: DiskNumber, usage: UsageSetting) -> String {
        let used = self.pool.read(|s| s.slabs_used(number).count() as u64 * s.slab_bytes);
        match usage {
            UsageSetting::AutoSelect => "new data is allocated on it".to_owned(),
            UsageSetting::ManualSelect => "no new data is allocated on it".to_owned(),
            UsageSetting::HotSpare => "the data of lost disks is rebuilt on it".to_owned(),
            UsageSetting::Journal => {
                "logs of new virtual disks are allocated on it, and no other new data".to_owned()
            }
            UsageSetting::Retired if used == 0 => {
                "it is empty, and no new data is allocated on it".to_owned()
            }
            UsageSetting::Retired => {
                format!(
                    "no new data is allocated on it, and {} are moved to other disks: see causeway job list",
                    human_bytes(used)
                )
            }
        }
    }

    fn no_room(&self, number: DiskNumber, left: usize) -> String {
        let size = self.pool.read(|s| human_bytes(left as u64 * s.slab_bytes));
        format!(
            "{size} of disk {} do not fit on other disks: add disks (causeway pool add-disk {})",
            number.0,
            quoted(&self.name())
        )
    }
}

/// Usage as the pool defines it.
pub(super) fn usage_of(usage: UsageSetting) -> Usage {
    match usage {
        UsageSetting::AutoSelect => Usage::AutoSelect,
        UsageSetting::ManualSelect => Usage::ManualSelect,
        UsageSetting::HotSpare => Usage::HotSpare,
        UsageSetting::Journal => Usage::Journal,
        UsageSetting::Retired => Usage::Retired,
    }
}

/// The location of a disk, after the changes of a request.
pub(super) fn location_after(now: FaultDomains, requested: &Place) -> FaultDomains {
    let or = |value: &Option<String>, now: String| value.clone().unwrap_or(now);
    FaultDomains {
        enclosure: or(&requested.enclosure, now.enclosure),
        node: or(&requested.node, now.node),
        rack: or(&requested.rack, now.rack),
    }
}
