//! Writes zeros on request of clients (NBD_CMD_WRITE_ZEROES, a block device's write zeroes).

use arena::{IoBuf, Sg};
use env::Ctx;

use crate::{Disk, DiskError, IO_MAX};

/// Bytes of the buffer that is written repeatedly.
const ZEROS: usize = 1 << 20;

/// Zeroes whole blocks, by a discard if `discards` is true (discarded blocks then read as zeros), otherwise
/// by writing. `c` determines whether they are durable on return.
///
/// # Errors
/// The disk's error; each block is then unchanged or zeros.
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
