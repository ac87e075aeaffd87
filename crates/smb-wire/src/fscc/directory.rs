//! Directory entries (MS-FSCC 2.4): FileDirectoryInformation, Full, IdFull, Both, IdBoth, Names, IdExtd and IdExtdBoth.
//!
//! The classes are prefixes and combinations of one set of fields. So there is one [`DirectoryEntry`]; the class
//! determines which of its fields are on the wire.
//!
//! ```text
//! all but Names:  next, index, 4 times, end of file, allocation, attributes, name length      = 64
//! Full +4 ea   IdFull +4 ea +4 pad +8 id   Both +4 ea +2 short length +24 short name
//! IdBoth = Both +2 pad +8 id   IdExtd +4 ea +4 tag +16 id   IdExtdBoth = IdExtd +2 +24
//! Names:          next, index, name length                                                    = 12
//! ```

use super::FileInfoClass;
use super::list::{Fits, ListBuilder, split_entry};
use crate::cursor::{Field, Reader, fit_u32, zeros};
use crate::{AccessMask, FileAttributes, FileTime, Utf16Le, WireError};

/// One entry of a directory listing. A field that the class lacks is ignored on encoding and zero on decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirectoryEntry<'a> {
    /// Position in the directory if the file system has one, otherwise 0.
    pub file_index: u32,
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
    /// Size of the extended attributes in bytes; for a reparse point its tag (all classes except IdExtd).
    pub ea_size: u32,
    /// Tag of a reparse point (IdExtd classes).
    pub reparse_tag: u32,
    /// The file's number: 64 bits in IdFull and IdBoth, 128 in the IdExtd classes.
    pub file_id: u128,
    /// The 8.3 name, at most 24 bytes.
    pub short_name: Utf16Le<'a>,
    /// The name.
    pub name: Utf16Le<'a>,
}

/// Fields of a FileIdBothDirectoryInformation entry that replace EaSize and short name for a macOS client, if
/// negotiated (create context `AAPL`, not MS-SMB2).
///
/// ```text
/// EaSize: maximal access   ShortNameLength: 0   ShortName: 0 length of the resource fork (u64)   8 Finder's information
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MacAttributes {
    /// The maximal access of the user to the file.
    pub maximal_access: AccessMask,
    /// Length of the resource fork in bytes.
    pub resource_length: u64,
    /// Finder information: type, creator, flags, extended flags and date added (big-endian).
    pub finder: [u8; 16],
}

/// Offset of the short name in an entry of FileIdBothDirectoryInformation.
const SHORT_NAME_AT: usize = 70;

/// Length of the short name field in bytes.
const SHORT_NAME_LEN: usize = 24;

/// Offset of the name in an entry of `class`; `None` if it is not a directory class.
pub const fn directory_fixed_len(class: FileInfoClass) -> Option<usize> {
    Some(match class {
        FileInfoClass::NAMES => 12,
        FileInfoClass::DIRECTORY => 64,
        FileInfoClass::FULL_DIRECTORY => 68,
        FileInfoClass::ID_FULL_DIRECTORY => 80,
        FileInfoClass::ID_EXTD_DIRECTORY => 88,
        FileInfoClass::BOTH_DIRECTORY => 94,
        FileInfoClass::ID_BOTH_DIRECTORY => 104,
        FileInfoClass::ID_EXTD_BOTH_DIRECTORY => 114,
        _ => return None,
    })
}

const fn has_short_name(class: FileInfoClass) -> bool {
    matches!(
        class,
        FileInfoClass::BOTH_DIRECTORY
            | FileInfoClass::ID_BOTH_DIRECTORY
            | FileInfoClass::ID_EXTD_BOTH_DIRECTORY
    )
}

const fn is_extended(class: FileInfoClass) -> bool {
    matches!(class, FileInfoClass::ID_EXTD_DIRECTORY | FileInfoClass::ID_EXTD_BOTH_DIRECTORY)
}

impl<'a> DirectoryEntry<'a> {
    fn decode(bytes: &'a [u8], class: FileInfoClass) -> Result<Self, WireError> {
        const WHAT: &str = "directory entry";
        let mut r = Reader::new(bytes, WHAT);
        let mut entry = Self::default();
        r.skip(4)?;
        entry.file_index = r.get()?;
        if class != FileInfoClass::NAMES {
            entry.creation_time = r.get()?;
            entry.last_access_time = r.get()?;
            entry.last_write_time = r.get()?;
            entry.change_time = r.get()?;
            entry.end_of_file = r.get()?;
            entry.allocation_size = r.get()?;
            entry.file_attributes = r.get()?;
        }
        let name_len: u32 = r.get()?;
        if !matches!(class, FileInfoClass::NAMES | FileInfoClass::DIRECTORY) {
            entry.ea_size = r.get()?;
        }
        if is_extended(class) {
            entry.reparse_tag = r.get()?;
            entry.file_id = u128::from_le_bytes(r.get()?);
        }
        if has_short_name(class) {
            let len = usize::from(r.get::<u8>()?);
            r.skip(1)?;
            let field = r.take(SHORT_NAME_LEN)?;
            let name = field.get(..len).ok_or(WireError::malformed("ShortNameLength"))?;
            entry.short_name = Utf16Le::new(name, "short name")?;
        }
        match class {
            FileInfoClass::ID_FULL_DIRECTORY => r.skip(4)?,
            FileInfoClass::ID_BOTH_DIRECTORY => r.skip(2)?,
            _ => {}
        }
        if matches!(class, FileInfoClass::ID_FULL_DIRECTORY | FileInfoClass::ID_BOTH_DIRECTORY) {
            entry.file_id = r.get::<u64>()?.into();
        }
        entry.name = Utf16Le::new(r.take(name_len as usize)?, WHAT)?;
        Ok(entry)
    }

    fn put(&self, class: FileInfoClass, out: &mut Vec<u8>) {
        0u32.put(out);
        self.file_index.put(out);
        if class != FileInfoClass::NAMES {
            self.creation_time.put(out);
            self.last_access_time.put(out);
            self.last_write_time.put(out);
            self.change_time.put(out);
            self.end_of_file.put(out);
            self.allocation_size.put(out);
            self.file_attributes.put(out);
        }
        (self.name.len() as u32).put(out);
        if !matches!(class, FileInfoClass::NAMES | FileInfoClass::DIRECTORY) {
            self.ea_size.put(out);
        }
        if is_extended(class) {
            self.reparse_tag.put(out);
            self.file_id.to_le_bytes().put(out);
        }
        if has_short_name(class) {
            let name = self.short_name.as_bytes();
            [name.len() as u8, 0].put(out);
            out.extend_from_slice(name);
            zeros(out, SHORT_NAME_LEN - name.len());
        }
        match class {
            FileInfoClass::ID_FULL_DIRECTORY => zeros(out, 4),
            FileInfoClass::ID_BOTH_DIRECTORY => zeros(out, 2),
            _ => {}
        }
        if matches!(class, FileInfoClass::ID_FULL_DIRECTORY | FileInfoClass::ID_BOTH_DIRECTORY) {
            (self.file_id as u64).put(out);
        }
        out.extend_from_slice(self.name.as_bytes());
    }
}

/// Writes a listing: 8-byte aligned entries, limited to a number of bytes.
#[derive(Debug)]
pub struct DirectoryList<'v> {
    list: ListBuilder<'v>,
    class: FileInfoClass,
    fixed: usize,
}

impl<'v> DirectoryList<'v> {
    /// Starts a listing of `class` at the end of `out`, of at most `budget` bytes (OutputBufferLength of the
    /// request). Returns `None` if `class` is not a directory class.
    pub fn new(out: &'v mut Vec<u8>, class: FileInfoClass, budget: usize) -> Option<Self> {
        let fixed = directory_fixed_len(class)?;
        Some(Self { list: ListBuilder::new(out, budget, 8), class, fixed })
    }

    /// Adds an entry if it fits the budget.
    ///
    /// # Errors
    /// `Unencodable` if a name is too long for its field.
    pub fn push(&mut self, entry: &DirectoryEntry<'_>) -> Result<Fits, WireError> {
        fit_u32(entry.name.len(), "file name")?;
        if entry.short_name.len() > SHORT_NAME_LEN {
            let len = entry.short_name.len();
            return Err(WireError::Unencodable { what: "short name", len, max: SHORT_NAME_LEN });
        }
        let class = self.class;
        Ok(self.list.push(self.fixed + entry.name.len(), |out| entry.put(class, out)))
    }

    /// Adds an entry with macOS attributes if it fits the budget.
    ///
    /// # Errors
    /// `Unencodable` if the name is too long for its field.
    ///
    /// # Panics
    /// If the class is not FileIdBothDirectoryInformation.
    pub fn push_mac(&mut self, entry: &DirectoryEntry<'_>, mac: &MacAttributes) -> Result<Fits, WireError> {
        assert_eq!(self.class, FileInfoClass::ID_BOTH_DIRECTORY, "only this class has room for a Mac");
        fit_u32(entry.name.len(), "file name")?;
        let ea_size = mac.maximal_access.bits();
        let entry = DirectoryEntry { ea_size, short_name: Utf16Le::default(), ..*entry };
        let class = self.class;
        Ok(self.list.push(self.fixed + entry.name.len(), |out| {
            let at = out.len() + SHORT_NAME_AT;
            entry.put(class, out);
            out[at..at + 8].copy_from_slice(&mac.resource_length.to_le_bytes());
            out[at + 8..at + SHORT_NAME_LEN].copy_from_slice(&mac.finder);
        }))
    }

    /// Length so far, in bytes.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether the list has no entry.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// Reads a listing; ends after the first error.
#[derive(Debug, Clone)]
pub struct DirectoryEntries<'a> {
    rest: Option<&'a [u8]>,
    class: FileInfoClass,
    fixed: usize,
}

impl<'a> DirectoryEntries<'a> {
    /// The entries of `class` in `bytes`; `None` when `class` is not a directory class.
    pub fn new(bytes: &'a [u8], class: FileInfoClass) -> Option<Self> {
        let fixed = directory_fixed_len(class)?;
        Some(Self { rest: Some(bytes).filter(|b| !b.is_empty()), class, fixed })
    }
}

impl<'a> Iterator for DirectoryEntries<'a> {
    type Item = Result<DirectoryEntry<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.rest.take()?;
        Some(split_entry(bytes, self.fixed, "directory entry").and_then(|(entry, rest)| {
            let entry = DirectoryEntry::decode(entry, self.class)?;
            self.rest = rest;
            Ok(entry)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Utf16Buf;

    const CLASSES: [(FileInfoClass, usize); 8] = [
        (FileInfoClass::DIRECTORY, 64),
        (FileInfoClass::FULL_DIRECTORY, 68),
        (FileInfoClass::ID_FULL_DIRECTORY, 80),
        (FileInfoClass::BOTH_DIRECTORY, 94),
        (FileInfoClass::ID_BOTH_DIRECTORY, 104),
        (FileInfoClass::NAMES, 12),
        (FileInfoClass::ID_EXTD_DIRECTORY, 88),
        (FileInfoClass::ID_EXTD_BOTH_DIRECTORY, 114),
    ];

    /// The budget counts the padding between entries, but not padding after the last one. An entry that does not
    /// fit leaves the listing unchanged.
    #[test]
    fn entries_fit_to_the_byte() {
        let name = Utf16Buf::from("name.txt");
        let entry = DirectoryEntry { name: name.as_utf16(), ..Default::default() };
        for (class, fixed) in CLASSES {
            let len = fixed + 16;
            let second = len.next_multiple_of(8) + len;
            for (budget, expected) in [(len - 1, 0), (len, 1), (second - 1, 1), (second, 2)] {
                let mut out = vec![0xEE; 3];
                let mut list = DirectoryList::new(&mut out, class, budget).unwrap();
                let mut count = 0;
                while count < 9 && list.push(&entry) == Ok(Fits::Yes) {
                    count += 1;
                }
                assert_eq!(count, expected, "{class:?}, {budget} bytes");
                assert!(list.len() <= budget);
                let read = DirectoryEntries::new(&out[3..], class).unwrap();
                assert!(read.map(Result::unwrap).eq(std::iter::repeat_n(entry, expected)), "{class:?}");
            }
        }
    }

    #[test]
    fn each_class_carries_what_it_should() {
        let (name, short) = (Utf16Buf::from("a longer name"), Utf16Buf::from("ALONGE~1"));
        let entry = DirectoryEntry {
            file_index: 1,
            creation_time: FileTime(2),
            last_access_time: FileTime(3),
            last_write_time: FileTime(4),
            change_time: FileTime(5),
            end_of_file: 6,
            allocation_size: 7,
            file_attributes: FileAttributes::HIDDEN,
            ea_size: 8,
            reparse_tag: 9,
            file_id: (10 << 64) | 11,
            short_name: short.as_utf16(),
            name: name.as_utf16(),
        };
        for (class, _) in CLASSES {
            let mut out = Vec::new();
            DirectoryList::new(&mut out, class, 4096).unwrap().push(&entry).unwrap();
            let read = DirectoryEntries::new(&out, class).unwrap().next().unwrap().unwrap();
            assert_eq!((read.file_index, read.name), (1, entry.name));
            if class != FileInfoClass::NAMES {
                assert_eq!((read.change_time, read.end_of_file, read.allocation_size), (FileTime(5), 6, 7));
            }
            let id = match class {
                FileInfoClass::ID_FULL_DIRECTORY | FileInfoClass::ID_BOTH_DIRECTORY => 11,
                class if is_extended(class) => entry.file_id,
                _ => 0,
            };
            assert_eq!(read.file_id, id, "{class:?}");
            assert_eq!(read.short_name.is_empty(), !has_short_name(class), "{class:?}");
            assert_eq!(read.reparse_tag, if is_extended(class) { 9 } else { 0 }, "{class:?}");
        }
        assert!(DirectoryList::new(&mut Vec::new(), FileInfoClass::BASIC, 1).is_none());
    }

    #[test]
    fn a_mac_s_entry_golden() {
        let name = Utf16Buf::from("ab");
        let entry = DirectoryEntry {
            end_of_file: 6,
            file_attributes: FileAttributes::ARCHIVE,
            file_id: 11,
            name: name.as_utf16(),
            ..Default::default()
        };
        let mac = MacAttributes {
            maximal_access: AccessMask::from_bits_retain(0x001F_01FF),
            resource_length: 286,
            finder: *b"TEXTttxt\x40\0\0\0\0\0\0\x09",
        };
        let mut out = vec![0xEE; 3];
        let mut list = DirectoryList::new(&mut out, FileInfoClass::ID_BOTH_DIRECTORY, 108).unwrap();
        assert_eq!(list.push_mac(&entry, &mac), Ok(Fits::Yes));
        assert_eq!(list.push_mac(&entry, &mac), Ok(Fits::No));
        let golden: [&[u8]; 9] = [
            &[0; 40],
            &[6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0],
            &[4, 0, 0, 0],
            &[0xFF, 1, 0x1F, 0],
            &[0, 0],
            &[30, 1, 0, 0, 0, 0, 0, 0],
            b"TEXTttxt\x40\0\0\0\0\0\0\x09",
            &[0, 0, 11, 0, 0, 0, 0, 0, 0, 0],
            b"a\0b\0",
        ];
        assert_eq!(out[3..], golden.concat());
    }

    #[test]
    fn a_link_backwards_ends_the_listing() {
        let mut bytes = vec![0; 128];
        bytes[0] = 8;
        let mut entries = DirectoryEntries::new(&bytes, FileInfoClass::DIRECTORY).unwrap();
        assert!(entries.next().unwrap().is_err());
        assert!(entries.next().is_none());
    }
}
