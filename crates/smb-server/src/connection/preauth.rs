//! The pre-authentication hashes of dialect 3.1.1 (MS-SMB2 3.3.5.4, 3.3.5.5): replies are taken into them as they are sent.

use super::Engine;

/// Which hash a reply is taken into.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HashInto {
    Connection,
    /// That of an authentication in progress, by session id.
    Setup(u64),
}

impl Engine {
    /// Takes a message into a hash.
    pub(super) fn hash(&mut self, into: HashInto, message: &[u8]) {
        match into {
            HashInto::Connection => self.preauth.update(&[message]),
            HashInto::Setup(id) => {
                if let Some(setup) = self.setups.get_mut(&id) {
                    setup.preauth.update(&[message]);
                }
            }
        }
    }
}
