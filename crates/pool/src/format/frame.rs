//! The header that every structure begins with.
//!
//! ```text
//!  0  4  magic "CWPL"
//!  4  1  kind: 1 label, 2 claim, 3 checkpoint, 4 journal record
//!  5  1  0
//!  6  2  disk number
//!  8 16  pool
//! 24  8  epoch
//! 32  8  incarnation: the random number drawn with the epoch
//! 40  8  sequence: of the label, the claim, or the record
//! 48  4  chain: see `metadata`; 0 in labels and claims
//! 52  4  bytes in the body
//! 56  4  0
//! 60  4  CRC32C of bytes 0 to 59 and the body
//! 64     body; then zeros to the next 4 KiB
//! ```
//!
//! The identification comes first, so that one line of a hex dump shows it; the checksum comes last, so that
//! everything else is contiguous.

use crc_fast::{CrcAlgorithm, Digest};

use crate::{DiskNumber, PoolId};

/// The alignment of every structure, in bytes; padded with zeros.
pub const BLOCK: usize = 4096;

pub(crate) const HEADER: usize = 64;
const MAGIC: [u8; 4] = *b"CWPL";

/// The contents of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// See [`super::Label`].
    Label = 1,
    /// See [`super::Claim`].
    Claim = 2,
    /// A whole [`crate::State`].
    Checkpoint = 3,
    /// Operations on it.
    Record = 4,
}

/// The header's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The kind of the body.
    pub kind: Kind,
    /// The pool it belongs to.
    pub pool: PoolId,
    /// The disk that it is written on.
    pub disk: DiskNumber,
    /// The writer's epoch.
    pub epoch: u64,
    /// The random number drawn with the epoch: it differs between two writers with the same epoch.
    pub incarnation: u64,
    /// Its number in the sequence of its kind.
    pub sequence: u64,
    /// For a record: the chain before it. For a checkpoint: the chain that the next record continues.
    pub chain: u32,
}

/// A frame with a valid checksum.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Its header.
    pub header: Header,
    /// Its body.
    pub body: &'a [u8],
}

/// Why the bytes are no valid frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Never written.
    #[error("the block is empty")]
    Blank,
    /// Other data.
    #[error("the block has other contents")]
    Foreign,
    /// It is damaged: torn by a power cut, or corrupted.
    #[error("its checksum does not match")]
    Damaged,
}

impl Frame<'_> {
    /// Parses the frame of the expected kind at the beginning of `bytes`. Errors: `Damaged` also if the frame is
    /// longer than `bytes`.
    pub fn parse(bytes: &[u8], kind: Kind) -> Result<Frame<'_>, FrameError> {
        let (length, crc) = peek(bytes, kind)?;
        let (header, rest) = bytes.split_at(HEADER);
        let body = rest.get(..length).ok_or(FrameError::Damaged)?;
        if checksum(header, &[body]) != crc {
            return Err(FrameError::Damaged);
        }
        let u64_at = |at: usize| u64::from_le_bytes(array(header, at));
        let header = Header {
            kind,
            pool: PoolId(array(header, 8)),
            disk: DiskNumber(u16::from_le_bytes(array(header, 6))),
            epoch: u64_at(24),
            incarnation: u64_at(32),
            sequence: u64_at(40),
            chain: u32::from_le_bytes(array(header, 48)),
        };
        Ok(Frame { header, body })
    }

    /// The bytes that the frame takes on the disk.
    pub fn size(&self) -> usize {
        size(self.body.len())
    }
}

impl Header {
    /// Encodes a frame: a multiple of [`BLOCK`] bytes.
    ///
    /// # Panics If the body has 4 GiB or more: the caller's limit is far lower.
    pub fn frame(&self, body: &[u8]) -> Vec<u8> {
        let mut out = vec![0; size(body.len())];
        out[..HEADER].copy_from_slice(&self.seal(&[body]));
        out[HEADER..HEADER + body.len()].copy_from_slice(body);
        out
    }

    /// Encodes the header of a frame whose body is these parts.
    ///
    /// # Panics As [`Header::frame`].
    pub(crate) fn seal(&self, body: &[&[u8]]) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[..4].copy_from_slice(&MAGIC);
        out[4] = self.kind as u8;
        out[6..8].copy_from_slice(&self.disk.0.to_le_bytes());
        out[8..24].copy_from_slice(&self.pool.0);
        out[24..32].copy_from_slice(&self.epoch.to_le_bytes());
        out[32..40].copy_from_slice(&self.incarnation.to_le_bytes());
        out[40..48].copy_from_slice(&self.sequence.to_le_bytes());
        out[48..52].copy_from_slice(&self.chain.to_le_bytes());
        let length = body.iter().map(|part| part.len()).sum::<usize>();
        let length = u32::try_from(length).expect("a body is far shorter");
        out[52..56].copy_from_slice(&length.to_le_bytes());
        let crc = checksum(&out, body);
        out[60..64].copy_from_slice(&crc.to_le_bytes());
        out
    }
}

/// Bytes on the disk of a frame with a body of `body` bytes.
pub(crate) fn size(body: usize) -> usize {
    (HEADER + body).next_multiple_of(BLOCK)
}

/// Bytes on the disk of the frame at the beginning of `bytes`, if they look like one; the frame may be damaged.
pub(crate) fn peek_size(bytes: &[u8], kind: Kind) -> Result<usize, FrameError> {
    peek(bytes, kind).map(|(length, _)| size(length))
}

/// Epoch, sequence and incarnation of the frame at the beginning of `bytes`, if they look like one; it may be
/// damaged.
pub(crate) fn peek_age(bytes: &[u8], kind: Kind) -> Result<(u64, u64, u64), FrameError> {
    peek(bytes, kind)?;
    let u64_at = |at: usize| u64::from_le_bytes(array(bytes, at));
    Ok((u64_at(24), u64_at(40), u64_at(32)))
}

fn peek(bytes: &[u8], kind: Kind) -> Result<(usize, u32), FrameError> {
    let header = bytes.get(..HEADER).ok_or(FrameError::Damaged)?;
    if header[..4] != MAGIC {
        return Err(if header.iter().all(|b| *b == 0) { FrameError::Blank } else { FrameError::Foreign });
    }
    if header[4] != kind as u8 {
        return Err(FrameError::Foreign);
    }
    Ok((u32::from_le_bytes(array(header, 52)) as usize, u32::from_le_bytes(array(header, 60))))
}

fn checksum(header: &[u8], body: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&header[..60]);
    body.iter().for_each(|part| digest.update(part));
    digest.finalize() as u32
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("inside the header")
}
