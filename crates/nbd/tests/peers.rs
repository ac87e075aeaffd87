//! Clients of QEMU and libnbd against the server, with a disk in memory; `scripts/setup test` installs them.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use arena::Arena;
use disk::{Disk, MemoryDisk, MemoryOptions};
use env::Env;
use nbd::{Export, Server};
use tokio::net::UnixListener;
use tokio::sync::watch;

const SIZE: u64 = 64 << 20;

/// Serves while `client` runs on another thread, then stops and waits until every connection has ended.
fn with_server<T: Send>(
    read_only: bool,
    discard_zeros: bool,
    client: impl FnOnce(&str, &Path) -> T + Send,
) -> T {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("nbd");
    let uri = format!("nbd+unix:///space?socket={}", socket.display());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let listener = {
        let _in = runtime.enter();
        UnixListener::bind(&socket).expect("a socket")
    };
    let (stop, stopped) = watch::channel(false);
    let disk: Arc<dyn Disk> = MemoryDisk::new(&MemoryOptions::new("nbd", SIZE));
    assert_eq!(disk.info().geometry.logical_block, 4096, "what the clients must be told");
    let export = |name: &str| Export { name: name.into(), disk: Arc::clone(&disk), read_only, discard_zeros };
    let server = Server::new(
        vec![export("space"), export("other")],
        Arena::new(16 << 20).expect("memory"),
        Env::real(),
    );
    std::thread::scope(|scope| {
        let client = scope.spawn(move || {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| client(&uri, &socket)));
            stop.send(true).expect("the server runs");
            result
        });
        runtime.block_on(server.serve(listener, stopped)).expect("served");
        client.join().expect("no panic here").unwrap_or_else(|e| std::panic::resume_unwind(e))
    })
}

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}: run scripts/setup test"))
}

fn text(o: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr))
}

/// Runs commands of qemu-io; returns its output.
fn qemu_io(uri: &str, options: &[&str], commands: &[&str]) -> String {
    let commands = commands.iter().flat_map(|c| ["-c", c]);
    let arguments: Vec<&str> =
        ["-f", "raw"].into_iter().chain(options.iter().copied()).chain(commands).chain([uri]).collect();
    text(&run("qemu-io", &arguments))
}

#[test]
fn qemu_reads_what_it_wrote() {
    let said = with_server(false, false, |uri, _| {
        qemu_io(
            uri,
            &[],
            &[
                "write -P 1 0 1M",
                "write -P 2 512 512", // QEMU completes the block: it knows the block size
                "write -f -P 3 60M 4M",
                "flush",
                "read -P 1 0 512",
                "read -P 2 512 512",
                "read -P 1 1024 1047552",
                "read -P 3 60M 4M",
                "write -z 60M 1M",
                "discard 0 1M",
                "read -P 0 60M 1M",
                "read -P 3 61M 3M",
            ],
        )
    });
    assert!(!said.contains("verification failed") && !said.contains("failed"), "{said}");
    assert_eq!(said.matches("bytes at offset").count(), 11, "{said}");
}

#[test]
fn reads_and_writes_beside_each_other() {
    let said = with_server(false, true, |uri, _| {
        let writes: Vec<String> = (0..48).map(|i| format!("aio_write -P {} {}M 1M", i + 1, i)).collect();
        let reads: Vec<String> = (0..48).map(|i| format!("aio_read -P {} {}M 1M", i + 1, i)).collect();
        let mut commands: Vec<&str> = writes.iter().map(String::as_str).collect();
        commands.extend(["aio_flush", "flush"]);
        commands.extend(reads.iter().map(String::as_str));
        commands.push("aio_flush");
        qemu_io(uri, &["-t", "none"], &commands)
    });
    assert!(!said.contains("failed"), "{said}");
    assert_eq!(said.matches("bytes at offset").count(), 96, "{said}");
}

#[test]
fn libnbd_sees_the_exports() {
    with_server(false, false, |uri, socket| {
        let one = text(&run("nbdinfo", &[uri]));
        for line in [
            "export-size: 67108864",
            "block_size_minimum: 4096",
            "can_flush: true",
            "can_fua: true",
            "can_trim: true",
            "can_zero: true",
            "can_multi_conn: true",
        ] {
            assert!(one.contains(line), "{line} is not in {one}");
        }
        let all = text(&run("nbdinfo", &["--list", &format!("nbd+unix://?socket={}", socket.display())]));
        assert!(all.contains("export=\"space\"") && all.contains("export=\"other\""), "{all}");
        let none = run("nbdinfo", &[&format!("nbd+unix:///nothing?socket={}", socket.display())]);
        assert!(!none.status.success() && text(&none).contains("No such file"), "{}", text(&none));
    });
}

/// libnbd and QEMU query BLOCK_STATUS and skip holes.
#[test]
fn holes_are_reported() {
    with_server(false, true, |uri, _| {
        qemu_io(uri, &[], &["write -P 7 8M 1M", "write -P 8 32M 64k"]);
        let map = text(&run("nbdinfo", &["--map", uri]));
        let rows: Vec<Vec<&str>> = map.lines().map(|l| l.split_whitespace().take(3).collect()).collect();
        let expected = [
            ["0", "8388608", "3"],
            ["8388608", "1048576", "0"],
            ["9437184", "24117248", "3"],
            ["33554432", "65536", "0"],
            ["33619968", "33488896", "3"],
        ];
        assert_eq!(rows, expected, "{map}");
        let map = text(&run("qemu-img", &["map", "--output=json", "-f", "raw", uri]));
        assert!(
            map.contains(
                "\"start\": 8388608, \"length\": 1048576, \"depth\": 0, \"present\": true, \"zero\": false"
            ),
            "{map}"
        );
        assert!(
            map.contains(
                "\"start\": 0, \"length\": 8388608, \"depth\": 0, \"present\": true, \"zero\": true"
            ),
            "{map}"
        );
    });
}

/// nbdcopy uses several connections and deep queues.
#[test]
fn a_copy_comes_back_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let bytes: Vec<u8> =
        (0..SIZE / 4).flat_map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    std::fs::write(path("there"), &bytes).expect("written");
    with_server(false, false, |uri, _| {
        let there = run("nbdcopy", &["--flush", &path("there"), uri]);
        assert!(there.status.success(), "{}", text(&there));
        let back = run("nbdcopy", &[uri, &path("back")]);
        assert!(back.status.success(), "{}", text(&back));
    });
    assert!(std::fs::read(path("back")).expect("read") == bytes, "other bytes came back");
}

#[test]
fn a_read_only_export_takes_no_writes() {
    let said = with_server(true, false, |uri, _| qemu_io(uri, &["-r"], &["read -P 0 0 4k", "write 0 4k"]));
    assert!(said.contains("read 4096/4096"), "{said}");
    assert!(!said.contains("wrote"), "{said}");
}
