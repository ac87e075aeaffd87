//! SET_INFO: rights and states that forbid it.

use smb_wire::context::{CreateContextsBuf, CreateRequestContext};
use smb_wire::fscc::FileInfoClass;
use smb_wire::msg::SecurityInformation;
use smb_wire::security::{ControlFlags, SecurityDescriptorBuf};

use super::*;

/// A link to `name`, as FILE_LINK_INFORMATION_TYPE_2 has it (MS-FSCC 2.4.28.2).
async fn link(w: &World, file: FileId, name: &str) -> NtStatus {
    let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut buffer = vec![0; 16];
    buffer.extend((name.len() as u32).to_le_bytes());
    buffer.extend(name);
    buffer.resize(buffer.len().max(24), 0);
    w.set(file, FileInfoClass::LINK.0, &buffer).await
}

// MS-FSA 2.1.5.15.6
#[tokio::test]
async fn a_file_that_is_deleted_gets_no_further_name() {
    let w = World::new();
    // The open has no right on the file.
    w.close(w.create("f", How::CREATE).await).await;
    let reader = w.create("f", How { access: AccessMask::READ_ATTRIBUTES, ..How::OPEN }).await;
    assert_eq!(link(&w, reader, "g").await, NtStatus::SUCCESS);
    let file = w.create("f", How::OPEN).await;
    assert_eq!(w.set(file, FileInfoClass::DISPOSITION.0, &[1]).await, NtStatus::SUCCESS);
    assert_eq!(link(&w, file, "h").await, NtStatus::ACCESS_DENIED);
    assert_eq!(link(&w, reader, "h").await, NtStatus::ACCESS_DENIED);
    assert_eq!(w.set(file, FileInfoClass::DISPOSITION.0, &[0]).await, NtStatus::SUCCESS);
    assert_eq!(link(&w, file, "h").await, NtStatus::SUCCESS);
    w.close(file).await;
    w.close(reader).await;
    for name in ["f", "g", "h"] {
        assert!(w.exists(name).await, "{name}");
    }
}

// MS-SMB2 3.3.5.21.3, MS-FSA 2.1.5.17
#[tokio::test]
async fn every_part_of_a_descriptor_needs_its_right() {
    use SecurityInformation as S;
    let w = World::new();
    w.close(w.create("f", How::CREATE).await).await;
    let mut sent = Vec::new();
    SecurityDescriptorBuf { control: ControlFlags::empty(), ..SecurityDescriptorBuf::default() }
        .encode(&mut sent);
    let set = async |file: FileId, parts: S| {
        let q = SetInfoRequest {
            info_type: InfoType::SECURITY,
            additional_information: parts,
            file_id: file,
            buffer: &sent,
            ..Default::default()
        };
        crate::commands::set_info::handle(w.request(&q)).await.status
    };
    let stored = async |file: FileId| {
        let open = w.server.opens.get(file).expect("open");
        let node = Arc::clone(&open.file().expect("a file").node);
        node.security(&env::Ctx::default()).wait().await.expect("read")
    };
    let reader = w.create("f", How { access: AccessMask::READ_CONTROL, ..How::OPEN }).await;
    for parts in [S::OWNER, S::GROUP, S::DACL, S::SACL, S::LABEL, S::ATTRIBUTE, S::SCOPE, S::BACKUP] {
        assert_eq!(set(reader, parts).await, NtStatus::ACCESS_DENIED, "{parts:?}");
    }
    let before = stored(reader).await;
    let access = AccessMask::READ_CONTROL | AccessMask::WRITE_DAC | AccessMask::WRITE_OWNER;
    let writer = w.create("f", How { access, ..How::OPEN }).await;
    for (parts, status) in [
        (S::LABEL, NtStatus::SUCCESS),
        (S::ATTRIBUTE, NtStatus::SUCCESS),
        (S::SCOPE, NtStatus::ACCESS_DENIED),
        (S::BACKUP, NtStatus::ACCESS_DENIED),
    ] {
        assert_eq!(set(writer, parts).await, status, "{parts:?}");
        assert_eq!(stored(writer).await, before, "{parts:?}");
    }
    assert_eq!(set(writer, S::DACL).await, NtStatus::SUCCESS);
    assert_ne!(stored(writer).await, before);
}

// A size is a signed number that is not negative, as in Windows' NtCreateFile.
#[tokio::test]
async fn an_allocation_size_has_63_bits() {
    let w = World::new();
    for (bytes, status) in [
        (4096, NtStatus::SUCCESS),
        (1 << 63, NtStatus::INVALID_PARAMETER),
        (u64::MAX, NtStatus::INVALID_PARAMETER),
    ] {
        let mut contexts = CreateContextsBuf::new();
        contexts.request(&CreateRequestContext::AllocationSize(bytes)).expect("it fits");
        let name = Utf16Buf::from("f");
        let q = CreateRequest {
            impersonation_level: ImpersonationLevel::IMPERSONATION,
            desired_access: ALL,
            create_disposition: CreateDisposition::OVERWRITE_IF,
            share_access: SHARE_ALL,
            name: name.as_utf16(),
            contexts: contexts.as_contexts(),
            ..CreateRequest::default()
        };
        assert_eq!(crate::commands::create::handle(w.request(&q)).await.status, status, "{bytes:#x}");
    }
}
