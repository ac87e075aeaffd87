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
//! under one: it is removed with its directory ([`clear`]), or when the next file is created there.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags, RawDir};
use rustix::io::{self, Errno};

use super::place::{Place, beneath};
use super::{Tree, device, namespace, visible};
use crate::{Kind, VfsResult};

/// A new file before it gets its name.
pub(super) enum Unnamed<'t> {
    /// It has no name.
    None,
    /// It has this temporary name.
    Temporary(&'t str),
    /// It has its final name, because there is no metadata to set before.
    Named(String, Kind),
}

/// A name that is unique among all trees, processes and machines.
pub(super) fn temporary_name() -> String {
    // The hasher is seeded by the system.
    let random = RandomState::new().build_hasher().finish();
    format!("{}{random:016x}", visible::TEMPORARY)
}

impl Tree {
    /// Creates the file or directory that will be `name` in `place`, whose names are locked.
    ///
    /// # Errors
    /// The system's; EXIST when the name exists.
    pub(super) fn make(&self, place: &Place, name: &str, kind: Kind) -> io::Result<(OwnedFd, Unnamed<'_>)> {
        let device = self.device(&place.fd, device::number(&place.stat))?;
        if !device.attributes {
            return Ok((self.make_as(place, name, kind)?, Unnamed::Named(name.to_owned(), kind)));
        }
        if kind == Kind::File {
            let mode = Mode::from_raw_mode(self.options.file_mode & 0o7777);
            match beneath(&place.fd, ".", OFlags::RDWR | OFlags::TMPFILE, mode) {
                Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
                done => return Ok((done?, Unnamed::None)),
            }
        }
        let temporary = &*self.temporary;
        let fd = match self.make_as(place, temporary, kind) {
            // An earlier call failed to remove it. No other call uses it, because the directory's names are locked.
            Err(Errno::EXIST) => {
                remove(&place.fd, temporary);
                self.make_as(place, temporary, kind)?
            }
            done => done?,
        };
        Ok((fd, Unnamed::Temporary(temporary)))
    }

    pub(super) fn make_as(&self, place: &Place, name: &str, kind: Kind) -> io::Result<OwnedFd> {
        match kind {
            Kind::Directory => {
                let mode = Mode::from_raw_mode(self.options.directory_mode & 0o7777);
                rustix::fs::mkdirat(&place.fd, name, mode)?;
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
                beneath(&place.fd, name, flags, Mode::empty())
            }
            Kind::File => {
                let mode = Mode::from_raw_mode(self.options.file_mode & 0o7777);
                let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
                beneath(&place.fd, name, flags, mode)
            }
        }
    }
}

impl Unnamed<'_> {
    /// Gives the new file `fd` its name.
    ///
    /// # Errors
    /// `Exists` when another program has taken the name; `NotFound` when the file or the directory was removed.
    pub(super) fn give_name(&self, place: &Place, fd: &OwnedFd, name: &str) -> VfsResult<()> {
        match self {
            Unnamed::None => Ok(namespace::link_to_new(fd, place, name)?),
            Unnamed::Temporary(temporary) => namespace::move_to_new(&place.fd, temporary, place, name),
            Unnamed::Named(..) => Ok(()),
        }
    }

    /// Removes a new file whose creation failed.
    pub(super) fn discard(&self, place: &Place) {
        match self {
            Unnamed::None => {}
            Unnamed::Temporary(name) => remove(&place.fd, name),
            Unnamed::Named(name, kind) => {
                let flags = if *kind == Kind::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                let _ = rustix::fs::unlinkat(&place.fd, &**name, flags);
            }
        }
    }
}

/// Removes files under temporary names that crashes have left in the directory `name`; returns whether there were any.
pub(super) fn clear(above: &OwnedFd, name: &str) -> bool {
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
