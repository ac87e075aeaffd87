//! `causeway user add|list|passwd|enable|disable|remove`: through the running server, or with `--users`
//! directly in the users file. A server reads changes of its file at the next log-on.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use env::Env;
use smb_auth::ntlm::NtHash;
use smb_auth::users::UserFile;

use super::ControlArgs;
use crate::control::client::{ControlClient, ControlError, segment};
use crate::control::types::{Changed, NewUser, UserChange, UserStatus};
use crate::daemon::open_or_create_users;
use crate::failure::Failure;
use crate::output::{Output, TableArgs};
use crate::password;

/// See the module.
#[derive(Debug, Subcommand)]
pub(super) enum UserCommand {
    /// Add a user; prompts for the password
    Add {
        /// Log-on name
        name: String,
        /// Read the password from standard input
        #[arg(long)]
        password_stdin: bool,
        #[command(flatten)]
        place: UsersLocation,
    },
    /// List the users
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        table: TableArgs,
        #[command(flatten)]
        place: UsersLocation,
    },
    /// Change a password; existing sessions continue
    Passwd {
        /// Log-on name
        name: String,
        /// Read the password from standard input
        #[arg(long)]
        password_stdin: bool,
        #[command(flatten)]
        place: UsersLocation,
    },
    /// Enable a user
    Enable {
        /// Log-on name
        name: String,
        #[command(flatten)]
        place: UsersLocation,
    },
    /// Disable a user and end the user's sessions
    Disable {
        /// Log-on name
        name: String,
        #[command(flatten)]
        place: UsersLocation,
    },
    /// Remove a user and end the user's sessions
    #[command(visible_alias = "rm")]
    Remove {
        /// Log-on name
        name: String,
        #[command(flatten)]
        place: UsersLocation,
    },
}

#[derive(Debug, Args)]
pub(super) struct UsersLocation {
    /// Use this users file directly, without the server (ignores --control); created if it does not exist
    #[arg(long, value_name = "FILE")]
    users: Option<PathBuf>,
    #[command(flatten)]
    control: ControlArgs,
}

impl UsersLocation {
    /// The file to work on without a server.
    pub(super) fn file(&self) -> Option<&Path> {
        self.users.as_deref()
    }

    pub(super) fn control(&self) -> ControlClient {
        self.control.client()
    }
}

pub(super) async fn run(command: UserCommand, out: Output) -> Result<(), Failure> {
    match command {
        UserCommand::List { table, place } => {
            let users: Vec<UserStatus> = match &place.users {
                Some(file) => {
                    let status =
                        |u: smb_auth::users::UserInfo| UserStatus { name: u.name, enabled: !u.disabled };
                    UserFile::open(file)?.list().into_iter().map(status).collect()
                }
                None => place.control.client().get("/v1/users").await.map_err(offline)?,
            };
            out.list(&users, &table)
        }
        UserCommand::Add { name, password_stdin, place } => {
            let password = password::new(password_stdin, &name)?;
            let changed = match &place.users {
                Some(file) => {
                    create_directory(file)?;
                    open_or_create_users(file, &Env::real())?.add(
                        &name,
                        NtHash::from_password(&password),
                        "",
                    )?;
                    done(format!("user {name} added"))
                }
                None => {
                    let new = NewUser { name, password };
                    place.control.client().post("/v1/users", &new).await.map_err(offline)?
                }
            };
            Ok(out.done(&changed, &changed.done)?)
        }
        UserCommand::Passwd { name, password_stdin, place } => {
            let password = password::new(password_stdin, &name)?;
            let changed = match &place.users {
                Some(file) => {
                    UserFile::open(file)?.set_password(&name, NtHash::from_password(&password))?;
                    done(format!("password of {name} changed"))
                }
                None => {
                    let path = format!("/v1/users/{}", segment(&name));
                    place.control.client().put(&path, &NewUser { name, password }).await.map_err(offline)?
                }
            };
            Ok(out.done(&changed, &changed.done)?)
        }
        UserCommand::Enable { name, place } => set_enabled(name, true, &place, out).await,
        UserCommand::Disable { name, place } => set_enabled(name, false, &place, out).await,
        UserCommand::Remove { name, place } => {
            let changed = match &place.users {
                Some(file) => {
                    UserFile::open(file)?.remove(&name)?;
                    done(format!("user {name} removed"))
                }
                None => {
                    let path = format!("/v1/users/{}", segment(&name));
                    place.control.client().delete(&path).await.map_err(offline)?
                }
            };
            Ok(out.done(&changed, &changed.done)?)
        }
    }
}

async fn set_enabled(name: String, enabled: bool, place: &UsersLocation, out: Output) -> Result<(), Failure> {
    let changed = match &place.users {
        Some(file) => {
            UserFile::open(file)?.set_disabled(&name, !enabled)?;
            done(format!("user {name} {}", if enabled { "enabled" } else { "disabled" }))
        }
        None => {
            let path = format!("/v1/users/{}", segment(&name));
            place.control.client().patch(&path, &UserChange { enabled }).await.map_err(offline)?
        }
    };
    Ok(out.done(&changed, &changed.done)?)
}

/// Users can be changed without a server.
pub(super) fn offline(e: ControlError) -> Failure {
    match e {
        ControlError::NotRunning { socket } => Failure::NoServerForUsers { socket },
        other => other.into(),
    }
}

pub(super) fn create_directory(file: &Path) -> Result<(), Failure> {
    let Some(dir) = file.parent().filter(|d| !d.as_os_str().is_empty()) else { return Ok(()) };
    std::fs::create_dir_all(dir).map_err(|source| Failure::Local { path: dir.to_owned(), source })
}

pub(super) fn done(text: String) -> Changed {
    Changed { done: text, notes: Vec::new() }
}
