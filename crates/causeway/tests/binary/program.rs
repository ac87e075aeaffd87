//! Runs the binary, and servers for one test each.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A finished run.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// Runs `causeway` to its end, without the environment variables that it reads.
pub fn causeway(arguments: &[&str], input: &str) -> Run {
    causeway_with(arguments, input, &[])
}

/// [`causeway`] with these environment variables.
pub fn causeway_with(arguments: &[&str], input: &str, environment: &[(&str, &str)]) -> Run {
    let mut child = command()
        .args(arguments)
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut stdin = child.stdin.take().expect("piped");
    let _ = stdin.write_all(input.as_bytes()); // it may end without reading its input
    drop(stdin);
    let done = child.wait_with_output().expect("the binary ends");
    Run {
        code: done.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&done.stdout).into_owned(),
        err: String::from_utf8_lossy(&done.stderr).into_owned(),
    }
}

fn command() -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_causeway"));
    for name in ["CAUSEWAY_PASSWORD", "CAUSEWAY_CONTROL", "CAUSEWAY_LOG", "NOTIFY_SOCKET"] {
        c.env_remove(name);
    }
    c
}

/// Starts `causeway` with its output in a pipe.
pub fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Child {
    command()
        .args(arguments)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts")
}

/// Repeats `ask` until it returns a value.
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    for _ in 0..2000 {
        if let Some(t) = ask() {
            return t;
        }
    }
    panic!("never: {what}");
}

/// A directory for one test, removed at the end.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let dir = std::env::temp_dir().join(format!("causeway-cli-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).expect("a temporary directory");
        Scratch(dir)
    }

    /// A path in this directory, as text.
    pub fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("UTF-8").to_owned()
    }

    /// Writes a configuration with all files in this directory; returns its path.
    pub fn configuration(&self, server: &str, shares: &str) -> String {
        let file = self.path("causeway.toml");
        let (control, users) = (self.path("control.sock"), self.path("users.toml"));
        let text = format!(
            "[server]\n{server}\ncontrol = {control:?}\nusers = {users:?}\nmemory = \"64MiB\"\nworkers = 1\n\n{shares}"
        );
        fs::write(&file, text).expect("written");
        file
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running server; killed if the test ends early.
pub struct Server {
    child: Child,
    control: String,
    /// The line that it printed when it was ready.
    pub ready: String,
}

impl Server {
    /// Starts one and waits until it is ready.
    pub fn start(config: &str, control: &str) -> Server {
        let mut child = command()
            .args(["serve", "--log", "error", "--config", config])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let ready = lines.find_map(|l| l.ok().filter(|l| l.starts_with("ready: "))).expect("it says ready");
        Server { child, control: control.to_owned(), ready }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Runs a command against it.
    pub fn ask(&self, arguments: &[&str]) -> Run {
        self.ask_with(arguments, "")
    }

    /// Runs a command against it, with standard input.
    pub fn ask_with(&self, arguments: &[&str], input: &str) -> Run {
        causeway(&[arguments, &["--control", &self.control]].concat(), input)
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("it runs");
    }

    /// Sends SIGTERM; returns the exit code.
    pub fn stop(&mut self) -> i32 {
        self.signal(rustix::process::Signal::TERM);
        self.child.wait().expect("it ends").code().unwrap_or(-1)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
