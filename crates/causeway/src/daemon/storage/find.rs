//! Searches for disks of pools: patterns of paths, and the labels of the matching disks.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use arena::Arena;
use disk::{Disk, FileDisk, FileOptions};
use env::Env;
use pool::format::Label;

use super::pools::Pools;

/// The maximum number of paths that all patterns match together.
const PATHS_MAX: usize = 4096;

/// A disk with a pool's label.
pub(super) struct Labelled {
    pub(super) path: PathBuf,
    pub(super) label: Label,
}

/// The files and devices that match the patterns, each once, with links resolved.
pub(super) fn expand(patterns: &[String]) -> Vec<PathBuf> {
    let mut found = BTreeSet::new();
    for pattern in patterns {
        let mut heads = vec![PathBuf::from("/")];
        for part in Path::new(pattern).components() {
            let Component::Normal(part) = part else { continue };
            let part = part.to_string_lossy();
            heads = if part.contains(['*', '?']) {
                heads.iter().flat_map(|h| matching(h, &part)).take(PATHS_MAX).collect()
            } else {
                heads.iter().map(|h| h.join(&*part)).collect()
            };
        }
        found.extend(heads.into_iter().filter_map(|p| fs::canonicalize(p).ok()));
    }
    found.into_iter().filter(|p| is_disk(p)).take(PATHS_MAX).collect()
}

/// Whether a path matches one of the patterns.
pub(super) fn names(patterns: &[String], path: &Path) -> bool {
    fs::canonicalize(path).is_ok_and(|p| expand(patterns).contains(&p))
}

/// Reads the labels; an unreadable disk counts as one without a label. Writes nothing and blocks no other
/// process.
pub(super) async fn labels(env: &Env, arena: &Arena, paths: Vec<PathBuf>) -> Vec<Labelled> {
    let options = FileOptions { shared: true, read_only: true, ..FileOptions::default() };
    let mut out = Vec::new();
    for path in paths {
        let disk: Arc<dyn Disk> = match FileDisk::open(env, &path, &options) {
            Ok(disk) => disk,
            Err(error) => {
                tracing::debug!(%error, "not examined");
                continue;
            }
        };
        let found = pool::scan(env, arena, &[disk]).await;
        out.extend(
            found.into_iter().filter_map(|f| Some(Labelled { path: path.clone(), label: f.label.ok()? })),
        );
    }
    out
}

impl Pools {
    /// The name of the open pool in a disk's label, if the disk was removed from that pool while absent.
    pub(super) async fn removed_from(&self, path: &Path) -> Option<String> {
        let labels = labels(&self.env, &self.arena, vec![path.to_owned()]).await;
        let label = &labels.first()?.label;
        let open = self.open_pools().into_iter().find(|o| o.pool.id() == label.pool)?;
        // A label whose number the pool has not assigned yet belongs to an interrupted addition.
        let was_one = open.pool.read(|s| label.number.0 < s.next_disk) && !open.pool.has(label.id);
        was_one.then(|| open.name())
    }
}

fn is_disk(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    fs::metadata(path).is_ok_and(|m| m.is_file() || m.file_type().is_block_device())
}

fn matching(folder: &Path, pattern: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let shown = |name: &str| !name.starts_with('.') || pattern.starts_with('.');
    let fits = |name: &str| shown(name) && wildcard(pattern.as_bytes(), name.as_bytes());
    entries.flatten().filter(|e| fits(&e.file_name().to_string_lossy())).map(|e| e.path()).collect()
}

/// Whether a name matches a pattern: `*` matches any characters, `?` one.
fn wildcard(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == name[n] => (p, n) = (p + 1, n + 1),
            _ => match star {
                // The last `*` matches one more character.
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    (p, n) = (at + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Scratch;

    #[test]
    fn wildcards() {
        for (pattern, name, fits) in [
            ("*.disk", "a.disk", true),
            ("*.disk", ".disk", true),
            ("*.disk", "a.disk.old", false),
            ("d?", "d1", true),
            ("d?", "d12", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b*", "xxbxxaxx", false),
            ("", "", true),
            ("*", "", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(wildcard(pattern.as_bytes(), name.as_bytes()), fits, "{pattern} {name}");
        }
    }

    #[test]
    fn patterns_name_each_disk_once() {
        let dir = Scratch::new("patterns");
        for name in ["one/a.disk", "one/b.disk", "two/a.disk", "two/note.txt", "one/.c.disk"] {
            let path = dir.0.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, "x").expect("written");
        }
        std::os::unix::fs::symlink(dir.0.join("one/a.disk"), dir.0.join("two/link.disk")).expect("a link");
        let pattern = |p: &str| format!("{}/{p}", dir.0.display());
        let root = fs::canonicalize(&dir.0).expect("there");
        let found = expand(&[pattern("*/*.disk"), pattern("one/a.disk"), pattern("none/*"), pattern("one")]);
        let expected = ["one/a.disk", "one/b.disk", "two/a.disk"].map(|p| root.join(p));
        assert_eq!(found, expected);
        assert!(names(&[pattern("o*/?.disk")], &dir.0.join("two/link.disk")));
        assert!(!names(&[pattern("o*/?.disk")], &dir.0.join("two/a.disk")));
    }
}
