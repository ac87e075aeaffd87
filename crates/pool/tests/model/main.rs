//! The promise of `docs/0001-pool.md`, attacked: pools on simulated disks, as their users see them, and a
//! model of what each unit may be.
//!
//! A seed decides everything: the shape, what several users do at the same time on the same units, power
//! cuts, disks that come and go, fail, lie, return old. A failure names its seed;
//! `POOL_SEED=n cargo test -p pool --test model one_seed` repeats it. `POOL_SEEDS=n` runs so many seeds
//! instead of a few, from `POOL_FIRST` on. Seeds from 2^47 on have local reconstruction codes, from 2^48 on
//! parity, from 2^49 on slow disks as well. Those from 2^50 on are the same with disks that lie, fail single
//! I/Os, are put back to older states and replaced as well, and `POOL_WILD` makes all seeds so. With
//! `POOL_ENCLOSURES` pools begin in one enclosure, and each disk that is added stands in another: voters go
//! apart.

mod admin;
mod chaos;
mod lies;
mod life;
mod load;
mod model;
mod regressions;
mod rig;
mod slow;

use life::run;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn wild() -> bool {
    static WILD: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *WILD.get_or_init(|| std::env::var_os("POOL_WILD").is_some())
}

/// Whether disks stand in enclosures.
fn enclosures() -> bool {
    static ENCLOSURES: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *ENCLOSURES.get_or_init(|| std::env::var_os("POOL_ENCLOSURES").is_some())
}

/// Runs one seed on a runtime of its own with virtual time.
fn in_virtual_time<T>(run: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(run)
}

#[test]
fn nothing_is_wrong_and_nothing_flushed_is_lost() {
    all(0, 300);
}

/// The same of spaces with one and two columns of parity.
#[test]
fn nothing_is_wrong_or_lost_with_parity() {
    all(rig::PARITY, 80);
}

/// The same of spaces with local reconstruction codes.
#[test]
fn nothing_is_wrong_or_lost_with_local_reconstruction() {
    all(rig::LOCAL, 24);
}

/// The same with disks that are slow for a while, take 11.7 s for everything, or do not answer any more:
/// nothing is refused because of them, either.
#[test]
fn nothing_is_wrong_lost_or_held_up_with_slow_disks() {
    all(rig::SLOW, 60);
    all(rig::SLOW_LOCAL, 8);
}

/// The same where disks lie as well.
#[test]
fn nothing_is_wrong_or_lost_where_disks_lie() {
    all(rig::WILD, 150);
    all(rig::WILD + rig::LOCAL, 10);
}

fn all(from: u64, usual: u64) {
    let first = from + number("POOL_FIRST").unwrap_or(0);
    let seeds = first..first + number("POOL_SEEDS").unwrap_or(usual);
    let mut failed = Vec::new();
    let many = seeds.end - seeds.start > usual;
    for seed in seeds {
        if std::panic::catch_unwind(|| in_virtual_time(run(seed, None))).is_err() {
            failed.push(seed);
        }
        assert!(many || failed.is_empty(), "seed {seed}");
    }
    assert!(failed.is_empty(), "seeds {failed:?}");
}

/// The power goes at every event of a short life.
#[test]
fn a_cut_at_every_event() {
    let seeds = 0..number("POOL_SEEDS").map_or(4, |n| n / 50);
    let local = (0..seeds.end.min(1)).map(|n| rig::LOCAL + n);
    for seed in seeds.clone().chain(seeds.map(|n| rig::PARITY + n)).chain(local) {
        for event in 0.. {
            if !in_virtual_time(run(seed, Some(event))).cut {
                break;
            }
        }
    }
}

#[test]
fn a_seed_replays_byte_for_byte() {
    let parity = (rig::PARITY..rig::PARITY + 3).chain(rig::LOCAL..rig::LOCAL + 2);
    for seed in (0..10).chain(parity).chain(rig::SLOW..rig::SLOW + 4) {
        let run = || in_virtual_time(run(seed, None)).images;
        assert!(run() == run(), "seed {seed}");
    }
}

/// The seed in `POOL_SEED`, by hand; `POOL_EVENT`: one life, cut off there.
#[test]
fn one_seed() {
    let seed = number("POOL_SEED").unwrap_or(0);
    in_virtual_time(run(seed, number("POOL_EVENT")));
}
