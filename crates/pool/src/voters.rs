//! How many voters may continue, and how many may open: the arithmetic of `docs/0001-pool.md`, "Current
//! metadata: voters".
//!
//! Invariants, for `n` voters and every `f`:
//! 1. Two sets that may open have a voter in common ([`needed_to_open`] is more than half).
//! 2. If the voters of one set may open without those of another, the others cannot have committed without them.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::{DiskNumber, DiskRecord, Presence, State};

/// How many voters must remain to drop the others and continue: `W(n, f)`.
///
/// `failures` is the largest number of disks that a space of the pool promises to survive.
pub fn needed_to_go_on(voters: usize, failures: usize) -> usize {
    let majority = voters / 2 + 1;
    majority.min(voters.saturating_sub(failures.max(1))).max(1)
}

/// How many of the newest voters must be seen to open a pool.
pub fn needed_to_open(voters: usize, failures: usize) -> usize {
    let go_on = needed_to_go_on(voters, failures);
    go_on.max(voters + 1 - go_on)
}

/// How many voters a pool has if it has as many disks: two may be missing at any time.
pub const VOTERS: usize = 5;

/// The desired voters: the present ones, and present disks that `fits` until there are [`VOTERS`], from fault
/// domains without one first.
///
/// Disks that are on their way out come last, but they do vote: data that survives a loss is of no use if the
/// metadata does not.
pub fn choose(state: &State, fits: impl Fn(DiskNumber) -> bool) -> BTreeSet<DiskNumber> {
    let mut chosen = state.voters.clone();
    let mut candidates: Vec<(bool, DiskNumber)> = state
        .disks
        .iter()
        .filter(|(d, r)| !chosen.contains(d) && r.presence == Presence::Present && fits(**d))
        .map(|(d, r)| (r.usage.is_leaving(), *d))
        .collect();
    while chosen.len() < VOTERS && !candidates.is_empty() {
        let crowd = |d: DiskNumber| chosen.iter().map(|c| closeness(state, *c, d)).max().unwrap_or(0);
        let rank = |i: &usize| (candidates[*i].0, crowd(candidates[*i].1), *i);
        let at = (0..candidates.len()).min_by_key(rank).unwrap_or(0);
        chosen.insert(candidates.remove(at).1);
    }
    chosen
}

/// A voter that stands too close to others, and a disk that would do better in its place; `None`: they are as
/// far apart as they can be.
///
/// Pools grow by enclosures: those that vote when there is one would all be in it for ever. Each such change
/// brings the voters further apart, so that they have an end. A voter on its way out keeps its vote, and none
/// on its way out gets one so.
pub fn apart(state: &State, fits: impl Fn(DiskNumber) -> bool) -> Option<(DiskNumber, DiskNumber)> {
    let crowd = |d: DiskNumber, without: DiskNumber| {
        let others = state.voters.iter().filter(|v| **v != without && **v != d);
        others.map(|v| u32::from(closeness(state, *v, d)).pow(2)).sum::<u32>()
    };
    let may = |d: &DiskNumber, r: &DiskRecord| {
        !state.voters.contains(d) && r.presence == Presence::Present && !r.usage.is_leaving() && fits(*d)
    };
    let candidates: Vec<_> = state.disks.iter().filter(|(d, r)| may(d, r)).map(|(d, _)| *d).collect();
    let pairs = state.voters.iter().flat_map(|out| candidates.iter().map(move |new| (*out, *new)));
    let gain = |(out, new): (DiskNumber, DiskNumber)| {
        crowd(out, out).checked_sub(crowd(new, out)).filter(|g| *g > 0).map(|g| (g, Reverse((new, out))))
    };
    pairs.filter_map(gain).max().map(|(_, Reverse((new, out)))| (out, new))
}

/// How much of their surroundings two disks share: 0 nothing known, 1 the rack, 2 the node, 3 the enclosure.
fn closeness(state: &State, a: DiskNumber, b: DiskNumber) -> u8 {
    let (Some(a), Some(b)) = (state.disks.get(&a), state.disks.get(&b)) else { return 0 };
    let same = |x: &str, y: &str| !x.is_empty() && x == y;
    if same(&a.domains.enclosure, &b.domains.enclosure) {
        3
    } else if same(&a.domains.node, &b.domains.node) {
        2
    } else {
        u8::from(same(&a.domains.rack, &b.domains.rack))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Usage;

    #[test]
    fn the_cases_that_people_have() {
        // voters, failures, to continue, to open
        let cases = [
            (1, 1, 1, 1),
            (2, 1, 1, 2),
            (3, 1, 2, 2),
            (3, 2, 1, 3),
            (4, 1, 3, 3),
            (4, 2, 2, 3),
            (5, 1, 3, 3),
            (5, 2, 3, 3),
        ];
        for (n, f, go_on, open) in cases {
            assert_eq!(
                (needed_to_go_on(n, f), needed_to_open(n, f)),
                (go_on, open),
                "{n} voters, {f} failures"
            );
        }
    }

    #[test]
    fn disks_that_are_to_leave_vote_where_there_are_no_others() {
        let mut s = State::new(crate::PoolId([1; 16]), "p".into(), 2 << 20);
        for n in 0..7_u16 {
            let record = crate::DiskRecord {
                id: crate::DiskId([n as u8; 16]),
                name: format!("disk{n}"),
                slabs: 8,
                usage: if n < 3 { Usage::Retired } else { Usage::AutoSelect },
                presence: Presence::Present,
                domains: crate::FaultDomains::default(),
                media: 0,
                label_sequence: 1,
                membership: crate::Membership(1),
                areas: crate::format::Areas::plan(16 << 20, 2 << 20).expect("room"),
            };
            s.apply(&crate::Op::AddDisk { disk: DiskNumber(n), record }).unwrap();
        }
        let among = |few: u16| choose(&s, |d| d.0 < few).iter().map(|d| d.0).collect::<Vec<_>>();
        assert_eq!(among(2), [0, 1]);
        assert_eq!(among(5), [0, 1, 2, 3, 4]);
        assert_eq!(among(7), [0, 3, 4, 5, 6]);
    }

    #[test]
    fn a_pool_that_grows_by_enclosures_has_voters_in_each() {
        let mut s = State::new(crate::PoolId([1; 16]), "p".into(), 2 << 20);
        let all = |_: DiskNumber| true;
        let mut most = Vec::new();
        for enclosure in 0..6_u16 {
            for n in 0..6 {
                let record = crate::DiskRecord {
                    id: crate::DiskId([(enclosure * 6 + n) as u8; 16]),
                    name: format!("disk{n}"),
                    slabs: 8,
                    usage: if enclosure == 3 { Usage::Retired } else { Usage::AutoSelect },
                    presence: Presence::Present,
                    domains: crate::FaultDomains { enclosure: format!("e{enclosure}"), ..Default::default() },
                    media: 0,
                    label_sequence: 1,
                    membership: crate::Membership(1),
                    areas: crate::format::Areas::plan(16 << 20, 2 << 20).expect("room"),
                };
                s.apply(&crate::Op::AddDisk { disk: DiskNumber(enclosure * 6 + n), record }).unwrap();
                s.voters = choose(&s, all);
                let mut steps = 0;
                while let Some((out, new)) = apart(&s, all) {
                    assert!(s.voters.remove(&out) && s.voters.insert(new));
                    steps += 1;
                    assert!(steps < 10, "it ends");
                }
            }
            let of = |e: u16| s.voters.iter().filter(|v| v.0 / 6 == e).count();
            most.push((0..6).map(of).max().unwrap());
        }
        // Disks that are to be removed need not stay.
        assert_eq!(most, [5, 3, 2, 2, 2, 1]);
        assert_eq!(apart(&s, |_| false), None);
    }

    /// Every pair of subsets of up to seven voters, against the invariants.
    #[test]
    fn no_two_histories() {
        for n in 1..=7_usize {
            for f in 0..=3 {
                let (go_on, open) = (needed_to_go_on(n, f), needed_to_open(n, f));
                assert!(go_on >= 1 && open <= n);
                for seen in 0_u32..1 << n {
                    if (seen.count_ones() as usize) < open {
                        continue;
                    }
                    assert!(seen.count_ones() as usize >= go_on, "who opens can go on");
                    for other in 0_u32..1 << n {
                        let apart = seen & other == 0;
                        assert!(
                            !(apart && other.count_ones() as usize >= open),
                            "two openers without a voter in common"
                        );
                        assert!(!(apart && other.count_ones() as usize >= go_on), "the unseen went on alone");
                    }
                }
            }
        }
    }
}
