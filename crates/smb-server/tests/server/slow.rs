//! Requests that wait long in the backend: interim responses (MS-SMB2 3.3.4.2), CANCEL (3.3.5.16), and other requests
//! that are answered meanwhile.

use std::ops::Range;
use std::sync::Arc;

use arena::Sg;
use env::{Ctx, Env, Io};
use smb_server::{Limits, ShareConfig};
use smb_wire::msg::{
    ChangeNotifyFlags, ChangeNotifyRequest, CloseFlags, CloseRequest, CompletionFilter, FlushRequest,
};
use smb_wire::{AccessMask, Command, FileId, Header, HeaderFlags, NtStatus};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use vfs::{
    BasicChange, Data, DirEntry, ExtendedAttribute, FileKey, Kind, Node, OpenRequest, Opened, RamFs,
    RamOptions, Space, Stat, Vfs, VfsPath, VfsResult, VolumeInfo, Want,
};

use crate::compound::cancel;
use crate::raw::{Raw, message};
use crate::world::World;

/// A tree in memory; while `gate` is false no write, flush or new open completes.
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
        read(c: &Ctx, offset: u64, want: Want<'_>) -> Io<VfsResult<Data>>;
        set_len(c: &Ctx, len: u64) -> Io<VfsResult<()>>;
        set_allocation(c: &Ctx, len: u64) -> Io<VfsResult<()>>;
        set_sparse(c: &Ctx, sparse: bool) -> Io<VfsResult<()>>;
        zero(c: &Ctx, range: Range<u64>) -> Io<VfsResult<()>>;
        allocated(c: &Ctx, range: Range<u64>, limit: usize) -> Io<VfsResult<Vec<Range<u64>>>>;
        copy_to(c: &Ctx, from: u64, target: &Arc<dyn Node>, to: u64, length: u64) -> Io<VfsResult<u64>>;
        list(c: &Ctx, restart: bool, limit: usize) -> Io<VfsResult<Vec<DirEntry>>>;
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
    // A CREATE, too.
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
    // And what does not take long gets none.
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
