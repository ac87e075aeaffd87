//! The root and its names.

use std::sync::Arc;

use env::{Ctx, Io};
use parking_lot::Mutex;

use super::file::{File, Meta};
use super::node::SpaceNode;
use super::{BLOCK, Form, SpaceFiles, Spaces, SpacesOptions, Tree, VirtualDisk, VirtualDisks, now};
use crate::fold::{fold, is_folded};
use crate::{
    Attributes, DirEntry, FileKey, Kind, OpenMode, OpenRequest, Opened, Parent, Space, Stat, Vfs, VfsError,
    VfsPath, VfsResult, VolumeInfo,
};

/// The root's file number.
const ROOT: u128 = 1;
/// The file number of the virtual disk 0.
const FIRST: u128 = 2;

impl Spaces {
    /// The virtual disks of a pool. All shares of a pool must get the same `files`.
    pub fn new(disks: Arc<dyn VirtualDisks>, files: Arc<SpaceFiles>, options: SpacesOptions) -> Arc<Spaces> {
        let info = VolumeInfo {
            label: options.label,
            file_system: "NTFS".into(),
            volume: options.volume,
            created: now(&files.env),
            case_sensitive: false,
            sparse: true,
            cluster: BLOCK as u32,
            name_max: 255,
            read_only: false,
            removal: options.allow_delete,
            removal_keeps_opens: false, // the data is destroyed
            reflinks: false,
            compression: false,
            snapshots: false,
            short_names: false,
            named_streams: false,
            reparse_points: false,
            local_times: true,
        };
        Arc::new(Spaces { tree: Arc::new(Tree { disks, files, info, names: tokio::sync::Mutex::default() }) })
    }
}

impl Vfs for Spaces {
    fn info(&self) -> &VolumeInfo {
        &self.tree.info
    }

    fn space(&self, _: &Ctx) -> Io<VfsResult<Space>> {
        Io::Done(self.tree.disks.space())
    }

    fn open(&self, _: &Ctx, request: OpenRequest) -> Io<VfsResult<Opened>> {
        match self.tree.open(&request) {
            Err(VfsError::NotFound) if request.mode != OpenMode::Open => {
                let tree = Arc::clone(&self.tree);
                Io::pending(async move { tree.create(&request).await })
            }
            done => Io::Done(done),
        }
    }

    fn remove(&self, _: &Ctx, path: &VfsPath, id: FileKey) -> Io<VfsResult<()>> {
        let (tree, path) = (Arc::clone(&self.tree), path.clone());
        Io::pending(async move {
            let _names = tree.names.lock().await;
            let (found, _) = tree.entry(&path, id)?;
            if !tree.info.removal {
                return Err(VfsError::AccessDenied);
            }
            match tree.files.opened(found.number) {
                Some(file) => file.remove().await,
                None => tree.disks.remove(found.number).await,
            }
        })
    }

    fn rename(&self, _: &Ctx, from: &VfsPath, id: FileKey, to: &VfsPath, _: bool) -> Io<VfsResult<()>> {
        let (tree, from, to) = (Arc::clone(&self.tree), from.clone(), to.clone());
        Io::pending(async move {
            let _names = tree.names.lock().await;
            let (found, _) = tree.entry(&from, id)?;
            let (name, _) = Form::of(tree.name(&to)?).ok_or(VfsError::InvalidName)?;
            match tree.find(&to) {
                // Replacing one would destroy it.
                Ok((there, _)) if there.number != found.number => return Err(VfsError::Exists),
                _ if found.name == name => return Ok(()),
                Ok(_) | Err(VfsError::NotFound) => {}
                Err(e) => return Err(e),
            }
            tree.disks.rename(found.number, name.to_owned()).await
        })
    }

    fn link(&self, _: &Ctx, _: &VfsPath, _: FileKey, _: &VfsPath, _: bool) -> Io<VfsResult<()>> {
        Io::Done(Err(VfsError::Unsupported))
    }
}

impl Tree {
    /// The name of an entry of the root.
    fn name<'a>(&self, path: &'a VfsPath) -> VfsResult<&'a str> {
        match path.components() {
            [] => Err(VfsError::AccessDenied),
            [name] => Ok(name),
            _ => Err(VfsError::PathNotFound),
        }
    }

    /// The virtual disk and form of a path: an exact name before one that differs in case.
    fn find(&self, path: &VfsPath) -> VfsResult<(VirtualDisk, Form)> {
        let (name, form) = Form::of(self.name(path)?).ok_or(VfsError::NotFound)?;
        let (folded, all) = (fold(name), self.disks.list()?.into_iter());
        let means = |d: &VirtualDisk| match path.is_exact() {
            true => d.name == name,
            false => is_folded(&d.name, &folded),
        };
        let found = all.filter(|d| is_shown(d, form) && means(d)).max_by_key(|d| d.name == name);
        found.map(|disk| (disk, form)).ok_or(VfsError::NotFound)
    }

    /// [`Tree::find`]; fails with `Stale` if the path does not refer to the file `id`.
    fn entry(&self, path: &VfsPath, id: FileKey) -> VfsResult<(VirtualDisk, Form)> {
        let (disk, form) = self.find(path)?;
        if self.id(disk.number) == id { Ok((disk, form)) } else { Err(VfsError::Stale) }
    }

    fn open(self: &Arc<Tree>, r: &OpenRequest) -> VfsResult<Opened> {
        if r.stream.is_some() {
            return Err(VfsError::Unsupported);
        }
        let there = |kind: Kind| match (r.mode, r.kind) {
            (OpenMode::Create, _) => Err(VfsError::Exists),
            (_, Some(wanted)) if wanted != kind && kind == Kind::File => Err(VfsError::NotDirectory),
            (_, Some(wanted)) if wanted != kind => Err(VfsError::IsDirectory),
            _ => Ok(()),
        };
        if r.path.is_root() {
            there(Kind::Directory)?;
            return Ok(self.opened_as(None, VfsPath::root(), self.root_stat(), false));
        }
        let (disk, form) = self.find(&r.path)?;
        there(Kind::File)?;
        self.opened(&disk, form, false)
    }

    /// Creates a missing virtual disk.
    async fn create(self: &Arc<Tree>, r: &OpenRequest) -> VfsResult<Opened> {
        let _names = self.names.lock().await;
        match self.open(r) {
            Err(VfsError::NotFound) => {}
            other => return other, // another caller has created it
        }
        let (name, form) = Form::of(self.name(&r.path)?).ok_or(VfsError::InvalidName)?;
        if r.kind == Some(Kind::Directory) {
            return Err(VfsError::Unsupported);
        }
        if let Some(check) = &r.create_check {
            let parent =
                Parent { stat: self.root_stat(), security: Ok(None), restricted_directories: Vec::new() };
            check.check(&parent).ok_or(VfsError::Refused)?;
        }
        let disk = self.disks.create(name.to_owned()).await?;
        self.meta(&disk).lock().stat.attributes = r.attributes & Attributes::STORED | Attributes::SPARSE_FILE;
        self.opened(&disk, form, true)
    }

    fn opened(self: &Arc<Tree>, disk: &VirtualDisk, form: Form, created: bool) -> VfsResult<Opened> {
        let file = self.files.open(&self.disks, disk.number, self.meta(disk))?;
        let path = VfsPath::from_parts(vec![name_of(disk, form)]);
        Ok(self.opened_as(Some((file, form)), path, self.stat(disk, form), created))
    }

    fn opened_as(
        self: &Arc<Tree>,
        file: Option<(Arc<File>, Form)>,
        path: VfsPath,
        stat: Stat,
        created: bool,
    ) -> Opened {
        let node = SpaceNode { tree: Arc::clone(self), id: stat.id, file, listed: Mutex::default() };
        Opened { node: Arc::new(node), created, path, stream: None, stat, restricted_directories: Vec::new() }
    }

    fn id(&self, number: u64) -> FileKey {
        FileKey { volume: self.info.volume, file: FIRST + u128::from(number) }
    }

    /// # Errors
    /// `Stale`: it was destroyed.
    pub(super) fn stat_of(&self, number: u64, form: Form) -> VfsResult<Stat> {
        Ok(self.stat(&self.disks.get(number)?, form))
    }

    fn stat(&self, disk: &VirtualDisk, form: Form) -> Stat {
        let stat = self.meta(disk).lock().stat;
        let data = self.files.opened(disk.number).map_or(disk.size, |_| stat.size);
        Stat { size: data + form.footer(), allocation: disk.allocated, ..stat }
    }

    fn meta(&self, disk: &VirtualDisk) -> Arc<Mutex<Meta>> {
        let (id, now) = (self.id(disk.number), now(&self.files.env));
        let attributes = Attributes::SPARSE_FILE | Attributes::ARCHIVE;
        let times = Stat { created: now, accessed: now, written: now, changed: now, ..self.root_stat() };
        self.files.meta(disk.number, Stat { id, kind: Kind::File, attributes, ..times })
    }

    pub(super) fn root_stat(&self) -> Stat {
        let at = self.info.created;
        Stat {
            id: FileKey { volume: self.info.volume, file: ROOT },
            kind: Kind::Directory,
            size: 0,
            allocation: 0,
            links: 1,
            attributes: Attributes::DIRECTORY,
            reparse: Default::default(),
            created: at,
            accessed: at,
            written: at,
            changed: at,
            ea_size: 0,
            posix: None,
        }
    }

    /// The entries that follow the one listed last, at most `limit`.
    pub(super) fn entries(&self, listed: &mut Option<(u64, Form)>, limit: usize) -> VfsResult<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for disk in self.disks.list()? {
            for form in Form::ALL.into_iter().filter(|f| is_shown(&disk, *f)) {
                let at = Some((disk.number, form));
                if entries.len() < limit && *listed < at {
                    entries.push(self.entry_of(&disk, form));
                    *listed = at;
                }
            }
        }
        Ok(entries)
    }

    fn entry_of(&self, disk: &VirtualDisk, form: Form) -> DirEntry {
        DirEntry { name: name_of(disk, form), stat: self.stat(disk, form) }
    }

    pub(super) fn lookup(&self, name: &str) -> VfsResult<DirEntry> {
        let path = VfsPath::root().join(name).map_err(|_| VfsError::NotFound)?;
        let (disk, form) = self.find(&path)?;
        Ok(self.entry_of(&disk, form))
    }
}

fn name_of(disk: &VirtualDisk, form: Form) -> String {
    format!("{}{}", disk.name, form.extension())
}

/// Whether a form of a virtual disk is shown: its name must be valid for a file, and a VHD has a maximal size.
fn is_shown(disk: &VirtualDisk, form: Form) -> bool {
    let fits = form == Form::Raw || disk.size <= super::vhd::SIZE_MAX;
    fits && VfsPath::root().join(&name_of(disk, form)).is_ok()
}
