//! Lists of accounts by name, in pages (MS-SAMR 3.1.5.3).

use smb_wire::rpc::samr::{self, Display, DisplayPage, GROUP_ATTRIBUTES};
use smb_wire::{NtStatus, WireError};

use super::{Directory, ENUMERATION_MAX, account_control};
use crate::principals::{PRIMARY_GROUP, PRIMARY_GROUP_NAME};

/// Appends one page: as many accounts as there is room for, one at least. `from` has the index at which the page
/// begins, the most accounts, and the most bytes.
pub(super) fn put(
    d: &Directory,
    out: &mut Vec<u8>,
    builtin: Result<bool, NtStatus>,
    class: u16,
    from: (u32, u32, u32),
) -> Result<(), WireError> {
    let all = builtin.map(|builtin| accounts(d, builtin, class));
    let all = match &all {
        Ok(all) => all,
        Err(status) => return samr::put_display(out, class, Err(*status), NtStatus::SUCCESS),
    };
    let (index, entry_count, preferred) = from;
    let rest = all.get(index as usize..).unwrap_or_default();
    let room = ENUMERATION_MAX.min(preferred as usize);
    let mut used = 0;
    let fit = rest.iter().take(entry_count as usize).take_while(|entry| {
        let before = used;
        used += samr::display_size(entry);
        before < room
    });
    let entries = &rest[..fit.count().max(1).min(rest.len())];
    let status = if entries.len() < rest.len() { NtStatus::MORE_ENTRIES } else { NtStatus::SUCCESS };
    let size = |entries: &[Display<'_>]| entries.iter().map(samr::display_size).sum::<usize>() as u32;
    let page = DisplayPage { available: size(all), returned: size(entries), entries };
    samr::put_display(out, class, Ok(&page), status)
}

/// The accounts of a class, by name. An account's index is its position in this list, so a page that begins at an index
/// begins behind that account.
fn accounts(d: &Directory, builtin: bool, class: u16) -> Vec<Display<'_>> {
    let user = |u| {
        let account: &crate::principals::Account = u;
        let (name, full_name) = (&*account.name, &*account.full_name);
        Display { index: 0, id: account.id, control: account_control(account), name, full_name }
    };
    let group = Display {
        index: 0,
        id: PRIMARY_GROUP,
        control: GROUP_ATTRIBUTES,
        name: PRIMARY_GROUP_NAME,
        full_name: "",
    };
    let mut all: Vec<_> = match class {
        1 if !builtin => d.users.iter().map(user).collect(),
        3 if !builtin => vec![group],
        // MS-SAMR 3.1.5.3.1: those of both domains, whichever is asked.
        4 => d.users.iter().map(user).collect(),
        5 => vec![group],
        // BUILTIN has local groups only, and no machine has an account here.
        _ => Vec::new(),
    };
    all.sort_by_key(|entry| entry.name.to_uppercase());
    (1..).zip(&mut all).for_each(|(index, entry)| entry.index = index);
    all
}
