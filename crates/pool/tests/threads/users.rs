//! Users of private units in shared groups and stripes; and owners of rows, which free them whole and in
//! pieces.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arena::{Class, IoBuf};
use disk::{Disk, sized};
use env::Ctx;
use futures_util::future::join_all;
use pool::UNIT;

use crate::site::{EACH, OWNERS, ROWS, Site, USERS};

const NAMES: [&str; USERS + OWNERS] = [
    "user 0", "user 1", "user 2", "user 3", "user 4", "user 5", "user 6", "user 7", "owner 8", "owner 9",
    "owner 10",
];

/// Units of each stretch of an owner.
const OWNED: u64 = 8;

/// What a user knows: what he wrote last, by unit.
#[derive(Default)]
pub struct Known {
    values: BTreeMap<u64, u64>,
    pub writes: u64,
}

impl Known {
    fn forget(&mut self, first: u64, count: u64) {
        self.values.retain(|u, _| !(first..first + count).contains(u));
    }
}

/// SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The units of a user: where each stretch begins, and how long it is. An owner has a row of his own.
fn units_of(site: &Site, n: usize) -> Vec<(u64, u64)> {
    match n.checked_sub(USERS) {
        None => {
            let mut units: Vec<_> = (0..ROWS).map(|row| (site.row(row) + n as u64 * EACH, EACH)).collect();
            // One unit of the last row, which is mostly unwritten: the discard of one of the users empties
            // it.
            units.push((site.row(ROWS + OWNERS as u64) + n as u64, 1));
            units
        }
        Some(owned) => {
            let row = ROWS + owned as u64;
            vec![(site.row(row), OWNED), (site.row(row + 1) - OWNED, OWNED)]
        }
    }
}

pub async fn user(site: Arc<Site>, n: usize, stop: Arc<AtomicBool>) -> Known {
    let (who, mut known, mut state) = (NAMES[n], Known::default(), n as u64);
    let mine = units_of(&site, n);
    while !stop.load(Ordering::Relaxed) {
        let (first, length) = mine[random(&mut state) as usize % mine.len()];
        let at = random(&mut state) % length;
        let count = 1 + random(&mut state) % (length - at);
        let first = first + at;
        match random(&mut state) % 16 {
            3..=8 if length == 1 => discard(&site, who, &mut known, first, count).await,
            12 if n >= USERS => {
                // All at once, in pieces that are neighbours.
                let pieces: Vec<(u64, u64)> =
                    mine.iter().flat_map(|(f, l)| [(*f, l / 2), (f + l / 2, l / 2)]).collect();
                let gone = pieces.iter().map(|(first, count)| discarded(&site, who, *first, *count));
                join_all(gone).await;
                pieces.iter().for_each(|(first, count)| known.forget(*first, *count));
            }
            0..=6 => {
                site.did(who, format!("writes {first}+{count}"));
                let value = ((n as u64) << 48) | (known.writes + 1);
                let bytes: Vec<IoBuf> = (0..count)
                    .map(|u| IoBuf::from((value + (u << 40)).to_le_bytes().repeat(UNIT as usize / 8)))
                    .collect();
                let written = site.space.write(&Ctx::default(), first * UNIT, bytes.into()).wait().await;
                written.unwrap_or_else(|e| panic!("{who} writes {first}+{count}: {e}; {}", site.rows()));
                known.values.extend((0..count).map(|u| (first + u, value + (u << 40))));
                known.writes += 1;
            }
            7..=12 => read(&site, who, &known, first, count).await,
            13 if n >= USERS => {
                let row = ROWS + (n - USERS) as u64;
                discard(&site, who, &mut known, site.row(row), site.row(row + 1) - site.row(row)).await;
            }
            13 => discard(&site, who, &mut known, first, count).await,
            _ => {
                site.did(who, "flushes".to_owned());
                let flushed = site.space.flush_for_user().await;
                flushed.unwrap_or_else(|e| panic!("{who} flushes: {e}; {}", site.rows()));
            }
        }
    }
    site.did(who, "done".to_owned());
    known
}

async fn discard(site: &Site, who: &'static str, known: &mut Known, first: u64, count: u64) {
    discarded(site, who, first, count).await;
    known.forget(first, count);
}

async fn discarded(site: &Site, who: &'static str, first: u64, count: u64) {
    site.did(who, format!("discards {first}+{count}"));
    let gone = site.space.discard(&Ctx::default(), first * UNIT, count * UNIT).wait().await;
    gone.unwrap_or_else(|e| panic!("{who} discards {first}+{count}: {e}; {}", site.rows()));
}

async fn read(site: &Site, who: &'static str, known: &Known, first: u64, count: u64) {
    site.did(who, format!("reads {first}+{count}"));
    let length = (count * UNIT) as usize;
    let dst = sized(site.arena.alloc_sg(length, Class::Payload).await, length);
    let (result, read) = site.space.read(&Ctx::default(), first * UNIT, dst).wait().await;
    result.unwrap_or_else(|e| panic!("{who} reads {first}+{count}: {e}; {}", site.rows()));
    let bytes: Vec<u8> = read.iter().flat_map(|b| b.iter().copied()).collect();
    for (unit, bytes) in (first..).zip(bytes.chunks_exact(UNIT as usize)) {
        let value = known.values.get(&unit).copied().unwrap_or(0);
        let good = bytes.chunks_exact(8).all(|c| c == value.to_le_bytes());
        assert!(good, "{who}: unit {unit} is not {value:x} but {:x?}...", &bytes[..8]);
    }
}

/// Compares all that a user knows.
pub async fn read_all(site: &Site, n: usize, known: &Known) {
    for (first, length) in units_of(site, n) {
        read(site, NAMES[n], known, first, length).await;
    }
}
