//! A server with a disk in memory, and a client on byte level.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use arena::Arena;
use disk::{MemoryDisk, MemoryOptions};
use env::Env;
use nbd::{Export, Limits, Server};
use tokio::net::UnixListener;
use tokio::sync::watch;

/// Serves a disk of `size` bytes while `client` runs, then stops; all memory must be free again.
pub fn serve(size: u64, limits: Limits, client: impl FnOnce(&dyn Fn() -> UnixStream) + Send) {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nbd");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let listener = {
        let _in = runtime.enter();
        UnixListener::bind(&socket).expect("a socket")
    };
    let (stop, stopped) = watch::channel(false);
    let disk = MemoryDisk::new(&MemoryOptions::new("nbd", size));
    let export = Export { name: "space".into(), disk, read_only: false, discard_zeros: false };
    let arena = Arena::new(4 << 20).expect("memory");
    let server = Server::new(vec![export], arena.clone(), Env::real()).with_limits(limits);
    std::thread::scope(|scope| {
        let client = scope.spawn(move || {
            let connect = || {
                let s = UnixStream::connect(&socket).expect("connected");
                s.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
                s
            };
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| client(&connect)));
            stop.send(true).expect("the server runs");
            result
        });
        runtime.block_on(server.serve(listener, stopped)).expect("served");
        client.join().expect("no panic here").unwrap_or_else(|e| std::panic::resume_unwind(e));
    });
    assert_eq!(arena.usage().used, 0, "memory came back");
}

/// A request with the cookie 7.
pub fn request(flags: u16, command: u16, offset: u64, length: u32) -> Vec<u8> {
    let mut b = 0x2560_9513_u32.to_be_bytes().to_vec();
    b.extend_from_slice(&flags.to_be_bytes());
    b.extend_from_slice(&command.to_be_bytes());
    b.extend_from_slice(&7_u64.to_be_bytes());
    b.extend_from_slice(&offset.to_be_bytes());
    b.extend_from_slice(&length.to_be_bytes());
    b
}
