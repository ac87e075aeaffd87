//! Create contexts (MS-SMB2 2.2.13.2, 2.2.14.2): what a request asks for in addition to the open, and the contexts of
//! the response.
//!
//! The context of POSIX extensions is honoured where they were negotiated. A Mac's `AAPL` is answered with the server's
//! capabilities: it is Unix-based, and its listings have a Mac's attributes where files have named streams.

use smb_wire::context::{
    AaplAnswer, AaplCapabilities, AaplCommand, AaplParts, AaplQuery, AaplVolumeCapabilities, CreateContexts,
    CreateContextsBuf, CreateRequestContext, CreateResponseContext, DiskId, DurableReconnectV2,
    DurableRequestV2, DurableResponseV2, Lease, LeaseFlags, LeaseV2, MaximalAccess,
};
use smb_wire::fscc::{FullEas, PosixCreateRequest, PosixCreateResponse};
use smb_wire::{AccessMask, FileId, FileTime, NtStatus, Utf16Buf};
use vfs::{ExtendedAttribute, FileKey, SnapshotTime};

use crate::commands::metadata::timestamp;
use crate::files::caching::{HolderState, LeaseId, LeaseVersion};
use crate::open::AppInstance;

/// The requests in the contexts of a CREATE.
#[derive(Default)]
pub(super) struct RequestedContexts {
    pub(super) extended_attributes: Vec<ExtendedAttribute>,
    /// Self-relative, as sent; validated by `access`.
    pub(super) security: Option<Vec<u8>>,
    /// Bytes to reserve for a file that is created or overwritten.
    pub(super) allocation: Option<u64>,
    /// Maximal access, unless the file was last changed at the time given.
    pub(super) maximal_access: Option<Option<FileTime>>,
    pub(super) disk_id: bool,
    /// The time of the snapshot to open the file in.
    pub(super) snapshot: Option<SnapshotTime>,
    pub(super) lease: Option<Lease>,
    /// A durable handle of version 1.
    pub(super) durable: bool,
    pub(super) durable_v2: Option<DurableRequestV2>,
    pub(super) reconnect: Option<Reconnect>,
    pub(super) app_instance: Option<AppInstance>,
    /// POSIX extensions, with the mode of a new file.
    pub(super) posix: Option<u32>,
    /// The query of a Mac.
    pub(super) aapl: Option<AaplQuery>,
}

/// The durable open that a client reconnects to.
#[derive(Clone, Copy)]
pub(super) enum Reconnect {
    V1(FileId),
    V2(DurableReconnectV2),
}

/// Reads the contexts.
///
/// # Errors
/// INVALID_PARAMETER for a broken list and for contexts that exclude each other.
pub(super) fn read(contexts: CreateContexts<'_>, posix: bool) -> Result<RequestedContexts, NtStatus> {
    let mut w = RequestedContexts::default();
    let (mut app_id, mut app_version) = (None, None);
    for context in contexts.requests() {
        match context.map_err(|_| NtStatus::INVALID_PARAMETER)? {
            CreateRequestContext::ExtendedAttributes(bytes) => {
                w.extended_attributes = read_attributes(bytes)?
            }
            CreateRequestContext::SecurityDescriptor(bytes) => w.security = Some(bytes.to_vec()),
            CreateRequestContext::AllocationSize(bytes) => {
                // The size is a non-negative signed number: Windows' NtCreateFile refuses others with this status.
                if bytes > i64::MAX as u64 {
                    return Err(NtStatus::INVALID_PARAMETER);
                }
                w.allocation = Some(bytes);
            }
            CreateRequestContext::MaximalAccess(since) => w.maximal_access = Some(since),
            CreateRequestContext::QueryOnDiskId => w.disk_id = true,
            CreateRequestContext::Timewarp(at) => w.snapshot = Some(SnapshotTime::at(timestamp(at))),
            CreateRequestContext::DurableReconnect(id) => w.set_reconnect(Reconnect::V1(id))?,
            CreateRequestContext::DurableReconnectV2(q) => w.set_reconnect(Reconnect::V2(q))?,
            CreateRequestContext::Durable => w.durable = true,
            CreateRequestContext::DurableV2(q) => w.durable_v2 = Some(q),
            CreateRequestContext::Lease(lease) => w.lease = Some(lease),
            CreateRequestContext::AppInstanceId(id) => app_id = Some(id),
            CreateRequestContext::AppInstanceVersion(v) => app_version = Some((v.high, v.low)),
            CreateRequestContext::Posix(bytes) if posix => {
                let q = PosixCreateRequest::decode(bytes).map_err(|_| NtStatus::INVALID_PARAMETER)?;
                w.posix = Some(q.mode);
            }
            CreateRequestContext::Aapl(bytes) => w.aapl = Some(read_aapl(bytes)?),
            CreateRequestContext::SvhdxOpenDevice(_)
            | CreateRequestContext::Posix(_)
            | CreateRequestContext::Unknown(_) => {}
        }
    }
    w.app_instance = app_id.map(|id| AppInstance { id, version: app_version });
    // MS-SMB2 3.3.5.9.6, 3.3.5.9.7, 3.3.5.9.10, 3.3.5.9.12: of these, each excludes the others; but a request of version 1
    // beside a reconnect of version 1 is ignored.
    let v2 = w.durable_v2.is_some() && (w.durable || w.reconnect.is_some());
    let reconnect_v2 = matches!(w.reconnect, Some(Reconnect::V2(_))) && w.durable;
    if v2 || reconnect_v2 { Err(NtStatus::INVALID_PARAMETER) } else { Ok(w) }
}

/// Decodes the query of a Mac. As with Samba, any command but a server query fails the CREATE: clients send the other
/// commands only to servers that announced them.
fn read_aapl(bytes: &[u8]) -> Result<AaplQuery, NtStatus> {
    match AaplQuery::decode(bytes) {
        Ok(q) if q.command == AaplCommand::SERVER_QUERY && bytes.len() == AaplQuery::LEN => Ok(q),
        _ => Err(NtStatus::INVALID_PARAMETER),
    }
}

impl RequestedContexts {
    /// Whether a Mac asks for its attributes in listings.
    pub(super) fn wants_mac_listings(&self) -> bool {
        self.aapl.is_some_and(|q| {
            q.parts.contains(AaplParts::SERVER_CAPABILITIES)
                && q.client.contains(AaplCapabilities::READ_DIRECTORY_ATTRIBUTES)
        })
    }

    fn set_reconnect(&mut self, reconnect: Reconnect) -> Result<(), NtStatus> {
        if self.reconnect.replace(reconnect).is_some() { Err(NtStatus::INVALID_PARAMETER) } else { Ok(()) }
    }
}

/// Reads a list of extended attributes (MS-FSCC 2.4.16).
///
/// # Errors
/// EA_LIST_INCONSISTENT, INVALID_EA_NAME, as NTFS.
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

/// The model of machine that a Mac shows.
const MODEL: &str = "Causeway";

/// Data for the contexts of the response.
pub(super) struct Facts {
    pub(super) maximal: Option<AccessMask>,
    pub(super) written: FileTime,
    pub(super) id: FileKey,
    /// The lease that the open belongs to.
    pub(super) lease: Option<(LeaseId, HolderState)>,
    pub(super) durable: Option<DurableAnswer>,
    pub(super) posix: Option<PosixCreateResponse>,
    /// Listings have a Mac's attributes.
    pub(super) mac_listings: bool,
}

/// A durable handle that was granted.
#[derive(Clone, Copy)]
pub(super) enum DurableAnswer {
    V1,
    V2(DurableResponseV2),
}

/// The contexts of the answer.
pub(super) fn answer(requested: &RequestedContexts, facts: &Facts) -> CreateContextsBuf {
    let mut buf = CreateContextsBuf::new();
    let mut put = |context: CreateResponseContext<'_>| {
        buf.response(&context).expect("a fixed size fits");
    };
    if let (Some(since), Some(access)) = (requested.maximal_access, facts.maximal) {
        // MS-SMB2 3.3.5.9.5: the client already knows its access if the file has not changed since.
        let known = since.is_some_and(|t| t.0 != 0 && t == facts.written);
        let (query_status, access) =
            if known { (NtStatus::NONE_MAPPED, AccessMask::empty()) } else { (NtStatus::SUCCESS, access) };
        put(CreateResponseContext::MaximalAccess(MaximalAccess { query_status, access }));
    }
    if requested.disk_id {
        put(CreateResponseContext::OnDiskId(DiskId {
            disk_file_id: facts.id.number(),
            volume_id: facts.id.serial(),
        }));
    }
    if let Some((id, held)) = facts.lease {
        put(CreateResponseContext::Lease(lease(id, held)));
    }
    match facts.durable {
        Some(DurableAnswer::V1) => put(CreateResponseContext::Durable),
        Some(DurableAnswer::V2(answer)) => put(CreateResponseContext::DurableV2(answer)),
        None => {}
    }
    if let Some(query) = requested.aapl {
        let model = Utf16Buf::from(MODEL);
        let asked = |part| query.parts.contains(part);
        let mut server = AaplCapabilities::UNIX_BASED;
        server.set(AaplCapabilities::READ_DIRECTORY_ATTRIBUTES, facts.mac_listings);
        let data = AaplAnswer {
            server: asked(AaplParts::SERVER_CAPABILITIES).then_some(server),
            // No flags: names are case-insensitive.
            volume: asked(AaplParts::VOLUME_CAPABILITIES).then_some(AaplVolumeCapabilities::empty()),
            model: asked(AaplParts::MODEL).then_some(model.as_utf16()),
        };
        let mut bytes = Vec::new();
        data.encode(&mut bytes).expect("a short model");
        put(CreateResponseContext::Aapl(&bytes));
    }
    if let Some(posix) = facts.posix {
        let mut data = Vec::with_capacity(posix.len());
        posix.encode(&mut data);
        put(CreateResponseContext::Posix(&data));
    }
    buf
}

/// MS-SMB2 2.2.14.2.10, 2.2.14.2.11.
fn lease(id: LeaseId, held: HolderState) -> Lease {
    let mut flags = LeaseFlags::empty();
    flags.set(LeaseFlags::BREAK_IN_PROGRESS, held.breaking);
    let v2 = match held.version {
        LeaseVersion::V1 => None,
        LeaseVersion::V2 { parent, epoch } => {
            flags.set(LeaseFlags::PARENT_LEASE_KEY_SET, parent.is_some());
            Some(LeaseV2 { parent_lease_key: parent.unwrap_or_default(), epoch })
        }
    };
    Lease { key: id.key, state: held.state, flags, v2 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(bytes: &[u8]) -> Result<RequestedContexts, NtStatus> {
        let mut contexts = CreateContextsBuf::new();
        contexts.request(&CreateRequestContext::Aapl(bytes)).expect("short");
        read(contexts.as_contexts(), false)
    }

    #[test]
    fn a_mac_learns_what_it_asks_for() {
        let facts = Facts {
            maximal: None,
            written: FileTime::default(),
            id: FileKey { volume: 1, file: 1 },
            lease: None,
            durable: None,
            posix: None,
            mac_listings: false,
        };
        for parts in 0..8 {
            let mut query = Vec::new();
            let parts = AaplParts::from_bits_retain(parts);
            let (command, client) = (AaplCommand::SERVER_QUERY, AaplCapabilities::from_bits_retain(15));
            AaplQuery { command, parts, client }.encode(&mut query);
            let contexts = answer(&asked(&query).expect("a query"), &facts);
            let answers: Vec<_> = contexts.as_contexts().responses().collect();
            let [Ok(CreateResponseContext::Aapl(bytes))] = answers[..] else { panic!("{answers:?}") };
            let a = AaplAnswer::decode(bytes).expect("ours");
            let given = (a.server.is_some(), a.volume.is_some(), a.model.is_some());
            let all = [AaplParts::SERVER_CAPABILITIES, AaplParts::VOLUME_CAPABILITIES, AaplParts::MODEL];
            assert_eq!(given, all.map(|p| parts.contains(p)).into());
            assert_eq!(a.server.unwrap_or(AaplCapabilities::UNIX_BASED), AaplCapabilities::UNIX_BASED);
        }
    }

    #[test]
    fn what_is_no_query() {
        let query = [1u8, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 15, 0, 0, 0, 0, 0, 0, 0];
        let mut resolve = query;
        resolve[0] = 2;
        for bad in [&query[..23], &resolve, &[], &[&query[..], &[0]].concat()] {
            assert_eq!(asked(bad).err(), Some(NtStatus::INVALID_PARAMETER), "{bad:?}");
        }
    }
}
