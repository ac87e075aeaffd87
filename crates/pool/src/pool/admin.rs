//! Administrative changes of an open pool.

use std::sync::Arc;

use disk::{Disk, Media};
use pool_seam::media_number;

use super::create::{NewDisk, describe, suitable};
use super::error::{AdminError, Unsuitable};
use super::plan::{Freshness, LabelContents, continued_alone, freshness};
use super::{Pool, labels};
use crate::format::Label;
use crate::metadata::{Member, Survey};
use crate::{
    CommitError, DiskId, DiskNumber, FaultDomains, InvalidOp, MediaClass, Op, Policy, Presence, RowShape,
    SpaceId, SpaceOp, Usage,
};

impl Pool {
    /// Adds a disk; returns its number. Errors: the disk is unsuitable; or the change failed, and the disk's contents
    /// may be erased.
    pub async fn add_disk(&self, new: &NewDisk) -> Result<DiskNumber, AdminError> {
        let inner = &self.inner;
        let _admin = inner.admin.lock().await;
        inner.changing()?.commit(Vec::new()).await?; // a pool that accepts no changes must not erase a disk
        let (number, slab_bytes, name) =
            self.read(|s| (DiskNumber(s.next_disk), s.slab_bytes, s.name.clone()));
        let overwrite = new.overwrite || self.was_never_added(&new.disk).await;
        let areas = suitable(&inner.io, &NewDisk { overwrite, ..new.clone() }, slab_bytes).await?;
        if self.members().iter().any(|m| m.disk.info().id == new.disk.info().id) {
            return Err(Unsuitable::Twice.into());
        }
        let id = &new.disk.info().id;
        if inner.io.outstanding_writes.has_write(id) || inner.metadata.supervision().is_modifying(None, id) {
            return Err(Unsuitable::StillWriting.into());
        }
        let record = describe(&inner.io.env, new, &areas);
        let member = Member { number, id: record.id, disk: Arc::clone(&new.disk), areas };
        labels::wipe(&inner.io, &new.disk, &areas).await.map_err(Unsuitable::Disk)?;
        let label = self.label_of(&member, &record, name, record.label_sequence);
        labels::write(&inner.io, &new.disk, &label).await.map_err(Unsuitable::Disk)?;
        let joined =
            inner.changing()?.join(Arc::new(member), vec![Op::AddDisk { disk: number, record }]).await;
        if let Err(error) = joined {
            // If the pool is suspended, the disk may have been added.
            if !self.has(label.id) && !matches!(error, CommitError::Suspended(_)) {
                // The next opening ignores the label of a disk that cannot be erased.
                let _ = labels::give_back(&inner.io, &new.disk, &areas).await;
            }
            return Err(error.into());
        }
        Ok(number)
    }

    /// Whether this disk belongs to the pool, present or absent.
    pub fn has(&self, disk: DiskId) -> bool {
        self.read(|s| s.disks.values().any(|r| r.id == disk))
    }

    /// Whether the disk has a label of this pool from a failed addition: the disk is not in the pool, and nothing was
    /// written under that label.
    async fn was_never_added(&self, disk: &Arc<dyn Disk>) -> bool {
        let io = &self.inner.io;
        match labels::read(io, disk).await {
            Ok(label) if label.pool == self.inner.id && !self.has(label.id) => {
                labels::is_unused(io, disk, &label.areas).await
            }
            _ => false,
        }
    }

    /// Returns an absent disk to service: it gets writes again, and is current except for its stale regions. The
    /// caller passes a newly opened device: I/O that timed out on the old handle must not take effect any more.
    /// Errors: [`AdminError::StillWriting`]: I/O from before the removal is outstanding. [`AdminError::Stale`],
    /// unless `accept_loss`: the disk has lost writes that have no other copy. [`AdminError::Diverged`], unless
    /// `accept_loss`: it was used elsewhere, and has the only copy of the writes made there.
    pub async fn return_disk(
        &self,
        disk: Arc<dyn Disk>,
        accept_loss: bool,
    ) -> Result<DiskNumber, AdminError> {
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
        let id = &disk.info().id;
        let owners = inner.metadata.supervision().is_modifying(Some(number), id);
        if owners || inner.io.outstanding_writes.has_write(id) {
            return Err(AdminError::StillWriting(number));
        }
        let size = disk.info().geometry.size;
        if size < label.areas.size {
            return Err(Unsuitable::Small { size, least: label.areas.size }.into());
        }
        let contents = LabelContents {
            id: label.id,
            epoch: label.epoch,
            incarnation: label.incarnation,
            sequence: label.sequence,
            behind: false,
            continued_alone: self.continued_alone(&disk, &label).await,
        };
        // A pool that accepts no changes must not write a label.
        let mut stale = Vec::new();
        let freshness = self.read(|s| freshness(s, number, &contents));
        if freshness == Freshness::Diverged && !accept_loss {
            return Err(AdminError::Diverged(number));
        }
        if freshness != Freshness::Current {
            stale.push(Op::MarkDiskStale { disk: number });
            let alone = self.read(|s| {
                let mut s = s.clone();
                s.apply_all(&stale).is_err() || s.has_only_copies(number)
            });
            if alone && !accept_loss {
                return Err(AdminError::Stale(number));
            }
        }
        let membership = record.next_membership();
        let (spaces, _joining) = self.ask_about_joining(number, membership, &disk, accept_loss).await?;
        // Committed before the disk gets a label, with which it would look current.
        inner.changing()?.commit(stale).await?;
        labels::invalidate_metadata(&inner.io, &disk, &label.areas).await.map_err(Unsuitable::Disk)?;
        let member = Arc::new(Member { number, id: label.id, disk, areas: label.areas });
        let sequence = record.next_label(label.sequence);
        let name = self.read(|s| s.name.clone());
        let label = self.label_of(&member, &record, name, sequence);
        labels::write(&inner.io, &member.disk, &label).await.map_err(Unsuitable::Disk)?;
        inner.unlabelled.lock().remove(&number);
        let mut ops =
            vec![Op::Labelled { disk: number, sequence }, Op::DiskPresent { disk: number, membership }];
        ops.extend(spaces);
        inner.changing()?.join(member, ops).await?;
        inner.events.disk_joined(number);
        Ok(number)
    }

    /// Whether the metadata of a returning disk continues beyond an accepted loss. The disk is read only if a loss
    /// was accepted.
    async fn continued_alone(&self, disk: &Arc<dyn Disk>, label: &Label) -> bool {
        if self.read(|s| s.given_up.is_empty()) {
            return false;
        }
        let (io, number) = (&self.inner.io, label.number);
        let metadata = Survey::new().read_disk(io, disk, &label.areas, label.pool, number).await;
        metadata.history.is_ok_and(|h| self.read(|s| continued_alone(s, &h.point)))
    }

    /// Sets the policy for full pools and lost disks. Errors: [`CommitError::Invalid`]: an invalid percentage.
    pub async fn set_policy(&self, policy: Policy) -> Result<(), CommitError> {
        self.inner.changing()?.commit(vec![Op::SetPolicy { policy }]).await
    }

    /// Sets the location of a disk. Rows keep their places until the pool is optimized, but voters are chosen again
    /// at once.
    pub async fn set_domains(&self, disk: DiskNumber, domains: FaultDomains) -> Result<(), CommitError> {
        self.inner.changing()?.commit(vec![Op::SetDomains { disk, domains }]).await?;
        self.inner.metadata.rechoose().await
    }

    /// Sets the usage of a disk.
    pub async fn set_usage(&self, disk: DiskNumber, usage: Usage) -> Result<(), CommitError> {
        self.inner.changing()?.commit(vec![Op::SetUsage { disk, usage }]).await
    }

    /// Sets the medium of a disk, if the system does not report it. Slabs keep their places until the pool is
    /// optimized.
    pub async fn set_media(&self, disk: DiskNumber, media: Media) -> Result<(), CommitError> {
        let media = media_number(media);
        self.inner.changing()?.commit(vec![Op::SetDiskMedia { disk, media }]).await
    }

    /// Sets the media for a space's slabs; its log may also use faster ones. Existing slabs keep their places until
    /// the pool is optimized.
    pub async fn set_space_media(&self, space: SpaceId, media: MediaClass) -> Result<(), CommitError> {
        let op = SpaceOp::SetMedia { media };
        self.inner.changing()?.commit(vec![Op::Space { space, op }]).await
    }

    /// Sets the shape of new rows of a space; existing rows keep theirs until [`Pool::reshape`]. Errors:
    /// [`CommitError::Invalid`]: an earlier change has not ended, or the shape is not valid.
    pub async fn set_shape(&self, space: SpaceId, shape: RowShape) -> Result<(), CommitError> {
        let op = SpaceOp::SetShape { shape };
        self.inner.changing()?.commit(vec![Op::Space { space, op }]).await?;
        self.inner.metadata.rechoose().await
    }

    /// Removes a disk without slabs from the pool permanently, and erases its labels if it is present. Errors:
    /// [`CommitError::Invalid`]: the disk still has slabs, or is the only one with metadata.
    /// [`AdminError::NotErased`]: the disk was removed from the pool, but not erased.
    pub async fn remove_disk(&self, disk: DiskNumber) -> Result<(), AdminError> {
        let inner = &self.inner;
        let _admin = inner.admin.lock().await;
        if self.read(|s| s.slabs_used(disk).next().is_some()) {
            return Err(CommitError::Invalid(InvalidOp::DiskInUse(disk)).into());
        }
        // A late discard would destroy data that is written to the disk after its removal.
        if !self.discards_end(|other| other == disk).await {
            return Err(CommitError::Invalid(InvalidOp::DiskInUse(disk)).into());
        }
        let member = self.members().get(disk).cloned();
        inner.changing()?.remove(disk).await?;
        inner.metadata.rechoose().await?;
        if let Some(member) = member {
            let wiped = labels::give_back(&inner.io, &member.disk, &member.areas).await;
            wiped.map_err(|error| AdminError::NotErased { disk, error })?;
        }
        Ok(())
    }

    /// Renames the pool, in the metadata and on the labels.
    pub async fn rename(&self, name: &str) -> Result<(), CommitError> {
        let _admin = self.inner.admin.lock().await;
        self.inner.changing()?.commit(vec![Op::RenamePool { name: name.to_owned() }]).await?;
        self.relabel(|_| 0).await
    }

    /// Erases the labels of the disks in service, after [`Pool::export`]: this destroys the pool. An absent disk
    /// keeps its label. Errors: the disk that could not be written; earlier disks are erased.
    pub async fn erase_labels(&self) -> Result<(), AdminError> {
        let inner = &self.inner;
        let _admin = inner.admin.lock().await;
        inner.changing()?;
        for member in self.members().iter() {
            labels::give_back(&inner.io, &member.disk, &member.areas).await.map_err(Unsuitable::Disk)?;
        }
        Ok(())
    }

    /// Exports the pool cleanly, so that any process may open it; it accepts no further changes. Errors:
    /// [`CommitError::Suspended`]: the claim stays on the disks.
    pub async fn export(&self) -> Result<(), CommitError> {
        let _admin = self.inner.admin.lock().await;
        // A late discard would destroy data of the next owner.
        self.stop_discards().await;
        self.inner.changing()?.export().await
    }
}
