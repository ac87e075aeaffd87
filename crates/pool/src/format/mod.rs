//! Encoding and decoding of values: `docs/on-disk-format.md` has the byte maps.
//!
//! Every structure is a [`frame`]: the same 64-byte header with one checksum, then a body in the codec of `codec`.
//! Bytes from a disk never panic and never allocate more than their length: every counted element needs bytes that must
//! exist.

mod areas;
mod claim;
pub(crate) mod codec;
mod frame;
mod label;
mod records;
mod spaces;
#[cfg(test)]
pub(crate) mod tests;

pub use areas::{Areas, Extent};
pub use claim::{Claim, Claimant};
pub use codec::Malformed;
pub use frame::{BLOCK, Frame, FrameError, Header, Kind};
pub(crate) use frame::{HEADER, peek_age, peek_size as frame_size, size as framed};
pub use label::{Feature, FeatureClass, Label, LabelError};
pub use records::{EPOCHS_BYTES, decode_record, decode_state, encode_record, encode_state, state_size_bound};
