//! Opening a file by its handle, independent of its name: name_to_handle_at(2), open_by_handle_at(2).
//!
//! A stored handle, integers little-endian: i32 type, then the bytes that the file system gave, at most [`MAX`].
#![allow(unsafe_code)] // two system calls that no crate wraps

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;

/// The longest handle (MAX_HANDLE_SZ).
const MAX: usize = 128;

/// `struct file_handle` with space for the longest handle.
#[repr(C)]
struct Handle {
    bytes: libc::c_uint,
    kind: libc::c_int,
    handle: [u8; MAX],
}

/// The handle of an open file.
pub(super) fn of(fd: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    let mut handle = Handle { bytes: MAX as libc::c_uint, kind: 0, handle: [0; MAX] };
    let mut mount = 0;
    // SAFETY: `handle` has the kernel's layout and the space that its first field states; all pointers outlive the
    // call.
    let r = unsafe {
        libc::name_to_handle_at(
            fd.as_raw_fd(),
            c"".as_ptr(),
            std::ptr::from_mut(&mut handle).cast(),
            &raw mut mount,
            libc::AT_EMPTY_PATH,
        )
    };
    if r != 0 {
        return Err(last_error());
    }
    let bytes = handle.handle.get(..handle.bytes as usize).ok_or(Errno::OVERFLOW)?;
    Ok([&handle.kind.to_le_bytes()[..], bytes].concat())
}

/// Opens the file with this handle with `O_PATH`, on the file system of `mount`.
///
/// # Errors
/// `STALE` when there is no such file; `PERM` without CAP_DAC_READ_SEARCH.
pub(super) fn open(mount: BorrowedFd<'_>, stored: &[u8]) -> Result<OwnedFd, Errno> {
    let (kind, bytes) = stored.split_first_chunk::<4>().ok_or(Errno::INVAL)?;
    let mut handle =
        Handle { bytes: bytes.len() as libc::c_uint, kind: i32::from_le_bytes(*kind), handle: [0; MAX] };
    handle.handle.get_mut(..bytes.len()).ok_or(Errno::INVAL)?.copy_from_slice(bytes);
    // SAFETY: `handle` has the kernel's layout and the bytes that its first field states, and outlives the call.
    let fd = unsafe {
        libc::open_by_handle_at(
            mount.as_raw_fd(),
            std::ptr::from_mut(&mut handle).cast(),
            libc::O_PATH | libc::O_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(last_error());
    }
    // SAFETY: the call succeeded, so the descriptor is open and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn last_error() -> Errno {
    Errno::from_raw_os_error(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}
