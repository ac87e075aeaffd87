//! lsarpc (MS-LSAT, MS-LSAD): names of SIDs, for every user with a session.

use smb_wire::rpc::lsarpc::{
    self, LOOKUP_WORKSTATION, PolicyInformation, ReferencedDomain, Request, TranslatedName, TranslatedSid,
};
use smb_wire::rpc::pdu::FaultStatus;
use smb_wire::rpc::{ContextHandle, SidNameUse};
use smb_wire::security::Sid;
use smb_wire::{NtStatus, Utf16Le, WireError};

use super::handles::{Handles, Object, need};
use super::{Context, WORKGROUP};
use crate::principals::{Directory, Domain};

/// Access rights of a policy (MS-LSAD 2.2.1.1.2).
const VIEW_LOCAL_INFORMATION: u32 = 0x1;
const LOOKUP_NAMES: u32 = 0x800;
/// PolicyServerRolePrimary (MS-LSAD 2.2.4.9): every machine that is no backup domain controller.
const ROLE_PRIMARY: u16 = 3;

/// Executes a call; returns the stub of its response.
pub(super) fn execute(c: Context<'_>) -> Result<Vec<u8>, FaultStatus> {
    let request = Request::decode(c.opnum, c.stub).map_err(|_| FaultStatus::BAD_STUB_DATA)?;
    let mut out = Vec::new();
    answer(c, &request, &mut out)?.map_err(|_| FaultStatus::PROTOCOL_ERROR)?;
    Ok(out)
}

type Answered = Result<Result<(), WireError>, FaultStatus>;

fn answer(c: Context<'_>, request: &Request<'_>, out: &mut Vec<u8>) -> Answered {
    Ok(match request {
        Request::OpenPolicy { desired_access } => {
            let opened = c.handles.open(Object::Policy, *desired_access, c.caller);
            let status = opened.err().unwrap_or(NtStatus::SUCCESS);
            lsarpc::put_handle(out, opened.unwrap_or(ContextHandle::NULL), status);
            Ok(())
        }
        Request::Close(handle) => {
            c.handles.close(*handle)?;
            lsarpc::put_handle(out, ContextHandle::NULL, NtStatus::SUCCESS);
            Ok(())
        }
        Request::QueryInformationPolicy { policy, class } => {
            let allowed = policy_with(c.handles, *policy, VIEW_LOCAL_INFORMATION)?;
            let information = allowed.and_then(|()| information(c.directory(), *class));
            lsarpc::put_policy_information(out, *class, information)
        }
        Request::EnumerateAccounts { policy, resume } => {
            let allowed = policy_with(c.handles, *policy, VIEW_LOCAL_INFORMATION)?;
            // MS-LSAD 3.1.1.3: accounts with rights of their own: to log on over the network, and to administer.
            let accounts = [Sid::EVERYONE, Sid::BUILTIN_ADMINISTRATORS];
            let rest = accounts.get(*resume as usize..).unwrap_or_default();
            match allowed {
                Ok(()) if rest.is_empty() => {
                    lsarpc::put_accounts(out, *resume, &[], NtStatus::NO_MORE_ENTRIES)
                }
                Ok(()) => lsarpc::put_accounts(out, accounts.len() as u32, rest, NtStatus::SUCCESS),
                Err(status) => lsarpc::put_accounts(out, *resume, &[], status),
            }
        }
        Request::LookupSids { policy, sids, level } => match lookup_allowed(c.handles, *policy, *level)? {
            Ok(()) => lookup_sids(c.directory(), c.opnum, sids, out),
            Err(status) => lsarpc::put_lookup_sids(out, c.opnum, &[], &[], status),
        },
        Request::LookupNames { policy, names, level } => match lookup_allowed(c.handles, *policy, *level)? {
            Ok(()) => lookup_names(c.directory(), c.opnum, names, out),
            Err(status) => lsarpc::put_lookup_names(out, c.opnum, &[], &[], status),
        },
        Request::GetUserName { with_domain } => {
            // MS-LSAT 3.1.4.4: the account as spelt in the directory.
            let directory = c.directory();
            let found = directory.by_sid(&c.caller.sid);
            let name = found.as_ref().map_or(c.caller.name.as_str(), |p| &p.name);
            let domain = found.as_ref().map_or(directory.name.as_str(), |p| &p.domain.name);
            lsarpc::put_user_name(out, name, with_domain.then_some(domain))
        }
        // MS-LSAT 3.1.4.5, 3.1.4.9: this server is no domain controller.
        Request::ControllerOnly if c.opnum == lsarpc::OP_LOOKUP_SIDS_3 => {
            lsarpc::put_lookup_sids(out, c.opnum, &[], &[], NtStatus::INVALID_SERVER_STATE)
        }
        Request::ControllerOnly => {
            lsarpc::put_lookup_names(out, lsarpc::OP_LOOKUP_NAMES_3, &[], &[], NtStatus::INVALID_SERVER_STATE)
        }
        Request::Unknown(_) => return Err(FaultStatus::OP_RANGE_ERROR),
    })
}

/// Whether `handle` is a policy that was opened with `access`.
fn policy_with(
    handles: &Handles,
    handle: ContextHandle,
    access: u32,
) -> Result<Result<(), NtStatus>, FaultStatus> {
    let (_, granted) = handles.get(handle)?;
    Ok(need(granted, access))
}

/// MS-LSAT 3.1.4.10: a machine that is no domain controller has one level.
fn lookup_allowed(
    handles: &Handles,
    handle: ContextHandle,
    level: u16,
) -> Result<Result<(), NtStatus>, FaultStatus> {
    let allowed = policy_with(handles, handle, LOOKUP_NAMES)?;
    Ok(allowed.and(if level == LOOKUP_WORKSTATION { Ok(()) } else { Err(NtStatus::INVALID_PARAMETER) }))
}

/// MS-LSAD 3.1.4.4.3; classes that concern auditing and domain controllers are refused.
fn information(directory: &Directory, class: u16) -> Result<PolicyInformation<'_>, NtStatus> {
    match class {
        3 => Ok(PolicyInformation::Domain { name: WORKGROUP, sid: None }),
        5 | 14 => Ok(PolicyInformation::Domain { name: &directory.name, sid: Some(directory.sid) }),
        6 => Ok(PolicyInformation::ServerRole(ROLE_PRIMARY)),
        12 | 13 => Ok(PolicyInformation::DnsDomain { name: WORKGROUP }),
        _ => Err(NtStatus::INVALID_PARAMETER),
    }
}

/// The domains that an answer refers to, each once.
#[derive(Default)]
struct Domains<'d>(Vec<Domain<'d>>);

impl<'d> Domains<'d> {
    fn index(&mut self, domain: Domain<'d>) -> u32 {
        let known = self.0.iter().position(|d| *d == domain);
        known.unwrap_or_else(|| {
            self.0.push(domain);
            self.0.len() - 1
        }) as u32
    }

    fn list(&self) -> Vec<ReferencedDomain<'_>> {
        self.0.iter().map(|d| ReferencedDomain { name: &d.name, sid: d.sid }).collect()
    }
}

/// MS-LSAT 3.1.4.5, 3.1.4.9: the status of a translation that found `found` of `count` names or SIDs.
pub(super) fn mapped(found: usize, count: usize) -> NtStatus {
    match found {
        n if n == count => NtStatus::SUCCESS,
        0 => NtStatus::NONE_MAPPED,
        _ => NtStatus::SOME_NOT_MAPPED,
    }
}

fn lookup_sids(directory: &Directory, opnum: u16, sids: &[Sid], out: &mut Vec<u8>) -> Result<(), WireError> {
    let mut domains = Domains::default();
    let mut found = 0;
    let translated: Vec<_> = sids
        .iter()
        .map(|sid| match directory.by_sid(sid) {
            Some(p) => {
                found += 1;
                (p.usage, p.name, Some(domains.index(p.domain)))
            }
            // MS-LSAT 3.1.4.9: the relative identifier in hexadecimal where the domain is known, else the SID.
            None => match directory.domain_of(sid) {
                Some(domain) => {
                    let id = sid.sub_authorities().last().copied().unwrap_or_default();
                    (SidNameUse::UNKNOWN, format!("{id:08x}").into(), Some(domains.index(domain)))
                }
                None => (SidNameUse::UNKNOWN, sid.to_string().into(), None),
            },
        })
        .collect();
    let names: Vec<_> = translated
        .iter()
        .map(|(usage, name, domain)| TranslatedName { usage: *usage, name, domain: *domain })
        .collect();
    lsarpc::put_lookup_sids(out, opnum, &domains.list(), &names, mapped(found, sids.len()))
}

fn lookup_names(
    directory: &Directory,
    opnum: u16,
    names: &[Utf16Le<'_>],
    out: &mut Vec<u8>,
) -> Result<(), WireError> {
    let mut domains = Domains::default();
    let mut found = 0;
    let sids: Vec<_> = names
        .iter()
        .map(|name| {
            let name = name.to_string_lossy();
            if let Some(p) = directory.by_name(&name) {
                found += 1;
                return TranslatedSid {
                    usage: p.usage,
                    sid: Some(p.sid),
                    domain: Some(domains.index(p.domain)),
                };
            }
            // MS-LSAT 3.1.4.5: for an unknown name in a known domain, the domain is returned.
            let domain = name.split_once('\\').and_then(|(domain, _)| directory.domain_named(domain));
            let domain = domain.map(|d| domains.index(d));
            TranslatedSid { usage: SidNameUse::UNKNOWN, sid: None, domain }
        })
        .collect();
    lsarpc::put_lookup_names(out, opnum, &domains.list(), &sids, mapped(found, names.len()))
}
