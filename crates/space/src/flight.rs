//! A write in progress on its disks, and its completion: the results are checked against the metadata at that time
//! (rules 4 and 10).
//!
//! Nearly every write needs no task: its last completion ends it. A write that failed on any disk, or whose view has
//! changed, continues in a task.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arena::Sg;
use disk::{Callback, Completion, DiskError, IoRange, Op, Written};
use parking_lot::Mutex;
use pool_seam::{Absence, OwnerOp, Regions};
use smallvec::{SmallVec, smallvec};
use tokio::sync::oneshot;

use crate::SpaceError;
use crate::blocks::ContentId;
use crate::log::LogError;
use crate::log::entry::Sums;
use crate::owner::{Inner, RETRY, ReportOutcome};
use crate::table::{Value, Values};
use crate::view::{Member, route};
use crate::write::{BegunWrite, Target, WritePermit, unavailable};

/// A write that was begun.
pub(crate) struct Change {
    pub(crate) inner: Arc<Inner>,
    pub(crate) target: Target,
    pub(crate) begun: BegunWrite,
    /// `None` for a decision, whose caller has the lock of the unit.
    pub(crate) permit: Option<WritePermit>,
}

/// A change whose I/Os are in progress.
struct Flight(Mutex<State>);

struct State {
    results: Results,
    left: usize,
    /// Taken when all I/Os have completed.
    after_io: Option<AfterIo>,
}

/// The state needed after the I/Os. It is large, so it is moved only if an I/O fails.
struct AfterIo {
    change: Change,
    new: NewData,
    answer: Option<oneshot::Sender<Result<ChangeOutcome, SpaceError>>>,
}

/// The outcome of a change that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeOutcome {
    Written,
    /// The outcome is unknown: only for a decision, which the caller repeats.
    ToRepeat,
}

/// The new data of a change.
pub(crate) enum NewData {
    /// The same bytes for each copy, and their checksums.
    Copies(Sg, Sums),
    /// The bytes of some contents of a coded row, and the values of the units.
    Stripes(Stripes),
}

/// See [`NewData::Stripes`].
#[derive(Clone)]
pub(crate) struct Stripes {
    /// The bytes of each content; `None` for contents that are not written.
    pub(crate) parts: Vec<Option<Sg>>,
    /// The values of each unit; `None` if the table has them already, and the log has the bytes.
    pub(crate) values: Option<Vec<Values>>,
}

/// The result of each member's write.
type Results = SmallVec<[Written; 3]>;

impl NewData {
    /// The bytes for a member.
    fn part(&self, member: &Member) -> Option<&Sg> {
        match self {
            NewData::Copies(src, _) => Some(src),
            NewData::Stripes(stripes) => stripes.parts.get(usize::from(member.content))?.as_ref(),
        }
    }
}

impl Change {
    /// Issues the same write to all members. Awaiting the returned future only waits.
    pub(crate) fn start(
        self,
        src: Sg,
    ) -> impl Future<Output = Result<ChangeOutcome, SpaceError>> + Send + 'static {
        let content =
            ContentId { space: self.inner.space(), birth: self.begun.birth, content: self.target.column };
        let sums = content.checksums(self.target.first(), src.iter().map(|buffer| &buffer[..]));
        self.begin(NewData::Copies(src, sums))
    }

    /// Issues the writes to the members. Awaiting the returned future only waits.
    pub(crate) fn begin(
        self,
        new: NewData,
    ) -> impl Future<Output = Result<ChangeOutcome, SpaceError>> + Send + 'static {
        let (answer, result) = oneshot::channel();
        let at = self.target.offset();
        let place = IoRange::new(Op::Write, 0, self.target.units.len() as u64 * pool_seam::UNIT);
        let parts = self.begun.members.iter().map(|(member, _)| new.part(member));
        let result_of = |part: Option<&Sg>| part.map_or(Ok(()), |_| Err(DiskError::Timeout { at: place }));
        let results: Results = parts.map(result_of).collect();
        let (number, left) = (results.len(), results.iter().filter(|result| result.is_err()).count());
        let after_io = Some(AfterIo { change: self, new, answer: Some(answer) });
        let flight = Arc::new(Flight(Mutex::new(State { results, left, after_io })));
        if left == 0 {
            flight.0.lock().end();
        }
        for which in 0..number {
            // The completion of the last write ends the change, perhaps before this call returns.
            let write = flight.0.lock().after_io.as_ref().and_then(|after_io| {
                let (member, port) = &after_io.change.begun.members[which];
                Some((Arc::clone(port), member.data + at, after_io.new.part(member)?.clone()))
            });
            let Some((port, offset, part)) = write else { continue };
            let flight: Arc<Flight> = Arc::clone(&flight);
            port.write_then(offset, part, false, Callback::new(flight, which, IoRange { offset, ..place }));
        }
        async move { result.await.unwrap_or(Err(LogError::Closed.into())) }
    }

    /// Whether all complete members are written, and the view has not changed since the change began.
    fn is_whole(&self) -> bool {
        self.begun.is_whole && self.inner.view.is_current(&self.begun.snapshot)
    }

    /// Sets the new values of the units; returns `false` if a disk was reopened meanwhile and may have lost them.
    fn written(&self, new: &NewData) -> bool {
        let BegunWrite { cached, members, .. } = &self.begun;
        let is_written = self.inner.with_table(cached, |table| {
            // Checked under the table's lock: a disk that is reopened later finds the values and marks them in doubt.
            if members.iter().any(|(_, port)| self.inner.ports.has_failed(port)) {
                return false;
            }
            table.end_write(self.target.units.clone());
            let units = self.target.units.clone();
            match new {
                NewData::Copies(_, sums) => {
                    units.zip(sums).for_each(|(unit, sum)| table.set(unit, smallvec![Value::Written(*sum)]));
                }
                NewData::Stripes(Stripes { values: Some(values), .. }) => {
                    units.zip(values).for_each(|(unit, values)| table.set(unit, values.clone()));
                }
                NewData::Stripes(_) => {
                    // Incremented before the units are marked: a reader that sees them as placed also sees the new
                    // counter.
                    self.inner.placed.fetch_add(1, Ordering::SeqCst);
                    units.for_each(|unit| table.placed(unit));
                }
            }
            true
        });
        if is_written {
            self.inner.waiting_groups.add(cached);
        }
        is_written
    }

    /// Records that the units may be old or new.
    fn failed(&self, new: &NewData) {
        let BegunWrite { cached, overwrite, .. } = &self.begun;
        if let Some(overwrite) = overwrite {
            overwrite.failed();
        }
        self.inner.with_table(cached, |table| {
            table.end_write(self.target.units.clone());
            let units = self.target.units.clone();
            match new {
                NewData::Copies(_, sums) => {
                    units
                        .zip(sums)
                        .for_each(|(unit, sum)| table.failed(unit, smallvec![Value::Written(*sum)]));
                }
                NewData::Stripes(Stripes { values: Some(values), .. }) => {
                    units.zip(values).for_each(|(unit, values)| table.failed(unit, values.clone()));
                }
                // The log has the units, and they are put in place before the next use.
                NewData::Stripes(_) => {}
            }
        });
        self.inner.waiting_groups.add_urgent(cached);
    }

    /// Whether the member was written to, with whatever result.
    fn went_to(&self, member: &Member) -> bool {
        self.begun.members.iter().any(|(other, _)| is_same(other, member))
    }

    /// Whether the units are written according to the current metadata. Marks the regions of copies that lack them
    /// stale.
    async fn judge(&self, new: &NewData, results: &Results) -> Result<Judgement, SpaceError> {
        let inner = &self.inner;
        let mut needed = None;
        for ((member, port), error) in
            self.begun.members.iter().zip(results).filter_map(|(m, r)| Some((m, r.err()?)))
        {
            let reported = inner.report(member.disk, port.membership(), Absence::WriteFailed, error).await?;
            if reported == ReportOutcome::Needed && matches!(error, DiskError::Timeout { .. }) {
                // The disk could not be removed, was reopened, or hangs: the only choice is to retry.
                inner.env.sleep(RETRY).await;
                return Ok(Judgement::Again);
            }
            if reported == ReportOutcome::Needed {
                needed = Some(SpaceError::Disk { disk: member.disk, error });
            }
        }
        loop {
            let snapshot = inner.view.get();
            let view = &snapshot.value;
            let has_failed = self.begun.members.iter().any(|(_, port)| inner.ports.has_failed(port));
            let present =
                route(view, self.target.key).filter(|route| route.birth == self.begun.birth && !has_failed);
            let Some(present) = present else { return Ok(Judgement::Again) };
            let is_written = |member: &&Member| {
                let mut written = self.begun.members.iter().zip(results).filter(|(_, result)| result.is_ok());
                written.any(|((other, _), _)| is_same(other, member))
            };
            let regions = Regions::new(view.slab_bytes).of_group(self.target.key.group);
            for member in present.members.iter().filter(|member| !member.counts) {
                if new.part(member).is_some() && !is_written(&member) {
                    // A job may be filling the copy.
                    inner.unfilled.lock().insert((self.target.key.row, member.generation, regions));
                }
            }
            // The filling job checks `unfilled` again after the view declares the copy complete. So either the job
            // has found these entries, or the copy is complete in this view.
            if !inner.view.is_current(&snapshot) {
                continue;
            }
            let (mut have, mut stale) = (0, Vec::new());
            for member in present.members.iter().filter(|member| member.counts) {
                if new.part(member).is_none() || is_written(&member) {
                    have |= 1 << member.content;
                } else if member.membership.is_some() && !self.went_to(member) {
                    // The disk is present again and the copy complete: the write is repeated on it, instead of
                    // marking the copy stale.
                    return Ok(Judgement::Again);
                } else {
                    let Member { index, generation, membership: seen, .. } = *member;
                    let row = self.target.key.row;
                    stale.push(OwnerOp::MarkStale { row, index, generation, regions, membership: seen });
                }
            }
            if !present.decodes(have) {
                return Err(needed.unwrap_or_else(|| unavailable(self.target.key.row, &present.members)));
            }
            if stale.is_empty() {
                return inner
                    .lease
                    .hold()
                    .wait()
                    .await
                    .map(|()| Judgement::Written)
                    .map_err(SpaceError::from);
            }
            inner.commit_if_fits(stale).await?;
        }
    }
}

/// Whether it is the same copy, on a disk that was not absent meanwhile.
fn is_same(one: &Member, other: &Member) -> bool {
    (one.disk, one.generation, one.membership) == (other.disk, other.generation, other.membership)
}

enum Judgement {
    Written,
    /// The members have changed: the write has to be repeated.
    Again,
}

impl Completion<Written> for Flight {
    fn completed(self: Arc<Flight>, which: usize, result: Written) {
        let mut state = self.0.lock();
        state.results[which] = result;
        state.left -= 1;
        if state.left == 0 {
            state.end();
        }
    }
}

impl State {
    /// Called when all writes have completed.
    fn end(&mut self) {
        let Some(AfterIo { change, new, answer }) = &mut self.after_io else { return };
        let is_simple =
            self.results.iter().all(Result::is_ok) && change.is_whole() && change.inner.lease.holds();
        if is_simple && change.written(new) {
            let answer = answer.take();
            // Releases the locks before the caller continues.
            self.after_io = None;
            answer.into_iter().for_each(|answer| drop(answer.send(Ok(ChangeOutcome::Written))));
            return;
        }
        let Some(after_io) = self.after_io.take() else { return };
        after_io.end_slowly(std::mem::take(&mut self.results));
    }
}

impl AfterIo {
    fn end_slowly(self, results: Results) {
        let AfterIo { change, new, answer } = self;
        change.inner.env.clone().spawn_if_running(async move {
            let result = match change.judge(&new, &results).await {
                Ok(Judgement::Written) if change.written(&new) => Ok(ChangeOutcome::Written),
                Ok(_) => {
                    // Until the next attempt succeeds, the units may be old or new.
                    change.failed(&new);
                    let ports = change.begun.members.iter().map(|(_, port)| port).zip(&results);
                    for (port, _) in
                        ports.filter(|(port, r)| r.is_err() || change.inner.ports.has_failed(port))
                    {
                        change.inner.note_retry(port.number());
                    }
                    let Change { inner, target, begun, permit } = change;
                    drop(begun);
                    match (permit, new) {
                        (Some(permit), NewData::Copies(src, _)) => {
                            let again = Box::pin(inner.write_locked(target, permit, src)).await;
                            again.map(|_| ChangeOutcome::Written)
                        }
                        _ => Ok(ChangeOutcome::ToRepeat),
                    }
                }
                Err(error) => {
                    change.failed(&new);
                    Err(error)
                }
            };
            if let Some(answer) = answer {
                drop(answer.send(result));
            }
        });
    }
}
