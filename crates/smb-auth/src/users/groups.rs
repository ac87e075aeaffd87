//! Local groups.
//!
//! Members are users, stored by name; a name without a user is kept and has no effect. The group `Administrators`
//! (`S-1-5-32-544`) always exists. Its members may change the security descriptor and the owner of every file.

use std::collections::BTreeMap;

use super::{Table, UserFile, UserFileError, fold};
use crate::mechanism::GroupInfo;
use crate::sid::Sid;

/// Name of the administrators' group.
pub const ADMINISTRATORS: &str = "Administrators";
/// Its relative identifier, within `S-1-5-32` (MS-DTYP 2.4.2.4).
pub(super) const ADMINISTRATORS_RID: u32 = 544;

/// A group, for listings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalGroup {
    /// The name as it was created.
    pub name: String,
    /// The group's SID in security descriptors.
    pub sid: Sid,
    /// The names of its members.
    pub members: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) rid: u32,
    /// Keyed by [`fold`]ed name.
    pub(super) members: BTreeMap<Vec<u16>, String>,
}

impl Group {
    fn administrators() -> Group {
        Group { name: ADMINISTRATORS.into(), rid: ADMINISTRATORS_RID, members: BTreeMap::new() }
    }

    pub(super) fn sid(&self, machine: &Sid) -> Sid {
        if self.rid == ADMINISTRATORS_RID { administrators() } else { machine.account(self.rid) }
    }
}

fn administrators() -> Sid {
    "S-1-5-32-544".parse().expect("well-formed")
}

impl Table {
    /// Adds a group without members and returns its SID.
    ///
    /// # Errors
    /// [`UserFileError::BadName`], [`UserFileError::Exists`], [`UserFileError::RidsExhausted`].
    pub fn add_group(&mut self, name: &str) -> Result<Sid, UserFileError> {
        if is_administrators(name) {
            return Err(UserFileError::Exists { name: name.into() });
        }
        let rid = self.new_rid(name)?;
        let group = Group { name: name.into(), rid, members: BTreeMap::new() };
        let sid = group.sid(&self.machine_sid);
        self.groups.insert(fold(name), group);
        Ok(sid)
    }

    /// Removes a group; its identifier is not reused. Removing `Administrators` only removes its members.
    ///
    /// # Errors
    /// [`UserFileError::NoSuchGroup`].
    pub fn remove_group(&mut self, name: &str) -> Result<(), UserFileError> {
        self.groups.remove(&fold(name)).map(|_| ()).ok_or_else(|| no_such_group(name))
    }

    /// Adds a user to a group; no effect if the user is already a member.
    ///
    /// # Errors
    /// [`UserFileError::NoSuchGroup`], [`UserFileError::NoSuchUser`].
    pub fn add_member(&mut self, group: &str, user: &str) -> Result<(), UserFileError> {
        let name = self.user_mut(user)?.name.clone();
        if is_administrators(group) {
            self.groups.entry(fold(group)).or_insert_with(Group::administrators);
        }
        let group = self.groups.get_mut(&fold(group)).ok_or_else(|| no_such_group(group))?;
        group.members.insert(fold(&name), name);
        Ok(())
    }

    /// Removes a user from a group.
    ///
    /// # Errors
    /// [`UserFileError::NoSuchGroup`], [`UserFileError::NoSuchMember`].
    pub fn remove_member(&mut self, group: &str, user: &str) -> Result<(), UserFileError> {
        let there = self.groups.get_mut(&fold(group));
        if there.is_none() && !is_administrators(group) {
            return Err(no_such_group(group));
        }
        let removed = there.and_then(|g| g.members.remove(&fold(user)));
        removed
            .map(|_| ())
            .ok_or_else(|| UserFileError::NoSuchMember { group: group.into(), member: user.into() })
    }

    /// Every group, by name; always includes the administrators.
    pub fn local_groups(&self) -> Vec<LocalGroup> {
        let mut groups = self.groups.clone();
        groups.entry(fold(ADMINISTRATORS)).or_insert_with(Group::administrators);
        let info = |g: Group| LocalGroup {
            sid: g.sid(&self.machine_sid),
            members: g.members.into_values().collect(),
            name: g.name,
        };
        groups.into_values().map(info).collect()
    }

    /// Every group with the SIDs of its members; includes the administrators only if they have members.
    pub(super) fn group_infos(&self) -> Vec<GroupInfo> {
        let member = |name: &Vec<u16>| self.users.get(name).map(|user| self.machine_sid.account(user.rid));
        let info = |g: &Group| GroupInfo {
            name: g.name.clone(),
            comment: String::new(),
            sid: g.sid(&self.machine_sid),
            members: g.members.keys().filter_map(member).collect(),
        };
        let listed = |g: &GroupInfo| g.sid != administrators() || !g.members.is_empty();
        self.groups.values().map(info).filter(listed).collect()
    }

    /// The SIDs of the groups that contain a user.
    pub(super) fn groups_of(&self, user: &str) -> Vec<Sid> {
        let user = fold(user);
        let of_user = self.groups.values().filter(|g| g.members.contains_key(&user));
        of_user.map(|g| g.sid(&self.machine_sid)).collect()
    }
}

impl UserFile {
    /// Adds a group.
    ///
    /// # Errors
    /// The errors of [`Table::add_group`] and [`open`](Self::open); the file is then unchanged.
    pub fn add_group(&self, name: &str) -> Result<Sid, UserFileError> {
        self.change(|table| table.add_group(name))
    }

    /// Removes a group.
    ///
    /// # Errors
    /// The errors of [`Table::remove_group`] and [`open`](Self::open); the file is then unchanged.
    pub fn remove_group(&self, name: &str) -> Result<(), UserFileError> {
        self.change(|table| table.remove_group(name))
    }

    /// Adds a user to a group.
    ///
    /// # Errors
    /// The errors of [`Table::add_member`] and [`open`](Self::open); the file is then unchanged.
    pub fn add_member(&self, group: &str, user: &str) -> Result<(), UserFileError> {
        self.change(|table| table.add_member(group, user))
    }

    /// Removes a user from a group.
    ///
    /// # Errors
    /// The errors of [`Table::remove_member`] and [`open`](Self::open); the file is then unchanged.
    pub fn remove_member(&self, group: &str, user: &str) -> Result<(), UserFileError> {
        self.change(|table| table.remove_member(group, user))
    }
}

fn is_administrators(name: &str) -> bool {
    fold(name) == fold(ADMINISTRATORS)
}

fn no_such_group(name: &str) -> UserFileError {
    UserFileError::NoSuchGroup { name: name.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanism::UserLookup;
    use crate::ntlm::NtHash;

    fn table() -> Table {
        let mut table = Table::new([1, 2, 3]);
        for name in ["alice", "bob"] {
            table.add(name, NtHash::from_password("secret"), "").expect("a new name");
        }
        table
    }

    #[test]
    fn members_have_the_groups_sid() {
        let mut table = table();
        let staff = table.add_group("Staff").expect("a new name");
        table.add_member("staff", "ALICE").expect("both exist");
        table.add_member("administrators", "alice").expect("always there");
        let groups = table.membership("Alice").groups;
        assert!(groups.contains(&staff) && groups.contains(&administrators()), "{groups:?}");
        assert_eq!(table.membership("bob").groups, []);
        assert_eq!(table.principal("STAFF"), Some(staff.clone()));
        let listed: Vec<_> = table.local_groups().into_iter().map(|g| (g.name, g.members)).collect();
        let alice = || vec!["alice".to_owned()];
        assert_eq!(listed, [("Administrators".into(), alice()), ("Staff".into(), alice())]);
        table.remove("alice").expect("exists");
        table.add("alice", NtHash::from_password("other"), "").expect("again");
        assert_eq!(table.membership("alice").groups, [], "another user of the same name");
    }

    #[test]
    fn names_and_numbers_are_shared_with_users() {
        let mut table = table();
        let staff = table.add_group("staff").expect("a new name");
        assert_eq!(staff, table.machine_sid().account(1002));
        for taken in ["alice", "STAFF", "administrators"] {
            assert!(matches!(table.add_group(taken), Err(UserFileError::Exists { .. })), "{taken}");
        }
        let refused = table.add("staff", NtHash::from_password("x"), "");
        assert!(matches!(refused, Err(UserFileError::Exists { .. })));
        table.remove_group("staff").expect("exists");
        assert_eq!(table.add_group("staff").expect("free again"), table.machine_sid().account(1003));
        assert!(matches!(table.add_member("none", "bob"), Err(UserFileError::NoSuchGroup { .. })));
        assert!(matches!(table.add_member("staff", "carol"), Err(UserFileError::NoSuchUser { .. })));
        assert!(matches!(table.remove_member("staff", "bob"), Err(UserFileError::NoSuchMember { .. })));
    }
}
