//! Renaming and removing.

use super::{Subject, pattern};
use crate::VfsError;

/// Renames to a free name, in the same directory and in another one.
pub(super) async fn simple(s: &Subject) {
    s.directory("d").await;
    let f = s.file("f").await;
    let data = pattern(1, 3000);
    s.write(&*f.node, 0, &data).await;
    s.rename("f", f.node.id(), "g", false).await.expect("free");
    s.rename("G", f.node.id(), "D\\h", true).await.expect("free");
    assert_eq!(s.refusal("f").await, Some(VfsError::NotFound));
    assert_eq!(s.refusal("g").await, Some(VfsError::NotFound));
    assert_eq!(s.names("").await, ["d"]);
    let h = s.existing("d\\h").await;
    assert_eq!(h.node.id(), f.node.id());
    s.expect(&*h.node, 0, 5000, &data).await;
    s.rename("d\\h", f.node.id(), "d\\h", false).await.expect("nothing to do");
    assert_eq!(s.names("d").await, ["h"]);
}

/// A change of case is a rename, not a collision.
pub(super) async fn case_only(s: &Subject) {
    let f = s.file("name.txt").await;
    let d = s.directory("Dir").await;
    s.rename("name.txt", f.node.id(), "NAME.txt", false).await.expect("the same file");
    s.rename("dir", d.node.id(), "DIR", false).await.expect("the same directory");
    assert_eq!(s.names("").await, ["DIR", "NAME.txt"]);
    s.rename("Name.TXT", f.node.id(), "name.TXT", true).await.expect("the same file");
    assert_eq!(s.names("").await, ["DIR", "name.TXT"]);
    assert_eq!(s.existing("name.txt").await.path.name(), Some("name.TXT"));
}

/// A rename over another file needs `replace`; opens of the replaced file stay usable.
pub(super) async fn replacing(s: &Subject) {
    let (new, old) = (s.file("new").await, s.file("Old").await);
    let (data, gone) = (pattern(1, 100), pattern(2, 200));
    s.write(&*new.node, 0, &data).await;
    s.write(&*old.node, 0, &gone).await;
    for taken in ["Old", "oLD"] {
        assert_eq!(s.rename("new", new.node.id(), taken, false).await, Err(VfsError::Exists));
    }
    s.rename("new", new.node.id(), "oLD", true).await.expect("replaced");
    assert_eq!(s.names("").await, ["oLD"]);
    let there = s.existing("old").await;
    assert_eq!(there.node.id(), new.node.id());
    s.expect(&*there.node, 0, 1000, &data).await;
    s.expect(&*old.node, 0, 1000, &gone).await;
}

/// A directory is renamed with its content.
pub(super) async fn directories(s: &Subject) {
    let d = s.directory("a").await;
    s.directory("a\\b").await;
    let f = s.file("a\\b\\f").await;
    s.directory("other").await;
    s.rename("a", d.node.id(), "other\\A2", false).await.expect("free");
    assert_eq!(s.refusal("a\\b\\f").await, Some(VfsError::PathNotFound));
    assert_eq!(s.existing("other\\a2\\b\\F").await.node.id(), f.node.id());
    assert_eq!(s.existing("OTHER\\a2\\B\\f").await.path.to_string(), "other\\A2\\b\\f");
    s.file("a").await; // the name is free
}

/// Renames that are refused.
pub(super) async fn refused(s: &Subject) {
    let (f, d) = (s.file("f").await, s.directory("d").await);
    let other = s.file("other").await;
    s.directory("full").await;
    s.file("full\\x").await;
    let (id, dir) = (f.node.id(), d.node.id());
    for (from, id, to, replace, error) in [
        ("f", other.node.id(), "g", false, VfsError::Stale),
        ("none", id, "g", false, VfsError::NotFound),
        ("none\\f", id, "g", false, VfsError::PathNotFound),
        ("f", id, "none\\g", false, VfsError::PathNotFound),
        ("f", id, "other\\g", false, VfsError::PathNotFound),
        ("f", id, "d", false, VfsError::Exists),
        ("f", id, "D", true, VfsError::Exists),
        ("d", dir, "full", true, VfsError::Exists),
        ("d", dir, "f", false, VfsError::Exists),
        ("d", dir, "d\\inside", false, VfsError::InvalidArgument),
        ("", dir, "x", false, VfsError::AccessDenied),
        ("f", id, "", true, VfsError::AccessDenied),
    ] {
        assert_eq!(s.rename(from, id, to, replace).await, Err(error), "{from:?} to {to:?}");
    }
    assert_eq!(s.names("").await, ["d", "f", "full", "other"]);
}

/// Names are removed; open files stay usable.
pub(super) async fn removing(s: &Subject) {
    let f = s.file("F").await;
    let data = pattern(3, 5000);
    s.write(&*f.node, 0, &data).await;
    let (d, other) = (s.directory("d").await, s.file("d\\x").await);
    assert_eq!(s.remove("d", d.node.id()).await, Err(VfsError::NotEmpty));
    assert_eq!(s.remove("f", other.node.id()).await, Err(VfsError::Stale));
    assert_eq!(s.remove("none", f.node.id()).await, Err(VfsError::NotFound));
    assert_eq!(s.remove("none\\f", f.node.id()).await, Err(VfsError::PathNotFound));
    let root = s.existing("").await;
    assert_eq!(s.remove("", root.node.id()).await, Err(VfsError::AccessDenied));
    s.remove("f", f.node.id()).await.expect("there");
    assert_eq!(s.refusal("F").await, Some(VfsError::NotFound));
    s.write(&*f.node, 5000, b"still open").await;
    s.expect(&*f.node, 4990, 100, &[&data[4990..], b"still open"].concat()).await;
    assert_eq!(s.stat(&*f.node).await.links, 0);
    // The name refers to a new file now, which must not be removed.
    let new = s.file("f").await;
    assert_eq!(s.remove("f", f.node.id()).await, Err(VfsError::Stale));
    assert_eq!(s.rename("f", f.node.id(), "g", false).await, Err(VfsError::Stale));
    assert_eq!(s.existing("f").await.node.id(), new.node.id());
    s.remove("d\\X", other.node.id()).await.expect("there");
    s.remove("D", d.node.id()).await.expect("empty now");
    assert_eq!(s.names("").await, ["f"]);
}
