//! The disks of this machine: lists and examines them, and creates files as disks.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use disk::qualify::{self, CannotPoolReason, DEVICE_MIN, Qualification, QualifyOptions};
use disk::{FileDisk, FileOptions};
use pool::format::{Areas, FrameError, Label, LabelError};

use super::error::StorageError;
use super::pools::{KnownPool, Pools, done, resolve_links};
use super::{describe, find};
use crate::control::storage::{DiskStatus, NewFiles, Qualified, QualifyRequest};
use crate::control::types::Changed;
use crate::output::some;

impl Pools {
    /// All disks: those of pools, the block devices of this machine, and those of the configured paths.
    pub async fn disks(&self) -> Vec<DiskStatus> {
        // Examining a disk opens it for a moment, which would block an import.
        let _one = self.changing.lock().await;
        let mut all: Vec<DiskStatus> = Vec::new();
        let mut closed: Vec<(PathBuf, String)> = Vec::new();
        for known in self.known.lock().values() {
            match known {
                KnownPool::Open(open) => all.extend(describe::disks(open)),
                KnownPool::Closed(c) => closed.extend(c.disks.iter().map(|d| (d.clone(), c.name.clone()))),
            }
        }
        let mut others: Vec<PathBuf> = qualify::list().into_iter().map(|d| d.path).collect();
        others.extend(find::expand(&self.devices));
        others.extend(closed.iter().map(|(path, _)| path.clone()));
        let mut others: Vec<_> = others.iter().filter_map(|p| std::fs::canonicalize(p).ok()).collect();
        others.sort();
        others.dedup();
        others.sort_by_cached_key(|p| natural_sort_key(&p.to_string_lossy()));
        others.retain(|p| !all.iter().any(|d| d.path.as_ref() == Some(p)));
        for path in others {
            // An inaccessible disk is not listed.
            let Ok(found) = self.examine(&path, false, false).await else { continue };
            let pool = closed.iter().find(|(p, _)| *p == path).map(|(_, name)| name.clone());
            let mut disk = DiskStatus { pool, ..describe::candidate(&found) };
            self.explain_removed(&path, &found, &mut disk).await;
            all.push(disk);
        }
        all
    }

    /// Creates sparse files as disks.
    ///
    /// # Errors
    /// A file cannot be created; then none of them remains.
    pub async fn create_files(&self, new: NewFiles) -> Result<Changed, StorageError> {
        if let Some(path) = new.paths.iter().find(|p| !p.is_absolute()) {
            return Err(StorageError::NotAbsolute(path.clone()));
        }
        if new.size < Areas::DISK_MIN {
            let (size, least) = (new.size, Areas::DISK_MIN);
            return Err(StorageError::SmallFile { size, least });
        }
        let (env, options) =
            (self.env.clone(), FileOptions { create: Some(new.size), ..FileOptions::default() });
        let (paths, made) = (new.paths.clone(), new.paths.len());
        let work = move || {
            paths.iter().enumerate().try_for_each(|(n, path)| {
                let is_new = std::fs::symlink_metadata(path).is_err();
                FileDisk::open(&env, path, &options).map(drop).inspect_err(|_| {
                    // These files were just created; a file that cannot be removed is harmless.
                    let made = &paths[..n + usize::from(is_new)];
                    made.iter().for_each(|made| drop(std::fs::remove_file(made)));
                })
            })
        };
        tokio::task::spawn_blocking(work).await.map_err(|_| StorageError::Stopping)??;
        Ok(done(format!("{} created", some(made, "file")), Vec::new()))
    }

    /// Examines a disk, and measures its flushes.
    ///
    /// # Errors
    /// It cannot be examined.
    pub async fn qualify(&self, request: QualifyRequest) -> Result<Qualified, StorageError> {
        let paths = resolve_links(std::slice::from_ref(&request.path))?;
        let mut found = self.examine(&paths[0], request.force, true).await?;
        if self.refuse_own(&paths[0]).is_err() {
            // The process that uses the disk is this server.
            found.reasons.retain(|r| !matches!(r, CannotPoolReason::InUse { .. }));
        }
        let mut qualified = describe::qualified(&found);
        self.explain_removed(&paths[0], &found, &mut qualified.disk).await;
        Ok(qualified)
    }

    /// Replaces the reason of a disk that was removed from an open pool while absent and still has its label.
    async fn explain_removed(&self, path: &Path, found: &Qualification, disk: &mut DiskStatus) {
        let in_pool = |r: &CannotPoolReason| matches!(r, CannotPoolReason::InAPool { .. });
        let Some(at) = found.reasons.iter().position(in_pool) else { return };
        if let Some(pool) = self.removed_from(path).await
            && let Some(reason) = disk.cannot_pool_reasons.get_mut(at)
        {
            *reason = describe::removed(&pool, path);
        }
    }

    /// Qualifies a disk on a separate thread, because that blocks.
    pub(super) async fn examine(
        &self,
        path: &Path,
        force: bool,
        measure: bool,
    ) -> Result<Qualification, StorageError> {
        let (env, path) = (self.env.clone(), path.to_owned());
        let minimum = if path.is_file() { Areas::DISK_MIN } else { DEVICE_MIN };
        let label = Some(Arc::new(pool_of) as qualify::LabelReader);
        let options = QualifyOptions { force, minimum, measure, others: Vec::new(), label };
        let looks = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map(|runtime| runtime.block_on(qualify::qualify(&env, &path, &options)))
        };
        let spawned = thread::Builder::new().name("qualify".to_owned()).spawn(looks);
        let thread = spawned.map_err(|_| StorageError::Stopping)?;
        // Waits until the thread has ended: before that, its runtime and its ring keep the disk open and locked.
        let ended = tokio::task::spawn_blocking(move || thread.join()).await;
        match ended {
            Ok(Ok(Ok(looked))) => Ok(looked?),
            _ => Err(StorageError::Stopping),
        }
    }
}

/// The pool whose label is in the first bytes of a disk; an unreadable label counts too.
fn pool_of(head: &[u8]) -> Option<String> {
    let at = Areas::LABEL_A.offset as usize..Areas::LABEL_A.end() as usize;
    match Label::decode(head.get(at)?) {
        Ok(label) => {
            Some(format!("the pool '{}' (disk {}, {})", label.pool_name, label.number.0, label.pool))
        }
        Err(LabelError::Frame(FrameError::Blank | FrameError::Foreign)) => None,
        Err(why) => Some(format!("a pool, whose label cannot be used ({why})")),
    }
}

/// A piece of a name in natural sort order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Piece {
    Number(u128),
    Text(String),
}

/// A key to sort names by: "disk2" before "disk10".
fn natural_sort_key(name: &str) -> Vec<Piece> {
    let chars: Vec<char> = name.chars().collect();
    let alike = chars.chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit());
    let piece = |text: String| match text.starts_with(|c: char| c.is_ascii_digit()) {
        true => Piece::Number(text.parse().unwrap_or(u128::MAX)),
        false => Piece::Text(text),
    };
    alike.map(|chars| piece(chars.iter().collect())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_that_cannot_be_read_is_one() {
        let mut head = vec![0; 1 << 20];
        assert_eq!(pool_of(&head), None);
        let at = Areas::LABEL_A.offset as usize;
        head[at..at + 4].copy_from_slice(b"ELSE");
        assert_eq!(pool_of(&head), None);
        head[at..at + 4].copy_from_slice(b"CWPL");
        head[at + 4] = 1;
        let says = pool_of(&head).expect("it is marked as one");
        assert!(says.contains("cannot be used"), "{says}");
    }

    #[test]
    fn ten_comes_after_two() {
        let mut names = ["/d/10-b2", "/d/a", "/d/2", "/d/10-b10", "/d/", "/d/10", "/dev/sda1", "/d/007"];
        names.sort_by_cached_key(|n| natural_sort_key(n));
        assert_eq!(names, ["/d/", "/d/2", "/d/007", "/d/10", "/d/10-b2", "/d/10-b10", "/d/a", "/dev/sda1"]);
    }
}
