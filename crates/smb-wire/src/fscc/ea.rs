//! Extended attributes: FILE_FULL_EA_INFORMATION and FILE_GET_EA_INFORMATION (MS-FSCC 2.4).

use super::list::{Fits, ListBuilder, split_entry};
use crate::WireError;
use crate::cursor::{Field, Reader, fit_u16};
use crate::macros::flag_set;

/// Maximum number of extended attributes in one list. A file has at most 64 KiB of them; each takes at least 10
/// bytes.
pub const MAX_EAS: usize = 64 * 1024 / 10;

flag_set! {
    /// Flags of an extended attribute.
    pub struct EaFlags: u8 {
        /// A program that does not understand it must not open the file.
        const NEED_EA = 0x80;
    }
}

/// One extended attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FullEa<'a> {
    /// Flags.
    pub flags: EaFlags,
    /// 8-bit characters, without the terminating zero.
    pub name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

const FULL_FIXED_LEN: usize = 8;
const GET_FIXED_LEN: usize = 5;

/// Writes a list of extended attributes within a budget.
#[derive(Debug)]
pub struct EaList<'v>(ListBuilder<'v>);

impl<'v> EaList<'v> {
    /// A list at the end of `out`, of at most `budget` bytes.
    pub fn new(out: &'v mut Vec<u8>, budget: usize) -> Self {
        Self(ListBuilder::new(out, budget, 4))
    }

    /// Adds an attribute if it fits the budget.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn push(&mut self, ea: &FullEa<'_>) -> Result<Fits, WireError> {
        let name_len = fit_name(ea.name)?;
        let value_len = fit_u16(ea.value.len(), "extended attribute value")?;
        Ok(self.0.push(FULL_FIXED_LEN + ea.name.len() + 1 + ea.value.len(), |out| {
            0u32.put(out);
            ea.flags.put(out);
            name_len.put(out);
            value_len.put(out);
            out.extend_from_slice(ea.name);
            out.push(0);
            out.extend_from_slice(ea.value);
        }))
    }
}

/// Writes a list of names to query.
#[derive(Debug)]
pub struct GetEaList<'v>(ListBuilder<'v>);

impl<'v> GetEaList<'v> {
    /// A list at the end of `out`.
    pub fn new(out: &'v mut Vec<u8>) -> Self {
        Self(ListBuilder::new(out, usize::MAX, 4))
    }

    /// Adds a name.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn push(&mut self, name: &[u8]) -> Result<(), WireError> {
        let len = fit_name(name)?;
        self.0.push(GET_FIXED_LEN + name.len() + 1, |out| {
            0u32.put(out);
            len.put(out);
            out.extend_from_slice(name);
            out.push(0);
        });
        Ok(())
    }
}

fn fit_name(name: &[u8]) -> Result<u8, WireError> {
    let len = name.len();
    u8::try_from(len).map_err(|_| WireError::Unencodable { what: "extended attribute name", len, max: 255 })
}

macro_rules! entries {
    ($(#[$meta:meta])* $name:ident, $item:ty, $fixed:ident, |$r:ident| $body:expr) => {
        $(#[$meta])*
        #[derive(Debug, Clone)]
        pub struct $name<'a> {
            rest: Option<&'a [u8]>,
            count: usize,
        }

        impl<'a> $name<'a> {
            /// The entries of `bytes`; empty bytes are an empty list.
            pub fn new(bytes: &'a [u8]) -> Self {
                Self { rest: Some(bytes).filter(|b| !b.is_empty()), count: 0 }
            }
        }

        impl<'a> Iterator for $name<'a> {
            type Item = Result<$item, WireError>;

            fn next(&mut self) -> Option<Self::Item> {
                const WHAT: &str = "extended attribute";
                let bytes = self.rest.take()?;
                self.count += 1;
                if self.count > MAX_EAS {
                    return Some(Err(WireError::TooLarge { what: WHAT, len: self.count, max: MAX_EAS }));
                }
                Some(split_entry(bytes, $fixed, WHAT).and_then(|(entry, rest)| {
                    let mut reader = Reader::new(entry, WHAT);
                    let $r = &mut reader;
                    $r.skip(4)?;
                    let item = $body;
                    self.rest = rest;
                    Ok(item)
                }))
            }
        }
    };
}

entries! {
    /// Reads a list of extended attributes; ends after the first error.
    FullEas, FullEa<'a>, FULL_FIXED_LEN, |r| {
        let flags = r.get()?;
        let name_len: u8 = r.get()?;
        let value_len: u16 = r.get()?;
        let name = r.take(name_len.into())?;
        r.skip(1)?;
        FullEa { flags, name, value: r.take(value_len.into())? }
    }
}

entries! {
    /// Reads a list of names; ends after the first error.
    GetEas, &'a [u8], GET_FIXED_LEN, |r| {
        let len: u8 = r.get()?;
        r.take(len.into())?
    }
}
