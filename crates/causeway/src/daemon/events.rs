//! Events of pools: the newest in memory, and in a file if the server has a state directory.
//!
//! Invariants:
//! 1. Numbers increase by one from event to event, and continue those of the file.
//! 2. Recording an event waits for no disk: a separate thread writes to the file. If an event cannot be written,
//!    this is logged once, and the event is kept in memory.
//! 3. Memory has the newest [`EVENTS_MAX`] events; the file is bounded too ([`file`]).
//!
//! The file is not flushed: a power cut may lose its last events.

mod file;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::mpsc::{self, SyncSender};
use std::thread::{self, JoinHandle};

use env::Env;
use parking_lot::Mutex;

use crate::control::events::{Event, EventKind, EventQuery, Happening};
use file::EventFile;

/// Events that are in memory.
pub const EVENTS_MAX: usize = 1024;

/// Events that may wait for the file.
const QUEUE_MAX: usize = 1024;

/// See the module.
pub struct Events {
    env: Env,
    ring: Mutex<Ring>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Ring {
    /// The number of the newest event; 0 if there is none.
    newest: u64,
    events: VecDeque<Event>,
    /// The queue of the thread that writes the file.
    to_file: Option<SyncSender<Event>>,
    /// The queue is full, because the thread is too slow; this was logged.
    is_behind: bool,
}

impl Events {
    /// Reads the events of the directory, and writes new ones there; without a directory they are in memory only.
    ///
    /// # Errors
    /// The system cannot create the thread. Problems with the directory are logged.
    pub fn open(directory: Option<&Path>, env: &Env) -> io::Result<Events> {
        let mut ring = Ring::default();
        let mut writer = None;
        if let Some(directory) = directory {
            let (mut file, events) = EventFile::open(directory);
            ring.newest = events.last().map_or(0, |e| e.number);
            ring.events = events.into();
            let (sender, receiver) = mpsc::sync_channel::<Event>(QUEUE_MAX);
            let write = move || receiver.iter().for_each(|event| file.append(&event));
            writer = Some(thread::Builder::new().name("events".to_owned()).spawn(write)?);
            ring.to_file = Some(sender);
        }
        Ok(Events { env: env.clone(), ring: Mutex::new(ring), writer: Mutex::new(writer) })
    }

    /// Records an event.
    pub fn record(&self, what: Happening) {
        let time_unix_s = self.env.unix_time().as_secs();
        let mut ring = self.ring.lock();
        ring.newest += 1;
        let event = Event { number: ring.newest, time_unix_s, what };
        if let Some(to_file) = &ring.to_file {
            let is_behind = to_file.try_send(event.clone()).is_err();
            if is_behind && !ring.is_behind {
                tracing::error!(
                    "events are not kept over a restart, because the disk with server.state is too slow"
                );
            }
            ring.is_behind = is_behind;
        }
        ring.push(event);
    }

    /// The events that match a query, the newest last.
    pub fn list(&self, query: &EventQuery) -> Vec<Event> {
        let ring = self.ring.lock();
        let after = query.after.filter(|after| *after <= ring.newest);
        let of_pool = |e: &&Event| query.pool.as_ref().is_none_or(|pool| *pool == e.what.pool);
        let all = ring.events.iter().filter(|e| e.number > after.unwrap_or(0)).filter(of_pool);
        let limit = query.limit.unwrap_or(EVENTS_MAX);
        match query.after {
            Some(_) => all.take(limit).cloned().collect(),
            None => {
                let mut newest: Vec<Event> = all.rev().take(limit).cloned().collect();
                newest.reverse();
                newest
            }
        }
    }

    /// Whether there is an event of a pool of this name.
    pub fn knows(&self, pool: &str) -> bool {
        self.ring.lock().events.iter().any(|e| e.what.pool == pool)
    }

    /// The last event of each fault that was raised and not cleared, by identity.
    pub fn open_faults(&self) -> BTreeMap<String, Event> {
        let mut open = BTreeMap::new();
        for event in &self.ring.lock().events {
            match (&event.what.fault_id, event.what.kind) {
                (Some(id), EventKind::FaultRaised) => drop(open.insert(id.clone(), event.clone())),
                (Some(id), EventKind::FaultCleared) => drop(open.remove(id)),
                _ => {}
            }
        }
        open
    }

    /// Writes the pending events to the file and ends its thread; later events are in memory only.
    pub fn stop(&self) {
        self.ring.lock().to_file = None;
        if let Some(writer) = self.writer.lock().take()
            && writer.join().is_err()
        {
            tracing::error!("the thread that writes events has panicked");
        }
    }
}

impl Ring {
    fn push(&mut self, event: Event) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}

#[cfg(test)]
mod tests;
