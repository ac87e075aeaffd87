//! The query of a Mac in its first CREATE, and the contents of its listings after that.

use smb_wire::context::{
    AaplAnswer, AaplCapabilities, AaplCommand, AaplParts, AaplQuery, CreateContextsBuf, CreateRequestContext,
    CreateResponseContext,
};
use smb_wire::fscc::{DirectoryEntries, FileInfoClass};
use smb_wire::msg::{QueryDirectoryFlags, QueryDirectoryRequest, QueryDirectoryResponse};

use super::*;

async fn write(w: &World, path: &str, bytes: &[u8]) {
    let id = w.create(path, How::OPEN_IF).await;
    let open = w.server.opens.find(id.persistent).expect("open");
    let src = [IoBuf::from(bytes.to_vec())].into_iter().collect();
    open.file().expect("a file").node.write(&env::Ctx::default(), 0, src).wait().await.expect("room");
    w.close(id).await;
}

/// The first open of a Mac; returns the server's capabilities.
async fn greet(w: &World, client: AaplCapabilities) -> AaplCapabilities {
    let (mut data, mut contexts) = (Vec::new(), CreateContextsBuf::new());
    let (command, parts) = (AaplCommand::SERVER_QUERY, AaplParts::all());
    AaplQuery { command, parts, client }.encode(&mut data);
    contexts.request(&CreateRequestContext::Aapl(&data)).expect("short");
    let q = CreateRequest {
        impersonation_level: ImpersonationLevel::IMPERSONATION,
        desired_access: AccessMask::READ_ATTRIBUTES,
        share_access: SHARE_ALL,
        create_disposition: CreateDisposition::OPEN,
        contexts: contexts.as_contexts(),
        ..CreateRequest::default()
    };
    let reply = super::super::create::handle(w.request(&q)).await;
    let a = success::<CreateResponse<'_>>(&reply).expect("opened");
    w.close(a.file_id).await;
    let Some(Ok(CreateResponseContext::Aapl(bytes))) = a.contexts.responses().next() else { panic!("{a:?}") };
    AaplAnswer::decode(bytes).expect("ours").server.expect("asked for")
}

/// The bytes of the one entry that matches.
async fn entry(w: &World, name: &str) -> Vec<u8> {
    let file_id = w.create("", How { access: AccessMask::READ_DATA, ..How::OPEN }).await;
    let pattern = Utf16Buf::from(name);
    let q = QueryDirectoryRequest {
        info_class: FileInfoClass::ID_BOTH_DIRECTORY.0,
        flags: QueryDirectoryFlags::empty(),
        file_id,
        pattern: pattern.as_utf16(),
        output_buffer_length: 4096,
        ..Default::default()
    };
    let reply = super::super::query_directory::handle(w.request(&q)).await;
    w.close(file_id).await;
    success::<QueryDirectoryResponse<'_>>(&reply).expect("listed").buffer.to_vec()
}

#[tokio::test]
async fn listings() {
    let w = World::new();
    write(&w, "f", b"data").await;
    write(&w, "f:AFP_Resource", &[7; 286]).await;
    let mut information = [0; 60];
    information[..4].copy_from_slice(b"AFP\0");
    information[16..26].copy_from_slice(b"TEXTttxt\x40\x01");
    information[40..42].copy_from_slice(&[1, 2]);
    write(&w, "f:AFP_AfpInfo", &information).await;

    // A client that does not request READ_DIRECTORY_ATTRIBUTES gets the ordinary listing.
    assert_eq!(greet(&w, AaplCapabilities::empty()).await, AaplCapabilities::UNIX_BASED);
    let plain = entry(&w, "f").await;
    assert_eq!(plain[64..94], [0; 30]);

    let both = AaplCapabilities::UNIX_BASED | AaplCapabilities::READ_DIRECTORY_ATTRIBUTES;
    assert_eq!(greet(&w, AaplCapabilities::all()).await, both);
    let f = entry(&w, "f").await;
    assert_eq!(f[64..68], AccessMask::FILE_ALL_ACCESS.bits().to_le_bytes());
    assert_eq!(f[68..70], [0, 0]);
    assert_eq!(f[70..78], 286u64.to_le_bytes());
    assert_eq!(f[78..90], *b"TEXTttxt\x40\x01\x01\x02");
    let read = DirectoryEntries::new(&f, FileInfoClass::ID_BOTH_DIRECTORY).expect("a directory class");
    let names: Vec<_> = read.map(|e| e.expect("sound").name.to_string().expect("UTF-16")).collect();
    assert_eq!(names, ["f"], "the rest of an entry is as ever");

    // Data without the signature is ignored.
    write(&w, "f:AFP_AfpInfo", b"nonsense").await;
    assert_eq!(entry(&w, "f").await[78..94], [0; 16]);
}
