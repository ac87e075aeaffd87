//! CREATE, CLOSE, FLUSH, READ, WRITE, LOCK, oplock breaks.

use proptest::collection::vec;
use proptest::prelude::*;
use smb_wire::context::CreateContexts;
use smb_wire::msg::*;
use smb_wire::{
    AccessMask, Decode, Encode, FileAttributes, FileTime, HEADER_LEN, Header, MessageBuilder, ShareAccess,
    Utf16Buf,
};
use smb2::msg as theirs;
use smb2::pack::FileTime as TheirTime;
use smb2::pack::{ReadCursor, Unpack};
use smb2::types::OplockLevel as TheirLevel;
use smb2::types::flags as their_flags;

use crate::{agree, file_id, packed, they_read};

const LEVELS: [(OplockLevel, TheirLevel); 5] = [
    (OplockLevel::NONE, TheirLevel::None),
    (OplockLevel::LEVEL_II, TheirLevel::LevelII),
    (OplockLevel::EXCLUSIVE, TheirLevel::Exclusive),
    (OplockLevel::BATCH, TheirLevel::Batch),
    (OplockLevel::LEASE, TheirLevel::Lease),
];

proptest! {
    #[test]
    fn create_request(
        level in 0usize..5,
        disposition in 0usize..6,
        impersonation in 0usize..4,
        numbers in any::<(u32, u32, u32, u32)>(),
        name in "\\PC{1,60}",
        contexts in vec(any::<u8>(), 0..100),
    ) {
        use theirs::create::{CreateDisposition as D, ImpersonationLevel as I};
        let (access, attributes, share, options) = numbers;
        let wide = Utf16Buf::from(name.as_str());
        let ours = CreateRequest {
            oplock_level: LEVELS[level].0,
            impersonation_level: ImpersonationLevel(impersonation as u32),
            smb_create_flags: 0,
            desired_access: AccessMask::from_bits_retain(access),
            file_attributes: FileAttributes::from_bits_retain(attributes),
            share_access: ShareAccess::from_bits_retain(share),
            create_disposition: CreateDisposition(disposition as u32),
            create_options: CreateOptions::from_bits_retain(options),
            name: wide.as_utf16(),
            contexts: CreateContexts::from_bytes(&contexts),
        };
        let dispositions =
            [D::FileSupersede, D::FileOpen, D::FileCreate, D::FileOpenIf, D::FileOverwrite, D::FileOverwriteIf];
        let levels = [I::Anonymous, I::Identification, I::Impersonation, I::Delegate];
        let their = theirs::create::CreateRequest {
            requested_oplock_level: LEVELS[level].1,
            impersonation_level: levels[impersonation],
            desired_access: their_flags::FileAccessMask::new(access),
            file_attributes: attributes,
            share_access: theirs::create::ShareAccess(share),
            create_disposition: dispositions[disposition],
            create_options: options,
            name: name.clone(),
            create_contexts: contexts.clone(),
        };
        agree(&ours, &their, &mut Vec::new());
    }

    #[test]
    fn create_and_close_response(
        level in 0usize..5,
        action in 0usize..4,
        numbers in any::<(u8, u64, u64, u64, u64, u64, u64, u32)>(),
        id in any::<(u64, u64)>(),
        contexts in vec(any::<u8>(), 0..100),
    ) {
        use theirs::create::CreateAction as A;
        let (flags, created, accessed, written, changed, allocation, end, attributes) = numbers;
        let (our_id, their_id) = file_id(id);
        let ours = CreateResponse {
            oplock_level: LEVELS[level].0,
            flags: CreateResponseFlags::from_bits_retain(flags),
            create_action: CreateAction(action as u32),
            creation_time: FileTime(created),
            last_access_time: FileTime(accessed),
            last_write_time: FileTime(written),
            change_time: FileTime(changed),
            allocation_size: allocation,
            end_of_file: end,
            file_attributes: FileAttributes::from_bits_retain(attributes),
            file_id: our_id,
            contexts: CreateContexts::from_bytes(&contexts),
        };
        let actions = [A::FileSuperseded, A::FileOpened, A::FileCreated, A::FileOverwritten];
        let their = theirs::create::CreateResponse {
            oplock_level: LEVELS[level].1,
            flags,
            create_action: actions[action],
            creation_time: TheirTime(created),
            last_access_time: TheirTime(accessed),
            last_write_time: TheirTime(written),
            change_time: TheirTime(changed),
            allocation_size: allocation,
            end_of_file: end,
            file_attributes: attributes,
            file_id: their_id,
            create_contexts: contexts.clone(),
        };
        agree(&ours, &their, &mut Vec::new());

        let ours = CloseResponse {
            flags: CloseFlags::from_bits_retain(flags.into()),
            creation_time: FileTime(created),
            last_access_time: FileTime(accessed),
            last_write_time: FileTime(written),
            change_time: FileTime(changed),
            allocation_size: allocation,
            end_of_file: end,
            file_attributes: FileAttributes::from_bits_retain(attributes),
        };
        let their = theirs::close::CloseResponse {
            flags: flags.into(),
            creation_time: TheirTime(created),
            last_access_time: TheirTime(accessed),
            last_write_time: TheirTime(written),
            change_time: TheirTime(changed),
            allocation_size: allocation,
            end_of_file: end,
            file_attributes: attributes,
        };
        agree(&ours, &their, &mut Vec::new());
    }

    #[test]
    fn close_flush_and_break(flags in any::<u16>(), id in any::<(u64, u64)>(), level in 0usize..5) {
        let (our_id, their_id) = file_id(id);
        let ours = CloseRequest { flags: CloseFlags::from_bits_retain(flags), file_id: our_id };
        agree(&ours, &theirs::close::CloseRequest { flags, file_id: their_id }, &mut Vec::new());
        let ours = FlushRequest { file_id: our_id };
        agree(&ours, &theirs::flush::FlushRequest { file_id: their_id }, &mut Vec::new());
        let ours = OplockBreak { oplock_level: LEVELS[level].0, file_id: our_id };
        let their = theirs::oplock_break::OplockBreak { oplock_level: LEVELS[level].1, file_id: their_id };
        agree(&ours, &their, &mut Vec::new());
    }

    #[test]
    fn read_request(
        numbers in any::<(u8, u8, u32, u64, u32, u32)>(),
        id in any::<(u64, u64)>(),
        descriptors in vec(any::<[u8; 16]>(), 0..3),
    ) {
        let (padding, flags, length, offset, minimum, remaining) = numbers;
        let (our_id, their_id) = file_id(id);
        let info = descriptors.concat();
        let channel = if info.is_empty() { Channel::NONE } else { Channel::RDMA_V1 };
        let ours = ReadRequest {
            padding,
            flags: ReadFlags::from_bits_retain(flags),
            length,
            offset,
            file_id: our_id,
            minimum_count: minimum,
            channel,
            remaining_bytes: remaining,
            channel_info: &info,
        };
        let their = theirs::read::ReadRequest {
            padding,
            flags,
            length,
            offset,
            file_id: their_id,
            minimum_count: minimum,
            channel: channel.0,
            remaining_bytes: remaining,
            read_channel_info: info.clone(),
        };
        if info.is_empty() {
            agree(&ours, &their, &mut Vec::new());
        } else {
            // The `smb2` crate lets its caller set the offset of the channel information.
            they_read(&ours, &their);
        }
    }

    #[test]
    fn read_response(data in vec(any::<u8>(), 0..200), remaining in any::<u32>(), flags in any::<u32>()) {
        let ours = ReadResponse {
            data_remaining: remaining,
            flags: ReadResponseFlags::from_bits_retain(flags),
            ..ReadResponse::inline(data.len() as u32)
        };
        let their = theirs::read::ReadResponse {
            data_offset: ReadResponse::HEAD_LEN as u8,
            data_remaining: remaining,
            flags,
            data: data.clone(),
        };
        let mut message = with_payload(&ours, &data);
        prop_assert_eq!(message.len(), ReadResponse::HEAD_LEN + data.len());
        // The `smb2` crate requires the one byte of variable part that an odd StructureSize implies; this crate
        // sends none.
        message.resize(message.len().max(ReadResponse::HEAD_LEN + 1), 0);
        let decoded = theirs::read::ReadResponse::unpack(&mut ReadCursor::new(&message[HEADER_LEN..])).unwrap();
        prop_assert_eq!(&decoded, &their);

        let mut bytes = vec![0; HEADER_LEN];
        bytes.extend(packed(&their));
        prop_assert_eq!(ReadResponse::decode(&bytes[..ReadResponse::HEAD_LEN]), Ok(ours));
        prop_assert_eq!(ours.data(&bytes), Ok(&data[..]));
    }

    #[test]
    fn write_request(
        data in vec(any::<u8>(), 0..200),
        offset in any::<u64>(),
        id in any::<(u64, u64)>(),
        flags in any::<u32>(),
        remaining in any::<u32>(),
    ) {
        let (our_id, their_id) = file_id(id);
        let ours = WriteRequest {
            data_offset: WriteRequest::HEAD_LEN as u16,
            length: data.len() as u32,
            offset,
            file_id: our_id,
            channel: Channel::NONE,
            remaining_bytes: remaining,
            channel_info: &[],
            flags: WriteFlags::from_bits_retain(flags),
        };
        let their = theirs::write::WriteRequest {
            data_offset: WriteRequest::HEAD_LEN as u16,
            offset,
            file_id: their_id,
            channel: 0,
            remaining_bytes: remaining,
            write_channel_info_offset: 0,
            write_channel_info_length: 0,
            flags,
            data: data.clone(),
        };
        let message = with_payload(&ours, &data);
        let decoded = theirs::write::WriteRequest::unpack(&mut ReadCursor::new(&message[HEADER_LEN..])).unwrap();
        prop_assert_eq!(&decoded, &their);

        let mut bytes = vec![0; HEADER_LEN];
        bytes.extend(packed(&their));
        prop_assert_eq!(WriteRequest::decode(&bytes[..WriteRequest::HEAD_LEN]), Ok(ours));
        prop_assert_eq!(ours.data(&bytes), Ok(&data[..]));
    }

    #[test]
    fn write_response(count in any::<u32>(), remaining in any::<u32>()) {
        let their = theirs::write::WriteResponse {
            count,
            remaining,
            write_channel_info_offset: 0,
            write_channel_info_length: 0,
        };
        agree(&WriteResponse { count, remaining }, &their, &mut Vec::new());
    }

    #[test]
    fn lock_request(
        sequence in any::<u32>(),
        id in any::<(u64, u64)>(),
        locks in vec(any::<(u64, u64, u32)>(), 1..5),
    ) {
        let (our_id, their_id) = file_id(id);
        let mut elements = Vec::new();
        for &(offset, length, flags) in &locks {
            LockElement { offset, length, flags: LockFlags::from_bits_retain(flags) }.encode(&mut elements);
        }
        let ours = LockRequest {
            lock_sequence: sequence,
            file_id: our_id,
            locks: LockElements::from_bytes(&elements).unwrap(),
        };
        let their = theirs::lock::LockRequest {
            lock_sequence: sequence,
            file_id: their_id,
            locks: locks
                .iter()
                .map(|&(offset, length, flags)| theirs::lock::LockElement { offset, length, flags })
                .collect(),
        };
        agree(&ours, &their, &mut Vec::new());
    }
}

/// Encodes a head with its payload.
fn with_payload(head: &impl Encode, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut m = MessageBuilder::new(&mut out);
    m.push(&Header::default(), head).unwrap();
    m.out().extend_from_slice(data);
    m.finish();
    out
}
