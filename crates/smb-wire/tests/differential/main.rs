//! Compares this codec with that of the `smb2` crate, an independent client: each decodes the other's bytes, and
//! both decode the same value.
//!
//! Not compared, because `smb2` does not support them: channel information with payload, leases, separate lock
//! responses, the newer directory classes, RPC responses.

mod contexts;
mod files;
mod info;
mod rpc;
mod session;

use smb_wire::{Decode, Encode, FileId, HEADER_LEN, Header, MessageBuilder};
use smb2::pack::{Pack, ReadCursor, Unpack, WriteCursor};

/// Encodes this crate's value for the other to decode, and the other's for this crate.
fn agree<'a, O, T>(ours: &O, theirs: &T, bytes: &'a mut Vec<u8>)
where
    O: Decode<'a> + Encode + PartialEq + std::fmt::Debug,
    T: Pack + Unpack + PartialEq + std::fmt::Debug,
{
    they_read(ours, theirs);

    // Some types of `smb2` count offsets from the cursor's start, so the header precedes them too.
    let mut cursor = WriteCursor::new();
    cursor.write_bytes(&[0; HEADER_LEN]);
    theirs.pack(&mut cursor);
    *bytes = cursor.into_inner();
    assert_eq!(&O::decode(bytes).unwrap(), ours);
}

/// Encodes this crate's value for the other to decode.
fn they_read<T: Unpack + PartialEq + std::fmt::Debug>(ours: &impl Encode, theirs: &T) {
    let mut message = Vec::new();
    MessageBuilder::new(&mut message).push(&Header::default(), ours).unwrap();
    assert_eq!(&T::unpack(&mut ReadCursor::new(&message[HEADER_LEN..])).unwrap(), theirs);
}

fn packed(theirs: &impl Pack) -> Vec<u8> {
    let mut cursor = WriteCursor::new();
    theirs.pack(&mut cursor);
    cursor.into_inner()
}

fn file_id((persistent, volatile): (u64, u64)) -> (FileId, smb2::types::FileId) {
    (FileId { persistent, volatile }, smb2::types::FileId { persistent, volatile })
}

fn guid(bytes: [u8; 16]) -> (smb_wire::Guid, smb2::pack::Guid) {
    (smb_wire::Guid(bytes), smb2::pack::Guid::unpack(&mut ReadCursor::new(&bytes)).unwrap())
}
