//! lsarpc and samr: handles, access and bounds. The format of the answers is tested with other implementations'
//! clients.

use smb_wire::rpc::ContextHandle;
use smb_wire::rpc::ndr::NdrReader;
use smb_wire::rpc::{lsarpc, samr};
use smb_wire::security::Sid;

use super::*;
use crate::pipes::handles::HANDLES_MAX;

const MAXIMUM_ALLOWED: u32 = 0x0200_0000;

fn lsa(w: &World) -> Pipe {
    bound_to(&w.server, "lsarpc", SyntaxId::LSARPC, &user(1000))
}

fn sam(w: &World) -> Pipe {
    bound_to(&w.server, "samr", SyntaxId::SAMR, &user(1000))
}

fn open_policy(pipe: &Pipe, access: u32) -> Result<ContextHandle, NtStatus> {
    let request = stub(|w| {
        w.pointer(false);
        (0..6).for_each(|_| w.u32(0)); // object attributes
        w.u32(access);
    });
    opened(&call(pipe, lsarpc::OP_OPEN_POLICY_2, &request).expect("executed"))
}

fn opened(answer: &[u8]) -> Result<ContextHandle, NtStatus> {
    let handle = NdrReader::new(answer).handle().expect("a handle");
    if status(answer) == 0 { Ok(handle) } else { Err(NtStatus(status(answer))) }
}

fn lookup_sids(pipe: &Pipe, policy: ContextHandle, sids: &[Sid]) -> Result<Vec<u8>, FaultStatus> {
    let request = stub(|w| {
        w.handle(policy);
        w.sid_array(sids).expect("few");
        w.u32(0);
        w.pointer(false);
        w.u16(lsarpc::LOOKUP_WORKSTATION);
        w.u32(0);
    });
    call(pipe, lsarpc::OP_LOOKUP_SIDS, &request)
}

#[tokio::test(start_paused = true)]
async fn handles_are_checked_and_bounded() {
    let w = World::new();
    let pipe = lsa(&w);
    let policy = open_policy(&pipe, MAXIMUM_ALLOWED).expect("opened");
    let answer = lookup_sids(&pipe, policy, &[Sid::EVERYONE]).expect("executed");
    assert_eq!(status(&answer), 0);
    // C706 5.1.6: handles of another pipe, closed ones and unknown ones are a fault.
    let mismatch = Err(FaultStatus::CONTEXT_MISMATCH);
    assert_eq!(lookup_sids(&lsa(&w), policy, &[]), mismatch);
    assert_eq!(lookup_sids(&pipe, ContextHandle::NULL, &[]), mismatch);
    let mut other = policy;
    other.uuid.0[15] = 1;
    assert_eq!(lookup_sids(&pipe, other, &[]), mismatch);
    let close = stub(|w| w.handle(policy));
    let closed = call(&pipe, lsarpc::OP_CLOSE, &close).expect("closed");
    assert_eq!(closed, [0; 24], "no handle, success");
    assert_eq!(call(&pipe, lsarpc::OP_CLOSE, &close), mismatch);
    for _ in 0..HANDLES_MAX {
        open_policy(&pipe, MAXIMUM_ALLOWED).expect("opened");
    }
    assert_eq!(open_policy(&pipe, MAXIMUM_ALLOWED), Err(NtStatus::INSUFFICIENT_RESOURCES));
}

// MS-LSAD 3.1.4.2.2: rights to change are refused to users; a call is refused if its handle was opened without the
// right for it.
#[tokio::test(start_paused = true)]
async fn access_is_checked() {
    let w = World::new();
    let pipe = lsa(&w);
    assert_eq!(open_policy(&pipe, 0x000F_0FFF), Err(NtStatus::ACCESS_DENIED));
    let view = open_policy(&pipe, 1).expect("opened");
    let answer = lookup_sids(&pipe, view, &[Sid::EVERYONE]).expect("executed");
    assert_eq!(status(&answer), NtStatus::ACCESS_DENIED.0);
    let mut administrator = user(1000);
    administrator.groups.push(Sid::BUILTIN_ADMINISTRATORS);
    let theirs = bound_to(&w.server, "lsass", SyntaxId::LSARPC, &administrator);
    assert!(open_policy(&theirs, 0x000F_0FFF).is_ok());
}

// MS-LSAT 3.1.4.9, 3.1.4.11: all, some or none are found; a long answer is sent in fragments.
#[tokio::test(start_paused = true)]
async fn many_sids() {
    let w = World::new();
    let pipe = lsa(&w);
    let policy = open_policy(&pipe, MAXIMUM_ALLOWED).expect("opened");
    let unknown = Sid::new(5, &[21, 9, 9, 9, 9]).expect("short");
    for (sids, expected) in [
        (vec![Sid::EVERYONE, Sid::BUILTIN_USERS], NtStatus::SUCCESS),
        (vec![Sid::EVERYONE, unknown], NtStatus::SOME_NOT_MAPPED),
        (vec![unknown; 100], NtStatus::NONE_MAPPED),
        (vec![], NtStatus::SUCCESS),
    ] {
        let answer = lookup_sids(&pipe, policy, &sids).expect("executed");
        assert_eq!(status(&answer), expected.0);
    }
    let answer = lookup_sids(&pipe, policy, &[unknown; 150]).expect("executed");
    assert!(answer.len() > 2 * 4280, "more than two fragments");
}

fn open_domain(pipe: &Pipe, sid: Sid) -> Result<ContextHandle, NtStatus> {
    let connect = stub(|w| {
        w.pointer(false);
        w.u32(MAXIMUM_ALLOWED);
    });
    let server = opened(&call(pipe, samr::OP_CONNECT_2, &connect).expect("executed")).expect("connected");
    let open = stub(|w| {
        w.handle(server);
        w.u32(MAXIMUM_ALLOWED);
        w.sid(&sid);
    });
    opened(&call(pipe, samr::OP_OPEN_DOMAIN, &open).expect("executed"))
}

// MS-SAMR 3.1.5.2.5: the next page of an enumeration begins after the last account returned; a domain's handle is not
// accepted as a user's.
#[tokio::test(start_paused = true)]
async fn accounts() {
    let w = World::new();
    let pipe = sam(&w);
    let machine = Sid::new(5, &[21, 1, 2, 3]).expect("short");
    assert_eq!(open_domain(&pipe, Sid::EVERYONE), Err(NtStatus::NO_SUCH_DOMAIN));
    let builtin = open_domain(&pipe, Sid::new(5, &[32]).expect("short")).expect("opened");
    let (mut resume, mut found) = (0, 0);
    loop {
        let request = stub(|w| {
            w.handle(builtin);
            w.u32(resume);
            w.u32(100);
        });
        let answer = call(&pipe, samr::OP_ENUMERATE_ALIASES, &request).expect("executed");
        let mut r = NdrReader::new(&answer);
        resume = r.u32().expect("a context");
        assert!(r.pointer().expect("a buffer"));
        found += r.u32().expect("a count");
        match NtStatus(status(&answer)) {
            NtStatus::MORE_ENTRIES => {}
            last => break assert_eq!(last, NtStatus::SUCCESS),
        }
    }
    assert_eq!((resume, found), (580, 17));
    let domain = open_domain(&pipe, machine).expect("opened");
    let user = |domain: ContextHandle, id: u32| {
        let request = stub(|w| {
            w.handle(domain);
            w.u32(MAXIMUM_ALLOWED);
            w.u32(id);
        });
        opened(&call(&pipe, samr::OP_OPEN_USER, &request).expect("executed"))
    };
    let alice = user(domain, 1000).expect("opened");
    assert_eq!(user(domain, 1001), Err(NtStatus::NO_SUCH_USER));
    assert_eq!(user(builtin, 544), Err(NtStatus::NO_SUCH_USER));
    assert_eq!(user(alice, 1000), Err(NtStatus::INVALID_HANDLE));
    for (class, expected) in [(21, NtStatus::SUCCESS), (18, NtStatus::INVALID_INFO_CLASS)] {
        let request = stub(|w| {
            w.handle(alice);
            w.u16(class);
        });
        let answer = call(&pipe, samr::OP_QUERY_INFORMATION_USER, &request).expect("executed");
        assert_eq!(status(&answer), expected.0, "{class}");
    }
}

// A stub that is truncated or has a changed byte gets a fault or an answer, and nothing worse.
#[tokio::test(start_paused = true)]
async fn hostile_stubs() {
    let w = World::new();
    let (lsa, sam) = (lsa(&w), sam(&w));
    let policy = open_policy(&lsa, MAXIMUM_ALLOWED).expect("opened");
    let domain = open_domain(&sam, Sid::new(5, &[21, 1, 2, 3]).expect("short")).expect("opened");
    let whole = stub(|w| {
        w.handle(policy);
        w.sid_array(&[Sid::EVERYONE, Sid::BUILTIN_USERS]).expect("few");
        (0..8).for_each(|_| w.u32(1));
    });
    for opnum in 0..90 {
        for len in 0..whole.len() {
            let mut stub = whole[..len].to_vec();
            let _ = call(&lsa, opnum, &stub);
            stub.splice(..20.min(len), stub_handle(domain)[..20.min(len)].iter().copied());
            let _ = call(&sam, opnum, &stub);
            if let Some(last) = stub.last_mut() {
                *last = 0xFF;
                let _ = call(&sam, opnum, &stub);
            }
        }
    }
    assert!(open_policy(&lsa, MAXIMUM_ALLOWED).is_ok());
}

fn stub_handle(handle: ContextHandle) -> Vec<u8> {
    stub(|w| w.handle(handle))
}
