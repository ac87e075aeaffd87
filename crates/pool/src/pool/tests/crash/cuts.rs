//! The power fails at every write and flush of a run, in four ways each; afterwards any of the disks may be missing
//! too.

use disk::PowerCut;

use super::*;
use crate::Absence;
use crate::metadata::{MembershipToEnd, Removal};

/// A run: opening, changes, a disk that is removed and returns, and another opening. Returns the acknowledged states,
/// each with the number of its event.
async fn run(seed: u64, env: &Env, arena: &Arena, machine: &Machine, disks: usize) -> Vec<(u64, Visible)> {
    let mut pool = pool_on(env, arena, machine, disks).await;
    machine.record();
    let mut acknowledged = vec![(machine.events(), pool.read(visible))];
    let steps = 4 + seed % 4;
    let (leaves, opens) = (1 + below(env, steps), below(env, steps));
    for step in 0..steps {
        let ops = pool.read(|s| change(env, s, step));
        pool.metadata().commit(ops).await.unwrap();
        acknowledged.push((machine.events(), pool.read(visible)));
        if step == leaves {
            let victim = below(env, disks as u64) as usize;
            pool.take_offline(DiskNumber(victim as u16)).await.unwrap();
            acknowledged.push((machine.events(), pool.read(visible)));
            let ops = pool.read(|s| change(env, s, 100 + step));
            pool.metadata().commit(ops).await.unwrap();
            acknowledged.push((machine.events(), pool.read(visible)));
            pool.return_disk(machine.open(SlotId(victim)).unwrap(), false).await.unwrap();
        }
        if step == opens {
            drop(pool);
            pool = open(env, arena, &open_all(machine, 0..disks)).await.unwrap().pool;
        }
    }
    acknowledged
}

async fn every_cut(seed: u64, env: Env, arena: Arena) {
    let disks = 2 + (seed % 3) as usize;
    let machine = Machine::new(&env, seed);
    let acknowledged = run(seed, &env, &arena, &machine, disks).await;
    for moment in machine.end_recording() {
        let cuts = [
            PowerCut::LoseAll,
            PowerCut::KeepAll,
            PowerCut::Reorder { seed: seed ^ moment.event },
            PowerCut::Tear { seed: seed ^ moment.event },
        ];
        let cuts = &cuts[if moment.losable_writes() == 0 { 3..4 } else { 0..4 }];
        for cut in cuts {
            let owed = acknowledged.iter().rposition(|(event, _)| *event <= moment.event).unwrap();
            let may_be = &acknowledged[owed..acknowledged.len().min(owed + 2)];
            let check = |pool: &Pool, what: &str| {
                let got = pool.read(visible);
                assert!(
                    may_be.iter().any(|(_, v)| *v == got),
                    "{what}, {cut:?} at {moment:?}: {got:#?}\nis none of {may_be:#?}"
                );
            };
            let after = moment.cut(&env, *cut);
            // Opens with any set of disks: a pool that opens must have the acknowledged state.
            for missing in 0..disks {
                let after = moment.cut(&env, *cut);
                let some = open_all(&after, (0..disks).filter(|n| *n != missing));
                match open(&env, &arena, &some).await {
                    Ok(opened) => check(&opened.pool, &format!("without disk {missing}")),
                    // Too few voters are present; or none has metadata, because the present disk was about to be
                    // returned.
                    Err(OpenError::TooFewVoters { .. } | OpenError::NoMetadata { .. }) => {}
                    Err(e) => panic!("without disk {missing}, {cut:?} at {moment:?}: {e}"),
                }
            }
            // With all disks the pool must open.
            match open(&env, &arena, &open_all(&after, 0..disks)).await {
                Ok(opened) => {
                    check(&opened.pool, "with all disks");
                    assert!(opened.stale.is_empty(), "{cut:?} at {moment:?}: {:?} are stale", opened.stale);
                }
                Err(e) => panic!("{cut:?} at {moment:?}: {e}"),
            }
        }
    }
}

#[test]
fn a_power_cut_at_every_write_and_flush() {
    seeds(0..10, every_cut);
}

/// Two of five voters may be lost, even while one of them is being removed.
#[test]
fn two_disks_may_be_lost_at_every_moment_of_the_removal_of_another() {
    seeds(0..1, async |seed, env, arena| {
        let machine = Machine::new(&env, seed);
        let pool = pool_on(&env, &arena, &machine, 6).await;
        assert!(pool.read(|s| s.voters.len() == 5 && s.voters.contains(&DiskNumber(0))));
        machine.record();
        pool.remove_disk(DiskNumber(0)).await.unwrap();
        for moment in machine.end_recording() {
            for (a, b) in (0..6).flat_map(|a| (0..a).map(move |b| (a, b))) {
                let after = moment.cut(&env, PowerCut::LoseAll);
                let some = open_all(&after, (0..6).filter(|n| ![a, b].contains(n)));
                let opened = open(&env, &arena, &some).await;
                assert!(opened.is_ok(), "without {a} and {b}, at {moment:?}: {:?}", opened.err());
            }
        }
    });
}

/// Two of five voters are removed together. At every moment the pool opens without them, and with all disks.
#[test]
fn two_voters_leave_together_at_every_moment() {
    seeds(0..4, async |seed, env, arena| {
        let machine = Machine::new(&env, seed);
        let pool = pool_on(&env, &arena, &machine, 7).await;
        let voters: Vec<_> = pool.read(|s| s.voters.iter().copied().collect());
        assert_eq!(voters.len(), 5);
        let leave = [voters[1], voters[3]];
        let removal = |disk| Removal { disk, membership: MembershipToEnd::Current, reason: Absence::Gone };
        machine.record();
        let left = pool.metadata().remove_all_from_service(leave.map(removal).into()).await;
        assert_eq!(left, [Ok(()), Ok(())]);
        pool.read(|s| {
            assert!(leave.iter().all(|disk| !s.is_present(*disk) && !s.voters.contains(disk)));
            assert_eq!(s.voters.len(), 5);
        });
        for moment in machine.end_recording() {
            let after = moment.cut(&env, PowerCut::LoseAll);
            let others = open_all(&after, (0..7).filter(|n| !leave.contains(&DiskNumber(*n as u16))));
            let opened = open(&env, &arena, &others).await;
            assert!(opened.is_ok(), "without them, at {moment:?}: {:?}", opened.err());
            let after = moment.cut(&env, PowerCut::LoseAll);
            let opened = open(&env, &arena, &open_all(&after, 0..7)).await;
            assert!(opened.is_ok(), "with them, at {moment:?}: {:?}", opened.err());
        }
    });
}
