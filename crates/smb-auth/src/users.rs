//! The file of local users.
//!
//! TOML, one table per user:
//!
//! ```toml
//! machine_sid = "S-1-5-21-1004336348-1177238915-682003330"
//! next_rid = 1001
//!
//! [[user]]
//! name = "alice"
//! rid = 1000
//! nt_hash = "8846f7eaee8fb117ad06bdd830b7586c"
//! full_name = "Alice Liddell"   # optional
//! disabled = false              # optional
//!
//! [[group]]                     # optional
//! name = "staff"
//! rid = 1001                    # 544: the administrators
//! members = ["alice"]
//! ```
//!
//! 1. An NT hash is equivalent to the password. The file is therefore created with mode 0600, and rejected if other
//!    users can read or write it.
//! 2. The machine's SID is generated once, when the file is created. Relative identifiers (RIDs) start at 1000 and
//!    are never reused, so a new user does not inherit a deleted user's files. Users and groups share one RID space
//!    and one name space.
//! 3. A change is atomic: written to a temporary file, synced, renamed over the old file, then the folder is
//!    synced. Concurrent changes by several processes are serialized by a lock on the folder.
//! 4. Readers see one consistent table. [`UserFile::reload_if_changed`] loads the changes of other processes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;

use crate::mechanism::{Account, GroupInfo, Membership, UserLookup};
use crate::ntlm::{NtHash, upcase};
use crate::sid::Sid;

mod file;
mod groups;

use file::Stamp;
use groups::Group;
pub use groups::{ADMINISTRATORS, LocalGroup};

/// The first relative identifier of a user.
pub const FIRST_RID: u32 = 1000;
/// The longest user name, in UTF-16 units.
pub const MAX_NAME: usize = 104;

/// Why the file could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum UserFileError {
    /// The operating system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Users other than the owner can read or write the file. They could log on as any of its users.
    #[error(
        "{path} has mode {mode:04o}, so other users may have read its hashes, which work like passwords. \
         Run: chmod 600 {path}; then change all passwords"
    )]
    TooOpen {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file is larger than any file that this program writes.
    #[error("{path} is larger than 16 MiB")]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// The file is not in the format of this module's documentation. The message does not quote the content, which
    /// may be secret.
    #[error("{path}:{line}: not a user file: missing, unknown or malformed key")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
    },
    /// The entry of a user or group contradicts itself or another entry.
    #[error("{path}: user {name:?}: {fault}")]
    BadEntry {
        /// The file.
        path: PathBuf,
        /// Name of the entry.
        name: Box<str>,
        /// What is wrong.
        fault: EntryFault,
    },
    /// The name is not a valid user name.
    #[error(
        "{name:?} cannot be a user name: 1 to {MAX_NAME} characters, no control characters, none of \
         \"/\\[]:;|=,+*?<>@, no full stop at the end, and not \"guest\""
    )]
    BadName {
        /// The name.
        name: Box<str>,
    },
    /// The user or group already exists.
    #[error("a user or group {name:?} already exists")]
    Exists {
        /// The name.
        name: Box<str>,
    },
    /// The user does not exist.
    #[error("there is no user {name:?}")]
    NoSuchUser {
        /// The name.
        name: Box<str>,
    },
    /// The group does not exist.
    #[error("there is no group {name:?}")]
    NoSuchGroup {
        /// The name.
        name: Box<str>,
    },
    /// The named user is not a member of the group.
    #[error("{member:?} is not in the group {group:?}")]
    NoSuchMember {
        /// The group.
        group: Box<str>,
        /// The user.
        member: Box<str>,
    },
    /// Every relative identifier has been used.
    #[error("all relative identifiers (RIDs) are used")]
    RidsExhausted,
}

/// What is wrong with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryFault {
    /// `nt_hash` is not 32 hexadecimal digits.
    #[error("nt_hash must be 32 hexadecimal digits")]
    Hash,
    /// The name is not allowed.
    #[error("the name is not allowed")]
    Name,
    /// Two entries have the same name, compared case-insensitively.
    #[error("the name occurs twice")]
    DuplicateName,
    /// Two entries have the same relative identifier.
    #[error("the rid occurs twice")]
    DuplicateRid,
    /// The relative identifier is below 1000 or not below `next_rid`.
    #[error("the rid must be at least 1000 and less than next_rid")]
    Rid,
}

/// The public attributes of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserInfo {
    /// The name as it was created.
    pub name: String,
    /// A description for people.
    pub full_name: String,
    /// The user's SID in security descriptors.
    pub sid: Sid,
    /// Whether the user may not log on.
    pub disabled: bool,
}

/// The users of one file, for log-ons.
pub struct UserFile {
    path: PathBuf,
    current: RwLock<Current>,
}

struct Current {
    table: Arc<Table>,
    stamp: Stamp,
}

/// Content of the file. It is also a [`UserLookup`] by itself, for servers whose users exist only in memory.
#[derive(Clone, Debug)]
pub struct Table {
    machine_sid: Sid,
    next_rid: u32,
    /// Keyed by [`fold`]ed name.
    users: BTreeMap<Vec<u16>, User>,
    /// Keyed by [`fold`]ed name.
    groups: BTreeMap<Vec<u16>, Group>,
}

#[derive(Clone, Debug)]
struct User {
    name: String,
    rid: u32,
    nt_hash: NtHash,
    full_name: String,
    disabled: bool,
}

impl Table {
    /// Creates a table without users, on a machine whose SID is made of `random`.
    pub fn new(random: [u32; 3]) -> Self {
        Self {
            machine_sid: Sid::machine(random),
            next_rid: FIRST_RID,
            users: BTreeMap::new(),
            groups: BTreeMap::new(),
        }
    }

    /// Adds a user and returns its SID.
    ///
    /// # Errors
    /// [`UserFileError::BadName`], [`UserFileError::Exists`], [`UserFileError::RidsExhausted`].
    pub fn add(&mut self, name: &str, nt_hash: NtHash, full_name: &str) -> Result<Sid, UserFileError> {
        let rid = self.new_rid(name)?;
        let user = User { name: name.into(), rid, nt_hash, full_name: full_name.into(), disabled: false };
        self.users.insert(fold(name), user);
        Ok(self.machine_sid.account(rid))
    }

    /// Removes a user; its identifier is not reused.
    ///
    /// # Errors
    /// [`UserFileError::NoSuchUser`].
    pub fn remove(&mut self, name: &str) -> Result<(), UserFileError> {
        self.users.remove(&fold(name)).ok_or_else(|| no_such_user(name))?;
        self.groups.values_mut().for_each(|group| drop(group.members.remove(&fold(name))));
        Ok(())
    }

    /// Sets a user's password.
    ///
    /// # Errors
    /// [`UserFileError::NoSuchUser`].
    pub fn set_password(&mut self, name: &str, nt_hash: NtHash) -> Result<(), UserFileError> {
        self.user_mut(name)?.nt_hash = nt_hash;
        Ok(())
    }

    /// Disables or enables a user.
    ///
    /// # Errors
    /// [`UserFileError::NoSuchUser`].
    pub fn set_disabled(&mut self, name: &str, disabled: bool) -> Result<(), UserFileError> {
        self.user_mut(name)?.disabled = disabled;
        Ok(())
    }

    /// Every user, by name.
    pub fn list(&self) -> Vec<UserInfo> {
        self.users
            .values()
            .map(|user| UserInfo {
                name: user.name.clone(),
                full_name: user.full_name.clone(),
                sid: self.machine_sid.account(user.rid),
                disabled: user.disabled,
            })
            .collect()
    }

    /// The machine's SID.
    pub fn machine_sid(&self) -> &Sid {
        &self.machine_sid
    }

    fn user_mut(&mut self, name: &str) -> Result<&mut User, UserFileError> {
        self.users.get_mut(&fold(name)).ok_or_else(|| no_such_user(name))
    }

    /// Allocates a relative identifier for a new user or group of this name.
    fn new_rid(&mut self, name: &str) -> Result<u32, UserFileError> {
        if !allowed(name) {
            return Err(UserFileError::BadName { name: name.into() });
        }
        if self.users.contains_key(&fold(name)) || self.groups.contains_key(&fold(name)) {
            return Err(UserFileError::Exists { name: name.into() });
        }
        let rid = self.next_rid;
        self.next_rid = rid.checked_add(1).ok_or(UserFileError::RidsExhausted)?;
        Ok(rid)
    }

    /// Checks the rules that the file's grammar does not express.
    fn check(&self) -> Result<(), (Box<str>, EntryFault)> {
        let mut rids = BTreeSet::new();
        let users = self.users.values().map(|user| (&user.name, user.rid, false));
        let groups = self.groups.values().map(|group| (&group.name, group.rid, true));
        for (name, rid, is_group) in users.chain(groups) {
            let builtin = is_group && rid == groups::ADMINISTRATORS_RID;
            let fault = if !allowed(name) {
                EntryFault::Name
            } else if is_group && self.users.contains_key(&fold(name)) {
                EntryFault::DuplicateName
            } else if !builtin && (rid < FIRST_RID || rid >= self.next_rid) {
                EntryFault::Rid
            } else if !rids.insert(rid) {
                EntryFault::DuplicateRid
            } else {
                continue;
            };
            return Err((name.as_str().into(), fault));
        }
        Ok(())
    }
}

impl UserLookup for Table {
    fn machine_sid(&self) -> Option<Sid> {
        Some(self.machine_sid.clone())
    }

    fn users(&self) -> Vec<UserInfo> {
        self.list()
    }

    fn groups(&self) -> Vec<GroupInfo> {
        self.group_infos()
    }

    /// The domain is ignored: every account belongs to the machine. `name@domain` finds `name`.
    fn lookup(&self, user: &str, _domain: &str) -> Option<Account> {
        let name = user.split_once('@').map_or(user, |(name, _)| name);
        self.users.get(&fold(name)).map(|user| Account {
            name: user.name.clone(),
            nt_hash: user.nt_hash.clone(),
            sid: self.machine_sid.account(user.rid),
            disabled: user.disabled,
        })
    }

    fn membership(&self, user: &str) -> Membership {
        Membership { groups: self.groups_of(user), ..Membership::default() }
    }

    fn principal(&self, name: &str) -> Option<Sid> {
        let user = self.users.get(&fold(name)).map(|user| self.machine_sid.account(user.rid));
        user.or_else(|| self.groups.get(&fold(name)).map(|group| group.sid(&self.machine_sid)))
    }
}

impl UserFile {
    /// Creates the file, without users, on a machine whose SID is made of `random`.
    ///
    /// # Errors
    /// [`UserFileError::Io`], also if the file exists.
    pub fn create(path: impl Into<PathBuf>, random: [u32; 3]) -> Result<Self, UserFileError> {
        let path = path.into();
        let table = Table::new(random);
        let _lock = file::lock(&path)?;
        let stamp = file::write(&path, &table, file::Existing::MustNotExist)?;
        Ok(Self::with(path, table, stamp))
    }

    /// Reads the file.
    ///
    /// # Errors
    /// [`UserFileError`]: the file is unreadable, malformed, or accessible to other users.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, UserFileError> {
        let path = path.into();
        let (table, stamp) = file::read(&path)?;
        Ok(Self::with(path, table, stamp))
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The users of the last read.
    pub fn table(&self) -> Arc<Table> {
        self.current.read().table.clone()
    }

    /// Reads the file again if it has changed since the last read; returns whether it did. The server calls this
    /// before a log-on. It costs one `stat`.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open); the users of the last read are kept.
    pub fn reload_if_changed(&self) -> Result<bool, UserFileError> {
        if file::stamp(&self.path)? == self.current.read().stamp {
            return Ok(false);
        }
        self.reload().map(|()| true)
    }

    /// Reads the file again.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open); the users of the last read are kept.
    pub fn reload(&self) -> Result<(), UserFileError> {
        let (table, stamp) = file::read(&self.path)?;
        *self.current.write() = Current { table: Arc::new(table), stamp };
        Ok(())
    }

    /// Adds a user and returns its SID.
    ///
    /// # Errors
    /// The errors of [`Table::add`] and [`open`](Self::open); the file is then unchanged.
    pub fn add(&self, name: &str, nt_hash: NtHash, full_name: &str) -> Result<Sid, UserFileError> {
        self.change(|table| table.add(name, nt_hash, full_name))
    }

    /// Removes a user.
    ///
    /// # Errors
    /// The errors of [`Table::remove`] and [`open`](Self::open); the file is then unchanged.
    pub fn remove(&self, name: &str) -> Result<(), UserFileError> {
        self.change(|table| table.remove(name))
    }

    /// Sets a user's password.
    ///
    /// # Errors
    /// The errors of [`Table::set_password`] and [`open`](Self::open); the file is then unchanged.
    pub fn set_password(&self, name: &str, nt_hash: NtHash) -> Result<(), UserFileError> {
        self.change(|table| table.set_password(name, nt_hash))
    }

    /// Disables or enables a user.
    ///
    /// # Errors
    /// The errors of [`Table::set_disabled`] and [`open`](Self::open); the file is then unchanged.
    pub fn set_disabled(&self, name: &str, disabled: bool) -> Result<(), UserFileError> {
        self.change(|table| table.set_disabled(name, disabled))
    }

    /// Every user of the last read, by name.
    pub fn list(&self) -> Vec<UserInfo> {
        self.table().list()
    }

    fn with(path: PathBuf, table: Table, stamp: Stamp) -> Self {
        Self { path, current: RwLock::new(Current { table: Arc::new(table), stamp }) }
    }

    /// Applies a change to the current content of the file, which another process may have written.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut Table) -> Result<T, UserFileError>,
    ) -> Result<T, UserFileError> {
        let _lock = file::lock(&self.path)?;
        let (mut table, _) = file::read(&self.path)?;
        let result = change(&mut table)?;
        let stamp = file::write(&self.path, &table, file::Existing::Replace)?;
        *self.current.write() = Current { table: Arc::new(table), stamp };
        Ok(result)
    }
}

impl UserLookup for UserFile {
    fn machine_sid(&self) -> Option<Sid> {
        Some(self.table().machine_sid.clone())
    }

    fn users(&self) -> Vec<UserInfo> {
        self.list()
    }

    fn groups(&self) -> Vec<GroupInfo> {
        self.table().groups()
    }

    fn lookup(&self, user: &str, domain: &str) -> Option<Account> {
        self.table().lookup(user, domain)
    }

    fn membership(&self, user: &str) -> Membership {
        self.table().membership(user)
    }

    fn principal(&self, name: &str) -> Option<Sid> {
        self.table().principal(name)
    }
}

fn no_such_user(name: &str) -> UserFileError {
    UserFileError::NoSuchUser { name: name.into() }
}

/// Folds the case of a name, as NTLM does.
fn fold(name: &str) -> Vec<u16> {
    name.encode_utf16().map(upcase).collect()
}

fn allowed(name: &str) -> bool {
    let length = name.encode_utf16().count();
    (1..=MAX_NAME).contains(&length)
        && !name.chars().any(|c| c.is_control() || "\"/\\[]:;|=,+*?<>@".contains(c))
        && !name.ends_with('.')
        && name.trim() == name
        && !name.eq_ignore_ascii_case("guest")
}

#[cfg(test)]
mod tests;
