//! CREATEs that open no file of the backend: pipes of IPC$, and the index of quotas.

use std::sync::Arc;

use smb_wire::msg::{CreateAction, CreateRequest, CreateResponse};
use smb_wire::{AccessMask, FileAttributes, FileId, NtStatus};

use crate::open::{Created, Open, OpenTarget, Owner, Sequence};
use crate::pipes::Pipe;
use crate::request::{Reply, Request};

/// Opens a pipe of IPC$ (MS-SMB2 3.3.5.9: the share is of type pipe).
pub(super) fn open_pipe(r: &Request, q: &CreateRequest<'_>, name: &str) -> Result<Reply, NtStatus> {
    let name = name.strip_prefix('\\').unwrap_or(name);
    let pipe = Pipe::open(&r.server, name, &r.session.user).ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
    let body = CreateResponse {
        allocation_size: 4096,
        file_attributes: FileAttributes::NORMAL,
        ..CreateResponse::default()
    };
    open_without_file(r, q, OpenTarget::Pipe(pipe), body)
}

/// Opens the quota index. There are no quotas, so it has no times and no data.
pub(super) fn open_quota_index(r: &Request, q: &CreateRequest<'_>) -> Result<Reply, NtStatus> {
    use FileAttributes as A;
    let body = CreateResponse {
        file_attributes: A::HIDDEN | A::SYSTEM | A::DIRECTORY | A::ARCHIVE,
        ..CreateResponse::default()
    };
    open_without_file(r, q, OpenTarget::QuotaIndex, body)
}

fn open_without_file(
    r: &Request,
    q: &CreateRequest<'_>,
    target: OpenTarget,
    body: CreateResponse<'_>,
) -> Result<Reply, NtStatus> {
    let slot = r.server.take_open_slot(&r.session.user, 1)?;
    let granted = match q.desired_access.map_generic() {
        a if a.contains(AccessMask::MAXIMUM_ALLOWED) => AccessMask::FILE_ALL_ACCESS,
        a => a,
    };
    let owner = Owner { session: Arc::clone(&r.session), tree: Arc::clone(&r.tree) };
    let id = FileId { persistent: r.server.opens.persistent_id(), volatile: r.server.opens.number() };
    let sequence = Sequence::new(r.header.channel_sequence());
    let open = Open::new(id, owner, granted.bits(), target, sequence, Created::default(), slot);
    r.server.opens.insert(Arc::new(open));
    if !r.session.add_open(id.persistent, &r.tree) {
        r.server.opens.remove(id.persistent);
        return Err(NtStatus::FILE_CLOSED);
    }
    let body = CreateResponse { create_action: CreateAction::OPENED, file_id: id, ..body };
    Ok(Reply::ok(&body).with(|extra| extra.file_id = Some(id)))
}
