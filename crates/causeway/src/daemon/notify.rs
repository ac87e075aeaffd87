//! Notifies systemd of the service's state (sd_notify(3)); does nothing without systemd.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends `state`, such as `READY=1`, to the socket in `NOTIFY_SOCKET`.
pub(super) fn notify(state: &str) {
    if let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|n| !n.is_empty())
        && let Err(error) = send(&name, state)
    {
        tracing::warn!(%error, "the service manager could not be notified of {state}");
    }
}

fn send(name: &OsStr, state: &str) -> std::io::Result<()> {
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(rest) => SocketAddr::from_abstract_name(rest)?,
        None => SocketAddr::from_pathname(name)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_names_work() {
        let dir = crate::config::Scratch::new("notify");
        let path = dir.0.join("s");
        let name = format!("causeway-test-{}", std::process::id());
        let listeners = [
            (path.clone().into_os_string(), UnixDatagram::bind(&path)),
            (
                format!("@{name}").into(),
                SocketAddr::from_abstract_name(&name).and_then(|a| UnixDatagram::bind_addr(&a)),
            ),
        ];
        for (name, listener) in listeners {
            let listener = listener.expect("bound");
            send(&name, "READY=1").expect("sent");
            let mut got = [0; 32];
            let n = listener.recv(&mut got).expect("received");
            assert_eq!(&got[..n], b"READY=1");
        }
    }
}
