//! Random histories of a pool with spaces of all kinds. Users, jobs, changes of the disks and faults run
//! concurrently, over several lives of the server.
//!
//! The seed decides everything. A life of the server ends with a power cut at any event, the end of the process
//! alone, a clean export, or because another process takes the pool while this one still runs. Between lives, disks
//! are rolled back to images of any moment. A [`Model`](crate::model::Model) states which bytes a read may return.
//! The checks are:
//!
//! 1. a read returns a value that the model allows, and no flushed write is lost;
//! 2. two reads agree, also across crashes;
//! 3. no call fails while no more disks are bad than the space survives;
//! 4. after another process has opened the pool, no call of the previous process is acknowledged;
//! 5. at the end, when every disk is resynchronised, no copy is stale, a scrub finds nothing, and any set of as many
//!    disks as the spaces survive can be removed without a loss.
//!
//! A disk is *bad* while it is absent, and after it was damaged or rolled back, or may be stale. It stays bad until
//! all disks have been resynchronised and, after damage, everything was scrubbed.

mod bed;
mod chaos;
mod copies;
mod disks;
mod jobs;
mod last;
mod life;
mod random;
mod second;
mod shape;
mod users;

use disk::Image;
use disk::sim::SlotId;

use crate::world::virtual_time;
use bed::Bed;
use random::Random;
use shape::Shape;

/// Runs the history of a seed; returns the images of the disks at its end.
pub(crate) fn run(seed: u64) -> Vec<Image> {
    virtual_time(async {
        let mut random = Random::new(seed);
        let (copies_change, second_leaves) = (copies::change_in(seed), second::leaves_in(seed));
        let shape = Shape { copies_change, second_leaves, ..Shape::of(&mut random) };
        let (bed, mut site) = Bed::create(seed, shape).await;
        let history = async {
            let lives = 1 + random.below(4);
            let mut before = None;
            for life in 0..lives {
                bed.note(|| format!("life {life}"));
                let ending = life::live(&bed, &site, before.take(), &mut random).await;
                (site, before) = life::next(&bed, site, ending, &mut random).await;
            }
            last::check(&bed, site, before, &mut random).await;
        };
        let end = tokio::time::timeout(std::time::Duration::from_secs(1800), history).await;
        end.unwrap_or_else(|_| bed.fail("a call does not end"));
        (0..bed.machine.slots()).map(|slot| bed.machine.image(SlotId(slot))).collect()
    })
}
