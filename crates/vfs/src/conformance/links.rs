//! Hard links, if the backend supports them.

use super::{Subject, pattern};
use crate::VfsError;

/// A file with two names.
pub(super) async fn second_name(s: &Subject) {
    let f = s.file("f").await;
    s.directory("d").await;
    let linked = s.link("F", f.node.id(), "d\\Second", false).await;
    if !s.links {
        return assert_eq!(linked, Err(VfsError::Unsupported));
    }
    linked.expect("free");
    let data = pattern(4, 1000);
    s.write(&*f.node, 0, &data).await;
    let second = s.existing("d\\second").await;
    assert_eq!(second.node.id(), f.node.id());
    assert_eq!(s.stat(&*second.node).await.links, 2);
    s.expect(&*second.node, 0, 2000, &data).await;
    // A rename or link to a name of the same file fails like one to a name of another file.
    assert_eq!(s.rename("f", f.node.id(), "D\\SECOND", false).await, Err(VfsError::Exists));
    assert_eq!(s.link("f", f.node.id(), "F", false).await, Err(VfsError::Exists));
    assert_eq!(s.stat(&*f.node).await.links, 2);
    // Renaming one name over the other leaves one.
    s.rename("f", f.node.id(), "D\\SECOND", true).await.expect("replaced");
    assert_eq!(s.names("").await, ["d"]);
    assert_eq!(s.names("d").await, ["SECOND"]);
    assert_eq!(s.stat(&*f.node).await.links, 1);
}

/// Links that are refused.
pub(super) async fn refused(s: &Subject) {
    if !s.links {
        return;
    }
    let (f, g, d) = (s.file("f").await, s.file("G").await, s.directory("d").await);
    assert_eq!(s.link("d", d.node.id(), "e", false).await, Err(VfsError::IsDirectory));
    assert_eq!(s.link("f", f.node.id(), "g", false).await, Err(VfsError::Exists));
    assert_eq!(s.link("f", f.node.id(), "d", true).await, Err(VfsError::Exists));
    assert_eq!(s.link("f", g.node.id(), "h", false).await, Err(VfsError::Stale));
    assert_eq!(s.link("f", f.node.id(), "none\\h", false).await, Err(VfsError::PathNotFound));
    s.link("f", f.node.id(), "g", true).await.expect("replaced");
    assert_eq!(s.existing("G").await.node.id(), f.node.id());
    assert_eq!(s.names("").await, ["d", "f", "g"]);
    assert_eq!(s.stat(&*g.node).await.links, 0);
}
