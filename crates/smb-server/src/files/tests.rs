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
        names: Arc::default(),
        counted: counters::Registry::new(env::Env::real()).server_shares.lasting("s", &["s"]),
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
#[tokio::test]
async fn an_open_that_a_change_overtook_starts_again() {
    let (t, s) = (FileTable::default(), share());
    let before = t.generation();
    let change = t.begin_change(&s).await;
    assert_eq!(t.join(FILE, before, member(1, &s, "f")).err(), Some(Refusal::Again));
    let during = t.generation();
    drop(change);
    assert_eq!(t.join(FILE, during, member(1, &s, "f")).err(), Some(Refusal::Again));
    assert_eq!(t.open_files(), 0, "a refused open leaves nothing");
    t.join(FILE, t.generation(), member(1, &s, "f")).expect("nothing changed since");
}

#[test]
fn nobody_joins_a_file_that_is_being_removed() {
    let (t, s) = (FileTable::default(), share());
    let f = t.join(FILE, t.generation(), member(1, &s, "f")).expect("the first");
    let g = t.join(FILE, t.generation(), member(2, &s, "f")).expect("shares reading");
    assert!(Arc::ptr_eq(&f, &g));
    f.set_delete_on_close(2, true);
    assert!(!t.leave(&f, 2) && f.is_delete_pending() && f.removal().is_none());
    assert!(t.leave(&f, 1), "the last one");
    let removal = f.removal().expect("said so");
    assert_eq!((removal.path, removal.id), (path("f"), FILE));
    f.set_delete_pending(4, false);
    let refused = t.join(FILE, t.generation(), member(3, &s, "f")).err();
    assert_eq!(refused, Some(Refusal::Status(NtStatus::DELETE_PENDING)));
    t.removed(&f);
    t.join(FILE, t.generation(), member(4, &s, "f")).expect("another file by now");
    assert!(!t.leave(&f, 1), "leaving twice");
}

// The name that was said to go is the one that goes, whatever name the last open knows the file by, and wherever that
// name has been moved meanwhile.
#[tokio::test]
async fn the_name_that_was_marked_is_removed() {
    let (t, s) = (FileTable::default(), share());
    let f = t.join(FILE, t.generation(), member(1, &s, "a")).expect("the first");
    t.join(FILE, t.generation(), member(2, &s, "b")).expect("by its other name");
    f.set_delete_pending(1, true);
    assert!(!t.leave(&f, 1));
    let change = t.begin_rename(&s, &f, false).await;
    t.renamed(&s, FILE, &path("a"), &path("c"));
    drop(change);
    assert!(t.leave(&f, 2));
    assert_eq!(f.removal().expect("said so").path, path("c"));
    t.removed(&f);

    let f = t.join(FILE, t.generation(), member(3, &s, "b")).expect("again");
    f.set_delete_pending(3, true);
    f.set_delete_pending(3, false);
    assert!(!t.leave(&f, 3), "spared");
}

// A rename moves its opens, in its own share, and leaves second names alone; a directory is held by what is below.
#[tokio::test]
async fn renames() {
    let (t, s, other) = (FileTable::default(), share(), share());
    let id = |file| NodeId { volume: 1, file };
    let at = |file, m| t.join(id(file), t.generation(), m);
    let f = at(2, member(2, &s, "d\\f")).expect("joins");
    at(2, member(3, &s, "x")).expect("joins");
    at(2, member(4, &other, "d\\f")).expect("joins");
    let mut change = t.begin_rename(&s, &f, true).await;
    assert!(!change.hold_directory(&path("d")));
    t.renamed(&s, id(2), &path("d\\f"), &path("g"));
    assert_eq!([2, 3, 4].map(|v| f.path_of(v)), ["g", "x", "d\\f"].map(path));
    assert!(change.hold_directory(&path("d")), "nothing is below it in this share");
    assert_eq!(at(5, member(5, &s, "d\\new")).err(), Some(Refusal::Again));
    at(6, member(6, &s, "dd")).expect("beside it");
    drop(change);
    at(5, member(5, &s, "d\\new")).expect("moved by now");
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

// A rename onto a file: it is not open, and does not become so meanwhile.
#[test]
fn claims() {
    let (t, s) = (FileTable::default(), share());
    let claim = t.claim(FILE).expect("not open");
    assert!(t.claim(FILE).is_none());
    assert_eq!(t.join(FILE, t.generation(), member(1, &s, "f")).err(), Some(Refusal::Again));
    drop(claim);
    let _f = t.join(FILE, t.generation(), member(1, &s, "f")).expect("free again");
    assert!(t.claim(FILE).is_none(), "it is open");
}

// An open is closed on one channel while it locks on another: whichever is first, nothing is left behind.
#[test]
fn who_has_left_gets_no_lock() {
    let (t, s) = (FileTable::default(), share());
    let f = t.join(FILE, t.generation(), member(1, &s, "f")).expect("the first");
    t.join(FILE, t.generation(), member(2, &s, "f")).expect("shares reading");
    let range = LockRange::new(5, 1).expect("a range");
    f.try_lock(1, range, true).expect("free");
    assert!(!t.leave(&f, 1));
    assert_eq!(f.try_lock(1, range, true), Err(LockRefusal::Closed));
    assert!(matches!(f.lock_or_wait(1, range, true), Err(LockRefusal::Closed)));
    assert_eq!(f.locks_of(1), 0);
    f.try_lock(2, range, true).expect("nothing is in the way");
    assert!(matches!(f.lock_or_wait(1, range, true), Err(LockRefusal::Closed)));
}

// What hangs in one share holds up name changes of that share, and opens below what moves there, and nothing else.
#[tokio::test]
async fn a_change_that_hangs_holds_up_its_own_share_only() {
    let (t, s, other) = (FileTable::default(), share(), share());
    let (d, e) = (NodeId { volume: 1, file: 2 }, NodeId { volume: 2, file: 2 });
    let f = t.join(d, t.generation(), member(1, &s, "d")).expect("the first");
    let g = t.join(e, t.generation(), member(2, &other, "e")).expect("the first");
    let mut hangs = t.begin_rename(&s, &f, true).await;
    assert!(hangs.hold_directory(&path("d")));
    assert!(futures_util::poll!(std::pin::pin!(t.begin_change(&s))).is_pending());
    assert!(futures_util::poll!(std::pin::pin!(t.settled(&s))).is_pending());
    t.settled(&other).await;
    drop(t.begin_change(&other).await);
    let mut moves = t.begin_rename(&other, &g, true).await;
    assert!(moves.hold_directory(&path("e")));
    let again = |share, at| t.join(FILE, t.generation(), member(3, share, at)).err();
    assert_eq!(again(&s, "d\\f"), Some(Refusal::Again));
    assert_eq!(again(&other, "e\\f"), Some(Refusal::Again));
    drop(moves);
    assert_eq!(again(&s, "d\\f"), Some(Refusal::Again), "it still hangs");
    assert_eq!(again(&other, "e\\f"), None);
}
