//! A journal in memory, for tests: it can delay changes, fail them, and be reopened by the next server.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

use env::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{JournalResult, OpenJournal, OpenRecord};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct MemoryJournal(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The records on stable storage.
    stored: BTreeMap<u64, OpenRecord>,
    /// The records that the next [`OpenJournal::take_all`] returns.
    found: Vec<OpenRecord>,
    /// Changes that have been begun and are not stored, in order.
    waiting: VecDeque<Change>,
    holds: bool,
    fails: bool,
}

#[derive(Debug)]
struct Change {
    id: u64,
    /// `None` removes the record.
    record: Option<OpenRecord>,
    done: oneshot::Sender<JournalResult>,
}

impl State {
    fn apply_waiting(&mut self) {
        while let Some(change) = self.waiting.pop_front() {
            let result = if self.fails { Err(io::Error::other("as the test wants it")) } else { Ok(()) };
            match (&result, change.record) {
                (Ok(()), Some(record)) => drop(self.stored.insert(change.id, record)),
                (Ok(()), None) => drop(self.stored.remove(&change.id)),
                (Err(_), _) => {}
            }
            let _ = change.done.send(result);
        }
    }
}

impl MemoryJournal {
    /// The journal that the next run of the server opens: the records that are on stable storage now.
    pub(crate) fn reopened(&self) -> Arc<MemoryJournal> {
        let stored = self.0.lock().stored.clone();
        let found = stored.values().cloned().collect();
        Arc::new(MemoryJournal(Mutex::new(State { stored, found, ..State::default() })))
    }

    /// With true, delays all further changes; with false, stores the delayed and all later ones.
    pub(crate) fn hold(&self, holds: bool) {
        let mut state = self.0.lock();
        state.holds = holds;
        if !holds {
            state.apply_waiting();
        }
    }

    /// The records of delayed changes.
    pub(crate) fn delayed(&self) -> Vec<OpenRecord> {
        self.0.lock().waiting.iter().filter_map(|change| change.record.clone()).collect()
    }

    /// Whether changes fail from now on, the delayed ones included.
    pub(crate) fn fail(&self, fails: bool) {
        self.0.lock().fails = fails;
    }

    /// The record of an open on stable storage.
    pub(crate) fn record(&self, id: u64) -> Option<OpenRecord> {
        self.0.lock().stored.get(&id).cloned()
    }

    /// Records on stable storage.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().stored.len()
    }

    fn change(&self, id: u64, record: Option<OpenRecord>) -> BoxFuture<JournalResult> {
        let (done, wait) = oneshot::channel();
        let mut state = self.0.lock();
        state.waiting.push_back(Change { id, record, done });
        if !state.holds {
            state.apply_waiting();
        }
        Box::pin(async move { wait.await.unwrap_or_else(|_| Err(io::Error::other("the journal is gone"))) })
    }
}

impl OpenJournal for MemoryJournal {
    fn put(&self, record: &OpenRecord) -> BoxFuture<JournalResult> {
        self.change(record.id, Some(record.clone()))
    }

    fn remove(&self, id: u64) -> BoxFuture<JournalResult> {
        self.change(id, None)
    }

    fn take_all(&self) -> Vec<OpenRecord> {
        std::mem::take(&mut self.0.lock().found)
    }
}
