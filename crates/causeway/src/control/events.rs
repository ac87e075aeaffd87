//! Events in the control interface: `GET /v1/events`.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::health::severity_text;
use crate::output::{Column, Row, human_time};

/// An event with its number and time.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Event {
    /// The number of the previous event plus one; continues after a restart if the server has a state directory.
    pub number: u64,
    /// The time, in seconds since 1970.
    pub time_unix_s: u64,
    /// The event.
    #[serde(flatten)]
    pub what: Happening,
}

/// An event of a pool.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Happening {
    /// The kind of the event.
    pub kind: EventKind,
    /// The severity, as in faults: 4 information, 5 warning, 6 error.
    pub perceived_severity: u8,
    /// The name of the pool at that time.
    pub pool: String,
    /// The object: the pool, a disk, a virtual disk or a fault domain.
    pub object: String,
    /// The description in words.
    pub message: String,
    /// The identity of the fault, the same in its FaultRaised and FaultCleared events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault_id: Option<String>,
    /// The type of the fault, such as `PhysicalDisk.LostCommunication`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault_type: Option<String>,
}

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub enum EventKind {
    /// A fault began. A fault whose severity changes is cleared and raised again.
    FaultRaised,
    /// A fault ended.
    FaultCleared,
    /// A pool was created.
    PoolCreated,
    /// The server opened a pool by itself, at its start or when the pool resumed.
    PoolOpened,
    /// A pool was opened by command.
    PoolImported,
    /// A pool was renamed.
    PoolRenamed,
    /// A pool was exported.
    PoolExported,
    /// A pool was closed because the server stopped.
    PoolClosed,
    /// A pool was erased.
    PoolDestroyed,
    /// A disk was added to a pool.
    DiskAdded,
    /// A disk was removed from its pool.
    DiskRemoved,
    /// A disk was taken offline by command. A failed disk is a fault instead.
    DiskLeft,
    /// A disk returned to its pool.
    DiskReturned,
    /// A disk was reconnected, and its pool refused it.
    DiskRefused,
    /// A job started.
    JobStarted,
    /// A job ended; the message has the result.
    JobEnded,
    /// A virtual disk was created.
    VirtualDiskCreated,
    /// A virtual disk was resized.
    VirtualDiskResized,
    /// A virtual disk was destroyed, with its data.
    VirtualDiskDestroyed,
    /// A kind that this version does not know.
    #[serde(other)]
    Other,
}

/// The query of a request for events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventQuery {
    /// Only events with a higher number. A number higher than the newest belongs to an earlier numbering: then all.
    pub after: Option<u64>,
    /// Only events of this pool.
    pub pool: Option<String>,
    /// The maximum number of events: with `after` the oldest ones, so that a reader that continues from its last
    /// number misses none; otherwise the newest ones.
    pub limit: Option<usize>,
}

/// The form of a query.
pub const QUERY: &str =
    "write it like /v1/events?after=NUMBER&pool=NAME&limit=NUMBER; each of them is optional";

impl Happening {
    /// An event with the severity information.
    pub fn new(kind: EventKind, pool: &str, object: String, message: String) -> Happening {
        let (pool, perceived_severity) = (pool.to_owned(), super::health::INFORMATION);
        Happening { kind, perceived_severity, pool, object, message, fault_id: None, fault_type: None }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// As `Get-WinEvent`, with the object.
impl Row for Event {
    const COLUMNS: &'static [Column] = &[
        Column::new("Time (UTC)"),
        Column::new("Severity").state().rank(1),
        Column::new("Pool").rank(3),
        Column::new("Event").rank(3),
        Column::new("Object").wraps(),
        Column::new("Message").wraps(),
    ];

    fn cells(&self) -> Vec<String> {
        let what = &self.what;
        let fault = what.fault_type.as_ref().map_or_else(String::new, |t| format!("{t}: "));
        vec![
            human_time(i64::try_from(self.time_unix_s).unwrap_or_default()),
            severity_text(what.perceived_severity).to_owned(),
            what.pool.clone(),
            what.kind.to_string(),
            what.object.clone(),
            format!("{fault}{}", what.message),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::table;

    #[test]
    fn an_event_as_a_line_and_as_json() {
        let mut what = Happening::new(
            EventKind::FaultRaised,
            "tank",
            "disk 1 (x)".to_owned(),
            "It went away.".to_owned(),
        );
        what.fault_type = Some("PhysicalDisk.LostCommunication".to_owned());
        what.perceived_severity = 5;
        let event = Event { number: 7, time_unix_s: 0, what };
        let text = table(std::slice::from_ref(&event));
        let line = text.lines().last().expect("a row");
        assert_eq!(
            line,
            "1970-01-01 00:00:00  Warning   tank  FaultRaised  disk 1 (x)  PhysicalDisk.LostCommunication: It went away."
        );
        let json = r#"{"number":7,"time_unix_s":0,"kind":"FaultRaised","perceived_severity":5,"pool":"tank","object":"disk 1 (x)","message":"It went away.","fault_type":"PhysicalDisk.LostCommunication"}"#;
        assert_eq!(serde_json::to_string(&event).expect("JSON"), json);
        assert_eq!(serde_json::from_str::<Event>(json).expect("an event"), event);
        let newer = json.replace("FaultRaised", "PoolPainted");
        assert_eq!(serde_json::from_str::<Event>(&newer).expect("an event").what.kind, EventKind::Other);
    }
}
