//! Opening a pool: selects the current metadata, claims the pool, and begins a new epoch. The rules are in
//! `docs/0001-pool.md`, "Current metadata: voters".

mod judge;

use std::collections::BTreeMap;
use std::sync::Arc;

use arena::Arena;
use disk::{Disk, Overlay, OverlayBudget};
use env::{Env, Epoch};
use futures_util::future::join_all;

use super::Pool;
use super::error::OpenError;
use super::labels::{self, FoundLabel};
use super::plan::plan;
use crate::authority::{self, AuthorityValue, CasError, Labels, Lease, PoolAuthority, Quorum};
use crate::format::{Claim, Claimant, FeatureClass, Label};
use crate::metadata::{DiskIo, DiskMetadata, History, Member, Members, Opening, Point, Survey, Voter};
use crate::{Deadlines, DiskNumber, Op, PoolId};
use judge::{enough, exposed, judge, refuse_divergence};

/// The memory, in bytes, for data that is not written to the disks of a read-only pool: its metadata once for each
/// voter, writes to the logs of spaces at their opening, and decisions about undecided units that are read.
pub const READ_ONLY_MEMORY: u64 = 1 << 30;

/// How to open a pool.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// The pool, if the disks belong to several.
    pub pool: Option<PoolId>,
    /// The process that opens it.
    pub by: Claimant,
    /// Returns whether a process of this machine's current boot is running. The claim of a process that is not
    /// running is void.
    pub is_running: fn(u32) -> bool,
    /// Whether nothing may be written to the disks, not even a claim. The changes of opening and reading are kept in
    /// memory, at most [`READ_ONLY_MEMORY`], and [`Pool`] refuses other changes. Another machine can open the pool
    /// for writing meanwhile: then blocks may become unreadable, but never wrong.
    pub read_only: bool,
    /// Open the pool although the present disks may be stale: data that only missing disks have is given up.
    pub accept_loss: bool,
    /// Take the pool from its current owner. If the owner still runs, both write and the pool is corrupted.
    pub force: bool,
    /// The deadlines of its disks, while it is opened and later.
    pub deadlines: Deadlines,
}

/// An opened pool, and the findings of the opening.
pub struct Opened {
    /// The pool.
    pub pool: Pool,
    /// The epoch of the previous opening, according to the disks.
    pub former_epoch: u64,
    /// Disks that were present and are absent now.
    pub missing: Vec<DiskNumber>,
    /// Stale disks: they are resynchronised completely, or are absent if they have the only copy of some data.
    pub stale: Vec<DiskNumber>,
    /// Spaces that may be stale, because loss was accepted.
    pub may_be_stale: Vec<String>,
    /// Disks that have become shorter, with their present and previous size in bytes. They are treated as absent.
    pub shortened: Vec<(DiskNumber, u64, u64)>,
}

impl OpenOptions {
    /// Options for reading and writing, without `force` or `accept_loss`.
    pub fn new(by: Claimant) -> OpenOptions {
        OpenOptions {
            pool: None,
            by,
            is_running: |_| true,
            read_only: false,
            accept_loss: false,
            force: false,
            deadlines: Deadlines::default(),
        }
    }
}

/// A disk of the pool, with its label and metadata.
struct Candidate {
    disk: Arc<dyn Disk>,
    label: Label,
    metadata: DiskMetadata,
}

/// The disks of the pool, and their newest history.
struct Candidates {
    pool: PoolId,
    disks: BTreeMap<DiskNumber, Candidate>,
    newest: Option<History>,
    /// See [`Opened::shortened`].
    shortened: Vec<(DiskNumber, u64, u64)>,
}

impl Pool {
    /// Opens the pool of `disks`. The caller passes all candidate disks; disks of other pools are ignored. The claims
    /// on the disks determine the owner. Errors: at most claims have been written, except with [`OpenError::Commit`].
    pub async fn open(
        env: &Env,
        arena: &Arena,
        disks: &[Arc<dyn Disk>],
        options: &OpenOptions,
    ) -> Result<Opened, OpenError> {
        Pool::open_under(None, env, arena, disks, options).await
    }

    /// [`Pool::open`] for a pool whose owner is recorded in this authority.
    pub async fn open_under(
        authority: Option<Arc<dyn PoolAuthority>>,
        env: &Env,
        arena: &Arena,
        disks: &[Arc<dyn Disk>],
        options: &OpenOptions,
    ) -> Result<Opened, OpenError> {
        let io = DiskIo::new(env, arena, DiskIo::UNOWNED_EPOCH, options.deadlines);
        let overlaid = options.read_only.then(|| overlaid(disks));
        let disks = overlaid.as_deref().unwrap_or(disks);
        // Read before the metadata: a later claim is detected when the value is replaced.
        let register = match &authority {
            Some(authority) => Some(authority.read().await?),
            None => None,
        };
        let found = candidates_of(&io, disks, options).await?;
        let labels = Labels::new(&io, found.pool, found.members(), found.claims());
        let authority = authority.unwrap_or_else(|| Arc::clone(&labels) as Arc<dyn PoolAuthority>);
        let (revision, before) = match register {
            Some(read) => read,
            None => authority.read().await?,
        };
        let current = (authority.quorum() == Quorum::Register).then_some(&before.voters);
        let held = is_held(&before, options);
        let recorded = found.newest.as_ref().map_or(0, |n| n.state.epoch());
        // An owner that claimed the pool without a record may have taken it from a running one.
        let is_written = !options.read_only && (held || before.epoch > recorded);
        let verdict = judge(&found, current, is_written, options)?;
        refuse_divergence(&verdict, options)?;
        if let Some(by) = before.coordinator.clone().filter(|_| held && !options.force) {
            return Err(OpenError::Held { by, since_unix_s: before.since_unix_s });
        }
        enough(&verdict, &found, options)?;

        let value = AuthorityValue {
            epoch: found.highest_epoch().max(before.epoch) + 1,
            incarnation: env.random_u64(),
            coordinator: Some(options.by.clone()),
            since_unix_s: env.unix_time().as_secs(),
            voters: verdict.seen.clone(),
            absent: before.absent.clone(),
        };
        if held && !options.read_only {
            fence(&io, &found, value.epoch).await?;
        }
        // Rule 4: the claim is durable on every voter seen, before anything is written under it.
        let revision = match authority::set(&*authority, revision, &value).await {
            Err(CasError::Conflict(_, other)) => {
                return Err(OpenError::Raced { by: other.coordinator.unwrap_or_default() });
            }
            result => result?,
        };
        let later;
        let (found, mut verdict) = match is_written {
            true => {
                // Rule 15: during this time the previous owner may acknowledge writes, which must be preserved.
                env.sleep(Lease::WAIT).await;
                later = candidates_of(&io, disks, options).await?;
                (&later, judge(&later, current, false, options)?)
            }
            false => (&found, verdict),
        };
        let claimed = match authority.quorum() {
            Quorum::Voters => labels.claimed(),
            Quorum::Register => value.voters.clone(),
        };
        verdict.seen.retain(|d| claimed.contains(d));
        let doubt = match enough(&verdict, found, options) {
            Ok(doubt) => doubt,
            Err(error) => {
                let exported = AuthorityValue { coordinator: None, ..value };
                // A disk that does not store this fails all writes, so it will be missing at the next opening.
                let _ = authority.compare_and_set(revision, exported).await;
                return Err(error);
            }
        };

        let (state, candidates) = (&verdict.newest.state, &found.disks);
        let plan = plan(state, &verdict.labels, &verdict.seen, doubt, options.accept_loss)?;
        let may_be_stale = if doubt { exposed(state, &plan.missing) } else { Vec::new() };
        let (epoch, incarnation) = (value.epoch, value.incarnation);
        let mut ops = vec![Op::Opened { epoch, incarnation }];
        if doubt {
            ops.push(Op::GivenUp { after: verdict.newest.point.sequence });
        }
        ops.extend(plan.ops);
        let member = |d: &DiskNumber| candidates.get(d).map(|c| c.member(*d));
        let voter = |d: &DiskNumber| Some((candidates.get(d)?.slot(), member(d)?));
        let opening = Opening {
            state: state.clone(),
            point: Point { epoch, incarnation, sequence: verdict.newest.point.sequence, chain: 0 },
            ops,
            needed: if doubt || current.is_some() { 1 } else { state.needed_to_open() },
            voters: verdict.seen.iter().filter_map(voter).map(|(slot, m)| Voter::new(m, slot)).collect(),
            members: plan.members.iter().filter_map(member).collect::<Members>(),
            authority,
            revision,
            agreed: value,
        };
        let io = DiskIo { epoch: Epoch(epoch), ..io };
        let pool = Pool::start(io, opening, options.by.machine, options.read_only).await?;
        // The label of this epoch is written before any data: it shows if a disk is used elsewhere meanwhile.
        pool.relabel(|d| candidates.get(&d).map_or(0, |c| c.label.sequence)).await?;
        pool.inner.metadata.rechoose().await?;
        Ok(Opened {
            pool,
            former_epoch: state.epoch(),
            missing: plan.missing,
            stale: plan.stale,
            may_be_stale,
            shortened: found.shortened.clone(),
        })
    }
}

impl Candidate {
    fn highest_epoch(&self) -> u64 {
        let claim = self.metadata.claim.as_ref().map_or(0, |c| c.epoch) + self.metadata.claims_damaged;
        let history = self.metadata.history.as_ref().map_or(0, |h| h.point.epoch);
        claim.max(history).max(self.label.epoch)
    }

    fn member(&self, number: DiskNumber) -> Arc<Member> {
        let disk = Arc::clone(&self.disk);
        Arc::new(Member { number, id: self.label.id, disk, areas: self.label.areas })
    }

    /// The slot for this voter's next checkpoint: the slot of its history is preserved until that checkpoint is
    /// durable.
    fn slot(&self) -> usize {
        self.metadata.history.as_ref().map_or(0, |h| h.slot ^ 1)
    }
}

impl Candidates {
    fn highest_epoch(&self) -> u64 {
        let newest = self.newest.as_ref().map_or(0, |n| n.state.epoch());
        self.disks.values().map(Candidate::highest_epoch).max().unwrap_or(0).max(newest)
    }

    fn members(&self) -> Members {
        self.disks.iter().map(|(number, c)| c.member(*number)).collect()
    }

    fn claims(&self) -> BTreeMap<DiskNumber, Claim> {
        self.disks.iter().filter_map(|(number, c)| Some((*number, c.metadata.claim.clone()?))).collect()
    }
}

async fn candidates_of(
    io: &DiskIo,
    disks: &[Arc<dyn Disk>],
    options: &OpenOptions,
) -> Result<Candidates, OpenError> {
    candidates(io, labels::scan_by(io, disks).await, options).await
}

/// Fences the pool's disks against its current owner, if the disks support it: afterwards no write of that owner
/// takes effect. Called only if the pool can be opened otherwise.
///
/// Fails if a disk cannot confirm this, because its owner may still write to it.
async fn fence(io: &DiskIo, found: &Candidates, epoch: u64) -> Result<(), OpenError> {
    let fences = found.disks.iter().map(async |(number, c)| (*number, io.fence(&c.disk, Epoch(epoch)).await));
    match join_all(fences).await.into_iter().find_map(|(disk, result)| Some((disk, result.err()?))) {
        Some((disk, error)) => Err(OpenError::NotFenced { disk, error }),
        None => Ok(()),
    }
}

/// The disks of the pool, with their labels and metadata.
async fn candidates(
    io: &DiskIo,
    found: Vec<FoundLabel>,
    options: &OpenOptions,
) -> Result<Candidates, OpenError> {
    let pools = labels::pools(&found);
    let pool = match (options.pool, pools.as_slice()) {
        (Some(pool), _) => pool,
        (None, [(pool, _)]) => *pool,
        (None, []) => return Err(no_pool(None, &found)),
        (None, several) => return Err(OpenError::SeveralPools(several.to_vec())),
    };
    let mut ours: BTreeMap<_, (&Arc<dyn Disk>, &Label)> = BTreeMap::new();
    let mut shortened = Vec::new();
    for FoundLabel { disk, label } in &found {
        let Some(label) = label.as_ref().ok().filter(|l| l.pool == pool) else { continue };
        usable(label, options)?;
        let (size, had) = (disk.info().geometry.size, label.areas.size);
        if size < had {
            // The disk's metadata is misplaced: the disk is ignored, and does not prevent the opening.
            shortened.push((label.number, size, had));
            continue;
        }
        if let Some((twin, _)) = ours.insert((label.number, label.id), (disk, label)) {
            let (a, b) = (twin.info().path.clone(), disk.info().path.clone());
            return Err(OpenError::Copied { disk: label.number, a, b });
        }
    }
    let survey = Survey::new();
    let looked = ours.into_iter().map(async |((number, _), (disk, label))| {
        let metadata = survey.read_disk(io, disk, &label.areas, pool, number).await;
        (number, Candidate { disk: Arc::clone(disk), label: label.clone(), metadata })
    });
    let looked = join_all(looked).await;
    if looked.is_empty() {
        return Err(shortened.first().map_or_else(|| no_pool(Some(pool), &found), shrunk));
    }
    let newest = survey.newest();
    Ok(Candidates { pool, disks: one_of_each(looked, newest.as_ref()), newest, shortened })
}

fn shrunk(&(disk, size, had): &(DiskNumber, u64, u64)) -> OpenError {
    OpenError::Shrunk { disk, size, had }
}

/// Of several disks with the same number, keeps the one in the newest metadata. The others got their label for a
/// record that was never written.
fn one_of_each(
    looked: Vec<(DiskNumber, Candidate)>,
    newest: Option<&History>,
) -> BTreeMap<DiskNumber, Candidate> {
    let known = |number, c: &Candidate| {
        newest.is_some_and(|h| h.state.disks.get(&number).is_some_and(|r| r.id == c.label.id))
    };
    let mut disks = BTreeMap::new();
    for (number, candidate) in looked {
        if known(number, &candidate) || !disks.contains_key(&number) {
            disks.insert(number, candidate);
        }
    }
    disks
}

fn no_pool(pool: Option<PoolId>, found: &[FoundLabel]) -> OpenError {
    let unreadable = found.iter().filter_map(|f| match &f.label {
        Err(crate::format::LabelError::Frame(
            crate::format::FrameError::Blank | crate::format::FrameError::Foreign,
        ))
        | Ok(_) => None,
        Err(e) => Some((f.disk.info().path.clone(), e.clone())),
    });
    OpenError::NoPool { pool, unreadable: unreadable.collect() }
}

fn usable(label: &Label, options: &OpenOptions) -> Result<(), OpenError> {
    let incompatible = label.unknown(FeatureClass::Incompatible);
    if !incompatible.is_empty() {
        return Err(OpenError::Features { disk: label.number, features: incompatible });
    }
    let read_only = label.unknown(FeatureClass::ReadOnly);
    if !read_only.is_empty() && !options.read_only {
        return Err(OpenError::ReadOnlyFeatures { disk: label.number, features: read_only });
    }
    Ok(())
}

/// Rule 5: whether the pool has another owner, which may be running.
fn is_held(now: &AuthorityValue, options: &OpenOptions) -> bool {
    let Some(by) = &now.coordinator else { return false };
    // Zeros mean unknown, and never match: two machines without an id may have the same name. A boot id is unique to
    // a machine.
    let same = |a: [u8; 16], b: [u8; 16]| a != [0; 16] && a == b;
    let same_boot = same(by.boot, options.by.boot);
    let here = by.host == options.by.host && (same_boot || same(by.machine, options.by.machine));
    let over = here && (!same_boot || by.process == options.by.process || !(options.is_running)(by.process));
    !over
}

/// Puts an overlay in memory over each disk.
fn overlaid(disks: &[Arc<dyn Disk>]) -> Vec<Arc<dyn Disk>> {
    let budget = OverlayBudget::new(READ_ONLY_MEMORY);
    disks.iter().map(|d| Overlay::new(Arc::clone(d), Arc::clone(&budget)) as Arc<dyn Disk>).collect()
}
