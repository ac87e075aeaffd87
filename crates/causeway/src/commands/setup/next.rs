//! The next steps after `causeway setup`: start, firewall, and how each system mounts the share.

use std::net::IpAddr;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use super::{PORT, PORT_IWARP, Plan};
use crate::control::client::segment;
use crate::daemon::{ip, is_link_local};
use crate::output::quoted;

/// The commands.
#[derive(JsonSchema, Serialize)]
pub(super) struct Next {
    /// Commands on this machine, in this order.
    next: Vec<String>,
    /// Commands for its firewall.
    firewall: Vec<String>,
    /// For clients: the system and its command.
    mount: Vec<(&'static str, String)>,
    /// The names and addresses of this machine, the most likely one first.
    names: Vec<String>,
}

impl Next {
    /// The steps that remain after the plan was carried out; `made`: the directory is new.
    pub(super) fn new(plan: &Plan, made: bool) -> Next {
        let names = names(plan);
        let config = quoted(&plan.config.display().to_string());
        let mut next = Vec::new();
        if plan.user.is_none() {
            next.push(format!(
                "causeway user add NAME --users {}",
                quoted(&plan.users.display().to_string())
            ));
        }
        next.push(format!("causeway config check --config {config}"));
        if !plan.start {
            next.push(match plan.config == Path::new(crate::config::DEFAULT_PATH) {
                true => "systemctl enable --now causeway".to_owned(),
                false => format!("causeway serve --config {config}"),
            });
        }
        match &plan.share {
            None => next.push("causeway share add files /srv/files".to_owned()),
            // `--start` has set the permission of a new directory already.
            Some((share, _)) if plan.user.is_some() && !(plan.start && made) => {
                next.push(format!(
                    "causeway share set-acl {} --to-path    # also sets the permission of the directory",
                    quoted(share)
                ));
            }
            Some(_) => {}
        }
        let mount = plan.share.as_ref().map_or_else(Vec::new, |(share, _)| {
            let user = plan.user.as_deref().unwrap_or("USER");
            let host = names.first().map_or("HOST", String::as_str);
            mounts(host, share, user)
        });
        Next { next, firewall: firewall(), mount, names }
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let mut list = |title: &str, lines: &mut dyn Iterator<Item = String>| {
            text += &format!("\n{title}\n");
            lines.for_each(|line| text += &format!("  {line}\n"));
        };
        if !self.next.is_empty() {
            list("Next:", &mut self.next.iter().cloned());
        }
        if !self.firewall.is_empty() {
            list("This machine has a firewall. To admit clients:", &mut self.firewall.iter().cloned());
        }
        if !self.mount.is_empty() {
            list("Commands of clients:", &mut self.mount.iter().map(|(what, how)| format!("{what:8} {how}")));
        }
        if self.names.len() > 1 {
            list("Other names and addresses of this machine:", &mut self.names.iter().skip(1).cloned());
        }
        text
    }
}

fn mounts(host: &str, share: &str, user: &str) -> Vec<(&'static str, String)> {
    // Windows writes a literal IPv6 address as a special name, because a UNC path cannot contain colons.
    let windows = if host.contains(':') {
        format!("{}.ipv6-literal.net", host.replace(':', "-"))
    } else {
        host.to_owned()
    };
    let url = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let (name, login) = (segment(share), segment(user));
    let options = quoted(&format!("username={user},posix"));
    vec![
        ("Windows", format!("net use * \"\\\\{windows}\\{share}\" \"/user:{user}\"")),
        ("Linux", format!("mount -t cifs {} /mnt -o {options}", quoted(&format!("//{host}/{share}")))),
        ("macOS", format!("open {}", quoted(&format!("smb://{login}@{url}/{name}")))),
        ("Causeway", format!("causeway ls {}", quoted(&format!("smb://{login}@{url}/{name}/")))),
    ]
}

/// The name, if it resolves to an address of this machine; then the addresses that other machines can reach.
fn names(plan: &Plan) -> Vec<String> {
    use std::net::ToSocketAddrs;
    let all = || nix::ifaddrs::getifaddrs().into_iter().flatten();
    let ours: Vec<IpAddr> = all().filter_map(|i| i.address.as_ref().and_then(ip)).collect();
    let reachable = |ip: &IpAddr| !ip.is_loopback() && !is_link_local(*ip);
    let listened: Vec<IpAddr> = match &plan.addresses {
        Some(some) => some.clone(),
        None => ours.iter().copied().filter(reachable).collect(),
    };
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let resolves = (host.as_str(), PORT).to_socket_addrs();
    let is_known = resolves.is_ok_and(|mut all| all.any(|a| reachable(&a.ip()) && ours.contains(&a.ip())));
    is_known.then_some(host).into_iter().chain(listened.iter().map(ToString::to_string)).collect()
}

/// The commands for the firewall of this machine.
fn firewall() -> Vec<String> {
    let has = |program: &str| {
        ["/usr/sbin", "/usr/bin", "/sbin"].iter().any(|d| Path::new(d).join(program).exists())
    };
    let ports = [PORT, PORT_IWARP];
    if has("firewall-cmd") {
        let add = ports.map(|port| format!("--add-port={port}/tcp")).join(" ");
        return vec![format!("firewall-cmd --permanent {add}"), "firewall-cmd --reload".to_owned()];
    }
    if has("ufw") {
        return ports.map(|port| format!("ufw allow {port}/tcp")).to_vec();
    }
    Vec::new()
}
