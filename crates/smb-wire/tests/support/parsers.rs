//! Every parser of the crate, by family, for arbitrary bytes. No parser may panic and every list must end. A
//! decoded value must encode and decode to the same value. The property tests and the fuzz targets call these
//! functions.

use smb_wire::compression::Compressed;
use smb_wire::context::*;
use smb_wire::fscc::notify::{Change, ChangeList, Changes};
use smb_wire::fscc::*;
use smb_wire::ioctl::*;
use smb_wire::rpc::pdu::{self, Bind, BindAck, ContextResult, Pdu, PduType};
use smb_wire::rpc::{SyntaxId, lsarpc, samr, srvsvc, wkssvc};
use smb_wire::security::{Acl, SecurityDescriptor, SecurityDescriptorBuf, Sid};
use smb_wire::transform::TransformFields;
use smb_wire::{Command, Decode, HEADER_LEN, Header, HeaderFlags, NtStatus, WireError, compound, frame};
use smb_wire::{msg, smb1, smbd};

use super::recode::recode;

/// Collects the items of a list; checks that it ends after its first error.
fn drain<T>(items: impl Iterator<Item = Result<T, WireError>>) -> Vec<T> {
    let mut good = Vec::new();
    let mut items = items;
    while let Some(Ok(item)) = items.next() {
        good.push(item);
    }
    good
}

/// The transport's frame, headers, chains.
pub fn header_and_compound(bytes: &[u8]) {
    if let Some(first) = bytes.first_chunk::<4>()
        && let Ok(len) = frame::decode(*first)
    {
        assert_eq!(frame::encode(len), Ok(*first));
    }
    if let Ok(header) = Header::decode(bytes) {
        let mut again = Vec::new();
        header.encode(&mut again);
        assert_eq!(again, bytes[..HEADER_LEN]);
    }
    let messages = drain(compound::split(bytes));
    assert!(messages.len() <= compound::MAX_COMPOUND);
    let mut at = 0;
    for (_, range) in messages {
        assert_eq!(range.start, at);
        assert!(range.len() >= HEADER_LEN && range.end <= bytes.len());
        at = range.end;
    }
}

/// Requests: the first byte selects the command, the others are the body.
pub fn requests(bytes: &[u8]) {
    message(bytes, HeaderFlags::empty());
}

/// Responses: the first byte selects the command and whether it failed, the others are the body.
pub fn responses(bytes: &[u8]) {
    message(bytes, HeaderFlags::SERVER_TO_REDIR);
}

fn message(bytes: &[u8], flags: HeaderFlags) {
    let Some((&choice, body)) = bytes.split_first() else { return };
    let command = Command(u16::from(choice & 0x1F));
    let status = if choice & 0x80 != 0 { NtStatus::ACCESS_DENIED } else { NtStatus::SUCCESS };
    let mut wire = Vec::new();
    Header { command, flags, status, ..Header::default() }.encode(&mut wire);
    wire.extend_from_slice(body);
    let Ok(again) = recode(&wire) else { return };
    // A payload may be anywhere after the head, even over the channel information: encoding is then not idempotent.
    if command != Command::WRITE && command != Command::READ {
        assert_eq!(recode(&again), Ok(again.clone()));
    }
    if command == Command::CREATE && flags.is_empty() {
        create_contexts(msg::CreateRequest::decode(&wire).unwrap().contexts.as_bytes());
    }
    if status == NtStatus::ACCESS_DENIED
        && let Ok(error) = msg::ErrorResponse::decode(&wire)
    {
        drain(error.contexts());
        if let Ok(link) = msg::SymlinkError::decode(error.data) {
            let mut again = Vec::new();
            if link.encode(&mut again).is_ok() {
                assert_eq!(msg::SymlinkError::decode(&again), Ok(link));
            }
        }
    }
}

/// Create contexts of both directions.
pub fn create_contexts(bytes: &[u8]) {
    let contexts = CreateContexts::from_bytes(bytes);
    assert!(drain(contexts.raw()).len() <= MAX_CREATE_CONTEXTS);
    let mut buf = CreateContextsBuf::new();
    let mut list = Vec::new();
    for context in contexts.requests().flatten() {
        buf.request(&context).unwrap();
        list.push(context);
    }
    assert_eq!(drain(buf.as_contexts().requests()), list);
    let mut buf = CreateContextsBuf::new();
    let mut list = Vec::new();
    for context in contexts.responses().flatten() {
        buf.response(&context).unwrap();
        list.push(context);
    }
    assert_eq!(drain(buf.as_contexts().responses()), list);
}

/// Negotiate contexts: the first byte is the count.
pub fn negotiate_contexts(bytes: &[u8]) {
    let Some((&count, bytes)) = bytes.split_first() else { return };
    let Ok(contexts) = NegotiateContexts::from_bytes(bytes, count.into()) else { return };
    let mut buf = NegotiateContextsBuf::new();
    let raw = drain(contexts.raw());
    for context in &raw {
        buf.push(context.context_type, context.data).unwrap();
    }
    assert_eq!(drain(buf.as_contexts().raw()), raw);
    for context in contexts.iter().flatten() {
        match context {
            NegotiateContext::Preauth { hashes, .. } => assert_eq!(hashes.iter().len(), hashes.len()),
            NegotiateContext::Encryption(list) => assert_eq!(list.iter().len(), list.len()),
            NegotiateContext::Compression { algorithms, .. } => {
                assert_eq!(algorithms.iter().len(), algorithms.len())
            }
            NegotiateContext::Signing(list) => assert_eq!(list.iter().len(), list.len()),
            NegotiateContext::RdmaTransform(list) => assert_eq!(list.iter().len(), list.len()),
            NegotiateContext::NetName(name) => drop(name.to_string()),
            NegotiateContext::Transport(_) | NegotiateContext::Posix(_) | NegotiateContext::Unknown(_) => {}
        }
    }
}

/// A structure of fixed size: a decoded value must encode and decode to the same value.
macro_rules! fixed {
    ($bytes:expr, $($name:ty),* $(,)?) => {$(
        if let Ok(value) = <$name>::decode($bytes) {
            let mut again = Vec::new();
            value.encode(&mut again);
            assert_eq!(again.len(), <$name>::LEN);
            assert_eq!(<$name>::decode(&again), Ok(value));
        }
    )*};
}

/// A structure with a variable part, whose encoding may fail.
macro_rules! variable {
    ($bytes:expr, $($name:ty),* $(,)?) => {$(
        if let Ok(value) = <$name>::decode($bytes) {
            let mut again = Vec::new();
            value.encode(&mut again).unwrap();
            assert_eq!(<$name>::decode(&again), Ok(value));
        }
    )*};
}

/// Input and output of IOCTL.
pub fn ioctl_payloads(bytes: &[u8]) {
    fixed!(
        bytes,
        ValidateNegotiateResponse,
        ResumeKey,
        CopyChunkResponse,
        ZeroData,
        AllocatedRange,
        TrimResponse,
        GetIntegrity,
        SetIntegrity,
        DuplicateExtents,
        ObjectIdBuffer,
        ResiliencyRequest,
    );
    variable!(bytes, ValidateNegotiateRequest<'_>, CopyChunkRequest<'_>, FileLevelTrim<'_>, PipeWait<'_>);
    variable!(bytes, ReparseBuffer<'_>);
    if let Ok(link) = SymlinkReparse::decode(bytes) {
        let mut again = Vec::new();
        if link.encode(&mut again).is_ok() {
            assert_eq!(SymlinkReparse::decode(&again), Ok(link));
        }
    }
    if let Ok(peek) = PipePeek::decode(bytes) {
        let mut again = Vec::new();
        peek.encode(&mut again);
        assert_eq!(again, bytes);
    }
    if let Ok(snapshots) = SnapshotArray::decode(bytes) {
        snapshots.encode(&mut Vec::new());
    }
    if let Ok(ranges) = AllocatedRanges::from_bytes(bytes) {
        assert_eq!(ranges.iter().len(), ranges.len());
    }
    sparse_requested(bytes);
    let interfaces = drain(NetworkInterfaces::new(bytes));
    assert!(interfaces.len() <= MAX_INTERFACES);
    let mut again = Vec::new();
    put_interfaces(&mut again, &interfaces);
    assert_eq!(drain(NetworkInterfaces::new(&again)), interfaces);
}

/// File, directory and file system information: the first byte selects a directory class.
pub fn fscc(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else { return };
    fixed!(
        bytes,
        FileBasicInformation,
        FileStandardInformation,
        FileInternalInformation,
        FileEaInformation,
        FileAccessInformation,
        FilePositionInformation,
        FileModeInformation,
        FileAlignmentInformation,
        FileCompressionInformation,
        FileNetworkOpenInformation,
        FileAttributeTagInformation,
        FileDispositionInformation,
        FileDispositionInformationEx,
        FileEndOfFileInformation,
        FileAllocationInformation,
        FileValidDataLengthInformation,
        FileIdInformation,
        FileStandardLinkInformation,
        FilePipeInformation,
        FilePipeLocalInformation,
        FilePipeRemoteInformation,
        FsSizeInformation,
        FsFullSizeInformation,
        FsDeviceInformation,
        FsControlInformation,
        FsObjectIdInformation,
        FsSectorSizeInformation,
    );
    variable!(
        bytes,
        FileAllInformation<'_>,
        FileNameInformation<'_>,
        FileRenameInformation<'_>,
        FileRenameInformationEx<'_>,
        FileLinkInformation<'_>,
        FsVolumeInformation<'_>,
        FsLabelInformation<'_>,
        FsAttributeInformation<'_>,
    );
    let classes = [1, 2, 3, 12, 37, 38, 60, 63];
    directory(bytes, FileInfoClass(classes[usize::from(choice) % classes.len()]));

    let (mut again, eas) = (Vec::new(), drain(FullEas::new(bytes)));
    assert!(eas.len() <= MAX_EAS);
    let mut list = EaList::new(&mut again, usize::MAX);
    eas.iter().for_each(|ea| assert_eq!(list.push(ea), Ok(Fits::Yes)));
    assert_eq!(drain(FullEas::new(&again)), eas);

    let (mut again, names) = (Vec::new(), drain(GetEas::new(bytes)));
    let mut list = GetEaList::new(&mut again);
    names.iter().for_each(|name| list.push(name).unwrap());
    assert_eq!(drain(GetEas::new(&again)), names);

    assert!(drain(GetQuotas::new(bytes)).len() <= MAX_QUOTAS);

    let (mut again, streams) = (Vec::new(), drain(StreamEntries::new(bytes)));
    let mut list = StreamList::new(&mut again, usize::MAX);
    streams.iter().for_each(|stream: &StreamEntry<'_>| assert_eq!(list.push(stream), Ok(Fits::Yes)));
    assert_eq!(drain(StreamEntries::new(&again)), streams);

    let (mut again, changes) = (Vec::new(), drain(Changes::new(bytes)));
    let mut list = ChangeList::new(&mut again, usize::MAX);
    changes.iter().for_each(|change: &Change<'_>| assert_eq!(list.push(change), Ok(Fits::Yes)));
    assert_eq!(drain(Changes::new(&again)), changes);
}

fn directory(bytes: &[u8], class: FileInfoClass) {
    let entries = drain(DirectoryEntries::new(bytes, class).unwrap());
    let mut again = Vec::new();
    let mut list = DirectoryList::new(&mut again, class, usize::MAX).unwrap();
    entries.iter().for_each(|entry| assert_eq!(list.push(entry), Ok(Fits::Yes)));
    assert_eq!(drain(DirectoryEntries::new(&again, class).unwrap()), entries);
}

/// Security descriptors, lists, SIDs.
pub fn security(bytes: &[u8]) {
    if let Ok(sid) = Sid::decode(bytes) {
        let mut again = Vec::new();
        sid.encode(&mut again);
        assert_eq!(again, bytes[..sid.len()]);
        assert_eq!(sid.to_string().parse(), Ok(sid));
    }
    if let Ok(acl) = Acl::decode(bytes) {
        drain(acl.iter());
    }
    let Ok(descriptor) = SecurityDescriptor::decode(bytes) else { return };
    let _ = descriptor.check_entries();
    let kept = descriptor.to_buf();
    let mut again = Vec::new();
    kept.encode(&mut again);
    let read = SecurityDescriptor::decode(&again).unwrap();
    assert_eq!((read.owner, read.group), (descriptor.owner, descriptor.group));
    assert_eq!((read.sacl, read.dacl), (descriptor.sacl, descriptor.dacl));
    let mut other = SecurityDescriptorBuf::default();
    other.replace_parts(msg::SecurityInformation::all(), &read);
    assert_eq!((other.owner, other.dacl), (kept.owner, kept.dacl));
}

/// Headers that precede or replace a message.
pub fn transform(bytes: &[u8]) {
    if let Ok(fields) = TransformFields::decode_header(bytes) {
        let mut again = Vec::new();
        fields.encode_header(&mut again);
        again.extend_from_slice(&bytes[again.len()..]);
        assert_eq!(TransformFields::decode_header(&again), Ok(fields));
    }
    match Compressed::decode(bytes) {
        Ok(Compressed::Unchained { original_segment_size, algorithm, uncompressed, compressed }) => {
            let mut again = Vec::new();
            Compressed::encode_unchained(
                &mut again,
                original_segment_size,
                algorithm,
                uncompressed,
                compressed,
            )
            .unwrap();
            assert_eq!(again, bytes);
        }
        Ok(Compressed::Chained { original_segment_size, payloads }) => {
            let list = drain(payloads);
            let mut again = Vec::new();
            Compressed::encode_chained(&mut again, original_segment_size, &list).unwrap();
            if let Ok(Compressed::Chained { payloads, .. }) = Compressed::decode(&again) {
                assert_eq!(drain(payloads), list);
            }
        }
        Err(_) => {}
    }
    let _ = smb1::decode_negotiate(bytes);
}

/// SMB Direct.
pub fn smb_direct(bytes: &[u8]) {
    fixed!(
        bytes,
        smbd::NegotiateRequest,
        smbd::NegotiateResponse,
        smbd::DataTransfer,
        smbd::BufferDescriptor
    );
    let _ = smbd::decode_negotiate_request(bytes);
    if let Ok(head) = smbd::DataTransfer::decode(bytes)
        && let Ok(data) = head.data(bytes)
    {
        assert_eq!(data.len(), head.data_length as usize);
    }
    if let Ok(descriptors) = smbd::BufferDescriptors::from_bytes(bytes) {
        descriptors.total_length();
    }
}

/// RPC: the first byte selects an operation, and the other bytes are parsed as its stub and as a PDU.
pub fn rpc(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else { return };
    stub(choice.into(), bytes);
    let Ok(frame) = Pdu::decode(bytes) else { return };
    assert!(usize::from(frame.fragment_length) <= bytes.len());
    match frame.pdu_type {
        PduType::BIND | PduType::ALTER_CONTEXT => {
            let Ok(bind) = Bind::decode(frame.body) else { return };
            let offers = drain(bind.contexts());
            assert!(offers.len() <= pdu::MAX_CONTEXTS);
            let answers: Vec<_> =
                offers.iter().map(|o| ContextResult::answer(o, &[SyntaxId::SRVSVC])).collect();
            let mut out = Vec::new();
            BindAck::put(&mut out, PduType::BIND_ACK, frame.call_id, 4280, 1, r"\PIPE\srvsvc", &answers)
                .unwrap();
            let answer = Pdu::decode(&out).unwrap();
            assert_eq!(BindAck::decode(answer.body).unwrap().results().collect::<Vec<_>>(), answers);
        }
        PduType::BIND_ACK | PduType::ALTER_CONTEXT_RESP => {
            let _ = BindAck::decode(frame.body).map(|ack| ack.results().count());
        }
        PduType::REQUEST => {
            let Ok(request) = pdu::Request::decode(&frame) else { return };
            stub(request.opnum, request.stub);
        }
        PduType::RESPONSE => drop(pdu::response_stub(&frame)),
        PduType::FAULT => drop(pdu::fault_status(&frame)),
        _ => {}
    }
}

fn stub(opnum: u16, stub: &[u8]) {
    let _ = srvsvc::Request::decode(opnum, stub);
    let _ = wkssvc::Request::decode(opnum, stub);
    match lsarpc::Request::decode(opnum, stub) {
        Ok(lsarpc::Request::LookupNames { names, .. }) => assert!(names.len() <= lsarpc::MAX_NAMES),
        Ok(lsarpc::Request::LookupSids { sids, .. }) => assert!(8 * sids.len() <= stub.len()),
        _ => {}
    }
    match samr::Request::decode(opnum, stub) {
        Ok(samr::Request::LookupNames { names, .. }) => assert!(names.len() <= samr::MAX_LOOKUP),
        Ok(samr::Request::LookupIds { ids, .. }) => assert!(ids.len() <= samr::MAX_LOOKUP),
        Ok(samr::Request::AliasMembership { sids, .. }) => assert!(sids.len() <= samr::MAX_SIDS),
        _ => {}
    }
    if let Ok(response) = srvsvc::ShareEnumResponse::decode(stub) {
        assert!(drain(response.shares()).len() <= srvsvc::MAX_SHARES);
    }
}

/// A family's name and its function.
pub type Family = (&'static str, fn(&[u8]));

/// All families.
pub const FAMILIES: [Family; 11] = [
    ("header_and_compound", header_and_compound),
    ("requests", requests),
    ("responses", responses),
    ("create_contexts", create_contexts),
    ("negotiate_contexts", negotiate_contexts),
    ("ioctl_payloads", ioctl_payloads),
    ("fscc", fscc),
    ("security", security),
    ("transform", transform),
    ("smb_direct", smb_direct),
    ("rpc", rpc),
];
