//! Many clients at the same few names, on a backend that lets others run in the middle of every call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use env::{Ctx, Env, Io};
use smb_wire::fscc::{FileInfoClass, FileRenameInformation};
use vfs::{FileKey, OpenRequest, Opened, Space, Vfs, VfsPath, VfsResult, VolumeInfo};

use super::*;

/// Yields a random number of times before and after each change or lookup of a name.
struct Yielding {
    inner: Arc<dyn Vfs>,
    env: Env,
    /// Changes that have begun and not returned.
    changing: Arc<AtomicUsize>,
}

impl Yielding {
    fn changes<T: Send + 'static>(&self, call: impl FnOnce() -> Io<T> + Send + 'static) -> Io<T> {
        let (call, changing) = (self.slowly(call), Arc::clone(&self.changing));
        changing.fetch_add(1, Ordering::Relaxed);
        Io::pending(async move {
            let result = call.wait().await;
            changing.fetch_sub(1, Ordering::Relaxed);
            result
        })
    }

    fn slowly<T: Send + 'static>(&self, call: impl FnOnce() -> Io<T> + Send + 'static) -> Io<T> {
        let chance = self.env.random_u64();
        Io::pending(async move {
            yields(chance % 4).await;
            let result = call().wait().await;
            yields(chance / 4 % 4).await;
            result
        })
    }
}

async fn yields(n: u64) {
    for _ in 0..n {
        tokio::task::yield_now().await;
    }
}

impl Vfs for Yielding {
    fn info(&self) -> &VolumeInfo {
        self.inner.info()
    }

    fn space(&self, c: &Ctx) -> Io<VfsResult<Space>> {
        self.inner.space(c)
    }

    fn open(&self, c: &Ctx, request: OpenRequest) -> Io<VfsResult<Opened>> {
        let (inner, c) = (Arc::clone(&self.inner), *c);
        self.slowly(move || inner.open(&c, request))
    }

    fn remove(&self, c: &Ctx, path: &VfsPath, id: FileKey) -> Io<VfsResult<()>> {
        let (inner, c, path) = (Arc::clone(&self.inner), *c, path.clone());
        self.changes(move || inner.remove(&c, &path, id))
    }

    fn rename(&self, c: &Ctx, from: &VfsPath, id: FileKey, to: &VfsPath, replace: bool) -> Io<VfsResult<()>> {
        let (inner, c, from, to) = (Arc::clone(&self.inner), *c, from.clone(), to.clone());
        self.changes(move || inner.rename(&c, &from, id, &to, replace))
    }

    fn link(&self, c: &Ctx, from: &VfsPath, id: FileKey, to: &VfsPath, replace: bool) -> Io<VfsResult<()>> {
        let (inner, c, from, to) = (Arc::clone(&self.inner), *c, from.clone(), to.clone());
        self.changes(move || inner.link(&c, &from, id, &to, replace))
    }
}

const NAMES: [&str; 6] = ["a", "b", "d", "d\\a", "d\\b", "e\\a"];

fn pick<T: Copy>(env: &Env, from: &[T]) -> T {
    from[(env.random_u64() % from.len() as u64) as usize]
}

/// One client: opens, renames and closes at random, then closes what it has.
async fn client(w: World, env: Env, changing: Arc<AtomicUsize>) {
    let mut held = Vec::new();
    for _ in 0..40 {
        match env.random_u64() % 4 {
            0 | 1 => {
                let disposition = pick(
                    &env,
                    &[
                        CreateDisposition::OPEN,
                        CreateDisposition::CREATE,
                        CreateDisposition::OPEN_IF,
                        CreateDisposition::OVERWRITE_IF,
                    ],
                );
                let options = pick(
                    &env,
                    &[CreateOptions::empty(), CreateOptions::DELETE_ON_CLOSE, CreateOptions::DIRECTORY_FILE],
                );
                let how = How { disposition, options, ..How::OPEN };
                if let Ok(c) = w.try_create(pick(&env, &NAMES), how).await {
                    held.push(c.id);
                }
            }
            2 if !held.is_empty() => {
                let (name, mut bytes) = (Utf16Buf::from(pick(&env, &NAMES)), Vec::new());
                let replace_if_exists = env.random_u64().is_multiple_of(2);
                let q = FileRenameInformation { replace_if_exists, root_directory: 0, name: name.as_utf16() };
                q.encode(&mut bytes).expect("fits");
                let _ = w.set(pick(&env, &held), FileInfoClass::RENAME.0, &bytes).await;
            }
            _ if !held.is_empty() => {
                let i = (env.random_u64() % held.len() as u64) as usize;
                w.close(held.swap_remove(i)).await;
            }
            _ => {}
        }
        check_paths(&w, &changing).await;
    }
    for id in held {
        w.close(id).await;
    }
}

/// Checks that the path of each open in the table leads to its file at the backend.
async fn check_paths(w: &World, changing: &AtomicUsize) {
    let before = w.server.namespace.snapshot();
    if changing.load(Ordering::Relaxed) != 0 {
        return;
    }
    let vfs = Arc::clone(w.server.share("files").expect("there").vfs().expect("a disk"));
    for open in w.server.opens.all() {
        let Some(f) = open.file() else { continue };
        let path = f.file.path_of(open.persistent);
        let request = OpenRequest::for_metadata(path.clone());
        let found = vfs.open(&Ctx::default(), request).wait().await;
        // A comparison during which names change proves nothing.
        let quiet = changing.load(Ordering::Relaxed) == 0 && w.server.namespace.snapshot() == before;
        if quiet && w.server.opens.find(open.persistent).is_some() {
            let id = found.unwrap_or_else(|e| panic!("{path}: {e}")).node.id();
            assert_eq!(id, f.node.id(), "{path}");
        }
    }
}

/// A share whose backend yields in the middle of every call.
async fn yielding(seed: u64) -> (World, Env, Arc<AtomicUsize>) {
    let w = World::new();
    let env = Env::simulated(seed);
    w.server.remove_share("files").await.expect("there");
    let inner = RamFs::new(&env, RamOptions::default()).expect("address space");
    let changing = Arc::new(AtomicUsize::new(0));
    let vfs = Arc::new(Yielding { inner, env: env.clone(), changing: Arc::clone(&changing) });
    w.server.add_share(ShareConfig::new("files", vfs)).expect("removed before");
    (w, env, changing)
}

async fn rename(w: &World, id: FileId, to: &str) -> NtStatus {
    let (name, mut bytes) = (Utf16Buf::from(to), Vec::new());
    let q = FileRenameInformation { replace_if_exists: true, root_directory: 0, name: name.as_utf16() };
    q.encode(&mut bytes).expect("fits");
    w.set(id, FileInfoClass::RENAME.0, &bytes).await
}

/// Creates, renames and deletes a file repeatedly, until `stop` is set.
async fn churn(w: World, names: [&str; 2], stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        let options = CreateOptions::DELETE_ON_CLOSE;
        let Ok(c) = w.try_create(names[0], How { options, ..How::OPEN_IF }).await else { continue };
        let renamed = rename(&w, c.id, names[1]).await;
        assert!([NtStatus::SUCCESS, NtStatus::ACCESS_DENIED, NtStatus::DELETE_PENDING].contains(&renamed));
        w.close(c.id).await;
    }
}

// Renames and removals in one directory do not interfere with opens in another.
#[tokio::test(start_paused = true)]
async fn other_directories_do_not_interfere() {
    let (w, ..) = yielding(1).await;
    let makes = w.another(1);
    for d in ["a", "b"] {
        let id = makes.create(d, How::MKDIR).await;
        makes.close(id).await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let churns = tokio::spawn(churn(w.another(2), ["a\\x", "a\\y"], Arc::clone(&stop)));
    let opens = w.another(3);
    for _ in 0..300 {
        let id = opens.create("b\\f", How::OPEN_IF).await;
        opens.close(id).await;
    }
    stop.store(true, Ordering::Relaxed);
    churns.await.expect("runs");
    assert_eq!(w.server.namespace.lost_races(), 0);
}

// An open of a name that is renamed and deleted without pause succeeds, or returns the file's true state.
#[tokio::test(start_paused = true)]
async fn an_open_that_loses_gets_its_turn() {
    let (w, ..) = yielding(2).await;
    let stop = Arc::new(AtomicBool::new(false));
    let churns: Vec<_> =
        (10..16).map(|i| tokio::spawn(churn(w.another(i), ["x", "y"], Arc::clone(&stop)))).collect();
    let opens = w.another(3);
    for _ in 0..300 {
        for name in ["x", "y"] {
            match opens.try_create(name, How::OPEN_IF).await {
                Ok(c) => opens.close(c.id).await,
                Err(e) => assert_eq!(e, NtStatus::DELETE_PENDING),
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    for c in churns {
        c.await.expect("runs");
    }
    assert!(w.server.namespace.lost_races() > 0, "they did meet");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_lost_and_nothing_is_left() {
    for seed in 0..200 {
        let (w, env, changing) = yielding(seed).await;
        let mut clients = Vec::new();
        for i in 0..6 {
            clients.push(tokio::spawn(client(w.another(2000 + i), env.clone(), Arc::clone(&changing))));
        }
        for c in clients {
            c.await.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        }
        assert_eq!(w.server.files.open_files(), 0, "seed {seed}");
        let last = w.another(3000);
        for name in ["a", "b", "d\\a", "d\\b", "e\\a"] {
            if last.exists(name).await {
                let how = How { options: CreateOptions::DELETE_ON_CLOSE, ..How::OPEN };
                let id = last
                    .try_create(name, how)
                    .await
                    .unwrap_or_else(|e| panic!("seed {seed}: {name}: {e}"))
                    .id;
                last.close(id).await;
            }
        }
    }
}
