//! CHANGE_NOTIFY (MS-SMB2 3.3.5.19, MS-FSA 2.1.5.11).

use std::future::Future;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use arena::Sg;
use smb_wire::fscc::notify::{Changes, NotifyAction as A};
use smb_wire::fscc::{FileInfoClass, FileRenameInformation};
use smb_wire::msg::{
    ChangeNotifyFlags, ChangeNotifyRequest, ChangeNotifyResponse, CompletionFilter as F, WriteRequest,
};

use super::*;
use crate::connection::Outcome;

const NAMES: F = F::FILE_NAME.union(F::DIR_NAME);

fn notify(w: &World, file_id: FileId, tree: bool, completion_filter: F, output: u32) -> Request {
    let flags = if tree { ChangeNotifyFlags::WATCH_TREE } else { ChangeNotifyFlags::empty() };
    w.request(&ChangeNotifyRequest { flags, output_buffer_length: output, file_id, completion_filter })
}

type Pending = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// A request that has reached its queue.
fn ask(w: &World, id: FileId, tree: bool, filter: F, output: u32) -> Pending {
    let mut pending: Pending = Box::pin(crate::commands::notify::handle(notify(w, id, tree, filter, output)));
    assert!(futures_util::FutureExt::now_or_never(&mut pending).is_none(), "nothing has happened yet");
    pending
}

/// The answer to a request.
async fn next_events(w: &World, id: FileId, tree: bool, filter: F) -> Vec<(A, String)> {
    events(&crate::commands::notify::handle(notify(w, id, tree, filter, 4096)).await)
}

fn events(reply: &Reply) -> Vec<(A, String)> {
    assert_eq!(reply.status, NtStatus::SUCCESS);
    let body = ChangeNotifyResponse::decode(&reply.message).expect("our own reply");
    let events = Changes::new(body.buffer).map(|c| c.expect("our own list"));
    events.map(|c| (c.action, c.name.to_string().expect("UTF-16"))).collect()
}

fn event(action: A, name: &str) -> (A, String) {
    (action, name.into())
}

async fn touch(w: &World, path: &str) {
    let id = w.create(path, How::CREATE).await;
    w.close(id).await;
}

async fn rename(w: &World, id: FileId, to: &str) -> NtStatus {
    let (name, mut bytes) = (Utf16Buf::from(to), Vec::new());
    let q = FileRenameInformation { replace_if_exists: true, root_directory: 0, name: name.as_utf16() };
    q.encode(&mut bytes).expect("fits");
    w.set(id, FileInfoClass::RENAME.0, &bytes).await
}

/// A directory `d`, opened so that names may be moved into it.
async fn world() -> (World, FileId) {
    let w = World::new();
    let d = w.create("d", How { access: ALL & !AccessMask::DELETE, ..How::MKDIR }).await;
    (w, d)
}

// MS-SMB2 3.3.1.3: one change answers the oldest request; changes between requests are kept.
#[tokio::test(start_paused = true)]
async fn changes_are_told_and_kept() {
    let (w, d) = world().await;
    let (first, second) = (ask(&w, d, false, NAMES, 4096), ask(&w, d, false, NAMES, 4096));
    touch(&w, "d\\f").await;
    assert_eq!(events(&first.await), [event(A::ADDED, "f")]);
    let f = w.create("d\\f", How::OPEN).await;
    assert_eq!(rename(&w, f, "d\\g").await, NtStatus::SUCCESS);
    let renamed = [event(A::RENAMED_OLD_NAME, "f"), event(A::RENAMED_NEW_NAME, "g")];
    assert_eq!(events(&second.await), renamed, "a rename's two halves come together");
    assert_eq!(rename(&w, f, "h").await, NtStatus::SUCCESS);
    assert_eq!(rename(&w, f, "d\\h").await, NtStatus::SUCCESS);
    w.close(f).await;
    let e = w.create("d\\e", How { options: CreateOptions::DELETE_ON_CLOSE, ..How::MKDIR });
    w.close(e.await).await;
    touch(&w, "d\\h2").await;
    let kept = [
        event(A::REMOVED, "g"),
        event(A::ADDED, "h"),
        event(A::ADDED, "e"),
        event(A::REMOVED, "e"),
        event(A::ADDED, "h2"),
    ];
    assert_eq!(next_events(&w, d, false, NAMES).await, kept);
}

// MS-FSA 2.1.4.1: below the directory only with WATCH_TREE; the first request's filter and depth count.
#[tokio::test(start_paused = true)]
async fn trees_and_filters() {
    let (w, d) = world().await;
    let top = w.create("", How::OPEN).await;
    let e = w.create("d\\e", How::MKDIR).await;
    let flat = ask(&w, d, false, F::DIR_NAME, 4096);
    let deep = ask(&w, top, true, NAMES, 4096);
    touch(&w, "d\\e\\f").await;
    assert_eq!(events(&deep.await), [event(A::ADDED, "d\\e\\f")]);
    touch(&w, "d\\g").await;
    let x = w.create("d\\x", How::MKDIR).await;
    assert_eq!(events(&flat.await), [event(A::ADDED, "x")]);
    drop(ask(&w, d, true, NAMES, 4096));
    touch(&w, "d\\h").await;
    touch(&w, "d\\x\\i").await;
    w.close(x).await;
    w.close(e).await;
    let y = w.create("d\\y", How::MKDIR).await;
    assert_eq!(next_events(&w, d, true, NAMES).await, [event(A::ADDED, "y")]);
    w.close(y).await;
}

/// Writes a byte.
async fn write(w: &World, file_id: FileId, offset: u64) {
    let data_offset = WriteRequest::HEAD_LEN as u16;
    let q = WriteRequest { length: 1, data_offset, offset, file_id, ..Default::default() };
    let request = w.request(&q);
    let mut message = request.message.to_vec();
    message.resize(WriteRequest::HEAD_LEN + 1, 7);
    let whole: Sg = [IoBuf::from(message)].into_iter().collect();
    let Outcome::Reply(reply) = crate::commands::write::start(request, &whole, None) else {
        panic!("memory does not wait")
    };
    assert_eq!(reply.status, NtStatus::SUCCESS);
}

// MS-FSA 2.1.5.3, 2.1.5.4: the changes of a WRITE are reported once, with the close.
#[tokio::test(start_paused = true)]
async fn writes_are_told_at_close() {
    let (w, d) = world().await;
    touch(&w, "d\\f").await;
    let (any, size) = (ask(&w, d, false, F::all(), 4096), w.create("d", How::OPEN).await);
    let size = ask(&w, size, false, F::SIZE, 4096);
    let f = w.create("d\\f", How::OPEN).await;
    for offset in 0..3 {
        write(&w, f, offset).await;
    }
    w.close(f).await;
    assert_eq!(events(&any.await), [event(A::MODIFIED, "f")]);
    assert_eq!(events(&size.await), [event(A::MODIFIED, "f")]);
}

// MS-FSA 2.1.5.1.2, 2.1.5.4: named streams have filters and actions of their own.
#[tokio::test(start_paused = true)]
async fn named_streams() {
    let (w, d) = world().await;
    touch(&w, "d\\f").await;
    let streams = F::STREAM_NAME | F::STREAM_SIZE | F::STREAM_WRITE;
    drop(ask(&w, d, false, streams, 4096));
    let f = w.create("d\\f:s", How::OPEN_IF).await;
    write(&w, f, 0).await;
    w.close(f).await;
    let delete = How { options: CreateOptions::DELETE_ON_CLOSE, ..How::OPEN };
    w.close(w.create("d\\f:S", delete).await).await;
    w.close(w.create("d\\f", How::OPEN).await).await;
    let seen =
        [event(A::ADDED_STREAM, "f:s"), event(A::MODIFIED_STREAM, "f:s"), event(A::REMOVED_STREAM, "f:s")];
    assert_eq!(next_events(&w, d, false, streams).await, seen);
}

// MS-FSA 2.1.5.11.1: events that do not fit are dropped, and the client lists the directory.
#[tokio::test(start_paused = true)]
async fn overflow() {
    let (w, d) = world().await;
    drop(ask(&w, d, false, NAMES, 64));
    for i in 0..8 {
        touch(&w, &format!("d\\file{i}")).await;
    }
    let reply = crate::commands::notify::handle(notify(&w, d, false, NAMES, 4096)).await;
    assert_eq!(reply.status, NtStatus::NOTIFY_ENUM_DIR);
    touch(&w, "d\\g").await;
    assert_eq!(next_events(&w, d, false, NAMES).await, [event(A::ADDED, "g")], "it begins anew");
    let none = ask(&w, d, false, NAMES, 0);
    touch(&w, "d\\h").await;
    assert_eq!(none.await.status, NtStatus::NOTIFY_ENUM_DIR, "the client wants no details");
}

// MS-SMB2 3.3.5.16, 3.3.5.10; MS-FSA 2.1.5.15.3.
#[tokio::test(start_paused = true)]
async fn watches_end() {
    let (w, d) = world().await;
    let request = notify(&w, d, false, NAMES, 4096);
    let cancel = request.cancel.clone();
    let mut pending: Pending = Box::pin(crate::commands::notify::handle(request));
    assert!(futures_util::FutureExt::now_or_never(&mut pending).is_none());
    cancel.cancel();
    assert_eq!(pending.await.status, NtStatus::CANCELLED);
    let other = w.create("d", How::OPEN).await;
    let (closes, goes) = (ask(&w, d, false, NAMES, 4096), ask(&w, other, false, NAMES, 4096));
    w.close(d).await;
    assert_eq!(closes.await.status, NtStatus::NOTIFY_CLEANUP);
    let d = w.create("d", How::OPEN).await;
    assert_eq!(w.set(d, FileInfoClass::DISPOSITION.0, &[1]).await, NtStatus::SUCCESS);
    assert_eq!(goes.await.status, NtStatus::DELETE_PENDING);
    let late = crate::commands::notify::handle(notify(&w, other, false, NAMES, 4096)).await;
    assert_eq!(late.status, NtStatus::DELETE_PENDING);
}

#[tokio::test(start_paused = true)]
async fn who_may_watch_what() {
    let (w, _) = world().await;
    let f = w.create("f", How::CREATE).await;
    let status = async |id| crate::commands::notify::handle(notify(&w, id, false, NAMES, 64)).await.status;
    assert_eq!(status(f).await, NtStatus::INVALID_PARAMETER);
    let blind = w.create("d", How { access: AccessMask::READ_ATTRIBUTES, ..How::OPEN }).await;
    assert_eq!(status(blind).await, NtStatus::ACCESS_DENIED);
}

/// A share on a real directory.
pub(super) fn hosted(w: World, directory: &Path) -> World {
    let vfs = vfs::HostDir::open(directory, vfs::HostDirOptions::default()).expect("a directory");
    w.server.add_share(ShareConfig::new("disk", vfs)).expect("another name");
    let share = w.server.share("disk").expect("added");
    let tree = w.session.add_tree(2, |id| Tree::new(id, share, ALL.bits())).expect("the second");
    World { tree, ..w }
}

/// The changes reported up to and including `last`.
async fn until(w: &World, id: FileId, last: &str) -> Vec<(A, String)> {
    let mut all = Vec::new();
    while !all.iter().any(|(_, name)| name == last) {
        let next = next_events(w, id, true, F::all());
        all.extend(
            tokio::time::timeout(Duration::from_secs(30), next)
                .await
                .expect("the server reports the changes"),
        );
    }
    all
}

/// A request whose client has got the interim response.
async fn waiting(w: &World, id: FileId, tree: bool) -> Pending {
    let request = notify(w, id, tree, F::all(), 4096);
    let inbox = Arc::clone(&request.pending.inbox);
    let mut pending: Pending = Box::pin(crate::commands::notify::handle(request));
    for _ in 0..20_000 {
        assert!(futures_util::FutureExt::now_or_never(&mut pending).is_none(), "nothing has happened yet");
        if !inbox.take_pending().is_empty() {
            return pending;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("no interim response");
}

// MS-FSA 2.1.5.11: the changes after the interim response are reported, also those that another program makes at once.
#[tokio::test]
async fn a_change_right_after_the_interim_response() {
    let directory = tempfile::tempdir().expect("a directory");
    let w = hosted(World::new(), directory.path());
    let look = How { access: AccessMask::READ_DATA, ..How::OPEN };
    for (n, tree) in (0..20).flat_map(|n| [(n, false), (n, true)]) {
        let name = format!("{n}{tree}");
        let below = directory.path().join(&name).join("below");
        std::fs::create_dir_all(&below).expect("made");
        let id = w.create(&name, look).await;
        let pending = waiting(&w, id, tree).await;
        let at = if tree { "below\\f" } else { "f" };
        std::fs::write(directory.path().join(&name).join(at.replace('\\', "/")), "").expect("written");
        let reply = tokio::time::timeout(Duration::from_secs(30), pending).await.expect("it is reported");
        assert!(events(&reply).contains(&event(A::ADDED, at)), "{name}: {:?}", events(&reply));
        w.close(id).await;
    }
}

// The changes of other programs are reported; the changes of the server are reported only once.
#[tokio::test]
async fn changes_from_outside() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).expect("ours");
    let w = hosted(World::new(), directory.path());
    let top = w.create("", How { access: AccessMask::READ_DATA, ..How::OPEN }).await;
    drop(waiting(&w, top, true).await);
    touch(&w, "own").await;
    std::fs::write(directory.path().join("foreign"), "x").expect("written");
    tokio::time::sleep(Duration::from_millis(400)).await;
    std::fs::write(directory.path().join("end"), "x").expect("written");
    let all = until(&w, top, "end").await;
    let of = |name: &str| all.iter().filter(|(_, n)| n == name).map(|(a, _)| *a).collect::<Vec<_>>();
    assert_eq!(of("own"), [A::ADDED]);
    assert_eq!(of("foreign"), [A::ADDED, A::MODIFIED]);
}

// The backend reports every change of names by the server, too: none of these counts as another program's.
#[tokio::test]
async fn own_changes_of_names_are_reported_once() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).expect("ours");
    let w = hosted(World::new(), directory.path());
    let top = w.create("", How { access: AccessMask::READ_DATA, ..How::OPEN }).await;
    drop(waiting(&w, top, true).await);
    let a = w.create("a", How::CREATE).await;
    touch(&w, "c").await;
    assert_eq!(rename(&w, a, "b").await, NtStatus::SUCCESS);
    assert_eq!(rename(&w, a, "c").await, NtStatus::SUCCESS);
    assert_eq!(rename(&w, a, "C").await, NtStatus::SUCCESS);
    w.close(a).await;
    w.close(w.create("m", How::MKDIR).await).await;
    for name in ["C", "m"] {
        let delete = How { options: CreateOptions::DELETE_ON_CLOSE, ..How::OPEN };
        w.close(w.create(name, delete).await).await;
    }
    tokio::time::sleep(Duration::from_millis(400)).await;
    std::fs::write(directory.path().join("end"), "x").expect("written");
    let mut all = until(&w, top, "end").await;
    all.retain(|(action, name)| *action != A::MODIFIED && name != "end");
    let expected = [
        event(A::ADDED, "a"),
        event(A::ADDED, "c"),
        event(A::RENAMED_OLD_NAME, "a"),
        event(A::RENAMED_NEW_NAME, "b"),
        event(A::REMOVED, "b"),
        event(A::RENAMED_OLD_NAME, "c"),
        event(A::RENAMED_NEW_NAME, "C"),
        event(A::ADDED, "m"),
        event(A::REMOVED, "C"),
        event(A::REMOVED, "m"),
    ];
    assert_eq!(all, expected);
}

// MS-FSA 2.1.5.11: a watch reports what happens after it has begun. The system reports a change of the server's own a
// little later, also when there was no watch at the time of the change (here it watches the folder of a cached file).
#[tokio::test]
async fn own_changes_before_the_watch() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).expect("ours");
    let w = hosted(World::new(), directory.path());
    w.create_with("cached", How::CREATE, OplockLevel::BATCH, &CreateContextsBuf::new()).await;
    let look = How { access: AccessMask::READ_DATA, ..How::OPEN };
    let first = w.create("", look).await;
    drop(waiting(&w, first, true).await);
    w.close(first).await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    touch(&w, "own").await;
    let second = w.create("", look).await;
    let all = until(&w, second, "end");
    let end = async {
        tokio::time::sleep(Duration::from_millis(400)).await;
        std::fs::write(directory.path().join("end"), "x").expect("written");
    };
    let (all, ()) = futures_util::future::join(all, end).await;
    assert!(!all.iter().any(|(_, name)| name == "own"), "{all:?}");
}

// A long list of changes is charged to the arena, like every long reply: one that its client does not receive holds
// memory within the budget.
#[tokio::test(start_paused = true)]
async fn a_long_answer_is_memory_of_the_arena() {
    let (w, d) = world().await;
    let first = ask(&w, d, false, NAMES, 65_536);
    touch(&w, "d\\first").await;
    assert_eq!(events(&first.await).len(), 1);
    let names: Vec<_> = (0..40).map(|n| format!("{n:0200}")).collect();
    for name in &names {
        touch(&w, &format!("d\\{name}")).await;
    }
    let before = w.server.arena.usage().used;
    let mut reply = crate::commands::notify::handle(notify(&w, d, false, NAMES, 65_536)).await;
    let vfs::Data::Bufs(payload) = &reply.payload else { panic!("output is no file") };
    assert!(arena::sg_len(payload) > 40 * 400, "{} bytes", arena::sg_len(payload));
    assert!(w.server.arena.usage().used >= before + arena::sg_len(payload));
    let payload = arena::sg_to_vec(payload);
    reply.message.extend(payload);
    let told: Vec<_> = events(&reply).into_iter().map(|(_, name)| name).collect();
    assert_eq!(told, names);
}
