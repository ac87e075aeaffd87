//! Events in the control interface: `GET /v1/events`.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::health::severity_text;
use crate::output::{Column, Row, human_time};

/// Something that happened, and when.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Event {
    /// One more than that of the event before it, also after a restart if the server keeps its events.
    pub number: u64,
    /// In seconds since 1970.
    pub time_unix_s: u64,
    /// The event.
    #[serde(flatten)]
    pub what: Happening,
}

/// Something that happened to a pool.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Happening {
    /// Of which kind it is.
    pub kind: EventKind,
    /// 4 information, 5 warning, 6 error, as faults have it.
    pub perceived_severity: u8,
    /// The name that the pool had then.
    pub pool: String,
    /// To what: the pool, a disk, a virtual disk or a fault domain.
    pub object: String,
    /// In words.
    pub message: String,
    /// Of a fault: its identity, the same when it is raised and when it is cleared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault_id: Option<String>,
    /// Of a fault: such as `PhysicalDisk.LostCommunication`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault_type: Option<String>,
}

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub enum EventKind {
    /// A fault is there; one that becomes better or worse is cleared and raised.
    FaultRaised,
    /// It is not there any more.
    FaultCleared,
    /// A pool was made.
    PoolCreated,
    /// The server opened it when it started.
    PoolOpened,
    /// It was opened by command.
    PoolImported,
    /// It has another name.
    PoolRenamed,
    /// It was exported.
    PoolExported,
    /// The server gave it up when it ended.
    PoolClosed,
    /// It was erased.
    PoolDestroyed,
    /// A disk is new in a pool.
    DiskAdded,
    /// It is no more of the pool.
    DiskRemoved,
    /// It was taken offline by command; a disk that fails is a fault.
    DiskLeft,
    /// It joined again.
    DiskReturned,
    /// It is back, and the pool did not take it.
    DiskRefused,
    /// A job has begun.
    JobStarted,
    /// It has ended, and how.
    JobEnded,
    /// A virtual disk was made.
    VirtualDiskCreated,
    /// It has another size.
    VirtualDiskResized,
    /// It is gone, with what was on it.
    VirtualDiskDestroyed,
    /// One that this version does not know.
    #[serde(other)]
    Other,
}

/// The events that a request asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventQuery {
    /// Those with a higher number. A number that no event has yet is one of a numbering before this: then all.
    pub after: Option<u64>,
    /// Those of this pool.
    pub pool: Option<String>,
    /// At most so many: after a number, the first of those, so that a reader that continues from its last
    /// number misses none; otherwise the newest.
    pub limit: Option<usize>,
}

/// The form of a query.
pub const QUERY: &str =
    "write it like /v1/events?after=NUMBER&pool=NAME&limit=NUMBER, each of them if it is wanted";

impl Happening {
    /// Something that is good to know.
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

/// As `Get-WinEvent`, with what it happened to.
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
