//! `causeway put`: files from this machine to a server.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use smb_client::FileTime;
use vfs::VfsPath;

use super::copying::{CopyArgs, Copying};
use crate::failure::Failure;
use crate::output::Output;
use crate::remote::{Create, RemoteFile};
use crate::transfer::checkpoint::{BLOCK, Checkpoint, LONGEST, Sum, Summer, Version};
use crate::transfer::copy;
use crate::transfer::target::Puts;
use crate::url::Location;

/// See the module.
#[derive(Debug, Args)]
pub(super) struct PutArgs {
    /// Sources, then the destination
    #[arg(required = true, value_name = "FILE... URL")]
    places: Vec<String>,
    #[command(flatten)]
    copy: CopyArgs,
}

pub(super) async fn run(args: PutArgs, out: Output) -> Result<(), Failure> {
    args.copy.until_interrupted(copy(&args, out)).await
}

async fn copy(args: &PutArgs, out: Output) -> Result<(), Failure> {
    let puts = Puts::parse(&args.places)?;
    let put = Put(Copying::begin(&args.copy, &puts.target, out).await?);
    let target = put.0.remote.find(&puts.target.path).await?;
    let into = target.is_some_and(|e| e.directory);
    if !into && (puts.sources.len() > 1 || puts.target.directory) {
        return Err(Failure::NoSuchDirectory { place: puts.target.to_string() });
    }
    for source in &puts.sources {
        let metadata =
            fs::metadata(source).map_err(|e| Failure::Local { path: source.clone(), source: e })?;
        let destination = puts.destination(source, into)?;
        if !metadata.is_dir() {
            put.file(source, &destination).await?;
        } else if put.0.recursive {
            put.tree(source.clone(), destination).await?;
        } else {
            return Err(Failure::IsDirectory { place: source.display().to_string() });
        }
    }
    put.0.finish().await
}

struct Put(Copying);

impl Put {
    /// Copies a directory, several files at a time. Files that cannot be copied are reported and skipped; a
    /// lost connection ends the whole copy. Symbolic links to files are followed; other links are skipped, because
    /// they may form loops.
    async fn tree(&self, source: PathBuf, destination: Location) -> Result<(), Failure> {
        let remote = &self.0.remote;
        let mut todo = vec![(source, destination)];
        let mut made = Vec::new();
        let mut running = self.0.running();
        while let Some((from, to)) = todo.pop() {
            let failed = |source| Failure::Local { path: from.clone(), source };
            if remote.find(&to.path).await?.is_none() {
                remote.make_directory(&to.path).await?;
                if self.0.times {
                    made.push((to.path.clone(), modified(&fs::metadata(&from).map_err(failed)?)));
                }
            }
            for entry in fs::read_dir(&from).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let path = entry.path();
                match to.join(&entry.file_name().to_string_lossy()) {
                    Err(e) => self.0.note(Err(e.into()))?,
                    Ok(place) if entry.file_type().is_ok_and(|t| t.is_dir()) => todo.push((path, place)),
                    Ok(_) if !path.is_file() => self.0.note(Err(Failure::NotRegular { path }))?,
                    Ok(place) => running.add(async move { self.file(&path, &place).await }).await?,
                }
            }
        }
        running.finish().await?;
        // Copying into a directory changes its time, so its contents come first.
        for (path, time) in made.iter().rev() {
            self.0.note(remote.set_modified(path, *time).await)?;
        }
        Ok(())
    }

    async fn file(&self, path: &Path, destination: &Location) -> Result<(), Failure> {
        let failed = |source| Failure::Local { path: path.to_owned(), source };
        let local = File::open(path).map_err(failed)?;
        let metadata = local.metadata().map_err(failed)?;
        let name = destination.file_name()?;
        let Copying { remote, progress, .. } = &self.0;
        progress.file(name);
        progress.expect(metadata.len());
        if self.0.resume {
            let version = Version {
                size: metadata.len(),
                changed: metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec(),
            };
            return self.resumable(&local, path, version, &metadata, destination).await;
        }
        let (file, renamed) = self.target(&destination.path).await?;
        let range = 0..metadata.len();
        let mut done = copy::up(&local, path, &file, range, remote.arena(), progress, None).await;
        if done.is_ok() && self.0.times {
            done = file.set_modified(modified(&metadata)).await;
        }
        if done.is_ok()
            && let Some(old) = renamed
        {
            done = take_place(&file, old, &destination.path).await;
        }
        file.close().await;
        done
    }

    /// The file to write, and whether it is renamed at the end. With a rename, the existing file stays complete until
    /// the new file is complete. A link is overwritten in place, and so is a file whose owner or access list the new
    /// file cannot have.
    async fn target(&self, path: &VfsPath) -> Result<(RemoteFile, Option<Old>), Failure> {
        let remote = &self.0.remote;
        let overwrite = async || Ok((remote.create(path, Create::Replace).await?, None));
        if self.0.in_place {
            return overwrite().await;
        }
        let old = match remote.find_link(path).await? {
            Some(old) if old.is_link() || !remote.tells_protection() => return overwrite().await,
            // A user without write permission may not replace the file either.
            Some(_) => Some(remote.open_to_write(path).await?),
            None => None,
        };
        let new = match remote.create_beside(path).await {
            Ok(new) => new,
            // A share of virtual disks accepts only certain names.
            Err(e) if e.is_about_the_name() => return overwrite().await,
            Err(e) if old.is_some() => return Err(Failure::NotReplaced(Box::new(e))),
            Err(e) => return Err(e),
        };
        let Some(old) = old else { return Ok((new, Some(Old::Missing))) };
        let is_protected = new.protect_as(&old).await;
        old.close().await;
        if is_protected? {
            return Ok((new, Some(Old::IsThere)));
        }
        new.close().await;
        overwrite().await
    }

    async fn resumable(
        &self,
        local: &File,
        path: &Path,
        version: Version,
        metadata: &Metadata,
        destination: &Location,
    ) -> Result<(), Failure> {
        let Copying { remote, progress, .. } = &self.0;
        let name = destination.file_name()?;
        let directory = destination.path.parent().unwrap_or_default();
        let beside = |ending: &str| {
            let name = format!("{name}.{ending}");
            directory.join(&name).map_err(|source| crate::url::UrlError::Path { path: name, source })
        };
        let (part, state) = (beside("part")?, beside("part.state")?);
        let part_file = match remote.create(&part, Create::Continue).await {
            Err(e) if e.is_about_the_name() => return Err(Failure::NoPart(Box::new(e))),
            created => created?,
        };
        let state_file = remote.create(&state, Create::Continue).await?;
        let mut summer = match self.verified(local, path, &part_file, &state_file, &version).await? {
            Some(checkpoint) => Summer::new(checkpoint),
            None => Summer::start(version.clone()),
        };
        let from = summer.checkpoint().length();
        progress.skip(from);
        // Removes data of an earlier attempt beyond the end.
        part_file.set_length(from).await?;
        let resumable = Some((&mut summer, &state_file));
        let range = from..version.size;
        copy::up(local, path, &part_file, range, remote.arena(), progress, resumable).await?;
        if self.0.times {
            part_file.set_modified(modified(metadata)).await?;
        }
        part_file.flush().await?;
        part_file.close().await;
        state_file.close().await;
        remote.rename(&part, &destination.path, true).await?;
        remote.remove_file(&state).await
    }

    /// The state of an earlier attempt, reduced to the blocks that are valid on both sides.
    async fn verified(
        &self,
        local: &File,
        path: &Path,
        part: &RemoteFile,
        state: &RemoteFile,
        version: &Version,
    ) -> Result<Option<Checkpoint>, Failure> {
        if state.size() == 0 || state.size() > LONGEST as u64 {
            return Ok(None);
        }
        let mut text = Vec::new();
        copy::read_all(state, 0..state.size(), |bytes| {
            text.extend_from_slice(bytes);
            Ok(())
        })
        .await?;
        let Some(mut checkpoint) = Checkpoint::parse(&text, version) else { return Ok(None) };
        checkpoint.verify(local).map_err(|source| Failure::Local { path: path.to_owned(), source })?;
        checkpoint.sums.truncate((part.size() / BLOCK) as usize);
        // The server can have lost only the last blocks.
        while let Some(expected) = checkpoint.sums.last().copied() {
            let mut sum = Sum::new();
            let (from, to) = (checkpoint.length() - BLOCK, checkpoint.length());
            copy::read_all(part, from..to, |bytes| {
                sum.add(bytes);
                Ok(())
            })
            .await?;
            if sum.value() == expected {
                break;
            }
            checkpoint.sums.pop();
        }
        Ok(Some(checkpoint))
    }
}

/// Whether a new file replaces an existing one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Old {
    IsThere,
    Missing,
}

/// Renames a new file to its name. If it replaces another, it is flushed first, so that a crash leaves one of them.
async fn take_place(file: &RemoteFile, old: Old, path: &VfsPath) -> Result<(), Failure> {
    if old == Old::Missing {
        return file.replace(path).await;
    }
    file.flush().await?;
    file.replace(path).await.map_err(|e| Failure::NotReplaced(Box::new(e)))
}

/// When a local file last changed.
fn modified(metadata: &Metadata) -> FileTime {
    FileTime::from_unix(metadata.mtime(), metadata.mtime_nsec() as u32)
}
