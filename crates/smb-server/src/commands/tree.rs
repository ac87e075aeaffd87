//! TREE_CONNECT (MS-SMB2 3.3.5.7) and TREE_DISCONNECT (3.3.5.8).

use std::sync::Arc;

use smb_wire::msg::{
    Capabilities, ShareCapabilities, ShareFlags, ShareType, TreeConnectRequest, TreeConnectResponse,
    TreeDisconnectRequest, TreeDisconnectResponse,
};
use smb_wire::{AccessMask, Decode, NtStatus};

use crate::connection::Outcome;
use crate::request::{ConnectionFacts, Reply};
use crate::server::Server;
use crate::session::Session;
use crate::share::{Share, Tree};

/// Everything a user may do with files and directories: FILE_ALL_ACCESS.
const ALL_ACCESS: u32 = 0x001F_01FF;
/// The maximal access on a read-only share: FILE_GENERIC_READ and FILE_GENERIC_EXECUTE.
const READ_ACCESS: u32 = 0x0012_00A9;

pub(crate) fn connect(
    server: &Arc<Server>,
    facts: &ConnectionFacts,
    session: &Arc<Session>,
    message: &[u8],
    encrypted: bool,
) -> Outcome {
    match try_connect(server, facts, session, message, encrypted) {
        Ok(reply) => Outcome::Reply(reply),
        Err(status) => status.into(),
    }
}

fn try_connect(
    server: &Arc<Server>,
    facts: &ConnectionFacts,
    session: &Arc<Session>,
    message: &[u8],
    encrypted: bool,
) -> Result<Reply, NtStatus> {
    let q = TreeConnectRequest::decode(message).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let path = q.path.to_string().map_err(|_| NtStatus::BAD_NETWORK_NAME)?;
    let name = share_name(&path).ok_or(NtStatus::BAD_NETWORK_NAME)?;
    let share = server.share(name).ok_or(NtStatus::BAD_NETWORK_NAME)?;
    // MS-SMB2 3.3.5.7: a share that requires encryption refuses clients without it.
    if share.encrypt && session.ciphers.is_none() {
        tracing::warn!(peer = %facts.peer, user = ?session.user.name, share = ?share.name,
            "tree connect refused: the share requires encryption and the client offers none (SMB 3.0 or later is needed)");
        return Err(NtStatus::ACCESS_DENIED);
    }
    if session.encrypt && !encrypted {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let ceiling = if share.read_only { READ_ACCESS } else { ALL_ACCESS };
    let maximal = ceiling & share.protection.read().granted(&session.user, &*server.users).bits();
    // MS-SMB2 3.3.5.7: a user who is granted nothing does not connect.
    if share.vfs().is_some() && maximal == 0 {
        tracing::info!(peer = %facts.peer, user = ?session.user.name, share = ?share.name,
            "tree connect refused: the share's permission grants the user no access (causeway share set-acl)");
        return Err(NtStatus::ACCESS_DENIED);
    }
    let tree = session
        .add_tree(server.config.limits.trees_per_session, |id| Tree::new(id, Arc::clone(&share), maximal))
        .ok_or(NtStatus::INSUFFICIENT_RESOURCES)?;
    Ok(Reply::ok(&response(facts, &share, maximal)).with(|extra| extra.tree_id = Some(tree.id)))
}

fn response(facts: &ConnectionFacts, share: &Share, maximal: u32) -> TreeConnectResponse {
    let mut flags = ShareFlags::empty();
    let share_type = match share.vfs() {
        Some(_) => ShareType::DISK,
        None => {
            // Pipes cannot be cached offline.
            flags |= ShareFlags::CACHING_MASK;
            ShareType::PIPE
        }
    };
    if share.encrypt {
        flags |= ShareFlags::ENCRYPT_DATA;
    }
    if share.protection.read().access_based_enumeration {
        flags |= ShareFlags::ACCESS_BASED_DIRECTORY_ENUM;
    }
    // MS-SMB2 3.3.5.7: only if the connection has the capability; otherwise clients would request handles in vain.
    let persistent = facts.server_capabilities & Capabilities::PERSISTENT_HANDLES.bits() != 0;
    let mut capabilities = ShareCapabilities::empty();
    capabilities.set(ShareCapabilities::CONTINUOUS_AVAILABILITY, share.continuous && persistent);
    TreeConnectResponse {
        share_type,
        share_flags: flags,
        capabilities,
        maximal_access: AccessMask::from_bits_retain(maximal),
    }
}

/// The last component of `\\server\share`. The server's part may be any of its names.
fn share_name(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("\\\\")?;
    let (host, share) = rest.split_once('\\')?;
    (!host.is_empty() && !share.is_empty() && !share.contains('\\')).then_some(share)
}

pub(crate) fn disconnect(
    server: &Arc<Server>,
    session: &Arc<Session>,
    tree: &Arc<Tree>,
    message: &[u8],
) -> Outcome {
    if TreeDisconnectRequest::decode(message).is_err() {
        return NtStatus::INVALID_PARAMETER.into();
    }
    if session.remove_tree(tree.id).is_none() {
        return NtStatus::NETWORK_NAME_DELETED.into();
    }
    tree.leave();
    let closing = server.close_opens_of(session, tree);
    Outcome::Pending(Box::pin(async move {
        closing.await;
        Reply::ok(&TreeDisconnectResponse {})
    }))
}

#[cfg(test)]
mod tests {
    use super::share_name;

    #[test]
    fn names() {
        assert_eq!(share_name("\\\\srv\\files"), Some("files"));
        assert_eq!(share_name("\\\\10.0.0.1\\IPC$"), Some("IPC$"));
        for bad in ["files", "\\srv\\files", "\\\\srv", "\\\\srv\\", "\\\\\\x", "\\\\srv\\a\\b"] {
            assert_eq!(share_name(bad), None, "{bad}");
        }
    }
}
