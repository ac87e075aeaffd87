//! `causeway group add|list|remove|add-member|remove-member` (`New-LocalGroup`, `Get-LocalGroup`,
//! `Add-LocalGroupMember` …): through the running server, or with `--users` directly in the users file. A
//! change applies from the next log-on.

use clap::Subcommand;
use smb_auth::users::{LocalGroup, UserFile};

use super::user::{UsersLocation, done, offline};
use crate::control::client::segment;
use crate::control::types::{Changed, GroupStatus, NewGroup};
use crate::failure::Failure;
use crate::output::{Output, TableArgs};

/// See the module.
#[derive(Debug, Subcommand)]
pub(super) enum GroupCommand {
    /// Add a group; the group "Administrators" always exists
    Add {
        /// Name of the group
        name: String,
        #[command(flatten)]
        place: UsersLocation,
    },
    /// List the groups and their members
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        table: TableArgs,
        #[command(flatten)]
        place: UsersLocation,
    },
    /// Make users members of a group
    AddMember {
        /// Name of the group
        group: String,
        /// Names of the users
        #[arg(id = "members", value_name = "USER", required = true)]
        users: Vec<String>,
        #[command(flatten)]
        place: UsersLocation,
    },
    /// Remove users from a group
    RemoveMember {
        /// Name of the group
        group: String,
        /// Names of the users
        #[arg(id = "members", value_name = "USER", required = true)]
        users: Vec<String>,
        #[command(flatten)]
        place: UsersLocation,
    },
    /// Remove a group; its members remain users
    #[command(visible_alias = "rm")]
    Remove {
        /// Name of the group
        name: String,
        #[command(flatten)]
        place: UsersLocation,
    },
}

pub(super) async fn run(command: GroupCommand, out: Output) -> Result<(), Failure> {
    let changed = match command {
        GroupCommand::List { table, place } => {
            let groups: Vec<GroupStatus> = match place.file() {
                Some(file) => UserFile::open(file)?.table().local_groups().into_iter().map(status).collect(),
                None => place.control().get("/v1/groups").await.map_err(offline)?,
            };
            return out.list(&groups, &table);
        }
        GroupCommand::Add { name, place } => match place.file() {
            Some(file) => {
                UserFile::open(file)?.add_group(&name)?;
                done(format!("group {name} added"))
            }
            None => place.control().post("/v1/groups", &NewGroup { name }).await.map_err(offline)?,
        },
        GroupCommand::Remove { name, place } => match place.file() {
            Some(file) => {
                UserFile::open(file)?.remove_group(&name)?;
                done(format!("group {name} removed"))
            }
            None => {
                let path = format!("/v1/groups/{}", segment(&name));
                place.control().delete(&path).await.map_err(offline)?
            }
        },
        GroupCommand::AddMember { group, users, place } => members(&group, &users, &place, true).await?,
        GroupCommand::RemoveMember { group, users, place } => members(&group, &users, &place, false).await?,
    };
    Ok(out.done(&changed, &changed.done)?)
}

async fn members(
    group: &str,
    users: &[String],
    place: &UsersLocation,
    join: bool,
) -> Result<Changed, Failure> {
    for user in users {
        match place.file() {
            Some(file) if join => UserFile::open(file)?.add_member(group, user)?,
            Some(file) => UserFile::open(file)?.remove_member(group, user)?,
            None => {
                let path = format!("/v1/groups/{}/members/{}", segment(group), segment(user));
                let control = place.control();
                let _: Changed = match join {
                    true => control.put(&path, &()).await.map_err(offline)?,
                    false => control.delete(&path).await.map_err(offline)?,
                };
            }
        }
    }
    let (what, list) = (if join { "added to" } else { "removed from" }, users.join(", "));
    Ok(done(format!("{list} {what} group {group}")))
}

/// A group as a row of the list.
pub(crate) fn status(group: LocalGroup) -> GroupStatus {
    GroupStatus { name: group.name, sid: group.sid.to_string(), members: group.members }
}
