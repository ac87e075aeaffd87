//! The conformance suite: the requirements of a backend as tests, run on all backends.
//!
//! A backend's test calls [`run_all`] with a function that creates a [`Subject`] per check, inside a Tokio runtime. A
//! check that fails panics with the expected result; the random one prints its seed.

mod creating;
mod data;
mod links;
mod listing;
mod metadata;
mod model;
mod opening;
mod renaming;
mod reparse;
mod space;
mod streams;

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use arena::{Arena, IoBuf, Sg, sg_to_vec};
use env::Ctx;

use crate::{
    Attributes, CreateCheck, Data, FileKey, Kind, Node, OpenMode, OpenRequest, Opened, Parent, ReadOptions,
    Rights, Stat, Vfs, VfsError, VfsPath, VfsResult,
};

/// A fresh, empty tree to test, and its features.
pub struct Subject {
    /// The tree.
    pub vfs: Arc<dyn Vfs>,
    /// Memory for reads, at least 8 MiB; nothing else uses it.
    pub arena: Arena,
    /// Data that is written can be read.
    pub keeps_data: bool,
    /// Attributes, creation times, security descriptors and extended attributes are kept.
    pub keeps_metadata: bool,
    /// Ranges that were never written take no space, and are reported as holes.
    pub keeps_holes: bool,
    /// Files can have several names.
    pub links: bool,
    /// There are folders, files have any name and any length in bytes, and stay usable after they were removed. Without
    /// this lengths are multiples of 4 KiB, and names end in `.img`.
    pub any_file: bool,
    /// A value that must outlive the tree.
    pub keep: Box<dyn Any>,
}

type Check = for<'a> fn(&'a Subject) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

/// All checks by name; those that also run without [`Subject::any_file`] are in [`PLAIN`].
const CHECKS: &[(&str, Check)] = &[
    ("opening::modes", |s| Box::pin(opening::modes(s))),
    ("opening::missing", |s| Box::pin(opening::missing(s))),
    ("opening::case", |s| Box::pin(opening::case(s))),
    ("opening::unicode", |s| Box::pin(opening::unicode(s))),
    ("creating::allowed", |s| Box::pin(creating::allowed(s))),
    ("creating::refused", |s| Box::pin(creating::refused(s))),
    ("creating::not_asked", |s| Box::pin(creating::not_asked(s))),
    ("creating::identified", |s| Box::pin(creating::identified(s))),
    ("creating::streams", |s| Box::pin(creating::streams(s))),
    ("reparse::kept", |s| Box::pin(reparse::kept(s))),
    ("reparse::largest", |s| Box::pin(reparse::largest(s))),
    ("renaming::simple", |s| Box::pin(renaming::simple(s))),
    ("renaming::case_only", |s| Box::pin(renaming::case_only(s))),
    ("renaming::replacing", |s| Box::pin(renaming::replacing(s))),
    ("renaming::directories", |s| Box::pin(renaming::directories(s))),
    ("renaming::refused", |s| Box::pin(renaming::refused(s))),
    ("renaming::removing", |s| Box::pin(renaming::removing(s))),
    ("links::second_name", |s| Box::pin(links::second_name(s))),
    ("links::refused", |s| Box::pin(links::refused(s))),
    ("listing::small", |s| Box::pin(listing::small(s))),
    ("listing::ten_thousand", |s| Box::pin(listing::ten_thousand(s))),
    ("listing::lookup", |s| Box::pin(listing::lookup(s))),
    ("metadata::times", |s| Box::pin(metadata::times(s))),
    ("metadata::change_time", |s| Box::pin(metadata::change_time(s))),
    ("metadata::attributes", |s| Box::pin(metadata::attributes(s))),
    ("metadata::security", |s| Box::pin(metadata::security(s))),
    ("metadata::extended", |s| Box::pin(metadata::extended(s))),
    ("metadata::shared_by_opens", |s| Box::pin(metadata::shared_by_opens(s))),
    ("data::end_of_file", |s| Box::pin(data::end_of_file(s))),
    ("data::lengths", |s| Box::pin(data::lengths(s))),
    ("data::durable", |s| Box::pin(data::durable(s))),
    ("data::directory", |s| Box::pin(data::directory(s))),
    ("space::sparse", |s| Box::pin(space::sparse(s))),
    ("space::zeroed", |s| Box::pin(space::zeroed(s))),
    ("space::reserved", |s| Box::pin(space::reserved(s))),
    ("space::copied", |s| Box::pin(space::copied(s))),
    ("space::cloned", |s| Box::pin(space::cloned(s))),
    ("space::compressed", |s| Box::pin(space::compressed(s))),
    ("streams::opening", |s| Box::pin(streams::opening(s))),
    ("streams::of_directories", |s| Box::pin(streams::of_directories(s))),
    ("streams::contents", |s| Box::pin(streams::contents(s))),
    ("streams::metadata", |s| Box::pin(streams::metadata(s))),
    ("streams::beside_a_descriptor", |s| Box::pin(streams::beside_a_descriptor(s))),
    ("streams::names", |s| Box::pin(streams::names(s))),
    ("streams::removing", |s| Box::pin(streams::removing(s))),
    ("streams::renaming", |s| Box::pin(streams::renaming(s))),
    ("streams::with_the_file", |s| Box::pin(streams::with_the_file(s))),
    ("streams::concurrent_writers", |s| Box::pin(streams::concurrent_writers(s))),
    ("streams::random", |s| Box::pin(streams::random(s))),
    ("model::random", |s| Box::pin(model::random(s))),
];

/// Checks of any backend.
const PLAIN: &[(&str, Check)] = &[
    ("opening::same_file", |s| Box::pin(opening::same_file(s))),
    ("opening::at_once", |s| Box::pin(opening::at_once(s))),
    ("data::boundaries", |s| Box::pin(data::boundaries(s))),
    ("data::concurrent_writes", |s| Box::pin(data::concurrent_writes(s))),
    ("data::descriptor", |s| Box::pin(data::descriptor(s))),
    ("data::no_memory", |s| Box::pin(data::no_memory(s))),
];

/// Runs every check on a fresh subject.
///
/// # Panics
/// When the backend fails a check.
pub async fn run_all(make: impl Fn() -> Subject) {
    run_some(make, |_| true).await;
}

/// Runs the checks whose names are `wanted`.
async fn run_some(make: impl Fn() -> Subject, wanted: impl Fn(&str) -> bool) {
    let any_file = make().any_file;
    let checks = PLAIN.iter().chain(CHECKS.iter().filter(|_| any_file));
    for (name, check) in checks.filter(|(name, _)| wanted(name)) {
        eprintln!("  {name}");
        check(&make()).await;
    }
}

/// Allows every creation, with this security descriptor.
impl CreateCheck for Vec<u8> {
    fn check(&self, _: &Parent) -> Option<Vec<u8>> {
        Some(self.clone())
    }
}

/// A path that is legal.
fn path(text: &str) -> VfsPath {
    VfsPath::parse(text).expect("a legal path")
}

/// `n` bytes that differ by position and `seed`.
fn pattern(seed: u64, n: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let mut out = Vec::with_capacity(n + 8);
    while out.len() < n {
        out.extend_from_slice(&random.next().to_le_bytes());
    }
    out.truncate(n);
    out
}

/// A payload in pieces of `piece` bytes.
fn payload(bytes: &[u8], piece: usize) -> Sg {
    bytes.chunks(piece.max(1)).map(|b| IoBuf::from(b.to_vec())).collect()
}

/// A repeatable source of numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

impl Subject {
    /// The path of a check's file in the subject.
    fn path(&self, text: &str) -> VfsPath {
        match self.any_file || text.is_empty() {
            true => path(text),
            false => path(&format!("{text}.img")),
        }
    }

    async fn open(&self, text: &str, mode: OpenMode, kind: Option<Kind>) -> VfsResult<Opened> {
        let request = OpenRequest {
            mode,
            kind,
            rights: Rights { read: true, write: true },
            attributes: Attributes::ARCHIVE,
            ..OpenRequest::for_metadata(self.path(text))
        };
        self.vfs.open(&Ctx::default(), request).wait().await
    }

    /// A new file.
    async fn file(&self, text: &str) -> Opened {
        let made = self.open(text, OpenMode::Create, Some(Kind::File)).await;
        made.unwrap_or_else(|e| panic!("create {text:?}: {e}"))
    }

    /// A new directory.
    async fn directory(&self, text: &str) -> Opened {
        let made = self.open(text, OpenMode::Create, Some(Kind::Directory)).await;
        made.unwrap_or_else(|e| panic!("create directory {text:?}: {e}"))
    }

    /// Opens an existing file or directory.
    async fn existing(&self, text: &str) -> Opened {
        self.open(text, OpenMode::Open, None).await.unwrap_or_else(|e| panic!("open {text:?}: {e}"))
    }

    /// The error of opening it.
    async fn refusal(&self, text: &str) -> Option<VfsError> {
        self.open(text, OpenMode::Open, None).await.err()
    }

    async fn remove(&self, text: &str, id: FileKey) -> VfsResult<()> {
        self.vfs.remove(&Ctx::default(), &self.path(text), id).wait().await
    }

    async fn rename(&self, from: &str, id: FileKey, to: &str, replace: bool) -> VfsResult<()> {
        self.vfs.rename(&Ctx::default(), &self.path(from), id, &self.path(to), replace).wait().await
    }

    async fn link(&self, from: &str, id: FileKey, to: &str, replace: bool) -> VfsResult<()> {
        self.vfs.link(&Ctx::default(), &path(from), id, &path(to), replace).wait().await
    }

    async fn write(&self, node: &dyn Node, offset: u64, bytes: &[u8]) {
        let written = node.write(&Ctx::default(), offset, payload(bytes, 5000)).wait().await;
        assert_eq!(written, Ok(bytes.len() as u32), "write of {} bytes at {offset}", bytes.len());
    }

    async fn read(&self, node: &dyn Node, offset: u64, length: u32) -> VfsResult<Vec<u8>> {
        let want = ReadOptions { length, arena: &self.arena, file_ok: false };
        match node.read(&Ctx::default(), offset, want).wait().await? {
            Data::Bufs(sg) => Ok(sg_to_vec(&sg)),
            Data::File { .. } => panic!("a descriptor was not asked for"),
        }
    }

    /// Asserts the result of a read; without [`Subject::keeps_data`] only its length.
    async fn expect(&self, node: &dyn Node, offset: u64, length: u32, expected: &[u8]) {
        let got = self.read(node, offset, length).await.expect("a read");
        assert_eq!(got.len(), expected.len(), "length of a read of {length} at {offset}");
        if self.keeps_data
            && let Some(at) = got.iter().zip(expected).position(|(a, b)| a != b)
        {
            panic!("byte {at} of a read of {length} at {offset} is {}, not {}", got[at], expected[at]);
        }
    }

    async fn stat(&self, node: &dyn Node) -> Stat {
        node.stat(&Ctx::default()).wait().await.expect("metadata of an open file")
    }

    /// All names of a directory, sorted.
    async fn names(&self, text: &str) -> Vec<String> {
        let directory = self.open(text, OpenMode::Open, Some(Kind::Directory)).await.expect("a directory");
        let (mut names, mut restart) = (Vec::new(), true);
        loop {
            let some = directory.node.list(&Ctx::default(), restart, 7).wait().await.expect("a listing");
            if some.is_empty() {
                break;
            }
            names.extend(some.into_iter().map(|e| e.name));
            restart = false;
        }
        names.sort();
        names
    }
}

#[cfg(test)]
mod tests;
