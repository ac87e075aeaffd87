//! Conversion of the backend's metadata to structures on the wire.

use smb_wire::fscc::{
    CompressionFormat, FileBasicInformation, FileStandardInformation, PosixCreateResponse, PosixInformation,
};
use smb_wire::ioctl::ReparseTag;
use smb_wire::{FileAttributes, FileTime};
use vfs::{Attributes, Kind, Stat, Timestamp};

use crate::access::unix;
use crate::identity::User;

/// A time on the wire.
pub(crate) fn file_time(t: Timestamp) -> FileTime {
    FileTime::from_unix(t.seconds, t.nanoseconds)
}

/// A time from the wire.
pub(crate) fn timestamp(t: FileTime) -> Timestamp {
    let (seconds, nanoseconds) = t.to_unix();
    Timestamp { seconds, nanoseconds }
}

/// Attributes on the wire: NORMAL stands for none (MS-FSCC 2.6).
pub(crate) fn file_attributes(s: &Stat) -> FileAttributes {
    let mut a = s.attributes & !Attributes::NORMAL;
    if s.kind == Kind::Directory {
        a |= Attributes::DIRECTORY;
    }
    if a.is_empty() {
        a = Attributes::NORMAL;
    }
    FileAttributes::from_bits_retain(a.bits())
}

/// The attributes that are stored, out of those that a client sends.
pub(crate) fn stored_attributes(a: FileAttributes) -> Attributes {
    Attributes::from_bits_truncate(a.bits()) & Attributes::STORED
}

/// How the file is compressed (MS-FSA 2.1.5.10.9): reported as LZNT1, NTFS's only format, whatever the backend uses.
pub(crate) fn compression_format(s: &Stat) -> CompressionFormat {
    let compressed = s.attributes.contains(Attributes::COMPRESSED);
    if compressed { CompressionFormat::LZNT1 } else { CompressionFormat::NONE }
}

/// FileBasicInformation.
pub(crate) fn basic(s: &Stat) -> FileBasicInformation {
    FileBasicInformation {
        creation_time: file_time(s.created),
        last_access_time: file_time(s.accessed),
        last_write_time: file_time(s.written),
        change_time: file_time(s.changed),
        file_attributes: file_attributes(s),
    }
}

/// FileStandardInformation. A name that will be deleted does not count as a link (MS-FSA 2.1.5.12.27).
pub(crate) fn standard(s: &Stat, delete_pending: bool, deleted_names: usize) -> FileStandardInformation {
    FileStandardInformation {
        allocation_size: s.allocation,
        end_of_file: s.size,
        number_of_links: s.links.saturating_sub(deleted_names as u32),
        delete_pending,
        directory: s.kind == Kind::Directory,
    }
}

/// The POSIX attributes of a file with this descriptor.
pub(crate) fn posix_created(user: &User, s: &Stat, descriptor: Option<&[u8]>) -> PosixCreateResponse {
    let unix = unix::of(user, descriptor);
    PosixCreateResponse {
        hard_links: s.links,
        reparse_tag: s.reparse.tag,
        mode: unix.mode | posix_type(s),
        owner: unix.owner,
        group: unix.group,
    }
}

/// The type of a file, in the bits above the permissions.
fn posix_type(s: &Stat) -> u32 {
    const LINK: u32 = 0x2000;
    const CHARACTER: u32 = 0x3000;
    const BLOCK: u32 = 0x4000;
    const FIFO: u32 = 0x5000;
    const SOCKET: u32 = 0x6000;
    match ReparseTag(s.reparse.tag) {
        ReparseTag::SYMLINK | ReparseTag::LX_SYMLINK => LINK,
        ReparseTag::LX_CHR => CHARACTER,
        ReparseTag::LX_BLK => BLOCK,
        ReparseTag::LX_FIFO => FIFO,
        ReparseTag::AF_UNIX => SOCKET,
        // MS-FSCC 2.1.2.6: the type in letters, the first one in the lowest byte.
        ReparseTag::NFS => match &s.reparse.head.to_le_bytes() {
            b"LNK\x01\0\0\0\0" => LINK,
            b"CHR\0\0\0\0\0" => CHARACTER,
            b"BLK\0\0\0\0\0" => BLOCK,
            b"FIFO\0\0\0\0" => FIFO,
            b"SOCK\0\0\0\0" => SOCKET,
            _ => 0,
        },
        _ if s.kind == Kind::Directory => 0x1000,
        _ => 0,
    }
}

/// FilePosixInformation.
pub(crate) fn posix(user: &User, s: &Stat, descriptor: Option<&[u8]>) -> PosixInformation {
    let b = basic(s);
    PosixInformation {
        creation_time: b.creation_time,
        last_access_time: b.last_access_time,
        last_write_time: b.last_write_time,
        change_time: b.change_time,
        end_of_file: s.size,
        allocation_size: s.allocation,
        file_attributes: b.file_attributes,
        inode: s.id.number(),
        // A device number is only in the data of a device file's reparse point.
        device: 0,
        created: posix_created(user, s, descriptor),
    }
}
