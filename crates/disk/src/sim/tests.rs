use std::collections::BTreeSet;

use arena::{Arena, Class, IoBuf, Sg, SgMut};
use env::{Ctx, Epoch, Io};

use super::*;
use crate::conformance::{bytes, read_now, write_now};
use crate::random::Random;
use crate::{Disk, sized};

const PAGE: u64 = 4096;
const SIZE: u64 = 4 << 20;

fn one(seed: u64) -> (Machine, SlotId, Arc<FaultyDisk>) {
    let machine = Machine::new(&Env::real(), seed);
    let slot = machine.add(&MemoryOptions::new("d0", SIZE));
    let disk = machine.open(slot).expect("it is there");
    (machine, slot, disk)
}

fn write(d: &FaultyDisk, page: u64, data: &[u8]) -> Result<(), DiskError> {
    write_now(d, &Ctx::default(), page * PAGE, data.to_vec())
}

fn read(d: &FaultyDisk, page: u64, pages: u64) -> Result<Vec<u8>, DiskError> {
    read_now(d, page * PAGE, (pages * PAGE) as usize)
}

fn flush(d: &FaultyDisk) -> Result<(), DiskError> {
    let Io::Done(result) = d.flush(&Ctx::default()) else { panic!("it completes at once") };
    result
}

fn at(op: Op, page: u64, pages: u64) -> IoRange {
    IoRange::new(op, page * PAGE, pages * PAGE)
}

#[tokio::test(start_paused = true)]
async fn conforms() {
    let arena = Arena::new(32 << 20).expect("a small mapping");
    for shuffle in [None, Some(Duration::from_millis(5))] {
        let env = Env::simulated(1);
        crate::conformance::run(&arena, || {
            let machine = Machine::new(&env, 1);
            let slot = machine.add(&MemoryOptions::new("d0", SIZE));
            if let Some(longest) = shuffle {
                machine.shuffle(slot, longest);
            }
            async move { machine.open(slot).expect("it is there") as Arc<dyn Disk> }
        })
        .await;
    }
}

/// The conformance suite detects each of these faults in an otherwise correct disk.
#[test]
fn a_faulty_disk_does_not_conform() {
    let faults = [
        (Op::Write, Fault::Lost),
        (Op::Write, Fault::Misdirected),
        (Op::Write, Fault::Flipped),
        (Op::Read, Fault::Stale),
        (Op::Read, Fault::Error),
        (Op::Flush, Fault::Error),
        (Op::Discard, Fault::Refused(5)),
    ];
    for (op, what) in faults {
        let when = if op == Op::Discard { When::From(0) } else { When::Nth(2) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let suite = async {
            let arena = Arena::new(32 << 20).expect("a small mapping");
            crate::conformance::run(&arena, || {
                let (machine, slot, disk) = one(1);
                machine.rule(slot, Rule::new(op, when, what));
                async move { disk as Arc<dyn Disk> }
            })
            .await;
        };
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runtime.block_on(suite)));
        assert!(found.is_err(), "{op} {what:?} is not found");
    }
}

#[test]
fn reads_fail_by_rule() {
    let (machine, slot, d) = one(1);
    let (old, new) = (bytes(1, 8 * PAGE as usize), bytes(2, 8 * PAGE as usize));
    write(&d, 0, &old).expect("written");
    machine.mark(slot);
    write(&d, 0, &new).expect("written");
    let nth = |what| machine.rule(slot, Rule::new(Op::Read, When::Nth(1), what));
    for what in [Fault::Error, Fault::Stale, Fault::Misdirected, Fault::Flipped, Fault::Refused(5)] {
        machine.no_rules(slot);
        nth(what);
        assert_eq!(read(&d, 0, 8).as_ref(), Ok(&new), "before {what:?}");
        let got = read(&d, 0, 8);
        match what {
            Fault::Error => assert_eq!(got, Err(DiskError::Medium { at: at(Op::Read, 0, 8) })),
            Fault::Refused(errno) => {
                assert_eq!(got, Err(DiskError::Refused { at: at(Op::Read, 0, 8), errno }))
            }
            Fault::Stale => assert_eq!(got.as_ref(), Ok(&old)),
            Fault::Flipped => assert_eq!(bits(&got.expect("read"), &new), 1),
            _ => assert_ne!(got.expect("read"), new, "another place"),
        }
        assert_eq!(read(&d, 0, 8).as_ref(), Ok(&new), "after {what:?}");
    }
    assert_eq!(machine.log().len(), 5);
}

#[test]
fn writes_fail_by_rule() {
    let faults = [Fault::Error, Fault::Full, Fault::Lost, Fault::Partial, Fault::Misdirected, Fault::Flipped];
    for (seed, what) in faults.into_iter().enumerate() {
        let (machine, slot, d) = one(seed as u64);
        let (old, new) = (bytes(1, 64 * PAGE as usize), bytes(2, 64 * PAGE as usize));
        write(&d, 0, &old).expect("written");
        machine.rule(slot, Rule::new(Op::Write, When::Nth(0), what).within(0..64 * PAGE));
        write(&d, 64, &old).expect("outside of the rule's range");
        write(&d, 64, &[0; PAGE as usize]).expect("there too");
        let before = machine.image(slot);
        let got = write(&d, 0, &new);
        let now = read(&d, 0, 64).expect("read");
        let pages = |of: &[u8]| now.chunks(4096).zip(of.chunks(4096)).filter(|(a, b)| a == b).count();
        match what {
            Fault::Error => {
                assert_eq!(got, Err(DiskError::Medium { at: at(Op::Write, 0, 64) }));
                assert!(pages(&new) > 0 && pages(&old) > 0 && pages(&new) + pages(&old) == 64, "old or new");
            }
            Fault::Full => {
                assert_eq!((got, now), (Err(DiskError::Full { at: at(Op::Write, 0, 64) }), old.clone()));
            }
            Fault::Lost => assert_eq!((got, now), (Ok(()), old.clone())),
            Fault::Partial => {
                assert_eq!(got, Ok(()));
                assert!(pages(&new) > 0 && pages(&old) > 0 && pages(&new) + pages(&old) == 64, "old or new");
            }
            Fault::Misdirected => {
                assert_eq!(got, Ok(()));
                let changed = machine.image(slot).differences(&before);
                let first = changed[0] / PAGE;
                assert!(first != 0 && read(&d, first, 64).expect("read") == new, "it is at page {first}");
            }
            _ => assert_eq!((got, bits(&now, &new)), (Ok(()), 1)),
        }
        write(&d, 0, &new).expect("once is enough");
        assert_eq!(read(&d, 0, 64), Ok(new));
    }
}

#[test]
fn a_failed_flush_latches_until_reopened() {
    let (machine, slot, d) = one(1);
    machine.rule(slot, Rule::new(Op::Flush, When::Nth(0), Fault::Error));
    let failed = Err(DiskError::Medium { at: IoRange::whole(Op::Flush) });
    write(&d, 0, &[1; 4096]).expect("written");
    assert_eq!((flush(&d), flush(&d)), (failed, failed));
    let mut through = Ctx::default();
    through.flags.write_through = true;
    assert_eq!(write_now(&*d, &through, 0, vec![1; 4096]), failed);
    assert_eq!(write(&d, 0, &[2; 4096]), Ok(()));
    let again = machine.open(slot).expect("it is there");
    assert_eq!(flush(&again), Ok(()));
    machine.cut(PowerCut::LoseAll);
    assert_eq!(machine.image(slot).to_vec(0, 1), [2]);
}

#[test]
fn a_lost_flush_makes_nothing_durable() {
    let (machine, slot, d) = one(1);
    machine.rule(slot, Rule::new(Op::Flush, When::From(0), Fault::Lost));
    write(&d, 0, &[1; 4096]).expect("written");
    assert_eq!(flush(&d), Ok(()));
    machine.cut(PowerCut::LoseAll);
    assert_eq!(machine.image(slot), Image::new());
}

#[test]
fn bad_blocks_are_cured_by_writing() {
    let (machine, slot, d) = one(1);
    machine.make_bad(slot, 5 * PAGE + 1, PAGE);
    assert_eq!(read(&d, 0, 5).map(|_| ()), Ok(()));
    assert_eq!(read(&d, 0, 8), Err(DiskError::Medium { at: at(Op::Read, 5, 1) }));
    write(&d, 5, &[1; 4096]).expect("written");
    assert_eq!(read(&d, 0, 8), Err(DiskError::Medium { at: at(Op::Read, 6, 1) }));
    write(&d, 6, &[1; 4096]).expect("written");
    assert!(read(&d, 0, 8).is_ok());
}

#[test]
fn the_medium_changes_behind_the_back() {
    let (machine, slot, d) = one(1);
    write(&d, 0, &bytes(1, 8192)).expect("written");
    let old = machine.image(slot);
    write(&d, 0, &bytes(2, 8192)).expect("written");
    machine.flip(slot, 4096, 3);
    assert_eq!(bits(&read(&d, 0, 2).expect("read"), &bytes(2, 8192)), 1);
    machine.roll_back(slot, &old, 0, 4096);
    assert_eq!(read(&d, 0, 1).expect("read"), bytes(1, 8192)[..4096]);
    machine.cut(PowerCut::LoseAll);
    let durable = machine.image(slot);
    assert_eq!(durable.to_vec(0, 4096), bytes(1, 8192)[..4096], "durably, whatever is lost beside it");
}

#[test]
fn a_pulled_disk_comes_back_stale() {
    for cut in [PowerCut::LoseAll, PowerCut::KeepAll] {
        let (machine, slot, d) = one(1);
        let gone = Err(DiskError::Gone { at: at(Op::Write, 0, 1) });
        write(&d, 0, &[1; 4096]).expect("written");
        flush(&d).expect("flushed");
        write(&d, 0, &[2; 4096]).expect("written");
        machine.rule(slot, Rule::new(Op::Write, When::Nth(0), Fault::Vanish(cut)));
        assert_eq!((write(&d, 0, &[3; 4096]), write(&d, 0, &[4; 4096])), (gone, gone));
        assert_eq!(
            d.fence(&Ctx::default(), Epoch(9)).now_or_panic(),
            Err(DiskError::Gone { at: IoRange::whole(Op::Fence) })
        );
        assert!(machine.open(slot).is_err());
        machine.plug(slot);
        assert_eq!(write(&d, 0, &[5; 4096]), gone, "the old handle is dead");
        let d = machine.open(slot).expect("it is back");
        let expected = if cut == PowerCut::LoseAll { 1 } else { 3 };
        assert_eq!(read(&d, 0, 1), Ok(vec![expected; 4096]));
        machine.replace(slot, &MemoryOptions::new("d9", SIZE), Image::new());
        assert_eq!(read(&d, 0, 1), Err(DiskError::Gone { at: at(Op::Read, 0, 1) }));
    }
}

#[test]
fn a_rule_cuts_the_power_at_a_call() {
    let machine = pair(1);
    machine.rule(SlotId(1), Rule::new(Op::Flush, When::Nth(2), Fault::CutPower(PowerCut::LoseAll)));
    let acknowledged = count_up(&machine, true);
    assert_eq!((acknowledged.last().map(|(_, n)| *n), machine.is_on()), (Some(2), false));
    let counts = machine.counts(SlotId(1));
    assert_eq!((counts.writes, counts.written_bytes, counts.flushes, counts.reads), (3, 3 * 8192, 3, 0));
    assert_eq!(machine.counts(SlotId(0)), counts, "all of it lost its power");
    machine.restart();
    assert_eq!(recover(&machine), 3, "the first disk had flushed it");
    assert_eq!(machine.counts(SlotId(0)).reads, 2);
}

#[tokio::test(start_paused = true)]
async fn slow_is_slow_and_a_deadline_ends_the_wait() {
    let env = Env::simulated(3);
    let machine = Machine::new(&env, 3);
    let slot = machine.add(&MemoryOptions::new("d0", SIZE));
    let d = machine.open(slot).expect("it is there");
    machine.rule(slot, Rule::new(Op::Write, When::Nth(0), Fault::Slow(Duration::from_secs(12))));
    machine.rule(slot, Rule::new(Op::Write, When::Nth(1), Fault::Slow(Duration::from_secs(12))));
    let begun = env.now();
    let payload = |b: u8| Sg::from_iter([IoBuf::from(vec![b; 4096])]);
    d.write(&Ctx::default(), 0, payload(1)).wait().await.expect("written");
    assert_eq!(env.now() - begun, Duration::from_secs(12));
    let c = Ctx { deadline: Some(env.now() + Duration::from_secs(1)), ..Ctx::default() };
    let late = d.write(&c, 0, payload(2)).wait().await;
    assert_eq!(
        (late, env.now() - begun),
        (Err(DiskError::Timeout { at: at(Op::Write, 0, 1) }), Duration::from_secs(13))
    );
    assert_eq!(machine.image(slot).to_vec(0, 1), [1], "it is still under way");
    d.fence(&Ctx::default(), Epoch(1)).wait().await.expect("fenced");
    assert_eq!((machine.image(slot).to_vec(0, 1), env.now() - begun), (vec![2], Duration::from_secs(24)));
}

/// A workload on three disks with every fault and in shuffled order: the complete final state.
async fn storm(seed: u64) -> (Vec<Injected>, Vec<Image>, Vec<String>) {
    let env = Env::simulated(seed);
    let arena = Arena::new(8 << 20).expect("a small mapping");
    let machine = Machine::new(&env, seed);
    let slots: Vec<_> = (0..3).map(|i| machine.add(&MemoryOptions::new(format!("d{i}"), SIZE))).collect();
    let often = When::Chance(60_000);
    for slot in &slots {
        machine.shuffle(*slot, Duration::from_millis(7));
        for what in [Fault::Error, Fault::Lost, Fault::Partial, Fault::Misdirected, Fault::Flipped] {
            machine.rule(*slot, Rule::new(Op::Write, often, what));
        }
        for what in
            [Fault::Stale, Fault::Misdirected, Fault::Flipped, Fault::Slow(Duration::from_millis(100))]
        {
            machine.rule(*slot, Rule::new(Op::Read, often, what));
        }
        machine.rule(*slot, Rule::new(Op::Discard, When::Chance(500_000), Fault::Garbage));
    }
    let mut random = Random::new(seed);
    let mut said = Vec::new();
    for round in 0..4 {
        let disks: Vec<_> = slots.iter().map(|s| machine.open(*s).expect("it is there")).collect();
        if round == 2 {
            machine.cut_at(machine.events() + 40, PowerCut::Tear { seed });
        }
        let mut waiting = Vec::new();
        for _ in 0..120 {
            let (d, c) = (&disks[random.below(3) as usize], Ctx::default());
            let (page, pages) = (random.below(900), random.below(8) + 1);
            let (offset, length) = (page * PAGE, (pages * PAGE) as usize);
            waiting.push(match random.below(8) {
                0 => d.flush(&c).map(|r| format!("{r:?}")),
                1 => d.discard(&c, offset, length as u64).map(|r| format!("{r:?}")),
                2..=4 => {
                    let dst = sized(arena.alloc_sg(length, Class::Payload).await, length);
                    d.read(&c, offset, dst).map(|(r, dst): (_, SgMut)| {
                        let sum = dst
                            .iter()
                            .flat_map(|b| b.iter())
                            .fold(0u64, |h, b| h.wrapping_mul(31) + u64::from(*b));
                        format!("{r:?} {sum}")
                    })
                }
                _ => d
                    .write(&c, offset, Sg::from_iter([IoBuf::from(bytes(random.next(), length))]))
                    .map(|r| format!("{r:?}")),
            });
            if waiting.len() > 16 {
                said.push(waiting.swap_remove(random.below(16) as usize).wait().await);
            }
        }
        for io in waiting {
            said.push(io.wait().await);
        }
        if !machine.is_on() {
            machine.restart();
        }
    }
    (machine.log(), slots.iter().map(|s| machine.image(*s)).collect(), said)
}

#[test]
fn a_seed_replays() {
    let run = |seed| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(storm(seed))
    };
    let (first, again, other) = (run(7), run(7), run(8));
    assert!(first == again, "the same seed, another run");
    assert!(first.1 != other.1 && first.2 != other.2);
    let kinds: BTreeSet<_> = first.0.iter().map(|i| (i.at.op, std::mem::discriminant(&i.fault)).0).collect();
    assert_eq!(kinds.len(), 3, "faults of reads, writes and discards");
    assert!(first.2.iter().any(|s| s.contains("Gone")), "the power went");
}

/// A counter with two alternating copies, each on two disks: the smallest structure that survives a power
/// cut.
fn count_up(machine: &Machine, flushes: bool) -> Vec<(u64, u64)> {
    let disks: Vec<_> = (0..2).map(|i| machine.open(SlotId(i)).expect("it is there")).collect();
    let mut acknowledged = Vec::new();
    for n in 1..=6u64 {
        for d in &disks {
            // Two pages: a copy whose halves differ is torn.
            let copy = vec![n as u8; 2 * PAGE as usize];
            if write(d, n % 2 * 2, &copy).is_err() || flushes && flush(d).is_err() {
                return acknowledged;
            }
        }
        acknowledged.push((machine.events(), n));
    }
    acknowledged
}

/// The highest whole copy on any disk.
fn recover(machine: &Machine) -> u64 {
    let disks = (0..2).map(|i| machine.open(SlotId(i)).expect("it is there"));
    let copies = disks.flat_map(|d| [0, 2].map(|page| read(&d, page, 2).expect("read")));
    let whole = copies.filter(|c| c.iter().all(|b| *b == c[0]));
    whole.map(|c| u64::from(c[0])).max().unwrap_or(0)
}

fn pair(seed: u64) -> Machine {
    let machine = Machine::new(&Env::real(), seed);
    for i in 0..2 {
        machine.add(&MemoryOptions::new(format!("d{i}"), 1 << 20));
    }
    machine
}

fn cuts() -> impl Iterator<Item = PowerCut> {
    let seeded = (0..20).flat_map(|seed| [PowerCut::Reorder { seed }, PowerCut::Tear { seed }]);
    [PowerCut::LoseAll, PowerCut::KeepAll].into_iter().chain(seeded)
}

/// The number of cuts that lose acknowledged data.
fn losses(flushes: bool) -> usize {
    let machine = pair(5);
    machine.record();
    let acknowledged = count_up(&machine, flushes);
    let crash_points = machine.end_recording();
    assert_eq!(crash_points.len() as u64, machine.events() + 1);
    let owed = |event| acknowledged.iter().filter(|(e, _)| *e <= event).map(|(_, n)| *n).max().unwrap_or(0);
    let lost = |m: &CrashPoint, cut| recover(&m.cut(&Env::real(), cut)) < owed(m.event);
    crash_points.iter().map(|m| cuts().filter(|cut| lost(m, *cut)).count()).sum()
}

#[test]
fn every_cut_keeps_what_was_flushed_and_finds_what_was_not() {
    assert_eq!(losses(true), 0);
    assert!(losses(false) > 10, "a workload that forgets to flush is caught");
}

/// Cutting a recorded moment has the same result as a run with a cut at that event.
#[test]
fn a_moment_is_the_same_as_a_run() {
    let machine = pair(5);
    machine.record();
    count_up(&machine, true);
    let all = machine.events();
    for m in machine.end_recording() {
        for cut in cuts() {
            let run = pair(5);
            run.cut_at(m.event, cut);
            count_up(&run, true);
            assert_eq!(run.is_on(), m.event == all);
            run.cut(cut);
            run.restart();
            let from_moment = m.cut(&Env::real(), cut);
            for slot in [SlotId(0), SlotId(1)] {
                assert_eq!(run.image(slot), from_moment.image(slot), "{m:?} {cut:?}");
            }
        }
    }
}

trait NowOrPanic<T> {
    fn now_or_panic(self) -> T;
}

impl<T> NowOrPanic<T> for Io<T> {
    fn now_or_panic(self) -> T {
        match self {
            Io::Done(t) => t,
            Io::Pending(_) => panic!("it completes at once"),
        }
    }
}

fn bits(a: &[u8], b: &[u8]) -> u32 {
    a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum()
}
