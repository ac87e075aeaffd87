//! Changing an open pool by request.

use std::sync::Arc;

use disk::{Disk, Media};
use pool_seam::media_number;

use super::create::{NewDisk, describe, suitable};
use super::error::{AdminError, Unsuitable};
use super::plan::{Freshness, Shown, freshness, went_on};
use super::{Pool, labels};
use crate::format::Label;
use crate::metadata::{Member, Survey};
use crate::{
    CommitError, DataPath, DiskId, DiskNumber, FaultDomains, InvalidOp, MediaClass, Op, Policy, Presence,
    SpaceError, SpaceId, Usage,
};

impl Pool {
    /// Adds a disk; its number.
    ///
    /// # Errors
    /// [`AdminError`]: it is unsuitable, or the change could not be made; its contents may be erased
    /// then.
    pub async fn add_disk(&self, new: &NewDisk) -> Result<DiskNumber, AdminError> {
        self.add_disk_with(new, std::future::ready(())).await.map(|(number, ())| number)
    }

    /// The same. `alone` runs when all slow steps are done, before the disk is added to the pool, and its
    /// result is returned.
    pub(super) async fn add_disk_with<G>(
        &self,
        new: &NewDisk,
        alone: impl Future<Output = G>,
    ) -> Result<(DiskNumber, G), AdminError> {
        let inner = &self.inner;
        let _admin = inner.admin.lock().await;
        inner.changing()?.commit(Vec::new()).await?; // a pool that takes no changes erases no disk
        let (number, slab_bytes, name) =
            self.read(|s| (DiskNumber(s.next_disk), s.slab_bytes, s.name.clone()));
        let overwrite = new.overwrite || self.was_never_added(&new.disk).await;
        let areas = suitable(&inner.io, &NewDisk { overwrite, ..new.clone() }, slab_bytes).await?;
        if self.members().iter().any(|m| m.disk.info().id == new.disk.info().id) {
            return Err(Unsuitable::Twice.into());
        }
        let id = &new.disk.info().id;
        if inner.io.writing.is_to(id) || inner.metadata.supervision().is_modifying(None, id) {
            return Err(Unsuitable::StillWriting.into());
        }
        let record = describe(&inner.io.env, new, &areas);
        let member = Member { number, id: record.id, disk: Arc::clone(&new.disk), areas };
        labels::wipe(&inner.io, &new.disk, &areas).await.map_err(Unsuitable::Disk)?;
        let label = self.label_of(&member, &record, name, record.label_sequence);
        labels::write(&inner.io, &new.disk, &label).await.map_err(Unsuitable::Disk)?;
        let alone = alone.await;
        let joined =
            inner.changing()?.join(Arc::new(member), vec![Op::AddDisk { disk: number, record }]).await;
        if let Err(error) = joined {
            // Of a pool that is suspended it may be one.
            if !self.has(label.id) && !matches!(error, CommitError::Suspended(_)) {
                // A disk that cannot be erased is ignored at the next opening.
                let _ = labels::give_back(&inner.io, &new.disk, &areas).await;
            }
            return Err(error.into());
        }
        Ok((number, alone))
    }

    /// Whether this is one of the pool's disks, here or not.
    pub fn has(&self, disk: DiskId) -> bool {
        self.read(|s| s.disks.values().any(|r| r.id == disk))
    }

    /// Whether the disk has a label of this pool because it was to be added, and was not: the pool does not
    /// have it, and nothing was written under that label.
    async fn was_never_added(&self, disk: &Arc<dyn Disk>) -> bool {
        let io = &self.inner.io;
        match labels::read(io, disk).await {
            Ok(label) if label.pool == self.inner.id && !self.has(label.id) => {
                labels::is_unused(io, disk, &label.areas).await
            }
            _ => false,
        }
    }

    /// Takes back a disk that was absent: it gets writes again, and is current except for the regions that it
    /// has missed. Pass the device opened again: I/O that timed out on the old handle must not arrive any
    /// more.
    ///
    /// # Errors
    /// [`AdminError`]. [`AdminError::StillWriting`]: I/O from before its removal is outstanding.
    /// [`AdminError::Stale`] and [`AdminError::Diverged`] unless `accept_loss`: it has lost writes of which
    /// there is no other copy; it was used elsewhere, and the writes made there exist only on it.
    pub async fn return_disk(
        &self,
        disk: Arc<dyn Disk>,
        accept_loss: bool,
    ) -> Result<DiskNumber, AdminError> {
        let back = self.return_disk_with(disk, accept_loss, std::future::ready(())).await;
        back.map(|(number, ())| number)
    }

    /// The same, as [`Pool::add_disk_with`].
    async fn return_disk_with<G>(
        &self,
        disk: Arc<dyn Disk>,
        accept_loss: bool,
        alone: impl Future<Output = G>,
    ) -> Result<(DiskNumber, G), AdminError> {
        let inner = &self.inner;
        let _admin = inner.admin.lock().await;
        let label = labels::read(&inner.io, &disk).await.map_err(AdminError::NotOurs)?;
        let number = label.number;
        let stranger = AdminError::Stranger { pool: label.pool, number };
        let record = self.read(|s| s.disks.get(&number).cloned()).ok_or(stranger.clone())?;
        if label.pool != inner.id || record.id != label.id {
            return Err(stranger);
        }
        if record.presence == Presence::Present {
            return Err(AdminError::Present(number));
        }
        let data = inner.still_writing.read().as_ref().is_some_and(|writes| writes(number));
        let id = &disk.info().id;
        let owners = inner.metadata.supervision().is_modifying(Some(number), id);
        if data || owners || inner.io.writing.is_to(id) {
            return Err(AdminError::StillWriting(number));
        }
        let size = disk.info().geometry.size;
        if size < label.areas.size {
            return Err(Unsuitable::Small { size, least: label.areas.size }.into());
        }
        let shown = Shown {
            id: label.id,
            epoch: label.epoch,
            incarnation: label.incarnation,
            sequence: label.sequence,
            behind: false,
            went_on: self.went_on(&disk, &label).await,
        };
        // A pool that takes no changes writes no label.
        let mut missed = Vec::new();
        let freshness = self.read(|s| freshness(s, number, &shown));
        if freshness == Freshness::Diverged && !accept_loss {
            return Err(AdminError::Diverged(number));
        }
        if freshness != Freshness::Current {
            missed.push(Op::MissedAll { disk: number });
            let alone = self.read(|s| {
                let mut s = s.clone();
                s.apply_all(&missed).is_err() || s.has_only_copies(number)
            });
            if alone && !accept_loss {
                return Err(AdminError::Stale(number));
            }
        }
        let membership = record.next_membership();
        let spaces = self.ask_joining(number, membership, &disk, accept_loss).await?;
        // Before it gets a label that makes it look current.
        inner.changing()?.commit(missed).await?;
        labels::silence(&inner.io, &disk, &label.areas).await.map_err(Unsuitable::Disk)?;
        let member = Arc::new(Member { number, id: label.id, disk, areas: label.areas });
        let sequence = record.next_label(label.sequence);
        let name = self.read(|s| s.name.clone());
        let label = self.label_of(&member, &record, name, sequence);
        labels::write(&inner.io, &member.disk, &label).await.map_err(Unsuitable::Disk)?;
        inner.unlabelled.lock().remove(&number);
        let mut ops =
            vec![Op::Labelled { disk: number, sequence }, Op::DiskPresent { disk: number, membership }];
        ops.extend(spaces);
        let alone = alone.await;
        inner.changing()?.join(member, ops).await?;
        inner.events.joins(number);
        Ok((number, alone))
    }

    /// Whether the metadata of a returning disk continues beyond a loss that was accepted. Read only if there
    /// was one.
    async fn went_on(&self, disk: &Arc<dyn Disk>, label: &Label) -> bool {
        if self.read(|s| s.given_up.is_empty()) {
            return false;
        }
        let (io, number) = (&self.inner.io, label.number);
        let seen = Survey::new().look(io, disk, &label.areas, label.pool, number).await;
        seen.history.is_ok_and(|h| self.read(|s| went_on(s, &h.point)))
    }

    /// Says what is to become of full pools and lost disks.
    ///
    /// # Errors
    /// [`CommitError::Invalid`]: no percentage.
    pub async fn set_policy(&self, policy: Policy) -> Result<(), CommitError> {
        self.inner.changing()?.commit(vec![Op::SetPolicy { policy }]).await
    }

    /// Sets the location of a disk; rows keep their places until the pool is optimized, the metadata is
    /// spread at once.
    ///
    /// # Errors
    /// [`CommitError`].
    pub async fn set_domains(&self, disk: DiskNumber, domains: FaultDomains) -> Result<(), CommitError> {
        self.inner.changing()?.commit(vec![Op::SetDomains { disk, domains }]).await?;
        self.inner.metadata.rechoose().await
    }

    /// Says what a disk may be used for.
    ///
    /// # Errors
    /// [`CommitError`].
    pub async fn set_usage(&self, disk: DiskNumber, usage: Usage) -> Result<(), CommitError> {
        self.inner.changing()?.commit(vec![Op::SetUsage { disk, usage }]).await
    }

    /// Sets the medium of a disk, if the system does not report it; slabs keep their places until the pool is
    /// optimized.
    ///
    /// # Errors
    /// [`CommitError`].
    pub async fn set_media(&self, disk: DiskNumber, media: Media) -> Result<(), CommitError> {
        let media = media_number(media);
        self.inner.changing()?.commit(vec![Op::SetDiskMedia { disk, media }]).await
    }

    /// Sets the media that a space's slabs may lie on from now on, and its journal on those and faster ones;
    /// slabs keep their places until the pool is optimized.
    ///
    /// # Errors
    /// [`CommitError`].
    pub async fn set_space_media(&self, space: SpaceId, media: MediaClass) -> Result<(), CommitError> {
        let ops = self.read(|s| s.media_ops(space, media));
        self.inner.changing()?.commit(ops).await
    }

    /// Removes a disk without slabs from the pool for good, and erases its labels if it is present.
    ///
    /// # Errors
    /// [`CommitError::Invalid`]: it still has slabs, or it is the only one with metadata.
    /// [`AdminError::NotErased`]: it was removed from the pool, but not erased.
    pub async fn remove_disk(&self, disk: DiskNumber) -> Result<(), AdminError> {
        let inner = &self.inner;
        let _admin = inner.admin.lock().await;
        if self.read(|s| s.slabs_used(disk).next().is_some()) {
            return Err(CommitError::Invalid(InvalidOp::DiskInUse(disk)).into());
        }
        let member = self.members().get(disk).cloned();
        inner.changing()?.remove(disk).await?;
        // Another disk votes in its place before its own copy of the metadata is erased.
        inner.metadata.rechoose().await?;
        if let Some(member) = member {
            let wiped = labels::give_back(&inner.io, &member.disk, &member.areas).await;
            wiped.map_err(|error| AdminError::NotErased { disk, error })?;
        }
        Ok(())
    }

    /// Gives the pool another name, in the metadata and on the labels.
    ///
    /// # Errors
    /// [`CommitError`].
    pub async fn rename(&self, name: &str) -> Result<(), CommitError> {
        let _admin = self.inner.admin.lock().await;
        self.inner.changing()?.commit(vec![Op::RenamePool { name: name.to_owned() }]).await?;
        self.relabel(|_| 0).await
    }

    /// Erases the labels of the disks in service, after [`Pool::export`]: the pool is destroyed. An absent
    /// disk keeps its label.
    ///
    /// # Errors
    /// The disk that could not be written; those before it are erased.
    pub async fn erase_labels(&self) -> Result<(), AdminError> {
        let inner = &self.inner;
        let _admin = inner.admin.lock().await;
        inner.changing()?;
        for member in self.members().iter() {
            labels::give_back(&inner.io, &member.disk, &member.areas).await.map_err(Unsuitable::Disk)?;
        }
        Ok(())
    }

    /// Gives the pool up, cleanly: anybody may open it then. It takes no changes any more.
    ///
    /// # Errors
    /// [`CommitError::Suspended`]: the claim stays.
    pub async fn export(&self) -> Result<(), CommitError> {
        let _admin = self.inner.admin.lock().await;
        self.inner.changing()?.export().await
    }
}

impl DataPath {
    /// Adds a disk to the pool that this is the data path of; its number. From then on rows may get slabs on it.
    ///
    /// # Errors
    /// As for [`Pool::add_disk`]; [`AdminError::Data`] when it is one of the pool and failed at once.
    pub async fn add_disk(
        self: &Arc<DataPath>,
        pool: &Pool,
        new: &NewDisk,
    ) -> Result<DiskNumber, AdminError> {
        // No row gets slabs of a disk that belongs to the pool and cannot be used yet: they would have missed
        // everything.
        let (number, _alone) = pool.add_disk_with(new, self.joining.lock()).await?;
        self.takes_part(pool, number).await?;
        Ok(number)
    }

    /// Takes back a disk that was absent; returns its number. [`DataPath::resync`] copies the missed writes.
    ///
    /// # Errors
    /// As for [`Pool::return_disk`]; [`AdminError::Data`] when it is back and failed at once.
    pub async fn return_disk(
        self: &Arc<DataPath>,
        pool: &Pool,
        disk: Arc<dyn Disk>,
        accept_loss: bool,
    ) -> Result<DiskNumber, AdminError> {
        let (number, _alone) = pool.return_disk_with(disk, accept_loss, self.joining.lock()).await?;
        self.takes_part(pool, number).await?;
        Ok(number)
    }

    /// The caller has `joining`.
    async fn takes_part(self: &Arc<DataPath>, pool: &Pool, number: DiskNumber) -> Result<(), SpaceError> {
        match pool.members().get(number).cloned() {
            Some(member) => self.join_alone(&member).await,
            // It has failed meanwhile, and that was handled.
            None => Ok(()),
        }
    }
}
