//! The view: the displayed values, a pure function of two samples.

use std::collections::BTreeMap;

use counters::levels::PROCESS;
use counters::{InstanceSnapshot, sample};
use schemars::JsonSchema;
use serde::Serialize;

use super::columns::{CREDIT_STALLS, Column, KINDS, Kind, Listed, Source};
use super::sample::Sample;
use super::why::why_not_rdma;
use crate::control::types::{Channel, Listener, SessionStatus};

/// The displayed values.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub(in crate::commands) struct View {
    /// Wall clock of the later sample.
    pub(super) unix_ms: u64,
    /// The interval of rates and averages; none before the second sample.
    pub(super) interval_s: Option<f64>,
    pub(super) server: Header,
    pub(super) shares: Vec<Row>,
    pub(super) sessions: Vec<Row>,
    pub(super) smb_direct: Vec<Row>,
    pub(super) rdma: Vec<Row>,
    pub(super) pools: Vec<Row>,
    pub(super) virtual_disks: Vec<Row>,
    pub(super) physical_disks: Vec<Row>,
    pub(super) jobs: Vec<Row>,
}

/// The server as a whole.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub(in crate::commands) struct Header {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) pid: u32,
    pub(super) uptime_s: u64,
    pub(super) listeners: Vec<Listener>,
    /// Of one core.
    pub(super) cpu_percent: Option<f64>,
    /// Memory of the whole process; absent from older servers.
    pub(super) resident: Option<u64>,
    /// Of the process.
    pub(super) open_files: Option<u64>,
    pub(super) memory_used: u64,
    pub(super) memory_budget: u64,
    /// Requests that wait for payload memory.
    pub(super) memory_waiting: usize,
    pub(super) connections: usize,
    pub(super) sessions: usize,
    pub(super) opens: usize,
    /// How often per second sending by SMB Direct stopped because a credit was missing, over all connections.
    pub(super) credit_stalls_per_s: Option<f64>,
}

/// One line of a table.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub(in crate::commands) struct Row {
    /// Name of the instance.
    pub(super) name: String,
    /// The sum of the others.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) total: bool,
    /// By the column's key.
    #[serde(flatten, serialize_with = "by_key")]
    #[schemars(with = "BTreeMap<String, Value>")]
    pub(super) values: Vec<(&'static str, Value)>,
    /// The session's details; only in rows of sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<Session>,
}

/// The details of a session.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub(in crate::commands) struct Session {
    pub(super) id: String,
    pub(super) channels: Vec<Channel>,
    /// Why no channel is SMB Direct; none if one is.
    pub(super) why_not_rdma: Option<String>,
}

/// One cell.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[serde(untagged)]
pub(in crate::commands) enum Value {
    /// Not known, or not known yet.
    None,
    Number(f64),
    Text(String),
}

fn by_key<S: serde::Serializer>(values: &[(&'static str, Value)], s: S) -> Result<S::Ok, S::Error> {
    s.collect_map(values.iter().map(|(k, v)| (k, v)))
}

impl View {
    /// Computes the view of `now` and the sample before it. Without the latter, values that need two samples are
    /// [`Value::None`].
    pub(super) fn new(before: Option<&Sample>, now: &Sample) -> View {
        let before = before.filter(|b| now.follows(b));
        let [shares, sessions, smb_direct, rdma, pools, virtual_disks, physical_disks, jobs] =
            KINDS.map(|kind| match kind {
                Kind::Sessions => sessions(before, now),
                _ => counted(kind, before, now),
            });
        View {
            unix_ms: now.counters.unix_ms,
            interval_s: before.map(|b| now.seconds_since(b)),
            server: header(before, now),
            shares,
            sessions,
            smb_direct,
            rdma,
            pools,
            virtual_disks,
            physical_disks,
            jobs,
        }
    }

    /// The rows of a table.
    pub(super) fn rows(&self, kind: Kind) -> &[Row] {
        match kind {
            Kind::Shares => &self.shares,
            Kind::Sessions => &self.sessions,
            Kind::Direct => &self.smb_direct,
            Kind::Rdma => &self.rdma,
            Kind::Pools => &self.pools,
            Kind::Spaces => &self.virtual_disks,
            Kind::Disks => &self.physical_disks,
            Kind::Jobs => &self.jobs,
        }
    }
}

fn header(before: Option<&Sample>, now: &Sample) -> Header {
    let s = &now.server;
    let cpu = before.and_then(|b| {
        let used = s.cpu_ns?.checked_sub(b.server.cpu_ns?)?;
        Some(used as f64 / 1e7 / now.seconds_since(b))
    });
    let process = |metric| now.counters.value(&PROCESS, "causeway", metric);
    let set = Kind::Direct.set();
    let stalls = set.counters().find(|c| c.name == CREDIT_STALLS);
    let (old, new) = totals(Kind::Direct, before, now);
    let earlier = before.zip(old.as_ref()).map(|(b, old)| (&b.counters, old));
    Header {
        name: s.name.clone(),
        version: s.version.clone(),
        pid: s.pid,
        uptime_s: s.uptime_s,
        listeners: s.listeners.clone(),
        cpu_percent: cpu,
        resident: process("resident_bytes"),
        open_files: process("open_files"),
        memory_used: s.memory.used,
        memory_budget: s.memory.budget,
        memory_waiting: s.memory.waiting,
        connections: s.connections,
        sessions: s.sessions,
        opens: s.opens,
        credit_stalls_per_s: stalls.and_then(|c| sample::value(set, c, earlier, (&now.counters, &new))),
    }
}

/// The instances of a set, with their sum first if the table has one.
fn counted(kind: Kind, before: Option<&Sample>, now: &Sample) -> Vec<Row> {
    let set = kind.set();
    let mut rows = Vec::new();
    if kind.has_total() {
        let (old, new) = totals(kind, before, now);
        let values = values(kind, before, old.as_ref(), now, Some(&new), None);
        rows.push(Row { name: "Total".to_owned(), total: true, values, session: None });
    }
    rows.extend(now.counters.of(set).iter().map(|i| Row {
        name: i.instance.clone(),
        values: values(kind, before, earlier(kind, before, &i.instance), now, Some(i), None),
        ..Row::default()
    }));
    rows
}

fn sessions(before: Option<&Sample>, now: &Sample) -> Vec<Row> {
    let row = |s: &SessionStatus| {
        let counted = sample::same(&now.counters, Kind::Sessions.set(), &s.id);
        let earlier = earlier(Kind::Sessions, before, &s.id);
        Row {
            name: format!("{}@{}", s.user, s.client),
            values: values(Kind::Sessions, before, earlier, now, counted, Some(s)),
            session: Some(Session {
                id: s.id.clone(),
                channels: s.channels.clone(),
                why_not_rdma: why_not_rdma(&now.server, s),
            }),
            ..Row::default()
        }
    };
    now.sessions.iter().map(row).collect()
}

fn earlier<'a>(kind: Kind, before: Option<&'a Sample>, instance: &str) -> Option<&'a InstanceSnapshot> {
    sample::same(&before?.counters, kind.set(), instance)
}

fn values(
    kind: Kind,
    before: Option<&Sample>,
    old: Option<&InstanceSnapshot>,
    now: &Sample,
    new: Option<&InstanceSnapshot>,
    session: Option<&SessionStatus>,
) -> Vec<(&'static str, Value)> {
    let set = kind.set();
    let number = |c: &Column| {
        let earlier = before.zip(old).map(|(b, i)| (&b.counters, i));
        let value = sample::value(set, c.counter(set)?, earlier, (&now.counters, new?))?;
        Some(Value::Number(value * c.scale))
    };
    let cell = |c: &Column| match c.source {
        Source::Beside(set, _) => {
            let here = new.and_then(|i| sample::same(&now.counters, set, &i.instance));
            let value =
                c.counter(set).zip(here).and_then(|(of, i)| sample::value(set, of, None, (&now.counters, i)));
            value.map_or(Value::None, |value| Value::Number(value * c.scale))
        }
        Source::Listed(what, _) => session.map_or(Value::None, |s| session_value(what, s)),
        _ => number(c).unwrap_or(Value::None),
    };
    kind.columns().iter().map(|c| (c.key, cell(c))).collect()
}

fn session_value(what: Listed, s: &SessionStatus) -> Value {
    let protection = match (s.encrypted, s.signed) {
        (true, _) => "encr",
        (false, true) => "sign",
        (false, false) => "none",
    };
    match what {
        Listed::Opens => Value::Number(s.opens as f64),
        Listed::Dialect => Value::Text(s.dialect.clone()),
        Listed::Protection => Value::Text(protection.to_owned()),
        Listed::IdleSeconds => Value::Number(s.idle_s as f64),
    }
}

/// The sum of a set's instances, before and now. Removed instances are in neither; new ones start at zero.
fn totals(kind: Kind, before: Option<&Sample>, now: &Sample) -> (Option<InstanceSnapshot>, InstanceSnapshot) {
    let list = now.counters.of(kind.set());
    let old = before.map(|b| {
        let same = |i: &InstanceSnapshot| sample::same(&b.counters, kind.set(), &i.instance);
        sum(kind, list.iter().filter_map(same))
    });
    (old, sum(kind, list.iter()))
}

fn sum<'a>(kind: Kind, list: impl Iterator<Item = &'a InstanceSnapshot>) -> InstanceSnapshot {
    let mut values: BTreeMap<String, u64> = kind.set().metrics().map(|m| (m.name.to_owned(), 0)).collect();
    let mut latencies: BTreeMap<String, BTreeMap<u64, u64>> = BTreeMap::new();
    for i in list {
        for (name, n) in &i.values {
            let sum = values.entry(name.clone()).or_default();
            *sum = sum.wrapping_add(*n);
        }
        for (name, buckets) in &i.latencies {
            let sums = latencies.entry(name.clone()).or_default();
            buckets.iter().for_each(|(ns, n)| *sums.entry(*ns).or_default() += n);
        }
    }
    InstanceSnapshot { instance: String::new(), labels: BTreeMap::new(), values, latencies }
}

#[cfg(test)]
mod tests;
