//! FileBasicInformation: times and attributes (MS-FSCC 2.4.7, MS-FSA 2.1.5.15.2).

use smb_wire::fscc::FileBasicInformation;
use smb_wire::msg::CompletionFilter;
use smb_wire::{AccessMask, FileAttributes, FileTime, NtStatus};
use vfs::{BasicChange, Kind, Timestamp};

use super::{require, short};
use crate::commands::metadata::{stored_attributes, timestamp};
use crate::open::{FileOpen, Open};
use crate::request::Request;
use crate::status;

pub(super) async fn set(r: &Request, open: &Open, f: &FileOpen, buffer: &[u8]) -> Result<(), NtStatus> {
    require(open, AccessMask::WRITE_ATTRIBUTES)?;
    let b = short(FileBasicInformation::decode(buffer))?;
    let attributes = attributes(b.file_attributes, f.node.kind())?;
    let _one = f.file.metadata().await;
    // Makes the time of earlier writes visible, even if no time is set.
    f.write_time.flush();
    let now = f.stat(&r.ctx(), &r.server.env).await.map_err(status::of_vfs)?;
    let created = match time_update(b.creation_time)? {
        TimeUpdate::Set(t) => Some(t),
        _ => None,
    };
    let mut change = BasicChange { created, attributes, ..BasicChange::default() };
    let mut fixed = *f.fixed_times.lock();
    for (time, current, change, fixed) in [
        (b.last_access_time, now.accessed, &mut change.accessed, &mut fixed.accessed),
        (b.last_write_time, now.written, &mut change.written, &mut fixed.written),
        (b.change_time, now.changed, &mut change.changed, &mut fixed.changed),
    ] {
        match time_update(time)? {
            TimeUpdate::Leave => {}
            TimeUpdate::Freeze => *fixed = Some(current),
            TimeUpdate::Thaw => *fixed = None,
            // Later operations through this open no longer update a time that was set.
            TimeUpdate::Set(t) => (*change, *fixed) = (Some(t), Some(t)),
        }
    }
    *f.fixed_times.lock() = fixed;
    let any = change.attributes.is_some()
        || [change.created, change.accessed, change.written, change.changed].iter().any(Option::is_some);
    if any {
        // The change itself must not move a change time that this open keeps.
        change.changed = change.changed.or(fixed.changed);
        if change.written.is_some() {
            f.file.note_written_set(r.server.env.moment());
        }
        f.node.set_basic(&r.ctx(), change).wait().await.map_err(status::of_vfs)?;
        r.server.modified(open, f, changed(&change));
    }
    Ok(())
}

/// The change notification filters that match a change (MS-FSA 2.1.5.15.2). There is no filter for the change time.
fn changed(change: &BasicChange) -> CompletionFilter {
    let mut filter = CompletionFilter::empty();
    filter.set(CompletionFilter::ATTRIBUTES, change.attributes.is_some());
    filter.set(CompletionFilter::CREATION, change.created.is_some());
    filter.set(CompletionFilter::LAST_ACCESS, change.accessed.is_some());
    filter.set(CompletionFilter::LAST_WRITE, change.written.is_some());
    filter
}

/// The attributes to store; `None` if the client sends 0, which changes nothing.
fn attributes(a: FileAttributes, kind: Kind) -> Result<Option<vfs::Attributes>, NtStatus> {
    if a.is_empty() {
        return Ok(None);
    }
    // MS-FSA 2.1.5.15.2: attributes that contradict the kind of file.
    match kind {
        Kind::File if a.contains(FileAttributes::DIRECTORY) => Err(NtStatus::INVALID_PARAMETER),
        Kind::Directory if a.contains(FileAttributes::TEMPORARY) => Err(NtStatus::INVALID_PARAMETER),
        _ => Ok(Some(stored_attributes(a))),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum TimeUpdate {
    Leave,
    Freeze,
    Thaw,
    Set(Timestamp),
}

fn time_update(t: FileTime) -> Result<TimeUpdate, NtStatus> {
    Ok(match t {
        FileTime::ZERO => TimeUpdate::Leave,
        FileTime::FREEZE => TimeUpdate::Freeze,
        FileTime::THAW => TimeUpdate::Thaw,
        // MS-FSA 2.1.5.15.2: other negative times do not exist.
        t if t.0 > i64::MAX as u64 => return Err(NtStatus::INVALID_PARAMETER),
        t => TimeUpdate::Set(timestamp(t)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // MS-FSCC 2.4.7
    #[test]
    fn times() {
        assert_eq!(time_update(FileTime(0)), Ok(TimeUpdate::Leave));
        assert_eq!(time_update(FileTime(u64::MAX)), Ok(TimeUpdate::Freeze));
        assert_eq!(time_update(FileTime(u64::MAX - 1)), Ok(TimeUpdate::Thaw));
        assert_eq!(time_update(FileTime(u64::MAX - 2)), Err(NtStatus::INVALID_PARAMETER));
        let t = FileTime::from_unix(1, 500);
        assert_eq!(time_update(t), Ok(TimeUpdate::Set(Timestamp { seconds: 1, nanoseconds: 500 })));
    }

    #[test]
    fn what_a_file_cannot_become() {
        assert_eq!(attributes(FileAttributes::DIRECTORY, Kind::File), Err(NtStatus::INVALID_PARAMETER));
        assert_eq!(attributes(FileAttributes::TEMPORARY, Kind::Directory), Err(NtStatus::INVALID_PARAMETER));
        assert_eq!(attributes(FileAttributes::empty(), Kind::File), Ok(None));
        assert_eq!(attributes(FileAttributes::NORMAL, Kind::File), Ok(Some(vfs::Attributes::empty())));
    }
}
