//! A file or directory in memory, independent of its names.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::Mutex;

use super::blocks::Blocks;
use super::store::Store;
use crate::{
    Attributes, BasicChange, ExtendedAttribute, FileKey, Kind, ReparseKind, ReparsePoint, Stat, StreamName,
    Timestamp, VfsError, VfsResult,
};

/// The charge for a file without data, in bytes.
pub(super) const INODE_COST: u64 = 512;
/// The charge for a name in addition to its length, in bytes.
const NAME_COST: u64 = 128;
/// The charge for a name, in bytes.
pub(super) fn name_cost(name: &str) -> u64 {
    NAME_COST + name.len() as u64
}

/// The most bytes of extended attributes (FILE_FULL_EA_INFORMATION has 16-bit lengths; NTFS has this limit).
const EXTENDED_MAX: u32 = 65_535;
/// The largest security descriptor: far above the size of an ACL (16-bit length).
const DESCRIPTOR_MAX: usize = 256 << 10;

pub(super) struct Inode {
    pub(super) id: FileKey,
    pub(super) kind: Kind,
    store: Arc<Store>,
    pub(super) state: Mutex<State>,
}

pub(super) struct State {
    pub(super) size: u64,
    pub(super) content: Content,
    attributes: Attributes,
    created: Timestamp,
    accessed: Timestamp,
    written: Timestamp,
    changed: Timestamp,
    links: u32,
    security: Option<Vec<u8>>,
    extended: Vec<ExtendedAttribute>,
    creation_id: Option<Vec<u8>>,
    reparse: Option<ReparsePoint>,
    /// The named streams. Of each of these files only the size and the content are used.
    pub(super) streams: Vec<(StreamName, Arc<Inode>)>,
    /// The charge on the store, without blocks and names.
    charged: u64,
}

pub(super) enum Content {
    Blocks(Blocks),
    /// The backend `null` drops the data; it reads as zeros.
    Nothing,
    /// The entries by folded name.
    Directory(BTreeMap<String, Child>),
}

/// One directory entry.
#[derive(Clone)]
pub(super) struct Child {
    /// The name as stored.
    pub(super) name: String,
    pub(super) inode: Arc<Inode>,
}

impl Inode {
    pub(super) fn file(id: FileKey, store: Arc<Store>, now: Timestamp, discards: bool) -> Inode {
        let content =
            if discards { Content::Nothing } else { Content::Blocks(Blocks::new(Arc::clone(&store))) };
        Inode::new(id, Kind::File, store, now, content)
    }

    pub(super) fn directory(id: FileKey, store: Arc<Store>, now: Timestamp) -> Inode {
        Inode::new(id, Kind::Directory, store, now, Content::Directory(BTreeMap::new()))
    }

    fn new(id: FileKey, kind: Kind, store: Arc<Store>, now: Timestamp, content: Content) -> Inode {
        let state = State {
            size: 0,
            content,
            attributes: Attributes::empty(),
            created: now,
            accessed: now,
            written: now,
            changed: now,
            links: if kind == Kind::Directory { 1 } else { 0 },
            security: None,
            extended: Vec::new(),
            creation_id: None,
            reparse: None,
            streams: Vec::new(),
            charged: 0,
        };
        Inode { id, kind, store, state: Mutex::new(state) }
    }

    /// Stores the requested metadata of a new file, and charges for it.
    pub(super) fn set_initial_metadata(
        &self,
        attributes: Attributes,
        security: Option<&[u8]>,
        extended: &[ExtendedAttribute],
        creation_id: Option<Vec<u8>>,
    ) -> VfsResult<()> {
        let mut state = self.state.lock();
        self.store.charge(INODE_COST)?;
        state.charged += INODE_COST;
        state.attributes = attributes;
        state.creation_id = creation_id;
        if let Some(descriptor) = security {
            self.put_security(&mut state, descriptor)?;
        }
        self.put_extended(&mut state, extended)
    }

    pub(super) fn creation_id(&self) -> Option<Vec<u8>> {
        self.state.lock().creation_id.clone()
    }

    pub(super) fn stat(&self) -> Stat {
        let state = self.state.lock();
        let mut attributes = state.attributes;
        attributes.set(Attributes::DIRECTORY, self.kind == Kind::Directory);
        attributes.set(Attributes::REPARSE_POINT, state.reparse.is_some());
        Stat {
            id: self.id,
            kind: self.kind,
            size: state.size,
            allocation: state.allocation(),
            links: state.links,
            attributes,
            reparse: state.reparse.as_ref().map(ReparseKind::from).unwrap_or_default(),
            created: state.created,
            accessed: state.accessed,
            written: state.written,
            changed: state.changed,
            ea_size: extended_size(&state.extended),
            posix: None,
        }
    }

    pub(super) fn set_basic(&self, change: &BasicChange, now: Timestamp) {
        let mut state = self.state.lock();
        if let Some(attributes) = change.attributes {
            state.attributes = attributes & Attributes::STORED | state.attributes & !Attributes::STORED;
        }
        state.created = change.created.unwrap_or(state.created);
        state.accessed = change.accessed.unwrap_or(state.accessed);
        state.written = change.written.unwrap_or(state.written);
        state.changed = change.changed.unwrap_or(now);
    }

    pub(super) fn set_sparse(&self, sparse: bool, now: Timestamp) {
        let mut state = self.state.lock();
        state.attributes.set(Attributes::SPARSE_FILE, sparse);
        state.changed = now;
    }

    /// Sets the change time.
    pub(super) fn touch(&self, now: Timestamp) {
        self.state.lock().changed = now;
    }

    pub(super) fn security(&self) -> Option<Vec<u8>> {
        self.state.lock().security.clone()
    }

    pub(super) fn set_security(&self, descriptor: &[u8], now: Timestamp) -> VfsResult<()> {
        let mut state = self.state.lock();
        self.put_security(&mut state, descriptor)?;
        state.changed = now;
        Ok(())
    }

    pub(super) fn extended(&self) -> Vec<ExtendedAttribute> {
        self.state.lock().extended.clone()
    }

    pub(super) fn set_extended(&self, set: &[ExtendedAttribute], now: Timestamp) -> VfsResult<()> {
        let mut state = self.state.lock();
        self.put_extended(&mut state, set)?;
        state.changed = now;
        Ok(())
    }

    pub(super) fn reparse_point(&self) -> Option<ReparsePoint> {
        self.state.lock().reparse.clone()
    }

    pub(super) fn set_reparse_point(&self, point: Option<ReparsePoint>, now: Timestamp) -> VfsResult<()> {
        let mut state = self.state.lock();
        let size = |point: &Option<ReparsePoint>| point.as_ref().map_or(0, |p| p.data.len() as u64);
        let (before, after) = (size(&state.reparse), size(&point));
        if after > ReparsePoint::DATA_MAX as u64 {
            return Err(VfsError::AttributeTooLarge);
        }
        self.recharge(&mut state, before, after)?;
        (state.reparse, state.changed) = (point, now);
        Ok(())
    }

    /// The entry with this folded name; `None` in a file.
    pub(super) fn child(&self, folded: &str) -> Option<Child> {
        match &self.state.lock().content {
            Content::Directory(children) => children.get(folded).cloned(),
            _ => None,
        }
    }

    pub(super) fn has_children(&self) -> bool {
        matches!(&self.state.lock().content, Content::Directory(children) if !children.is_empty())
    }

    /// Up to `limit` entries whose folded names follow `after`, with those names.
    pub(super) fn children(&self, after: Option<&str>, limit: usize) -> Vec<(String, Child)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        match &self.state.lock().content {
            Content::Directory(children) => children
                .range::<str, _>((from, Bound::Unbounded))
                .take(limit)
                .map(|(folded, child)| (folded.clone(), child.clone()))
                .collect(),
            _ => Vec::new(),
        }
    }

    /// Adds an entry to a directory; its name is free and already charged.
    pub(super) fn insert(&self, folded: String, child: Child, now: Timestamp) {
        let inode = Arc::clone(&child.inode);
        {
            let mut state = self.state.lock();
            let Content::Directory(children) = &mut state.content else { return };
            children.insert(folded, child);
            (state.written, state.changed) = (now, now);
        }
        if inode.kind == Kind::File {
            inode.state.lock().links += 1;
        }
    }

    /// Removes an entry; its name stays charged.
    pub(super) fn take(&self, folded: &str, now: Timestamp) {
        let taken = {
            let mut state = self.state.lock();
            let Content::Directory(children) = &mut state.content else { return };
            let Some(child) = children.remove(folded) else { return };
            (state.written, state.changed) = (now, now);
            child
        };
        if taken.inode.kind == Kind::File {
            taken.inode.state.lock().links -= 1;
        }
    }

    /// Removes the entries of a directory that is being dropped.
    fn empty(&mut self) -> Vec<Arc<Inode>> {
        let Content::Directory(children) = &mut self.state.get_mut().content else { return Vec::new() };
        let names = std::mem::take(children).into_values();
        let gone = names.inspect(|c| self.store.release(name_cost(&c.name)));
        gone.map(|c| c.inode).collect()
    }

    fn put_security(&self, state: &mut State, descriptor: &[u8]) -> VfsResult<()> {
        if descriptor.len() > DESCRIPTOR_MAX {
            return Err(VfsError::AttributeTooLarge);
        }
        let before = state.security.as_ref().map_or(0, Vec::len);
        self.recharge(state, before as u64, descriptor.len() as u64)?;
        state.security = Some(descriptor.to_vec());
        Ok(())
    }

    fn put_extended(&self, state: &mut State, set: &[ExtendedAttribute]) -> VfsResult<()> {
        let mut all = state.extended.clone();
        for attribute in set {
            if attribute.name.is_empty() || attribute.name.contains(&0) {
                return Err(VfsError::InvalidArgument);
            }
            let there = all.iter().position(|a| a.name.eq_ignore_ascii_case(&attribute.name));
            match (there, attribute.value.is_empty()) {
                (None, true) => {}
                (Some(at), true) => drop(all.remove(at)),
                (Some(at), false) => all[at].value.clone_from(&attribute.value),
                (None, false) => all.push(ExtendedAttribute { flags: 0, ..attribute.clone() }),
            }
            if extended_size(&all) > EXTENDED_MAX {
                return Err(VfsError::AttributeTooLarge);
            }
        }
        let (before, after) = (extended_size(&state.extended), extended_size(&all));
        self.recharge(state, before.into(), after.into())?;
        state.extended = all;
        Ok(())
    }

    pub(super) fn recharge(&self, state: &mut State, before: u64, after: u64) -> VfsResult<()> {
        self.store.charge(after)?;
        self.store.release(before);
        state.charged = state.charged + after - before;
        Ok(())
    }
}

impl Drop for Inode {
    /// Drops a deep tree without deep recursion: directories are emptied one after the other.
    fn drop(&mut self) {
        self.store.release(self.state.get_mut().charged);
        let mut orphans = self.empty();
        while let Some(mut inode) = orphans.pop() {
            if let Some(last) = Arc::get_mut(&mut inode) {
                orphans.extend(last.empty());
            }
        }
    }
}

impl State {
    /// Space taken by the data, in bytes.
    pub(super) fn allocation(&self) -> u64 {
        match &self.content {
            Content::Blocks(blocks) => blocks.allocation(),
            Content::Nothing => self.size.next_multiple_of(4096),
            Content::Directory(_) => 0,
        }
    }

    /// Data was written or truncated.
    pub(super) fn data_changed(&mut self, now: Timestamp) {
        (self.written, self.changed) = (now, now);
    }
}

/// The size as FILE_FULL_EA_INFORMATION (MS-FSCC 2.4.16), in bytes.
fn extended_size(all: &[ExtendedAttribute]) -> u32 {
    all.iter().fold(0u32, |at, a| {
        let size = 8 + a.name.len().saturating_add(1).saturating_add(a.value.len());
        at.next_multiple_of(4).saturating_add(u32::try_from(size).unwrap_or(u32::MAX))
    })
}
