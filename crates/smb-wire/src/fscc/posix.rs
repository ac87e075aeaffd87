//! SMB 3.1.1 POSIX extensions (not MS-FSCC): the POSIX attributes of a file (in a CREATE response, as file
//! information and as a directory entry) and of the file system.
//!
//! ```text
//! CREATE request   mode                                                                      =  4
//! CREATE response  links, reparse tag, mode                                                  = 12, owner, group
//! file             4 times, end of file, allocation, attributes, inode, device, zero + 12    = 80, owner, group
//! directory entry  next, ignored + 80, owner, group, name length, name
//! file system      transfer, block, 3 counts of blocks, 2 of files, identifier               = 56
//! ```
//! Owner and group are SIDs of variable length, not aligned.

use super::list::{Fits, ListBuilder, split_entry};
use crate::cursor::{Field, Reader, fit_u32};
use crate::macros::record;
use crate::security::Sid;
use crate::{FileAttributes, FileTime, Utf16Le, WireError};

record! {
    /// Data of the POSIX context of a CREATE request.
    pub struct PosixCreateRequest [4] {
        /// Permissions of a new file, as POSIX mode bits.
        pub mode: u32,
    }
}

/// Data of the POSIX context of a CREATE response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PosixCreateResponse {
    /// Number of hard links.
    pub hard_links: u32,
    /// Reparse tag; 0 for none.
    pub reparse_tag: u32,
    /// Permissions, as POSIX mode bits.
    pub mode: u32,
    /// Owner.
    pub owner: Sid,
    /// Group.
    pub group: Sid,
}

impl PosixCreateResponse {
    /// Decodes the data.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        Self::take(&mut Reader::new(bytes, "POSIX CREATE response"))
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let (hard_links, reparse_tag, mode) = (r.get()?, r.get()?, r.get()?);
        let (owner, group) = (take_sid(r)?, take_sid(r)?);
        Ok(Self { hard_links, reparse_tag, mode, owner, group })
    }

    /// Appends the data to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.hard_links.put(out);
        self.reparse_tag.put(out);
        self.mode.put(out);
        self.owner.encode(out);
        self.group.encode(out);
    }

    /// Encoded length in bytes.
    pub const fn len(&self) -> usize {
        12 + self.owner.len() + self.group.len()
    }

    /// Always false: there is a fixed part. The lint for [`PosixCreateResponse::len`] requires this function.
    pub const fn is_empty(&self) -> bool {
        false
    }
}

/// FilePosixInformation, class 100: of a file, and in each directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PosixInformation {
    /// Creation time.
    pub creation_time: FileTime,
    /// Last access time.
    pub last_access_time: FileTime,
    /// Last write time.
    pub last_write_time: FileTime,
    /// Change time.
    pub change_time: FileTime,
    /// Length of the file in bytes.
    pub end_of_file: u64,
    /// Allocated size in bytes.
    pub allocation_size: u64,
    /// Attributes.
    pub file_attributes: FileAttributes,
    /// The file's number.
    pub inode: u64,
    /// Number of the device that holds the file.
    pub device: u32,
    /// The fields that a CREATE response contains too.
    pub created: PosixCreateResponse,
}

impl PosixInformation {
    /// Decodes the structure.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        Self::take(&mut Reader::new(bytes, "FilePosixInformation"))
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let [creation_time, last_access_time, last_write_time, change_time] =
            [r.get()?, r.get()?, r.get()?, r.get()?];
        let (end_of_file, allocation_size, file_attributes) = (r.get()?, r.get()?, r.get()?);
        let (inode, device) = (r.get()?, r.get()?);
        r.skip(4)?;
        let created = PosixCreateResponse::take(r)?;
        Ok(Self {
            creation_time,
            last_access_time,
            last_write_time,
            change_time,
            end_of_file,
            allocation_size,
            file_attributes,
            inode,
            device,
            created,
        })
    }

    /// Appends the structure to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.creation_time.put(out);
        self.last_access_time.put(out);
        self.last_write_time.put(out);
        self.change_time.put(out);
        self.end_of_file.put(out);
        self.allocation_size.put(out);
        self.file_attributes.put(out);
        self.inode.put(out);
        self.device.put(out);
        0u32.put(out);
        self.created.encode(out);
    }

    /// Encoded length in bytes.
    pub const fn len(&self) -> usize {
        68 + self.created.len()
    }

    /// Always false: there is a fixed part. The lint for [`PosixInformation::len`] requires this function.
    pub const fn is_empty(&self) -> bool {
        false
    }
}

/// An entry of a directory listing of class 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PosixDirectoryEntry<'a> {
    /// The file.
    pub information: PosixInformation,
    /// The name.
    pub name: Utf16Le<'a>,
}

impl PosixDirectoryEntry<'_> {
    /// Adds the entry to a list if it fits the budget.
    ///
    /// # Errors
    /// `Unencodable` if the name is too long for its field.
    pub fn push(&self, list: &mut ListBuilder<'_>) -> Result<Fits, WireError> {
        let length = fit_u32(self.name.len(), "file name")?;
        Ok(list.push(12 + self.information.len() + self.name.len(), |out| {
            0u64.put(out);
            self.information.encode(out);
            length.put(out);
            out.extend_from_slice(self.name.as_bytes());
        }))
    }
}

/// Minimum length of an entry: its SIDs have no sub-authority and its name is empty.
const ENTRY_MIN: usize = 8 + 80 + 2 * 8 + 4;

/// The entries of a directory listing of class 100; ends after the first malformed one.
#[derive(Debug, Clone)]
pub struct PosixDirectoryEntries<'a>(Option<&'a [u8]>);

impl<'a> PosixDirectoryEntries<'a> {
    /// Wraps the entries of an output buffer; an empty buffer has none.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(Some(bytes).filter(|b| !b.is_empty()))
    }
}

impl<'a> Iterator for PosixDirectoryEntries<'a> {
    type Item = Result<PosixDirectoryEntry<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.0.take()?;
        let entry = split_entry(bytes, ENTRY_MIN, "POSIX directory entry").and_then(|(entry, rest)| {
            let mut r = Reader::new(entry, "POSIX directory entry");
            r.skip(8)?;
            let information = PosixInformation::take(&mut r)?;
            let length: u32 = r.get()?;
            let name = Utf16Le::new(r.take(length as usize)?, "POSIX directory entry")?;
            self.0 = rest;
            Ok(PosixDirectoryEntry { information, name })
        });
        Some(entry)
    }
}

record! {
    /// FileFsPosixInformation, class 100.
    pub struct FsPosixInformation [56] {
        /// Optimal transfer size in bytes.
        pub optimal_transfer_size: u32,
        /// Length of a block in bytes.
        pub block_size: u32,
        /// Total number of blocks.
        pub total_blocks: u64,
        /// Number of free blocks.
        pub blocks_available: u64,
        /// Number of free blocks available to the user.
        pub user_blocks_available: u64,
        /// Maximum number of files; all ones if unknown.
        pub total_files: u64,
        /// Number of files that can still be created; all ones if unknown.
        pub free_files: u64,
        /// The file system's number.
        pub identifier: u64,
    }
}

fn take_sid(r: &mut Reader<'_>) -> Result<Sid, WireError> {
    let sid = Sid::decode(r.rest())?;
    r.skip(sid.len())?;
    Ok(sid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Utf16Buf;

    fn created() -> PosixCreateResponse {
        PosixCreateResponse {
            hard_links: 2,
            reparse_tag: 0,
            mode: 0o100_644,
            owner: Sid::well_known(5, &[88, 1, 1000]),
            group: Sid::well_known(5, &[88, 2, 100]),
        }
    }

    fn information(inode: u64) -> PosixInformation {
        PosixInformation {
            creation_time: FileTime(1),
            last_access_time: FileTime(2),
            last_write_time: FileTime(3),
            change_time: FileTime(4),
            end_of_file: 5,
            allocation_size: 4096,
            file_attributes: FileAttributes::ARCHIVE,
            inode,
            device: 7,
            created: created(),
        }
    }

    /// The context's data as Linux parses it: links, tag and mode, then two adjacent SIDs.
    const CREATED: [u8; 52] = [
        2, 0, 0, 0, 0, 0, 0, 0, 0xA4, 0x81, 0, 0, //
        1, 3, 0, 0, 0, 0, 0, 5, 88, 0, 0, 0, 1, 0, 0, 0, 0xE8, 3, 0, 0, //
        1, 3, 0, 0, 0, 0, 0, 5, 88, 0, 0, 0, 2, 0, 0, 0, 100, 0, 0, 0,
    ];

    /// The 68 bytes before that in class 100.
    const FILE: [u8; 68] = [
        1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0,
        0, //
        5, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0, //
        6, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0,
    ];

    #[test]
    fn golden() {
        let mut out = Vec::new();
        PosixCreateRequest { mode: 0o640 }.encode(&mut out);
        assert_eq!(out, [0xA0, 1, 0, 0]);
        out.clear();
        created().encode(&mut out);
        assert_eq!((out.as_slice(), out.len()), (CREATED.as_slice(), created().len()));
        assert_eq!(PosixCreateResponse::decode(&CREATED), Ok(created()));
        let file = [FILE.as_slice(), &CREATED].concat();
        out.clear();
        information(6).encode(&mut out);
        assert_eq!((&out, out.len()), (&file, information(6).len()));
        assert_eq!(PosixInformation::decode(&file), Ok(information(6)));
        for cut in 0..file.len() {
            assert!(PosixInformation::decode(&file[..cut]).is_err(), "{cut} bytes");
        }
    }

    #[test]
    fn entries() {
        let name = Utf16Buf::from("a:b");
        let mut out = Vec::new();
        let mut list = ListBuilder::new(&mut out, 310, 8);
        for inode in 6..8 {
            let entry = PosixDirectoryEntry { information: information(inode), name: name.as_utf16() };
            assert_eq!(entry.push(&mut list), Ok(Fits::Yes));
        }
        let third = PosixDirectoryEntry { information: information(9), name: name.as_utf16() };
        assert_eq!(third.push(&mut list), Ok(Fits::No));
        let golden = [
            [144u8, 0, 0, 0, 0, 0, 0, 0].as_slice(),
            &FILE,
            &CREATED,
            &[6, 0, 0, 0, b'a', 0, b':', 0, b'b', 0],
        ];
        assert_eq!(out[..138], golden.concat());
        let found: Vec<_> = PosixDirectoryEntries::new(&out).map(|e| e.expect("sound")).collect();
        assert_eq!(found.iter().map(|e| e.information.inode).collect::<Vec<_>>(), [6, 7]);
        assert!(found.iter().all(|e| e.name == name.as_utf16()));
        assert!(PosixDirectoryEntries::new(&[]).next().is_none());
        // A NextEntryOffset that points into the entry itself.
        out[0] = 100;
        let mut bad = PosixDirectoryEntries::new(&out);
        assert!(matches!(bad.next(), Some(Err(_))) && bad.next().is_none());
    }
}
