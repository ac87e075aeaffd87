//! Our codec against the one of the `smb2` crate, written by others for a client: what one writes the other reads,
//! and both take it for the same.
//!
//! Not compared, because `smb2` has it not: channel information with payload, leases, lock responses of its own, the
//! newer directory classes, RPC answers.

mod contexts;
mod files;
mod info;
mod rpc;
mod session;

use smb_wire::{Decode, Encode, FileId, HEADER_LEN, Header, MessageBuilder};
use smb2::pack::{Pack, ReadCursor, Unpack, WriteCursor};

/// Encodes ours for theirs to decode, and theirs for ours.
fn agree<'a, O, T>(ours: &O, theirs: &T, bytes: &'a mut Vec<u8>)
where
    O: Decode<'a> + Encode + PartialEq + std::fmt::Debug,
    T: Pack + Unpack + PartialEq + std::fmt::Debug,
{
    they_read(ours, theirs);

    // Some of theirs count offsets from the cursor's start, so the header is in front of them too.
    let mut cursor = WriteCursor::new();
    cursor.write_bytes(&[0; HEADER_LEN]);
    theirs.pack(&mut cursor);
    *bytes = cursor.into_inner();
    assert_eq!(&O::decode(bytes).unwrap(), ours);
}

/// Encodes ours for theirs to decode.
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
