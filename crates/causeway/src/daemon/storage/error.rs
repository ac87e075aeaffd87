//! Errors of storage requests, by blame, with the action that helps.

use std::io;
use std::path::{Path, PathBuf};

use axum::http::StatusCode;
use disk::Holder;
use disk::qualify::CannotPoolReason;
use pool::coordinator::CreateSpaceError;
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
        /// The disk as requested.
        disk: String,
    },
    /// The caller's: several objects have the name.
    #[error("{name} is the name of several {what}")]
    Ambiguous {
        /// The name.
        name: String,
        /// `pools` or `virtual disks`.
        what: &'static str,
    },
    /// The caller's: a name that later commands could not use.
    #[error("'{}' is not a valid name: {why}", crate::output::printable(name))]
    Name {
        /// The name.
        name: String,
        /// The reason.
        why: &'static str,
    },
    /// The caller's: an enclosure, node or rack with an unusable name.
    #[error("'{}' is not a valid {what}: {why}", crate::output::printable(name))]
    Place {
        /// `enclosure`, `node` or `rack`: the name of the option.
        what: &'static str,
        /// The name.
        name: String,
        /// The reason.
        why: &'static str,
    },
    /// The caller's: a file that is too small for a disk of a pool.
    #[error("a disk of a pool has at least {}, not {}", human_bytes(*least), human_bytes(*size))]
    SmallFile {
        /// Requested bytes.
        size: u64,
        /// The minimum.
        least: u64,
    },
    /// The caller's: the name is in use.
    #[error("a pool {0} exists already")]
    PoolExists(String),
    /// The caller's: a path that is not absolute.
    #[error("{} is not absolute", .0.display())]
    NotAbsolute(PathBuf),
    /// The caller's: a virtual disk that is in use.
    #[error("the virtual disk {name} is attached to {}", place.display())]
    Attached {
        /// The name.
        name: String,
        /// Where it is served.
        place: PathBuf,
    },
    /// The caller's: a pool whose virtual disks are in use.
    #[error("{} of the pool {pool} {} attached", spaces.join(", "), if spaces.len() == 1 { "is" } else { "are" })]
    InUse {
        /// The name of the pool.
        pool: String,
        /// The virtual disks.
        spaces: Vec<String>,
    },
    /// A virtual disk that cannot be opened.
    #[error("the virtual disk {name} cannot be opened: {why}")]
    SpaceNotOpen {
        /// The name.
        name: String,
        /// The reason.
        why: String,
    },
    /// The caller's: a virtual disk that is open through a share.
    #[error("clients of shares have the virtual disk {0} open")]
    Shared(String),
    /// The caller's: a virtual disk that is not attached.
    #[error("the virtual disk {0} is not attached")]
    NotAttached(String),
    /// The caller's: there is data beyond the new size.
    #[error("the virtual disk {name} has data beyond {}, which would be lost", human_bytes(*size))]
    Shrinks {
        /// The name.
        name: String,
        /// The requested size in bytes.
        size: u64,
    },
    /// The caller's: neither NBD nor ublk, or both.
    #[error("a virtual disk can be attached either as an NBD server or as a block device")]
    OneWay,
    /// A block device cannot be created or removed.
    #[error(transparent)]
    Device(#[from] ublk::Error),
    /// A socket cannot be created.
    #[error("cannot create the socket {}: {source}", path.display())]
    Socket {
        /// The path.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The owner of a virtual disk reported an error.
    #[error(transparent)]
    Owner(LocalError),
    /// The caller's: larger than the free capacity of the pool.
    #[error("{} do not fit into the pool {pool}: it has room for {} with this resiliency", human_bytes(*size), human_bytes(*room))]
    TooLarge {
        /// The pool.
        pool: String,
        /// Requested bytes.
        size: u64,
        /// Free bytes.
        room: u64,
    },
    /// The caller's: the pool has no room for the new size of a fixed virtual disk.
    #[error("the virtual disk {name} cannot be resized to {}: the pool {pool} has room for {}", human_bytes(*size), human_bytes(*room))]
    CannotGrow {
        /// The pool.
        pool: String,
        /// The name.
        name: String,
        /// Requested bytes.
        size: u64,
        /// The largest possible size in bytes.
        room: u64,
    },
    /// The caller's: an invalid number of bytes.
    #[error("a virtual disk cannot have {0} bytes")]
    Size(u64),
    /// The caller's: too few columns; the number includes parity.
    #[error("{columns} columns are too few: at least {least} are needed, including parity")]
    TooFewColumns {
        /// The requested number.
        columns: u8,
        /// The minimum for its resiliency.
        least: usize,
    },
    /// The caller's: the pool has too few disks.
    #[error("{} needed and the pool {pool} has {disks}", if *needed == 1 { "1 disk is".to_owned() } else { format!("{needed} disks are") })]
    TooFewDisks {
        /// The pool.
        pool: String,
        /// For one row.
        needed: usize,
        /// Disks that may be used.
        disks: usize,
    },
    /// The caller's: the pool has too few disks of the media.
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
        /// Disks of the pool with an unknown medium.
        unknown: Vec<u16>,
    },
    /// The caller's: the disks to which data must move have too little room.
    #[error("{} of the virtual disk {name} would have to move, and the {} have room for {}", human_bytes(*bytes), media.disks(), human_bytes(*room))]
    NoRoomThere {
        /// The name.
        name: String,
        /// Bytes of slabs on other media.
        bytes: u64,
        /// Bytes that are free.
        room: u64,
        /// The media.
        media: MediaClass,
    },
    /// An earlier change of the number of copies is not complete.
    #[error("the number of copies of the virtual disk {name} is being changed already")]
    CopiesChange {
        /// The name.
        name: String,
    },
    /// It is being converted to another resiliency or number of columns.
    #[error("the virtual disk {name} is being converted to another resiliency or number of columns")]
    IsConverting {
        /// The name.
        name: String,
    },
    /// The caller's: the pool has no room for the converted data.
    #[error("the pool {pool} has no room to convert the virtual disk {name}, which would take {}", human_bytes(*bytes))]
    NoRoomToConvert {
        /// The name.
        name: String,
        /// Its pool.
        pool: String,
        /// Its slabs after the conversion, in bytes.
        bytes: u64,
    },
    /// The caller's: too few disks have room for the copies.
    #[error("each part of the virtual disk {name} needs {needed} more {} with room, and there are {disks}", media.disks())]
    NoRoomForCopies {
        /// The name.
        name: String,
        /// For one row.
        needed: usize,
        /// Disks with space for a row, in addition to those that store it.
        disks: usize,
        /// The media that it may use.
        media: MediaClass,
    },
    /// Two columns of a simple virtual disk are on one disk; those of a mirror cannot be.
    #[error(
        "two columns of the virtual disk {name} are on disk {disk}, but a mirror needs them on different disks"
    )]
    ColumnsTogether {
        /// The name.
        name: String,
        /// The disk.
        disk: u16,
        /// Its pool.
        pool: String,
    },
    /// The caller's: a number of groups that the resiliency does not support.
    #[error("{0} groups of columns are not supported: dual parity has 1 or 2, all other kinds 1")]
    Groups(u8),
    /// The pool is known and not open.
    #[error("the pool {name} is not open: {reason}")]
    NotOpen {
        /// The name.
        name: String,
        /// The reason.
        reason: String,
    },
    /// The caller's: a replacement needs exactly one new disk.
    #[error("exactly one new disk is needed, but {0} were given")]
    OneDisk(usize),
    /// The data of a disk cannot be moved to others.
    #[error(
        "disk {disk} cannot be removed from the pool {pool}: {left} of it do not fit on other disks: {why}"
    )]
    CannotEmpty {
        /// The pool.
        pool: String,
        /// The number of the disk.
        disk: u16,
        /// The amount of data that does not fit.
        left: String,
        /// The reason.
        why: String,
    },
    /// The identification light of a slot cannot be switched.
    #[error("the identification light cannot be switched: {}; the disk is {disk}", light(why))]
    NoLight {
        /// The disk in words.
        disk: String,
        /// The system's reason, if there is an enclosure.
        why: Option<io::Error>,
    },
    /// An absent disk of a pool.
    #[error("{disk} is absent")]
    NotHere {
        /// The disk in words.
        disk: String,
    },
    /// The caller's: a disk without a pool's label cannot return to a pool.
    #[error("{} has no label of a pool", .0.display())]
    NoLabel(PathBuf),
    /// The caller's: the pool is open already; absent disks return one by one.
    #[error("the pool {name} is open already, and {} absent", missing(absent))]
    Open {
        /// The name.
        name: String,
        /// Its absent disks.
        absent: Vec<u16>,
    },
    /// The caller's: no such disk.
    #[error("there is no disk {0}")]
    NoDiskHere(String),
    /// The caller's: a disk that the pool needs.
    #[error("disk {disk} of the pool {pool} has the only current copy of some data, or is not in service")]
    Needed {
        /// The pool.
        pool: String,
        /// The number of the disk.
        disk: u16,
    },
    /// The caller's: a disk whose data is still being compared with that of others.
    #[error(
        "after a crash, the copies of the virtual disk {space} were not compared yet: disk {disk} of the pool {pool} may have the only current one"
    )]
    Unverified {
        /// The pool.
        pool: String,
        /// The number of the disk.
        disk: u16,
        /// The virtual disk.
        space: String,
    },
    /// A disk cannot be pooled.
    #[error("{} cannot be pooled: {}", path.display(), reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    CannotPool {
        /// The path.
        path: PathBuf,
        /// Why not; not empty.
        reasons: Vec<CannotPoolReason>,
    },
    /// A disk with a pool's label that another process uses.
    #[error("{} cannot be pooled: another process uses it{}", path.display(), holders(by))]
    HasDisk {
        /// The path.
        path: PathBuf,
        /// The processes, as far as the system reports them.
        by: Vec<Holder>,
        /// The pool's name, where its label can be read.
        pool: Option<String>,
    },
    /// A disk of a pool that is open here.
    #[error("{} cannot be pooled: it belongs to the pool '{pool}', which is open on this server", path.display())]
    OwnDisk {
        /// The path.
        path: PathBuf,
        /// The pool.
        pool: String,
        /// The number of the disk.
        disk: u16,
    },
    /// A disk with the label of a pool that is open here, which was removed from that pool.
    #[error("{} has the label of the pool {pool}, but was removed from it", path.display())]
    Removed {
        /// The path.
        path: PathBuf,
        /// The pool.
        pool: String,
        /// The existing pool to which it was to be added.
        into: Option<String>,
    },
    /// A disk cannot be opened.
    #[error(transparent)]
    Disk(#[from] disk::OpenError),
    /// A pool cannot be created.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// A pool cannot be opened.
    #[error("the pool {name}: {}", why_closed(source))]
    Import {
        /// The name.
        name: String,
        /// The reason.
        source: OpenError,
        /// Whether it was to be opened for reading only.
        read_only: bool,
    },
    /// A process of this machine has the pool open and holds locks on its disks, which `--force` cannot break.
    #[error("the pool {name}: {}", why_closed(source))]
    HeldHere {
        /// The name.
        name: String,
        /// The owner: [`OpenError::Held`].
        source: OpenError,
    },
    /// The disks of the pool are present, but none can be opened.
    #[error("the pool {name}: none of its disks can be opened: {why}")]
    Unopened {
        /// The name.
        name: String,
        /// The error of each disk.
        why: String,
    },
    /// The pool is being closed.
    #[error("the pool {0} is being closed")]
    NoData(String),
    /// Other processes have the disks of the pool open for reading only, which prevents writing.
    #[error("the pool {name} is open for reading only elsewhere on this machine: {}", by.iter().map(Holder::to_string).collect::<Vec<_>>().join("; "))]
    BeingRead {
        /// The name.
        name: String,
        /// The processes; not empty.
        by: Vec<Holder>,
    },
    /// No disk of the pool was found.
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
            | StorageError::Place { .. }
            | StorageError::SmallFile { .. }
            | StorageError::TooFewColumns { .. }
            | StorageError::Shrinks { .. } => StatusCode::BAD_REQUEST,
            StorageError::Stopping => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::CONFLICT,
        }
    }

    /// The command or action that helps, if the message does not contain it.
    pub fn cure(&self) -> Option<String> {
        let cure = match self {
            StorageError::NoPool(_) => {
                "see causeway pool list; open a pool with causeway pool import, or create one with causeway pool create"
            }
            StorageError::NoSpace(_) => "see causeway space list",
            StorageError::NoJob(_) => "it has ended or never existed: see causeway job list",
            StorageError::NoDisk { pool, .. } => {
                let pool = quoted(pool);
                return Some(format!(
                    "see causeway pool show {pool}; a disk is its number, its path or its identity"
                ));
            }
            StorageError::Name { .. } => {
                "choose a name of 1 to 255 bytes without a slash, control characters, a dot at the beginning, or blanks around it"
            }
            StorageError::Place { what, .. } => {
                return Some(format!("pass a shorter --{what} without control characters"));
            }
            StorageError::SmallFile { .. } => "pass a larger --size",
            StorageError::TooFewColumns { .. } => {
                "pass a larger --columns, or omit it: the default depends on the number of disks"
            }
            StorageError::Ambiguous { what: "pools", .. } => {
                "use the identity of the pool: unique_id in causeway pool list --json"
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
                "wait until they close it, or close it: causeway open list, causeway open close ID"
            }
            StorageError::OneWay => "pass --nbd SOCKET or --ublk",
            StorageError::Device(error) => error.cure()?,
            StorageError::Shrinks { .. } => {
                "nothing was done; discard that data first, or pass --yes to destroy it"
            }
            StorageError::NotAttached(_) => "see causeway space list",
            StorageError::Socket { source, .. } => match source.kind() {
                io::ErrorKind::AddrInUse => "another file or server uses this path: choose another one",
                io::ErrorKind::NotFound => "its directory does not exist: create it, or choose another path",
                _ => "choose a path of at most 107 bytes that the server may write to",
            },
            StorageError::Needed { .. } => {
                "return the absent disks first, and wait until all are up to date: causeway job list"
            }
            StorageError::Unverified { .. } => {
                "wait until the job Resolve is complete (causeway job list --follow); if none is running: causeway health show"
            }
            StorageError::TooLarge { room: 0, .. } => {
                "add disks (causeway pool add-disk), discard data, or destroy virtual disks"
            }
            StorageError::TooLarge { .. } => "choose a smaller size, add disks, or pass --provisioning thin",
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
                "add disks of these media (causeway pool add-disk), or choose other media"
            }
            StorageError::CopiesChange { .. } => {
                "wait until that change is complete (causeway job list), or revert it first"
            }
            StorageError::IsConverting { .. } => "wait until that is complete (causeway job list)",
            StorageError::NoRoomToConvert { .. } | StorageError::NoRoomForCopies { .. } => {
                "add disks (causeway pool add-disk), discard data, or destroy virtual disks"
            }
            StorageError::ColumnsTogether { pool, .. } => {
                return Some(format!(
                    "add disks (causeway pool add-disk), separate the columns (causeway pool optimize {}), and try again",
                    quoted(pool)
                ));
            }
            StorageError::Groups(_) => "omit --groups, or choose --resiliency dual-parity --groups 2",
            StorageError::NotOpen { name, .. } => {
                let name = quoted(name);
                return Some(format!(
                    "see causeway pool show {name}, and open it: causeway pool import {name}"
                ));
            }
            StorageError::CannotPool { reasons, .. } => return reasons.first().map(CannotPoolReason::cure),
            StorageError::HasDisk { pool: Some(pool), .. } => {
                return Some(format!(
                    "that process uses the disk now, and --force does not help; if it is a server, export the pool there: causeway pool \
                     export {}; otherwise end the process",
                    quoted(pool)
                ));
            }
            StorageError::HasDisk { .. } => {
                "that process uses the disk now, and --force does not help; end the process, or export the pool there"
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
                    "that process uses the pool now, and --force does not help; export it there: causeway pool export {name}, or end \
                     the process; then: causeway pool import {name}"
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
            StorageError::SpaceNotOpen { .. } => "see causeway health, and bring its disks back",
            StorageError::Unopened { .. } => {
                "see causeway disk qualify PATH, and import the pool again when no other process uses its disks"
            }
            StorageError::OneDisk(_) => "pass one disk with --disk",
            StorageError::CannotEmpty { .. } => {
                "add disks (causeway pool add-disk), or return the absent ones (causeway disk return)"
            }
            StorageError::NotHere { .. } => {
                "connect it; if its path is not in storage.devices, pass the path: causeway disk return PATH"
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
                "pass the paths of its disks with --disk, or add them to storage.devices in the configuration"
            }
            StorageError::Admin(AdminError::StillWriting(_)) => {
                "see causeway health; disconnect and reconnect the disk, and restart the server"
            }
            StorageError::Admin(AdminError::NotErased { .. }) => {
                "the pool is complete without it; erase the disk (wipefs -a) before you use it elsewhere"
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
            LocalError::NotCreated(CreateSpaceError::Commit(error)) => StorageError::Commit(error),
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
    /// Whether disks or free space are missing.
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

/// The cure for a disk that was removed from a pool and still has its label.
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
        None => "the system reports no enclosure with SES for it".to_owned(),
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
        Unsuitable::Twice => "pass each disk only once",
        Unsuitable::StillWriting => "disconnect and reconnect the disk, and restart the server",
        Unsuitable::Small { .. } => {
            "use a larger disk; a pool of smaller slabs accepts smaller disks: causeway pool create --slab-size"
        }
        _ => return None,
    };
    Some(cure.to_owned())
}

/// Refuses ambiguous names of pools and virtual disks: with a slash as in `POOL/NAME`, reserved, or empty.
///
/// # Errors
/// [`StorageError::Name`].
pub(super) fn check_name(name: &str) -> Result<(), StorageError> {
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

/// Refuses names of racks, nodes and enclosures that are too long, or have control characters, because they are
/// printed on terminals. An absent name is valid.
///
/// # Errors
/// [`StorageError::Place`].
pub(super) fn check_location(place: &Place) -> Result<(), StorageError> {
    for (what, name) in [("rack", &place.rack), ("node", &place.node), ("enclosure", &place.enclosure)] {
        let Some(name) = name else { continue };
        let why = match name {
            n if n.len() > 255 => "it is longer than 255 bytes",
            n if n.chars().any(char::is_control) => "it has control characters",
            _ => continue,
        };
        return Err(StorageError::Place { what, name: name.clone(), why });
    }
    Ok(())
}

/// Why a pool cannot be opened, as text.
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

/// The cure for a pool that cannot be opened.
fn import(name: &str, why: &OpenError, read_only: bool) -> Option<String> {
    let cure = match why {
        OpenError::TooFewVoters { .. } if read_only => {
            "connect the missing disks; to read the data without any change: causeway pool import NAME --read-only --accept-loss; if the \
             disks are lost for good: causeway pool import NAME --accept-loss"
        }
        OpenError::Diverged(_) if read_only => {
            "disconnect these disks, or read without any change: causeway pool import NAME --read-only --accept-loss"
        }
        OpenError::TooFewVoters { .. } => {
            "connect the missing disks; if they are lost for good: causeway pool import NAME --accept-loss"
        }
        OpenError::Diverged(_) => "disconnect these disks, or run: causeway pool import NAME --accept-loss",
        OpenError::Held { .. } => {
            "export it there: causeway pool export NAME; if that server certainly does not run any more: causeway pool import NAME --force"
        }
        OpenError::Shrunk { .. } => {
            "restore its size (truncate -s for a file), or connect the other disks; if they are lost for good: causeway pool import NAME --accept-loss"
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

/// The action that ends the suspension of a pool.
pub(super) fn suspended(why: &Suspension, name: &str) -> String {
    let again = format!("causeway pool export {name}, causeway pool import {name}");
    match why {
        Suspension::Claimed { .. } | Suspension::Fenced { .. } => format!(
            "close it on this machine: causeway pool export {name}; to use it here again, export it on that machine too, then run here: \
             causeway pool import {name}"
        ),
        Suspension::TooFewVoters { .. } => {
            format!(
                "connect its absent disks (causeway health): it resumes by itself within seconds; if it does not: {again}"
            )
        }
        Suspension::NoLease { .. } => {
            format!("connect its absent disks (causeway health); if it does not resume: {again}")
        }
        _ => format!("connect its absent disks and open it again: {again}"),
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
            cure.contains("that process uses the pool now") && !cure.contains("import 'my tank' --force"),
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
    fn an_unusable_place_is_named_with_its_option() {
        let place = |enclosure: &str| Place { enclosure: Some(enclosure.to_owned()), ..Place::default() };
        assert!(check_location(&place("")).is_ok() && check_location(&place(&"x".repeat(255))).is_ok());
        for (name, why) in [("x".repeat(256), "longer than 255 bytes"), ("a\tb".to_owned(), "control")] {
            let error = check_location(&place(&name)).expect_err("it is refused");
            let text = error.to_string();
            assert!(text.contains("is not a valid enclosure") && text.contains(why), "{text}");
            assert!(error.cure().is_some_and(|c| c.contains("--enclosure")));
        }
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
