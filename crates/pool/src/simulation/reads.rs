//! The choice of the disk for a read, and abandoned reads and writes.

use std::time::Duration;

use arena::{Class, IoBuf};
use disk::sim::{Fault, Rule, SlotId, When};
use disk::{Disk, DiskError, Op, sized};
use env::{Ctx, Epoch, Io};

use super::world::{Shape, World};
use super::{arena, in_virtual_time};
use crate::UNIT;
use crate::events::Found;

/// Its caller has dropped it, and yet it ends: it repairs damage, and a fence waits for it.
#[test]
fn a_dropped_read_goes_on() {
    in_virtual_time(async {
        let world = World::new(Shape::MIRROR, 1).await;
        world.write(0..8, &[5; 8]).await.expect("a write");
        world.space.flush_all().await.expect("a flush");
        let data = world.shape.areas().data(0).offset;
        for disk in 0..2 {
            let slow = Rule::new(Op::Read, When::From(0), Fault::Slow(Duration::from_secs(3)));
            world.machine.rule(SlotId(disk), slow);
        }
        world.machine.flip(SlotId(0), data + 2 * UNIT, 1);
        let began = world.env.now();
        // Reads turn to another disk only when the first is busy.
        for _ in 0..2 {
            let dst = sized(arena().alloc_sg(8 * 4096, Class::Payload).await, 8 * 4096);
            let read = world.space.read(&Ctx::default(), 0, dst);
            assert!(matches!(read, Io::Pending(_)), "the disks are slow");
            drop(read);
        }
        world.space.fence(&Ctx::default(), Epoch(7)).wait().await.expect("fenced");
        assert!(world.env.now() - began >= Duration::from_secs(3), "it waited for the disks");
        assert_eq!(world.path.events.count(Found::Healed), 1);
    });
}

/// What a fenced caller would hear may be old, and a hole stands for a read.
#[test]
fn a_fenced_caller_does_not_hear_what_is_allocated() {
    in_virtual_time(async {
        let world = World::new(Shape::MIRROR, 1).await;
        world.write(0..8, &[5; 8]).await.expect("a write");
        world.space.fence(&Ctx::default(), Epoch(7)).wait().await.expect("fenced");
        let allocated = |epoch| {
            let c = Ctx { epoch: Epoch(epoch), ..Ctx::default() };
            world.space.allocated(&c, 0, 8 * UNIT).wait()
        };
        assert!(matches!(allocated(0).await, Err(DiskError::Fenced { .. })));
        let whole = 0..8 * UNIT;
        assert_eq!(allocated(7).await, Ok(vec![whole]));
    });
}

/// An abandoned write delays no other: it ends, others at its units continue, and its result is available
/// later.
#[test]
fn a_write_goes_on_whoever_waits() {
    in_virtual_time(async {
        let world = World::new(Shape::MIRROR, 1).await;
        world.write(0..8, &[5; 8]).await.expect("a write");
        for disk in 0..2 {
            let slow = Rule::new(Op::Write, When::From(0), Fault::Slow(Duration::from_secs(3)));
            world.machine.rule(SlotId(disk), slow);
        }
        let (began, permits) = (world.env.now(), world.path.writes.available_permits());
        let write = |unit: u64, byte: u8| {
            let src = [IoBuf::from(vec![byte; UNIT as usize])].into_iter().collect();
            world.space.write(&Ctx::default(), unit * UNIT, src)
        };
        let (held, dropped, over) = (write(1, 1), write(2, 2), write(1, 3));
        assert!(matches!((&held, &dropped), (Io::Pending(_), Io::Pending(_))), "the disks are slow");
        drop(dropped);
        over.wait().await.expect("no other request is before it");
        assert!(world.env.now() - began >= Duration::from_secs(6), "it waited for the first");
        world.space.fence(&Ctx::default(), Epoch(7)).wait().await.expect("nothing is under way");
        held.wait().await.expect("a write");
        let dst = sized(arena().alloc_sg(2 * 4096, Class::Payload).await, 2 * 4096);
        let now = Ctx { epoch: Epoch(7), ..Ctx::default() };
        let (result, read) = world.space.read(&now, UNIT, dst).wait().await;
        result.expect("a read");
        let bytes: Vec<u8> = read.iter().flat_map(|b| b.iter().copied()).step_by(UNIT as usize).collect();
        assert_eq!(bytes, [3, 2]);
        assert_eq!(world.path.writes.available_permits(), permits);
    });
}

/// A disk reads an old state of a block of which memory knows a part only. What it says of the rest gets the
/// newest generation with the next flush, and would look as new as what the other copy says: of that it would
/// be the first.
#[test]
fn what_was_read_stale_is_not_made_new() {
    in_virtual_time(async {
        let world = World::new(Shape::MIRROR, 1).await;
        let region = u64::from(world.space.inner.regions.units(1).start);
        let (in_doubt, other) = (0..1, region..region + 1);
        world.write(other.clone(), &[1]).await.expect("a write");
        world.space.flush_all().await.expect("a flush");
        world.machine.mark(SlotId(0));
        for value in 2..5 {
            world.write(other.clone(), &[value]).await.expect("a write");
            world.space.flush_all().await.expect("a flush");
        }
        world.path.quiesce().await.expect("nothing is in doubt");
        world.write(in_doubt.clone(), &[9]).await.expect("a write");
        world.space.flush_all().await.expect("a flush");
        let world = world.reopen().await;
        assert_eq!(world.space.unresolved_groups(), 1);
        let blocks = world.shape.areas().checksums(0);
        let stale = Rule::new(Op::Read, When::From(0), Fault::Stale).within(blocks.offset..blocks.end());
        world.machine.rule(SlotId(0), stale);
        assert_eq!(world.read(in_doubt.clone()).await, Ok(vec![9]));
        world.machine.no_rules(SlotId(0));
        let world = world.reopen().await;
        assert_eq!((world.read(in_doubt).await, world.read(other).await), (Ok(vec![9]), Ok(vec![4])));
        assert_eq!(world.path.events.count(Found::Lost), 0);
    });
}
