//! Opens in a snapshot of the share (MS-SMB2 3.3.5.9.4): previous versions of files.

use std::sync::Arc;

use smb_wire::NtStatus;
use smb_wire::msg::{CreateRequest, OplockLevel};
use vfs::SnapshotTime;

use super::contexts::RequestedContexts;
use crate::request::Request;
use crate::share::Share;
use crate::status;

/// Takes the first @GMT token out of a name: it is equivalent to SMB2_CREATE_TIMEWARP_TOKEN.
pub(super) fn take_token(name: String, requested: &mut RequestedContexts) -> String {
    let mut parts: Vec<&str> = name.split('\\').collect();
    let found = parts.iter().enumerate().find_map(|(i, part)| Some((i, SnapshotTime::parse(part)?)));
    let Some((i, at)) = found else { return name };
    parts.remove(i);
    requested.snapshot = requested.snapshot.or(Some(at));
    parts.join("\\")
}

/// Opens in a snapshot. A snapshot never changes, so its opens get no oplock or lease, and are closed with the
/// connection.
///
/// # Errors
/// OBJECT_NAME_NOT_FOUND if there is no snapshot of that time; other errors of the backend.
pub(super) async fn open(
    r: &Request,
    at: SnapshotTime,
    q: &mut CreateRequest<'_>,
    requested: &mut RequestedContexts,
) -> Result<Arc<Share>, NtStatus> {
    let share = r.tree.share.snapshot(&r.ctx(), at).await.map_err(status::of_vfs)?;
    q.oplock_level = OplockLevel::NONE;
    (requested.lease, requested.durable, requested.durable_v2, requested.app_instance) =
        (None, false, None, None);
    Ok(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_in_names() {
        let token = "@GMT-2015.10.31-19.40.30";
        for (name, rest) in [
            ("T", ""),
            ("T\\a\\b", "a\\b"),
            ("a\\T\\b", "a\\b"),
            ("a\\T", "a"),
            ("T\\T", token),
            ("aT\\b", "a@GMT-2015.10.31-19.40.30\\b"),
            ("a", "a"),
        ] {
            let mut requested = RequestedContexts::default();
            let name = name.replace('T', token);
            assert_eq!(take_token(name.clone(), &mut requested), rest);
            let expected = if name == rest { None } else { SnapshotTime::parse(token) };
            assert_eq!(requested.snapshot, expected, "{name}");
        }
    }
}
