//! The pre-authentication hashes of dialect 3.1.1 (MS-SMB2 3.3.5.4, 3.3.5.5): replies are hashed as they are sent.

use super::Engine;

/// The hash that a reply updates.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HashInto {
    Connection,
    /// The hash of an authentication in progress, by session id.
    Setup(u64),
}

impl Engine {
    /// Updates a hash with a message.
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
