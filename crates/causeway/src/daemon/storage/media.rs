//! The media of disks, and the media that a virtual disk may use.

use disk::Media;
use pool::{CommitError, InvalidOp, MediaClass, Op, SpaceId, SpaceOp, State, placement};

use super::error::StorageError;
use super::open_pool::OpenPool;
use super::pools::{Pools, done};
use super::spaces::{enough_disks, usable_disks};
use crate::control::storage::{ClassSetting, MediaSetting};
use crate::control::types::Changed;
use crate::output::human_bytes;

/// A medium as the pool defines it.
pub(super) fn media_of(media: MediaSetting) -> Media {
    match media {
        MediaSetting::Hdd => Media::Hdd,
        MediaSetting::Ssd => Media::Ssd,
        MediaSetting::Nvme => Media::Nvme,
        MediaSetting::Scm => Media::Scm,
        MediaSetting::Unspecified => Media::Unspecified,
    }
}

/// The class of all these media; any medium if the list is empty.
pub(super) fn class_of(media: &[ClassSetting]) -> MediaClass {
    if media.contains(&ClassSetting::Any) {
        return MediaClass::ANY;
    }
    MediaClass::of(media.iter().flat_map(|m| match m {
        ClassSetting::Hdd => vec![Media::Hdd],
        ClassSetting::Ssd => vec![Media::Ssd],
        ClassSetting::Nvme => vec![Media::Nvme],
        ClassSetting::Scm => vec![Media::Scm],
        ClassSetting::Flash => MediaClass::flash().media().collect(),
        ClassSetting::Any => Vec::new(),
    }))
}

impl Pools {
    /// Sets the media that a virtual disk may use, and starts to move data that is on other media.
    ///
    /// # Errors
    /// See [`StorageError`]: too few such disks, no room on them, or data that cannot move; nothing has changed then.
    pub(super) async fn set_space_media(
        &self,
        name: &str,
        media: MediaClass,
    ) -> Result<Changed, StorageError> {
        let _one = self.changing.lock().await;
        let (open, space) = self.space_to_change(name)?;
        let moves = open.pool.read(|s| slabs_to_move(s, space, media))?;
        open.pool.set_space_media(space, media).await?;
        let size = open.pool.read(|s| moves as u64 * s.slab_bytes);
        if moves > 0 {
            open.bring_to_class();
        }
        let where_to = if media.is_any() { "any disk".to_owned() } else { media.disks() };
        let text = match moves {
            0 => format!("virtual disk {name} may use {where_to} now"),
            _ => format!(
                "virtual disk {name} may use {where_to} now; {} of it are moved there: see causeway job list",
                human_bytes(size)
            ),
        };
        Ok(done(text, Vec::new()))
    }
}

impl OpenPool {
    /// Starts moving data that is on other media than allowed; returns a note about it.
    pub(super) fn bring_to_class(&self) -> Option<String> {
        let what = self.misplaced_data()?;
        if let Some(mover) = self.mover() {
            mover.rebalance();
        }
        Some(format!("{what}, and are moved if there is room: see causeway job list"))
    }

    /// A text about data on media that its virtual disk may not use, if there is any.
    pub(super) fn misplaced_data(&self) -> Option<String> {
        let bytes = self.pool.read(|s| {
            let slabs: usize = s.spaces.keys().map(|space| placement::outside(s, *space)).sum();
            slabs as u64 * s.slab_bytes
        });
        (bytes > 0)
            .then(|| format!("{} are on other media than their virtual disks may use", human_bytes(bytes)))
    }
}

/// The number of slabs of a virtual disk that would have to move for this class.
///
/// # Errors
/// The class is not possible.
fn slabs_to_move(s: &State, space: SpaceId, media: MediaClass) -> Result<usize, StorageError> {
    let record = s.spaces.get(&space).ok_or(invalid(InvalidOp::NoSpace(space)))?;
    enough_disks(s, &pool::SpaceRecord { media, ..pool::SpaceRecord::clone(record) })?;
    let mut then = s.clone();
    then.apply(&Op::Space { space, op: SpaceOp::SetMedia { media } }).map_err(invalid)?;
    let slabs = placement::outside(&then, space);
    let (name, bytes) = (record.name.clone(), slabs as u64 * s.slab_bytes);
    let free = usable_disks(s, media)
        .map(|(d, r)| u64::from(s.slabs_free(*d).saturating_sub(placement::reserve(r.slabs))));
    let room = free.sum::<u64>() * s.slab_bytes;
    if bytes > room {
        return Err(StorageError::NoRoomThere { name, bytes, room, media });
    }
    Ok(slabs)
}

fn invalid(why: InvalidOp) -> StorageError {
    StorageError::Commit(CommitError::Invalid(why))
}
