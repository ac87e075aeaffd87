//! Response stubs of SamrQueryDisplayInformation (MS-SAMR 2.2.8, 3.1.5.3): pages of an account list, sorted by
//! name.

use crate::cursor::fit_u32;
use crate::rpc::ndr::NdrWriter;
use crate::{NtStatus, WireError};

/// An account in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Display<'a> {
    /// Position in the list, from 1. The next page starts after it if this is the last account of a page.
    pub index: u32,
    /// Relative identifier.
    pub id: u32,
    /// USER_ACCOUNT codes, or attributes of a group.
    pub control: u32,
    /// Name.
    pub name: &'a str,
    /// Full name; only for users.
    pub full_name: &'a str,
}

/// A page of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DisplayPage<'a> {
    /// Size of all accounts in bytes.
    pub available: u32,
    /// Size of the returned accounts in bytes.
    pub returned: u32,
    /// The accounts.
    pub entries: &'a [Display<'a>],
}

/// Whether SamrQueryDisplayInformation supports the class (MS-SAMR 2.2.8.12): 1 users, 2 machines, 3 groups, 4 user
/// names and 5 group names, both in the OEM code page.
pub const fn is_display_class(class: u16) -> bool {
    matches!(class, 1..=5)
}

/// Approximate size of an account in a response, in bytes.
pub fn display_size(entry: &Display<'_>) -> usize {
    36 + 2 * (entry.name.len() + entry.full_name.len())
}

/// Appends the response stub of SamrQueryDisplayInformation, 2 and 3. Refuses a class for which
/// [`is_display_class`] is false.
///
/// # Errors
/// `Unencodable`.
pub fn put_display(
    out: &mut Vec<u8>,
    class: u16,
    page: Result<&DisplayPage<'_>, NtStatus>,
    status: NtStatus,
) -> Result<(), WireError> {
    let known = is_display_class(class);
    let page = page.and_then(|p| if known { Ok(p) } else { Err(NtStatus::INVALID_INFO_CLASS) });
    let status = page.err().unwrap_or(status);
    let page = page.unwrap_or(&DisplayPage { available: 0, returned: 0, entries: &[] });
    let oem = matches!(class, 4 | 5);
    let mut w = NdrWriter::new(out);
    // MS-SAMR 3.1.5.3.1: zero for the OEM classes.
    w.u32(if oem { 0 } else { page.available });
    w.u32(page.returned);
    w.u16(if known { class } else { 1 });
    let count = fit_u32(page.entries.len(), "SAM display entries")?;
    w.u32(count);
    w.pointer(count != 0);
    if count != 0 {
        w.u32(count);
    }
    for entry in page.entries {
        w.u32(entry.index);
        if oem {
            w.oem_string_header(entry.name)?;
            continue;
        }
        w.u32(entry.id);
        w.u32(entry.control);
        w.string_header(entry.name)?;
        w.string_header("")?; // AdminComment
        if class == 1 {
            w.string_header(entry.full_name)?;
        }
    }
    for entry in page.entries {
        match class {
            4 | 5 => w.oem_string_buffer(entry.name)?,
            1 => {
                w.string_buffer(entry.name)?;
                w.string_buffer(entry.full_name)?;
            }
            _ => w.string_buffer(entry.name)?,
        }
    }
    w.u32(status.0);
    Ok(())
}
