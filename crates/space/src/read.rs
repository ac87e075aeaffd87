//! Reading: from one complete copy, directly into the caller's buffers, where each unit is verified.
//!
//! A read takes no lock: a unit that does not match may have been written meanwhile, so it is read again under its
//! lock, from every copy. Reads avoid a disk that is late, or far slower than its peers: [`crate::hedge`].

use std::sync::Arc;

use arena::passes::{Pass, count};
use arena::{BufferSizes, Class, IoBuf, IoBufMut, SgMut, parts};
use disk::{Callback, Completion, DiskError, IoRange, Op, Read, sized};
use futures_util::future::join_all;
use parking_lot::Mutex;
use pool_seam::layout::Run;
use pool_seam::{DamageKind, DiskNumber, GROUP, Membership, SpaceView, UNIT};
use smallvec::SmallVec;
use tokio::sync::oneshot;

use crate::SpaceError;
use crate::blocks::{ContentId, Units};
use crate::cache::{Cached, Source};
use crate::heal::ReadCopy;
use crate::locks::Mode;
use crate::log::LogError;
use crate::log::entry::Sums;
use crate::owner::{Inner, Space};
use crate::table::{Table, Value};
use crate::view::{Member, Route, layout, route};
use crate::write::{Blocked, Target, unavailable};

/// The result of a read, with its buffers.
pub type SpaceRead = (Result<(), SpaceError>, SgMut);

/// A read from one disk, and from others too when that disk is late: the first valid result is used. The first disk
/// keeps the caller's buffers until it has completed the read, even if another result is used.
pub(crate) struct Reading {
    pub(crate) inner: Arc<Inner>,
    pub(crate) target: Target,
    /// See [`Inner::read_run`].
    pub(crate) address: Option<u64>,
    /// The content of the units.
    pub(crate) content: ContentId,
    /// The content's index in the table.
    table_content: usize,
    /// The disk that is read first.
    pub(crate) disk: DiskNumber,
    pub(crate) of: Membership,
    /// Held so that a small cache does not evict the table, which is needed on a mismatch.
    cached: Arc<Cached>,
    pub(crate) shape: BufferSizes,
    sums: Sums,
    /// `None` after the caller was answered.
    answer: Mutex<Option<oneshot::Sender<SpaceRead>>>,
}

/// The state of units that is known without a read.
enum Known {
    Zeros,
    Sums(Sums),
    /// Only some are written, or a unit is undecided, lost or unknown.
    Mixed,
}

impl Space {
    /// Reads as many whole units at `address` as `dst` has filled. Unwritten or discarded units are zeros. After an
    /// error the buffers have undefined contents.
    ///
    /// # Panics
    /// If the range is not whole units.
    pub fn read(&self, address: u64, dst: SgMut) -> env::Io<SpaceRead> {
        let inner = &self.0;
        let length: u64 = dst.iter().map(|buffer| buffer.len() as u64).sum();
        let view = inner.view.get().value;
        let is_inside = inner.check_range(view.record.size, address, length);
        if length == 0 || is_inside.is_err() {
            return env::Io::Done((is_inside, dst));
        }
        if inner.writes.is_closed() {
            return env::Io::Done((Err(LogError::Closed.into()), dst));
        }
        if let Some(at) = layout(&view).one_piece(address, length, GROUP) {
            return inner.read_run(Target::new(&view, at, length), Some(address), dst);
        }
        let inner = Arc::clone(inner);
        let env = inner.env.clone();
        env::Io::pending(env.run(async move {
            let mut read = inner.read_runs(address, length, dst).await;
            while read.0 == Err(SpaceError::Moved) {
                read = inner.read_runs(address, length, read.1).await;
            }
            read
        }))
    }
}

impl Inner {
    /// Reads several runs: each directly into its own buffers, or through temporary ones where two runs share a buffer.
    async fn read_runs(self: &Arc<Inner>, address: u64, length: u64, mut dst: SgMut) -> SpaceRead {
        let view = self.view.get().value;
        let runs = layout(&view).runs(address, length, GROUP);
        let targets = runs.iter().map(|run| Target::new(&view, run.at, run.length));
        let mut result = Ok(());
        let Some(own) = own_buffers(&runs, &dst) else {
            for (run, target) in runs.iter().zip(targets) {
                let length = run.length as usize;
                let buffers = sized(self.arena.alloc_sg(length, Class::Control).await, length);
                let (one, back) = self.read_run(target, None, buffers).wait().await;
                scatter(&back, run, &mut dst);
                result = result.and(one);
            }
            return (result, dst);
        };
        let mut slots: SmallVec<[Option<IoBufMut>; 4]> = dst.into_iter().map(Some).collect();
        let mut reads = Vec::with_capacity(runs.len());
        for (target, own) in targets.zip(&own) {
            let buffers = own.iter().filter_map(|at| slots[*at].take()).collect();
            reads.push(self.read_run(target, None, buffers).wait());
        }
        for (own, (one, back)) in own.iter().zip(join_all(reads).await) {
            own.iter().zip(back).for_each(|(at, buffer)| slots[*at] = Some(buffer));
            result = result.and(one);
        }
        (result, slots.into_iter().flatten().collect())
    }

    /// Reads a run. `address`: if the run is contiguous in the space too. A read without it fails with
    /// [`SpaceError::Moved`] if a conversion has moved the data meanwhile.
    pub(crate) fn read_run(
        self: &Arc<Inner>,
        target: Target,
        address: Option<u64>,
        dst: SgMut,
    ) -> env::Io<SpaceRead> {
        let snapshot = self.view.get();
        let at = route(&snapshot.value, target.key).filter(|at| !at.is_new);
        let Some(at) = at else {
            let is_unwritten = self.lease.holds() && is_in_use(&snapshot.value, &target);
            return if is_unwritten { zeros(dst) } else { self.read_slowly(target, address, dst, None) };
        };
        let content = at.content(target.column);
        let is_usable = |m: &&Member| m.counts && m.membership.is_some() && usize::from(m.content) == content;
        let counting: SmallVec<[&Member; 3]> = at.members.iter().filter(is_usable).collect();
        // Neighbouring units are read from the same copy.
        let turn = (target.first() / 64 + target.key.row.0) as usize;
        let Some(mut member) = (!counting.is_empty()).then(|| counting[turn % counting.len()]) else {
            return self.read_slowly(target, address, dst, None);
        };
        let cached = match self.table_to_read(target.key, &at, member) {
            Ok(cached) => cached,
            Err(Blocked::Table(load)) => {
                let inner = Arc::clone(self);
                return env::Io::pending(self.env.run(async move {
                    // Held so that the table is not evicted before its use.
                    match load.await {
                        Ok(_cached) => inner.read_run(target, address, dst).wait().await,
                        Err(_) => inner.read_slowly(target, address, dst, None).wait().await,
                    }
                }));
            }
            Err(_) => return self.read_slowly(target, address, dst, None),
        };
        let sums = match self.with_table(&cached, |table| known(table, &target, content)) {
            // A table from one copy's block does not prove that units are unwritten. The units of a row whose data was
            // converted are discarded after the view has changed.
            Known::Zeros
                if self.lease.holds()
                    && !matches!(cached.source(), Source::Copy(_))
                    && self.view.is_current(&snapshot)
                    && is_in_use(&snapshot.value, &target) =>
            {
                return zeros(dst);
            }
            Known::Sums(sums) => sums,
            Known::Zeros | Known::Mixed => return self.read_slowly(target, address, dst, None),
        };
        if cached.source() == Source::Copy(member.disk) {
            member = counting[(turn + 1) % counting.len()];
        }
        let Some(mut port) = member.membership.and_then(|of| self.ports.get(member.disk, of)) else {
            return self.read_slowly(target, address, dst, None);
        };
        if port.is_avoided() {
            if at.code.is_some() {
                return self.read_around(target, address, at.clone(), sums, dst);
            }
            if let Some(other) =
                self.another(&at, content, member.disk).filter(|(_, port)| !port.is_avoided())
            {
                (member, port) = other;
            }
        }
        let (answer, result) = oneshot::channel();
        let (offset, length) = (member.data + target.offset(), target.units.len() as u64 * UNIT);
        let reading = Arc::new(Reading {
            inner: Arc::clone(self),
            content: ContentId { space: self.space(), birth: at.birth, content: target.column },
            target,
            address,
            table_content: content,
            disk: member.disk,
            of: port.membership(),
            cached,
            shape: BufferSizes::of(&dst),
            sums,
            answer: Mutex::new(Some(answer)),
        });
        port.read_then(offset, dst, Callback::new(reading, 0, IoRange::new(Op::Read, offset, length)));
        env::Io::pending(async move { result.await.unwrap_or_else(|_| closed()) })
    }

    /// Reads unit by unit, in a task, after a mismatch on the `suspect` disk.
    pub(crate) fn read_slowly(
        self: &Arc<Inner>,
        target: Target,
        address: Option<u64>,
        mut dst: SgMut,
        suspect: Option<DiskNumber>,
    ) -> env::Io<SpaceRead> {
        let inner = Arc::clone(self);
        env::Io::pending(self.env.run(async move {
            let result = match (inner.read_units(&target, &mut dst, suspect).await, address) {
                // Another owner may have written after the end of the lease.
                (Ok(()), _) => inner.lease.hold().wait().await.map_err(SpaceError::from),
                (Err(SpaceError::Moved), Some(address)) => {
                    return Space(inner).read(address, dst).wait().await;
                }
                (Err(error), _) => Err(error),
            };
            (result, dst)
        }))
    }

    /// Reads units under their lock: each from a valid copy; bad copies are rewritten. The suspect disk is read first:
    /// if it is valid now, the unit was being written, otherwise it is healed.
    async fn read_units(
        self: &Arc<Inner>,
        target: &Target,
        dst: &mut SgMut,
        suspect: Option<DiskNumber>,
    ) -> Result<(), SpaceError> {
        loop {
            let snapshot = self.view.get();
            if !is_in_use(&snapshot.value, target) {
                return Err(SpaceError::Moved);
            }
            let Some(mut at) = route(&snapshot.value, target.key).filter(|at| !at.is_new) else {
                fill(dst, 0, None, target.units.len());
                return Ok(());
            };
            let cached = match self.table(target.key, &at) {
                Ok(cached) => cached,
                Err(Blocked::Table(load)) => load.await?,
                Err(Blocked::Unavailable(error)) => return Err(error),
                Err(_) => continue,
            };
            let open = |table: &mut Table| target.units.clone().find(|unit| !table.is_readable(*unit));
            if let Some(unit) = self.with_table(&cached, open) {
                let _lock = self.locks.lock(target.key, unit..unit + 1, Mode::Exclusive).await;
                if self.with_table(&cached, |table| !table.is_readable(unit)) {
                    self.decide(&target.only(unit), &cached).await?;
                }
                continue;
            }
            let _lock = self.locks.lock(target.key, target.units.clone(), Mode::Shared).await;
            if self.with_table(&cached, open).is_some() || !self.view.is_current(&snapshot) {
                continue;
            }
            let is_avoided = |m: &Member| {
                m.membership.and_then(|of| self.ports.get(m.disk, of)).is_some_and(|p| p.is_avoided())
            };
            at.members.sort_by_key(|member| (Some(member.disk) != suspect, is_avoided(member)));
            let (mut wanted, content) = (Units::NONE, at.content(target.column));
            for unit in target.units.clone() {
                match self.with_table(&cached, |table| table.value(content, unit)) {
                    Value::Written(_) | Value::Unknown { written: true } => wanted.set(unit, true),
                    Value::Unwritten | Value::Unknown { written: false } => {
                        fill(dst, unit - target.units.start, None, 1)
                    }
                    _ => return Err(self.corrupt(target, unit)),
                }
            }
            if self.read_wanted(target, &at, &cached, wanted, dst).await? {
                return Ok(());
            }
        }
    }

    /// Reads the wanted units of a content from its copies, or recovers them from the other contents; `false` if a disk
    /// was removed meanwhile.
    pub(crate) async fn read_wanted(
        self: &Arc<Inner>,
        target: &Target,
        at: &Route,
        cached: &Arc<Cached>,
        wanted: Units,
        dst: &mut SgMut,
    ) -> Result<bool, SpaceError> {
        if at.code.is_none() {
            return self.read_copies(target, at, cached, wanted, dst).await;
        }
        let content = usize::from(target.column);
        let Some(mut made) = self.columns(target, at, cached, 1 << content).await? else {
            return Ok(false);
        };
        let units = std::mem::take(&mut made.columns[content]);
        for (at_unit, bytes) in units.into_iter().enumerate() {
            let unit = target.units.start + at_unit;
            match bytes {
                _ if !wanted.has(unit) => {}
                Some(bytes) => fill(dst, at_unit, Some(&bytes), 1),
                None => return Err(made.unread.unwrap_or_else(|| self.corrupt(target, unit))),
            }
        }
        Ok(true)
    }

    /// Reads the wanted units of all complete copies in turn, then of others (rule 21); `false` if a disk was removed
    /// meanwhile.
    async fn read_copies(
        &self,
        target: &Target,
        at: &Route,
        cached: &Arc<Cached>,
        mut wanted: Units,
        dst: &mut SgMut,
    ) -> Result<bool, SpaceError> {
        let (members, start) = (&at.members, target.units.start);
        let content = ContentId { space: self.space(), birth: at.birth, content: target.column };
        let (mut damaged, mut good) = (Vec::new(), Vec::new());
        // The error, if not all copies were read.
        let mut unread = None;
        for member in members.iter().filter(|member| member.counts) {
            if wanted.is_empty() {
                break;
            }
            let bytes = match self.read_copy(target, member).await? {
                ReadCopy::Bytes(bytes) => bytes,
                ReadCopy::Changed => return Ok(false),
                ReadCopy::Away => {
                    unread.get_or_insert_with(|| unavailable(target.key.row, members));
                    continue;
                }
                ReadCopy::Failed(error) => {
                    self.note_retry(member.disk);
                    unread.get_or_insert(SpaceError::Disk { disk: member.disk, error });
                    continue;
                }
            };
            for (unit, bytes) in target.units.clone().zip(bytes) {
                if !wanted.has(unit) {
                    continue;
                }
                let index = unit - start;
                let value = self.with_table(cached, |table| table.value(0, unit));
                let sum =
                    |bytes: &IoBuf| Value::Written(content.checksum(target.first() + index as u32, bytes));
                let found = if bytes.is_some() { DamageKind::Healed } else { DamageKind::Unreadable };
                match bytes.filter(|bytes| sum(bytes) == value) {
                    Some(bytes) => {
                        fill(dst, index, Some(&bytes), 1);
                        wanted.set(unit, false);
                        good.push((unit, bytes));
                    }
                    None => damaged.push((member, unit, found)),
                }
            }
        }
        if !wanted.is_empty() {
            let Some(stale) = self.stale_units(target, at, cached, &wanted).await? else { return Ok(false) };
            for (index, bytes) in stale.into_iter().enumerate() {
                let Some(bytes) = bytes else { continue };
                fill(dst, index, Some(&bytes), 1);
                wanted.set(start + index, false);
                good.push((start + index, bytes));
            }
        }
        for (member, unit, found) in damaged {
            if let Some((_, bytes)) = good.iter().find(|(of, _)| *of == unit) {
                self.report_damage(found, member.disk, target, unit);
                self.rewrite(target, member, unit, bytes.clone()).await;
            }
        }
        let Some(unit) = wanted.iter().next() else { return Ok(true) };
        if unread.is_none() {
            self.report_lost_units(members, target, &wanted);
        }
        Err(unread.unwrap_or_else(|| self.corrupt(target, unit)))
    }

    fn corrupt(&self, target: &Target, unit: usize) -> SpaceError {
        SpaceError::Corrupt { address: target.address(&self.view.get().value, unit), length: UNIT }
    }
}

impl Reading {
    /// Whether the bytes match the checksums that were known when the read began.
    pub(crate) fn is_valid(&self, dst: &SgMut) -> bool {
        has_sums(self.content, &self.target, &self.sums, dst)
    }

    /// Whether the checksums are still those that were known when the read began.
    pub(crate) fn has_known_sums(&self) -> bool {
        let known = |table: &mut Table| known(table, &self.target, self.table_content);
        matches!(self.inner.with_table(&self.cached, known), Known::Sums(sums) if sums == self.sums)
    }

    /// Whether the caller was answered, or does not wait any more.
    pub(crate) fn is_answered(&self) -> bool {
        self.answer.lock().as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// Answers the caller, unless it was answered already.
    pub(crate) fn answer(&self, read: SpaceRead) {
        let answer = self.answer.lock().take();
        if let Some(answer) = answer {
            drop(answer.send(read));
        }
    }
}

impl Completion<Read> for Reading {
    fn completed(self: Arc<Reading>, _: usize, (result, dst): Read) {
        match result {
            Ok(()) if self.is_valid(&dst) && self.inner.lease.holds() => return self.answer((Ok(()), dst)),
            // The disk was removed, and the caller has the data from another one.
            Err(DiskError::Timeout { .. } | DiskError::Gone { .. }) if self.is_answered() => return,
            // The units were overwritten meanwhile, or another process may own the space.
            Ok(()) if self.is_valid(&dst) || !self.has_known_sums() => {}
            // Even if the caller has the data already: damage must be repaired.
            _ => self.inner.note_retry(self.disk),
        }
        let env = self.inner.env.clone();
        env.spawn_if_running(async move {
            let dst = if dst.is_empty() { self.buffers().await } else { dst };
            let suspect = Some(self.disk);
            self.answer(self.inner.read_slowly(self.target.clone(), self.address, dst, suspect).wait().await);
        });
    }

    fn late(self: Arc<Reading>, _: usize) {
        if !self.is_answered() {
            let env = self.inner.env.clone();
            env.spawn_if_running(self.hedge());
        }
    }
}

/// Whether the space has these units at the position of a target, which a conversion may have moved.
fn is_in_use(view: &SpaceView, target: &Target) -> bool {
    let is_only_layout = !view.record.is_converting() && target.key.row.half() == view.record.half;
    is_only_layout || target.units.clone().all(|unit| layout(view).is_in_use(target.position(unit)))
}

/// Whether bytes have these checksums.
pub(crate) fn has_sums(content: ContentId, target: &Target, sums: &Sums, dst: &SgMut) -> bool {
    content.checksums(target.first(), dst.iter().map(|buffer| &buffer[..])) == *sums
}

fn known(table: &Table, target: &Target, content: usize) -> Known {
    let mut sums = Sums::new();
    for unit in target.units.clone() {
        match table.value(content, unit) {
            _ if table.is_open(unit) => return Known::Mixed,
            Value::Written(sum) => sums.push(sum),
            Value::Unwritten if sums.is_empty() => {}
            _ => return Known::Mixed,
        }
    }
    match sums.len() {
        0 => Known::Zeros,
        written if written == target.units.len() => Known::Sums(sums),
        _ => Known::Mixed,
    }
}

fn zeros(mut dst: SgMut) -> env::Io<SpaceRead> {
    dst.iter_mut().for_each(|buffer| buffer.filled_mut().fill(0));
    env::Io::Done((Ok(()), dst))
}

fn closed() -> SpaceRead {
    (Err(LogError::Closed.into()), SgMut::new())
}

/// The indexes of each run's buffers; `None` if two runs share a buffer, or a buffer extends past its piece.
fn own_buffers(runs: &[Run], dst: &SgMut) -> Option<Vec<SmallVec<[usize; 4]>>> {
    let starts: SmallVec<[u64; 8]> = dst
        .iter()
        .scan(0, |at, buffer| {
            let start = *at;
            *at += buffer.len() as u64;
            Some(start)
        })
        .collect();
    let own = |run: &Run| {
        let mut own = SmallVec::new();
        for piece in &run.pieces {
            let (mut at, end) = (piece.start, piece.start + piece.length);
            while at < end {
                let buffer = starts.binary_search(&at).ok()?;
                own.push(buffer);
                at += dst[buffer].len() as u64;
            }
            if at > end {
                return None;
            }
        }
        Some(own)
    };
    runs.iter().map(own).collect()
}

/// Copies a run's bytes to their place in `to`.
fn scatter(from: &SgMut, run: &Run, to: &mut SgMut) {
    let mut done = 0;
    for piece in &run.pieces {
        let mut at = piece.start as usize;
        for (buffer, part) in parts(from.iter().map(|b| b.len()), done, piece.length as usize) {
            let bytes = &from[buffer][part];
            copy_in(to, at, bytes);
            at += bytes.len();
        }
        done += piece.length as usize;
    }
    count(Pass::Copy, done);
}

fn copy_in(sg: &mut SgMut, start: usize, mut bytes: &[u8]) {
    let into: SmallVec<[_; 2]> = parts(sg.iter().map(|b| b.len()), start, bytes.len()).collect();
    for (buffer, part) in into {
        let (here, rest) = bytes.split_at(part.len());
        sg[buffer].filled_mut()[part].copy_from_slice(here);
        bytes = rest;
    }
}

/// Copies bytes to each of `units` units from `unit` on; `None` stands for zeros.
pub(crate) fn fill(sg: &mut SgMut, unit: usize, bytes: Option<&[u8]>, units: usize) {
    const ZEROS: [u8; UNIT as usize] = [0; UNIT as usize];
    for at in unit..unit + units {
        copy_in(sg, at * UNIT as usize, bytes.unwrap_or(&ZEROS));
    }
}
