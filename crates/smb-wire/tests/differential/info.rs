//! IOCTL, QUERY_DIRECTORY, QUERY_INFO, SET_INFO, CHANGE_NOTIFY, directory entries, server-side copy, transform.

use proptest::collection::vec;
use proptest::prelude::*;
use smb_wire::fscc::{DirectoryEntries, DirectoryEntry, DirectoryList, FileInfoClass, Fits};
use smb_wire::ioctl::{CopyChunk, CopyChunkRequest, CopyChunkResponse, CopyChunks, ResumeKey};
use smb_wire::msg::*;
use smb_wire::transform::TransformFields;
use smb_wire::{FileAttributes, FileTime, Utf16Buf};
use smb2::msg as theirs;
use smb2::pack::FileTime as TheirTime;
use smb2::pack::{ReadCursor, Unpack};
use theirs::query_directory::FileInformationClass as TheirClass;
use theirs::query_info::InfoType as TheirType;

use crate::{agree, file_id, packed};

const TYPES: [TheirType; 4] = [TheirType::File, TheirType::Filesystem, TheirType::Security, TheirType::Quota];

proptest! {
    #[test]
    fn ioctl(numbers in any::<(u32, u32, u32, u32)>(), id in any::<(u64, u64)>(), data in vec(any::<u8>(), 0..99)) {
        let (code, max_input, max_output, flags) = numbers;
        let (our_id, their_id) = file_id(id);
        let ours = IoctlRequest {
            ctl_code: FsctlCode(code),
            file_id: our_id,
            input: &data,
            max_input_response: max_input,
            output: &[],
            max_output_response: max_output,
            flags: IoctlFlags::from_bits_retain(flags),
        };
        let their = theirs::ioctl::IoctlRequest {
            ctl_code: code,
            file_id: their_id,
            max_input_response: max_input,
            max_output_response: max_output,
            flags,
            input_data: data.clone(),
        };
        agree(&ours, &their, &mut Vec::new());

        let ours = IoctlResponse {
            ctl_code: FsctlCode(code),
            file_id: our_id,
            input: &[],
            output: &data,
            flags: IoctlFlags::from_bits_retain(flags),
        };
        let their =
            theirs::ioctl::IoctlResponse { ctl_code: code, file_id: their_id, flags, output_data: data.clone() };
        agree(&ours, &their, &mut Vec::new());
    }

    #[test]
    fn query_directory(
        numbers in any::<(u8, u32, u32)>(),
        id in any::<(u64, u64)>(),
        pattern in "\\PC{1,20}",
        data in vec(any::<u8>(), 0..99),
    ) {
        let (flags, index, max) = numbers;
        let (our_id, their_id) = file_id(id);
        let wide = Utf16Buf::from(pattern.as_str());
        let ours = QueryDirectoryRequest {
            info_class: FileInfoClass::ID_BOTH_DIRECTORY.0,
            flags: QueryDirectoryFlags::from_bits_retain(flags),
            file_index: index,
            file_id: our_id,
            pattern: wide.as_utf16(),
            output_buffer_length: max,
        };
        let their = theirs::query_directory::QueryDirectoryRequest {
            file_information_class: TheirClass::FileIdBothDirectoryInformation,
            flags: theirs::query_directory::QueryDirectoryFlags(flags),
            file_index: index,
            file_id: their_id,
            output_buffer_length: max,
            file_name: pattern.clone(),
        };
        agree(&ours, &their, &mut Vec::new());
        let their = theirs::query_directory::QueryDirectoryResponse { output_buffer: data.clone() };
        agree(&QueryDirectoryResponse { buffer: &data }, &their, &mut Vec::new());
    }

    #[test]
    fn query_and_set_info(
        kind in 0usize..4,
        numbers in any::<(u8, u32, u32, u32)>(),
        id in any::<(u64, u64)>(),
        data in vec(any::<u8>(), 0..99),
    ) {
        let (class, max, additional, flags) = numbers;
        let (our_id, their_id) = file_id(id);
        let info_type = InfoType(kind as u8 + 1);
        let additional_information = SecurityInformation::from_bits_retain(additional);
        let ours = QueryInfoRequest {
            info_type,
            info_class: class,
            output_buffer_length: max,
            additional_information,
            flags: QueryInfoFlags::from_bits_retain(flags),
            file_id: our_id,
            input: &data,
        };
        let their = theirs::query_info::QueryInfoRequest {
            info_type: TYPES[kind],
            file_info_class: class,
            output_buffer_length: max,
            additional_information: additional,
            flags,
            file_id: their_id,
            input_buffer: data.clone(),
        };
        agree(&ours, &their, &mut Vec::new());

        let ours = SetInfoRequest {
            info_type,
            info_class: class,
            additional_information,
            file_id: our_id,
            buffer: &data,
        };
        let their = theirs::set_info::SetInfoRequest {
            info_type: TYPES[kind],
            file_info_class: class,
            additional_information: additional,
            file_id: their_id,
            buffer: data.clone(),
        };
        agree(&ours, &their, &mut Vec::new());

        let their = theirs::query_info::QueryInfoResponse { output_buffer: data.clone() };
        agree(&QueryInfoResponse { buffer: &data }, &their, &mut Vec::new());
    }

    #[test]
    fn change_notify(numbers in any::<(u16, u32, u32)>(), id in any::<(u64, u64)>(), data in vec(any::<u8>(), 0..99)) {
        let (flags, max, filter) = numbers;
        let (our_id, their_id) = file_id(id);
        let ours = ChangeNotifyRequest {
            flags: ChangeNotifyFlags::from_bits_retain(flags),
            output_buffer_length: max,
            file_id: our_id,
            completion_filter: CompletionFilter::from_bits_retain(filter),
        };
        let their = theirs::change_notify::ChangeNotifyRequest {
            flags,
            output_buffer_length: max,
            file_id: their_id,
            completion_filter: filter,
        };
        agree(&ours, &their, &mut Vec::new());
        let their = theirs::change_notify::ChangeNotifyResponse { output_data: data.clone() };
        agree(&ChangeNotifyResponse { buffer: &data }, &their, &mut Vec::new());
    }

    /// Each implementation reads the entries that the other writes.
    #[test]
    fn directory_entries(
        files in vec((any::<(u32, u64, u64, u64, u64, u64, u64, u32, u32, u64)>(), "[^\\x00/\\\\]{1,30}"), 1..6),
        with_id in any::<bool>(),
    ) {
        let (class, their_class) = if with_id {
            (FileInfoClass::ID_BOTH_DIRECTORY, TheirClass::FileIdBothDirectoryInformation)
        } else {
            (FileInfoClass::BOTH_DIRECTORY, TheirClass::FileBothDirectoryInformation)
        };
        let names: Vec<_> = files.iter().map(|(_, name)| Utf16Buf::from(name.as_str())).collect();
        let (mut ours, mut their) = (Vec::new(), Vec::new());
        for ((numbers, text), name) in files.iter().zip(&names) {
            let (index, created, accessed, written, changed, end, allocation, attributes, ea, id) = *numbers;
            ours.push(DirectoryEntry {
                file_index: index,
                creation_time: FileTime(created),
                last_access_time: FileTime(accessed),
                last_write_time: FileTime(written),
                change_time: FileTime(changed),
                end_of_file: end,
                allocation_size: allocation,
                file_attributes: FileAttributes::from_bits_retain(attributes),
                ea_size: ea,
                reparse_tag: 0,
                file_id: if with_id { id.into() } else { 0 },
                short_name: Default::default(),
                name: name.as_utf16(),
            });
            their.push(theirs::directory_info::DirectoryInfoEntry {
                file_index: index,
                creation_time: TheirTime(created),
                last_access_time: TheirTime(accessed),
                last_write_time: TheirTime(written),
                change_time: TheirTime(changed),
                end_of_file: end,
                allocation_size: allocation,
                file_attributes: attributes,
                ea_size: ea,
                // The `smb2` crate treats 0 as "no number".
                file_id: (with_id && id != 0).then_some(id),
                file_name: text.clone(),
            });
        }
        let mut bytes = Vec::new();
        let mut list = DirectoryList::new(&mut bytes, class, 1 << 16).unwrap();
        for entry in &ours {
            prop_assert_eq!(list.push(entry), Ok(Fits::Yes));
        }
        prop_assert_eq!(&theirs::directory_info::parse_entries(their_class, &bytes).unwrap(), &their);

        let packed = theirs::directory_info::pack_entries(their_class, &their).unwrap();
        let read: Vec<_> = DirectoryEntries::new(&packed, class).unwrap().map(Result::unwrap).collect();
        prop_assert_eq!(read, ours);
    }

    #[test]
    fn server_side_copy(
        key in any::<[u8; 24]>(),
        chunks in vec(any::<(u64, u64, u32)>(), 0..5),
        done in any::<(u32, u32, u32)>(),
    ) {
        use theirs::copychunk as their;
        let mut wire = Vec::new();
        for &(source_offset, target_offset, length) in &chunks {
            CopyChunk { source_offset, target_offset, length }.encode(&mut wire);
        }
        let ours = CopyChunkRequest { source_key: key, chunks: CopyChunks::from_bytes(&wire).unwrap() };
        let theirs = their::SrvCopychunkCopy {
            source_key: key,
            chunks: chunks
                .iter()
                .map(|&(source_offset, target_offset, length)| their::SrvCopychunk {
                    source_offset,
                    target_offset,
                    length,
                })
                .collect(),
        };
        let mut bytes = Vec::new();
        ours.encode(&mut bytes).unwrap();
        prop_assert_eq!(&packed(&theirs), &bytes);
        prop_assert_eq!(CopyChunkRequest::decode(&bytes), Ok(ours));

        let (chunks_written, chunk_bytes_written, total_bytes_written) = done;
        let ours = CopyChunkResponse { chunks_written, chunk_bytes_written, total_bytes_written };
        let mut bytes = Vec::new();
        ours.encode(&mut bytes);
        let read = their::SrvCopychunkResponse::unpack(&mut ReadCursor::new(&bytes)).unwrap();
        let expected = their::SrvCopychunkResponse { chunks_written, chunk_bytes_written, total_bytes_written };
        prop_assert_eq!(read, expected);

        let mut bytes = Vec::new();
        ResumeKey { key, context_length: 0 }.encode(&mut bytes);
        let read = their::SrvRequestResumeKeyResponse::unpack(&mut ReadCursor::new(&bytes)).unwrap();
        prop_assert_eq!(read.resume_key, key);
    }

    #[test]
    fn transform_header(tag in any::<[u8; 16]>(), nonce in any::<[u8; 16]>(), session in any::<u64>(), size in 1u32..99) {
        let ours = TransformFields {
            signature: tag,
            nonce,
            original_message_size: size,
            flags: 1,
            session_id: session,
        };
        let mut bytes = Vec::new();
        ours.encode_header(&mut bytes);
        let their = theirs::transform::TransformHeader::unpack(&mut ReadCursor::new(&bytes)).unwrap();
        let expected = theirs::transform::TransformHeader {
            signature: tag,
            nonce,
            original_message_size: size,
            flags: 1,
            session_id: smb2::types::SessionId(session),
        };
        prop_assert_eq!(&their, &expected);
        let mut bytes = packed(&their);
        bytes.resize(bytes.len() + size as usize, 0);
        prop_assert_eq!(TransformFields::decode_header(&bytes), Ok(ours));
    }
}
