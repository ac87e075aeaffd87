//! How often a CREATE calls the backend, and which directory it checks for a new file.

use std::sync::atomic::{AtomicUsize, Ordering};

use env::{Ctx, Io};
use parking_lot::Mutex;
use smb_wire::security::{Ace, AceFlags, AceType, AclBuf, ControlFlags, SecurityDescriptorBuf};
use vfs::{FileKey, OpenMode, OpenRequest, Opened, Space, Vfs, VfsPath, VfsResult, VolumeInfo};

use super::*;

type Step = Box<dyn FnOnce(&dyn Vfs) + Send>;

/// Counts the calls that open files.
struct Counted {
    inner: Arc<dyn Vfs>,
    opens: AtomicUsize,
    /// The action of another program just before the next call that may create a file.
    before_creation: Mutex<Option<Step>>,
}

impl Vfs for Counted {
    fn info(&self) -> &VolumeInfo {
        self.inner.info()
    }

    fn space(&self, c: &Ctx) -> Io<VfsResult<Space>> {
        self.inner.space(c)
    }

    fn open(&self, c: &Ctx, request: OpenRequest) -> Io<VfsResult<Opened>> {
        self.opens.fetch_add(1, Ordering::Relaxed);
        let step = if request.mode == OpenMode::Open { None } else { self.before_creation.lock().take() };
        if let Some(step) = step {
            step(&*self.inner);
        }
        self.inner.open(c, request)
    }

    fn remove(&self, c: &Ctx, path: &VfsPath, id: FileKey) -> Io<VfsResult<()>> {
        self.inner.remove(c, path, id)
    }

    fn rename(&self, c: &Ctx, from: &VfsPath, id: FileKey, to: &VfsPath, replace: bool) -> Io<VfsResult<()>> {
        self.inner.rename(c, from, id, to, replace)
    }

    fn link(&self, c: &Ctx, from: &VfsPath, id: FileKey, to: &VfsPath, replace: bool) -> Io<VfsResult<()>> {
        self.inner.link(c, from, id, to, replace)
    }
}

impl Counted {
    async fn node(&self, path: &str) -> Arc<dyn vfs::Node> {
        let request = OpenRequest::for_metadata(VfsPath::parse(path).expect("legal"));
        self.inner.open(&Ctx::default(), request).wait().await.expect("there").node
    }

    /// Restricts the user's rights on a directory to `mask`, without inheritance.
    async fn restrict(&self, directory: &str, user: &User, mask: AccessMask) {
        let mut dacl = AclBuf::new();
        dacl.push(&Ace::new(AceType::ACCESS_ALLOWED, AceFlags::empty(), mask, user.sid)).expect("one");
        let d = SecurityDescriptorBuf {
            control: ControlFlags::DACL_PRESENT,
            owner: Some(Sid::BUILTIN_ADMINISTRATORS),
            dacl: Some(dacl),
            ..SecurityDescriptorBuf::default()
        };
        let mut bytes = Vec::new();
        d.encode(&mut bytes);
        self.node(directory).await.set_security(&Ctx::default(), bytes).wait().await.expect("kept");
    }
}

/// A world on a share whose calls are counted.
fn world() -> (World, Arc<Counted>) {
    let env = Env::simulated(7);
    let inner = RamFs::new(&env, RamOptions::default()).expect("address space");
    let vfs = Arc::new(Counted { inner, opens: AtomicUsize::new(0), before_creation: Mutex::default() });
    let w = World::on(env, ShareConfig::new("files", Arc::clone(&vfs) as Arc<dyn Vfs>), None, 1);
    (w, vfs)
}

const OVERWRITE_IF: How = How { disposition: CreateDisposition::OVERWRITE_IF, ..How::OPEN };
const SUPERSEDE: How = How { disposition: CreateDisposition::SUPERSEDE, ..How::OPEN };
const MKDIR_IF: How = How { options: CreateOptions::DIRECTORY_FILE, ..How::OPEN_IF };

#[tokio::test(start_paused = true)]
async fn one_trip_for_a_new_file() {
    let (w, vfs) = world();
    w.close(w.create("d", How::MKDIR).await).await;
    let trips = async |path: &str, how: How| {
        let before = vfs.opens.load(Ordering::Relaxed);
        let outcome = w.try_create(path, how).await.map(|c| c.id);
        let trips = vfs.opens.load(Ordering::Relaxed) - before;
        if let Ok(id) = outcome {
            w.close(id).await;
        }
        (outcome.map(|_| ()), trips)
    };
    let kinds = [How::CREATE, How::OPEN_IF, OVERWRITE_IF, SUPERSEDE, How::MKDIR, MKDIR_IF];
    for (i, how) in kinds.into_iter().enumerate() {
        assert_eq!(trips(&format!("d\\new{i}"), how).await, (Ok(()), 1), "{i}");
        let maximal = How { access: AccessMask::MAXIMUM_ALLOWED, ..how };
        assert_eq!(trips(&format!("d\\maximal{i}"), maximal).await, (Ok(()), 1), "{i}");
    }
    // Opening an existing file takes one trip as before; a name that exists takes a second one, because it may be a
    // link.
    for how in [How::OPEN, How::OPEN_IF, OVERWRITE_IF] {
        assert_eq!(trips("d\\new0", how).await, (Ok(()), 1));
    }
    assert_eq!(trips("d\\new0", How::CREATE).await, (Err(NtStatus::OBJECT_NAME_COLLISION), 2));
    // Streams: of a new file, a new one of an existing file, and an existing one.
    for (i, how) in [How::CREATE, How::OPEN_IF, OVERWRITE_IF].into_iter().enumerate() {
        assert_eq!(trips(&format!("d\\with{i}:s"), how).await, (Ok(()), 1), "{i}");
        assert_eq!(trips(&format!("d\\new0:s{i}"), how).await, (Ok(()), 2), "{i}");
    }
    assert_eq!(trips("d\\new0:s0", How::OPEN_IF).await, (Ok(()), 1));
}

// MS-FSA 2.1.5.1.1: FILE_ADD_FILE and FILE_ADD_SUBDIRECTORY on the folder.
#[tokio::test(start_paused = true)]
async fn the_folder_decides() {
    let (w, vfs) = world();
    for d in ["files", "folders", "neither"] {
        w.close(w.create(d, How::MKDIR).await).await;
        w.close(w.create(&format!("{d}\\there"), How::CREATE).await).await;
    }
    let list = AccessMask::READ_DATA;
    vfs.restrict("files", &w.session.user, list | AccessMask::WRITE_DATA).await;
    vfs.restrict("folders", &w.session.user, list | AccessMask::APPEND_DATA).await;
    vfs.restrict("neither", &w.session.user, list).await;
    for (d, file, folder) in [("files", true, false), ("folders", false, true), ("neither", false, false)] {
        let outcome = |allowed: bool| if allowed { Ok(()) } else { Err(NtStatus::ACCESS_DENIED) };
        let all = [
            (How::CREATE, file),
            (How::OPEN_IF, file),
            (OVERWRITE_IF, file),
            (SUPERSEDE, file),
            (How::MKDIR, folder),
            (MKDIR_IF, folder),
        ];
        for (i, (how, allowed)) in all.into_iter().enumerate() {
            let path = format!("{d}\\new{i}");
            assert_eq!(w.try_create(&path, how).await.map(|_| ()), outcome(allowed), "{path}");
            assert_eq!(w.exists(&path).await, allowed, "{path}");
        }
        let stream = format!("{d}\\with:s");
        assert_eq!(w.try_create(&stream, How::CREATE).await.map(|_| ()), outcome(file), "{stream}");
        assert_eq!(w.exists(&format!("{d}\\with")).await, file);
        // A name that exists is reported before the lack of a right.
        let there = w.try_create(&format!("{d}\\there"), How::CREATE).await;
        assert_eq!(there, Err(NtStatus::OBJECT_NAME_COLLISION), "{d}");
    }
}

/// Another program exchanges two folders just before the file is created: the one that gets the file is checked.
#[tokio::test(start_paused = true)]
async fn the_folder_that_gets_the_file_is_checked() {
    let (w, vfs) = world();
    for d in ["open", "shut"] {
        w.close(w.create(d, How::MKDIR).await).await;
    }
    vfs.restrict("shut", &w.session.user, AccessMask::READ_DATA).await;
    let (open, shut) = (vfs.node("open").await.id(), vfs.node("shut").await.id());
    for how in [How::CREATE, How::OPEN_IF, OVERWRITE_IF, How::MKDIR] {
        for (as_open, denied) in [(shut, true), (open, false)] {
            let exchange: Step = Box::new(move |vfs| {
                let path = |text| VfsPath::parse(text).expect("legal");
                let (first, second) = if as_open == shut { (open, shut) } else { (shut, open) };
                for (from, id, to) in
                    [("open", first, "away"), ("shut", second, "open"), ("away", first, "shut")]
                {
                    let renamed = vfs.rename(&Ctx::default(), &path(from), id, &path(to), false);
                    assert!(matches!(renamed, Io::Done(Ok(()))), "{from} to {to}");
                }
            });
            *vfs.before_creation.lock() = Some(exchange);
            let name = format!("open\\{denied}{:?}{:?}", how.disposition, how.options);
            let outcome = w.try_create(&name, how).await.map(|_| ());
            assert_eq!(outcome, if denied { Err(NtStatus::ACCESS_DENIED) } else { Ok(()) }, "{name}");
        }
    }
}
