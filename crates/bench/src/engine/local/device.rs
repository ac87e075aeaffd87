//! Protects block devices: a run writes to one only with explicit permission, and while no other process uses
//! it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};

use rustix::fs::ioctl_blksszget;

use crate::engine::error::OpenError;
use crate::engine::verify::SECTOR;
use crate::profile::Target;

/// Claims each block device that will be written, for the lifetime of the result: neither the device nor a
/// part of it may be mounted, used as swap or be part of an array, now or meanwhile. One claim serves the
/// whole run: it excludes other claims, but not the threads that open the device later. `allowed`: the caller
/// has permitted overwriting devices.
///
/// # Errors
/// There is no permission, or the device is in use. Nothing has been written then.
pub(in crate::engine) fn claim<'a>(
    targets: impl Iterator<Item = &'a Target>,
    allowed: bool,
) -> Result<Vec<File>, OpenError> {
    let mut claims: Vec<(u64, File)> = Vec::new();
    for target in targets.filter(|t| t.write_percent > 0) {
        let path = &target.path;
        // A missing path will become a file; an inaccessible one fails when it is opened.
        let Ok(metadata) = std::fs::metadata(path) else { continue };
        if !metadata.file_type().is_block_device() || claims.iter().any(|c| c.0 == metadata.rdev()) {
            continue;
        }
        if !allowed {
            return Err(OpenError::Device { path: path.clone() });
        }
        let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_EXCL).open(path);
        let claimed = opened.map_err(|source| match source.raw_os_error() {
            Some(libc::EBUSY) => OpenError::InUse { path: path.clone() },
            _ => OpenError::Local { path: path.clone(), source },
        })?;
        claims.push((metadata.rdev(), claimed));
    }
    Ok(claims.into_iter().map(|c| c.1).collect())
}

/// The unit of unbuffered I/O to this target, in bytes: a device's logical block, else 512.
///
/// # Errors
/// The system's error.
pub(in crate::engine) fn sector(path: &str) -> io::Result<u64> {
    let is_device = std::fs::metadata(path)?.file_type().is_block_device();
    if is_device { Ok(ioctl_blksszget(File::open(path)?)?.into()) } else { Ok(SECTOR) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_not_claimed() {
        let here = Target {
            path: env!("CARGO_MANIFEST_DIR").to_owned() + "/Cargo.toml",
            write_percent: 100,
            ..Target::default()
        };
        let missing = Target { path: "/nowhere/at all".to_owned(), ..here.clone() };
        assert_eq!(claim([&here, &missing].into_iter(), false).expect("nothing to refuse").len(), 0);
        assert_eq!(sector(&here.path).expect("it is there"), 512);
        assert!(sector(&missing.path).is_err());
    }
}
