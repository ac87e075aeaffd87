use proptest::prelude::*;

use super::*;

const A: HolderId = HolderId::Lease(LeaseId { client: Guid([1; 16]), key: Guid([1; 16]) });
const B: HolderId = HolderId::Lease(LeaseId { client: Guid([2; 16]), key: Guid([2; 16]) });
const ALONE: GrantConditions = GrantConditions { others: false, locked: false, directory: false };
const SHARED: GrantConditions = GrantConditions { others: true, ..ALONE };
const NOW: Moment = Moment::START;

fn lease(id: HolderId, state: LeaseState) -> CachingRequest {
    let HolderId::Lease(id) = id else { unreachable!("a lease") };
    CachingRequest::Lease(LeaseRequest { id, state, version: LeaseVersion::V2 { parent: None, epoch: 0 } })
}

fn granted(c: &mut Caching, open: u64, caching_request: CachingRequest, s: GrantConditions) -> LeaseState {
    c.grant(open, caching_request, s, open, None).map_or(NONE, |(_, held)| held.state)
}

fn notices(c: &Contention) -> Vec<(HolderId, LeaseState, LeaseState, bool)> {
    c.notices.iter().map(|n| (n.holder, n.from, n.to, n.acknowledge)).collect()
}

// MS-SMB2 3.3.1.4: the states that exist.
#[test]
fn what_an_open_alone_is_granted() {
    for (asked, given) in
        [(R, R), (R | W, R | W), (R | H, R | H), (R | W | H, R | W | H), (W, NONE), (H, NONE), (W | H, NONE)]
    {
        assert_eq!(granted(&mut Caching::default(), 1, lease(A, asked), ALONE), given, "{asked:?}");
    }
    let directory = GrantConditions { directory: true, ..ALONE };
    assert_eq!(granted(&mut Caching::default(), 1, lease(A, R | W | H), directory), R | H);
    assert_eq!(
        granted(&mut Caching::default(), 1, CachingRequest::Oplock(OplockLevel::BATCH), directory),
        NONE
    );
    let locked = GrantConditions { locked: true, ..ALONE };
    assert_eq!(granted(&mut Caching::default(), 1, lease(A, R | W | H), locked), NONE);
}

// MS-FSA 2.1.4.12: a second open breaks W and waits for the acknowledgement; then both have read caching.
#[test]
fn a_second_open_takes_w() {
    let mut c = Caching::default();
    assert_eq!(granted(&mut c, 1, lease(A, R | W | H), ALONE), R | W | H);
    let first = c.contend(Some(B), Operation::Open { overwrites: false }, NOW);
    assert_eq!(notices(&first), [(A, R | W | H, R | H, true)]);
    assert_eq!(first.wait_until, Some(NOW.after(ACKNOWLEDGE)));
    let again = c.contend(Some(B), Operation::Open { overwrites: false }, NOW);
    assert_eq!((notices(&again).len(), again.wait_until.is_some()), (0, true), "one notice");
    assert_eq!(c.contend(Some(A), Operation::Open { overwrites: false }, NOW).wait_until, None, "its own");
    assert_eq!(c.acknowledge(A, R | W, NOW), Err(AcknowledgeError::TooMuch));
    assert_eq!(c.acknowledge(A, R | H, NOW), Ok(None));
    assert_eq!(c.acknowledge(A, R, NOW), Err(AcknowledgeError::NotBreaking));
    assert_eq!(c.contend(Some(B), Operation::Open { overwrites: false }, NOW), Contention::default());
    assert_eq!(granted(&mut c, 2, lease(B, R | W | H), SHARED), R | H);
}

// As Windows does: handle and write caching are broken first, read caching last; an open that waited for the first step
// waits for all.
#[test]
fn an_overwriting_open_during_a_break_breaks_in_steps() {
    let mut c = Caching::default();
    granted(&mut c, 1, lease(A, R | W | H), ALONE);
    c.contend(Some(B), Operation::Open { overwrites: false }, NOW);
    let overwriting = c.contend(Some(B), Operation::Open { overwrites: true }, NOW);
    assert_eq!((notices(&overwriting).len(), overwriting.wait_until.is_some()), (0, true));
    let next = c.acknowledge(A, R | H, NOW).expect("breaking").expect("more is wanted");
    assert_eq!((next.from, next.to, next.acknowledge), (R | H, R, true));
    assert!(c.contend(Some(B), Operation::Open { overwrites: false }, NOW).wait_until.is_some());
    let last = c.acknowledge(A, R, NOW).expect("breaking").expect("more is wanted");
    assert_eq!((last.from, last.to, last.acknowledge), (R, NONE, false));
    assert_eq!(c.contend(Some(B), Operation::Open { overwrites: true }, NOW), Contention::default());
}

#[test]
fn a_client_that_does_not_answer_loses_all() {
    let mut c = Caching::default();
    granted(&mut c, 1, CachingRequest::Oplock(OplockLevel::BATCH), ALONE);
    let until = c.contend(None, Operation::Open { overwrites: false }, NOW).wait_until.expect("waits");
    assert_eq!(c.contend(None, Operation::Open { overwrites: false }, until), Contention::default());
    assert_eq!(c.summary(), 0);
}

// MS-FSA 2.1.4.12, WRITE: breaks LEVEL_II of all opens, the writer's own too, and the leases of others.
#[test]
fn a_change_of_data() {
    let mut c = Caching::default();
    for open in [1, 2] {
        assert_eq!(granted(&mut c, open, CachingRequest::Oplock(OplockLevel::LEVEL_II), SHARED), R);
    }
    assert_eq!(granted(&mut c, 3, lease(A, R | H), SHARED), R, "no H beside oplocks");
    assert_eq!(c.summary(), u64::MAX);
    let change = c.contend(Some(A), Operation::Data, NOW);
    assert_eq!(change.notices.len(), 2, "{change:?}");
    assert_eq!((c.summary(), change.wait_until), (3, None));
    let mut c = Caching::default();
    granted(&mut c, 1, CachingRequest::Oplock(OplockLevel::LEVEL_II), ALONE);
    assert_eq!(c.summary(), u64::MAX, "its own writes break it");
    assert_eq!(c.contend(Some(HolderId::Oplock(1)), Operation::Data, NOW).notices.len(), 1);
}

#[test]
fn a_lease_is_shared_promoted_and_left() {
    let mut c = Caching::default();
    assert_eq!(granted(&mut c, 1, lease(A, R), ALONE), R);
    assert_eq!(granted(&mut c, 2, lease(A, R | W), ALONE), R | W, "a superset");
    assert_eq!(granted(&mut c, 3, lease(A, R | H), ALONE), R | W, "no superset");
    assert!(!c.leave(A) && !c.leave(A) && c.leave(A), "the last one");
    assert_eq!(c.held(A), None);
}

#[derive(Clone, Debug)]
enum Step {
    Open(usize, CachingRequest, bool),
    Leave(usize),
    Data(usize),
    Names(usize),
    Acknowledge(usize, LeaseState),
    Wait,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let states = prop::sample::select(vec![NONE, R, R | W, R | H, R | W | H]);
    let wishes = prop_oneof![
        Just(CachingRequest::Nothing),
        prop::sample::select(vec![OplockLevel::LEVEL_II, OplockLevel::EXCLUSIVE, OplockLevel::BATCH])
            .prop_map(CachingRequest::Oplock),
        (prop::sample::select(vec![A, B]), states.clone()).prop_map(|(id, s)| lease(id, s)),
    ];
    let step = prop_oneof![
        (0usize..6, wishes, any::<bool>()).prop_map(|(n, w, o)| Step::Open(n, w, o)),
        (0usize..6).prop_map(Step::Leave),
        (0usize..6).prop_map(Step::Data),
        (0usize..6).prop_map(Step::Names),
        (0usize..6, states).prop_map(|(n, s)| Step::Acknowledge(n, s)),
        Just(Step::Wait),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    /// Whatever happens in whatever order, the invariants of the module hold.
    #[test]
    fn the_invariants(steps in steps()) {
        let mut c = Caching::default();
        let mut now = NOW;
        let mut opens: [Option<Option<HolderId>>; 6] = [None; 6];
        for step in steps {
            match step {
                Step::Open(n, caching_request, overwrites) if opens[n].is_none() => {
                    let by = if let CachingRequest::Lease(l) = caching_request { Some(HolderId::Lease(l.id)) } else { None };
                    if c.contend(by, Operation::Open { overwrites }, now).wait_until.is_some() {
                        continue;
                    }
                    let others = opens.iter().flatten().any(|o| by.is_none() || *o != by);
                    let s = GrantConditions { others, ..ALONE };
                    let id = c.grant(n as u64, caching_request, s, n as u64 + 1, None).map(|(id, _)| id);
                    opens[n] = Some(id);
                }
                Step::Leave(n) => {
                    if let Some(Some(id)) = opens[n].take() {
                        c.leave(id);
                    }
                }
                Step::Data(n) => drop(c.contend(opens[n].flatten(), Operation::Data, now)),
                Step::Names(n) => drop(c.contend(opens[n].flatten(), Operation::Names, now)),
                Step::Acknowledge(n, kept) => {
                    if let Some(Some(id)) = opens[n] {
                        let _ = c.acknowledge(id, kept, now);
                    }
                }
                Step::Open(..) => {}
                Step::Wait => now = now.after(Duration::from_secs(20)),
            }
            let writers = c.holders.iter().filter(|h| h.state.contains(W)).count();
            prop_assert!(writers <= 1, "{c:?}");
            prop_assert!(writers == 0 || c.holders.iter().filter(|h| !h.state.is_empty()).count() == 1, "{c:?}");
            for h in &c.holders {
                prop_assert!(h.state.is_empty() || h.state.contains(R), "{h:?}");
                prop_assert!(h.opens > 0);
                if let Some(b) = h.breaking {
                    prop_assert!(h.state.contains(b.to) && h.state != b.to && b.to.contains(b.must), "{h:?}");
                }
            }
        }
    }
}

// The acknowledgement timer of a missed break starts when the notice is sent again.
#[test]
fn a_missed_break_is_sent_again() {
    let mut c = Caching::default();
    let caching_request = lease(A, R | W | H);
    c.grant(1, caching_request, ALONE, 1, Some(ACKNOWLEDGE_PERSISTENT_LEASE)).expect("granted");
    assert_eq!(c.resend_notice(A, NOW), None, "nothing was missed");
    let first = c.contend(None, Operation::Open { overwrites: false }, NOW);
    assert_eq!(first.wait_until, Some(NOW.after(ACKNOWLEDGE_PERSISTENT_LEASE)));
    let back = NOW.after(ACKNOWLEDGE_PERSISTENT_LEASE / 2);
    let notice = c.resend_notice(A, back).expect("it is breaking");
    assert_eq!((notice.from, notice.to, notice.acknowledge), (R | W | H, R | H, true));
    assert_eq!(notice.epoch, first.notices[0].epoch, "it is the same break");
    let late = NOW.after(ACKNOWLEDGE_PERSISTENT_LEASE + Duration::from_secs(1));
    let second = c.contend(None, Operation::Open { overwrites: false }, late);
    assert_eq!(second.wait_until, Some(back.after(ACKNOWLEDGE_PERSISTENT_LEASE)));
    assert_eq!(c.acknowledge(A, R | H, late), Ok(None));
}

// Two holders are recorded with write caching, of which one had lost it before the crash: invariant 1 holds after a
// restart.
#[test]
fn of_two_writers_from_before_a_restart_neither_caches() {
    let mut c = Caching::default();
    let restored = |id, state| RestoredHolder {
        id,
        token: 1,
        state,
        version: LeaseVersion::V2 { parent: None, epoch: 3 },
    };
    assert_eq!(c.restore(restored(A, R | W | H)).state, R | W | H);
    assert_eq!(c.restore(restored(B, R | W | H)).state, NONE);
    assert_eq!(c.restore(restored(A, R | W | H)).state, NONE, "another open of the lease");
    assert_eq!(c.held(A).map(|h| h.state), Some(NONE));
    let mut c = Caching::default();
    c.restore(restored(A, R | H));
    assert_eq!(c.restore(restored(B, R | H)).state, R | H, "readers stay");
    assert_eq!(c.held(A).map(|h| h.state), Some(R | H));
}
