//! CLOSE (MS-SMB2 3.3.5.10) and its effects on the file (MS-FSA 2.1.5.5).

use std::sync::Arc;

use smb_wire::msg::{CloseFlags, CloseRequest, CloseResponse, CompletionFilter};
use smb_wire::{Decode, NtStatus};
use tokio::sync::oneshot;
use vfs::{Attributes, Kind, StreamName, Timestamp, VfsPath, VfsResult};

use super::metadata::basic;
use crate::Server;
use crate::files::Removal;
use crate::journal::RecordRemoval;
use crate::namespace::{Event, EventKind, Origin, StreamChange};
use crate::open::{FileOpen, Open};
use crate::request::{Reply, Request};
use crate::share::Share;
use crate::status;

/// Handles a CLOSE.
pub(crate) async fn handle(r: Request) -> Reply {
    run(&r).await.into()
}

async fn run(r: &Request) -> Result<Reply, NtStatus> {
    let q = CloseRequest::decode(&r.message).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let open = r.open(q.file_id)?;
    // Of two concurrent CLOSEs only one finds the open.
    let open = r.server.release(&open).ok_or(NtStatus::FILE_CLOSED)?;
    let mut body = CloseResponse::default();
    if q.flags.contains(CloseFlags::POSTQUERY_ATTRIB)
        && let Some(f) = open.get().file()
    {
        f.apply_pending_metadata(&r.ctx(), &r.server.env).await;
        if let Ok(stat) = f.stat(&r.ctx(), &r.server.env).await {
            let b = basic(&stat);
            body = CloseResponse {
                flags: CloseFlags::POSTQUERY_ATTRIB,
                creation_time: b.creation_time,
                last_access_time: b.last_access_time,
                last_write_time: b.last_write_time,
                change_time: b.change_time,
                allocation_size: stat.allocation,
                end_of_file: stat.size,
                file_attributes: b.file_attributes,
            };
        }
    }
    // The open is closed in any case; an error means that written data is not stored.
    open.finish().await.map_err(status::of_vfs)?;
    Ok(Reply::ok(&body))
}

/// An open that is in no session: before it is added to one, or after it was removed. It is always closed: in the
/// background if the request that has it is dropped.
pub(crate) struct UnattachedOpen {
    server: Arc<Server>,
    open: Arc<Open>,
    /// Completes when its record is removed from the journal.
    record_removal: Option<RecordRemoval>,
    done: bool,
}

impl UnattachedOpen {
    pub(crate) fn new(server: &Arc<Server>, open: Arc<Open>) -> UnattachedOpen {
        UnattachedOpen { server: Arc::clone(server), open, record_removal: None, done: false }
    }

    /// An open whose record is being removed from the journal.
    pub(crate) fn with_record_removal(
        server: &Arc<Server>,
        open: Arc<Open>,
        record_removal: RecordRemoval,
    ) -> UnattachedOpen {
        UnattachedOpen { server: Arc::clone(server), open, record_removal: Some(record_removal), done: false }
    }

    pub(crate) fn get(&self) -> &Arc<Open> {
        &self.open
    }

    /// Closes the open on the server's initiative; a failure is only logged. Its record is removed from the journal
    /// first: after a restart its client must not find it again, for other opens may have used the file since.
    pub(crate) async fn close(mut self) {
        if let Some(record_removal) = &mut self.record_removal
            && let Err(e) = record_removal.await
        {
            tracing::error!("a file was closed, but its client may still find the open after a restart: {e}");
        }
        self.record_removal = None;
        let _ = self.finish().await;
    }

    /// # Errors
    /// See [`close_open`].
    async fn finish(mut self) -> VfsResult<()> {
        let closed = close_open(&self.server, &self.open).await;
        self.done = true;
        closed
    }

    /// The open was added to a session: it is not closed on drop.
    pub(crate) fn mark_attached(mut self) {
        self.done = true;
    }
}

impl Drop for UnattachedOpen {
    fn drop(&mut self) {
        if !self.done {
            let (server, open) = (Arc::clone(&self.server), Arc::clone(&self.open));
            let record_removal = self.record_removal.take();
            self.server.env.spawn(async move {
                if let Some(record_removal) = record_removal {
                    let _ = record_removal.await; // as in `close`
                }
                let _ = close_open(&server, &open).await; // logged there
            });
        }
    }
}

/// Closes an open that was removed from its session: releases its locks, and removes the file if it is marked for
/// deletion and this was its last open. Pending reads of a pipe complete.
///
/// # Errors
/// Data that was written through it is not stored; the open is closed all the same.
pub(crate) async fn close_open(server: &Arc<Server>, open: &Arc<Open>) -> VfsResult<()> {
    if let Some(pipe) = open.pipe() {
        pipe.close();
    }
    match open.file() {
        Some(f) => close_file(server, open, f).await,
        None => Ok(()),
    }
}

async fn close_file(server: &Arc<Server>, open: &Arc<Open>, f: &FileOpen) -> VfsResult<()> {
    let ctx = env::Ctx::default();
    f.shut().await;
    f.apply_pending_metadata(&ctx, &server.env).await;
    let stored = f.node.close(&ctx).wait().await;
    if f.stream.is_named() {
        // If the stream was written, this has set the last write time of the file.
        f.file.note_written_set(server.env.moment());
    }
    if let Err(e) = stored {
        let path = f.file.path_of(open.persistent);
        let share = f.file.share_of(open.persistent);
        tracing::error!(path = ?path.to_string(), ?share, "a file was closed, but data written to it could not be stored: {e}");
    }
    server.publish_pending_changes(open, f);
    let directory = match f.node.kind() {
        Kind::Directory => f.file.place_of(open.persistent),
        Kind::File => None,
    };
    if let Some((share, _)) = &directory {
        share.watches.closed(open.persistent);
        share.leases.remove(open.persistent);
    }
    let place = f.stream.is_named().then(|| f.file.place_of(open.persistent)).flatten();
    let actions = server.files.leave_file(&f.file, &f.stream, open.persistent);
    if let Some(lease) = actions.ended_lease {
        server.leases.forget(lease);
    }
    if !actions.remove && actions.remove_stream.is_none() {
        // This open may have been the one that marks the directory for deletion.
        if let Some((share, path)) = directory
            && f.file.deleted_names() > 0
        {
            share.watches.delete_pending(&path);
        }
        return stored;
    }
    // In a task of its own: the caller's future may be dropped, and the file could then never be removed.
    let (done, wait) = oneshot::channel::<()>();
    let (server, open) = (Arc::clone(server), Arc::clone(open));
    server.env.clone().spawn(async move {
        if let Some(name) = actions.remove_stream {
            remove_stream(&server, &open, &name, place).await;
        }
        remove_names(&server, &open).await;
        drop(done);
    });
    let _ = wait.await;
    stored
}

/// Removes a named stream whose last open was closed (MS-FSA 2.1.5.5, Stream Deletion). `place`: the share and path of the
/// file in this open.
async fn remove_stream(
    server: &Server,
    open: &Open,
    name: &StreamName,
    place: Option<(Arc<Share>, VfsPath)>,
) {
    let Some(f) = open.file() else { return };
    // An open that found the stream before this change cannot join it afterwards.
    let mut change = None;
    if let Some((share, path)) = &place {
        change.insert(server.namespace.begin_change(share).await).touch(path, f.file.id());
    }
    match (f.node.remove_stream(&env::Ctx::default(), name).wait().await, place) {
        (Ok(_), Some((share, path))) => server.publish_stream(&share, &path, name, StreamChange::Removed),
        (Ok(_), None) => {}
        (Err(e), _) => tracing::debug!(stream = ?name, "a stream could not be removed at close: {e}"),
    }
    drop(change);
    server.files.stream_removed(&f.file, &f.stream, open.persistent);
}

/// Removes the names of a file that the close of this open removes (MS-FSA 2.1.5.5, File Deletion): mostly one.
async fn remove_names(server: &Arc<Server>, open: &Open) {
    let Some(f) = open.file() else { return };
    // The name may change until the change has begun; its share does not. As for a rename, so that no rename of the file
    // runs at the same time.
    while let Some(Removal { share, .. }) = f.file.removal(open.persistent) {
        let mut change = server.namespace.begin_rename(&share, &f.file, false).await;
        if let Some(removal) = f.file.removal(open.persistent) {
            change.touch(&removal.path, removal.id);
            if remove_name(&removal).await {
                // The parent lease is spared only if it belongs both to the open that marked the file and to the one
                // that closed last.
                let parent_lease = f.parent_lease.filter(|key| removal.parent_lease == Some(*key));
                let origin = Origin::Open { parent_lease };
                let event_kind = EventKind::Removed(f.node.kind());
                server.publish(&removal.share, &Event { path: &removal.path, event_kind, origin });
            }
        }
        drop(change);
        server.files.removed(&f.file, open.persistent);
    }
}

/// Removes the name; returns whether it is removed. MS-FSA 2.1.5.5: a failure is reported to no client; a directory
/// that is no longer empty stays.
async fn remove_name(removal: &Removal) -> bool {
    let Some(vfs) = removal.share.vfs() else { return false };
    let removed = vfs.remove(&env::Ctx::default(), &removal.path, removal.id).wait().await;
    if let Err(e) = &removed {
        let (path, share) = (removal.path.to_string(), &removal.share.name);
        tracing::debug!(?path, ?share, "a file could not be removed at close: {e}");
    }
    removed.is_ok()
}

impl FileOpen {
    /// Applies the pending metadata changes of writes through this open (MS-FSA 2.1.5.3): sets FILE_ATTRIBUTE_ARCHIVE,
    /// and restores times that were set or frozen through this open.
    pub(crate) async fn apply_pending_metadata(&self, ctx: &env::Ctx, env: &env::Env) {
        let due = self.write_time.close();
        if !due.written {
            return;
        }
        let mut change = *self.fixed_times.lock();
        if due.time && change.written.is_none() {
            let now = env.unix_time();
            change.written =
                Some(Timestamp { seconds: now.as_secs() as i64, nanoseconds: now.subsec_nanos() });
        }
        let _one = self.file.metadata().await;
        if change.written.is_some() {
            self.file.note_written_set(env.moment());
        }
        let Ok(stat) = self.node.stat(ctx).wait().await else { return };
        if !stat.attributes.intersects(Attributes::ARCHIVE | Attributes::DIRECTORY) {
            change.attributes = Some((stat.attributes & Attributes::STORED) | Attributes::ARCHIVE);
            self.file.add_pending_change(CompletionFilter::ATTRIBUTES);
        }
        if (change.attributes.is_some()
            || change.accessed.is_some()
            || change.written.is_some()
            || change.changed.is_some())
            && let Err(e) = self.node.set_basic(ctx, change).wait().await
        {
            tracing::debug!("the times and attributes of a file could not be set at close: {e}");
        }
    }
}
