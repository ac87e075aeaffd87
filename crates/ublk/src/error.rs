//! Why a disk cannot become a block device, classified by cause, and which action helps.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// See the module.
#[derive(Debug, Error)]
pub enum Error {
    /// System: the driver does not exist or is not loaded.
    #[error("this kernel has no ublk driver loaded: there is no /dev/ublk-control")]
    NoDriver,
    /// System: root permission is required.
    #[error("this user has no permission to create block devices: {0}")]
    NotAllowed(#[source] io::Error),
    /// System: the driver is older than Linux 6.5.
    #[error(
        "this kernel's ublk driver is too old: it does not report its features, or does not support UBLK_F_USER_COPY"
    )]
    TooOld,
    /// System: the driver is older than Linux 6.16.
    #[error("this kernel's ublk driver cannot change the size of a block device")]
    CannotResize,
    /// System: no io_uring.
    #[error("this system does not permit io_uring: {0}")]
    NoRing(#[source] io::Error),
    /// Disk: the kernel supports only blocks of 512 to 4096 bytes.
    #[error("this kernel does not support block devices with blocks of {block} bytes")]
    Unfit {
        /// Its logical block, in bytes.
        block: u32,
    },
    /// System: the device file cannot be opened.
    #[error("{}: {source}", path.display())]
    Node {
        /// The expected path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The driver refused a command.
    #[error("the kernel's ublk driver refused to {what}: {source}")]
    Command {
        /// The command.
        what: &'static str,
        /// The driver's error.
        source: io::Error,
    },
    /// Caller: the device is in use exclusively.
    #[error("{} is in use: a file system on it is mounted, or another device uses it", path.display())]
    InUse {
        /// The block device.
        path: PathBuf,
    },
}

impl Error {
    /// The action that helps, if the message does not contain it.
    pub fn cure(&self) -> Option<&'static str> {
        match self {
            Error::NoDriver => Some(
                "load it as root: modprobe ublk_drv; it needs Linux 6.5 or newer with CONFIG_BLK_DEV_UBLK",
            ),
            Error::NotAllowed(_) => Some("run the server as root, or with CAP_SYS_ADMIN"),
            Error::TooOld => Some("use Linux 6.5 or newer"),
            Error::CannotResize => {
                Some("detach it first (causeway space detach), or use Linux 6.16 or newer")
            }
            Error::NoRing(_) => {
                Some("allow io_uring: sysctl kernel.io_uring_disabled=0, and no seccomp filter against it")
            }
            Error::Node { .. } => Some(
                "/dev must be a devtmpfs (in a container: the host's), because the kernel creates the device's files there",
            ),
            Error::InUse { .. } => Some("unmount it first (umount), or stop the device that uses it"),
            Error::Unfit { .. } | Error::Command { .. } => None,
        }
    }
}
