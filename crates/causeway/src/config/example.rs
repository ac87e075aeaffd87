//! The commented example.

/// The output of `causeway config example`: every key, with its default.
pub const EXAMPLE: &str = r#"# Configuration of a Causeway server. Check it with: causeway config check --config FILE
# Keys in comments show their default values.

[server]
# The name that clients see: at most 15 letters, digits and hyphens.
# name = "CAUSEWAY"

# Addresses for SMB over TCP. Without root the default port is 4450. Windows supports ports other than 445 only since
# Windows 11 24H2 and Windows Server 2025.
listen = ["0.0.0.0:445", "[::]:445"]

# Addresses for SMB Direct over iWARP in user space, which needs no RDMA card on this machine. The value [] turns it
# off. It is also off if `listen` is set and `iwarp` is not.
iwarp = ["0.0.0.0:5445"]

# Announce to clients that these interfaces support RDMA. Turn this on only if clients have iWARP cards: a Windows
# client with a RoCE card tries SMB Direct in vain, and then stays on TCP.
# announce_rdma = false

# The control socket for `causeway share`, `user`, `session`, `open`, `status` and other commands.
# control = "/run/causeway/control.sock"

# The users file. To add a user: causeway user add NAME
# users = "/etc/causeway/users.toml"

# The directory for events (causeway event list) and other persistent state. The default is the directory that systemd
# sets, /var/lib/causeway in the packaged service; without systemd, state is kept in memory only. Two servers must not
# use the same directory.
# state = "/var/lib/causeway"

# Whether clients must sign: "required" or "enabled".
# signing = "required"

# Whether clients may or must encrypt: "off", "enabled" or "required".
# encryption = "enabled"

# Dialects: 2.0.2, 2.1, 3.0, 3.0.2, 3.1.1.
# min_dialect = "2.0.2"
# max_dialect = "3.1.1"

# Payload memory for all clients together. The checksum tables of pools use up to a quarter of this in addition: those
# of 200 GiB of data in use take 256 MiB.
# memory = "1GiB"

# Number of worker threads; 0: one for each core.
# workers = 0

# Open files and directories that one user may have, in all sessions together; an open of another one then fails with
# STATUS_TOO_MANY_OPENED_FILES. 0: three quarters of those that all may have. These are at most 1048576, and three quarters of
# the process' limit of open files (LimitNOFILE= in the unit).
# opens_per_user = 0

# Seconds that a stop waits for running transfers of clients. A client that sends nothing for a second is disconnected.
# drain_seconds = 10

# The address for Prometheus (http://ADDRESS/metrics), read-only and without authentication. Off unless it is set.
# metrics = "127.0.0.1:9445"

# [storage]
# Paths where the server searches for disks of pools when it starts, to open the pools. * and ? match characters of a
# name. Without the section [storage] the server does not search.
# devices = ["/dev/disk/by-id/*", "/var/lib/causeway/disks/*.disk"]
# A disk with an I/O that takes longer is removed from service, if all data is available without it: for reads, writes,
# and flushes of virtual disks, in milliseconds. metadata_timeout_ms is for the pool's metadata on a disk.
# read_timeout_ms = 10000
# write_timeout_ms = 10000
# flush_timeout_ms = 10000
# metadata_timeout_ms = 30000
# Read and repair every copy of each virtual disk once in this number of days; 0: never.
# scrub_days = 28
# Jobs (resync, repair, scrub) slow down while the 99th percentile of the clients' latency is above job_latency_ms, but
# not below the rate of job_minimum bytes per second.
# job_latency_ms = 20
# job_minimum = "4MiB"

[[share]]
name = "files"              # a name that ends in $ is hidden
# backend = "hostdir"       # a directory; or "ram" (memory) or "null" (a null device, for measurements)
path = "/srv/files"
# The folder of snapshots, which clients show as previous versions: docs/snapshots.md.
# snapshots = ".snapshots"
# comment = ""
# read_only = false
# encrypt = false           # whether to allow only encrypted sessions
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
# resiliency = "mirror"     # of new virtual disks: simple, mirror, three-way-mirror, parity, dual-parity
# columns = 4               # of new virtual disks; if not set: by the number of disks
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

/// The example with these values; its own share becomes a comment.
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
