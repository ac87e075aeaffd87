//! The claim of a pool's owner: one block on each voter, in two places that are written in turn.

use super::codec::{Malformed, Reader, Wire, record};
use super::frame::{Frame, FrameError, Header, Kind};
use crate::{DiskNumber, PoolId};

/// A claim of an epoch, with its owner and time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The pool.
    pub pool: PoolId,
    /// The claimed epoch.
    pub epoch: u64,
    /// The random number drawn with it.
    pub incarnation: u64,
    /// Increases by one with each claim written on this disk; the lowest bit is the place.
    pub sequence: u64,
    /// The owner that wrote the claim.
    pub by: Claimant,
    /// The time since when it owns the pool, in seconds since 1970 by its clock.
    pub since_unix_s: u64,
    /// Whether the pool was exported cleanly, so that it has no owner.
    pub exported: bool,
}

/// A process on a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimant {
    /// The machine's name.
    pub host: String,
    /// The machine's own identity (`/etc/machine-id`).
    pub machine: [u8; 16],
    /// The id of its boot (`/proc/sys/kernel/random/boot_id`).
    pub boot: [u8; 16],
    /// The process id.
    pub process: u32,
}

record!(Claimant { host, machine, boot, process });

struct Body {
    by: Claimant,
    since_unix_s: u64,
    exported: bool,
}
record!(Body { by, since_unix_s, exported });

impl Claim {
    /// Whether this claim is of another owner, with the same epoch as `mine` or a later one.
    pub fn is_after(&self, mine: &Claim) -> bool {
        self.epoch > mine.epoch || (self.epoch == mine.epoch && self.incarnation != mine.incarnation)
    }

    /// Encodes the claim as one block.
    pub fn encode(&self, disk: DiskNumber) -> Vec<u8> {
        let mut body = Vec::new();
        Body { by: self.by.clone(), since_unix_s: self.since_unix_s, exported: self.exported }.put(&mut body);
        let header = Header {
            kind: Kind::Claim,
            pool: self.pool,
            disk,
            epoch: self.epoch,
            incarnation: self.incarnation,
            sequence: self.sequence,
            chain: 0,
        };
        header.frame(&body)
    }

    /// Decodes the claim in a block, and the disk that it was written for.
    pub fn decode(bytes: &[u8]) -> Result<(Claim, DiskNumber), FrameError> {
        let frame = Frame::parse(bytes, Kind::Claim)?;
        let body = parse(frame.body).map_err(|Malformed| FrameError::Damaged)?;
        let h = frame.header;
        let claim = Claim {
            pool: h.pool,
            epoch: h.epoch,
            incarnation: h.incarnation,
            sequence: h.sequence,
            by: body.by,
            since_unix_s: body.since_unix_s,
            exported: body.exported,
        };
        Ok((claim, h.disk))
    }
}

fn parse(body: &[u8]) -> Result<Body, Malformed> {
    let mut r = Reader(body);
    let value = Body::get(&mut r)?;
    r.end()?;
    Ok(value)
}
