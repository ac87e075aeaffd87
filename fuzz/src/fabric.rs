//! What `rdma` and `smb-direct` take from peers.

use std::sync::OnceLock;

use arena::Arena;
use rdma::iwarp::{ddp, fuzzing, mpa, rdmap, terminate};

/// Every parser on the same bytes.
pub fn parsers(bytes: &[u8]) {
    fuzzing::frame(bytes);
    if let Some((fixed, tail)) = bytes.split_first_chunk::<{ mpa::FRAME_LEN }>() {
        for kind in [mpa::Kind::Request, mpa::Kind::Reply] {
            let _ = mpa::Frame::parse(kind, fixed, tail);
        }
    }
    if let Ok(Some((_, used))) = ddp::Header::parse(bytes) {
        assert!(used <= bytes.len());
    }
    let _ = rdmap::ReadRequest::parse(bytes);
    let _ = terminate::parse(bytes);
}

/// The first byte says whether there are checksums.
pub fn rdma_connection(bytes: &[u8]) {
    static ARENA: OnceLock<Arena> = OnceLock::new();
    let arena = ARENA.get_or_init(|| Arena::new(4 << 20).expect("a mapping"));
    let Some((crc, stream)) = bytes.split_first() else { return };
    fuzzing::connection(crc % 2 == 1, arena, stream);
    assert_eq!(arena.usage().used, 0);
}

/// See [`smb_direct::fuzzing::connection`].
pub fn smb_direct_connection(bytes: &[u8]) {
    smb_direct::fuzzing::connection(bytes);
}
