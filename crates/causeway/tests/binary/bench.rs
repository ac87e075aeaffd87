//! `causeway bench` as users run it: the command line, the reports, and files of a server over each transport.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::client::TestServer;
use crate::program::{Scratch, causeway};

#[test]
fn words_are_checked_and_explained() {
    let run = causeway(&["bench", "--help"], "");
    assert!(run.code == 0 && run.out.contains("-rd<dist>") && run.out.contains("--verify"), "{run:?}");
    let run = causeway(&["bench", "-t2", "-F2", "file"], "");
    assert!(run.code == 2 && run.err.contains("leave one out"), "{run:?}");
    let run = causeway(&["bench", "-b4K", "--nonsense", "file"], "");
    assert_eq!(run.code, 2, "{run:?}");
    let run = causeway(&["bench", "-Rpxml", "-b4K", "-r", "file"], "");
    assert!(
        run.code == 0 && run.out.starts_with("<Profile>\n") && run.out.contains("<Random>4096</Random>"),
        "{run:?}"
    );
}

#[test]
fn a_local_file_and_a_corrupted_block() {
    let dir = Scratch::new("bench");
    let file = dir.path("data");
    let run = causeway(&["bench", "-c1M", "-b4K", "-r", "-w50", "-d1", "-W0", "-L", "--verify", &file], "");
    assert!(run.code == 0 && run.out.contains("sectors of 512 bytes are correct"), "{run:?}");
    let mut bytes = fs::read(&file).expect("readable");
    bytes[5000] ^= 1;
    fs::write(&file, bytes).expect("writable");
    let run = causeway(&["bench", "-b4K", "-s", "-d1", "-W0", "--verify", &file], "");
    assert!(run.code == 1 && run.out.contains("sector at 4608: the checksum"), "{run:?}");
    assert!(run.err.contains("sectors had wrong data"), "{run:?}");
    let run =
        causeway(&["bench", "--sqlio", "-s1", "-t1", "-o2", "-b8", "-BYRT", "-LS", "-frandom", &file], "");
    assert!(run.out.contains("-BYRT -> -Sb with hints"), "{run:?}");
    assert!(run.out.contains("IOs/sec:") && run.out.contains("Avg_Latency(ms):"), "{run:?}");
}

#[test]
fn a_file_of_a_server_over_each_transport() {
    let place = TestServer::new("bench-smb");
    let url = place.url("ram/data");
    for (transport, engine) in [("tcp", "SMB over TCP"), ("rdma", "SMB over SMB Direct")] {
        let pid = place.pid().to_string();
        let json = place.json(&[
            "bench",
            "--transport",
            transport,
            "--verify",
            "--pid",
            &pid,
            "-c2M",
            "-b8K",
            "-r",
            "-w40",
            "-o4",
            "-t2",
            "-L",
            "-d1",
            "-W0",
            &url,
        ]);
        let span = &json["timespans"][0];
        assert!(span["engine"].as_str().is_some_and(|e| e.starts_with(engine)), "{}", span["engine"]);
        assert!(span["total"]["ios"].as_u64() > Some(10) && span["write"]["ios"].as_u64() > Some(0));
        assert_eq!(span["errors"].as_array().map(Vec::len), Some(0), "{}", span["errors"]);
        assert_eq!(span["verified"]["mismatches"].as_u64(), Some(0), "{}", span["verified"]);
        assert!(span["verified"]["sectors"].as_u64() > Some(0));
        assert_eq!(span["processes"][1]["pid"].as_u64(), pid.parse().ok());
    }
    let error = place.fails(&["bench", "-d1", &place.url("ram/none")]);
    assert!(error.contains("none"), "{error}");
}

/// `causeway bench listen` on two free ports, and their addresses; dropping this stops it.
struct Listener(Child, Vec<String>);

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn listen(options: &[&str]) -> Listener {
    let mut child = Command::new(env!("CARGO_BIN_EXE_causeway"))
        .args(["bench", "listen", "iwarp://127.0.0.1:0", "tcp://127.0.0.1:0"])
        .args(options)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    let out = child.stdout.take().expect("it is piped");
    BufReader::new(out).read_line(&mut line).expect("it says where");
    let places = line.trim().strip_prefix("ready: ").expect("it is ready");
    let places = places.split(", ").map(|p| p.replace(' ', "://")).collect();
    Listener(child, places)
}

#[test]
fn the_raw_fabric_and_the_raw_socket() {
    let listener = listen(&["--block", "64KiB", "--size", "1GiB"]);
    for (place, engine) in listener.1.iter().zip(["RDMA over iWARP, without SMB", "TCP, without SMB"]) {
        let pid = listener.0.id().to_string();
        let run = causeway(
            &["bench", "--json", "--pid", &pid, "-b8K", "-r", "-w30", "-o8", "-L", "-d1", "-W0", place],
            "",
        );
        assert_eq!(run.code, 0, "{run:?}");
        let json: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
        let span = &json["timespans"][0];
        assert_eq!(span["engine"].as_str(), Some(engine));
        assert!(span["total"]["ios"].as_u64() > Some(10), "{}", span["total"]);
        let per_io = span["work_requests"]["per_io"].as_f64();
        assert_eq!(per_io, engine.starts_with("RDMA").then_some(2.0), "{}", span["work_requests"]);
        let run = causeway(&["bench", "-b128K", "-d1", "-W0", place], "");
        assert!(run.code == 1 && run.err.contains("65536 bytes at most"), "{run:?}");
        let run = causeway(&["bench", "-c1M", "-d1", "-W0", place], "");
        assert!(run.code == 1 && run.err.contains("leave -c out"), "{run:?}");
    }
    let run = causeway(&["bench", "-d1", "iwarp://127.0.0.1"], "");
    assert!(run.code == 2 && run.err.contains("iwarp://host:port"), "{run:?}");
    let taken = &listener.1[1];
    let run = causeway(&["bench", "listen", taken], "");
    assert!(run.code == 1 && run.err.contains("cannot listen"), "{run:?}");
    let run = causeway(&["bench", "listen", "--help"], "");
    assert!(run.code == 0 && run.out.contains("--connections"), "{run:?}");
}
