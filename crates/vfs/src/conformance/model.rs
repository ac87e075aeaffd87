//! Random operations, compared with a naive model: a map of names, and a vector of bytes per file.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use env::Ctx;

use super::{Random, Subject, path, pattern};
use crate::fold::fold;
use crate::{Kind, Node, OpenMode, VfsError};

/// How many sequences are tried, and how long one is.
const SEQUENCES: u64 = 6;
const STEPS: u64 = 400;

/// The largest offset used, in bytes: a few blocks.
const EXTENT: u64 = 300_000;

/// Names to choose from; several are equal without regard to case.
const NAMES: [&str; 8] = ["a", "A", "b", "Bé", "bÉ", "c", "dir", "DIR"];

/// A file's bytes, shared by all that have it open.
type Bytes = Rc<RefCell<Vec<u8>>>;

#[derive(Clone)]
struct Entry {
    /// The name as stored.
    name: String,
    /// `None`: a directory.
    bytes: Option<Bytes>,
}

/// The model: all entries by folded path.
#[derive(Default)]
struct Model {
    entries: BTreeMap<String, Entry>,
}

struct Open {
    node: std::sync::Arc<dyn Node>,
    bytes: Bytes,
}

pub(super) async fn random(s: &Subject) {
    for seed in 0..SEQUENCES {
        let root = format!("seed{seed}");
        let top = s.directory(&root).await;
        let mut run = Run { s, root, random: Random(seed), model: Model::default(), open: Vec::new() };
        for step in 0..STEPS {
            let at = format!("seed {seed}, step {step}");
            run.step(&at).await;
        }
        run.compare(&format!("seed {seed}, at the end")).await;
        drop(top);
    }
}

struct Run<'a> {
    s: &'a Subject,
    /// The directory that the model's paths are relative to.
    root: String,
    random: Random,
    model: Model,
    open: Vec<Open>,
}

impl Run<'_> {
    /// A path of one or two names.
    fn path(&mut self) -> String {
        let mut name = || NAMES[self.random.below(NAMES.len() as u64) as usize];
        let first = name();
        match name() {
            "a" | "A" | "c" => format!("dir\\{first}"),
            _ => first.to_owned(),
        }
    }

    fn full(&self, path: &str) -> String {
        format!("{}\\{path}", self.root)
    }

    async fn step(&mut self, at: &str) {
        match self.random.below(14) {
            0..=2 => self.make(at).await,
            3 => self.reopen(at).await,
            4..=6 => self.write().await,
            7 | 8 => self.read().await,
            9 => self.cut().await,
            10 => self.zero().await,
            11 => self.remove(at).await,
            12 => self.rename(at).await,
            _ => self.copy().await,
        }
        if self.open.len() > 6 {
            let n = self.random.below(6) as usize;
            self.open.swap_remove(n);
        }
        if self.random.below(40) == 0 {
            self.compare(at).await;
        }
    }

    async fn make(&mut self, at: &str) {
        let path = self.path();
        let mode = if self.random.below(2) == 0 { OpenMode::Create } else { OpenMode::OpenOrCreate };
        let kind = if fold(&path).ends_with("DIR") { Kind::Directory } else { Kind::File };
        let got = self.s.open(&self.full(&path), mode, Some(kind)).await;
        let expected = self.model.make(&path, mode, kind);
        let seen = got.as_ref().map(|o| o.created).map_err(|e| *e);
        assert_eq!(
            seen,
            expected.as_ref().map(|e| e.0).map_err(|e| *e),
            "{at}: make {path:?} {mode:?} {kind:?}"
        );
        if let (Ok(opened), Ok((_, entry))) = (got, expected) {
            assert_eq!(opened.path.name(), Some(&*entry.name), "{at}: stored name");
            if let Some(bytes) = entry.bytes {
                self.open.push(Open { node: opened.node, bytes });
            }
        }
    }

    async fn reopen(&mut self, at: &str) {
        let path = self.path();
        let got = self.s.open(&self.full(&path), OpenMode::Open, None).await;
        let expected = self.model.find(&path);
        assert_eq!(got.as_ref().err().copied(), expected.as_ref().err().copied(), "{at}: open {path:?}");
        if let (Ok(opened), Ok(entry)) = (got, expected)
            && let Some(bytes) = entry.bytes
        {
            self.open.push(Open { node: opened.node, bytes });
        }
    }

    async fn write(&mut self) {
        let Some((f, offset, length)) = self.pick() else { return };
        let data = pattern(self.random.next(), length);
        let f = &self.open[f];
        self.s.write(&*f.node, offset as u64, &data).await;
        put(&f.bytes, offset, &data);
    }

    async fn read(&mut self) {
        let Some((f, offset, length)) = self.pick() else { return };
        let f = &self.open[f];
        let expected = {
            let bytes = f.bytes.borrow();
            let end = bytes.len().min(offset + length);
            bytes[offset.min(end)..end].to_vec()
        };
        self.s.expect(&*f.node, offset as u64, length as u32, &expected).await;
    }

    async fn cut(&mut self) {
        let Some((f, len, _)) = self.pick() else { return };
        let f = &self.open[f];
        f.node.set_len(&Ctx::default(), len as u64).wait().await.expect("a length");
        f.bytes.borrow_mut().resize(len, 0);
    }

    async fn zero(&mut self) {
        let Some((f, offset, length)) = self.pick() else { return };
        let f = &self.open[f];
        f.node.zero(&Ctx::default(), offset as u64..(offset + length) as u64).wait().await.expect("zeroed");
        let mut bytes = f.bytes.borrow_mut();
        let end = bytes.len().min(offset + length);
        bytes[offset.min(end)..end].fill(0);
    }

    async fn copy(&mut self) {
        let (Some((f, from, length)), Some((g, to, _))) = (self.pick(), self.pick()) else { return };
        let (f, g) = (&self.open[f], &self.open[g]);
        if Rc::ptr_eq(&f.bytes, &g.bytes) {
            return; // the ranges may overlap
        }
        let data = {
            let bytes = f.bytes.borrow();
            let end = bytes.len().min(from + length);
            bytes[from.min(end)..end].to_vec()
        };
        let c = Ctx::default();
        let copied = f.node.copy_to(&c, from as u64, &g.node, to as u64, length as u64).wait().await;
        assert_eq!(copied, Ok(data.len() as u64));
        put(&g.bytes, to, &data);
    }

    async fn remove(&mut self, at: &str) {
        let path = self.path();
        let full = self.full(&path);
        let Ok(opened) = self.s.open(&full, OpenMode::Open, None).await else {
            return assert!(self.model.find(&path).is_err(), "{at}: {path:?} is there");
        };
        let got = self.s.remove(&full, opened.node.id()).await;
        assert_eq!(got, self.model.remove(&path), "{at}: remove {path:?}");
    }

    async fn rename(&mut self, at: &str) {
        let (from, to, replace) = (self.path(), self.path(), self.random.below(2) == 0);
        let (old, new) = (self.full(&from), self.full(&to));
        let Ok(opened) = self.s.open(&old, OpenMode::Open, None).await else {
            return assert!(self.model.find(&from).is_err(), "{at}: {from:?} is there");
        };
        let got = self.s.rename(&old, opened.node.id(), &new, replace).await;
        let expected = self.model.rename(&from, &to, replace);
        assert_eq!(got, expected, "{at}: rename {from:?} to {to:?}, replace {replace}");
    }

    /// An open file, an offset and a length.
    fn pick(&mut self) -> Option<(usize, usize, usize)> {
        if self.open.is_empty() {
            return None;
        }
        let f = self.random.below(self.open.len() as u64) as usize;
        let offset = self.random.below(EXTENT) as usize;
        let length = match self.random.below(3) {
            0 => self.random.below(10),
            1 => self.random.below(9000),
            _ => self.random.below(150_000),
        };
        Some((f, offset, length as usize))
    }

    /// Compares all names and the content of the files.
    async fn compare(&mut self, at: &str) {
        for directory in ["", "dir"] {
            let (mut names, full) = match self.model.list(directory) {
                Some(names) if directory.is_empty() => (names, self.root.clone()),
                Some(names) => (names, self.full(directory)),
                None => continue,
            };
            names.sort();
            assert_eq!(self.s.names(&full).await, names, "{at}: names in {directory:?}");
        }
        for (folded, entry) in &self.model.entries {
            let Some(bytes) = &entry.bytes else { continue };
            let opened = self.s.existing(&self.full(folded)).await;
            let bytes = bytes.borrow().clone();
            assert_eq!(opened.stat.size, bytes.len() as u64, "{at}: size of {folded:?}");
            self.s.expect(&*opened.node, 0, bytes.len() as u32 + 1, &bytes).await;
        }
    }
}

/// Writes into a vector as into a file.
fn put(bytes: &Bytes, offset: usize, data: &[u8]) {
    if data.is_empty() {
        return;
    }
    let mut bytes = bytes.borrow_mut();
    let end = offset + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset..end].copy_from_slice(data);
}

impl Model {
    /// # Errors
    /// `PathNotFound` when the parent is no directory.
    fn above(&self, path: &str) -> Result<(), VfsError> {
        match super::path(path).parent() {
            Some(above) if !above.is_root() => match self.entries.get(&fold(&above.to_string())) {
                Some(Entry { bytes: None, .. }) => Ok(()),
                _ => Err(VfsError::PathNotFound),
            },
            _ => Ok(()),
        }
    }

    fn find(&self, path: &str) -> Result<Entry, VfsError> {
        self.above(path)?;
        self.entries.get(&fold(path)).cloned().ok_or(VfsError::NotFound)
    }

    fn make(&mut self, at: &str, mode: OpenMode, kind: Kind) -> Result<(bool, Entry), VfsError> {
        match self.find(at) {
            Err(VfsError::NotFound) => {
                let name = path(at).name().unwrap_or_default().to_owned();
                let entry = Entry { name, bytes: (kind == Kind::File).then(Bytes::default) };
                self.entries.insert(fold(at), entry.clone());
                Ok((true, entry))
            }
            Err(e) => Err(e),
            Ok(_) if mode == OpenMode::Create => Err(VfsError::Exists),
            Ok(Entry { bytes: None, .. }) if kind == Kind::File => Err(VfsError::IsDirectory),
            Ok(Entry { bytes: Some(_), .. }) if kind == Kind::Directory => Err(VfsError::NotDirectory),
            Ok(entry) => Ok((false, entry)),
        }
    }

    fn remove(&mut self, path: &str) -> Result<(), VfsError> {
        self.find(path)?;
        let below = format!("{}\\", fold(path));
        if self.entries.keys().any(|k| k.starts_with(&below)) {
            return Err(VfsError::NotEmpty);
        }
        self.entries.remove(&fold(path));
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str, replace: bool) -> Result<(), VfsError> {
        let mut entry = self.find(from)?;
        self.above(to)?;
        let (old, new) = (fold(from), fold(to));
        let directory = entry.bytes.is_none();
        if directory && new.starts_with(&format!("{old}\\")) {
            return Err(VfsError::InvalidArgument);
        }
        if let Some(there) = self.entries.get(&new).filter(|_| old != new)
            && (!replace || directory || there.bytes.is_none())
        {
            return Err(VfsError::Exists);
        }
        entry.name = path(to).name().unwrap_or_default().to_owned();
        self.entries.remove(&old);
        self.entries.insert(new.clone(), entry);
        let below = format!("{old}\\");
        let moved: Vec<String> = self.entries.keys().filter(|k| k.starts_with(&below)).cloned().collect();
        for key in moved {
            if let Some(entry) = self.entries.remove(&key) {
                self.entries.insert(format!("{new}\\{}", &key[below.len()..]), entry);
            }
        }
        Ok(())
    }

    /// The names in a directory; `None` if `directory` is not a directory.
    fn list(&self, directory: &str) -> Option<Vec<String>> {
        let prefix = match directory {
            "" => String::new(),
            d => match self.entries.get(&fold(d)) {
                Some(Entry { bytes: None, .. }) => format!("{}\\", fold(d)),
                _ => return None,
            },
        };
        let inside = self.entries.iter().filter_map(|(k, e)| Some((k.strip_prefix(&prefix)?, e)));
        Some(inside.filter(|(k, _)| !k.contains('\\')).map(|(_, e)| e.name.clone()).collect())
    }
}
