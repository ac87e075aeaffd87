//! `causeway get`: files from a server to this machine.

use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use clap::Args;
use rustix::fs::OFlags;
use smb_client::FileTime;
use tempfile::NamedTempFile;

use super::copying::{CopyArgs, Copying};
use crate::failure::Failure;
use crate::output::Output;
use crate::remote::{RemoteFile, TEMPORARY, Time, temporary_prefix};
use crate::transfer::checkpoint::{Checkpoint, LONGEST, Summer};
use crate::transfer::copy;
use crate::transfer::target::Gets;
use crate::url::Location;

/// See the module.
#[derive(Debug, Args)]
pub(super) struct GetArgs {
    /// Sources, then the destination [default: the current directory]
    #[arg(required = true, value_name = "URL... [TARGET]")]
    places: Vec<String>,
    #[command(flatten)]
    copy: CopyArgs,
}

pub(super) async fn run(args: GetArgs, out: Output) -> Result<(), Failure> {
    args.copy.until_interrupted(copy(&args, out)).await
}

async fn copy(args: &GetArgs, out: Output) -> Result<(), Failure> {
    let gets = Gets::parse(&args.places)?;
    let get = Get(Copying::begin(&args.copy, &gets.sources[0], out).await?);
    for source in &gets.sources {
        let entry = get.0.remote.stat(&source.path).await?;
        let destination = gets.destination(source)?;
        if !entry.directory {
            get.file(source.clone(), &entry.name, destination).await?;
        } else if get.0.recursive {
            get.tree(source.clone(), destination, entry.written).await?;
        } else {
            return Err(Failure::IsDirectory { place: source.to_string() });
        }
    }
    get.0.finish().await
}

struct Get(Copying);

impl Get {
    /// Copies a directory, several files at a time. Files that cannot be copied are reported and skipped; a
    /// lost connection ends the whole copy.
    async fn tree(&self, source: Location, destination: PathBuf, written: Time) -> Result<(), Failure> {
        let mut todo = vec![(source, destination, written)];
        let mut made = Vec::new();
        let mut running = self.0.running();
        while let Some((from, to, written)) = todo.pop() {
            if make_directory(&to)? && self.0.times {
                made.push((to.clone(), written.0));
            }
            for entry in self.0.remote.list(&from.path).await? {
                // Names come from the server: `join` rejects those that leave the directory.
                let place = match from.join(&entry.name) {
                    Ok(p) => p,
                    Err(e) => {
                        self.0.note(Err(e.into()))?;
                        continue;
                    }
                };
                let path = to.join(&entry.name);
                if entry.directory {
                    todo.push((place, path, entry.written));
                    continue;
                }
                running.add(async move { self.file(place, &entry.name, path).await }).await?;
            }
        }
        running.finish().await?;
        // Copying into a directory changes its time, so its contents come first.
        for (path, time) in made.iter().rev().filter(|(_, t)| t.is_time()) {
            let set = File::open(path).and_then(|d| set_modified(&d, *time));
            self.0.note(set.map_err(|source| Failure::Local { path: path.clone(), source }))?;
        }
        Ok(())
    }

    async fn file(&self, source: Location, name: &str, path: PathBuf) -> Result<(), Failure> {
        let Copying { remote, progress, .. } = &self.0;
        progress.file(name);
        let file = remote.open(&source.path).await?;
        progress.expect(file.size());
        let done =
            if self.0.resume { self.resumable(&file, &path).await } else { self.plain(&file, &path).await };
        file.close().await;
        done
    }

    async fn plain(&self, file: &RemoteFile, path: &Path) -> Result<(), Failure> {
        let failed = |source| Failure::Local { path: path.to_owned(), source };
        let old = match fs::metadata(path) {
            Ok(old) => Some(old),
            // A dangling link: its target is created.
            Err(_) if path.is_symlink() => return self.overwrite(file, path).await,
            Err(_) => None,
        };
        // A device or a pipe is not replaced.
        if self.0.in_place || old.as_ref().is_some_and(|m| !m.is_file()) {
            return self.overwrite(file, path).await;
        }
        if old.is_some() {
            // A user without write permission may not replace the file either.
            File::options().write(true).open(path).map_err(failed)?;
        }
        // A link is kept: its target is replaced.
        let path = if old.is_some() { path.canonicalize().map_err(failed)? } else { path.to_owned() };
        let new = match beside_for(&path, old.as_ref()).map_err(failed) {
            Ok(Some(new)) => new,
            Ok(None) => return self.overwrite(file, &path).await,
            Err(e) if old.is_some() => return Err(Failure::NotReplaced(Box::new(e))),
            Err(e) => return Err(e),
        };
        copy::down(file, new.as_file(), &path, 0, &self.0.progress, None).await?;
        self.keep_time(file, new.as_file(), &path)?;
        if old.is_some() {
            // After a crash, either the old or the new file exists.
            new.as_file().sync_all().map_err(failed)?;
        }
        new.persist(&path).map(drop).map_err(|e| failed(e.error))
    }

    /// Truncates the local file, or creates it, and writes the copy into it.
    async fn overwrite(&self, file: &RemoteFile, path: &Path) -> Result<(), Failure> {
        let failed = |source| Failure::Local { path: path.to_owned(), source };
        // Opening a pipe without a reader fails, instead of waiting without reacting to signals.
        let nonblocking = OFlags::NONBLOCK.bits() as i32;
        let local =
            File::options().write(true).create(true).truncate(true).custom_flags(nonblocking).open(path);
        let local = local.map_err(failed)?;
        copy::down(file, &local, path, 0, &self.0.progress, None).await?;
        self.keep_time(file, &local, path)
    }

    fn keep_time(&self, file: &RemoteFile, local: &File, path: &Path) -> Result<(), Failure> {
        let failed = |source| Failure::Local { path: path.to_owned(), source };
        match file.modified() {
            // A device has no modification time of its contents.
            Some(time) if self.0.times && local.metadata().map_err(failed)?.is_file() => {
                set_modified(local, time).map_err(failed)
            }
            _ => Ok(()),
        }
    }

    async fn resumable(&self, file: &RemoteFile, path: &Path) -> Result<(), Failure> {
        let (part, state) = (beside(path, "part"), beside(path, "part.state"));
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| Failure::Local { path: path.clone(), source }
        };
        let local = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&part)
            .map_err(failed(&part))?;
        let version = file.version();
        let known = read_small(&state).and_then(|text| Checkpoint::parse(&text, &version));
        let summer = match known {
            Some(mut checkpoint) => {
                checkpoint.verify(&local).map_err(failed(&part))?;
                Summer::new(checkpoint)
            }
            None => Summer::start(version),
        };
        let from = summer.checkpoint().length();
        self.0.progress.skip(from);
        // Removes data of an earlier attempt beyond the end.
        local.set_len(from).map_err(failed(&part))?;
        let keep = |s: &Summer| fs::write(&state, s.checkpoint().to_text());
        let resumable = Some(copy::Resumable { summer, keep: &keep });
        copy::down(file, &local, &part, from, &self.0.progress, resumable).await?;
        self.keep_time(file, &local, &part)?;
        local.sync_all().map_err(failed(&part))?;
        fs::rename(&part, path).map_err(failed(path))?;
        remove_if_there(&state).map_err(failed(&state))
    }
}

/// `NAME.part`, `NAME.part.state`.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(ending);
    path.with_file_name(name)
}

/// A new file in the directory of `path`, with the owner and the permissions of the file that it replaces. Dropping it
/// removes it. `None` if the user may not set that owner.
fn beside_for(path: &Path, old: Option<&Metadata>) -> io::Result<Option<NamedTempFile>> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = tempfile::Builder::new()
        .prefix(&temporary_prefix(&name))
        .suffix(TEMPORARY)
        // The mode is 0600 until the old file's mode is set below, so that no other user can open the file earlier. A
        // file that replaces none gets 0666, reduced by the umask.
        .permissions(Permissions::from_mode(if old.is_some() { 0o600 } else { 0o666 }))
        .tempfile_in(path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")))?;
    if let Some(old) = old {
        let now = new.as_file().metadata()?;
        let is_owner = (now.uid(), now.gid()) == (old.uid(), old.gid());
        if !is_owner && fchown(new.as_file(), Some(old.uid()), Some(old.gid())).is_err() {
            return Ok(None);
        }
        new.as_file().set_permissions(old.permissions())?;
    }
    Ok(Some(new))
}

/// Creates a directory; false if it exists.
fn make_directory(path: &Path) -> Result<bool, Failure> {
    match fs::create_dir(path) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(false),
        Err(source) => Err(Failure::Local { path: path.to_owned(), source }),
    }
}

fn set_modified(file: &File, time: FileTime) -> io::Result<()> {
    let (seconds, nanos) = time.to_unix();
    let time = rustix::fs::Timespec { tv_sec: seconds, tv_nsec: nanos.into() };
    let stay = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let times = rustix::fs::Timestamps { last_access: stay, last_modification: time };
    Ok(rustix::fs::futimens(file, &times)?)
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// The contents of a state file, if it exists and has a valid length.
fn read_small(path: &Path) -> Option<Vec<u8>> {
    let length = fs::metadata(path).ok()?.len();
    (length <= LONGEST as u64).then(|| fs::read(path).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_beside_their_file() {
        assert_eq!(beside(Path::new("/a/b.iso"), "part"), Path::new("/a/b.iso.part"));
        assert_eq!(beside(Path::new("x"), "part.state"), Path::new("x.part.state"));
    }
}
