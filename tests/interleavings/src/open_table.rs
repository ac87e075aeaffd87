//! The table of opens and the ownership of an open: an open is closed once, and its earlier FileIds are refused.

use loom::thread;
use smb_wire::{FileId, Guid};

use crate::explore;
use crate::opens::{Identified, OpenTable};
use crate::ownership::{FIRST_DISCONNECTION, Ownership};
use crate::sync::Arc;

/// A minimal model of the server's open. An owner is a session number.
struct Open {
    persistent: u64,
    ownership: Ownership<u32>,
}

impl Identified for Open {
    fn id(&self) -> FileId {
        FileId { persistent: self.persistent, volatile: self.ownership.volatile() }
    }

    fn create_guid(&self) -> Option<Guid> {
        Some(CREATE)
    }

    fn instance(&self) -> Option<Guid> {
        None
    }
}

type Table = Arc<OpenTable<Open>>;

const PERSISTENT: u64 = 1;
const CREATE: Guid = Guid([7; 16]);

/// A table with an open of session 1 with volatile ID 1.
fn table() -> Table {
    let table = OpenTable::new(0);
    table.insert(Arc::new(Open { persistent: PERSISTENT, ownership: Ownership::new(1, 1, 1) }));
    Arc::new(table)
}

fn open(table: &Table) -> Option<Arc<Open>> {
    table.find(PERSISTENT)
}

/// Models `Server::release_if`: returns whether the caller must close the open.
fn close(table: &Table, disconnection: Option<u64>) -> bool {
    let Some(open) = open(table) else { return false };
    if open.ownership.begin_close(disconnection).is_none() {
        return false;
    }
    table.remove(PERSISTENT);
    true
}

/// Models `Server::expire` with the end stored: returns whether the caller closes the open.
fn expire(table: &Table, disconnection: u64) -> bool {
    let Some(open) = open(table) else { return false };
    if !open.ownership.begin_expiry(disconnection) {
        return false;
    }
    assert!(open.ownership.begin_close(None).is_none(), "it is ended by one");
    open.ownership.finish_expiry();
    table.remove(PERSISTENT);
    true
}

/// Models the lookup of an open by a request of session `session`: by FileId, and only its own opens.
fn is_used(table: &Table, session: u32, volatile: u64) -> bool {
    let found = table.get(FileId { persistent: PERSISTENT, volatile });
    found.is_some_and(|open| open.ownership.is_named(volatile, |owner| *owner == session))
}

fn spawn<T: 'static>(table: &Table, work: impl FnOnce(&Table) -> T + 'static) -> thread::JoinHandle<T> {
    let table = Arc::clone(table);
    thread::spawn(move || work(&table))
}

#[test]
fn closed_once() {
    explore(|| {
        let table = table();
        let other = spawn(&table, |table| close(table, None));
        let closed = usize::from(close(&table, None)) + usize::from(other.join().expect("no panic"));
        assert_eq!(closed, 1);
        assert!(open(&table).is_none() && !is_used(&table, 1, 1));
    });
}

/// CLOSE races with the loss of the connection: the open is closed, or it is disconnected and closed when its
/// time expires.
#[test]
fn a_close_meets_a_disconnect() {
    explore(|| {
        let table = table();
        let closing = spawn(&table, |table| close(table, None));
        let disconnection = open(&table).and_then(|open| open.ownership.disconnect());
        let expired = disconnection.is_some_and(|disconnection| expire(&table, disconnection));
        assert!(closing.join().expect("no panic") != expired, "one of them closes it");
        assert!(open(&table).is_none() && !is_used(&table, 1, 1));
    });
}

/// A client reconnects, its open expires, and another client takes the open over, all concurrently: exactly
/// one succeeds.
#[test]
fn a_take_over_meets_its_end() {
    explore(|| {
        let table = table();
        let disconnection =
            open(&table).and_then(|open| open.ownership.disconnect()).expect("it had an owner");
        let expires = spawn(&table, move |table| expire(table, disconnection));
        let second = spawn(&table, |table| open(table).is_some_and(|open| open.ownership.reconnect(2, 2, 2)));
        let third = open(&table).is_some_and(|open| open.ownership.reconnect(3, 3, 3));
        let (expired, second) = (expires.join().expect("no panic"), second.join().expect("no panic"));
        assert_eq!([expired, second, third].iter().filter(|has| **has).count(), 1);
        assert_eq!(is_used(&table, 2, 2), second);
        assert_eq!(is_used(&table, 3, 3), third);
        assert_eq!(open(&table).is_none(), expired);
        assert_eq!(table.find_by_create_guid(CREATE).is_empty(), expired);
        assert!(!is_used(&table, 1, 1), "the first client's FileId is over");
    });
}

/// Late requests of the old client and requests of the new one, while the open passes to the new one.
#[test]
fn never_used_by_the_old_client_after_a_take_over() {
    explore(|| {
        let table = table();
        let moving = spawn(&table, |table| {
            let open = open(table).expect("it is not closed");
            open.ownership.disconnect().expect("it had an owner");
            assert!(!is_used(table, 1, 1), "its client is away");
            assert!(open.ownership.reconnect(2, 2, 2));
            assert!(!is_used(table, 1, 1) && is_used(table, 2, 2));
        });
        let late = spawn(&table, |table| {
            // Once the new client owns the open, the old one does not.
            let new = is_used(table, 2, 2);
            (new, is_used(table, 1, 1))
        });
        assert!(!is_used(&table, 2, 1) && !is_used(&table, 1, 2), "an id is one client's");
        let (new, old) = late.join().expect("no panic");
        assert!(!(new && old), "used by the old client after the take-over");
        moving.join().expect("no panic");
        let open = open(&table).expect("it is not closed");
        assert_eq!((open.ownership.owner(), open.ownership.tree()), (Some(2), 2));
        assert_eq!(open.ownership.disconnection(), None);
    });
}

/// The expiry of a disconnection from before a restart cannot be stored while the client reconnects: the open
/// stays disconnected, or the client owns it.
#[test]
fn an_end_that_is_not_stored_meets_its_client() {
    explore(|| {
        let table = OpenTable::new(0);
        table.insert(Arc::new(Open { persistent: PERSISTENT, ownership: Ownership::disconnected() }));
        let table = Arc::new(table);
        let ending = spawn(&table, |table| {
            let open = open(table).expect("it is not closed");
            open.ownership.begin_expiry(FIRST_DISCONNECTION).then(|| open.ownership.cancel_expiry())
        });
        let back = open(&table).is_some_and(|open| open.ownership.reconnect(2, 2, 2));
        let again = ending.join().expect("no panic");
        let open = open(&table).expect("it is not closed");
        assert!(back || again.is_some(), "the one that was later found the other's work done");
        assert_eq!((open.ownership.is_disconnected(), is_used(&table, 2, 2)), (!back, back));
        assert!(!expire(&table, FIRST_DISCONNECTION), "that disconnection is over");
        assert_eq!(open.ownership.disconnection(), again.filter(|_| !back));
    });
}

#[test]
fn numbers_are_given_once() {
    explore(|| {
        let table = table();
        let other = spawn(&table, |table| (table.number(), table.persistent_id()));
        let (number, id) = (table.number(), table.persistent_id());
        let (other_number, other_id) = other.join().expect("no panic");
        assert!(number != other_number && id != other_id);
        assert!(id != PERSISTENT && other_id != PERSISTENT, "that is in use");
        assert_eq!((table.all().len(), table.find_by_app_instance(CREATE).len()), (1, 0));
    });
}
