//! The machine's own users and groups, as `getent passwd`, `getent group` and `id` show them.

use std::ffi::CString;

use nix::unistd::{Group, User, getgrouplist};

/// A user of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MachineUser {
    pub(super) uid: u32,
    /// The groups that the user is in, the first one included.
    pub(super) gids: Vec<u32>,
}

/// The machine's user with the name of an account: the same name, otherwise the name in lower case.
pub(super) fn user(account: &str) -> Option<MachineUser> {
    let found = |name: &str| match User::from_name(name) {
        Ok(user) => user,
        Err(error) => {
            tracing::warn!(user = name, "cannot look up the user of this machine: {error}");
            None
        }
    };
    let user = found(account).or_else(|| found(&account.to_lowercase()))?;
    let groups = CString::new(user.name.as_str()).ok().map(|name| getgrouplist(&name, user.gid));
    let gids = match groups {
        Some(Ok(gids)) => gids.into_iter().map(|gid| gid.as_raw()).collect(),
        _ => vec![user.gid.as_raw()],
    };
    Some(MachineUser { uid: user.uid.as_raw(), gids })
}

/// The number of the machine's group with the name of a local group: the same name, otherwise in lower case.
pub(super) fn group(name: &str) -> Option<u32> {
    let found = |name: &str| Group::from_name(name).ok().flatten();
    Some(found(name).or_else(|| found(&name.to_lowercase()))?.gid.as_raw())
}

#[cfg(test)]
mod tests {
    use super::{group, user};

    #[test]
    fn root_is_there_and_most_names_are_not() {
        let root = user("root").expect("on every machine");
        assert_eq!(root.uid, 0);
        assert!(root.gids.contains(&0));
        assert_eq!(user("ROOT"), Some(root), "accounts compare without case");
        assert_eq!(user("no such user"), None);
        assert_eq!((group("root"), group("no such group")), (Some(0), None));
    }
}
