//! The JSON documents of the control interface, and their rows in tables.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{AclEntry, AclLevel, Backend, ShareSection, format_size};
use crate::output::{Column, Row, human_seconds};

/// Why a request was refused.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Fault {
    /// The error.
    pub error: String,
    /// The action that helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cure: Option<String>,
}

/// The server as a whole.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct ServerStatus {
    /// The program's version.
    pub version: String,
    /// The name that clients see.
    pub name: String,
    /// The process id.
    pub pid: u32,
    /// The time since the start, in seconds.
    pub uptime_s: u64,
    /// Processor time of the process, in nanoseconds; absent from older servers.
    #[serde(default)]
    pub cpu_ns: Option<u64>,
    /// Whether the listeners of SMB Direct are announced to clients; absent from older servers.
    #[serde(default)]
    pub announces_rdma: Option<bool>,
    /// The configuration file.
    pub config: String,
    /// Its listeners.
    pub listeners: Vec<Listener>,
    /// The number of connections.
    pub connections: usize,
    /// The number of sessions.
    pub sessions: usize,
    /// The number of open files and directories.
    pub opens: usize,
    /// Payload memory.
    pub memory: Memory,
    /// Totals since the start.
    pub totals: Totals,
    /// How often user space touched payload since the start.
    pub passes: Passes,
    /// The threads that serve connections.
    pub workers: Vec<Worker>,
}

/// One listener.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Listener {
    /// `tcp` or `iwarp`.
    pub transport: String,
    /// The address and port.
    pub address: SocketAddr,
}

/// Payload memory, in bytes.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Memory {
    /// The limit.
    pub budget: u64,
    /// Memory in use.
    pub used: u64,
    /// Reserved for control messages, which free memory.
    pub reserve: u64,
    /// Requests that wait for memory.
    pub waiting: usize,
}

/// Running totals.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Totals {
    /// Connections accepted.
    pub accepted: u64,
    /// Requests answered.
    pub requests: u64,
    /// READ requests.
    pub reads: u64,
    /// WRITE requests.
    pub writes: u64,
    /// Bytes read by clients.
    pub read_bytes: u64,
    /// Bytes written by clients.
    pub written_bytes: u64,
    /// Of the bytes read, those placed by RDMA.
    pub read_bytes_rdma: u64,
    /// Of the bytes written, those fetched by RDMA.
    pub written_bytes_rdma: u64,
}

/// Payload bytes that user space touched, by reason, and all of them per byte moved.
#[derive(Clone, Copy, Debug, Default, JsonSchema, Serialize, Deserialize)]
pub struct Passes {
    /// Copied.
    pub copy_bytes: u64,
    /// Copied from a receive buffer to their destination.
    pub place_bytes: u64,
    /// Read for a CRC.
    pub crc_bytes: u64,
    /// Read for a signature.
    pub mac_bytes: u64,
    /// Encrypted or decrypted.
    pub cipher_bytes: u64,
    /// The sum of these divided by the bytes read and written; none before the first byte.
    pub per_byte: Option<f64>,
}

/// One worker thread.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Worker {
    /// The number of its connections.
    pub connections: usize,
    /// How often it was blocked for longer than the watchdog allows.
    pub stalls: u64,
    /// The longest such stall, in milliseconds.
    pub longest_stall_ms: u64,
}

/// One share.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct ShareStatus {
    /// Its configuration.
    #[serde(flatten)]
    pub share: ShareSection,
    /// Tree connects now.
    pub users: usize,
}

/// The request to add a share.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct NewShare {
    /// The share.
    #[serde(flatten)]
    pub share: ShareSection,
    /// Keep it only until the server stops, and do not write it to the configuration file.
    #[serde(default)]
    pub temporary: bool,
}

/// The new permission of a share.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct NewAcl {
    /// The new list; `None`: the list is not changed.
    #[serde(default)]
    pub acl: Option<Vec<AclEntry>>,
    /// Also set the list as the security descriptor of the shared directory.
    #[serde(default)]
    pub to_path: bool,
}

/// The rights of one user or group on a share.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct ShareAccess {
    /// The share.
    pub share: String,
    /// A user, a group, Everyone, or a SID.
    pub account: String,
    /// Its rights.
    pub access: AclLevel,
    /// Whether the user or group exists; otherwise the entry has no effect.
    pub known: bool,
}

/// One session.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct SessionStatus {
    /// SessionId, 16 hexadecimal digits.
    pub id: String,
    /// The client's address, and its name if it gave one.
    pub client: String,
    /// The user.
    pub user: String,
    /// Open files and directories.
    pub opens: usize,
    /// Such as 3.1.1.
    pub dialect: String,
    /// Its channels.
    pub channels: Vec<Channel>,
    /// Whether requests are signed.
    pub signed: bool,
    /// Whether requests are encrypted.
    pub encrypted: bool,
    /// The time since the log-on, in seconds.
    pub age_s: u64,
    /// The time since the last request, in seconds.
    pub idle_s: u64,
}

/// One channel of a session.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Channel {
    /// `tcp` or `rdma`.
    pub transport: String,
    /// The client's address.
    pub peer: SocketAddr,
    /// The SMB2 credits of its connection, if the server reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credits: Option<Credits>,
}

/// SMB2 credits of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Credits {
    /// Granted and unused: requests that the client may still send.
    pub available: u32,
    /// Used by requests that are not answered yet.
    pub in_use: u32,
}

/// One open file or directory.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct OpenStatus {
    /// FileId (its volatile half).
    pub id: u64,
    /// SessionId, 16 hexadecimal digits.
    pub session: String,
    /// The user who opened it.
    pub user: String,
    /// The share.
    pub share: String,
    /// The path in the share, with backslashes.
    pub path: String,
    /// Granted access, an ACCESS_MASK.
    pub access: u32,
    /// Byte-range locks held.
    pub locks: usize,
}

/// One user.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct UserStatus {
    /// Log-on name.
    pub name: String,
    /// Whether the user may log on.
    pub enabled: bool,
}

/// The request to add a user or to change a password.
#[derive(Clone, JsonSchema, Serialize, Deserialize)]
pub struct NewUser {
    /// Log-on name.
    pub name: String,
    /// The password in clear text: only the server's own user can open the socket, and the server stores only a hash.
    pub password: String,
}

/// The changes of a user.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize, Deserialize)]
pub struct UserChange {
    /// Whether the user may log on.
    pub enabled: bool,
}

/// A group.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Its name.
    pub name: String,
    /// Its SID in security descriptors.
    pub sid: String,
    /// Its members.
    pub members: Vec<String>,
}

/// The request to add a group.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct NewGroup {
    /// Its name.
    pub name: String,
}

/// The effect of a change.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Changed {
    /// The result in words.
    pub done: String,
    /// Notes about the completed change, such as limitations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

fn yes(b: bool) -> String {
    if b { "True" } else { "False" }.to_owned()
}

/// As `Get-SmbShare`.
impl Row for ShareStatus {
    const COLUMNS: &'static [Column] = &[
        Column::new("Name"),
        Column::new("Path").wraps(),
        Column::new("Description").wraps().rank(2),
        Column::new("Backend").rank(3),
        Column::new("ReadOnly").rank(1),
        Column::new("EncryptData").rank(2),
        Column::right("CurrentUsers").rank(4),
    ];

    fn cells(&self) -> Vec<String> {
        let s = &self.share;
        let place = match (s.backend, &s.path, s.size) {
            (Backend::Hostdir, Some(p), _) => p.display().to_string(),
            (Backend::Spaces, ..) => format!("(pool {})", s.pool.as_deref().unwrap_or_default()),
            (Backend::Ram, _, Some(n)) => format!("({} of memory)", format_size(n)),
            _ => "(nothing)".to_owned(),
        };
        vec![
            s.name.clone(),
            place,
            s.comment.clone(),
            s.backend.as_str().to_owned(),
            yes(s.read_only),
            yes(s.encrypt),
            self.users.to_string(),
        ]
    }
}

/// As `Get-SmbShareAccess`.
impl Row for ShareAccess {
    const COLUMNS: &'static [Column] = &[
        Column::new("Name").rank(1),
        Column::new("AccountName").wraps(),
        Column::new("AccessControlType"),
        Column::new("AccessRight"),
    ];

    fn cells(&self) -> Vec<String> {
        let denied = self.access == AclLevel::Deny;
        let right = if denied { AclLevel::Full } else { self.access };
        vec![
            self.share.clone(),
            if self.known { self.account.clone() } else { format!("{} (unknown)", self.account) },
            if denied { "Deny" } else { "Allow" }.to_owned(),
            right.to_string(),
        ]
    }
}

/// As `Get-SmbSession`.
impl Row for SessionStatus {
    const COLUMNS: &'static [Column] = &[
        Column::new("SessionId"),
        Column::new("ClientComputerName").wraps(),
        Column::new("ClientUserName").wraps(),
        Column::right("NumOpens").rank(2),
        Column::new("Dialect").rank(4),
        Column::new("Transport").rank(1),
        Column::new("Signed").rank(3),
        Column::new("Encrypted").rank(2),
        Column::new("Idle").rank(2),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.id.clone(),
            self.client.clone(),
            self.user.clone(),
            self.opens.to_string(),
            self.dialect.clone(),
            transports(&self.channels),
            yes(self.signed),
            yes(self.encrypted),
            human_seconds(self.idle_s),
        ]
    }
}

/// `tcp`, `rdma ×2`, `tcp + rdma`.
fn transports(channels: &[Channel]) -> String {
    let mut kinds: Vec<(&str, usize)> = Vec::new();
    for c in channels {
        match kinds.iter_mut().find(|(k, _)| *k == c.transport) {
            Some((_, n)) => *n += 1,
            None => kinds.push((&c.transport, 1)),
        }
    }
    if kinds.is_empty() {
        return "none".to_owned();
    }
    let words = kinds.iter().map(|(k, n)| if *n == 1 { (*k).to_owned() } else { format!("{k} ×{n}") });
    words.collect::<Vec<_>>().join(" + ")
}

/// As `Get-SmbOpenFile`.
impl Row for OpenStatus {
    const COLUMNS: &'static [Column] = &[
        Column::right("FileId"),
        Column::new("SessionId").rank(3),
        Column::new("ShareRelativePath").wraps(),
        Column::new("Share").rank(1),
        Column::new("ClientUserName").wraps().rank(1),
        Column::new("Permissions").rank(2),
        Column::right("Locks").rank(4),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.id.to_string(),
            self.session.clone(),
            if self.path.is_empty() { "\\".to_owned() } else { self.path.clone() },
            self.share.clone(),
            self.user.clone(),
            access_letters(self.access),
            self.locks.to_string(),
        ]
    }
}

/// The rights in an ACCESS_MASK (MS-SMB2 2.2.13.1): `r`ead, `w`rite, `d`elete, e`x`ecute, or `-`.
fn access_letters(access: u32) -> String {
    let letter = |bits: u32, c: char| if access & bits != 0 { c } else { '-' };
    [letter(0x1, 'r'), letter(0x2 | 0x4, 'w'), letter(0x1_0000, 'd'), letter(0x20, 'x')].iter().collect()
}

/// As `Get-LocalUser`.
impl Row for UserStatus {
    const COLUMNS: &'static [Column] = &[Column::new("Name"), Column::new("Enabled")];

    fn cells(&self) -> Vec<String> {
        vec![self.name.clone(), yes(self.enabled)]
    }
}

/// As `Get-LocalGroup` and `Get-LocalGroupMember`.
impl Row for GroupStatus {
    const COLUMNS: &'static [Column] =
        &[Column::new("Name"), Column::new("SID").rank(1), Column::new("Members").wraps()];

    fn cells(&self) -> Vec<String> {
        vec![self.name.clone(), self.sid.clone(), self.members.join(", ")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_are_counted() {
        let peer = "10.0.0.1:9".parse().expect("an address");
        let channel = |t: &str| Channel { transport: t.to_owned(), peer, credits: None };
        assert_eq!(transports(&[]), "none");
        assert_eq!(transports(&[channel("tcp")]), "tcp");
        assert_eq!(transports(&[channel("tcp"), channel("rdma"), channel("rdma")]), "tcp + rdma ×2");
    }

    #[test]
    fn permissions() {
        assert_eq!(access_letters(0x0012_0089), "r---");
        assert_eq!(access_letters(0x001F_01FF), "rwdx");
        assert_eq!(access_letters(0x80), "----");
    }

    #[test]
    fn a_share_is_flat_json() {
        let json = r#"{"name":"a","backend":"hostdir","path":"/srv","temporary":true}"#;
        let new: NewShare = serde_json::from_str(json).expect("as documented");
        assert!(new.temporary && !new.share.read_only);
        assert_eq!(new.share.backend, Backend::Hostdir);
    }
}
