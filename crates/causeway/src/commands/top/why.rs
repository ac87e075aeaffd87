//! Why a session has no SMB Direct channel, as far as the server knows, with the cure.

use crate::control::types::{ServerStatus, SessionStatus};

/// Returns `None` if the session has one. Some reasons are known only to the client, and are not found here.
pub(super) fn why_not_rdma(server: &ServerStatus, session: &SessionStatus) -> Option<String> {
    if session.channels.iter().any(|c| c.transport == "rdma") {
        return None;
    }
    let why = if !server.listeners.iter().any(|l| l.transport == "iwarp") {
        "the server has no SMB Direct listener: set iwarp in [server]"
    } else if session.dialect.starts_with('2') {
        // MS-SMB2 3.3.5.4: SMB2_GLOBAL_CAP_MULTI_CHANNEL exists from 3.0 on.
        return Some(format!("dialect {} has no SMB Direct, which needs dialect 3.0", session.dialect));
    } else if session.encrypted {
        "the session is encrypted, but RDMA would not encrypt its payload"
    } else if server.announces_rdma == Some(false) {
        "not announced to clients: set announce_rdma in [server]"
    } else {
        "the client did not use it (causeway stat on the client shows why)"
    };
    Some(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{sample, session};
    use super::*;

    #[test]
    fn the_first_reason_that_holds() {
        let mut server = sample(0).server;
        let mut s = session(1, &["rdma", "tcp"]);
        assert_eq!(why_not_rdma(&server, &s), None);
        s = session(1, &["tcp"]);
        let why = |server: &ServerStatus, s: &SessionStatus| {
            let why = why_not_rdma(server, s).expect("there is none");
            assert!(why.len() <= 80 - "  └ no RDMA: ".chars().count(), "{why}: it fits on a small screen");
            why
        };
        assert!(why(&server, &s).starts_with("the client did not"));
        server.announces_rdma = Some(false);
        assert!(why(&server, &s).contains("announce_rdma"));
        s.encrypted = true;
        assert!(why(&server, &s).contains("encrypted"));
        s.dialect = "2.1".to_owned();
        assert_eq!(why(&server, &s), "dialect 2.1 has no SMB Direct, which needs dialect 3.0");
        server.listeners.retain(|l| l.transport == "tcp");
        assert!(why(&server, &s).contains("set iwarp"));
    }
}
