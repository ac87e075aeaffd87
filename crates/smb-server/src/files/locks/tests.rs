use proptest::prelude::*;

use super::*;

fn range(offset: u64, length: u64) -> LockRange {
    LockRange::new(offset, length).expect("lies inside 2^64")
}

#[test]
fn the_last_byte_is_2_64_minus_1() {
    assert!(LockRange::new(u64::MAX, 1).is_some());
    assert!(LockRange::new(u64::MAX, 0).is_some());
    assert!(LockRange::new(u64::MAX, 2).is_none());
    assert!(LockRange::new(2, u64::MAX).is_none());
    assert!(LockRange::new(1, u64::MAX).is_some());
}

#[test]
fn an_empty_range_conflicts_only_inside_another() {
    let mut t = LockTable::default();
    t.try_lock(1, range(10, 10), true).expect("nothing held");
    for (at, free) in [(9, true), (10, true), (11, false), (19, false), (20, true)] {
        assert_eq!(t.try_lock(2, range(at, 0), true).is_ok(), free, "empty lock at {at}");
    }
}

// The read lock stacks on the write lock of the same open; the other way round it does not.
#[test]
fn stacking() {
    let mut t = LockTable::default();
    t.try_lock(1, range(0, 4), true).expect("nothing held");
    t.try_lock(1, range(0, 4), false).expect("own exclusive lock");
    assert_eq!(t.try_lock(1, range(0, 4), true), Err(LockRefusal::Conflict));
    assert_eq!(t.try_lock(2, range(3, 1), false), Err(LockRefusal::Conflict));
    assert!(t.unlock(1, range(0, 4)), "the exclusive one goes first");
    t.try_lock(2, range(3, 1), false).expect("only a shared one is left");
    assert!(!t.unlock(2, range(0, 4)));
}

// Undoing a request removes the locks of that request, not an older lock of the same range.
#[test]
fn undoing() {
    let mut t = LockTable::default();
    t.try_lock(1, range(0, 4), true).expect("nothing held");
    t.try_lock(1, range(0, 4), false).expect("own exclusive lock");
    t.undo(1, range(0, 4), false);
    assert_eq!(
        t.try_lock(2, range(0, 1), false),
        Err(LockRefusal::Conflict),
        "the exclusive one is still held"
    );
}

#[test]
fn waiting_locks_are_granted_in_order() {
    let mut t = LockTable::default();
    t.try_lock(1, range(0, 10), true).expect("nothing held");
    let (_, mut a) = t.wait(2, range(0, 5), true);
    let (_, mut b) = t.wait(3, range(0, 5), true);
    let (_, mut c) = t.wait(4, range(5, 5), false);
    t.release(1);
    assert!(a.try_recv().is_ok() && c.try_recv().is_ok());
    assert!(b.try_recv().is_err());
    assert!(t.unlock(2, range(0, 5)));
    assert!(b.try_recv().is_ok());
}

#[test]
fn a_waiter_that_is_gone_holds_nothing() {
    let mut t = LockTable::default();
    t.try_lock(1, range(0, 1), true).expect("nothing held");
    drop(t.wait(2, range(0, 1), true));
    let (id, mut b) = t.wait(3, range(0, 1), true);
    t.release(1);
    assert!(b.try_recv().is_ok());
    assert!(!t.leave(id), "granted already");
    assert_eq!((t.held(), t.held_by(2), t.held_by(3)), (1, 0, 1));
}

#[derive(Clone, Debug)]
enum Op {
    Lock { owner: u64, at: u64, len: u64, exclusive: bool },
    Unlock { owner: u64, at: u64, len: u64 },
    Release { owner: u64 },
    Io { owner: u64, at: u64, len: u64, write: bool },
}

fn op() -> impl Strategy<Value = Op> {
    let (owner, at, len) = (0..3u64, 0..16u64, 1..8u64);
    prop_oneof![
        4 => (owner.clone(), at.clone(), len.clone(), any::<bool>())
            .prop_map(|(owner, at, len, exclusive)| Op::Lock { owner, at, len, exclusive }),
        3 => (owner.clone(), at.clone(), len.clone()).prop_map(|(owner, at, len)| Op::Unlock { owner, at, len }),
        1 => owner.clone().prop_map(|owner| Op::Release { owner }),
        3 => (owner, at, len, any::<bool>()).prop_map(|(owner, at, len, write)| Op::Io { owner, at, len, write }),
    ]
}

/// The naive model: for each of 24 bytes, the locks that cover it.
#[derive(Default)]
struct Model {
    locks: Vec<(u64, u64, u64, bool)>,
}

impl Model {
    fn over(&self, at: u64, len: u64) -> Vec<(u64, bool)> {
        let mut out = Vec::new();
        for byte in at..at + len {
            for &(owner, a, l, exclusive) in &self.locks {
                if (a..a + l).contains(&byte) {
                    out.push((owner, exclusive));
                }
            }
        }
        out
    }
}

proptest! {
    #[test]
    fn as_the_naive_model(ops in proptest::collection::vec(op(), 1..60)) {
        let (mut t, mut m) = (LockTable::default(), Model::default());
        for op in ops {
            match op {
                Op::Lock { owner, at, len, exclusive } => {
                    let free = m.over(at, len).iter().all(|&(o, x)| !exclusive && (!x || o == owner));
                    prop_assert_eq!(t.try_lock(owner, range(at, len), exclusive).is_ok(), free);
                    if free {
                        m.locks.push((owner, at, len, exclusive));
                    }
                }
                Op::Unlock { owner, at, len } => {
                    let is = |x: bool| move |l: &(u64, u64, u64, bool)| *l == (owner, at, len, x);
                    let i = m.locks.iter().position(is(true)).or_else(|| m.locks.iter().position(is(false)));
                    prop_assert_eq!(t.unlock(owner, range(at, len)), i.is_some());
                    i.map(|i| m.locks.remove(i));
                }
                Op::Release { owner } => {
                    t.release(owner);
                    m.locks.retain(|l| l.0 != owner);
                }
                Op::Io { owner, at, len, write } => {
                    let forbidden = m.over(at, len).iter().any(|&(o, x)| if x { o != owner } else { write });
                    prop_assert_eq!(t.forbids(owner, range(at, len), write), forbidden);
                }
            }
            prop_assert_eq!(t.held(), m.locks.len());
        }
    }
}
