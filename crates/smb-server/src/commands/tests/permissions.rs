//! Share permissions and access-based enumeration.

use smb_wire::fscc::{DirectoryEntries, FileInfoClass};
use smb_wire::msg::{
    QueryDirectoryRequest, QueryDirectoryResponse, ShareFlags, TreeConnectRequest, TreeConnectResponse,
};

use super::*;
use crate::connection::Outcome;
use crate::{ShareGrant, ShareLevel, ShareProtection};

/// TREE_CONNECT; returns the maximal access and the flags of the answer.
fn connect(w: &World) -> Result<(AccessMask, ShareFlags), NtStatus> {
    let path = Utf16Buf::from("\\\\server\\files");
    let q = TreeConnectRequest { path: path.as_utf16(), ..TreeConnectRequest::default() };
    let message = w.request(&q).message;
    match crate::commands::tree::connect(&w.server, &w.facts, &w.session, &message, false) {
        Outcome::Reply(reply) if reply.status == NtStatus::SUCCESS => {
            let a = success::<TreeConnectResponse>(&reply)?;
            Ok((a.maximal_access, a.share_flags))
        }
        Outcome::Reply(reply) => Err(reply.status),
        _ => panic!("answered at once"),
    }
}

fn protect(w: &World, grants: &[(Sid, ShareLevel)], access_based_enumeration: bool) {
    let grants = grants.iter().map(|(sid, level)| ShareGrant { name: sid.to_string(), level: *level });
    let protection = ShareProtection { grants: Some(grants.collect()), access_based_enumeration };
    w.server.protect_share("FILES", protection).expect("there");
}

// MS-SMB2 3.3.5.7: the answer contains the maximal access, and a user without any access is refused.
#[tokio::test(start_paused = true)]
async fn the_ceiling_of_a_tree() {
    let w = World::new();
    let (mut me, mut other) = (w.another(1000), w.another(1001));
    for world in [&mut me, &mut other] {
        Arc::get_mut(&mut world.session).expect("its only holder").user.groups.push(Sid::EVERYONE);
    }
    assert_eq!(connect(&me).map(|a| a.0), Ok(AccessMask::FILE_ALL_ACCESS), "no list");
    protect(&w, &[(me.session.user.sid, ShareLevel::Read)], false);
    assert_eq!(connect(&me).map(|a| a.0.bits()), Ok(0x0012_00A9));
    assert_eq!(connect(&other), Err(NtStatus::ACCESS_DENIED));
    protect(&w, &[(Sid::EVERYONE, ShareLevel::Change), (other.session.user.sid, ShareLevel::Deny)], true);
    let (access, flags) = connect(&me).expect("granted");
    assert_eq!(access.bits(), 0x0013_01BF);
    assert!(flags.contains(ShareFlags::ACCESS_BASED_DIRECTORY_ENUM));
    assert_eq!(connect(&other), Err(NtStatus::ACCESS_DENIED));
}

// "Change" may delete if the folder allows it, and may not change descriptors (MS-FSA 2.1.5.1.2.1).
#[tokio::test(start_paused = true)]
async fn what_change_may_do() {
    let w = World::new();
    let share = w.server.share("files").expect("added");
    let f = w.create("f", How::CREATE).await;
    w.close(f).await;
    let other = w.another(1001);
    let tree = Tree::new(7, share, 0x0013_01BF);
    let other = World { tree: Arc::new(tree), ..other };
    let delete = How { access: AccessMask::DELETE, ..How::OPEN };
    other.try_create("f", delete).await.expect("the root lets its children be deleted");
    let change = How { access: AccessMask::WRITE_DAC, ..How::OPEN };
    assert_eq!(other.try_create("f", change).await.map(|_| ()), Err(NtStatus::ACCESS_DENIED));
}

async fn names(w: &World, pattern: &str) -> Result<Vec<String>, NtStatus> {
    let d = w.create("", How { access: AccessMask::READ_DATA, ..How::OPEN }).await;
    let (pattern, class) = (Utf16Buf::from(pattern), FileInfoClass::ID_BOTH_DIRECTORY);
    let q = QueryDirectoryRequest {
        info_class: class.0,
        file_id: d,
        pattern: pattern.as_utf16(),
        output_buffer_length: 4096,
        ..Default::default()
    };
    let reply = crate::commands::query_directory::handle(w.request(&q)).await;
    w.close(d).await;
    if reply.status != NtStatus::SUCCESS {
        return Err(reply.status);
    }
    let answer = success::<QueryDirectoryResponse<'_>>(&reply)?;
    let entries = DirectoryEntries::new(answer.buffer, class).expect("a directory class");
    Ok(entries.map(|e| e.expect("well-formed").name.to_string().expect("UTF-16")).collect())
}

#[tokio::test(start_paused = true)]
async fn access_based_enumeration() {
    let w = World::new();
    let other = w.another(1001);
    for (name, private) in [("mine", true), ("ours", false)] {
        let f = w.create(name, How::CREATE).await;
        if private {
            let open = w.request(&FlushRequest { file_id: f }).open(f).expect("open");
            let node = Arc::clone(&open.file().expect("a file").node);
            let parent = crate::access::default();
            let only_owner = smb_wire::security::SecurityDescriptorBuf {
                owner: Some(w.session.user.sid),
                dacl: Some(smb_wire::security::AclBuf::new()),
                ..parent
            };
            let mut bytes = Vec::new();
            only_owner.encode(&mut bytes);
            node.set_security(&env::Ctx::default(), bytes).wait().await.expect("kept");
        }
        w.close(f).await;
    }
    assert_eq!(names(&other, "*").await.expect("some"), [".", "..", "mine", "ours"]);
    protect(&w, &[(Sid::EVERYONE, ShareLevel::Full)], true);
    assert_eq!(names(&other, "*").await.expect("some"), [".", "..", "ours"]);
    assert_eq!(names(&other, "mine").await, Err(NtStatus::NO_SUCH_FILE), "by its name neither");
    assert_eq!(names(&other, "o*").await.expect("one"), ["ours"]);
}

/// The lines that a thread logs.
#[derive(Clone, Default)]
struct Log(Arc<parking_lot::Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Names sent by a client, or stored in accounts and shares, cannot add a line or a field to the log.
#[tokio::test]
async fn names_are_escaped() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing::Level::DEBUG)
        .with_writer(move || writer.clone());
    let _guard = tracing::subscriber::set_default(subscriber.finish());

    let w = World::new();
    protect(&w, &[], false);
    let mut me = w.another(1000);
    Arc::get_mut(&mut me.session).expect("its only holder").user.name = "eve\n INFO forged".into();
    assert_eq!(connect(&me), Err(NtStatus::ACCESS_DENIED));

    // The record of a stream is gone, so it cannot be removed at close.
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .expect("ours");
    let w = super::notifying::hosted(World::new(), directory.path());
    let options = CreateOptions::DELETE_ON_CLOSE;
    let stream = w.create("f:eve\n INFO forged", How { options, ..How::CREATE }).await;
    let file = directory.path().join("f");
    let mut names = vec![0; 4096];
    let length = rustix::fs::listxattr(&file, &mut names[..]).expect("attributes");
    let names = String::from_utf8(names[..length].to_vec()).expect("text");
    for record in names.split_terminator('\0').filter(|n| n.contains(".stream.")) {
        rustix::fs::removexattr(&file, record).expect("there");
    }
    w.close(stream).await;

    let text = String::from_utf8(log.0.lock().clone()).expect("text");
    assert!(
        text.contains("tree connect refused") && text.contains("a stream could not be removed"),
        "{text}"
    );
    assert!(!text.lines().any(|line| line.starts_with(" INFO forged")), "{text}");
}
