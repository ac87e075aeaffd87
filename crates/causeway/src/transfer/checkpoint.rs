//! The progress of a resumable copy, valid after a crash of either end.
//!
//! `--resume` copies into `NAME.part`, and stores the state in `NAME.part.state`: the size and the modification time of
//! the source, and a CRC32C of each complete [`BLOCK`] copied. The state is written when the blocks that it describes
//! are durable. The next attempt skips
//!
//! 1. nothing, if the source has changed;
//! 2. otherwise the blocks from the beginning whose checksums are still valid: for `get` those of the local part; for
//!    `put` those of the source, and the part's last block is read back from the server.
//!
//! When the copy is complete, the part is renamed to its name and the state is removed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use crc_fast::{CrcAlgorithm, Digest};
use serde::{Deserialize, Serialize};

/// Bytes between two checkpoints.
pub const BLOCK: u64 = 64 << 20;

/// The longest state that is read: the blocks of 64 TiB.
pub const LONGEST: usize = 16 << 20;

/// Identifies the contents of a file: equal versions are assumed to have equal contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// In bytes.
    pub size: u64,
    /// Last change, in 100 ns since 1601 or ns since 1970; only compared.
    pub changed: i64,
}

/// The state of a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The source of the copy.
    pub source: Version,
    /// Bytes for each sum.
    pub block: u64,
    /// CRC32C of each complete block, in order.
    pub sums: Vec<u32>,
}

/// Computes the checksums of the copied bytes, in order.
pub struct Summer {
    checkpoint: Checkpoint,
    digest: Digest,
    /// Bytes in `digest`.
    filled: u64,
}

impl Checkpoint {
    /// Reads a state; `None` if it belongs to another source or is invalid.
    pub fn parse(text: &[u8], source: &Version) -> Option<Checkpoint> {
        let c: Checkpoint = serde_json::from_slice(text).ok()?;
        let fits = c.block == BLOCK && c.sums.len() as u64 <= source.size / BLOCK;
        (c.source == *source && fits).then_some(c)
    }

    /// The text of the state file.
    pub fn to_text(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The bytes that it covers.
    pub fn length(&self) -> u64 {
        self.sums.len() as u64 * self.block
    }

    /// Drops the first block whose contents in `file` have changed, and all blocks after it.
    ///
    /// # Errors
    /// The system's, when it cannot be read (its end is no error).
    pub fn verify(&mut self, file: &File) -> io::Result<()> {
        let mut buf = vec![0; 1 << 20];
        for (i, sum) in self.sums.iter().enumerate() {
            if sum_of(file, i as u64 * self.block, self.block, &mut buf)? != Some(*sum) {
                self.sums.truncate(i);
                break;
            }
        }
        Ok(())
    }
}

/// The CRC32C of a range of a file; `None` if the file ends before the end of the range.
fn sum_of(file: &File, at: u64, length: u64, buf: &mut [u8]) -> io::Result<Option<u32>> {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    let mut done = 0;
    while done < length {
        let n = buf.len().min((length - done) as usize);
        match file.read_at(&mut buf[..n], at + done)? {
            0 => return Ok(None),
            n => {
                digest.update(&buf[..n]);
                done += n as u64;
            }
        }
    }
    Ok(Some(digest.finalize() as u32))
}

impl Summer {
    /// Continues after the checkpoint's position.
    pub fn new(checkpoint: Checkpoint) -> Summer {
        Summer { checkpoint, digest: Digest::new(CrcAlgorithm::Crc32Iscsi), filled: 0 }
    }

    /// Starts at the beginning of a copy.
    pub fn start(source: Version) -> Summer {
        Summer::new(Checkpoint { source, block: BLOCK, sums: Vec::new() })
    }

    /// Adds the next bytes. True if a block is complete: the caller then makes the copied data durable and writes the
    /// [`Summer::checkpoint`].
    pub fn add(&mut self, mut bytes: &[u8]) -> bool {
        let mut completed = false;
        while !bytes.is_empty() {
            let n = bytes.len().min((self.checkpoint.block - self.filled) as usize);
            let (now, later) = bytes.split_at(n);
            self.digest.update(now);
            self.filled += n as u64;
            bytes = later;
            if self.filled == self.checkpoint.block {
                self.checkpoint.sums.push(self.digest.finalize() as u32);
                self.digest.reset();
                self.filled = 0;
                completed = true;
            }
        }
        completed
    }

    /// [`Summer::add`] for a hole of `length` bytes, which reads as zeros.
    pub fn add_zeros(&mut self, mut length: u64) -> bool {
        const ZEROS: &[u8] = &[0; 64 << 10];
        let mut completed = false;
        while length > 0 {
            if self.filled == 0 && length >= self.checkpoint.block {
                self.checkpoint.sums.push(zero_block());
                completed = true;
                length -= self.checkpoint.block;
                continue;
            }
            let n = length.min(ZEROS.len() as u64).min(self.checkpoint.block - self.filled);
            completed |= self.add(&ZEROS[..n as usize]);
            length -= n;
        }
        completed
    }

    /// The complete blocks so far.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }
}

/// The CRC32C of a block of zeros.
fn zero_block() -> u32 {
    static SUM: OnceLock<u32> = OnceLock::new();
    *SUM.get_or_init(|| {
        let mut sum = Sum::new();
        for _ in 0..BLOCK >> 16 {
            sum.add(&[0; 1 << 16]);
        }
        sum.value()
    })
}

/// The CRC32C of some bytes, in the checkpoint's form.
pub struct Sum(Digest);

impl Sum {
    /// The checksum of no bytes.
    pub fn new() -> Sum {
        Sum(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Adds the next bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all added bytes.
    pub fn value(&self) -> u32 {
        self.0.finalize() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Scratch;

    fn version() -> Version {
        Version { size: 3 * BLOCK + 5, changed: 7 }
    }

    /// Contents that differ from block to block.
    fn byte(at: u64) -> u8 {
        (at / 4093 + at / BLOCK) as u8
    }

    #[test]
    fn only_blocks_that_are_as_they_were_count() {
        let dir = Scratch::new("checkpoint");
        let path = dir.0.join("part");
        let all: Vec<u8> = (0..2 * BLOCK + 9).map(byte).collect();
        std::fs::write(&path, &all).expect("written");
        let mut summer = Summer::start(version());
        // Pieces of unequal sizes, one of them across the border of two blocks.
        let completed: Vec<bool> = all.chunks(BLOCK as usize / 3 + 1).map(|c| summer.add(c)).collect();
        assert_eq!(completed.iter().filter(|c| **c).count(), 2);
        let state = summer.checkpoint().clone();
        assert_eq!(state.length(), 2 * BLOCK);
        assert_eq!(state.sums.len(), 2);

        let open = || File::options().read(true).write(true).open(&path).expect("opened");
        let verified = |f: &File| {
            let mut c = state.clone();
            c.verify(f).expect("read");
            c.length()
        };
        assert_eq!(verified(&open()), 2 * BLOCK);
        open().write_all_at(b"!", BLOCK + 17).expect("written");
        assert_eq!(verified(&open()), BLOCK);
        open().set_len(BLOCK - 1).expect("cut");
        assert_eq!(verified(&open()), 0);

        // Continuing from a checkpoint gives the same checksums as an uninterrupted copy.
        let mut rest = Summer::new(Checkpoint { sums: state.sums[..1].to_vec(), ..state.clone() });
        rest.add(&all[BLOCK as usize..]);
        assert_eq!(rest.checkpoint(), &state);
    }

    #[test]
    fn holes_count_as_zeros() {
        let zeros = vec![0; 2 * BLOCK as usize + 100];
        let (mut as_bytes, mut as_hole) = (Summer::start(version()), Summer::start(version()));
        assert!(!as_hole.add(b"abc") && as_hole.add_zeros(zeros.len() as u64));
        as_bytes.add(b"abc");
        as_bytes.add(&zeros);
        assert_eq!(as_hole.checkpoint(), as_bytes.checkpoint());
        assert!(!as_hole.add_zeros(BLOCK - 104) && as_hole.add(b"x"));
        as_bytes.add_zeros(BLOCK - 104);
        as_bytes.add(b"x");
        assert_eq!((as_hole.checkpoint(), as_hole.checkpoint().sums.len()), (as_bytes.checkpoint(), 3));
    }

    #[test]
    fn a_state_is_of_its_source_only() {
        let state = Checkpoint { source: version(), block: BLOCK, sums: vec![1, 2] };
        let text = state.to_text();
        assert_eq!(Checkpoint::parse(&text, &version()), Some(state.clone()));
        assert_eq!(Checkpoint::parse(&text, &Version { changed: 8, ..version() }), None);
        assert_eq!(Checkpoint::parse(&text, &Version { size: BLOCK, ..version() }), None);
        assert_eq!(Checkpoint::parse(b"{", &version()), None);
        // The state has more blocks than the source.
        let long = Checkpoint { sums: vec![0; 4], ..state }.to_text();
        assert_eq!(Checkpoint::parse(&long, &version()), None);
    }

    #[test]
    fn the_sum_is_crc32c() {
        let mut sum = Sum::new();
        sum.add(b"1234");
        sum.add(b"56789");
        assert_eq!(sum.value(), 0xE306_9283); // RFC 3720 B.4's polynomial, the usual check value
    }
}
