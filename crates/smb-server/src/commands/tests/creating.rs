use smb_wire::context::create::name;
use smb_wire::msg::{CreateAction, SecurityInformation};
use smb_wire::security::{
    Ace, AceFlags, AceType, AclBuf, ControlFlags, SecurityDescriptor, SecurityDescriptorBuf,
};

use super::*;

// MS-SMB2 3.3.5.9, MS-FSA 2.1.5.1: the result of each disposition, for an existing file and for a new one.
#[tokio::test(start_paused = true)]
async fn dispositions() {
    use CreateDisposition as D;
    let (not_found, collision) = (NtStatus::OBJECT_NAME_NOT_FOUND, NtStatus::OBJECT_NAME_COLLISION);
    for (disposition, when_missing, when_there) in [
        (D::SUPERSEDE, Ok(CreateAction::CREATED), Ok(CreateAction::SUPERSEDED)),
        (D::OPEN, Err(not_found), Ok(CreateAction::OPENED)),
        (D::CREATE, Ok(CreateAction::CREATED), Err(collision)),
        (D::OPEN_IF, Ok(CreateAction::CREATED), Ok(CreateAction::OPENED)),
        (D::OVERWRITE, Err(not_found), Ok(CreateAction::OVERWRITTEN)),
        (D::OVERWRITE_IF, Ok(CreateAction::CREATED), Ok(CreateAction::OVERWRITTEN)),
    ] {
        let w = World::new();
        let how = How { disposition, ..How::OPEN };
        assert_eq!(w.try_create("f", how).await.map(|c| c.action), when_missing, "{disposition:?}, missing");
        let _ = w.try_create("f", How::OPEN_IF).await.expect("there now");
        assert_eq!(w.try_create("f", how).await.map(|c| c.action), when_there, "{disposition:?}, there");
    }
}

#[tokio::test(start_paused = true)]
async fn names() {
    let w = World::new();
    for (name, status) in [
        ("\\f", NtStatus::INVALID_PARAMETER),
        ("a\\\\b", NtStatus::OBJECT_NAME_INVALID),
        ("a*", NtStatus::OBJECT_NAME_INVALID),
        ("f:", NtStatus::OBJECT_NAME_INVALID),
        ("f:s:$OTHER", NtStatus::OBJECT_NAME_INVALID),
        ("f:s\\g", NtStatus::OBJECT_NAME_INVALID),
        ("a\\..\\b", NtStatus::OBJECT_PATH_SYNTAX_BAD),
        ("missing\\f", NtStatus::OBJECT_PATH_NOT_FOUND),
    ] {
        assert_eq!(w.try_create(name, How::OPEN_IF).await, Err(status), "{name}");
    }
    let directory = How { options: CreateOptions::DIRECTORY_FILE, ..How::OPEN };
    let file = How { options: CreateOptions::NON_DIRECTORY_FILE, ..How::OPEN };
    w.create("d", How::MKDIR).await;
    w.create("f", How::CREATE).await;
    assert_eq!(w.try_create("f", directory).await, Err(NtStatus::NOT_A_DIRECTORY));
    assert_eq!(w.try_create("d", file).await, Err(NtStatus::FILE_IS_A_DIRECTORY));
    assert_eq!(w.try_create("f", How::MKDIR).await, Err(NtStatus::OBJECT_NAME_COLLISION));
}

// MS-FSA 2.1.5.1, phases 1 and 7: only the name of a directory may end with a separator.
#[tokio::test(start_paused = true)]
async fn names_that_end_with_a_separator() {
    use CreateDisposition as D;
    let w = World::new();
    w.create("d", How::MKDIR).await;
    w.create("f", How::CREATE).await;
    let (invalid, not_found) = (NtStatus::OBJECT_NAME_INVALID, NtStatus::OBJECT_NAME_NOT_FOUND);
    let collision = NtStatus::OBJECT_NAME_COLLISION;
    let (any, file) = (CreateOptions::empty(), CreateOptions::NON_DIRECTORY_FILE);
    let directory = CreateOptions::DIRECTORY_FILE;
    for (name, disposition, options, result) in [
        ("f\\", D::OPEN, any, Err(invalid)),
        ("f\\", D::OPEN_IF, any, Err(invalid)),
        ("f\\", D::OVERWRITE, any, Err(invalid)),
        ("f/", D::OPEN, any, Err(invalid)),
        ("f\\", D::OPEN, file, Err(invalid)),
        ("f\\", D::OPEN, directory, Err(NtStatus::NOT_A_DIRECTORY)),
        ("d\\", D::OPEN, file, Err(invalid)),
        ("d\\", D::OPEN, any, Ok(CreateAction::OPENED)),
        ("d\\", D::OPEN_IF, any, Ok(CreateAction::OPENED)),
        ("d\\", D::CREATE, any, Err(collision)),
        ("d\\", D::OPEN, directory, Ok(CreateAction::OPENED)),
        ("none\\", D::OPEN, any, Err(not_found)),
        ("none\\", D::OPEN_IF, any, Err(invalid)),
        ("none\\", D::CREATE, any, Err(invalid)),
        ("new\\", D::CREATE, directory, Ok(CreateAction::CREATED)),
    ] {
        let how = How { disposition, options, ..How::OPEN };
        let action = w.try_create(name, how).await.map(|c| c.action);
        assert_eq!(action, result, "{name}, {disposition:?}, {options:?}");
    }
    assert!(!w.exists("none").await);
}

// MS-FSA 2.1.5.1.2.2: share modes are checked when the open joins the file, for opens of all sessions; an open for
// attributes only conflicts with no other.
#[tokio::test(start_paused = true)]
async fn share_modes() {
    let w = World::new();
    let other = w.another(1001);
    let reader = How { access: AccessMask::READ_DATA, share: ShareAccess::READ, ..How::OPEN_IF };
    let writer = How { access: AccessMask::WRITE_DATA, ..How::OPEN_IF };
    let first = w.create("f", reader).await;
    assert_eq!(other.try_create("F", writer).await, Err(NtStatus::SHARING_VIOLATION));
    let attributes = How { access: AccessMask::READ_ATTRIBUTES, share: ShareAccess::empty(), ..How::OPEN };
    let second = other.create("f", attributes).await;
    w.close(first).await;
    let third = other.create("f", writer).await;
    other.close(second).await;
    other.close(third).await;
    assert!(w.session.opens().is_empty() && other.session.opens().is_empty());
}

// Overwriting counts as write access, even if the open does not request it (MS-FSA 2.1.5.1.2).
#[tokio::test(start_paused = true)]
async fn overwriting_is_judged_like_writing() {
    let w = World::new();
    let reader = How { access: AccessMask::READ_DATA, share: ShareAccess::READ, ..How::OPEN_IF };
    w.create("f", reader).await;
    let how = How { access: AccessMask::READ_DATA, disposition: CreateDisposition::OVERWRITE, ..How::OPEN };
    assert_eq!(w.try_create("f", how).await, Err(NtStatus::SHARING_VIOLATION));
}

// MS-DTYP 2.5.3.2, and the rights that the folder gives (MS-FSA 2.1.5.1.2.1).
#[tokio::test(start_paused = true)]
async fn security() {
    let w = World::new();
    let other = w.another(1001);
    let f = w.create("f", How::CREATE).await;
    let sd = of_owner_only(&w.session.user);
    let q = SetInfoRequest {
        info_type: InfoType::SECURITY,
        additional_information: smb_wire::msg::SecurityInformation::DACL,
        file_id: f,
        buffer: &sd,
        ..Default::default()
    };
    assert_eq!(crate::commands::set_info::handle(w.request(&q)).await.status, NtStatus::SUCCESS);
    w.close(f).await;
    let read = How { access: AccessMask::READ_DATA, ..How::OPEN };
    assert_eq!(other.try_create("f", read).await, Err(NtStatus::ACCESS_DENIED));
    w.try_create("f", read).await.expect("the owner");
    // The root lets everyone delete its children and see their attributes.
    let delete = How { access: AccessMask::DELETE | AccessMask::READ_ATTRIBUTES, ..How::OPEN };
    other.try_create("f", delete).await.expect("by the folder's leave");
    let system = How { access: AccessMask::ACCESS_SYSTEM_SECURITY | AccessMask::READ_DATA, ..How::OPEN };
    assert_eq!(w.try_create("f", system).await, Err(NtStatus::PRIVILEGE_NOT_HELD));
}

// MS-SMB2 3.3.5.9.2: a SACL in SMB2_CREATE_SD_BUFFER needs SeSecurityPrivilege, and counts for a new file only.
#[tokio::test(start_paused = true)]
async fn a_sacl_at_create() {
    let w = World::new();
    let mut administrator = user(1001);
    administrator.groups.push(Sid::BUILTIN_ADMINISTRATORS);
    let (session, tree) = World::connect(&w.server, 1001, administrator);
    let administrator = World { server: Arc::clone(&w.server), facts: Arc::clone(&w.facts), session, tree };
    let inheritable = AceFlags::OBJECT_INHERIT | AceFlags::CONTAINER_INHERIT | AceFlags::FAILED_ACCESS;
    let mut sacl = AclBuf::new();
    let audit = Ace::new(AceType::SYSTEM_AUDIT, inheritable, AccessMask::WRITE_DATA, Sid::EVERYONE);
    sacl.push(&audit).expect("fits");
    let mut sd = Vec::new();
    SecurityDescriptorBuf { sacl: Some(sacl), ..SecurityDescriptorBuf::default() }.encode(&mut sd);
    let mut contexts = CreateContextsBuf::new();
    contexts.push(name::SEC_D, &sd).expect("fits");

    let create = async |w: &World, how| w.create_with("d", how, OplockLevel::NONE, &contexts).await.status;
    let make = How { disposition: CreateDisposition::OPEN_IF, ..How::MKDIR };
    assert_eq!(create(&w, make).await, NtStatus::PRIVILEGE_NOT_HELD);
    assert!(!w.exists("d").await);
    assert_eq!(create(&administrator, make).await, NtStatus::SUCCESS);
    assert_eq!(create(&w, make).await, NtStatus::SUCCESS, "ignored for a directory that exists");
    // The server reads the list that the child inherits; the user may not.
    w.create("d\\f", How::CREATE).await;
    let how = How { access: AccessMask::ACCESS_SYSTEM_SECURITY, ..How::OPEN };
    let f = administrator.create("d\\f", how).await;
    let q = QueryInfoRequest {
        info_type: InfoType::SECURITY,
        additional_information: SecurityInformation::SACL,
        output_buffer_length: 4096,
        file_id: f,
        ..QueryInfoRequest::default()
    };
    let reply = crate::commands::query_info::handle(administrator.request(&q)).await;
    let answer = success::<QueryInfoResponse<'_>>(&reply).expect("an administrator");
    let d = SecurityDescriptor::decode(answer.buffer).expect("our own");
    let entries: Vec<_> = d.sacl.expect("inherited").iter().map(|a| a.expect("our own")).collect();
    assert_eq!(entries, [Ace { flags: AceFlags::FAILED_ACCESS, ..audit }]);
}

fn of_owner_only(user: &User) -> Vec<u8> {
    let mut dacl = AclBuf::new();
    dacl.push(&Ace::new(AceType::ACCESS_ALLOWED, AceFlags::empty(), ALL, user.sid)).expect("fits");
    let sd = SecurityDescriptorBuf {
        control: ControlFlags::DACL_PRESENT,
        dacl: Some(dacl),
        ..SecurityDescriptorBuf::default()
    };
    let mut bytes = Vec::new();
    sd.encode(&mut bytes);
    bytes
}

// A CREATE of a session that ends meanwhile leaves no open behind.
#[tokio::test(start_paused = true)]
async fn no_open_is_lost() {
    let w = World::new();
    w.create("f", How::CREATE).await;
    w.session.end();
    assert_eq!(w.try_create("f", How::OPEN).await, Err(NtStatus::FILE_CLOSED));
    assert!(w.session.opens().is_empty());
    // The file's first open was taken out of the session but not closed: it still counts.
    let exclusive = How { share: ShareAccess::empty(), ..How::OPEN };
    let other = w.another(1001);
    assert_eq!(other.try_create("f", exclusive).await, Err(NtStatus::SHARING_VIOLATION));
}

// A CREATE that fails removes the file that it created, and no other file.
#[tokio::test(start_paused = true)]
async fn what_a_failed_creation_made_is_gone() {
    let (w, kept) = (World::new(), Err(NtStatus::FILE_CLOSED));
    let other = w.another(1001);
    other.create("there", How::CREATE).await;
    // No open is added to it any more.
    w.session.end();
    assert_eq!(w.try_create("f", How::CREATE).await, kept);
    assert_eq!(w.try_create("d", How::MKDIR).await, kept);
    assert_eq!(w.try_create("there", How::OPEN_IF).await, kept);
    assert!(!other.exists("f").await && !other.exists("d").await && other.exists("there").await);
}

// A user's opens are bounded in all sessions together, and so are those of the server: one user cannot take all
// descriptors (MS-SMB2 3.3.5.9). A CREATE that fails takes none.
#[tokio::test(start_paused = true)]
async fn opens_are_bounded() {
    const FULL: Result<Created, NtStatus> = Err(NtStatus::TOO_MANY_OPENED_FILES);
    let w = World::new().bounded(3, 2);
    let (second, other) = (w.another(1000), w.another(1001));
    let first = w.create("a", How::CREATE).await;
    second.create("b", How::CREATE).await;
    assert_eq!(w.try_create("a", How::OPEN).await, FULL, "two are the user's most");
    assert_eq!(second.try_create("c", How::CREATE).await, FULL, "in another session too");
    let quotas = How { access: AccessMask::READ_DATA, ..How::OPEN };
    assert_eq!(
        w.try_create("$Extend\\$Quota:$Q:$INDEX_ALLOCATION", quotas).await,
        FULL,
        "without a file too"
    );
    for _ in 0..5 {
        assert_eq!(other.try_create("x", How::OPEN).await, Err(NtStatus::OBJECT_NAME_NOT_FOUND));
        assert_eq!(other.try_create("a", How::CREATE).await, Err(NtStatus::OBJECT_NAME_COLLISION));
    }
    let last = other.create("a", How::OPEN).await;
    assert_eq!(other.try_create("a", How::OPEN).await, FULL, "three are the server's most");
    w.close(first).await;
    assert!(!other.exists("c").await, "nothing was created");
    other.create("b", How::OPEN).await;
    assert_eq!(w.try_create("a", How::OPEN).await, FULL);
    other.close(last).await;
    w.create("a", How::OPEN).await;
}
