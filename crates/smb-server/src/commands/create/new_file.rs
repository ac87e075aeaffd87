//! The check of a new file (MS-FSA 2.1.5.1.1): whether the user may create it, and its security descriptor. The backend
//! calls it when it has opened the directory that it creates the file in.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use smb_wire::msg::CreateOptions;
use smb_wire::{AccessMask, FileAttributes, NtStatus};
use vfs::{CreateCheck, FileKey, Kind, Parent};

use super::{Plan, reparse};
use crate::Server;
use crate::access;
use crate::session::Session;

/// The parts of a CREATE that determine a new file.
pub(super) struct NewFile {
    server: Arc<Server>,
    session: Arc<Session>,
    kind: Kind,
    /// The rights that the share grants to the user.
    ceiling: AccessMask,
    read_only_volume: bool,
    /// A file with FILE_ATTRIBUTE_READONLY is to be deleted on close.
    read_only_deleted: bool,
    /// The descriptor that the client sends.
    security: Option<Vec<u8>>,
    /// The mode that a client with POSIX extensions sends.
    mode: Option<u32>,
    /// The last result of the check: the descriptor of the new file.
    answer: Mutex<Option<Result<Vec<u8>, NtStatus>>>,
    /// The existing file that may have a new stream.
    stream_of: OnceLock<FileKey>,
}

impl NewFile {
    pub(super) fn of(plan: &Plan<'_>) -> NewFile {
        let q = &plan.q;
        let read_only = q.file_attributes.contains(FileAttributes::READONLY);
        NewFile {
            server: Arc::clone(&plan.r.server),
            session: Arc::clone(&plan.r.session),
            kind: if plan.is_directory_wanted() { Kind::Directory } else { Kind::File },
            ceiling: plan.ceiling,
            read_only_volume: plan.vfs.info().read_only,
            read_only_deleted: read_only && q.create_options.contains(CreateOptions::DELETE_ON_CLOSE),
            security: plan.requested.security.clone(),
            mode: plan.requested.posix,
            answer: Mutex::default(),
            stream_of: OnceLock::new(),
        }
    }

    /// The descriptor of the file that was created, or why the check refused it; `None` if no file was to be created.
    pub(super) fn answer(&self) -> Option<Result<Vec<u8>, NtStatus>> {
        self.answer.lock().take()
    }

    /// The user may create the stream in this file, which exists.
    pub(super) fn allow_stream(&self, file: FileKey) {
        // Set once: if the name becomes that of another file meanwhile, the open retries with a new check.
        let _ = self.stream_of.set(file);
    }

    fn judge(&self, parent: &Parent) -> Result<Vec<u8>, NtStatus> {
        let (user, accounts) = (&self.session.user, &*self.server.users);
        // MS-FSA 2.1.5.1, phase 6: access to the directories on the path, and, below, a read-only volume.
        access::check_traversal_of(user, accounts, &parent.restricted_directories)?;
        if let (Ok(None), Some(posix)) = (&parent.security, &parent.stat.posix) {
            access::check_traversal_of(user, accounts, std::slice::from_ref(posix))?;
        }
        reparse::check_not_reparse_point(&parent.stat)?;
        // MS-FSA 2.1.5.1: the parent directory is marked for deletion.
        if self.server.files.find(parent.stat.id).is_some_and(|directory| directory.deleted_names() > 0) {
            return Err(NtStatus::DELETE_PENDING);
        }
        if self.read_only_volume {
            return Err(NtStatus::MEDIA_WRITE_PROTECTED);
        }
        // MS-FSA 2.1.5.1.1.
        if self.read_only_deleted {
            return Err(NtStatus::CANNOT_DELETE);
        }
        let directory = self.kind == Kind::Directory;
        let add = if directory { AccessMask::APPEND_DATA } else { AccessMask::WRITE_DATA };
        let of_parent = access::descriptor_from(parent.security.clone(), &parent.stat, accounts)?;
        if !(access::maximal(user, of_parent.as_deref()) & self.ceiling).contains(add) {
            return Err(NtStatus::ACCESS_DENIED);
        }
        let new = access::for_new(user, of_parent.as_deref(), self.security.as_deref(), directory)?;
        Ok(match self.mode {
            Some(mode) => access::unix::for_new(user, &new, mode, self.kind),
            None => new,
        })
    }
}

impl CreateCheck for NewFile {
    fn check(&self, parent: &Parent) -> Option<Vec<u8>> {
        let answer = self.judge(parent);
        *self.answer.lock() = Some(answer.clone());
        answer.ok()
    }

    fn allows_stream(&self, file: FileKey) -> bool {
        self.stream_of.get() == Some(&file)
    }
}
