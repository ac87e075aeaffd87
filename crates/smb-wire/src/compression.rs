//! SMB2 COMPRESSION_TRANSFORM_HEADER (MS-SMB2 2.2.42), unchained and chained. This crate does not implement the
//! algorithms.

use crate::WireError;
use crate::context::CompressionAlgorithm;
use crate::cursor::{Field, Reader, fit_u32};
use crate::macros::{open_enum, record};

/// The protocol identifier of a compressed message.
pub const COMPRESSION_PROTOCOL_ID: [u8; 4] = [0xFC, b'S', b'M', b'B'];
/// Maximum number of payloads in one chained message. The specification has no limit and five algorithms.
pub const MAX_COMPRESSED_PAYLOADS: usize = 64;

open_enum! {
    /// Flags of a compressed message.
    pub struct CompressionForm(u16) {
        /// One payload, preceded by an uncompressed part (2.2.42.1).
        NONE = 0,
        /// A chain of payloads (2.2.42.2).
        CHAINED = 1,
    }
}

/// Whether `bytes` start with a compression header.
pub fn is_compressed(bytes: &[u8]) -> bool {
    bytes.starts_with(&COMPRESSION_PROTOCOL_ID)
}

/// A compressed message that borrows its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compressed<'a> {
    /// Unchained (2.2.42.1).
    Unchained {
        /// Decompressed size of the compressed part in bytes.
        original_segment_size: u32,
        /// Algorithm.
        algorithm: CompressionAlgorithm,
        /// The uncompressed part, which precedes the compressed part.
        uncompressed: &'a [u8],
        /// The compressed part.
        compressed: &'a [u8],
    },
    /// Chained (2.2.42.2).
    Chained {
        /// Decompressed size of the whole message in bytes.
        original_segment_size: u32,
        /// The payloads.
        payloads: Payloads<'a>,
    },
}

impl<'a> Compressed<'a> {
    /// Decodes a compressed message. The caller has to limit the sizes to which the message claims to expand.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        const WHAT: &str = "COMPRESSION_TRANSFORM_HEADER";
        let mut r = Reader::new(bytes, WHAT);
        if r.array::<4>()? != COMPRESSION_PROTOCOL_ID {
            return Err(WireError::malformed("COMPRESSION_TRANSFORM_HEADER protocol identifier"));
        }
        let original_segment_size = r.get()?;
        let chain = r.rest();
        let (algorithm, form, offset): (_, CompressionForm, u32) = (r.get()?, r.get()?, r.get()?);
        match form {
            CompressionForm::NONE => {
                let uncompressed = r.take(offset as usize)?;
                Ok(Self::Unchained { original_segment_size, algorithm, uncompressed, compressed: r.rest() })
            }
            CompressionForm::CHAINED => {
                Ok(Self::Chained { original_segment_size, payloads: Payloads { rest: chain, count: 0 } })
            }
            _ => Err(WireError::malformed("COMPRESSION_TRANSFORM_HEADER flags")),
        }
    }

    /// Appends an unchained message to `out`.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn encode_unchained(
        out: &mut Vec<u8>,
        original_segment_size: u32,
        algorithm: CompressionAlgorithm,
        uncompressed: &[u8],
        compressed: &[u8],
    ) -> Result<(), WireError> {
        let offset = fit_u32(uncompressed.len(), "uncompressed part")?;
        COMPRESSION_PROTOCOL_ID.put(out);
        original_segment_size.put(out);
        algorithm.put(out);
        CompressionForm::NONE.put(out);
        offset.put(out);
        out.extend_from_slice(uncompressed);
        out.extend_from_slice(compressed);
        Ok(())
    }

    /// Appends a chained message to `out`.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn encode_chained(
        out: &mut Vec<u8>,
        original_segment_size: u32,
        payloads: &[Payload<'_>],
    ) -> Result<(), WireError> {
        COMPRESSION_PROTOCOL_ID.put(out);
        original_segment_size.put(out);
        for (i, payload) in payloads.iter().enumerate() {
            let sized = payload.has_original_size();
            let len = fit_u32(payload.data.len() + if sized { 4 } else { 0 }, "compressed payload")?;
            payload.algorithm.put(out);
            // MS-SMB2 2.2.42.2.1: the first payload header has the CHAINED flag, the others have no flag.
            (if i == 0 { CompressionForm::CHAINED } else { CompressionForm::NONE }).put(out);
            len.put(out);
            if sized {
                payload.original_size.put(out);
            }
            out.extend_from_slice(payload.data);
        }
        Ok(())
    }
}

/// One payload of a chained message (MS-SMB2 2.2.42.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Payload<'a> {
    /// Algorithm.
    pub algorithm: CompressionAlgorithm,
    /// Decompressed size in bytes, for LZNT1, LZ77, LZ77+Huffman and LZ4; 0 for the others.
    pub original_size: u32,
    /// The compressed bytes; for PATTERN_V1 a [`PatternV1`].
    pub data: &'a [u8],
}

impl Payload<'_> {
    const fn has_original_size(&self) -> bool {
        matches!(
            self.algorithm,
            CompressionAlgorithm::LZNT1
                | CompressionAlgorithm::LZ77
                | CompressionAlgorithm::LZ77_HUFFMAN
                | CompressionAlgorithm::LZ4
        )
    }
}

record! {
    /// SMB2_COMPRESSION_PATTERN_PAYLOAD_V1 (MS-SMB2 2.2.42.2.2).
    pub struct PatternV1 [8] {
        /// The repeated byte.
        pub pattern: u8 => pad 3,
        /// Number of repetitions.
        pub repetitions: u32,
    }
}

/// Iterates over the payloads of a chained message; ends after the first error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payloads<'a> {
    rest: &'a [u8],
    count: usize,
}

impl<'a> Iterator for Payloads<'a> {
    type Item = Result<Payload<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        self.count += 1;
        let mut r = Reader::new(self.rest, "compressed payload");
        self.rest = &[];
        if self.count > MAX_COMPRESSED_PAYLOADS {
            let max = MAX_COMPRESSED_PAYLOADS;
            return Some(Err(WireError::TooLarge { what: "compressed payloads", len: self.count, max }));
        }
        let mut step = || {
            let algorithm = r.get()?;
            r.skip(2)?;
            let len = r.get::<u32>()? as usize;
            let mut payload = Payload { algorithm, original_size: 0, data: &[] };
            let mut own = Reader::new(r.take(len)?, "compressed payload");
            if payload.has_original_size() {
                payload.original_size = own.get()?;
            }
            payload.data = own.rest();
            Ok(payload)
        };
        let item = step();
        if item.is_ok() {
            self.rest = r.rest();
        }
        Some(item)
    }
}
