//! The commented example.

/// The output of `causeway config example`: every key, with its default.
pub const EXAMPLE: &str = r#"# Causeway: one server. Check it with: causeway config check --config FILE
# Keys in comments show their defaults.

[server]
# The name that clients see: at most 15 letters, digits and hyphens.
# name = "CAUSEWAY"

# TCP. Without root the default port is 4450; Windows supports other ports than 445 only since Windows 11 24H2 and
# Windows Server 2025.
listen = ["0.0.0.0:445", "[::]:445"]

# SMB Direct over iWARP in user space: no RDMA card needed here. [] turns it off. If `listen` is set and this is
# not, it is off.
iwarp = ["0.0.0.0:5445"]

# Announce to clients that these interfaces have RDMA. A Windows client with a RoCE card would then try and fail, and
# stay on TCP: turn it on if clients have iWARP cards.
# announce_rdma = false

# The socket that `causeway share`, `user`, `session`, `open` and `status` talk to.
# control = "/run/causeway/control.sock"

# The file of users: causeway user add NAME
# users = "/etc/causeway/users.toml"

# The directory for events (causeway event list) and other persistent state. The default is the directory that systemd
# sets, /var/lib/causeway in the packaged service; without systemd, state is kept in memory only. No two servers may
# share it.
# state = "/var/lib/causeway"

# Whether clients must sign: "required" or "enabled".
# signing = "required"

# Whether clients may or must encrypt: "off", "enabled" or "required".
# encryption = "enabled"

# Dialects: 2.0.2, 2.1, 3.0, 3.0.2, 3.1.1.
# min_dialect = "2.0.2"
# max_dialect = "3.1.1"

# Payload memory for all clients together. A quarter as much besides is for the checksum tables of pools: those of
# 200 GiB of data in use take 256 MiB.
# memory = "1GiB"

# Worker threads; 0: one for each core.
# workers = 0

# How long a stop lets clients go on that are transferring; one that sends nothing for a second is disconnected.
# drain_seconds = 10

# The address for Prometheus, http://ADDRESS/metrics, read-only and unprotected; off unless it is set.
# metrics = "127.0.0.1:9445"

# [storage]
# Places in which the server searches disks of pools at its start, to open the pools. * and ? match letters of a name.
# Without this section it searches nowhere.
# devices = ["/dev/disk/by-id/*", "/var/lib/causeway/disks/*.disk"]
# Every copy of each virtual disk is read, and repaired, once in this number of days; 0: never.
# scrub_days = 28
# Jobs (resync, repair, scrub) slow down while the clients' 99th percentile is longer, to a minimum rate per second.
# job_latency_ms = 20
# job_minimum = "4MiB"

[[share]]
name = "files"              # one ending in $ is hidden
# backend = "hostdir"       # a directory; or "ram" (memory) or "null" (nothing, for measuring)
path = "/srv/files"
# The folder of snapshots, which clients show as previous versions: docs/snapshots.md.
# snapshots = ".snapshots"
# comment = ""
# read_only = false
# encrypt = false           # only encrypted sessions
# Handles that survive a restart of the server, for Hyper-V and SQL Server. Needs server.state; every write is durable
# before it is acknowledged.
# continuous_availability = false
# hidden = false
# The permission: users, groups (causeway group), Everyone or SIDs with read, change, full or deny. A user also needs
# rights on each file: docs/access.md.
# acl = ["Everyone=full"]
# access_based = false      # hide from listings the entries that a user may not read

# [[share]]
# name = "scratch"
# backend = "ram"
# size = "256MiB"           # lost when the server stops

# The virtual disks of a pool as files: docs/pools.md.
# [[share]]
# name = "vms"
# backend = "spaces"
# pool = "tank"
# resiliency = "mirror"     # of new ones: simple, mirror, three-way-mirror, parity, dual-parity
# columns = 4               # of new ones; left out: by the number of disks
# allow_delete = false      # whether clients may delete files, which destroys virtual disks
"#;

/// Values for [`with`], as TOML.
pub struct Values<'a> {
    /// `server.name`.
    pub name: &'a str,
    /// `server.listen`.
    pub listen: &'a str,
    /// `server.iwarp`.
    pub iwarp: &'a str,
    /// `server.users`.
    pub users: &'a str,
    /// A `[[share]]` section with its end of line, or nothing.
    pub share: &'a str,
}

/// The example with these values; its own share is a comment.
pub fn with(values: &Values<'_>) -> String {
    let mut text = String::new();
    let mut in_share = false;
    for line in EXAMPLE.lines() {
        in_share = line == "[[share]]" || in_share && !line.is_empty();
        let key = line.trim_start_matches("# ").split(" = ").next().unwrap_or_default();
        let value = match key {
            "name" if !in_share && text.contains("[server]") && !text.contains("\nname = ") => {
                Some(values.name)
            }
            "listen" => Some(values.listen),
            "iwarp" => Some(values.iwarp),
            "users" => Some(values.users),
            _ => None,
        };
        match value {
            Some(value) => text += &format!("{key} = {value}\n"),
            None if in_share && !line.starts_with('#') => text += &format!("# {line}\n"),
            None => text += &format!("{line}\n"),
        }
    }
    match values.share {
        "" => text,
        share => text + "\n" + share,
    }
}
