//! Which rights an open gets (MS-FSA 2.1.5.1.1, 2.1.5.1.2).

use smb_wire::msg::CreateOptions;
use smb_wire::{AccessMask, FileAttributes, NtStatus};
use vfs::{Attributes, Kind, OpenRequest, Opened, VfsError, VfsPath};

use super::new_file::NewFile;
use super::open::WRITES;
use super::{OpenedFile, Plan, reparse, rules};
use crate::access;
use crate::commands::metadata::file_attributes;
use crate::status;

impl Plan<'_> {
    /// The rights to a file that exists (MS-FSA 2.1.5.1.2), less those that the backend has `denied`.
    pub(super) async fn judge_existing(
        &self,
        opened: Opened,
        mut denied: AccessMask,
    ) -> Result<OpenedFile, NtStatus> {
        // MS-FSA 2.1.5.1, phase 6: the directories on the path.
        access::check_traversal(self.r, &opened)?;
        self.check_last_component(&opened.stat)?;
        let attributes = file_attributes(&opened.stat);
        let is_directory = opened.stat.kind == Kind::Directory;
        // MS-FSA 2.1.5.1, phase 7: a file's name does not end with a separator.
        if self.opens_only_directories && !is_directory {
            return Err(NtStatus::OBJECT_NAME_INVALID);
        }
        if self.stream.is_none() {
            rules::check_replaced(attributes, &self.q, self.overwrites())?;
        }
        // MS-FSA 2.1.5.1.2.1.
        rules::check_existing(attributes, &self.q, self.overwrites(), is_directory)?;
        if self.q.create_options.contains(CreateOptions::DELETE_ON_CLOSE)
            && opened.node.may_change(&self.r.ctx()).wait().await.is_err()
        {
            return Err(NtStatus::CANNOT_DELETE);
        }
        if !is_directory && attributes.contains(FileAttributes::READONLY) {
            denied |= WRITES;
        }
        let security = access::descriptor(self.r, &opened.node, &opened.stat).await?;
        let granted = self.grant(security.as_deref(), denied).await?;
        Ok(OpenedFile { opened, made_file: false, resumed: false, granted, security })
    }

    /// The rights that the descriptor of an existing file grants (MS-FSA 2.1.5.1.2.1), and where these do not suffice,
    /// its folder's: the right to delete the folder's children grants DELETE, the right to list it grants
    /// FILE_READ_ATTRIBUTES.
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
            // The share's limit is applied below: "change" lacks the right to delete children, but allows DELETE.
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

    /// The descriptor of the folder.
    async fn security_of(&self, directory: &VfsPath) -> Result<Option<Vec<u8>>, NtStatus> {
        let q = OpenRequest { kind: Some(Kind::Directory), ..OpenRequest::for_metadata(directory.clone()) };
        let ctx = self.r.ctx();
        let parent = match self.vfs.open(&ctx, q).wait().await {
            Ok(o) => o,
            Err(VfsError::NotFound) => return Err(NtStatus::OBJECT_PATH_NOT_FOUND),
            // MS-FSA 2.1.5.1: a component of the path is a file.
            Err(VfsError::NotDirectory) => return Err(NtStatus::OBJECT_PATH_NOT_FOUND),
            Err(e) => return Err(status::of_vfs(e)),
        };
        access::check_traversal(self.r, &parent)?;
        reparse::check_not_reparse_point(&parent.stat)?;
        access::descriptor(self.r, &parent.node, &parent.stat).await
    }

    /// The rights to a file that exists and is to have a new stream (MS-FSA 2.1.5.1.2, "Stream not found"), and the file's
    /// descriptor.
    pub(super) async fn judge_new_stream(
        &self,
        file: &Opened,
    ) -> Result<(AccessMask, Option<Vec<u8>>), NtStatus> {
        access::check_traversal(self.r, file)?;
        self.check_last_component(&file.stat)?;
        if file.stat.kind == Kind::File && file.stat.attributes.contains(Attributes::READONLY) {
            return Err(NtStatus::ACCESS_DENIED);
        }
        let security = access::descriptor(self.r, &file.node, &file.stat).await?;
        let granted = self.grant(security.as_deref(), AccessMask::empty()).await?;
        let maximal = access::maximal(&self.r.session.user, security.as_deref()) & self.ceiling;
        if !maximal.contains(AccessMask::WRITE_DATA) {
            return Err(NtStatus::ACCESS_DENIED);
        }
        if self.vfs.info().read_only {
            return Err(NtStatus::MEDIA_WRITE_PROTECTED);
        }
        Ok((granted, security))
    }

    /// The rights to a file that this CREATE has created (MS-FSA 2.1.5.1.1).
    pub(super) async fn judge_new(&self, opened: Opened, check: &NewFile) -> Result<OpenedFile, NtStatus> {
        // The backend called the check before it created the file.
        let security = check.answer().unwrap_or(Err(NtStatus::INTERNAL_ERROR))?;
        let mut granted = self.desired & !AccessMask::MAXIMUM_ALLOWED;
        if self.desired.contains(AccessMask::MAXIMUM_ALLOWED) {
            granted |= access::maximal(&self.r.session.user, Some(&security)) & self.ceiling;
        }
        let mut found =
            OpenedFile { opened, made_file: true, resumed: false, granted, security: Some(security) };
        if let Err(failed) = self.compress_as_asked(&mut found.opened).await {
            self.remove_created(&found).await;
            return Err(failed);
        }
        Ok(found)
    }

    /// MS-FSA 2.1.5.1.1: a new file is compressed as its folder is, unless the client wants it not to be.
    pub(super) async fn compress_as_asked(&self, new: &mut Opened) -> Result<(), NtStatus> {
        let compressed = new.stat.attributes.contains(Attributes::COMPRESSED);
        if compressed && self.q.create_options.contains(CreateOptions::NO_COMPRESSION) {
            new.node.set_compressed(&self.r.ctx(), false).wait().await.map_err(status::of_vfs)?;
            new.stat.attributes.remove(Attributes::COMPRESSED);
        }
        Ok(())
    }
}
