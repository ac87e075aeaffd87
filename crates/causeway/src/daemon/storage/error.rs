//! Errors of storage requests, by blame, with the action that helps.

use std::io;
use std::path::{Path, PathBuf};

use axum::http::StatusCode;
use disk::Holder;
use disk::qualify::CannotPoolReason;
use pool::coordinator::NotMade;
use pool::{AdminError, CommitError, CreateError, InvalidOp, MediaClass, OpenError, Suspension, Unsuitable};
use pool_local::LocalError;
use pool_seam::SeamError;
use thiserror::Error;

use crate::control::storage::Place;
use crate::output::{human_bytes, human_time, quoted};

/// See the module.
#[derive(Debug, Error)]
pub enum StorageError {
    /// The caller's: no such pool.
    #[error("there is no pool {0}")]
    NoPool(String),
    /// The caller's: no such virtual disk.
    #[error("there is no virtual disk {0}")]
    NoSpace(String),
    /// The caller's: no such job; it may have ended.
    #[error("there is no job {0}")]
    NoJob(u64),
    /// The caller's: the pool has no such disk.
    #[error("the pool {pool} has no disk {disk}")]
    NoDisk {
        /// The pool.
        pool: String,
        /// As it was asked for.
        disk: String,
    },
    /// The caller's: the name is that of several.
    #[error("{name} is the name of several {what}")]
    Ambiguous {
        /// It.
        name: String,
        /// `pools` or `virtual disks`.
        what: &'static str,
    },
    /// The caller's: a name that later commands could not use.
    #[error("'{}' is no name: {why}", crate::output::printable(name))]
    Name {
        /// It.
        name: String,
        /// Why not.
        why: &'static str,
    },
    /// The caller's: the name is taken.
    #[error("there is a pool {0} already")]
    PoolExists(String),
    /// The caller's: a path that is not absolute.
    #[error("{} is not absolute", .0.display())]
    NotAbsolute(PathBuf),
    /// The caller's: a virtual disk that is in use.
    #[error("the virtual disk {name} is attached to {}", place.display())]
    Attached {
        /// It.
        name: String,
        /// Where it is served.
        place: PathBuf,
    },
    /// The caller's: a pool whose virtual disks are in use.
    #[error("{} of the pool {pool} {} attached", spaces.join(", "), if spaces.len() == 1 { "is" } else { "are" })]
    InUse {
        /// It.
        pool: String,
        /// The virtual disks.
        spaces: Vec<String>,
    },
    /// The caller's: a virtual disk that is open through a share.
    #[error("clients of shares have the virtual disk {0} open")]
    Shared(String),
    /// The caller's: a virtual disk that is not attached.
    #[error("the virtual disk {0} is not attached")]
    NotAttached(String),
    /// The caller's: smaller than what is on it.
    #[error("the virtual disk {name} has data beyond {}, which would be lost", human_bytes(*size))]
    Shrinks {
        /// It.
        name: String,
        /// The size that was asked for, in bytes.
        size: u64,
    },
    /// The caller's: neither NBD nor ublk, or both.
    #[error("a virtual disk is attached in one way: as an NBD socket, or as a block device")]
    OneWay,
    /// A block device cannot be made, or not be taken away.
    #[error(transparent)]
    Device(#[from] ublk::Error),
    /// A socket cannot be made.
    #[error("{}: {source}", path.display())]
    Socket {
        /// Where.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A virtual disk and its owner.
    #[error(transparent)]
    Owner(LocalError),
    /// The caller's: more than the pool has room for.
    #[error("{} do not fit into the pool {pool}: it has room for {} of this kind", human_bytes(*size), human_bytes(*room))]
    TooLarge {
        /// The pool.
        pool: String,
        /// Bytes asked for.
        size: u64,
        /// Bytes that there are.
        room: u64,
    },
    /// The caller's: a fixed virtual disk that the pool has no room for in a new size.
    #[error("the virtual disk {name} cannot have {}: the pool {pool} has room for {} of it", human_bytes(*size), human_bytes(*room))]
    CannotGrow {
        /// The pool.
        pool: String,
        /// It.
        name: String,
        /// Bytes asked for.
        size: u64,
        /// The most that it could have, in bytes.
        room: u64,
    },
    /// The caller's: more bytes than can be counted.
    #[error("no virtual disk has {0} bytes")]
    Size(u64),
    /// The caller's: parity counts among the columns.
    #[error("{columns} columns are too few: it has {least} at least, those of parity counted")]
    TooFewColumns {
        /// Asked for.
        columns: u8,
        /// The fewest of its kind.
        least: usize,
    },
    /// The caller's: more disks than there are.
    #[error("{} needed and the pool {pool} has {disks}", if *needed == 1 { "1 disk is".to_owned() } else { format!("{needed} disks are") })]
    TooFewDisks {
        /// The pool.
        pool: String,
        /// For one row.
        needed: usize,
        /// Disks that may be used.
        disks: usize,
    },
    /// The caller's: more disks of some media than there are.
    #[error("{needed} {} are needed and the pool {pool} has {disks}", media.disks())]
    TooFewOfMedia {
        /// The pool.
        pool: String,
        /// For one row.
        needed: usize,
        /// Disks of the media that may be used.
        disks: usize,
        /// The media.
        media: MediaClass,
        /// Disks of the pool of which nothing is known.
        unknown: Vec<u16>,
    },
    /// The caller's: data of a virtual disk would have to move to disks without room.
    #[error("{} of the virtual disk {name} would have to move, and the {} have room for {}", human_bytes(*bytes), media.disks(), human_bytes(*room))]
    NoRoomThere {
        /// It.
        name: String,
        /// Bytes of slabs on other media.
        bytes: u64,
        /// Bytes that are free.
        room: u64,
        /// The media.
        media: MediaClass,
    },
    /// The caller's: another number of copies for a virtual disk with parity, or parity for one with copies.
    #[error(
        "the virtual disk {name} has parity or would get it: only the number of copies of simple and mirrored ones can change"
    )]
    CopiesOfParity {
        /// It.
        name: String,
    },
    /// The number of copies changes already, and some of its data has the one, and some the other.
    #[error("the number of copies of the virtual disk {name} is being changed already")]
    CopiesChange {
        /// It.
        name: String,
    },
    /// The caller's: more copies than disks have room for.
    #[error("{needed} more disks with room are needed for each part of the virtual disk {name}, and there are {disks}: {}", media.disks())]
    NoRoomForCopies {
        /// It.
        name: String,
        /// For one row.
        needed: usize,
        /// Disks with room for a row, besides those that it has.
        disks: usize,
        /// The media that it may use.
        media: MediaClass,
    },
    /// Two columns of a simple virtual disk are on one disk; those of a mirror cannot be.
    #[error(
        "two columns of the virtual disk {name} are on disk {disk}, and a mirror has each on another one"
    )]
    ColumnsTogether {
        /// It.
        name: String,
        /// The disk.
        disk: u16,
        /// Its pool.
        pool: String,
    },
    /// The caller's: groups of columns for a kind of virtual disk that has none, or another number of them.
    #[error("{0} groups of columns are not supported: dual parity has 1 or 2, all other kinds 1")]
    Groups(u8),
    /// The pool is known and not open.
    #[error("the pool {name} is not open: {reason}")]
    NotOpen {
        /// It.
        name: String,
        /// Why.
        reason: String,
    },
    /// The caller's: one disk takes the place of one.
    #[error("one disk replaces one disk, but {0} were given")]
    OneDisk(usize),
    /// The data of a disk cannot be moved to others.
    #[error("disk {disk} cannot be removed from the pool {pool}: {left} of it fit on no other disk: {why}")]
    CannotEmpty {
        /// The pool.
        pool: String,
        /// Its number.
        disk: u16,
        /// How much would stay.
        left: String,
        /// Why.
        why: String,
    },
    /// No light of a slot can be switched on.
    #[error("no light can be switched on: {}; the disk is {disk}", light(why))]
    NoLight {
        /// It, in words.
        disk: String,
        /// The system's reason, where there is an enclosure.
        why: Option<io::Error>,
    },
    /// An absent disk of a pool.
    #[error("{disk} is not here")]
    NotHere {
        /// It, in words.
        disk: String,
    },
    /// The caller's: what has no label cannot return to a pool.
    #[error("{} has no label of a pool", .0.display())]
    NoLabel(PathBuf),
    /// The caller's: disks return to an open pool one by one.
    #[error("the pool {name} is open, and {} not here", missing(absent))]
    Open {
        /// It.
        name: String,
        /// The disks that it misses.
        absent: Vec<u16>,
    },
    /// The caller's: no such disk.
    #[error("there is no disk {0}")]
    NoDiskHere(String),
    /// The caller's: a disk that the pool cannot do without.
    #[error("disk {disk} of the pool {pool} has the only current copy of some data, or is not in service")]
    Needed {
        /// The pool.
        pool: String,
        /// Its number.
        disk: u16,
    },
    /// A disk that will not do.
    #[error("{} cannot be pooled: {}", path.display(), reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    CannotPool {
        /// Where it is.
        path: PathBuf,
        /// Why not; not empty.
        reasons: Vec<CannotPoolReason>,
    },
    /// A disk with a pool's label that another process uses.
    #[error("{} cannot be pooled: another process uses it{}", path.display(), holders(by))]
    HasDisk {
        /// Where it is.
        path: PathBuf,
        /// The processes, as far as the system reports them.
        by: Vec<Holder>,
        /// The pool's name, where its label can be read.
        pool: Option<String>,
    },
    /// A disk of a pool that is open here.
    #[error("{} cannot be pooled: it belongs to the pool '{pool}', which is open here", path.display())]
    OwnDisk {
        /// Where it is.
        path: PathBuf,
        /// The pool.
        pool: String,
        /// Its number.
        disk: u16,
    },
    /// A disk with the label of a pool that is open here, which was removed from that pool.
    #[error("{} has the label of the pool {pool}, but was removed from it", path.display())]
    Removed {
        /// Where it is.
        path: PathBuf,
        /// The pool.
        pool: String,
        /// The pool that it was to be added to, if not a new one.
        into: Option<String>,
    },
    /// A disk cannot be opened.
    #[error(transparent)]
    Disk(#[from] disk::OpenError),
    /// A pool cannot be made.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// A pool cannot be opened.
    #[error("the pool {name}: {}", why_closed(source))]
    Import {
        /// It.
        name: String,
        /// Why not.
        source: OpenError,
        /// It was to be opened for reading only.
        read_only: bool,
    },
    /// A process of this machine has the pool open and locks on its disks: `--force` cannot take them.
    #[error("the pool {name}: {}", why_closed(source))]
    HeldHere {
        /// It.
        name: String,
        /// The owner: [`OpenError::Held`].
        source: OpenError,
    },
    /// Its disks are here, and none can be opened.
    #[error("the pool {name}: none of its disks can be opened: {why}")]
    Unopened {
        /// It.
        name: String,
        /// Of each.
        why: String,
    },
    /// The virtual disks of a pool cannot be used any more.
    #[error("the pool {0} is being closed")]
    NoData(String),
    /// Other processes have its disks open for reading only, which excludes writers.
    #[error("the pool {name} is open for reading only elsewhere on this machine: {}", by.iter().map(Holder::to_string).collect::<Vec<_>>().join("; "))]
    BeingRead {
        /// It.
        name: String,
        /// The processes; not empty.
        by: Vec<Holder>,
    },
    /// None of its disks was found.
    #[error("no disk of a pool {0} was found")]
    NotFound(String),
    /// A disk cannot be added, returned or removed.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// A change cannot be made.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The storage thread has ended.
    #[error("the server is stopping")]
    Stopping,
}

impl StorageError {
    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        match self {
            StorageError::NoPool(_)
            | StorageError::NoSpace(_)
            | StorageError::NoDisk { .. }
            | StorageError::NoDiskHere(_)
            | StorageError::NoJob(_)
            | StorageError::NotFound(_) => StatusCode::NOT_FOUND,
            StorageError::NotAbsolute(_)
            | StorageError::OneWay
            | StorageError::Size(_)
            | StorageError::Groups(_)
            | StorageError::Name { .. }
            | StorageError::TooFewColumns { .. }
            | StorageError::Shrinks { .. } => StatusCode::BAD_REQUEST,
            StorageError::Stopping => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::CONFLICT,
        }
    }

    /// The command or action that helps, if the message does not contain it.
    pub fn cure(&self) -> Option<String> {
        let cure = match self {
            StorageError::NoPool(_) => "see causeway pool list",
            StorageError::NoSpace(_) => "see causeway space list",
            StorageError::NoJob(_) => "it has ended or never existed: see causeway job list",
            StorageError::NoDisk { pool, .. } => {
                let pool = quoted(pool);
                return Some(format!(
                    "see causeway pool show {pool}; a disk is its number, its path or its identity"
                ));
            }
            StorageError::Name { .. } => {
                "choose 1 to 255 bytes that neither begin with a dot nor have a slash, blanks around them or control characters"
            }
            StorageError::TooFewColumns { .. } => {
                "give a larger --columns, or omit it: the number then follows from the disks"
            }
            StorageError::Ambiguous { what: "pools", .. } => {
                "use its identity, as causeway pool show says it"
            }
            StorageError::Ambiguous { .. } => "write it POOL/NAME",
            StorageError::PoolExists(_) => "choose another name",
            StorageError::NotAbsolute(_) => "begin it with /",
            StorageError::Attached { name, .. } => {
                return Some(format!("detach it first: causeway space detach {}", quoted(name)));
            }
            StorageError::InUse { pool, spaces } => {
                let detach = |space| format!("causeway space detach {}", quoted(&format!("{pool}/{space}")));
                return Some(format!(
                    "detach first: {}",
                    spaces.iter().map(detach).collect::<Vec<_>>().join("; ")
                ));
            }
            StorageError::Shared(_) => {
                "let them close it, or close it for them: causeway open list, causeway open close ID"
            }
            StorageError::OneWay => "pass --nbd SOCKET or --ublk",
            StorageError::Device(error) => error.cure()?,
            StorageError::Shrinks { .. } => "nothing was done; discard it first, or pass --yes to cut it off",
            StorageError::NotAttached(_) => "see causeway space list",
            StorageError::Socket { source, .. } => match source.kind() {
                io::ErrorKind::AddrInUse => "something is there: choose another path",
                io::ErrorKind::NotFound => "its directory does not exist: create it, or choose another path",
                _ => "choose a path that the server may write to, of 107 letters at most",
            },
            StorageError::Needed { .. } => {
                "bring the other disks back first, and wait until they are up to date: causeway job list"
            }
            StorageError::TooLarge { room: 0, .. } => {
                "add disks (causeway pool add-disk), or discard or destroy what is not needed"
            }
            StorageError::TooLarge { .. } => {
                "choose a smaller size, add disks, or let it be thin: --provisioning thin"
            }
            StorageError::CannotGrow { pool, .. } => {
                return Some(format!(
                    "nothing was done; choose a smaller size, or add disks: causeway pool add-disk {}",
                    quoted(pool)
                ));
            }
            StorageError::Size(_) => "choose another size",
            StorageError::TooFewDisks { .. } => {
                "add disks (causeway pool add-disk), or choose fewer columns, copies or groups"
            }
            StorageError::TooFewOfMedia { pool, unknown, .. } => return Some(too_few(pool, unknown)),
            StorageError::NoRoomThere { .. } => {
                "add disks of these media (causeway pool add-disk), or choose others"
            }
            StorageError::CopiesOfParity { .. } => {
                "create another virtual disk of that kind (causeway space create), and copy the data to it"
            }
            StorageError::CopiesChange { .. } => {
                "wait until it has ended (causeway job list), or change it back first"
            }
            StorageError::NoRoomForCopies { .. } => {
                "add disks (causeway pool add-disk), or discard or destroy what is not needed"
            }
            StorageError::ColumnsTogether { pool, .. } => {
                return Some(format!(
                    "add disks (causeway pool add-disk), let columns move apart (causeway pool optimize {}), and try again",
                    quoted(pool)
                ));
            }
            StorageError::Groups(_) => "leave --groups out, or choose --resiliency dual-parity --groups 2",
            StorageError::NotOpen { name, .. } => {
                let name = quoted(name);
                return Some(format!(
                    "see causeway pool show {name}, and open it: causeway pool import {name}"
                ));
            }
            StorageError::CannotPool { reasons, .. } => return reasons.first().map(CannotPoolReason::cure),
            StorageError::HasDisk { pool: Some(pool), .. } => {
                return Some(format!(
                    "it is in use by that process now, and --force cannot take it; if that is a server, export the pool there: causeway pool \
                     export {}; else end that process",
                    quoted(pool)
                ));
            }
            StorageError::HasDisk { .. } => {
                "it is in use by that process now, and --force cannot take it; end that process, or export the pool there"
            }
            StorageError::OwnDisk { pool, disk, .. } => {
                return Some(format!(
                    "remove it from that pool first: causeway pool remove-disk {} {disk}",
                    quoted(pool)
                ));
            }
            StorageError::Removed { path, into: Some(into), .. } => return Some(use_again(into, path)),
            StorageError::Removed { .. } => "to use it anyway, pass --force, which erases its label",
            StorageError::Disk(disk::OpenError::Path { source, .. }) => return crate::cures::local(source),
            StorageError::Create(CreateError::Disk { why, .. })
            | StorageError::Admin(AdminError::Unsuitable(why)) => {
                return unsuitable(why);
            }
            StorageError::Import { name, source, read_only } => return import(name, source, *read_only),
            StorageError::HeldHere { name, .. } => {
                let name = quoted(name);
                return Some(format!(
                    "it is in use by that process now, and --force cannot take it; export it there: causeway pool export {name}, or end that \
                     process; then: causeway pool import {name}"
                ));
            }
            StorageError::BeingRead { name, .. } => {
                let name = quoted(name);
                return Some(format!(
                    "to read it too: causeway pool import {name} --read-only; to write, export it there, which changes nothing (causeway pool \
                     export {name}), then here: causeway pool import {name}"
                ));
            }
            StorageError::NoData(_) => "see causeway pool list",
            StorageError::Unopened { .. } => {
                "see causeway disk qualify PATH, and import the pool again when no other process uses its disks"
            }
            StorageError::OneDisk(_) => "name one with --disk",
            StorageError::CannotEmpty { .. } => {
                "add disks (causeway pool add-disk), or bring back the absent ones"
            }
            StorageError::NotHere { .. } => {
                "connect it; if it is in none of the places of storage.devices, name its path: causeway disk return PATH"
            }
            StorageError::Open { name, absent } => {
                let returns =
                    absent.iter().map(|n| format!("causeway disk return {}", quoted(&format!("{name}/{n}"))));
                return Some(format!("when connected: {}", returns.collect::<Vec<_>>().join(", ")));
            }
            StorageError::NoDiskHere(_) => {
                "see causeway disk list; a disk is POOL/NUMBER, its path or its identity"
            }
            StorageError::NotFound(_) => {
                "name the places of its disks with --disk, or put them into storage.devices of the configuration"
            }
            StorageError::Admin(AdminError::StillWriting(_)) => {
                "see causeway health; disconnect and reconnect the disk, and restart the server"
            }
            StorageError::Admin(AdminError::NotErased { .. }) => {
                "nothing is missing from the pool; erase the disk (wipefs -a) before it is used elsewhere"
            }
            StorageError::Admin(AdminError::Stale(_)) => "pass --accept-loss if no newer copy exists",
            StorageError::Admin(AdminError::Diverged(_)) => {
                "check its data first: open it alone on another machine (pool import --read-only); then: causeway disk return PATH --accept-loss"
            }
            StorageError::Admin(AdminError::Commit(e))
            | StorageError::Commit(e)
            | StorageError::Create(CreateError::Commit(e)) => {
                return commit(e);
            }
            _ => return None,
        };
        Some(cure.to_owned())
    }
}

impl From<LocalError> for StorageError {
    fn from(error: LocalError) -> StorageError {
        match error {
            LocalError::NotMade(NotMade::Commit(error)) => StorageError::Commit(error),
            other => StorageError::Owner(other),
        }
    }
}

impl From<SeamError> for StorageError {
    fn from(error: SeamError) -> StorageError {
        StorageError::Owner(LocalError::Pool(error))
    }
}

impl StorageError {
    /// Whether disks, or room on them, are missing.
    pub(super) fn is_no_room(&self) -> bool {
        match self {
            StorageError::Owner(error) => error.is_no_room(),
            _ => false,
        }
    }

    /// The commands that open the pool after the action in [`Self::cure`].
    pub(super) fn opens(&self, name: &str) -> Vec<String> {
        let (import, name) = (format!("causeway pool import {}", quoted(name)), quoted(name));
        match self {
            StorageError::HeldHere { .. } | StorageError::Import { source: OpenError::Held { .. }, .. } => {
                vec![format!("causeway pool export {name}"), import]
            }
            StorageError::BeingRead { .. }
            | StorageError::Import { source: OpenError::ReadOnlyFeatures { .. }, .. } => {
                vec![format!("{import} --read-only")]
            }
            _ => vec![import],
        }
    }
}

fn too_few(pool: &str, unknown: &[u16]) -> String {
    let others = "add such disks (causeway pool add-disk), or choose fewer columns or copies, or more media (--media ssd,nvme)";
    match unknown.first() {
        Some(disk) => format!(
            "{others}; for disks whose MediaType is Unspecified, set it: causeway disk set {} --media ssd",
            quoted(&format!("{pool}/{disk}"))
        ),
        None => others.to_owned(),
    }
}

/// For a disk that was removed from a pool and still has its label.
pub(super) fn use_again(pool: &str, path: &Path) -> String {
    let path = quoted(&path.display().to_string());
    format!("to use it again: causeway pool add-disk {} --disk {path} --force", quoted(pool))
}

/// `: process 7 (causeway)`, if a holder is known.
fn holders(by: &[Holder]) -> String {
    match by {
        [] => String::new(),
        by => format!(": {}", by.iter().map(Holder::to_string).collect::<Vec<_>>().join("; ")),
    }
}

/// `disk 1 is`, `disks 1, 2 are`.
fn missing(disks: &[u16]) -> String {
    let list = disks.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    if disks.len() == 1 { format!("disk {list} is") } else { format!("disks {list} are") }
}

fn light(why: &Option<io::Error>) -> String {
    match why {
        Some(error) => error.to_string(),
        None => "the system knows of no enclosure with SES that it is in".to_owned(),
    }
}

fn unsuitable(why: &Unsuitable) -> Option<String> {
    let cure = match why {
        Unsuitable::Tears(_) => {
            "use disks with sectors of 4096 bytes; for a trial, or if you know that its writes of 4 KiB are atomic, pass --assume-atomic"
        }
        Unsuitable::InPool { .. } => {
            "open that pool, or, if its data is no longer needed, pass --force, which erases the label"
        }
        Unsuitable::Label(_) => {
            "open the pool with the program that made it, or, if its data is no longer needed, pass --force, which erases the label"
        }
        Unsuitable::NoIdentity => {
            "give it a serial number; a file needs a file system with extended attributes"
        }
        Unsuitable::Twice => "name each disk once",
        Unsuitable::StillWriting => "disconnect and reconnect the disk, and restart the server",
        Unsuitable::Small { .. } => "use a larger disk, or smaller slabs: --slab-size",
        _ => return None,
    };
    Some(cure.to_owned())
}

/// Refuses ambiguous names of pools and virtual disks: `POOL/NAME`, a journal's, an empty one.
///
/// # Errors
/// [`StorageError::Name`].
pub(super) fn name_for_people(name: &str) -> Result<(), StorageError> {
    let why = match name {
        "" => "it is empty",
        n if n.len() > 255 => "it is longer than 255 bytes",
        n if n.contains('/') => "a slash separates the name of a pool from those of its disks",
        n if n.starts_with('.') => "names that begin with a dot are reserved",
        n if n.trim() != n => "it begins or ends with a blank",
        n if n.chars().any(char::is_control) => "it has control characters",
        _ => return Ok(()),
    };
    Err(StorageError::Name { name: name.to_owned(), why })
}

/// Refuses names of racks, nodes and enclosures with control characters, which no terminal should show. An
/// absent name is valid.
///
/// # Errors
/// [`StorageError::Name`].
pub(super) fn place_for_people(place: &Place) -> Result<(), StorageError> {
    let names = [&place.rack, &place.node, &place.enclosure].into_iter().flatten();
    match names.into_iter().find(|n| n.chars().any(char::is_control)) {
        Some(name) => Err(StorageError::Name { name: name.clone(), why: "it has control characters" }),
        None => Ok(()),
    }
}

/// Why a pool cannot be opened, in words for people.
pub(super) fn why_closed(why: &OpenError) -> String {
    match why {
        OpenError::Held { by, since_unix_s } => format!(
            "another server holds it: process {} on the machine {}, since {} UTC",
            by.process,
            by.host,
            human_time(i64::try_from(*since_unix_s).unwrap_or(i64::MAX))
        ),
        other => other.to_string(),
    }
}

/// For a pool that cannot be opened.
fn import(name: &str, why: &OpenError, read_only: bool) -> Option<String> {
    let cure = match why {
        OpenError::TooFewVoters { .. } if read_only => {
            "bring the missing disks back; to read the data without changing anything: causeway pool import NAME --read-only --accept-loss; if they \
             are gone for good: causeway pool import NAME --accept-loss"
        }
        OpenError::Diverged(_) if read_only => {
            "remove these disks, or read without changing anything: causeway pool import NAME --read-only --accept-loss"
        }
        OpenError::TooFewVoters { .. } => {
            "bring the missing disks back; if they are gone for good: causeway pool import NAME --accept-loss"
        }
        OpenError::Diverged(_) => "remove these disks, or: causeway pool import NAME --accept-loss",
        OpenError::Held { .. } => {
            "export it there: causeway pool export NAME; if that server is gone for certain: causeway pool import NAME --force"
        }
        OpenError::Shrunk { .. } => {
            "restore its size (truncate -s for a file), or bring the other disks back; if they are gone for good, remove it: causeway pool import NAME --accept-loss"
        }
        OpenError::ReadOnlyFeatures { .. } => "causeway pool import NAME --read-only, or use a newer version",
        OpenError::Features { .. } => "use a newer version",
        _ => return None,
    };
    Some(cure.replace("NAME", &quoted(name)))
}

fn commit(why: &CommitError) -> Option<String> {
    let cure = match why {
        CommitError::Invalid(InvalidOp::NameTaken(_)) => "choose another name",
        CommitError::ReadOnly => "export it and import it without --read-only",
        CommitError::Suspended(why) => return Some(suspended(why, "NAME")),
        _ => return None,
    };
    Some(cure.to_owned())
}

/// What ends the suspension of a pool.
pub(super) fn suspended(why: &Suspension, name: &str) -> String {
    let again = format!("causeway pool export {name}, causeway pool import {name}");
    match why {
        Suspension::Claimed { .. } | Suspension::Fenced { .. } => format!(
            "close it here: causeway pool export {name}; to have it back, export it on that machine too, then here: causeway pool \
             import {name}"
        ),
        Suspension::TooFewVoters { .. } => {
            format!(
                "bring its disks back (causeway health): it resumes by itself within seconds; if it does not: {again}"
            )
        }
        Suspension::NoLease { .. } => {
            format!("bring its disks back (causeway health); if it does not resume: {again}")
        }
        _ => format!("bring its disks back and open it again: {again}"),
    }
}

#[cfg(test)]
mod tests {
    use pool::DiskNumber;
    use pool::format::Claimant;

    use super::*;

    fn held() -> OpenError {
        let by = Claimant { host: "left".to_owned(), machine: [1; 16], boot: [2; 16], process: 4211 };
        OpenError::Held { by, since_unix_s: 0 }
    }

    #[test]
    fn force_is_suggested_only_where_it_helps() {
        let name = || "my tank".to_owned();
        let here = StorageError::HeldHere { name: name(), source: held() };
        let cure = here.cure().expect("a cure");
        assert!(
            cure.contains("in use by that process now") && !cure.contains("import 'my tank' --force"),
            "{cure}"
        );
        assert!(here.to_string().contains("process 4211 on the machine left"), "{here}");
        let commands = ["causeway pool export 'my tank'", "causeway pool import 'my tank'"];
        assert_eq!(here.opens("my tank"), commands);
        let there = StorageError::Import { name: name(), source: held(), read_only: false };
        assert!(there.cure().is_some_and(|c| c.ends_with("causeway pool import 'my tank' --force")));
        assert_eq!(there.opens("my tank"), commands);
        let read = StorageError::BeingRead { name: name(), by: Vec::new() };
        assert_eq!(read.opens("my tank"), ["causeway pool import 'my tank' --read-only"]);
    }

    #[test]
    fn disks_that_are_in_use_here_or_were_removed() {
        let path = || PathBuf::from("/d/a b.disk");
        let by = vec![Holder { process: 7, name: "causeway".to_owned(), reads: false }];
        let has = StorageError::HasDisk { path: path(), by, pool: Some("tank".to_owned()) };
        assert!(has.to_string().ends_with("another process uses it: process 7 (causeway)"), "{has}");
        assert!(
            has.cure()
                .is_some_and(|c| c.contains("causeway pool export tank") && !c.contains("pass --force"))
        );
        let own = StorageError::OwnDisk { path: path(), pool: "tank".to_owned(), disk: 3 };
        assert!(own.cure().is_some_and(|c| c.ends_with("causeway pool remove-disk tank 3")));
        let removed = |into: Option<&str>| {
            let into = into.map(str::to_owned);
            StorageError::Removed { path: path(), pool: "tank".to_owned(), into }.cure().expect("a cure")
        };
        assert!(removed(Some("tank")).ends_with("causeway pool add-disk tank --disk '/d/a b.disk' --force"));
        assert!(removed(None).contains("pass --force"));
    }

    #[test]
    fn a_reader_gets_the_commands_for_reading() {
        let few = |read_only| {
            let missing = vec![(DiskNumber(1), "serial:1".to_owned())];
            let source =
                OpenError::TooFewVoters { seen: 1, voters: 2, needed: 2, missing, stale: Vec::new() };
            let error = StorageError::Import { name: "tank".to_owned(), source, read_only };
            error.cure().expect("a cure")
        };
        let (reading, writing) = ("import tank --read-only --accept-loss", "import tank --accept-loss");
        assert!(few(true).find(reading) < few(true).find(writing), "{}", few(true));
        assert!(few(true).contains(reading) && !few(false).contains(reading) && few(false).contains(writing));
    }
}
