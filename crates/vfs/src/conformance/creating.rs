//! Creating files with a [`CreateCheck`].

use std::sync::Arc;

use env::Ctx;
use parking_lot::Mutex;

use super::{Subject, path};
use crate::{
    CreateCheck, FileKey, Kind, OpenMode, OpenRequest, Opened, Parent, Rights, StreamName, VfsError,
    VfsResult,
};

const DESCRIPTOR: [u8; 20] = [3; 20];

/// Returns `answer`, and records the directories that it was called for, with their security descriptors.
struct Check {
    answer: Option<Vec<u8>>,
    asked: Mutex<Vec<(FileKey, Option<Vec<u8>>)>>,
    /// The file that may have new streams.
    streams_of: Mutex<Option<FileKey>>,
}

impl CreateCheck for Check {
    fn check(&self, parent: &Parent) -> Option<Vec<u8>> {
        assert_eq!(parent.stat.kind, Kind::Directory);
        let security = parent.security.clone().expect("it can be read");
        self.asked.lock().push((parent.stat.id, security));
        self.answer.clone()
    }

    fn allows_stream(&self, file: FileKey) -> bool {
        *self.streams_of.lock() == Some(file)
    }
}

impl Check {
    fn new(answer: Option<&[u8]>) -> Arc<Check> {
        Arc::new(Check {
            answer: answer.map(<[u8]>::to_vec),
            asked: Mutex::default(),
            streams_of: Mutex::default(),
        })
    }

    /// The calls since the last `asked`.
    fn asked(&self) -> Vec<(FileKey, Option<Vec<u8>>)> {
        std::mem::take(&mut self.asked.lock())
    }

    async fn open(
        self: &Arc<Check>,
        s: &Subject,
        (text, stream): (&str, Option<&str>),
        mode: OpenMode,
        kind: Option<Kind>,
    ) -> VfsResult<Opened> {
        let request = OpenRequest {
            stream: stream.map(|s| StreamName::new(s).expect("a legal name")),
            mode,
            kind,
            rights: Rights { read: true, write: true },
            create_check: Some(Arc::clone(self) as Arc<dyn CreateCheck>),
            ..OpenRequest::for_metadata(path(text))
        };
        s.vfs.open(&Ctx::default(), request).wait().await
    }
}

/// The check sees the directory of the new file, and the file has the descriptor that the check returns.
pub(super) async fn allowed(s: &Subject) {
    let c = Ctx::default();
    let (root, directory) = (s.existing("").await, s.directory("Dir").await);
    let mut of_directory = None;
    if s.keeps_metadata {
        of_directory = Some(vec![5; 30]);
        directory.node.set_security(&c, vec![5; 30]).wait().await.expect("room");
    }
    let check = Check::new(Some(&DESCRIPTOR));
    for mode in [OpenMode::Create, OpenMode::OpenOrCreate] {
        for kind in [Kind::File, Kind::Directory] {
            let name = format!("dir\\{mode:?} {kind:?}");
            let made = check.open(s, (&name, None), mode, Some(kind)).await.expect("free");
            assert_eq!((made.created, made.node.kind()), (true, kind), "{name}");
            assert_eq!(check.asked(), [(directory.node.id(), of_directory.clone())], "{name}");
            let kept = s.keeps_metadata.then(|| DESCRIPTOR.to_vec());
            assert_eq!(made.node.security(&c).wait().await, Ok(kept), "{name}");
        }
    }
    check.open(s, ("f", None), OpenMode::Create, None).await.expect("free");
    assert_eq!(check.asked().first().map(|a| a.0), Some(root.node.id()));
}

/// A file whose creation is refused does not exist afterwards.
pub(super) async fn refused(s: &Subject) {
    s.directory("d").await;
    let check = Check::new(None);
    for mode in [OpenMode::Create, OpenMode::OpenOrCreate] {
        for kind in [None, Some(Kind::Directory)] {
            let made = check.open(s, ("d\\x", None), mode, kind).await;
            assert_eq!(made.err(), Some(VfsError::Refused));
            assert_eq!(check.asked().len(), 1);
        }
    }
    assert_eq!(s.names("d").await, [""; 0]);
}

/// The check is called for new files only.
pub(super) async fn not_asked(s: &Subject) {
    let check = Check::new(None);
    s.file("Existing").await;
    s.directory("d").await;
    for name in ["Existing", "EXISTING", "d"] {
        let opened = check.open(s, (name, None), OpenMode::OpenOrCreate, None).await.expect("there");
        assert!(!opened.created);
        check.open(s, (name, None), OpenMode::Open, None).await.expect("there");
        let made = check.open(s, (name, None), OpenMode::Create, None).await;
        assert_eq!(made.err(), Some(VfsError::Exists));
    }
    let missing = check.open(s, ("none", None), OpenMode::Open, None).await;
    assert_eq!(missing.err(), Some(VfsError::NotFound));
    let nowhere = check.open(s, ("none\\x", None), OpenMode::Create, None).await;
    assert_eq!(nowhere.err(), Some(VfsError::PathNotFound));
    assert_eq!(check.asked(), []);
}

/// A new file has the id of the call that created it; a call that finds the file leaves it unchanged.
pub(super) async fn identified(s: &Subject) {
    let c = Ctx::default();
    let ids = [vec![7; crate::CREATION_ID_MAX], vec![8; 20]];
    for kind in [Kind::File, Kind::Directory] {
        for (id, created) in ids.iter().zip([true, false]) {
            let request = OpenRequest {
                mode: OpenMode::OpenOrCreate,
                kind: Some(kind),
                creation_id: Some(id.clone()),
                ..OpenRequest::for_metadata(path(&format!("{kind:?}")))
            };
            let opened = s.vfs.open(&c, request).wait().await.expect("free, or there");
            assert_eq!(opened.created, created);
            let kept = s.keeps_metadata.then(|| ids[0].clone());
            assert_eq!(opened.node.creation_id(&c).wait().await, Ok(kept));
            let shown = opened.node.extended_attributes(&c).wait().await.expect("readable");
            assert!(shown.is_empty() && opened.stat.ea_size == 0, "it is not shown");
        }
    }
    let other = s.file("other").await;
    assert_eq!(other.node.creation_id(&c).wait().await, Ok(None));
}

/// A stream is created with its file. If the file exists without the stream and may not get one, the file itself is
/// opened.
pub(super) async fn streams(s: &Subject) {
    if !s.vfs.info().named_streams {
        return;
    }
    let (no, yes) = (Check::new(None), Check::new(Some(&DESCRIPTOR)));
    for mode in [OpenMode::Create, OpenMode::OpenOrCreate] {
        let name = format!("{mode:?}");
        let of = |stream| (&*name, Some(stream));
        assert_eq!(no.open(s, of("s"), mode, None).await.err(), Some(VfsError::Refused));
        assert_eq!(s.refusal(&name).await, Some(VfsError::NotFound));
        let made = yes.open(s, of("s"), mode, None).await.expect("free");
        assert!(made.created && made.stream.is_some());
        assert_eq!(made.node.security(&Ctx::default()).wait().await, Ok(Some(DESCRIPTOR.to_vec())));
        assert_eq!((no.asked().len(), yes.asked().len()), (1, 1));
        let file = no.open(s, of("other"), mode, None).await.expect("the file is there");
        assert!(!file.created && file.stream.is_none() && file.node.id() == made.node.id());
        assert_eq!(file.node.streams(&Ctx::default()).wait().await.expect("known").len(), 2);
        *no.streams_of.lock() = Some(file.node.id());
        let other = no.open(s, of("other"), mode, None).await.expect("allowed");
        assert!(other.created && other.stream.is_some());
    }
    let again = no.open(s, ("create", Some("S")), OpenMode::OpenOrCreate, None).await.expect("there");
    assert!(!again.created && again.stream.is_some());
    let again = no.open(s, ("create", Some("S")), OpenMode::Create, None).await;
    assert_eq!(again.err(), Some(VfsError::Exists));
    assert_eq!(no.asked(), []);
}
