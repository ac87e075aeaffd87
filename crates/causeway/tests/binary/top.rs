//! `causeway top` as users run it: its values are compared with the counters under load over both transports, and it
//! restores the terminal at its end.

use std::fs::File;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;

use crate::client::{PASSWORD, TestServer};
use crate::program::{Scratch, Server, causeway, start, until};

/// A proxy: forwards connections on `socket` to `server`, and sends the document of each response to the receiver.
fn listen_in(socket: &str, server: String) -> Receiver<Value> {
    let listener = UnixListener::bind(socket).expect("bound");
    let (tell, told) = channel();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut up) =
                (client.expect("accepted"), UnixStream::connect(&server).expect("it runs"));
            let (mut asks, mut asked) =
                (client.try_clone().expect("cloned"), up.try_clone().expect("cloned"));
            thread::spawn(move || {
                let _ = std::io::copy(&mut asks, &mut asked);
                let _ = asked.shutdown(Shutdown::Both);
            });
            let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
            while let Ok(n @ 1..) = up.read(&mut piece) {
                answer.extend_from_slice(&piece[..n]);
                if client.write_all(&piece[..n]).is_err() {
                    break;
                }
            }
            let text = String::from_utf8(answer).expect("UTF-8");
            let (_, body) = text.split_once("\r\n\r\n").expect("an answer");
            if tell.send(serde_json::from_str(body).expect("JSON")).is_err() {
                return;
            }
        }
    });
    told
}

/// A process that is killed when the test ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn load(place: &TestServer, share: &str, transport: &str) -> Killed {
    let (url, port) = (place.url(&format!("{share}/load-{transport}")), place.rdma_port().to_string());
    let arguments = [
        "bench",
        "--transport",
        transport,
        "--rdma-port",
        &port,
        "-c1M",
        "-b64K",
        "-r",
        "-w40",
        "-o4",
        "-d600",
    ];
    Killed(start(&[&arguments[..], &[&url]].concat(), &[("CAUSEWAY_PASSWORD", PASSWORD)]))
}

fn instance<'a>(snapshot: &'a Value, set: &str, name: &str) -> &'a Value {
    let sets = snapshot["sets"].as_array().expect("sets");
    let set = sets.iter().find(|s| s["set"] == set).expect("there is such a set");
    let instances = set["instances"].as_array().expect("instances");
    &instances.iter().find(|i| i["instance"] == name).expect("there is such an instance")["values"]
}

/// The sum of the increases of these metrics between two snapshots.
fn grown(snapshots: [&Value; 2], set: &str, name: &str, metrics: &[&str]) -> f64 {
    let [a, b] = snapshots.map(|s| instance(s, set, name));
    let of = |v: &Value, m: &str| v[m].as_u64().unwrap_or_else(|| panic!("there is {m}"));
    metrics.iter().map(|m| (of(b, m) - of(a, m)) as f64).sum()
}

fn is(row: &Value, key: &str, expected: f64) {
    let shown = row[key].as_f64().unwrap_or_else(|| panic!("{key} in {row}"));
    assert!((shown - expected).abs() <= expected.abs() * 1e-9, "{key}: {shown}, not {expected}");
}

#[test]
fn one_frame_has_the_counters_numbers() {
    let place = TestServer::new("top");
    let _loads = [load(&place, "files", "tcp"), load(&place, "ram", "rdma")];
    // Waits until a frame shows load on both.
    let busy = |rows: &Value| {
        rows.as_array().is_some_and(|r| r.iter().filter(|r| r["iops"].as_f64() > Some(0.0)).count() == 2)
    };
    let once = ["top", "--once", "--json", "--interval", "0.3", "--control"];
    until("both loads run", || {
        let run = causeway(&[&once[..], &[&place.control()]].concat(), "");
        let view: Value = serde_json::from_str(&run.out).unwrap_or_else(|_| panic!("{run:?}"));
        busy(&view["sessions"]).then_some(())
    });
    let dir = Scratch::new("top-ear");
    let ear = dir.path("ear.sock");
    let answers = listen_in(&ear, place.control());
    let run = causeway(&[&once[..], &[&ear]].concat(), "");
    let view: Value = serde_json::from_str(&run.out).unwrap_or_else(|_| panic!("{run:?}"));
    let said: Vec<Value> = answers.iter().take(6).collect();
    let (servers, sessions) = ([&said[0], &said[3]], &said[4]);
    let snapshots = [&said[2], &said[5]];
    let ns = |v: &Value| v["at_ns"].as_u64().expect("a time");
    let seconds = (ns(snapshots[1]) - ns(snapshots[0])) as f64 / 1e9;
    is(&view, "interval_s", seconds);
    let cpu = servers.map(|s| s["cpu_ns"].as_u64().expect("a number"));
    assert!(cpu[1] > cpu[0]);
    is(&view["server"], "cpu_percent", (cpu[1] - cpu[0]) as f64 / 1e7 / seconds);
    assert_eq!(view["server"]["connections"], servers[1]["connections"]);

    let data = |row: &Value, set: &str, name: &str, rdma: bool| {
        let grown = |metrics: &[&str]| grown(snapshots, set, name, metrics);
        is(row, "iops", grown(&["read_requests", "write_requests"]) / seconds);
        is(row, "read_mb_per_s", grown(&["read_bytes"]) / 1e6 / seconds);
        is(row, "write_mb_per_s", grown(&["write_bytes"]) / 1e6 / seconds);
        is(row, "read_ms", grown(&["read_time_ns"]) / 1e6 / grown(&["read_completed"]));
        is(row, "write_ms", grown(&["write_time_ns"]) / 1e6 / grown(&["write_completed"]));
        is(row, "queue", grown(&["read_queue_ns", "write_queue_ns"]) / 1e9 / seconds);
        is(row, "rdma_percent", if rdma { 100.0 } else { 0.0 });
    };
    for (share, rdma) in [("files", false), ("ram", true)] {
        let row = view["shares"].as_array().expect("rows").iter().find(|r| r["name"] == share);
        data(row.expect("it is listed"), "SMB Server Shares", share, rdma);
    }
    let total = &view["shares"][0];
    let all: f64 = ["files", "ram"]
        .map(|s| grown(snapshots, "SMB Server Shares", s, &["read_requests", "write_requests"]))
        .iter()
        .sum();
    is(total, "iops", all / seconds);

    let rows = view["sessions"].as_array().expect("rows");
    assert_eq!(rows.len(), 2, "{rows:?}");
    for row in rows {
        let id = row["session"]["id"].as_str().expect("an id");
        let channels =
            &sessions.as_array().expect("a list").iter().find(|s| s["id"] == id).expect("listed")["channels"];
        assert_eq!(&row["session"]["channels"], channels);
        // The load keeps four requests outstanding; a client with outstanding I/O has credits for more.
        let credits = &channels[0]["credits"];
        assert!(credits["available"].as_u64() > Some(0) && credits["in_use"].is_u64(), "{credits}");
        let rdma = channels.to_string().contains("rdma");
        assert_eq!(row["session"].get("why_not_rdma").is_some_and(Value::is_string), !rdma, "{row}");
        data(row, "SMB Server Sessions", id, rdma);
    }

    let direct = view["smb_direct"].as_array().expect("rows");
    assert_eq!(direct.len(), 2, "the sum and one connection");
    let name = direct[1]["name"].as_str().expect("a name");
    for (key, metric, scale) in [
        ("sends_per_s", "sends", 1.0),
        ("receives_per_s", "receives", 1.0),
        ("rdma_read_mb_per_s", "rdma_read_bytes", 1e6),
        ("rdma_written_mb_per_s", "rdma_written_bytes", 1e6),
    ] {
        let expected = grown(snapshots, "SMB Direct Connection", name, &[metric]) / scale / seconds;
        assert!(expected > 0.0, "{key}");
        is(&direct[1], key, expected);
        is(&direct[0], key, expected);
    }
    let frames = grown(snapshots, "RDMA Activity", "iwarp", &["inbound_frames"]);
    is(&view["rdma"][0], "inbound_frames_per_s", frames / seconds);

    // The same frame as text.
    let text = causeway(&["top", "--once", "--interval", "0.2", "--control", &place.control()], "");
    assert_eq!((text.code, text.err.as_str()), (0, ""));
    assert!(text.out.contains(" free, ") && text.out.contains(" in use"), "credits: {}", text.out);
    for part in
        ["IOPS", "Total", "files", "ram", "alice@127.0.0.1", "TCP        127.0.0.1:", "SMB Direct 127.0.0.1:"]
    {
        assert!(text.out.contains(part), "{part} in {}", text.out);
    }
    assert!(text.out.contains("no RDMA: the client did not use it") && !text.out.contains('\u{1b}'));
}

#[test]
fn what_cannot_be_shown_is_said() {
    let dir = Scratch::new("top-none");
    let control = dir.path("control.sock");
    let run = causeway(&["top", "--once", "--control", &control], "");
    assert!(run.code == 1 && run.err.contains("is it running? systemctl status causeway"), "{run:?}");
    let run = causeway(&["top", "--control", &control], "");
    assert!(run.code == 2 && run.err.contains("pass --once"), "{run:?}");
    let run = causeway(&["top", "--interval", "0", "--control", &control], "");
    assert!(run.code == 2 && run.err.contains("0.1 to 3600"), "{run:?}");
}

/// The longest time without any output.
const TIME_LIMIT: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
/// The maximum number of reads before the expected output: a frame takes a few reads, and there are ten per second.
const READS: usize = 3000;

/// The visible contents of a terminal. Supports only the escape sequences that `top` uses.
struct Screen {
    lines: Vec<Vec<char>>,
    at: (usize, usize),
    /// It shows the alternate screen.
    other: bool,
    /// The bytes of an incomplete character or escape sequence.
    part: Vec<u8>,
}

impl Screen {
    fn new(rows: usize, columns: usize) -> Screen {
        Screen { lines: vec![vec![' '; columns]; rows], at: (0, 0), other: false, part: Vec::new() }
    }

    /// Changes the size; the contents stay, as in a terminal.
    fn resize(&mut self, rows: usize, columns: usize) {
        self.lines.resize(rows, Vec::new());
        self.lines.iter_mut().for_each(|l| l.resize(columns, ' '));
    }

    fn shows(&self, text: &str) -> bool {
        self.lines.iter().any(|l| l.iter().collect::<String>().contains(text))
    }

    fn text(&self) -> String {
        self.lines.iter().map(|l| l.iter().collect::<String>().trim_end().to_owned() + "\n").collect()
    }

    fn write(&mut self, bytes: &[u8]) {
        self.part.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.part) {
            Ok(text) => text.len(),
            Err(e) => e.valid_up_to(),
        };
        let text: Vec<char> =
            String::from_utf8(self.part.drain(..whole).collect()).expect("checked").chars().collect();
        let mut left = &text[..];
        while let [first, rest @ ..] = left {
            left = match first {
                '\u{1b}' => match rest.iter().skip(1).position(char::is_ascii_alphabetic) {
                    Some(end) => {
                        assert_eq!(rest[0], '[', "a sequence that is not known");
                        self.obey(&rest[1..=end].iter().collect::<String>(), rest[end + 1]);
                        &rest[end + 2..]
                    }
                    None => break,
                },
                _ => {
                    self.put(*first);
                    rest
                }
            };
        }
        let rest: String = left.iter().collect();
        self.part.splice(0..0, rest.into_bytes());
    }

    fn put(&mut self, c: char) {
        match c {
            '\r' => self.at.1 = 0,
            '\n' => self.at.0 += 1,
            _ => {
                // `top` may draw outside of the screen until it knows the new size.
                if let Some(cell) = self.lines.get_mut(self.at.0).and_then(|l| l.get_mut(self.at.1)) {
                    *cell = c;
                }
                self.at.1 += 1;
            }
        }
    }

    fn obey(&mut self, words: &str, what: char) {
        let number = |n: &str| n.parse::<usize>().expect("a number") - 1;
        match (what, words) {
            ('m', _) | ('h' | 'l', "?25") => {} // colours; the cursor
            ('h' | 'l', "?1049") => self.other = what == 'h',
            ('H', words) => {
                let (row, column) = words.split_once(';').expect("a place");
                self.at = (number(row), number(column));
            }
            ('J', "2") => self.lines.iter_mut().for_each(|l| l.fill(' ')),
            _ => panic!("a sequence that is not known: {words}{what}"),
        }
    }
}

#[test]
fn a_screen_understands_what_comes_in_pieces() {
    let bytes = "\u{1b}[?1049h\u{1b}[2J\u{1b}[2;3H\u{1b}[1;38;5;14mé▲\u{1b}[0mx".as_bytes();
    for piece in 1..bytes.len() {
        let mut screen = Screen::new(3, 6);
        bytes.chunks(piece).for_each(|b| screen.write(b));
        assert_eq!((screen.text().as_str(), screen.other), ("\n  é▲x\n\n", true), "{piece}");
    }
}

/// `top` on a new terminal with 80 columns and 24 lines.
struct Shown {
    child: Child,
    /// The side of the terminal emulator.
    master: File,
    /// Kept open, so that the test can read its modes.
    slave: File,
    screen: Screen,
}

impl Shown {
    fn start(control: &str) -> Shown {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&master).expect("granted");
        unlockpt(&master).expect("unlocked");
        let name = ptsname(&master, Vec::new()).expect("a name").into_string().expect("UTF-8");
        let slave = File::options().read(true).write(true).open(name).expect("opened");
        tcsetwinsize(&slave, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).expect("sized");
        let io = || Stdio::from(slave.try_clone().expect("cloned"));
        // `top` runs in a new session, so that the terminal of the tests is not its terminal.
        let child = Command::new("setsid")
            .args(["-c", env!("CARGO_BIN_EXE_causeway"), "top", "--interval", "0.1", "--control", control])
            .env("TERM", "xterm")
            .stdin(io())
            .stdout(io())
            .stderr(io())
            .spawn()
            .expect("setsid of util-linux");
        Shown { child, master: File::from(master), slave, screen: Screen::new(24, 80) }
    }

    fn resize(&mut self, rows: u16, columns: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        self.screen.resize(rows.into(), columns.into());
        tcsetwinsize(&self.slave, size).expect("sized");
    }

    /// Reads until the screen has the expected contents.
    fn until(&mut self, what: &str, is: impl Fn(&Screen) -> bool) {
        let mut piece = [0; 4096];
        for _ in 0..READS {
            if is(&self.screen) {
                return;
            }
            let mut readable = [PollFd::new(&self.master, PollFlags::IN)];
            let ready = poll(&mut readable, Some(&TIME_LIMIT)).expect("polled");
            assert_eq!(ready, 1, "nothing is drawn, and never: {what}\n{}", self.screen.text());
            let n = self.master.read(&mut piece).expect("it is open");
            self.screen.write(&piece[..n]);
        }
        panic!("never: {what}\n{}", self.screen.text());
    }

    /// Waits until the tables of a running server are shown.
    fn until_tables(&mut self) {
        self.until("tables", |s| s.other && s.shows("2 Sessions") && !s.shows("running?"));
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.slave).expect("a terminal").local_modes.contains(LocalModes::ICANON)
    }

    /// Waits for the end of `top`, and checks that the terminal is restored.
    fn ends_well(mut self) {
        self.until("the first screen", |s| !s.other);
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status:?}");
        assert!(!self.is_raw(), "lines are edited again");
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_terminal_is_given_back_and_a_server_that_comes_and_goes_is_followed() {
    let dir = Scratch::new("top-screen");
    let config =
        dir.configuration("listen = [\"127.0.0.1:0\"]", "[[share]]\nname = \"ram\"\nbackend = \"ram\"");
    let control = dir.path("control.sock");
    let mut shown = Shown::start(&control);
    shown.until("what is wrong", |s| s.other && s.shows("running?"));
    assert!(shown.is_raw());
    let server = Server::start(&config, &control);
    shown.until_tables();
    drop(server);
    // The last values stay below the message.
    shown.until("what is wrong", |s| s.shows("running?") && s.shows("2 Sessions"));
    let _server = Server::start(&config, &control);
    shown.until_tables();
    shown.resize(30, 100);
    shown.until("the keys in the last line", |s| s.lines[29].iter().collect::<String>().contains("quit"));
    assert!(!shown.screen.lines[23].iter().collect::<String>().contains("quit"));
    // A new size and a key arrive at the same time, and both take effect.
    shown.signal(Signal::STOP);
    shown.resize(28, 100);
    shown.master.write_all(b"h").expect("typed");
    shown.signal(Signal::CONT);
    shown.until("help", |s| s.shows("previous") && !s.shows("2 Sessions"));
    shown.master.write_all(b"h").expect("typed");
    shown.until_tables();
    shown.master.write_all(b"q").expect("typed");
    shown.ends_well();

    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut shown = Shown::start(&control);
        shown.until_tables();
        assert!(shown.is_raw());
        shown.signal(signal);
        shown.ends_well();
    }
}
