//! Tests on block devices, where they can be created.

use super::*;
use crate::loops::{LoopDevice, Mount};

#[tokio::test]
async fn a_block_device_conforms() {
    let device = match LoopDevice::new(SIZE_MIN) {
        Ok(device) => device,
        Err(e) => return skipped!("no block device can be made here: {e}"),
    };
    let arena = Arena::new(32 << 20).expect("a small mapping");
    let exclusive = open(&device.path).expect("it is free");
    assert!(matches!(open(&device.path), Err(OpenError::InUse { .. })), "exclusively");
    let info = exclusive.info().clone();
    assert_eq!(
        (info.id.kind, info.geometry.size),
        (IdKind::Path, SIZE_MIN),
        "a loop device has no lasting identity"
    );
    drop(exclusive);
    crate::conformance::run(&arena, || {
        let options = FileOptions { shared: true, arena: Some(arena.clone()), ..FileOptions::default() };
        let disk = FileDisk::open(&Env::real(), &device.path, &options);
        async move { disk.expect("it opens") as Arc<dyn Disk> }
    })
    .await;
    let disk = open(&device.path).expect("it is free");
    let blocks =
        || std::os::unix::fs::MetadataExt::blocks(&device.backing().metadata().expect("it is there"));
    write(&disk, 0, vec![7; 1 << 20]).await.expect("written");
    disk.flush(&Ctx::default()).wait().await.expect("flushed");
    let before = blocks();
    disk.discard(&Ctx::default(), 0, 1 << 20).wait().await.expect("a hint succeeds");
    if blocks() + 1024 > before {
        skipped!("this kernel has no discard by io_uring (Linux 6.12 has)");
    }
}

/// The block layer's own error: a loop device whose file was cut off cannot be read there.
#[tokio::test]
async fn a_device_that_fails_says_where() {
    let device = match LoopDevice::new(SIZE_MIN) {
        Ok(device) => device,
        Err(e) => return skipped!("no block device can be made here: {e}"),
    };
    let d = open(&device.path).expect("it is free");
    std::fs::OpenOptions::new()
        .write(true)
        .open(device.backing())
        .and_then(|f| f.set_len(1 << 20))
        .expect("cut off");
    assert_eq!(read(&d, 0, 4096).await, Ok(vec![0; 4096]));
    let at = IoRange::new(Op::Read, 2 << 20, 8192);
    assert_eq!(read(&d, 2 << 20, 8192).await, Err(DiskError::Medium { at }));
    assert_eq!(read(&d, 0, 4096).await, Ok(vec![0; 4096]), "the rest is as good as before");
}

/// A sparse file that is larger than the free space of its file system.
#[tokio::test]
async fn a_full_file_system_is_full() {
    let device = match LoopDevice::new(32 << 20) {
        Ok(device) => device,
        Err(e) => return skipped!("no block device can be made here: {e}"),
    };
    let Some(mount) = Mount::new(&device) else { return skipped!("nothing can be mounted here") };
    let options = FileOptions { create: Some(64 << 20), ..FileOptions::default() };
    let path = mount.at().join("reserved");
    let reserve = vec![0..32 << 20, 32 << 20..64 << 20];
    let all = FileDisk::open(&Env::real(), &path, &FileOptions { reserve, ..options.clone() });
    assert!(matches!(all, Err(OpenError::NoSpace { bytes, .. }) if bytes == 64 << 20), "{:?}", all.err());
    std::fs::remove_file(path).expect("it was made");
    let d = FileDisk::open(&Env::real(), &mount.at().join("sparse"), &options).expect("it is sparse");
    let mut result = Ok(());
    let mut offset = 0;
    while result.is_ok() && offset < 64 << 20 {
        result = write(&d, offset, vec![1; 1 << 20]).await;
        offset += 1 << 20;
    }
    let first = read(&d, 0, 4096).await;
    drop(d);
    let Err(DiskError::Full { at }) = result else { panic!("{result:?} at {offset}") };
    assert!(at.offset >= offset - (1 << 20) && at.offset + at.length == offset, "{at}");
    assert_eq!(first, Ok(vec![1; 4096]));
}
