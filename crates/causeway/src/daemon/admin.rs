//! An administrator's requests to a running server. Changes are written to the file before the response.

use std::sync::Arc;

use axum::http::StatusCode;
use smb_auth::ntlm::NtHash;
use smb_auth::users::UserFileError;
use smb_server::{OpenInfo, SessionInfo, ShareError, TransportKind};
use thiserror::Error;

use super::Daemon;
use super::backends::Running;
use super::storage::StorageError;
use crate::commands::group;
use crate::config::{
    self, AclEntry, AclLevel, ConfigError, Dialect, ProblemKind, ShareSection, check_share, edit,
};
use crate::control::types::{
    Changed, Channel, Credits, GroupStatus, Memory, NewAcl, NewShare, NewUser, OpenStatus, Passes,
    ServerStatus, SessionStatus, ShareAccess, ShareStatus, Totals, UserChange, UserStatus,
};

/// Why a request was refused.
#[derive(Debug, Error)]
pub enum AdminError {
    /// The requested share is invalid.
    #[error("{key}: {kind}")]
    BadShare {
        /// The key.
        key: &'static str,
        /// The problem.
        kind: ProblemKind,
    },
    /// The backend of the share does not start.
    #[error("the backend of share {name} cannot start: {source}")]
    Backend {
        /// The name.
        name: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The server refuses the share.
    #[error(transparent)]
    Share(#[from] ShareError),
    /// The configuration file cannot be read or written.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The pool of the share is missing or unsuitable.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The users file cannot be changed.
    #[error(transparent)]
    Users(#[from] UserFileError),
    /// The password is empty.
    #[error("the password is empty")]
    EmptyPassword,
    /// No such session or open.
    #[error("there is no {what} {id}")]
    NotFound {
        /// `session` or `open file`.
        what: &'static str,
        /// The requested id.
        id: String,
    },
    /// A task of the server was cancelled.
    #[error("the server is stopping")]
    Stopping,
}

impl AdminError {
    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        match self {
            AdminError::BadShare { .. } | AdminError::EmptyPassword | AdminError::Backend { .. } => {
                StatusCode::BAD_REQUEST
            }
            AdminError::Share(ShareError::NotFound(_))
            | AdminError::NotFound { .. }
            | AdminError::Users(
                UserFileError::NoSuchUser { .. }
                | UserFileError::NoSuchGroup { .. }
                | UserFileError::NoSuchMember { .. },
            ) => StatusCode::NOT_FOUND,
            AdminError::Share(ShareError::Exists(_)) | AdminError::Users(UserFileError::Exists { .. }) => {
                StatusCode::CONFLICT
            }
            AdminError::Share(ShareError::Name(_)) | AdminError::Users(UserFileError::BadName { .. }) => {
                StatusCode::BAD_REQUEST
            }
            AdminError::Storage(e) => e.status(),
            AdminError::Stopping => StatusCode::SERVICE_UNAVAILABLE,
            AdminError::Config(_) | AdminError::Users(_) | AdminError::Share(ShareError::Path(_)) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        }
    }

    /// The action that helps, if the message does not contain it.
    pub fn cure(&self) -> Option<String> {
        let cure = match self {
            AdminError::Share(ShareError::Exists(_)) => {
                "choose another name, or remove the share first: causeway share remove NAME"
            }
            AdminError::Share(ShareError::NotFound(_)) => "see causeway share list",
            AdminError::Users(UserFileError::Exists { .. }) => {
                "choose another name, or change its password: causeway user passwd NAME"
            }
            AdminError::Users(UserFileError::NoSuchUser { .. }) => "see causeway user list",
            AdminError::Users(UserFileError::NoSuchGroup { .. } | UserFileError::NoSuchMember { .. }) => {
                "see causeway group list"
            }
            AdminError::Share(ShareError::Path(_)) => {
                "share a directory of a file system with extended attributes (ext4, XFS, Btrfs)"
            }
            AdminError::NotFound { what: "session", .. } => "see causeway session list",
            AdminError::NotFound { .. } => "see causeway open list",
            AdminError::Backend { .. } => {
                "give the server permission to read the directory, or choose another path"
            }
            AdminError::Config(e) => return e.cure(),
            AdminError::Storage(e) => return e.cure(),
            _ => return None,
        };
        Some(cure.to_owned())
    }
}

impl Daemon {
    /// The server as a whole.
    pub fn status(&self) -> ServerStatus {
        let (usage, totals, counts) = (self.arena.usage(), self.server.totals(), arena::passes::counts());
        let touched = counts.copy + counts.place + counts.crc + counts.mac + counts.cipher;
        let moved = totals.read_bytes + totals.written_bytes;
        ServerStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            name: self.config.server.name.clone(),
            pid: std::process::id(),
            uptime_s: (self.env.now() - self.started).as_secs(),
            cpu_ns: Some(super::process::cpu_ns()),
            announces_rdma: Some(self.config.server.announce_rdma),
            config: self.config_path.display().to_string(),
            listeners: self.listeners.clone(),
            connections: totals.connections,
            sessions: self.server.sessions().len(),
            opens: self.server.opens().len(),
            memory: Memory {
                budget: usage.budget as u64,
                used: usage.used as u64,
                reserve: usage.reserve as u64,
                waiting: usage.waiting,
            },
            totals: Totals {
                accepted: totals.accepted,
                requests: totals.requests,
                reads: totals.reads,
                writes: totals.writes,
                read_bytes: totals.read_bytes,
                written_bytes: totals.written_bytes,
                read_bytes_rdma: totals.read_bytes_rdma,
                written_bytes_rdma: totals.written_bytes_rdma,
            },
            passes: Passes {
                copy_bytes: counts.copy,
                place_bytes: counts.place,
                crc_bytes: counts.crc,
                mac_bytes: counts.mac,
                cipher_bytes: counts.cipher,
                per_byte: (moved > 0).then(|| touched as f64 / moved as f64),
            },
            workers: self.workers.describe(),
        }
    }

    /// All shares, by name.
    pub fn shares(&self) -> Vec<ShareStatus> {
        let running = self.shares.lock();
        let with_users = |info: smb_server::ShareInfo| {
            let share = running.get(&info.name.to_lowercase())?.section.clone();
            Some(ShareStatus { share, users: info.users })
        };
        self.server.shares().into_iter().filter_map(with_users).collect()
    }

    /// Adds a share to the server and the file.
    ///
    /// # Errors
    /// See [`AdminError`]; nothing has changed then.
    pub async fn add_share(&self, new: NewShare) -> Result<Changed, AdminError> {
        let NewShare { mut share, temporary } = new;
        check_share(&mut share, &self.config.server)
            .map_err(|(key, kind)| AdminError::BadShare { key, kind })?;
        let _one = self.changing.lock().await;
        if share.pool.is_some() {
            self.storage.check_share(&share).await?;
        }
        let mut running = self.backend(None, &share)?;
        running.temporary = temporary;
        self.server.add_protected_share(running.config(), running.protection())?;
        if !temporary {
            let (path, section) = (self.config_path.clone(), share.clone());
            if let Err(e) = blocking(move || edit::put_share(&path, &section)).await {
                self.server.remove_share(&share.name).await?;
                return Err(e);
            }
        }
        self.shares.lock().insert(share.name.to_lowercase(), running);
        tracing::info!(share = share.name, "share added");
        Ok(done(format!("share {} added", share.name)))
    }

    /// Removes a share from the server and the file; its open files are closed.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub async fn remove_share(&self, name: &str) -> Result<Changed, AdminError> {
        let _one = self.changing.lock().await;
        let key = name.to_lowercase();
        let temporary = self.shares.lock().get(&key).map(|r| r.temporary);
        let temporary = temporary.ok_or_else(|| ShareError::NotFound(name.to_owned()))?;
        if !temporary {
            let (path, name) = (self.config_path.clone(), name.to_owned());
            blocking(move || edit::remove_share(&path, &name)).await?;
        }
        self.server.remove_share(name).await?;
        self.shares.lock().remove(&key);
        tracing::info!(share = name, "share removed");
        Ok(done(format!("share {name} removed")))
    }

    /// The permission of a share.
    ///
    /// # Errors
    /// When there is no such share.
    pub fn share_acl(&self, name: &str) -> Result<Vec<ShareAccess>, AdminError> {
        let share = self.running(name)?.section;
        let everyone = || vec![AclEntry { name: "Everyone".to_owned(), level: AclLevel::Full }];
        let row = |e: AclEntry| ShareAccess {
            share: share.name.clone(),
            known: self.server.is_principal(&e.name),
            account: e.name,
            access: e.level,
        };
        Ok(share.acl.unwrap_or_else(everyone).into_iter().map(row).collect())
    }

    /// Sets the permission of a share in the server and the file; on request also as the security descriptor of
    /// its directory.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub async fn set_share_acl(&self, name: &str, new: NewAcl) -> Result<Changed, AdminError> {
        let _one = self.changing.lock().await;
        let running = self.running(name)?;
        let name = running.section.name.clone();
        let mut notes = Vec::new();
        if let Some(acl) = new.acl {
            for entry in acl.iter().filter(|e| !self.server.is_principal(&e.name)) {
                notes.push(format!(
                    "there is no user or group {:?}: the entry has no effect until it is added",
                    entry.name
                ));
            }
            if !running.temporary {
                let (path, name, acl) = (self.config_path.clone(), name.clone(), acl.clone());
                blocking(move || edit::set_acl(&path, &name, &acl)).await?;
            }
            let access_based = running.section.access_based;
            self.protect(running, Some(acl), access_based)?;
            tracing::info!(share = name, "permission of the share changed");
        }
        if new.to_path {
            self.server.copy_permission_to_path(&name).await?;
            tracing::info!(share = name, "permission of the share copied to its directory");
            return Ok(Changed {
                done: format!("permission of share {name} and of its directory set"),
                notes,
            });
        }
        Ok(Changed { done: format!("permission of share {name} set; it applies to new connections"), notes })
    }

    fn running(&self, name: &str) -> Result<Running, AdminError> {
        let found = self.shares.lock().get(&name.to_lowercase()).cloned();
        Ok(found.ok_or_else(|| ShareError::NotFound(name.to_owned()))?)
    }

    fn protect(
        &self,
        mut share: Running,
        acl: Option<Vec<AclEntry>>,
        access_based: bool,
    ) -> Result<(), AdminError> {
        (share.section.acl, share.section.access_based) = (acl, access_based);
        self.server.protect_share(&share.section.name, share.protection())?;
        self.shares.lock().insert(share.section.name.to_lowercase(), share);
        Ok(())
    }

    /// Reads users and shares again.
    ///
    /// # Errors
    /// A file has a problem: nothing was changed. Or a backend cannot start: the other changes were made.
    pub async fn reload(&self) -> Result<Changed, AdminError> {
        let _one = self.changing.lock().await;
        let path = self.config_path.clone();
        let (new, warnings) = blocking(move || config::load(&path)).await?;
        self.users.file().reload()?;
        let mut notes: Vec<String> = warnings.0.iter().map(ToString::to_string).collect();
        if new.server != self.config.server {
            notes.push("the section [server] has changed: restart the server to apply the change".to_owned());
        }
        let (mut added, mut changed, mut removed) = (0, 0, 0);
        let old: Vec<Running> = self.shares.lock().values().filter(|r| !r.temporary).cloned().collect();
        for gone in old.iter().filter(|o| !new.shares.iter().any(|n| same_share(n, &o.section))) {
            self.server.remove_share(&gone.section.name).await?;
            self.shares.lock().remove(&gone.section.name.to_lowercase());
            removed += 1;
        }
        for section in &new.shares {
            let before = old.iter().find(|o| same_share(section, &o.section));
            if before.is_some_and(|b| b.section == *section) {
                continue;
            }
            if let Some(b) = before.filter(|b| b.differs_in_protection_only(section)) {
                self.protect(b.clone(), section.acl.clone(), section.access_based)?;
                changed += 1;
                continue;
            }
            let running = self.backend(before, section)?;
            if before.is_some() {
                self.server.remove_share(&section.name).await?;
                changed += 1;
            } else {
                added += 1;
            }
            self.server.add_protected_share(running.config(), running.protection())?;
            self.shares.lock().insert(section.name.to_lowercase(), running);
        }
        let done =
            format!("reloaded: {added} shares added, {changed} changed, {removed} removed, users read again");
        Ok(Changed { done, notes })
    }

    /// All sessions, by id.
    pub fn sessions(&self) -> Vec<SessionStatus> {
        self.server.sessions().iter().map(session_status).collect()
    }

    /// Ends a session and closes its files.
    ///
    /// # Errors
    /// [`AdminError::NotFound`].
    pub async fn close_session(&self, id: &str) -> Result<Changed, AdminError> {
        let closed = match u64::from_str_radix(id, 16) {
            Ok(n) => self.server.close_session(n).await,
            Err(_) => false,
        };
        if !closed {
            return Err(AdminError::NotFound { what: "session", id: id.to_owned() });
        }
        Ok(done(format!("session {id} closed")))
    }

    /// All open files and directories, by id.
    pub fn opens(&self) -> Vec<OpenStatus> {
        self.server.opens().into_iter().map(open_status).collect()
    }

    /// Closes one open.
    ///
    /// # Errors
    /// [`AdminError::NotFound`].
    pub async fn close_open(&self, id: u64) -> Result<Changed, AdminError> {
        if !self.server.close_open(id).await {
            return Err(AdminError::NotFound { what: "open file", id: id.to_string() });
        }
        Ok(done(format!("open file {id} closed")))
    }

    /// All users, by name.
    ///
    /// # Errors
    /// When the file has changed and cannot be read.
    pub async fn users(&self) -> Result<Vec<UserStatus>, AdminError> {
        let users = Arc::clone(&self.users);
        let list = blocking(move || users.file().reload_if_changed().map(|_| users.file().list())).await?;
        Ok(list.into_iter().map(|u| UserStatus { name: u.name, enabled: !u.disabled }).collect())
    }

    /// Adds a user.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub async fn add_user(&self, new: NewUser) -> Result<Changed, AdminError> {
        let (users, name) = (Arc::clone(&self.users), new.name.clone());
        let hash = hash(&new)?;
        blocking(move || users.file().add(&new.name, hash, "")).await?;
        Ok(done(format!("user {name} added")))
    }

    /// Gives a user a new password; existing sessions continue.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub async fn change_password(&self, new: NewUser) -> Result<Changed, AdminError> {
        let (users, name) = (Arc::clone(&self.users), new.name.clone());
        let hash = hash(&new)?;
        blocking(move || users.file().set_password(&new.name, hash)).await?;
        Ok(done(format!("password of {name} changed")))
    }

    /// Removes a user and ends the user's sessions.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub async fn remove_user(&self, name: String) -> Result<Changed, AdminError> {
        let (users, removed) = (Arc::clone(&self.users), name.clone());
        blocking(move || users.file().remove(&removed)).await?;
        let closed = self.close_sessions_of(&name).await;
        Ok(done(format!("user {name} removed, {closed} sessions closed")))
    }

    /// Enables or disables a user; a disabled user is logged off.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub async fn change_user(&self, name: String, change: UserChange) -> Result<Changed, AdminError> {
        let (users, changed) = (Arc::clone(&self.users), name.clone());
        blocking(move || users.file().set_disabled(&changed, !change.enabled)).await?;
        if change.enabled {
            return Ok(done(format!("user {name} enabled")));
        }
        let closed = self.close_sessions_of(&name).await;
        Ok(done(format!("user {name} disabled, {closed} sessions closed")))
    }

    /// All groups, by name.
    ///
    /// # Errors
    /// When the file has changed and cannot be read.
    pub async fn groups(&self) -> Result<Vec<GroupStatus>, AdminError> {
        let users = Arc::clone(&self.users);
        let list =
            blocking(move || users.file().reload_if_changed().map(|_| users.file().table().local_groups()))
                .await?;
        Ok(list.into_iter().map(group::status).collect())
    }

    /// Adds a group.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub async fn add_group(&self, name: String) -> Result<Changed, AdminError> {
        let (users, new) = (Arc::clone(&self.users), name.clone());
        blocking(move || users.file().add_group(&new)).await?;
        Ok(done(format!("group {name} added")))
    }

    /// Removes a group.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub async fn remove_group(&self, name: String) -> Result<Changed, AdminError> {
        let (users, old) = (Arc::clone(&self.users), name.clone());
        blocking(move || users.file().remove_group(&old)).await?;
        Ok(done(format!("group {name} removed")))
    }

    /// Puts a user into a group, or takes one out.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub async fn change_member(
        &self,
        group: String,
        user: String,
        join: bool,
    ) -> Result<Changed, AdminError> {
        let (users, g, u) = (Arc::clone(&self.users), group.clone(), user.clone());
        blocking(move || match join {
            true => users.file().add_member(&g, &u),
            false => users.file().remove_member(&g, &u),
        })
        .await?;
        let what = if join { "added to" } else { "removed from" };
        Ok(done(format!("{user} {what} group {group}")))
    }

    async fn close_sessions_of(&self, name: &str) -> usize {
        let mut closed = 0;
        for session in self.server.sessions().iter().filter(|s| s.user.to_lowercase() == name.to_lowercase())
        {
            closed += usize::from(self.server.close_session(session.id).await);
        }
        closed
    }

    fn backend(&self, before: Option<&Running>, section: &ShareSection) -> Result<Running, AdminError> {
        let made = match before {
            Some(b) => b.restart(section, &self.env, &self.storage),
            None => Running::start(section, &self.env, &self.storage),
        };
        made.map_err(|source| AdminError::Backend { name: section.name.clone(), source })
    }
}

fn hash(new: &NewUser) -> Result<NtHash, AdminError> {
    if new.password.is_empty() {
        Err(AdminError::EmptyPassword)
    } else {
        Ok(NtHash::from_password(&new.password))
    }
}

fn same_share(a: &ShareSection, b: &ShareSection) -> bool {
    a.name.to_lowercase() == b.name.to_lowercase()
}

fn done(text: String) -> Changed {
    Changed { done: text, notes: Vec::new() }
}

/// Runs work that may wait for a disk on a blocking thread.
async fn blocking<T: Send + 'static, E>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, AdminError>
where
    E: Send + 'static,
    AdminError: From<E>,
{
    Ok(tokio::task::spawn_blocking(work).await.map_err(|_| AdminError::Stopping)??)
}

fn session_status(s: &SessionInfo) -> SessionStatus {
    let address =
        s.channels.first().map_or_else(|| "?".to_owned(), |c| c.peer.ip().to_canonical().to_string());
    let client = if s.workstation.is_empty() { address } else { format!("{address} ({})", s.workstation) };
    let channel = |c: &smb_server::ChannelInfo| {
        let transport = match c.transport {
            TransportKind::Tcp => "tcp",
            TransportKind::Rdma => "rdma",
        };
        let smb_server::Credits { available, in_use } = c.credits;
        let credits = Some(Credits { available, in_use });
        Channel { transport: transport.to_owned(), peer: c.peer, credits }
    };
    SessionStatus {
        id: format!("{:016x}", s.id),
        client,
        user: s.user.clone(),
        opens: s.opens,
        dialect: Dialect(s.dialect).to_string(),
        channels: s.channels.iter().map(channel).collect(),
        signed: s.signed,
        encrypted: s.encrypted,
        age_s: s.age.as_secs(),
        idle_s: s.idle.as_secs(),
    }
}

fn open_status(o: OpenInfo) -> OpenStatus {
    OpenStatus {
        id: o.id.0,
        session: format!("{:016x}", o.session),
        user: o.user,
        share: o.share,
        path: o.path,
        access: o.access,
        locks: o.locks,
    }
}
