//! CREATE (MS-SMB2 3.3.5.9, MS-FSA 2.1.5.1).
//!
//! The order: checks that need no file ([`rules`]); the backend opens the file, or creates it after it has called the
//! access check ([`open`], [`new_file`]); attributes and security descriptor decide about rights to an existing file
//! ([`rights`]); the open joins its file, which checks share modes, and starts again if names have changed meanwhile
//! ([`retry`]). Only then is an existing file changed ([`change`]): the backend never truncates by itself.

mod change;
mod contexts;
pub(crate) mod durable_handle;
mod new_file;
mod open;
mod reconnect;
mod reparse;
mod resume;
mod retry;
mod rights;
mod rules;
mod snapshot;
mod without_file;

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, select};
use parking_lot::Mutex;
use smb_wire::msg::{CompletionFilter, CreateAction, CreateDisposition, CreateOptions, CreateRequest};
use smb_wire::{AccessMask, Decode, NtStatus};
use vfs::{Opened, StreamName, StreamPart, Vfs, VfsPath};

use self::contexts::RequestedContexts;
pub(crate) use self::contexts::read_attributes;
use super::close::UnattachedOpen;
use super::metadata::posix_created;
use crate::access;
use crate::files::caching::CachingRequest;
use crate::namespace::{Event, EventKind, Hold, StreamChange};
use crate::open::Open;
use crate::replay::ReservedCreate;
use crate::request::{Cancel, Reply, Request};
use crate::share::Share;
use crate::status;
use durable_handle::ReplayCheck;

/// The index of quotas on NTFS, which clients open to ask for quotas.
const QUOTA_INDEX: &str = "$Extend\\$Quota:$Q:$INDEX_ALLOCATION";

/// The properties of a file that overwriting changes, as reported to watches.
const OVERWRITTEN: CompletionFilter = CompletionFilter::ATTRIBUTES
    .union(CompletionFilter::SIZE)
    .union(CompletionFilter::LAST_WRITE)
    .union(CompletionFilter::EA);

/// Handles a CREATE.
pub(crate) async fn handle(r: Request) -> Reply {
    if !durable_handle::has_create_guid(&r) {
        return run(&r).await.into();
    }
    // A client that loses this channel sends the request again on another one, and must find this one running or
    // complete: it continues after the connection has ended.
    let cancel = r.cancel.clone();
    let env = r.server.env.clone();
    let task = env.run_polled_first(async move { run(&r).await.into() });
    match select(pin!(task), pin!(abandoned(&cancel))).await {
        Either::Left((reply, _)) => reply,
        Either::Right(_) => Reply::error(NtStatus::CANCELLED),
    }
}

/// Completes when the connection has ended. A CANCEL does not count: the request itself handles it.
async fn abandoned(cancel: &Cancel) {
    cancel.cancelled().await;
    if cancel.is_by_client() {
        std::future::pending().await
    }
}

async fn run(r: &Request) -> Result<Reply, NtStatus> {
    let q = CreateRequest::decode(&r.message).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let name = q.name.to_string().map_err(|_| NtStatus::OBJECT_NAME_INVALID)?;
    let Some(vfs) = r.tree.share.vfs() else {
        return without_file::open_pipe(r, &q, &name);
    };
    // MS-SMB2 3.3.5.9: a name never begins with a separator.
    if name.starts_with('\\') {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let mut requested = contexts::read(q.contexts, r.facts.posix)?;
    let name = match vfs.info().snapshots {
        true => snapshot::take_token(name, &mut requested),
        false => name,
    };
    let parse = || match requested.posix {
        Some(_) => VfsPath::parse_posix(&name).map(|path| (path, StreamPart::None)),
        None => VfsPath::parse_stream(&name),
    };
    if let Some(reconnect) = requested.reconnect {
        // MS-SMB2 3.3.5.9.7, 3.3.5.9.12: the rest of the request is ignored.
        let path = parse().map(|(path, _)| path).unwrap_or_default();
        return reconnect::run(r, &q, &path, reconnect, &requested).await;
    }
    rules::check(&q)?;
    if name.eq_ignore_ascii_case(QUOTA_INDEX) {
        return without_file::open_quota_index(r, &q);
    }
    if name.split('\\').any(|part| part == "..") {
        return Err(NtStatus::OBJECT_PATH_SYNTAX_BAD);
    }
    let (path, part) = parse().map_err(status::of_path)?;
    let mut q = q;
    let share = match requested.snapshot {
        Some(at) => snapshot::open(r, at, &mut q, &mut requested).await?,
        None => Arc::clone(&r.tree.share),
    };
    let vfs = share.vfs().ok_or(NtStatus::INTERNAL_ERROR)?;
    let stream = rules::stream(part, &mut q.create_options, vfs.info().named_streams)?;
    let ends_with_separator = rules::ends_with_separator(&name, q.create_options)?;
    let stays = !vfs.info().removal || path.is_root() && stream.is_none();
    if q.create_options.contains(CreateOptions::DELETE_ON_CLOSE) && stays {
        return Err(NtStatus::CANNOT_DELETE);
    }
    let mut plan = Plan::new(r, q, (&share, vfs), path, requested)?;
    rules::check_volume(&plan.q, vfs.info().read_only)?;
    plan.stream = stream;
    plan.opens_only_directories = ends_with_separator;
    let reserved = match plan.find_replay().await? {
        ReplayCheck::Completed(open) => return plan.answer_replay(&open).await,
        ReplayCheck::TakenOver(open) => return plan.answer_taken_over(&open).await,
        ReplayCheck::New(reserved) => reserved,
    };
    plan.close_opens_of_app_instance().await?;
    plan.open_with_retries(reserved).await
}

/// A CREATE whose request passed the checks that need no file.
struct Plan<'a> {
    r: &'a Request,
    q: CreateRequest<'a>,
    /// The share of the tree connect, or a snapshot of it.
    share: &'a Arc<Share>,
    vfs: &'a Arc<dyn Vfs>,
    path: VfsPath,
    /// The named stream that is to be opened.
    stream: Option<StreamName>,
    /// The name ends with a separator, but the options do not ask for a directory.
    opens_only_directories: bool,
    requested: RequestedContexts,
    /// Without generic bits; may hold MAXIMUM_ALLOWED.
    desired: AccessMask,
    /// The rights that the share grants to this user.
    ceiling: AccessMask,
    /// The oplock or lease that is asked for.
    caching_request: CachingRequest,
    /// Blocks changes of the share's names, after several attempts lost the race against them.
    hold: Mutex<Option<Hold>>,
}

/// The file that the backend opened, and the rights that are granted.
struct OpenedFile {
    opened: Opened,
    /// This CREATE created the file, not only the stream that it opens.
    made_file: bool,
    /// An earlier run of the server created it for this CREATE, and a crash prevented the reply: see [`resume`].
    resumed: bool,
    granted: AccessMask,
    /// Its security descriptor.
    security: Option<Vec<u8>>,
}

impl<'a> Plan<'a> {
    fn new(
        r: &'a Request,
        q: CreateRequest<'a>,
        (share, vfs): (&'a Arc<Share>, &'a Arc<dyn Vfs>),
        path: VfsPath,
        requested: RequestedContexts,
    ) -> Result<Plan<'a>, NtStatus> {
        let desired = q.desired_access.map_generic();
        let mut ceiling = AccessMask::from_bits_retain(r.tree.maximal_access);
        // A privilege grants this right, not the share.
        ceiling.set(AccessMask::ACCESS_SYSTEM_SECURITY, r.session.user.is_administrator());
        // MS-SMB2 3.3.5.9: more than the share allows is refused before the file is looked at.
        let special = AccessMask::MAXIMUM_ALLOWED | AccessMask::ACCESS_SYSTEM_SECURITY;
        if !ceiling.contains(desired & !special) {
            return Err(NtStatus::ACCESS_DENIED);
        }
        // MS-FSA 2.1.5.1: needs SeSecurityPrivilege, even if the file does not exist yet.
        if desired.contains(AccessMask::ACCESS_SYSTEM_SECURITY) && !r.session.user.is_administrator() {
            return Err(NtStatus::PRIVILEGE_NOT_HELD);
        }
        if q.create_options.contains(CreateOptions::DELETE_ON_CLOSE) && !ceiling.contains(AccessMask::DELETE)
        {
            return Err(NtStatus::ACCESS_DENIED);
        }
        let caching_request = durable_handle::caching_request(r, &q, requested.lease.as_ref())?;
        Ok(Plan {
            r,
            q,
            share,
            vfs,
            path,
            stream: None,
            opens_only_directories: false,
            requested,
            desired,
            ceiling,
            caching_request,
            hold: Mutex::new(None),
        })
    }

    fn disposition(&self) -> CreateDisposition {
        self.q.create_disposition
    }

    fn is_directory_wanted(&self) -> bool {
        self.q.create_options.contains(CreateOptions::DIRECTORY_FILE)
    }

    fn overwrites(&self) -> bool {
        use CreateDisposition as D;
        matches!(self.disposition(), D::SUPERSEDE | D::OVERWRITE | D::OVERWRITE_IF)
    }

    /// Whether the disposition creates a file that does not exist.
    fn creates_if_absent(&self) -> bool {
        !matches!(self.disposition(), CreateDisposition::OPEN | CreateDisposition::OVERWRITE)
    }

    fn may_create(&self) -> bool {
        !self.opens_only_directories && self.creates_if_absent()
    }

    /// Rights that overwriting needs in addition to the requested ones (MS-FSA 2.1.5.1.2).
    fn implied(&self) -> AccessMask {
        match self.disposition() {
            d if !self.overwrites() => {
                debug_assert!(d != CreateDisposition::SUPERSEDE);
                AccessMask::empty()
            }
            CreateDisposition::SUPERSEDE => AccessMask::DELETE | AccessMask::WRITE_DATA,
            _ if self.stream.is_some() => AccessMask::WRITE_DATA,
            _ => AccessMask::WRITE_DATA | AccessMask::WRITE_EA | AccessMask::WRITE_ATTRIBUTES,
        }
    }

    /// Overwrites and reserves space as asked, adds the open to the session, and builds the reply.
    async fn finish(&self, done: JoinedOpen, reserved: Option<ReservedCreate>) -> Result<Reply, NtStatus> {
        let JoinedOpen { open: unattached, found } = done;
        let changed = match unattached.get().file() {
            Some(f) => match self.r.server.store_lost_caching(&f.file).await {
                Ok(()) => self.change(f, &found).await,
                Err(s) => Err(s),
            },
            None => Err(NtStatus::INVALID_DEVICE_REQUEST),
        };
        let stat = match changed {
            Ok(stat) => stat,
            Err(s) => {
                Plan::revert(unattached, &found).await;
                return Err(s);
            }
        };
        let open = Arc::clone(unattached.get());
        self.make_durable(&open);
        self.r.server.opens.insert(Arc::clone(&open));
        // From here on other requests can find the open and close it.
        unattached.mark_attached();
        let stored = match self.r.session.add_open(open.persistent, &self.r.tree) {
            true => self.r.server.store_open(&open).await,
            false => Err(NtStatus::FILE_CLOSED),
        };
        if let Err(s) = stored {
            if let Some(unattached) = self.r.server.release(&open) {
                Plan::revert(unattached, &found).await;
            }
            return Err(s);
        }
        if let Some(reserved) = reserved {
            reserved.complete(open.persistent);
            // A TREE_DISCONNECT or the end of the session may have closed it before its CreateGuid was recorded.
            if self.r.server.opens.find(open.persistent).is_none() {
                self.r.server.creates.forget(&open);
                return Err(NtStatus::FILE_CLOSED);
            }
        }
        if let Some(f) = open.file() {
            self.r.server.note_cached(&open, f).await;
        }
        self.publish(&open, &found);
        let maximal = self
            .requested
            .maximal_access
            .map(|_| access::maximal(&self.r.session.user, found.security.as_deref()) & self.ceiling);
        if self.requested.wants_mac_listings() && self.vfs.info().named_streams {
            self.r.tree.mac_listings.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        let posix = self
            .requested
            .posix
            .map(|_| posix_created(&self.r.session.user, &stat, found.security.as_deref()));
        Ok(durable_handle::answer(&open, &stat, &self.requested, maximal, open.created.action, true, posix))
    }

    /// MS-FSA 2.1.5.1.1, 2.1.5.1.2: reports a new or overwritten file to the watches.
    fn publish(&self, open: &Open, found: &OpenedFile) {
        if self.stream.is_some() {
            let change = match found.opened.created {
                true => StreamChange::Added,
                false if self.overwrites() => StreamChange::Data,
                false => return,
            };
            if let Some(name) = &found.opened.stream {
                self.r.server.publish_stream(self.share, &found.opened.path, name, change);
            }
            return;
        }
        let event_kind = match found.opened.created {
            true => EventKind::Added(found.opened.node.kind()),
            false if self.overwrites() => EventKind::Modified(OVERWRITTEN),
            false => return,
        };
        let Some(f) = open.file() else { return };
        let event = Event { path: &found.opened.path, event_kind, origin: f.origin() };
        self.r.server.publish(self.share, &event);
    }

    fn action(&self, created: bool) -> CreateAction {
        match self.disposition() {
            _ if created => CreateAction::CREATED,
            CreateDisposition::SUPERSEDE => CreateAction::SUPERSEDED,
            CreateDisposition::OVERWRITE | CreateDisposition::OVERWRITE_IF => CreateAction::OVERWRITTEN,
            _ => CreateAction::OPENED,
        }
    }
}

/// An open that has joined its file and is not in its session yet.
struct JoinedOpen {
    open: UnattachedOpen,
    found: OpenedFile,
}
