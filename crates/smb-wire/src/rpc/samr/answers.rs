//! Response stubs.

use crate::cursor::fit_u32;
use crate::rpc::ndr::NdrWriter;
use crate::rpc::{ContextHandle, SidNameUse};
use crate::security::Sid;
use crate::{NtStatus, WireError};

/// "Never": the largest time, for accounts that do not expire (MS-SAMR 2.2.6.1).
const NEVER: i64 = i64::MAX;
/// USER_NORMAL_ACCOUNT and USER_ACCOUNT_DISABLED (MS-SAMR 2.2.1.12).
pub const NORMAL_ACCOUNT: u32 = 0x10;
/// See [`NORMAL_ACCOUNT`].
pub const ACCOUNT_DISABLED: u32 = 0x1;

/// SE_GROUP_MANDATORY, SE_GROUP_ENABLED_BY_DEFAULT, SE_GROUP_ENABLED (MS-SAMR 2.2.1.10): attributes of every group
/// and membership.
pub const GROUP_ATTRIBUTES: u32 = 7;

/// An account or domain in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Relative identifier; 0 for a domain.
    pub id: u32,
    /// Name.
    pub name: &'a str,
}

/// Appends the response stub of SamrConnect5.
pub fn put_connect_5(out: &mut Vec<u8>, handle: ContextHandle, status: NtStatus) {
    let mut w = NdrWriter::new(out);
    for value in [1, 1, 3, 0] {
        w.u32(value); // version, the union's switch, revision, features
    }
    w.handle(handle);
    w.u32(status.0);
}

/// Appends the response stub of SamrLookupDomainInSamServer.
pub fn put_domain_sid(out: &mut Vec<u8>, sid: Result<&Sid, NtStatus>) {
    let mut w = NdrWriter::new(out);
    w.pointer(sid.is_ok());
    if let Ok(sid) = sid {
        w.sid(sid);
    }
    w.u32(sid.err().unwrap_or(NtStatus::SUCCESS).0);
}

/// Appends the response stub of an enumeration.
///
/// # Errors
/// `Unencodable`.
pub fn put_enumeration(
    out: &mut Vec<u8>,
    resume: u32,
    entries: Result<&[Entry<'_>], NtStatus>,
    status: NtStatus,
) -> Result<(), WireError> {
    let mut w = NdrWriter::new(out);
    w.u32(resume);
    w.pointer(entries.is_ok());
    let mut count = 0;
    if let Ok(entries) = entries {
        count = fit_u32(entries.len(), "SAM entries")?;
        w.u32(count);
        w.pointer(count != 0);
        if count != 0 {
            w.u32(count);
        }
        for entry in entries {
            w.u32(entry.id);
            w.string_header(entry.name)?;
        }
        entries.iter().try_for_each(|entry| w.string_buffer(entry.name))?;
    }
    w.u32(count);
    w.u32(entries.err().unwrap_or(status).0);
    Ok(())
}

/// Writes a SAMPR_ULONG_ARRAY.
fn put_numbers(w: &mut NdrWriter<'_>, numbers: &[u32]) -> Result<(), WireError> {
    let count = fit_u32(numbers.len(), "SAM numbers")?;
    w.u32(count);
    w.pointer(count != 0);
    if count != 0 {
        w.u32(count);
        numbers.iter().for_each(|n| w.u32(*n));
    }
    Ok(())
}

/// Appends the response stub of SamrLookupNamesInDomain.
///
/// # Errors
/// `Unencodable`.
pub fn put_ids(out: &mut Vec<u8>, found: &[(u32, SidNameUse)], status: NtStatus) -> Result<(), WireError> {
    let mut w = NdrWriter::new(out);
    let (ids, uses): (Vec<u32>, Vec<u32>) = found.iter().map(|(id, usage)| (*id, u32::from(usage.0))).unzip();
    put_numbers(&mut w, &ids)?;
    put_numbers(&mut w, &uses)?;
    w.u32(status.0);
    Ok(())
}

/// Appends the response stub of SamrLookupIdsInDomain.
///
/// # Errors
/// `Unencodable`.
pub fn put_names(out: &mut Vec<u8>, found: &[(&str, SidNameUse)], status: NtStatus) -> Result<(), WireError> {
    let mut w = NdrWriter::new(out);
    let count = fit_u32(found.len(), "SAM names")?;
    w.u32(count);
    w.pointer(count != 0);
    if count != 0 {
        w.u32(count);
    }
    found.iter().try_for_each(|(name, _)| w.string_header(name))?;
    found.iter().try_for_each(|(name, _)| w.string_buffer(name))?;
    let uses: Vec<u32> = found.iter().map(|(_, usage)| u32::from(usage.0)).collect();
    put_numbers(&mut w, &uses)?;
    w.u32(status.0);
    Ok(())
}

/// Appends the response stub of SamrGetAliasMembership.
///
/// # Errors
/// `Unencodable`.
pub fn put_membership(out: &mut Vec<u8>, ids: &[u32], status: NtStatus) -> Result<(), WireError> {
    let mut w = NdrWriter::new(out);
    put_numbers(&mut w, ids)?;
    w.u32(status.0);
    Ok(())
}

/// Appends the response stub of SamrGetMembersInAlias.
///
/// # Errors
/// `Unencodable`.
pub fn put_members(out: &mut Vec<u8>, members: &[Sid], status: NtStatus) -> Result<(), WireError> {
    let mut w = NdrWriter::new(out);
    w.sid_array(members)?;
    w.u32(status.0);
    Ok(())
}

/// Appends the response stub of SamrGetGroupsForUser.
///
/// # Errors
/// `Unencodable`.
pub fn put_groups(out: &mut Vec<u8>, groups: Result<&[u32], NtStatus>) -> Result<(), WireError> {
    let mut w = NdrWriter::new(out);
    w.pointer(groups.is_ok());
    if let Ok(groups) = groups {
        let count = fit_u32(groups.len(), "SAM groups")?;
        w.u32(count);
        w.pointer(true);
        w.u32(count);
        for group in groups {
            w.u32(*group);
            w.u32(GROUP_ATTRIBUTES);
        }
    }
    w.u32(groups.err().unwrap_or(NtStatus::SUCCESS).0);
    Ok(())
}

/// A domain, for the classes of SamrQueryInformationDomain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DomainInformation<'a> {
    /// NetBIOS name.
    pub name: &'a str,
    /// Number of users.
    pub users: u32,
    /// Number of groups.
    pub groups: u32,
    /// Number of local groups.
    pub aliases: u32,
}

/// Whether SamrQueryInformationDomain supports the class.
pub const fn is_domain_class(class: u16) -> bool {
    matches!(class, 1 | 2 | 3 | 5 | 7 | 8 | 9)
}

/// Appends the response stub of SamrQueryInformationDomain. Refuses a class for which [`is_domain_class`] is false.
///
/// # Errors
/// `Unencodable`.
pub fn put_domain(
    out: &mut Vec<u8>,
    class: u16,
    domain: Result<&DomainInformation<'_>, NtStatus>,
) -> Result<(), WireError> {
    /// DomainServerEnabled, DomainServerRolePrimary.
    const STATE_ROLE: [u32; 2] = [1, 3];
    let domain =
        domain.and_then(|d| if is_domain_class(class) { Ok(d) } else { Err(NtStatus::INVALID_INFO_CLASS) });
    let mut w = NdrWriter::new(out);
    w.pointer(domain.is_ok());
    if let Ok(domain) = domain {
        w.u16(class);
        match class {
            1 => {
                w.u16_at_4(0); // length, history, properties, maximum and minimum age: no policy
                w.u16(0);
                w.u32(0);
                w.old_large_integer(i64::MIN);
                w.old_large_integer(0);
            }
            2 => {
                w.old_large_integer(i64::MIN); // logoff is never forced
                w.string_header("")?;
                w.string_header(domain.name)?;
                w.string_header("")?;
                w.old_large_integer(0);
                STATE_ROLE.iter().for_each(|v| w.u32(*v));
                w.u8(0);
                w.u32(domain.users);
                w.u32(domain.groups);
                w.u32(domain.aliases);
                w.string_buffer(domain.name)?;
            }
            3 => w.old_large_integer(i64::MIN),
            5 => w.unicode_string(domain.name)?,
            // A union is aligned as its largest arm (C706 14.3.8): these enumerations do not directly follow its
            // switch.
            7 => w.u16_at_4(STATE_ROLE[1] as u16),
            8 => {
                w.old_large_integer(0);
                w.old_large_integer(0);
            }
            _ => w.u16_at_4(STATE_ROLE[0] as u16),
        }
    }
    w.u32(domain.err().unwrap_or(NtStatus::SUCCESS).0);
    Ok(())
}

/// Appends the response stub of SamrQueryInformationAlias: classes 1 (all), 2 (name) and 3 (comment).
///
/// # Errors
/// `Unencodable`.
pub fn put_alias(
    out: &mut Vec<u8>,
    class: u16,
    alias: Result<(&str, u32, &str), NtStatus>,
) -> Result<(), WireError> {
    let known = matches!(class, 1..=3);
    let alias = alias.and_then(|a| if known { Ok(a) } else { Err(NtStatus::INVALID_INFO_CLASS) });
    let mut w = NdrWriter::new(out);
    w.pointer(alias.is_ok());
    if let Ok((name, members, comment)) = alias {
        w.u16(class);
        match class {
            1 => {
                w.string_header(name)?;
                w.u32(members);
                w.string_header(comment)?;
                w.string_buffer(name)?;
                w.string_buffer(comment)?;
            }
            2 => w.unicode_string(name)?,
            _ => w.unicode_string(comment)?,
        }
    }
    w.u32(alias.err().unwrap_or(NtStatus::SUCCESS).0);
    Ok(())
}

/// Appends the response stub of SamrQueryInformationGroup: classes 1 (all), 2 (name), 3 (attributes), 4 (comment) and
/// 5 (all, without the number of members: MS-SAMR 3.1.5.5.3.1). Groups have no comment.
///
/// # Errors
/// `Unencodable`.
pub fn put_group(
    out: &mut Vec<u8>,
    class: u16,
    group: Result<(&str, u32), NtStatus>,
) -> Result<(), WireError> {
    let known = matches!(class, 1..=5);
    let group = group.and_then(|g| if known { Ok(g) } else { Err(NtStatus::INVALID_INFO_CLASS) });
    let mut w = NdrWriter::new(out);
    w.pointer(group.is_ok());
    if let Ok((name, members)) = group {
        w.u16(class);
        match class {
            1 | 5 => {
                w.string_header(name)?;
                w.u32(GROUP_ATTRIBUTES);
                w.u32(if class == 1 { members } else { 0 });
                w.string_header("")?;
                w.string_buffer(name)?;
            }
            2 => w.unicode_string(name)?,
            3 => w.u32(GROUP_ATTRIBUTES),
            _ => w.unicode_string("")?,
        }
    }
    w.u32(group.err().unwrap_or(NtStatus::SUCCESS).0);
    Ok(())
}

/// Appends the response stub of SamrGetMembersInGroup.
///
/// # Errors
/// `Unencodable`.
pub fn put_group_members(out: &mut Vec<u8>, members: Result<&[u32], NtStatus>) -> Result<(), WireError> {
    let mut w = NdrWriter::new(out);
    w.pointer(members.is_ok());
    if let Ok(members) = members {
        let count = fit_u32(members.len(), "SAM members")?;
        w.u32(count);
        w.pointer(true);
        w.pointer(true);
        w.u32(count);
        members.iter().for_each(|id| w.u32(*id));
        w.u32(count);
        members.iter().for_each(|_| w.u32(GROUP_ATTRIBUTES));
    }
    w.u32(members.err().unwrap_or(NtStatus::SUCCESS).0);
    Ok(())
}

/// Appends the response stub of SamrGetDomainPasswordInformation and SamrGetUserDomainPasswordInformation: no
/// policy.
pub fn put_password_information(out: &mut Vec<u8>, status: NtStatus) {
    let mut w = NdrWriter::new(out);
    w.u16_at_4(0); // MinPasswordLength
    w.u32(0); // PasswordProperties
    w.u32(status.0);
}

/// A user, for the classes of SamrQueryInformationUser. No class contains a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserInformation<'a> {
    /// Account name.
    pub name: &'a str,
    /// The full name, for display.
    pub full_name: &'a str,
    /// Relative identifier.
    pub id: u32,
    /// Relative identifier of the primary group.
    pub primary_group: u32,
    /// USER_ACCOUNT codes.
    pub account_control: u32,
}

/// Appends the response stub of SamrQueryInformationUser: classes 1 (general), 6 (names), 7 (account name), 8 (full
/// name), 9 (primary group), 16 (account control), 17 (expiry), 21 (all); others are refused.
///
/// # Errors
/// `Unencodable`.
pub fn put_user(
    out: &mut Vec<u8>,
    class: u16,
    user: Result<&UserInformation<'_>, NtStatus>,
) -> Result<(), WireError> {
    let known = matches!(class, 1 | 6 | 7 | 8 | 9 | 16 | 17 | 21);
    let user = user.and_then(|u| if known { Ok(u) } else { Err(NtStatus::INVALID_INFO_CLASS) });
    let mut w = NdrWriter::new(out);
    w.pointer(user.is_ok());
    if let Ok(user) = user {
        w.u16(class);
        match class {
            1 => {
                w.string_header(user.name)?;
                w.string_header(user.full_name)?;
                w.u32(user.primary_group);
                w.string_header("")?; // comments
                w.string_header("")?;
                w.string_buffer(user.name)?;
                w.string_buffer(user.full_name)?;
            }
            6 => {
                w.string_header(user.name)?;
                w.string_header(user.full_name)?;
                w.string_buffer(user.name)?;
                w.string_buffer(user.full_name)?;
            }
            7 => w.unicode_string(user.name)?,
            8 => w.unicode_string(user.full_name)?,
            9 => w.u32(user.primary_group),
            16 => w.u32(user.account_control),
            17 => w.old_large_integer(NEVER),
            _ => put_user_all(&mut w, user)?,
        }
    }
    w.u32(user.err().unwrap_or(NtStatus::SUCCESS).0);
    Ok(())
}

/// SAMPR_USER_ALL_INFORMATION (MS-SAMR 2.2.6.6).
fn put_user_all(w: &mut NdrWriter<'_>, user: &UserInformation<'_>) -> Result<(), WireError> {
    /// Fields that are filled in: all except secrets and the security descriptor (MS-SAMR 2.2.1.8).
    const WHICH: u32 = 0x00FF_FFFF;
    /// UnitsPerWeek in hours; all hours are allowed.
    const HOURS: u16 = 168;
    // Last log-on, log-off, password set, account expires, password can and must be changed.
    for time in [0, 0, 0, NEVER, 0, NEVER] {
        w.old_large_integer(time);
    }
    w.string_header(user.name)?;
    w.string_header(user.full_name)?;
    for _ in 0..8 {
        w.string_header("")?; // home and its drive, script, profile, comment, workstations, user's comment, parameters
    }
    for _ in 0..2 {
        w.u32(0); // hashes: length and maximum, no buffer
        w.pointer(false);
    }
    w.string_header("")?; // private data
    w.u32(0); // security descriptor
    w.pointer(false);
    for value in [user.id, user.primary_group, user.account_control, WHICH] {
        w.u32(value);
    }
    w.u16_at_4(HOURS);
    w.pointer(true);
    for value in [0, 0, 0, 0] {
        w.u16(value); // wrong passwords, log-ons, country, code page
    }
    w.u32(0); // four flags about the omitted passwords
    w.string_buffer(user.name)?;
    w.string_buffer(user.full_name)?;
    for value in [1260, 0, u32::from(HOURS / 8)] {
        w.u32(value);
    }
    (0..HOURS / 8).for_each(|_| w.u8(0xFF));
    Ok(())
}
