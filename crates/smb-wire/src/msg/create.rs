//! CREATE (MS-SMB2 2.2.13, 2.2.14). The contexts are in [`crate::context`].

use super::part16;
use crate::context::CreateContexts;
use crate::cursor::{Field, Reader, fit_u32};
use crate::macros::{flag_set, open_enum};
use crate::{
    AccessMask, Decode, Encode, FileAttributes, FileId, FileTime, MessageBuilder, ShareAccess, Utf16Le,
    WireError,
};

open_enum! {
    /// Oplock level.
    pub struct OplockLevel(u8) {
        /// None.
        NONE = 0x00,
        /// Level II, shared read caching.
        LEVEL_II = 0x01,
        /// Exclusive.
        EXCLUSIVE = 0x08,
        /// Batch.
        BATCH = 0x09,
        /// A lease: see the RqLs context.
        LEASE = 0xFF,
    }
}

open_enum! {
    /// Impersonation level.
    pub struct ImpersonationLevel(u32) {
        /// Anonymous.
        ANONYMOUS = 0,
        /// Identification.
        IDENTIFICATION = 1,
        /// Impersonation.
        IMPERSONATION = 2,
        /// Delegation.
        DELEGATE = 3,
    }
}

open_enum! {
    /// What to do if the file exists, and if it does not.
    pub struct CreateDisposition(u32) {
        /// Replace the file, or create it.
        SUPERSEDE = 0,
        /// Open the file, or fail.
        OPEN = 1,
        /// Fail if the file exists, otherwise create it.
        CREATE = 2,
        /// Open the file, or create it.
        OPEN_IF = 3,
        /// Overwrite the file, or fail.
        OVERWRITE = 4,
        /// Overwrite the file, or create it.
        OVERWRITE_IF = 5,
    }
}

open_enum! {
    /// The action taken by CREATE.
    pub struct CreateAction(u32) {
        /// An existing file was replaced.
        SUPERSEDED = 0,
        /// An existing file was opened.
        OPENED = 1,
        /// A file was created.
        CREATED = 2,
        /// An existing file was overwritten.
        OVERWRITTEN = 3,
    }
}

flag_set! {
    /// CreateOptions.
    pub struct CreateOptions: u32 {
        /// The file must be, or becomes, a directory.
        const DIRECTORY_FILE = 0x0000_0001;
        /// Write-through.
        const WRITE_THROUGH = 0x0000_0002;
        /// Access will be sequential.
        const SEQUENTIAL_ONLY = 0x0000_0004;
        /// The server must not cache.
        const NO_INTERMEDIATE_BUFFERING = 0x0000_0008;
        /// Ignored by servers.
        const SYNCHRONOUS_IO_ALERT = 0x0000_0010;
        /// Ignored by servers.
        const SYNCHRONOUS_IO_NONALERT = 0x0000_0020;
        /// The file must not be a directory.
        const NON_DIRECTORY_FILE = 0x0000_0040;
        /// Ignored by servers.
        const COMPLETE_IF_OPLOCKED = 0x0000_0100;
        /// The client does not understand extended attributes.
        const NO_EA_KNOWLEDGE = 0x0000_0200;
        /// Access will be random.
        const RANDOM_ACCESS = 0x0000_0800;
        /// Delete when the last handle closes.
        const DELETE_ON_CLOSE = 0x0000_1000;
        /// Open by file id: not supported over SMB2.
        const OPEN_BY_FILE_ID = 0x0000_2000;
        /// Open with backup intent.
        const OPEN_FOR_BACKUP_INTENT = 0x0000_4000;
        /// Do not compress.
        const NO_COMPRESSION = 0x0000_8000;
        /// Open remote instance; ignored.
        const OPEN_REMOTE_INSTANCE = 0x0000_0400;
        /// Fail unless an oplock is granted.
        const OPEN_REQUIRING_OPLOCK = 0x0001_0000;
        /// Refused on any oplock.
        const DISALLOW_EXCLUSIVE = 0x0002_0000;
        /// Reserve for an opportunistic filter: not supported.
        const RESERVE_OPFILTER = 0x0010_0000;
        /// Open the reparse point itself.
        const OPEN_REPARSE_POINT = 0x0020_0000;
        /// Do not recall from offline storage.
        const OPEN_NO_RECALL = 0x0040_0000;
        /// Open to query free space.
        const OPEN_FOR_FREE_SPACE_QUERY = 0x0080_0000;
    }
}

/// CREATE request (MS-SMB2 2.2.13).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CreateRequest<'a> {
    /// Requested oplock.
    pub oplock_level: OplockLevel,
    /// Impersonation level.
    pub impersonation_level: ImpersonationLevel,
    /// Reserved by the specification; kept because some peers use it.
    pub smb_create_flags: u64,
    /// Requested rights.
    pub desired_access: AccessMask,
    /// Attributes of a file that is created.
    pub file_attributes: FileAttributes,
    /// The access that other opens may have.
    pub share_access: ShareAccess,
    /// What to do if the file exists.
    pub create_disposition: CreateDisposition,
    /// Options.
    pub create_options: CreateOptions,
    /// Path from the share's root, separated by backslashes, without a leading one; empty for the root.
    pub name: Utf16Le<'a>,
    /// The contexts, undecoded.
    pub contexts: CreateContexts<'a>,
}

const REQUEST: &str = "CREATE request";

impl<'a> Decode<'a> for CreateRequest<'a> {
    fn decode(msg: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::body(msg, REQUEST, 57)?;
        r.skip(1)?; // SecurityFlags, reserved
        let oplock_level = r.get()?;
        let impersonation_level = r.get()?;
        let smb_create_flags = r.get()?;
        r.skip(8)?;
        let desired_access = r.get()?;
        let file_attributes = r.get()?;
        let share_access = r.get()?;
        let create_disposition = r.get()?;
        let create_options = r.get()?;
        let (name_offset, name_len): (u16, u16) = (r.get()?, r.get()?);
        let (contexts_offset, contexts_len): (u32, u32) = (r.get()?, r.get()?);
        let name = Utf16Le::new(r.range(name_offset.into(), name_len.into(), "CREATE name")?, "CREATE name")?;
        let contexts = CreateContexts::from_bytes(r.range(
            contexts_offset as usize,
            contexts_len as usize,
            "CREATE contexts",
        )?);
        Ok(Self {
            oplock_level,
            impersonation_level,
            smb_create_flags,
            desired_access,
            file_attributes,
            share_access,
            create_disposition,
            create_options,
            name,
            contexts,
        })
    }
}

impl Encode for CreateRequest<'_> {
    fn encode(&self, m: &mut MessageBuilder<'_>) -> Result<(), WireError> {
        let name_at = m.offset() + 56;
        let (name_offset, name_len) = part16(name_at, self.name.as_bytes(), "CREATE name")?;
        let contexts = self.contexts.as_bytes();
        let contexts_len = fit_u32(contexts.len(), "CREATE contexts")?;
        let contexts_offset =
            if contexts.is_empty() { 0 } else { (name_at + self.name.len()).next_multiple_of(8) as u32 };
        let out = m.out();
        57u16.put(out);
        0u8.put(out);
        self.oplock_level.put(out);
        self.impersonation_level.put(out);
        self.smb_create_flags.put(out);
        0u64.put(out);
        self.desired_access.put(out);
        self.file_attributes.put(out);
        self.share_access.put(out);
        self.create_disposition.put(out);
        self.create_options.put(out);
        name_offset.put(out);
        name_len.put(out);
        contexts_offset.put(out);
        contexts_len.put(out);
        out.extend_from_slice(self.name.as_bytes());
        if !contexts.is_empty() {
            m.align(8);
            m.out().extend_from_slice(contexts);
        } else if self.name.is_empty() {
            // MS-SMB2 2.2.13: the buffer has at least one byte; Windows sends eight for an empty name.
            m.align(8);
            m.out().extend_from_slice(&[0; 8]);
        }
        Ok(())
    }
}

flag_set! {
    /// Flags of a CREATE response (SMB 3.x).
    pub struct CreateResponseFlags: u8 {
        /// The last component is a reparse point.
        const REPARSEPOINT = 1;
    }
}

/// CREATE response (MS-SMB2 2.2.14).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CreateResponse<'a> {
    /// The granted oplock.
    pub oplock_level: OplockLevel,
    /// Flags.
    pub flags: CreateResponseFlags,
    /// The action taken.
    pub create_action: CreateAction,
    /// Creation time.
    pub creation_time: FileTime,
    /// Last access time.
    pub last_access_time: FileTime,
    /// Last write time.
    pub last_write_time: FileTime,
    /// Change time.
    pub change_time: FileTime,
    /// Allocated size in bytes.
    pub allocation_size: u64,
    /// Length of the file in bytes.
    pub end_of_file: u64,
    /// Attributes.
    pub file_attributes: FileAttributes,
    /// The open.
    pub file_id: FileId,
    /// The contexts, undecoded.
    pub contexts: CreateContexts<'a>,
}

const RESPONSE: &str = "CREATE response";

impl<'a> Decode<'a> for CreateResponse<'a> {
    fn decode(msg: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::body(msg, RESPONSE, 89)?;
        let oplock_level = r.get()?;
        let flags = r.get()?;
        let create_action = r.get()?;
        let creation_time = r.get()?;
        let last_access_time = r.get()?;
        let last_write_time = r.get()?;
        let change_time = r.get()?;
        let allocation_size = r.get()?;
        let end_of_file = r.get()?;
        let file_attributes = r.get()?;
        r.skip(4)?;
        let file_id = r.get()?;
        let (offset, len): (u32, u32) = (r.get()?, r.get()?);
        let contexts =
            CreateContexts::from_bytes(r.range(offset as usize, len as usize, "CREATE contexts")?);
        Ok(Self {
            oplock_level,
            flags,
            create_action,
            creation_time,
            last_access_time,
            last_write_time,
            change_time,
            allocation_size,
            end_of_file,
            file_attributes,
            file_id,
            contexts,
        })
    }
}

impl Encode for CreateResponse<'_> {
    fn encode(&self, m: &mut MessageBuilder<'_>) -> Result<(), WireError> {
        let contexts = self.contexts.as_bytes();
        let len = fit_u32(contexts.len(), "CREATE contexts")?;
        let offset = if contexts.is_empty() { 0 } else { fit_u32(m.offset() + 88, "CREATE contexts")? };
        let out = m.out();
        89u16.put(out);
        self.oplock_level.put(out);
        self.flags.put(out);
        self.create_action.put(out);
        self.creation_time.put(out);
        self.last_access_time.put(out);
        self.last_write_time.put(out);
        self.change_time.put(out);
        self.allocation_size.put(out);
        self.end_of_file.put(out);
        self.file_attributes.put(out);
        0u32.put(out);
        self.file_id.put(out);
        offset.put(out);
        len.put(out);
        out.extend_from_slice(contexts);
        Ok(())
    }
}
