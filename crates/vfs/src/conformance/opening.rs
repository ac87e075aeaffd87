//! Opening and creating.

use env::Ctx;

use super::Subject;
use crate::{Attributes, Kind, OpenMode, OpenRequest, Rights, VfsError};

/// Every mode on existing and missing names, for every requested kind.
pub(super) async fn modes(s: &Subject) {
    use OpenMode::{Create, Open, OpenOrCreate};
    let (file, directory) = (Some(Kind::File), Some(Kind::Directory));
    s.file("file").await;
    s.directory("dir").await;
    let expected = [
        ("none", Open, None, Err(VfsError::NotFound)),
        ("none", Open, file, Err(VfsError::NotFound)),
        ("none", Open, directory, Err(VfsError::NotFound)),
        ("none", Create, None, Ok((true, Kind::File))),
        ("none", Create, file, Ok((true, Kind::File))),
        ("none", Create, directory, Ok((true, Kind::Directory))),
        ("none", OpenOrCreate, None, Ok((true, Kind::File))),
        ("none", OpenOrCreate, file, Ok((true, Kind::File))),
        ("none", OpenOrCreate, directory, Ok((true, Kind::Directory))),
        ("file", Open, None, Ok((false, Kind::File))),
        ("file", Open, file, Ok((false, Kind::File))),
        ("file", Open, directory, Err(VfsError::NotDirectory)),
        ("file", Create, None, Err(VfsError::Exists)),
        ("file", Create, directory, Err(VfsError::Exists)),
        ("file", OpenOrCreate, file, Ok((false, Kind::File))),
        ("file", OpenOrCreate, directory, Err(VfsError::NotDirectory)),
        ("dir", Open, None, Ok((false, Kind::Directory))),
        ("dir", Open, file, Err(VfsError::IsDirectory)),
        ("dir", Open, directory, Ok((false, Kind::Directory))),
        ("dir", Create, file, Err(VfsError::Exists)),
        ("dir", Create, directory, Err(VfsError::Exists)),
        ("dir", OpenOrCreate, None, Ok((false, Kind::Directory))),
        ("dir", OpenOrCreate, directory, Ok((false, Kind::Directory))),
        ("dir", OpenOrCreate, file, Err(VfsError::IsDirectory)),
        ("", Open, None, Ok((false, Kind::Directory))),
        ("", Create, directory, Err(VfsError::Exists)),
    ];
    for (path, mode, kind, wanted) in expected {
        let got = s.open(path, mode, kind).await;
        let seen = got.as_ref().map(|o| (o.created, o.node.kind())).map_err(|e| *e);
        assert_eq!(seen, wanted, "{path:?} {mode:?} {kind:?}");
        if let Ok(opened) = got {
            assert_eq!(opened.stat.kind, opened.node.kind());
            assert_eq!(opened.stat.id, opened.node.id());
            assert_eq!(opened.stat.size, 0);
            if path == "none" {
                s.remove("none", opened.node.id()).await.expect("just made");
            }
        }
    }
}

/// The error states which part of the path is missing.
pub(super) async fn missing(s: &Subject) {
    s.file("file").await;
    s.directory("dir").await;
    for (path, error) in [
        ("dir\\none", VfsError::NotFound),
        ("none\\x", VfsError::PathNotFound),
        ("dir\\none\\x", VfsError::PathNotFound),
        ("file\\x", VfsError::PathNotFound),
        ("FILE\\x", VfsError::PathNotFound),
        ("file\\x\\y", VfsError::PathNotFound),
    ] {
        assert_eq!(s.refusal(path).await, Some(error), "{path}");
        if error == VfsError::PathNotFound {
            let made = s.open(path, OpenMode::OpenOrCreate, None).await;
            assert_eq!(made.err(), Some(error), "create {path}");
        }
    }
    assert_eq!(s.names("dir").await, [""; 0]);
}

/// Names match without regard to case; the stored spelling is returned.
pub(super) async fn case(s: &Subject) {
    s.directory("Dir").await;
    s.directory("Dir\\Žluť").await;
    let made = s.file("DIR\\žLUť\\Straße.TXT").await;
    assert_eq!(made.path.to_string(), "Dir\\Žluť\\Straße.TXT");
    for other in ["dir\\žluť\\STRAßE.txt", "Dir\\Žluť\\Straße.TXT", "DIR\\ŽLUŤ\\straße.Txt"] {
        let opened = s.existing(other).await;
        assert_eq!(opened.path.to_string(), "Dir\\Žluť\\Straße.TXT", "{other}");
        assert_eq!(opened.node.id(), made.node.id());
    }
    let again = s.open("dir\\žluť\\STRASSE.TXT", OpenMode::Open, None).await;
    assert_eq!(again.err(), Some(VfsError::NotFound), "simple folding: ß is not SS");
    let again = s.open("dir\\žluť\\straße.txt", OpenMode::Create, None).await;
    assert_eq!(again.err(), Some(VfsError::Exists));
    let again = s.open("dir\\žluť\\straße.txt", OpenMode::OpenOrCreate, None).await.expect("there");
    assert!(!again.created);
    assert_eq!(s.names("dir\\ŽLUŤ").await, ["Straße.TXT"]);
    // The name is removed in every spelling, and can be created again.
    s.remove("dir\\žluť\\straße.txt", made.node.id()).await.expect("there");
    assert_eq!(s.refusal("Dir\\Žluť\\Straße.TXT").await, Some(VfsError::NotFound));
    assert_eq!(s.file("Dir\\Žluť\\STRAßE.TXT").await.path.name(), Some("STRAßE.TXT"));
    assert_eq!(s.existing("Dir\\Žluť\\Straße.TXT").await.path.name(), Some("STRAßE.TXT"));
}

/// Names with all kinds of characters are stored and listed unchanged.
pub(super) async fn unicode(s: &Subject) {
    let names = [
        "ascii",
        " leading space",
        "Ünïcödé",
        "日本語のファイル",
        "emoji 🦀🦀",
        "e\u{301}", // decomposed, another name than the next
        "\u{e9}",
        "a.b.c",
        "~$tmp",
        "dots...in.middle",
        "\u{f022}private use",
        "who\u{f025}",
        "end\u{f029}",
        &"x".repeat(255),
        &"é".repeat(120),
    ];
    for name in names {
        let made = s.file(name).await;
        assert_eq!(made.path.name(), Some(name));
        drop(made);
        assert_eq!(s.existing(name).await.path.name(), Some(name));
    }
    let mut sorted: Vec<String> = names.iter().map(|n| n.to_string()).collect();
    sorted.sort();
    assert_eq!(s.names("").await, sorted);
}

/// Identity: the same for all opens of a file, different for others, and stable.
pub(super) async fn same_file(s: &Subject) {
    let a = s.file("a").await;
    let b = s.file("b").await;
    assert_ne!(a.node.id(), b.node.id());
    assert_eq!(a.node.id(), s.existing("A").await.node.id());
    s.rename("a", a.node.id(), "c", false).await.expect("free");
    assert_eq!(a.node.id(), s.existing("c").await.node.id());
    s.remove("c", a.node.id()).await.expect("there");
    for i in 0..20 {
        let new = s.file(&format!("new{i}")).await;
        assert_ne!(new.node.id(), a.node.id(), "not reused while it is open");
    }
    let info = s.vfs.info();
    assert_eq!((info.case_sensitive, info.name_max), (false, 255));
    assert_eq!(info.volume, s.vfs.info().volume);
    let space = s.vfs.space(&Ctx::default()).wait().await.expect("known");
    assert!(space.total >= space.free && space.free >= space.available && space.total > 0);
}

/// Many concurrent creations of the same file, each with its own spelling: one succeeds.
pub(super) async fn at_once(s: &Subject) {
    for turn in 0..20 {
        let name = format!("made once {turn}");
        let spelling = |i: usize| {
            let change =
                |(at, c): (usize, char)| if i >> (at % 5) & 1 == 1 { c.to_ascii_uppercase() } else { c };
            name.char_indices().map(change).collect::<String>()
        };
        let opens = (0..32).map(|i| {
            let request = OpenRequest {
                mode: OpenMode::OpenOrCreate,
                rights: Rights { read: true, write: true },
                attributes: Attributes::ARCHIVE,
                ..OpenRequest::for_metadata(s.path(&spelling(i)))
            };
            s.vfs.open(&Ctx::default(), request)
        });
        let (mut made, mut ids) = (0, Vec::new());
        for open in opens.collect::<Vec<_>>() {
            let opened = open.wait().await.expect("made or there");
            made += usize::from(opened.created);
            ids.push(opened.node.id());
        }
        assert_eq!(made, 1);
        assert!(ids.iter().all(|id| *id == ids[0]));
    }
    let forms = if s.any_file { 1 } else { 2 };
    assert_eq!(s.names("").await.len(), 20 * forms);
}
