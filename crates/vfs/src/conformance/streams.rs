//! Named streams (MS-FSCC 2.1.5.3, MS-FSA 2.1.5.15.12.1).

use std::sync::Arc;

use env::Ctx;

use super::{Random, Subject, path, pattern, payload};
use crate::{Attributes, Kind, Node, OpenMode, OpenRequest, Opened, Rights, StreamName, VfsError, VfsResult};

/// Lengths below and above what a backend may store with the file.
const LENGTHS: [usize; 6] = [1, 60, 1024, 1025, 5000, 200_000];

fn name(text: &str) -> StreamName {
    StreamName::new(text).expect("a legal name")
}

impl Subject {
    async fn stream(&self, file: &str, stream: &str, mode: OpenMode) -> VfsResult<Opened> {
        let request = OpenRequest {
            stream: Some(name(stream)),
            mode,
            rights: Rights { read: true, write: true },
            attributes: Attributes::HIDDEN,
            ..OpenRequest::for_metadata(path(file))
        };
        self.vfs.open(&Ctx::default(), request).wait().await
    }

    async fn new_stream(&self, file: &str, stream: &str) -> Arc<dyn Node> {
        let made = self.stream(file, stream, OpenMode::Create).await;
        made.unwrap_or_else(|e| panic!("create {file}:{stream}: {e}")).node
    }

    async fn stream_names(&self, node: &dyn Node) -> Vec<String> {
        let all = node.streams(&Ctx::default()).wait().await.expect("a list of streams");
        let mut names: Vec<String> = all.into_iter().filter_map(|s| Some(s.name?.to_string())).collect();
        names.sort();
        names
    }

    async fn rename_stream(
        &self,
        node: &dyn Node,
        from: &str,
        to: Option<&str>,
        replace: bool,
    ) -> VfsResult<()> {
        let to = to.map(name);
        node.rename_stream(&Ctx::default(), &name(from), to.as_ref(), replace).wait().await
    }

    /// Asserts the whole content of a stream.
    async fn expect_stream(&self, file: &str, stream: &str, expected: &[u8]) {
        let opened = self.stream(file, stream, OpenMode::Open).await;
        let opened = opened.unwrap_or_else(|e| panic!("open {file}:{stream}: {e}"));
        assert_eq!(opened.stat.size, expected.len() as u64, "size of {file}:{stream}");
        self.expect(&*opened.node, 0, expected.len() as u32 + 10, expected).await;
    }

    /// Whether the backend has named streams. If not, asserts that opening one fails with `Unsupported`.
    async fn has_streams(&self) -> bool {
        if self.vfs.info().named_streams {
            return true;
        }
        self.file("f").await;
        assert_eq!(self.stream("f", "s", OpenMode::OpenOrCreate).await.err(), Some(VfsError::Unsupported));
        assert_eq!(self.stream("new", "s", OpenMode::Create).await.err(), Some(VfsError::Unsupported));
        assert_eq!(self.refusal("new").await, Some(VfsError::NotFound));
        false
    }
}

pub(super) async fn opening(s: &Subject) {
    if !s.has_streams().await {
        return;
    }
    assert_eq!(s.stream("f", "s", OpenMode::Open).await.err(), Some(VfsError::NotFound));
    assert_eq!(s.refusal("f").await, Some(VfsError::NotFound), "opening creates nothing");
    let made = s.stream("f", "Stream One", OpenMode::Create).await.expect("the file is created first");
    assert!(made.created);
    assert_eq!((made.path.to_string(), made.node.kind()), ("f".into(), Kind::File));
    let file = s.existing("F").await;
    assert_eq!((file.node.id(), file.stat.size), (made.node.id(), 0));
    if s.keeps_metadata {
        assert_eq!(file.stat.attributes, Attributes::HIDDEN, "as the request for the stream said");
    }
    assert_eq!(s.stream("f", "STREAM ONE", OpenMode::Create).await.err(), Some(VfsError::Exists));
    let again = s.stream("F", "stream one", OpenMode::OpenOrCreate).await.expect("there");
    assert!(!again.created);
    assert_eq!(again.stream.map(|n| n.to_string()).as_deref(), Some("Stream One"), "as stored");
    let two = s.stream("f", "two", OpenMode::OpenOrCreate).await.expect("room");
    assert!(two.created);
    assert_eq!(s.stream_names(&*file.node).await, ["Stream One", "two"]);
    assert_eq!(s.stream_names(&*two.node).await, ["Stream One", "two"]);
    assert_eq!(s.names("").await, ["f"]);
    assert_eq!(s.stream("no\\f", "s", OpenMode::Create).await.err(), Some(VfsError::PathNotFound));
    assert_eq!(s.stream("no", "s", OpenMode::Open).await.err(), Some(VfsError::NotFound));
}

pub(super) async fn of_directories(s: &Subject) {
    if !s.has_streams().await {
        return;
    }
    let directory = s.directory("d").await.node;
    assert_eq!(directory.streams(&Ctx::default()).wait().await.expect("a list").len(), 0);
    for place in ["d", ""] {
        let stream = s.new_stream(place, "s").await;
        assert_eq!(stream.kind(), Kind::File);
        s.write(&*stream, 0, b"of a directory").await;
        s.expect_stream(place, "S", b"of a directory").await;
        let to_unnamed = s.rename_stream(&*stream, "s", None, true).await;
        assert_eq!(to_unnamed, Err(VfsError::InvalidArgument), "a directory has no unnamed stream");
    }
    assert_eq!(s.names("d").await, Vec::<String>::new());
    s.remove("d", directory.id()).await.expect("streams do not keep a directory");
    s.directory("d").await;
    assert_eq!(s.stream("d", "s", OpenMode::Open).await.err(), Some(VfsError::NotFound));
}

pub(super) async fn contents(s: &Subject) {
    if !s.has_streams().await {
        return;
    }
    let file = s.file("f").await.node;
    s.write(&*file, 0, b"unnamed").await;
    for length in LENGTHS {
        let stream = format!("s{length}");
        let (node, bytes) = (s.new_stream("f", &stream).await, pattern(length as u64, length));
        s.write(&*node, 0, &bytes).await;
        assert_eq!(s.stat(&*node).await.size, length as u64);
        s.expect_stream("f", &stream, &bytes).await;
        s.write(&*node, length as u64 + 3, b"end").await;
        let longer = [&bytes[..], &[0; 3], b"end"].concat();
        s.expect_stream("f", &stream, &longer).await;
        let c = Ctx { flags: env::IoFlags { write_through: true, ..Default::default() }, ..Ctx::default() };
        assert_eq!(node.write(&c, 0, payload(b"!", 1)).wait().await, Ok(1));
        node.set_len(&c, 1).wait().await.expect("shorter");
        node.set_len(&c, 3).wait().await.expect("longer");
        node.flush(&c).wait().await.expect("a flush");
        assert_eq!(node.close(&c).wait().await, Ok(()));
        s.expect_stream("f", &stream, b"!\0\0").await;
    }
    s.expect(&*file, 0, 100, b"unnamed").await;
    let list = file.streams(&Ctx::default()).wait().await.expect("a list");
    assert_eq!((list[0].name.as_ref(), list[0].size), (None, 7), "the unnamed one first");
    assert_eq!(list[1..].iter().map(|i| i.size).collect::<Vec<_>>(), [3; LENGTHS.len()]);
}

pub(super) async fn metadata(s: &Subject) {
    if !s.has_streams().await {
        return;
    }
    let file = s.file("f").await.node;
    let stream = s.new_stream("f", "s").await;
    s.write(&*stream, 0, &[1; 100]).await;
    let c = Ctx::default();
    let change = crate::BasicChange { attributes: Some(Attributes::SYSTEM), ..Default::default() };
    stream.set_basic(&c, change).wait().await.expect("the file's");
    let (of_file, of_stream) = (s.stat(&*file).await, s.stat(&*stream).await);
    assert_eq!((of_file.size, of_stream.size), (0, 100));
    assert_eq!((of_file.attributes, of_stream.attributes), (Attributes::SYSTEM, Attributes::SYSTEM));
    assert_eq!(
        (of_file.id, of_file.links, of_file.created),
        (of_stream.id, of_stream.links, of_stream.created)
    );
    stream.set_security(&c, vec![7; 300]).wait().await.expect("room");
    assert_eq!(file.security(&c).wait().await, Ok(Some(vec![7; 300])));
    assert_eq!(file.extended_attributes(&c).wait().await, Ok(Vec::new()), "streams are not among them");
    assert_eq!(of_file.ea_size, 0);
    assert_eq!(stream.list(&c, true, 1).wait().await.err(), Some(VfsError::NotDirectory));
}

/// Streams leave space for the file's metadata.
pub(super) async fn beside_a_descriptor(s: &Subject) {
    if !s.has_streams().await {
        return;
    }
    let file = s.file("f").await.node;
    for i in 0..6 {
        let stream = s.new_stream("f", &format!("s{i}")).await;
        s.write(&*stream, 0, &pattern(i, 1000)).await;
    }
    let c = Ctx::default();
    file.set_security(&c, vec![7; 2500]).wait().await.expect("room");
    for i in 0..6 {
        s.expect_stream("f", &format!("s{i}"), &pattern(i, 1000)).await;
    }
}

pub(super) async fn names(s: &Subject) {
    if !s.has_streams().await {
        return;
    }
    let file = s.file("f").await.node;
    let mut all: Vec<String> = ["\u{1}\"*<>?|.. ", &"x".repeat(255), &"Ž".repeat(255), "$DATA", "\u{1F600}"]
        .map(str::to_owned)
        .to_vec();
    for n in &all {
        let stream = s.new_stream("f", n).await;
        s.write(&*stream, 0, n.as_bytes()).await;
    }
    all.sort();
    assert_eq!(s.stream_names(&*file).await, all);
    s.expect_stream("f", &"ž".repeat(255), "Ž".repeat(255).as_bytes()).await;
}

pub(super) async fn removing(s: &Subject) {
    if !s.has_streams().await {
        return;
    }
    let (file, c) = (s.file("f").await.node, Ctx::default());
    for (stream, length) in [("small", 10), ("large", 100_000)] {
        let node = s.new_stream("f", stream).await;
        s.write(&*node, 0, &pattern(1, length)).await;
    }
    assert_eq!(file.remove_stream(&c, &name("other")).wait().await, Err(VfsError::NotFound));
    for stream in ["SMALL", "LARGE"] {
        file.remove_stream(&c, &name(stream)).wait().await.expect("there");
        assert_eq!(s.stream("f", stream, OpenMode::Open).await.err(), Some(VfsError::NotFound));
        assert_eq!(s.stat(&*s.new_stream("f", stream).await).await.size, 0, "a new one");
    }
    s.remove("f", file.id()).await.expect("there");
    drop(file);
    assert_eq!(s.stream_names(&*s.file("f").await.node).await, Vec::<String>::new());
}

pub(super) async fn renaming(s: &Subject) {
    if !s.has_streams().await {
        return;
    }
    let file = s.file("f").await.node;
    for (stream, length) in [("small", 10), ("large", 100_000)] {
        let node = s.new_stream("f", stream).await;
        let bytes = pattern(2, length);
        s.write(&*node, 0, &bytes).await;
        s.new_stream("f", "there").await;
        assert_eq!(s.rename_stream(&*file, "no", Some("x"), true).await, Err(VfsError::NotFound));
        assert_eq!(s.rename_stream(&*file, stream, Some("There"), false).await, Err(VfsError::Exists));
        s.rename_stream(&*file, stream, Some("There"), true).await.expect("over an empty one");
        s.rename_stream(&*file, "there", Some("THERE"), false).await.expect("a change of case only");
        s.expect_stream("f", "there", &bytes).await;
        s.write(&*node, 0, &bytes[..1]).await; // still usable
        let full = s.new_stream("f", "full").await;
        s.write(&*full, 0, b"x").await;
        assert_eq!(
            s.rename_stream(&*file, "full", Some("there"), true).await,
            Err(VfsError::InvalidArgument)
        );
        assert_eq!(s.rename_stream(&*file, "full", Some("there"), false).await, Err(VfsError::Exists));
        s.rename_stream(&*file, "there", Some(stream), false).await.expect("back");
        file.remove_stream(&Ctx::default(), &name("full")).wait().await.expect("there");
        assert_eq!(s.rename_stream(&*file, stream, None, false).await, Err(VfsError::Exists));
        s.rename_stream(&*file, stream, None, true).await.expect("the unnamed stream is empty");
        assert_eq!(s.stat(&*file).await.size, length as u64);
        s.expect(&*file, 0, length as u32 + 1, &bytes).await;
        assert_eq!(s.stream_names(&*file).await, Vec::<String>::new());
        s.new_stream("f", stream).await;
        assert_eq!(s.rename_stream(&*file, stream, None, true).await, Err(VfsError::InvalidArgument));
        file.remove_stream(&Ctx::default(), &name(stream)).wait().await.expect("there");
        file.set_len(&Ctx::default(), 0).wait().await.expect("shorter");
    }
}

/// A file has its streams under every name; removing the last name removes them.
pub(super) async fn with_the_file(s: &Subject) {
    if !s.has_streams().await {
        return;
    }
    let file = s.file("f").await.node;
    for length in LENGTHS {
        let node = s.new_stream("f", &format!("s{length}")).await;
        s.write(&*node, 0, &pattern(3, length)).await;
    }
    s.directory("d").await;
    s.rename("f", file.id(), "d\\g", false).await.expect("a new name");
    let mut at = "d\\g";
    if s.links {
        s.link("d\\g", file.id(), "h", false).await.expect("a second name");
        s.remove("d\\g", file.id()).await.expect("there");
        at = "h";
    }
    for length in LENGTHS {
        s.expect_stream(at, &format!("s{length}"), &pattern(3, length)).await;
    }
    let over = s.file("over").await.node;
    s.rename("over", over.id(), at, true).await.expect("in its place");
    assert_eq!(s.stream_names(&*s.existing(at).await.node).await, Vec::<String>::new());
}

/// Concurrent writers of one stream lose no data while the stream grows past every limit.
pub(super) async fn concurrent_writers(s: &Subject) {
    if !s.has_streams().await {
        return;
    }
    s.file("f").await;
    let first = s.new_stream("f", "s").await;
    let mut expected = Vec::new();
    let mut writes = Vec::new();
    for i in 0..64usize {
        let node = s.stream("f", "s", OpenMode::Open).await.expect("there").node;
        let bytes = pattern(i as u64, 50);
        expected.extend_from_slice(&bytes);
        writes.push(tokio::spawn(async move {
            node.write(&Ctx::default(), i as u64 * 50, payload(&bytes, 50)).wait().await
        }));
    }
    for write in writes {
        assert_eq!(write.await.expect("no panic"), Ok(50));
    }
    s.expect(&*first, 0, 10_000, &expected).await;
}

/// Random changes of one stream, compared with a vector.
pub(super) async fn random(s: &Subject) {
    if !s.has_streams().await {
        return;
    }
    s.file("f").await;
    let mut random = Random(21);
    for round in 0..12 {
        let stream = format!("s{round}");
        let node = s.new_stream("f", &stream).await;
        let (c, mut model) = (Ctx::default(), Vec::<u8>::new());
        let limit = if round % 2 == 0 { 900 } else { 4000 };
        for _ in 0..60 {
            let at = random.below(limit) as usize;
            let end = at + random.below(limit - at as u64) as usize;
            match random.below(5) {
                0 => {
                    node.set_len(&c, at as u64).wait().await.expect("room");
                    model.resize(at, 0);
                }
                1 => {
                    node.zero(&c, at as u64..end as u64).wait().await.expect("room");
                    let there = at.min(model.len())..end.min(model.len());
                    model[there].fill(0);
                }
                2 => {
                    let range = node.allocated(&c, 0..u64::MAX, 100).wait().await.expect("ranges");
                    assert!(range.iter().all(|r| r.end <= model.len() as u64), "{range:?}");
                }
                _ => {
                    let bytes = pattern(random.next(), end - at);
                    s.write(&*node, at as u64, &bytes).await;
                    if end > at {
                        model.resize(model.len().max(end), 0);
                        model[at..end].copy_from_slice(&bytes);
                    }
                }
            }
            assert_eq!(s.stat(&*node).await.size, model.len() as u64);
        }
        s.expect_stream("f", &stream, &model).await;
    }
}
