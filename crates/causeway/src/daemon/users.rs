//! The file of users as the server sees it: what another process writes to it counts from the next log-on.

use std::path::Path;

use env::Env;
use smb_auth::mechanism::{Account, GroupInfo, UserLookup};
use smb_auth::sid::Sid;
use smb_auth::users::{UserFile, UserFileError, UserInfo};

/// The users who may log on.
pub(super) struct Users {
    file: UserFile,
}

impl Users {
    /// Opens the file, or makes one without users where there is none.
    pub(super) fn open(path: &Path, env: &Env) -> Result<Users, UserFileError> {
        Ok(Users { file: open_or_create(path, env)? })
    }

    /// The file, for changes and listings.
    pub(super) fn file(&self) -> &UserFile {
        &self.file
    }

    /// The file as it is on disk now.
    fn current(&self) -> &UserFile {
        if let Err(error) = self.file.reload_if_changed() {
            tracing::error!("the users stay as they were: {error}");
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
}

/// Opens a file of users, or makes one without users where there is none.
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
