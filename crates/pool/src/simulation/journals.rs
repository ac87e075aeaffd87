//! What becomes of a journal on its disks.

use disk::sim::SlotId;

use super::in_virtual_time;
use super::parity::SINGLE;
use super::world::{SPACE, World};
use crate::events::Found;
use crate::jobs::Progress;
use crate::{RowNumber, UNIT};

/// A journal is not read before a crash. Its copies are damaged one after the other, with a scrub between.
#[test]
fn a_scrub_reads_the_journal() {
    in_virtual_time(async {
        let world = World::new(SINGLE, 1).await;
        world.write(0..8, &[1, 2, 3, 4, 5, 6, 7, 8]).await.expect("a write");
        world.space.flush_all().await.expect("a flush");
        world.write(2..3, &[30]).await.expect("a journalled write");
        world.space.flush_all().await.expect("a flush");
        let state = world.book.state();
        let journal = state.journal_of(SPACE).expect("it has one");
        let copies = state.rows[&(journal, RowNumber(0))].slabs.clone();
        let rots = |world: &World, copy: usize| {
            let at = copies[copy].place;
            let data = world.shape.areas().data(at.slab);
            for offset in (data.offset..data.end()).step_by(UNIT as usize) {
                world.machine.flip(SlotId(usize::from(at.disk.0)), offset + 77, 3);
            }
        };
        rots(&world, 0);
        world.space.scrub(&Progress::default()).await.expect("a scrub");
        assert!(world.path.events.count(Found::Healed) > 0, "of what is written there");
        rots(&world, 1);
        let world = world.reopen().await;
        let values = world.read(0..8).await.expect("the journal was carried out");
        assert_eq!(values, [1, 2, 30, 4, 5, 6, 7, 8]);
        assert_eq!(world.path.events.count(Found::Lost), 0);
    });
}

#[test]
fn what_was_never_written_is_in_no_doubt() {
    in_virtual_time(async {
        let world = World::new(SINGLE, 1).await;
        assert_eq!(world.space.unresolved_groups(), 0, "it has no journal yet");
        world.space.allocate_all().await.expect("there is room");
        assert_eq!(world.space.unresolved_groups(), 0, "it has an empty one");
        world.write(0..8, &[1, 2, 3, 4, 5, 6, 7, 8]).await.expect("a write");
        let world = world.reopen().await;
        assert_eq!(world.space.unresolved_groups(), 1, "before it is replayed");
        world.read(0..8).await.expect("a read");
        assert_eq!(world.space.unresolved_groups(), 0);
    });
}
