//! Files that other programs created, and files that this server creates for other programs.

use rustix::fs::{XattrFlags, getxattr, setxattr};

use super::*;
use crate::{BasicChange, ExtendedAttribute, Timestamp};

fn takes_attributes(path: &Path) -> bool {
    let taken = setxattr(path, "user.try", b"1", XattrFlags::empty()).is_ok();
    if !taken {
        eprintln!("SKIPPED: no user.* attributes here");
    }
    taken
}

#[tokio::test]
async fn a_file_from_elsewhere() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a directory");
    let vfs = tree(dir.path());
    let (plain, locked) = (dir.path().join("plain"), dir.path().join("locked"));
    std::fs::write(&plain, "1").expect("room");
    std::fs::write(&locked, "2").expect("room");
    std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(0o444)).expect("ours");
    std::fs::create_dir(dir.path().join("d")).expect("room");
    let mut reader = request("locked", OpenMode::Open, None);
    reader.rights.write = false;
    let opened = vfs.open(&Ctx::default(), reader).wait().await.expect("readable");
    assert_eq!(opened.stat.attributes, Attributes::ARCHIVE | Attributes::READONLY);
    assert_eq!(existing(&*vfs, "plain").await.stat.attributes, Attributes::ARCHIVE);
    assert_eq!(existing(&*vfs, "d").await.stat.attributes, Attributes::DIRECTORY);
    let made = plain.metadata().expect("there");
    if let Ok(born) = made.created() {
        let born = born.duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        let expected = Timestamp { seconds: born.as_secs() as i64, nanoseconds: born.subsec_nanos() };
        assert_eq!(existing(&*vfs, "plain").await.stat.created, expected);
    }
}

#[tokio::test]
async fn what_is_on_the_disk() {
    let dir = tempfile::tempdir().expect("a directory");
    if !takes_attributes(dir.path()) {
        return;
    }
    let (vfs, c, file) = (tree(dir.path()), Ctx::default(), dir.path().join("f"));
    let get = |name: &str| {
        let mut value = vec![0; 1000];
        let n = getxattr(&file, name, &mut value[..])?;
        value.truncate(n);
        Ok::<_, rustix::io::Errno>(value)
    };
    let f = open(&*vfs, "f", OpenMode::Create).await.expect("made").node;
    assert_eq!(get("user.causeway.dos"), Err(rustix::io::Errno::NODATA), "ARCHIVE needs no record");
    let change = BasicChange { attributes: Some(Attributes::HIDDEN), ..Default::default() };
    f.set_basic(&c, change).wait().await.expect("kept");
    let record = [1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(get("user.causeway.dos").as_deref(), Ok(&record[..]));
    f.set_security(&c, vec![7, 8, 9]).wait().await.expect("kept");
    assert_eq!(get("user.causeway.sd").as_deref(), Ok(&[1, 0, 7, 8, 9][..]));
    let ea =
        |name: &str, value: &[u8]| ExtendedAttribute { flags: 0, name: name.into(), value: value.to_vec() };
    f.set_extended_attributes(&c, vec![ea("Name", b"value")]).wait().await.expect("kept");
    assert_eq!(get("user.Name").as_deref(), Ok(&b"value"[..]));
    for ours in ["causeway.dos", "Causeway.sd", "CAUSEWAY.x"] {
        let set = f.set_extended_attributes(&c, vec![ea(ours, b"x")]).wait().await;
        assert_eq!(set, Err(VfsError::AccessDenied), "{ours}");
    }
    drop(f);
    setxattr(&file, "user.other", b"from outside", XattrFlags::empty()).expect("room");
    setxattr(&file, "user.causeway.dos", b"damaged", XattrFlags::empty()).expect("room");
    for damaged in [&b""[..], b"\x01", b"\x02\x00what a later version writes"] {
        setxattr(&file, "user.causeway.sd", damaged, XattrFlags::empty()).expect("room");
        let opened = existing(&*vfs, "f").await.node;
        assert_eq!(opened.security(&c).wait().await, Err(VfsError::Damaged), "never: there is none");
    }
    let f = existing(&*vfs, "f").await;
    assert_eq!(f.stat.attributes, Attributes::ARCHIVE, "the default");
    f.node.set_security(&c, vec![7]).wait().await.expect("repaired");
    assert_eq!(f.node.security(&c).wait().await, Ok(Some(vec![7])));
    let mut all = f.node.extended_attributes(&c).wait().await.expect("kept");
    all.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(all, [ea("Name", b"value"), ea("other", b"from outside")]);
}
