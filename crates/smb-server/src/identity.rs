//! Who a session acts for.

use smb_wire::security::Sid;

/// The user of a session, with the SIDs of its access token.
#[derive(Clone, Debug)]
pub(crate) struct User {
    /// As authenticated.
    pub(crate) name: String,
    /// As given by the client; local users have the server's name.
    pub(crate) domain: String,
    /// The client's name, as it gave it.
    pub(crate) workstation: String,
    /// The user's own SID.
    pub(crate) sid: Sid,
    /// All others in the token: Everyone, Network, Authenticated Users, …
    pub(crate) groups: Vec<Sid>,
}
