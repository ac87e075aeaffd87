//! File information (MS-SMB2 3.3.5.20.1, MS-FSCC 2.4).

use std::sync::atomic::Ordering;

use smb_wire::fscc::{
    EaFlags, EaList, FileAccessInformation, FileAlignmentInformation, FileAllInformation,
    FileAttributeTagInformation, FileCompressionInformation, FileEaInformation, FileIdInformation,
    FileInfoClass, FileInternalInformation, FileModeInformation, FileNameInformation,
    FileNetworkOpenInformation, FilePipeInformation, FilePipeLocalInformation, FilePositionInformation,
    FileStandardInformation, FileStandardLinkInformation, Fits, FullEa, GetEas, StreamEntry, StreamList,
};
use smb_wire::msg::{CreateOptions, QueryInfoFlags, QueryInfoRequest};
use smb_wire::{AccessMask, NtStatus, Utf16Buf};
use vfs::Stat;

use super::Answer;
use crate::access;
use crate::commands::metadata::{basic, compression_format, file_attributes, posix, standard};
use crate::open::{FileOpen, Open};
use crate::request::Request;
use crate::status;

/// Smallest buffer for FileAllInformation, in bytes: its fixed part, aligned to 8 bytes.
const ALL_FIXED: usize = 104;
/// Smallest buffer for a FileNameInformation, in bytes.
const NAME_FIXED: usize = 8;
/// Smallest buffer for a FileStreamInformation entry, in bytes.
const STREAM_FIXED: usize = 32;

pub(super) async fn query(
    r: &Request,
    open: &Open,
    f: &FileOpen,
    q: &QueryInfoRequest<'_>,
) -> Result<Answer, NtStatus> {
    use FileInfoClass as C;
    let class = FileInfoClass(q.info_class);
    check_access(open, class)?;
    let mut bytes = Vec::new();
    match class {
        C::ACCESS => access_of(open).encode(&mut bytes),
        C::POSITION => position(f).encode(&mut bytes),
        C::MODE => mode(f).encode(&mut bytes),
        C::ALIGNMENT => FileAlignmentInformation::default().encode(&mut bytes),
        C::STREAM => return streams(r, f, q).await,
        C::FULL_EA => return extended_attributes(r, f, q).await,
        C::ALTERNATE_NAME => {
            let name = Utf16Buf::from(alternate_name(r, open, f)?.as_str());
            encode_name(&FileNameInformation { name: name.as_utf16() }, &mut bytes)?;
            return Ok(Answer::structure(bytes, NAME_FIXED));
        }
        // MS-FSCC 2.4: classes for local use only, or of unsupported features.
        C::NAME | C::OBJECT_ID | C::QUOTA | C::REPARSE_POINT | C::VALID_DATA_LENGTH | C::LINK => {
            return Err(NtStatus::NOT_SUPPORTED);
        }
        C::PIPE | C::PIPE_LOCAL | C::PIPE_REMOTE => return Err(NtStatus::INVALID_PARAMETER),
        C::NORMALIZED_NAME => {
            // MS-SMB2 3.3.5.20.1: this class exists in dialect 3.1.1 only.
            if r.facts.dialect < 0x0311 {
                return Err(NtStatus::NOT_SUPPORTED);
            }
            let name = Utf16Buf::from(name_of(open, f).as_str());
            encode_name(&FileNameInformation { name: name.as_utf16() }, &mut bytes)?;
            return Ok(Answer::structure(bytes, NAME_FIXED));
        }
        C::POSIX if r.facts.posix => {
            let stat = f.stat(&r.ctx(), &r.server.env).await.map_err(status::of_vfs)?;
            let security = access::descriptor_now(r, &f.node).await?;
            posix(&r.session.user, &stat, security.as_deref()).encode(&mut bytes);
        }
        _ => {
            let stat = f.stat(&r.ctx(), &r.server.env).await.map_err(status::of_vfs)?;
            return of_stat(open, f, class, &stat);
        }
    }
    let fixed = bytes.len();
    Ok(Answer::structure(bytes, fixed))
}

/// The 8.3 name of an open's file (MS-FSA 2.1.5.12.5). If the backend has no 8.3 names for long names, only a file
/// whose name is itself an 8.3 name has one.
fn alternate_name(r: &Request, open: &Open, f: &FileOpen) -> Result<String, NtStatus> {
    let path = f.file.path_of(open.persistent);
    let name = path.name().ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
    let opens = || r.tree.share.vfs().is_some_and(|vfs| vfs.info().short_names);
    match vfs::short_name(name) {
        None => Ok(name.to_owned()),
        Some(short) if opens() => Ok(short),
        Some(_) => Err(NtStatus::OBJECT_NAME_NOT_FOUND),
    }
}

/// Rights that a class needs (MS-FSA 2.1.5.12).
fn check_access(open: &Open, class: FileInfoClass) -> Result<(), NtStatus> {
    use FileInfoClass as C;
    let needed = match class {
        C::BASIC | C::ALL | C::NETWORK_OPEN | C::ATTRIBUTE_TAG | C::POSIX => AccessMask::READ_ATTRIBUTES,
        C::FULL_EA => AccessMask::READ_EA,
        _ => AccessMask::empty(),
    };
    let granted = AccessMask::from_bits_retain(open.access);
    if granted.contains(needed) { Ok(()) } else { Err(NtStatus::ACCESS_DENIED) }
}

/// Classes that show the file's metadata.
fn of_stat(open: &Open, f: &FileOpen, class: FileInfoClass, s: &Stat) -> Result<Answer, NtStatus> {
    use FileInfoClass as C;
    let mut bytes = Vec::new();
    // MS-FSA 2.1.5.12.27.
    let delete_pending = f.stream.is_deleting() || f.file.is_delete_pending(open.persistent);
    let standard = standard(s, delete_pending, f.file.deleted_names());
    match class {
        C::BASIC => basic(s).encode(&mut bytes),
        C::STANDARD => standard.encode(&mut bytes),
        C::INTERNAL => FileInternalInformation { index_number: s.id.number() }.encode(&mut bytes),
        C::EA => FileEaInformation { ea_size: s.ea_size }.encode(&mut bytes),
        C::COMPRESSION => FileCompressionInformation {
            compressed_file_size: s.size,
            compression_format: compression_format(s),
            ..FileCompressionInformation::default()
        }
        .encode(&mut bytes),
        C::NETWORK_OPEN => network_open(s).encode(&mut bytes),
        C::ATTRIBUTE_TAG => {
            FileAttributeTagInformation { file_attributes: file_attributes(s), reparse_tag: s.reparse.tag }
                .encode(&mut bytes);
        }
        C::STANDARD_LINK => FileStandardLinkInformation {
            number_of_accessible_links: standard.number_of_links,
            total_number_of_links: s.links,
            delete_pending: standard.delete_pending,
            directory: standard.directory,
        }
        .encode(&mut bytes),
        C::ID => FileIdInformation { volume_serial_number: s.id.serial(), file_id: s.id.file.to_le_bytes() }
            .encode(&mut bytes),
        C::ALL => {
            let name = Utf16Buf::from(format!("\\{}", name_of(open, f)).as_str());
            let all = FileAllInformation {
                basic: basic(s),
                standard,
                internal: FileInternalInformation { index_number: s.id.number() },
                ea: FileEaInformation { ea_size: s.ea_size },
                access: access_of(open),
                position: position(f),
                mode: mode(f),
                alignment: FileAlignmentInformation::default(),
                name: name.as_utf16(),
            };
            all.encode(&mut bytes).map_err(|_| NtStatus::INTERNAL_ERROR)?;
            return Ok(Answer::structure(bytes, ALL_FIXED));
        }
        _ => return Err(NtStatus::INVALID_INFO_CLASS),
    }
    let fixed = bytes.len();
    Ok(Answer::structure(bytes, fixed))
}

fn network_open(s: &Stat) -> FileNetworkOpenInformation {
    let b = basic(s);
    FileNetworkOpenInformation {
        creation_time: b.creation_time,
        last_access_time: b.last_access_time,
        last_write_time: b.last_write_time,
        change_time: b.change_time,
        allocation_size: s.allocation,
        end_of_file: s.size,
        file_attributes: b.file_attributes,
    }
}

/// FileStreamInformation (MS-FSA 2.1.5.12.28): the entries that fit.
async fn streams(r: &Request, f: &FileOpen, q: &QueryInfoRequest<'_>) -> Result<Answer, NtStatus> {
    let (mut bytes, mut complete) = (Vec::new(), true);
    let mut list = StreamList::new(&mut bytes, q.output_buffer_length as usize);
    for (i, s) in f.node.streams(&r.ctx()).wait().await.map_err(status::of_vfs)?.into_iter().enumerate() {
        let name = Utf16Buf::from(format!(":{}:$DATA", s.name.as_ref().map_or("", |n| n.as_str())).as_str());
        let entry = StreamEntry { size: s.size, allocation_size: s.allocation, name: name.as_utf16() };
        if list.push(&entry).map_err(|_| NtStatus::INTERNAL_ERROR)? == Fits::No {
            complete = false;
            if i > 0 {
                break;
            }
            // Not even the first entry fits: the part of it that fits is returned.
            StreamList::new(&mut bytes, usize::MAX).push(&entry).map_err(|_| NtStatus::INTERNAL_ERROR)?;
            break;
        }
    }
    Ok(Answer { bytes, fixed: STREAM_FIXED, complete })
}

/// The path of an open, with the name of its stream (MS-FSA 2.1.5.12.1, 2.1.5.12.20).
fn name_of(open: &Open, f: &FileOpen) -> String {
    let path = f.file.path_of(open.persistent);
    match f.file.stream_name(&f.stream) {
        Some(stream) => format!("{path}:{stream}"),
        None => path.to_string(),
    }
}

fn access_of(open: &Open) -> FileAccessInformation {
    FileAccessInformation { access_flags: AccessMask::from_bits_retain(open.access) }
}

fn position(f: &FileOpen) -> FilePositionInformation {
    FilePositionInformation { current_byte_offset: f.position.load(Ordering::Relaxed) }
}

fn mode(f: &FileOpen) -> FileModeInformation {
    FileModeInformation { mode: CreateOptions::from_bits_retain(f.mode.load(Ordering::Relaxed)) }
}

fn encode_name(n: &FileNameInformation<'_>, out: &mut Vec<u8>) -> Result<(), NtStatus> {
    n.encode(out).map_err(|_| NtStatus::INTERNAL_ERROR)
}

/// FileFullEaInformation (MS-FSA 2.1.5.12.14): all, those that the input names, or from an index on.
async fn extended_attributes(
    r: &Request,
    f: &FileOpen,
    q: &QueryInfoRequest<'_>,
) -> Result<Answer, NtStatus> {
    let all = f.node.extended_attributes(&r.ctx()).wait().await.map_err(status::of_vfs)?;
    let mut wanted: Vec<FullEa<'_>> = Vec::new();
    let whole = |ea: &'_ vfs::ExtendedAttribute| EaFlags::from_bits_retain(ea.flags);
    if q.input.is_empty() {
        wanted.extend(all.iter().map(|ea| FullEa { flags: whole(ea), name: &ea.name, value: &ea.value }));
        if wanted.is_empty() {
            return Err(NtStatus::NO_EAS_ON_FILE);
        }
        if q.flags.contains(QueryInfoFlags::INDEX_SPECIFIED) {
            // The index is one-based, and is sent in AdditionalInformation.
            let skip = (q.additional_information.bits() as usize).saturating_sub(1);
            if skip >= wanted.len() {
                return Err(NtStatus::NONEXISTENT_EA_ENTRY);
            }
            wanted.drain(..skip);
        }
    } else {
        // A file's attributes fit 64 KiB, and so do their names.
        if q.input.len() > usize::from(u16::MAX) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        for name in GetEas::new(q.input) {
            let name = name.map_err(|_| NtStatus::EA_LIST_INCONSISTENT)?;
            let found = all.iter().find(|ea| ea.name.eq_ignore_ascii_case(name));
            let (flags, value) = found.map_or((EaFlags::empty(), &[][..]), |ea| (whole(ea), &ea.value));
            wanted.push(FullEa { flags, name, value });
        }
    }
    if q.flags.contains(QueryInfoFlags::RETURN_SINGLE_ENTRY) {
        wanted.truncate(1);
    }
    let mut bytes = Vec::new();
    let mut list = EaList::new(&mut bytes, q.output_buffer_length as usize);
    let mut complete = true;
    for (i, ea) in wanted.iter().enumerate() {
        if list.push(ea).map_err(|_| NtStatus::EA_TOO_LARGE)? == Fits::No {
            if i == 0 {
                return Err(NtStatus::BUFFER_TOO_SMALL);
            }
            // The entries before it are returned.
            complete = false;
            break;
        }
    }
    Ok(Answer { bytes, fixed: 0, complete })
}

/// File information of a pipe.
pub(super) fn of_pipe(open: &Open, q: &QueryInfoRequest<'_>) -> Result<Answer, NtStatus> {
    use FileInfoClass as C;
    let mut bytes = Vec::new();
    match FileInfoClass(q.info_class) {
        C::STANDARD => FileStandardInformation {
            allocation_size: 4096,
            number_of_links: 1,
            delete_pending: true,
            ..FileStandardInformation::default()
        }
        .encode(&mut bytes),
        C::ACCESS => access_of(open).encode(&mut bytes),
        C::PIPE => FilePipeInformation { read_mode: 1, completion_mode: 0 }.encode(&mut bytes),
        C::PIPE_LOCAL => FilePipeLocalInformation {
            named_pipe_type: 1,
            named_pipe_configuration: 2,
            maximum_instances: u32::MAX,
            current_instances: 1,
            named_pipe_state: 3,
            ..FilePipeLocalInformation::default()
        }
        .encode(&mut bytes),
        _ => return Err(NtStatus::NOT_SUPPORTED),
    }
    let fixed = bytes.len();
    Ok(Answer::structure(bytes, fixed))
}
