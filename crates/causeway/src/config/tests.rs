use std::path::PathBuf;

use super::*;

/// A directory for one test, removed at the end.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        let dir = std::env::temp_dir().join(format!("causeway-test-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a temporary directory");
        Scratch(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn problems(text: &str) -> String {
    parse(text, "c.toml").1.to_string()
}

#[test]
fn every_problem_has_line_key_and_cure() {
    let text = r#"[server]
name = "a name with spaces"
lisen = ["0.0.0.0:445"]
iwarp = ["0.0.0.0", "127.0.0.1:1", "127.0.0.1:1", 7]
announce_rdma = "yes"
control = "control.sock"
users = "/dev/null"
signing = "require"
encryption = "required"
min_dialect = "3.1.1"
max_dialect = "2.1"
memory = "1 apple"
workers = 5000
opens_per_user = 2000000
drain_seconds = -1

[[share]]
name = "files"
path = "/nonexistent/x"
size = "1GiB"
readonly = true

[[share]]
name = "FILES"
backend = "ram"
size = "1KiB"
path = "/tmp"

[[share]]
name = "a/b"
path = "/dev/null"

[[share]]
name = "c"
path = "relative"
comment = 3

[[share]]
path = "/tmp"

[[share]]
name = "d"

[client]
"#;
    let expected = r#"c.toml:2: server.name: "a name with spaces" cannot be a name: use 1 to 15 letters, digits and hyphens
c.toml:3: server.lisen: there is no such key: did you mean listen?
c.toml:4: server.iwarp: "0.0.0.0" is not an address with a port: write iwarp = ["0.0.0.0:5445"]
c.toml:4: server.iwarp: 127.0.0.1:1 is listed twice: remove one
c.toml:4: server.iwarp: is a whole number, not an address: write iwarp = ["0.0.0.0:5445"]
c.toml:5: server.announce_rdma: is a string, not true or false: write announce_rdma = true
c.toml:6: server.control: control.sock is not absolute: begin it with /
c.toml:8: server.signing: "require" is not one of enabled, required: did you mean "required"?
c.toml:9: server.encryption: needs encryption, which is not supported before dialect 3.0: raise max_dialect or set encryption = "off"
c.toml:10: server.min_dialect: 3.1.1 is newer than max_dialect 2.1: swap them
c.toml:12: server.memory: "1 apple" is not a size: write it like "512MiB" or "4GiB"
c.toml:13: server.workers: 5000 is out of range: use 0 to 1024
c.toml:14: server.opens_per_user: 2000000 is out of range: use 0 to 1048576
c.toml:15: server.drain_seconds: -1 is out of range: use 0 to 3600
c.toml:19: share.files.path: /nonexistent/x does not exist: create it or change the path
c.toml:20: share.files.size: is not valid for backend "hostdir": remove it, or use backend = "ram"
c.toml:21: share.files.readonly: there is no such key: did you mean read_only?
c.toml:24: share.FILES.name: "FILES" is also the name of the share in line 18: rename one (upper and lower case count as equal)
c.toml:26: share.FILES.size: 1KiB is out of range: use 1MiB to 16TiB
c.toml:27: share.FILES.path: is not valid for backend "ram": remove it, or use backend = "hostdir"
c.toml:30: share.a/b.name: "a/b" cannot be a name: use 1 to 80 characters without control characters and " / \ [ ] : | < > + = ; , * ?, and not IPC$
c.toml:31: share.a/b.path: /dev/null is not a directory: share the directory that contains it
c.toml:35: share.c.path: relative is not absolute: begin it with /
c.toml:36: share.c.comment: is a whole number, not a string: write comment = "Files"
c.toml:38: share.name: is missing: add name = "files"
c.toml:41: share.d.path: is missing: add path = "/srv/files"
c.toml:44: client: there is no such key: remove it; the keys here are server, storage, share"#;
    assert_eq!(problems(text), expected);
}

#[test]
fn a_share_that_must_encrypt_needs_encryption() {
    let text = "[server]\nusers = \"/dev/null\"\nencryption = \"off\"\n[[share]]\nname = \"s\"\nbackend = \"null\"\nencrypt = true\n";
    assert_eq!(
        problems(text),
        "c.toml:7: share.s.encrypt: needs encryption, which is off: set server.encryption = \"enabled\""
    );
}

#[test]
fn snapshots_are_of_a_directory() {
    let (config, found) = parse(
        "[server]\nusers = \"/dev/null\"\n[[share]]\nname = \"s\"\npath = \"/tmp\"\nsnapshots = \".snapshots\"\n",
        "c.toml",
    );
    assert_eq!(found.to_string(), "");
    assert_eq!(config.shares[0].snapshots.as_deref(), Some(std::path::Path::new(".snapshots")));
    let text =
        "[server]\nusers = \"/dev/null\"\n[[share]]\nname = \"s\"\nbackend = \"null\"\nsnapshots = \"s\"\n";
    assert_eq!(
        problems(text),
        "c.toml:6: share.s.snapshots: is not valid for backend \"null\": remove it, or use backend = \"hostdir\""
    );
}

#[test]
fn continuous_availability_needs_a_place_for_the_opens() {
    let share = "[[share]]\nname = \"s\"\nbackend = \"null\"\ncontinuous_availability = true\n";
    assert_eq!(
        problems(&format!("[server]\nusers = \"/dev/null\"\n{share}")),
        "c.toml:6: share.s.continuous_availability: needs a directory for the opens that survive a restart: set \
         server.state = \"/var/lib/causeway\""
    );
    assert_eq!(problems(&format!("[server]\nusers = \"/dev/null\"\nstate = \"/tmp\"\n{share}")), "");
}

#[test]
fn broken_toml_has_a_line_too() {
    let said = problems("[server]\nusers = \"/dev/null\"\nname = \"a\n");
    assert!(said.starts_with("c.toml:3: "), "{said}");
    assert!(said.contains("correct the TOML"), "{said}");
    assert!(parse("[server]\nname = \"a\n", "c.toml").1.has_errors());
}

#[test]
fn frequent_slips_have_the_line_that_is_right() {
    let first = |text: &str| problems(text).lines().next().unwrap_or_default().to_owned();
    let users = "[server]\nusers = \"/dev/null\"\n";
    for (text, told) in [
        ("name = FILES", "c.toml:3: FILES is a string: put it in quotes: name = \"FILES\""),
        ("announce_rdma = True", "c.toml:3: True is not a value: write true or false, or a string in quotes"),
        ("state = /var/lib/x", "c.toml:3: /var/lib/x is a string: put it in quotes: state = \"/var/lib/x\""),
        (
            "metrics = \"127.0.0.1\"",
            "c.toml:3: server.metrics: \"127.0.0.1\" is not an address with a port: write metrics = \"127.0.0.1:9445\"",
        ),
        (
            "[share]\nname = \"x\"",
            "c.toml:3: share: each share has its own section: write [[share]] instead of [share]",
        ),
    ] {
        let said = problems(&format!("{users}{text}\n[[share]]\nname = \"s\"\nbackend = \"null\"\n"));
        let said = if text.starts_with('[') { first(&format!("{users}{text}\n")) } else { said };
        assert_eq!(said, told);
    }
}

#[test]
fn warnings_do_not_stop_a_server() {
    let (config, problems) = parse("[server]\nusers = \"/nonexistent/users.toml\"\n", "c.toml");
    assert!(!problems.has_errors());
    assert_eq!(
        problems.to_string(),
        "c.toml:1: warning: share: there are no shares: add [[share]], or run causeway share add NAME PATH\n\
         c.toml:2: warning: server.users: /nonexistent/users.toml does not exist, so no user can log on: \
         causeway user add NAME --users /nonexistent/users.toml"
    );
    assert_eq!(config.server.signing, Protection::Required);
    assert_eq!(config.server.encryption, Protection::Enabled);
    assert_eq!(config.server.memory, 1 << 30);
}

#[test]
fn naming_tcp_addresses_opens_no_others() {
    let iwarp = |text| parse(text, "c.toml").0.server.iwarp.len();
    assert_eq!(iwarp(""), 1);
    assert_eq!(iwarp("[server]\nlisten = [\"127.0.0.1:4450\"]"), 0);
    assert_eq!(iwarp("[server]\nlisten = [\"127.0.0.1:4450\"]\niwarp = [\"127.0.0.1:5445\"]"), 1);
    assert_eq!(iwarp("[server]\niwarp = []"), 0);
}

#[test]
fn shares_have_their_defaults() {
    let text = "[[share]]\nname = \"r$\"\nbackend = \"ram\"\n[[share]]\nname = \"n\"\nbackend = \"null\"\nread_only = true\n";
    let (config, problems) = parse(text, "c.toml");
    assert!(!problems.has_errors(), "{problems}");
    assert!(config.shares[0].hidden);
    assert_eq!(config.shares[0].size, Some(256 << 20));
    assert!(config.shares[1].read_only && !config.shares[1].hidden);
}

#[test]
fn devices_are_absolute_patterns() {
    let (config, found) = parse("[storage]\ndevices = [\"/srv/*.disk\", \"/dev/sdb\"]\n", "c.toml");
    assert!(!found.has_errors(), "{found}");
    assert_eq!(config.storage.devices, ["/srv/*.disk", "/dev/sdb"]);
    let usual = parse("[storage]\n", "c.toml").0.storage.devices;
    assert!(usual.contains(&"/dev/disk/by-id/*".to_owned()), "{usual:?}");
    // A server without the section takes no pool.
    assert!(parse("[server]\n", "c.toml").0.storage.devices.is_empty());
    let jobs = "[storage]\nscrub_days = 0\njob_latency_ms = 5\njob_minimum = \"64MiB\"\n";
    let jobs = parse(jobs, "c.toml").0.storage.jobs;
    assert_eq!((jobs.scrub_days, jobs.latency_ms, jobs.minimum), (0, 5, 64 << 20));
    let none = problems("[storage]\njob_latency_ms = 0\n");
    assert!(none.contains("job_latency_ms: 0 is out of range: use 1 to 10000"), "{none}");
    let timeouts = "[storage]\nread_timeout_ms = 300\nwrite_timeout_ms = 400\nflush_timeout_ms = 500\nmetadata_timeout_ms = 600\n";
    let timeouts = parse(timeouts, "c.toml").0.storage.timeouts;
    let expected = TimeoutsSection { read_ms: 300, write_ms: 400, flush_ms: 500, metadata_ms: 600 };
    assert_eq!(timeouts, expected);
    let none = problems("[storage]\nread_timeout_ms = 99\nmetadata_timeout_ms = 60001\n");
    assert!(none.contains("read_timeout_ms: 99 is out of range: use 100 to 60000"), "{none}");
    assert!(none.contains("metadata_timeout_ms: 60001 is out of range: use 100 to 60000"), "{none}");
    let text = "[storage]\ndevices = [\"disks/*\", 7]\ndevise = 1\n";
    let wrong: Vec<_> = problems_of(text).into_iter().filter(|l| l.contains("storage")).collect();
    let expected = [
        "c.toml:2: storage.devices: disks/* is not absolute: begin it with /",
        "c.toml:2: storage.devices: is a whole number, not a path: write devices = [\"/dev/disk/by-id/*\"]",
        "c.toml:3: storage.devise: there is no such key: did you mean devices?",
    ];
    assert_eq!(wrong, expected);
    assert!(problems("storage = 3").contains("storage: is a value, not a section: write [storage]"));
}

fn problems_of(text: &str) -> Vec<String> {
    problems(text).lines().map(str::to_owned).collect()
}

#[test]
fn the_example_is_right() {
    let (config, problems) = parse(example::EXAMPLE, "example");
    let others: Vec<_> = problems
        .0
        .iter()
        .filter(|p| !matches!(p.kind, ProblemKind::NoPath { .. } | ProblemKind::NoUsers { .. }))
        .collect();
    assert!(others.is_empty(), "{others:?}");
    assert_eq!(config.server.listen.len(), 2);

    // Keys that are commented out show their defaults, and every key is present. The address lists are examples.
    let all: String = example::EXAMPLE
        .lines()
        .map(|l| match l.strip_prefix("# ") {
            Some(rest) if rest.contains(" = ") || rest.starts_with('[') => format!("{rest}\n"),
            _ => format!("{l}\n"),
        })
        .collect();
    let (uncommented, problems) = parse(&all, "example");
    let wrong: Vec<_> = problems
        .0
        .iter()
        .filter(|p| !matches!(p.kind, ProblemKind::NoPath { .. } | ProblemKind::NoUsers { .. }))
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    let defaults = ServerSection {
        listen: uncommented.server.listen.clone(),
        iwarp: uncommented.server.iwarp.clone(),
        control: PathBuf::from("/run/causeway/control.sock"),
        metrics: uncommented.server.metrics,
        state: Some(PathBuf::from("/var/lib/causeway")),
        ..ServerSection::default()
    };
    assert_eq!(uncommented.server, defaults);
    assert_eq!(uncommented.storage, parse("[storage]\n", "c.toml").0.storage);
    assert_eq!(uncommented.shares[1].size, parse_size("256MiB"));
}

#[test]
fn a_pool_share_says_how_many_columns_new_virtual_disks_have() {
    let share = |lines: &str| format!("[[share]]\nname = \"vms\"\n{lines}\n");
    let (config, _) = parse(&share("backend = \"spaces\"\npool = \"tank\"\ncolumns = 24"), "c.toml");
    assert_eq!(config.shares[0].columns, Some(24));
    for wrong in [
        "backend = \"spaces\"\npool = \"tank\"\ncolumns = 0",
        "backend = \"spaces\"\npool = \"tank\"\ncolumns = 256",
        "backend = \"null\"\ncolumns = 2",
    ] {
        assert!(problems(&share(wrong)).contains("columns"), "{wrong}");
    }
}

#[test]
fn editing_keeps_comments() {
    let dir = Scratch::new("edit");
    let file = dir.0.join("causeway.toml");
    let before =
        "# top\n[server]\nname = \"A\" # why\n\n[[share]]\n# the first\nname = \"one\"\nbackend = \"null\"\n";
    std::fs::write(&file, before).expect("written");
    let share = ShareSection {
        name: "two".to_owned(),
        backend: Backend::Ram,
        path: None,
        snapshots: None,
        comment: "Scratch \"space\"".to_owned(),
        read_only: true,
        encrypt: false,
        continuous_availability: false,
        pool: None,
        resiliency: None,
        columns: None,
        allow_delete: false,
        size: Some(64 << 20),
        hidden: false,
        acl: Some(vec!["staff=change".parse().expect("an entry")]),
        access_based: true,
    };
    edit::put_share(&file, &share).expect("added");
    let text = std::fs::read_to_string(&file).expect("read");
    assert!(text.starts_with(before), "{text}");
    let (config, problems) = parse(&text, "c.toml");
    assert!(!problems.has_errors(), "{problems}");
    assert_eq!(config.shares[1], share);

    edit::put_share(&file, &ShareSection { comment: "other".to_owned(), ..share.clone() }).expect("replaced");
    let (config, _) = parse(&std::fs::read_to_string(&file).expect("read"), "c.toml");
    assert_eq!(config.shares.len(), 2);
    assert_eq!(config.shares[1].comment, "other");

    let acl = ["bob=deny", "Everyone=read"].map(|e| e.parse().expect("an entry"));
    edit::set_acl(&file, "TWO", &acl).expect("changed");
    let (config, _) = parse(&std::fs::read_to_string(&file).expect("read"), "c.toml");
    assert_eq!(config.shares[1].acl.as_deref(), Some(&acl[..]));
    assert_eq!(config.shares[1].comment, "other");

    edit::remove_share(&file, "TWO").expect("removed");
    assert_eq!(std::fs::read_to_string(&file).expect("read"), before);
}

#[test]
fn editing_an_inline_list_works_and_the_mode_stays() {
    use std::os::unix::fs::PermissionsExt;
    let dir = Scratch::new("inline");
    let file = dir.0.join("causeway.toml");
    std::fs::write(&file, "share = [{ name = \"one\", backend = \"null\" }]\n").expect("written");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).expect("changed");
    let share = ShareSection {
        name: "two".to_owned(),
        backend: Backend::Null,
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
        hidden: false,
        acl: None,
        access_based: false,
    };
    edit::put_share(&file, &share).expect("added");
    let (config, problems) = parse(&std::fs::read_to_string(&file).expect("read"), "c.toml");
    assert!(!problems.has_errors(), "{problems}");
    assert_eq!(config.shares.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(std::fs::metadata(&file).expect("there").permissions().mode() & 0o777, 0o640);
}

proptest::proptest! {
    /// Problems are reported for any contents of the file.
    #[test]
    fn no_text_panics(text in "(\\[server\\]|\\[\\[share\\]\\]|name|listen|size|path| = |\"a\"|\\[|\\]|1|true|\n|\\PC){0,40}") {
        let _ = parse(&text, "c.toml").1.to_string();
    }
}
