//! The identity of a file or device.

use std::os::fd::BorrowedFd;
use std::path::Path;

use env::Env;
use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};

use crate::sysfs::Device;
use crate::{DiskId, DiskInfo, Geometry, IdKind, Media, WriteCache};

/// `NUMBER INODE`: 32 hexadecimal digits, and the file's inode number when they were assigned.
const ATTRIBUTE: &str = "user.causeway.disk";

const QUEUE_DEPTH_DEVICE: u32 = 128;

/// The number in the file's attribute. The file gets a new one if it has none, or if the attribute was copied
/// from another file. If attributes cannot be stored, the identity is the path.
pub(super) fn of_file(env: &Env, path: &Path, fd: BorrowedFd<'_>, inode: u64, read_only: bool) -> DiskId {
    let mut buffer = [0; 128];
    if let Ok(n) = fgetxattr(fd, ATTRIBUTE, &mut buffer[..])
        && let Some(value) = parse(&buffer[..n], inode)
    {
        return DiskId { kind: IdKind::File, value };
    }
    let value = format!("{:032x}", u128::from_le_bytes(env.random()));
    let attribute = format!("{value} {inode}");
    if !read_only && fsetxattr(fd, ATTRIBUTE, attribute.as_bytes(), XattrFlags::empty()).is_ok() {
        // The attribute must survive a power cut.
        let _ = rustix::fs::fsync(fd);
        return DiskId { kind: IdKind::File, value };
    }
    DiskId { kind: IdKind::Path, value: path.display().to_string() }
}

fn parse(attribute: &[u8], inode: u64) -> Option<String> {
    let (value, of) = std::str::from_utf8(attribute).ok()?.split_once(' ')?;
    let well_formed = value.len() == 32 && value.bytes().all(|b| b.is_ascii_hexdigit());
    (well_formed && of.parse() == Ok(inode)).then(|| value.to_owned())
}

/// The description of a device from the system.
pub(crate) fn of_device(path: &Path, geometry: Geometry, device: Option<&Device>) -> DiskInfo {
    let by_path = || DiskId { kind: IdKind::Path, value: path.display().to_string() };
    let Some(d) = device else {
        return DiskInfo {
            id: by_path(),
            path: path.into(),
            model: String::new(),
            serial: String::new(),
            firmware: String::new(),
            geometry,
            media: Media::Unspecified,
            rotational: false,
            removable: false,
            enclosure: None,
            queue_depth: QUEUE_DEPTH_DEVICE,
            write_cache: WriteCache::Unknown,
            layout: None,
        };
    };
    DiskInfo {
        id: d.id().unwrap_or_else(by_path),
        path: path.into(),
        model: d.model(),
        serial: d.serial(),
        firmware: d.firmware(),
        geometry,
        media: d.media(),
        rotational: d.rotational(),
        removable: d.removable(),
        enclosure: d.enclosure(),
        queue_depth: d.queue_depth().unwrap_or(QUEUE_DEPTH_DEVICE),
        write_cache: d.write_cache(),
        layout: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_is_for_one_file_only() {
        let number = "0123456789abcdef0123456789abcdef";
        assert_eq!(parse(format!("{number} 7").as_bytes(), 7).as_deref(), Some(number));
        let bad: [&[u8]; 6] = [
            b"",
            b"x 7",
            b"0123456789abcdef0123456789abcdef",
            &[0xFF; 40],
            b" 7",
            b"0123456789abcdefg123456789abcdef 7",
        ];
        for b in bad {
            assert_eq!(parse(b, 7), None);
        }
        assert_eq!(parse(format!("{number} 8").as_bytes(), 7), None, "another file's: a copy");
    }
}
