//! A tree in memory: `ram` keeps the data, `null` only its length.
//!
//! **What it is.** A [`Vfs`] with all of Windows' semantics of names, without system calls: every call completes at
//! once, time and randomness come from [`Env`], so a run replays from its seed. Names match without regard to case, as
//! in `hostdir`.
//!
//! **`ram`.** A file is a map of 64 KiB blocks in the tree's arena. Reads of at least [`LEND_MIN`] bytes lend the
//! blocks; a block that is written while it is lent is copied first. Shorter reads are copied into the caller's
//! arena. Blocks, names and metadata are charged against [`RamOptions::capacity`].
//!
//! **`null`.** The same tree, but reads lend one shared buffer of zeros and writes are dropped: for measuring all
//! layers above it. The buffer permanently takes 1 MiB of the caller's arena.
//!
//! **Locks.** `names` first, then one file's state, then that of one of its streams; the states of two files are never
//! locked together.

mod blocks;
mod inode;
mod node;
mod store;
mod streams;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use env::{Ctx, Env, Io};
use parking_lot::Mutex;

use crate::fold::fold;
use crate::{
    Attributes, FileKey, Kind, OpenMode, OpenRequest, Opened, Parent, Space, StreamName, Timestamp, Vfs,
    VfsError, VfsPath, VfsResult, VolumeInfo,
};
use inode::{Child, Inode, name_cost};
use node::RamNode;
use store::Store;

pub use node::LEND_MIN;

/// The options of a [`RamFs`].
#[derive(Clone, Debug)]
pub struct RamOptions {
    /// Shown to clients as the volume's label.
    pub label: String,
    /// Bytes that data and metadata may take.
    pub capacity: u64,
}

impl Default for RamOptions {
    fn default() -> RamOptions {
        RamOptions { label: "RAM".into(), capacity: 1 << 30 }
    }
}

/// A tree in memory.
pub struct RamFs {
    tree: Arc<Tree>,
}

/// The state that all nodes of one tree share.
struct Tree {
    env: Env,
    store: Arc<Store>,
    /// Whether writes are dropped.
    discards: bool,
    root: Arc<Inode>,
    /// Held while names change or are looked up.
    names: Mutex<()>,
    next: AtomicU64,
    info: VolumeInfo,
}

/// The reported space of `null`, in bytes.
const NULL_SPACE: u64 = 1 << 50;
/// The metadata that `null` keeps at most, in bytes.
const NULL_CAPACITY: u64 = 256 << 20;

impl RamFs {
    /// An empty tree that keeps written data.
    ///
    /// # Errors
    /// The system's, when the address range for `capacity` cannot be mapped.
    pub fn new(env: &Env, options: RamOptions) -> std::io::Result<Arc<RamFs>> {
        Ok(RamFs::build(env, options.label, Store::new(options.capacity, true)?, false))
    }

    /// An empty tree that drops written data and reads as zeros.
    ///
    /// # Errors
    /// Those of [`RamFs::new`]; none are expected.
    pub fn null(env: &Env, label: impl Into<String>) -> std::io::Result<Arc<RamFs>> {
        Ok(RamFs::build(env, label.into(), Store::new(NULL_CAPACITY, false)?, true))
    }

    fn build(env: &Env, label: String, store: Store, discards: bool) -> Arc<RamFs> {
        let (now, store) = (now(env), Arc::new(store));
        let volume = u128::from(env.random_u64());
        let info = VolumeInfo {
            label,
            file_system: "NTFS".into(),
            volume,
            created: now,
            case_sensitive: false,
            sparse: true,
            cluster: 4096,
            name_max: 255,
            read_only: false,
            removal: true,
            removal_keeps_opens: true,
            reflinks: false,
            compression: false,
            snapshots: false,
            short_names: false,
            named_streams: true,
            reparse_points: true,
            local_times: true,
        };
        let root = Inode::directory(FileKey { volume, file: 1 }, Arc::clone(&store), now);
        let tree = Tree {
            env: env.clone(),
            store,
            discards,
            root: Arc::new(root),
            names: Mutex::new(()),
            next: AtomicU64::new(2),
            info,
        };
        Arc::new(RamFs { tree: Arc::new(tree) })
    }
}

impl Vfs for RamFs {
    fn info(&self) -> &VolumeInfo {
        &self.tree.info
    }

    fn space(&self, _: &Ctx) -> Io<VfsResult<Space>> {
        let store = &self.tree.store;
        let total = if self.tree.discards { NULL_SPACE } else { store.capacity() };
        let free = total - store.used();
        Io::Done(Ok(Space { total, free, available: free }))
    }

    fn open(&self, _: &Ctx, request: OpenRequest) -> Io<VfsResult<Opened>> {
        Io::Done(self.tree.open(&request))
    }

    fn remove(&self, _: &Ctx, path: &VfsPath, id: FileKey) -> Io<VfsResult<()>> {
        Io::Done(self.tree.remove(path, id))
    }

    fn rename(&self, _: &Ctx, from: &VfsPath, id: FileKey, to: &VfsPath, replace: bool) -> Io<VfsResult<()>> {
        Io::Done(self.tree.rename(from, id, to, replace))
    }

    fn link(&self, _: &Ctx, from: &VfsPath, id: FileKey, to: &VfsPath, replace: bool) -> Io<VfsResult<()>> {
        Io::Done(self.tree.link(from, id, to, replace))
    }
}

impl Tree {
    /// The directory `parts`, and the names on its path as stored.
    fn walk(&self, parts: &[String], exact: bool) -> VfsResult<(Arc<Inode>, Vec<String>)> {
        let (mut at, mut path) = (Arc::clone(&self.root), Vec::with_capacity(parts.len() + 1));
        for part in parts {
            let child = at.child(&fold(part)).ok_or(VfsError::PathNotFound)?;
            if child.inode.kind != Kind::Directory || (exact && child.name != *part) {
                return Err(VfsError::PathNotFound);
            }
            path.push(child.name);
            at = child.inode;
        }
        Ok((at, path))
    }

    /// The directory that holds the last name of `path`, that name, and the path of the directory.
    fn resolve_parent<'a>(&self, path: &'a VfsPath) -> VfsResult<(Arc<Inode>, &'a str, Vec<String>)> {
        let (name, above) = path.components().split_last().ok_or(VfsError::AccessDenied)?;
        let (directory, path) = self.walk(above, path.is_exact())?;
        Ok((directory, name, path))
    }

    fn open(self: &Arc<Tree>, r: &OpenRequest) -> VfsResult<Opened> {
        let _names = self.names.lock();
        match &r.stream {
            Some(name) => self.open_stream(r, name),
            None => self.open_file(r),
        }
    }

    fn open_file(self: &Arc<Tree>, r: &OpenRequest) -> VfsResult<Opened> {
        let (file, created, path) = self.find_or_create(r)?;
        Ok(self.opened(file, created, path))
    }

    fn opened(self: &Arc<Tree>, file: Arc<Inode>, created: bool, path: VfsPath) -> Opened {
        let stat = file.stat();
        let node = Arc::new(RamNode::new(Arc::clone(self), file));
        Opened { node, created, path, stream: None, stat, restricted_directories: Vec::new() }
    }

    /// Opens a named stream; creates its file first if needed.
    fn open_stream(self: &Arc<Tree>, r: &OpenRequest, name: &StreamName) -> VfsResult<Opened> {
        if r.kind == Some(Kind::Directory) {
            return Err(VfsError::NotDirectory);
        }
        let mode = if r.mode == OpenMode::Open { OpenMode::Open } else { OpenMode::OpenOrCreate };
        let (file, is_new, path) = self.find_or_create(&OpenRequest { mode, kind: None, ..r.clone() })?;
        let (name, stream, created) = match file.stream(name) {
            Some(_) if r.mode == OpenMode::Create => return Err(VfsError::Exists),
            Some((name, stream)) => (name, stream, false),
            None if r.mode == OpenMode::Open => return Err(VfsError::NotFound),
            None if !is_new && !r.allows_stream(file.id) => return Ok(self.opened(file, false, path)),
            None => {
                let data = Inode::file(file.id, Arc::clone(&self.store), self.now(), self.discards);
                (name.clone(), file.add_stream(name, data, self.now())?, true)
            }
        };
        let node = RamNode::of_stream(Arc::clone(self), file, stream);
        let stat = node.metadata();
        Ok(Opened {
            node: Arc::new(node),
            created,
            path,
            stream: Some(name),
            stat,
            restricted_directories: Vec::new(),
        })
    }

    /// Returns the file at the request's path, whether this call created it, and its path as stored.
    fn find_or_create(&self, r: &OpenRequest) -> VfsResult<(Arc<Inode>, bool, VfsPath)> {
        if r.path.is_root() {
            allow(&self.root, r)?;
            return Ok((Arc::clone(&self.root), false, VfsPath::root()));
        }
        let (directory, name, mut path) = self.resolve_parent(&r.path)?;
        match directory.child(&fold(name)) {
            // Names that differ in case only are equal in this backend.
            Some(child) if r.path.is_exact() && child.name != *name => {
                Err(if r.mode == OpenMode::Open { VfsError::NotFound } else { VfsError::AccessDenied })
            }
            Some(child) => {
                path.push(child.name);
                allow(&child.inode, r)?;
                Ok((child.inode, false, VfsPath::from_parts(path)))
            }
            None if r.mode == OpenMode::Open => Err(match directory.reparse_point() {
                Some(_) => VfsError::ReparsePoint,
                None => VfsError::NotFound,
            }),
            None => {
                let inode = self.create(&directory, r)?;
                self.store.charge(name_cost(name))?;
                self.enter(&directory, name, &inode);
                path.push(name.to_owned());
                Ok((inode, true, VfsPath::from_parts(path)))
            }
        }
    }

    /// A new file for `directory`, without a name.
    fn create(&self, directory: &Inode, r: &OpenRequest) -> VfsResult<Arc<Inode>> {
        let parent = || Parent {
            stat: directory.stat(),
            security: Ok(directory.security()),
            restricted_directories: Vec::new(),
        };
        let security = match &r.create_check {
            Some(check) => Some(check.check(&parent()).ok_or(VfsError::Refused)?),
            None => None,
        };
        let id = FileKey { volume: self.info.volume, file: self.next.fetch_add(1, Ordering::Relaxed).into() };
        let store = Arc::clone(&self.store);
        let inode = match r.kind {
            Some(Kind::Directory) => Inode::directory(id, store, self.now()),
            _ => Inode::file(id, store, self.now(), self.discards),
        };
        inode.set_initial_metadata(
            r.attributes & Attributes::STORED,
            security.as_deref(),
            &r.extended_attributes,
            r.creation_id.clone(),
        )?;
        Ok(Arc::new(inode))
    }

    /// Gives `inode` the name `name` in `directory`; the name is free and already charged.
    fn enter(&self, directory: &Inode, name: &str, inode: &Arc<Inode>) {
        directory.insert(fold(name), Child { name: name.to_owned(), inode: Arc::clone(inode) }, self.now());
    }

    /// The entry `name` of `directory`, if it is the file `id`.
    fn entry(&self, directory: &Inode, name: &str, id: FileKey) -> VfsResult<Child> {
        let child = directory.child(&fold(name)).ok_or(VfsError::NotFound)?;
        if child.inode.id == id { Ok(child) } else { Err(VfsError::Stale) }
    }

    fn remove(&self, path: &VfsPath, id: FileKey) -> VfsResult<()> {
        let _names = self.names.lock();
        let (directory, name, _) = self.resolve_parent(path)?;
        let child = self.entry(&directory, name, id)?;
        if child.inode.has_children() {
            return Err(VfsError::NotEmpty);
        }
        directory.take(&fold(name), self.now());
        self.store.release(name_cost(&child.name));
        Ok(())
    }

    fn rename(&self, from: &VfsPath, id: FileKey, to: &VfsPath, replace: bool) -> VfsResult<()> {
        let _names = self.names.lock();
        let ((source, old, _), (target, new, _)) = (self.resolve_parent(from)?, self.resolve_parent(to)?);
        let child = self.entry(&source, old, id)?;
        if child.inode.kind == Kind::Directory && self.passes(to, child.inode.id) {
            return Err(VfsError::InvalidArgument); // into itself
        }
        let same_entry = source.id == target.id && fold(old) == fold(new);
        let there = target.child(&fold(new)).filter(|_| !same_entry);
        if let Some(there) = &there {
            exactly(there, to)?;
            check_replaceable(there, child.inode.kind, replace)?;
        }
        let (before, after) = (name_cost(&child.name), name_cost(new));
        self.store.charge(after.saturating_sub(before))?; // nothing can fail from here
        self.store.release(before.saturating_sub(after));
        self.replaced(&target, there);
        source.take(&fold(old), self.now());
        child.inode.touch(self.now());
        self.enter(&target, new, &child.inode);
        Ok(())
    }

    fn link(&self, from: &VfsPath, id: FileKey, to: &VfsPath, replace: bool) -> VfsResult<()> {
        let _names = self.names.lock();
        let ((source, old, _), (target, new, _)) = (self.resolve_parent(from)?, self.resolve_parent(to)?);
        let child = self.entry(&source, old, id)?;
        if child.inode.kind == Kind::Directory {
            return Err(VfsError::IsDirectory);
        }
        let there = target.child(&fold(new));
        if let Some(there) = &there {
            exactly(there, to)?;
            check_replaceable(there, child.inode.kind, replace)?;
        }
        self.store.charge(name_cost(new))?;
        self.replaced(&target, there);
        child.inode.touch(self.now());
        self.enter(&target, new, &child.inode);
        Ok(())
    }

    /// Removes an entry that is replaced by another.
    fn replaced(&self, directory: &Inode, there: Option<Child>) {
        if let Some(there) = there {
            directory.take(&fold(&there.name), self.now());
            self.store.release(name_cost(&there.name));
        }
    }

    /// Whether the path to the last name of `path` leads through the directory `id`.
    fn passes(&self, path: &VfsPath, id: FileKey) -> bool {
        let mut at = Arc::clone(&self.root);
        for part in path.components() {
            if at.id == id {
                return true;
            }
            match at.child(&fold(part)) {
                Some(child) => at = child.inode,
                None => break,
            }
        }
        false
    }

    fn now(&self) -> Timestamp {
        now(&self.env)
    }
}

/// Whether an existing file satisfies a request.
fn allow(inode: &Inode, r: &OpenRequest) -> VfsResult<()> {
    match (r.mode, r.kind, inode.kind) {
        (OpenMode::Create, ..) => Err(VfsError::Exists),
        (_, Some(Kind::File), Kind::Directory) => Err(VfsError::IsDirectory),
        (_, Some(Kind::Directory), Kind::File) => Err(VfsError::NotDirectory),
        _ => Ok(()),
    }
}

/// Refuses an exact name `to` if `there` differs from it in case only: the two cannot coexist in this backend.
fn exactly(there: &Child, to: &VfsPath) -> VfsResult<()> {
    let other = to.is_exact() && to.name() != Some(&*there.name);
    if other { Err(VfsError::AccessDenied) } else { Ok(()) }
}

/// Whether `there` may be replaced by a `kind`: only with `replace`, and never a directory, nor by one.
fn check_replaceable(there: &Child, kind: Kind, replace: bool) -> VfsResult<()> {
    if !replace || there.inode.kind == Kind::Directory || kind == Kind::Directory {
        return Err(VfsError::Exists);
    }
    Ok(())
}

fn now(env: &Env) -> Timestamp {
    let t = env.unix_time();
    Timestamp { seconds: t.as_secs() as i64, nanoseconds: t.subsec_nanos() }
}

#[cfg(test)]
mod tests;
