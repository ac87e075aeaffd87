//! samr (MS-SAMR): accounts of the machine and of its BUILTIN domain, read only.

mod answers;
mod display;

pub use answers::*;
pub use display::*;

use super::ContextHandle;
use super::lsarpc::sid_pointers;
use super::ndr::NdrReader;
use crate::security::Sid;
use crate::{Utf16Le, WireError};

/// SamrConnect (MS-SAMR 3.1.5.1.4).
pub const OP_CONNECT: u16 = 0;
/// SamrCloseHandle (MS-SAMR 3.1.5.13.1).
pub const OP_CLOSE_HANDLE: u16 = 1;
/// SamrLookupDomainInSamServer (MS-SAMR 3.1.5.11.1).
pub const OP_LOOKUP_DOMAIN: u16 = 5;
/// SamrEnumerateDomainsInSamServer (MS-SAMR 3.1.5.2.1).
pub const OP_ENUMERATE_DOMAINS: u16 = 6;
/// SamrOpenDomain (MS-SAMR 3.1.5.1.5).
pub const OP_OPEN_DOMAIN: u16 = 7;
/// SamrQueryInformationDomain (MS-SAMR 3.1.5.5.2).
pub const OP_QUERY_INFORMATION_DOMAIN: u16 = 8;
/// SamrEnumerateGroupsInDomain (MS-SAMR 3.1.5.2.3).
pub const OP_ENUMERATE_GROUPS: u16 = 11;
/// SamrEnumerateUsersInDomain (MS-SAMR 3.1.5.2.5).
pub const OP_ENUMERATE_USERS: u16 = 13;
/// SamrEnumerateAliasesInDomain (MS-SAMR 3.1.5.2.4).
pub const OP_ENUMERATE_ALIASES: u16 = 15;
/// SamrGetAliasMembership (MS-SAMR 3.1.5.9.2).
pub const OP_GET_ALIAS_MEMBERSHIP: u16 = 16;
/// SamrLookupNamesInDomain (MS-SAMR 3.1.5.11.2).
pub const OP_LOOKUP_NAMES: u16 = 17;
/// SamrLookupIdsInDomain (MS-SAMR 3.1.5.11.3).
pub const OP_LOOKUP_IDS: u16 = 18;
/// SamrOpenGroup (MS-SAMR 3.1.5.1.7).
pub const OP_OPEN_GROUP: u16 = 19;
/// SamrQueryInformationGroup (MS-SAMR 3.1.5.5.3).
pub const OP_QUERY_INFORMATION_GROUP: u16 = 20;
/// SamrGetMembersInGroup (MS-SAMR 3.1.5.8.3).
pub const OP_GET_MEMBERS_IN_GROUP: u16 = 25;
/// SamrOpenAlias (MS-SAMR 3.1.5.1.8).
pub const OP_OPEN_ALIAS: u16 = 27;
/// SamrQueryInformationAlias (MS-SAMR 3.1.5.5.4).
pub const OP_QUERY_INFORMATION_ALIAS: u16 = 28;
/// SamrGetMembersInAlias (MS-SAMR 3.1.5.8.6).
pub const OP_GET_MEMBERS_IN_ALIAS: u16 = 33;
/// SamrOpenUser (MS-SAMR 3.1.5.1.9).
pub const OP_OPEN_USER: u16 = 34;
/// SamrQueryInformationUser (MS-SAMR 3.1.5.5.6).
pub const OP_QUERY_INFORMATION_USER: u16 = 36;
/// SamrGetGroupsForUser (MS-SAMR 3.1.5.9.1).
pub const OP_GET_GROUPS_FOR_USER: u16 = 39;
/// SamrQueryDisplayInformation (MS-SAMR 3.1.5.3.3).
pub const OP_QUERY_DISPLAY_INFORMATION: u16 = 40;
/// SamrGetUserDomainPasswordInformation (MS-SAMR 3.1.5.13.3).
pub const OP_GET_USER_DOMAIN_PASSWORD_INFORMATION: u16 = 44;
/// SamrQueryInformationDomain2 (MS-SAMR 3.1.5.5.1).
pub const OP_QUERY_INFORMATION_DOMAIN_2: u16 = 46;
/// SamrQueryInformationUser2 (MS-SAMR 3.1.5.5.5).
pub const OP_QUERY_INFORMATION_USER_2: u16 = 47;
/// SamrQueryDisplayInformation2 (MS-SAMR 3.1.5.3.2).
pub const OP_QUERY_DISPLAY_INFORMATION_2: u16 = 48;
/// SamrQueryDisplayInformation3 (MS-SAMR 3.1.5.3.1).
pub const OP_QUERY_DISPLAY_INFORMATION_3: u16 = 51;
/// SamrGetDomainPasswordInformation (MS-SAMR 3.1.5.13.4).
pub const OP_GET_DOMAIN_PASSWORD_INFORMATION: u16 = 56;
/// SamrConnect2 (MS-SAMR 3.1.5.1.3).
pub const OP_CONNECT_2: u16 = 57;
/// SamrConnect4 (MS-SAMR 3.1.5.1.2).
pub const OP_CONNECT_4: u16 = 62;
/// SamrConnect5 (MS-SAMR 3.1.5.1.1).
pub const OP_CONNECT_5: u16 = 64;

/// Maximum number of names or relative identifiers in one lookup (MS-SAMR 3.1.5.11.2).
pub const MAX_LOOKUP: usize = 1000;
/// Maximum number of SIDs in one call (MS-SAMR 2.2.7.5).
pub const MAX_SIDS: usize = 1024;

/// The kind of account that an enumeration lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed {
    /// Groups of the domain.
    Groups,
    /// Users with all of these bits in their account control.
    Users {
        /// USER_ACCOUNT codes (MS-SAMR 2.2.1.12).
        account_control: u32,
    },
    /// Local groups.
    Aliases,
}

/// A decoded request. Server names are dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request<'a> {
    /// SamrConnect, 2, 4.
    Connect {
        /// Requested access.
        desired_access: u32,
    },
    /// SamrConnect5.
    Connect5 {
        /// Requested access.
        desired_access: u32,
        /// Version of the revision information from the client: 1.
        version: u32,
    },
    /// SamrCloseHandle.
    Close(ContextHandle),
    /// SamrLookupDomainInSamServer.
    LookupDomain {
        /// The server.
        server: ContextHandle,
        /// The domain's name.
        name: Utf16Le<'a>,
    },
    /// SamrEnumerateDomainsInSamServer.
    EnumerateDomains {
        /// The server.
        server: ContextHandle,
        /// Number of domains to skip.
        resume: u32,
    },
    /// SamrOpenDomain.
    OpenDomain {
        /// The server.
        server: ContextHandle,
        /// Requested access.
        desired_access: u32,
        /// The domain.
        sid: Sid,
    },
    /// SamrQueryInformationDomain, 2.
    QueryDomain {
        /// The domain.
        domain: ContextHandle,
        /// DOMAIN_INFORMATION_CLASS.
        class: u16,
    },
    /// SamrEnumerateGroupsInDomain, …UsersInDomain, …AliasesInDomain.
    Enumerate {
        /// The domain.
        domain: ContextHandle,
        /// The kind of account to list.
        listed: Listed,
        /// The enumeration context: 0, or the value in the previous response.
        resume: u32,
        /// Approximate size of the response in bytes.
        preferred_maximum_length: u32,
    },
    /// SamrGetAliasMembership.
    AliasMembership {
        /// The domain.
        domain: ContextHandle,
        /// Members whose local groups are requested.
        sids: Vec<Sid>,
    },
    /// SamrLookupNamesInDomain.
    LookupNames {
        /// The domain.
        domain: ContextHandle,
        /// The names.
        names: Vec<Utf16Le<'a>>,
    },
    /// SamrLookupIdsInDomain.
    LookupIds {
        /// The domain.
        domain: ContextHandle,
        /// Relative identifiers.
        ids: Vec<u32>,
    },
    /// SamrOpenGroup.
    OpenGroup(OpenAccount),
    /// SamrQueryInformationGroup.
    QueryGroup {
        /// The group.
        group: ContextHandle,
        /// GROUP_INFORMATION_CLASS.
        class: u16,
    },
    /// SamrGetMembersInGroup.
    MembersInGroup(ContextHandle),
    /// SamrQueryDisplayInformation, 2, 3.
    QueryDisplay {
        /// The domain.
        domain: ContextHandle,
        /// DOMAIN_DISPLAY_INFORMATION.
        class: u16,
        /// The enumeration context: 0, or the Index of the last account in the previous response.
        index: u32,
        /// Maximum number of accounts in the response.
        entry_count: u32,
        /// Approximate size of the response in bytes.
        preferred_maximum_length: u32,
    },
    /// SamrGetUserDomainPasswordInformation.
    UserPasswordInformation(ContextHandle),
    /// SamrGetDomainPasswordInformation.
    DomainPasswordInformation,
    /// SamrOpenAlias.
    OpenAlias(OpenAccount),
    /// SamrOpenUser.
    OpenUser(OpenAccount),
    /// SamrQueryInformationAlias.
    QueryAlias {
        /// The local group.
        alias: ContextHandle,
        /// ALIAS_INFORMATION_CLASS.
        class: u16,
    },
    /// SamrGetMembersInAlias.
    MembersInAlias(ContextHandle),
    /// SamrQueryInformationUser, 2.
    QueryUser {
        /// The user.
        user: ContextHandle,
        /// USER_INFORMATION_CLASS.
        class: u16,
    },
    /// SamrGetGroupsForUser.
    GroupsForUser(ContextHandle),
    /// An unimplemented operation; the server responds with a fault.
    Unknown(u16),
}

/// The request of SamrOpenUser, SamrOpenGroup and SamrOpenAlias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenAccount {
    /// The domain.
    pub domain: ContextHandle,
    /// Requested access.
    pub desired_access: u32,
    /// Relative identifier.
    pub id: u32,
}

impl<'a> Request<'a> {
    /// Decodes a stub.
    ///
    /// # Errors
    /// Malformed input from the peer: answered with [`super::pdu::FaultStatus::BAD_STUB_DATA`].
    pub fn decode(opnum: u16, stub: &'a [u8]) -> Result<Self, WireError> {
        let mut r = NdrReader::new(stub);
        Ok(match opnum {
            OP_CONNECT | OP_CONNECT_2 | OP_CONNECT_4 | OP_CONNECT_5 => connect(&mut r, opnum)?,
            OP_CLOSE_HANDLE => Self::Close(r.handle()?),
            OP_LOOKUP_DOMAIN => Self::LookupDomain { server: r.handle()?, name: r.unicode_string()? },
            OP_ENUMERATE_DOMAINS => Self::EnumerateDomains { server: r.handle()?, resume: r.u32()? },
            OP_OPEN_DOMAIN => {
                Self::OpenDomain { server: r.handle()?, desired_access: r.u32()?, sid: r.sid()? }
            }
            OP_QUERY_INFORMATION_DOMAIN | OP_QUERY_INFORMATION_DOMAIN_2 => {
                Self::QueryDomain { domain: r.handle()?, class: r.u16()? }
            }
            OP_ENUMERATE_GROUPS | OP_ENUMERATE_USERS | OP_ENUMERATE_ALIASES => {
                let (domain, resume) = (r.handle()?, r.u32()?);
                let listed = match opnum {
                    OP_ENUMERATE_GROUPS => Listed::Groups,
                    OP_ENUMERATE_USERS => Listed::Users { account_control: r.u32()? },
                    _ => Listed::Aliases,
                };
                Self::Enumerate { domain, listed, resume, preferred_maximum_length: r.u32()? }
            }
            OP_GET_ALIAS_MEMBERSHIP => {
                let domain = r.handle()?;
                let count = r.count("SAM SIDs", MAX_SIDS)?;
                let sids = match (r.pointer()?, count) {
                    (true, _) => sid_pointers(&mut r, count)?,
                    (false, 0) => Vec::new(),
                    (false, _) => return Err(WireError::malformed("SAM SIDs")),
                };
                Self::AliasMembership { domain, sids }
            }
            OP_LOOKUP_NAMES => {
                let domain = r.handle()?;
                let count = lookup_count(&mut r)?;
                Self::LookupNames { domain, names: r.unicode_strings(count)? }
            }
            OP_LOOKUP_IDS => {
                let domain = r.handle()?;
                let count = lookup_count(&mut r)?;
                Self::LookupIds { domain, ids: (0..count).map(|_| r.u32()).collect::<Result<_, _>>()? }
            }
            OP_OPEN_GROUP => Self::OpenGroup(open_account(&mut r)?),
            OP_QUERY_INFORMATION_GROUP => Self::QueryGroup { group: r.handle()?, class: r.u16()? },
            OP_GET_MEMBERS_IN_GROUP => Self::MembersInGroup(r.handle()?),
            OP_QUERY_DISPLAY_INFORMATION
            | OP_QUERY_DISPLAY_INFORMATION_2
            | OP_QUERY_DISPLAY_INFORMATION_3 => Self::QueryDisplay {
                domain: r.handle()?,
                class: r.u16()?,
                index: r.u32()?,
                entry_count: r.u32()?,
                preferred_maximum_length: r.u32()?,
            },
            OP_GET_USER_DOMAIN_PASSWORD_INFORMATION => Self::UserPasswordInformation(r.handle()?),
            // Its only field is ignored (MS-SAMR 3.1.5.13.4).
            OP_GET_DOMAIN_PASSWORD_INFORMATION => Self::DomainPasswordInformation,
            OP_OPEN_ALIAS => Self::OpenAlias(open_account(&mut r)?),
            OP_OPEN_USER => Self::OpenUser(open_account(&mut r)?),
            OP_QUERY_INFORMATION_ALIAS => Self::QueryAlias { alias: r.handle()?, class: r.u16()? },
            OP_GET_MEMBERS_IN_ALIAS => Self::MembersInAlias(r.handle()?),
            OP_QUERY_INFORMATION_USER | OP_QUERY_INFORMATION_USER_2 => {
                Self::QueryUser { user: r.handle()?, class: r.u16()? }
            }
            OP_GET_GROUPS_FOR_USER => Self::GroupsForUser(r.handle()?),
            _ => Self::Unknown(opnum),
        })
    }
}

fn connect<'a>(r: &mut NdrReader<'a>, opnum: u16) -> Result<Request<'a>, WireError> {
    if opnum != OP_CONNECT {
        r.unique_string()?;
    } else if r.pointer()? {
        r.u16()?; // one character, for lack of [string]
    }
    if opnum == OP_CONNECT_4 {
        r.u32()?; // the client's revision
    }
    let desired_access = r.u32()?;
    if opnum == OP_CONNECT_5 {
        return Ok(Request::Connect5 { desired_access, version: r.u32()? });
    }
    Ok(Request::Connect { desired_access })
}

fn open_account(r: &mut NdrReader<'_>) -> Result<OpenAccount, WireError> {
    Ok(OpenAccount { domain: r.handle()?, desired_access: r.u32()?, id: r.u32()? })
}

/// Reads `Count`, and the head of the conformant varying array of that length.
fn lookup_count(r: &mut NdrReader<'_>) -> Result<usize, WireError> {
    let count = r.count("SAM lookup", MAX_LOOKUP)?;
    let (max, offset, len) = (r.u32()? as usize, r.u32()?, r.u32()? as usize);
    if offset != 0 || len != count || len > max {
        return Err(WireError::malformed("SAM lookup count"));
    }
    Ok(count)
}
