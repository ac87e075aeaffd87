//! Files that existed before they were shared: the access of a user follows from owner, group and mode.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::*;
use crate::access::posix;

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("ours");
}

/// A world whose user 1000 is this machine's user and whose other users are unknown to it, on a share of `dir`.
fn world_on(dir: &Path) -> World {
    let w = World::new();
    let vfs = vfs::HostDir::open(dir, vfs::HostDirOptions::default()).expect("a directory");
    w.server.add_share(ShareConfig::new("disk", vfs)).expect("another name");
    let mut me = user(1000);
    me.groups.push(posix::user_sid(std::fs::metadata(dir).expect("there").uid()));
    as_user(&w, me)
}

fn as_user(w: &World, user: User) -> World {
    let (session, _) = World::connect(&w.server, 77, user);
    let share = w.server.share("disk").expect("added");
    let tree = session.add_tree(2, |id| Tree::new(id, share, ALL.bits())).expect("the second");
    World { server: Arc::clone(&w.server), facts: Arc::clone(&w.facts), session, tree }
}

#[tokio::test]
async fn existing_files_keep_their_protection() {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, mode) in [("private", 0o600), ("public", 0o644), ("common", 0o666)] {
        std::fs::write(dir.path().join(name), name).expect("room");
        chmod(&dir.path().join(name), mode);
    }
    std::fs::create_dir(dir.path().join("shut")).expect("room");
    std::fs::write(dir.path().join("shut/public"), "").expect("room");
    chmod(&dir.path().join("shut/public"), 0o644);
    chmod(&dir.path().join("shut"), 0o700);
    chmod(dir.path(), 0o755);

    let owner = world_on(dir.path());
    let other = as_user(&owner, user(1001));
    let (read, write) = (AccessMask::READ_DATA, AccessMask::WRITE_DATA);
    let denied = Err(NtStatus::ACCESS_DENIED);
    for (name, access, outcome) in [
        ("private", read, denied),
        ("private", AccessMask::READ_CONTROL, denied),
        ("public", read, Ok(())),
        ("public", write, denied),
        ("common", read | write, Ok(())),
        ("common", AccessMask::DELETE, denied),
        ("shut", read, denied),
        ("shut\\public", read, denied),
        ("shut\\public", AccessMask::READ_CONTROL, denied),
    ] {
        let how = How { access, ..How::OPEN };
        owner.try_create(name, how).await.unwrap_or_else(|s| panic!("the owner of {name}: {s:?}"));
        assert_eq!(other.try_create(name, how).await.map(|_| ()), outcome, "{name} {access:?}");
    }
    assert_eq!(other.try_create("new", How::CREATE).await.map(|_| ()), denied, "the directory is 0755");
    assert_eq!(other.try_create("shut\\new", How::CREATE).await.map(|_| ()), denied);
    // Nor may a user create below a directory that it may not traverse, or learn which names exist there.
    std::fs::create_dir(dir.path().join("shut/in")).expect("room");
    chmod(&dir.path().join("shut/in"), 0o777);
    for name in ["shut\\in\\new", "shut\\in\\new:s", "shut\\public", "shut\\in"] {
        assert_eq!(other.try_create(name, How::CREATE).await.map(|_| ()), denied, "{name}");
    }
    assert_eq!(other.try_create("shut\\in\\new", How::OPEN_IF).await.map(|_| ()), denied);
    owner.try_create("shut\\in\\new", How::OPEN_IF).await.expect("the owner passes");
}

// The access to a file follows from the mode that `ls -l` shows, until a descriptor is set.
#[tokio::test]
async fn chmod_counts_until_a_descriptor_is_set() {
    let dir = tempfile::tempdir().expect("a directory");
    chmod(dir.path(), 0o755);
    let path = dir.path().join("f");
    std::fs::write(&path, "").expect("room");
    chmod(&path, 0o600);
    let owner = world_on(dir.path());
    let other = as_user(&owner, user(1001));
    let read = How { access: AccessMask::READ_DATA, ..How::OPEN };
    assert_eq!(other.try_create("f", read).await.map(|_| ()), Err(NtStatus::ACCESS_DENIED));
    chmod(&path, 0o604);
    let f = other.create("f", read).await;
    other.close(f).await;
    // MS-DTYP 2.5.3.2: with a stored descriptor, the mode has no effect.
    let f = owner.create("f", How { access: AccessMask::WRITE_DAC, ..How::OPEN }).await;
    let nobody = smb_wire::security::SecurityDescriptorBuf {
        control: smb_wire::security::ControlFlags::DACL_PRESENT,
        dacl: Some(smb_wire::security::AclBuf::new()),
        ..Default::default()
    };
    let mut bytes = Vec::new();
    nobody.encode(&mut bytes);
    let q = SetInfoRequest {
        info_type: InfoType::SECURITY,
        additional_information: smb_wire::msg::SecurityInformation::DACL,
        file_id: f,
        buffer: &bytes,
        ..Default::default()
    };
    assert_eq!(crate::commands::set_info::handle(owner.request(&q)).await.status, NtStatus::SUCCESS);
    owner.close(f).await;
    assert_eq!(other.try_create("f", read).await.map(|_| ()), Err(NtStatus::ACCESS_DENIED));
}
