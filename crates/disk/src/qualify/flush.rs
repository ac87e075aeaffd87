//! Measures the duration of a flush, which shows whether a disk is protected against power loss.

use std::time::Duration;

use arena::{Arena, Class};
use env::{Ctx, Env};

use crate::{Disk, DiskError, IoRange, Op, sized};

/// A flush of one small write that is faster than this did not wait for flash: writing a flash page takes
/// longer.
pub const FLUSH_PROTECTED: Duration = Duration::from_micros(500);

/// Measured times of a flush after one small write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushLatency {
    /// The median.
    pub median: Duration,
    /// The maximum.
    pub longest: Duration,
    /// The number of samples.
    pub samples: u32,
}

const SAMPLES: usize = 32;
const BYTES: usize = 4096;
const STEP: u64 = 1 << 20;
/// Sampling stops after this time.
const TIME_LIMIT: Duration = Duration::from_secs(3);

/// Rewrites blocks with their contents, each followed by a flush. Returns `None` if the disk is smaller than
/// a block.
pub(super) async fn measure(env: &Env, disk: &dyn Disk) -> Result<Option<FlushLatency>, DiskError> {
    let size = disk.info().geometry.size;
    let refused = |_| DiskError::Refused { at: IoRange::whole(Op::Flush), errno: libc::ENOMEM };
    let arena = Arena::new(8 * BYTES).map_err(refused)?;
    let c = Ctx::default();
    let begun = env.now();
    let mut times = Vec::with_capacity(SAMPLES);
    for offset in (0..SAMPLES as u64).map(|i| i * STEP % size.max(1)).filter(|o| o + BYTES as u64 <= size) {
        let dst = sized(arena.alloc_sg(BYTES, Class::Control).await, BYTES);
        let (result, block) = disk.read(&c, offset, dst).wait().await;
        result?;
        let same = block.into_iter().map(arena::IoBufMut::freeze).collect();
        disk.write(&c, offset, same).wait().await?;
        let before = env.now();
        disk.flush(&c).wait().await?;
        times.push(env.now() - before);
        if env.now() - begun > TIME_LIMIT {
            break;
        }
    }
    Ok(summary(times))
}

fn summary(mut times: Vec<Duration>) -> Option<FlushLatency> {
    times.sort_unstable();
    let (median, longest) = (*times.get(times.len() / 2)?, *times.last()?);
    Some(FlushLatency { median, longest, samples: times.len() as u32 })
}
