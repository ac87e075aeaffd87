//! Users of a space, several at a time on the same units.

use std::ops::Range;
use std::time::Duration;

use arena::Sg;
use pool_seam::UNIT;
use space::SpaceError;

use super::bed::{Server, TestBed};
use super::random::Random;
use crate::model::{End, fill, tell};

/// Runs this many steps in one space.
pub(super) async fn user(bed: &TestBed, server: &Server, space: usize, steps: u64, mut random: Random) {
    for _ in 0..steps {
        if random.one_in(3) {
            bed.env.sleep(Duration::from_millis(random.below(12))).await;
        }
        let units = somewhere(bed, space, &mut random);
        match random.below(16) {
            0..7 => write(bed, server, space, units, false).await,
            7..9 => write(bed, server, space, units, true).await,
            9 => discard(bed, server, space, units).await,
            10 => {
                let units = match random.one_in(4) {
                    true => row_of(bed, space, units.start),
                    false => units.start..units.start + 30,
                };
                discard(bed, server, space, inside(bed, space, units)).await
            }
            11..14 => flush(bed, server, space).await,
            _ => read(bed, server, space, units).await,
        }
    }
}

fn row_units(bed: &TestBed, space: usize) -> u64 {
    u64::from(bed.shape.spaces[space].columns) * 512
}

fn row_of(bed: &TestBed, space: usize, unit: u64) -> Range<u64> {
    let length = row_units(bed, space);
    unit / length * length..(unit / length + 1) * length
}

fn inside(bed: &TestBed, space: usize, units: Range<u64>) -> Range<u64> {
    let end = bed.shape.spaces[space].size / UNIT;
    units.start.min(end - 1)..units.end.min(end)
}

/// A range from few units: at the beginning of a row, the end of one, or a boundary of groups.
fn somewhere(bed: &TestBed, space: usize, random: &mut Random) -> Range<u64> {
    let row = row_units(bed, space);
    let rows = bed.shape.spaces[space].size / UNIT / row;
    let base = match random.below(8) {
        0 => row * (1 + random.below(rows - 1)) - 4,
        1 => row * random.below(rows),
        _ => 0,
    };
    let first = base + random.below(28);
    let length = match random.below(10) {
        0 => 8 + random.below(40),
        _ => 1 + random.below(5),
    };
    inside(bed, space, first..first + length)
}

pub(super) fn end_of(result: &Result<(), SpaceError>, through: bool) -> End {
    match (result, through) {
        (Ok(()), false) => End::Done,
        (Ok(()), true) => End::Durable,
        (Err(_), _) => End::Failed,
    }
}

/// The range is beyond a size that is changing.
fn is_beyond(error: &SpaceError) -> bool {
    matches!(error, SpaceError::Beyond { .. })
}

async fn write(bed: &TestBed, server: &Server, space: usize, units: Range<u64>, through: bool) {
    let version = bed.models[space].borrow_mut().write_begun(units.clone());
    let src: Sg = units.clone().map(|unit| fill(unit, version)).collect();
    bed.trace(|| format!("space {space}: {version} begins, {units:?}"));
    let result = server.spaces[space].space.write(units.start * UNIT, src, through).wait().await;
    bed.models[space].borrow_mut().ended(units.clone(), version, end_of(&result, through));
    bed.trace(|| format!("space {space}: {version} to {units:?}, through {through}: {result:?}"));
    if let Err(error) = result
        && !is_beyond(&error)
    {
        bed.fail_unless_excused(server, &format!("write of {units:?} of space {space}"), &error);
    }
}

async fn discard(bed: &TestBed, server: &Server, space: usize, units: Range<u64>) {
    let version = bed.models[space].borrow_mut().discard_begun(units.clone());
    let (address, length) = (units.start * UNIT, (units.end - units.start) * UNIT);
    bed.trace(|| format!("space {space}: {version} begins, {units:?}"));
    let result = server.spaces[space].space.discard(address, length).wait().await;
    bed.models[space].borrow_mut().ended(units.clone(), version, end_of(&result, false));
    bed.trace(|| format!("space {space}: discard {version} of {units:?}: {result:?}"));
    if let Err(error) = result
        && !is_beyond(&error)
    {
        bed.fail_unless_excused(server, &format!("discard of {units:?} of space {space}"), &error);
    }
}

pub(super) async fn flush(bed: &TestBed, server: &Server, space: usize) {
    let began = bed.models[space].borrow_mut().time();
    bed.trace(|| format!("space {space}: {began} begins"));
    let flushed = server.spaces[space].flush().await;
    bed.trace(|| format!("space {space}: flush {began}: {flushed:?}"));
    match flushed {
        Ok(()) => bed.models[space].borrow_mut().flushed(began),
        Err(error) => bed.fail_unless_excused(server, &format!("flush of space {space}"), &error),
    }
}

/// Reads, and compares the bytes with the model.
pub(super) async fn read(bed: &TestBed, server: &Server, space: usize, units: Range<u64>) {
    let began = bed.models[space].borrow_mut().time();
    bed.trace(|| format!("space {space}: {began} begins"));
    match server.spaces[space].read(units.clone()).await {
        Ok(bytes) => {
            let mut model = bed.models[space].borrow_mut();
            for (unit, bytes) in units.zip(bytes.chunks(UNIT as usize)) {
                let read = model.read(unit, bytes, began);
                bed.trace(|| format!("space {space}: read {began} of {unit}: {:?}", tell(bytes)));
                if let Err(what) = read {
                    bed.fail(&format!("space {space}: {what}"));
                }
            }
        }
        Err(error) if is_beyond(&error) => {}
        Err(error) => bed.fail_unless_excused(server, &format!("read of {units:?} of space {space}"), &error),
    }
}

/// Reads everything that was ever written.
pub(super) async fn read_all(bed: &TestBed, server: &Server) {
    for space in 0..bed.models.len() {
        let units = bed.models[space].borrow().units();
        let mut at = 0;
        while at < units.len() {
            let follows = |next: &usize| units[*next] == units[at] + (*next - at) as u64 && *next < at + 16;
            let end = (at..units.len()).take_while(follows).last().expect("the first") + 1;
            read(bed, server, space, units[at]..units[at] + (end - at) as u64).await;
            at = end;
        }
    }
}

/// A user of a deposed owner: no call may be acknowledged after `is_deposed`, and reads must never return values
/// written after that.
pub(super) async fn deposed_user(
    bed: &TestBed,
    server: &Server,
    space: usize,
    is_deposed: &std::cell::Cell<bool>,
    mut random: Random,
) {
    for turn in 0_u64.. {
        bed.env.sleep(Duration::from_millis(1 + random.below(300))).await;
        let units = somewhere(bed, space, &mut random);
        let was_deposed = is_deposed.get();
        // The model does not know these versions, so it refuses them.
        let unknown = (1 << 40) + turn;
        let (what, result) = match random.below(4) {
            0 => {
                let began = bed.models[space].borrow_mut().time();
                let result = server.spaces[space].flush().await;
                if result.is_ok() && !is_deposed.get() {
                    bed.models[space].borrow_mut().flushed(began);
                }
                ("flush", result)
            }
            n => {
                let known = (!was_deposed).then(|| bed.models[space].borrow_mut().write_begun(units.clone()));
                let version = known.unwrap_or(unknown);
                let src: Sg = units.clone().map(|unit| fill(unit, version)).collect();
                let through = n == 1;
                let address = units.start * UNIT;
                let result = server.spaces[space].space.write(address, src, through).wait().await;
                if let Some(version) = known.filter(|_| !is_deposed.get()) {
                    let end = end_of(&result, through);
                    bed.models[space].borrow_mut().ended(units.clone(), version, end);
                }
                ("write", result)
            }
        };
        match result {
            Ok(()) if is_deposed.get() => {
                bed.fail(&format!("a {what} of {units:?} was acknowledged by an owner that was deposed"))
            }
            Ok(()) | Err(_) => {}
        }
    }
}
