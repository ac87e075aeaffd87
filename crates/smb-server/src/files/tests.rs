use std::sync::atomic::{AtomicBool, AtomicUsize};

use smb_wire::{AccessMask, ShareAccess};

use super::*;
use crate::share::ShareTarget;

const FILE: NodeId = NodeId { volume: 1, file: 1 };

fn share() -> Arc<Share> {
    Arc::new(Share {
        name: "s".into(),
        comment: String::new(),
        read_only: false,
        encrypt: false,
        hidden: false,
        target: ShareTarget::Pipes,
        removed: AtomicBool::new(false),
        users: AtomicUsize::new(0),
    })
}

fn path(text: &str) -> VfsPath {
    VfsPath::parse(text).expect("legal")
}

fn member(volatile: u64, share: &Arc<Share>, at: &str) -> Member {
    Member {
        volatile,
        mode: ShareMode { access: AccessMask::READ_DATA, share: ShareAccess::READ },
        share: Arc::clone(share),
        path: path(at),
        delete_on_close: false,
    }
}

// What the backend said before a name changed is not believed after.
#[test]
fn an_open_that_a_change_overtook_starts_again() {
    let (t, s) = (FileTable::default(), share());
    let before = t.generation();
    let change = t.begin_change();
    assert_eq!(t.join(FILE, before, member(1, &s, "f")).err(), Some(Refusal::Again));
    let during = t.generation();
    drop(change);
    assert_eq!(t.join(FILE, during, member(1, &s, "f")).err(), Some(Refusal::Again));
    assert!(!t.is_open(FILE), "a refused open leaves nothing");
    t.join(FILE, t.generation(), member(1, &s, "f")).expect("nothing changed since");
}

#[test]
fn nobody_joins_a_file_that_is_being_removed() {
    let (t, s) = (FileTable::default(), share());
    let f = t.join(FILE, t.generation(), member(1, &s, "f")).expect("the first");
    let g = t.join(FILE, t.generation(), member(2, &s, "f")).expect("shares reading");
    assert!(Arc::ptr_eq(&f, &g));
    f.set_delete_on_close(2, true);
    assert!(t.leave(&f, 2).is_none() && f.is_delete_pending());
    let removal = t.leave(&f, 1).expect("the last one");
    assert_eq!((removal.path, removal.id), (path("f"), FILE));
    f.set_delete_pending(false);
    let refused = t.join(FILE, t.generation(), member(3, &s, "f")).err();
    assert_eq!(refused, Some(Refusal::Status(NtStatus::DELETE_PENDING)));
    t.removed(&f);
    t.join(FILE, t.generation(), member(4, &s, "f")).expect("another file by now");
    assert!(t.leave(&f, 1).is_none(), "leaving twice");
}

// A rename moves what lies below it, in its own share, and leaves second names alone.
#[test]
fn a_rename_moves_paths() {
    let (t, s, other) = (FileTable::default(), share(), share());
    let at = |file, m| t.join(NodeId { volume: 1, file }, t.generation(), m).expect("joins");
    let d = at(1, member(1, &s, "d"));
    let f = at(2, member(2, &s, "d\\f"));
    let link = at(2, member(3, &s, "x"));
    let elsewhere = at(3, member(4, &other, "d\\f"));
    let alike = at(4, member(5, &s, "dd"));
    assert!(t.is_open_below(&s, &path("d")) && !t.is_open_below(&other, &path("x")));
    t.renamed(&s, NodeId { volume: 1, file: 1 }, &path("d"), &path("e\\d"));
    for (file, volatile, expected) in
        [(&d, 1, "e\\d"), (&f, 2, "e\\d\\f"), (&link, 3, "x"), (&elsewhere, 4, "d\\f"), (&alike, 5, "dd")]
    {
        assert_eq!(file.path_of(volatile), path(expected));
    }
}

// MS-SMB2 3.3.5.12: locks of others, and only while there are any.
#[test]
fn io_and_locks() {
    let (t, s) = (FileTable::default(), share());
    let f = t.join(FILE, t.generation(), member(1, &s, "f")).expect("the first");
    t.join(FILE, t.generation(), member(2, &s, "f")).expect("shares reading");
    assert_eq!(f.check_io(2, 0, 10, true), Ok(()));
    f.try_lock(1, LockRange::new(5, 1).expect("a range"), true).expect("free");
    assert_eq!(f.check_io(2, 0, 10, false), Err(NtStatus::FILE_LOCK_CONFLICT));
    assert_eq!(f.check_io(1, 0, 10, true), Ok(()));
    assert_eq!(f.check_io(2, 6, 10, true), Ok(()));
    t.leave(&f, 1);
    assert_eq!((f.check_io(2, 0, 10, true), f.locks_of(1)), (Ok(()), 0));
}
