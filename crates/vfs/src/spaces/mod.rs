//! A pool's virtual disks as files: each is `NAME.img` (its bytes) and `NAME.vhd` (the same and the footer of a fixed
//! VHD). The root has no other entries and no folders.
//!
//! **One file.** Both names have one [`FileKey`], so what the server keeps by file (share modes, locks, leases) holds
//! across them, and across all shares of a pool, which have one [`SpaceFiles`].
//!
//! **Lengths** are multiples of [`BLOCK`], plus the footer for `.vhd`; others are refused. A file that is created is a
//! virtual disk of 0 bytes. A write past the end makes the virtual disk larger by whole steps ([`OpenDisk::step`]), so
//! that not each write changes the pool's metadata; [`Node::flush`], [`Node::close`] and [`Node::set_len`] give it the
//! length of the file. After a crash before these it is up to one step longer, with zeros at the end.
//!
//! **Data.** Payload goes to [`Disk::write`] and comes from [`Disk::read`] as it is. A write of less than a block reads the
//! block first, under a lock that excludes other writes to the file. Zeroed ranges are discarded.
//!
//! **What is kept in memory only**: times, attributes, and a footer that a client wrote (until the file has another
//! length); after a restart of the server they are made anew. Security descriptors, extended attributes and named
//! streams are not kept: the share's permission decides alone.

mod file;
mod node;
mod tree;
mod vhd;

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use arena::Arena;
use disk::Disk;
use env::{BoxFuture, Env};
use parking_lot::Mutex;

use crate::{Space, Stat, Timestamp, VfsResult, VolumeInfo};
use file::{File, Meta};

/// What lengths are multiples of, in bytes: the block of a virtual disk.
pub const BLOCK: u64 = 4096;

/// A pool's virtual disks, for one share.
///
/// The futures run to their end when they are dropped after their first poll. Where the pool is not open, every call
/// fails with [`crate::VfsError::Io`] and `ENODEV`.
pub trait VirtualDisks: Send + Sync + 'static {
    /// All of them by ascending number.
    fn list(&self) -> VfsResult<Vec<VirtualDisk>>;

    /// One of them.
    ///
    /// # Errors
    /// `Stale` where there is none of that number.
    fn get(&self, number: u64) -> VfsResult<VirtualDisk>;

    /// The pool's space, in bytes.
    fn room(&self) -> VfsResult<Space>;

    /// Makes one of 0 bytes, which takes space when it is written.
    ///
    /// # Errors
    /// `Exists`, `InvalidName`, `NoSpace`, `ReadOnly`, …
    fn create(&self, name: String) -> BoxFuture<VfsResult<VirtualDisk>>;

    /// Opens one. Its [`Disk::discard`] makes zeros. It must be opened again after [`VirtualDisks::resize`].
    ///
    /// # Errors
    /// `Stale` where there is none of that number.
    fn open(&self, number: u64) -> VfsResult<OpenDisk>;

    /// Gives one another size: zeros are added, or what is beyond is destroyed. Nothing is written beyond a smaller
    /// size meanwhile.
    ///
    /// # Errors
    /// `Busy`: it is in use elsewhere. …
    fn resize(&self, number: u64, size: u64) -> BoxFuture<VfsResult<()>>;

    /// Gives one another name.
    ///
    /// # Errors
    /// As [`VirtualDisks::create`].
    fn rename(&self, number: u64, name: String) -> BoxFuture<VfsResult<()>>;

    /// Destroys one and its data.
    ///
    /// # Errors
    /// `Busy`: it is in use elsewhere. …
    fn remove(&self, number: u64) -> BoxFuture<VfsResult<()>>;
}

/// A virtual disk.
#[derive(Clone, Debug)]
pub struct VirtualDisk {
    /// Which: never that of another one, also after it was destroyed.
    pub number: u64,
    /// Its name.
    pub name: String,
    /// In bytes.
    pub size: u64,
    /// Bytes of it that have space in the pool.
    pub allocated: u64,
}

/// A virtual disk that is open.
pub struct OpenDisk {
    /// Its data.
    pub disk: Arc<dyn Disk>,
    /// What a growing one is enlarged by, in bytes: what the pool allocates at a time.
    pub step: u64,
    /// Keeps it from being changed or destroyed by others.
    pub guard: Box<dyn Any + Send + Sync>,
}

/// The files of one pool, whatever shares they are seen through.
pub struct SpaceFiles {
    env: Env,
    arena: Arena,
    /// By the virtual disk's number.
    known: Mutex<HashMap<u64, Known>>,
}

/// What is kept of a file while the server runs, and the file while it is open.
type Known = (Arc<Mutex<Meta>>, Weak<File>);

/// How a share shows a pool.
#[derive(Clone, Debug)]
pub struct SpacesOptions {
    /// Shown to clients as the volume's label.
    pub label: String,
    /// The pool's identity: that of the volume.
    pub volume: u128,
    /// Files can be removed, which destroys virtual disks.
    pub allow_delete: bool,
}

/// See the module.
pub struct Spaces {
    tree: Arc<Tree>,
}

/// What all nodes of a share use.
struct Tree {
    disks: Arc<dyn VirtualDisks>,
    files: Arc<SpaceFiles>,
    info: VolumeInfo,
    /// Held while names change.
    names: tokio::sync::Mutex<()>,
}

/// The form of a virtual disk that a name means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    Raw,
    Vhd,
}

impl Form {
    const ALL: [Form; 2] = [Form::Raw, Form::Vhd];

    fn extension(self) -> &'static str {
        match self {
            Form::Raw => ".img",
            Form::Vhd => ".vhd",
        }
    }

    /// Bytes behind the data.
    fn footer(self) -> u64 {
        match self {
            Form::Raw => 0,
            Form::Vhd => vhd::FOOTER,
        }
    }

    /// The virtual disk's name and the form that a file's name means.
    fn of(name: &str) -> Option<(&str, Form)> {
        let (stem, extension) = name.split_at_checked(name.len().checked_sub(".img".len())?)?;
        let form = Form::ALL.into_iter().find(|f| f.extension().eq_ignore_ascii_case(extension))?;
        (!stem.is_empty()).then_some((stem, form))
    }
}

impl SpaceFiles {
    /// No files yet.
    pub fn new(env: Env, arena: Arena) -> Arc<SpaceFiles> {
        Arc::new(SpaceFiles { env, arena, known: Mutex::default() })
    }

    /// What is known of a file; `new` if it was never seen.
    fn meta(&self, number: u64, new: Stat) -> Arc<Mutex<Meta>> {
        let new = || (Arc::new(Mutex::new(Meta { stat: new, footer: None })), Weak::new());
        Arc::clone(&self.known.lock().entry(number).or_insert_with(new).0)
    }

    /// The file, opened if it is not.
    fn open(
        &self,
        disks: &Arc<dyn VirtualDisks>,
        number: u64,
        meta: Arc<Mutex<Meta>>,
    ) -> VfsResult<Arc<File>> {
        let mut known = self.known.lock();
        if let Some(file) = known.get(&number).and_then(|(_, file)| file.upgrade()) {
            return Ok(file);
        }
        let ours = (self.env.clone(), self.arena.clone());
        let file = File::open(ours, Arc::clone(disks), number, Arc::clone(&meta))?;
        known.insert(number, (meta, Arc::downgrade(&file)));
        Ok(file)
    }

    /// The file, if it is open.
    fn opened(&self, number: u64) -> Option<Arc<File>> {
        self.known.lock().get(&number)?.1.upgrade()
    }
}

fn now(env: &Env) -> Timestamp {
    let t = env.unix_time();
    Timestamp { seconds: t.as_secs() as i64, nanoseconds: t.subsec_nanos() }
}

#[cfg(test)]
mod tests;
