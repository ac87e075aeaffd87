//! samr (MS-SAMR): the machine's accounts and the BUILTIN groups, read only, for every user with a session.

mod display;

use smb_wire::rpc::pdu::FaultStatus;
use smb_wire::rpc::samr::{
    self, ACCOUNT_DISABLED, DomainInformation, Entry, Listed, NORMAL_ACCOUNT, OpenAccount, Request,
    UserInformation,
};
use smb_wire::rpc::{ContextHandle, SidNameUse};
use smb_wire::security::Sid;
use smb_wire::{NtStatus, Utf16Le, WireError};

use super::Context;
use super::handles::{Handles, Object, need};
use super::lsarpc::mapped;
use crate::principals::{Account, Alias, BUILTIN, Directory, PRIMARY_GROUP, PRIMARY_GROUP_NAME};

/// Name of the BUILTIN domain here.
const BUILTIN_NAME: &str = "Builtin";
/// The most bytes of names in one answer of an enumeration.
const ENUMERATION_MAX: usize = 64 << 10;
/// UF_LOCKOUT and UF_PASSWORD_EXPIRED as account control, which filters ignore (MS-SAMR 3.1.5.2.5).
const IGNORED_CONTROL: u32 = 0x0000_0400 | 0x0002_0000;

/// Access rights (MS-SAMR 2.2.1.3 to 2.2.1.7).
const SERVER_ENUMERATE: u32 = 0x10;
const SERVER_LOOKUP: u32 = 0x20;
const DOMAIN_READ_PASSWORD: u32 = 0x1;
const DOMAIN_READ_OTHER: u32 = 0x4;
const DOMAIN_ALIAS_MEMBERSHIP: u32 = 0x80;
const DOMAIN_LIST: u32 = 0x100;
const DOMAIN_LOOKUP: u32 = 0x200;
const GROUP_READ_INFORMATION: u32 = 0x1;
const GROUP_LIST_MEMBERS: u32 = 0x10;
const ALIAS_LIST_MEMBERS: u32 = 0x4;
const ALIAS_READ: u32 = 0x8;
const USER_READ_GENERAL: u32 = 0x1;
const USER_LIST_GROUPS: u32 = 0x100;

/// Executes a call; returns the stub of its response.
pub(super) fn execute(mut c: Context<'_>) -> Result<Vec<u8>, FaultStatus> {
    let request = Request::decode(c.opnum, c.stub).map_err(|_| FaultStatus::BAD_STUB_DATA)?;
    let mut out = Vec::new();
    answer(&mut c, &request, &mut out)?.map_err(|_| FaultStatus::PROTOCOL_ERROR)?;
    Ok(out)
}

/// The object of a handle, and the access granted to it.
type HandleAccess = (Object, u32);

fn answer(
    c: &mut Context<'_>,
    request: &Request<'_>,
    out: &mut Vec<u8>,
) -> Result<Result<(), WireError>, FaultStatus> {
    let d = c.directory();
    Ok(match request {
        Request::Connect { desired_access } => put_opened(out, open(c, Ok(Object::Server), *desired_access)),
        Request::Connect5 { desired_access, version } => {
            let known = if *version == 1 { Ok(Object::Server) } else { Err(NtStatus::NOT_SUPPORTED) };
            let opened = open(c, known, *desired_access);
            let status = opened.err().unwrap_or(NtStatus::SUCCESS);
            samr::put_connect_5(out, opened.unwrap_or(ContextHandle::NULL), status);
            Ok(())
        }
        Request::Close(handle) => {
            c.handles.close(*handle)?;
            put_opened(out, Ok(ContextHandle::NULL))
        }
        Request::LookupDomain { server, name } => {
            let allowed = of_server(c.handles.get(*server)?, SERVER_LOOKUP);
            samr::put_domain_sid(out, allowed.and_then(|()| domain_named(d, name)).as_ref().map_err(|e| *e));
            Ok(())
        }
        Request::EnumerateDomains { server, resume } => {
            let allowed = of_server(c.handles.get(*server)?, SERVER_ENUMERATE);
            let all = [Entry { id: 0, name: &d.name }, Entry { id: 0, name: BUILTIN_NAME }];
            let rest = all.get(*resume as usize..).unwrap_or_default();
            samr::put_enumeration(out, all.len() as u32, allowed.map(|()| rest), NtStatus::SUCCESS)
        }
        Request::OpenDomain { server, desired_access, sid } => {
            let allowed = of_server(c.handles.get(*server)?, SERVER_LOOKUP);
            let object = allowed.and_then(|()| match *sid {
                BUILTIN => Ok(Object::Domain { builtin: true }),
                sid if sid == d.sid => Ok(Object::Domain { builtin: false }),
                _ => Err(NtStatus::NO_SUCH_DOMAIN),
            });
            put_opened(out, open(c, object, *desired_access))
        }
        Request::OpenUser(q) => {
            let object = opened_user(d, c.handles, q)?;
            put_opened(out, open(c, object, q.desired_access))
        }
        Request::OpenGroup(q) => {
            let builtin = of_domain(c.handles.get(q.domain)?, DOMAIN_LOOKUP);
            let known = builtin.map(|builtin| !builtin && q.id == PRIMARY_GROUP);
            let object =
                known.and_then(|known| if known { Ok(Object::Group) } else { Err(NtStatus::NO_SUCH_GROUP) });
            put_opened(out, open(c, object, q.desired_access))
        }
        Request::OpenAlias(q) => {
            let object = opened_alias(d, c.handles, q)?;
            put_opened(out, open(c, object, q.desired_access))
        }
        _ => return of_object(d, c.handles, request, out),
    })
}

/// Calls that concern one domain, user or local group.
fn of_object(
    d: &Directory,
    handles: &Handles,
    request: &Request<'_>,
    out: &mut Vec<u8>,
) -> Result<Result<(), WireError>, FaultStatus> {
    Ok(match request {
        Request::QueryDomain { domain, class } => {
            let needed = if *class == 1 { DOMAIN_READ_PASSWORD } else { DOMAIN_READ_OTHER };
            let information =
                of_domain(handles.get(*domain)?, needed).map(|builtin| domain_information(d, builtin));
            samr::put_domain(out, *class, information.as_ref().map_err(|e| *e))
        }
        Request::Enumerate { domain, listed, resume, preferred_maximum_length } => {
            let entries =
                of_domain(handles.get(*domain)?, DOMAIN_LIST).map(|builtin| entries(d, builtin, *listed));
            put_page(out, entries.as_deref().map_err(|e| *e), *resume, *preferred_maximum_length)
        }
        Request::AliasMembership { domain, sids } => {
            match of_domain(handles.get(*domain)?, DOMAIN_ALIAS_MEMBERSHIP) {
                Ok(builtin) => {
                    let ids =
                        aliases(d, builtin).iter().filter(|a| a.members.iter().any(|m| sids.contains(m)));
                    samr::put_membership(out, &ids.map(|a| a.id).collect::<Vec<_>>(), NtStatus::SUCCESS)
                }
                Err(status) => samr::put_membership(out, &[], status),
            }
        }
        Request::LookupNames { domain, names } => match of_domain(handles.get(*domain)?, DOMAIN_LOOKUP) {
            Ok(builtin) => {
                let (found, status) = ids_of(d, builtin, names);
                samr::put_ids(out, &found, status)
            }
            Err(status) => samr::put_ids(out, &[], status),
        },
        Request::LookupIds { domain, ids } => match of_domain(handles.get(*domain)?, DOMAIN_LOOKUP) {
            Ok(builtin) => {
                let unknown = ("", SidNameUse::UNKNOWN);
                let found: Vec<_> =
                    ids.iter().map(|id| d.in_domain(builtin, *id).unwrap_or(unknown)).collect();
                samr::put_names(out, &found, status_of(found.iter().map(|(_, usage)| *usage)))
            }
            Err(status) => samr::put_names(out, &[], status),
        },
        Request::QueryDisplay { domain, class, index, entry_count, preferred_maximum_length } => {
            let builtin = of_domain(handles.get(*domain)?, DOMAIN_LIST);
            display::put(d, out, builtin, *class, (*index, *entry_count, *preferred_maximum_length))
        }
        Request::QueryGroup { group, class } => {
            let group = of_group(handles.get(*group)?, GROUP_READ_INFORMATION);
            samr::put_group(out, *class, group.map(|()| (PRIMARY_GROUP_NAME, d.users.len() as u32)))
        }
        Request::MembersInGroup(group) => {
            let group = of_group(handles.get(*group)?, GROUP_LIST_MEMBERS);
            let members: Vec<_> = d.users.iter().map(|u| u.id).collect();
            samr::put_group_members(out, group.map(|()| &*members))
        }
        // MS-SAMR 3.1.5.13.3: what is needed is access to the domain, which every user has.
        Request::UserPasswordInformation(user) => {
            samr::put_password_information(
                out,
                of_user(d, handles.get(*user)?, 0).err().unwrap_or(NtStatus::SUCCESS),
            );
            Ok(())
        }
        Request::DomainPasswordInformation => {
            samr::put_password_information(out, NtStatus::SUCCESS);
            Ok(())
        }
        Request::QueryAlias { alias, class } => {
            let alias = of_alias(d, handles.get(*alias)?, ALIAS_READ);
            samr::put_alias(
                out,
                *class,
                alias.map(|a| (&*a.name, a.members.len() as u32, a.comment.as_str())),
            )
        }
        Request::MembersInAlias(alias) => match of_alias(d, handles.get(*alias)?, ALIAS_LIST_MEMBERS) {
            Ok(alias) => samr::put_members(out, &alias.members, NtStatus::SUCCESS),
            Err(status) => samr::put_members(out, &[], status),
        },
        Request::QueryUser { user, class } => {
            let user = of_user(d, handles.get(*user)?, USER_READ_GENERAL).map(user_information);
            samr::put_user(out, *class, user.as_ref().map_err(|e| *e))
        }
        Request::GroupsForUser(user) => {
            let user = of_user(d, handles.get(*user)?, USER_LIST_GROUPS);
            samr::put_groups(out, user.map(|_| &[PRIMARY_GROUP][..]))
        }
        _ => return Err(FaultStatus::OP_RANGE_ERROR),
    })
}

fn open(
    c: &mut Context<'_>,
    object: Result<Object, NtStatus>,
    desired: u32,
) -> Result<ContextHandle, NtStatus> {
    object.and_then(|object| c.handles.open(object, desired, c.caller))
}

fn put_opened(out: &mut Vec<u8>, opened: Result<ContextHandle, NtStatus>) -> Result<(), WireError> {
    let status = opened.err().unwrap_or(NtStatus::SUCCESS);
    smb_wire::rpc::lsarpc::put_handle(out, opened.unwrap_or(ContextHandle::NULL), status);
    Ok(())
}

/// Handles of another type are refused by every call (MS-SAMR 3.1.5).
fn of_server((object, access): HandleAccess, needed: u32) -> Result<(), NtStatus> {
    match object {
        Object::Server => need(access, needed),
        _ => Err(NtStatus::INVALID_HANDLE),
    }
}

/// Whether the domain is BUILTIN.
fn of_domain((object, access): HandleAccess, needed: u32) -> Result<bool, NtStatus> {
    match object {
        Object::Domain { builtin } => need(access, needed).map(|()| builtin),
        _ => Err(NtStatus::INVALID_HANDLE),
    }
}

fn of_group((object, access): HandleAccess, needed: u32) -> Result<(), NtStatus> {
    match object {
        Object::Group => need(access, needed),
        _ => Err(NtStatus::INVALID_HANDLE),
    }
}

fn of_user(d: &Directory, (object, access): HandleAccess, needed: u32) -> Result<&Account, NtStatus> {
    let Object::User { id } = object else { return Err(NtStatus::INVALID_HANDLE) };
    need(access, needed)?;
    d.user(id).ok_or(NtStatus::NO_SUCH_USER)
}

fn of_alias(d: &Directory, (object, access): HandleAccess, needed: u32) -> Result<&Alias, NtStatus> {
    let Object::Alias { builtin, id } = object else { return Err(NtStatus::INVALID_HANDLE) };
    need(access, needed)?;
    aliases(d, builtin).iter().find(|a| a.id == id).ok_or(NtStatus::NO_SUCH_ALIAS)
}

fn opened_user(
    d: &Directory,
    handles: &Handles,
    q: &OpenAccount,
) -> Result<Result<Object, NtStatus>, FaultStatus> {
    let builtin = of_domain(handles.get(q.domain)?, DOMAIN_LOOKUP);
    let user = builtin.map(|builtin| if builtin { None } else { d.user(q.id) });
    Ok(user.and_then(|user| user.map(|u| Object::User { id: u.id }).ok_or(NtStatus::NO_SUCH_USER)))
}

fn opened_alias(
    d: &Directory,
    handles: &Handles,
    q: &OpenAccount,
) -> Result<Result<Object, NtStatus>, FaultStatus> {
    let builtin = of_domain(handles.get(q.domain)?, DOMAIN_LOOKUP);
    Ok(builtin.and_then(|builtin| {
        let alias = aliases(d, builtin).iter().find(|a| a.id == q.id);
        alias.map(|a| Object::Alias { builtin, id: a.id }).ok_or(NtStatus::NO_SUCH_ALIAS)
    }))
}

fn aliases(d: &Directory, builtin: bool) -> &[Alias] {
    if builtin { &d.builtin } else { &d.aliases }
}

fn domain_named(d: &Directory, name: &Utf16Le<'_>) -> Result<Sid, NtStatus> {
    let name = name.to_string_lossy();
    if name.eq_ignore_ascii_case(BUILTIN_NAME) {
        Ok(BUILTIN)
    } else if name.to_uppercase() == d.name {
        Ok(d.sid)
    } else {
        Err(NtStatus::NO_SUCH_DOMAIN)
    }
}

fn domain_information(d: &Directory, builtin: bool) -> DomainInformation<'_> {
    let aliases = aliases(d, builtin).len() as u32;
    if builtin {
        return DomainInformation { name: BUILTIN_NAME, users: 0, groups: 0, aliases };
    }
    DomainInformation { name: &d.name, users: d.users.len() as u32, groups: 1, aliases }
}

fn account_control(user: &Account) -> u32 {
    NORMAL_ACCOUNT | if user.disabled { ACCOUNT_DISABLED } else { 0 }
}

fn user_information(user: &Account) -> UserInformation<'_> {
    UserInformation {
        name: &user.name,
        full_name: &user.full_name,
        id: user.id,
        primary_group: PRIMARY_GROUP,
        account_control: account_control(user),
    }
}

/// Accounts of a domain, by relative identifier.
fn entries(d: &Directory, builtin: bool, listed: Listed) -> Vec<Entry<'_>> {
    match listed {
        Listed::Aliases => aliases(d, builtin).iter().map(|a| Entry { id: a.id, name: &a.name }).collect(),
        _ if builtin => Vec::new(),
        Listed::Groups => vec![Entry { id: PRIMARY_GROUP, name: PRIMARY_GROUP_NAME }],
        Listed::Users { account_control: wanted } => {
            let wanted = wanted & !IGNORED_CONTROL;
            let users = d.users.iter().filter(|u| account_control(u) & wanted == wanted);
            users.map(|u| Entry { id: u.id, name: &u.name }).collect()
        }
    }
}

/// MS-SAMR 3.1.5.2.2: at least one entry, and as many as fit; the resume context is the last identifier returned.
fn put_page(
    out: &mut Vec<u8>,
    entries: Result<&[Entry<'_>], NtStatus>,
    resume: u32,
    preferred: u32,
) -> Result<(), WireError> {
    let Ok(entries) = entries else { return samr::put_enumeration(out, resume, entries, NtStatus::SUCCESS) };
    let rest = &entries[entries.partition_point(|e| e.id <= resume)..];
    let room = ENUMERATION_MAX.min(preferred as usize);
    let mut used = 0;
    let fit = rest.iter().take_while(|e| {
        let before = used;
        used += 28 + 2 * e.name.len();
        before < room
    });
    let page = &rest[..fit.count().max(1).min(rest.len())];
    let status = if page.len() < rest.len() { NtStatus::MORE_ENTRIES } else { NtStatus::SUCCESS };
    samr::put_enumeration(out, page.last().map_or(resume, |e| e.id), Ok(page), status)
}

fn ids_of(d: &Directory, builtin: bool, names: &[Utf16Le<'_>]) -> (Vec<(u32, SidNameUse)>, NtStatus) {
    let unknown = (0, SidNameUse::UNKNOWN);
    let found: Vec<_> =
        names.iter().map(|name| d.id_in(builtin, &name.to_string_lossy()).unwrap_or(unknown)).collect();
    let status = status_of(found.iter().map(|(_, usage)| *usage));
    (found, status)
}

fn status_of(found: impl ExactSizeIterator<Item = SidNameUse>) -> NtStatus {
    let count = found.len();
    mapped(found.filter(|usage| *usage != SidNameUse::UNKNOWN).count(), count)
}
