//! Related requests of a compound: what each inherits from the one before it (MS-SMB2 3.3.5.2.7.2).

use smb_wire::{Command, FileId, Header, NtStatus};

use crate::request::Reply;

/// What later related operations inherit.
#[derive(Default)]
pub(super) struct Related {
    pub(super) session_id: u64,
    /// `None` until an operation has named or created one.
    tree_id: Option<u32>,
    /// The open of the operation before.
    file_id: Option<FileId>,
    /// The failure of the operation that should have created `file_id`.
    failed: Option<NtStatus>,
    /// The operation before had a session: there is something to inherit.
    begun: bool,
}

impl Related {
    /// A request begins: one that is not related inherits nothing.
    #[inline]
    pub(super) fn begin(&mut self, header: &Header) {
        if !header.is_related() {
            *self = Related::default();
        }
    }

    /// The effective header of a request: a related operation inherits session and tree from the one before it, and its
    /// own fields are ignored.
    ///
    /// # Errors
    /// STATUS_INVALID_PARAMETER for the first operation of a chain, and after one whose session does not exist.
    #[inline]
    pub(super) fn inherit(&mut self, mut header: Header) -> Result<Header, NtStatus> {
        if header.is_related() {
            if !self.begun {
                self.failed.get_or_insert(NtStatus::INVALID_PARAMETER);
                return Err(NtStatus::INVALID_PARAMETER);
            }
            header.session_id = self.session_id;
            header.tree_id = self.tree_id.unwrap_or_default();
        }
        Ok(header)
    }

    /// Records whether the session of a request was verified.
    #[inline]
    pub(super) fn has_session(&mut self, id: Option<u64>) {
        self.begun = id.is_some();
        self.session_id = id.unwrap_or(self.session_id);
    }

    /// The FileId that a request works on: its own (`named`), or the one that it inherits. `None` for commands without
    /// one, and if there is none to inherit; then the handler answers STATUS_INVALID_HANDLE.
    ///
    /// # Errors
    /// STATUS_INVALID_PARAMETER when there is no tree connect to inherit; the status of the operation that should have
    /// created the FileId.
    #[inline]
    pub(super) fn names(
        &mut self,
        header: &Header,
        named: Option<FileId>,
    ) -> Result<Option<FileId>, NtStatus> {
        if header.is_related() && self.tree_id.is_none() {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        self.tree_id = Some(header.tree_id);
        if named.is_none() {
            return Ok(None);
        }
        if header.is_related() {
            return self.failed.map_or(Ok(self.file_id), Err);
        }
        self.file_id = named;
        Ok(named)
    }

    /// The FileId of the operation before, for a request that is related to it.
    pub(super) fn inherited(&self, header: &Header) -> Option<FileId> {
        self.file_id.filter(|_| header.is_related())
    }

    /// Records what later operations inherit from the reply to `command`.
    #[inline]
    pub(super) fn answered(&mut self, command: Command, reply: &Reply) {
        let (tree_id, file_id) =
            reply.extra.as_ref().map_or((None, None), |extra| (extra.tree_id, extra.file_id));
        self.tree_id = tree_id.or(self.tree_id);
        self.file_id = file_id.or(self.file_id);
        if command == Command::CREATE {
            // The status alone does not decide: STOPPED_ON_SYMLINK is a warning.
            self.failed = file_id.is_none().then_some(reply.status);
        }
    }
}

#[cfg(test)]
mod tests {
    use smb_wire::HeaderFlags;

    use super::*;

    const NAMED: FileId = FileId { persistent: 1, volatile: 2 };

    fn request(flags: HeaderFlags) -> Header {
        Header { session_id: 7, tree_id: 9, flags, ..Header::default() }
    }

    /// MS-SMB2 3.3.5.2.7.2: session, tree connect and file are those of the operation before; the fields are ignored.
    #[test]
    fn a_related_operation_inherits() {
        let (first, second) =
            (request(HeaderFlags::empty()), Header { session_id: 1, ..request(HeaderFlags::RELATED) });
        let mut related = Related::default();
        related.begin(&first);
        let header = related.inherit(first).expect("nothing to inherit");
        related.has_session(Some(header.session_id));
        assert_eq!(related.names(&header, Some(NAMED)), Ok(Some(NAMED)));
        related.begin(&second);
        let header = related.inherit(second).expect("a session to inherit");
        assert_eq!((header.session_id, header.tree_id), (7, 9));
        assert_eq!(related.names(&header, Some(FileId::NONE)), Ok(Some(NAMED)));
        related.begin(&first);
        assert_eq!(related.inherited(&second), None, "another chain has begun");
    }

    #[test]
    fn nothing_is_inherited_from_what_failed() {
        let (first, second) = (request(HeaderFlags::empty()), request(HeaderFlags::RELATED));
        let mut related = Related::default();
        assert_eq!(related.inherit(second).err(), Some(NtStatus::INVALID_PARAMETER), "the first of a chain");
        related.begin(&first);
        related.has_session(None);
        assert_eq!(related.inherit(second).err(), Some(NtStatus::INVALID_PARAMETER), "no session");
        related.begin(&first);
        related.has_session(Some(7));
        let header = related.inherit(second).expect("a session to inherit");
        assert_eq!(related.names(&header, None), Err(NtStatus::INVALID_PARAMETER), "no tree connect");
        assert_eq!(related.names(&first, None), Ok(None));
        related.answered(Command::CREATE, &Reply::error(NtStatus::ACCESS_DENIED));
        assert_eq!(related.names(&header, Some(NAMED)), Err(NtStatus::ACCESS_DENIED));
    }
}
