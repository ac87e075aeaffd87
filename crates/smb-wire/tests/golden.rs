//! Messages recorded between a Linux client (cifs) and a Linux server (ksmbd) over SMB Direct.
//!
//! Every message is decoded and encoded again. Most must be encoded to the same bytes; the others are listed with
//! the reason. Some are also checked field by field, against tshark's dissection of the recording.

#[path = "support/recode.rs"]
mod recode;
#[path = "support/recordings.rs"]
mod recordings;

use smb_wire::context::{
    Cipher, CreateRequestContext, CreateResponseContext, HashAlgorithm, NegotiateContext,
};
use smb_wire::fscc::{DirectoryEntries, FileInfoClass, FsAttributeInformation, FsVolumeInformation};
use smb_wire::ioctl::{InterfaceCapability, NetworkInterfaces};
use smb_wire::msg::*;
use smb_wire::{Command, Decode, Header, NtStatus, compound, smbd};

fn recording(name: &str) -> Vec<u8> {
    recordings::all().remove(name).unwrap_or_else(|| panic!("no recording {name}"))
}

/// The messages of the chain in a recording.
fn messages(bytes: &[u8]) -> Vec<(Header, &[u8])> {
    compound::split(bytes)
        .map(|m| {
            let (header, range) = m.unwrap();
            (header, &bytes[range])
        })
        .collect()
}

/// Messages that are not encoded to the same bytes, and the reason.
const DIFFERENT: &[(&str, Command, &str)] = &[
    ("06-create-request", Command::CREATE, EIGHT_SPARE_BYTES),
    (
        "07-ioctl-request",
        Command::IOCTL,
        "offsets of empty parts: Linux writes 0, Windows and we where they would be",
    ),
    ("13-create+query_info+close-request", Command::CREATE, EIGHT_SPARE_BYTES),
    (
        "13-create+query_info+close-request",
        Command::QUERY_INFO,
        "Linux leaves out the one byte of variable part",
    ),
    ("16-create+set_info+close-request", Command::CREATE, EIGHT_SPARE_BYTES),
    ("19-create+query_directory-request", Command::CREATE, EIGHT_SPARE_BYTES),
];
const EIGHT_SPARE_BYTES: &str = "Linux leaves eight bytes between a name and the contexts";

/// Removes padding at the end: some implementations also pad the last message of a chain.
fn unpadded(mut msg: &[u8]) -> &[u8] {
    while let [rest @ .., 0] = msg {
        msg = rest;
    }
    msg
}

#[test]
fn every_message_survives_decoding_and_encoding() {
    let mut different = Vec::new();
    for (name, bytes) in recordings::all().into_iter().filter(|(name, _)| !name.contains("smbd")) {
        for (header, msg) in messages(&bytes) {
            let what = format!("{name}, {:?}", header.command);
            let again = recode::recode(msg).unwrap_or_else(|e| panic!("{what}: {e}"));
            let twice = recode::recode(&again).unwrap_or_else(|e| panic!("{what}, again: {e}"));
            assert_eq!(again, twice, "{what}: a fixed point after one round");
            if unpadded(&again) != unpadded(msg) || again.len().abs_diff(msg.len()) > 7 {
                println!("{what}\n  was {msg:02x?}\n  is  {again:02x?}");
                different.push((name.clone(), header.command));
            }
        }
    }
    let expected: Vec<_> = DIFFERENT.iter().map(|(name, command, _)| (name.to_string(), *command)).collect();
    assert_eq!(different, expected);
}

#[test]
fn negotiate_request_of_linux() {
    let bytes = recording("03-negotiate-request");
    let (header, msg) = messages(&bytes)[0];
    assert_eq!((header.command, header.message_id, header.is_response()), (Command::NEGOTIATE, 0, false));
    let request = NegotiateRequest::decode(msg).unwrap();
    assert_eq!(request.security_mode, SecurityMode::SIGNING_ENABLED);
    assert!(request.dialects.contains(Dialect::SMB_3_1_1));
    let contexts: Vec<_> = request.contexts.iter().map(Result::unwrap).collect();
    assert!(contexts.iter().any(|c| matches!(c, NegotiateContext::Preauth { hashes, salt }
        if hashes.contains(HashAlgorithm::SHA_512) && salt.len() == 32)));
    assert!(contexts.iter().any(|c| matches!(c, NegotiateContext::Encryption(list)
        if list.contains(Cipher::AES_128_GCM))));
    let names =
        |c: &NegotiateContext<'_>| matches!(c, NegotiateContext::NetName(name) if name.eq_str("10.77.0.3"));
    assert!(contexts.iter().any(names));
}

#[test]
fn negotiate_response_of_ksmbd() {
    let bytes = recording("25-negotiate-response");
    let response = NegotiateResponse::decode(messages(&bytes)[0].1).unwrap();
    assert_eq!(response.dialect, Dialect::SMB_3_1_1);
    assert!(response.security_buffer.starts_with(&[0x60]), "a GSS token");
    assert_eq!(response.contexts.iter().count(), usize::from(response.contexts.count()));
    response.contexts.iter().for_each(|c| assert!(c.is_ok()));
}

#[test]
fn tree_connect_and_create_of_linux() {
    let bytes = recording("05-tree_connect-request");
    let request = TreeConnectRequest::decode(messages(&bytes)[0].1).unwrap();
    assert!(request.path.eq_str(r"\\10.77.0.3\IPC$"));

    let bytes = recording("06-create-request");
    let request = CreateRequest::decode(messages(&bytes)[0].1).unwrap();
    assert!(request.name.is_empty());
    assert_eq!(request.create_disposition, CreateDisposition::OPEN);
    let contexts: Vec<_> = request.contexts.requests().map(Result::unwrap).collect();
    assert_eq!(contexts, [CreateRequestContext::QueryOnDiskId]);

    let bytes = recording("29-create-response");
    let response = CreateResponse::decode(messages(&bytes)[0].1).unwrap();
    assert_eq!(response.create_action, CreateAction::OPENED);
    let id = response.contexts.responses().map(Result::unwrap).next();
    assert!(matches!(id, Some(CreateResponseContext::OnDiskId(id)) if id.disk_file_id != 0));
}

#[test]
fn interfaces_of_ksmbd() {
    let bytes = recording("30-ioctl-response");
    let response = IoctlResponse::decode(messages(&bytes)[0].1).unwrap();
    assert_eq!(response.ctl_code, FsctlCode::QUERY_NETWORK_INTERFACE_INFO);
    let interfaces: Vec<_> = NetworkInterfaces::new(response.output).map(Result::unwrap).collect();
    assert_eq!(interfaces.len(), 2);
    assert!(interfaces.iter().any(|i| i.address == Some("10.77.0.3:0".parse().unwrap())));
    assert!(interfaces[0].capability.contains(InterfaceCapability::RDMA_CAPABLE));
}

#[test]
fn a_compound_of_three_and_its_answer() {
    let request = recording("13-create+query_info+close-request");
    let commands: Vec<_> = messages(&request).iter().map(|(h, _)| (h.command, h.is_related())).collect();
    let expected = [(Command::CREATE, false), (Command::QUERY_INFO, true), (Command::CLOSE, true)];
    assert_eq!(commands, expected);
    assert!(
        CloseRequest::decode(messages(&request)[2].1).unwrap().file_id.is_none(),
        "the file of the CREATE"
    );

    let failed = recording("42-create+query_info+close-response");
    for (header, msg) in &messages(&failed)[1..] {
        assert!(header.status.is_error(), "{}", header.status);
        assert_eq!(ErrorResponse::decode(msg).unwrap(), ErrorResponse::EMPTY);
    }
}

#[test]
fn file_system_information_of_ksmbd() {
    let bytes = recording("31-query_info-response");
    let buffer = QueryInfoResponse::decode(messages(&bytes)[0].1).unwrap().buffer;
    assert!(FsAttributeInformation::decode(buffer).unwrap().file_system_name.eq_str("NTFS"));
    let bytes = recording("33-query_info-response");
    let buffer = QueryInfoResponse::decode(messages(&bytes)[0].1).unwrap().buffer;
    assert!(FsVolumeInformation::decode(buffer).unwrap().label.eq_str("share"));
}

#[test]
fn a_directory_of_ksmbd() {
    let bytes = recording("19-create+query_directory-request");
    let request = QueryDirectoryRequest::decode(messages(&bytes)[1].1).unwrap();
    assert!(request.pattern.eq_str("*"));
    let class = FileInfoClass(request.info_class);
    let bytes = recording("43-create+query_directory-response");
    let response = QueryDirectoryResponse::decode(messages(&bytes)[1].1).unwrap();
    let entries: Vec<_> =
        DirectoryEntries::new(response.buffer, class).unwrap().map(Result::unwrap).collect();
    let names: Vec<_> = entries.iter().map(|e| e.name.to_string().unwrap()).collect();
    assert!(names.contains(&".".to_owned()) && names.contains(&"..".to_owned()), "{names:?}");
    assert_eq!(messages(&recording("44-query_directory-response"))[0].0.status, NtStatus::NO_MORE_FILES);
}

/// MS-SMB2 2.2.19: the channel information of a READ by RDMA is an array of buffer descriptors.
#[test]
fn a_read_by_rdma_of_linux() {
    let bytes = recording("18-read-request");
    let request = ReadRequest::decode(messages(&bytes)[0].1).unwrap();
    assert_eq!(request.channel, Channel::RDMA_V1_INVALIDATE);
    let descriptors = smbd::BufferDescriptors::from_bytes(request.channel_info).unwrap();
    assert_eq!(descriptors.len(), 1);
    assert!(descriptors.total_length() >= u64::from(request.length));

    let bytes = recording("40-read-response");
    let response = ReadResponse::decode(messages(&bytes)[0].1).unwrap();
    assert_eq!((response.data_length, response.data(&bytes).unwrap()), (0, &[][..]));
    assert!(response.data_remaining > 0);
}

#[test]
fn a_write_in_the_message_of_linux() {
    let bytes = recording("17-write-request");
    let request = WriteRequest::decode(&bytes[..WriteRequest::HEAD_LEN]).unwrap();
    assert_eq!(request.channel, Channel::NONE);
    assert_eq!(request.data(&bytes).unwrap().len(), request.length as usize);
    assert_eq!(usize::from(request.data_offset) + request.length as usize, bytes.len());
}

/// MS-SMBD 2.2.1, 2.2.2, 2.2.3.
#[test]
fn smb_direct_of_linux_and_ksmbd() {
    let bytes = recording("01-smbd-negotiate-request");
    let request = smbd::decode_negotiate_request(&bytes).unwrap();
    assert_eq!((request.min_version, request.max_version), (smbd::VERSION_1_0, smbd::VERSION_1_0));
    let mut again = Vec::new();
    request.encode(&mut again);
    assert_eq!(again, bytes);

    let bytes = recording("23-smbd-negotiate-response");
    let response = smbd::NegotiateResponse::decode(&bytes).unwrap();
    assert_eq!((response.negotiated_version, response.status), (smbd::VERSION_1_0, NtStatus::SUCCESS));
    again.clear();
    response.encode(&mut again);
    assert_eq!(again, bytes);

    for name in ["02-smbd-data-request", "24-smbd-data-response"] {
        let bytes = recording(name);
        let head = smbd::DataTransfer::decode(&bytes).unwrap();
        assert_eq!(head.data_offset as usize, smbd::DATA_OFFSET);
        assert_eq!(head.remaining_data_length, 0);
        let data = head.data(&bytes).unwrap();
        assert_eq!(Header::decode(data).unwrap().command, Command::NEGOTIATE);
        again.clear();
        head.encode_head(&mut again);
        again.extend_from_slice(data);
        assert_eq!(again, bytes);
    }
}
