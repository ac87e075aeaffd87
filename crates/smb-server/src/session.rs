//! Sessions and their channels.
//!
//! A session (MS-SMB2 3.3.1.8) belongs to the server, not to a connection: its channels (3.3.1.14) may lie on several
//! connections, which may lie on several workers. The state of a channel (its signing key) is kept by the connection;
//! the state of the session is here, behind locks that are held for map operations only.
//!
//! Invariants:
//! 1. `trees` and `opens` are empty once `ended` is set, and stay so.
//! 2. An open is in `opens` exactly as long as this session is its owner.
//! 3. Nonces for encryption come from `sealer` alone, for all channels.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use counters::InstanceGuard;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use smb_auth::crypt::{Opener, Sealer};
use smb_auth::sign::SigningKey;
use smb_wire::Guid;

use crate::connection::SharedCredits;
use crate::identity::User;
use crate::inbox::{Inbox, Notice};
use crate::share::Tree;

pub(crate) struct Session {
    pub(crate) id: u64,
    pub(crate) user: User,
    /// Facts that every further channel must match (MS-SMB2 3.3.5.5.2).
    pub(crate) binding: BindingFacts,
    /// The key that signs SESSION_SETUP requests which bind further channels.
    pub(crate) signing: Arc<SigningKey>,
    pub(crate) ciphers: Option<Ciphers>,
    /// Every request must be encrypted (Session.EncryptData).
    pub(crate) encrypt: bool,
    /// Every request must be signed (Session.SigningRequired).
    pub(crate) signing_required: bool,
    pub(crate) created: Instant,
    pub(crate) channels: Mutex<Vec<ChannelFacts>>,
    trees: Mutex<FxHashMap<u32, Arc<Tree>>>,
    /// The persistent ids of its opens; the server's table has the opens.
    opens: Mutex<FxHashSet<u64>>,
    next_tree: AtomicU64,
    ended: AtomicBool,
    /// Its client has authenticated again anonymously: it may use existing opens, but not create new ones
    /// (Session.IsAnonymous).
    anonymous: AtomicBool,
    /// How the last request was protected: see [`Session::saw`].
    protection: AtomicU8,
    /// In microseconds since the server started; for listings.
    pub(crate) last_used_us: AtomicU64,
    /// Set when it is registered in the server.
    pub(crate) counted: OnceLock<InstanceGuard>,
}

/// Facts of the first channel that later channels must share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BindingFacts {
    pub(crate) dialect: u16,
    pub(crate) client_guid: Guid,
    pub(crate) cipher: Option<smb_auth::crypt::Cipher>,
}

/// A session's encryption, one per session so that a nonce is never used twice.
pub(crate) struct Ciphers {
    pub(crate) sealer: Sealer,
    pub(crate) opener: Opener,
}

/// One channel, for listings.
#[derive(Clone, Debug)]
pub(crate) struct ChannelFacts {
    pub(crate) connection: u64,
    pub(crate) peer: SocketAddr,
    pub(crate) transport: crate::TransportKind,
    pub(crate) credits: Arc<SharedCredits>,
    pub(crate) inbox: Arc<Inbox>,
}

/// How a request was protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Protected {
    No,
    Signed,
    Encrypted,
}

impl Session {
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        id: u64,
        user: User,
        binding: BindingFacts,
        signing: Arc<SigningKey>,
        ciphers: Option<Ciphers>,
        encrypt: bool,
        signing_required: bool,
        created: Instant,
    ) -> Session {
        Session {
            id,
            user,
            binding,
            signing,
            ciphers,
            encrypt,
            signing_required,
            created,
            channels: Mutex::default(),
            trees: Mutex::default(),
            opens: Mutex::default(),
            next_tree: AtomicU64::new(1),
            ended: AtomicBool::new(false),
            anonymous: AtomicBool::new(false),
            protection: AtomicU8::new(Protected::No as u8),
            last_used_us: AtomicU64::new(0),
            counted: OnceLock::new(),
        }
    }

    pub(crate) fn is_anonymous(&self) -> bool {
        self.anonymous.load(Ordering::Acquire)
    }

    pub(crate) fn set_anonymous(&self, anonymous: bool) {
        self.anonymous.store(anonymous, Ordering::Release);
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Records how a request was protected.
    pub(crate) fn saw(&self, protected: Protected) {
        // The value rarely changes: a cache line that is only read is shared by all workers.
        if self.protection.load(Ordering::Relaxed) != protected as u8 {
            self.protection.store(protected as u8, Ordering::Relaxed);
        }
    }

    /// Whether requests are signed: signing is required, or the last request was signed. Encrypted requests are not
    /// signed (MS-SMB2 3.2.4.1.1).
    pub(crate) fn is_signing(&self) -> bool {
        !self.is_encrypting()
            && (self.signing_required || self.protection.load(Ordering::Relaxed) == Protected::Signed as u8)
    }

    /// Whether requests are encrypted: encryption is required, or the last request was encrypted.
    pub(crate) fn is_encrypting(&self) -> bool {
        self.encrypt || self.protection.load(Ordering::Relaxed) == Protected::Encrypted as u8
    }

    /// Adds a tree connect made by `make` from its new id; `None` at the bound or when the session has ended.
    pub(crate) fn add_tree(&self, limit: usize, make: impl FnOnce(u32) -> Tree) -> Option<Arc<Tree>> {
        let mut trees = self.trees.lock();
        if trees.len() >= limit || self.is_ended() {
            return None;
        }
        loop {
            let id = self.next_tree.fetch_add(1, Ordering::Relaxed) as u32;
            if id == 0 || id == u32::MAX || trees.contains_key(&id) {
                continue;
            }
            let tree = Arc::new(make(id));
            trees.insert(id, Arc::clone(&tree));
            return Some(tree);
        }
    }

    pub(crate) fn tree(&self, id: u32) -> Option<Arc<Tree>> {
        self.trees.lock().get(&id).cloned()
    }

    pub(crate) fn remove_tree(&self, id: u32) -> Option<Arc<Tree>> {
        self.trees.lock().remove(&id)
    }

    pub(crate) fn trees(&self) -> Vec<Arc<Tree>> {
        self.trees.lock().values().cloned().collect()
    }

    /// Adds an open by its persistent id; false when the session or the tree connect has ended (the caller closes it
    /// then).
    pub(crate) fn add_open(&self, open: u64, tree: &Tree) -> bool {
        let mut opens = self.opens.lock();
        let may = !self.is_ended() && tree.is_live();
        if may {
            opens.insert(open);
        }
        may
    }

    pub(crate) fn remove_open(&self, open: u64) {
        self.opens.lock().remove(&open);
    }

    /// The persistent ids of its opens.
    pub(crate) fn opens(&self) -> Vec<u64> {
        self.opens.lock().iter().copied().collect()
    }

    /// Sends a notice to its client over the first channel that accepts it.
    pub(crate) fn send(&self, notice: Notice) -> bool {
        self.channels.lock().iter().any(|c| c.inbox.send(notice))
    }

    /// Whether it has a connection that has not ended.
    pub(crate) fn is_reachable(&self) -> bool {
        self.channels.lock().iter().any(|c| !c.inbox.is_closed())
    }

    pub(crate) fn open_count(&self) -> usize {
        self.opens.lock().len()
    }

    /// Ends the session: removes all its opens and returns them, to be closed or disconnected. Later calls return none.
    pub(crate) fn end(&self) -> Vec<u64> {
        self.ended.store(true, Ordering::Release);
        self.trees.lock().drain().for_each(|(_, tree)| tree.leave());
        for channel in self.channels.lock().drain(..) {
            channel.inbox.send(Notice::SessionEnded(self.id));
        }
        self.opens.lock().drain().collect()
    }
}
