//! Access checks: security descriptors of files (MS-DTYP 2.4.6, 2.5.3).
//!
//! A file keeps the self-relative descriptor that it was created with or given later. For a file that never had one (it
//! was there before it was shared) one is computed from its owner, group and mode ([`posix`]); where the backend has
//! none of these (`ram`), it has [`default`]: owned by the administrators, full control for everyone, inherited by what
//! is created below. A new file gets the descriptor that its creator sends, else the inheritable entries of its folder,
//! else full control for its owner and the system; its owner is the user of the session. Mandatory labels and central
//! access policies are stored and not evaluated; a SACL is stored and inherited, and audits nothing.
//!
//! Access is checked here and not by the system's permissions: the backend runs as the server's own user.

use std::sync::Arc;

use smb_auth::mechanism::UserLookup;
use smb_wire::msg::SecurityInformation;
use smb_wire::security::{
    Ace, AceFlags, AceType, Acl, AclBuf, ControlFlags, SecurityDescriptor, SecurityDescriptorBuf, Sid,
};
use smb_wire::{AccessMask, NtStatus};
use vfs::{EntrySecurity, Kind, Node, Opened, Posix, Stat, VfsError, VfsResult};

pub(crate) mod nfs;
pub(crate) mod posix;
pub(crate) mod unix;

use crate::identity::User;
use crate::request::Request;
use crate::status;

/// `S-1-3-4`: an entry for it replaces the rights that an owner has as the owner (MS-DTYP 2.4.2.4).
fn owner_rights() -> Sid {
    Sid::new(3, &[4]).expect("one sub-authority")
}

/// The rights of an owner, whatever the DACL says.
const OWNER_MAY: AccessMask = AccessMask::READ_CONTROL.union(AccessMask::WRITE_DAC);

/// The descriptor of a file that has none, where no owner and mode are known.
pub(crate) fn default() -> SecurityDescriptorBuf {
    let mut dacl = AclBuf::new();
    let flags = AceFlags::OBJECT_INHERIT | AceFlags::CONTAINER_INHERIT;
    let everyone = Ace::new(AceType::ACCESS_ALLOWED, flags, AccessMask::FILE_ALL_ACCESS, Sid::EVERYONE);
    dacl.push(&everyone).expect("one entry fits");
    SecurityDescriptorBuf {
        control: ControlFlags::DACL_PRESENT,
        owner: Some(Sid::BUILTIN_ADMINISTRATORS),
        group: Some(Sid::BUILTIN_ADMINISTRATORS),
        sacl: None,
        dacl: Some(dacl),
    }
}

/// The effective descriptor of a file with this stored one. One that cannot be decoded is replaced by one that is owned
/// by the administrators and grants nothing: only they have access, and may set another.
pub(crate) fn effective(stored: Option<&[u8]>) -> SecurityDescriptorBuf {
    let Some(bytes) = stored else { return default() };
    match SecurityDescriptor::decode(bytes) {
        Ok(d) => d.to_buf(),
        Err(_) => SecurityDescriptorBuf {
            control: ControlFlags::DACL_PRESENT,
            owner: Some(Sid::BUILTIN_ADMINISTRATORS),
            dacl: Some(AclBuf::new()),
            ..SecurityDescriptorBuf::default()
        },
    }
}

/// The descriptor to check access against: the stored one, else one computed from owner, group and mode; `None` where
/// the file has neither.
///
/// # Errors
/// The backend call failed, for a reason other than an unreadable descriptor.
pub(crate) async fn descriptor(
    r: &Request,
    node: &Arc<dyn Node>,
    stat: &Stat,
) -> Result<Option<Vec<u8>>, NtStatus> {
    descriptor_from(node.security(&r.ctx()).wait().await, stat, &*r.server.users)
}

/// [`descriptor`], from the result of reading the stored descriptor from the backend.
///
/// # Errors
/// The errors of [`descriptor`].
pub(crate) fn descriptor_from(
    security: EntrySecurity,
    stat: &Stat,
    accounts: &dyn UserLookup,
) -> Result<Option<Vec<u8>>, NtStatus> {
    Ok(stored(security)?.or_else(|| computed(stat, accounts)))
}

/// [`descriptor`] of an open file; its owner, group and mode are read again.
///
/// # Errors
/// The errors of [`descriptor`].
pub(crate) async fn descriptor_now(r: &Request, node: &Arc<dyn Node>) -> Result<Option<Vec<u8>>, NtStatus> {
    if let Some(stored) = stored(node.security(&r.ctx()).wait().await)? {
        return Ok(Some(stored));
    }
    let stat = node.stat(&r.ctx()).wait().await.map_err(status::of_vfs)?;
    Ok(computed(&stat, &*r.server.users))
}

fn computed(stat: &Stat, accounts: &dyn UserLookup) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    posix::descriptor(&stat.posix?, stat.kind, accounts).encode(&mut bytes);
    Some(bytes)
}

/// Whether access-based enumeration shows an entry: only to users that may read it.
pub(crate) fn is_visible(r: &Request, security: EntrySecurity, stat: &Stat) -> bool {
    let Ok(descriptor) = descriptor_from(security, stat, &*r.server.users) else { return false };
    maximal(&r.session.user, descriptor.as_deref()).contains(VISIBLE_WITH)
}

/// The security descriptor of a directory entry. One that cannot be read counts as empty, which grants no access.
pub(crate) fn of_entry(r: &Request, security: EntrySecurity, stat: &Stat) -> Option<Vec<u8>> {
    stored(security).unwrap_or_else(|_| Some(Vec::new())).or_else(|| computed(stat, &*r.server.users))
}

/// An entry is visible to users with all of these rights: to read data, attributes and extended attributes.
const VISIBLE_WITH: AccessMask =
    AccessMask::READ_DATA.union(AccessMask::READ_EA).union(AccessMask::READ_ATTRIBUTES);

/// Whether a user may pass the directories that lead to a file. As on Windows, every user may pass a directory that has
/// a descriptor (SeChangeNotifyPrivilege); a directory without one is passed with its execute bit, as locally.
///
/// # Errors
/// ACCESS_DENIED.
pub(crate) fn check_traversal(r: &Request, found: &Opened) -> Result<(), NtStatus> {
    check_traversal_of(&r.session.user, &*r.server.users, &found.restricted_directories)
}

/// Like [`check_traversal`], from the directories on the path that have no descriptor
/// ([`Opened::restricted_directories`]).
///
/// # Errors
/// ACCESS_DENIED.
pub(crate) fn check_traversal_of(
    user: &User,
    accounts: &dyn UserLookup,
    restricted: &[Posix],
) -> Result<(), NtStatus> {
    let passes = |p: &Posix| {
        let d = posix::descriptor(p, Kind::Directory, accounts);
        of_buf(user, &d).contains(AccessMask::EXECUTE)
    };
    if restricted.iter().all(passes) { Ok(()) } else { Err(NtStatus::ACCESS_DENIED) }
}

/// The descriptor that a backend has stored with a file. One that the backend cannot read does not count as "none",
/// which would grant access to everyone: it is replaced by one that grants access to administrators only, who can set
/// another.
///
/// # Errors
/// The backend call failed, for a reason other than an unreadable descriptor.
fn stored(read: VfsResult<Option<Vec<u8>>>) -> Result<Option<Vec<u8>>, NtStatus> {
    match read {
        Ok(stored) => Ok(stored),
        Err(e @ (VfsError::Damaged | VfsError::Io(_) | VfsError::Unsupported)) => {
            tracing::warn!(
                "the security descriptor of a file cannot be read; only administrators can repair it: {e}"
            );
            Ok(Some(Vec::new()))
        }
        Err(e) => Err(status::of_vfs(e)),
    }
}

impl User {
    /// Whether a SID is in the access token.
    fn is(&self, sid: &Sid) -> bool {
        self.sid == *sid || self.groups.contains(sid)
    }

    /// Whether the user is an administrator of this server.
    pub(crate) fn is_administrator(&self) -> bool {
        self.is(&Sid::BUILTIN_ADMINISTRATORS)
    }

    /// The group of the files that the user creates: "Domain Users" of its domain ("None" on a single machine).
    fn primary_group(&self) -> Sid {
        const DOMAIN_USERS: u32 = 513;
        match self.sid.sub_authorities() {
            [domain @ .., _] if domain.first() == Some(&21) => {
                let sub: Vec<u32> = domain.iter().copied().chain([DOMAIN_USERS]).collect();
                Sid::new(self.sid.authority(), &sub).unwrap_or(Sid::BUILTIN_USERS)
            }
            _ => Sid::BUILTIN_USERS,
        }
    }
}

/// All that a user may do with a file (MS-DTYP 2.5.3.2 with MAXIMUM_ALLOWED).
pub(crate) fn maximal(user: &User, stored: Option<&[u8]>) -> AccessMask {
    let Some(bytes) = stored else { return of_descriptor(user, None, true, None) };
    match SecurityDescriptor::decode(bytes) {
        Ok(d) => {
            let open_to_all = d.dacl.is_none();
            of_descriptor(user, d.owner.as_ref(), open_to_all, d.dacl)
        }
        Err(_) => of_descriptor(user, Some(&Sid::BUILTIN_ADMINISTRATORS), false, None),
    }
}

fn of_buf(user: &User, d: &SecurityDescriptorBuf) -> AccessMask {
    of_descriptor(user, d.owner.as_ref(), d.dacl.is_none(), d.dacl.as_ref().map(AclBuf::as_acl))
}

fn of_descriptor(user: &User, owner: Option<&Sid>, open_to_all: bool, dacl: Option<Acl<'_>>) -> AccessMask {
    let mut allowed = AccessMask::empty();
    if user.is_administrator() {
        // SeSecurityPrivilege and SeTakeOwnershipPrivilege.
        allowed |= AccessMask::ACCESS_SYSTEM_SECURITY | AccessMask::WRITE_OWNER;
    }
    if open_to_all {
        return allowed | AccessMask::FILE_ALL_ACCESS;
    }
    let is_owner = owner.is_some_and(|o| user.is(o));
    let limited = dacl.is_some_and(|d| entries(d).any(|a| a.sid == owner_rights()));
    if is_owner && !limited {
        allowed |= OWNER_MAY;
    }
    dacl.map_or(allowed, |d| of_dacl(user, is_owner, d, allowed))
}

/// The entries that apply to this file.
fn entries(dacl: Acl<'_>) -> impl Iterator<Item = Ace<'_>> {
    dacl.iter().map_while(Result::ok).filter(|a| !a.flags.contains(AceFlags::INHERIT_ONLY))
}

/// The rights in `allowed`, plus those that the list's entries grant (MS-DTYP 2.5.3.2).
pub(crate) fn of_dacl(user: &User, is_owner: bool, dacl: Acl<'_>, mut allowed: AccessMask) -> AccessMask {
    let mut denied = AccessMask::empty();
    for ace in entries(dacl) {
        if !(user.is(&ace.sid) || (is_owner && ace.sid == owner_rights())) {
            continue;
        }
        let mask = ace.mask.map_generic();
        match ace.ace_type {
            AceType::ACCESS_ALLOWED | AceType::ACCESS_ALLOWED_OBJECT => allowed |= mask & !denied,
            AceType::ACCESS_DENIED | AceType::ACCESS_DENIED_OBJECT => denied |= mask & !allowed,
            // MS-DTYP 2.5.3.2: a condition that is not understood is unknown, which never allows and always denies.
            AceType::ACCESS_DENIED_CALLBACK => denied |= mask & !allowed,
            _ => {}
        }
    }
    allowed & !AccessMask::MAXIMUM_ALLOWED
}

/// The descriptor of a new file (MS-DTYP 2.5.3.4): what its creator sends, before what it inherits from its folder.
///
/// # Errors
/// INVALID_SECURITY_DESCR, INVALID_OWNER, PRIVILEGE_NOT_HELD.
pub(crate) fn for_new(
    user: &User,
    parent: Option<&[u8]>,
    sent: Option<&[u8]>,
    directory: bool,
) -> Result<Vec<u8>, NtStatus> {
    let parent = effective(parent);
    let mut new = SecurityDescriptorBuf {
        owner: Some(user.sid),
        group: Some(user.primary_group()),
        ..SecurityDescriptorBuf::default()
    };
    let mut has_dacl = false;
    if let Some(bytes) = sent {
        let sent = decode(bytes)?;
        let mut parts = SecurityInformation::empty();
        if sent.owner.is_some() {
            parts |= SecurityInformation::OWNER;
        }
        if sent.group.is_some() {
            parts |= SecurityInformation::GROUP;
        }
        if sent.control.contains(ControlFlags::DACL_PRESENT) {
            parts |= SecurityInformation::DACL;
            has_dacl = true;
        }
        if let Some(sacl) = sent.sacl {
            if !(user.is_administrator() || needs_no_privilege(sacl)) {
                return Err(NtStatus::PRIVILEGE_NOT_HELD);
            }
            parts |= SecurityInformation::SACL;
        }
        replace(user, &mut new, parts, &sent)?;
    }
    // A POSIX owner may have no account on this server: "creator owner" is then the user.
    let owner = new.owner.filter(|o| !nfs::is_owner(o) || user.is(o)).unwrap_or(user.sid);
    let group = new.group.unwrap_or(user.sid);
    let auto = parent.control.contains(ControlFlags::SACL_AUTO_INHERITED);
    let inherited = parent.sacl.as_ref().map(|s| inherit(s.as_acl(), auto, &owner, &group, directory));
    add_to_sacl(&mut new, inherited, auto, user.is_administrator());
    if !has_dacl {
        let auto = parent.control.contains(ControlFlags::DACL_AUTO_INHERITED);
        let inherited = parent.dacl.as_ref().map(|d| inherit(d.as_acl(), auto, &owner, &group, directory));
        new.control |= ControlFlags::DACL_PRESENT;
        new.dacl = Some(match inherited {
            Some(acl) if !acl.as_acl().is_empty() => {
                new.control |= parent.control & ControlFlags::DACL_AUTO_INHERITED;
                acl
            }
            _ => default_of(&owner),
        });
    }
    let mut out = Vec::new();
    new.encode(&mut out);
    Ok(out)
}

/// Whether a creator without SeSecurityPrivilege may send this SACL: a list of resource attributes and labels, for which
/// SET_INFO does not need ACCESS_SYSTEM_SECURITY either ([`needed_to_set`]). The rule for CREATE is in Microsoft's
/// "SACL for a New Object": it depends on the privilege, not on the access that the open requests.
fn needs_no_privilege(sacl: Acl<'_>) -> bool {
    let harmless = |a: Ace<'_>| {
        matches!(a.ace_type, AceType::SYSTEM_MANDATORY_LABEL | AceType::SYSTEM_RESOURCE_ATTRIBUTE)
    };
    !sacl.is_empty() && sacl.iter().map_while(Result::ok).all(harmless)
}

/// Appends the entries that a new file inherits to the explicit ones of the SACL that its creator sent, unless that is
/// protected (MS-DTYP 2.5.3.4.2). Only a user with SeSecurityPrivilege may protect it: else it would not be audited.
fn add_to_sacl(new: &mut SecurityDescriptorBuf, inherited: Option<AclBuf>, auto: bool, privileged: bool) {
    if !privileged {
        new.control.remove(ControlFlags::SACL_PROTECTED);
    }
    let protected = new.control.contains(ControlFlags::SACL_PROTECTED);
    let inherited = inherited.filter(|acl| !protected && !acl.as_acl().is_empty());
    if auto && inherited.is_some() {
        new.control |= ControlFlags::SACL_AUTO_INHERITED;
    }
    let Some(sent) = new.sacl.take() else {
        new.sacl = inherited;
        return;
    };
    let mut acl = AclBuf::new();
    // MS-DTYP 2.5.3.4.6: entries that the creator marks as inherited are not explicit. In a protected list all are.
    for ace in mapped(sent.as_acl()).as_acl().iter().map_while(Result::ok) {
        if protected || !ace.flags.contains(AceFlags::INHERITED) {
            let _ = acl.push(&Ace { flags: ace.flags & !AceFlags::INHERITED, ..ace });
        }
    }
    for ace in inherited.iter().flat_map(|acl| acl.as_acl().iter().map_while(Result::ok)) {
        // A list that grows past its bound loses inherited entries at its end.
        let _ = acl.push(&ace);
    }
    new.sacl = Some(acl);
}

/// The DACL of a new file that inherits nothing from its folder: the same as a token's default DACL.
fn default_of(owner: &Sid) -> AclBuf {
    let mut acl = AclBuf::new();
    for sid in [owner, &Sid::LOCAL_SYSTEM] {
        let ace = Ace::new(AceType::ACCESS_ALLOWED, AceFlags::empty(), AccessMask::FILE_ALL_ACCESS, *sid);
        acl.push(&ace).expect("two entries fit");
    }
    acl
}

const INHERITANCE: AceFlags = AceFlags::OBJECT_INHERIT
    .union(AceFlags::CONTAINER_INHERIT)
    .union(AceFlags::NO_PROPAGATE_INHERIT)
    .union(AceFlags::INHERIT_ONLY);

/// The entries that a folder's DACL or SACL passes on (MS-DTYP 2.5.3.4.1, 2.5.3.4.4). An entry for "creator owner" or
/// with generic rights becomes two on a folder: one that applies to the folder, one for its children to inherit.
fn inherit(parent: Acl<'_>, auto: bool, owner: &Sid, group: &Sid, directory: bool) -> AclBuf {
    let mut acl = AclBuf::new();
    for ace in parent.iter().map_while(Result::ok) {
        let to_files = ace.flags.contains(AceFlags::OBJECT_INHERIT);
        let to_folders = ace.flags.contains(AceFlags::CONTAINER_INHERIT);
        let goes_on = directory && !ace.flags.contains(AceFlags::NO_PROPAGATE_INHERIT);
        let kept = ace.flags & (AceFlags::OBJECT_INHERIT | AceFlags::CONTAINER_INHERIT);
        // Entries are marked as inherited if the folder's descriptor is auto-inherited: permission editors need it.
        let mut base = ace.flags & !(INHERITANCE | AceFlags::INHERITED);
        base.set(AceFlags::INHERITED, auto);
        let sid = match ace.sid {
            s if s == Sid::CREATOR_OWNER => *owner,
            s if s == Sid::CREATOR_GROUP => *group,
            s => s,
        };
        let here = if directory { to_folders } else { to_files };
        let means_here = Ace { sid, mask: ace.mask.map_generic(), flags: base, ..ace };
        let differs = means_here.sid != ace.sid || means_here.mask != ace.mask;
        // A list that grows past its bound loses entries at its end. In a canonical list these are allow entries (deny
        // entries come first), so that the truncated list grants less, not more.
        if here && goes_on && !differs {
            let _ = acl.push(&Ace { flags: base | kept, ..ace });
            continue;
        }
        if here {
            let _ = acl.push(&means_here);
        }
        if goes_on && (to_folders || to_files) {
            let _ = acl.push(&Ace { flags: base | kept | AceFlags::INHERIT_ONLY, ..ace });
        }
    }
    acl
}

/// The parts of a descriptor that are stored; labels, resource attributes and central policies cannot be set
/// separately.
pub(crate) const STORED_PARTS: SecurityInformation = SecurityInformation::OWNER
    .union(SecurityInformation::GROUP)
    .union(SecurityInformation::DACL)
    .union(SecurityInformation::SACL);

/// The rights that a SET_INFO of these parts needs (MS-FSA 2.1.5.17), also for parts that are not stored.
pub(crate) fn needed_to_set(parts: SecurityInformation) -> AccessMask {
    let mut needed = AccessMask::empty();
    if parts.intersects(SecurityInformation::OWNER | SecurityInformation::GROUP | SecurityInformation::LABEL)
    {
        needed |= AccessMask::WRITE_OWNER;
    }
    if parts.intersects(SecurityInformation::DACL | SecurityInformation::ATTRIBUTE) {
        needed |= AccessMask::WRITE_DAC;
    }
    if parts.intersects(SecurityInformation::SACL | SecurityInformation::SCOPE) {
        needed |= AccessMask::ACCESS_SYSTEM_SECURITY;
    }
    if parts.contains(SecurityInformation::BACKUP) {
        needed |= AccessMask::WRITE_OWNER | AccessMask::WRITE_DAC | AccessMask::ACCESS_SYSTEM_SECURITY;
    }
    needed
}

/// The rights that a QUERY_INFO of these parts needs (MS-FSA 2.1.5.14).
pub(crate) fn needed_to_query(parts: SecurityInformation) -> AccessMask {
    let mut needed = AccessMask::empty();
    let plain = SecurityInformation::OWNER
        | SecurityInformation::GROUP
        | SecurityInformation::DACL
        | SecurityInformation::LABEL
        | SecurityInformation::BACKUP;
    if parts.intersects(plain) {
        needed |= AccessMask::READ_CONTROL;
    }
    if parts.intersects(SecurityInformation::SACL | SecurityInformation::BACKUP) {
        needed |= AccessMask::ACCESS_SYSTEM_SECURITY;
    }
    needed
}

/// The stored descriptor with the parts that a client sends.
///
/// # Errors
/// INVALID_SECURITY_DESCR, INVALID_OWNER.
pub(crate) fn changed(
    user: &User,
    stored: Option<&[u8]>,
    parts: SecurityInformation,
    sent: &[u8],
) -> Result<Vec<u8>, NtStatus> {
    let sent = decode(sent)?;
    let mut d = effective(stored);
    replace(user, &mut d, parts, &sent)?;
    let mut out = Vec::new();
    d.encode(&mut out);
    Ok(out)
}

fn decode(bytes: &[u8]) -> Result<SecurityDescriptor<'_>, NtStatus> {
    let d = SecurityDescriptor::decode(bytes).map_err(|_| NtStatus::INVALID_SECURITY_DESCR)?;
    d.check_entries().map_err(|_| NtStatus::INVALID_ACL)?;
    Ok(d)
}

fn replace(
    user: &User,
    d: &mut SecurityDescriptorBuf,
    parts: SecurityInformation,
    sent: &SecurityDescriptor<'_>,
) -> Result<(), NtStatus> {
    if parts.contains(SecurityInformation::OWNER) {
        let owner = sent.owner.ok_or(NtStatus::INVALID_OWNER)?;
        // A user may set only itself as the owner, unless it has SeRestorePrivilege. A POSIX owner is only a name: see
        // `nfs`.
        if !(user.is(&owner) || d.owner == Some(owner) || user.is_administrator() || nfs::is_owner(&owner)) {
            return Err(NtStatus::INVALID_OWNER);
        }
    }
    if parts.contains(SecurityInformation::GROUP) && sent.group.is_none() {
        return Err(NtStatus::INVALID_PRIMARY_GROUP);
    }
    d.replace_parts(parts, sent);
    if parts.contains(SecurityInformation::DACL) {
        // MS-DTYP 2.5.3: a DACL that is set is present; without a list it is the null DACL, which allows all.
        d.control |= ControlFlags::DACL_PRESENT;
        d.dacl = d.dacl.take().map(|acl| mapped(acl.as_acl()));
    }
    // MS-DTYP 2.4.6: AUTO_INHERITED is stored if the client also sends AUTO_INHERIT_REQ; the latter is not stored.
    for (part, required, inherited) in [
        (SecurityInformation::DACL, ControlFlags::DACL_AUTO_INHERIT_REQ, ControlFlags::DACL_AUTO_INHERITED),
        (SecurityInformation::SACL, ControlFlags::SACL_AUTO_INHERIT_REQ, ControlFlags::SACL_AUTO_INHERITED),
    ] {
        if parts.contains(part) {
            d.control.set(inherited, sent.control.contains(required | inherited));
            d.control.remove(required);
        }
    }
    Ok(())
}

/// Maps generic rights to specific ones in the entries that apply to this file: a stored list has no generic rights.
fn mapped(acl: Acl<'_>) -> AclBuf {
    let mut out = AclBuf::new();
    for ace in acl.iter().map_while(Result::ok) {
        let means_here = !ace.flags.contains(AceFlags::INHERIT_ONLY);
        let mask = if means_here { ace.mask.map_generic() } else { ace.mask };
        // The list keeps its length: every entry was decoded, and only its mask changes.
        let _ = out.push(&Ace { mask, ..ace });
    }
    out
}

#[cfg(test)]
mod tests;
