//! Tests of the host directory alone; those that apply to all backends are in the conformance suite.

mod escapes;
mod faults;
mod foreign;
mod identity;
mod links;
mod names;
mod new_file;
mod owners;
mod ring;
mod snapshots;
mod streams;
mod unbuffered;
mod waiting;

use std::path::Path;
use std::sync::Arc;

use arena::{Arena, Sg, sg_to_vec};
use env::Ctx;

use super::{HostDir, HostDirOptions};
use crate::{
    Attributes, Data, Kind, Node, OpenMode, OpenRequest, Opened, ReadOptions, Rights, Vfs, VfsError, VfsPath,
    VfsResult,
};

fn tree(path: &Path) -> Arc<HostDir> {
    HostDir::open(path, HostDirOptions::default()).expect("a directory")
}

fn path(text: &str) -> VfsPath {
    VfsPath::parse(text).expect("a legal path")
}

fn request(text: &str, mode: OpenMode, kind: Option<Kind>) -> OpenRequest {
    OpenRequest {
        mode,
        kind,
        rights: Rights { read: true, write: true },
        attributes: Attributes::ARCHIVE,
        ..OpenRequest::for_metadata(path(text))
    }
}

async fn open(vfs: &dyn Vfs, text: &str, mode: OpenMode) -> VfsResult<Opened> {
    vfs.open(&Ctx::default(), request(text, mode, None)).wait().await
}

async fn existing(vfs: &dyn Vfs, text: &str) -> Opened {
    open(vfs, text, OpenMode::Open).await.unwrap_or_else(|e| panic!("{text:?}: {e}"))
}

async fn refusal(vfs: &dyn Vfs, text: &str) -> Option<VfsError> {
    open(vfs, text, OpenMode::Open).await.err()
}

fn arena() -> Arena {
    Arena::new(8 << 20).expect("a mapping")
}

async fn read(node: &dyn Node, length: u32) -> Vec<u8> {
    let (c, arena) = (Ctx::default(), arena());
    match node
        .read(&c, 0, ReadOptions { length, arena: &arena, file_ok: false })
        .wait()
        .await
        .expect("a read")
    {
        Data::Bufs(sg) => sg_to_vec(&sg),
        Data::File { .. } => panic!("a descriptor was not asked for"),
    }
}

fn payload(bytes: &[u8]) -> Sg {
    [arena::IoBuf::from(bytes.to_vec())].into_iter().collect()
}

async fn listed(vfs: &dyn Vfs, text: &str) -> Vec<String> {
    let directory = existing(vfs, text).await.node;
    let all = directory.list(&Ctx::default(), true, 10_000).wait().await.expect("a listing");
    let mut names: Vec<String> = all.into_iter().map(|e| e.name).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_read_only_tree_refuses_every_change() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("f"), "data").expect("room");
    let options = HostDirOptions { read_only: true, ..Default::default() };
    let (vfs, c) = (HostDir::open(dir.path(), options).expect("a directory"), Ctx::default());
    assert!(vfs.info().read_only);
    let mut reader = request("F", OpenMode::OpenOrCreate, None);
    reader.rights.write = false;
    let f = vfs.open(&c, reader).wait().await.expect("there");
    assert_eq!(read(&*f.node, 100).await, b"data");
    let no = VfsError::ReadOnly;
    assert_eq!(refusal(&*vfs, "f").await, Some(no));
    assert_eq!(open(&*vfs, "new", OpenMode::Create).await.err(), Some(no));
    let id = f.node.id();
    assert_eq!(vfs.remove(&c, &path("f"), id).wait().await, Err(no));
    assert_eq!(vfs.rename(&c, &path("f"), id, &path("g"), false).wait().await, Err(no));
    assert_eq!(vfs.link(&c, &path("f"), id, &path("g"), false).wait().await, Err(no));
    assert_eq!(f.node.write(&c, 0, payload(b"x")).wait().await, Err(no));
    assert_eq!(f.node.set_len(&c, 0).wait().await, Err(no));
    assert_eq!(f.node.zero(&c, 0..1).wait().await, Err(no));
    assert_eq!(f.node.set_allocation(&c, 0).wait().await, Err(no));
    assert_eq!(f.node.set_basic(&c, crate::BasicChange::default()).wait().await, Err(no));
    assert_eq!(f.node.set_security(&c, vec![1]).wait().await, Err(no));
    assert_eq!(f.node.set_extended_attributes(&c, Vec::new()).wait().await, Err(no));
    assert_eq!(f.node.set_sparse(&c, true).wait().await, Err(no));
    assert_eq!(std::fs::read(dir.path().join("f")).expect("there"), b"data");
}

/// The source of a copy may be read-only, the target may not.
#[tokio::test]
async fn copies_between_trees() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("from"), "data").expect("room");
    std::fs::write(dir.path().join("to"), "").expect("room");
    let options = HostDirOptions { read_only: true, ..Default::default() };
    let (fixed, c) = (HostDir::open(dir.path(), options).expect("a directory"), Ctx::default());
    let vfs = tree(dir.path());
    let mut reader = request("from", OpenMode::Open, None);
    reader.rights.write = false;
    let from = fixed.open(&c, reader).wait().await.expect("there").node;
    let to = existing(&*vfs, "to").await.node;
    assert_eq!(from.copy_to(&c, 0, &to, 0, 4).wait().await, Ok(4));
    assert_eq!(std::fs::read(dir.path().join("to")).expect("there"), b"data");
    assert_eq!(to.copy_to(&c, 0, &from, 2, 2).wait().await, Err(VfsError::ReadOnly));
}

#[tokio::test]
async fn what_is_no_file_is_not_there() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let dir = tempfile::tempdir().expect("a directory");
    let vfs = tree(dir.path());
    mknodat(CWD, dir.path().join("pipe"), FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).expect("a socket");
    std::os::unix::fs::symlink("pipe", dir.path().join("link")).expect("a link");
    let device = rustix::fs::makedev(1, 3);
    let made = mknodat(CWD, dir.path().join("null"), FileType::CharacterDevice, Mode::RUSR, device).is_ok();
    if !made {
        eprintln!("SKIPPED: no device node can be made here");
    }
    for name in ["pipe", "socket", "link", "null"].into_iter().take(if made { 4 } else { 3 }) {
        for mode in [OpenMode::Open, OpenMode::OpenOrCreate] {
            assert_eq!(open(&*vfs, name, mode).await.err(), Some(VfsError::AccessDenied), "{name}");
        }
    }
    assert_eq!(listed(&*vfs, "").await, [""; 0]);
    let root = existing(&*vfs, "").await;
    assert_eq!(root.node.lookup(&Ctx::default(), "pipe").wait().await.err(), Some(VfsError::NotFound));
}

/// An entry that cannot be read (here: a name that leads through a file) does not hide the others.
#[tokio::test]
async fn an_entry_that_cannot_be_looked_at() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("f"), "data").expect("room");
    let (vfs, c) = (tree(dir.path()), Ctx::default());
    let root = existing(&*vfs, "").await.node;
    assert_eq!(root.list(&c, true, 10).wait().await.expect("a listing").len(), 1);
    let node: &dyn std::any::Any = &*root;
    let open = &node.downcast_ref::<super::node::HostNode>().expect("ours").open;
    open.listing.lock().push("f/through");
    open.listing.lock().push("f");
    let rest = root.list(&c, false, 10).wait().await.expect("the rest");
    assert_eq!(rest.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(), ["f"]);
}

#[tokio::test]
async fn paths_that_are_too_long() {
    let dir = tempfile::tempdir().expect("a directory");
    let vfs = tree(dir.path());
    let long = vec!["x".repeat(200); 30].join("\\");
    assert_eq!(refusal(&*vfs, &long).await, Some(VfsError::NameTooLong));
    let deep = vec!["d"; 2000].join("\\");
    assert_eq!(refusal(&*vfs, &deep).await, Some(VfsError::PathNotFound));
    // 255 characters for Windows, 765 bytes here.
    assert_eq!(refusal(&*vfs, &"日".repeat(255)).await, Some(VfsError::NameTooLong));
    let made = open(&*vfs, &"日".repeat(255), OpenMode::Create).await;
    assert_eq!(made.err(), Some(VfsError::NameTooLong));
}

#[tokio::test]
async fn a_tree_needs_a_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("f"), "").expect("room");
    assert!(HostDir::open(&dir.path().join("f"), HostDirOptions::default()).is_err());
    assert!(HostDir::open(&dir.path().join("none"), HostDirOptions::default()).is_err());
}
