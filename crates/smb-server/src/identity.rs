//! The user of a session.

use smb_auth::mechanism::{Identity, Membership};
use smb_wire::security::Sid;

use crate::access::{nfs, posix};

/// The user of a session, with the SIDs of its access token.
#[derive(Clone, Debug)]
pub(crate) struct User {
    /// The name with which the user authenticated.
    pub(crate) name: String,
    /// The client's name, as it gave it.
    pub(crate) workstation: String,
    /// The user's own SID.
    pub(crate) sid: Sid,
    /// All others in the token: Everyone, Network, Authenticated Users, …
    pub(crate) groups: Vec<Sid>,
}

impl User {
    /// The token of an account that logged on over the network (MS-DTYP 2.4.2.4 for the well-known SIDs): with its
    /// local groups, and the SIDs of the machine's user and groups that it is mapped to.
    pub(crate) fn new(identity: Identity, membership: &Membership) -> User {
        let sid = sid_of(&identity.sid);
        let known = |authority, sub: &[u32]| Sid::new(authority, sub).expect("short and constant");
        let mut groups = vec![
            known(1, &[0]),       // Everyone
            known(5, &[2]),       // Network
            known(5, &[11]),      // Authenticated Users
            known(5, &[32, 545]), // BUILTIN\Users
        ];
        groups.extend(membership.groups.iter().map(sid_of));
        groups.extend(membership.uid.into_iter().flat_map(|uid| [posix::user_sid(uid), nfs::owner(uid)]));
        groups.extend(membership.gids.iter().flat_map(|gid| [posix::group_sid(*gid), nfs::group(*gid)]));
        User { name: identity.user, workstation: identity.workstation, sid, groups }
    }

    /// Whether this is the same account.
    pub(crate) fn is_account(&self, identity: &Identity) -> bool {
        self.sid == sid_of(&identity.sid)
    }
}

/// Converts an account's SID to the type of descriptors.
pub(crate) fn sid_of(sid: &smb_auth::sid::Sid) -> Sid {
    Sid::decode(&sid.to_bytes()).expect("an account's SID is well-formed")
}
