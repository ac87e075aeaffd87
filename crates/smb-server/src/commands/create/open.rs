//! The backend's calls that find or create the file or stream of a CREATE.

use std::sync::Arc;

use smb_wire::msg::{CreateDisposition, CreateOptions};
use smb_wire::{AccessMask, NtStatus};
use vfs::{CreateCheck, Kind, OpenMode, OpenRequest, Opened, Rights, VfsError};

use super::new_file::NewFile;
use super::{OpenedFile, Plan};
use crate::status;

/// Rights that need the file to be opened for writing in the backend.
pub(super) const WRITES: AccessMask = AccessMask::WRITE_DATA.union(AccessMask::APPEND_DATA);
/// Rights that need the file's data.
const READS: AccessMask = AccessMask::READ_DATA.union(AccessMask::EXECUTE);

impl Plan<'_> {
    /// The backend's open request for the file or stream that this CREATE names.
    pub(super) fn own_request(&self, mode: OpenMode, kind: Option<Kind>, rights: Rights) -> OpenRequest {
        OpenRequest { stream: self.stream.clone(), mode, kind, rights, ..self.file_request() }
    }

    /// An open request to read the metadata of the file that this CREATE names, or whose stream it names.
    fn file_request(&self) -> OpenRequest {
        OpenRequest { link: self.shows_links(), ..OpenRequest::for_metadata(self.path.clone()) }
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

    /// Opens or creates the file or stream that the CREATE names in one call of the backend; `None` when the name has
    /// changed meanwhile.
    pub(super) async fn open(&self) -> Result<Option<OpenedFile>, NtStatus> {
        let check = self.may_create().then(|| Arc::new(NewFile::of(self)));
        let (opened, denied) = match self.call(check.as_ref()).await {
            // MS-FSA 2.1.5.1, phase 7: the CREATE would create a file, but the name ends with a separator.
            Err(NtStatus::OBJECT_NAME_NOT_FOUND)
                if self.opens_only_directories && self.creates_if_absent() =>
            {
                return Err(NtStatus::OBJECT_NAME_INVALID);
            }
            called => called?,
        };
        match check {
            Some(check) if opened.created => self.judge_new(opened, &check).await.map(Some),
            Some(_) if self.may_resume() && self.is_resumed(&opened).await? => {
                self.judge_resumed(opened).await.map(Some)
            }
            Some(check) if self.stream.is_some() && opened.stream.is_none() => {
                self.create_stream(&opened, check).await
            }
            _ if self.disposition() == CreateDisposition::CREATE => Err(NtStatus::OBJECT_NAME_COLLISION),
            _ => self.judge_existing(opened, denied).await.map(Some),
        }
    }

    /// Creates the stream in a file that exists (MS-FSA 2.1.5.1.2, "Stream not found"); `None` when the stream or another
    /// file exists by now.
    async fn create_stream(
        &self,
        file: &Opened,
        check: Arc<NewFile>,
    ) -> Result<Option<OpenedFile>, NtStatus> {
        let (granted, security) = self.judge_new_stream(file).await?;
        check.allow_stream(file.node.id());
        let (opened, _) = self.call(Some(&check)).await?;
        match opened.created {
            false => Ok(None),
            true if opened.node.id() == file.node.id() => {
                Ok(Some(OpenedFile { opened, made_file: false, resumed: false, granted, security }))
            }
            // The file was removed meanwhile, and the call has created a new one.
            true => self.judge_new(opened, &check).await.map(Some),
        }
    }

    /// Calls the backend. With MAXIMUM_ALLOWED the file is opened without the right to write where the backend denies
    /// that; the result has the denied rights.
    async fn call(&self, check: Option<&Arc<NewFile>>) -> Result<(Opened, AccessMask), NtStatus> {
        let rights = self.rights();
        let mut denied = AccessMask::empty();
        let mut opened = self.call_with(check, rights).await;
        if self.desired.contains(AccessMask::MAXIMUM_ALLOWED)
            && !self.desired.intersects(WRITES)
            && rights.write
            && matches!(opened, Err(VfsError::AccessDenied | VfsError::ReadOnly))
        {
            opened = self.call_with(check, Rights { write: false, ..rights }).await;
            denied = WRITES;
        }
        match opened {
            Ok(opened) => Ok((opened, denied)),
            Err(VfsError::Refused) => match check.and_then(|check| check.answer()) {
                Some(Err(refusal)) => Err(refusal),
                _ => Err(NtStatus::ACCESS_DENIED),
            },
            Err(VfsError::IsDirectory | VfsError::NotDirectory)
                if self.disposition() == CreateDisposition::CREATE =>
            {
                Err(NtStatus::OBJECT_NAME_COLLISION)
            }
            Err(e) => Err(status::of_vfs(e)),
        }
    }

    async fn call_with(&self, check: Option<&Arc<NewFile>>, rights: Rights) -> Result<Opened, VfsError> {
        let mode = match self.disposition() {
            _ if !self.may_create() => OpenMode::Open,
            CreateDisposition::CREATE if !self.may_resume() => OpenMode::Create,
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
            extended_attributes: self.requested.extended_attributes.clone(),
            creation_id: check.and_then(|_| self.creation_id()),
            create_check: check.map(|check| Arc::clone(check) as Arc<dyn CreateCheck>),
            ..self.own_request(mode, kind, rights)
        };
        self.vfs.open(&self.r.ctx(), request).wait().await
    }
}
