//! Snapshots of the tree: read-only copies of it, each a folder named `@GMT-YYYY.MM.DD-HH.MM.SS` (UTC) in one folder.
//!
//! They may be snapshots of Btrfs subvolumes, mounted snapshots of LVM, or copies by `rsync` with hard links. Each is a
//! tree of its own ([`HostDirOptions::snapshot_of`]), which is opened when a client requests it and closed with its
//! last open file, so that an unused snapshot can be unmounted or removed.
//!
//! A name may be a symbolic link to another folder in the folder of snapshots; a link that leads out of it is refused.

use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, RawDir};
use rustix::io::{self, Errno};

use super::{HostDir, HostDirOptions, Tree, resolve};
use crate::{SnapshotTime, Vfs, VfsError, VfsResult};

/// The maximum number of listed snapshots; the newest are listed.
const LISTED_MAX: usize = 4096;

impl Tree {
    /// See [`Vfs::snapshots`].
    pub(super) fn snapshots(&self) -> VfsResult<Vec<SnapshotTime>> {
        let folder = match self.snapshots_folder() {
            Ok(folder) => folder,
            Err(Errno::NOENT) => return Ok(Vec::new()),
            Err(e) => return Err(resolve::path_error(e)),
        };
        let mut found = BTreeSet::new();
        let mut buffer = vec![MaybeUninit::uninit(); 32 << 10];
        let mut entries = RawDir::new(&folder, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            found.extend(entry.file_name().to_str().ok().and_then(SnapshotTime::parse));
            if found.len() > LISTED_MAX {
                found.pop_first();
            }
        }
        Ok(found.into_iter().rev().collect())
    }

    /// See [`Vfs::snapshot`].
    pub(super) fn snapshot(&self, at: SnapshotTime) -> VfsResult<Arc<dyn Vfs>> {
        let folder = self.snapshots_folder().map_err(resolve::path_error)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let root =
            resolve::beneath(&folder, &at.to_string(), flags, Mode::empty()).map_err(resolve::path_error)?;
        let options = HostDirOptions {
            read_only: true,
            snapshots: None,
            snapshot_of: Some(at),
            ..self.options.clone()
        };
        match HostDir::of(root, options) {
            Ok(tree) => Ok(tree),
            Err(e) => Err(VfsError::Io(e.raw_os_error().unwrap_or(libc::EIO))),
        }
    }

    fn snapshots_folder(&self) -> io::Result<OwnedFd> {
        let path = self.options.snapshots.as_deref().ok_or(Errno::NOENT)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if path.is_absolute() {
            return rustix::fs::open(path, flags, Mode::empty());
        }
        resolve::beneath(&self.root, path.to_str().ok_or(Errno::ILSEQ)?, flags, Mode::empty())
    }
}
