//! The backend over virtual disks in memory.

mod pool;

use std::sync::Arc;

use arena::{Arena, IoBuf, Sg, sg_to_vec};
use env::{Ctx, Env, IoFlags};

use super::vhd::FOOTER;
use super::*;
use crate::{
    Data, FileKey, Kind, Node, OpenMode, OpenRequest, Opened, ReadOptions, Rights, Vfs, VfsError, VfsPath,
    VfsResult, conformance,
};
use pool::{Memory, STEP};

const KIB: u64 = 1 << 10;

struct Share {
    memory: Arc<Memory>,
    vfs: Arc<Spaces>,
    arena: Arena,
}

fn share() -> Share {
    let (memory, arena) = (Arc::new(Memory::default()), Arena::new(16 << 20).expect("memory"));
    let files = SpaceFiles::new(Env::real(), arena.clone());
    let options = SpacesOptions { label: "vms".into(), volume: 9, allow_delete: true };
    Share { vfs: Spaces::new(Arc::clone(&memory) as _, files, options), memory, arena }
}

fn path(name: &str) -> VfsPath {
    VfsPath::parse(name).expect("legal")
}

fn sg(bytes: &[u8]) -> Sg {
    bytes.chunks(3000).map(|b| IoBuf::from(b.to_vec())).collect()
}

impl Share {
    async fn open(&self, name: &str, mode: OpenMode) -> VfsResult<Opened> {
        let rights = Rights { read: true, write: true };
        let request = OpenRequest { mode, rights, ..OpenRequest::for_metadata(path(name)) };
        self.vfs.open(&Ctx::default(), request).wait().await
    }

    async fn create(&self, name: &str) -> Arc<dyn Node> {
        self.open(name, OpenMode::Create).await.expect("free").node
    }

    async fn read(&self, node: &Arc<dyn Node>, offset: u64, length: u32) -> Vec<u8> {
        let want = ReadOptions { length, arena: &self.arena, file_ok: false };
        match node.read(&Ctx::default(), offset, want).wait().await.expect("a read") {
            Data::Bufs(sg) => sg_to_vec(&sg),
            Data::File { .. } => panic!("not asked for"),
        }
    }

    async fn whole(&self, node: &Arc<dyn Node>) -> Vec<u8> {
        self.read(node, 0, 8 << 20).await
    }
}

async fn write(node: &Arc<dyn Node>, offset: u64, bytes: &[u8]) {
    assert_eq!(node.write(&Ctx::default(), offset, sg(bytes)).wait().await, Ok(bytes.len() as u32));
}

async fn set_len(node: &Arc<dyn Node>, length: u64) -> VfsResult<()> {
    node.set_len(&Ctx::default(), length).wait().await
}

async fn size(node: &Arc<dyn Node>) -> u64 {
    node.stat(&Ctx::default()).wait().await.expect("open").size
}

#[tokio::test]
async fn conforms_as_far_as_files_of_whole_blocks_can() {
    conformance::run_all(|| {
        let Share { vfs, arena, .. } = share();
        conformance::Subject {
            vfs,
            arena,
            keeps_data: true,
            keeps_metadata: false,
            keeps_holes: true,
            links: false,
            any_file: false,
            keep: Box::new(()),
        }
    })
    .await;
}

#[tokio::test]
async fn both_names_are_one_file() {
    let share = share();
    let (raw, vhd) =
        (share.create("Vm.img").await, share.open("vM.VHD", OpenMode::Open).await.expect("there"));
    assert_eq!((vhd.path.to_string(), vhd.node.id()), ("Vm.vhd".to_owned(), raw.id()));
    write(&raw, 0, &[7; 8192]).await;
    assert_eq!((size(&raw).await, size(&vhd.node).await), (8192, 8192 + FOOTER));
    assert_eq!(share.open("vm.vhd", OpenMode::Create).await.err(), Some(VfsError::Exists));
    let root = share.open("", OpenMode::Open).await.expect("the root").node;
    let names = async |restart, limit| {
        let some = root.list(&Ctx::default(), restart, limit).wait().await.expect("listed");
        some.into_iter().map(|e| (e.name, e.stat.size)).collect::<Vec<_>>()
    };
    assert_eq!(names(true, 1).await, [("Vm.img".to_owned(), 8192)]);
    assert_eq!(names(false, 9).await, [("Vm.vhd".to_owned(), 8192 + FOOTER)]);
    assert_eq!(names(false, 9).await, []);
}

#[tokio::test]
async fn names_that_are_no_disks_are_refused() {
    let share = share();
    for (name, error) in [
        ("notes.txt", VfsError::InvalidName),
        (".img", VfsError::InvalidName),
        ("img", VfsError::InvalidName),
        ("日.本", VfsError::InvalidName),
        ("folder\\a.img", VfsError::PathNotFound),
    ] {
        assert_eq!(share.open(name, OpenMode::Create).await.err(), Some(error), "{name}");
    }
    let request = OpenRequest {
        mode: OpenMode::Create,
        kind: Some(Kind::Directory),
        ..OpenRequest::for_metadata(path("folder.img"))
    };
    let made = share.vfs.open(&Ctx::default(), request).wait().await;
    assert_eq!(made.err(), Some(VfsError::Unsupported));
}

#[tokio::test]
async fn lengths_are_whole_blocks_and_the_footer() {
    let share = share();
    let (raw, vhd) =
        (share.create("vm.img").await, share.open("vm.vhd", OpenMode::Open).await.expect("there").node);
    for (node, length, wanted) in [
        (&raw, 4097, Ok(8192)),
        (&raw, 8192, Ok(8192)),
        (&vhd, 8192, Ok(8192)),
        (&vhd, 100, Ok(4096)),
        (&vhd, FOOTER, Ok(0)),
        (&vhd, 12_288 + FOOTER, Ok(12_288)),
        (&vhd, 12_288 + FOOTER + 1, Ok(16_384)),
        (&raw, u64::MAX, Err(VfsError::TooLarge)),
    ] {
        let done = set_len(node, length).await.map(|()| share.memory.size("vm"));
        assert_eq!(done, wanted, "{length}");
    }
    assert_eq!(set_len(&vhd, 0).await, Ok(()), "a client that writes it anew");
    assert_eq!((share.memory.size("vm"), size(&vhd).await), (0, FOOTER));
}

/// Only a fixed VHD has the bytes of its disk at their offsets.
#[tokio::test]
async fn a_dynamic_vhd_is_refused() {
    let share = share();
    let raw = share.create("vm.img").await;
    let vhd = share.open("vm.vhd", OpenMode::Open).await.expect("there").node;
    for (kind, wanted) in [(2, Ok(4096)), (3, Err(VfsError::Unsupported)), (4, Err(VfsError::Unsupported))] {
        let mut start = vec![1; 4096];
        start[..FOOTER as usize].copy_from_slice(&super::vhd::footer(raw.id(), 8192));
        start[63] = kind;
        assert_eq!(vhd.write(&Ctx::default(), 0, sg(&start)).wait().await, wanted, "disk type {kind}");
        assert_eq!(raw.write(&Ctx::default(), 0, sg(&start)).wait().await, Ok(4096), "any bytes");
    }
}

#[tokio::test]
async fn a_growing_file_changes_the_pool_once_a_step_and_ends_exactly() {
    let share = share();
    let raw = share.create("vm.img").await;
    for n in 0..STEP / 4096 * 2 {
        write(&raw, n * 4096, &[n as u8; 4096]).await;
    }
    assert_eq!(share.memory.resizes(), 2);
    write(&raw, 2 * STEP, &[1; 4096]).await;
    assert_eq!((size(&raw).await, share.memory.size("vm")), (2 * STEP + 4096, 3 * STEP));
    raw.flush(&Ctx::default()).wait().await.expect("flushed");
    assert_eq!((share.memory.resizes(), share.memory.size("vm")), (4, 2 * STEP + 4096));
    write(&raw, 2 * STEP + 4096, &[2; 4096]).await;
    raw.close(&Ctx::default()).wait().await.expect("closed");
    assert_eq!(share.memory.size("vm"), 2 * STEP + 8192);
    // When it is opened again, its length is unchanged.
    drop(raw);
    let again = share.open("vm.img", OpenMode::Open).await.expect("there");
    assert_eq!(again.stat.size, 2 * STEP + 8192);
}

#[tokio::test]
async fn whole_blocks_go_to_the_disk_as_they_are() {
    let share = share();
    let raw = share.create("vm.img").await;
    set_len(&raw, 64 * KIB).await.expect("a size");
    let c = Ctx { flags: IoFlags { write_through: true, unbuffered: false }, ..Ctx::default() };
    let before = share.memory.calls("vm");
    raw.write(&c, 8192, sg(&[3; 16384])).wait().await.expect("written");
    raw.zero(&c, 8192..12_288).wait().await.expect("zeroed");
    let after = share.memory.calls("vm");
    assert_eq!([0, 1, 2, 3].map(|i| after[i] - before[i]), [1, 1, 0, 1], "write, discard, no flush, through");
}

/// Concurrent writes of parts of the same block do not overwrite each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn neighbours_in_a_block_do_not_overwrite_each_other() {
    let share = share();
    let raw = share.create("vm.img").await;
    set_len(&raw, 8192).await.expect("a size");
    for turn in 0..50u8 {
        let writes = (0..32u64).map(|n| {
            let raw = Arc::clone(&raw);
            tokio::spawn(async move { write(&raw, n * 256, &[turn.wrapping_add(n as u8); 256]).await })
        });
        for write in writes.collect::<Vec<_>>() {
            write.await.expect("no panic");
        }
        let expected: Vec<u8> = (0..8192u64).map(|at| turn.wrapping_add((at / 256) as u8)).collect();
        assert!(share.memory.bytes("vm") == expected, "turn {turn}");
    }
}

#[tokio::test]
async fn without_leave_nothing_is_removed_and_with_it_open_files_fail() {
    let share = share();
    let raw = share.create("vm.img").await;
    write(&raw, 0, &[1; 4096]).await;
    let files = SpaceFiles::new(Env::real(), share.arena.clone());
    let options = SpacesOptions { label: "vms".into(), volume: 9, allow_delete: false };
    let kept = Spaces::new(Arc::clone(&share.memory) as _, files, options);
    let c = Ctx::default();
    assert!(!kept.info().removal && share.vfs.info().removal);
    assert!(!share.vfs.info().removal_keeps_opens);
    assert_eq!(kept.remove(&c, &path("vm.vhd"), raw.id()).wait().await, Err(VfsError::AccessDenied));
    assert_eq!(share.vfs.remove(&c, &path("vm.vhd"), raw.id()).wait().await, Ok(()));
    assert_eq!(raw.write(&c, 0, sg(&[1; 4096])).wait().await, Err(VfsError::Stale));
    assert_eq!(share.open("vm.img", OpenMode::Open).await.err(), Some(VfsError::NotFound));
}

#[tokio::test]
async fn a_pool_that_takes_no_changes_leaves_files_as_they_were() {
    let share = share();
    let (raw, c) = (share.create("vm.img").await, Ctx::default());
    write(&raw, 0, &[1; 4096]).await;
    share.memory.set_broken(true);
    let refused = Err(VfsError::Io(libc::ENODEV));
    assert_eq!(raw.write(&c, 4 * STEP, sg(&[2; 10])).wait().await, refused);
    assert_eq!(set_len(&raw, 0).await.map(|()| 0), refused);
    assert_eq!(share.vfs.remove(&c, &path("vm.img"), raw.id()).wait().await.map(|()| 0), refused);
    share.memory.set_broken(false);
    assert_eq!(size(&raw).await, 4096);
    assert_eq!(share.whole(&raw).await, [1; 4096]);
}

/// Random calls on both names against two vectors: the data, and the footer behind it.
#[tokio::test]
async fn both_forms_are_the_bytes_that_were_written() {
    for seed in 0..40 {
        Model::run(seed).await;
    }
}

struct Model {
    random: u64,
    data: Vec<u8>,
    /// The bytes that a client wrote behind the data.
    footer: Option<Vec<u8>>,
}

impl Model {
    fn below(&mut self, n: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % n
    }

    fn bytes(&mut self, n: u64) -> Vec<u8> {
        let first = self.below(250) as u8;
        (0..n).map(|at| first.wrapping_add(at as u8) | 1).collect()
    }

    async fn run(seed: u64) {
        let share = share();
        let (raw, id) = {
            let raw = share.create("vm.img").await;
            let id = raw.id();
            (raw, id)
        };
        let vhd = share.open("vm.vhd", OpenMode::Open).await.expect("there").node;
        let mut m = Model { random: seed, data: Vec::new(), footer: None };
        for step in 0..150 {
            let at = format!("seed {seed}, step {step}");
            match m.below(10) {
                0..=2 => m.write_raw(&raw).await,
                3..=5 => m.write_vhd(&vhd, id).await,
                6 => m.zero(&raw).await,
                7 => m.cut(&raw, &vhd).await,
                8 => raw.flush(&Ctx::default()).wait().await.expect("flushed"),
                _ => vhd.close(&Ctx::default()).wait().await.expect("closed"),
            }
            m.compare(&share, &raw, &vhd, id, &at).await;
        }
    }

    fn footer(&self, id: FileKey) -> Vec<u8> {
        let made = || super::vhd::footer(id, self.data.len() as u64).to_vec();
        self.footer.clone().unwrap_or_else(made)
    }

    /// Resizes the data; a footer that was written by the VHD's name keeps its position.
    fn resize(&mut self, length: u64, by_vhd: bool) {
        let kept = (length as usize != self.data.len()).then(|| self.footer.take()).flatten();
        let old = self.data.len();
        self.data.resize(length as usize, 0);
        if let Some(kept) = kept.filter(|_| by_vhd && length as usize > old) {
            self.data[old..old + kept.len()].copy_from_slice(&kept);
        }
    }

    async fn write_raw(&mut self, raw: &Arc<dyn Node>) {
        let (offset, length) = (self.below(200_000), self.below(20_000) + 1);
        let (offset, length) = if self.below(3) == 0 {
            (offset / BLOCK * BLOCK, length.next_multiple_of(BLOCK))
        } else {
            (offset, length)
        };
        let bytes = self.bytes(length);
        write(raw, offset, &bytes).await;
        let end = offset + length;
        if end > self.data.len() as u64 {
            // The footer that a client wrote is valid for the previous length only, and raw data has overwritten it.
            self.data.resize(end.next_multiple_of(BLOCK) as usize, 0);
            self.footer = None;
        }
        self.data[offset as usize..end as usize].copy_from_slice(&bytes);
    }

    async fn write_vhd(&mut self, vhd: &Arc<dyn Node>, id: FileKey) {
        let here = self.data.len() as u64;
        let (offset, length) = match self.below(4) {
            0 => (here, FOOTER),
            1 => (here + self.below(FOOTER - 1), 1),
            2 => (self.below(here + 1), self.below(3000) + 1),
            _ => (here / BLOCK * BLOCK, self.below(4) * BLOCK + FOOTER),
        };
        let bytes = self.bytes(length);
        write(vhd, offset, &bytes).await;
        let end = offset + length;
        if end > here + FOOTER {
            let grown = if end % BLOCK == FOOTER { end - FOOTER } else { end.next_multiple_of(BLOCK) };
            self.resize(grown, true);
        }
        let here = self.data.len() as u64;
        let inside = end.min(here).saturating_sub(offset) as usize;
        let from = (offset as usize).min(here as usize);
        self.data[from..from + inside].copy_from_slice(&bytes[..inside]);
        if end > here {
            let (mut footer, from) = (self.footer(id), offset.max(here) - here);
            footer[from as usize..(end - here) as usize].copy_from_slice(&bytes[inside..]);
            self.footer = Some(footer);
        }
    }

    async fn zero(&mut self, raw: &Arc<dyn Node>) {
        let from = self.below(200_000);
        let range = from..from + self.below(30_000);
        raw.zero(&Ctx::default(), range.clone()).wait().await.expect("zeroed");
        let end = (range.end as usize).min(self.data.len());
        if let Some(part) = self.data.get_mut(range.start as usize..end) {
            part.fill(0);
        }
    }

    async fn cut(&mut self, raw: &Arc<dyn Node>, vhd: &Arc<dyn Node>) {
        let (length, by_vhd) = (self.below(50) * BLOCK, self.below(2) == 0);
        let done = if by_vhd { set_len(vhd, length + FOOTER).await } else { set_len(raw, length).await };
        done.expect("a length");
        self.resize(length, by_vhd);
    }

    async fn compare(
        &mut self,
        share: &Share,
        raw: &Arc<dyn Node>,
        vhd: &Arc<dyn Node>,
        id: FileKey,
        at: &str,
    ) {
        let whole = [&self.data[..], &self.footer(id)].concat();
        assert_eq!((size(raw).await, size(vhd).await), (self.data.len() as u64, whole.len() as u64), "{at}");
        assert!(share.whole(raw).await == self.data, "{at}: the data");
        assert!(share.whole(vhd).await == whole, "{at}: the VHD");
        let from = self.below(whole.len() as u64 + 10);
        let length = self.below(9000);
        let end = (from + length).min(whole.len() as u64);
        let part = share.read(vhd, from, length as u32).await;
        assert!(
            part == whole.get(from as usize..end as usize).unwrap_or_default(),
            "{at}: {length} at {from}"
        );
        let ranges = vhd.allocated(&Ctx::default(), 0..u64::MAX, 999).wait().await.expect("ranges");
        for (n, _) in whole.iter().enumerate().filter(|(_, byte)| **byte != 0) {
            assert!(ranges.iter().any(|r| r.contains(&(n as u64))), "{at}: byte {n} is in no range");
        }
    }
}
