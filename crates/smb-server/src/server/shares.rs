//! Shares: added, protected, removed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use thiserror::Error;

use super::Server;
use crate::share::Share;
use crate::{ShareConfig, ShareProtection};

/// Why a share was not added or removed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ShareError {
    /// Another share has the name.
    #[error("a share named '{0}' exists already")]
    Exists(String),
    /// No share has the name.
    #[error("there is no share named '{0}'")]
    NotFound(String),
    /// The name is invalid for clients: empty, longer than 80 characters, with one of `\/[]:|<>+=;,*?"`, or reserved
    /// (IPC$).
    #[error("'{0}' is not a valid name for a share")]
    Name(String),
    /// The descriptor of the directory cannot be set.
    #[error("the security descriptor of the directory cannot be set: {0}")]
    Path(vfs::VfsError),
}

impl Server {
    /// Adds a share; clients see it at once.
    ///
    /// # Errors
    /// See [`ShareError`].
    pub fn add_share(&self, share: ShareConfig) -> Result<(), ShareError> {
        self.add_protected_share(share, ShareProtection::default())
    }

    /// Like [`Server::add_share`], with the protection set from the start.
    ///
    /// # Errors
    /// See [`ShareError`].
    pub fn add_protected_share(
        &self,
        share: ShareConfig,
        protection: ShareProtection,
    ) -> Result<(), ShareError> {
        let name = share.name.clone();
        if !is_share_name(&name) {
            return Err(ShareError::Name(name));
        }
        let mut shares = self.shares.write();
        if shares.contains_key(&fold(&name)) {
            return Err(ShareError::Exists(name));
        }
        let counted = self.registry.server_shares.permanent(&name, &[&name]);
        let share = Share::disk(share, counted);
        *share.protection.write() = protection;
        shares.insert(fold(&name), Arc::new(share));
        Ok(())
    }

    /// Changes the protection of a share, for later tree connects.
    ///
    /// # Errors
    /// [`ShareError::NotFound`].
    pub fn protect_share(&self, name: &str, protection: ShareProtection) -> Result<(), ShareError> {
        *self.disk_share(name)?.protection.write() = protection;
        Ok(())
    }

    /// Whether the name in a [`crate::ShareGrant`] is that of a user or group that exists.
    pub fn is_principal(&self, name: &str) -> bool {
        crate::permission::principal(name, &*self.users).is_some()
    }

    /// Stores a share's permission as the descriptor of its root directory; new files inherit it, existing files keep their
    /// own.
    ///
    /// # Errors
    /// [`ShareError::NotFound`], [`ShareError::Path`].
    pub async fn copy_permission_to_path(&self, name: &str) -> Result<(), ShareError> {
        let share = self.disk_share(name)?;
        let Some(vfs) = share.vfs() else { return Err(ShareError::NotFound(name.to_owned())) };
        let descriptor = share.protection.read().descriptor_of_root(&*self.users);
        let root = vfs::OpenRequest {
            kind: Some(vfs::Kind::Directory),
            ..vfs::OpenRequest::for_metadata(vfs::VfsPath::root())
        };
        let ctx = env::Ctx::default();
        let root = vfs.open(&ctx, root).wait().await.map_err(ShareError::Path)?.node;
        root.set_security(&ctx, descriptor).wait().await.map_err(ShareError::Path)
    }

    fn disk_share(&self, name: &str) -> Result<Arc<Share>, ShareError> {
        let found = self.shares.read().get(&fold(name)).filter(|s| s.vfs().is_some()).cloned();
        found.ok_or_else(|| ShareError::NotFound(name.to_owned()))
    }

    /// Removes a share: its opens are closed, later requests get STATUS_NETWORK_NAME_DELETED.
    ///
    /// # Errors
    /// [`ShareError::NotFound`]; IPC$ cannot be removed either.
    pub async fn remove_share(self: &Arc<Self>, name: &str) -> Result<(), ShareError> {
        let removed = {
            let mut shares = self.shares.write();
            let removed = match shares.get(&fold(name)) {
                Some(s) if s.vfs().is_some() => shares.remove(&fold(name)),
                _ => None,
            };
            // Before another share can get the name.
            removed.inspect(|share| share.counted.unlist())
        };
        let share = removed.ok_or_else(|| ShareError::NotFound(name.to_owned()))?;
        share.removed.store(true, Ordering::Release);
        let sessions: Vec<_> = self.sessions.lock().values().cloned().collect();
        for session in sessions {
            for tree in session.trees() {
                if Arc::ptr_eq(&tree.share, &share) {
                    self.close_opens_of(&session, &tree).await;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn share(&self, name: &str) -> Option<Arc<Share>> {
        self.shares.read().get(&fold(name)).cloned()
    }

    pub(crate) fn all_shares(&self) -> Vec<Arc<Share>> {
        let mut list: Vec<_> = self.shares.read().values().cloned().collect();
        list.sort_by(|a, b| a.name.cmp(&b.name));
        list
    }
}

/// Share names compare by upper case.
pub(super) fn fold(name: &str) -> String {
    name.to_uppercase()
}

fn is_share_name(name: &str) -> bool {
    let n = name.chars().count();
    (1..=80).contains(&n)
        && !name.eq_ignore_ascii_case("IPC$")
        && !name.chars().any(|c| c < ' ' || "\\/[]:|<>+=;,*?\"".contains(c))
}
