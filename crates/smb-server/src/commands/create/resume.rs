//! A CREATE that a crash of the server interrupted after it had created its file, and before the record of its
//! persistent open was durable.
//!
//! Its client has no answer and replays the CREATE (MS-SMB2 3.2.4.2.4 with 3.3.5.9: FLAGS_REPLAY_OPERATION, the same
//! CreateGuid). No open has this CreateGuid, so the CREATE is carried out again. It must not find its own file as that
//! of another client: FILE_CREATE would fail with OBJECT_NAME_COLLISION.
//!
//! Therefore the backend stores an identifier of the CREATE with each file that is made for a persistent open, before
//! the file gets its name ([`vfs::OpenRequest::creation_id`]). This costs no write of the journal. A replay that finds
//! a file with its own identifier continues where the earlier run ended.
//!
//! The identifier, integers little-endian:
//!
//! | byte | size | what                                  |
//! |------|------|---------------------------------------|
//! | 0    | 4    | number of the server's run            |
//! | 4    | 16   | ClientGuid                            |
//! | 20   | 16   | CreateGuid                            |
//! | 36   | 8-68 | the user's SID (MS-DTYP 2.4.2.2)      |
//!
//! Invariants:
//! 1. Only a later run of the server resumes: in the same run a CREATE that fails removes its file.
//! 2. Only a file without data is resumed: its client has written nothing, for it had no answer.
//! 3. A resumed CREATE that fails does not remove the file: another client may have opened it since the start.

use smb_wire::{AccessMask, HeaderFlags, NtStatus};
use vfs::Opened;

use super::{OpenedFile, Plan};
use crate::{access, status};

/// Bytes of the number of the server's run.
const BOOT_LEN: usize = 4;

impl Plan<'_> {
    /// The identifier of a CREATE whose open is to be persistent; `None` for others.
    pub(super) fn creation_id(&self) -> Option<Vec<u8>> {
        let durable = self.requested.durable_v2.filter(|_| self.wants_persistent())?;
        let mut id = Vec::with_capacity(vfs::CREATION_ID_MAX);
        id.extend_from_slice(&self.r.server.config.boot.to_le_bytes());
        id.extend_from_slice(&self.r.facts.client_guid.0);
        id.extend_from_slice(&durable.create_guid.0);
        self.r.session.user.sid.encode(&mut id);
        Some(id)
    }

    /// Whether the CREATE may be one that an earlier run of the server began.
    pub(super) fn may_resume(&self) -> bool {
        self.r.header.flags.contains(HeaderFlags::REPLAY)
            && self.r.facts.dialect >= 0x0300
            && self.may_create()
            && self.wants_persistent()
    }

    /// Whether an earlier run of the server created the file for this CREATE.
    pub(super) async fn is_resumed(&self, opened: &Opened) -> Result<bool, NtStatus> {
        // If the crash came before the stream was created, there is nothing to resume: the stream is created now.
        if opened.stat.size > 0 || opened.stream.is_none() && self.stream.is_some() {
            return Ok(false);
        }
        let stored = opened.node.creation_id(&self.r.ctx()).wait().await.map_err(status::of_vfs)?;
        let Some((stored, own)) = stored.zip(self.creation_id()) else { return Ok(false) };
        Ok(stored.len() > BOOT_LEN
            && stored[..BOOT_LEN] != own[..BOOT_LEN]
            && stored[BOOT_LEN..] == own[BOOT_LEN..])
    }

    /// The rights to a resumed file: those of the CREATE that created it (MS-FSA 2.1.5.1.1), not those that the file's
    /// attributes and descriptor grant.
    pub(super) async fn judge_resumed(&self, mut opened: Opened) -> Result<OpenedFile, NtStatus> {
        access::check_traversal(self.r, &opened)?;
        let security = access::descriptor(self.r, &opened.node, &opened.stat).await?;
        let mut granted = self.desired & !AccessMask::MAXIMUM_ALLOWED;
        if self.desired.contains(AccessMask::MAXIMUM_ALLOWED) {
            granted |= access::maximal(&self.r.session.user, security.as_deref()) & self.ceiling;
        }
        self.compress_as_asked(&mut opened).await?;
        Ok(OpenedFile { opened, made_file: false, resumed: true, granted, security })
    }
}
