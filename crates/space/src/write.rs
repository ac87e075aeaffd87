//! Writing: the steps before the writes to the disks. `docs/0004-spaces.md`, rules 2 to 4 and 10.

use std::ops::Range;
use std::sync::Arc;

use arena::{Sg, sg_len, sg_slice};
use env::BoxFuture;
use futures_util::StreamExt;
use pool_seam::layout::{ColumnPosition, Run};
use pool_seam::{GROUP, Regions, RowNumber, SpaceView, UNIT};
use tokio::sync::OwnedSemaphorePermit;

use smallvec::SmallVec;

use crate::active::{Overwrite, SetKey};
use crate::cache::Cached;
use crate::coded::stripes;
use crate::error::{Disks, SpaceError};
use crate::flight::Change;
use crate::locks::{Mode, RangeLock};
use crate::log::LogError;
use crate::log::commit::FlushSet;
use crate::owner::{Inner, Space};
use crate::port::Port;
use crate::table::{InPlace, Table};
use crate::view::{GroupKey, Member, Route, Snapshot, group_of, layout, route};
use crate::waiting_groups::BlockingWrite;

/// Runs of one write that are in flight at a time.
const AT_ONCE: usize = 8;

/// A run of a write: units of one group.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) key: GroupKey,
    pub(crate) column: u8,
    /// The units of the run, as indexes in the group.
    pub(crate) units: Range<usize>,
}

/// Why a run cannot begin now.
pub(crate) enum Blocked {
    /// The row has no slabs, or they have no blocks.
    Row,
    /// The table is not in memory.
    Table(BoxFuture<Result<Arc<Cached>, SpaceError>>),
    /// A unit is undecided between old and new.
    Open(Arc<Cached>, usize),
    /// A record has to be declared confirmed first.
    Issued(u64),
    /// The region is not active.
    Region(SetKey, u64),
    /// A caller waits for a flush of a value in the group.
    Flush,
    /// A disk has to be reopened.
    Disk(Member),
    /// No complete copy is present.
    Unavailable(SpaceError),
}

/// The kind of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteKind {
    /// New data.
    New,
    /// New stripes, planned for units that are in no record.
    Fresh,
    /// The decision about an open unit, on all copies.
    Decision,
}

/// The units that a run has written, and the table of their group.
pub(crate) type WrittenRun = (Arc<Cached>, Range<usize>);

/// The members that are written, each with its port.
pub(crate) type Members = SmallVec<[(Member, Arc<Port>); 3]>;

/// The right to write the units of a run.
pub(crate) struct WritePermit {
    pub(crate) _lock: RangeLock,
    pub(crate) _permit: OwnedSemaphorePermit,
}

/// A run whose write has begun: its units are in flight.
pub(crate) struct BegunWrite {
    pub(crate) cached: Arc<Cached>,
    pub(crate) snapshot: Snapshot<SpaceView>,
    pub(crate) birth: u32,
    pub(crate) members: Members,
    /// Whether all complete members are among them.
    pub(crate) is_whole: bool,
    pub(crate) overwrite: Option<Overwrite>,
    pub(crate) _blocking: Option<BlockingWrite>,
}

impl Target {
    /// The target for a single unit of this one.
    pub(crate) fn only(&self, unit: usize) -> Target {
        Target { units: unit..unit + 1, ..self.clone() }
    }

    pub(crate) fn new(view: &SpaceView, at: ColumnPosition, length: u64) -> Target {
        let (key, first) = group_of(view, at);
        Target { key, column: at.column, units: first..first + (length / UNIT) as usize }
    }

    /// The number of the first unit, from the beginning of the column.
    pub(crate) fn first(&self) -> u32 {
        self.key.group * pool_seam::GROUP_UNITS as u32 + self.units.start as u32
    }

    /// The address of one of its units; for a parity, the address of the stripe's first unit.
    pub(crate) fn address(&self, view: &SpaceView, unit: usize) -> u64 {
        let columns = view.record.shape_at(self.key.row).columns;
        let column = if self.column < columns { self.column } else { 0 };
        layout(view).address(ColumnPosition { column, ..self.position(unit) })
    }

    /// The position of one of its units.
    pub(crate) fn position(&self, unit: usize) -> ColumnPosition {
        let offset = u64::from(self.key.group) * GROUP + unit as u64 * UNIT;
        ColumnPosition { row: self.key.row, column: self.column, offset }
    }

    /// The byte offset from the beginning of the group's data.
    pub(crate) fn offset(&self) -> u64 {
        self.units.start as u64 * UNIT
    }
}

impl Space {
    /// Writes whole units at `address`. After success reads return them. They are durable after a flush, or on return
    /// with `through`. After an error each unit has its old or its new contents.
    ///
    /// # Panics
    /// If the range is not whole units.
    pub fn write(&self, address: u64, src: Sg, through: bool) -> env::Io<Result<(), SpaceError>> {
        let (inner, length) = (&self.0, sg_len(&src) as u64);
        // A shrink of the space waits for all permits: while this write has one, its range stays inside the space.
        let permit = inner.writes.clone().try_acquire_owned().ok();
        // Checked while this write has a permit, and before it reads the view: no later window of these addresses opens
        // before this write has ended, and the view has the result of earlier ones.
        let is_free = !through && !inner.window.has_any_of(&(address..address.saturating_add(length)));
        let view = inner.view.get().value;
        let is_inside = inner.check_range(view.record.size, address, length);
        if length == 0 || is_inside.is_err() {
            return env::Io::Done(is_inside);
        }
        let at = layout(&view).one_piece(address, length, GROUP).filter(|_| is_free);
        if let (Some(at), Some(permit)) = (at, permit)
            && !inner.is_coded(&view, at.row)
            && let Some(change) = inner.begin_at_once(Target::new(&view, at, length), permit)
        {
            let started = change.start(src);
            return env::Io::pending(async move { started.await.map(drop) });
        }
        let inner = Arc::clone(inner);
        let env = inner.env.clone();
        env::Io::pending(env.run(async move { inner.write_runs(address, &src, through).await }))
    }
}

impl Inner {
    /// Whether a row is coded, or will be.
    pub(crate) fn is_coded(&self, view: &SpaceView, row: RowNumber) -> bool {
        view.record.shape_at(row).resiliency.is_parity()
    }

    async fn write_runs(self: Arc<Inner>, address: u64, src: &Sg, through: bool) -> Result<(), SpaceError> {
        let length = sg_len(src) as u64;
        let _mapped = self.window.wait_outside(address..address + length).await;
        let view = self.view.get().value;
        let runs = layout(&view).runs(address, length, GROUP);
        let written = self.write_to(&view, &runs, src).await?;
        if through { self.make_durable(&written).await } else { Ok(()) }
    }

    /// Writes these runs of a buffer; returns the written units.
    pub(crate) async fn write_to(
        self: &Arc<Inner>,
        view: &SpaceView,
        runs: &[Run],
        src: &Sg,
    ) -> Result<Vec<WrittenRun>, SpaceError> {
        let targets = runs.iter().map(|run| {
            let pieces = run.pieces.iter();
            let part: Sg = pieces.flat_map(|p| sg_slice(src, p.start as usize, p.length as usize)).collect();
            (Target::new(view, run.at, run.length), part)
        });
        let is_coded = |target: &Target| self.is_coded(view, target.key.row);
        let (coded, copied): (Vec<_>, Vec<_>) = targets.partition(|(target, _)| is_coded(target));
        let coded = stripes(coded.into_iter().map(|(target, part)| (target, Some(part))).collect());
        let mut writes: Vec<BoxFuture<Result<WrittenRun, SpaceError>>> = Vec::new();
        for (target, part) in copied {
            let (units, inner) = (target.units.clone(), Arc::clone(self));
            writes.push(Box::pin(async move { Ok((inner.write_run(target, part).await?, units)) }));
        }
        for new in coded {
            let inner = Arc::clone(self);
            writes.push(Box::pin(async move {
                let permit = inner.write_permit(&new.target()).await?;
                Ok((inner.write_stripes(&new, permit).await?, new.units))
            }));
        }
        let mut results = futures_util::stream::iter(writes).buffer_unordered(AT_ONCE);
        let (mut written, mut result) = (Vec::new(), Ok(()));
        while let Some(one) = results.next().await {
            match one {
                Ok(run) => written.push(run),
                Err(error) => result = Err(error),
            }
        }
        result.map(|()| written)
    }

    /// Makes written units durable, without all others of the space.
    async fn make_durable(self: &Arc<Inner>, written: &[WrittenRun]) -> Result<(), SpaceError> {
        let waits = |(cached, units): &WrittenRun| {
            self.with_table(cached, |table| units.clone().any(|unit| table.waits(unit)))
        };
        let groups: Vec<Arc<Cached>> = written.iter().map(|(cached, _)| Arc::clone(cached)).collect();
        let mut disk = None;
        loop {
            let view = self.view.get().value;
            let members = |cached: &Arc<Cached>| route(&view, cached.key()).map(|route| route.members);
            let disks = groups.iter().filter_map(members).flatten().map(|member| member.disk);
            let mut set = FlushSet { everything: false, disks: disks.collect() };
            set.disks.sort_unstable();
            set.disks.dedup();
            groups.iter().for_each(|cached| self.waiting_groups.add_urgent(cached));
            disk = disk.or(set.disks.first().copied());
            self.flush_groups(Some(&groups), set).await?;
            // The record lacks the value if a slab has begun to move to a disk that is not in the flush set.
            if !written.iter().any(waits) {
                break;
            }
        }
        // A disk that was reopened since the write may have lost it.
        let is_open = |(cached, units): &WrittenRun| {
            self.with_table(cached, |table| units.clone().any(|unit| table.is_in_doubt(unit)))
        };
        match disk.filter(|_| written.iter().any(is_open)) {
            Some(disk) => Err(LogError::NotFlushed(disk).into()),
            None => Ok(()),
        }
    }

    /// Writes a run; returns the table of its group.
    async fn write_run(self: &Arc<Inner>, target: Target, src: Sg) -> Result<Arc<Cached>, SpaceError> {
        let permit = self.write_permit(&target).await?;
        self.write_locked(target, permit, src).await
    }

    /// Begins a run if it can begin without waiting for anything but its disks.
    fn begin_at_once(self: &Arc<Inner>, target: Target, permit: OwnedSemaphorePermit) -> Option<Change> {
        if !self.lease.holds() {
            return None;
        }
        let lock = self.locks.try_lock(target.key, target.units.clone(), Mode::Exclusive)?;
        let begun = self.begin(&target, WriteKind::New).ok()?;
        Some(Change {
            inner: Arc::clone(self),
            target,
            begun,
            permit: Some(WritePermit { _lock: lock, _permit: permit }),
        })
    }

    pub(crate) fn check_target(&self, view: &SpaceView, target: &Target) -> Result<(), SpaceError> {
        let last = target.address(view, target.units.end - 1);
        self.check_range(view.record.size, last, UNIT)
    }

    /// Allocates the row of a run. The space may be shrunk meanwhile.
    pub(crate) async fn allocate_for(self: &Arc<Inner>, target: &Target) -> Result<(), SpaceError> {
        let allocated = self.allocate(target.key.row).await;
        self.check_target(&self.view.get().value, target)?;
        allocated
    }

    /// Waits until the run may write its units.
    pub(crate) async fn write_permit(&self, target: &Target) -> Result<WritePermit, SpaceError> {
        let permit = self.writes.clone().acquire_owned().await.map_err(|_| LogError::Closed)?;
        let lock = self.locks.lock(target.key, target.units.clone(), Mode::Exclusive).await;
        Ok(WritePermit { _lock: lock, _permit: permit })
    }

    /// Writes a run; waits for loads, records and decisions as needed. Returns the table of its group.
    pub(crate) async fn write_locked(
        self: &Arc<Inner>,
        target: Target,
        mut permit: WritePermit,
        src: Sg,
    ) -> Result<Arc<Cached>, SpaceError> {
        // A snapshot keeps the region active while this exists.
        let mut _wanted = None;
        loop {
            // Checked while holding a permit: a shrink of the space waits for all permits.
            self.check_target(&self.view.get().value, &target)?;
            self.lease.hold().wait().await?;
            let not_yet = match self.begin(&target, WriteKind::New) {
                Ok(begun) => {
                    let (inner, cached) = (Arc::clone(self), Arc::clone(&begun.cached));
                    let change = Change { inner, target, begun, permit: Some(permit) };
                    return change.start(src).await.map(|_| cached);
                }
                Err(not_yet) => not_yet,
            };
            match not_yet {
                Blocked::Row => {
                    // Released because the allocation may take long.
                    drop(permit);
                    self.allocate_for(&target).await?;
                    permit = self.write_permit(&target).await?;
                }
                Blocked::Table(load) => drop(load.await?),
                Blocked::Open(cached, unit) => {
                    Box::pin(self.decide(&target.only(unit), &cached)).await?;
                }
                Blocked::Issued(record) => self.log().wait_declared(record).await?,
                Blocked::Region(set, region) => {
                    let wanted = self.active.want(set, region);
                    self.log().durable().await?;
                    wanted.is_durable();
                    _wanted = Some(wanted);
                }
                Blocked::Flush => {
                    self.log().flush(FlushSet::everything()).await?;
                }
                Blocked::Disk(member) => drop(self.port(&member).await?),
                Blocked::Unavailable(error) => return Err(error),
            }
        }
    }

    /// Decides how a run may be written now, and marks it in flight. The caller has the lock of its units.
    pub(crate) fn begin(self: &Arc<Inner>, target: &Target, kind: WriteKind) -> Result<BegunWrite, Blocked> {
        let snapshot = self.view.get();
        let route = route(&snapshot.value, target.key).filter(|route| !route.is_new).ok_or(Blocked::Row)?;
        let cached = self.table(target.key, &route)?;
        let members = self.members(target, &route)?;
        let is_whole = members.iter().filter(|(member, _)| member.counts).count() == route.counting();
        let (row, set) = (target.key.row, target.key.set);
        let set = SetKey { row, birth: route.birth, set };
        let region = Regions::new(snapshot.value.slab_bytes).of_group(target.key.group);
        let mut overwrite = None;
        let blocking = self.with_table(&cached, |table| {
            let in_place =
                in_place_state(table, target.units.clone(), kind).map_err(|(issued, unit)| match issued {
                    Some(record) => Blocked::Issued(record),
                    None => Blocked::Open(Arc::clone(&cached), unit),
                })?;
            if in_place == InPlace::Firm {
                overwrite = Some(self.active.begin(set, region).ok_or(Blocked::Region(set, region))?);
            }
            // An acknowledged flush must not rely on values that this write blocks until it has ended.
            let blocks_value = !table.begin_write(target.units.clone());
            let blocking = if blocks_value {
                self.waiting_groups.begin_blocking_write(&cached).map(Some)
            } else {
                Some(None)
            };
            blocking.ok_or_else(|| {
                table.end_write(target.units.clone());
                Blocked::Flush
            })
        });
        let blocking = blocking?;
        Ok(BegunWrite {
            cached,
            snapshot,
            birth: route.birth,
            members,
            is_whole,
            overwrite,
            _blocking: blocking,
        })
    }

    /// The members of a route that are present, with their ports.
    fn members(&self, target: &Target, route: &Route) -> Result<Members, Blocked> {
        let mut members = Members::new();
        for member in &route.members {
            let Some(of) = member.membership else { continue };
            // Without a port the disk must be reopened, or the view is stale, perhaps for the other disks too.
            let port = self.ports.get(member.disk, of).ok_or(Blocked::Disk(*member))?;
            members.push((*member, port));
        }
        let counting = members.iter().filter(|(member, _)| member.counts);
        if route.decodes(counting.fold(0, |have, (member, _)| have | 1 << member.content)) {
            return Ok(members);
        }
        Err(Blocked::Unavailable(unavailable(target.key.row, &route.members)))
    }
}

/// The strictest way in which these units may be written. Otherwise returns what must happen first: a record must be
/// declared confirmed, or a unit decided.
fn in_place_state(
    table: &Table,
    units: Range<usize>,
    kind: WriteKind,
) -> Result<InPlace, (Option<u64>, usize)> {
    let mut strictest = InPlace::Empty;
    for unit in units {
        if kind == WriteKind::Decision {
            continue;
        }
        if table.is_open(unit) {
            return Err((None, unit));
        }
        match table.in_place(unit) {
            InPlace::Issued(record) => return Err((Some(record), unit)),
            InPlace::Firm | InPlace::Discarded if kind == WriteKind::Fresh => return Err((None, unit)),
            InPlace::Firm | InPlace::Discarded => strictest = InPlace::Firm,
            InPlace::Empty => {}
        }
    }
    Ok(strictest)
}

/// The error of units whose copies cannot be read. It names the absent disks; a copy on a present one was not valid.
pub(crate) fn unavailable(row: RowNumber, members: &[Member]) -> SpaceError {
    let counting = members.iter().filter(|member| member.counts);
    let is_any_absent = counting.clone().any(|member| member.membership.is_none());
    let named = counting.filter(|member| !is_any_absent || member.membership.is_none());
    let mut counting = named.map(|member| member.disk);
    match counting.next() {
        Some(first) => SpaceError::Unavailable { row, disks: Disks::new(first, counting) },
        // The metadata always has a complete copy, but the state of an unaccounted disk is not known yet.
        None => SpaceError::Unavailable {
            row,
            disks: Disks::new(members[0].disk, members[1..].iter().map(|m| m.disk)),
        },
    }
}
