//! Leases on directories (MS-SMB2 3.3.5.9.11, MS-FSA 2.1.5.18): the states granted, and the changes of entries that
//! break them.
//!
//! The expected results are those of Windows, according to Samba's test smb2.dirlease.

use std::os::unix::fs::PermissionsExt;
use std::task::{Context, Waker};
use std::time::Duration;

use smb_wire::context::{
    CreateContextsBuf, CreateRequestContext, CreateResponseContext, Lease, LeaseFlags, LeaseV2,
};
use smb_wire::fscc::{
    FileDispositionInformation, FileEndOfFileInformation, FileInfoClass, FileLinkInformation,
    FileRenameInformation,
};
use smb_wire::msg::{
    Capabilities, LeaseBreakAcknowledgment, LeaseBreakFlags, LeaseBreakNotification, LeaseKey, LeaseState,
    OplockLevel,
};

use super::notifying::hosted;
use super::*;
use crate::inbox::{Inbox, Notice};

const RH: LeaseState = LeaseState::READ_CACHING.union(LeaseState::HANDLE_CACHING);
const RWH: LeaseState = RH.union(LeaseState::WRITE_CACHING);
const DIR: LeaseKey = Guid([0xD1; 16]);
const OTHER: LeaseKey = Guid([0xD2; 16]);
const NO_DELETE: AccessMask = AccessMask::READ_DATA.union(AccessMask::READ_ATTRIBUTES);

struct Leases {
    w: World,
    inbox: Arc<Inbox>,
    keys: u8,
}

impl Leases {
    fn new(capabilities: Capabilities) -> Leases {
        Leases::on(World::new(), capabilities)
    }

    fn on(mut w: World, capabilities: Capabilities) -> Leases {
        let facts = Arc::get_mut(&mut w.facts).expect("not shared yet");
        facts.server_capabilities = capabilities.bits();
        let inbox = Arc::<Inbox>::default();
        w.server.clients.add(w.facts.client_guid, &inbox);
        Leases { w, inbox, keys: 0 }
    }

    async fn try_open(
        &self,
        path: &str,
        how: How,
        lease: Lease,
    ) -> Result<(FileId, Option<LeaseState>), NtStatus> {
        let mut contexts = CreateContextsBuf::new();
        contexts.request(&CreateRequestContext::Lease(lease)).expect("it fits");
        let reply = self.w.create_with(path, how, OplockLevel::LEASE, &contexts).await;
        let a = success::<CreateResponse<'_>>(&reply)?;
        let granted = a.contexts.responses().find_map(|c| match c.expect("well-formed") {
            CreateResponseContext::Lease(l) => Some(l.state),
            _ => None,
        });
        Ok((a.file_id, granted))
    }

    /// Opens a directory with a lease.
    async fn lease(&self, path: &str, key: LeaseKey, access: AccessMask) -> FileId {
        let how = How { access, options: CreateOptions::DIRECTORY_FILE, ..How::OPEN_IF };
        let (id, granted) = self.try_open(path, how, lease(key, RWH, None)).await.expect("opened");
        assert_eq!(granted, Some(RH), "never W");
        id
    }

    /// Opens a file that names the lease of its directory.
    async fn file(&mut self, path: &str, how: How, parent: Option<LeaseKey>) -> FileId {
        self.keys += 1;
        let key = Guid([self.keys; 16]);
        self.try_open(path, how, lease(key, LeaseState::READ_CACHING, parent)).await.expect("opened").0
    }

    /// The next break, if there is one.
    fn broken(&self) -> Option<LeaseBreakNotification> {
        match self.inbox.poll(&mut Context::from_waker(Waker::noop()))? {
            Notice::LeaseBreak(b) => Some(b),
            other => panic!("{other:?}"),
        }
    }

    /// Waits for the next break.
    async fn next_broken(&self) -> LeaseBreakNotification {
        let wait = async {
            loop {
                match self.broken() {
                    Some(b) => break b,
                    None => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(5), wait).await.expect("a break")
    }

    async fn acknowledge(&self, b: LeaseBreakNotification) {
        let ack = LeaseBreakAcknowledgment {
            flags: LeaseBreakFlags::empty(),
            lease_key: b.lease_key,
            lease_state: b.new_lease_state,
            lease_duration: 0,
        };
        assert_eq!(crate::commands::oplock::handle(self.w.request(&ack)).await.status, NtStatus::SUCCESS);
    }

    /// Which leases are broken to nothing now, in order of their keys; they are acknowledged.
    async fn all_broken(&self) -> Vec<LeaseKey> {
        let mut keys = Vec::new();
        while let Some(b) = self.broken() {
            assert_eq!((b.current_lease_state, b.new_lease_state), (RH, LeaseState::empty()));
            self.acknowledge(b).await;
            keys.push(b.lease_key);
        }
        keys.sort_by_key(|k| k.0);
        keys
    }
}

fn lease(key: LeaseKey, state: LeaseState, parent: Option<LeaseKey>) -> Lease {
    let flags = if parent.is_some() { LeaseFlags::PARENT_LEASE_KEY_SET } else { LeaseFlags::empty() };
    let v2 = LeaseV2 { parent_lease_key: parent.unwrap_or_default(), epoch: 0 };
    Lease { key, state, flags, v2: Some(v2) }
}

fn rename_to(path: &str) -> Vec<u8> {
    rename_over(path, false)
}

fn rename_over(path: &str, replace_if_exists: bool) -> Vec<u8> {
    let (name, mut bytes) = (Utf16Buf::from(path), Vec::new());
    let q = FileRenameInformation { replace_if_exists, root_directory: 0, name: name.as_utf16() };
    q.encode(&mut bytes).expect("fits");
    bytes
}

#[tokio::test(start_paused = true)]
async fn what_is_granted() {
    let l = Leases::new(Capabilities::LEASING | Capabilities::DIRECTORY_LEASING);
    let how = How { options: CreateOptions::DIRECTORY_FILE, ..How::OPEN_IF };
    for (wanted, granted) in [
        (RWH, RH),
        (RH, RH),
        (LeaseState::READ_CACHING | LeaseState::WRITE_CACHING, LeaseState::READ_CACHING),
        (LeaseState::READ_CACHING, LeaseState::READ_CACHING),
    ] {
        let (id, got) = l.try_open("d", how, lease(DIR, wanted, None)).await.expect("opened");
        assert_eq!(got, Some(granted));
        l.w.close(id).await;
    }
    let v1 = Lease { v2: None, ..lease(DIR, RH, None) };
    assert_eq!(l.try_open("d", how, v1).await.expect("opened").1, None, "version 1 is for files");
    let l = Leases::new(Capabilities::LEASING);
    assert_eq!(l.try_open("d", how, lease(DIR, RH, None)).await.expect("opened").1, None, "not negotiated");
}

/// A change through an open that names this lease as its ParentLeaseKey breaks only other leases.
#[tokio::test(start_paused = true)]
async fn changes_of_entries() {
    let mut l = Leases::new(Capabilities::LEASING | Capabilities::DIRECTORY_LEASING);
    let dir = l.lease("d", DIR, NO_DELETE).await;
    l.w.create("d\\sub", How::MKDIR).await;
    assert_eq!(l.all_broken().await, [DIR], "a directory is made in it");
    for (i, (parent, broken)) in
        [(Some(DIR), vec![]), (Some(OTHER), vec![DIR]), (None, vec![DIR])].into_iter().enumerate()
    {
        let path = format!("d\\f{i}");
        let again = async |l: &Leases| {
            let id = l.lease("d", DIR, NO_DELETE).await;
            l.w.close(id).await;
        };
        again(&l).await;
        let f = l.file(&path, How::CREATE, parent).await;
        assert_eq!(l.all_broken().await, broken, "created, {parent:?}");
        again(&l).await;
        let mut size = Vec::new();
        FileEndOfFileInformation { end_of_file: 7 }.encode(&mut size);
        assert_eq!(l.w.set(f, FileInfoClass::END_OF_FILE.0, &size).await, NtStatus::SUCCESS);
        assert_eq!(l.all_broken().await, broken, "its size, {parent:?}");
        again(&l).await;
        let (name, mut bytes) = (Utf16Buf::from(format!("d\\g{i}").as_str()), Vec::new());
        let q = FileLinkInformation { replace_if_exists: false, root_directory: 0, name: name.as_utf16() };
        q.encode(&mut bytes).expect("fits");
        assert_eq!(l.w.set(f, FileInfoClass::LINK.0, &bytes).await, NtStatus::SUCCESS);
        assert_eq!(l.all_broken().await, broken, "another name, {parent:?}");
        l.w.close(f).await;
        again(&l).await;
        let overwrite = How { disposition: CreateDisposition::OVERWRITE, ..How::OPEN };
        let f = l.file(&path, overwrite, parent).await;
        assert_eq!(l.all_broken().await, broken, "overwritten, {parent:?}");
        l.w.close(f).await;
    }
    l.w.close(dir).await;
    l.w.create("d\\last", How::CREATE).await;
    assert_eq!(l.all_broken().await, [], "the lease has gone");
}

/// Each of the two directories is checked by itself; within one directory there is one break.
#[tokio::test(start_paused = true)]
async fn renames() {
    let mut l = Leases::new(Capabilities::LEASING | Capabilities::DIRECTORY_LEASING);
    for (to, parent, broken) in [
        ("a\\g", Some(DIR), vec![]),
        ("a\\g", None, vec![DIR]),
        ("b\\g", Some(DIR), vec![OTHER]),
        ("b\\g", Some(OTHER), vec![DIR]),
        ("b\\g", None, vec![DIR, OTHER]),
    ] {
        let (a, b) = (l.lease("a", DIR, NO_DELETE).await, l.lease("b", OTHER, NO_DELETE).await);
        let f = l.file("a\\f", How::CREATE, Some(DIR)).await;
        l.w.close(f).await;
        assert_eq!(l.all_broken().await, []);
        let f = l.file("a\\f", How::OPEN, parent).await;
        assert_eq!(l.w.set(f, FileInfoClass::RENAME.0, &rename_to(to)).await, NtStatus::SUCCESS);
        assert_eq!(l.all_broken().await, broken, "{to}, {parent:?}");
        for id in [a, b, f] {
            l.w.close(id).await;
        }
        let f = l.w.create(to, How { options: CreateOptions::DELETE_ON_CLOSE, ..How::OPEN }).await;
        l.w.close(f).await;
    }
}

/// A removal does not break the lease that is the ParentLeaseKey of both the open that marked the file and the last one
/// closed.
#[tokio::test(start_paused = true)]
async fn removals() {
    let mut l = Leases::new(Capabilities::LEASING | Capabilities::DIRECTORY_LEASING);
    for on_create in [false, true] {
        for (last, broken) in [(DIR, vec![OTHER]), (OTHER, vec![DIR, OTHER])] {
            let (a, b) = (l.lease("d", DIR, NO_DELETE).await, l.lease("d", OTHER, NO_DELETE).await);
            let f = l.w.create("d\\f", How::CREATE).await;
            l.w.close(f).await;
            l.all_broken().await;
            for key in [DIR, OTHER] {
                let again = l.lease("d", key, NO_DELETE).await;
                l.w.close(again).await;
            }
            let options = if on_create { CreateOptions::DELETE_ON_CLOSE } else { CreateOptions::empty() };
            // The last open must exist before the file is marked.
            let closer = l.file("d\\f", How::OPEN, Some(last)).await;
            let marker = l.file("d\\f", How { options, ..How::OPEN }, Some(DIR)).await;
            if !on_create {
                let mut mark = Vec::new();
                FileDispositionInformation { delete_pending: true }.encode(&mut mark);
                assert_eq!(l.w.set(marker, FileInfoClass::DISPOSITION.0, &mark).await, NtStatus::SUCCESS);
            }
            assert_eq!(l.all_broken().await, [], "it is still there");
            l.w.close(marker).await;
            assert_eq!(l.all_broken().await, [], "it is still there");
            l.w.close(closer).await;
            assert_eq!(l.all_broken().await, broken, "{on_create} {last:?}");
            l.w.close(a).await;
            l.w.close(b).await;
        }
    }
}

/// A file is moved into a directory that is open for deletion under a handle lease: the lease is broken first
/// (MS-FSA 2.1.5.15.11).
#[tokio::test(start_paused = true)]
async fn a_rename_breaks_the_handle_lease_of_its_target_folder() {
    let l = Leases::new(Capabilities::LEASING | Capabilities::DIRECTORY_LEASING);
    let f = l.w.create("f", How::CREATE).await;
    for closes in [false, true] {
        let dir = l.lease("d", DIR, AccessMask::DELETE).await;
        let to = rename_to("d\\f");
        let rename = l.w.set(f, FileInfoClass::RENAME.0, &to);
        let answer = async {
            let b = l.next_broken().await;
            assert_eq!((b.lease_key, b.new_lease_state), (DIR, LeaseState::READ_CACHING));
            if closes { l.w.close(dir).await } else { l.acknowledge(b).await }
        };
        let (status, ()) = tokio::join!(rename, answer);
        if closes {
            assert_eq!(status, NtStatus::SUCCESS);
        } else {
            assert_eq!(status, NtStatus::SHARING_VIOLATION, "it stays open");
            l.w.close(dir).await;
        }
    }
}

/// A client caches the handle of the file that is replaced, or of one below the directory that is renamed: it is asked
/// to close it, and only an open that stays prevents the change (MS-FSA 2.1.4.2, 2.1.5.15.11).
#[tokio::test(start_paused = true)]
async fn renames_break_cached_handles_that_are_in_their_way() {
    let l = Leases::new(Capabilities::LEASING | Capabilities::DIRECTORY_LEASING);
    let (f, d) = (l.w.create("f", How::CREATE).await, l.w.create("d", How::MKDIR).await);
    l.w.close(l.w.create("e", How::MKDIR).await).await;
    for ((renamed, class, to), cached) in [
        ((f, FileInfoClass::RENAME, rename_over("e\\f", true)), vec!["e\\f"]),
        ((f, FileInfoClass::LINK, rename_over("e\\l", true)), vec!["e\\l"]),
        ((d, FileInfoClass::RENAME, rename_over("e\\d", false)), vec!["d\\a", "d\\b"]),
    ] {
        for closes in [false, true] {
            let mut open = Vec::new();
            for (key, path) in (1..).zip(&cached) {
                let lease = lease(Guid([key; 16]), RWH, None);
                let (id, granted) = l.try_open(path, How::OPEN_IF, lease).await.expect("opened");
                assert_eq!(granted, Some(RWH));
                open.push(id);
            }
            let rename = l.w.set(renamed, class.0, &to);
            let answer = async {
                for _ in &open {
                    let b = l.next_broken().await;
                    assert_eq!(b.new_lease_state, RWH.difference(LeaseState::HANDLE_CACHING));
                    if closes {
                        l.w.close(open[usize::from(b.lease_key.0[0]) - 1]).await;
                    } else {
                        l.acknowledge(b).await;
                    }
                }
            };
            let (status, ()) = tokio::join!(rename, answer);
            if closes {
                assert_eq!(status, NtStatus::SUCCESS, "{cached:?}");
            } else {
                assert_eq!(status, NtStatus::ACCESS_DENIED, "{cached:?} stay open");
                for id in open {
                    l.w.close(id).await;
                }
            }
        }
    }
}

/// A directory that is renamed keeps its lease, under its new name.
#[tokio::test(start_paused = true)]
async fn of_a_directory_that_is_renamed() {
    let l = Leases::new(Capabilities::LEASING | Capabilities::DIRECTORY_LEASING);
    let dir = l.lease("d", DIR, ALL).await;
    assert_eq!(l.w.set(dir, FileInfoClass::RENAME.0, &rename_to("e")).await, NtStatus::SUCCESS);
    l.w.create("e\\f", How::CREATE).await;
    assert_eq!(l.all_broken().await, [DIR]);
}

/// A break that was queued on a connection which ended is sent over another one of the client (MS-SMB2 3.3.4.7).
#[tokio::test(start_paused = true)]
async fn queued_breaks_move_to_another_connection() {
    let l = Leases::new(Capabilities::LEASING | Capabilities::DIRECTORY_LEASING);
    l.lease("d", DIR, NO_DELETE).await;
    l.w.create("d\\f", How::CREATE).await;
    let (client, second) = (l.w.facts.client_guid, Arc::<Inbox>::default());
    l.w.server.clients.add(client, &second);
    l.w.server.clients.remove(client, &l.inbox);
    for notice in l.inbox.close() {
        l.w.server.resend_break(client, notice);
    }
    let sent = second.poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(sent, Some(Notice::LeaseBreak(b)) if b.lease_key == DIR), "{sent:?}");
}

/// A lease on a directory is broken by a change that another program makes as soon as the lease is granted.
#[tokio::test]
async fn a_directory_that_another_program_changes_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).expect("ours");
    let l = Leases::new(Capabilities::LEASING | Capabilities::DIRECTORY_LEASING);
    let l = Leases { w: hosted(l.w, directory.path()), ..l };
    for n in 0..20 {
        let name = format!("d{n}");
        std::fs::create_dir(directory.path().join(&name)).expect("made");
        let id = l.lease(&name, DIR, NO_DELETE).await;
        std::fs::write(directory.path().join(&name).join("f"), "").expect("written");
        assert_eq!(l.next_broken().await.lease_key, DIR);
        l.w.close(id).await;
    }
}

/// A client's lease on a file is broken when another program writes to the file, and not when the server does.
#[tokio::test]
async fn a_file_that_another_program_writes() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).expect("ours");
    let l = Leases::new(Capabilities::DIRECTORY_LEASING);
    let l = Leases { w: hosted(l.w, directory.path()), ..l };
    let (id, granted) = l.try_open("f", How::OPEN_IF, lease(OTHER, RWH, None)).await.expect("created");
    assert_eq!(granted, Some(RWH));
    // The server's own write does not count as another program's.
    let size = FileEndOfFileInformation { end_of_file: 100 };
    let mut bytes = Vec::new();
    size.encode(&mut bytes);
    assert_eq!(l.w.set(id, FileInfoClass::END_OF_FILE.0, &bytes).await, NtStatus::SUCCESS);
    let own = tokio::time::Instant::now();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(l.broken().is_none());
    let broken = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            std::fs::write(directory.path().join("f"), "theirs").expect("written");
            tokio::time::sleep(Duration::from_millis(100)).await;
            if let Some(b) = l.broken() {
                return b;
            }
        }
    });
    let broken = broken.await.expect("a break");
    assert_eq!((broken.lease_key, broken.new_lease_state), (OTHER, LeaseState::empty()));
    assert!(own.elapsed() < Duration::from_millis(1900), "{:?} after the server's own change", own.elapsed());
}

/// Another program writes to a file shortly after a client has done so, with the clocks of the system.
#[tokio::test]
async fn a_file_that_another_program_writes_shortly_after_a_client() {
    let directory = tempfile::tempdir().expect("a directory");
    let mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("ours");
    };
    mode(directory.path(), 0o777);
    let at = directory.path().join("f");
    std::fs::write(&at, "").expect("written");
    mode(&at, 0o666);
    let env = Env::real();
    let vfs = RamFs::new(&env, RamOptions::default()).expect("address space");
    let w = World::on(env, ShareConfig::new("files", vfs), None, 1);
    let l = Leases::on(w, Capabilities::DIRECTORY_LEASING);
    let l = Leases { w: hosted(l.w, directory.path()), ..l };
    let how = How { access: AccessMask::READ_DATA | AccessMask::WRITE_DATA, ..How::OPEN };
    let (id, granted) = l.try_open("f", how, lease(OTHER, RWH, None)).await.expect("opened");
    assert_eq!(granted, Some(RWH));
    for size in 1..20_u64 {
        assert_eq!(l.w.set(id, FileInfoClass::END_OF_FILE.0, &size.to_le_bytes()).await, NtStatus::SUCCESS);
        tokio::time::sleep(Duration::from_millis(37)).await;
    }
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert!(l.broken().is_none(), "only the server has written");
    assert_eq!(l.w.set(id, FileInfoClass::END_OF_FILE.0, &[9, 0, 0, 0, 0, 0, 0, 0]).await, NtStatus::SUCCESS);
    tokio::time::sleep(Duration::from_millis(100)).await;
    std::fs::write(&at, "theirs").expect("written");
    let b = l.next_broken().await;
    assert_eq!((b.lease_key, b.new_lease_state), (OTHER, LeaseState::empty()));
}

/// Another program replaces or removes a file whose handle a client caches: the client would go on using the old one.
#[tokio::test]
async fn a_file_that_another_program_replaces() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).expect("ours");
    let at = |name: &str| directory.path().join(name);
    let l = Leases::new(Capabilities::DIRECTORY_LEASING);
    let l = Leases { w: hosted(l.w, directory.path()), ..l };
    let changes: [&dyn Fn(); 2] = [
        &|| {
            std::fs::write(at("new"), "")
                .and_then(|()| std::fs::rename(at("new"), at("f")))
                .expect("replaced")
        },
        &|| std::fs::remove_file(at("f")).expect("removed"),
    ];
    for change in changes {
        let how = How { access: AccessMask::READ_DATA, ..How::OPEN_IF };
        let (id, _) = l.try_open("f", how, lease(OTHER, RH, None)).await.expect("opened");
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert!(l.broken().is_none());
        change();
        let b = l.next_broken().await;
        assert_eq!((b.lease_key, b.new_lease_state), (OTHER, LeaseState::READ_CACHING));
        l.w.close(id).await;
        while l.broken().is_some() {}
    }
}
