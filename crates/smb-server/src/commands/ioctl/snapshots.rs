//! FSCTL_SRV_ENUMERATE_SNAPSHOTS (MS-SMB2 2.2.32.2, 3.3.5.15.1): the snapshots of the share. A client opens a file to
//! find out whether it exists in one.

use smb_wire::ioctl::SnapshotArray;
use smb_wire::{NtStatus, Utf16Buf};

use super::Output;
use crate::request::Request;
use crate::status;

/// Bytes of the answer without names: the three numbers, and the two zeros that end the empty list.
const EMPTY: usize = 16;
/// Bytes of the three numbers.
const NUMBERS: usize = 12;

pub(super) async fn list(r: &Request, output_max: usize) -> Result<Output, NtStatus> {
    if output_max < EMPTY {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let vfs = r.tree.share.vfs().ok_or(NtStatus::INVALID_DEVICE_REQUEST)?;
    let all = vfs.snapshots(&r.ctx()).wait().await.map_err(status::of_vfs)?;
    let count = all.len() as u32;
    let text: String = all.iter().map(|at| format!("{at}\0")).chain(["\0".into()]).collect();
    let names = Utf16Buf::from(text.as_str());
    let array_size = names.as_utf16().as_bytes().len() as u32;
    let fits = count > 0 && NUMBERS + array_size as usize <= output_max;
    let array = SnapshotArray {
        number_of_snapshots: count,
        number_returned: if fits { count } else { 0 },
        array_size,
        names: if fits { names.as_utf16() } else { Default::default() },
    };
    let mut bytes = Vec::new();
    array.encode(&mut bytes);
    Ok(Output::of(bytes))
}
