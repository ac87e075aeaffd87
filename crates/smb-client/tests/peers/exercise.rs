//! Operations that must work on every share, over every transport.

use arena::{IoBuf, Sg, sg_to_vec};
use smb_client::{Client, Download, FileAttributes, NtStatus, OpenOptions, RequestError, Tree, Upload};

/// Bytes that depend on their position.
pub fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 7 + i / 251 + i / 65_536) as u8).collect()
}

pub fn sg(bytes: &[u8]) -> Sg {
    [IoBuf::from(bytes.to_vec())].into_iter().collect()
}

pub fn status<T>(result: Result<T, RequestError>) -> NtStatus {
    match result {
        Err(RequestError::Status(s)) => s,
        Err(e) => panic!("{e}"),
        Ok(_) => panic!("it worked"),
    }
}

/// Every operation of a share, once.
pub async fn everything(tree: &Tree) {
    let file = tree.open("a.bin", OpenOptions::create_new()).await.expect("created");
    for length in [1usize, 4095, 4096, 65_536, 65_537, 1 << 20, (9 << 20) + 3] {
        let data = pattern(length);
        assert_eq!(file.write_at(0, sg(&data)).await.expect("written"), length as u64);
        let back = file.read_at(0, length as u32).await.expect("read");
        assert!(sg_to_vec(&back) == data, "{length} bytes differ");
    }
    file.flush().await.expect("durable");
    let size = (9u64 << 20) + 3;
    assert_eq!(file.metadata().await.expect("metadata").size, size);
    // Reads are shorter at the end of the file, and empty beyond it.
    assert_eq!(sg_to_vec(&file.read_at(size - 2, 10_000).await.expect("read")).len(), 2);
    assert!(file.read_at(size, 10).await.expect("read").is_empty());
    let buffers = tree.client().arena().alloc_sg(20_000, arena::Class::Payload).await;
    let (buffers, n) = file.read_into(5, buffers, 20_000).await.expect("read");
    let got: Vec<u8> = buffers.iter().flat_map(|b| b.to_vec()).collect();
    assert_eq!((n, got.len()), (20_000, 20_000));
    assert!(got == pattern(size as usize)[5..20_005]);
    file.set_len(10).await.expect("cut");
    file.set_attributes(FileAttributes::HIDDEN).await.expect("hidden");
    file.close().await.expect("closed");
    let m = tree.stat("a.bin").await.expect("metadata");
    assert_eq!((m.size, m.is_directory()), (10, false));
    assert!(m.attributes.contains(FileAttributes::HIDDEN));

    tree.create_dir("d").await.expect("made");
    assert_eq!(status(tree.create_dir("d").await), NtStatus::OBJECT_NAME_COLLISION);
    for i in 0..300 {
        let name = format!("d/file with a long name, number {i}");
        tree.open(&name, OpenOptions::create()).await.expect("created").close().await.expect("closed");
    }
    let mut dir = tree.read_dir("d", "*").await.expect("opened");
    let entries = dir.all().await.expect("listed");
    assert_eq!(entries.len(), 300);
    assert!(entries.iter().any(|e| e.name == "file with a long name, number 299"));
    drop(dir);
    let mut dir = tree.read_dir("d", "*7").await.expect("opened");
    assert_eq!(dir.all().await.expect("listed").len(), 30);
    drop(dir);
    assert!(tree.read_dir("d", "nothing*").await.expect("opened").all().await.expect("listed").is_empty());
    assert_eq!(status(tree.remove_dir("d").await), NtStatus::DIRECTORY_NOT_EMPTY);
    for i in 0..300 {
        tree.remove_file(&format!(r"d\file with a long name, number {i}")).await.expect("removed");
    }
    tree.remove_dir("d").await.expect("removed");

    tree.open("b", OpenOptions::create()).await.expect("created").close().await.expect("closed");
    assert_eq!(status(tree.rename("a.bin", "b", false).await), NtStatus::OBJECT_NAME_COLLISION);
    tree.rename("a.bin", "b", true).await.expect("replaced");
    assert_eq!(tree.stat("b").await.expect("metadata").size, 10);
    assert_eq!(status(tree.stat("a.bin").await), NtStatus::OBJECT_NAME_NOT_FOUND);
    tree.remove_file("b").await.expect("removed");
    let space = tree.space().await.expect("space");
    assert!(space.total >= space.free && space.total > 0);
}

pub async fn transfers(tree: &Tree) {
    let data = pattern((20 << 20) + 17);
    let file = tree.open("big", OpenOptions::create()).await.expect("created");
    let mut up = Upload::new(&file, 0);
    for chunk in data.chunks(700_001) {
        up.push(sg(chunk)).await.expect("taken");
    }
    assert_eq!(up.finish().await.expect("written"), data.len() as u64);
    for start in [0, 3 << 20] {
        let mut down = Download::new(&file, start as u64, u64::MAX);
        let mut got = Vec::new();
        while let Some((offset, piece)) = down.next().await.expect("read") {
            assert_eq!(offset as usize, start + got.len());
            got.extend(sg_to_vec(&piece));
        }
        assert!(got == data[start..], "from {start}");
    }
    file.close().await.expect("closed");
    tree.remove_file("big").await.expect("removed");
}

/// A file with holes, which read as zeros; data ranges are reported, and cut to the queried range.
pub async fn holes(tree: &Tree) {
    const MIB: u64 = 1 << 20;
    let file = tree.open("holes", OpenOptions::create()).await.expect("created");
    file.set_len(8 * MIB).await.expect("longer");
    // Without the sparse attribute the whole file counts as data.
    let all = file.allocated(0..8 * MIB).await.expect("told");
    assert_eq!((all.len(), &all[0]), (1, &(0..8 * MIB)));
    file.close().await.expect("closed");
    tree.remove_file("holes").await.expect("removed");

    let file = tree.open("holes", OpenOptions::create()).await.expect("created");
    file.set_sparse().await.expect("sparse");
    file.set_len(8 * MIB).await.expect("longer");
    assert_eq!(file.allocated(0..8 * MIB).await.expect("told"), vec![]);
    file.write_at(2 * MIB, sg(&pattern(65_536))).await.expect("written");
    file.write_at(5 * MIB, sg(&pattern(65_536))).await.expect("written");
    let data = vec![2 * MIB..2 * MIB + 65_536, 5 * MIB..5 * MIB + 65_536];
    assert_eq!(file.allocated(0..8 * MIB).await.expect("told"), data);
    let cut = file.allocated(2 * MIB + 4096..4 * MIB).await.expect("told");
    assert_eq!((cut.len(), &cut[0]), (1, &(2 * MIB + 4096..2 * MIB + 65_536)));
    assert_eq!(file.allocated(7..7).await.expect("nothing asked"), vec![]);
    let hole = file.read_at(3 * MIB, 4096).await.expect("read");
    assert_eq!(sg_to_vec(&hole), vec![0; 4096]);
    assert!(file.metadata().await.expect("metadata").attributes.contains(FileAttributes::SPARSE_FILE));
    file.close().await.expect("closed");
    tree.remove_file("holes").await.expect("removed");
}

/// Opens the in-memory share.
pub async fn tree_of(client: &Client) -> Tree {
    client.tree("ram").await.expect("the share")
}
