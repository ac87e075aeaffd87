//! Validates requests of the kernel, and maps errors for replies.

use disk::DiskError;

use crate::abi::{
    Descriptor, FLAG_FUA, FLAG_NO_UNMAP, OPERATION_DISCARD, OPERATION_FLUSH, OPERATION_READ, OPERATION_WRITE,
    OPERATION_WRITE_ZEROES, SECTOR,
};
use crate::shape::Bounds;

/// A valid request: its range is inside the disk, in whole blocks, and no longer than negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) operation: Operation,
    /// In bytes.
    pub(crate) offset: u64,
    /// In bytes; 0 for a flush.
    pub(crate) length: u64,
    /// Durable before the reply.
    pub(crate) through: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Read,
    Write,
    Flush,
    Discard,
    WriteZeroes {
        /// The blocks must stay allocated.
        keep: bool,
    },
}

/// Validates a request of the kernel.
///
/// # Errors
/// A positive error number: EOPNOTSUPP for an operation that was not offered, EPERM for a write to a
/// read-only disk, EINVAL for a range that is not whole blocks inside the disk or is too long.
pub(crate) fn check(asked: Descriptor, bounds: &Bounds) -> Result<Request, i32> {
    let flags = asked.operation_and_flags;
    let operation = match (flags & 0xff) as u8 {
        OPERATION_READ => Operation::Read,
        OPERATION_WRITE => Operation::Write,
        OPERATION_FLUSH => Operation::Flush,
        OPERATION_DISCARD => Operation::Discard,
        OPERATION_WRITE_ZEROES => Operation::WriteZeroes { keep: flags & FLAG_NO_UNMAP != 0 },
        _ => return Err(libc::EOPNOTSUPP),
    };
    let through = flags & FLAG_FUA != 0;
    if operation == Operation::Flush {
        return Ok(Request { operation, offset: 0, length: 0, through });
    }
    if bounds.read_only && operation != Operation::Read {
        return Err(libc::EPERM);
    }
    let length = u64::from(asked.sectors) * SECTOR;
    let offset = asked.start_sector.checked_mul(SECTOR).ok_or(libc::EINVAL)?;
    let is_whole = length > 0 && offset.is_multiple_of(bounds.block) && length.is_multiple_of(bounds.block);
    let is_inside = offset.checked_add(length).is_some_and(|end| end <= bounds.size);
    let has_payload = matches!(operation, Operation::Read | Operation::Write);
    if !is_whole || !is_inside || has_payload && length > bounds.transfer_max {
        return Err(libc::EINVAL);
    }
    Ok(Request { operation, offset, length, through })
}

/// The errno for a disk error: one that the kernel's block layer distinguishes.
pub(crate) fn number(e: &DiskError) -> i32 {
    match e {
        DiskError::Unaligned { .. } | DiskError::OutOfRange { .. } | DiskError::TooLong { .. } => {
            libc::EINVAL
        }
        DiskError::ReadOnly { .. } => libc::EPERM,
        DiskError::Medium { .. } => libc::ENODATA,
        DiskError::Full { .. } => libc::ENOSPC,
        DiskError::Timeout { .. } => libc::ETIMEDOUT,
        DiskError::Gone { .. } | DiskError::Fenced { .. } => libc::ENOLINK,
        DiskError::Refused { .. } => libc::EIO,
    }
}

#[cfg(test)]
mod tests {
    use disk::{IoRange, Op};
    use proptest::prelude::*;

    use super::*;

    const BOUNDS: Bounds = Bounds { size: 64 << 20, block: 4096, transfer_max: 1 << 20, read_only: false };

    fn asked(operation: u32, start_sector: u64, sectors: u32) -> Descriptor {
        Descriptor { operation_and_flags: operation, sectors, start_sector }
    }

    #[test]
    fn what_is_asked_is_understood() {
        let read = check(asked(0, 8, 16), &BOUNDS);
        let expected = Request { operation: Operation::Read, offset: 4096, length: 8192, through: false };
        assert_eq!(read, Ok(expected));
        let write = check(asked(1 | FLAG_FUA, 0, 8), &BOUNDS).expect("a write");
        assert_eq!((write.operation, write.through), (Operation::Write, true));
        let flush = check(asked(2, u64::MAX, 0), &BOUNDS).expect("a flush has no place");
        assert_eq!((flush.operation, flush.offset, flush.length), (Operation::Flush, 0, 0));
        let zeroes = |flag| check(asked(5 | flag, 0, 1 << 17), &BOUNDS).expect("zeroes").operation;
        assert_eq!(zeroes(0), Operation::WriteZeroes { keep: false });
        assert_eq!(zeroes(FLAG_NO_UNMAP), Operation::WriteZeroes { keep: true });
        let discard = check(asked(3, 0, 1 << 17), &BOUNDS).expect("longer than a transfer");
        assert_eq!((discard.operation, discard.length), (Operation::Discard, 64 << 20));
    }

    #[test]
    fn what_should_never_be_asked_is_refused() {
        let refused = |d| check(d, &BOUNDS).expect_err("refused");
        for operation in [4, 6, 10, 18, 33, 0xff] {
            assert_eq!(refused(asked(operation, 0, 8)), libc::EOPNOTSUPP, "{operation}");
        }
        for operation in [0, 1, 3, 5] {
            let end = (64 << 20) / 512;
            let wrong = [(end, 8), (end - 8, 16), (1, 8), (0, 9), (0, 0), (u64::MAX, 8), (u64::MAX / 512, 8)];
            for (start, sectors) in wrong {
                assert_eq!(
                    refused(asked(operation, start, sectors)),
                    libc::EINVAL,
                    "{operation} {start} {sectors}"
                );
            }
        }
        assert_eq!(refused(asked(0, 0, 2056)), libc::EINVAL, "longer than was agreed");
        let read_only = Bounds { read_only: true, ..BOUNDS };
        for operation in [1, 3, 5] {
            assert_eq!(check(asked(operation, 0, 8), &read_only), Err(libc::EPERM));
        }
        assert!(check(asked(0, 0, 8), &read_only).is_ok() && check(asked(2, 0, 0), &read_only).is_ok());
    }

    proptest! {
        #[test]
        fn whatever_passes_is_inside(flags: u32, start_sector: u64, sectors: u32) {
            let near = start_sector % (2 * BOUNDS.size / 512);
            for start_sector in [start_sector, near, near / 8 * 8] {
                for sectors in [sectors, sectors % 4096 / 8 * 8] {
                    let d = Descriptor { operation_and_flags: flags & !0xf8, sectors, start_sector };
                    if let Ok(r) = check(d, &BOUNDS) {
                        prop_assert!(r.offset + r.length <= BOUNDS.size);
                        prop_assert!(r.offset % 4096 == 0 && r.length % 4096 == 0);
                        let payload = matches!(r.operation, Operation::Read | Operation::Write);
                        prop_assert!(!payload || r.length <= BOUNDS.transfer_max);
                    }
                }
            }
        }
    }

    #[test]
    fn every_error_has_a_number_of_the_block_layer() {
        let at = IoRange::new(Op::Write, 0, 4096);
        assert_eq!(number(&DiskError::Medium { at }), libc::ENODATA);
        assert_eq!(number(&DiskError::Full { at }), libc::ENOSPC);
        assert_eq!(number(&DiskError::Timeout { at }), libc::ETIMEDOUT);
        assert_eq!(number(&DiskError::Gone { at }), libc::ENOLINK);
        assert_eq!(number(&DiskError::ReadOnly { at }), libc::EPERM);
        assert_eq!(number(&DiskError::Refused { at, errno: 7 }), libc::EIO);
        assert_eq!(number(&DiskError::TooLong { at }), libc::EINVAL);
    }
}
