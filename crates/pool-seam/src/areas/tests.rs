use super::*;

const GIB: u64 = 1024 * MIB;

#[test]
fn the_sizes_of_the_format() {
    let areas = Areas::plan(GIB, 8 * MIB).expect("room");
    assert_eq!((areas.claim.offset, areas.fences.offset), (68 * KIB, 80 * KIB));
    assert_eq!((areas.marks, areas.slots()), (Extent::new(128 * KIB, MIB), 128));
    assert_eq!(areas.checkpoints(), [Extent::new(1152 * KIB, 512 * KIB), Extent::new(1664 * KIB, 512 * KIB)]);
    assert_eq!((areas.journal, areas.slabs.offset), (Extent::new(2176 * KIB, 256 * KIB), 3 * MIB));
    assert_eq!(
        areas.data(1).offset,
        3 * MIB + 2 * 16 * KIB + 8 * MIB,
        "slab n is at n × (slab + slab / 512)"
    );
    let large = Areas::plan(1024 * GIB, 256 * MIB).expect("room");
    assert_eq!((large.slots(), large.marks.length), (4096, 32 * MIB));
    assert_eq!((large.checkpoint_1.length, large.journal.length), (256 * MIB, 16 * MIB));
    assert_eq!(Areas::plan(16 * MIB, 2 * MIB).expect("room").slots(), 16);
    assert_eq!(Areas::plan(128 * MIB - UNIT, 2 * MIB).expect("room").slots(), 16);
    assert_eq!(Areas::plan(16 * MIB - UNIT, 2 * MIB), None);
}

#[test]
fn a_plan_is_sound_and_a_damaged_one_is_not() {
    for size in [16 * MIB, 100 * MIB + 5 * UNIT, 3 * GIB, 900 * GIB + 7] {
        let areas = Areas::plan(size, Areas::slab_bytes_for(size, size)).expect("room");
        assert!(areas.is_sound() && areas.data(areas.slab_count() - 1).end() <= areas.label_b.offset);
        let damage: [fn(&mut Areas); 6] = [
            |a| a.marks.length += UNIT,
            |a| a.marks.length = a.marks.length * 2 + 64 * MIB,
            |a| a.fences.offset = a.claim.offset,
            |a| a.slabs.length += UNIT,
            |a| a.slab_bytes += UNIT,
            |a| a.journal.offset = u64::MAX - UNIT + 1,
        ];
        for damage in damage {
            let mut damaged = areas;
            damage(&mut damaged);
            assert!(!damaged.is_sound(), "{damaged:?}");
        }
    }
}
