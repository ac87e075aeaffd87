//! Creates the backends of shares.

use std::io;
use std::sync::Arc;

use env::Env;
use smb_server::{ShareConfig, ShareGrant, ShareLevel, ShareProtection};
use vfs::{HostDir, HostDirOptions, RamFs, RamOptions, Vfs};

use super::storage::Storage;
use crate::config::{AclEntry, AclLevel, Backend, ShareSection};

/// A share and its backend.
#[derive(Clone)]
pub(super) struct Running {
    pub(super) section: ShareSection,
    /// It is not in the configuration file.
    pub(super) temporary: bool,
    vfs: Arc<dyn Vfs>,
}

impl Running {
    /// Starts the backend.
    pub(super) fn start(section: &ShareSection, env: &Env, storage: &Arc<Storage>) -> io::Result<Running> {
        let vfs: Arc<dyn Vfs> = match section.backend {
            Backend::Hostdir => {
                let path = section.path.as_deref().ok_or(io::ErrorKind::InvalidInput)?;
                let options = HostDirOptions {
                    label: section.name.clone(),
                    read_only: section.read_only,
                    snapshots: section.snapshots.clone(),
                    ..HostDirOptions::default()
                };
                HostDir::open(path, options)?
            }
            Backend::Ram => {
                let capacity = section.size.unwrap_or_default();
                RamFs::new(env, RamOptions { label: section.name.clone(), capacity })?
            }
            Backend::Spaces => {
                storage.share(section, section.pool.as_deref().ok_or(io::ErrorKind::InvalidInput)?)
            }
            Backend::Null => RamFs::null(env, section.name.clone())?,
        };
        Ok(Running { section: section.clone(), temporary: false, vfs })
    }

    /// Applies a changed configuration: keeps the backend, or starts a new one if that is necessary. The contents of a
    /// `ram` share are kept unless its size changes.
    pub(super) fn restart(
        &self,
        section: &ShareSection,
        env: &Env,
        storage: &Arc<Storage>,
    ) -> io::Result<Running> {
        let (a, b) = (&self.section, section);
        let same = (a.backend, &a.path, &a.snapshots, a.size) == (b.backend, &b.path, &b.snapshots, b.size)
            && (&a.pool, a.resiliency, a.columns) == (&b.pool, b.resiliency, b.columns)
            && a.allow_delete == b.allow_delete
            && (a.backend != Backend::Hostdir || a.read_only == b.read_only);
        if same {
            return Ok(Running { section: section.clone(), temporary: false, vfs: Arc::clone(&self.vfs) });
        }
        Running::start(section, env, storage)
    }

    /// The attributes of a share for the server.
    pub(super) fn config(&self) -> ShareConfig {
        let s = &self.section;
        ShareConfig {
            name: s.name.clone(),
            comment: s.comment.clone(),
            vfs: Arc::clone(&self.vfs),
            read_only: s.read_only,
            encrypt: s.encrypt,
            hidden: s.hidden,
            continuous: s.continuous_availability,
        }
    }

    /// Its permission.
    pub(super) fn protection(&self) -> ShareProtection {
        let grant = |e: &AclEntry| {
            let level = match e.level {
                AclLevel::Deny => ShareLevel::Deny,
                AclLevel::Read => ShareLevel::Read,
                AclLevel::Change => ShareLevel::Change,
                AclLevel::Full => ShareLevel::Full,
            };
            ShareGrant { name: e.name.clone(), level }
        };
        ShareProtection {
            grants: self.section.acl.as_ref().map(|acl| acl.iter().map(grant).collect()),
            access_based_enumeration: self.section.access_based,
        }
    }

    /// Whether a changed configuration changes only the permission.
    pub(super) fn differs_in_protection_only(&self, section: &ShareSection) -> bool {
        let (acl, access_based) = (section.acl.clone(), section.access_based);
        ShareSection { acl, access_based, ..self.section.clone() } == *section
    }
}
