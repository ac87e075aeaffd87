//! Detects replayed CREATE requests (MS-SMB2 3.3.5.9, 3.3.5.9.10): a client that lost its connection does not know
//! whether its CREATE was carried out. It identifies each one by a CreateGuid.
//!
//! A CREATE with a CreateGuid reserves it before the file is opened, so that a replay on another channel finds that the
//! original is still running.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use smb_wire::Guid;

use crate::Server;
use crate::open::Open;

/// ClientGuid and CreateGuid.
type CreateId = (Guid, Guid);

/// The state of each CREATE with a CreateGuid.
#[derive(Default)]
pub(crate) struct CreateTable(Mutex<HashMap<CreateId, State>>);

#[derive(Clone, Copy)]
enum State {
    /// It is being carried out.
    Running,
    /// It created this open, by its persistent id.
    Done(u64),
}

/// The result of [`Server::reserve_create`].
pub(crate) enum CreateLookup {
    /// The CreateGuid was unknown: it is reserved now.
    New(ReservedCreate),
    /// The same CREATE is still running.
    Running,
    /// It created this open, which no request has used since.
    Completed(Arc<Open>),
}

/// A CreateGuid reserved for the running CREATE; released when this is dropped before [`ReservedCreate::complete`].
pub(crate) struct ReservedCreate {
    server: Arc<Server>,
    id: CreateId,
    done: bool,
}

impl Server {
    /// Looks a CREATE up by its client and CreateGuid, and reserves the CreateGuid if it is unknown.
    pub(crate) fn reserve_create(self: &Arc<Self>, client: Guid, create: Guid) -> CreateLookup {
        let id = (client, create);
        let mut creates = self.creates.0.lock();
        match creates.entry(id) {
            Entry::Occupied(mut o) => match *o.get() {
                State::Running => return CreateLookup::Running,
                State::Done(open) => {
                    let open = self.opens.find(open).filter(|o| o.replayable.load(Ordering::Relaxed));
                    if let Some(open) = open {
                        return CreateLookup::Completed(open);
                    }
                    o.insert(State::Running);
                }
            },
            Entry::Vacant(v) => {
                v.insert(State::Running);
            }
        }
        CreateLookup::New(ReservedCreate { server: Arc::clone(self), id, done: false })
    }
}

impl ReservedCreate {
    /// The CREATE has created an open.
    pub(crate) fn complete(mut self, open: u64) {
        self.server.creates.0.lock().insert(self.id, State::Done(open));
        self.done = true;
    }
}

impl Drop for ReservedCreate {
    fn drop(&mut self) {
        if !self.done {
            self.server.creates.0.lock().remove(&self.id);
        }
    }
}

impl CreateTable {
    /// Restores the CreateGuid of an open from before the server's restart.
    pub(crate) fn restore(&self, open: &Open) {
        if let Some(create) = open.created.create_guid {
            self.0.lock().insert((open.created.client, create), State::Done(open.persistent));
        }
    }

    /// An open is closed: its CreateGuid is released.
    pub(crate) fn forget(&self, open: &Open) {
        let Some(create) = open.created.create_guid else { return };
        let id = (open.created.client, create);
        let mut creates = self.0.lock();
        if matches!(creates.get(&id), Some(State::Done(p)) if *p == open.persistent) {
            creates.remove(&id);
        }
    }
}
