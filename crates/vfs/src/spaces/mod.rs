//! A pool's virtual disks as files: each is shown as `NAME.img` (its bytes) and `NAME.vhd` (the same bytes and the
//! footer of a fixed VHD). The root has no other entries and no folders.
//!
//! **One file.** Both names have one [`FileKey`], so share modes, locks and leases apply to both, and across all shares
//! of a pool, which have one [`SpaceFiles`].
//!
//! **Lengths** are multiples of [`BLOCK`], plus the footer for `.vhd`; others are rounded up. A new file is a virtual disk
//! of 0 bytes. A write past the end enlarges the virtual disk by whole steps ([`OpenDisk::step`]), so that not every
//! write changes the pool's metadata; [`Node::flush`], [`Node::close`] and [`Node::set_len`] set its size to the length
//! of the file. After a crash before one of these it is up to one step longer, with zeros at the end.
//!
//! **Data.** Payload is passed to [`Disk::write`] and from [`Disk::read`] without a copy. A write of less than a block
//! reads the block first, under a lock that excludes other reads and writes of the file. Zeroed ranges are discarded.
//!
//! **Kept in memory only**: times, attributes, and a footer that a client wrote (until the file's length changes);
//! after a restart of the server they have default values. Security descriptors, extended attributes and named streams
//! are not supported: only the share's permission limits access.

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

/// Lengths are multiples of the block of a virtual disk, in bytes.
pub const BLOCK: u64 = 4096;

/// A pool's virtual disks, for one share.
///
/// A future that is dropped after its first poll runs to its end in the background. While the pool is not open, every
/// call fails with [`crate::VfsError::Io`] and `ENODEV`.
pub trait VirtualDisks: Send + Sync + 'static {
    /// All of them by ascending number.
    fn list(&self) -> VfsResult<Vec<VirtualDisk>>;

    /// The virtual disk with this number.
    ///
    /// # Errors
    /// `Stale` where there is none with that number.
    fn get(&self, number: u64) -> VfsResult<VirtualDisk>;

    /// The pool's space, in bytes.
    fn space(&self) -> VfsResult<Space>;

    /// Creates a virtual disk of 0 bytes, which is allocated when it is written.
    ///
    /// # Errors
    /// `Exists`, `InvalidName`, `NoSpace`, `ReadOnly`, …
    fn create(&self, name: String) -> BoxFuture<VfsResult<VirtualDisk>>;

    /// Opens a virtual disk. Discarded ranges ([`Disk::discard`]) read as zeros. It must be opened again after
    /// [`VirtualDisks::resize`].
    ///
    /// # Errors
    /// `Stale` where there is none with that number.
    fn open(&self, number: u64) -> VfsResult<OpenDisk>;

    /// Changes the size of a virtual disk: adds zeros, or destroys the data beyond. The caller must not write beyond a
    /// smaller size meanwhile.
    ///
    /// # Errors
    /// `Busy`: it is in use elsewhere. …
    fn resize(&self, number: u64, size: u64) -> BoxFuture<VfsResult<()>>;

    /// Renames a virtual disk.
    ///
    /// # Errors
    /// Those of [`VirtualDisks::create`].
    fn rename(&self, number: u64, name: String) -> BoxFuture<VfsResult<()>>;

    /// Destroys a virtual disk and its data.
    ///
    /// # Errors
    /// `Busy`: it is in use elsewhere. …
    fn remove(&self, number: u64) -> BoxFuture<VfsResult<()>>;
}

/// A virtual disk.
#[derive(Clone, Debug)]
pub struct VirtualDisk {
    /// Its number, which is never reused.
    pub number: u64,
    /// Its name.
    pub name: String,
    /// In bytes.
    pub size: u64,
    /// Bytes of it that are allocated in the pool.
    pub allocated: u64,
}

/// A virtual disk that is open.
pub struct OpenDisk {
    /// Its data. When a file grows, it is enlarged by whole rows ([`disk::Layout`]).
    pub disk: Arc<dyn Disk>,
    /// While it exists, others cannot resize or destroy the virtual disk.
    pub guard: Box<dyn Any + Send + Sync>,
}

/// The files of one pool, common to all shares of the pool.
pub struct SpaceFiles {
    env: Env,
    arena: Arena,
    /// The files by the number of their virtual disk.
    known: Mutex<HashMap<u64, Known>>,
}

/// The metadata of a file, kept while the server runs, and the open file if there is one.
type Known = (Arc<Mutex<Meta>>, Weak<File>);

/// The options of a share of a pool.
#[derive(Clone, Debug)]
pub struct SpacesOptions {
    /// Shown to clients as the volume's label.
    pub label: String,
    /// The pool's identity, used as the volume's.
    pub volume: u128,
    /// Files can be removed, which destroys virtual disks.
    pub allow_delete: bool,
}

/// A share of a pool's virtual disks: see the module.
pub struct Spaces {
    tree: Arc<Tree>,
}

/// The state that all nodes of a share use.
struct Tree {
    disks: Arc<dyn VirtualDisks>,
    files: Arc<SpaceFiles>,
    info: VolumeInfo,
    /// Held while names change.
    names: tokio::sync::Mutex<()>,
}

/// The form in which a file shows a virtual disk.
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

    /// The number of bytes of data of a file of at least `length` bytes: whole blocks.
    fn data_of(self, length: u64) -> u64 {
        match length % BLOCK {
            vhd::FOOTER if self == Form::Vhd => length - vhd::FOOTER,
            _ => length.next_multiple_of(BLOCK),
        }
    }

    /// The virtual disk's name and the form, from a file's name.
    fn of(name: &str) -> Option<(&str, Form)> {
        let (stem, extension) = name.split_at_checked(name.len().checked_sub(".img".len())?)?;
        let form = Form::ALL.into_iter().find(|f| f.extension().eq_ignore_ascii_case(extension))?;
        (!stem.is_empty()).then_some((stem, form))
    }
}

impl SpaceFiles {
    /// Creates an empty set of files.
    pub fn new(env: Env, arena: Arena) -> Arc<SpaceFiles> {
        Arc::new(SpaceFiles { env, arena, known: Mutex::default() })
    }

    /// The metadata of a file; `new` if it is unknown.
    fn meta(&self, number: u64, new: Stat) -> Arc<Mutex<Meta>> {
        let new = || (Arc::new(Mutex::new(Meta { stat: new, footer: None })), Weak::new());
        Arc::clone(&self.known.lock().entry(number).or_insert_with(new).0)
    }

    /// Returns the open file, and opens it if necessary.
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
