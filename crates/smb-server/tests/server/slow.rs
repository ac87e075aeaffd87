//! Requests that wait long in the backend: interim responses (MS-SMB2 3.3.4.2), CANCEL (3.3.5.16), and other requests
//! that are answered meanwhile.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use arena::Sg;
use env::{Ctx, Env, Io};
use smb_server::{Limits, ShareConfig};
use smb_wire::fscc::{DirectoryEntries, FileInfoClass};
use smb_wire::msg::{
    ChangeNotifyFlags, ChangeNotifyRequest, CloseFlags, CloseRequest, CompletionFilter, CreateDisposition,
    CreateRequest, FlushRequest, FsctlCode, ImpersonationLevel, IoctlFlags, IoctlRequest,
    QueryDirectoryRequest, QueryDirectoryResponse, ReadResponse,
};
use smb_wire::{
    AccessMask, Command, Decode, Encode, FileId, Header, HeaderFlags, NtStatus, ShareAccess, Utf16Buf,
};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use vfs::{
    BasicChange, Data, DirEntry, ExtendedAttribute, FileKey, Kind, Node, OpenRequest, Opened, RamFs,
    RamOptions, ReadOptions, Space, Stat, Vfs, VfsPath, VfsResult, VolumeInfo,
};

use crate::compound::cancel;
use crate::raw::{Raw, message};
use crate::world::World;

/// A tree in memory; while `gate` is false no write, flush, listing, copy or new open completes.
struct Gated {
    inner: Arc<dyn Vfs>,
    gate: watch::Receiver<bool>,
}

struct GatedNode {
    inner: Arc<dyn Node>,
    gate: watch::Receiver<bool>,
}

fn opened<T: Send + 'static>(gate: &watch::Receiver<bool>, io: Io<T>) -> Io<T> {
    let mut gate = gate.clone();
    Io::pending(async move {
        gate.wait_for(|is_open| *is_open).await.expect("the test holds the gate");
        io.wait().await
    })
}

macro_rules! pass_on {
    ($($name:ident($($a:ident: $t:ty),*) -> $r:ty;)*) => {
        $(fn $name(&self, $($a: $t),*) -> $r {
            self.inner.$name($($a),*)
        })*
    };
}

impl Vfs for Gated {
    pass_on! {
        info() -> &VolumeInfo;
        space(c: &Ctx) -> Io<VfsResult<Space>>;
        remove(c: &Ctx, path: &VfsPath, id: FileKey) -> Io<VfsResult<()>>;
        rename(c: &Ctx, from: &VfsPath, id: FileKey, to: &VfsPath, replace: bool) -> Io<VfsResult<()>>;
        link(c: &Ctx, from: &VfsPath, id: FileKey, to: &VfsPath, replace: bool) -> Io<VfsResult<()>>;
    }

    fn open(&self, c: &Ctx, request: OpenRequest) -> Io<VfsResult<Opened>> {
        let (opening, gate) = (opened(&self.gate, self.inner.open(c, request)), self.gate.clone());
        Io::pending(async move {
            let opened = opening.wait().await?;
            let node = Arc::new(GatedNode { inner: opened.node, gate });
            Ok(Opened { node, ..opened })
        })
    }
}

impl Node for GatedNode {
    pass_on! {
        id() -> FileKey;
        kind() -> Kind;
        stat(c: &Ctx) -> Io<VfsResult<Stat>>;
        set_basic(c: &Ctx, change: BasicChange) -> Io<VfsResult<()>>;
        read(c: &Ctx, offset: u64, want: ReadOptions<'_>) -> Io<VfsResult<Data>>;
        set_len(c: &Ctx, len: u64) -> Io<VfsResult<()>>;
        set_allocation(c: &Ctx, len: u64) -> Io<VfsResult<()>>;
        set_sparse(c: &Ctx, sparse: bool) -> Io<VfsResult<()>>;
        zero(c: &Ctx, range: Range<u64>) -> Io<VfsResult<()>>;
        allocated(c: &Ctx, range: Range<u64>, limit: usize) -> Io<VfsResult<Vec<Range<u64>>>>;
        lookup(c: &Ctx, name: &str) -> Io<VfsResult<DirEntry>>;
        is_empty(c: &Ctx) -> Io<VfsResult<bool>>;
        security(c: &Ctx) -> Io<VfsResult<Option<Vec<u8>>>>;
        set_security(c: &Ctx, descriptor: Vec<u8>) -> Io<VfsResult<()>>;
        extended_attributes(c: &Ctx) -> Io<VfsResult<Vec<ExtendedAttribute>>>;
        set_extended_attributes(c: &Ctx, set: Vec<ExtendedAttribute>) -> Io<VfsResult<()>>;
    }

    fn write(&self, c: &Ctx, offset: u64, src: Sg) -> Io<VfsResult<u32>> {
        opened(&self.gate, self.inner.write(c, offset, src))
    }

    fn list(&self, c: &Ctx, restart: bool, limit: usize) -> Io<VfsResult<Vec<DirEntry>>> {
        opened(&self.gate, self.inner.list(c, restart, limit))
    }

    fn copy_to(
        &self,
        c: &Ctx,
        from: u64,
        target: &Arc<dyn Node>,
        to: u64,
        length: u64,
    ) -> Io<VfsResult<u64>> {
        let target: &dyn Any = &**target;
        let target = &target.downcast_ref::<GatedNode>().expect("a node of this tree").inner;
        opened(&self.gate, self.inner.copy_to(c, from, target, to, length))
    }

    fn flush(&self, c: &Ctx) -> Io<VfsResult<()>> {
        opened(&self.gate, self.inner.flush(c))
    }
}

/// A client of the share `slow`, whose gate is open, with a file.
async fn connected(limits: Limits) -> (World, watch::Sender<bool>, Raw, FileId) {
    let world = World::new(Env::real(), 64 << 20, limits);
    let (open, gate) = watch::channel(true);
    let inner: Arc<dyn Vfs> = RamFs::new(&world.env, RamOptions::default()).expect("address space");
    world.server.add_share(ShareConfig::new("slow", Arc::new(Gated { inner, gate }))).expect("a new name");
    let mut raw = Raw::session(world.dial().await.0).await;
    raw.tree("slow").await;
    let file = raw.open("f").await;
    (world, open, raw, file)
}

async fn next(raw: &mut Raw) -> Header {
    let (header, _) = message(&mut raw.stream).await.expect("a message");
    raw.take_credits(&header);
    header
}

fn flush(raw: &mut Raw, file_id: FileId) -> Vec<u8> {
    raw.encode(Command::FLUSH, 1, &FlushRequest { file_id }, &[])
}

/// The interim response grants the credits; the final one is asynchronous, too.
#[tokio::test]
async fn what_takes_long_gets_an_interim_response() {
    let (_world, open, mut raw, file) = connected(Limits::default()).await;
    open.send_replace(false);
    let first = raw.next_id();
    let mut requests = raw.write(file, 0, b"data");
    requests.extend(flush(&mut raw, file));
    raw.stream.write_all(&requests).await.expect("sent");
    for n in 0..2 {
        let interim = next(&mut raw).await;
        assert_eq!((interim.status, interim.message_id), (NtStatus::PENDING, first + n));
        assert!(interim.flags.contains(HeaderFlags::ASYNC) && interim.credits > 0);
    }
    open.send_replace(true);
    for _ in 0..2 {
        let last = next(&mut raw).await;
        assert_eq!((last.status, last.credits), (NtStatus::SUCCESS, 0), "{:?}", last.command);
        assert!(last.flags.contains(HeaderFlags::ASYNC) && last.async_id != 0);
    }
    // A CREATE gets an interim response, too.
    open.send_replace(false);
    let creating = async {
        let (status, _) = raw.create("new", AccessMask::FILE_ALL_ACCESS).await;
        status
    };
    let opening = async {
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        open.send_replace(true);
    };
    assert_eq!(tokio::join!(creating, opening).0, NtStatus::SUCCESS);
    // A request that does not take long gets no interim response.
    let m = flush(&mut raw, file);
    raw.stream.write_all(&m).await.expect("sent");
    assert!(!next(&mut raw).await.flags.contains(HeaderFlags::ASYNC));
}

#[tokio::test]
async fn a_flush_is_cancelled() {
    let (_world, open, mut raw, file) = connected(Limits::default()).await;
    open.send_replace(false);
    let id = raw.next_id();
    let m = flush(&mut raw, file);
    raw.stream.write_all(&m).await.expect("sent");
    assert_eq!(next(&mut raw).await.status, NtStatus::PENDING);
    cancel(&mut raw, id).await;
    let last = next(&mut raw).await;
    assert_eq!((last.status, last.message_id), (NtStatus::CANCELLED, id));
}

/// Sends a request while the gate is closed, cancels it, and opens the gate; the status of the final response.
async fn cancelled(
    raw: &mut Raw,
    gate: &watch::Sender<bool>,
    command: Command,
    body: &impl Encode,
) -> NtStatus {
    gate.send_replace(false);
    let id = raw.next_id();
    let m = raw.encode(command, 1, body, &[]);
    raw.stream.write_all(&m).await.expect("sent");
    assert_eq!(next(raw).await.status, NtStatus::PENDING);
    cancel(raw, id).await;
    // The CANCEL has been carried out before this is answered.
    assert_eq!(raw.echo().await, Some(NtStatus::SUCCESS));
    gate.send_replace(true);
    let last = next(raw).await;
    assert_eq!(last.message_id, id);
    last.status
}

/// MS-SMB2 3.3.5.16: a CREATE that is cancelled while the backend opens the file leaves no open, and no new file.
#[tokio::test]
async fn a_create_is_cancelled() {
    let (world, gate, mut raw, _) = connected(Limits::default()).await;
    for (name, disposition) in [("new", CreateDisposition::CREATE), ("f", CreateDisposition::OVERWRITE)] {
        let f = raw.open("f").await;
        let m = raw.write(f, 0, b"data");
        raw.stream.write_all(&m).await.expect("sent");
        assert_eq!(next(&mut raw).await.status, NtStatus::SUCCESS);
        let opens = world.server.opens().len();
        let name = Utf16Buf::from(name);
        let body = CreateRequest {
            impersonation_level: ImpersonationLevel::IMPERSONATION,
            desired_access: AccessMask::FILE_ALL_ACCESS,
            share_access: ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE,
            create_disposition: disposition,
            name: name.as_utf16(),
            ..CreateRequest::default()
        };
        assert_eq!(cancelled(&mut raw, &gate, Command::CREATE, &body).await, NtStatus::CANCELLED);
        assert_eq!(world.server.opens().len(), opens);
    }
    let folder = raw.open("").await;
    assert_eq!(list(&mut raw, folder, "*").await, (NtStatus::SUCCESS, 3), "no new file");
    let f = raw.open("f").await;
    let m = raw.read(f, 0, 4);
    raw.stream.write_all(&m).await.expect("sent");
    assert_eq!(next(&mut raw).await.status, NtStatus::SUCCESS, "it was not overwritten");
}

fn listing<'a>(file_id: FileId, pattern: &'a Utf16Buf) -> QueryDirectoryRequest<'a> {
    QueryDirectoryRequest {
        info_class: FileInfoClass::NAMES.0,
        file_id,
        pattern: pattern.as_utf16(),
        output_buffer_length: 65_536,
        ..QueryDirectoryRequest::default()
    }
}

/// The status of a QUERY_DIRECTORY, and the number of entries.
async fn list(raw: &mut Raw, folder: FileId, pattern: &str) -> (NtStatus, usize) {
    let pattern = Utf16Buf::from(pattern);
    let (header, m) =
        raw.call(Command::QUERY_DIRECTORY, &listing(folder, &pattern)).await.expect("an answer");
    let entries = QueryDirectoryResponse::decode(&m)
        .map(|a| DirectoryEntries::new(a.buffer, FileInfoClass::NAMES).expect("a class").count());
    (header.status, entries.unwrap_or_default())
}

/// MS-SMB2 3.3.5.16: a search of a long directory is cancelled between two batches of entries. The next request finds
/// all entries that match.
#[tokio::test]
async fn a_listing_is_cancelled() {
    let (_world, gate, mut raw, _) = connected(Limits::default()).await;
    for n in 0..600 {
        raw.open(&format!("file{n:03}")).await;
    }
    let folder = raw.open("").await;
    let pattern = Utf16Buf::from("file59*");
    let query = listing(folder, &pattern);
    assert_eq!(cancelled(&mut raw, &gate, Command::QUERY_DIRECTORY, &query).await, NtStatus::CANCELLED);
    assert_eq!(list(&mut raw, folder, "file59*").await, (NtStatus::SUCCESS, 10));
    assert_eq!(list(&mut raw, folder, "file59*").await.0, NtStatus::NO_MORE_FILES);
}

/// MS-SMB2 3.3.5.15.6, 3.3.5.16: the chunk in progress is completed, and no further one is begun.
#[tokio::test]
async fn a_copy_is_cancelled() {
    let (_world, gate, mut raw, file) = connected(Limits::default()).await;
    let m = raw.write(file, 0, b"data");
    raw.stream.write_all(&m).await.expect("sent");
    assert_eq!(next(&mut raw).await.status, NtStatus::SUCCESS);
    let target = raw.open("target").await;
    // Three chunks (MS-SMB2 2.2.31.1): where from, where to, how long.
    let mut input = [file.persistent.to_le_bytes(), file.volatile.to_le_bytes(), [0; 8]].concat();
    input.extend([3, 0, 0, 0, 0, 0, 0, 0]);
    for to in [0_u64, 4, 8] {
        input.extend([0_u64.to_le_bytes(), to.to_le_bytes(), 4_u64.to_le_bytes()].concat());
    }
    let body = IoctlRequest {
        ctl_code: FsctlCode::SRV_COPYCHUNK,
        file_id: target,
        flags: IoctlFlags::IS_FSCTL,
        max_output_response: 12,
        input: &input,
        ..IoctlRequest::default()
    };
    assert_eq!(cancelled(&mut raw, &gate, Command::IOCTL, &body).await, NtStatus::CANCELLED);
    let m = raw.read(target, 0, 16);
    raw.stream.write_all(&m).await.expect("sent");
    let (header, m) = raw.answer().await.expect("an answer");
    assert_eq!(header.status, NtStatus::SUCCESS);
    assert_eq!(ReadResponse::decode(&m).expect("sound").data_length, 4, "one chunk");
}

/// CANCEL, CLOSE and ECHO are carried out however many requests wait; no interim response grants credits for more then.
#[tokio::test]
async fn reading_goes_on() {
    const PENDING: usize = 16;
    let limits = Limits { pending_per_connection: PENDING, max_credits: 128, ..Limits::default() };
    let (_world, open, mut raw, file) = connected(limits).await;
    let (folder, closed) = (raw.open("").await, raw.open("other").await);
    let notify = raw.next_id();
    for _ in 0..PENDING {
        let body = ChangeNotifyRequest {
            flags: ChangeNotifyFlags::empty(),
            output_buffer_length: 4096,
            file_id: folder,
            completion_filter: CompletionFilter::FILE_NAME,
        };
        let m = raw.encode(Command::CHANGE_NOTIFY, 1, &body, &[]);
        raw.stream.write_all(&m).await.expect("sent");
        assert_eq!(next(&mut raw).await.status, NtStatus::PENDING);
    }
    open.send_replace(false);
    let writes = raw.credits - 2;
    assert!(writes as usize > 2 * PENDING, "{writes} credits");
    for _ in 0..writes {
        let m = raw.write(file, 0, b"x");
        raw.stream.write_all(&m).await.expect("sent");
    }
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    cancel(&mut raw, notify).await;
    let last = next(&mut raw).await;
    assert_eq!((last.status, last.message_id), (NtStatus::CANCELLED, notify));
    let (header, _) = raw
        .call(Command::CLOSE, &CloseRequest { flags: CloseFlags::empty(), file_id: closed })
        .await
        .expect("an answer");
    assert_eq!(header.status, NtStatus::SUCCESS);
    assert_eq!(raw.echo().await, Some(NtStatus::SUCCESS));
    open.send_replace(true);
    for _ in 0..writes {
        let (header, _) = raw.answer().await.expect("an answer");
        assert_eq!((header.command, header.status), (Command::WRITE, NtStatus::SUCCESS));
    }
}
