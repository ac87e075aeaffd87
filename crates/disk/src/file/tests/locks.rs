//! Which openers of a disk exclude each other.

use std::path::Path;

use super::*;
use crate::loops::LoopDevice;

fn open_with(path: &Path, read_only: bool, shared: bool) -> Result<Arc<FileDisk>, OpenError> {
    let options = FileOptions { read_only, shared, ..FileOptions::default() };
    FileDisk::open(&Env::real(), path, &options)
}

fn holders(refused: Result<Arc<FileDisk>, OpenError>) -> Vec<Holder> {
    match refused {
        Err(OpenError::InUse { by, .. }) => by,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it is in use"),
    }
}

fn readers_exclude_writers_and_writers_exclude_all(path: &Path) {
    let writes = |path| open_with(path, false, false);
    let reads = |path| open_with(path, true, false);
    let looks = |path| open_with(path, true, true);
    let us = |reads| Holder { process: std::process::id(), name: own_name(), reads };

    let first = reads(path).expect("it is free");
    let second = reads(path).expect("only readers have it");
    assert_eq!(holders(writes(path)), [us(true)]);
    drop(looks(path).expect("an examination needs no lock"));
    drop(first);
    assert_eq!(holders(writes(path)), [us(true)], "the other one is still there");
    drop(second);
    let writer = writes(path).expect("it is free again");
    assert_eq!(holders(reads(path)), [us(false)]);
    assert_eq!(holders(writes(path)), [us(false)]);
    let look = looks(path).expect("an examination needs no lock");
    drop(writer);
    drop(writes(path).expect("nor keeps anybody out"));
    drop(reads(path).expect("nor keeps anybody out"));
    drop(look);
}

fn own_name() -> String {
    std::fs::read_to_string("/proc/self/comm").expect("it has one").trim_end().to_owned()
}

#[test]
fn a_file() {
    let folder = folder();
    drop(new_file(&folder, "a"));
    readers_exclude_writers_and_writers_exclude_all(&folder.path().join("a"));
}

/// A file that this process may not write to.
#[test]
fn a_protected_file() {
    let folder = folder();
    drop(new_file(&folder, "a"));
    let path = folder.path().join("a");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o400);
    std::fs::set_permissions(&path, mode).expect("it is ours");
    let reader = open_with(&path, true, false).expect("it may be read");
    drop(open_with(&path, true, false).expect("by several"));
    drop(reader);
}

#[test]
fn a_device() {
    match LoopDevice::new(SIZE_MIN) {
        Ok(device) => readers_exclude_writers_and_writers_exclude_all(&device.path),
        Err(e) => skipped!("no block device can be made here: {e}"),
    }
}

#[test]
fn a_protected_device() {
    match LoopDevice::read_only(SIZE_MIN) {
        Ok(device) => {
            let reader = open_with(&device.path, true, false).expect("it may be read");
            drop(open_with(&device.path, true, false).expect("by several"));
            drop(reader);
        }
        Err(e) => skipped!("no block device can be made here: {e}"),
    }
}
