//! Reparse points.

use env::Ctx;

use super::Subject;
use crate::{Attributes, ReparseKind, ReparsePoint, VfsError};

const TAG: u32 = 0x8000_0014;

/// Reparse points are stored, listed, replaced and removed, on files and on directories.
pub(super) async fn kept(s: &Subject) {
    let c = Ctx::default();
    let point = |data: &[u8]| ReparsePoint { tag: TAG, guid: None, data: data.to_vec() };
    for (name, made) in [("f", s.file("f").await), ("d", s.directory("d").await)] {
        let node = made.node;
        assert_eq!(node.reparse_point(&c).wait().await, Ok(None), "{name}");
        let set = node.set_reparse_point(&c, Some(point(b"FIFO\0\0\0\0more"))).wait().await;
        if !s.vfs.info().reparse_points {
            assert_eq!(set, Err(VfsError::Unsupported), "{name}");
            continue;
        }
        assert_eq!(set, Ok(()), "{name}");
        let kind = ReparseKind { tag: TAG, head: u64::from_le_bytes(*b"FIFO\0\0\0\0") };
        let stat = s.stat(&*node).await;
        assert!(stat.attributes.contains(Attributes::REPARSE_POINT), "{name}");
        assert_eq!(stat.reparse, kind, "{name}");
        drop(node);
        // The backend does not follow it.
        let behind = s.refusal(&format!("{name}\\x")).await;
        let expected = if name == "d" { VfsError::ReparsePoint } else { VfsError::PathNotFound };
        assert_eq!(behind, Some(expected), "{name}");
        // Another open and a listing show it.
        let again = s.existing(name).await;
        assert_eq!(again.stat.reparse, kind, "{name}");
        assert_eq!(again.node.reparse_point(&c).wait().await, Ok(Some(point(b"FIFO\0\0\0\0more"))));
        let entry = s.existing("").await.node.lookup(&c, name).wait().await.expect("there");
        assert_eq!((entry.stat.reparse, entry.stat.ea_size), (kind, 0), "{name}");
        let owned = ReparsePoint { tag: 5, guid: Some([1; 16]), data: Vec::new() };
        let set = again.node.set_reparse_point(&c, Some(owned.clone())).wait().await;
        assert_eq!(set, Ok(()), "{name}");
        assert_eq!(again.node.reparse_point(&c).wait().await, Ok(Some(owned)));
        assert_eq!(s.stat(&*again.node).await.reparse, ReparseKind { tag: 5, head: 0 });
        assert_eq!(again.node.set_reparse_point(&c, None).wait().await, Ok(()), "{name}");
        assert_eq!(again.node.set_reparse_point(&c, None).wait().await, Ok(()), "{name}: twice");
        drop(again);
        let last = s.existing(name).await;
        assert!(!last.stat.attributes.contains(Attributes::REPARSE_POINT), "{name}");
        assert_eq!(last.node.reparse_point(&c).wait().await, Ok(None), "{name}");
    }
}

/// A reparse point of the largest size is stored if the file system has space for it.
pub(super) async fn largest(s: &Subject) {
    let c = Ctx::default();
    let f = s.file("f").await.node;
    let large = ReparsePoint { tag: TAG, guid: None, data: vec![7; ReparsePoint::DATA_MAX] };
    match f.set_reparse_point(&c, Some(large.clone())).wait().await {
        Ok(()) => assert_eq!(f.reparse_point(&c).wait().await, Ok(Some(large))),
        Err(e) => {
            assert!(matches!(e, VfsError::AttributeTooLarge | VfsError::Unsupported), "{e}");
            assert_eq!(s.stat(&*f).await.reparse, ReparseKind::default());
        }
    }
}
