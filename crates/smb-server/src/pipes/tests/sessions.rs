//! srvsvc: information for administrators only, and names.

use smb_wire::rpc::ndr::NdrReader;
use smb_wire::rpc::srvsvc::{self, NameType};
use smb_wire::security::Sid;

use super::*;

fn administrator() -> User {
    let mut user = user(1000);
    user.groups.push(Sid::BUILTIN_ADMINISTRATORS);
    user
}

/// An enumeration's request; `qualifiers` are the strings before its structure.
fn enumeration(qualifiers: &[Option<&str>], level: u32, preferred: u32, resume: u32) -> Vec<u8> {
    stub(|w| {
        w.pointer(false);
        qualifiers.iter().for_each(|q| w.unique_string(*q).expect("short"));
        w.u32(level);
        w.u32(level);
        w.pointer(true);
        w.u32(0);
        w.pointer(false);
        w.u32(preferred);
        w.pointer(true);
        w.u32(resume);
    })
}

/// Status, entries returned, total entries, resume handle.
fn outcome(answer: &[u8]) -> (Win32, u32, u32, u32) {
    let mut r = NdrReader::new(answer);
    let (_, _, container) = (r.u32(), r.u32(), r.pointer().expect("a container or none"));
    let given = if container { r.u32().expect("a count") } else { 0 };
    let tail: Vec<u32> = answer[answer.len() - 16..]
        .chunks_exact(4)
        .map(|c| u32::from_le_bytes(c.try_into().expect("4")))
        .collect();
    (Win32(tail[3]), given, tail[0], tail[2])
}

// MS-SRVS 3.1.4.1, 3.1.4.2, 3.1.4.5: for administrators only.
/// Operation, names, level; the status and the number of entries.
type Case<'a> = (u16, &'a [Option<&'a str>], u32, Win32, u32);

#[tokio::test(start_paused = true)]
async fn administrators_see_sessions() {
    let w = World::new();
    (1..=3).for_each(|id| w.join(id));
    let one = bound_to(&w.server, "srvsvc", SyntaxId::SRVSVC, &user(1000));
    let all = bound_to(&w.server, "srvsvc", SyntaxId::SRVSVC, &administrator());
    let two = [None, None];
    let cases: [Case<'_>; 15] = [
        (srvsvc::OP_SESSION_ENUM, &two, 0, Win32::SUCCESS, 3),
        (srvsvc::OP_SESSION_ENUM, &two, 1, Win32::SUCCESS, 3),
        (srvsvc::OP_SESSION_ENUM, &two, 2, Win32::SUCCESS, 3),
        (srvsvc::OP_SESSION_ENUM, &two, 10, Win32::SUCCESS, 3),
        (srvsvc::OP_SESSION_ENUM, &two, 502, Win32::SUCCESS, 3),
        (srvsvc::OP_SESSION_ENUM, &two, 3, Win32::INVALID_LEVEL, 0),
        (srvsvc::OP_SESSION_ENUM, &[None, Some("USER1000")], 10, Win32::SUCCESS, 3),
        (srvsvc::OP_SESSION_ENUM, &[None, Some("nobody")], 10, Win32::NERR_USER_NOT_FOUND, 0),
        (srvsvc::OP_SESSION_ENUM, &[Some("pc"), None], 10, Win32::NERR_INVALID_COMPUTER, 0),
        (srvsvc::OP_SESSION_ENUM, &[Some("\\\\pc"), None], 10, Win32::NERR_CLIENT_NAME_NOT_FOUND, 0),
        (srvsvc::OP_FILE_ENUM, &two, 3, Win32::SUCCESS, 0),
        (srvsvc::OP_FILE_ENUM, &two, 1, Win32::INVALID_LEVEL, 0),
        (srvsvc::OP_CONNECTION_ENUM, &[Some("FILES")], 1, Win32::SUCCESS, 3),
        (srvsvc::OP_CONNECTION_ENUM, &[Some("other")], 1, Win32::SUCCESS, 0),
        (srvsvc::OP_CONNECTION_ENUM, &[None], 1, Win32::INVALID_PARAMETER, 0),
    ];
    for (opnum, qualifiers, level, expected, count) in cases {
        let request = enumeration(qualifiers, level, u32::MAX, 0);
        let (status, given, total, _) = outcome(&call(&all, opnum, &request).expect("executed"));
        assert_eq!((status, given, total), (expected, count, count), "{opnum} {qualifiers:?} {level}");
        let denied = outcome(&call(&one, opnum, &request).expect("executed"));
        assert_eq!((denied.0, denied.1), (Win32::ACCESS_DENIED, 0));
    }
    // Entries that do not fit are returned from the resume handle on.
    let (mut resume, mut seen) = (0, 0);
    loop {
        let request = enumeration(&two, 10, 200, resume);
        let answer = call(&all, srvsvc::OP_SESSION_ENUM, &request).expect("executed");
        let (status, given, total, next) = outcome(&answer);
        assert_eq!(total, 3 - seen);
        seen += given;
        if status == Win32::SUCCESS {
            break;
        }
        assert_eq!((status, next), (Win32::MORE_DATA, seen));
        resume = next;
    }
    assert_eq!(seen, 3);
    let tiny = call(&all, srvsvc::OP_SESSION_ENUM, &enumeration(&two, 10, 10, 0)).expect("executed");
    assert_eq!(outcome(&tiny).0, Win32::NERR_BUF_TOO_SMALL);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_changed() {
    let w = World::new();
    let all = bound_to(&w.server, "srvsvc", SyntaxId::SRVSVC, &administrator());
    for opnum in [
        srvsvc::OP_FILE_CLOSE,
        srvsvc::OP_SESSION_DEL,
        srvsvc::OP_SHARE_ADD,
        srvsvc::OP_SHARE_SET_INFO,
        srvsvc::OP_SHARE_DEL,
        srvsvc::OP_SERVER_SET_INFO,
    ] {
        let answer = call(&all, opnum, &[]).expect("executed");
        assert_eq!(status(&answer), Win32::ACCESS_DENIED.0);
    }
}

// MS-SRVS 2.2.2.8, 3.1.4.32, 3.1.4.33.
#[test]
fn names_of_resources() {
    for (name_type, name, valid) in [
        (NameType::SHARE, "files", Ok(())),
        (NameType::SHARE, "a/b", Err(Win32::INVALID_NAME)),
        (NameType::SHARE, "", Err(Win32::INVALID_NAME)),
        (NameType::COMPUTER, " pc", Err(Win32::INVALID_NAME)),
        (NameType::DOMAIN, "A B", Err(Win32::INVALID_NAME)),
        (NameType::WORKGROUP, "A B", Ok(())),
        (NameType::WORKGROUP, "A NAME OF SIXTEEN", Err(Win32::INVALID_NAME)),
        (NameType::PASSWORD, "", Ok(())),
        (NameType::MESSAGE_DESTINATION, "all*", Ok(())),
        (NameType::MESSAGE_DESTINATION, "a*b", Err(Win32::INVALID_NAME)),
        (NameType(14), "x", Err(Win32::INVALID_PARAMETER)),
    ] {
        assert_eq!(name_type.validate(name), valid, "{name_type:?} {name:?}");
    }
    let old = 0x8000_0000;
    for (name, room, flags, expected) in [
        ("a share's name", 100, 0, Ok("a share's name")),
        ("a share's name", 100, old, Ok("A SHARE'S NA")),
        ("files", 5, 0, Err(Win32::NERR_BUF_TOO_SMALL)),
        ("files", 6, 0, Ok("files")),
        ("files", 80, 1, Err(Win32::NERR_BUF_TOO_SMALL)),
        ("files", 81, 1, Ok("files")),
        ("files", 81, 2, Err(Win32::INVALID_PARAMETER)),
        ("a|b", 81, 0, Err(Win32::INVALID_NAME)),
    ] {
        let canonical = NameType::SHARE.canonicalize(name, room, flags);
        assert_eq!(canonical.as_deref(), expected.as_ref().copied(), "{name:?} {room} {flags:x}");
    }
}
