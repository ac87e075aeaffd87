//! The client commands against a server of the test's own: over TCP and SMB Direct, whole trees, resumed
//! copies, and error messages.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use crate::program::{Run, Scratch, Server, causeway_with};
use crc_fast::{CrcAlgorithm, checksum};
use serde_json::Value;

/// A server with a directory `files` and memory `ram`, and a user.
pub struct TestServer {
    dir: Scratch,
    server: Server,
    tcp: u16,
    rdma: u16,
}

pub const PASSWORD: &str = "correct horse";
/// Puts a file into the share's directory that its users may write to.
fn lay(path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
    fs::write(&path, bytes).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("ours");
}

/// The bytes of a block of `--resume`.
const BLOCK: usize = 64 << 20;

impl TestServer {
    pub fn new(name: &str) -> TestServer {
        let dir = Scratch::new(name);
        let files = dir.path("files");
        fs::create_dir(&files).expect("made");
        // The share's users do not exist on this machine, so they have the rights of others.
        fs::set_permissions(&files, fs::Permissions::from_mode(0o777)).expect("ours");
        let shares = format!(
            "[[share]]\nname = \"files\"\npath = {:?}\n[[share]]\nname = \"ram\"\nbackend = \"ram\"\n\
             [[share]]\nname = \"fixed\"\npath = {:?}\nread_only = true\n",
            dir.path("files"),
            dir.path("files")
        );
        let listen = "listen = [\"127.0.0.1:0\"]\niwarp = [\"127.0.0.1:0\"]\nannounce_rdma = true";
        let config = dir.configuration(listen, &shares);
        let server = Server::start(&config, &dir.path("control.sock"));
        let add = server.ask_with(&["user", "add", "alice", "--password-stdin"], &format!("{PASSWORD}\n"));
        assert_eq!(add.code, 0, "{add:?}");
        let port = |transport: &str| {
            let (_, rest) =
                server.ready.split_once(&format!("{transport} 127.0.0.1:")).expect("it is listed");
            rest.split(',').next().and_then(|p| p.parse().ok()).expect("a port")
        };
        let (tcp, rdma) = (port("tcp"), port("iwarp"));
        TestServer { dir, server, tcp, rdma }
    }

    /// The server's process.
    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// The server's control socket.
    pub fn control(&self) -> String {
        self.dir.path("control.sock")
    }

    /// The port of SMB Direct.
    pub fn rdma_port(&self) -> u16 {
        self.rdma
    }

    pub fn url(&self, path: &str) -> String {
        format!("smb://alice@127.0.0.1:{}/{path}", self.tcp)
    }

    fn run_as(&self, password: &str, arguments: &[&str]) -> Run {
        let port = self.rdma.to_string();
        causeway_with(&[arguments, &["--rdma-port", &port]].concat(), "", &[("CAUSEWAY_PASSWORD", password)])
    }

    fn run(&self, arguments: &[&str]) -> Run {
        self.run_as(PASSWORD, arguments)
    }

    /// Runs a command that must succeed; returns its output.
    fn done(&self, arguments: &[&str]) -> String {
        let run = self.run(arguments);
        assert_eq!(run.code, 0, "{arguments:?}: {run:?}");
        run.out
    }

    /// Runs a command with `--json` that must succeed; returns the document.
    pub fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.done(&[arguments, &["--json"]].concat())).expect("JSON")
    }

    /// Runs a command that must fail; returns its error message.
    pub fn fails(&self, arguments: &[&str]) -> String {
        let run = self.run(arguments);
        assert_eq!(run.code, 1, "{arguments:?}: {run:?}");
        run.err
    }
}

/// Pseudo-random bytes, so that a misplaced piece is detected.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut out = Vec::with_capacity(length + 8);
    while out.len() < length {
        out.extend_from_slice(&next().to_le_bytes());
    }
    out.truncate(length);
    out
}

#[test]
fn files_there_and_back_over_each_transport() {
    let p = TestServer::new("there");
    let (source, back) = (p.dir.path("source"), p.dir.path("back"));
    for (transport, over) in [("tcp", "tcp"), ("rdma", "rdma"), ("auto", "rdma")] {
        for share in ["files", "ram"] {
            for length in [0, 1, 4096, 3_000_001] {
                fs::write(&source, noise(length)).expect("written");
                let url = p.url(&format!("{share}/{transport}-{length}"));
                for arguments in [["put", &source, &url], ["get", &url, &back]] {
                    let summary = p.json(&[&arguments[..], &["--transport", transport]].concat());
                    assert_eq!(
                        (&summary["bytes"], &summary["files"]),
                        (&length.into(), &1.into()),
                        "{summary}"
                    );
                    assert_eq!(summary["transport"], over);
                    assert!(summary["why_not_rdma"].is_null(), "TCP was asked for: {summary}");
                }
                assert_eq!(fs::read(&back).expect("read"), noise(length));
                let stat = p.json(&["stat", &url]);
                assert_eq!((&stat["size"], &stat["directory"]), (&length.into(), &false.into()));
            }
        }
    }
    // The new file is shorter than the old one. Without --json the last line is a summary.
    fs::write(&source, b"short").expect("written");
    let put = p.run(&["put", &source, &p.url("files/tcp-4096"), "--transport", "tcp"]);
    assert!(put.err.starts_with("1 file, 5 bytes in ") && put.err.ends_with("MB/s, TCP\n"), "{put:?}");
    assert_eq!(p.done(&["cat", &p.url("files/tcp-4096"), &p.url("files/rdma-1")]).as_bytes()[..5], *b"short");
}

#[test]
fn trees_there_and_back() {
    let p = TestServer::new("trees");
    let tree = p.dir.path("tree");
    fs::create_dir_all(format!("{tree}/a/b c")).expect("made");
    fs::create_dir(format!("{tree}/empty")).expect("made");
    for i in 0..40 {
        fs::write(format!("{tree}/a/{i}"), noise(i * 1000)).expect("written");
    }
    fs::write(format!("{tree}/a/b c/ünï 漢字"), "x").expect("written");
    assert!(p.fails(&["put", &tree, &p.url("ram/")]).contains("pass -r"));
    assert_eq!(p.json(&["put", "-r", &tree, &p.url("ram/")])["files"], 41);
    assert!(p.fails(&["get", &p.url("ram/tree"), &p.dir.path("back")]).contains("pass -r"));
    assert_eq!(p.json(&["get", "-r", &p.url("ram/tree"), &p.dir.path("back")])["files"], 41);
    same(Path::new(&tree), Path::new(&p.dir.path("back")));

    // Files that a share cannot store are reported and skipped, and the others are copied.
    fs::write(format!("{tree}/a/colon:"), "x").expect("written");
    std::os::unix::fs::symlink("..", format!("{tree}/a/loop")).expect("linked");
    let put = p.run(&["put", "-r", &tree, &p.url("ram/again")]);
    assert_eq!(put.code, 1);
    assert!(put.err.contains("colon:") && put.err.contains("loop: not copied"), "{put:?}");
    assert!(
        put.err.contains("41 files, ") && put.err.ends_with("2 files failed: see the messages above\n"),
        "{put:?}"
    );

    assert!(p.fails(&["rm", &p.url("ram/tree")]).contains("pass -r"));
    // The first tree has 41 files and 4 directories, the second 40 files and 4 directories.
    p.done(&["rm", &p.url("ram/again/a/0")]);
    assert_eq!(p.json(&["rm", "-r", &p.url("ram/tree"), &p.url("ram/again")])["removed"], 45 + 44);
    assert_eq!(p.json(&["ls", &p.url("ram/")]), serde_json::json!([]));
}

#[test]
fn every_command_answers_in_json() {
    let p = TestServer::new("answers");
    let (one, two) = (p.url("ram/one"), p.url("ram/two"));
    assert_eq!(p.json(&["mkdir", &one])["created"], serde_json::json!([one]));
    assert_eq!(p.json(&["mv", &one, &two]), serde_json::json!({"from": one, "to": two}));
    let failure = |arguments: &[&str], code| -> Value {
        let run = p.run(arguments);
        assert_eq!(run.code, code, "{run:?}");
        serde_json::from_str(run.err.lines().next().unwrap_or_default())
            .unwrap_or_else(|e| panic!("{e}: {run:?}"))
    };
    // A file of a tree that cannot be copied, a failed command, and a command line that cannot be understood.
    let tree = p.dir.path("tree");
    fs::create_dir(&tree).expect("made");
    fs::write(format!("{tree}/colon:"), "x").expect("written");
    assert!(
        failure(&["put", "--json", "-r", &tree, &p.url("ram/")], 1)["error"]
            .as_str()
            .is_some_and(|e| e.contains("colon:"))
    );
    assert!(
        failure(&["rm", "--json", &one], 1)["do"].as_str().is_some_and(|cure| cure.contains("causeway ls"))
    );
    let usage = failure(&["mv", "--json", &one], 2);
    assert!(usage["error"].as_str().is_some_and(|e| e.contains("<NEW_URL>")), "{usage}");
    assert!(usage["do"].as_str().is_some_and(|cure| cure.starts_with("Usage: causeway mv")), "{usage}");
}

/// Asserts that both directories have the same names and contents.
fn same(a: &Path, b: &Path) {
    let names = |dir: &Path| {
        let mut names: Vec<_> =
            fs::read_dir(dir).expect("read").map(|e| e.expect("read").file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(a), names(b));
    for name in names(a) {
        let (a, b) = (a.join(&name), b.join(&name));
        if a.is_dir() {
            same(&a, &b)
        } else {
            assert_eq!(fs::read(a).expect("read"), fs::read(b).expect("read"))
        }
    }
}

#[test]
fn names_are_made_moved_listed_and_removed() {
    let p = TestServer::new("names");
    let file = p.dir.path("f");
    fs::write(&file, "12345").expect("written");
    p.done(&["mkdir", &p.url("files/d")]);
    assert!(p.fails(&["mkdir", &p.url("files/d")]).contains("this name exists"));
    assert!(p.fails(&["mkdir", &p.url("files/x/y")]).contains("mkdir -p"));
    p.done(&["mkdir", "-p", &p.url("files/x/y"), &p.url("files/d")]);
    p.done(&["put", &file, &p.url("files/d/")]);
    assert!(p.fails(&["put", &file, &p.url("files/none/")]).contains("mkdir"));
    p.done(&["mv", &p.url("files/d/f"), &p.url("files/x")]);
    p.done(&["put", &file, &p.url("files/taken")]);
    assert!(p.fails(&["mv", &p.url("files/taken"), &p.url("files/x/f")]).contains("--force"));
    p.done(&["mv", "--force", &p.url("files/taken"), &p.url("files/x/f")]);
    assert!(p.dir.path("files/x/f").parse::<std::path::PathBuf>().is_ok_and(|f| f.is_file()));
    // A UNC path works like a URL; directories are listed first.
    let unc = format!("//127.0.0.1:{}/files", p.tcp);
    let list = p.done(&["ls", &unc, "--user", "alice"]);
    let last: Vec<_> = list.lines().skip(2).map(|l| l.rsplit(' ').next().unwrap_or_default()).collect();
    assert_eq!(last, ["d", "x"], "{list}");
    let matching = |pattern: &str| {
        let list = p.json(&["ls", &p.url(pattern)]);
        list.as_array()
            .expect("a list")
            .iter()
            .map(|e| e["name"].as_str().map(str::to_owned))
            .collect::<Vec<_>>()
    };
    assert_eq!(matching("files/?"), [Some("d".to_owned()), Some("x".to_owned())]);
    assert_eq!(matching("files/x/*F*"), [Some("f".to_owned())]); // as Windows matches: any case
    assert_eq!(matching("files/x/*.none"), [None; 0]);
    assert!(p.fails(&["ls", &p.url("files/none/*")]).contains("none"));
    let shares = p.json(&["shares", &p.url("")]);
    let names: Vec<_> = shares.as_array().expect("a list").iter().map(|s| &s["name"]).collect();
    assert_eq!(names, ["IPC$", "files", "fixed", "ram"]);
    p.done(&["rm", &p.url("files/x/f")]);
    assert!(p.fails(&["cat", &p.url("files/x/f")]).contains("there is no such file"));
}

#[test]
fn errors_name_place_and_cure() {
    let mut p = TestServer::new("errors");
    let file = p.dir.path("f");
    fs::write(&file, "x").expect("written");
    let wrong = p.run_as("wrong", &["ls", &p.url("files")]);
    assert!(wrong.code == 1 && wrong.err.contains("check user and password"), "{wrong:?}");
    assert!(!wrong.err.contains("wrong:") && !wrong.err.contains(PASSWORD), "{wrong:?}");
    assert!(
        p.fails(&["ls", &p.url("nowhere/x")])
            .contains("/nowhere: STATUS_BAD_NETWORK_NAME: there is no such share")
    );
    assert!(p.fails(&["put", &file, &p.url("fixed/f")]).contains("read-only"));
    let none = p.fails(&["put", &p.dir.path("none"), &p.url("files/")]);
    assert!(none.contains("No such file") && none.contains("check the path") && !none.contains("os error"));
    // A pattern without a match is passed on by the shell as a file name that does not exist.
    assert!(p.fails(&["put", &p.dir.path("*.none"), &p.url("files/")]).contains("No such file"));
    assert!(p.fails(&["put", &file, &p.url("files/none/f")]).contains("mkdir -p"));
    p.done(&["put", &file, &p.url("ram/f")]);
    assert!(p.fails(&["get", &p.url("ram/f"), &p.dir.path("none/f")]).contains("check the path"));
    assert!(p.fails(&["get", &p.url("ram/f"), &p.dir.path("f/x")]).contains("a part of the path is a file"));
    p.done(&["mkdir", &p.url("ram/d")]);
    assert!(p.fails(&["cat", &p.url("ram/d")]).contains("name a file in it"));
    if !rustix::process::geteuid().is_root() {
        let locked = p.dir.path("locked");
        fs::create_dir(&locked)
            .and_then(|()| fs::set_permissions(&locked, fs::Permissions::from_mode(0o500)))
            .expect("made");
        assert!(p.fails(&["get", &p.url("ram/f"), &locked]).contains("you have no permission"));
    }
    assert!(p.fails(&["get", &p.url("ram/f"), "/dev/full"]).contains("free some space on this machine"));
    let long = "x".repeat(300);
    let too_long = p.run(&["stat", &p.url(&format!("ram/{long}"))]);
    assert!(too_long.code == 2 && too_long.err.contains("255") && too_long.err.len() < 200, "{too_long:?}");
    // A share accepts names of 255 characters, which may be too long for this machine.
    let wide = "ä".repeat(200);
    p.done(&["put", &file, &p.url(&format!("ram/{wide}"))]);
    assert!(p.fails(&["get", &p.url(&format!("ram/{wide}")), &p.dir.path("")]).contains("255 bytes"));
    for usage in [
        &["ls", "http://h/s"][..],
        &["ls", "/srv/x"],
        &["get", "smb://u:pass@h/s/f"],
        &["put", "f"],
        &["mv", "//h/s/a", "//h/t/b"],
    ] {
        let run = p.run(usage);
        assert_eq!(run.code, 2, "{run:?}");
    }
    // Without a terminal there is no prompt; --password-stdin reads from a pipe.
    let piped = causeway_with(&["ls", &p.url("files"), "--password-stdin"], &format!("{PASSWORD}\n"), &[]);
    assert_eq!(piped.code, 0, "{piped:?}");
    // --transport rdma does not fall back to TCP.
    let no_rdma = causeway_with(
        &["ls", &p.url("files"), "--transport", "rdma", "--rdma-port", "1"],
        "",
        &[("CAUSEWAY_PASSWORD", PASSWORD)],
    );
    assert!(no_rdma.code == 1 && no_rdma.err.contains("--rdma-port"), "{no_rdma:?}");
    assert_eq!(p.server.stop(), 0);
    assert!(p.fails(&["ls", &p.url("files")]).contains("no server listens on this port"));
}

/// A state of `--resume`: the version of the source, and the checksums of its blocks.
fn state(size: u64, changed: i64, blocks: &[&[u8]]) -> String {
    let sums: Vec<u32> = blocks.iter().map(|b| checksum(CrcAlgorithm::Crc32Iscsi, b) as u32).collect();
    serde_json::json!({ "source": { "size": size, "changed": changed }, "block": BLOCK, "sums": sums })
        .to_string()
}

#[test]
fn a_get_goes_on_where_it_can() {
    let p = TestServer::new("get-resume");
    let (source, part, back) = (p.dir.path("files/big"), p.dir.path("back.part"), p.dir.path("back"));
    let all = noise(BLOCK + 1_000_003);
    fs::write(&source, &all).expect("written");
    let meta = fs::metadata(&source).expect("there");
    // A server reports the time of last change in 100 ns since 1601.
    let changed = (meta.mtime() + 11_644_473_600) * 10_000_000 + meta.mtime_nsec() / 100;
    let state = state(all.len() as u64, changed, &[&all[..BLOCK]]);
    let get = || {
        let summary = p.json(&["get", "--resume", &p.url("files/big"), &back]);
        assert!(fs::read(&back).expect("read") == all);
        assert!(!Path::new(&part).exists() && !Path::new(&format!("{part}.state")).exists());
        assert_eq!(
            summary["bytes"].as_u64().zip(summary["resumed_bytes"].as_u64()).map(|(a, b)| a + b),
            Some(all.len() as u64)
        );
        summary["resumed_bytes"].as_u64().expect("a number")
    };
    assert_eq!(get(), 0); // nothing there

    // The part has one block and an incomplete piece behind it.
    lay(&part, [&all[..BLOCK], b"torn"].concat());
    lay(format!("{part}.state"), &state);
    assert_eq!(get(), BLOCK as u64);

    // The same, but the block was changed.
    lay(&part, &all[..BLOCK]);
    fs::File::options().write(true).open(&part).and_then(|f| f.write_all_at(b"!", 4711)).expect("written");
    lay(format!("{part}.state"), &state);
    assert_eq!(get(), 0);

    // The same, but the source has changed.
    lay(&part, &all[..BLOCK]);
    lay(format!("{part}.state"), state.replace(&changed.to_string(), "1"));
    assert_eq!(get(), 0);
}

#[test]
fn a_put_goes_on_where_it_can() {
    let p = TestServer::new("put-resume");
    let (source, part) = (p.dir.path("big"), p.dir.path("files/big.part"));
    let all = noise(BLOCK + 1_000_003);
    fs::write(&source, &all).expect("written");
    let meta = fs::metadata(&source).expect("there");
    let state = state(all.len() as u64, meta.mtime() * 1_000_000_000 + meta.mtime_nsec(), &[&all[..BLOCK]]);
    let put = || {
        let summary = p.json(&["put", "--resume", &source, &p.url("files/big")]);
        assert!(fs::read(p.dir.path("files/big")).expect("read") == all);
        assert!(!Path::new(&part).exists() && !Path::new(&format!("{part}.state")).exists());
        summary["resumed_bytes"].as_u64().expect("a number")
    };
    assert_eq!(put(), 0); // nothing there

    // The part on the server has one block and an incomplete piece behind it.
    lay(&part, [&all[..BLOCK], b"torn"].concat());
    lay(format!("{part}.state"), &state);
    assert_eq!(put(), BLOCK as u64);

    // The same, but the server has lost part of the block.
    lay(&part, &all[..BLOCK - 1]);
    lay(format!("{part}.state"), &state);
    assert_eq!(put(), 0);

    // The same, but the block was changed.
    lay(&part, &all[..BLOCK]);
    fs::File::options().write(true).open(&part).and_then(|f| f.write_all_at(b"!", 4711)).expect("written");
    lay(format!("{part}.state"), &state);
    assert_eq!(put(), 0);
}

/// The modification time in seconds and nanoseconds, rounded to the 100 ns of a server.
fn modified(path: &str) -> (i64, i64) {
    let meta = fs::metadata(path).expect("there");
    (meta.mtime(), meta.mtime_nsec() / 100 * 100)
}

#[test]
fn copies_keep_the_time_of_last_change() {
    let p = TestServer::new("times");
    let tree = p.dir.path("tree");
    fs::create_dir_all(format!("{tree}/d")).expect("made");
    fs::write(format!("{tree}/d/f"), noise(3_000_000)).expect("written");
    // 2001-09-09, and before 1970. The time of a directory is set after those of its contents.
    for (name, seconds) in [("d/f", 1_000_000_000), ("d", -1000), ("", 1_234_567_890)] {
        let time = rustix::fs::Timespec { tv_sec: seconds, tv_nsec: 123_456_700 };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        let file = fs::File::open(format!("{tree}/{name}")).expect("there");
        rustix::fs::futimens(&file, &times).expect("set");
    }
    for share in ["ram", "files"] {
        p.done(&["put", "-r", &tree, &p.url(&format!("{share}/"))]);
        p.done(&["get", "-r", &p.url(&format!("{share}/tree")), &p.dir.path(&format!("back-{share}"))]);
        for name in ["", "/d", "/d/f"] {
            let back = p.dir.path(&format!("back-{share}{name}"));
            let same = modified(&back) == modified(&format!("{tree}{name}"));
            assert!(same, "{share}{name}: {:?}", modified(&back));
        }
    }
    let (one, url) = (format!("{tree}/d/f"), p.url("files/f"));
    for more in [&["--resume"][..], &[]] {
        p.done(&[&["put", &one, &url], more].concat());
        assert_eq!(modified(&p.dir.path("files/f")), modified(&one), "{more:?}");
        p.done(&[&["get", &url, &p.dir.path("f")], more].concat());
        assert_eq!(modified(&p.dir.path("f")), modified(&one), "{more:?}");
    }
    p.done(&["put", "--no-times", &one, &url]);
    p.done(&["get", "--no-times", &p.url("ram/tree/d/f"), &p.dir.path("f")]);
    for path in [p.dir.path("files/f"), p.dir.path("f")] {
        assert!(modified(&path).0 > 1_700_000_000, "{path}");
    }
}

#[test]
fn holes_stay_holes() {
    let p = TestServer::new("holes");
    let (source, back) = (p.dir.path("source"), p.dir.path("back"));
    let data = noise(100_000);
    let size = 3 * BLOCK as u64 + 12_345;
    // There is data in the first block and across the border of the second and third block, and a hole at the end.
    let file = fs::File::create(&source).expect("made");
    for at in [1 << 20, 2 * BLOCK as u64 - 50_000] {
        file.write_all_at(&data, at).expect("written");
    }
    file.set_len(size).expect("longer");
    let on_disk = |path: &str| fs::metadata(path).expect("there").blocks() * 512;
    if on_disk(&source) > 1 << 20 {
        eprintln!("SKIPPED: no holes on this file system");
        return;
    }
    let original = fs::read(&source).expect("read");
    let same = |path: &str| {
        assert!(fs::read(path).expect("read") == original, "{path} differs");
        assert!(on_disk(path) < 1 << 20, "{path} takes {} bytes", on_disk(path));
    };
    for more in [&[][..], &["--resume"], &["--transport", "tcp"]] {
        for share in ["files", "ram"] {
            let url = p.url(&format!("{share}/holes"));
            let put = p.json(&[&["put", &source, &url], more].concat());
            let bytes = put["bytes"].as_u64().expect("a number");
            assert!((200_000..1 << 20).contains(&bytes), "{put}");
            assert_eq!(put["hole_bytes"], size - bytes, "{put}");
            let get = p.json(&[&["get", &url, &back], more].concat());
            assert!(get["bytes"].as_u64().is_some_and(|n| n < 1 << 20), "{get}");
            same(&back);
        }
        same(&p.dir.path("files/holes"));
        fs::remove_file(p.dir.path("files/holes")).expect("removed");
    }
    // A file that consists of a hole only replaces a file with data.
    fs::write(&back, noise(300_000)).expect("written");
    let hole = p.dir.path("hole");
    fs::File::create(&hole).and_then(|f| f.set_len(300_000)).expect("made");
    lay(p.dir.path("files/hole"), noise(300_000));
    p.done(&["put", &hole, &p.url("files/hole")]);
    p.done(&["get", &p.url("files/hole"), &back]);
    assert!(fs::read(p.dir.path("files/hole")).expect("read") == [0; 300_000]);
    assert!(fs::read(&back).expect("read") == [0; 300_000]);

    // A put that continues after two blocks, of which the second is mostly a hole.
    let meta = fs::metadata(&source).expect("there");
    let changed = meta.mtime() * 1_000_000_000 + meta.mtime_nsec();
    let state = state(size, changed, &[&original[..BLOCK], &original[BLOCK..2 * BLOCK]]);
    lay(p.dir.path("files/holes.part"), &original[..2 * BLOCK]);
    lay(p.dir.path("files/holes.part.state"), &state);
    let put = p.json(&["put", "--resume", &source, &p.url("files/holes")]);
    assert_eq!(put["resumed_bytes"], 2 * BLOCK, "{put}");
    assert!(fs::read(p.dir.path("files/holes")).expect("read") == original);
    // A get of that file: the state has more blocks than the part, and only the blocks of the part count.
    fs::write(p.dir.path("back.part"), &original[..BLOCK]).expect("written");
    let meta = fs::metadata(p.dir.path("files/holes")).expect("there");
    let changed = (meta.mtime() + 11_644_473_600) * 10_000_000 + meta.mtime_nsec() / 100;
    let zeros = vec![0; BLOCK];
    let sums: Vec<&[u8]> = vec![&original[..BLOCK], &original[BLOCK..2 * BLOCK], &zeros];
    fs::write(p.dir.path("back.part.state"), self::state(size, changed, &sums)).expect("written");
    let get = p.json(&["get", "--resume", &p.url("files/holes"), &back]);
    assert_eq!(get["resumed_bytes"], BLOCK, "{get}");
    assert!(fs::read(&back).expect("read") == original);
}

#[test]
fn an_administrator_sees_and_ends_a_session() {
    let p = TestServer::new("admin");
    lay(p.dir.path("files/large"), noise(8 << 20));
    // A stalled reader: `cat` into a pipe that is not read stays logged on, with the file open.
    let mut cat = crate::program::start(
        &["cat", &p.url("files/large"), "--transport", "tcp"],
        &[("CAUSEWAY_PASSWORD", PASSWORD)],
    );
    let listing = |what| -> Vec<Value> {
        serde_json::from_str(&p.server.ask(&[what, "list", "--json"]).out).expect("a JSON list")
    };
    let open =
        crate::program::until("the file open", || listing("open").into_iter().find(|o| o["path"] == "large"));
    let sessions = listing("session");
    assert_eq!(sessions.len(), 1);
    assert_eq!((&sessions[0]["user"], &sessions[0]["dialect"]), (&"alice".into(), &"3.1.1".into()));
    assert_eq!(
        (&sessions[0]["channels"][0]["transport"], &sessions[0]["signed"]),
        (&"tcp".into(), &true.into())
    );
    assert_eq!((&open["session"], &open["share"]), (&sessions[0]["id"], &"files".into()));

    let id = open["id"].to_string();
    assert_eq!(p.server.ask(&["open", "close", &id]).code, 0);
    assert_eq!(p.server.ask(&["open", "close", &id]).code, 1);
    let id = sessions[0]["id"].as_str().expect("a text");
    assert_eq!(p.server.ask(&["session", "close", id]).code, 0);
    assert!(listing("session").is_empty());
    cat.kill().expect("it runs");
    cat.wait().expect("it ends");

    // A disabled user cannot log on until enabled.
    assert_eq!(p.server.ask(&["user", "disable", "alice"]).code, 0);
    assert_eq!(p.run(&["ls", &p.url("files")]).code, 1);
    assert_eq!(p.server.ask(&["user", "enable", "alice"]).code, 0);

    // A removed user is logged off at once, and cannot log on again.
    assert_eq!(p.run(&["ls", &p.url("files")]).code, 0);
    assert_eq!(p.server.ask(&["user", "remove", "alice"]).code, 0);
    assert!(p.fails(&["ls", &p.url("files")]).contains("check user and password"));

    // Clients cannot use a removed share.
    assert_eq!(p.server.ask(&["share", "remove", "ram"]).code, 0);
    assert_eq!(
        p.server.ask_with(&["user", "add", "alice", "--password-stdin"], &format!("{PASSWORD}\n")).code,
        0
    );
    assert!(p.fails(&["ls", &p.url("ram")]).contains("there is no such share"));
}
