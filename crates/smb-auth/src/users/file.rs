//! Reads and replaces the file on disk.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{EntryFault, Group, Table, User, UserFileError, fold};
use crate::ntlm::NtHash;
use crate::sid::Sid;

const MAX_BYTES: u64 = 16 << 20;
const OWNER_ONLY: u32 = 0o600;
const HEADER: &str = "\
# The users of this server. An nt_hash works like a password: keep the mode of this file 0600, and keep the file
# out of backups that other users can read. To change it, use `causeway user`; the server reads it again.

";

/// Identifies a version of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

/// What to do if the file already exists.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Existing {
    MustNotExist,
    Replace,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    machine_sid: String,
    next_rid: u32,
    #[serde(default)]
    user: Vec<Entry>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    group: Vec<GroupEntry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupEntry {
    name: String,
    rid: u32,
    #[serde(default)]
    members: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    rid: u32,
    nt_hash: Zeroizing<String>,
    #[serde(default)]
    full_name: String,
    #[serde(default)]
    disabled: bool,
}

/// Takes the lock that serializes changes; it is held until the result is dropped.
pub(super) fn lock(path: &Path) -> Result<File, UserFileError> {
    let folder = folder(path);
    let handle = File::open(&folder).map_err(io_error(&folder))?;
    rustix::fs::flock(&handle, rustix::fs::FlockOperation::LockExclusive)
        .map_err(|errno| io_error(&folder)(errno.into()))?;
    Ok(handle)
}

pub(super) fn stamp(path: &Path) -> Result<Stamp, UserFileError> {
    fs::metadata(path).map(|metadata| Stamp::of(&metadata)).map_err(io_error(path))
}

pub(super) fn read(path: &Path) -> Result<(Table, Stamp), UserFileError> {
    let file = File::open(path).map_err(io_error(path))?;
    let metadata = file.metadata().map_err(io_error(path))?;
    let mode = metadata.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(UserFileError::TooOpen { path: path.into(), mode });
    }
    let mut text = Zeroizing::new(String::new());
    file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(io_error(path))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(UserFileError::TooLarge { path: path.into() });
    }
    Ok((parse(path, &text)?, Stamp::of(&metadata)))
}

/// Writes the whole file and makes it durable. The caller holds the [`lock`].
pub(super) fn write(path: &Path, table: &Table, existing: Existing) -> Result<Stamp, UserFileError> {
    let owner = match fs::metadata(path) {
        Ok(_) if existing == Existing::MustNotExist => {
            return Err(io_error(path)(io::ErrorKind::AlreadyExists.into()));
        }
        Ok(metadata) => Some((metadata.uid(), metadata.gid())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(io_error(path)(error)),
    };
    let beside = beside(path);
    // An earlier crash may have left this file.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io_error(&beside)(error)),
        _ => {}
    }
    let write = || -> io::Result<Stamp> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY).open(&beside)?;
        let created = file.metadata()?;
        // If root changes a file of the server's account, the account must stay its owner.
        if let Some((uid, gid)) = owner.filter(|&(uid, gid)| (created.uid(), created.gid()) != (uid, gid)) {
            fchown(&file, Some(uid), Some(gid))?;
        }
        file.write_all(render(table).as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        Ok(Stamp::of(&file.metadata()?))
    };
    let stamp = write().map_err(|error| {
        // Ignores this error: the first one is reported.
        let _ = fs::remove_file(&beside);
        io_error(path)(error)
    })?;
    let folder = folder(path);
    File::open(&folder).and_then(|handle| handle.sync_all()).map_err(io_error(&folder))?;
    Ok(stamp)
}

impl Stamp {
    fn of(metadata: &fs::Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            // A chmod does not change the modification time but must be noticed.
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

fn parse(path: &Path, text: &str) -> Result<Table, UserFileError> {
    let malformed = |line| UserFileError::Malformed { path: path.into(), line };
    let document: Document = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start.min(text.len()));
        malformed(text.as_bytes()[..at].iter().filter(|&&byte| byte == b'\n').count() + 1)
    })?;
    let bad = |name: &str, fault| UserFileError::BadEntry { path: path.into(), name: name.into(), fault };
    let machine_sid: Sid = document.machine_sid.parse().map_err(|_| malformed(1))?;
    if machine_sid.sub_authorities().len() != 4 || machine_sid.sub_authorities()[0] != 21 {
        return Err(malformed(1));
    }
    let mut users = BTreeMap::new();
    for entry in document.user {
        let hash = parse_hash(&entry.nt_hash).ok_or_else(|| bad(&entry.name, EntryFault::Hash))?;
        let user = User {
            name: entry.name,
            rid: entry.rid,
            nt_hash: NtHash::from_bytes(hash),
            full_name: entry.full_name,
            disabled: entry.disabled,
        };
        if let Some(other) = users.insert(fold(&user.name), user) {
            return Err(bad(&other.name, EntryFault::DuplicateName));
        }
    }
    let mut groups = BTreeMap::new();
    for entry in document.group {
        let members = entry.members.into_iter().map(|name| (fold(&name), name)).collect();
        let group = Group { name: entry.name, rid: entry.rid, members };
        if let Some(other) = groups.insert(fold(&group.name), group) {
            return Err(bad(&other.name, EntryFault::DuplicateName));
        }
    }
    let table = Table { machine_sid, next_rid: document.next_rid, users, groups };
    table.check().map_err(|(name, fault)| bad(&name, fault))?;
    Ok(table)
}

fn render(table: &Table) -> Zeroizing<String> {
    let user = table.users.values().map(|user| Entry {
        name: user.name.clone(),
        rid: user.rid,
        nt_hash: Zeroizing::new(user.nt_hash.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()),
        full_name: user.full_name.clone(),
        disabled: user.disabled,
    });
    let document = Document {
        machine_sid: table.machine_sid.to_string(),
        next_rid: table.next_rid,
        user: user.collect(),
        group: table
            .groups
            .values()
            .map(|group| GroupEntry {
                name: group.name.clone(),
                rid: group.rid,
                members: group.members.values().cloned().collect(),
            })
            .collect(),
    };
    let body = Zeroizing::new(toml::to_string(&document).expect("tables of plain values are TOML"));
    Zeroizing::new(format!("{HEADER}{}", *body))
}

fn parse_hash(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> =
        text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    let digits: [u8; 32] = digits.try_into().ok()?;
    Some(std::array::from_fn(|at| digits[2 * at] << 4 | digits[2 * at + 1]))
}

fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.into(),
        _ => ".".into(),
    }
}

/// Path of the temporary file: hidden, in the same folder.
fn beside(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    path.with_file_name(name)
}

fn io_error(path: &Path) -> impl Fn(io::Error) -> UserFileError {
    let path = path.to_owned();
    move |source| UserFileError::Io { path: path.clone(), source }
}
