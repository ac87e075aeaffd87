//! Opens many files, locks each, and keeps them open while the server is killed and restarted: `holder FOLDER
//! COUNT`. It prints HELD when all are open, and waits for the file `check` in the folder. Then it reads its
//! data back through every handle, writes once more, and prints CHECKED. It ends when a file `enough` exists.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

const THREADS: usize = 8;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().expect("a folder");
    let count: usize = arguments.next().expect("a count").parse().expect("a number");
    let folder = Path::new(&folder);

    let mut held = on_threads((0..count).collect(), |n: usize| {
        let path = folder.join(format!("held-{n:05}"));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).expect("created");
        file.lock().expect("locked");
        file.write_all_at(&content(n), 0).expect("written");
        // Flushed now, so that an error of the client's cache does not appear only in the check.
        file.sync_all().expect("on the server");
        (n, file)
    });
    println!("HELD {}", held.len());

    wait_for(&folder.join("check"));
    held = on_threads(held, |(n, file): (usize, File)| {
        let mut found = [0; 8];
        file.read_exact_at(&mut found, 0).unwrap_or_else(|e| panic!("file {n} is not read: {e}"));
        assert_eq!(found, content(n), "file {n}");
        file.write_all_at(&content(n), 8)
            .and_then(|()| file.sync_all())
            .unwrap_or_else(|e| panic!("file {n} is not written: {e}"));
        (n, file)
    });
    println!("CHECKED {}", held.len());
    wait_for(&folder.join("enough"));
}

fn content(n: usize) -> [u8; 8] {
    (n as u64 ^ 0x9e37_79b9_7f4a_7c15).to_le_bytes()
}

fn wait_for(path: &Path) {
    while !path.exists() {
        thread::sleep(Duration::from_millis(100));
    }
}

/// Applies `what` to each item, on a few threads.
fn on_threads<T: Send, U: Send>(mut items: Vec<T>, what: impl Fn(T) -> U + Sync) -> Vec<U> {
    let share = items.len().div_ceil(THREADS).max(1);
    let what = &what;
    thread::scope(|scope| {
        let mut running = Vec::new();
        while !items.is_empty() {
            let part = items.split_off(items.len().saturating_sub(share));
            running.push(scope.spawn(move || part.into_iter().map(what).collect::<Vec<_>>()));
        }
        running.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    })
}
