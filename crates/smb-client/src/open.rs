//! Options for opening a file.

use smb_wire::msg::{CreateDisposition, CreateOptions};
use smb_wire::{AccessMask, FileAttributes, ShareAccess};

/// Options for opening a file (MS-SMB2 2.2.13). Other opens may read, write and delete the file unless
/// [`OpenOptions::share`] forbids it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// The requested access.
    pub access: AccessMask,
    /// The access that other opens may have.
    pub share: ShareAccess,
    /// What to do if the file exists, and if it does not.
    pub disposition: CreateDisposition,
    /// Whether it must be a directory, and other options.
    pub options: CreateOptions,
    /// Attributes of a file that is created.
    pub attributes: FileAttributes,
    /// Whether to request a persistent handle (MS-SMB2 3.2.4.3.5). If the share does not support them, the server
    /// returns a durable or an ordinary one.
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

    /// Opens an existing file for reading.
    pub fn read() -> OpenOptions {
        OpenOptions::file(AccessMask::FILE_GENERIC_READ, CreateDisposition::OPEN)
    }

    /// Opens an existing file for reading and writing.
    pub fn write() -> OpenOptions {
        OpenOptions::file(READ_WRITE, CreateDisposition::OPEN)
    }

    /// Opens a file for reading and writing; creates it if it does not exist.
    pub fn open_or_create() -> OpenOptions {
        OpenOptions::file(READ_WRITE, CreateDisposition::OPEN_IF)
    }

    /// Opens an empty file for reading and writing; an existing one is truncated.
    pub fn create() -> OpenOptions {
        OpenOptions::file(READ_WRITE, CreateDisposition::OVERWRITE_IF)
    }

    /// Creates a file for reading and writing; fails if it exists.
    pub fn create_new() -> OpenOptions {
        OpenOptions::file(READ_WRITE, CreateDisposition::CREATE)
    }

    /// Opens an existing file or directory to read its metadata.
    pub fn attributes() -> OpenOptions {
        let access = AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE;
        OpenOptions::new(access, CreateDisposition::OPEN, CreateOptions::empty())
    }

    /// Opens an existing file or directory to change its times and attributes.
    pub fn write_attributes() -> OpenOptions {
        let o = OpenOptions::attributes();
        OpenOptions { access: o.access | AccessMask::WRITE_ATTRIBUTES, ..o }
    }

    /// Opens an existing directory to list it.
    pub(crate) fn list() -> OpenOptions {
        let access = AccessMask::READ_DATA | AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE;
        OpenOptions::new(access, CreateDisposition::OPEN, CreateOptions::DIRECTORY_FILE)
    }

    /// Creates a directory.
    pub(crate) fn new_directory() -> OpenOptions {
        OpenOptions { disposition: CreateDisposition::CREATE, ..OpenOptions::list() }
    }

    /// Opens an existing file or directory to delete or rename it.
    pub(crate) fn delete(options: CreateOptions) -> OpenOptions {
        let access = AccessMask::DELETE | AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE;
        OpenOptions::new(access, CreateDisposition::OPEN, options)
    }

    /// Requests write-through to stable storage.
    pub fn write_through(mut self) -> OpenOptions {
        self.options |= CreateOptions::WRITE_THROUGH;
        self
    }

    /// Adds the right to delete or rename.
    pub fn deletable(mut self) -> OpenOptions {
        self.access |= AccessMask::DELETE;
        self
    }

    /// Adds the right to change the access control list.
    pub fn protectable(mut self) -> OpenOptions {
        self.access |= AccessMask::WRITE_DAC;
        self
    }

    /// Bypasses the server's cache.
    pub fn unbuffered(mut self) -> OpenOptions {
        self.options |= CreateOptions::NO_INTERMEDIATE_BUFFERING;
        self
    }
}

const READ_WRITE: AccessMask = AccessMask::from_bits_retain(
    AccessMask::FILE_GENERIC_READ.bits() | AccessMask::FILE_GENERIC_WRITE.bits(),
);
