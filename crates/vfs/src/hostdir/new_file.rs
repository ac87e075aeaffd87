//! New files get their names last, so that no other open finds one without its security descriptor.
//!
//! | what                                          | is made                       | gets its name by          |
//! |-----------------------------------------------|-------------------------------|---------------------------|
//! | a file                                        | without a name (`O_TMPFILE`)  | `linkat`                  |
//! | a file, without support for `O_TMPFILE`       | under a temporary name        | a rename that replaces nothing |
//! | a directory                                   | under a temporary name        | a rename that replaces nothing |
//! | either, without support for `user.*` attributes | under its final name        | –                         |
//!
//! Temporary names ([`visible::TEMPORARY`]) are neither shown nor opened. A crash may leave an empty file or directory
//! under one: it is removed with its directory ([`remove_leftovers`]), or when the next file is created there.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags, RawDir};
use rustix::io::{self, Errno};

use super::resolve::{ResolvedDirectory, beneath};
use super::{Tree, device, namespace, visible};
use crate::{Kind, VfsResult};

/// A new file before it gets its name.
pub(super) enum NewFileName<'t> {
    /// It has no name.
    None,
    /// It has this temporary name.
    Temporary(&'t str),
    /// It has its final name, because there is no metadata to set before.
    Final(String, Kind),
}

/// A name that is unique among all trees, processes and machines.
pub(super) fn temporary_name() -> String {
    // The hasher is seeded by the system.
    let random = RandomState::new().build_hasher().finish();
    format!("{}{random:016x}", visible::TEMPORARY)
}

impl Tree {
    /// Creates the file or directory that will be `name` in `directory`, whose names are locked.
    ///
    /// # Errors
    /// The system's; EXIST when the name exists.
    pub(super) fn create_unnamed(
        &self,
        directory: &ResolvedDirectory,
        name: &str,
        kind: Kind,
    ) -> io::Result<(OwnedFd, NewFileName<'_>)> {
        let device = self.device(&directory.fd, device::number(&directory.stat))?;
        if !device.attributes {
            return Ok((self.create_as(directory, name, kind)?, NewFileName::Final(name.to_owned(), kind)));
        }
        if kind == Kind::File {
            let mode = Mode::from_raw_mode(self.options.file_mode & 0o7777);
            match beneath(&directory.fd, ".", OFlags::RDWR | OFlags::TMPFILE, mode) {
                Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
                done => return Ok((done?, NewFileName::None)),
            }
        }
        let temporary = &*self.temporary;
        let fd = match self.create_as(directory, temporary, kind) {
            // An earlier call failed to remove it. No other call uses it, because the directory's names are locked.
            Err(Errno::EXIST) => {
                remove(&directory.fd, temporary);
                self.create_as(directory, temporary, kind)?
            }
            done => done?,
        };
        Ok((fd, NewFileName::Temporary(temporary)))
    }

    pub(super) fn create_as(
        &self,
        directory: &ResolvedDirectory,
        name: &str,
        kind: Kind,
    ) -> io::Result<OwnedFd> {
        match kind {
            Kind::Directory => {
                let mode = Mode::from_raw_mode(self.options.directory_mode & 0o7777);
                rustix::fs::mkdirat(&directory.fd, name, mode)?;
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
                beneath(&directory.fd, name, flags, Mode::empty())
            }
            Kind::File => {
                let mode = Mode::from_raw_mode(self.options.file_mode & 0o7777);
                let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
                beneath(&directory.fd, name, flags, mode)
            }
        }
    }
}

impl NewFileName<'_> {
    /// Gives the new file `fd` its name.
    ///
    /// # Errors
    /// `Exists` when another program has taken the name; `NotFound` when the file or the directory was removed.
    pub(super) fn give_name(&self, directory: &ResolvedDirectory, fd: &OwnedFd, name: &str) -> VfsResult<()> {
        match self {
            NewFileName::None => Ok(namespace::link_to_new(fd, directory, name)?),
            NewFileName::Temporary(temporary) => {
                namespace::move_to_new(&directory.fd, temporary, directory, name)
            }
            NewFileName::Final(..) => Ok(()),
        }
    }

    /// Removes a new file whose creation failed.
    pub(super) fn discard(&self, directory: &ResolvedDirectory) {
        match self {
            NewFileName::None => {}
            NewFileName::Temporary(name) => remove(&directory.fd, name),
            NewFileName::Final(name, kind) => {
                let flags = if *kind == Kind::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                let _ = rustix::fs::unlinkat(&directory.fd, &**name, flags);
            }
        }
    }
}

/// Removes files under temporary names that crashes have left in the directory `name`; returns whether there were any.
pub(super) fn remove_leftovers(above: &OwnedFd, name: &str) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let Ok(directory) = beneath(above, name, flags, Mode::empty()) else { return false };
    let mut buffer = vec![MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(&directory, &mut buffer);
    let mut left = Vec::new();
    while let Some(Ok(entry)) = entries.next() {
        match entry.file_name().to_str() {
            Ok("." | "..") => {}
            Ok(name) if visible::is_temporary(name) => left.push(name.to_owned()),
            // It has another entry, so the directory is not removed.
            _ => return false,
        }
    }
    left.iter().for_each(|name| remove(&directory, name));
    !left.is_empty()
}

/// Removes a file or an empty directory.
fn remove(directory: &OwnedFd, name: &str) {
    if rustix::fs::unlinkat(directory, name, AtFlags::empty()).is_err() {
        let _ = rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR);
    }
}
