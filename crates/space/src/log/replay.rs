//! Reading a log from its replicas: `docs/on-disk-format.md`, "Reading a log".
//!
//! A state machine without I/O. The caller reads the headers ([`Header::newest`]) and begins a [`Replay`]; then
//! it carries out the reads that [`Replay::wants`] returns, gives each result to [`Replay::give`], and takes the
//! [`Log`] from [`Replay::finish`]. The whole ring is read once on every replica, because the search for lost records
//! after the newest one needs all of it. Reads of one replica may overlap, but are given in their order.
//!
//! Invariants:
//! 1. Positions from the tail up are examined one after the other, to the tail plus the ring's blocks.
//! 2. A position is examined only when its blocks were read, or failed to be read, from all replicas that contain it.
//! 3. A replica contains the positions from `joined` on. One without a usable header contains none.
//! 4. A record is accepted if its check, body and payload are valid, its position and epoch are those of its place, and
//!    its sequence is not below the expected one. If it is above, the records between were lost: a gap.
//! 5. Bytes kept of a replica: at most twice the record at the examined position and [`READS_AHEAD`] reads.
//!
//! Every segment is searched for lost records, not only the open one: a closed one may have lost some too.

mod log;
mod window;

pub use log::{Finding, Log, Replayed};
use window::Window;

use super::BLOCK;
use super::entry::{Entry, UnitPlace};
use super::header::Header;
use super::record::{self, Head};
use super::ring::Point;

/// Blocks of a read: 1 MiB.
pub const READ_BLOCKS: u64 = 256;

/// Reads of one replica that may be outstanding.
pub const READS_AHEAD: u64 = 2;

/// No replica has a usable header: step 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no replica of the log has a valid header")]
pub struct NoHeader;

/// A read of one replica: these blocks of its ring, contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of the fields say what they are")]
pub struct Read {
    pub ring_block: u64,
    pub blocks: u64,
}

/// A log that is being read; see the module.
#[derive(Debug)]
pub struct Replay<H> {
    header: Header,
    hash: H,
    read_blocks: u64,
    windows: Vec<Window>,
    /// The position under examination.
    at: u64,
    /// Blocks from there on that are needed to examine it.
    needs: u64,
    /// The point after the newest record found.
    after: Point,
    records: Vec<Replayed>,
    findings: Vec<Finding>,
}

/// The result of examining a position.
enum Examined {
    /// This many blocks are needed from every replica that contains the position.
    Needs(u64),
    Record(Replayed),
    Nothing,
}

impl<H: Fn(&UnitPlace) -> u32> Replay<H> {
    /// Begins with the newest valid header of each current replica: step 1. `hash` is that of a unit's place, as in
    /// [`record::verify_payload`]; reads have at most `read_blocks` blocks.
    pub fn begin(headers: &[Option<Header>], read_blocks: u64, hash: H) -> Result<Replay<H>, NoHeader> {
        assert!(read_blocks > 0, "a read has blocks");
        let header = headers.iter().flatten().rev().max_by_key(|h| h.age()).ok_or(NoHeader)?.clone();
        let (mut windows, mut findings) = (Vec::new(), Vec::new());
        for (replica, own) in headers.iter().enumerate() {
            let usable = own.as_ref().filter(|own| own.ring == header.ring);
            match usable {
                None => findings.push(Finding::Unusable { replica }),
                // A crash between the header's writes to two replicas leaves one of them one serial behind.
                Some(own) if own.age() < header.age() && own.serial + 1 != header.serial => {
                    findings.push(Finding::OlderHeader { replica, has: own.age(), newest: header.age() });
                }
                Some(_) => {}
            }
            windows.push(Window::new(usable.map(|own| own.joined), header.tail.position));
        }
        let (at, after) = (header.tail.position, header.tail);
        let records = Vec::new();
        let mut replay =
            Replay { header, hash, read_blocks, windows, at, needs: 1, after, records, findings };
        replay.advance();
        Ok(replay)
    }

    /// The next read of a replica; `None` if none may begin now, or none is left.
    pub fn wants(&mut self, replica: usize) -> Option<Read> {
        let ahead = self.at + self.needs + READS_AHEAD * self.read_blocks;
        let from = self.windows[replica].asked;
        let blocks = self.read_at(from);
        if blocks == 0 || from + blocks > ahead {
            return None;
        }
        self.windows[replica].asked += blocks;
        Some(Read { ring_block: self.header.ring.block(from), blocks })
    }

    /// Supplies the result of the oldest outstanding read of a replica; `None` if the read failed. To salvage
    /// readable parts, a caller may read smaller ranges and supply zeros for the rest. Bytes of a wrong length count
    /// as failed.
    ///
    /// # Panics
    /// If no read of the replica is outstanding.
    pub fn give(&mut self, replica: usize, bytes: Option<&[u8]>) {
        let blocks = self.read_at(self.windows[replica].end());
        self.windows[replica].extend(blocks, bytes);
        self.advance();
    }

    /// Whether all reads are complete.
    pub fn is_done(&self) -> bool {
        self.at == self.limit()
    }

    /// Examines positions until bytes are missing.
    fn advance(&mut self) {
        while self.at < self.limit() {
            match self.examine() {
                Examined::Needs(blocks) => {
                    self.needs = blocks;
                    break;
                }
                Examined::Record(record) => self.accept(record),
                Examined::Nothing => self.at += 1,
            }
        }
        self.windows.iter_mut().for_each(|window| window.drop_before(self.at));
    }

    /// The position at which the examination ends: the tail, one lap later.
    fn limit(&self) -> u64 {
        self.header.tail.position + self.header.ring.blocks()
    }

    /// Blocks of the read that begins at a position; 0 at the end.
    fn read_at(&self, position: u64) -> u64 {
        self.read_blocks.min(self.header.ring.to_end(position)).min(self.limit().saturating_sub(position))
    }

    /// Searches a record at [`Self::at`], on each replica that contains the position.
    fn examine(&self) -> Examined {
        let taking_part = || self.windows.iter().enumerate().filter(|(_, w)| w.takes_part(self.at));
        if taking_part().any(|(_, window)| !window.has(self.at, 1)) {
            return Examined::Needs(1);
        }
        let heads = taking_part().filter_map(|(_, window)| self.head(window.get(self.at, 1)));
        let Some(blocks) = heads.map(|head| head.blocks()).max() else { return Examined::Nothing };
        if taking_part().any(|(_, window)| !window.has(self.at, blocks)) {
            return Examined::Needs(blocks);
        }
        let found = taking_part().find_map(|(replica, window)| {
            let head = self.head(window.get(self.at, 1))?;
            let bytes = window.get(self.at, head.blocks());
            Some((replica, bytes, head, self.entries(&head, bytes)?))
        });
        let Some((replica, bytes, head, entries)) = found else { return Examined::Nothing };
        // A position is written once (rule 7), so a replica that has the record has the same bytes.
        let lacks = |(_, window): &(usize, &Window)| window.get(self.at, head.blocks()) != bytes;
        let lacking = taking_part().filter(lacks).map(|(replica, _)| replica).collect();
        Examined::Record(Replayed { head, entries, replica, lacking, confirmed: false })
    }

    /// The head of an expected record, or of a later one.
    fn head(&self, block: &[u8]) -> Option<Head> {
        let segment = &self.header.segments[self.header.segment_at(self.at)?];
        let head = Head::decode(block, &segment.key).ok()?;
        let end = self.at + head.blocks();
        let is_here = head.id.position == self.at
            && head.id.epoch == segment.epoch
            && head.id.sequence >= self.after.sequence
            && head.blocks() <= self.header.ring.to_end(self.at)
            && end <= segment.closed.map_or(self.limit(), |closed| closed.end.min(self.limit()));
        is_here.then_some(head)
    }

    fn entries(&self, head: &Head, bytes: &[u8]) -> Option<Vec<Entry>> {
        let entries = head.entries(bytes).ok()?;
        let payload = &bytes[usize::from(head.head_blocks) * BLOCK..];
        record::verify_payload(&entries, payload, &self.hash).is_ok().then_some(entries)
    }

    /// A record was found: the next one (step 2), or one after a gap (step 3). Its position does not show which: even
    /// without a loss, a record may begin at the start of the ring or of a segment.
    fn accept(&mut self, record: Replayed) {
        let to = Point { position: record.head.id.position, sequence: record.head.id.sequence };
        if to.sequence > self.after.sequence {
            self.findings.push(Finding::Gap { from: self.after, to });
        }
        self.after = Point { position: to.position + record.head.blocks(), sequence: to.sequence + 1 };
        self.at = self.after.position;
        self.records.push(record);
    }

    /// Returns the log, when all is read: steps 3 and 4.
    ///
    /// # Panics
    /// If [`Replay::is_done`] is false.
    pub fn finish(mut self) -> Log {
        assert!(self.is_done(), "the ring is read up to {} of {}", self.at, self.limit());
        // The header states the end of closed segments; records that were not found before it are lost too.
        let first = self.header.open().first;
        if self.after.sequence < first.sequence {
            self.findings.push(Finding::Gap { from: self.after, to: first });
        }
        let sequence = self.after.sequence.max(first.sequence);
        let end = Point { position: self.after.position.max(first.position), sequence };
        let joined = self.windows.iter().filter_map(|window| window.joined).max().unwrap_or(0);
        Log::new(self.header, self.records, self.findings, end, joined, self.windows.len())
    }
}
