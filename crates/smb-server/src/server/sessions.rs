//! Sessions by their ids; closing sessions and opens.

use std::net::SocketAddr;
use std::sync::Arc;

use super::Server;
use crate::commands::close::UnattachedOpen;
use crate::durable::SessionEnd;
use crate::session::Session;
use crate::share::Tree;

impl Server {
    /// Ends a session and closes its opens; `false` when there is none with that id.
    pub async fn close_session(self: &Arc<Self>, id: u64) -> bool {
        let Some(session) = self.sessions.lock().remove(&id) else { return false };
        self.end_session(&session, SessionEnd::Closed).await;
        true
    }

    /// Closes one open by the persistent half of its id, as an administrator; `false` when there is none.
    pub async fn close_open(self: &Arc<Self>, persistent: u64) -> bool {
        let Some(open) = self.opens.find(persistent) else { return false };
        let Some(open) = self.release(&open) else { return false };
        open.close().await;
        true
    }

    /// A random id for a new session, unique among the sessions that exist, never 0. It has 32 bits, as Samba's have:
    /// some clients store no more.
    pub(crate) fn new_session_id(self: &Arc<Self>) -> SessionId {
        self.vacant_id(|| u32::from_le_bytes(self.env.random()))
    }

    fn vacant_id(self: &Arc<Self>, mut candidate: impl FnMut() -> u32) -> SessionId {
        loop {
            let id = u64::from(candidate());
            let mut reserved = self.reserved_ids.lock();
            if id != 0 && !self.sessions.lock().contains_key(&id) && reserved.insert(id) {
                return SessionId { server: Arc::clone(self), id };
            }
        }
    }

    pub(crate) fn add_session(&self, session: Arc<Session>, peer: SocketAddr) {
        let (id, client) = (format!("{:016x}", session.id), peer.ip().to_canonical().to_string());
        let _ = session.counted.set(self.registry.sessions.open(&id, &[&id, &session.user.name, &client]));
        let before = self.sessions.lock().insert(session.id, session);
        assert!(before.is_none(), "a session's id was reserved for it");
    }

    pub(crate) fn session(&self, id: u64) -> Option<Arc<Session>> {
        self.sessions.lock().get(&id).cloned()
    }

    pub(crate) fn remove_session(&self, id: u64) -> Option<Arc<Session>> {
        self.sessions.lock().remove(&id)
    }

    /// Closes the opens of one tree connect. If the future is dropped, even unpolled, they are closed in the
    /// background.
    pub(crate) fn close_opens_of(
        self: &Arc<Self>,
        session: &Arc<Session>,
        tree: &Tree,
    ) -> impl Future<Output = ()> + Send + use<> {
        let opens = session.opens().into_iter().filter_map(|id| self.opens.find(id));
        let closing: Vec<UnattachedOpen> =
            opens.filter(|o| o.is_of_tree(tree.id)).filter_map(|o| self.release(&o)).collect();
        async move {
            for open in closing {
                open.close().await;
            }
        }
    }
}

/// See [`Server::new_session_id`].
pub(crate) struct SessionId {
    server: Arc<Server>,
    pub(crate) id: u64,
}

impl Drop for SessionId {
    fn drop(&mut self) {
        self.server.reserved_ids.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use crate::commands::tests::World;

    #[test]
    fn a_session_id_is_nobody_elses() {
        let world = World::new();
        let server = &world.server;
        let given = |candidates: &[u32]| {
            let mut left = candidates.iter().copied();
            server.vacant_id(|| left.next().expect("a vacant one is among them"))
        };
        let first = given(&[0, 7]);
        assert_eq!(first.id, 7);
        assert_eq!(given(&[7, 8]).id, 8, "the first is still being set up");
        world.join(7);
        drop(first);
        assert_eq!(given(&[7, 9]).id, 9, "the first is a session");
        server.remove_session(7);
        assert_eq!(given(&[7, 9]).id, 7);
    }
}
