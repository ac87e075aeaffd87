//! Reparse points on the way of a CREATE (MS-SMB2 3.3.5.9, MS-FSA 2.1.5.1). The server follows none: for a symbolic
//! link the client gets the target, and sends another CREATE; for all other reparse points it gets the status that the
//! server does not handle them.
//!
//! The tag of the last component is in the metadata of its open. A folder on the path that is a reparse point is empty,
//! so an open through it fails: only then are the components searched for one.

use smb_wire::NtStatus;
use smb_wire::ioctl::{ReparseTag, SymlinkReparse};
use smb_wire::msg::{CreateOptions, ErrorId, ErrorResponse, RawErrorContext, SymlinkError};
use vfs::{Attributes, OpenRequest, Opened, Stat, VfsPath};

use super::Plan;
use crate::access;
use crate::request::Reply;
use crate::status;

/// Checks whether an open may pass through or open a file with this metadata.
///
/// # Errors
/// STOPPED_ON_SYMLINK, IO_REPARSE_TAG_NOT_HANDLED.
pub(super) fn check_not_reparse_point(stat: &Stat) -> Result<(), NtStatus> {
    match ReparseTag(stat.reparse.tag) {
        _ if !stat.attributes.contains(Attributes::REPARSE_POINT) => Ok(()),
        ReparseTag::SYMLINK => Err(NtStatus::STOPPED_ON_SYMLINK),
        _ => Err(NtStatus::IO_REPARSE_TAG_NOT_HANDLED),
    }
}

impl Plan<'_> {
    /// Like [`check_not_reparse_point`], for the last component of the path: FILE_OPEN_REPARSE_POINT opens any reparse
    /// point.
    pub(super) fn check_last_component(&self, stat: &Stat) -> Result<(), NtStatus> {
        if self.opens_points() { Ok(()) } else { check_not_reparse_point(stat) }
    }

    /// Whether the CREATE opens a symbolic link of the backend itself, not its target. Clients that do not ask for
    /// links get the target: they could not follow a link.
    pub(super) fn shows_links(&self) -> bool {
        self.opens_points() || self.requested.posix.is_some()
    }

    fn opens_points(&self) -> bool {
        self.q.create_options.contains(CreateOptions::OPEN_REPARSE_POINT)
    }

    /// The reply of a CREATE that failed with `failed`. If there is a reparse point on its path, the reply reports that
    /// instead.
    pub(super) async fn refused(&self, failed: NtStatus) -> Reply {
        let last = self.path.components().len();
        // Lengths, in components, of the path prefixes that may be the reparse point.
        let depths = match failed {
            NtStatus::STOPPED_ON_SYMLINK | NtStatus::IO_REPARSE_TAG_NOT_HANDLED => 1..last + 1,
            NtStatus::OBJECT_PATH_NOT_FOUND => 1..last,
            NtStatus::OBJECT_NAME_NOT_FOUND if self.stream.is_some() => 1..last + 1,
            NtStatus::OBJECT_NAME_COLLISION => last..last + 1,
            _ => return Reply::error(failed),
        };
        for depth in depths {
            let Some(found) = self.open_beginning(depth).await else { break };
            // A user who may not pass the directories on the path does not learn that the name exists.
            if access::check_traversal(self.r, &found).is_err() {
                return Reply::error(if depth == last { NtStatus::ACCESS_DENIED } else { failed });
            }
            match check_not_reparse_point(&found.stat) {
                _ if depth == last && self.opens_points() => {}
                Ok(()) => {}
                Err(NtStatus::STOPPED_ON_SYMLINK) => {
                    let unparsed = self.text_behind(depth);
                    return self.stopped(&found, unparsed).await.unwrap_or_else(Reply::error);
                }
                Err(status) => return Reply::error(status),
            }
        }
        Reply::error(failed)
    }

    /// Opens the first `depth` components of the path.
    async fn open_beginning(&self, depth: usize) -> Option<Opened> {
        let above = |path: &VfsPath| path.parent().filter(|p| p.components().len() >= depth);
        let path = std::iter::successors(Some(self.path.clone()), above).last()?;
        let link = depth == self.path.components().len() && self.shows_links();
        let q = OpenRequest { link, ..OpenRequest::for_metadata(path) };
        self.vfs.open(&self.r.ctx(), q).wait().await.ok()
    }

    /// Length in bytes of the name after its first `depth` components; 0 after the last one.
    fn text_behind(&self, depth: usize) -> u16 {
        if depth >= self.path.components().len() {
            return 0;
        }
        let Ok(name) = self.q.name.to_string() else { return 0 };
        let end = name.match_indices(['\\', '/']).nth(depth - 1).map_or(name.len(), |(at, _)| at);
        // A path has no more than 32,760 units.
        u16::try_from(2 * name[end..].encode_utf16().count()).unwrap_or(u16::MAX)
    }

    /// MS-SMB2 2.2.2.2.1: the reply with a symbolic link's target; in 3.1.1 inside an error context (2.2.2.1).
    async fn stopped(&self, link: &Opened, unparsed_path_length: u16) -> Result<Reply, NtStatus> {
        let point = link.node.reparse_point(&self.r.ctx()).wait().await.map_err(status::of_vfs)?;
        let point = point.ok_or(NtStatus::NOT_A_REPARSE_POINT)?;
        let link = SymlinkReparse::decode(&point.data).map_err(|_| NtStatus::IO_REPARSE_DATA_INVALID)?;
        let mut data = Vec::new();
        let encoded = SymlinkError { unparsed_path_length, link }.encode(&mut data);
        encoded.map_err(|_| NtStatus::IO_REPARSE_DATA_INVALID)?;
        let mut error = ErrorResponse { context_count: 0, data: &data };
        let mut contexts = Vec::new();
        if self.r.facts.dialect >= 0x0311 {
            let context = RawErrorContext { id: ErrorId::DEFAULT, data: &data };
            context.encode(&mut contexts, 0).map_err(|_| NtStatus::INTERNAL_ERROR)?;
            error = ErrorResponse { context_count: 1, data: &contexts };
        }
        Ok(Reply::with_status(NtStatus::STOPPED_ON_SYMLINK, &error))
    }
}
