//! Times, attributes, security descriptors, extended attributes.

use std::sync::Arc;

use env::Ctx;

use super::{Subject, path};
use crate::{
    Attributes, BasicChange, ExtendedAttribute, Kind, OpenMode, OpenRequest, Rights, Timestamp, VfsError,
};

fn time(seconds: i64, nanoseconds: u32) -> Option<Timestamp> {
    Some(Timestamp { seconds, nanoseconds })
}

/// Each time is stored to 100 ns, independently of the others; writing data updates the last write time.
pub(super) async fn times(s: &Subject) {
    let c = Ctx::default();
    for made in [s.file("f").await, s.directory("d").await] {
        let (node, before) = (&made.node, made.stat);
        let change = BasicChange { written: time(1_000_000_000, 123_456_700), ..Default::default() };
        node.set_basic(&c, change).wait().await.expect("times");
        let now = s.stat(&**node).await;
        assert_eq!(Some(now.written), change.written);
        assert_eq!(now.accessed, before.accessed);
        assert!(!s.keeps_metadata || now.created == before.created);
        let change = BasicChange { accessed: time(-1_000_000, 900), ..Default::default() };
        node.set_basic(&c, change).wait().await.expect("times");
        let now = s.stat(&**node).await;
        assert_eq!(
            (Some(now.accessed), now.written),
            (change.accessed, time(1_000_000_000, 123_456_700).unwrap())
        );
        let change = BasicChange { created: time(-11_644_473_599, 100), ..Default::default() };
        node.set_basic(&c, change).wait().await.expect("times");
        if s.keeps_metadata {
            assert_eq!(Some(s.stat(&**node).await.created), change.created);
        }
        node.set_basic(&c, BasicChange::default()).wait().await.expect("nothing to do");
        assert_eq!(Some(s.stat(&**node).await.written), time(1_000_000_000, 123_456_700));
    }
    let f = s.existing("f").await;
    if s.keeps_metadata {
        assert_eq!(Some(f.stat.created), time(-11_644_473_599, 100), "after the last close");
    }
    s.write(&*f.node, 0, b"x").await;
    assert_ne!(Some(s.stat(&*f.node).await.written), time(1_000_000_000, 123_456_700));
}

/// A change time that was set stays until the file changes again.
pub(super) async fn change_time(s: &Subject) {
    let c = Ctx::default();
    let changed = time(-86_400, 500);
    for made in [s.file("f").await, s.directory("d").await] {
        // Set together with another time, and alone.
        for written in [time(86_400, 0), None] {
            let change = BasicChange { changed, written, ..Default::default() };
            made.node.set_basic(&c, change).wait().await.expect("times");
            if s.keeps_metadata {
                assert_eq!(Some(s.stat(&*made.node).await.changed), changed);
            }
        }
    }
    if !s.keeps_metadata {
        return;
    }
    let root = s.existing("").await;
    for entry in root.node.list(&c, true, 100).wait().await.expect("listed") {
        assert_eq!(Some(entry.stat.changed), changed, "{}", entry.name);
    }
    let f = s.existing("f").await;
    assert_eq!(Some(f.stat.changed), changed, "after the last close");
    // The system's clock may stand still for a moment.
    for _ in 0..1_000_000 {
        s.write(&*f.node, 0, b"x").await;
        if Some(s.stat(&*f.node).await.changed) != changed {
            return;
        }
    }
    panic!("a write does not change the change time");
}

/// Attributes at creation, and set later.
pub(super) async fn attributes(s: &Subject) {
    if !s.keeps_metadata {
        return;
    }
    let c = Ctx::default();
    let all = Attributes::STORED;
    for (i, given) in [Attributes::empty(), Attributes::ARCHIVE, Attributes::HIDDEN | Attributes::SYSTEM, all]
        .into_iter()
        .enumerate()
    {
        for kind in [Kind::File, Kind::Directory] {
            let name = format!("{kind:?}{i}");
            let request = OpenRequest {
                mode: OpenMode::Create,
                kind: Some(kind),
                rights: Rights { read: true, write: true },
                attributes: given | Attributes::NORMAL | Attributes::COMPRESSED,
                ..OpenRequest::for_metadata(path(&name))
            };
            let made = s.vfs.open(&c, request).wait().await.expect("made");
            let implied = if kind == Kind::Directory { Attributes::DIRECTORY } else { Attributes::empty() };
            assert_eq!(made.stat.attributes, given | implied, "{name}");
            drop(made);
            let again = s.existing(&name).await;
            assert_eq!(again.stat.attributes, given | implied, "{name} opened again");
            for set in [Attributes::READONLY, Attributes::empty(), all] {
                let change = BasicChange { attributes: Some(set | Attributes::NORMAL), ..Default::default() };
                again.node.set_basic(&c, change).wait().await.expect("attributes");
                assert_eq!(s.stat(&*again.node).await.attributes, set | implied);
                assert_eq!(s.existing(&name).await.stat.attributes, set | implied);
            }
        }
    }
    // READONLY is enforced by the server only; SPARSE_FILE is set by its own call and stays.
    let f = s.existing("File3").await;
    s.write(&*f.node, 0, b"written all the same").await;
    f.node.set_sparse(&c, true).wait().await.expect("sparse");
    let change = BasicChange { attributes: Some(Attributes::HIDDEN), ..Default::default() };
    f.node.set_basic(&c, change).wait().await.expect("attributes");
    assert_eq!(s.stat(&*f.node).await.attributes, Attributes::HIDDEN | Attributes::SPARSE_FILE);
    f.node.set_sparse(&c, false).wait().await.expect("not sparse");
    drop(f);
    assert_eq!(s.existing("file3").await.stat.attributes, Attributes::HIDDEN);
}

/// Security descriptors are stored unchanged.
pub(super) async fn security(s: &Subject) {
    if !s.keeps_metadata {
        return;
    }
    let c = Ctx::default();
    let first = vec![1, 0, 4, 128, 0, 0];
    let request = OpenRequest {
        mode: OpenMode::Create,
        rights: Rights { read: true, write: true },
        attributes: Attributes::ARCHIVE,
        create_check: Some(Arc::new(first.clone())),
        ..OpenRequest::for_metadata(path("made with one"))
    };
    let made = s.vfs.open(&c, request).wait().await.expect("made");
    assert_eq!(made.node.security(&c).wait().await, Ok(Some(first)));
    for made in [s.file("f").await, s.directory("d").await] {
        let node = made.node;
        assert_eq!(node.security(&c).wait().await, Ok(None));
        for n in [20, 1500, 300] {
            let descriptor = super::pattern(n as u64, n);
            node.set_security(&c, descriptor.clone()).wait().await.expect("room");
            assert_eq!(node.security(&c).wait().await, Ok(Some(descriptor)));
        }
        // A large one is stored or refused as a whole.
        let large = super::pattern(9, 40_000);
        let kept = match node.set_security(&c, large.clone()).wait().await {
            Ok(()) => large,
            Err(e) => {
                assert_eq!(e, VfsError::AttributeTooLarge, "there is space for files");
                super::pattern(300, 300)
            }
        };
        assert_eq!(node.security(&c).wait().await, Ok(Some(kept)));
    }
}

/// Names match without regard to case; an empty value removes the attribute.
pub(super) async fn extended(s: &Subject) {
    if !s.keeps_metadata {
        return;
    }
    let c = Ctx::default();
    let ea =
        |name: &str, value: &[u8]| ExtendedAttribute { flags: 0, name: name.into(), value: value.to_vec() };
    let request = OpenRequest {
        mode: OpenMode::Create,
        rights: Rights { read: true, write: true },
        attributes: Attributes::ARCHIVE,
        extended_attributes: vec![ea("First", b"1")],
        ..OpenRequest::for_metadata(path("f"))
    };
    let made = s.vfs.open(&c, request).wait().await.expect("made");
    let size = made.stat.ea_size;
    assert_eq!(size, 8 + 5 + 1 + 1);
    let set = vec![ea("SECOND", b"two"), ea("first", b"one")];
    made.node.set_extended_attributes(&c, set).wait().await.expect("room");
    let mut all = made.node.extended_attributes(&c).wait().await.expect("kept");
    all.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(all, [ea("First", b"one"), ea("SECOND", b"two")]);
    assert!(s.stat(&*made.node).await.ea_size > size);
    let set = vec![ea("second", b""), ea("none", b"")];
    made.node.set_extended_attributes(&c, set).wait().await.expect("removed");
    drop(made);
    let again = s.existing("f").await;
    assert_eq!(again.node.extended_attributes(&c).wait().await, Ok(vec![ea("First", b"one")]));
    assert_eq!(again.stat.ea_size, 8 + 5 + 1 + 3);
    let bad = again.node.set_extended_attributes(&c, vec![ea("", b"x")]).wait().await;
    assert_eq!(bad, Err(VfsError::InvalidArgument));
}

/// Metadata set through one open shows in the others and in listings.
pub(super) async fn shared_by_opens(s: &Subject) {
    let c = Ctx::default();
    let (a, b, root) = (s.file("f").await, s.existing("F").await, s.existing("").await);
    s.write(&*a.node, 0, &[1; 10]).await;
    assert_eq!(s.stat(&*b.node).await.size, 10);
    let hidden = Attributes::HIDDEN;
    let change = BasicChange {
        attributes: s.keeps_metadata.then_some(hidden),
        written: time(500, 0),
        ..Default::default()
    };
    a.node.set_basic(&c, change).wait().await.expect("kept");
    let listed = root.node.lookup(&c, "f").wait().await.expect("there").stat;
    for stat in [s.stat(&*b.node).await, listed, s.existing("f").await.stat] {
        assert_eq!((stat.size, Some(stat.written), stat.links), (10, change.written, 1));
        assert!(!s.keeps_metadata || stat.attributes == hidden);
    }
    drop((a, b));
    let listed = root.node.lookup(&c, "f").wait().await.expect("there").stat;
    assert!(!s.keeps_metadata || listed.attributes == hidden, "when nobody has it open");
}
