//! The binary as users run it: exit codes, messages with cures, and a server from `ready` to its drain.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::program::{Run, Scratch, Server, causeway};

#[test]
fn the_command_line_is_checked() {
    for arguments in
        [&["nonsense"][..], &["serve", "--workers"], &["share", "add"], &["serve", "--log", "a=b=c"]]
    {
        let run = causeway(arguments, "");
        assert_eq!(run.code, 2, "{run:?}");
        assert!(run.err.contains("--help"), "{run:?}");
    }
    let version = causeway(&["--version"], "");
    assert_eq!(
        (version.code, version.out.as_str()),
        (0, concat!("causeway ", env!("CARGO_PKG_VERSION"), "\n"))
    );
}

#[test]
fn config_check_says_everything() {
    let dir = Scratch::new("check");
    let file = dir.path("c.toml");
    fs::write(
        &file,
        "[server]\nlisen = []\nusers = \"/dev/null\"\n[[share]]\nname = \"a\"\npath = \"/nonexistent/x\"\n",
    )
    .expect("written");
    let run = causeway(&["config", "check", "--config", &file], "");
    assert_eq!(run.code, 1);
    assert_eq!(
        run.err,
        format!(
            "causeway: {file}:2: server.lisen: there is no such key: did you mean listen?\n\
             {file}:6: share.a.path: /nonexistent/x does not exist: create it or change the path\n"
        )
    );
    let run = causeway(&["config", "check", "--json", "--config", &file], "");
    let found: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!(
        (run.code, &found["problems"][1]["line"], &found["problems"][1]["severity"]),
        (1, &6.into(), &"error".into())
    );

    // A server with this configuration does not start, and reports the same problems.
    let serve = causeway(&["serve", "--config", &file], "");
    assert_eq!(serve.code, 1);
    assert!(serve.err.contains("did you mean listen?"), "{serve:?}");

    let missing = causeway(&["serve", "--config", &dir.path("none.toml")], "");
    assert_eq!(missing.code, 1);
    assert!(missing.err.contains("causeway config example >"), "{missing:?}");
}

#[test]
fn the_example_passes_its_own_check() {
    let dir = Scratch::new("example");
    let example = causeway(&["config", "example"], "");
    assert_eq!(example.code, 0);
    let file = dir.path("c.toml");
    let share = dir.path("");
    fs::write(&file, example.out.replace("/srv/files", &share)).expect("written");
    let run = causeway(&["config", "check", "--config", &file], "");
    assert_eq!(run.code, 0, "{run:?}");
    // The effective values, including defaults.
    assert!(
        run.out.contains("drain_seconds : 10") && run.out.contains("listen        : 0.0.0.0:445, [::]:445"),
        "{run:?}"
    );
}

#[test]
fn setup_makes_what_a_server_needs() {
    let dir = Scratch::new("setup");
    let (file, share) = (dir.path("etc/c.toml"), dir.path("srv/files"));
    let setup = |file: &str, more: &[&str]| {
        causeway(&[&["setup", "--config", file, "--yes"], more].concat(), "secret\n")
    };
    let all =
        ["--name", "STORE", "--share", "team files", "--path", &share, "--user", "ann", "--password-stdin"];
    let run = setup(&file, &all);
    assert_eq!(run.code, 0, "{run:?}");
    for text in [
        "user ann added",
        "net use",
        "mount -t cifs",
        "open smb://ann@",
        "/team%20files",
        "causeway config check",
    ] {
        assert!(run.out.contains(text), "{text}: {run:?}");
    }
    let check = causeway(&["config", "check", "--config", &file], "");
    assert!(check.code == 0 && check.out.contains("STORE") && check.out.contains("team files"), "{check:?}");
    let users = causeway(&["user", "list", "--json", "--users", &dir.path("etc/users.toml")], "");
    assert!(users.out.contains("\"ann\""), "{users:?}");
    // A configuration with shares is not replaced. One without shares is replaced, and kept under another name.
    let again = setup(&file, &all);
    assert!(again.code == 1 && again.err.contains("nothing was changed"), "{again:?}");
    let empty = dir.path("etc/d.toml");
    assert_eq!(setup(&empty, &[]).code, 0);
    let later = setup(&empty, &["--path", &share, "--json"]);
    assert!(later.code == 0 && later.out.contains("before-setup"), "{later:?}");
    // A configuration with pools only is not replaced either. An existing user is accepted. An invalid share name
    // creates no directory.
    let pools = dir.path("etc/pools.toml");
    fs::write(&pools, "[storage]\ndevices = [\"/dev/x\"]\n").expect("written");
    assert!(setup(&pools, &[]).err.contains("nothing was changed"));
    let second =
        setup(&dir.path("etc/second.toml"), &["--path", &share, "--user", "ann", "--password-stdin"]);
    assert!(second.code == 0 && second.out.contains("already"), "{second:?}");
    let other = dir.path("srv/other");
    let wrong = setup(&dir.path("etc/g.toml"), &["--share", "a/b", "--path", &other]);
    assert!(wrong.code == 1 && !std::path::Path::new(&other).exists(), "{wrong:?}");
    let wrong = setup(&dir.path("etc/h.toml"), &["--start"]);
    assert!(wrong.code == 2 && wrong.err.contains("--start"), "{wrong:?}");
    let wrong = setup(&dir.path("etc/e.toml"), &["--name", "two words"]);
    assert!(wrong.code == 1 && wrong.err.contains("letters, digits and hyphens"), "{wrong:?}");
    let wrong = setup(&dir.path("etc/f.toml"), &["--interface", "none0"]);
    assert!(wrong.code == 1 && wrong.err.contains("address are") && wrong.err.contains("lo"), "{wrong:?}");
}

#[test]
fn without_a_server_the_cure_is_named() {
    let dir = Scratch::new("none");
    let control = dir.path("control.sock");
    for command in [&["status"][..], &["share", "list"], &["session", "list"], &["open", "close", "1"]] {
        let run = causeway(&[command, &["--control", &control]].concat(), "");
        assert_eq!(run.code, 1, "{run:?}");
        let expected = format!(
            "causeway: no server answers on {control}: is it running? systemctl status causeway, or pass --control\n"
        );
        assert_eq!(run.err, expected);
    }
    let users = causeway(&["user", "list", "--control", &control], "");
    assert!(users.err.contains("--users FILE"), "{users:?}");
    // Another program answers on the socket.
    let run = answered(&control, b"220 mail.example ESMTP\r\n", &["status"]);
    assert!(run.code == 1 && run.err.contains("is not a causeway server"), "{run:?}");
}

#[test]
fn a_server_that_ends_during_a_command_is_reported() {
    let dir = Scratch::new("ends");
    let control = dir.path("control.sock");
    let half = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{";
    for answer in [&b""[..], &b"HTTP/1.1 20"[..], half] {
        let read = answered(&control, answer, &["status"]);
        assert!(read.code == 1 && read.err.contains("ended during the command: is it running?"), "{read:?}");
        let change = answered(&control, answer, &["pool", "export", "tank"]);
        assert!(
            change.code == 1 && change.err.contains("unknown whether the command took effect"),
            "{change:?}"
        );
    }
}

/// Runs a command whose server reads the request, sends these bytes, and closes the connection.
fn answered(control: &str, bytes: &'static [u8], command: &[&str]) -> Run {
    let _ = fs::remove_file(control);
    let listener = UnixListener::bind(control).expect("bound");
    let answer = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a client");
        let mut request = [0; 4096];
        let _ = client.read(&mut request).expect("a request");
        client.write_all(bytes).expect("sent");
    });
    let run = causeway(&[command, &["--control", control]].concat(), "");
    answer.join().expect("answered");
    run
}

#[test]
fn users_without_a_server() {
    let dir = Scratch::new("users");
    let file = dir.path("deep/users.toml");
    let user = |arguments: &[&str], input: &str| {
        causeway(&[&["user"], arguments, &["--users", &file]].concat(), input)
    };
    assert_eq!(user(&["add", "alice", "--password-stdin"], "secret\n").out, "user alice added\n");
    assert_eq!(fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o600);
    assert!(!fs::read_to_string(&file).expect("read").contains("secret"));
    let again = user(&["add", "ALICE", "--password-stdin"], "secret\n");
    assert!(again.code == 1 && again.err.contains("exists: choose another name"), "{again:?}");
    let empty = user(&["add", "bob", "--password-stdin"], "\n");
    assert!(empty.code == 1 && empty.err.contains("the password is empty"), "{empty:?}");
    // Without a terminal the cure does not suggest the environment: a new password is never read from there.
    let alone = Command::new("setsid")
        .args(["--wait", env!("CARGO_BIN_EXE_causeway"), "user", "add", "carol", "--users", &file])
        .env("CAUSEWAY_PASSWORD", "secret")
        .stdin(Stdio::null())
        .output()
        .expect("setsid runs");
    let said = String::from_utf8_lossy(&alone.stderr);
    assert!(
        alone.status.code() == Some(1)
            && said.contains("pass --password-stdin")
            && !said.contains("set CAUSE"),
        "{said}"
    );
    let before = fs::read_to_string(&file).expect("read");
    assert_eq!(user(&["passwd", "alice", "--password-stdin"], "other\n").code, 0);
    assert_ne!(fs::read_to_string(&file).expect("read"), before);
    let list: serde_json::Value = serde_json::from_str(&user(&["list", "--json"], "").out).expect("JSON");
    assert_eq!(list, serde_json::json!([{ "name": "alice", "enabled": true }]));
    assert_eq!(user(&["disable", "Alice"], "").out, "user Alice disabled\n");
    assert!(user(&["list"], "").out.ends_with("alice  False\n"));
    assert_eq!(user(&["enable", "alice"], "").code, 0);
    assert_eq!(user(&["remove", "alice"], "").code, 0);
    let gone = user(&["remove", "alice"], "");
    assert!(gone.code == 1 && gone.err.contains("see causeway user list"), "{gone:?}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("changed");
    let open = user(&["list"], "");
    assert!(open.code == 1 && open.err.contains("chmod 600"), "{open:?}");
}

#[test]
fn a_taken_port_is_an_error_with_a_cure() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = taken.local_addr().expect("bound").port();
    let dir = Scratch::new("taken");
    let file = dir.configuration(&format!("listen = [\"127.0.0.1:{port}\"]"), "");
    let run = causeway(&["serve", "--config", &file], "");
    assert_eq!(run.code, 1);
    assert!(run.err.contains(&format!("cannot listen on 127.0.0.1:{port} (tcp)")), "{run:?}");
    assert!(run.err.contains(&format!("ss -ltnp 'sport = :{port}'")), "{run:?}");
    assert!(run.err.contains("change server.listen"), "{run:?}");
    assert!(!run.out.contains("ready"), "{run:?}");
    assert!(!std::path::Path::new(&dir.path("control.sock")).exists());
}

/// The control socket of a killed process accepts connections until the system has ended the process.
#[test]
fn a_server_starts_when_the_one_before_has_hung_up() {
    let dir = Scratch::new("before");
    let file = dir.configuration("listen = [\"127.0.0.1:0\"]", "");
    let dying = UnixListener::bind(dir.path("control.sock")).expect("bound");
    let ends = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        drop(dying);
    });
    let server = Server::start(&file, &dir.path("control.sock"));
    assert!(ends.is_finished());
    assert_eq!(server.ask(&["status"]).code, 0);
}

#[test]
fn a_server_from_ready_to_drained() {
    let dir = Scratch::new("life");
    fs::create_dir(dir.path("one")).expect("made");
    let one = format!("# kept\n[[share]]\nname = \"one\"\npath = {:?}\n", dir.path("one"));
    let file = dir.configuration("listen = [\"127.0.0.1:0\"]\niwarp = [\"127.0.0.1:0\"]", &one);
    let mut server = Server::start(&file, &dir.path("control.sock"));
    assert!(
        server.ready.contains("tcp 127.0.0.1:") && server.ready.contains("iwarp 127.0.0.1:"),
        "{}",
        server.ready
    );
    assert_eq!(fs::metadata(dir.path("control.sock")).expect("there").permissions().mode() & 0o777, 0o600);

    let second = causeway(&["serve", "--config", &file], "");
    assert!(second.code == 1 && second.err.contains("another server uses this socket"), "{second:?}");

    let status: serde_json::Value =
        serde_json::from_str(&server.ask(&["status", "--json"]).out).expect("JSON");
    assert_eq!(status["listeners"].as_array().map(Vec::len), Some(2));
    assert_eq!(status["pid"], server.pid());

    // Shares are added and removed, in the file too; its comments are preserved.
    assert_eq!(
        server.ask(&["share", "add", "mem", "--backend", "ram", "--size", "8MiB", "--read-only"]).code,
        0
    );
    let text = fs::read_to_string(&file).expect("read");
    assert!(text.contains("# kept") && text.contains("size = \"8MiB\"\nread_only = true\n"), "{text}");
    assert_eq!(server.ask(&["share", "add", "gone", "--backend", "null", "--temporary"]).code, 0);
    assert!(!fs::read_to_string(&file).expect("read").contains("gone"));
    let twice = server.ask(&["share", "add", "MEM", "--backend", "null"]);
    assert!(twice.code == 1 && twice.err.contains("causeway share remove"), "{twice:?}");
    let bad = server.ask(&["share", "add", "bad", "/nonexistent/x"]);
    assert!(bad.code == 1 && bad.err.contains("/nonexistent/x does not exist: create it"), "{bad:?}");
    assert_eq!(names(&server.ask(&["share", "list", "--json"]).out), ["gone", "mem", "one"]);

    // Users are changed through the server, and directly in the file.
    assert_eq!(server.ask_with(&["user", "add", "alice", "--password-stdin"], "secret\n").code, 0);
    let users = dir.path("users.toml");
    assert_eq!(causeway(&["user", "add", "bob", "--password-stdin", "--users", &users], "secret\n").code, 0);
    assert_eq!(names(&server.ask(&["user", "list", "--json"]).out), ["alice", "bob"]);

    // The changed file is read again; temporary shares stay.
    fs::write(&file, text.replace("[[share]]\nname = \"one\"", "[[share]]\nname = \"uno\""))
        .expect("written");
    let reload = server.ask(&["reload"]);
    assert!(reload.out.contains("1 shares added, 0 changed, 1 removed"), "{reload:?}");
    assert_eq!(names(&server.ask(&["share", "list", "--json"]).out), ["gone", "mem", "uno"]);
    fs::write(&file, "[server\n").expect("written");
    let broken = server.ask(&["reload"]);
    assert!(broken.code == 1 && broken.err.contains("causeway.toml:1: "), "{broken:?}");
    assert_eq!(names(&server.ask(&["share", "list", "--json"]).out), ["gone", "mem", "uno"]);

    // SIGHUP does the same.
    fs::write(&file, text.replace("name = \"one\"", "name = \"due\"")).expect("written");
    server.signal(rustix::process::Signal::HUP);
    crate::program::until("a share named due", || {
        names(&server.ask(&["share", "list", "--json"]).out).contains(&"due".to_owned()).then_some(())
    });

    let none = server.ask(&["session", "close", "0123456789abcdef"]);
    assert!(none.code == 1 && none.err.contains("see causeway session list"), "{none:?}");
    assert_eq!(server.ask(&["open", "list"]).out.lines().count(), 2);

    assert_eq!(server.stop(), 0);
    assert!(!std::path::Path::new(&dir.path("control.sock")).exists());
}

#[test]
fn a_dead_servers_socket_is_replaced() {
    let dir = Scratch::new("dead");
    drop(std::os::unix::net::UnixListener::bind(dir.path("control.sock")).expect("bound"));
    let file = dir.configuration("listen = [\"127.0.0.1:0\"]", "");
    let mut server = Server::start(&file, &dir.path("control.sock"));
    assert_eq!(server.ask(&["status"]).code, 0);
    assert_eq!(server.stop(), 0);
}

/// The names in a JSON listing.
fn names(json: &str) -> Vec<String> {
    let list: Vec<serde_json::Value> = serde_json::from_str(json).expect("a JSON list");
    list.iter().map(|v| v["name"].as_str().expect("a name").to_owned()).collect()
}
