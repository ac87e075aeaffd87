//! Which disk is read, and what becomes of reads that nobody waits for.

use std::time::Duration;

use arena::Class;
use disk::sim::{Fault, Rule, SlotId, When};
use disk::{Disk, Op, sized};
use env::{Ctx, Epoch, Io};

use super::world::{Shape, World};
use super::{arena, in_virtual_time};
use crate::UNIT;
use crate::events::Found;

/// Nobody waits for it any more, and yet it ends: it heals what it finds, and a fence waits for it.
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
