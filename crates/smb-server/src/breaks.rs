//! Sending break notifications of oplocks and leases to clients (MS-SMB2 3.3.4.6, 3.3.4.7), and waiting for
//! acknowledgements.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use parking_lot::Mutex;
use smb_wire::msg::{LeaseBreakFlags, LeaseBreakNotification};
use smb_wire::{Command, Guid, NtStatus};

use crate::Server;
use crate::commands::create::durable_handle::has_create_guid;
use crate::durable::{Durability, TIMEOUT_MAX};
use crate::files::caching::{self, Contention, HolderId, LeaseId, Operation};
use crate::files::{DataChange, FileState, StreamState};
use crate::inbox::{Inbox, Notice};
use crate::open::{FileOpen, Open};
use crate::request::Request;

/// How long a request in the middle of a compound waits for a break.
const COMPOUND_BREAK_WAIT: Duration = Duration::from_millis(500);

/// The connections of each client, by ClientGuid: leases belong to a client, not to a session.
#[derive(Default)]
pub(crate) struct Clients(Mutex<HashMap<Guid, Vec<Arc<Inbox>>>>);

impl Clients {
    pub(crate) fn add(&self, client: Guid, inbox: &Arc<Inbox>) {
        self.0.lock().entry(client).or_default().push(Arc::clone(inbox));
    }

    pub(crate) fn remove(&self, client: Guid, inbox: &Arc<Inbox>) {
        let mut clients = self.0.lock();
        if let Some(list) = clients.get_mut(&client) {
            list.retain(|i| !Arc::ptr_eq(i, inbox));
            if list.is_empty() {
                clients.remove(&client);
            }
        }
    }

    /// How many connections a client has.
    pub(crate) fn connections(&self, client: Guid) -> usize {
        self.0.lock().get(&client).map_or(0, Vec::len)
    }

    /// Sends a notice over the first of a client's connections that accepts it; returns false if none does.
    fn send(&self, client: Guid, notice: Notice) -> bool {
        self.0.lock().get(&client).is_some_and(|list| list.iter().any(|inbox| inbox.send(notice)))
    }
}

/// Which file each lease is on (MS-SMB2 3.3.1.11).
#[derive(Default)]
pub(crate) struct LeaseTable(Mutex<HashMap<LeaseId, LeasedFile>>);

#[derive(Clone)]
pub(crate) struct LeasedFile {
    pub(crate) file: Arc<FileState>,
    pub(crate) stream: Arc<StreamState>,
}

impl LeaseTable {
    pub(crate) fn find(&self, id: LeaseId) -> Option<LeasedFile> {
        self.0.lock().get(&id).cloned()
    }

    /// Runs `join` while no lease of this key is added or removed. `fits` tells whether the file of an existing lease
    /// is the one to join.
    ///
    /// # Errors
    /// `misfit()` if it is not (INVALID_PARAMETER: MS-SMB2 3.3.5.9.8), and the errors of `join`.
    pub(crate) fn join_lease<T, E>(
        &self,
        id: LeaseId,
        fits: impl FnOnce(&LeasedFile) -> bool,
        misfit: impl FnOnce() -> E,
        join: impl FnOnce() -> Result<(T, LeasedFile), E>,
    ) -> Result<T, E> {
        let mut leases = self.0.lock();
        if leases.get(&id).is_some_and(|leased| !fits(leased)) {
            return Err(misfit());
        }
        let (joined, leased) = join()?;
        leases.insert(id, leased);
        Ok(joined)
    }

    /// Restores a lease from before the server's restart.
    pub(crate) fn restore(&self, id: LeaseId, leased: LeasedFile) {
        self.0.lock().insert(id, leased);
    }

    /// Removes a lease whose last open was closed.
    pub(crate) fn forget(&self, id: LeaseId) {
        let mut leases = self.0.lock();
        // A new open may have joined the lease in between.
        if leases.get(&id).is_some_and(|l| l.file.held(HolderId::Lease(id)).is_none()) {
            leases.remove(&id);
        }
    }
}

impl Server {
    /// Sends break notifications for a file. Holders that cannot be reached lose their oplock or lease.
    pub(crate) fn send_breaks(self: &Arc<Self>, file: &Arc<FileState>, notices: &[caching::Notice]) {
        for notice in notices {
            if !self.send_break(notice) {
                self.expire_holder(file, notice);
            }
        }
    }

    fn send_break(&self, notice: &caching::Notice) -> bool {
        let Some(message) = self.message_of(notice) else { return false };
        match notice.holder {
            HolderId::Oplock(open) => {
                let owner = self.opens.find(open).and_then(|open| open.owner());
                owner.is_some_and(|owner| owner.session.send(message))
            }
            HolderId::Lease(id) => self.clients.send(id.client, message),
        }
    }

    /// The notification of a break; `None` for an open that no session owns.
    fn message_of(&self, notice: &caching::Notice) -> Option<Notice> {
        Some(match notice.holder {
            HolderId::Oplock(open) => {
                let open = self.opens.find(open)?;
                let (session, level) = (open.owner()?.session.id, caching::level_of(notice.to));
                Notice::OplockBreak { session, file_id: open.id(), level }
            }
            HolderId::Lease(id) => {
                let mut flags = LeaseBreakFlags::empty();
                flags.set(LeaseBreakFlags::ACK_REQUIRED, notice.acknowledge);
                Notice::LeaseBreak(LeaseBreakNotification {
                    new_epoch: notice.epoch,
                    flags,
                    lease_key: id.key,
                    current_lease_state: notice.from,
                    new_lease_state: notice.to,
                    ..LeaseBreakNotification::default()
                })
            }
        })
    }

    /// Resends a notice that may have been lost when a connection of this client ended, if the break is still pending:
    /// over another channel of the session, or another connection of the client (MS-SMB2 3.3.4.6, 3.3.4.7).
    pub(crate) fn resend_break(self: &Arc<Self>, client: Guid, notice: Notice) {
        match notice {
            Notice::LeaseBreak(m) => {
                let lease = LeaseId { client, key: m.lease_key };
                let Some(leased) = self.leases.find(lease) else { return };
                let holder = HolderId::Lease(lease);
                let acknowledge = m.flags.contains(LeaseBreakFlags::ACK_REQUIRED);
                if acknowledge && !leased.file.held(holder).is_some_and(|held| held.breaking) {
                    return;
                }
                let (from, to) = (m.current_lease_state, m.new_lease_state);
                let notice = caching::Notice { holder, from, to, acknowledge, epoch: m.new_epoch };
                self.send_breaks(&leased.file, &[notice]);
            }
            // Without another connection the session ends, and closes or preserves its opens.
            Notice::OplockBreak { session, file_id, .. } => {
                let Some(open) = self.opens.find(file_id.persistent) else { return };
                // A break from level II to none needs no acknowledgement.
                let held = open.file().and_then(|f| f.file.held(HolderId::Oplock(file_id.persistent)));
                if held.is_none_or(|held| held.breaking) {
                    let _ = self.session(session).is_some_and(|s| s.send(notice));
                }
            }
            Notice::SessionEnded(_) | Notice::Crowded => {}
        }
    }

    /// The break notification that a client may have missed while it was disconnected from this open. Send it after
    /// the reply, which has the open's new FileId ([`crate::request::Reply::with_notice`]). The acknowledgement timer
    /// starts again.
    pub(crate) fn missed_break(&self, open: &Open) -> Option<Notice> {
        let f = open.file()?;
        let notice = f.file.resend_notice(f.holder?, self.env.moment())?;
        self.message_of(&notice)
    }

    /// The client of a persistent open has disconnected. While all opens of its oplock or lease are disconnected, the
    /// timer of a break does not run (MS-SMB2 3.3.4.7: the timer starts when the notification is sent). The client
    /// reconnects within `timeout`, or the opens are closed.
    pub(crate) fn suspend_break(&self, open: &Open, timeout: Duration) {
        let Some((f, id)) = open.file().and_then(|f| Some((f, f.holder?))) else { return };
        if open.durable.lock().durability != Durability::Persistent {
            return;
        }
        let mut opens = f.file.opens_of(id).into_iter().filter_map(|id| self.opens.find(id));
        if opens.all(|o| o.is_disconnected()) {
            f.file
                .suspend_break(id, self.env.moment().after(timeout + caching::ACKNOWLEDGE_PERSISTENT_LEASE));
        }
    }

    /// MS-SMB2 3.3.4.6, 3.3.4.7: the notification could not be sent. Persistent opens keep their oplock or lease until
    /// their client reconnects; a durable open without a client is closed. A request that waits for the break waits for
    /// that close.
    fn expire_holder(self: &Arc<Self>, file: &Arc<FileState>, notice: &caching::Notice) {
        let opens: Vec<_> =
            file.opens_of(notice.holder).into_iter().filter_map(|id| self.opens.find(id)).collect();
        let persistent = opens.iter().find(|o| o.durable.lock().durability == Durability::Persistent);
        if let Some(open) = persistent.filter(|_| notice.acknowledge) {
            self.suspend_break(open, TIMEOUT_MAX);
            return;
        }
        // There is no open yet: the CREATE is not answered, and its response will state the remaining rights.
        if opens.is_empty() {
            file.revoke(notice.holder);
        }
        for open in opens {
            match open.owner() {
                Some(owner) if owner.session.is_reachable() => file.revoke(notice.holder),
                // The session's last connection has ended; the end of the session closes the open, as its handle is not
                // cached any more.
                Some(_) => {}
                // Resilient and persistent opens are preserved, without the oplock or lease.
                None if open.durable.lock().durability == Durability::Durable => {
                    self.close_disconnected(&open)
                }
                None => file.revoke(notice.holder),
            }
        }
    }
}

impl Request {
    /// Waits until the breaks of a contention may be complete; the caller then checks again. The client gets an interim
    /// response, and may cancel the request.
    ///
    /// # Errors
    /// CANCELLED.
    pub(crate) async fn wait_for_breaks(&self, file: &FileState, c: &Contention) -> Result<(), NtStatus> {
        let Some(until) = c.wait_until else { return Ok(()) };
        let env = &self.server.env;
        // In the middle of a compound a request that would become pending is refused (MS-SMB2 3.3.5.2.7 <266>). The
        // Linux client sends a LINK there, and acknowledges the break of its own handle at once: so wait shortly first.
        if self.in_compound && self.header.next_command != 0 {
            let answered = pin!(file.changed_since(c.seen));
            if let Either::Left(_) = select(answered, pin!(env.sleep(COMPOUND_BREAK_WAIT))).await {
                return Ok(());
            }
        }
        self.pending.announce();
        let over = pin!(select(
            Box::pin(file.changed_since(c.seen)),
            Box::pin(env.sleep_until(self.server.until(until)))
        ));
        match select(over, pin!(self.cancelled_or_disconnected())).await {
            Either::Left(_) => Ok(()),
            Either::Right(_) => Err(NtStatus::CANCELLED),
        }
    }

    /// Completes when the request is cancelled: by its client, or by the end of its tree connect, session or connection
    /// (MS-SMB2 3.3.5.6, 3.3.5.8). A CREATE that the client may send again on another channel continues without its
    /// connection.
    async fn cancelled_or_disconnected(&self) {
        let cancelled = async {
            match self.header.command == Command::CREATE && has_create_guid(self) {
                true => self.cancel.cancelled_by_client().await,
                false => self.cancel.cancelled().await,
            }
        };
        select(pin!(cancelled), pin!(self.tree.disconnected())).await;
    }

    /// Breaks the caching rights of other opens that conflict with an operation of this open, and waits for the breaks.
    ///
    /// # Errors
    /// The errors of [`Request::wait_for_breaks`] and [`Server::store_lost_caching`].
    pub(crate) async fn contend(&self, f: &FileOpen, operation: Operation) -> Result<(), NtStatus> {
        let stream = (operation != Operation::Names).then_some(&*f.stream);
        loop {
            let now = self.server.env.moment();
            let contention = f.file.contend(stream, f.holder, operation, now);
            self.server.send_breaks(&f.file, &contention.notices);
            if contention.wait_until.is_none() {
                return self.server.store_lost_caching(&f.file).await;
            }
            self.wait_for_breaks(&f.file, &contention).await?;
        }
    }
}

impl FileOpen {
    /// Data of the stream changes until the guard is dropped: breaks the read caching of other opens. Does not wait.
    #[inline]
    pub(crate) fn changes_data<'f>(&'f self, server: &'f Arc<Server>) -> DataChange<'f> {
        let change = self.file.begin_change(&server.env);
        self.stream.note_change();
        self.breaks_data_caching(server);
        change
    }

    /// Breaks the read caching of other opens. Does not wait.
    #[inline]
    pub(crate) fn breaks_data_caching(&self, server: &Arc<Server>) {
        if self.stream.is_cached_by_others(self.token) {
            let now = server.env.moment();
            let contention = self.file.contend(Some(&self.stream), self.holder, Operation::Data, now);
            server.send_breaks(&self.file, &contention.notices);
        }
    }
}
