//! CREATE requests that may be sent again (MS-SMB2 3.3.5.9, 3.3.5.9.10): a client that lost its connection does not know
//! whether its CREATE was carried out. It names each one by a CreateGuid.
//!
//! A CREATE with a CreateGuid reserves it before the file is opened, so that the same request on another channel finds
//! that the first one is still at work.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use smb_wire::Guid;

use crate::Server;
use crate::open::Open;

/// A client and its name for a CREATE.
type CreateId = (Guid, Guid);

/// What each named CREATE came to.
#[derive(Default)]
pub(crate) struct CreateTable(Mutex<HashMap<CreateId, State>>);

#[derive(Clone, Copy)]
enum State {
    /// It is being carried out.
    Running,
    /// It made this open, by its persistent id.
    Done(u64),
}

/// What a name means when a CREATE comes with it.
pub(crate) enum Named {
    /// Nothing yet: it is reserved now.
    New(Reserved),
    /// The same CREATE is still at work.
    Running,
    /// It made this open, which nobody has used since.
    Made(Arc<Open>),
}

/// A name that is reserved for the CREATE at work; free again when this is dropped before [`Reserved::made`].
pub(crate) struct Reserved {
    server: Arc<Server>,
    id: CreateId,
    done: bool,
}

impl Server {
    /// Looks a CREATE up by its client and name, and reserves the name when it is free.
    pub(crate) fn name_create(self: &Arc<Self>, client: Guid, create: Guid) -> Named {
        let id = (client, create);
        let mut creates = self.creates.0.lock();
        match creates.entry(id) {
            Entry::Occupied(mut o) => match *o.get() {
                State::Running => return Named::Running,
                State::Done(open) => {
                    let open = self.opens.find(open).filter(|o| o.replayable.load(Ordering::Relaxed));
                    if let Some(open) = open {
                        return Named::Made(open);
                    }
                    o.insert(State::Running);
                }
            },
            Entry::Vacant(v) => {
                v.insert(State::Running);
            }
        }
        Named::New(Reserved { server: Arc::clone(self), id, done: false })
    }
}

impl Reserved {
    /// The CREATE has made an open.
    pub(crate) fn made(mut self, open: u64) {
        self.server.creates.0.lock().insert(self.id, State::Done(open));
        self.done = true;
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if !self.done {
            self.server.creates.0.lock().remove(&self.id);
        }
    }
}

impl CreateTable {
    /// The name of an open from before the server was started again.
    pub(crate) fn restore(&self, open: &Open) {
        if let Some(create) = open.created.create_guid {
            self.0.lock().insert((open.created.client, create), State::Done(open.persistent));
        }
    }

    /// An open is closed: its name is free.
    pub(crate) fn forget(&self, open: &Open) {
        let Some(create) = open.created.create_guid else { return };
        let id = (open.created.client, create);
        let mut creates = self.0.lock();
        if matches!(creates.get(&id), Some(State::Done(p)) if *p == open.persistent) {
            creates.remove(&id);
        }
    }
}
