//! Who a session acts for.

use smb_auth::mechanism::Identity;
use smb_wire::security::Sid;

/// The user of a session, with the SIDs of its access token.
#[derive(Clone, Debug)]
pub(crate) struct User {
    /// As authenticated.
    pub(crate) name: String,
    /// The client's name, as it gave it.
    pub(crate) workstation: String,
    /// The user's own SID.
    pub(crate) sid: Sid,
    /// All others in the token: Everyone, Network, Authenticated Users, …
    pub(crate) groups: Vec<Sid>,
}

impl User {
    /// The token of somebody who logged on over the network (MS-DTYP 2.4.2.4 for the well-known SIDs).
    pub(crate) fn new(identity: Identity) -> User {
        let sid = sid_of(&identity);
        let known = |authority, sub: &[u32]| Sid::new(authority, sub).expect("short and constant");
        let groups = vec![
            known(1, &[0]),       // Everyone
            known(5, &[2]),       // Network
            known(5, &[11]),      // Authenticated Users
            known(5, &[32, 545]), // BUILTIN\Users
        ];
        User { name: identity.user, workstation: identity.workstation, sid, groups }
    }

    /// Whether this is the same account.
    pub(crate) fn is_account(&self, identity: &Identity) -> bool {
        self.sid == sid_of(identity)
    }
}

fn sid_of(identity: &Identity) -> Sid {
    Sid::decode(&identity.sid.to_bytes()).expect("the user file's SIDs are well-formed")
}
