//! Checks that every provider makes before it accepts a work request.

use arena::sg_len;

use crate::{QueuePairCaps, RdmaError, Wr};

/// Number of outstanding work requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outstanding {
    /// Sends, Writes, Reads and Invalidates.
    pub(crate) sends: usize,
    /// Posted receives.
    pub(crate) recvs: usize,
}

/// Whether `wr` can be accepted; the caller checks the steering tag of an Invalidate.
pub(crate) fn check(wr: &Wr, caps: &QueuePairCaps, now: Outstanding) -> Result<(), RdmaError> {
    let count = if matches!(wr, Wr::Recv(_)) { now.recvs } else { now.sends };
    if count >= caps.max_wr {
        return Err(RdmaError::QueueFull);
    }
    match wr {
        Wr::Send { sg, .. } => sized(sg.len(), sg_len(sg), u64::from(u32::MAX), caps),
        Wr::Write { src, to } => sized(src.len(), sg_len(src), u64::from(to.length), caps),
        Wr::Read { .. } if caps.ord == 0 => Err(RdmaError::NoReads),
        Wr::Read { sink, from } if from.length as usize > sink.capacity() => Err(RdmaError::Length),
        Wr::Read { .. } | Wr::Recv(_) | Wr::Invalidate(_) => Ok(()),
    }
}

fn sized(pieces: usize, len: usize, most: u64, caps: &QueuePairCaps) -> Result<(), RdmaError> {
    if pieces > caps.max_sge || len as u64 > most { Err(RdmaError::Length) } else { Ok(()) }
}
