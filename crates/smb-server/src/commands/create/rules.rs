//! What a CREATE may ask for: the checks that need no file (MS-SMB2 3.3.5.9, MS-FSA 2.1.5.1).

use smb_wire::msg::{CreateDisposition, CreateOptions, CreateRequest, ImpersonationLevel};
use smb_wire::{AccessMask, FileAttributes, NtStatus, ShareAccess};
use vfs::{StreamName, StreamPart};

/// Bits of an ACCESS_MASK that have no meaning.
const ACCESS_INVALID: u32 = 0x0CE0_FE00;
/// Options that exist (MS-SMB2 2.2.13); Windows refuses the others.
const OPTIONS_VALID: u32 = 0x00FF_FFFF;
/// FILE_CREATE_TREE_CONNECTION, FILE_OPEN_BY_FILE_ID, FILE_RESERVE_OPFILTER.
const OPTIONS_UNSUPPORTED: u32 = 0x0010_2080;
/// Attributes that a client may send (MS-FSCC 2.6); the others, of which FILE_ATTRIBUTE_DEVICE (0x40) and
/// FILE_ATTRIBUTE_VOLUME (0x8) are obsolete, are refused.
const ATTRIBUTES_VALID: u32 = 0x0000_7FB7;

/// Refuses requests that no file could satisfy.
///
/// # Errors
/// The status that Windows gives.
pub(super) fn check(q: &CreateRequest<'_>) -> Result<(), NtStatus> {
    check_access(q.desired_access, q.create_options)?;
    // MS-SMB2 3.3.5.9: a level that does not exist.
    if q.impersonation_level > ImpersonationLevel::DELEGATE {
        return Err(NtStatus::BAD_IMPERSONATION_LEVEL);
    }
    if q.create_disposition > CreateDisposition::OVERWRITE_IF {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if q.share_access.bits() & !(ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE).bits() != 0 {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if q.file_attributes.bits() & !ATTRIBUTES_VALID != 0 {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    // MS-FSA 2.1.5.1: no file here can be encrypted by its file system.
    if q.file_attributes.contains(FileAttributes::ENCRYPTED) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    check_options(q.create_options, q.create_disposition, q.file_attributes)
}

fn check_options(o: CreateOptions, d: CreateDisposition, a: FileAttributes) -> Result<(), NtStatus> {
    if o.bits() & !OPTIONS_VALID != 0 {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if o.bits() & OPTIONS_UNSUPPORTED != 0 {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    if o.contains(CreateOptions::DIRECTORY_FILE) {
        if o.contains(CreateOptions::NON_DIRECTORY_FILE) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        // MS-FSA 2.1.5.1: a directory can be opened and created, not overwritten.
        if !matches!(d, CreateDisposition::OPEN | CreateDisposition::CREATE | CreateDisposition::OPEN_IF) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
        if a.contains(FileAttributes::TEMPORARY) {
            return Err(NtStatus::INVALID_PARAMETER);
        }
    }
    Ok(())
}

fn check_access(access: AccessMask, options: CreateOptions) -> Result<(), NtStatus> {
    // MS-SMB2 3.3.5.9: no right at all, or one that does not exist.
    if access.is_empty() || access.bits() & ACCESS_INVALID != 0 {
        return Err(NtStatus::ACCESS_DENIED);
    }
    // MS-SMB2 2.2.13, MS-FSA 2.1.5.1: DELETE_ON_CLOSE needs the right to delete, and the request has to name it.
    let deletes = AccessMask::DELETE | AccessMask::GENERIC_ALL;
    if options.contains(CreateOptions::DELETE_ON_CLOSE) && !access.intersects(deletes) {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    Ok(())
}

/// Refuses requests that fail for every file on a read-only volume (MS-FSA 2.1.5.1, 2.1.5.1.2.1).
///
/// # Errors
/// MEDIA_WRITE_PROTECTED, CANNOT_DELETE.
pub(super) fn check_volume(q: &CreateRequest<'_>, read_only: bool) -> Result<(), NtStatus> {
    use CreateDisposition as D;
    match q.create_disposition {
        _ if !read_only => Ok(()),
        D::CREATE | D::SUPERSEDE | D::OVERWRITE | D::OVERWRITE_IF => Err(NtStatus::MEDIA_WRITE_PROTECTED),
        _ if q.create_options.contains(CreateOptions::DELETE_ON_CLOSE) => Err(NtStatus::CANNOT_DELETE),
        _ => Ok(()),
    }
}

/// Whether a request is allowed for an existing file with these attributes (MS-FSA 2.1.5.1.2).
///
/// # Errors
/// ACCESS_DENIED, CANNOT_DELETE.
pub(super) fn check_existing(
    existing: FileAttributes,
    q: &CreateRequest<'_>,
    overwrites: bool,
    directory: bool,
) -> Result<(), NtStatus> {
    let read_only = existing.contains(FileAttributes::READONLY);
    let writes = AccessMask::WRITE_DATA
        | AccessMask::APPEND_DATA
        | AccessMask::GENERIC_WRITE
        | AccessMask::GENERIC_ALL;
    if read_only && !directory && (overwrites || q.desired_access.intersects(writes)) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    if read_only && q.create_options.contains(CreateOptions::DELETE_ON_CLOSE) {
        return Err(NtStatus::CANNOT_DELETE);
    }
    Ok(())
}

/// Whether overwriting the unnamed stream of an existing file with these attributes is allowed (MS-FSA 2.1.5.1.2).
///
/// # Errors
/// ACCESS_DENIED.
pub(super) fn check_replaced(
    existing: FileAttributes,
    q: &CreateRequest<'_>,
    overwrites: bool,
) -> Result<(), NtStatus> {
    // Overwriting must not lose "hidden" and "system": the request has to contain them again.
    let kept = FileAttributes::HIDDEN | FileAttributes::SYSTEM;
    if overwrites && !q.file_attributes.contains(existing & kept) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    Ok(())
}

/// The named stream that a name asks for. Adds to `options` the kind of file that the name implies.
///
/// # Errors
/// NOT_A_DIRECTORY, FILE_IS_A_DIRECTORY: options that contradict the name. OBJECT_NAME_INVALID on a volume without streams.
pub(super) fn stream(
    part: StreamPart,
    options: &mut CreateOptions,
    has_streams: bool,
) -> Result<Option<StreamName>, NtStatus> {
    let (directory, file) = (CreateOptions::DIRECTORY_FILE, CreateOptions::NON_DIRECTORY_FILE);
    match part {
        StreamPart::None => Ok(None),
        // On a volume without streams a colon is invalid in any name, whether a stream's name follows or not.
        _ if !has_streams => Err(NtStatus::OBJECT_NAME_INVALID),
        StreamPart::Directory if options.contains(file) => Err(NtStatus::FILE_IS_A_DIRECTORY),
        StreamPart::Directory => {
            *options |= directory;
            Ok(None)
        }
        StreamPart::Unnamed | StreamPart::Named(_) if options.contains(directory) => {
            Err(NtStatus::NOT_A_DIRECTORY)
        }
        StreamPart::Unnamed => {
            *options |= file;
            Ok(None)
        }
        StreamPart::Named(name) => Ok(Some(name)),
    }
}

/// Whether a name ends with a separator, which restricts the CREATE to directories although its options do not.
///
/// # Errors
/// OBJECT_NAME_INVALID where the options ask for a file (MS-FSA 2.1.5.1, phase 1).
pub(super) fn ends_with_separator(name: &str, options: CreateOptions) -> Result<bool, NtStatus> {
    if !name.ends_with(['\\', '/']) {
        return Ok(false);
    }
    match options.contains(CreateOptions::NON_DIRECTORY_FILE) {
        true => Err(NtStatus::OBJECT_NAME_INVALID),
        false => Ok(!options.contains(CreateOptions::DIRECTORY_FILE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> CreateRequest<'static> {
        CreateRequest {
            impersonation_level: ImpersonationLevel::IMPERSONATION,
            desired_access: AccessMask::READ_DATA,
            share_access: ShareAccess::READ,
            create_disposition: CreateDisposition::OPEN,
            ..CreateRequest::default()
        }
    }

    #[test]
    fn what_no_file_could_satisfy() {
        let base = request();
        assert_eq!(check(&base), Ok(()));
        let cases = [
            (
                CreateRequest { impersonation_level: ImpersonationLevel(4), ..base },
                NtStatus::BAD_IMPERSONATION_LEVEL,
            ),
            (CreateRequest { create_disposition: CreateDisposition(6), ..base }, NtStatus::INVALID_PARAMETER),
            (
                CreateRequest { share_access: ShareAccess::from_bits_retain(8), ..base },
                NtStatus::INVALID_PARAMETER,
            ),
            (CreateRequest { desired_access: AccessMask::empty(), ..base }, NtStatus::ACCESS_DENIED),
            (
                CreateRequest { create_options: CreateOptions::OPEN_BY_FILE_ID, ..base },
                NtStatus::NOT_SUPPORTED,
            ),
            (
                CreateRequest { create_options: CreateOptions::DELETE_ON_CLOSE, ..base },
                NtStatus::INVALID_PARAMETER,
            ),
            (
                CreateRequest {
                    create_options: CreateOptions::DELETE_ON_CLOSE,
                    desired_access: AccessMask::MAXIMUM_ALLOWED,
                    ..base
                },
                NtStatus::INVALID_PARAMETER,
            ),
            (
                CreateRequest {
                    create_options: CreateOptions::DIRECTORY_FILE | CreateOptions::NON_DIRECTORY_FILE,
                    ..base
                },
                NtStatus::INVALID_PARAMETER,
            ),
            (
                CreateRequest {
                    create_options: CreateOptions::DIRECTORY_FILE,
                    create_disposition: CreateDisposition::OVERWRITE_IF,
                    ..base
                },
                NtStatus::INVALID_PARAMETER,
            ),
        ];
        for (q, status) in cases {
            assert_eq!(check(&q), Err(status), "{q:?}");
        }
    }

    // MS-FSA 2.1.5.1.2
    #[test]
    fn attributes_of_what_exists() {
        let write = CreateRequest { desired_access: AccessMask::GENERIC_WRITE, ..request() };
        assert_eq!(
            check_existing(FileAttributes::READONLY, &write, false, false),
            Err(NtStatus::ACCESS_DENIED)
        );
        assert_eq!(check_existing(FileAttributes::READONLY, &write, false, true), Ok(()));
        assert_eq!(check_existing(FileAttributes::READONLY, &request(), false, false), Ok(()));
        assert_eq!(check_replaced(FileAttributes::HIDDEN, &write, true), Err(NtStatus::ACCESS_DENIED));
        let again = CreateRequest { file_attributes: FileAttributes::HIDDEN, ..write };
        assert_eq!(check_replaced(FileAttributes::HIDDEN, &again, true), Ok(()));
        let delete = CreateRequest { create_options: CreateOptions::DELETE_ON_CLOSE, ..request() };
        assert_eq!(
            check_existing(FileAttributes::READONLY, &delete, false, false),
            Err(NtStatus::CANNOT_DELETE)
        );
    }
}
