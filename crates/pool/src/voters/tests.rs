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
            (quorum_to_continue(n, f), needed_to_open(n, f)),
            (go_on, open),
            "{n} voters, {f} failures"
        );
    }
}

#[test]
fn disks_that_are_to_leave_vote_where_there_are_no_others() {
    let mut s = State::new(crate::PoolId([1; 16]), "p".into(), 8 << 20);
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
    let mut s = State::new(crate::PoolId([1; 16]), "p".into(), 8 << 20);
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

/// Checks the invariants for every pair of subsets of up to seven voters.
#[test]
fn no_two_histories() {
    for n in 1..=7_usize {
        for f in 0..=3 {
            let (go_on, open) = (quorum_to_continue(n, f), needed_to_open(n, f));
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
