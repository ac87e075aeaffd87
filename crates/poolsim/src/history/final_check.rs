//! The end of a history: repairs everything, then checks the data, also without as many disks as the spaces survive.

use disk::PowerCut;
use disk::sim::{CrashPoint, SlotId};
use env::Env;
use pool::events::DamageKind;
use pool_seam::{JobOrder, Owner, RowNumber};

use super::bed::{Server, TestBed};
use super::random::Random;
use super::server_run::PreviousServer;
use super::{chaos, users};
use crate::process::Fences;
use crate::world::World;

/// Values of units: space, first unit, bytes.
type Values = Vec<(usize, u64, Vec<u8>)>;

/// See the module.
pub(super) async fn check(
    bed: &TestBed,
    server: Server,
    previous: Option<PreviousServer<'_>>,
    random: &mut Random,
) {
    drop(previous);
    bed.note(|| "at last".into());
    chaos::repair_all(bed, &server).await;
    users::read_all(bed, &server).await;
    // Checked first, because a scrub that finds no damage clears the recorded loss.
    if server.pool.read(|state| state.spaces.values().any(|record| record.loss.units > 0)) {
        bed.fail("a loss was recorded");
    }
    for space in 0..server.spaces.len() {
        users::flush(bed, &server, space).await;
        chaos::checkpoint(bed, &server, space).await;
        let report = chaos::run(bed, &server, space, JobOrder::Scrub(RowNumber(0))).await.expect("it runs");
        if report.progress.healed != 0 {
            bed.fail(&format!(
                "space {space}: a scrub found something after everything was mended: {report:?}, {:?}",
                server.pool.events().counts()
            ));
        }
    }
    if server.pool.events().count(DamageKind::Lost) != 0 {
        bed.fail(&format!("units were called lost: {:?}", server.pool.events().counts()));
    }
    users::read_all(bed, &server).await;
    let values = values(bed, &server).await;
    bed.machine.record();
    let moment = bed.machine.end_recording().pop().expect("one for now");
    for _ in 0..2 {
        without_some(bed, &moment, &values, random).await;
    }
    for owned in &server.spaces {
        owned.space.close().wait().await.unwrap_or_else(|error| bed.fail(&format!("closing: {error}")));
    }
    server.pool.export().await.unwrap_or_else(|error| bed.fail(&format!("export: {error}")));
    let next = server.world.next_process(None);
    let opened = next.try_open(false).await.unwrap_or_else(|error| bed.fail(&format!("opening: {error}")));
    let server =
        bed.own_all(next, opened.pool).await.unwrap_or_else(|error| bed.fail(&format!("owning: {error}")));
    users::read_all(bed, &server).await;
}

async fn values(bed: &TestBed, server: &Server) -> Values {
    let mut values = Vec::new();
    for space in 0..server.spaces.len() {
        let units = bed.models[space].borrow().units();
        for unit in units {
            let bytes = server.spaces[space].read(unit..unit + 1).await;
            let bytes =
                bytes.unwrap_or_else(|error| bed.fail(&format!("unit {unit} of space {space}: {error}")));
            values.push((space, unit, bytes));
        }
    }
    values
}

/// Cuts the power, starts without some disks, and compares the data.
async fn without_some(bed: &TestBed, moment: &CrashPoint, values: &Values, random: &mut Random) {
    let env = Env::simulated(random.next());
    let machine = moment.cut(&env, PowerCut::LoseAll);
    let mut slots: Vec<usize> = (0..machine.slots()).collect();
    for _ in 0..bed.shape.budget() {
        let slot = slots.swap_remove(random.below(slots.len() as u64) as usize);
        machine.pull(SlotId(slot), PowerCut::LoseAll);
    }
    bed.note(|| format!("with {slots:?} only"));
    let world = World::on(env, machine, Fences::new(bed.shape.is_fenced));
    let opened = world
        .try_open(true)
        .await
        .unwrap_or_else(|error| bed.fail(&format!("opening with {slots:?}: {error}")));
    let server = bed.own_all(world, opened.pool).await;
    let server = server.unwrap_or_else(|error| bed.fail(&format!("owning with {slots:?}: {error}")));
    for (space, unit, bytes) in values {
        match server.spaces[*space].read(*unit..unit + 1).await {
            Ok(read) if read == *bytes => {}
            Ok(_) => bed.fail(&format!("unit {unit} of space {space} is another with {slots:?} only")),
            Err(error) => bed.fail(&format!("unit {unit} of space {space} with {slots:?}: {error}")),
        }
    }
}
