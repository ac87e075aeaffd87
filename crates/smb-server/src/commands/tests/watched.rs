//! Changes of metadata as a backend receives them: one after the other, and stored when that was requested.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arena::Sg;
use env::{Ctx, Io};
use parking_lot::Mutex;
use smb_wire::FileTime;
use smb_wire::context::{CreateRequestContext, Lease, LeaseFlags, LeaseV2};
use smb_wire::fscc::{FileInfoClass, FileRenameInformation};
use smb_wire::ioctl::ZeroData;
use smb_wire::msg::{
    Capabilities, CreateAction, FsctlCode, IoctlFlags, IoctlRequest, LeaseState, SecurityInformation,
};
use vfs::{
    BasicChange, Data, DirEntry, ExtendedAttribute, FileKey, Kind, Node, OpenRequest, Opened, ReadOptions,
    ReportChange, Rights, Space, Stat, StreamInfo, StreamName, Timestamp, TreeChange, Vfs, VfsPath,
    VfsResult, VolumeInfo, WatchGuard,
};

use super::*;
use crate::files::caching::HolderState;
use crate::open::Open;

/// The observed calls.
#[derive(Default)]
struct Seen {
    flushes: AtomicUsize,
    /// Number of security descriptors that were read and not yet stored again: current and maximum.
    read: AtomicUsize,
    read_most: AtomicUsize,
    /// Watches that exist.
    watches: AtomicUsize,
    /// The callback of the latest watch.
    report: Mutex<Option<ReportChange>>,
}

struct Watched {
    inner: Arc<dyn Vfs>,
    seen: Arc<Seen>,
}

struct WatchedNode {
    inner: Arc<dyn Node>,
    seen: Arc<Seen>,
}

macro_rules! pass_on {
    ($($name:ident($($a:ident: $t:ty),*) -> $r:ty;)*) => {
        $(fn $name(&self, $($a: $t),*) -> $r {
            self.inner.$name($($a),*)
        })*
    };
}

impl Vfs for Watched {
    pass_on! {
        info() -> &VolumeInfo;
        space(c: &Ctx) -> Io<VfsResult<Space>>;
        remove(c: &Ctx, path: &VfsPath, id: FileKey) -> Io<VfsResult<()>>;
        rename(c: &Ctx, from: &VfsPath, id: FileKey, to: &VfsPath, replace: bool) -> Io<VfsResult<()>>;
        link(c: &Ctx, from: &VfsPath, id: FileKey, to: &VfsPath, replace: bool) -> Io<VfsResult<()>>;
    }

    fn open(&self, c: &Ctx, request: OpenRequest) -> Io<VfsResult<Opened>> {
        let (opening, seen) = (self.inner.open(c, request), Arc::clone(&self.seen));
        Io::pending(async move {
            let opened = opening.wait().await?;
            tokio::task::yield_now().await;
            let node = Arc::new(WatchedNode { inner: opened.node, seen });
            Ok(Opened { node, ..opened })
        })
    }

    fn watch(&self, _: &VfsPath, _: bool, report: &ReportChange) -> Io<Option<WatchGuard>> {
        *self.seen.report.lock() = Some(Arc::clone(report));
        let guard = Guard::new(&self.seen);
        Io::pending(async {
            tokio::task::yield_now().await;
            Some(Box::new(guard) as WatchGuard)
        })
    }
}

/// A watch, counted in [`Seen::watches`].
struct Guard(Arc<Seen>);

impl Guard {
    fn new(seen: &Arc<Seen>) -> Guard {
        seen.watches.fetch_add(1, Ordering::Relaxed);
        Guard(Arc::clone(seen))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.watches.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Node for WatchedNode {
    pass_on! {
        id() -> FileKey;
        kind() -> Kind;
        stat(c: &Ctx) -> Io<VfsResult<Stat>>;
        set_basic(c: &Ctx, change: BasicChange) -> Io<VfsResult<()>>;
        read(c: &Ctx, offset: u64, want: ReadOptions<'_>) -> Io<VfsResult<Data>>;
        write(c: &Ctx, offset: u64, src: Sg) -> Io<VfsResult<u32>>;
        set_len(c: &Ctx, len: u64) -> Io<VfsResult<()>>;
        set_allocation(c: &Ctx, len: u64) -> Io<VfsResult<()>>;
        set_sparse(c: &Ctx, sparse: bool) -> Io<VfsResult<()>>;
        set_compressed(c: &Ctx, compressed: bool) -> Io<VfsResult<()>>;
        zero(c: &Ctx, range: Range<u64>) -> Io<VfsResult<()>>;
        allocated(c: &Ctx, range: Range<u64>, limit: usize) -> Io<VfsResult<Vec<Range<u64>>>>;
        copy_to(c: &Ctx, from: u64, target: &Arc<dyn Node>, to: u64, length: u64) -> Io<VfsResult<u64>>;
        list(c: &Ctx, restart: bool, limit: usize) -> Io<VfsResult<Vec<DirEntry>>>;
        lookup(c: &Ctx, name: &str) -> Io<VfsResult<DirEntry>>;
        is_empty(c: &Ctx) -> Io<VfsResult<bool>>;
        extended_attributes(c: &Ctx) -> Io<VfsResult<Vec<ExtendedAttribute>>>;
        set_extended_attributes(c: &Ctx, set: Vec<ExtendedAttribute>) -> Io<VfsResult<()>>;
        remove_stream(c: &Ctx, name: &StreamName) -> Io<VfsResult<()>>;
        rename_stream(c: &Ctx, from: &StreamName, to: Option<&StreamName>, replace: bool) -> Io<VfsResult<()>>;
    }

    fn streams(&self, c: &Ctx) -> Io<VfsResult<Vec<StreamInfo>>> {
        let listed = self.inner.streams(c);
        Io::pending(async move {
            let listed = listed.wait().await;
            tokio::task::yield_now().await;
            listed
        })
    }

    fn flush(&self, c: &Ctx) -> Io<VfsResult<()>> {
        self.seen.flushes.fetch_add(1, Ordering::Relaxed);
        self.inner.flush(c)
    }

    fn security(&self, c: &Ctx) -> Io<VfsResult<Option<Vec<u8>>>> {
        let now = self.seen.read.fetch_add(1, Ordering::Relaxed) + 1;
        self.seen.read_most.fetch_max(now, Ordering::Relaxed);
        let reading = self.inner.security(c);
        Io::pending(async move {
            tokio::task::yield_now().await;
            reading.wait().await
        })
    }

    fn set_security(&self, c: &Ctx, descriptor: Vec<u8>) -> Io<VfsResult<()>> {
        self.seen.read.fetch_sub(1, Ordering::Relaxed);
        self.inner.set_security(c, descriptor)
    }
}

/// A user of a share that is watched.
fn world() -> (World, Arc<Seen>) {
    let (w, seen) = (World::new(), Arc::<Seen>::default());
    let inner = Arc::clone(w.server.share("files").expect("there").vfs().expect("a disk"));
    let vfs = Arc::new(Watched { inner, seen: Arc::clone(&seen) });
    w.server.add_share(ShareConfig::new("watched", vfs)).expect("another name");
    let share = w.server.share("watched").expect("added");
    let tree = w.session.add_tree(2, |id| Tree::new(id, share, ALL.bits())).expect("the second");
    (World { tree, ..w }, seen)
}

async fn set_security(w: &World, file_id: FileId, descriptor: &[u8]) -> NtStatus {
    let q = SetInfoRequest {
        info_type: InfoType::SECURITY,
        additional_information: SecurityInformation::DACL,
        file_id,
        buffer: descriptor,
        ..Default::default()
    };
    crate::commands::set_info::handle(w.request(&q)).await.status
}

/// A stream is removed after the backend has opened it for another CREATE, and before that has joined it: the CREATE
/// finds that the stream is gone.
#[tokio::test(start_paused = true)]
async fn a_stream_is_removed_while_it_is_opened() {
    let (w, _) = world();
    let delete = How { options: CreateOptions::DELETE_ON_CLOSE, ..How::OPEN };
    let overwrite = How { disposition: CreateDisposition::OVERWRITE, ..How::OPEN };
    for (path, removing) in [("f:s", delete), ("f", overwrite), ("f", delete)] {
        for how in [How::OPEN, How::OPEN_IF] {
            w.close(w.create("f:s", How::OPEN_IF).await).await;
            let mut opening = Box::pin(w.try_create("f:s", how));
            assert!(futures_util::future::poll_immediate(&mut opening).await.is_none());
            w.close(w.create(path, removing).await).await;
            let opened = opening.await;
            if how.disposition == CreateDisposition::OPEN {
                assert_eq!(opened, Err(NtStatus::OBJECT_NAME_NOT_FOUND), "{path}");
            } else {
                let opened = opened.expect("a new stream");
                assert_eq!(opened.action, CreateAction::CREATED, "{path}");
                let size = 9_u64.to_le_bytes();
                assert_eq!(w.set(opened.id, FileInfoClass::END_OF_FILE.0, &size).await, NtStatus::SUCCESS);
                w.close(opened.id).await;
            }
        }
    }
    assert_eq!(w.server.files.open_files(), 0);
}

/// A stream is removed after an overwrite of the file has listed it.
#[tokio::test(start_paused = true)]
async fn a_stream_is_removed_while_the_file_is_overwritten() {
    let (w, _) = world();
    let delete = How { options: CreateOptions::DELETE_ON_CLOSE, ..How::OPEN_IF };
    let overwrite = How { disposition: CreateDisposition::OVERWRITE, ..How::OPEN };
    for polls in 0..8 {
        let stream = w.create("f:s", delete).await;
        let mut overwriting = Box::pin(w.try_create("f", overwrite));
        for _ in 0..polls {
            if let Some(opened) = futures_util::future::poll_immediate(&mut overwriting).await {
                return w.close(opened.expect("overwritten").id).await;
            }
        }
        w.close(stream).await;
        w.close(overwriting.await.expect("overwritten").id).await;
    }
    panic!("it takes fewer polls");
}

/// A directory is closed by its client before the server watches it for the lease.
#[tokio::test(start_paused = true)]
async fn a_directory_is_closed_before_it_is_watched() {
    let (mut w, seen) = world();
    Arc::get_mut(&mut w.facts).expect("not shared yet").server_capabilities =
        (Capabilities::LEASING | Capabilities::DIRECTORY_LEASING).bits();
    w.close(w.create("d", How::MKDIR).await).await;
    let mut contexts = CreateContextsBuf::new();
    let v2 = LeaseV2 { parent_lease_key: Guid::default(), epoch: 0 };
    let state = LeaseState::READ_CACHING | LeaseState::HANDLE_CACHING;
    let lease = Lease { key: Guid([7; 16]), state, flags: LeaseFlags::empty(), v2: Some(v2) };
    contexts.request(&CreateRequestContext::Lease(lease)).expect("it fits");
    let mut opening = Box::pin(w.create_with("d", How::OPEN, OplockLevel::LEASE, &contexts));
    while seen.watches.load(Ordering::Relaxed) == 0 {
        assert!(futures_util::future::poll_immediate(&mut opening).await.is_none());
    }
    let open = w.server.opens.all().pop().expect("one");
    w.server.release(&open).expect("not closed").close().await;
    opening.await;
    assert!(!w.tree.share.leases.any());
    assert_eq!((w.server.files.open_files(), seen.watches.load(Ordering::Relaxed)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn one_changes_the_descriptor_at_a_time() {
    let (w, seen) = world();
    let (f, g) = (w.create("f", How::CREATE).await, w.create("f", How::OPEN).await);
    let new = crate::access::for_new(&user(1000), None, None, false).expect("a descriptor");
    seen.read.store(0, Ordering::Relaxed);
    seen.read_most.store(0, Ordering::Relaxed);
    let both = tokio::join!(set_security(&w, f, &new), set_security(&w, g, &new));
    assert_eq!(both, (NtStatus::SUCCESS, NtStatus::SUCCESS));
    assert_eq!(seen.read_most.load(Ordering::Relaxed), 1);
}

async fn ioctl(w: &World, ctl_code: FsctlCode, file_id: FileId, input: &[u8]) -> NtStatus {
    let q = IoctlRequest {
        ctl_code,
        file_id,
        input,
        max_output_response: 64,
        flags: IoctlFlags::IS_FSCTL,
        ..Default::default()
    };
    crate::commands::ioctl::handle(w.request(&q)).await.status
}

// FILE_WRITE_THROUGH applies to all changes of data, not only to WRITE.
#[tokio::test(start_paused = true)]
async fn changes_go_through_where_writes_do() {
    let (w, seen) = world();
    let changes = async |file_id: FileId| {
        let before = seen.flushes.load(Ordering::Relaxed);
        let size = 100_000_u64.to_le_bytes();
        assert_eq!(w.set(file_id, FileInfoClass::END_OF_FILE.0, &size).await, NtStatus::SUCCESS);
        assert_eq!(w.set(file_id, FileInfoClass::ALLOCATION.0, &size).await, NtStatus::SUCCESS);
        let (mut zero, mut trim) = (Vec::new(), Vec::new());
        ZeroData { file_offset: 0, beyond_final_zero: 4096 }.encode(&mut zero);
        assert_eq!(ioctl(&w, FsctlCode::SET_ZERO_DATA, file_id, &zero).await, NtStatus::SUCCESS);
        // One range: a key, how many, where, how long (MS-FSCC 2.3.73).
        trim.extend([0, 0, 0, 0, 1, 0, 0, 0]);
        trim.extend(4096_u64.to_le_bytes());
        trim.extend(4096_u64.to_le_bytes());
        assert_eq!(ioctl(&w, FsctlCode::FILE_LEVEL_TRIM, file_id, &trim).await, NtStatus::SUCCESS);
        // Two chunks, from and to this file (MS-SMB2 2.2.31.1): durable together.
        let mut copy = [file_id.persistent.to_le_bytes(), file_id.volatile.to_le_bytes(), [0; 8]].concat();
        copy.extend([2, 0, 0, 0, 0, 0, 0, 0]);
        for from in [0_u64, 2000] {
            copy.extend([from.to_le_bytes(), (from + 50_000).to_le_bytes(), 1000_u64.to_le_bytes()].concat());
        }
        assert_eq!(ioctl(&w, FsctlCode::SRV_COPYCHUNK, file_id, &copy).await, NtStatus::SUCCESS);
        seen.flushes.load(Ordering::Relaxed) - before
    };
    let plain = w.create("f", How::CREATE).await;
    assert_eq!(changes(plain).await, 0);
    let through = w.create("f", How { options: CreateOptions::WRITE_THROUGH, ..How::OPEN }).await;
    assert_eq!(changes(through).await, 5);
}

fn path(text: &str) -> VfsPath {
    VfsPath::parse(text).expect("legal")
}

/// A new file that its client caches.
async fn cached(w: &World) -> Arc<Open> {
    tokio::time::sleep(Duration::from_secs(1)).await;
    let reply = w.create_with("f", How::CREATE, OplockLevel::BATCH, &CreateContextsBuf::new()).await;
    let id = success::<CreateResponse<'_>>(&reply).expect("created").file_id;
    w.server.opens.find(id.persistent).expect("open")
}

/// The caching rights of an open.
fn rights(open: &Open) -> Option<HolderState> {
    let f = open.file().expect("a file");
    f.file.held(f.holder.expect("cached"))
}

/// The backend reports a change, and the server has handled the report.
async fn report(seen: &Seen, change: TreeChange) {
    let report = seen.report.lock().clone().expect("a watch");
    report(change);
    tokio::time::sleep(Duration::from_millis(300)).await;
}

/// The file, opened by another program.
async fn opened_by_another(w: &World) -> Arc<dyn Node> {
    let share = w.server.share("files").expect("there");
    let rights = Rights { read: false, write: true };
    let request = OpenRequest { rights, ..OpenRequest::for_metadata(path("f")) };
    let opened = share.vfs().expect("a disk").open(&Ctx::default(), request).wait().await;
    opened.expect("there").node
}

async fn resize(w: &World, open: &Open, size: u64) {
    let id = open.id();
    assert_eq!(w.set(id, FileInfoClass::END_OF_FILE.0, &size.to_le_bytes()).await, NtStatus::SUCCESS);
}

/// Another program writes to a file shortly after the server: its write breaks the caching of the file, and the
/// server's own changes do not.
#[tokio::test(start_paused = true)]
async fn another_program_writes_shortly_after_the_server() {
    let (w, seen) = world();
    let open = cached(&w).await;
    let before = rights(&open);
    let data = || TreeChange::Data(path("f"));
    resize(&w, &open, 1).await;
    report(&seen, data()).await;
    assert_eq!(rights(&open), before, "the server's own write");

    let node = opened_by_another(&w).await;
    resize(&w, &open, 2).await;
    let later = w.server.env.unix_time() + Duration::from_secs(3600);
    let written = Timestamp { seconds: later.as_secs() as i64, nanoseconds: 0 };
    let change = BasicChange { written: Some(written), ..BasicChange::default() };
    node.set_basic(&Ctx::default(), change).wait().await.expect("memory");
    report(&seen, data()).await;
    assert_eq!(rights(&open), before, "a time in the future");

    resize(&w, &open, 3).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    node.set_len(&Ctx::default(), 4).wait().await.expect("memory");
    report(&seen, data()).await;
    assert_ne!(rights(&open), before, "another program's write");
}

/// A client sets the last write time of its file, by a clock that is slightly ahead.
#[tokio::test(start_paused = true)]
async fn a_time_that_a_client_sets_is_no_write_of_another_program() {
    let (w, seen) = world();
    let open = cached(&w).await;
    let before = rights(&open);
    let time = w.server.env.unix_time() + Duration::from_millis(50);
    let mut basic = [0; 40];
    let written = FileTime::from_unix(time.as_secs() as i64, time.subsec_nanos());
    basic[16..24].copy_from_slice(&written.0.to_le_bytes());
    resize(&w, &open, 1).await;
    assert_eq!(w.set(open.id(), FileInfoClass::BASIC.0, &basic).await, NtStatus::SUCCESS);
    report(&seen, TreeChange::Data(path("f"))).await;
    assert_eq!(rights(&open), before);
}

/// Each change of a name by the server excuses one report, and no change by another program.
#[tokio::test(start_paused = true)]
async fn another_program_changes_a_name_shortly_after_the_server() {
    let added = || TreeChange::Added(path("f"), Kind::File);
    for theirs in [Some(TreeChange::Removed(path("f"), Kind::File)), Some(added()), None] {
        let (w, seen) = world();
        let open = cached(&w).await;
        let before = rights(&open);
        report(&seen, added()).await;
        assert_eq!(rights(&open), before, "the server's own creation");
        if let Some(theirs) = theirs {
            report(&seen, theirs.clone()).await;
            assert_ne!(rights(&open), before, "another program's change: {theirs:?}");
            continue;
        }
        let (name, mut bytes) = (Utf16Buf::from("g"), Vec::new());
        let q = FileRenameInformation { replace_if_exists: false, root_directory: 0, name: name.as_utf16() };
        q.encode(&mut bytes).expect("fits");
        assert_eq!(w.set(open.id(), FileInfoClass::RENAME.0, &bytes).await, NtStatus::SUCCESS);
        let renamed = |from, to| TreeChange::Renamed { from: path(from), to: path(to), kind: Kind::File };
        report(&seen, renamed("f", "g")).await;
        assert_eq!(rights(&open), before, "the server's own rename");
        report(&seen, renamed("g", "f")).await;
        assert_ne!(rights(&open), before, "another program's rename");
    }
}
