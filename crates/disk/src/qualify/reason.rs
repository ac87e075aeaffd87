//! Why a disk cannot be pooled, in Storage Spaces' terms (`CannotPoolReason`), and the action that helps.

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use super::{Signature, User};
use crate::{DiskError, DiskId};

/// A reason against a disk. Its text is the finding; see [`CannotPoolReason::name`] and
/// [`CannotPoolReason::cure`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CannotPoolReason {
    /// It has a pool's label.
    #[error("it belongs to {pool}")]
    InAPool {
        /// The pool in the label.
        pool: String,
    },
    /// Reading it failed.
    #[error("{error}")]
    NotHealthy {
        /// The failure.
        error: DiskError,
    },
    /// It is removable media.
    #[error("it is removable media (USB, card reader)")]
    RemovableMedia,
    /// It is in use.
    #[error("{}", in_use(by))]
    InUse {
        /// The users, as far as the system reports them.
        by: Vec<User>,
    },
    /// It exists but does not respond.
    #[error("it does not answer (error {errno})")]
    Offline {
        /// The system's error.
        errno: i32,
    },
    /// It is too small.
    #[error("its size is {}; the minimum is {}", mebibytes(*.size), mebibytes(*.minimum))]
    InsufficientCapacity {
        /// Its size in bytes.
        size: u64,
        /// The required size.
        minimum: u64,
    },
    /// It is connected by a network: another machine may write to it, and this machine's fence cannot prevent
    /// that.
    #[error(
        "it is connected by {transport}: other machines can write to it, and this server cannot prevent that"
    )]
    Shared {
        /// The transport.
        transport: &'static str,
    },
    /// It cannot be written.
    #[error("it is write-protected")]
    ReadOnly,
    /// It has no permanent identity.
    #[error("it has no permanent serial number or world wide name")]
    NoUniqueId,
    /// Another disk has the same identity.
    #[error("{} has the same identity, {id}", other.as_ref().map_or("another disk".into(), |p| p.display().to_string()))]
    DuplicateId {
        /// The identity of both.
        id: DiskId,
        /// The path of the other disk, if it is in this machine.
        other: Option<PathBuf>,
    },
    /// It has contents.
    #[error("it contains {}", signatures.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    NotBlank {
        /// The signatures.
        signatures: Vec<Signature>,
    },
    /// A kind of disk that a pool cannot use: zoned, or with blocks of more than 4 KiB.
    #[error("it is zoned, or its blocks ({logical_block} bytes) are larger than 4096 bytes")]
    HardwareNotCompliant {
        /// Its logical block, in bytes.
        logical_block: u32,
    },
}

/// A recommendation: the disk can be pooled, but another one would be better.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Warning {
    /// A flush takes as long as writing flash or a platter, so the cache is not protected: small synchronous
    /// writes are slow.
    #[error(
        "a flush takes {} µs (median): its cache is not protected against power loss, so every synchronous write \
         waits that long; use disks with power-loss protection, or a journal disk that has it",
        median.as_micros()
    )]
    NoPowerLossProtection {
        /// The measured median.
        median: Duration,
    },
    /// The system guarantees atomic writes only for less than a checksummed unit.
    #[error(
        "only {unit} bytes are written atomically, so mirrors write their copies one after the other; format it to 4096-byte sectors (nvme format, sg_format)"
    )]
    SmallAtomicWrite {
        /// In bytes.
        unit: u32,
    },
    /// It has no world wide name.
    #[error(
        "only its model and serial number identify it; another disk of the same model could have the same number"
    )]
    OnlySerial,
}

impl CannotPoolReason {
    /// The name of the reason in tables.
    pub fn name(&self) -> &'static str {
        match self {
            CannotPoolReason::InAPool { .. } => "In a pool",
            CannotPoolReason::NotHealthy { .. } => "Not healthy",
            CannotPoolReason::RemovableMedia => "Removable media",
            CannotPoolReason::InUse { .. } => "In use",
            CannotPoolReason::Offline { .. } => "Offline",
            CannotPoolReason::InsufficientCapacity { .. } => "Insufficient capacity",
            CannotPoolReason::Shared { .. } => "Shared",
            CannotPoolReason::ReadOnly => "Read-only",
            CannotPoolReason::NoUniqueId => "No unique ID",
            CannotPoolReason::DuplicateId { .. } => "Duplicate ID",
            CannotPoolReason::NotBlank { .. } => "Not blank",
            CannotPoolReason::HardwareNotCompliant { .. } => "Hardware not compliant",
        }
    }

    /// The action that helps.
    pub fn cure(&self) -> String {
        match self {
            CannotPoolReason::InAPool { .. } => {
                "remove the disk from that pool first (causeway pool remove-disk); if that pool no longer exists, pass --force"
                    .into()
            }
            CannotPoolReason::NotHealthy { .. } => {
                "check the kernel's log (dmesg) and the disk's health (smartctl -a); replace the disk or its cable".into()
            }
            CannotPoolReason::RemovableMedia => "use an internal disk".into(),
            CannotPoolReason::InUse { by } => match by.first() {
                Some(user) => user.cure(),
                None => "find the process that uses it (lsof, fuser -v) and stop it".into(),
            },
            CannotPoolReason::Offline { .. } => {
                "check power and cable, and the kernel's log (dmesg); then rescan the bus".into()
            }
            CannotPoolReason::InsufficientCapacity { .. } => {
                "use a larger disk".into()
            }
            CannotPoolReason::Shared { .. } => {
                "use disks that only this machine can access; other machines can use them through this server".into()
            }
            CannotPoolReason::ReadOnly => {
                "remove the write protection (a switch, blockdev --setrw); a worn-out disk must be replaced".into()
            }
            CannotPoolReason::NoUniqueId => {
                "for a disk of a virtual machine, set a serial number in the hypervisor; for a physical disk, update its \
                 firmware; for a file, use a file system with extended attributes"
                    .into()
            }
            CannotPoolReason::DuplicateId { .. } => {
                "if both are paths to one disk, use the multipath device; otherwise update the firmware, which gives two \
                 disks the same identity"
                    .into()
            }
            CannotPoolReason::NotBlank { .. } => {
                "if its data is not needed, erase it (wipefs --all) or pass --force".into()
            }
            CannotPoolReason::HardwareNotCompliant { .. } => {
                "use a disk that is not zoned, with sectors of 512 or 4096 bytes".into()
            }
        }
    }
}

fn in_use(by: &[User]) -> String {
    match by {
        [] => "another process uses it".into(),
        by => by.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
    }
}

/// `1.5 MiB`, `16 MiB`.
pub fn mebibytes(bytes: u64) -> String {
    let text = format!("{:.1}", bytes as f64 / f64::from(1 << 20));
    format!("{} MiB", text.trim_end_matches(".0"))
}
