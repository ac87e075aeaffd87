//! What users do: several at a time, on the same units.

use std::time::Duration;

use disk::{Disk, DiskError};
use env::Ctx;
use pool::UNIT;

use crate::model::Token;
use crate::rig::{Random, Rig, Site, USED};

/// One user's steps. Every answer is compared; errors are failures unless more is bad than promised.
pub async fn user(rig: &Rig, site: &Site, steps: u64, mut random: Random) {
    for _ in 0..steps {
        if !rig.machine.is_on() {
            return;
        }
        let strict = rig.is_strict();
        let row = random.below(rig.shape.rows) * rig.shape.row_units();
        let at = random.below(USED);
        let count = 1 + random.below(6.min(USED - at));
        let first = row + at;
        match random.below(16) {
            0..=6 => {
                let through = random.one_in(8);
                let (values, tokens): (Vec<_>, Vec<Token>) = {
                    let mut model = rig.model.borrow_mut();
                    (first..first + count)
                        .map(|u| {
                            let v = model.fresh();
                            (v, model.begins(u, v))
                        })
                        .unzip()
                };
                let result = site.write(first, &values, through).await;
                rig.note(|| {
                    format!("write {first}+{count} of {}.. through {through}: {result:?}", values[0])
                });
                judge(rig, site, strict, "write", first, count, &result);
                ended(rig, &tokens, strict && result.is_ok(), through);
            }
            7..=10 => read(rig, site, first, count).await,
            11 => {
                let whole = random.one_in(4);
                let (first, count) = if whole { (row, rig.shape.row_units()) } else { (first, count) };
                let used = if whole { USED } else { count };
                let tokens: Vec<Token> =
                    (first..first + used).map(|u| rig.model.borrow_mut().begins(u, 0)).collect();
                // Some seeds only, so that the others stay what they were.
                let pieces = match whole && (rig.seed / 3).is_multiple_of(2) {
                    true => (first..first + USED).step_by(8).map(|at| (at, 8)).collect(),
                    false => vec![(first, count)],
                };
                let mut result = Ok(());
                for (first, count) in pieces {
                    let piece = site.space.discard(&Ctx::default(), first * UNIT, count * UNIT);
                    result = result.and(piece.wait().await);
                }
                rig.note(|| format!("discard {first}+{count}: {result:?}"));
                judge(rig, site, strict, "discard", first, count, &result);
                ended(rig, &tokens, strict && result.is_ok(), false);
            }
            12 | 13 => flush(rig, site).await,
            _ => rig.env.sleep(Duration::from_millis(random.below(4))).await,
        }
    }
}

fn ended(rig: &Rig, tokens: &[Token], acknowledged: bool, through: bool) {
    let counts = acknowledged && !rig.exceeded.get();
    tokens.iter().for_each(|t| rig.model.borrow_mut().ended(t, counts, counts && through));
}

pub async fn flush(rig: &Rig, site: &Site) {
    let strict = rig.is_strict();
    let flushing = rig.model.borrow_mut().flush_begins();
    let result = site.space.flush(&Ctx::default()).wait().await;
    rig.note(|| format!("flush: {result:?}"));
    judge(rig, site, strict, "flush", 0, 0, &result);
    if result.is_ok() && strict && !rig.exceeded.get() {
        rig.model.borrow_mut().flushed(&flushing);
    }
}

pub async fn read(rig: &Rig, site: &Site, first: u64, count: u64) {
    let strict = rig.is_strict();
    let began = rig.model.borrow_mut().now();
    let result = site.read(first, count).await;
    judge(rig, site, strict, "read", first, count, &result.as_ref().map(|_| ()).map_err(|e| *e));
    for (unit, value) in (first..).zip(result.unwrap_or_default()) {
        let counts = strict && !rig.exceeded.get();
        let seen = rig.model.borrow_mut().read(unit, value, began, counts);
        if let Err(what) = seen {
            rig.fail(&what);
        }
    }
}

fn judge(
    rig: &Rig,
    site: &Site,
    strict: bool,
    what: &str,
    first: u64,
    count: u64,
    result: &Result<(), DiskError>,
) {
    match result {
        Ok(()) => {}
        Err(DiskError::Full { .. }) if rig.less_room.get() => {}
        Err(e) if rig.excuses(e) => {}
        Err(e) if strict && rig.is_strict() => {
            let why = site.pool.suspended().map_or(String::new(), |s| format!("; suspended: {s}"));
            let rows = site.pool.read(|s| format!("{:x?}", s.rows));
            rig.fail(&format!("{what} of {count} at unit {first}: {e}{why}; {rows}"))
        }
        Err(_) => {}
    }
}

/// Reads everything that is used.
pub async fn read_all(rig: &Rig, site: &Site) {
    for row in 0..rig.shape.rows {
        for at in (0..USED).step_by(8) {
            read(rig, site, row * rig.shape.row_units() + at, 8).await;
        }
    }
}
