//! What `pool` takes from disks.

use ::pool::format::{
    Claim, Frame, Kind, Label, decode_record, decode_state, encode_state, state_size_bound,
};

/// Every structure from the same bytes: as blocks, whose checksums rarely match, and as bodies, which they would vouch for.
pub fn formats(bytes: &[u8]) {
    if let Ok(label) = Label::decode(bytes) {
        assert!(label.areas.is_sound());
    }
    let _ = Claim::decode(bytes);
    for kind in [Kind::Checkpoint, Kind::Record] {
        if let Ok(frame) = Frame::parse(bytes, kind) {
            assert!(frame.body.len() < bytes.len());
        }
    }
    let ops = decode_record(bytes);
    if let Ok(mut state) = decode_state(bytes) {
        let again = encode_state(&state);
        assert_eq!(again, bytes, "one form for one value");
        assert!(again.len() <= state_size_bound(&state));
        for op in ops.iter().flatten() {
            let _ = state.apply(op);
        }
    }
    // A label's body behind a header that vouches for it.
    let header = ::pool::format::Header {
        kind: Kind::Label,
        pool: ::pool::PoolId([1; 16]),
        disk: ::pool::DiskNumber(1),
        epoch: 1,
        incarnation: 1,
        sequence: 1,
        chain: 0,
    };
    if let Ok(label) = Label::decode(&header.frame(bytes)) {
        assert!(label.areas.is_sound());
    }
}
