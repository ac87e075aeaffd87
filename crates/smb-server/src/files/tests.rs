use smb_wire::{AccessMask, ShareAccess};

use super::locks::{LockRange, LockRefusal};
use super::*;
use crate::namespace::{Namespace, Snapshot};

pub(crate) const FILE: FileKey = FileKey { volume: 1, file: 1 };

pub(crate) fn share() -> Arc<Share> {
    let counted = counters::Registry::new(env::Env::real()).server_shares.permanent("s", &["s"]);
    Arc::new(Share::pipes(counted))
}

pub(crate) fn path(text: &str) -> VfsPath {
    VfsPath::parse(text).expect("legal")
}

pub(crate) fn member(open: u64, share: &Arc<Share>, at: &str) -> Member {
    Member {
        open,
        stream: None,
        mode: ShareMode { access: AccessMask::READ_DATA, share: ShareAccess::READ },
        access_class: AccessClass::More,
        holder: None,
        parent_lease: None,
        posix: false,
        share: Arc::clone(share),
        path: path(at),
        only_link: false,
        delete_on_close: false,
    }
}

pub(crate) const PLAIN: JoinOptions = JoinOptions {
    caching_request: CachingRequest::Nothing,
    overwrites: false,
    directory: false,
    token: 1,
    acknowledge_timeout: None,
    now: Moment::START,
};

/// Marks a name of a file with several links.
const MARK: Option<Mark> = Some(Mark { posix: false, only_link: false });

/// Joins without asking for caching rights.
pub(crate) fn join(t: &FileTable, n: &Namespace, member: Member) -> Result<JoinedMember, Option<NtStatus>> {
    join_at(t, n, FILE, n.snapshot(), member)
}

/// Like [`join`], for any file and with an earlier snapshot. `None` means that names have changed since.
pub(crate) fn join_at(
    t: &FileTable,
    n: &Namespace,
    id: FileKey,
    snapshot: Snapshot,
    member: Member,
) -> Result<JoinedMember, Option<NtStatus>> {
    t.join_file(n, id, snapshot, member, PLAIN).map(|(joined, _)| joined).map_err(|e| match e {
        Refusal::Retry => None,
        Refusal::Status(s) | Refusal::Contended { status: s, .. } => Some(s),
    })
}

// An open of a file between the close of its last open and the end of its removal waits for the removal. While another
// open keeps the file, DELETE_PENDING is the answer at once.
#[tokio::test]
async fn an_open_waits_for_a_removal_that_is_running() {
    let (t, n, s) = (FileTable::default(), Namespace::default(), share());
    let JoinedMember { file: f, stream, .. } = join(&t, &n, member(1, &s, "f")).expect("the first");
    f.set_delete_on_close(1, true);
    f.set_delete_pending(1, MARK);
    let refusal = t.join_file(&n, FILE, n.snapshot(), member(2, &s, "f"), PLAIN).err();
    assert!(matches!(refusal, Some(Refusal::Status(NtStatus::DELETE_PENDING))));
    assert!(t.leave_file(&f, &stream, 1).remove);
    let refusal = t.join_file(&n, FILE, n.snapshot(), member(2, &s, "f"), PLAIN).err();
    let Some(Refusal::Contended { file, contention, status }) = refusal else { panic!("it is to wait") };
    assert_eq!(status, NtStatus::DELETE_PENDING);
    assert_eq!(contention.wait_until, Some(PLAIN.now.after(removal::REMOVAL_WAIT)));
    assert!(contention.notices.is_empty());
    tokio::join!(file.changed_since(contention.seen), async { t.removed(&f, 1) });
    join(&t, &n, member(2, &s, "f")).expect("it is gone, and another file may have its number");
}

#[test]
fn nobody_joins_a_file_that_is_being_removed() {
    let (t, n, s) = (FileTable::default(), Namespace::default(), share());
    let f = join(&t, &n, member(1, &s, "f")).expect("the first");
    let g = join(&t, &n, member(2, &s, "f")).expect("shares reading");
    assert!(Arc::ptr_eq(&f.file, &g.file));
    let JoinedMember { file: f, stream, .. } = f;
    f.set_delete_on_close(2, true);
    assert!(!t.leave_file(&f, &stream, 2).remove && f.is_delete_pending(1) && f.removal(2).is_none());
    assert!(t.leave_file(&f, &stream, 1).remove, "the last one");
    let removal = f.removal(1).expect("said so");
    assert_eq!((removal.path, removal.id), (path("f"), FILE));
    let refused = join(&t, &n, member(3, &s, "f")).err();
    assert_eq!(refused, Some(Some(NtStatus::DELETE_PENDING)));
    t.removed(&f, 1);
    join(&t, &n, member(4, &s, "f")).expect("another file by now");
    assert!(!t.leave_file(&f, &stream, 1).remove, "leaving twice");
}

// MS-FSA 2.1.5.1, 2.1.5.5: a name that is marked for deletion is removed at the last close of that name, also if it was
// renamed in between. Another name of the file is not concerned.
#[tokio::test]
async fn the_name_that_was_marked_is_removed() {
    let (t, n, s) = (FileTable::default(), Namespace::default(), share());
    let JoinedMember { file: f, stream, .. } = join(&t, &n, member(1, &s, "a")).expect("the first");
    join(&t, &n, member(2, &s, "a")).expect("by the same name");
    join(&t, &n, member(3, &s, "b")).expect("by its other name");
    f.set_delete_pending(1, MARK);
    assert!(f.is_delete_pending(2) && !f.is_delete_pending(3));
    assert!(!t.leave_file(&f, &stream, 1).remove);
    let change = n.begin_rename(&s, &f, false).await;
    change.renamed(&t, FILE, &path("a"), &path("c"));
    drop(change);
    assert_eq!(join(&t, &n, member(4, &s, "c")).err(), Some(Some(NtStatus::DELETE_PENDING)));
    join(&t, &n, member(5, &s, "b")).expect("not marked");
    assert!(t.leave_file(&f, &stream, 2).remove);
    assert_eq!(f.removal(2).expect("said so").path, path("c"));
    t.removed(&f, 2);
    assert!(f.removal(2).is_none());
    assert!(!t.leave_file(&f, &stream, 3).remove && !t.leave_file(&f, &stream, 5).remove);
    assert_eq!(t.open_files(), 0);

    let JoinedMember { file: f, stream, .. } = join(&t, &n, member(6, &s, "b")).expect("again");
    f.set_delete_pending(6, MARK);
    f.set_delete_pending(6, None);
    assert!(!t.leave_file(&f, &stream, 6).remove, "spared");
}

// The same link may have another path in a share that overlaps: an open there counts as one of the name.
#[test]
fn a_marked_name_in_another_share() {
    let (t, n, s, other) = (FileTable::default(), Namespace::default(), share(), share());
    let JoinedMember { file: f, stream, .. } = join(&t, &n, member(1, &s, "d\\f")).expect("the first");
    join(&t, &n, member(2, &other, "f")).expect("by the other share");
    f.set_delete_pending(1, MARK);
    assert_eq!(join(&t, &n, member(3, &other, "f")).err(), Some(Some(NtStatus::DELETE_PENDING)));
    assert!(!t.leave_file(&f, &stream, 1).remove);
    assert!(t.leave_file(&f, &stream, 2).remove);
    assert_eq!(f.removal(2).expect("said so").path, path("d\\f"));
}

// One link may have two paths in a share: the file of a virtual disk has two names and one link.
#[test]
fn the_only_link_has_two_paths() {
    let (t, n, s) = (FileTable::default(), Namespace::default(), share());
    let only_link = |open, at| Member { only_link: true, ..member(open, &s, at) };
    for on_close in [false, true] {
        let JoinedMember { file: f, stream, .. } = join(&t, &n, only_link(1, "vm.img")).expect("the first");
        join(&t, &n, only_link(2, "vm.vhd")).expect("by its other path");
        match on_close {
            true => f.set_delete_on_close(1, true),
            false => f.set_delete_pending(1, Some(Mark { posix: false, only_link: true })),
        }
        assert!(!t.leave_file(&f, &stream, 1).remove, "it is open");
        assert_eq!(join(&t, &n, only_link(3, "vm.vhd")).err(), Some(Some(NtStatus::DELETE_PENDING)));
        // The mark of the other path is one of the same link.
        f.set_delete_pending(2, Some(Mark { posix: false, only_link: true }));
        assert_eq!(f.deleted_names(), 1);
        assert!(t.leave_file(&f, &stream, 2).remove);
        t.removed(&f, 2);
        assert_eq!(t.open_files(), 0);
    }
    let JoinedMember { file: f, stream, .. } = join(&t, &n, only_link(4, "vm.img")).expect("another file");
    join(&t, &n, only_link(5, "vm.vhd")).expect("by its other path");
    f.set_delete_pending(4, Some(Mark { posix: false, only_link: true }));
    f.set_delete_pending(5, None);
    assert!(!f.is_delete_pending(4));
    // From here on it has two links.
    f.set_delete_on_close(4, true);
    f.linked();
    assert!(t.leave_file(&f, &stream, 4).remove);
}

// A path in another share may be another link: it is neither recorded as marked nor unmarked.
#[test]
fn a_mark_in_another_share_is_not_its_own() {
    let (t, n, s, other) = (FileTable::default(), Namespace::default(), share(), share());
    let JoinedMember { file: f, stream, .. } = join(&t, &n, member(1, &s, "a")).expect("the first");
    join(&t, &n, member(2, &other, "b")).expect("by the other share");
    f.set_delete_pending(1, MARK);
    assert!(f.is_delete_pending(2) && !f.is_path_marked(2) && f.is_path_marked(1));
    f.set_delete_pending(2, None);
    assert!(f.is_path_marked(1));
    assert!(!t.leave_file(&f, &stream, 2).remove && t.leave_file(&f, &stream, 1).remove);
}

// A name that is marked between the check of a rename and the backend's call is replaced: the new one stays.
#[tokio::test]
async fn a_marked_name_is_replaced_by_another_of_the_file() {
    let (t, n, s) = (FileTable::default(), Namespace::default(), share());
    let JoinedMember { file: f, stream, .. } = join(&t, &n, member(1, &s, "a")).expect("the first");
    join(&t, &n, member(2, &s, "b")).expect("by its other name");
    let change = n.begin_rename(&s, &f, false).await;
    f.set_delete_pending(2, MARK);
    change.renamed(&t, FILE, &path("a"), &path("b"));
    drop(change);
    assert!(!t.leave_file(&f, &stream, 2).remove && !t.leave_file(&f, &stream, 1).remove);
}

// MS-SMB2 3.3.5.12: locks of others, and only while there are any.
#[test]
fn io_and_locks() {
    let (t, n, s) = (FileTable::default(), Namespace::default(), share());
    let JoinedMember { file: f, stream, .. } = join(&t, &n, member(1, &s, "f")).expect("the first");
    join(&t, &n, member(2, &s, "f")).expect("shares reading");
    assert_eq!(stream.check_io(2, 0, 10, true), Ok(()));
    stream.try_lock(&f, 1, LockRange::new(5, 1).expect("a range"), true).expect("free");
    assert_eq!(stream.check_io(2, 0, 10, false), Err(NtStatus::FILE_LOCK_CONFLICT));
    assert_eq!(stream.check_io(1, 0, 10, true), Ok(()));
    assert_eq!(stream.check_io(2, 6, 10, true), Ok(()));
    t.leave_file(&f, &stream, 1);
    assert_eq!((stream.check_io(2, 0, 10, true), stream.locks_of(1)), (Ok(()), 0));
}

// A rename onto a file: the claim succeeds if the file is not open, and prevents opens until it is dropped.
#[test]
fn claims() {
    let (t, n, s) = (FileTable::default(), Namespace::default(), share());
    let claim = t.claim(FILE).ok().expect("not open");
    assert!(t.claim(FILE).is_err());
    assert_eq!(join(&t, &n, member(1, &s, "f")).err(), Some(None));
    drop(claim);
    let _f = join(&t, &n, member(1, &s, "f")).expect("free again");
    assert!(t.claim(FILE).is_err(), "it is open");
}

// An open is closed on one channel while it locks on another: whichever is first, nothing is left behind.
#[test]
fn who_has_left_gets_no_lock() {
    let (t, n, s) = (FileTable::default(), Namespace::default(), share());
    let JoinedMember { file: f, stream, .. } = join(&t, &n, member(1, &s, "f")).expect("the first");
    join(&t, &n, member(2, &s, "f")).expect("shares reading");
    let range = LockRange::new(5, 1).expect("a range");
    stream.try_lock(&f, 1, range, true).expect("free");
    assert!(!t.leave_file(&f, &stream, 1).remove);
    assert_eq!(stream.try_lock(&f, 1, range, true), Err(LockRefusal::Closed));
    assert!(matches!(stream.lock_or_wait(&f, 1, range, true), Err(LockRefusal::Closed)));
    assert_eq!(stream.locks_of(1), 0);
    stream.try_lock(&f, 2, range, true).expect("nothing is in the way");
    assert!(matches!(stream.lock_or_wait(&f, 1, range, true), Err(LockRefusal::Closed)));
}
