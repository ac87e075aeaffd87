//! Creates, resizes, renames and destroys virtual disks.

use std::sync::Arc;

use disk::Media;
use pool::jobs::Subject;
use pool::{
    CommitError, DiskNumber, DiskRecord, InvalidOp, MediaClass, Provisioning, Resiliency, SpaceId,
    SpaceRecord, State, UNIT, Usage,
};

use super::error::{StorageError, check_name};
use super::media::class_of;
use super::open_pool::OpenPool;
use super::pools::{Pools, done};
use crate::control::events::EventKind;
use crate::control::storage::{NewSpace, ProvisioningSetting, ResiliencySetting, SpaceChange};
use crate::control::types::Changed;
use crate::output::human_bytes;

/// The default interleave, in bytes: that of Windows.
const INTERLEAVE: u32 = 256 << 10;
/// The maximum default number of data columns of a mirror and a simple space.
const COLUMNS_MIRROR: usize = 4;
const COLUMNS_SIMPLE: usize = 8;
const COLUMNS_PARITY: usize = 8;
/// Groups of a local reconstruction code.
const GROUPS: u8 = 2;
/// The default number of data columns of a local reconstruction code. [`COLUMNS_LOCAL_FLASH`]: if all disks are flash,
/// the number of disks from which on the default is larger, and that default.
const COLUMNS_LOCAL: u8 = 8;
const COLUMNS_LOCAL_FLASH: (usize, u8) = (16, 12);

impl Pools {
    /// Creates a virtual disk.
    ///
    /// # Errors
    /// See [`StorageError`]; nothing has changed then.
    pub async fn create_space(&self, new: NewSpace) -> Result<Changed, StorageError> {
        match new.size {
            Some(0) => Err(StorageError::Size(0)), // no command could use it
            _ => self.create_space_or_empty(new).await,
        }
    }

    /// [`Pools::create_space`] that also accepts a size of 0, for a new file of a share.
    pub(super) async fn create_space_or_empty(&self, new: NewSpace) -> Result<Changed, StorageError> {
        check_name(&new.name)?;
        let _one = self.changing.lock().await;
        let open = self.pool_to_change(&new.pool)?;
        let owners = open.writable()?;
        let (record, room) = open.pool.read(|s| shape(s, &new))?;
        let why = new.columns.is_none().then(|| open.pool.read(|s| why_columns(s, &record)));
        let (size, pool) = (record.size, open.name());
        let fixed = record.provisioning == Provisioning::Fixed;
        if fixed && size > room {
            return Err(StorageError::TooLarge { pool, size, room });
        }
        let space = owners.create(record).await?;
        if fixed && let Err(error) = allocate(&open, space).await {
            open.writable()?.destroy(space).await?;
            return Err(error);
        }
        tracing::info!(pool = open.name(), space = new.name, size, "virtual disk created");
        let object = open.reporter.object(Subject::Space(space));
        open.reporter.report_object(EventKind::VirtualDiskCreated, object, human_bytes(size));
        let more = (size > room).then(|| {
            format!(
                "the pool has room for {} of it now: add disks before more data is written",
                human_bytes(room)
            )
        });
        let more = why.into_iter().chain(more);
        let text =
            format!("virtual disk {} of {} created in the pool {}", new.name, human_bytes(size), open.name());
        Ok(done(text, more.collect()))
    }

    /// Changes the media, the resiliency, the columns and the size of a virtual disk; or only its name.
    ///
    /// # Errors
    /// See [`StorageError`]. Changes before the failed one remain.
    pub async fn change_space(&self, name: &str, change: SpaceChange) -> Result<Changed, StorageError> {
        let mut all = Vec::new();
        if let Some(media) = &change.media {
            all.push(self.set_space_media(name, class_of(media)).await?);
        }
        if change.resiliency.is_some() || change.columns.is_some() {
            all.push(self.set_space_shape(name, change.resiliency, change.columns).await?);
        }
        if let Some(to) = &change.name {
            return self.rename_space(name, to).await;
        }
        if let Some(size) = change.size {
            all.push(self.resize_space(name, size, change.destroy).await?);
        }
        let text = match all.is_empty() {
            true => "nothing to change".to_owned(),
            false => all.iter().map(|changed| changed.done.as_str()).collect::<Vec<_>>().join("\n"),
        };
        Ok(done(text, all.into_iter().flat_map(|changed| changed.notes).collect()))
    }

    /// Resizes a virtual disk. Data beyond a smaller size is an error, unless `destroy` is set.
    ///
    /// # Errors
    /// See [`StorageError`]: it is in use, or there is data beyond the new size.
    async fn resize_space(&self, name: &str, size: u64, destroy: bool) -> Result<Changed, StorageError> {
        let _one = self.changing.lock().await;
        let (open, space) = self.space_to_change(name)?;
        let size = whole_units(size)?;
        if size == 0 {
            return Err(StorageError::Size(size)); // a size of 0 would destroy everything
        }
        open.refuse_shared(|shared| shared == space)?;
        let had = open.size_of(space);
        if size < had {
            open.refuse_attached(space)?;
        }
        if size < had && !destroy && !open.writable()?.is_unwritten(space, size, had - size).await? {
            return Err(StorageError::Shrinks { name: name.to_owned(), size });
        }
        let note = open.resize_in_use(space, size).await?;
        let (object, sizes) = (open.reporter.object(Subject::Space(space)), [had, size].map(human_bytes));
        open.reporter.report_object(
            EventKind::VirtualDiskResized,
            object,
            format!("from {} to {}", sizes[0], sizes[1]),
        );
        let notes = note.into_iter().map(str::to_owned).collect();
        Ok(done(format!("virtual disk {name} resized to {}", sizes[1]), notes))
    }

    /// Renames a virtual disk; it may be attached.
    ///
    /// # Errors
    /// See [`StorageError`]: the name is taken, the pool takes no changes, or clients of shares have it open. These
    /// would not find it again under its old name, for example to delete it when they close it.
    pub async fn rename_space(&self, name: &str, to: &str) -> Result<Changed, StorageError> {
        let _one = self.changing.lock().await;
        let (open, space) = self.space_to_change(name)?;
        if open.name_of(space) == to {
            return Ok(done("nothing to change".to_owned(), Vec::new()));
        }
        open.refuse_shared(|shared| shared == space)?;
        self.rename_now(&open, space, to).await?;
        Ok(done(format!("virtual disk {name} renamed to {to}"), Vec::new()))
    }

    pub(super) async fn rename_found(
        &self,
        open: &OpenPool,
        space: SpaceId,
        to: &str,
    ) -> Result<(), StorageError> {
        let _one = self.changing.lock().await;
        self.rename_now(open, space, to).await
    }

    async fn rename_now(&self, open: &OpenPool, space: SpaceId, to: &str) -> Result<(), StorageError> {
        check_name(to)?;
        open.pool.rename_space(space, to).await?;
        tracing::info!(pool = open.name(), space = to, "virtual disk renamed");
        self.store_names(open).await;
        Ok(())
    }

    /// Destroys a virtual disk and its data.
    ///
    /// # Errors
    /// See [`StorageError`]: it is in use, or the pool takes no changes.
    pub async fn destroy_space(&self, name: &str) -> Result<Changed, StorageError> {
        let (open, space) = self.space_to_change(name)?;
        self.destroy_found(&open, space).await
    }

    pub(super) async fn destroy_found(
        &self,
        open: &OpenPool,
        space: SpaceId,
    ) -> Result<Changed, StorageError> {
        let _one = self.changing.lock().await;
        open.refuse_attached(space)?;
        open.refuse_shared(|shared| shared == space)?;
        let (object, name) = (open.reporter.object(Subject::Space(space)), open.name_of(space));
        open.writable()?.destroy(space).await?;
        tracing::info!(pool = open.name(), space = name, "virtual disk destroyed");
        self.forget(open.pool.id(), |destroyed| destroyed == space).await;
        let message = "destroyed, with all its data".to_owned();
        open.reporter.report_object(EventKind::VirtualDiskDestroyed, object, message);
        Ok(done(format!("virtual disk {name} destroyed"), Vec::new()))
    }

    /// A virtual disk by name or `pool/name`.
    pub(super) fn find_space(&self, name: &str) -> Result<(Arc<OpenPool>, SpaceId), StorageError> {
        let in_pool = |open: Arc<OpenPool>, name: &str| Some((Arc::clone(&open), open.space_named(name)?));
        let mut found: Vec<_> = self.open_pools().into_iter().filter_map(|o| in_pool(o, name)).collect();
        if let Some((pool, space)) = name.split_once('/')
            && let Ok(open) = self.open_pool(pool)
        {
            found.extend(in_pool(open, space));
        }
        match (found.pop(), found.is_empty()) {
            (Some(one), true) => Ok(one),
            (None, _) => Err(StorageError::NoSpace(name.to_owned())),
            _ => Err(StorageError::Ambiguous { name: name.to_owned(), what: "virtual disks" }),
        }
    }

    /// A virtual disk of a pool that is not read-only, by name or `pool/name`.
    pub(super) fn space_to_change(&self, name: &str) -> Result<(Arc<OpenPool>, SpaceId), StorageError> {
        let found = self.find_space(name)?;
        found.0.writable()?;
        Ok(found)
    }
}

impl OpenPool {
    /// Resizes a virtual disk, in whole units; data beyond a smaller size is destroyed.
    ///
    /// # Errors
    /// See [`StorageError`]; a fixed virtual disk that cannot grow is unchanged.
    pub(super) async fn resize(&self, space: SpaceId, size: u64) -> Result<(), StorageError> {
        let owners = self.writable()?;
        let record = self.pool.read(|s| {
            let record = s.spaces.get(&space).ok_or(InvalidOp::NoSpace(space))?;
            if record.is_converting() {
                return Ok(Err(StorageError::IsConverting { name: record.name.clone() }));
            }
            // This check gives the caller the reason: the owner learns only that the change does not fit.
            s.check_shape(&SpaceRecord { size, ..SpaceRecord::clone(record) })?;
            Ok(Ok((record.size, record.provisioning)))
        });
        let (had, provisioning) = record.map_err(CommitError::Invalid)??;
        if provisioning == Provisioning::Fixed && size >= had {
            self.pool.read(|s| fits(s, space, size))?;
            return self.grow_fixed(space, had, size).await;
        }
        Ok(owners.resize(space, size).await?)
    }

    /// Enlarges a fixed virtual disk and allocates its slabs; without free slabs it is unchanged.
    ///
    /// # Errors
    /// [`StorageError::CannotGrow`], and errors of disks.
    async fn grow_fixed(&self, space: SpaceId, had: u64, size: u64) -> Result<(), StorageError> {
        let owners = self.writable()?;
        owners.resize(space, size).await?;
        let Err(error) = allocate(self, space).await else { return Ok(()) };
        owners.resize(space, had).await?;
        match error {
            error if error.is_no_room() => Err(self.pool.read(|s| cannot_grow(s, space, size))),
            other => Err(other),
        }
    }

    pub(super) fn space_named(&self, name: &str) -> Option<SpaceId> {
        self.pool.read(|s| s.spaces.iter().find(|(_, r)| r.name == name).map(|(id, _)| *id))
    }
}

/// Default number of data columns of a parity space: one disk fewer than there are, so that a lost one can be
/// rebuilt on the remaining disk; at least two, and at most [`COLUMNS_PARITY`], because a rebuild reads the
/// whole stripe.
fn parity_columns(disks: usize, parity: u8) -> u8 {
    disks.saturating_sub(1 + usize::from(parity)).clamp(2, COLUMNS_PARITY) as u8
}

/// Rounds a size up to whole units.
///
/// # Errors
/// [`StorageError::Size`].
fn whole_units(size: u64) -> Result<u64, StorageError> {
    size.checked_next_multiple_of(UNIT).ok_or(StorageError::Size(size))
}

/// Checks that a fixed virtual disk has room for a new size.
///
/// # Errors
/// [`StorageError::CannotGrow`].
fn fits(s: &State, space: SpaceId, size: u64) -> Result<(), StorageError> {
    if size > size_possible(s, space) { Err(cannot_grow(s, space, size)) } else { Ok(()) }
}

fn cannot_grow(s: &State, space: SpaceId, size: u64) -> StorageError {
    let name = s.spaces.get(&space).map_or_else(String::new, |r| r.name.clone());
    StorageError::CannotGrow { pool: s.name.clone(), name, size, room: size_possible(s, space) }
}

/// The largest possible size of a fixed virtual disk: its rows, and those that still fit.
fn size_possible(s: &State, space: SpaceId) -> u64 {
    let Some(record) = s.spaces.get(&space) else { return 0 };
    record.allocated_bytes(s.slab_bytes)
        + pool::health::rows_to_grow(s, space) * record.row_bytes(s.slab_bytes)
}

/// Allocates all slabs of a fixed virtual disk.
async fn allocate(open: &OpenPool, space: SpaceId) -> Result<(), StorageError> {
    Ok(open.writable()?.allocate_all(space).await?)
}

/// The reason for a default number of columns.
fn why_columns(s: &State, record: &SpaceRecord) -> String {
    let (disks, columns, copies) = (usable(s, record.media), record.columns, record.resiliency.copies());
    let all = usize::from(columns) * copies;
    if let Resiliency::LocalParity { groups, .. } = record.resiliency {
        let (all, each) = (record.slabs_in_row(), columns / groups);
        return format!(
            "it has {all} columns, LRC ({columns},{groups},1): {groups} groups of {each} data columns and one parity column each, which can rebuild a lost one, and one parity column over all"
        );
    }
    if record.resiliency.is_parity() {
        let all = record.slabs_in_row();
        let most = parity_columns(disks, record.resiliency.failures() as u8);
        let why = match all < disks {
            _ if columns < most => "so that no enclosure, node or rack has more columns than may be lost",
            true => "one for each disk except one, which is free for repairs",
            false => "no disk is free for repairs until one more is added",
        };
        return format!(
            "it has {all} columns, {} of them parity: {why}; the default is 2 to {COLUMNS_PARITY} columns of data",
            record.resiliency.failures()
        );
    }
    let copies = match copies {
        1 => String::new(),
        n => format!(" of {n} copies each"),
    };
    let left = match disks.saturating_sub(all) {
        0 => "all disks of the pool".to_owned(),
        n if record.resiliency == Resiliency::Simple => {
            format!("rows rotate over {} disks; the loss of a disk loses the data on it", all + n)
        }
        1 => "one disk of the pool is free to rebuild a lost one".to_owned(),
        n => format!("{n} disks of the pool are free to rebuild a lost one"),
    };
    let plural = if columns == 1 { "column" } else { "columns" };
    format!(
        "{columns} {plural}{copies}: large I/O uses {all} disks at a time; {left} (--columns overrides this)"
    )
}

/// Default number of data columns of a local reconstruction code: as Storage Spaces Direct chooses them, 12
/// from 16 disks on if all are flash, else 8.
fn local_columns(s: &State, media: MediaClass, disks: usize) -> u8 {
    let mut all = s.disks.values().map(|r| r.media()).filter(|m| media.takes(*m));
    let flash = all.all(|m| MediaClass::flash().takes(m));
    let (many, columns) = COLUMNS_LOCAL_FLASH;
    if flash && disks >= many { columns } else { COLUMNS_LOCAL }
}

/// The number of disks that new slabs of a virtual disk of this class may be allocated on.
pub(super) fn usable(s: &State, media: MediaClass) -> usize {
    usable_disks(s, media).count()
}

/// The disks that new slabs of a virtual disk of this class may be allocated on.
pub(super) fn usable_disks(s: &State, media: MediaClass) -> impl Iterator<Item = (&DiskNumber, &DiskRecord)> {
    let auto = s.disks.iter().filter(|(d, r)| r.usage == Usage::AutoSelect && s.is_present(**d));
    auto.filter(move |(_, r)| media.takes(r.media()))
}

/// Checks that the pool has enough disks for a row of such a virtual disk.
///
/// # Errors
/// It has too few.
pub(super) fn enough_disks(s: &State, record: &SpaceRecord) -> Result<(), StorageError> {
    let (disks, media, pool) = (usable(s, record.media), record.media, s.name.clone());
    let needed = match record.resiliency {
        Resiliency::Simple => usize::from(record.columns),
        _ => record.slabs_in_row(),
    };
    if needed <= disks {
        return Ok(());
    }
    if media.is_any() {
        return Err(StorageError::TooFewDisks { pool, needed, disks });
    }
    let unknown = s.disks.iter().filter(|(_, r)| r.media() == Media::Unspecified).map(|(d, _)| d.0).collect();
    Err(StorageError::TooFewOfMedia { pool, needed, disks, media, unknown })
}

/// A resiliency as the pool defines it.
pub(super) fn resiliency_of(setting: ResiliencySetting) -> Resiliency {
    match setting {
        ResiliencySetting::Simple => Resiliency::Simple,
        ResiliencySetting::Mirror => Resiliency::Mirror { copies: 2 },
        ResiliencySetting::ThreeWayMirror => Resiliency::Mirror { copies: 3 },
        ResiliencySetting::Parity => Resiliency::Parity { parity: 1 },
        ResiliencySetting::DualParity => Resiliency::Parity { parity: 2 },
    }
}

/// The record of the requested virtual disk, and the number of bytes with its resiliency that fit into the pool.
pub(super) fn shape(s: &State, new: &NewSpace) -> Result<(SpaceRecord, u64), StorageError> {
    shape_on(s, new, class_of(&new.media))
}

/// [`shape`] on disks of these media.
pub(super) fn shape_on(
    s: &State,
    new: &NewSpace,
    media: MediaClass,
) -> Result<(SpaceRecord, u64), StorageError> {
    let resiliency = match (new.resiliency, new.groups) {
        (setting, None | Some(1)) => resiliency_of(setting),
        (_, Some(GROUPS)) => Resiliency::LocalParity { groups: GROUPS, global: 1 },
        (_, Some(other)) => return Err(StorageError::Groups(other)),
    };
    if let Some(groups) = new.groups.filter(|g| *g != 1 && new.resiliency != ResiliencySetting::DualParity) {
        return Err(StorageError::Groups(groups));
    }
    let usable = usable(s, media);
    // A mirror leaves one disk free, so that a lost one can be rebuilt.
    let mirror = || (usable.saturating_sub(1) / resiliency.copies()).clamp(1, COLUMNS_MIRROR) as u8;
    let by_disks = match resiliency {
        Resiliency::Simple => usable.clamp(1, COLUMNS_SIMPLE) as u8,
        Resiliency::Mirror { .. } => pool::placement::columns(s, resiliency, media, mirror()),
        Resiliency::Parity { parity } => {
            pool::placement::columns(s, resiliency, media, parity_columns(usable, parity))
        }
        Resiliency::LocalParity { .. } => local_columns(s, media, usable),
    };
    // The requested number includes the columns of parity.
    let least = resiliency.parity_columns() + if resiliency.is_parity() { 2 } else { 1 };
    if let Some(columns) = new.columns.filter(|c| usize::from(*c) < least) {
        return Err(StorageError::TooFewColumns { columns, least });
    }
    let data = |all: u8| all.saturating_sub(resiliency.parity_columns() as u8);
    let columns = new.columns.map_or(by_disks, data);
    let provisioning = match new.provisioning {
        ProvisioningSetting::Thin => Provisioning::Thin,
        ProvisioningSetting::Fixed => Provisioning::Fixed,
    };
    let mut record = SpaceRecord {
        name: new.name.clone(),
        size: whole_units(new.size.unwrap_or(UNIT))?,
        resiliency,
        interleave: new.interleave.unwrap_or(INTERLEAVE),
        columns,
        provisioning,
        media,
        ..SpaceRecord::default()
    };
    enough_disks(s, &record)?;
    let room = pool::health::rows_that_fit(s, &record) * record.row_bytes(s.slab_bytes);
    match new.size {
        None if room == 0 => Err(StorageError::TooLarge { pool: s.name.clone(), size: UNIT, room }),
        None => {
            record.size = room;
            Ok((record, room))
        }
        Some(_) => Ok((record, room)),
    }
}

#[cfg(test)]
mod tests;
