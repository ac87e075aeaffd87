//! Escapes, faults, and what only a host directory has.

use std::path::Path;
use std::sync::Arc;

use arena::{Arena, Sg, sg_to_vec};
use env::Ctx;

use super::{HostDir, HostDirOptions};
use crate::{
    Attributes, Data, Kind, OpenMode, OpenRequest, Opened, Rights, Vfs, VfsError, VfsPath, VfsResult, Want,
};

fn tree(path: &Path) -> Arc<HostDir> {
    HostDir::open(path, HostDirOptions::default()).expect("a directory")
}

fn request(path: &str, mode: OpenMode, kind: Option<Kind>) -> OpenRequest {
    OpenRequest {
        path: VfsPath::parse(path).expect("a legal path"),
        mode,
        kind,
        rights: Rights { read: true, write: true },
        attributes: Attributes::ARCHIVE,
        security: None,
        extended_attributes: Vec::new(),
    }
}

async fn open(vfs: &dyn Vfs, path: &str, mode: OpenMode) -> VfsResult<Opened> {
    vfs.open(&Ctx::default(), request(path, mode, None)).wait().await
}

#[tokio::test]
async fn a_file_there_and_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let (vfs, arena, c) = (tree(dir.path()), Arena::new(8 << 20).expect("a mapping"), Ctx::default());
    let made = open(&*vfs, "Hello.TXT", OpenMode::OpenOrCreate).await.expect("made");
    assert!(made.created);
    let src: Sg = [arena::IoBuf::from(vec![7; 100_000])].into_iter().collect();
    assert_eq!(made.node.write(&c, 5, src).wait().await, Ok(100_000));
    let again = open(&*vfs, "hello.txt", OpenMode::Open).await.expect("there");
    assert_eq!(again.path.to_string(), "Hello.TXT");
    assert_eq!(again.stat.size, 100_005);
    let want = Want { length: 200_000, arena: &arena, file_ok: false };
    let Ok(Data::Bufs(sg)) = again.node.read(&c, 3, want).wait().await else { panic!("bytes") };
    let bytes = sg_to_vec(&sg);
    assert_eq!(bytes.len(), 100_002);
    assert_eq!(bytes[..2], [0, 0]);
    assert!(bytes[2..].iter().all(|b| *b == 7));
    let root = open(&*vfs, "", OpenMode::Open).await.expect("the root");
    let list = root.node.list(&c, true, 100).wait().await.expect("a listing");
    assert_eq!(list.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(), ["Hello.TXT"]);
    assert!(root.node.list(&c, false, 100).wait().await.expect("the end").is_empty());
    assert_eq!(vfs.remove(&c, &again.path, again.node.id()).wait().await, Ok(()));
    assert_eq!(open(&*vfs, "hello.txt", OpenMode::Open).await.err(), Some(VfsError::NotFound));
}
