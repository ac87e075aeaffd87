//! The end of a history: repairs everything, then checks the data, also without as many disks as the spaces survive.

use disk::PowerCut;
use disk::sim::{Moment, SlotId};
use env::Env;
use pool::events::DamageKind;
use pool_seam::{JobOrder, Owner, RowNumber};

use super::bed::{Bed, Site};
use super::life::Before;
use super::random::Random;
use super::{chaos, users};
use crate::process::Fences;
use crate::world::World;

/// Values of units: space, first unit, bytes.
type Values = Vec<(usize, u64, Vec<u8>)>;

/// See the module.
pub(super) async fn check(bed: &Bed, site: Site, before: Option<Before<'_>>, random: &mut Random) {
    drop(before);
    bed.note(|| "at last".into());
    chaos::mend(bed, &site).await;
    users::read_all(bed, &site).await;
    // Checked first, because a scrub that finds no damage clears the recorded loss.
    if site.pool.read(|state| state.spaces.values().any(|record| record.loss.units > 0)) {
        bed.fail("a loss was recorded");
    }
    for space in 0..site.spaces.len() {
        users::flush(bed, &site, space).await;
        chaos::checkpoint(bed, &site, space).await;
        let report = chaos::run(bed, &site, space, JobOrder::Scrub(RowNumber(0))).await.expect("it runs");
        if report.progress.healed != 0 {
            bed.fail(&format!(
                "space {space}: a scrub found something after everything was mended: {report:?}, {:?}",
                site.pool.events().counts()
            ));
        }
    }
    if site.pool.events().count(DamageKind::Lost) != 0 {
        bed.fail(&format!("units were called lost: {:?}", site.pool.events().counts()));
    }
    users::read_all(bed, &site).await;
    let values = values(bed, &site).await;
    bed.machine.record();
    let moment = bed.machine.recorded().pop().expect("one for now");
    for _ in 0..2 {
        without_some(bed, &moment, &values, random).await;
    }
    for owned in &site.spaces {
        owned.space.close().wait().await.unwrap_or_else(|error| bed.fail(&format!("closing: {error}")));
    }
    site.pool.export().await.unwrap_or_else(|error| bed.fail(&format!("export: {error}")));
    let next = site.world.following(None);
    let opened = next.try_open(false).await.unwrap_or_else(|error| bed.fail(&format!("opening: {error}")));
    let site =
        bed.own_all(next, opened.pool).await.unwrap_or_else(|error| bed.fail(&format!("owning: {error}")));
    users::read_all(bed, &site).await;
}

async fn values(bed: &Bed, site: &Site) -> Values {
    let mut values = Vec::new();
    for space in 0..site.spaces.len() {
        let units = bed.models[space].borrow().units();
        for unit in units {
            let bytes = site.spaces[space].read(unit..unit + 1).await;
            let bytes =
                bytes.unwrap_or_else(|error| bed.fail(&format!("unit {unit} of space {space}: {error}")));
            values.push((space, unit, bytes));
        }
    }
    values
}

/// Cuts the power, starts without some disks, and compares the data.
async fn without_some(bed: &Bed, moment: &Moment, values: &Values, random: &mut Random) {
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
    let site = bed.own_all(world, opened.pool).await;
    let site = site.unwrap_or_else(|error| bed.fail(&format!("owning with {slots:?}: {error}")));
    for (space, unit, bytes) in values {
        match site.spaces[*space].read(*unit..unit + 1).await {
            Ok(read) if read == *bytes => {}
            Ok(_) => bed.fail(&format!("unit {unit} of space {space} is another with {slots:?} only")),
            Err(error) => bed.fail(&format!("unit {unit} of space {space} with {slots:?}: {error}")),
        }
    }
}
