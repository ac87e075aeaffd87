//! The file as a whole, `[server]` and `[[share]]`: the keys, their defaults, and the checks across keys.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use super::reader::{Found, Source, Table};
use super::storage::read_storage;
use super::{
    Backend, Config, Dialect, ProblemKind, Problems, Protection, ResiliencySetting, ServerSection,
    ShareSection, StorageSection, default_control, default_state,
};

const PORT: u16 = 445;
const PORT_IWARP: u16 = 5445;
/// The port of an unprivileged server instead of [`PORT`].
const PORT_HIGH: u16 = 4450;

/// Payload memory, at least twice the largest I/O of a client.
const MEMORY: Range<u64> = (16 << 20)..(1 << 44) + 1;
const MEMORY_DEFAULT: u64 = 1 << 30;
const RAM_SIZE: Range<u64> = (1 << 20)..(1 << 44) + 1;
/// The default capacity of a `ram` share.
const RAM_DEFAULT: u64 = 256 << 20;
const WORKERS: Range<u64> = 0..1025;
const OPENS: Range<u64> = 0..(1 << 20) + 1;
const DRAIN_S: Range<u64> = 0..3601;
const DRAIN_DEFAULT: Duration = Duration::from_secs(10);

const PROTECTION: [(Protection, &str); 3] =
    [(Protection::Off, "off"), (Protection::Enabled, "enabled"), (Protection::Required, "required")];

/// Whether this process may bind ports below 1024: as root, or with CAP_NET_BIND_SERVICE, which the unit grants.
fn may_use_low_ports() -> bool {
    rustix::process::geteuid().is_root()
        || rustix::thread::capabilities(None)
            .is_ok_and(|c| c.effective.contains(rustix::thread::CapabilitySet::NET_BIND_SERVICE))
}

/// The control socket of a server: in the directory set by systemd (`RuntimeDirectory=`), else the default of commands.
fn server_control() -> PathBuf {
    // The first of several.
    let systemd = std::env::var_os("RUNTIME_DIRECTORY").and_then(|all| std::env::split_paths(&all).next());
    systemd.filter(|d| d.is_absolute()).map_or_else(default_control, |d| d.join("control.sock"))
}

impl Default for ServerSection {
    fn default() -> ServerSection {
        let low = may_use_low_ports();
        let any = |port| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        ServerSection {
            name: "CAUSEWAY".to_owned(),
            listen: vec![any(if low { PORT } else { PORT_HIGH })],
            iwarp: vec![any(PORT_IWARP)],
            announce_rdma: false,
            control: server_control(),
            users: PathBuf::from("/etc/causeway/users.toml"),
            state: default_state(),
            signing: Protection::Required,
            encryption: Protection::Enabled,
            min_dialect: Dialect(0x0202),
            max_dialect: Dialect(0x0311),
            memory: MEMORY_DEFAULT,
            workers: 0,
            opens_per_user: 0,
            drain: DRAIN_DEFAULT,
            metrics: None,
        }
    }
}

/// Reads a whole file.
pub(super) fn read(text: &str, file: &str) -> (Config, Problems) {
    let source = Source::new(file, text);
    let (root, errors) = DeTable::parse_recoverable(text);
    let is_toml = errors.is_empty();
    for e in errors {
        let at = e.span().map_or(0, |s| s.start);
        source.syntax(at, e.message());
    }
    let top = Table::new(&source, "", 0..0, root.get_ref());
    let server = match top.value("server") {
        None => ServerSection::default(),
        Some(v) => match v.get_ref() {
            DeValue::Table(t) => read_server(Table::new(&source, "server", v.span(), t)),
            _ => {
                not_table(&top, v.span(), "server", "[server]");
                ServerSection::default()
            }
        },
    };
    let storage = match top.value("storage") {
        None => StorageSection::default(),
        Some(v) => match v.get_ref() {
            DeValue::Table(t) => read_storage(Table::new(&source, "storage", v.span(), t)),
            _ => {
                not_table(&top, v.span(), "storage", "[storage]");
                StorageSection::default()
            }
        },
    };
    let shares = read_shares(&source, &top, &server, is_toml);
    top.finish();
    (Config { server, storage, shares }, source.finish())
}

fn not_table(top: &Table<'_, '_>, at: Range<usize>, key: &str, example: &'static str) {
    top.report(&at, key, ProblemKind::Type { found: "a value", wanted: "a section", example });
}

fn read_server(t: Table<'_, '_>) -> ServerSection {
    let mut s = ServerSection::default();
    if let Some(name) = t.string("name", "name = \"FILES\"") {
        if is_server_name(&name.value) {
            s.name = name.value;
        } else {
            let rule = "use 1 to 15 letters, digits and hyphens";
            t.report(&name.at, "name", ProblemKind::Name { name: name.value, rule });
        }
    }
    let listen = t.addresses("listen", "listen = [\"0.0.0.0:445\"]");
    // A configuration with TCP addresses gets no other listener unless it names one.
    if listen.is_some() {
        s.iwarp.clear();
    }
    if let Some(listen) = listen {
        if listen.value.is_empty() {
            t.report(&listen.at, "listen", ProblemKind::NoListeners);
        }
        s.listen = listen.value;
    }
    if let Some(iwarp) = t.addresses("iwarp", "iwarp = [\"0.0.0.0:5445\"]") {
        for address in iwarp.value.iter().filter(|a| a.port() != 0 && s.listen.contains(a)) {
            t.report(&iwarp.at, "iwarp", ProblemKind::AddressTwice { address: *address });
        }
        s.iwarp = iwarp.value;
    }
    if let Some(b) = t.boolean("announce_rdma", "announce_rdma = true") {
        s.announce_rdma = b.value;
    }
    if let Some(p) = t.path("control", "control = \"/run/causeway/control.sock\"") {
        s.control = p.value;
    }
    let users = t.path("users", "users = \"/etc/causeway/users.toml\"");
    let users_at = users.as_ref().map_or_else(|| t.at(), |u| u.at.clone());
    if let Some(p) = users {
        s.users = p.value;
    }
    if !s.users.exists() {
        t.report(&users_at, "users", ProblemKind::NoUsers { path: s.users.clone() });
    }
    if let Some(p) = t.path("state", "state = \"/var/lib/causeway\"") {
        s.state = Some(p.value);
    }
    if let Some(p) = t.word("signing", &PROTECTION[1..], "signing = \"required\"") {
        s.signing = p.value;
    }
    let encryption = t.word("encryption", &PROTECTION, "encryption = \"enabled\"");
    if let Some(p) = &encryption {
        s.encryption = p.value;
    }
    read_dialects(&t, &mut s, encryption);
    if let Some(n) = t.size("memory", MEMORY, "memory = \"1GiB\"") {
        s.memory = n;
    }
    if let Some(n) = t.number("workers", WORKERS, "workers = 0") {
        s.workers = n as usize;
    }
    if let Some(n) = t.number("opens_per_user", OPENS, "opens_per_user = 0") {
        s.opens_per_user = n as usize;
    }
    if let Some(n) = t.number("drain_seconds", DRAIN_S, "drain_seconds = 10") {
        s.drain = Duration::from_secs(n);
    }
    if let Some(address) = t.address("metrics", "metrics = \"127.0.0.1:9445\"") {
        if address.value.port() != 0
            && (s.listen.contains(&address.value) || s.iwarp.contains(&address.value))
        {
            t.report(&address.at, "metrics", ProblemKind::AddressTwice { address: address.value });
        }
        s.metrics = Some(address.value);
    }
    t.finish();
    s
}

fn read_dialects(t: &Table<'_, '_>, s: &mut ServerSection, encryption: Option<Found<Protection>>) {
    let min = t.word("min_dialect", &Dialect::ALL, "min_dialect = \"2.0.2\"");
    let max = t.word("max_dialect", &Dialect::ALL, "max_dialect = \"3.1.1\"");
    let at = min.as_ref().or(max.as_ref()).map(|f| f.at.clone());
    s.min_dialect = min.map_or(s.min_dialect, |f| f.value);
    s.max_dialect = max.map_or(s.max_dialect, |f| f.value);
    if let Some(at) = at
        && s.min_dialect > s.max_dialect
    {
        let kind = ProblemKind::Dialects { min: s.min_dialect, max: s.max_dialect };
        t.report(&at, "min_dialect", kind);
    }
    // MS-SMB2 3.3.5.4: encryption begins with 3.0.
    if let Some(e) = encryption
        && e.value == Protection::Required
        && s.max_dialect < Dialect(0x0300)
    {
        let why = "not supported before dialect 3.0";
        let kind = ProblemKind::NoEncryption { why, cure: "raise max_dialect or set encryption = \"off\"" };
        t.report(&e.at, "encryption", kind);
    }
}

fn is_server_name(name: &str) -> bool {
    (1..=15).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

fn read_shares(
    source: &Source<'_>,
    top: &Table<'_, '_>,
    server: &ServerSection,
    is_toml: bool,
) -> Vec<ShareSection> {
    let Some(v) = top.value("share") else {
        // A file with invalid TOML may have shares that were not read.
        if is_toml {
            top.report(&(0..0), "share", ProblemKind::NoShares);
        }
        return Vec::new();
    };
    let DeValue::Array(items) = v.get_ref() else {
        match v.get_ref() {
            DeValue::Table(_) => top.report(&v.span(), "share", ProblemKind::OneShare),
            _ => not_table(top, v.span(), "share", "[[share]]"),
        }
        return Vec::new();
    };
    let mut shares: Vec<ShareSection> = Vec::new();
    let mut lines: Vec<usize> = Vec::new();
    for item in items.iter() {
        let DeValue::Table(table) = item.get_ref() else {
            not_table(top, item.span(), "share", "[[share]]");
            continue;
        };
        let mut t = Table::new(source, "share", item.span(), table);
        let Some(name) = t.string("name", "name = \"files\"") else {
            if table.get("name").is_none() {
                t.missing("name", "name = \"files\"");
            }
            continue;
        };
        t.section = format!("share.{}", name.value);
        if !is_share_name(&name.value) {
            t.report(&name.at, "name", ProblemKind::Name { name: name.value.clone(), rule: SHARE_NAME_RULE });
        }
        if let Some(i) = shares.iter().position(|s| same_name(&s.name, &name.value)) {
            let kind = ProblemKind::NameTwice { name: name.value.clone(), line: lines[i] };
            t.report(&name.at, "name", kind);
        }
        lines.push(t.line(&name.at));
        shares.push(read_share(t, name.value, server));
    }
    shares
}

fn read_share(t: Table<'_, '_>, name: String, server: &ServerSection) -> ShareSection {
    let hidden = name.ends_with('$');
    let mut s = ShareSection {
        name,
        backend: Backend::Hostdir,
        path: None,
        snapshots: None,
        comment: String::new(),
        read_only: false,
        encrypt: false,
        continuous_availability: false,
        pool: None,
        resiliency: None,
        columns: None,
        allow_delete: false,
        size: None,
        hidden,
        acl: None,
        access_based: false,
    };
    const BACKENDS: [(Backend, &str); 4] = [
        (Backend::Hostdir, "hostdir"),
        (Backend::Spaces, "spaces"),
        (Backend::Ram, "ram"),
        (Backend::Null, "null"),
    ];
    if let Some(b) = t.word("backend", &BACKENDS, "backend = \"hostdir\"") {
        s.backend = b.value;
    }
    let path = t.path("path", "path = \"/srv/files\"");
    match (s.backend, path) {
        (Backend::Hostdir, Some(p)) => {
            if let Err(kind) = check_directory(&p.value) {
                t.report(&p.at, "path", kind);
            }
            s.path = Some(p.value);
        }
        // A path of the wrong kind was reported when it was read.
        (Backend::Hostdir, None) if t.value("path").is_none() => t.missing("path", "path = \"/srv/files\""),
        (Backend::Hostdir, None) => {}
        (_, Some(p)) => {
            t.report(
                &p.at,
                "path",
                ProblemKind::NotForBackend { backend: s.backend.as_str(), other: "hostdir" },
            );
        }
        (_, None) => {}
    }
    if let Some(folder) = t.string("snapshots", "snapshots = \".snapshots\"") {
        if s.backend != Backend::Hostdir {
            let kind = ProblemKind::NotForBackend { backend: s.backend.as_str(), other: "hostdir" };
            t.report(&folder.at, "snapshots", kind);
        }
        s.snapshots = Some(folder.value.into());
    }
    read_spaces(&t, &mut s);
    let size = t.size("size", RAM_SIZE, "size = \"1GiB\"");
    match (s.backend, size) {
        (Backend::Ram, size) => s.size = Some(size.unwrap_or(RAM_DEFAULT)),
        (_, Some(_)) => {
            let at = t.value("size").map_or(t.at(), |v| v.span());
            let kind = ProblemKind::NotForBackend { backend: s.backend.as_str(), other: "ram" };
            t.report(&at, "size", kind);
        }
        (_, None) => {}
    }
    if let Some(c) = t.string("comment", "comment = \"Files\"") {
        s.comment = c.value;
    }
    if let Some(b) = t.boolean("read_only", "read_only = true") {
        s.read_only = b.value;
    }
    if let Some(b) = t.boolean("hidden", "hidden = true") {
        s.hidden = b.value;
    }
    s.acl = t.acl("acl", "acl = [\"staff=change\"]");
    if let Some(b) = t.boolean("access_based", "access_based = true") {
        s.access_based = b.value;
    }
    if let Some(b) = t.boolean("continuous_availability", "continuous_availability = true") {
        s.continuous_availability = b.value;
        if b.value && server.state.is_none() {
            t.report(&b.at, "continuous_availability", ProblemKind::NoState);
        }
    }
    if let Some(b) = t.boolean("encrypt", "encrypt = true") {
        s.encrypt = b.value;
        if b.value && server.encryption == Protection::Off {
            let cure = "set server.encryption = \"enabled\"";
            t.report(&b.at, "encrypt", ProblemKind::NoEncryption { why: "off", cure });
        }
    }
    t.finish();
    s
}

/// The keys of `spaces`.
fn read_spaces(t: &Table<'_, '_>, s: &mut ShareSection) {
    let resiliencies = ResiliencySetting::ALL.map(|r| (r, r.as_str()));
    s.pool = t.string("pool", POOL).map(|p| p.value);
    s.resiliency = t.word("resiliency", &resiliencies, "resiliency = \"mirror\"").map(|r| r.value);
    s.columns = t.number("columns", 1..256, "columns = 4").and_then(|n| u8::try_from(n).ok());
    s.allow_delete = t.boolean("allow_delete", "allow_delete = true").is_some_and(|b| b.value);
    match check_spaces(s) {
        Err(("pool", ProblemKind::Missing { .. })) if t.value("pool").is_none() => t.missing("pool", POOL),
        Err((key, kind)) => {
            let at = t.value(key).map_or(t.at(), |v| v.span());
            t.report(&at, key, kind);
        }
        Ok(()) => {}
    }
}

/// Checks that a share has the keys of `spaces` if and only if it has that backend.
///
/// # Errors
/// The problem, and its key.
fn check_spaces(s: &ShareSection) -> Result<(), (&'static str, ProblemKind)> {
    let other = ProblemKind::NotForBackend { backend: s.backend.as_str(), other: "spaces" };
    match s.backend {
        Backend::Spaces if s.pool.is_none() => Err(("pool", ProblemKind::Missing { example: POOL })),
        Backend::Spaces => Ok(()),
        _ if s.pool.is_some() => Err(("pool", other)),
        _ if s.resiliency.is_some() => Err(("resiliency", other)),
        _ if s.columns.is_some() => Err(("columns", other)),
        _ if s.allow_delete => Err(("allow_delete", other)),
        _ => Ok(()),
    }
}

const POOL: &str = "pool = \"tank\"";

/// The rules for a share that does not come from the file.
///
/// # Errors
/// The problem, and its key.
pub fn check_share(
    share: &mut ShareSection,
    server: &ServerSection,
) -> Result<(), (&'static str, ProblemKind)> {
    if !is_share_name(&share.name) {
        return Err(("name", ProblemKind::Name { name: share.name.clone(), rule: SHARE_NAME_RULE }));
    }
    match (share.backend, &share.path) {
        (Backend::Hostdir, None) => {
            return Err(("path", ProblemKind::Missing { example: "path = \"/srv/files\"" }));
        }
        (Backend::Hostdir, Some(p)) if !p.is_absolute() => {
            return Err(("path", ProblemKind::NotAbsolute { path: p.clone() }));
        }
        (Backend::Hostdir, Some(p)) => check_directory(p).map_err(|kind| ("path", kind))?,
        (b, Some(_)) => {
            return Err(("path", ProblemKind::NotForBackend { backend: b.as_str(), other: "hostdir" }));
        }
        (_, None) => {}
    }
    if share.snapshots.is_some() && share.backend != Backend::Hostdir {
        let kind = ProblemKind::NotForBackend { backend: share.backend.as_str(), other: "hostdir" };
        return Err(("snapshots", kind));
    }
    check_spaces(share)?;
    match (share.backend, share.size) {
        (Backend::Ram, None) => share.size = Some(RAM_DEFAULT),
        (Backend::Ram, Some(n)) if !RAM_SIZE.contains(&n) => {
            let (least, most) = (super::format_size(RAM_SIZE.start), super::format_size(RAM_SIZE.end - 1));
            return Err(("size", ProblemKind::Range { found: super::format_size(n), least, most }));
        }
        (Backend::Ram, Some(_)) | (_, None) => {}
        (b, Some(_)) => {
            return Err(("size", ProblemKind::NotForBackend { backend: b.as_str(), other: "ram" }));
        }
    }
    if share.encrypt && server.encryption == Protection::Off {
        let cure = "set server.encryption = \"enabled\"";
        return Err(("encrypt", ProblemKind::NoEncryption { why: "off", cure }));
    }
    if share.continuous_availability && server.state.is_none() {
        return Err(("continuous_availability", ProblemKind::NoState));
    }
    share.hidden |= share.name.ends_with('$');
    Ok(())
}

/// Whether two share names are the same (MS-SMB2 3.3.5.7: compared without regard to case).
pub(super) fn same_name(a: &str, b: &str) -> bool {
    a.to_lowercase() == b.to_lowercase()
}

const SHARE_NAME_RULE: &str =
    "use 1 to 80 characters without control characters and \" / \\ [ ] : | < > + = ; , * ?, and not IPC$";

/// MS-SRVS 2.2.2.4, and the names that Windows refuses.
fn is_share_name(name: &str) -> bool {
    let length = name.encode_utf16().count();
    let legal = |c: char| !c.is_control() && !"\"/\\[]:|<>+=;,*?".contains(c);
    (1..=80).contains(&length) && name.trim() == name && name.chars().all(legal) && !same_name(name, "IPC$")
}

fn check_directory(path: &Path) -> Result<(), ProblemKind> {
    match std::fs::metadata(path) {
        Ok(m) if m.is_dir() => Ok(()),
        Ok(_) => Err(ProblemKind::NotDirectory { path: path.to_owned() }),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Err(ProblemKind::NoPath { path: path.to_owned() })
        }
        Err(e) => Err(ProblemKind::BadPath { path: path.to_owned(), kind: e.kind() }),
    }
}
