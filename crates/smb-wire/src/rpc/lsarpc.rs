//! lsarpc (MS-LSAT, MS-LSAD): opening the policy, translating between SIDs and names, the machine's domains, the
//! caller's name.

use super::ndr::{NdrReader, NdrWriter};
use super::{ContextHandle, SidNameUse};
use crate::cursor::fit_u32;
use crate::security::Sid;
use crate::{Guid, NtStatus, Utf16Le, WireError};

/// LsarClose (MS-LSAD 3.1.4.9.4).
pub const OP_CLOSE: u16 = 0;
/// LsarOpenPolicy (MS-LSAD 3.1.4.4.2).
pub const OP_OPEN_POLICY: u16 = 6;
/// LsarQueryInformationPolicy (MS-LSAD 3.1.4.4.4).
pub const OP_QUERY_INFORMATION_POLICY: u16 = 7;
/// LsarEnumerateAccounts (MS-LSAD 3.1.4.5.2).
pub const OP_ENUMERATE_ACCOUNTS: u16 = 11;
/// LsarLookupNames (MS-LSAT 3.1.4.8).
pub const OP_LOOKUP_NAMES: u16 = 14;
/// LsarLookupSids (MS-LSAT 3.1.4.11).
pub const OP_LOOKUP_SIDS: u16 = 15;
/// LsarOpenPolicy2 (MS-LSAD 3.1.4.4.1).
pub const OP_OPEN_POLICY_2: u16 = 44;
/// LsarGetUserName (MS-LSAT 3.1.4.4).
pub const OP_GET_USER_NAME: u16 = 45;
/// LsarQueryInformationPolicy2 (MS-LSAD 3.1.4.4.3).
pub const OP_QUERY_INFORMATION_POLICY_2: u16 = 46;
/// LsarLookupSids2 (MS-LSAT 3.1.4.10).
pub const OP_LOOKUP_SIDS_2: u16 = 57;
/// LsarLookupNames2 (MS-LSAT 3.1.4.7).
pub const OP_LOOKUP_NAMES_2: u16 = 58;
/// LsarLookupNames3 (MS-LSAT 3.1.4.6).
pub const OP_LOOKUP_NAMES_3: u16 = 68;
/// LsarLookupSids3 (MS-LSAT 3.1.4.9): only on domain controllers.
pub const OP_LOOKUP_SIDS_3: u16 = 76;
/// LsarLookupNames4 (MS-LSAT 3.1.4.5): only on domain controllers.
pub const OP_LOOKUP_NAMES_4: u16 = 77;

/// Maximum number of SIDs in one call (MS-LSAT 2.2.18).
pub const MAX_SIDS: usize = 20_480;
/// Maximum number of names in one call (MS-LSAT 3.1.4.5).
pub const MAX_NAMES: usize = 1000;

/// LsapLookupWksta (MS-LSAT 2.2.16): look up in all sources of this machine.
pub const LOOKUP_WORKSTATION: u16 = 1;

/// A decoded request. Server names and fields that are ignored on input are dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request<'a> {
    /// LsarClose.
    Close(ContextHandle),
    /// LsarOpenPolicy, LsarOpenPolicy2.
    OpenPolicy {
        /// Requested access.
        desired_access: u32,
    },
    /// LsarQueryInformationPolicy, LsarQueryInformationPolicy2.
    QueryInformationPolicy {
        /// The policy.
        policy: ContextHandle,
        /// POLICY_INFORMATION_CLASS (MS-LSAD 2.2.4.1).
        class: u16,
    },
    /// LsarEnumerateAccounts.
    EnumerateAccounts {
        /// The policy.
        policy: ContextHandle,
        /// Number of accounts to skip.
        resume: u32,
    },
    /// LsarLookupNames, 2 and 3.
    LookupNames {
        /// The policy.
        policy: ContextHandle,
        /// The names.
        names: Vec<Utf16Le<'a>>,
        /// LSAP_LOOKUP_LEVEL.
        level: u16,
    },
    /// LsarLookupSids, 2.
    LookupSids {
        /// The policy.
        policy: ContextHandle,
        /// The SIDs.
        sids: Vec<Sid>,
        /// LSAP_LOOKUP_LEVEL.
        level: u16,
    },
    /// LsarGetUserName.
    GetUserName {
        /// Whether the domain's name is requested too.
        with_domain: bool,
    },
    /// A call that only a domain controller executes.
    ControllerOnly,
    /// An unimplemented operation; the server responds with a fault.
    Unknown(u16),
}

impl<'a> Request<'a> {
    /// Decodes a stub.
    ///
    /// # Errors
    /// Malformed input from the peer: answered with [`super::pdu::FaultStatus::BAD_STUB_DATA`].
    pub fn decode(opnum: u16, stub: &'a [u8]) -> Result<Self, WireError> {
        let mut r = NdrReader::new(stub);
        Ok(match opnum {
            OP_CLOSE => Self::Close(r.handle()?),
            OP_OPEN_POLICY | OP_OPEN_POLICY_2 => {
                if opnum == OP_OPEN_POLICY_2 {
                    r.unique_string()?;
                } else if r.pointer()? {
                    r.u16()?; // one character, for lack of [string]
                }
                skip_object_attributes(&mut r)?;
                Self::OpenPolicy { desired_access: r.u32()? }
            }
            OP_QUERY_INFORMATION_POLICY | OP_QUERY_INFORMATION_POLICY_2 => {
                Self::QueryInformationPolicy { policy: r.handle()?, class: r.u16()? }
            }
            OP_ENUMERATE_ACCOUNTS => Self::EnumerateAccounts { policy: r.handle()?, resume: r.u32()? },
            OP_LOOKUP_NAMES | OP_LOOKUP_NAMES_2 | OP_LOOKUP_NAMES_3 => {
                let policy = r.handle()?;
                let count = r.count("LSA names", MAX_NAMES)?;
                if r.u32()? as usize != count {
                    return Err(WireError::malformed("LSA names count"));
                }
                let names = r.unicode_strings(count)?;
                skip_translated_sids(&mut r, opnum)?;
                Self::LookupNames { policy, names, level: r.u16()? }
            }
            OP_LOOKUP_SIDS | OP_LOOKUP_SIDS_2 => {
                let policy = r.handle()?;
                let sids = sid_enum_buffer(&mut r)?;
                skip_translated_names(&mut r, opnum == OP_LOOKUP_SIDS_2)?;
                Self::LookupSids { policy, sids, level: r.u16()? }
            }
            OP_GET_USER_NAME => {
                r.unique_string()?;
                if r.pointer()? {
                    r.unicode_string()?;
                }
                Self::GetUserName { with_domain: r.pointer()? }
            }
            OP_LOOKUP_SIDS_3 | OP_LOOKUP_NAMES_4 => Self::ControllerOnly,
            _ => Self::Unknown(opnum),
        })
    }
}

/// LSAPR_OBJECT_ATTRIBUTES (MS-LSAT 2.2.9): ignored, except that root directory, name and descriptor must be null.
fn skip_object_attributes(r: &mut NdrReader<'_>) -> Result<(), WireError> {
    r.u32()?; // length
    let (root, name) = (r.pointer()?, r.pointer()?);
    r.u32()?; // attributes
    let (descriptor, quality) = (r.pointer()?, r.pointer()?);
    if root || name || descriptor {
        return Err(WireError::malformed("LSAPR_OBJECT_ATTRIBUTES"));
    }
    if quality {
        r.u32()?; // length
        r.u16()?; // impersonation level
        r.u8()?; // context tracking
        r.u8()?; // effective only
    }
    Ok(())
}

/// LSAPR_SID_ENUM_BUFFER (MS-LSAT 2.2.18).
fn sid_enum_buffer(r: &mut NdrReader<'_>) -> Result<Vec<Sid>, WireError> {
    let count = r.count("LSA SIDs", MAX_SIDS)?;
    if !r.pointer()? {
        return if count == 0 { Ok(Vec::new()) } else { Err(WireError::malformed("LSA SIDs")) };
    }
    sid_pointers(r, count)
}

/// The conformant array of such a buffer: the repeated count, non-null pointers, the SIDs.
pub(super) fn sid_pointers(r: &mut NdrReader<'_>, count: usize) -> Result<Vec<Sid>, WireError> {
    if r.u32()? as usize != count {
        return Err(WireError::malformed("SID count"));
    }
    for _ in 0..count {
        if !r.pointer()? {
            return Err(WireError::malformed("null SID"));
        }
    }
    (0..count).map(|_| r.sid()).collect()
}

/// LSAPR_TRANSLATED_NAMES and _EX in a request (MS-LSAT 2.2.20, 2.2.22): ignored.
fn skip_translated_names(r: &mut NdrReader<'_>, extended: bool) -> Result<(), WireError> {
    r.u32()?;
    if !r.pointer()? {
        return Ok(());
    }
    let count = r.count("LSA translated names", MAX_SIDS)?;
    let mut headers = Vec::new();
    for _ in 0..count {
        r.u16()?;
        headers.push(r.string_header()?);
        r.u32()?;
        if extended {
            r.u32()?;
        }
    }
    headers.into_iter().try_for_each(|header| r.string_buffer(header).map(|_| ()))
}

/// LSAPR_TRANSLATED_SIDS, _EX and _EX2 in a request (MS-LSAT 2.2.15, 2.2.24, 2.2.26): ignored.
fn skip_translated_sids(r: &mut NdrReader<'_>, opnum: u16) -> Result<(), WireError> {
    r.u32()?;
    if !r.pointer()? {
        return Ok(());
    }
    let count = r.count("LSA translated SIDs", MAX_NAMES)?;
    let mut sids = 0;
    for _ in 0..count {
        r.u16()?;
        let second = r.u32()?; // a relative identifier, or a pointer
        r.u32()?;
        if opnum != OP_LOOKUP_NAMES {
            r.u32()?;
        }
        sids += usize::from(opnum == OP_LOOKUP_NAMES_3 && second != 0);
    }
    (0..sids).try_for_each(|_| r.sid().map(|_| ()))
}

/// Appends a response stub that consists of a handle and a status: of open calls and close.
pub fn put_handle(out: &mut Vec<u8>, handle: ContextHandle, status: NtStatus) {
    let mut w = NdrWriter::new(out);
    w.handle(handle);
    w.u32(status.0);
}

/// The information that LsarQueryInformationPolicy returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyInformation<'a> {
    /// PolicyPrimaryDomainInformation (3), PolicyAccountDomainInformation (5), PolicyLocalAccountDomainInformation (14).
    Domain {
        /// NetBIOS name.
        name: &'a str,
        /// The SID; `None` for a workgroup.
        sid: Option<Sid>,
    },
    /// PolicyLsaServerRoleInformation (6).
    ServerRole(u16),
    /// PolicyDnsDomainInformation (12, 13) of a machine outside a domain.
    DnsDomain {
        /// The workgroup.
        name: &'a str,
    },
}

/// Appends the response stub of LsarQueryInformationPolicy: the information of `class`, or the error.
///
/// # Errors
/// `Unencodable`.
pub fn put_policy_information(
    out: &mut Vec<u8>,
    class: u16,
    information: Result<PolicyInformation<'_>, NtStatus>,
) -> Result<(), WireError> {
    let mut w = NdrWriter::new(out);
    w.pointer(information.is_ok());
    if let Ok(information) = information {
        w.u16(class);
        match information {
            PolicyInformation::Domain { name, sid } => {
                w.string_header(name)?;
                w.pointer(sid.is_some());
                w.string_buffer(name)?;
                if let Some(sid) = sid {
                    w.sid(&sid);
                }
            }
            // Aligned as the largest arm of the union (C706 14.3.8).
            PolicyInformation::ServerRole(role) => w.u16_at_4(role),
            PolicyInformation::DnsDomain { name } => {
                w.string_header(name)?;
                w.string_header("")?; // DNS name of the domain, and of the forest
                w.string_header("")?;
                w.guid(Guid([0; 16]));
                w.pointer(false);
                w.string_buffer(name)?;
            }
        }
    }
    w.u32(information.err().unwrap_or(NtStatus::SUCCESS).0);
    Ok(())
}

/// Appends the response stub of LsarEnumerateAccounts.
///
/// # Errors
/// `Unencodable`.
pub fn put_accounts(out: &mut Vec<u8>, resume: u32, sids: &[Sid], status: NtStatus) -> Result<(), WireError> {
    let mut w = NdrWriter::new(out);
    w.u32(resume);
    w.sid_array(sids)?;
    w.u32(status.0);
    Ok(())
}

/// A domain that responses refer to by its index (MS-LSAT 2.2.12).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReferencedDomain<'a> {
    /// NetBIOS name.
    pub name: &'a str,
    /// SID.
    pub sid: Sid,
}

/// The name of a SID (MS-LSAT 2.2.21).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TranslatedName<'a> {
    /// The kind of name.
    pub usage: SidNameUse,
    /// The name.
    pub name: &'a str,
    /// Index of its domain; `None` if unknown.
    pub domain: Option<u32>,
}

/// The SID of a name (MS-LSAT 2.2.25).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TranslatedSid {
    /// The kind of name.
    pub usage: SidNameUse,
    /// The SID; `None` if there is none.
    pub sid: Option<Sid>,
    /// Index of its domain; `None` if unknown.
    pub domain: Option<u32>,
}

/// DomainIndex; -1 if there is none.
fn domain_index(domain: Option<u32>) -> u32 {
    domain.unwrap_or(u32::MAX)
}

fn put_domains(w: &mut NdrWriter<'_>, domains: &[ReferencedDomain<'_>]) -> Result<(), WireError> {
    let count = fit_u32(domains.len(), "LSA domains")?;
    w.pointer(true);
    w.u32(count);
    w.pointer(count != 0);
    w.u32(32); // MaxEntries: ignored
    if count == 0 {
        return Ok(());
    }
    w.u32(count);
    for domain in domains {
        w.string_header(domain.name)?;
        w.pointer(true);
    }
    domains.iter().try_for_each(|domain| {
        w.string_buffer(domain.name)?;
        w.sid(&domain.sid);
        Ok(())
    })
}

/// Appends the response stub of LsarLookupSids or LsarLookupSids2.
///
/// # Errors
/// `Unencodable`.
pub fn put_lookup_sids(
    out: &mut Vec<u8>,
    opnum: u16,
    domains: &[ReferencedDomain<'_>],
    names: &[TranslatedName<'_>],
    status: NtStatus,
) -> Result<(), WireError> {
    let mut w = NdrWriter::new(out);
    put_domains(&mut w, domains)?;
    let count = fit_u32(names.len(), "LSA names")?;
    w.u32(count);
    w.pointer(count != 0);
    if count != 0 {
        w.u32(count);
        for name in names {
            w.u16(name.usage.0);
            w.string_header(name.name)?;
            w.u32(domain_index(name.domain));
            if opnum != OP_LOOKUP_SIDS {
                w.u32(0); // flags
            }
        }
        names.iter().try_for_each(|name| w.string_buffer(name.name))?;
    }
    w.u32(names.iter().filter(|n| n.usage != SidNameUse::UNKNOWN).count() as u32);
    w.u32(status.0);
    Ok(())
}

/// Appends the response stub of LsarLookupNames, 2 or 3.
///
/// # Errors
/// `Unencodable`.
pub fn put_lookup_names(
    out: &mut Vec<u8>,
    opnum: u16,
    domains: &[ReferencedDomain<'_>],
    sids: &[TranslatedSid],
    status: NtStatus,
) -> Result<(), WireError> {
    let mut w = NdrWriter::new(out);
    put_domains(&mut w, domains)?;
    let count = fit_u32(sids.len(), "LSA SIDs")?;
    w.u32(count);
    w.pointer(count != 0);
    if count != 0 {
        w.u32(count);
        for sid in sids {
            w.u16(sid.usage.0);
            match opnum {
                OP_LOOKUP_NAMES_3 => w.pointer(sid.sid.is_some()),
                _ => w.u32(relative_id(sid)),
            }
            w.u32(domain_index(sid.domain));
            if opnum != OP_LOOKUP_NAMES {
                w.u32(0); // flags
            }
        }
        if opnum == OP_LOOKUP_NAMES_3 {
            sids.iter().filter_map(|s| s.sid.as_ref()).for_each(|sid| w.sid(sid));
        }
    }
    w.u32(sids.iter().filter(|s| s.sid.is_some()).count() as u32);
    w.u32(status.0);
    Ok(())
}

/// MS-LSAT 3.1.4.7: the last sub-authority; all ones for a domain.
fn relative_id(sid: &TranslatedSid) -> u32 {
    match (&sid.sid, sid.usage) {
        (None, _) => 0,
        (Some(_), SidNameUse::DOMAIN) => u32::MAX,
        (Some(s), _) => s.sub_authorities().last().copied().unwrap_or(u32::MAX),
    }
}

/// Appends the response stub of LsarGetUserName.
///
/// # Errors
/// `Unencodable`.
pub fn put_user_name(out: &mut Vec<u8>, user: &str, domain: Option<&str>) -> Result<(), WireError> {
    let mut w = NdrWriter::new(out);
    w.pointer(true);
    w.unicode_string(user)?;
    w.pointer(domain.is_some());
    if let Some(domain) = domain {
        w.pointer(true);
        w.unicode_string(domain)?;
    }
    w.u32(NtStatus::SUCCESS.0);
    Ok(())
}
