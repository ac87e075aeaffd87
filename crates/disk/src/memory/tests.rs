use super::*;
use crate::conformance::{bytes, read_now, write_now};

const UNIT: u64 = 4096;

fn disk() -> Arc<MemoryDisk> {
    MemoryDisk::new(&MemoryOptions::new("m0", 1 << 20))
}

fn through() -> Ctx {
    let mut c = Ctx::default();
    c.flags.write_through = true;
    c
}

fn flush(d: &MemoryDisk) {
    let Io::Done(Ok(())) = d.flush(&Ctx::default()) else { panic!("it flushes at once") };
}

#[test]
fn a_cut_loses_only_unflushed_writes() {
    for cut in
        [PowerCut::LoseAll, PowerCut::KeepAll, PowerCut::Reorder { seed: 3 }, PowerCut::Tear { seed: 3 }]
    {
        let d = disk();
        write_now(&*d, &Ctx::default(), 0, bytes(1, 8192)).expect("written");
        flush(&d);
        write_now(&*d, &Ctx::default(), 4096, bytes(2, 8192)).expect("written");
        write_now(&*d, &through(), 16384, bytes(3, 4096)).expect("written");
        d.power_cut(cut);
        let gone = Err(DiskError::Gone { at: IoRange::new(Op::Read, 0, 4096) });
        assert_eq!(read_now(&*d, 0, 4096), gone);
        let d = d.restart();
        assert_eq!(read_now(&*d, 0, 4096), Ok(bytes(1, 8192)[..4096].to_vec()));
        assert_eq!(read_now(&*d, 16384, 4096), Ok(bytes(3, 4096)));
        let unflushed = read_now(&*d, 4096, 8192).expect("read");
        let (old, new) = ([&bytes(1, 8192)[4096..], &[0; 4096]].concat(), bytes(2, 8192));
        match cut {
            PowerCut::LoseAll => assert_eq!(unflushed, old),
            PowerCut::KeepAll => assert_eq!(unflushed, new),
            _ => (0..2).map(|i| i * 4096..(i + 1) * 4096).for_each(|unit| {
                assert!(unflushed[unit.clone()] == old[unit.clone()] || unflushed[unit.clone()] == new[unit])
            }),
        }
    }
}

/// Over many seeds, tearing two overlapping writes of two units produces every possible outcome and no
/// impossible one.
#[test]
fn tears_reach_every_outcome() {
    let mut torn = std::collections::BTreeSet::new();
    let mut whole = std::collections::BTreeSet::new();
    for seed in 0..400 {
        for tear in [false, true] {
            let d = disk();
            write_now(&*d, &Ctx::default(), 0, vec![1; 8192]).expect("written");
            write_now(&*d, &Ctx::default(), UNIT, vec![2; 8192]).expect("written");
            d.power_cut(if tear { PowerCut::Tear { seed } } else { PowerCut::Reorder { seed } });
            let image = d.restart().image().to_vec(0, 3 * UNIT as usize);
            assert!(image.chunks(UNIT as usize).all(|u| u.iter().all(|b| *b == u[0])), "units are whole");
            let outcome: Vec<u8> = image.chunks(UNIT as usize).map(|u| u[0]).collect();
            if tear { &mut torn } else { &mut whole }.insert(outcome);
        }
    }
    assert_eq!(torn.len(), 2 * 3 * 2);
    assert_eq!(whole.into_iter().collect::<Vec<_>>(), [[0, 0, 0], [0, 2, 2], [1, 1, 0], [1, 2, 2]]);
}

/// Data replaced by a write-through write cannot reappear; other data is as undecided as before.
#[test]
fn write_through_ends_older_versions() {
    let mut around = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let d = disk();
        write_now(&*d, &Ctx::default(), 0, vec![1; 3 * UNIT as usize]).expect("written");
        write_now(&*d, &through(), UNIT, vec![2; UNIT as usize]).expect("written");
        d.power_cut(PowerCut::Tear { seed });
        let image = d.image().to_vec(0, 3 * UNIT as usize);
        assert_eq!(image[UNIT as usize], 2);
        around.insert((image[0], image[2 * UNIT as usize]));
    }
    assert_eq!(around.len(), 4);
}

#[test]
fn without_a_cache_nothing_is_lost() {
    let d = MemoryDisk::new(&MemoryOptions { volatile_cache: false, ..MemoryOptions::new("m1", 1 << 20) });
    write_now(&*d, &Ctx::default(), 0, vec![7; 4096]).expect("written");
    d.power_cut(PowerCut::LoseAll);
    assert_eq!(read_now(&*d.restart(), 0, 4096), Ok(vec![7; 4096]));
}

#[tokio::test]
async fn conforms() {
    let arena = arena::Arena::new(16 << 20).expect("a small mapping");
    let mut n = 0;
    crate::conformance::run(&arena, || {
        n += 1;
        let small = MemoryOptions { logical_block: 512, ..MemoryOptions::new("m2", 4 << 20) };
        let options = if n % 2 == 0 { small } else { MemoryOptions::new("m3", 4 << 20) };
        async move { MemoryDisk::new(&options) as Arc<dyn Disk> }
    })
    .await;
}
