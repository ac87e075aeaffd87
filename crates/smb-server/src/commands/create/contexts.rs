//! Create contexts (MS-SMB2 2.2.13.2, 2.2.14.2): what a request asks for beside the open, and what is answered.
//!
//! Leases, durable and persistent handles, application instances, Apple's and the POSIX extensions are not there yet:
//! their contexts are ignored as those of a server without them (MS-SMB2 3.3.5.9), which grants nothing. Reconnecting
//! a durable handle finds none.

use smb_wire::context::{
    CreateContexts, CreateContextsBuf, CreateRequestContext, CreateResponseContext, DiskId, MaximalAccess,
};
use smb_wire::fscc::FullEas;
use smb_wire::{AccessMask, FileTime, NtStatus};
use vfs::{ExtendedAttribute, NodeId};

/// What the contexts of a request ask for.
#[derive(Default)]
pub(super) struct Wanted {
    pub(super) extended_attributes: Vec<ExtendedAttribute>,
    /// Self-relative, as sent; judged by `access`.
    pub(super) security: Option<Vec<u8>>,
    /// Bytes to reserve for a file that is created or overwritten.
    pub(super) allocation: Option<u64>,
    /// Maximal access, unless the file was last changed at the time given.
    pub(super) maximal_access: Option<Option<FileTime>>,
    pub(super) disk_id: bool,
}

/// Reads the contexts.
///
/// # Errors
/// INVALID_PARAMETER for a broken list, OBJECT_NAME_NOT_FOUND for a snapshot or a durable handle, which do not exist.
pub(super) fn read(contexts: CreateContexts<'_>) -> Result<Wanted, NtStatus> {
    let mut w = Wanted::default();
    for context in contexts.requests() {
        match context.map_err(|_| NtStatus::INVALID_PARAMETER)? {
            CreateRequestContext::ExtendedAttributes(bytes) => {
                w.extended_attributes = read_attributes(bytes)?
            }
            CreateRequestContext::SecurityDescriptor(bytes) => w.security = Some(bytes.to_vec()),
            CreateRequestContext::AllocationSize(bytes) => {
                // A signed number that is not negative: what Windows' NtCreateFile says of others.
                if bytes > i64::MAX as u64 {
                    return Err(NtStatus::INVALID_PARAMETER);
                }
                w.allocation = Some(bytes);
            }
            CreateRequestContext::MaximalAccess(since) => w.maximal_access = Some(since),
            CreateRequestContext::QueryOnDiskId => w.disk_id = true,
            // MS-SMB2 3.3.5.9.4: no snapshot of that time.
            CreateRequestContext::Timewarp(_) => return Err(NtStatus::OBJECT_NAME_NOT_FOUND),
            // MS-SMB2 3.3.5.9.7, 3.3.5.9.12: no such open.
            CreateRequestContext::DurableReconnect(_) | CreateRequestContext::DurableReconnectV2(_) => {
                return Err(NtStatus::OBJECT_NAME_NOT_FOUND);
            }
            CreateRequestContext::Durable
            | CreateRequestContext::DurableV2(_)
            | CreateRequestContext::Lease(_)
            | CreateRequestContext::AppInstanceId(_)
            | CreateRequestContext::AppInstanceVersion(_)
            | CreateRequestContext::SvhdxOpenDevice(_)
            | CreateRequestContext::Aapl(_)
            | CreateRequestContext::Posix(_)
            | CreateRequestContext::Unknown(_) => {}
        }
    }
    Ok(w)
}

/// Reads a list of extended attributes (MS-FSCC 2.4.16).
///
/// # Errors
/// EA_LIST_INCONSISTENT, INVALID_EA_NAME, as NTFS says.
pub(crate) fn read_attributes(bytes: &[u8]) -> Result<Vec<ExtendedAttribute>, NtStatus> {
    let mut list = Vec::new();
    for ea in FullEas::new(bytes) {
        let ea = ea.map_err(|_| NtStatus::EA_LIST_INCONSISTENT)?;
        if ea.name.is_empty() || ea.name.iter().any(|b| *b < 0x20 || b"\"*+,/:;<=>?[\\]|".contains(b)) {
            return Err(NtStatus::INVALID_EA_NAME);
        }
        list.push(ExtendedAttribute {
            flags: ea.flags.bits(),
            name: ea.name.to_vec(),
            value: ea.value.to_vec(),
        });
    }
    Ok(list)
}

/// Facts for the answer.
pub(super) struct Facts {
    pub(super) maximal: Option<AccessMask>,
    pub(super) written: FileTime,
    pub(super) id: NodeId,
}

/// The contexts of the answer.
pub(super) fn answer(wanted: &Wanted, facts: &Facts) -> CreateContextsBuf {
    let mut buf = CreateContextsBuf::new();
    let mut put = |context: CreateResponseContext<'_>| {
        buf.response(&context).expect("a fixed size fits");
    };
    if let (Some(since), Some(access)) = (wanted.maximal_access, facts.maximal) {
        // MS-SMB2 3.3.5.9.5: the client has it already when the file has not changed since.
        let known = since.is_some_and(|t| t.0 != 0 && t == facts.written);
        let (query_status, access) =
            if known { (NtStatus::NONE_MAPPED, AccessMask::empty()) } else { (NtStatus::SUCCESS, access) };
        put(CreateResponseContext::MaximalAccess(MaximalAccess { query_status, access }));
    }
    if wanted.disk_id {
        put(CreateResponseContext::OnDiskId(DiskId {
            disk_file_id: facts.id.file,
            volume_id: facts.id.volume,
        }));
    }
    buf
}
