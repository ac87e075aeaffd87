//! Random histories of a pool with spaces of all kinds. Users, jobs, changes of the disks and faults run
//! concurrently, over several runs of the server.
//!
//! The seed decides everything. A run of the server ends with a power cut at any event, the end of the process
//! alone, a clean export, or because another process takes the pool while this one still runs. Between runs, disks
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
mod disks;
mod final_check;
mod jobs;
mod random;
mod row_shapes;
mod second_disk;
mod server_run;
mod shape;
mod users;

use disk::Image;
use disk::sim::SlotId;

use crate::world::virtual_time;
use bed::TestBed;
use random::Random;
use shape::Shape;

/// Runs the history of a seed; returns the images of the disks at its end.
pub(crate) fn run(seed: u64) -> Vec<Image> {
    virtual_time(async {
        let mut random = Random::new(seed);
        let (shapes_change, removes_second_disk) =
            (row_shapes::is_tested_in(seed), second_disk::is_tested_in(seed));
        let has_conversions = row_shapes::are_conversions_tested_in(seed);
        let mut shape =
            Shape { shapes_change, has_conversions, removes_second_disk, ..Shape::of(&mut random) };
        if has_conversions {
            // So large that a conversion takes several windows.
            shape.spaces.iter_mut().for_each(|record| record.size *= 2);
        }
        let (bed, mut server) = TestBed::create(seed, shape).await;
        let history = async {
            let runs = 1 + random.below(4);
            let mut previous = None;
            for run in 0..runs {
                bed.note(|| format!("run {run}"));
                let ending = server_run::run(&bed, &server, previous.take(), &mut random).await;
                (server, previous) = server_run::start_next(&bed, server, ending, &mut random).await;
            }
            final_check::check(&bed, server, previous, &mut random).await;
        };
        let end = tokio::time::timeout(std::time::Duration::from_secs(1800), history).await;
        end.unwrap_or_else(|_| bed.fail("a call does not end"));
        (0..bed.machine.slots()).map(|slot| bed.machine.image(SlotId(slot))).collect()
    })
}
