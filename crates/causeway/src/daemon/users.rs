//! The server's view of the users file: changes by other processes apply from the next log-on.
//!
//! An account is mapped to the machine's user of the same name, if there is one ([`machine`]), and a local group to the
//! machine's group of the same name: the account owns the files of that user, and the local group those of that group.

mod machine;

use std::collections::HashMap;
use std::path::Path;

use env::Env;
use parking_lot::RwLock;
use smb_auth::mechanism::{Account, GroupInfo, Membership, UserLookup};
use smb_auth::sid::Sid;
use smb_auth::users::{LocalGroup, Table, UserFile, UserFileError, UserInfo};

/// The enabled users.
pub(super) struct Users {
    file: UserFile,
    owners: RwLock<Owners>,
}

/// The accounts of the machine's user and group numbers: read again when the users file has changed.
#[derive(Default)]
struct Owners {
    users: HashMap<u32, Sid>,
    groups: HashMap<u32, Sid>,
}

impl Owners {
    fn of(table: &Table) -> Owners {
        let mapped = |user: smb_auth::users::UserInfo| Some((machine::user(&user.name)?.uid, user.sid));
        let mapped_group = |g: LocalGroup| Some((machine::group(&g.name)?, g.sid));
        Owners {
            users: table.list().into_iter().filter_map(mapped).collect(),
            groups: table.local_groups().into_iter().filter_map(mapped_group).collect(),
        }
    }
}

impl Users {
    /// Opens the file; creates one without users if it does not exist.
    pub(super) fn open(path: &Path, env: &Env) -> Result<Users, UserFileError> {
        let file = open_or_create(path, env)?;
        let owners = RwLock::new(Owners::of(&file.table()));
        Ok(Users { file, owners })
    }

    /// The file, for changes and listings.
    pub(super) fn file(&self) -> &UserFile {
        &self.file
    }

    /// The file as it is on disk now.
    fn current(&self) -> &UserFile {
        match self.file.reload_if_changed() {
            Ok(false) => {}
            Ok(true) => *self.owners.write() = Owners::of(&self.file.table()),
            Err(error) => tracing::error!("the users file was not reloaded: {error}"),
        }
        &self.file
    }
}

impl UserLookup for Users {
    fn machine_sid(&self) -> Option<Sid> {
        self.file.machine_sid()
    }

    fn users(&self) -> Vec<UserInfo> {
        self.current().users()
    }

    fn groups(&self) -> Vec<GroupInfo> {
        self.current().groups()
    }

    fn lookup(&self, user: &str, domain: &str) -> Option<Account> {
        self.current().lookup(user, domain)
    }

    fn membership(&self, user: &str) -> Membership {
        let mut membership = self.file.membership(user);
        if let Some(m) = machine::user(user) {
            (membership.uid, membership.gids) = (Some(m.uid), m.gids);
        }
        // Members of the local group are members of the machine's group of that name.
        let owners = self.owners.read();
        let mapped = owners.groups.iter().filter(|(_, sid)| membership.groups.contains(sid));
        membership.gids.extend(mapped.map(|(gid, _)| *gid));
        membership
    }

    fn principal(&self, name: &str) -> Option<Sid> {
        self.file.principal(name)
    }

    fn owner_of(&self, uid: u32) -> Option<Sid> {
        self.owners.read().users.get(&uid).cloned()
    }

    fn group_of(&self, gid: u32) -> Option<Sid> {
        self.owners.read().groups.get(&gid).cloned()
    }
}

/// Opens a users file; creates one without users if it does not exist.
///
/// # Errors
/// See [`UserFileError`].
pub(crate) fn open_or_create(path: &Path, env: &Env) -> Result<UserFile, UserFileError> {
    match UserFile::open(path) {
        Err(UserFileError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            let random = std::array::from_fn(|_| u32::from_le_bytes(env.random()));
            UserFile::create(path, random)
        }
        other => other,
    }
}
