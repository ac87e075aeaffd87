use smb_wire::fscc::{DirectoryEntries, FileInfoClass};
use smb_wire::msg::{QueryDirectoryFlags, QueryDirectoryRequest, QueryDirectoryResponse};

use smb_wire::HEADER_LEN;
use vfs::Data;

use super::*;

pub(super) async fn query(
    w: &World,
    file_id: FileId,
    pattern: &str,
    flags: QueryDirectoryFlags,
    room: u32,
) -> Result<Vec<String>, NtStatus> {
    let (pattern, class) = (Utf16Buf::from(pattern), FileInfoClass::ID_BOTH_DIRECTORY);
    let q = QueryDirectoryRequest {
        info_class: class.0,
        flags,
        file_id,
        pattern: pattern.as_utf16(),
        output_buffer_length: room,
        ..Default::default()
    };
    let mut reply = super::super::query_directory::handle(w.request(&q)).await;
    if reply.status != NtStatus::SUCCESS {
        return Err(reply.status);
    }
    // Long output is memory of the arena, not of the message.
    let Data::Bufs(payload) = &reply.payload else { panic!("output is no file") };
    let usage = w.server.arena.usage();
    assert!(reply.message.len() <= HEADER_LEN + 8 + 4096);
    assert!(usage.used >= arena::sg_len(payload));
    let payload = arena::sg_to_vec(payload);
    reply.message.extend(payload);
    let answer = success::<QueryDirectoryResponse<'_>>(&reply)?;
    let entries = DirectoryEntries::new(answer.buffer, class).expect("a directory class");
    Ok(entries.map(|e| e.expect("well-formed").name.to_string().expect("UTF-16")).collect())
}

const NONE: QueryDirectoryFlags = QueryDirectoryFlags::empty();

async fn filled(w: &World, count: usize) -> FileId {
    for i in 0..count {
        let f = w.create(&format!("file{i:04}"), How::CREATE).await;
        w.close(f).await;
    }
    w.create("", How { access: AccessMask::READ_DATA, ..How::OPEN }).await
}

// Every entry once, however small the buffer; then NO_MORE_FILES; then again from the start.
#[tokio::test(start_paused = true)]
async fn in_pieces() {
    let w = World::new();
    let d = filled(&w, 700).await;
    let mut expected: Vec<String> = (0..700).map(|i| format!("file{i:04}")).collect();
    expected.extend([".".into(), "..".into()]);
    expected.sort();
    for (round, room) in [200, 4096, 1 << 20].into_iter().enumerate() {
        let mut seen = Vec::new();
        let mut flags = if round == 0 { NONE } else { QueryDirectoryFlags::RESTART_SCANS };
        loop {
            match query(&w, d, "*", flags, room).await {
                Ok(names) => seen.extend(names),
                Err(NtStatus::NO_MORE_FILES) => break,
                Err(e) => panic!("{e}"),
            }
            flags = NONE;
        }
        seen.sort();
        assert_eq!(seen, expected, "{room} bytes at a time");
    }
}

#[tokio::test(start_paused = true)]
async fn patterns_and_flags() {
    let w = World::new();
    let d = filled(&w, 20).await;
    assert_eq!(query(&w, d, "missing", NONE, 4096).await, Err(NtStatus::NO_SUCH_FILE));
    let reopen = QueryDirectoryFlags::REOPEN;
    assert_eq!(query(&w, d, "FILE0007", reopen, 4096).await.expect("found"), ["file0007"]);
    assert_eq!(query(&w, d, "ignored", NONE, 4096).await, Err(NtStatus::NO_MORE_FILES));
    assert_eq!(query(&w, d, "*1?", reopen, 4096).await.expect("found").len(), 10);
    let single = reopen | QueryDirectoryFlags::RETURN_SINGLE_ENTRY;
    assert_eq!(query(&w, d, "f*", single, 4096).await.expect("found").len(), 1);
    assert_eq!(query(&w, d, "a\\b", reopen, 4096).await, Err(NtStatus::OBJECT_NAME_INVALID));
}

// MS-FSA 2.1.5.6.3: a buffer too small for the fixed part; one too small for the name; then the listing continues.
#[tokio::test(start_paused = true)]
async fn too_small() {
    let w = World::new();
    let d = filled(&w, 1).await;
    assert_eq!(query(&w, d, "f*", NONE, 103).await, Err(NtStatus::INFO_LENGTH_MISMATCH));
    assert_eq!(query(&w, d, "f*", NONE, 106).await, Err(NtStatus::BUFFER_OVERFLOW));
    assert_eq!(query(&w, d, "f*", NONE, 4096).await.expect("fits"), ["file0000"]);
    let f = w.create("file0000", How::OPEN).await;
    assert_eq!(query(&w, f, "*", NONE, 4096).await, Err(NtStatus::INVALID_PARAMETER));
}
