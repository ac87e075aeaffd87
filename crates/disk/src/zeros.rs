//! Zeros instead of data, as clients ask for them (NBD_CMD_WRITE_ZEROES, a block device's write zeroes).

use arena::{IoBuf, Sg};
use env::Ctx;

use crate::{Disk, DiskError, IO_MAX};

/// Bytes of the buffer that is written again and again.
const ZEROS: usize = 1 << 20;

/// Makes whole blocks zeros: by a discard where that makes them so and may be (`discards`), else by writing.
/// `c` says whether they are durable then.
///
/// # Errors
/// The disk's; then each block is as it was, or zeros.
pub async fn write_zeros(
    disk: &dyn Disk,
    c: &Ctx,
    offset: u64,
    length: u64,
    discards: bool,
) -> Result<(), DiskError> {
    if discards {
        disk.discard(c, offset, length).wait().await?;
        return if c.flags.write_through { disk.flush(c).wait().await } else { Ok(()) };
    }
    let zeros = IoBuf::from(vec![0; ZEROS]);
    let mut done = 0;
    while done < length {
        let piece = (length - done).min(IO_MAX / 4);
        let whole = std::iter::repeat_n(zeros.clone(), piece as usize / ZEROS);
        let rest = zeros.slice(0..piece as usize % ZEROS);
        let src: Sg = whole.chain((!rest.is_empty()).then_some(rest)).collect();
        disk.write(c, offset + done, src).wait().await?;
        done += piece;
    }
    Ok(())
}
