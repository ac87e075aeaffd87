//! Warnings of `causeway config check` about this machine.

use std::fs::read_to_string;
use std::net::TcpListener;
use std::path::Path;

use crate::config::{Config, format_size};

/// Open files that a busy server needs; a client may have thousands open.
const FILES: u64 = 65_536;

/// Files that a running time service creates: systemd-timesyncd, chrony, ntpd.
const CLOCKS: [&str; 4] =
    ["/run/systemd/timesync/synchronized", "/run/chrony/chronyd.pid", "/run/chronyd.pid", "/run/ntpd.pid"];

/// The limits of a process.
struct LimitsOf {
    files: Option<u64>,
    locked: Option<u64>,
    /// The process in words.
    whose: &'static str,
}

/// Warnings, each with its cure. `server`: the process id of the server that runs with this configuration.
pub(super) fn warnings(config: &Config, server: Option<u32>) -> Vec<String> {
    let mut all = Vec::new();
    if server.is_none() {
        let both = config.server.listen.iter().chain(&config.server.iwarp);
        all.extend(both.filter_map(|address| {
            let error = TcpListener::bind(address).err()?;
            let port = address.port();
            Some(match error.kind() {
                std::io::ErrorKind::AddrInUse => format!(
                    "{address} is in use by another program (see: ss -ltnp 'sport = :{port}'): stop it, or use another address"
                ),
                std::io::ErrorKind::AddrNotAvailable => format!(
                    "no interface has the address {address} (see: ip address): configure it, or use another address"
                ),
                // Only the service may bind this port.
                _ => return None,
            })
        }));
    }
    let limits = LimitsOf::read(server);
    if let Some(files) = limits.files.filter(|n| *n < FILES) {
        all.push(format!(
            "{} may open only {files} files, and a busy server needs {FILES}: set LimitNOFILE= in the unit",
            limits.whose
        ));
    }
    if let Some(locked) = limits.locked.filter(|n| *n < config.server.memory) {
        all.push(format!(
            "{} may lock only {} of memory, and server.memory is {}, so I/O takes more processor time: set LimitMEMLOCK= in the unit",
            limits.whose,
            format_size(locked),
            format_size(config.server.memory)
        ));
    }
    let ring = read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    if !matches!(ring.trim(), "" | "0") {
        all.push("the kernel forbids io_uring, which files and disks of pools need: sysctl kernel.io_uring_disabled=0".to_owned());
    }
    if !CLOCKS.iter().any(|file| Path::new(file).exists()) {
        all.push(
            "no time service was found, so file times may be wrong: install chrony or systemd-timesyncd"
                .to_owned(),
        );
    }
    if let Some(why) = rdma(config) {
        all.push(why);
    }
    all
}

/// Why clients cannot use SMB Direct.
fn rdma(config: &Config) -> Option<String> {
    let server = &config.server;
    let is_local = |address: &std::net::SocketAddr| address.ip().is_loopback();
    if server.iwarp.is_empty() {
        return Some("SMB Direct is off, because server.iwarp is empty: all clients use TCP".to_owned());
    }
    if server.iwarp.iter().all(is_local) && !server.listen.iter().all(is_local) {
        return Some(
            "SMB Direct listens on loopback only: add an address to server.iwarp, or other machines use TCP"
                .to_owned(),
        );
    }
    None
}

impl LimitsOf {
    /// The limits of the running server, else of this process; those of the service may differ.
    fn read(server: Option<u32>) -> LimitsOf {
        let (process, whose) = match server {
            Some(pid) => (pid.to_string(), "the server"),
            None => ("self".to_owned(), "a server started from this shell"),
        };
        let text = read_to_string(format!("/proc/{process}/limits")).unwrap_or_default();
        // Max open files   1024   1048576   files
        let hard = |name: &str| {
            let line = text.lines().find_map(|l| l.strip_prefix(name))?;
            Some(line.split_whitespace().nth(1)?.parse().unwrap_or(u64::MAX))
        };
        LimitsOf { files: hard("Max open files"), locked: hard("Max locked memory"), whose }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    fn told(text: &str, server: Option<u32>) -> Vec<String> {
        warnings(&parse(&format!("[server]\n{text}\n"), "c.toml").0, server)
    }

    #[test]
    fn a_port_in_use_and_what_clients_do_not_find() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = taken.local_addr().expect("an address");
        let all = told(&format!("listen = [\"{address}\"]"), None);
        let is = |all: &[String], text: &str| all.iter().any(|w| w.contains(text));
        assert!(is(&all, &format!("{address} is in use by another program")), "{all:?}");
        assert!(is(&all, "SMB Direct is off"), "{all:?}");
        // The running server has it.
        assert!(!is(&told(&format!("listen = [\"{address}\"]"), Some(std::process::id())), "in use"));
        let all = told("listen = [\"0.0.0.0:0\"]\niwarp = [\"127.0.0.1:0\"]", None);
        assert!(is(&all, "SMB Direct listens on loopback only"), "{all:?}");
        let limits = LimitsOf::read(None);
        assert!(limits.files.is_some_and(|n| n > 0) && limits.locked.is_some());
    }
}
