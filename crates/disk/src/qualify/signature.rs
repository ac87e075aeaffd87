//! Detects existing contents of a disk by the signatures of file systems, volume managers, partition tables,
//! virtual disk images, databases and archives.
//!
//! The bytes are untrusted: every read is bounded, and an uncertain signature is reported too, because the
//! question is whether to overwrite it.

use std::fmt;

/// Bytes at the beginning of a disk that are examined.
pub const HEAD: usize = 512 << 10;

/// Bytes at its end that are examined.
pub const TAIL: usize = 256 << 10;

/// A signature that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// What it is a signature of.
    pub name: &'static str,
    /// Its offset on the disk, in bytes.
    pub offset: u64,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at {})", self.name, self.offset)
    }
}

/// Name, offset, bytes.
const HEAD_MARKS: &[(&str, usize, &[u8])] = &[
    ("a GPT partition table", 512, b"EFI PART"),
    ("a GPT partition table", 4096, b"EFI PART"),
    ("an MBR partition table or boot sector", 510, &[0x55, 0xAA]),
    ("an ext2/3/4 file system", 1080, &[0x53, 0xEF]),
    ("an XFS file system", 0, b"XFSB"),
    ("a btrfs file system", 65600, b"_BHRfS_M"),
    ("a bcachefs or bcache device", 4120, &[0xC6, 0x85, 0x73, 0xF6, 0x4E, 0x1A, 0x45, 0xCA]),
    ("a bcachefs or bcache device", 4120, &[0xC6, 0x85, 0x73, 0xF6, 0x66, 0xCE, 0x90, 0xA9]),
    ("an f2fs file system", 1024, &[0x10, 0x20, 0xF5, 0xF2]),
    ("an NTFS file system", 3, b"NTFS    "),
    ("an exFAT file system", 3, b"EXFAT   "),
    ("a ReFS file system", 3, b"ReFS\0"),
    ("a FAT file system", 54, b"FAT1"),
    ("a FAT file system", 82, b"FAT32"),
    ("an ISO 9660 file system", 32769, b"CD001"),
    ("an LVM physical volume", 0, b"LABELONE"),
    ("an LVM physical volume", 512, b"LABELONE"),
    ("an LVM physical volume", 1024, b"LABELONE"),
    ("an LVM physical volume", 1536, b"LABELONE"),
    ("a Linux RAID member (mdraid 1.1)", 0, &MD_MAGIC),
    ("a Linux RAID member (mdraid 1.2)", 4096, &MD_MAGIC),
    ("a LUKS container", 0, b"LUKS\xBA\xBE"),
    ("a LUKS container", 16384, b"SKUL\xBA\xBE"),
    ("swap space", 4086, b"SWAPSPACE2"),
    ("swap space", 16374, b"SWAPSPACE2"),
    ("swap space", 65526, b"SWAPSPACE2"),
    ("the image of a hibernated system", 4086, b"S1SUSPEND"),
    ("a Ceph BlueStore device", 0, b"bluestore block device"),
    ("a QEMU disk image (qcow2)", 0, b"QFI\xFB"),
    ("a VHDX disk image", 0, b"vhdxfile"),
    ("a dynamic VHD disk image", 0, b"conectix"),
    ("a VMware disk image (VMDK)", 0, b"KDMV"),
    ("a VirtualBox disk image (VDI)", 64, &[0x7F, 0x10, 0xDA, 0xBE]),
    ("an SQLite database", 0, b"SQLite format 3\0"),
    ("a tar archive", 257, b"ustar"),
    ("a ZIP archive", 0, b"PK\x03\x04"),
    ("a gzip archive", 0, &[0x1F, 0x8B, 8]),
    ("an xz archive", 0, b"\xFD7zXZ\0"),
    ("a Zstandard archive", 0, &[0x28, 0xB5, 0x2F, 0xFD]),
    ("a 7z archive", 0, b"7z\xBC\xAF\x27\x1C"),
    ("a program (ELF)", 0, b"\x7FELF"),
    ("a PDF document", 0, b"%PDF-"),
];

/// The name for contents of a file without a known signature.
pub(super) const UNKNOWN: &str = "data of an unknown kind";

const MD_MAGIC: [u8; 4] = [0xFC, 0x4E, 0x2B, 0xA9];

/// ZFS: the second half of each 256 KiB label is a ring of uberblocks, each beginning with this number in
/// either byte order.
const ZFS_MAGIC: [[u8; 8]; 2] = [[0x0C, 0xB1, 0xBA, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0xBA, 0xB1, 0x0C]];
const ZFS_RINGS: [usize; 2] = [128 << 10, 384 << 10];
const ZFS_RING: usize = 128 << 10;
const ZFS_STEP: usize = 1024;

/// The signatures in the first [`HEAD`] and last [`TAIL`] bytes of a disk of `size` bytes (the whole disk if
/// it is shorter), by offset.
pub fn signatures(head: &[u8], tail: &[u8], size: u64) -> Vec<Signature> {
    let has = |bytes: &[u8], at: usize, mark: &[u8]| bytes.get(at..).is_some_and(|b| b.starts_with(mark));
    let mut out: Vec<Signature> = HEAD_MARKS
        .iter()
        .filter(|(_, at, mark)| has(head, *at, mark))
        .map(|(name, at, _)| Signature { name, offset: *at as u64 })
        .collect();
    for ring in ZFS_RINGS {
        let places = (ring..ring + ZFS_RING).step_by(ZFS_STEP);
        let found = places.into_iter().find(|at| ZFS_MAGIC.iter().any(|mark| has(head, *at, mark)));
        out.extend(found.map(|at| Signature { name: "a ZFS pool member", offset: at as u64 }));
    }
    let start = size.saturating_sub(tail.len() as u64);
    let at_end: [(&str, Option<u64>, &[u8]); 5] = [
        ("a VHD disk image", size.checked_sub(512), b"conectix"),
        ("a backup GPT partition table", size.checked_sub(512), b"EFI PART"),
        ("a backup GPT partition table", size.checked_sub(4096), b"EFI PART"),
        ("a Linux RAID member (mdraid 0.90)", (size / 65536 * 65536).checked_sub(65536), &MD_MAGIC),
        ("a Linux RAID member (mdraid 1.0)", size.checked_sub(8192).map(|at| at / 4096 * 4096), &MD_MAGIC),
    ];
    for (name, offset, mark) in at_end {
        let Some(offset) = offset.filter(|o| *o >= start) else { continue };
        if has(tail, (offset - start) as usize, mark) {
            out.push(Signature { name, offset });
        }
    }
    out.sort_by_key(|s| s.offset);
    out
}
