//! How to open a file.

use smb_wire::msg::{CreateDisposition, CreateOptions};
use smb_wire::{AccessMask, FileAttributes, ShareAccess};

/// How to open a file (MS-SMB2 2.2.13). Others may read, write and delete it meanwhile unless [`OpenOptions::share`]
/// says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// The requested access.
    pub access: AccessMask,
    /// The access permitted to others meanwhile.
    pub share: ShareAccess,
    /// The action if it exists, and if it does not.
    pub disposition: CreateDisposition,
    /// Whether it must be a directory, and more.
    pub options: CreateOptions,
    /// Attributes of a file that is created.
    pub attributes: FileAttributes,
    /// Whether a persistent handle is asked for (MS-SMB2 3.2.4.3.5). A server that has none for this share
    /// gives a durable or an ordinary one.
    pub persistent: bool,
}

impl OpenOptions {
    fn new(access: AccessMask, disposition: CreateDisposition, options: CreateOptions) -> OpenOptions {
        OpenOptions {
            access,
            share: ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE,
            disposition,
            options,
            attributes: FileAttributes::empty(),
            persistent: false,
        }
    }

    fn file(access: AccessMask, disposition: CreateDisposition) -> OpenOptions {
        OpenOptions::new(access, disposition, CreateOptions::NON_DIRECTORY_FILE)
    }

    /// An existing file, to read.
    pub fn read() -> OpenOptions {
        OpenOptions::file(AccessMask::FILE_GENERIC_READ, CreateDisposition::OPEN)
    }

    /// An existing file, to read and write.
    pub fn write() -> OpenOptions {
        OpenOptions::file(READ_WRITE, CreateDisposition::OPEN)
    }

    /// A file to read and write; created if it does not exist.
    pub fn open_or_create() -> OpenOptions {
        OpenOptions::file(READ_WRITE, CreateDisposition::OPEN_IF)
    }

    /// An empty file to read and write; an existing one is emptied.
    pub fn create() -> OpenOptions {
        OpenOptions::file(READ_WRITE, CreateDisposition::OVERWRITE_IF)
    }

    /// A new file to read and write; an existing one is an error.
    pub fn create_new() -> OpenOptions {
        OpenOptions::file(READ_WRITE, CreateDisposition::CREATE)
    }

    /// An existing file or directory, to read its metadata.
    pub fn attributes() -> OpenOptions {
        let access = AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE;
        OpenOptions::new(access, CreateDisposition::OPEN, CreateOptions::empty())
    }

    /// An existing file or directory, to change its times and attributes.
    pub fn write_attributes() -> OpenOptions {
        let o = OpenOptions::attributes();
        OpenOptions { access: o.access | AccessMask::WRITE_ATTRIBUTES, ..o }
    }

    /// An existing directory, to list.
    pub(crate) fn list() -> OpenOptions {
        let access = AccessMask::READ_DATA | AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE;
        OpenOptions::new(access, CreateDisposition::OPEN, CreateOptions::DIRECTORY_FILE)
    }

    /// A new directory.
    pub(crate) fn new_directory() -> OpenOptions {
        OpenOptions { disposition: CreateDisposition::CREATE, ..OpenOptions::list() }
    }

    /// Something that exists, to delete or rename.
    pub(crate) fn delete(options: CreateOptions) -> OpenOptions {
        let access = AccessMask::DELETE | AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE;
        OpenOptions::new(access, CreateDisposition::OPEN, options)
    }

    /// Only write through to stable storage.
    pub fn write_through(mut self) -> OpenOptions {
        self.options |= CreateOptions::WRITE_THROUGH;
        self
    }

    /// Also to delete or rename.
    pub fn deletable(mut self) -> OpenOptions {
        self.access |= AccessMask::DELETE;
        self
    }

    /// Also to change its access control list.
    pub fn protectable(mut self) -> OpenOptions {
        self.access |= AccessMask::WRITE_DAC;
        self
    }

    /// Past the server's cache.
    pub fn unbuffered(mut self) -> OpenOptions {
        self.options |= CreateOptions::NO_INTERMEDIATE_BUFFERING;
        self
    }
}

const READ_WRITE: AccessMask = AccessMask::from_bits_retain(
    AccessMask::FILE_GENERIC_READ.bits() | AccessMask::FILE_GENERIC_WRITE.bits(),
);
