//! Conversion of the system's error numbers to [`VfsError`].

use rustix::io::Errno;

use crate::VfsError;

impl From<Errno> for VfsError {
    fn from(e: Errno) -> VfsError {
        match e {
            Errno::NOENT => VfsError::NotFound,
            Errno::EXIST => VfsError::Exists,
            Errno::ISDIR => VfsError::IsDirectory,
            Errno::NOTDIR => VfsError::NotDirectory,
            Errno::NOTEMPTY => VfsError::NotEmpty,
            Errno::ACCESS | Errno::PERM | Errno::BADF => VfsError::AccessDenied,
            Errno::LOOP => VfsError::Escapes,
            Errno::STALE => VfsError::Stale,
            Errno::NAMETOOLONG => VfsError::NameTooLong,
            Errno::ILSEQ => VfsError::InvalidName,
            Errno::INVAL | Errno::OVERFLOW => VfsError::InvalidArgument,
            Errno::NOSPC => VfsError::NoSpace,
            Errno::DQUOT => VfsError::Quota,
            Errno::FBIG => VfsError::TooLarge,
            Errno::ROFS => VfsError::ReadOnly,
            Errno::MFILE | Errno::NFILE => VfsError::TooManyOpen,
            Errno::NOMEM => VfsError::NoMemory,
            Errno::XDEV => VfsError::CrossDevice,
            Errno::MLINK => VfsError::TooManyLinks,
            Errno::BUSY | Errno::TXTBSY => VfsError::Busy,
            Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY => VfsError::Unsupported,
            other => VfsError::Io(other.raw_os_error()),
        }
    }
}
