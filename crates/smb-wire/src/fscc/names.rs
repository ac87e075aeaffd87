//! Structures that mainly contain a name: FileNameInformation and similar ones, rename, link.

use crate::Utf16Le;
use crate::WireError;
use crate::cursor::{Field, Reader, fit_u32};
use crate::macros::flag_set;

pub(super) fn take_name<'a>(r: &mut Reader<'a>) -> Result<Utf16Le<'a>, WireError> {
    let len: u32 = r.get()?;
    let what = r.what();
    Utf16Le::new(r.take(len as usize)?, what)
}

pub(super) fn put_name(out: &mut Vec<u8>, name: Utf16Le<'_>) -> Result<(), WireError> {
    fit_u32(name.len(), "name")?.put(out);
    out.extend_from_slice(name.as_bytes());
    Ok(())
}

/// FileNameInformation (MS-FSCC 2.1.7), also for the normalized, alternate and short name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileNameInformation<'a> {
    /// The name.
    pub name: Utf16Le<'a>,
}

impl<'a> FileNameInformation<'a> {
    /// Decodes the structure.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        take_name(&mut Reader::new(bytes, "FileNameInformation")).map(|name| Self { name })
    }

    /// Appends the structure to `out`.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        put_name(out, self.name)
    }
}

macro_rules! replacing_name {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name<'a> {
            /// Whether to replace an existing file of that name.
            pub replace_if_exists: bool,
            /// Zero over the network.
            pub root_directory: u64,
            /// The new path from the share's root, without a leading backslash.
            pub name: Utf16Le<'a>,
        }

        impl<'a> $name<'a> {
            /// Decodes the structure.
            ///
            /// # Errors
            /// Malformed input from the peer.
            pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
                let mut r = Reader::new(bytes, stringify!($name));
                let replace_if_exists = r.get()?;
                r.skip(7)?;
                Ok(Self { replace_if_exists, root_directory: r.get()?, name: take_name(&mut r)? })
            }

            /// Appends the structure to `out`.
            ///
            /// # Errors
            /// `Unencodable`.
            pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
                self.replace_if_exists.put(out);
                [0u8; 7].put(out);
                self.root_directory.put(out);
                put_name(out, self.name)?;
                pad_rename(out, self.name);
                Ok(())
            }
        }
    };
}

/// Windows rejects a rename structure shorter than 24 bytes (the fixed part with its alignment).
fn pad_rename(out: &mut Vec<u8>, name: Utf16Le<'_>) {
    crate::cursor::zeros(out, 4usize.saturating_sub(name.len()));
}

replacing_name! {
    /// FileRenameInformation in its SMB2 layout (MS-FSCC 2.4).
    FileRenameInformation
}

replacing_name! {
    /// FileLinkInformation in its SMB2 layout (MS-FSCC 2.4).
    FileLinkInformation
}

flag_set! {
    /// Flags of FileRenameInformationEx.
    pub struct RenameFlags: u32 {
        /// Replace an existing file.
        const REPLACE_IF_EXISTS = 1;
        /// Remove the replaced name immediately.
        const POSIX_SEMANTICS = 2;
        /// Do not inherit the pin state.
        const SUPPRESS_PIN_STATE_INHERITANCE = 4;
        /// Replace read-only files too.
        const IGNORE_READONLY_ATTRIBUTE = 0x40;
    }
}

/// FileRenameInformationEx (MS-FSCC 2.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileRenameInformationEx<'a> {
    /// Flags.
    pub flags: RenameFlags,
    /// Zero over the network.
    pub root_directory: u64,
    /// The new path.
    pub name: Utf16Le<'a>,
}

impl<'a> FileRenameInformationEx<'a> {
    /// Decodes the structure.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(bytes, "FileRenameInformationEx");
        let flags = r.get()?;
        r.skip(4)?;
        Ok(Self { flags, root_directory: r.get()?, name: take_name(&mut r)? })
    }

    /// Appends the structure to `out`.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        self.flags.put(out);
        0u32.put(out);
        self.root_directory.put(out);
        put_name(out, self.name)?;
        pad_rename(out, self.name);
        Ok(())
    }
}
