//! Names of SIDs and SIDs of names (MS-LSAT 3.1.1.1): well-known ones, the BUILTIN groups, the machine's users and
//! groups, and numbers of Unix users and groups (`S-1-22-1-uid`, `S-1-22-2-gid`).
//!
//! A [`Directory`] is a snapshot for the calls of one message: it is built from the lists of
//! [`UserLookup`](smb_auth::mechanism::UserLookup).

mod well_known;

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashMap;

use smb_auth::mechanism::GroupInfo;
use smb_auth::users::UserInfo;
use smb_wire::rpc::SidNameUse;
use smb_wire::security::Sid;

use self::well_known::{ALIASES, AUTHORITIES, GROUPS};
use crate::Server;
use crate::identity::User;

/// Relative identifier of the group that is every account's primary group.
pub(crate) const PRIMARY_GROUP: u32 = 513;
/// Its name on a machine that is in no domain.
pub(crate) const PRIMARY_GROUP_NAME: &str = "None";

/// Relative identifier of BUILTIN's group of all accounts.
const USERS: u32 = 545;

/// One account of the machine.
pub(crate) struct Account {
    pub(crate) id: u32,
    pub(crate) sid: Sid,
    pub(crate) name: String,
    pub(crate) full_name: String,
    pub(crate) disabled: bool,
}

/// One local group: of the machine, or BUILTIN.
pub(crate) struct Alias {
    pub(crate) id: u32,
    pub(crate) name: Cow<'static, str>,
    pub(crate) comment: String,
    pub(crate) members: Vec<Sid>,
}

/// The machine's users and groups.
pub(crate) struct Directory {
    /// NetBIOS name of the machine, which its account domain has too.
    pub(crate) name: String,
    /// SID of the account domain.
    pub(crate) sid: Sid,
    /// By relative identifier.
    pub(crate) users: Vec<Account>,
    /// Local groups of the machine, by relative identifier.
    pub(crate) aliases: Vec<Alias>,
    /// BUILTIN groups, by relative identifier.
    pub(crate) builtin: Vec<Alias>,
    by_name: OnceCell<HashMap<String, (u32, SidNameUse)>>,
}

/// A name and its SID.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Principal<'d> {
    pub(crate) usage: SidNameUse,
    pub(crate) sid: Sid,
    pub(crate) name: Cow<'d, str>,
    pub(crate) domain: Domain<'d>,
}

/// The domain that a name belongs to; some well-known ones have a domain without a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Domain<'d> {
    pub(crate) name: Cow<'d, str>,
    pub(crate) sid: Sid,
}

impl Directory {
    /// The directory of `server`. It always has the account of `caller`, even if the lookup does not list it.
    pub(crate) fn new(server: &Server, caller: &User) -> Directory {
        let machine = server.users.machine_sid().map(|sid| decoded(&sid));
        let sid = machine.or_else(|| parent(&caller.sid)).unwrap_or(caller.sid);
        let mut users: Vec<_> = server.users.users().into_iter().filter_map(|u| account(&sid, u)).collect();
        if parent(&caller.sid) == Some(sid) && users.iter().all(|u| u.sid != caller.sid) {
            users.push(Account {
                id: last(&caller.sid),
                sid: caller.sid,
                name: caller.name.clone(),
                full_name: String::new(),
                disabled: false,
            });
        }
        users.sort_by_key(|u| u.id);
        let mut builtin: Vec<_> = ALIASES
            .iter()
            .map(|(id, name)| Alias {
                id: *id,
                name: (*name).into(),
                comment: String::new(),
                members: Vec::new(),
            })
            .collect();
        if let Some(all) = builtin.iter_mut().find(|a| a.id == USERS) {
            all.members.push(Sid::AUTHENTICATED_USERS);
            all.members.extend(users.iter().map(|u| u.sid));
        }
        let mut aliases = Vec::new();
        for group in server.users.groups() {
            let group_sid = decoded(&group.sid);
            if parent(&group_sid) == Some(sid) {
                aliases.push(alias(&group_sid, group));
            } else if parent(&group_sid) == Some(BUILTIN) {
                merge(&mut builtin, alias(&group_sid, group));
            }
        }
        aliases.sort_by_key(|a| a.id);
        builtin.sort_by_key(|a| a.id);
        let name = server.config.name.to_uppercase();
        Directory { name, sid, users, aliases, builtin, by_name: OnceCell::new() }
    }

    /// The user with a relative identifier.
    pub(crate) fn user(&self, id: u32) -> Option<&Account> {
        self.users.binary_search_by_key(&id, |u| u.id).ok().map(|i| &self.users[i])
    }

    /// The principal that has the SID.
    pub(crate) fn by_sid(&self, sid: &Sid) -> Option<Principal<'_>> {
        let found = |usage, name| {
            let domain = if usage == SidNameUse::DOMAIN {
                Some(Domain { name: Cow::clone(&name), sid: *sid })
            } else {
                None
            };
            let domain = domain.or_else(|| self.domain_of(sid))?;
            Some(Principal { usage, sid: *sid, name, domain })
        };
        if let Some(known) = GROUPS.iter().find(|g| g.sid() == *sid) {
            return found(known.usage, known.name.into());
        }
        if let Some((name, _)) = self.domains().find(|(_, domain)| domain == sid) {
            return found(SidNameUse::DOMAIN, name);
        }
        let (domain, id) = (parent(sid)?, last(sid));
        if domain == BUILTIN || domain == self.sid {
            let (name, usage) = self.in_domain(domain == BUILTIN, id)?;
            return found(usage, name.into());
        }
        let usage = match domain {
            UNIX_USERS => SidNameUse::USER,
            UNIX_GROUPS => SidNameUse::ALIAS,
            _ => return None,
        };
        found(usage, id.to_string().into())
    }

    /// The principal that has the name: `DOMAIN\name`, or a name alone.
    pub(crate) fn by_name(&self, name: &str) -> Option<Principal<'_>> {
        let (domain, name) =
            name.split_once('\\').map_or((None, name), |(domain, name)| (Some(domain), name));
        let sid = self.sid_of(domain, name)?;
        self.by_sid(&sid)
    }

    fn sid_of(&self, domain: Option<&str>, name: &str) -> Option<Sid> {
        let in_domain = |n: &str| domain.is_none_or(|domain| same(domain, n));
        let known = GROUPS.iter().filter(|g| same(g.name, name)).map(well_known::Group::sid);
        let known = known.into_iter().find(|sid| self.domain_of(sid).is_some_and(|d| in_domain(&d.name)));
        let builtin = || {
            in_domain(BUILTIN_NAME)
                .then(|| self.id_in(true, name))
                .flatten()
                .map(|(id, _)| child(&BUILTIN, id))
        };
        let account = || {
            in_domain(&self.name)
                .then(|| self.id_in(false, name))
                .flatten()
                .map(|(id, _)| child(&self.sid, id))
        };
        let unix = || {
            let (_, of) = [(UNIX_USERS_NAME, UNIX_USERS), (UNIX_GROUPS_NAME, UNIX_GROUPS)]
                .into_iter()
                .find(|(n, _)| domain.is_some_and(|d| same(d, n)))?;
            name.parse().ok().map(|id| child(&of, id))
        };
        let of_domain = || {
            let mut domains = self.domains();
            // A domain itself: its name alone, or its name and a backslash with nothing behind it.
            let wanted = if name.is_empty() { domain? } else { name };
            (domain.is_none() || name.is_empty())
                .then(|| domains.find(|(n, _)| same(n, wanted)))?
                .map(|(_, sid)| sid)
        };
        known.or_else(builtin).or_else(account).or_else(unix).or_else(of_domain)
    }

    /// The domain with the name.
    pub(crate) fn domain_named(&self, name: &str) -> Option<Domain<'_>> {
        self.domains().find(|(n, _)| same(n, name)).map(|(name, sid)| Domain { name, sid })
    }

    /// The domain of a SID, even if no principal has the SID.
    pub(crate) fn domain_of(&self, sid: &Sid) -> Option<Domain<'_>> {
        let parent = parent(sid)?;
        let named = self.domains().find(|(_, domain)| *domain == parent).map(|(name, _)| name);
        let name = named.or_else(|| {
            let authority = AUTHORITIES.iter().find(|(a, sub, _)| is(&parent, *a, sub))?;
            Some(authority.2.into())
        })?;
        Some(Domain { name, sid: parent })
    }

    fn domains(&self) -> impl Iterator<Item = (Cow<'_, str>, Sid)> {
        let fixed = [(BUILTIN_NAME, BUILTIN), (UNIX_USERS_NAME, UNIX_USERS), (UNIX_GROUPS_NAME, UNIX_GROUPS)];
        let fixed = fixed.map(|(name, sid)| (Cow::Borrowed(name), sid));
        std::iter::once((Cow::Borrowed(self.name.as_str()), self.sid)).chain(fixed)
    }

    /// The name of a relative identifier in the machine's domain or in BUILTIN.
    pub(crate) fn in_domain(&self, builtin: bool, id: u32) -> Option<(&str, SidNameUse)> {
        if builtin {
            return self.builtin.iter().find(|a| a.id == id).map(|a| (&*a.name, SidNameUse::ALIAS));
        }
        if let Some(user) = self.user(id) {
            return Some((&user.name, SidNameUse::USER));
        }
        let alias = self.aliases.iter().find(|a| a.id == id).map(|a| (&*a.name, SidNameUse::ALIAS));
        alias.or_else(|| (id == PRIMARY_GROUP).then_some((PRIMARY_GROUP_NAME, SidNameUse::GROUP)))
    }

    /// The relative identifier of a name in the machine's domain or in BUILTIN.
    pub(crate) fn id_in(&self, builtin: bool, name: &str) -> Option<(u32, SidNameUse)> {
        if builtin {
            return self.builtin.iter().find(|a| same(&a.name, name)).map(|a| (a.id, SidNameUse::ALIAS));
        }
        let by_name = self.by_name.get_or_init(|| {
            let group = (fold(PRIMARY_GROUP_NAME), (PRIMARY_GROUP, SidNameUse::GROUP));
            let aliases = self.aliases.iter().map(|a| (fold(&a.name), (a.id, SidNameUse::ALIAS)));
            let users = self.users.iter().map(|u| (fold(&u.name), (u.id, SidNameUse::USER)));
            std::iter::once(group).chain(aliases).chain(users).collect()
        });
        by_name.get(&fold(name)).copied()
    }
}

/// `S-1-5-32`.
pub(crate) const BUILTIN: Sid = Sid::well_known(5, &[32]);
/// Its name.
pub(crate) const BUILTIN_NAME: &str = "BUILTIN";
const UNIX_USERS: Sid = Sid::well_known(22, &[1]);
const UNIX_USERS_NAME: &str = "Unix User";
const UNIX_GROUPS: Sid = Sid::well_known(22, &[2]);
const UNIX_GROUPS_NAME: &str = "Unix Group";

/// A SID without its last sub-authority.
fn parent(sid: &Sid) -> Option<Sid> {
    let (_, rest) = sid.sub_authorities().split_last()?;
    Sid::new(sid.authority(), rest)
}

/// The last sub-authority.
fn last(sid: &Sid) -> u32 {
    sid.sub_authorities().last().copied().unwrap_or_default()
}

/// A SID with one more sub-authority, which always fits for a domain.
pub(crate) fn child(domain: &Sid, id: u32) -> Sid {
    let sub: Vec<u32> = domain.sub_authorities().iter().copied().chain([id]).collect();
    Sid::new(domain.authority(), &sub).unwrap_or(*domain)
}

fn is(sid: &Sid, authority: u64, sub: &[u32]) -> bool {
    sid.authority() == authority && sid.sub_authorities() == sub
}

fn decoded(sid: &smb_auth::sid::Sid) -> Sid {
    Sid::decode(&sid.to_bytes()).expect("a SID of the user file is well-formed")
}

fn account(machine: &Sid, user: UserInfo) -> Option<Account> {
    let sid = decoded(&user.sid);
    let UserInfo { name, full_name, disabled, .. } = user;
    (parent(&sid) == Some(*machine)).then(|| Account { id: last(&sid), sid, name, full_name, disabled })
}

fn alias(sid: &Sid, group: GroupInfo) -> Alias {
    let members = group.members.iter().map(decoded).collect();
    Alias { id: last(sid), name: group.name.into(), comment: group.comment, members }
}

/// Adds a BUILTIN group's members and comment to the existing entry; the well-known name stays.
fn merge(builtin: &mut Vec<Alias>, alias: Alias) {
    match builtin.iter_mut().find(|a| a.id == alias.id) {
        Some(known) => {
            known.comment = alias.comment;
            let new: Vec<_> = alias.members.into_iter().filter(|m| !known.members.contains(m)).collect();
            known.members.extend(new);
        }
        None => builtin.push(alias),
    }
}

fn fold(name: &str) -> String {
    name.to_uppercase()
}

fn same(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(b) || !(a.is_ascii() && b.is_ascii()) && fold(a) == fold(b)
}

#[cfg(test)]
mod tests;
