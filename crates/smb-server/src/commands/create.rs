//! CREATE (MS-SMB2 3.3.5.9, MS-FSA 2.1.5.1).
//!
//! The order: what no file could satisfy ([`rules`]); the backend opens or creates; the file's attributes and its
//! security descriptor are asked; the open joins its file, which judges share modes; and only then is anything of the
//! file changed (overwriting), because the backend never truncates by itself.

mod contexts;
pub(crate) mod keep;
mod new_file;
mod reconnect;
mod reparse;
mod rules;
mod snapshot;

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, select};
use parking_lot::Mutex;
use smb_wire::msg::{
    CompletionFilter, CreateAction, CreateDisposition, CreateOptions, CreateRequest, CreateResponse,
};
use smb_wire::{AccessMask, Decode, FileAttributes, NtStatus};
use vfs::{
    Attributes, BasicChange, CreateCheck, ExtendedAttribute, Kind, Node, OpenMode, OpenRequest, Opened,
    Rights, StreamName, StreamPart, Vfs, VfsError, VfsPath,
};

use self::contexts::Wanted;
pub(crate) use self::contexts::read_attributes;
use super::close::Loose;
use super::metadata::{file_attributes, posix_created, stored_attributes};
use crate::access;
use crate::breaks::LeasedFile;
use crate::files::caching::Wish;
use crate::files::share_mode::ShareMode;
use crate::files::{Joining, Looks, Member, Refusal};
use crate::namespace::{Event, Hold, Snapshot, What};
use crate::open::{Created, FileOpen, Open, OpenTarget, Owner, Sequence};
use crate::pipes::Pipe;
use crate::replay::Reserved;
use crate::request::{Cancel, Reply, Request};
use crate::share::Share;
use crate::status;
use keep::{Replayed, parent_lease};
use new_file::NewFile;

/// How often an open starts again because its name changed meanwhile.
const ATTEMPTS: usize = 64;
/// After so many attempts that lost, names do not change until it has won.
const PATIENCE: usize = 4;

/// The index of quotas on NTFS, which clients open to ask for quotas.
const QUOTA_INDEX: &str = "$Extend\\$Quota:$Q:$INDEX_ALLOCATION";

/// Rights that the backend must open a file for writing for.
const WRITES: AccessMask = AccessMask::WRITE_DATA.union(AccessMask::APPEND_DATA);
/// Rights that need the file's data.
const READS: AccessMask = AccessMask::READ_DATA.union(AccessMask::EXECUTE);

/// What overwriting changes of a file.
const OVERWRITTEN: CompletionFilter = CompletionFilter::ATTRIBUTES
    .union(CompletionFilter::SIZE)
    .union(CompletionFilter::LAST_WRITE)
    .union(CompletionFilter::EA);

/// Handles a CREATE.
pub(crate) async fn handle(r: Request) -> Reply {
    if !keep::is_named(&r) {
        return run(&r).await.into();
    }
    // A client that loses this channel sends the request again on another one, and must find this one at work or done: it
    // goes on whatever becomes of the connection.
    let cancel = r.cancel.clone();
    let env = r.server.env.clone();
    let task = env.run_begun(async move { run(&r).await.into() });
    match select(pin!(task), pin!(abandoned(&cancel))).await {
        Either::Left((reply, _)) => reply,
        Either::Right(_) => Reply::error(NtStatus::CANCELLED),
    }
}

/// Completes when the connection is gone. A CANCEL is for the request itself.
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
        return open_pipe(r, &q, &name);
    };
    // MS-SMB2 3.3.5.9: a name never begins with a separator.
    if name.starts_with('\\') {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let mut wanted = contexts::read(q.contexts, r.facts.posix)?;
    let name = match vfs.info().snapshots {
        true => snapshot::take_token(name, &mut wanted),
        false => name,
    };
    let parse = || match wanted.posix {
        Some(_) => VfsPath::parse_posix(&name).map(|path| (path, StreamPart::None)),
        None => VfsPath::parse_stream(&name),
    };
    if let Some(reconnect) = wanted.reconnect {
        // MS-SMB2 3.3.5.9.7, 3.3.5.9.12: the rest of the request is not looked at.
        let path = parse().map(|(path, _)| path).unwrap_or_default();
        return reconnect::run(r, &q, &path, reconnect, &wanted).await;
    }
    rules::check(&q)?;
    if name.eq_ignore_ascii_case(QUOTA_INDEX) {
        return open_quota_index(r, &q);
    }
    if name.split('\\').any(|part| part == "..") {
        return Err(NtStatus::OBJECT_PATH_SYNTAX_BAD);
    }
    let (path, part) = parse().map_err(status::of_path)?;
    let mut q = q;
    let share = match wanted.snapshot {
        Some(at) => snapshot::open(r, at, &mut q, &mut wanted).await?,
        None => Arc::clone(&r.tree.share),
    };
    let vfs = share.vfs().ok_or(NtStatus::INTERNAL_ERROR)?;
    let stream = rules::stream(part, &mut q.create_options, vfs.info().named_streams)?;
    if q.create_options.contains(CreateOptions::DELETE_ON_CLOSE) && path.is_root() && stream.is_none() {
        return Err(NtStatus::CANNOT_DELETE);
    }
    let mut plan = Plan::new(r, q, (&share, vfs), path, wanted)?;
    rules::check_volume(&plan.q, vfs.info().read_only)?;
    plan.stream = stream;
    let reserved = match plan.replayed().await? {
        Replayed::Answer(open) => return plan.answer_again(&open).await,
        Replayed::TakenOver(open) => return plan.answer_taken_over(&open).await,
        Replayed::New(reserved) => reserved,
    };
    plan.close_instance().await?;
    let mut races = 0;
    let mut removal_deadline = None;
    loop {
        match plan.attempt().await {
            Ok(done) => {
                plan.release();
                return plan.finish(done, reserved).await;
            }
            Err(Refusal::Again) if races < ATTEMPTS => {
                plan.lost(races).await;
                races += 1;
            }
            Err(Refusal::Again) => return Err(NtStatus::SHARING_VIOLATION),
            Err(Refusal::Status(s)) => {
                plan.release();
                return Ok(plan.refused(s).await);
            }
            Err(Refusal::Contended { file, mut contention, status }) => {
                plan.release();
                r.server.send_breaks(&file, &contention.notices);
                if status == NtStatus::DELETE_PENDING {
                    // However often the file changes meanwhile, the wait for its removal ends.
                    removal_deadline = removal_deadline.or(contention.wait_until);
                    contention.wait_until = removal_deadline.filter(|until| r.server.env.moment() < *until);
                }
                if contention.wait_until.is_none() {
                    return Err(status);
                }
                r.wait_for_breaks(&file, &contention).await?;
            }
        }
    }
}

/// Opens a pipe of IPC$ (MS-SMB2 3.3.5.9: the share is of type pipe).
fn open_pipe(r: &Request, q: &CreateRequest<'_>, name: &str) -> Result<Reply, NtStatus> {
    let name = name.strip_prefix('\\').unwrap_or(name);
    let pipe = Pipe::open(&r.server, name, &r.session.user).ok_or(NtStatus::OBJECT_NAME_NOT_FOUND)?;
    let body = CreateResponse {
        allocation_size: 4096,
        file_attributes: FileAttributes::NORMAL,
        ..CreateResponse::default()
    };
    open_without_file(r, q, OpenTarget::Pipe(pipe), body)
}

/// Opens the index of quotas, of which there are none: it has no times and no data.
fn open_quota_index(r: &Request, q: &CreateRequest<'_>) -> Result<Reply, NtStatus> {
    use FileAttributes as A;
    let body = CreateResponse {
        file_attributes: A::HIDDEN | A::SYSTEM | A::DIRECTORY | A::ARCHIVE,
        ..CreateResponse::default()
    };
    open_without_file(r, q, OpenTarget::QuotaIndex, body)
}

fn open_without_file(
    r: &Request,
    q: &CreateRequest<'_>,
    target: OpenTarget,
    body: CreateResponse<'_>,
) -> Result<Reply, NtStatus> {
    let granted = match q.desired_access.map_generic() {
        a if a.contains(AccessMask::MAXIMUM_ALLOWED) => AccessMask::FILE_ALL_ACCESS,
        a => a,
    };
    let owner = Owner { session: Arc::clone(&r.session), tree: Arc::clone(&r.tree) };
    let (persistent, volatile) = (r.server.opens.persistent_id(), r.server.opens.number());
    let sequence = Sequence::new(r.header.channel_sequence());
    let open = Open::new(persistent, volatile, owner, granted.bits(), target, sequence, Created::default());
    let id = open.id();
    r.server.opens.insert(Arc::new(open));
    let limit = r.server.config.limits.opens_per_session;
    if !r.session.add_open(limit, persistent, &r.tree) {
        r.server.opens.remove(persistent);
        return Err(NtStatus::INSUFFICIENT_RESOURCES);
    }
    let body = CreateResponse { create_action: CreateAction::OPENED, file_id: id, ..body };
    Ok(Reply { file_id: Some(id), ..Reply::ok(&body) })
}

/// An open to do.
struct Plan<'a> {
    r: &'a Request,
    q: CreateRequest<'a>,
    /// The share of the tree connect, or a snapshot of it.
    share: &'a Arc<Share>,
    vfs: &'a Arc<dyn Vfs>,
    path: VfsPath,
    /// The named stream that is to be opened.
    stream: Option<StreamName>,
    wanted: Wanted,
    /// Without generic bits; may hold MAXIMUM_ALLOWED.
    desired: AccessMask,
    /// What the share lets this user do.
    ceiling: AccessMask,
    /// The oplock or lease that is asked for.
    wish: Wish,
    /// Keeps the share's names as they are, after several attempts that lost.
    hold: Mutex<Option<Hold>>,
}

/// What the backend found, and what it may be used for.
struct Found {
    opened: Opened,
    /// This CREATE made the file: not only the stream that it opens.
    made_file: bool,
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
        wanted: Wanted,
    ) -> Result<Plan<'a>, NtStatus> {
        let desired = q.desired_access.map_generic();
        let mut ceiling = AccessMask::from_bits_retain(r.tree.maximal_access);
        // A privilege, which no share grants.
        ceiling.set(AccessMask::ACCESS_SYSTEM_SECURITY, r.session.user.is_administrator());
        // MS-SMB2 3.3.5.9: more than the share allows is refused before the file is looked at.
        let special = AccessMask::MAXIMUM_ALLOWED | AccessMask::ACCESS_SYSTEM_SECURITY;
        if !ceiling.contains(desired & !special) {
            return Err(NtStatus::ACCESS_DENIED);
        }
        // MS-FSA 2.1.5.1: SeSecurityPrivilege, for a file that is about to be made too.
        if desired.contains(AccessMask::ACCESS_SYSTEM_SECURITY) && !r.session.user.is_administrator() {
            return Err(NtStatus::PRIVILEGE_NOT_HELD);
        }
        if q.create_options.contains(CreateOptions::DELETE_ON_CLOSE) && !ceiling.contains(AccessMask::DELETE)
        {
            return Err(NtStatus::ACCESS_DENIED);
        }
        let wish = keep::wish(r, &q, wanted.lease.as_ref())?;
        Ok(Plan {
            r,
            q,
            share,
            vfs,
            path,
            stream: None,
            wanted,
            desired,
            ceiling,
            wish,
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

    fn may_create(&self) -> bool {
        !matches!(self.disposition(), CreateDisposition::OPEN | CreateDisposition::OVERWRITE)
    }

    /// Rights that overwriting needs beside those asked for (MS-FSA 2.1.5.1.2).
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

    /// An attempt lost against a change of names: waits until the next one has a chance.
    async fn lost(&self, attempt: usize) {
        let (namespace, share) = (&self.r.server.namespace, self.share);
        if self.hold.lock().is_some() {
            return;
        }
        if attempt < PATIENCE {
            namespace.settled(share).await;
        } else {
            let hold = namespace.hold(share).await;
            *self.hold.lock() = Some(hold);
        }
    }

    /// Names may change again.
    fn release(&self) {
        *self.hold.lock() = None;
    }

    /// Finds or makes the file and joins it.
    async fn attempt(&self) -> Result<Done, Refusal> {
        let snapshot = self.r.server.namespace.snapshot();
        let found = self.open().await.map_err(Refusal::Status)?.ok_or(Refusal::Again)?;
        match self.join(&found, snapshot) {
            Err(Refusal::Again) if found.opened.created => self.join_created(found).await,
            Err(e) => {
                if found.opened.created {
                    self.undo(&found).await;
                }
                Err(e)
            }
            Ok(open) => Ok(Done { open, found }),
        }
    }

    /// Joins a file that this CREATE has made while names changed: it is not made twice, and not mistaken for one that
    /// was there.
    async fn join_created(&self, mut found: Found) -> Result<Done, Refusal> {
        let rights = Rights { read: false, write: false };
        for attempt in 0..ATTEMPTS {
            let snapshot = self.r.server.namespace.snapshot();
            let request = self.own_request(OpenMode::Open, None, rights);
            match self.vfs.open(&self.r.ctx(), request).wait().await {
                Ok(o) if o.node.id() == found.opened.node.id() => found.opened.path = o.path,
                // It has been moved away or deleted by now.
                Ok(_) | Err(VfsError::NotFound | VfsError::PathNotFound) => return Err(Refusal::Again),
                Err(e) => {
                    self.undo(&found).await;
                    return Err(Refusal::Status(status::of_vfs(e)));
                }
            }
            match self.join(&found, snapshot) {
                Err(Refusal::Again) => self.lost(attempt).await,
                Err(e) => {
                    self.undo(&found).await;
                    return Err(e);
                }
                Ok(open) => return Ok(Done { open, found }),
            }
        }
        // Were it tried again, this CREATE would meet its own file.
        self.undo(&found).await;
        Err(Refusal::Status(NtStatus::SHARING_VIOLATION))
    }

    /// Takes back what this CREATE has made and cannot open: a CREATE that fails leaves nothing. What somebody else has
    /// open by now stays, as if they had made it.
    async fn undo(&self, found: &Found) {
        self.release();
        let (path, id) = (&found.opened.path, found.opened.node.id());
        if let Some(name) = &self.stream {
            let opened = self.r.server.files.find(id).is_some_and(|file| file.has_stream(name));
            if !opened && let Err(e) = found.opened.node.remove_stream(&self.r.ctx(), name).wait().await {
                tracing::debug!(%path, stream = %name, "not removed after a CREATE that failed: {e}");
            }
            if !found.made_file {
                return;
            }
        }
        let mut change = self.r.server.namespace.begin_change(self.share).await;
        let Some(_claim) = self.r.server.files.claim(id) else { return };
        change.touch(path, id);
        if let Err(e) = self.vfs.remove(&self.r.ctx(), path, id).wait().await {
            tracing::debug!(path = ?path.to_string(), "not removed after a CREATE that failed: {e}");
        }
        // Before the claim: an open that asked the backend until now must not join after.
        drop(change);
    }

    /// Closes an open that no client will hear of, and takes back what it has made.
    async fn give_up(loose: Loose, found: &Found) {
        if found.opened.created
            && let Some(f) = loose.get().file()
        {
            f.file.delete_if_alone(loose.get().persistent, found.made_file);
        }
        loose.close().await;
    }

    fn join(&self, found: &Found, snapshot: Snapshot) -> Result<Loose, Refusal> {
        let (server, opens) = (&self.r.server, &self.r.server.opens);
        let (id, persistent) = (found.opened.node.id(), opens.persistent_id());
        if self.share.continuous {
            self.check_absent(id)?;
        }
        let access = found.granted | self.implied();
        let directory = found.opened.stat.kind == Kind::Directory;
        let wish = self.wish_for(directory);
        let member = Member {
            open: persistent,
            stream: found.opened.stream.clone(),
            // Overwriting is judged like an open for writing.
            mode: ShareMode { access, share: self.q.share_access },
            looks: Looks::of(access),
            holder: None,
            parent_lease: parent_lease(self.wish),
            posix: self.wanted.posix.is_some(),
            share: Arc::clone(self.share),
            path: found.opened.path.clone(),
            delete_on_close: self.q.create_options.contains(CreateOptions::DELETE_ON_CLOSE),
        };
        let joining = Joining {
            wish,
            overwrites: self.overwrites(),
            directory,
            token: opens.number(),
            patience: self.patience(),
            now: server.env.moment(),
        };
        let is_this = |leased: &LeasedFile| {
            leased.file.id() == id && leased.file.stream_name(&leased.stream) == self.stream
        };
        // A lease's key names one file, also where no lease is granted.
        if let Wish::Lease(l) = self.wish
            && server.leases.find(l.id).is_some_and(|leased| !is_this(&leased))
        {
            return Err(Refusal::Status(NtStatus::INVALID_PARAMETER));
        }
        let join = || server.files.join(&server.namespace, id, snapshot, member, joining);
        let (joined, notices) = match wish {
            Wish::Lease(l) => server.leases.join(
                l.id,
                is_this,
                || Refusal::Status(NtStatus::INVALID_PARAMETER),
                || {
                    let (joined, notices) = join()?;
                    let leased =
                        LeasedFile { file: Arc::clone(&joined.file), stream: Arc::clone(&joined.stream) };
                    Ok(((joined, notices), leased))
                },
            ),
            _ => join(),
        }?;
        server.send_breaks(&joined.file, &notices);
        let node = Arc::clone(&found.opened.node);
        let target = OpenTarget::File(FileOpen::new(node, Arc::clone(self.share), joined, self.options()));
        let owner = Owner { session: Arc::clone(&self.r.session), tree: Arc::clone(&self.r.tree) };
        let sequence = Sequence::new(self.r.header.channel_sequence());
        let access = found.granted.bits();
        let created = self.created(self.action(found.opened.created));
        let open = Open::new(persistent, opens.number(), owner, access, target, sequence, created);
        Ok(Loose::new(server, Arc::new(open)))
    }

    /// A request for what this CREATE names.
    fn own_request(&self, mode: OpenMode, kind: Option<Kind>, rights: Rights) -> OpenRequest {
        OpenRequest { stream: self.stream.clone(), mode, kind, rights, ..self.file_request() }
    }

    /// To look at the file of what this CREATE names, which may be a stream.
    fn file_request(&self) -> OpenRequest {
        OpenRequest { link: self.shows_links(), ..OpenRequest::look(self.path.clone()) }
    }

    fn rights(&self) -> Rights {
        let all = self.desired | self.implied();
        let maximal = all.contains(AccessMask::MAXIMUM_ALLOWED);
        let writable = self.ceiling.intersects(WRITES) && !self.vfs.info().read_only;
        Rights {
            read: maximal || all.intersects(READS),
            write: writable && (maximal || all.intersects(WRITES)),
        }
    }

    /// Opens what the CREATE names, or creates it, in one call of the backend; `None` when the name has changed meanwhile.
    async fn open(&self) -> Result<Option<Found>, NtStatus> {
        let check = self.may_create().then(|| Arc::new(NewFile::of(self)));
        let rights = self.rights();
        let mut denied = AccessMask::empty();
        let mut opened = self.open_with(check.as_ref(), rights).await;
        if self.desired.contains(AccessMask::MAXIMUM_ALLOWED)
            && !self.desired.intersects(WRITES)
            && rights.write
            && matches!(opened, Err(VfsError::AccessDenied | VfsError::ReadOnly))
        {
            opened = self.open_with(check.as_ref(), Rights { write: false, ..rights }).await;
            denied = WRITES;
        }
        match (opened, check) {
            (Ok(new), Some(check)) if new.created => self.judge_new(new, check.answer()).await.map(Some),
            (Ok(file), Some(_)) if file.stream.is_none() && self.stream.is_some() => {
                self.create_stream(file).await
            }
            (Ok(there), _) => self.judge_existing(there, denied).await.map(Some),
            (Err(VfsError::Refused), Some(check)) => {
                Err(check.answer().err().unwrap_or(NtStatus::ACCESS_DENIED))
            }
            (Err(e), _) => Err(status::of_vfs(e)),
        }
    }

    async fn open_with(&self, check: Option<&Arc<NewFile>>, rights: Rights) -> Result<Opened, VfsError> {
        let mode = match self.disposition() {
            CreateDisposition::OPEN | CreateDisposition::OVERWRITE => OpenMode::Open,
            CreateDisposition::CREATE => OpenMode::Create,
            _ => OpenMode::OpenOrCreate,
        };
        let file_only =
            self.q.create_options.contains(CreateOptions::NON_DIRECTORY_FILE) || self.overwrites();
        let kind = match self.is_directory_wanted() {
            true => Some(Kind::Directory),
            false => file_only.then_some(Kind::File),
        };
        let request = OpenRequest {
            attributes: self.attributes_of_new(self.is_directory_wanted()),
            extended_attributes: self.wanted.extended_attributes.clone(),
            create_check: check.map(|check| Arc::clone(check) as Arc<dyn CreateCheck>),
            ..self.own_request(mode, kind, rights)
        };
        self.vfs.open(&self.r.ctx(), request).wait().await
    }

    /// Judges what exists (MS-FSA 2.1.5.1.2), less the rights that the backend has `denied`.
    async fn judge_existing(&self, opened: Opened, mut denied: AccessMask) -> Result<Found, NtStatus> {
        self.pass_last(&opened)?;
        let attributes = file_attributes(&opened.stat);
        let is_directory = opened.stat.kind == Kind::Directory;
        rules::check_existing(attributes, &self.q, self.overwrites(), is_directory)?;
        if self.stream.is_none() {
            rules::check_replaced(attributes, &self.q, self.overwrites())?;
        }
        if !is_directory && attributes.contains(FileAttributes::READONLY) {
            denied |= WRITES;
        }
        access::may_reach(self.r, &opened)?;
        let security = access::descriptor(self.r, &opened.node, &opened.stat).await?;
        let granted = self.grant(security.as_deref(), denied).await?;
        // MAXIMUM_ALLOWED may come to less than what deleting needs (MS-FSA 2.1.5.1.2.1).
        if self.q.create_options.contains(CreateOptions::DELETE_ON_CLOSE)
            && !granted.contains(AccessMask::DELETE)
        {
            return Err(NtStatus::ACCESS_DENIED);
        }
        Ok(Found { opened, made_file: false, granted, security })
    }

    /// Judges the descriptor of an existing file (MS-FSA 2.1.5.1.2.1), and where it does not suffice, its folder's:
    /// who may delete a folder's children may delete this one, who may list it may see this one's attributes.
    async fn grant(&self, security: Option<&[u8]>, denied: AccessMask) -> Result<AccessMask, NtStatus> {
        let user = &self.r.session.user;
        let maximal = access::maximal(user, security) & self.ceiling & !denied;
        let needed = (self.desired | self.implied()) & !AccessMask::MAXIMUM_ALLOWED;
        let mut extra = AccessMask::empty();
        let mut missing = needed & !maximal;
        let from_parent = AccessMask::DELETE | AccessMask::READ_ATTRIBUTES;
        let wanted =
            if self.desired.contains(AccessMask::MAXIMUM_ALLOWED) { from_parent & !maximal } else { missing };
        if wanted.intersects(from_parent)
            && let Some(parent) = self.path.parent()
        {
            // What the share allows of it is judged below: "change" has no right to delete children, and may delete.
            let of_parent = access::maximal(user, self.security_of(&parent).await?.as_deref());
            if of_parent.contains(AccessMask::DELETE_CHILD) {
                extra |= AccessMask::DELETE & self.ceiling;
            }
            if of_parent.contains(AccessMask::READ_DATA) {
                extra |= AccessMask::READ_ATTRIBUTES;
            }
            missing &= !extra;
        }
        if missing.contains(AccessMask::ACCESS_SYSTEM_SECURITY) {
            return Err(NtStatus::PRIVILEGE_NOT_HELD);
        }
        if !missing.is_empty() {
            return Err(NtStatus::ACCESS_DENIED);
        }
        let asked = self.desired & !AccessMask::MAXIMUM_ALLOWED;
        Ok(if self.desired.contains(AccessMask::MAXIMUM_ALLOWED) { asked | maximal | extra } else { asked })
    }

    async fn security_of(&self, directory: &VfsPath) -> Result<Option<Vec<u8>>, NtStatus> {
        let q = OpenRequest { kind: Some(Kind::Directory), ..OpenRequest::look(directory.clone()) };
        let ctx = self.r.ctx();
        let parent = match self.vfs.open(&ctx, q).wait().await {
            Ok(o) => o,
            Err(VfsError::NotFound) => return Err(NtStatus::OBJECT_PATH_NOT_FOUND),
            // MS-FSA 2.1.5.1: a file on the way.
            Err(VfsError::NotDirectory) => return Err(NtStatus::OBJECT_PATH_NOT_FOUND),
            Err(e) => return Err(status::of_vfs(e)),
        };
        access::may_reach(self.r, &parent)?;
        reparse::pass(&parent.stat)?;
        access::descriptor(self.r, &parent.node, &parent.stat).await
    }

    /// What a file that was created now is used for (MS-FSA 2.1.5.1.1).
    async fn judge_new(
        &self,
        mut opened: Opened,
        security: Result<Vec<u8>, NtStatus>,
    ) -> Result<Found, NtStatus> {
        let security = security?;
        // The compression that it has from its folder.
        let compressed = opened.stat.attributes.contains(Attributes::COMPRESSED);
        if compressed && self.q.create_options.contains(CreateOptions::NO_COMPRESSION) {
            opened.node.set_compressed(&self.r.ctx(), false).wait().await.map_err(status::of_vfs)?;
            opened.stat.attributes.remove(Attributes::COMPRESSED);
        }
        let mut granted = self.desired & !AccessMask::MAXIMUM_ALLOWED;
        if self.desired.contains(AccessMask::MAXIMUM_ALLOWED) {
            granted |= access::maximal(&self.r.session.user, Some(&security)) & self.ceiling;
        }
        Ok(Found { opened, made_file: true, granted, security: Some(security) })
    }

    /// Creates a stream of a file that exists (MS-FSA 2.1.5.1.2, "Stream not found"); `None` when the stream exists by now
    /// and may be opened.
    async fn create_stream(&self, file: Opened) -> Result<Option<Found>, NtStatus> {
        let Some(stream) = &self.stream else { return Ok(None) };
        let attributes = file_attributes(&file.stat);
        self.pass_last(&file)?;
        let is_directory = file.stat.kind == Kind::Directory;
        if !is_directory && attributes.contains(FileAttributes::READONLY) {
            return Err(NtStatus::ACCESS_DENIED);
        }
        access::may_reach(self.r, &file)?;
        let security = access::descriptor(self.r, &file.node, &file.stat).await?;
        let granted = self.grant(security.as_deref(), AccessMask::empty()).await?;
        let maximal = access::maximal(&self.r.session.user, security.as_deref()) & self.ceiling;
        if !maximal.contains(AccessMask::WRITE_DATA) {
            return Err(NtStatus::ACCESS_DENIED);
        }
        if self.vfs.info().read_only {
            return Err(NtStatus::MEDIA_WRITE_PROTECTED);
        }
        // By the path as stored: it may have been another name of another case.
        let rights = Rights { read: true, write: true };
        let (id, stream_of_it) = (file.node.id(), Some(stream.clone()));
        let mode = OpenMode::Create;
        let request = OpenRequest { stream: stream_of_it, mode, rights, ..OpenRequest::look(file.path) };
        match self.vfs.open(&self.r.ctx(), request).wait().await {
            Ok(opened) if opened.node.id() == id => {
                Ok(Some(Found { opened, made_file: false, granted, security }))
            }
            // The name is another file's by now, which has not been judged.
            Ok(opened) => {
                opened.node.remove_stream(&self.r.ctx(), stream).wait().await.map_err(status::of_vfs)?;
                Ok(None)
            }
            Err(VfsError::Exists) if self.disposition() != CreateDisposition::CREATE => Ok(None),
            Err(e) => Err(status::of_vfs(e)),
        }
    }

    fn attributes_of_new(&self, directory: bool) -> Attributes {
        let asked = stored_attributes(self.q.file_attributes);
        if directory { asked } else { asked | Attributes::ARCHIVE }
    }

    /// Overwrites and reserves space as asked, hands the open to the session, and answers.
    async fn finish(&self, done: Done, reserved: Option<Reserved>) -> Result<Reply, NtStatus> {
        let Done { open: loose, found } = done;
        let changed = match loose.get().file() {
            Some(f) => match self.r.server.store_lost_caching(&f.file).await {
                Ok(()) => self.change(f, &found).await,
                Err(s) => Err(s),
            },
            None => Err(NtStatus::INVALID_DEVICE_REQUEST),
        };
        let stat = match changed {
            Ok(stat) => stat,
            Err(s) => {
                Plan::give_up(loose, &found).await;
                return Err(s);
            }
        };
        let open = Arc::clone(loose.get());
        self.keep(&open);
        self.r.server.opens.insert(Arc::clone(&open));
        let limit = self.r.server.config.limits.opens_per_session;
        // From here on others can find it, and close it.
        loose.keep();
        let stored = match self.r.session.add_open(limit, open.persistent, &self.r.tree) {
            true => self.r.server.store_open(&open).await,
            false => Err(NtStatus::INSUFFICIENT_RESOURCES),
        };
        if let Err(s) = stored {
            if let Some(loose) = self.r.server.release(&open) {
                Plan::give_up(loose, &found).await;
            }
            return Err(s);
        }
        if let Some(reserved) = reserved {
            reserved.made(open.persistent);
            // A TREE_DISCONNECT or the end of the session may have closed it meanwhile, before it had this name.
            if self.r.server.opens.find(open.persistent).is_none() {
                self.r.server.creates.forget(&open);
                return Err(NtStatus::FILE_CLOSED);
            }
        }
        if let Some(f) = open.file() {
            self.r.server.note_cached(&open, f);
        }
        self.publish(&open, &found);
        let maximal = self
            .wanted
            .maximal_access
            .map(|_| access::maximal(&self.r.session.user, found.security.as_deref()) & self.ceiling);
        if self.wanted.wants_mac_listings() && self.vfs.info().named_streams {
            self.r.tree.mac_listings.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        let posix =
            self.wanted.posix.map(|_| posix_created(&self.r.session.user, &stat, found.security.as_deref()));
        Ok(keep::answer(&open, &stat, &self.wanted, maximal, open.created.action, true, posix))
    }

    /// MS-FSA 2.1.5.1.1, 2.1.5.1.2: what watchers are told of a new or overwritten file.
    fn publish(&self, open: &Open, found: &Found) {
        if self.stream.is_some() {
            return;
        }
        let what = match found.opened.created {
            true => What::Added(found.opened.node.kind()),
            false if self.overwrites() => What::Modified(OVERWRITTEN),
            false => return,
        };
        let Some(f) = open.file() else { return };
        let event = Event { path: &found.opened.path, what, origin: f.origin() };
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

    /// MS-FSA 2.1.5.1.2.3: what overwriting does to a file, and AllocationSize to a new or overwritten one.
    async fn change(&self, f: &FileOpen, found: &Found) -> Result<vfs::Stat, NtStatus> {
        let (created, node) = (found.opened.created, &found.opened.node);
        let replaced = self.overwrites() && !created;
        let reserves = node.kind() == Kind::File && (created || replaced);
        let allocation = self.wanted.allocation.filter(|n| *n > 0 && reserves);
        if !replaced && allocation.is_none() {
            return Ok(found.opened.stat);
        }
        f.file.note_change(self.r.server.env.moment());
        let _one = f.file.metadata().await;
        self.overwrite(node, replaced, found.opened.stat.ea_size, allocation).await.map_err(status::of_vfs)
    }

    async fn overwrite(
        &self,
        node: &Arc<dyn Node>,
        replaced: bool,
        ea_size: u32,
        allocation: Option<u64>,
    ) -> Result<vfs::Stat, VfsError> {
        let ctx = self.r.ctx();
        if replaced {
            node.set_len(&ctx, 0).wait().await?;
        }
        if replaced && self.stream.is_none() {
            self.drop_streams(node).await?;
            let attributes = Some(self.attributes_of_new(false));
            node.set_basic(&ctx, BasicChange { attributes, ..BasicChange::default() }).wait().await?;
            let mut set = Vec::new();
            if ea_size > 0 {
                let old = node.extended_attributes(&ctx).wait().await?;
                set.extend(old.into_iter().map(|ea| ExtendedAttribute { value: Vec::new(), ..ea }));
            }
            set.extend(self.wanted.extended_attributes.iter().cloned());
            if !set.is_empty() {
                node.set_extended_attributes(&ctx, set).wait().await?;
            }
        }
        if let Some(bytes) = allocation {
            node.set_allocation(&ctx, bytes).wait().await?;
        }
        node.stat(&ctx).wait().await
    }

    /// NTFS removes the named streams of a file that is overwritten, except those that are open.
    async fn drop_streams(&self, node: &Arc<dyn Node>) -> Result<(), VfsError> {
        let (ctx, file) = (self.r.ctx(), self.r.server.files.find(node.id()));
        for name in node.streams(&ctx).wait().await?.into_iter().filter_map(|s| s.name) {
            if !file.as_ref().is_some_and(|file| file.has_stream(&name)) {
                node.remove_stream(&ctx, &name).wait().await?;
            }
        }
        Ok(())
    }
}

/// An open that has joined its file and is not in its session yet.
struct Done {
    open: Loose,
    found: Found,
}
