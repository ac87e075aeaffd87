//! Share permissions (MS-SMB2 3.3.1.6, Share.FileSecurity): the maximal access of a user to a share.
//!
//! Granted by name: an account, a local group, `Everyone`, `Administrators` or a SID. Names are looked up at each tree
//! connect, which applies later changes of groups and accounts. Denials come before grants, as Windows orders them. A
//! share without a list is open to everyone who may log on; only the files' descriptors limit access.

use smb_auth::mechanism::UserLookup;
use smb_wire::AccessMask;
use smb_wire::security::{Ace, AceFlags, AceType, AclBuf, ControlFlags, SecurityDescriptorBuf, Sid};

use crate::access;
use crate::identity::{self, User};

/// Who may use a share, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShareProtection {
    /// The grants; `None`: everything to everyone.
    pub grants: Option<Vec<ShareGrant>>,
    /// Listings omit entries that the user may not read (SMB2_SHAREFLAG_ACCESS_BASED_DIRECTORY_ENUM).
    pub access_based_enumeration: bool,
}

/// One entry of a share's permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareGrant {
    /// An account or local group, `Everyone`, `Administrators`, or a SID.
    pub name: String,
    /// The permission.
    pub level: ShareLevel,
}

/// A share permission, in the words of Windows (`Grant-SmbShareAccess`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareLevel {
    /// Nothing, whatever else is granted.
    Deny,
    /// Read and execute.
    Read,
    /// Read, execute, write and delete.
    Change,
    /// Everything, including changes of descriptors.
    Full,
}

impl ShareLevel {
    fn mask(self) -> AccessMask {
        match self {
            ShareLevel::Read => AccessMask::FILE_GENERIC_READ | AccessMask::FILE_GENERIC_EXECUTE,
            ShareLevel::Change => {
                ShareLevel::Read.mask() | AccessMask::FILE_GENERIC_WRITE | AccessMask::DELETE
            }
            ShareLevel::Full | ShareLevel::Deny => AccessMask::FILE_ALL_ACCESS,
        }
    }
}

impl ShareProtection {
    /// The maximal access of a user.
    pub(crate) fn granted(&self, user: &User, accounts: &dyn UserLookup) -> AccessMask {
        match self.acl(AceFlags::empty(), accounts) {
            Some(acl) => access::of_dacl(user, false, acl.as_acl(), AccessMask::empty()),
            None => AccessMask::FILE_ALL_ACCESS,
        }
    }

    /// The permission as an inheritable descriptor of a directory, owned by the administrators.
    pub(crate) fn descriptor_of_root(&self, accounts: &dyn UserLookup) -> Vec<u8> {
        let passed_on = AceFlags::OBJECT_INHERIT | AceFlags::CONTAINER_INHERIT;
        let everyone = || {
            let all = AccessMask::FILE_ALL_ACCESS;
            let mut acl = AclBuf::new();
            acl.push(&Ace::new(AceType::ACCESS_ALLOWED, passed_on, all, Sid::EVERYONE)).expect("one fits");
            acl
        };
        let d = SecurityDescriptorBuf {
            control: ControlFlags::DACL_PRESENT | ControlFlags::DACL_AUTO_INHERITED,
            owner: Some(Sid::BUILTIN_ADMINISTRATORS),
            group: Some(Sid::BUILTIN_ADMINISTRATORS),
            sacl: None,
            dacl: Some(self.acl(passed_on, accounts).unwrap_or_else(everyone)),
        };
        let mut bytes = Vec::new();
        d.encode(&mut bytes);
        bytes
    }

    /// The list; `None` when there is none.
    fn acl(&self, flags: AceFlags, accounts: &dyn UserLookup) -> Option<AclBuf> {
        let grants = self.grants.as_ref()?;
        let (denied, allowed): (Vec<_>, Vec<_>) = grants.iter().partition(|g| g.level == ShareLevel::Deny);
        let mut acl = AclBuf::new();
        for (ace_type, grant) in denied
            .iter()
            .map(|g| (AceType::ACCESS_DENIED, g))
            .chain(allowed.iter().map(|g| (AceType::ACCESS_ALLOWED, g)))
        {
            // An unknown name is in no token: its entry has no effect.
            let Some(sid) = principal(&grant.name, accounts) else { continue };
            // Entries beyond 64 KiB are dropped: these are grants, as denials are first.
            let _ = acl.push(&Ace::new(ace_type, flags, grant.level.mask(), sid));
        }
        Some(acl)
    }
}

/// The SID of a name.
pub(crate) fn principal(name: &str, accounts: &dyn UserLookup) -> Option<Sid> {
    if name.eq_ignore_ascii_case("Everyone") {
        return Some(Sid::EVERYONE);
    }
    if name.eq_ignore_ascii_case("Administrators") {
        return Some(Sid::BUILTIN_ADMINISTRATORS);
    }
    accounts.principal(name).map(|s| identity::sid_of(&s)).or_else(|| name.parse().ok())
}

#[cfg(test)]
mod tests {
    use smb_auth::mechanism::Account;

    use super::*;

    struct Accounts;

    impl UserLookup for Accounts {
        fn lookup(&self, _: &str, _: &str) -> Option<Account> {
            None
        }

        fn principal(&self, name: &str) -> Option<smb_auth::sid::Sid> {
            let rid = ["alice", "bob", "staff"].iter().position(|n| *n == name)? as u32;
            Some(smb_auth::sid::Sid::machine([1, 2, 3]).account(1000 + rid))
        }
    }

    /// A user with these names; every user is in "Everyone".
    fn user(names: &[&str]) -> User {
        let mut sids = names.iter().map(|n| principal(n, &Accounts).expect("known"));
        let sid = sids.next().expect("one name");
        let groups = sids.chain([Sid::EVERYONE]).collect();
        User { name: String::new(), workstation: String::new(), sid, groups }
    }

    fn share(grants: &[(&str, ShareLevel)]) -> ShareProtection {
        let grants = grants.iter().map(|(name, level)| ShareGrant { name: (*name).into(), level: *level });
        ShareProtection { grants: Some(grants.collect()), access_based_enumeration: false }
    }

    #[test]
    fn levels() {
        use ShareLevel as L;
        let (alice, bob) = (user(&["alice", "staff"]), user(&["bob"]));
        let granted =
            |s: &ShareProtection| [s.granted(&alice, &Accounts).bits(), s.granted(&bob, &Accounts).bits()];
        let (read, change, full) = (0x0012_00A9, 0x0013_01BF, 0x001F_01FF);
        assert_eq!(granted(&ShareProtection::default()), [full, full], "no list");
        assert_eq!(granted(&share(&[])), [0, 0], "an empty list");
        assert_eq!(granted(&share(&[("alice", L::Read)])), [read, 0]);
        assert_eq!(granted(&share(&[("everyone", L::Read), ("staff", L::Change)])), [change, read]);
        assert_eq!(
            granted(&share(&[("Everyone", L::Full), ("bob", L::Deny)])),
            [full, 0],
            "denials come first"
        );
        let sid = "S-1-5-21-1-2-3-1001";
        assert_eq!(granted(&share(&[(sid, L::Full), ("nobody", L::Deny)])), [0, full]);
    }
}
