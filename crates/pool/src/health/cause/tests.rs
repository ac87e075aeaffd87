use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use disk::Media;

use super::*;
use crate::RowNumber;
use crate::jobs::{JobId, JobState};
use crate::testing;
use crate::{FaultDomains, LossRecord, Op, PoolId, Resiliency, SlabPlace, SpaceOp};

const SLAB: u64 = 8 << 20;
const MIRROR: Resiliency = Resiliency::Mirror { copies: 2 };

/// A pool of disks of 8 slabs, each in the named enclosure.
fn pool(enclosures: &[&str]) -> State {
    let mut s = State::new(PoolId([1; 16]), "tank".to_owned(), SLAB);
    for (n, enclosure) in enclosures.iter().enumerate() {
        let record = DiskRecord {
            domains: FaultDomains { enclosure: (*enclosure).to_owned(), ..FaultDomains::default() },
            ..testing::disk(n as u16)
        };
        s.apply(&Op::AddDisk { disk: DiskNumber(n as u16), record }).expect("a disk");
    }
    let voters: BTreeSet<_> = s.disks.keys().copied().take(5).collect();
    s.apply(&Op::Voters { voters }).expect("voters");
    s
}

fn space(s: &mut State, name: &str, resiliency: Resiliency, size: u64, rows: &[&[u16]]) -> SpaceId {
    let record = SpaceRecord {
        name: name.to_owned(),
        size,
        resiliency,
        interleave: 64 << 10,
        columns: 1,
        ..SpaceRecord::default()
    };
    let space = s.make(record);
    for (n, disks) in rows.iter().enumerate() {
        let free = |d: &u16| {
            let disk = DiskNumber(*d);
            SlabPlace { disk, slab: s.free_slabs(disk).next().expect("a free slab") }
        };
        let slabs: Vec<SlabPlace> = disks.iter().map(free).collect();
        s.fill(space, RowNumber(n as u32), slabs).expect("a row");
    }
    space
}

fn lose(s: &mut State, disk: u16, why: Absence) {
    // The owners answer that the disk has every write.
    let answers = s.spaces.keys().map(|space| (*space, Vec::new())).collect();
    let ops = s.removal_ops(DiskNumber(disk), why, &answers);
    s.apply_all(&ops).expect("it leaves");
}

fn now(state: &State) -> Snapshot<'_> {
    Snapshot {
        state,
        suspended: None,
        read_only: false,
        failing: BTreeMap::new(),
        findings: BTreeMap::new(),
        slow: BTreeMap::new(),
        not_open: BTreeMap::new(),
        in_doubt: BTreeMap::new(),
        jobs: Vec::new(),
        warn_percent: 70,
    }
}

fn job(kind: Kind, subject: Subject, why: Option<DelayReason>) -> JobState {
    let (elapsed, eta) = (Duration::from_secs(1), None);
    JobState { id: JobId(1), kind, subject, elapsed, done: 1, total: 2, rate: 1, eta, why }
}

/// Formats each fault as a line: severity, place and kind, with its consequences in brackets.
fn lines(faults: &[Fault]) -> Vec<String> {
    let line = |f: &Fault| {
        let kind = format!("{:?}", f.kind);
        let name: String = kind.chars().take_while(|c| c.is_alphanumeric()).collect();
        let object = match &f.object {
            FaultObject::Pool => "pool".to_owned(),
            FaultObject::Domain(level, name) => format!("{} {name}", level.word()),
            FaultObject::Disk(d) => format!("disk {}", d.0),
            FaultObject::Space(s) => format!("space {}", s.0),
        };
        let follows =
            if f.consequences.is_empty() { String::new() } else { lines(&f.consequences).join("; ") };
        let follows = if follows.is_empty() { follows } else { format!(" [{follows}]") };
        format!("{} {object} {name}{follows}", f.severity as u8)
    };
    faults.iter().map(line).collect()
}

fn fault_lines(now: &Snapshot<'_>) -> Vec<String> {
    lines(&faults(now))
}

#[test]
fn nothing_is_wrong() {
    let mut s = pool(&["", "", ""]);
    space(&mut s, "vm", MIRROR, 2 * SLAB, &[&[0, 1], &[1, 2]]);
    assert_eq!(fault_lines(&now(&s)), [""; 0]);
}

#[test]
fn a_disk_away_is_one_fault_with_its_consequences() {
    for (why, severity) in [
        (Absence::NotFound, 5),
        (Absence::Gone, 5),
        (Absence::WriteFailed, 5),
        (Absence::FlushFailed, 5),
        (Absence::Slow, 5),
        (Absence::Stale, 5),
        (Absence::ByCommand, 5),
    ] {
        let mut s = pool(&["", "", "", ""]);
        space(&mut s, "vm", MIRROR, 2 * SLAB, &[&[0, 1], &[1, 2]]);
        space(&mut s, "elsewhere", MIRROR, SLAB, &[&[2, 3]]);
        lose(&mut s, 0, why);
        assert_eq!(
            fault_lines(&now(&s)),
            [format!("{severity} disk 0 Absent [5 space 0 Redundancy]")],
            "{why:?}"
        );
        // An empty disk that is to be removed.
        let mut s = pool(&["", "", ""]);
        lose(&mut s, 1, why);
        let alone = if why == Absence::ByCommand { 4 } else { 5 };
        assert_eq!(fault_lines(&now(&s)), [format!("{alone} disk 1 Absent")], "{why:?}");
    }
}

#[test]
fn an_enclosure_away_is_one_fault() {
    let mut s = pool(&["a", "a", "b", "b", "c", "c"]);
    space(&mut s, "vm", MIRROR, 2 * SLAB, &[&[0, 2], &[1, 4]]);
    lose(&mut s, 0, Absence::Gone);
    assert_eq!(fault_lines(&now(&s)), ["5 disk 0 Absent [5 space 0 Redundancy]"], "half of it is a disk");
    lose(&mut s, 1, Absence::Gone);
    let all = "5 enclosure a DomainAway [5 disk 0 Absent; 5 disk 1 Absent; 5 space 0 Redundancy]";
    assert_eq!(fault_lines(&now(&s)), [all]);
    // One of the disks was absent earlier, for any reason. Disks that failed one by one do not count as an absent
    // enclosure.
    for (before, after, is_one) in [
        (Absence::WriteFailed, Absence::Gone, true),
        (Absence::ByCommand, Absence::NotFound, true),
        (Absence::WriteFailed, Absence::Slow, false),
    ] {
        let mut s = pool(&["a", "a", "b", "b", "c", "c"]);
        lose(&mut s, 0, before);
        lose(&mut s, 1, after);
        let fault_lines = fault_lines(&now(&s));
        assert_eq!(
            fault_lines.len() == 1 && fault_lines[0].contains("enclosure a DomainAway"),
            is_one,
            "{fault_lines:?}"
        );
    }
}

#[test]
fn what_has_no_disk_left_is_an_error() {
    let mut s = pool(&["", "", ""]);
    space(&mut s, "vm", MIRROR, SLAB, &[&[0, 1]]);
    let scratch = space(&mut s, "scratch", Resiliency::Simple, SLAB, &[&[2]]);
    lose(&mut s, 2, Absence::Gone);
    assert_eq!(fault_lines(&now(&s)), ["6 disk 2 Absent [6 space 1 Unavailable]"]);
    let mut doubt = now(&s);
    doubt.in_doubt.insert(scratch, 3);
    let both = "6 disk 2 Absent [6 space 1 Unavailable; 5 space 1 InDoubt]";
    assert_eq!(fault_lines(&doubt), [both]);
    doubt.jobs.push(job(Kind::Resolve, Subject::Pool, None));
    assert_eq!(fault_lines(&doubt), ["6 disk 2 Absent [6 space 1 Unavailable]"]);
}

#[test]
fn a_disk_behind_explains_what_its_copies_lack() {
    let mut s = pool(&["", "", ""]);
    let vm = space(&mut s, "vm", MIRROR, SLAB, &[&[0, 1]]);
    s.apply_stale(vm, RowNumber(0), 1, 6).expect("missed");
    let mut snapshot = now(&s);
    let resync = |why| job(Kind::Resync, Subject::Disk(DiskNumber(1)), why);
    assert_eq!(fault_lines(&snapshot), ["5 disk 1 Behind [5 space 0 Redundancy]"], "no job runs");
    snapshot.jobs = vec![resync(None)];
    let faults = super::faults(&snapshot);
    assert_eq!(lines(&faults), ["5 disk 1 Behind [5 space 0 Redundancy]"]);
    assert_eq!(faults[0].kind, FaultKind::Behind { bytes: SLAB / 2, waits: None });
    snapshot.jobs = vec![resync(Some(DelayReason::Paused))];
    let kind = FaultKind::Behind { bytes: SLAB / 2, waits: Some(DelayReason::Paused) };
    assert_eq!(super::faults(&snapshot)[0].kind, kind);
    snapshot.jobs = vec![resync(Some(DelayReason::DisksAbsent(vec![DiskNumber(0)])))];
    let kind = FaultKind::Behind { bytes: SLAB / 2, waits: None };
    assert_eq!(
        super::faults(&snapshot)[0].kind,
        kind,
        "disk 0 has returned, and the job is about to continue"
    );
    // The current data is on an absent disk: that is the cause.
    let mut s = pool(&["", "", "", ""]);
    let vm = space(&mut s, "vm", MIRROR, SLAB, &[&[0, 1]]);
    s.apply_stale(vm, RowNumber(0), 1, 6).expect("missed");
    lose(&mut s, 0, Absence::Gone);
    let mut snapshot = now(&s);
    snapshot.jobs = vec![resync(Some(DelayReason::DisksAbsent(vec![DiskNumber(0)])))];
    assert_eq!(fault_lines(&snapshot), ["6 disk 0 Absent [5 disk 1 Behind; 6 space 0 Unavailable]"]);
}

#[test]
fn a_retired_disk_is_emptied_and_may_be_taken_out() {
    let mut s = pool(&["", "", ""]);
    space(&mut s, "vm", MIRROR, SLAB, &[&[0, 1]]);
    for disk in [1, 2] {
        s.apply(&crate::Op::SetUsage { disk: DiskNumber(disk), usage: crate::Usage::Retired })
            .expect("it may");
    }
    assert_eq!(fault_lines(&now(&s)), ["5 disk 1 Retired", "4 disk 2 Retired"], "no job moves it");
    let mut snapshot = now(&s);
    snapshot.jobs = vec![job(Kind::Drain, Subject::Disk(DiskNumber(1)), None)];
    let faults = super::faults(&snapshot);
    assert_eq!(lines(&faults), ["4 disk 1 Retired", "4 disk 2 Retired"]);
    assert_eq!(faults[0].kind, FaultKind::Retired { left: SLAB, waits: None });
    snapshot.jobs[0].why = Some(DelayReason::Incomplete("a moment".to_owned()));
    assert_eq!(super::faults(&snapshot)[0].severity, Severity::Information);
    snapshot.jobs[0].why = Some(DelayReason::Paused);
    assert_eq!(
        super::faults(&snapshot)[0].kind,
        FaultKind::Retired { left: SLAB, waits: Some(DelayReason::Paused) }
    );
    (snapshot.read_only, snapshot.jobs) = (true, Vec::new());
    assert_eq!(fault_lines(&snapshot), ["4 disk 2 Retired"]);
    assert_eq!(crate::health::of_pool(&s, &Default::default(), false, false), crate::health::Health::OK);
}

#[test]
fn a_disk_that_is_to_leave_is_told_as_one_that_is_retired() {
    let mut s = pool(&["", "", ""]);
    space(&mut s, "vm", MIRROR, SLAB, &[&[0, 1]]);
    s.apply(&Op::SetUsage { disk: DiskNumber(1), usage: Usage::Leaving }).expect("it may");
    assert_eq!(fault_lines(&now(&s)), ["5 disk 1 Retired"], "no job moves it");
    for (why, severity) in
        [(None, 4), (Some(DelayReason::Paused), 5), (Some(DelayReason::DisksAbsent(vec![DiskNumber(2)])), 4)]
    {
        let mut snapshot = now(&s);
        snapshot.jobs = vec![job(Kind::Drain, Subject::Disk(DiskNumber(1)), why.clone())];
        assert_eq!(fault_lines(&snapshot), [format!("{severity} disk 1 Retired")], "{why:?}");
    }
}

#[test]
fn disks_that_fail_or_change_data() {
    let mut s = pool(&["", "", ""]);
    space(&mut s, "vm", MIRROR, SLAB, &[&[0, 1]]);
    let mut snapshot = now(&s);
    snapshot.findings = [
        ((DamageKind::Healed, DiskNumber(1)), 3),
        ((DamageKind::Unreadable, DiskNumber(1)), 2),
        ((DamageKind::Unsettled, DiskNumber(2)), 9),
    ]
    .into();
    let faults = super::faults(&snapshot);
    assert_eq!(lines(&faults), ["5 disk 1 Healed"]);
    assert_eq!(faults[0].kind, FaultKind::Healed { units: 5 });
    snapshot.failing.insert(DiskNumber(2), "an I/O error".to_owned());
    assert_eq!(fault_lines(&snapshot), ["6 disk 2 Failing", "5 disk 1 Healed"]);
}

#[test]
fn what_is_lost_is_told_of_its_space() {
    let mut s = pool(&["", "", ""]);
    space(&mut s, "vm", MIRROR, SLAB, &[&[0, 1]]);
    let mut lost = |units, at: &[u64]| {
        let record = LossRecord { units, at: at.iter().copied().collect() };
        s.apply(&Op::Space { space: SpaceId(0), op: SpaceOp::Lost { record } }).expect("it may be lost");
        let mut snapshot = now(&s);
        // A further read of the same units adds nothing.
        snapshot.findings.insert((DamageKind::Lost, DiskNumber(0)), 100);
        let faults = super::faults(&snapshot);
        (lines(&faults), faults.first().map(|fault| fault.kind.clone()))
    };
    let kind = |units, at_least, first| Some(FaultKind::Lost { units, at_least, first });
    let fault_lines = vec!["6 space 0 Lost".to_owned()];
    assert_eq!(lost(2, &[8192, 16384]), (fault_lines.clone(), kind(2, false, Some(8192))));
    assert_eq!(lost(600, &[4096]), (fault_lines, kind(600, true, Some(4096))));
    assert_eq!(lost(0, &[]), (Vec::new(), None));
}

#[test]
fn the_pool_itself() {
    let mut s = pool(&["", "", ""]);
    space(&mut s, "vm", MIRROR, SLAB, &[]);
    let mut snapshot = now(&s);
    snapshot.suspended = Some("it has ended".to_owned());
    assert_eq!(fault_lines(&snapshot), ["6 pool Suspended"]);
    // One voter, by hand: its loss would stop the pool.
    s.apply(&Op::Voters { voters: [DiskNumber(1)].into() }).expect("a voter");
    assert_eq!(fault_lines(&now(&s)), ["5 pool Metadata"]);
    lose(&mut s, 2, Absence::Gone);
    assert_eq!(fault_lines(&now(&s)), ["5 disk 2 Absent [5 pool Metadata]"]);
}

#[test]
fn a_thin_pool_that_fills_up() {
    let mut s = pool(&["", ""]);
    let rows: Vec<&[u16]> = vec![&[0, 1]; 5];
    let vm = space(&mut s, "vm", MIRROR, 20 * SLAB, &rows);
    assert_eq!(fault_lines(&now(&s)), [""; 0], "62 %");
    let add = |s: &mut State, row| {
        let place =
            |d| SlabPlace { disk: DiskNumber(d), slab: s.free_slabs(DiskNumber(d)).next().expect("free") };
        s.fill(vm, RowNumber(row), [place(0), place(1)]).expect("a row");
    };
    add(&mut s, 5);
    let faults = super::faults(&now(&s));
    assert_eq!(lines(&faults), ["5 pool Capacity"]);
    assert_eq!(faults[0].kind, FaultKind::Capacity { percent: 75, threshold: 70, media: MediaClass::ANY });
    (6..8).for_each(|row| add(&mut s, row));
    assert_eq!(fault_lines(&now(&s)), ["6 pool Capacity [6 space 0 Full]"]);
    // A space that is fully allocated needs no room.
    s.apply(&Op::Space { space: vm, op: SpaceOp::SetSize { size: 8 * SLAB } }).expect("smaller");
    assert_eq!(fault_lines(&now(&s)), [""; 0]);
}

/// If too few disks are present, absent disks get slabs, as for a write.
#[test]
fn a_disk_away_takes_no_room() {
    let parity = Resiliency::Parity { parity: 1 };
    for (resiliency, columns, disks) in [(MIRROR, 1, 2), (MIRROR, 1, 3), (parity, 2, 3)] {
        let mut s = pool(&vec![""; disks]);
        let vm = s.make(SpaceRecord {
            name: "vm".to_owned(),
            size: 64 * SLAB,
            resiliency,
            interleave: 64 << 10,
            columns,
            ..SpaceRecord::default()
        });
        lose(&mut s, 0, Absence::Gone);
        assert!(fault_lines(&now(&s)).iter().all(|f| !f.contains("Full")), "{:?}", fault_lines(&now(&s)));
        // The pool is full if a write finds no place, too.
        let mut row = 0;
        while may_grow(&s, vm) {
            let slabs = crate::placement::row(&s, vm, crate::RowNumber(0), |_| true).expect("a place");
            let op = SpaceOp::Allocate { row: RowNumber(row), first: s.next_generation, slabs };
            s.apply(&Op::Space { space: vm, op }).expect("a row");
            row += 1;
        }
        assert!(row > 0 && crate::placement::row(&s, vm, crate::RowNumber(0), |_| true).is_err());
        assert!(fault_lines(&now(&s)).iter().any(|f| f.contains("Full")), "{:?}", fault_lines(&now(&s)));
    }
}

#[test]
fn no_room_to_build_a_lost_disk_anew() {
    let mut s = pool(&["", "", ""]);
    let rows: Vec<&[u16]> = vec![&[0, 1], &[1, 2], &[0, 2], &[0, 1], &[1, 2], &[0, 2], &[0, 1], &[1, 2]];
    space(&mut s, "vm", MIRROR, 8 * SLAB, &rows);
    let faults = super::faults(&now(&s));
    assert_eq!(lines(&faults), [""; 0], "6 of disk 1 go into 3 and 3");
    space(&mut s, "more", MIRROR, SLAB, &[&[0, 1]]);
    let faults = super::faults(&now(&s));
    assert_eq!(lines(&faults), ["5 pool NoReserve"]);
    assert_eq!(
        faults[0].kind,
        FaultKind::NoReserve { needed: 7 * SLAB, free: 5 * SLAB, media: MediaClass::ANY }
    );
}

/// Disks of these media, with a mirror on SSDs.
fn with_ssds(media: &[u8], rows: &[&[u16]]) -> State {
    let mut s = pool(&vec![""; media.len()]);
    Arc::make_mut(&mut s.disks).values_mut().zip(media).for_each(|(r, m)| r.media = *m);
    let ssd = space(&mut s, "fast", MIRROR, 20 * SLAB, rows);
    let op = SpaceOp::SetMedia { media: MediaClass::of([Media::Ssd]) };
    s.apply(&Op::Space { space: ssd, op }).expect("it may");
    s
}

#[test]
fn a_class_fills_up_while_others_are_empty() {
    let mut s = with_ssds(&[2, 2, 1, 1, 0], &[&[0_u16, 1][..]; 6]);
    let media = MediaClass::of([Media::Ssd]);
    let faults = super::faults(&now(&s));
    assert_eq!(lines(&faults), ["5 pool Capacity"]);
    assert_eq!(faults[0].kind, FaultKind::Capacity { percent: 75, threshold: 70, media });
    Arc::make_mut(&mut s.disks).get_mut(&DiskNumber(4)).expect("it is there").media = 2;
    assert_eq!(fault_lines(&now(&s)), [""; 0], "half");
}

#[test]
fn what_a_class_cannot_rebuild() {
    let round: [&[u16]; 3] = [&[0, 1], &[1, 2], &[0, 2]];
    let mut s = with_ssds(&[2, 2, 2, 1, 1], &round.repeat(3));
    let media = MediaClass::of([Media::Ssd]);
    // The empty HDDs do not help.
    let faults = super::faults(&now(&s));
    let kind = FaultKind::NoReserve { needed: 6 * SLAB, free: 4 * SLAB, media };
    assert!(faults.iter().any(|f| f.kind == kind), "{faults:?}");
    lose(&mut s, 1, Absence::Gone);
    let faults = super::faults(&now(&s));
    assert!(faults[0].consequences.iter().any(|f| f.kind == kind), "{faults:?}");
    // A space for any medium uses slabs there, but needs no reserve there.
    let kind = FaultKind::NoReserve { needed: 6 * SLAB, free: 3 * SLAB, media };
    space(&mut s, "any", MIRROR, 3 * SLAB, &[&[0, 3]]);
    let faults = super::faults(&now(&s));
    assert!(faults[0].consequences.iter().any(|f| f.kind == kind), "{faults:?}");
}

#[test]
fn slabs_on_other_media_are_told() {
    let s = with_ssds(&[2, 1, 2, 2], &[&[0_u16, 1][..]; 2]);
    let mut snapshot = now(&s);
    assert_eq!(faults(&snapshot)[0].kind, FaultKind::OtherMedia { bytes: 2 * SLAB });
    assert_eq!(fault_lines(&snapshot), ["5 space 0 OtherMedia"]);
    snapshot.jobs = vec![job(Kind::Rebalance, Subject::Pool, None)];
    assert_eq!(fault_lines(&snapshot), ["4 space 0 OtherMedia"]);
    snapshot.jobs = vec![job(Kind::Rebalance, Subject::Pool, Some(DelayReason::Paused))];
    assert_eq!(fault_lines(&snapshot), ["5 space 0 OtherMedia"]);
}

#[test]
fn what_can_be_lost_by_domain() {
    use super::super::{CanLose, Limit, can_lose};
    let mut s = pool(&["a", "a", "b", "b", "c", "c"]);
    let metadata = can_lose(&s, &BTreeSet::new());
    // Three of five voters must remain: two disks may be lost, or one enclosure.
    assert_eq!(metadata, CanLose { disks: 2, limit: Limit::Metadata, domains: vec![(Level::Enclosure, 1)] });
    let three = Resiliency::Mirror { copies: 3 };
    space(&mut s, "three", three, SLAB, &[&[0, 2, 4]]);
    assert_eq!(
        (can_lose(&s, &BTreeSet::new()).disks, can_lose(&s, &BTreeSet::new()).domains),
        (2, vec![(Level::Enclosure, 1)])
    );
    // Both copies are in one enclosure: a disk may be lost, but not the enclosure.
    space(&mut s, "near", MIRROR, SLAB, &[&[0, 1]]);
    assert_eq!(
        (can_lose(&s, &BTreeSet::new()).disks, can_lose(&s, &BTreeSet::new()).domains),
        (1, vec![(Level::Enclosure, 0)])
    );
    assert_eq!(can_lose(&pool(&["", "", ""]), &BTreeSet::new()).domains, []);
}

/// The formula for domains agrees with the definition: any set of that many domains may be lost, but some larger set
/// may not.
#[test]
fn what_can_be_lost_by_domain_is_exact() {
    use super::super::can_lose;
    let shapes: [&[&str]; 4] = [
        &["a", "a", "b", "c", "c"],
        &["a", "b", "c", "d", "e"],
        &["a", "a", "a", "b", ""],
        &["a", "b", "", "", ""],
    ];
    for enclosures in shapes {
        let mut s = pool(enclosures);
        space(&mut s, "x", Resiliency::Mirror { copies: 3 }, 2 * SLAB, &[&[0, 1, 2], &[1, 3, 4]]);
        let name =
            |n: usize| if enclosures[n].is_empty() { format!("disk {n}") } else { enclosures[n].to_owned() };
        let domains: Vec<String> = (0..5).map(name).collect::<BTreeSet<_>>().into_iter().collect();
        let survives = |gone: usize| {
            let is_gone = |d: DiskNumber| {
                gone >> domains.iter().position(|n| *n == name(d.0.into())).expect("there") & 1 == 1
            };
            let left = s.voters.iter().filter(|v| !is_gone(**v)).count();
            let copy = |row: &crate::Row| row.slabs.iter().any(|c| !is_gone(c.place.disk));
            left >= s.quorum_to_continue() && s.rows_of(SpaceId(0)).all(|(_, row)| copy(row))
        };
        let [(Level::Enclosure, can)] = can_lose(&s, &BTreeSet::new()).domains[..] else {
            panic!("several enclosures")
        };
        let sets =
            |size: usize| (0..1_usize << domains.len()).filter(move |g| g.count_ones() as usize == size);
        assert!(sets(can).all(survives), "{can} of {enclosures:?}");
        assert!(!sets(can + 1).all(survives), "{can} and one more of {enclosures:?}");
    }
}
