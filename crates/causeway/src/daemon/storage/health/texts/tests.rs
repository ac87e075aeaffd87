use std::time::Duration;

use pool::jobs::{DelayReason, JobId, Kind, Subject};
use pool::testing::{disk, mirror};
use pool::{DiskRecord, FaultDomains, MediaClass, Op, RowNumber, SlabPlace, SpaceRecord, Usage};

use super::*;

const TANK: PoolId = PoolId([7; 16]);

fn state(name: &str) -> State {
    let mut s = State::new(TANK, name.to_owned(), 2 << 20);
    for n in 0..2 {
        let record = DiskRecord {
            domains: FaultDomains { enclosure: "shelf 1".to_owned(), ..FaultDomains::default() },
            name: format!("serial:{n}"),
            ..disk(n)
        };
        s.apply(&Op::AddDisk { disk: DiskNumber(n), record }).expect("a disk");
    }
    s
}

fn fault(kind: FaultKind, object: FaultObject) -> Fault {
    Fault { kind, object, severity: Severity::Warning, consequences: Vec::new() }
}

fn told(state: &State, jobs: &[JobState], fault: &Fault) -> FaultStatus {
    let paths = [(DiskNumber(1), PathBuf::from("/dev/disk/by-id/x y"))].into();
    FaultTexts { id: TANK, state, paths, jobs, free: &[] }.fault(fault)
}

const SLOW: Slowness = Slowness {
    median: Duration::from_millis(81),
    peers: Duration::from_micros(4300),
    longest: Duration::from_millis(11_700),
    crowded: false,
};

#[test]
fn an_outlier_is_reported_with_its_figures() {
    let s = state("tank");
    let told = told(&s, &[], &fault(FaultKind::Slow(SLOW), FaultObject::Disk(DiskNumber(1))));
    assert_eq!(told.fault_type, "PhysicalDisk.HighLatency.Outlier.AverageIO");
    assert!(
        told.reason.contains("81 ms or more, its peers' 4 ms; the longest took 11.7 s"),
        "{}",
        told.reason
    );
    assert!(
        told.recommended_actions[0].starts_with("causeway disk retire ")
            && told.recommended_actions[0].ends_with("/1")
    );
    let leaves = |slow| {
        let told = self::told(&s, &[], &fault(FaultKind::Slow(slow), FaultObject::Disk(DiskNumber(1))));
        told.reason.contains("it is removed from service")
    };
    assert!(leaves(SLOW) && !leaves(Slowness { crowded: true, ..SLOW }));
}

#[test]
fn every_kind_has_a_name_a_reason_and_a_command() {
    let s = state("tank");
    let (disk, space) = (FaultObject::Disk(DiskNumber(1)), FaultObject::Space(SpaceId(0)));
    let absences = [
        Absence::NotFound,
        Absence::Gone,
        Absence::WriteFailed,
        Absence::FlushFailed,
        Absence::Slow,
        Absence::ByCommand,
        Absence::Stale,
    ];
    let mut all: Vec<(FaultKind, FaultObject)> =
        absences.map(|a| (FaultKind::Absent(a), disk.clone())).into_iter().collect();
    let away = || FaultKind::DomainAway { disks: vec![DiskNumber(0), DiskNumber(1)] };
    all.extend(Level::ALL.map(|l| (away(), FaultObject::Domain(l, "x".to_owned()))));
    all.extend([
        (FaultKind::Failing { error: "an I/O error".to_owned() }, disk.clone()),
        (FaultKind::Slow(SLOW), disk.clone()),
        (FaultKind::Healed { units: 3 }, disk.clone()),
        (FaultKind::Lost { units: 3, at_least: true, first: None }, space.clone()),
        (FaultKind::Retired { left: 0, waits: None }, disk.clone()),
        (FaultKind::Retired { left: 1 << 28, waits: None }, disk.clone()),
        (FaultKind::Retired { left: 1 << 28, waits: Some(DelayReason::Paused) }, disk.clone()),
        (FaultKind::Behind { bytes: 1 << 20, waits: None }, disk.clone()),
        (FaultKind::Behind { bytes: 1 << 20, waits: Some(DelayReason::Paused) }, disk.clone()),
        (FaultKind::Redundancy { left: 0, promised: 1 }, space.clone()),
        (FaultKind::Redundancy { left: 1, promised: 2 }, space.clone()),
        (FaultKind::Unavailable, space.clone()),
        (FaultKind::NotOpen { why: "its log cannot be read".to_owned() }, space.clone()),
        (FaultKind::InDoubt { groups: 2 }, space.clone()),
        (FaultKind::Metadata { voters: 1 }, FaultObject::Pool),
        (FaultKind::Capacity { percent: 75, threshold: 70, media: MediaClass::ANY }, FaultObject::Pool),
        (FaultKind::Full, space.clone()),
        (FaultKind::OtherMedia { bytes: 1 << 20 }, space),
        (FaultKind::NoReserve { needed: 1 << 30, free: 1 << 20, media: MediaClass::ANY }, FaultObject::Pool),
        (FaultKind::Suspended { why: "it was taken".to_owned() }, FaultObject::Pool),
    ]);
    for (kind, object) in all {
        let told = told(&s, &[], &fault(kind.clone(), object));
        let (object, name) = told.fault_type.split_once('.').expect("object and name");
        assert!(!object.is_empty() && !name.is_empty() && !told.reason.is_empty(), "{kind:?}");
        let runs = |a: &String| a.starts_with("causeway ");
        assert!(
            told.recommended_actions.iter().any(runs) && told.recommended_actions.iter().all(runs),
            "{kind:?}"
        );
        assert_eq!(told.perceived_severity, 5);
    }
}

#[test]
fn spaces_and_classes_of_media_are_named() {
    let mut s = state("tank");
    let media = MediaClass::of([disk::Media::Ssd]);
    let record = SpaceRecord { size: 1 << 20, media, ..mirror("vm") };
    let space = s.make(record);
    s.fill(space, RowNumber(0), [0, 1].map(|n| SlabPlace { disk: DiskNumber(n), slab: 0 }))
        .expect("free slabs");
    let gone = told(&s, &[], &fault(FaultKind::Absent(Absence::Gone), FaultObject::Disk(DiskNumber(1))));
    assert_eq!(gone.recommended_actions, ["causeway disk return tank/1"], "it has something");
    let reason = |kind, object| told(&s, &[], &fault(kind, object)).reason;
    let capacity = reason(FaultKind::Capacity { percent: 75, threshold: 70, media }, FaultObject::Pool);
    assert!(
        capacity.starts_with("75 % of its SSD disks is in use") && capacity.contains("Add SSD disks"),
        "{capacity}"
    );
    let lacks = reason(FaultKind::NoReserve { needed: 2 << 20, free: 1 << 20, media }, FaultObject::Pool);
    assert!(
        lacks.contains("could not be rebuilt on other SSD disks: 2 MiB would be needed, and 1 MiB are free"),
        "{lacks}"
    );
    let full = reason(FaultKind::Full, FaultObject::Space(SpaceId(0)));
    assert!(full.starts_with("There is no room on SSD disks for"), "{full}");
    let lost = FaultKind::Lost { units: 3, at_least: false, first: Some(12288) };
    let lost = told(&s, &[], &fault(lost, FaultObject::Space(SpaceId(0))));
    let text = "3 blocks of 4 KiB of the virtual disk vm have no valid copy on any disk, the first at byte 12288: reading them fails";
    assert!(
        lost.reason.starts_with(text) && lost.reason.contains("Restore them from a backup"),
        "{}",
        lost.reason
    );
    assert_eq!(lost.recommended_actions, ["causeway space repair tank/vm"]);
    assert_eq!(lost.faulting_object_location, "pool tank, virtual disk vm");
    let other = fault(FaultKind::OtherMedia { bytes: 1 << 20 }, FaultObject::Space(SpaceId(0)));
    let other = told(&s, &[], &other);
    assert!(other.reason.starts_with("1 MiB of it are on disks other than SSD disks"), "{}", other.reason);
    assert_eq!(other.recommended_actions[0], "causeway pool optimize tank");
}

/// If an absent disk may have the lost data, the fault names that disk before it recommends a backup.
#[test]
fn a_loss_that_a_disk_would_end_names_it() {
    let mut s = state("tank");
    let record = SpaceRecord { size: 2 << 20, ..mirror("vm") };
    let space = s.make(record);
    s.fill(space, RowNumber(0), [0, 1].map(|n| SlabPlace { disk: DiskNumber(n), slab: 3 }))
        .expect("free slabs");
    let lost =
        fault(FaultKind::Lost { units: 2, at_least: false, first: Some(0) }, FaultObject::Space(space));
    assert!(!told(&s, &[], &lost).reason.contains("absent"));
    let ops = s.removal_ops(DiskNumber(1), Absence::ByCommand, &pool::OwnerAnswers::new());
    s.apply_all(&ops).expect("it leaves");
    let told = told(&s, &[], &lost);
    assert!(
        told.reason.contains("no valid copy on any disk that is present")
            && told
                .reason
                .contains("disk 1 (was /dev/disk/by-id/x y), which is absent, may have a valid copy"),
        "{}",
        told.reason
    );
    assert_eq!(told.recommended_actions, ["causeway disk return tank/1", "causeway space repair tank/vm"]);
}

#[test]
fn where_and_what_to_do_as_one_types_it() {
    let s = state("my tank");
    let lost = told(&s, &[], &fault(FaultKind::Absent(Absence::Gone), FaultObject::Disk(DiskNumber(1))));
    assert_eq!(lost.faulting_object_description, "disk 1 (/dev/disk/by-id/x y)");
    assert_eq!(lost.faulting_object_location, "pool my tank, enclosure shelf 1, disk 1, /dev/disk/by-id/x y");
    let remove = "causeway pool remove-disk 'my tank' 1";
    assert_eq!(lost.recommended_actions, ["causeway disk return 'my tank/1'", remove]);
    assert!(lost.reason.contains("It holds no data of the pool any more"), "{}", lost.reason);
    let one =
        fault(FaultKind::Lost { units: 1, at_least: false, first: None }, FaultObject::Space(SpaceId(0)));
    let one = told(&s, &[], &one).reason;
    assert!(
        one.starts_with(
            "1 block of 4 KiB of the virtual disk 0 has no valid copy on any disk: reading it fails until it is written"
        ),
        "{one}"
    );
    let rotten = told(&s, &[], &fault(FaultKind::Healed { units: 1 }, FaultObject::Disk(DiskNumber(1))));
    let clear = "causeway pool clear 'my tank' 1";
    assert_eq!(rotten.recommended_actions, ["causeway disk qualify '/dev/disk/by-id/x y'", clear]);
    assert_ne!(lost.fault_id, rotten.fault_id);
    let again = told(&s, &[], &fault(FaultKind::Absent(Absence::Gone), FaultObject::Disk(DiskNumber(1))));
    assert_eq!(lost, again, "the same identity");
    let job = JobState {
        id: JobId(12),
        kind: Kind::Resync,
        subject: Subject::Disk(DiskNumber(1)),
        elapsed: Duration::ZERO,
        done: 0,
        total: 1,
        rate: 0,
        eta: None,
        why: Some(DelayReason::Paused),
    };
    let paused = fault(
        FaultKind::Behind { bytes: 1 << 20, waits: Some(DelayReason::Paused) },
        FaultObject::Disk(DiskNumber(1)),
    );
    let paused = told(&s, &[job], &paused);
    assert_eq!(paused.recommended_actions, ["causeway job resume 12"]);
    assert_eq!(paused.reason, "1 MiB of missed writes are not being copied to it: its job is paused");
    assert_eq!(quoted("it's"), r"'it'\''s'");
    assert_eq!(
        (quoted("-x"), quoted(""), quoted("/a/b.disk")),
        ("'-x'".into(), "''".into(), "/a/b.disk".into())
    );
}

#[test]
fn a_disk_being_removed_continues_with_its_command() {
    let mut s = state("my tank");
    s.apply(&Op::SetUsage { disk: DiskNumber(1), usage: Usage::Leaving }).expect("it may");
    let kind = FaultKind::Retired { left: 1 << 20, waits: Some(DelayReason::Stopping) };
    let told = told(&s, &[], &fault(kind, FaultObject::Disk(DiskNumber(1))));
    let reason =
        "It is to be removed from the pool, and 1 MiB are not being moved to other disks: no job is running";
    assert_eq!(told.reason, reason);
    assert_eq!(told.recommended_actions, ["causeway pool remove-disk 'my tank' 1"]);
}

#[test]
fn pools_that_are_closed_and_disks_that_are_free() {
    let entry = |reason: &str, cure: Option<&str>| Closed {
        name: "tank".to_owned(),
        disks: vec![PathBuf::from("/d/a.disk")],
        reason: reason.to_owned(),
        cure: cure.map(str::to_owned),
        helps: vec!["causeway pool import tank".to_owned()],
    };
    let broken = closed(TANK, &entry("1 of 3 disks are here", Some("bring them back")));
    assert_eq!(
        (broken.perceived_severity, broken.reason.as_str()),
        (6, "1 of 3 disks are here: bring them back")
    );
    assert_eq!(broken.recommended_actions, ["causeway pool import tank"]);
    assert_eq!(closed(TANK, &entry("it was exported", None)).perceived_severity, 4);
    let mut one = DiskStatus {
        number: None,
        friendly_name: "file".to_owned(),
        unique_id: "file:1".to_owned(),
        last_path: None,
        path: Some(PathBuf::from("/d/b.disk")),
        media_type: "SSD".to_owned(),
        can_pool: true,
        cannot_pool_reasons: Vec::new(),
        operational_status: "OK".to_owned(),
        health_status: "Healthy".to_owned(),
        usage: "Auto-Select".to_owned(),
        size: 1 << 30,
        allocated: 0,
        serial_number: String::new(),
        firmware_version: String::new(),
        enclosure: String::new(),
        slot: String::new(),
        node: String::new(),
        rack: String::new(),
        pool: None,
    };
    let free = free_disk(&one, add_disk("tank", &one)).expect("a fault");
    assert_eq!(free.recommended_actions, ["causeway pool add-disk tank --disk /d/b.disk"]);
    assert_eq!(free.perceived_severity, 4);
    let larger = DiskStatus {
        path: Some(PathBuf::from("/d/c d.disk")),
        size: 2 << 30,
        media_type: "HDD".to_owned(),
        ..one.clone()
    };
    let both = [one.clone(), larger];
    let taken = ["pool1".to_owned()];
    assert_eq!(create(&taken, &both), "causeway pool create pool2 --disk /d/b.disk '/d/c d.disk'");
    let s = state("tank");
    let add = |media, free: &[DiskStatus]| {
        let texts = FaultTexts { id: TANK, state: &s, paths: BTreeMap::new(), jobs: &[], free };
        let full = FaultKind::Capacity { percent: 75, threshold: 70, media };
        texts.fault(&fault(full, FaultObject::Pool)).recommended_actions
    };
    assert_eq!(add(MediaClass::ANY, &both), ["causeway pool add-disk tank --disk '/d/c d.disk'"]);
    let (ssd, nvme) = (MediaClass::of([disk::Media::Ssd]), MediaClass::of([disk::Media::Nvme]));
    assert_eq!(add(ssd, &both), ["causeway pool add-disk tank --disk /d/b.disk"]);
    assert_eq!(add(nvme, &both), ["causeway disk list"]);
    assert_eq!(add(MediaClass::ANY, &[]), ["causeway disk list"]);
    one.path = None;
    assert_eq!(free_disk(&one, create(&[], &[])), None);
}
