//! What `space` takes from disks.

use ::pool_seam::{PoolId, SpaceId};
use ::space::log::BLOCK;
use ::space::log::entry::{self, Entry};
use ::space::log::header::{Header, Key, ReplicaId, Segment};
use ::space::log::record::{self, Head, RecordId};
use ::space::log::replay::Replay;
use ::space::log::ring::{Point, Ring};

const KEY: Key = Key(*b"key of sixteen b");
const BLOCKS: u64 = 16;

/// The same bytes as a header, as the body of a record, and as changes of a ring with records.
pub fn log(bytes: &[u8]) {
    let id = ReplicaId { pool: PoolId([1; 16]), space: SpaceId(1), allocation: 1 };
    if let Ok(header) = Header::decode(bytes, &id) {
        assert_eq!(header.encode(&id), bytes, "one form for one value");
    }
    if let Ok(head) = Head::decode(bytes, &KEY) {
        let _ = head.entries(bytes);
    }
    if let Ok(entries) = entry::decode(bytes) {
        let mut again = Vec::new();
        entry::encode(&entries, &mut again);
        assert_eq!(again, bytes, "one form for one value");
        assert_eq!(entries.iter().map(Entry::bytes).sum::<usize>(), bytes.len());
    }
    replay(bytes);
}

/// Two replicas with records of one block at positions that the bytes choose, and blocks that they change.
fn replay(bytes: &[u8]) {
    let mut rings = [vec![0; BLOCKS as usize * BLOCK], vec![0; BLOCKS as usize * BLOCK]];
    let first = Point { position: 5, sequence: 1 };
    let mut end = first;
    for choice in bytes.chunks(3) {
        let position = end.position + u64::from(choice[0] % 3);
        if position >= first.position + BLOCKS {
            break;
        }
        let sequence = end.sequence + u64::from(choice[0] / 3 % 2);
        let record_id = RecordId { epoch: 1, sequence, position, confirmed: sequence - 1 };
        let mut head = record::encode(&record_id, &KEY, &[]);
        if let Some(&[at, byte]) = choice.get(1..3) {
            head[usize::from(at)] ^= byte;
        }
        let block = (position % BLOCKS) as usize * BLOCK;
        for (replica, ring) in rings.iter_mut().enumerate() {
            if choice[0] >> (6 + replica) & 1 == 0 {
                ring[block..block + BLOCK].copy_from_slice(&head);
            }
        }
        end = Point { position: position + 1, sequence: sequence + 1 };
    }
    let segment = Segment { epoch: 1, log: 1, key: KEY, first, closed: None };
    let ring = Ring::new(BLOCKS).expect("a ring has blocks");
    let header = Header { serial: 1, ring, tail: first, joined: 0, segments: vec![segment] };
    let headers = [Some(header.clone()), Some(header)];
    let mut replay = Replay::begin(&headers, 4, |_| 0).expect("there are headers");
    while !replay.is_done() {
        for (replica, bytes) in rings.iter().enumerate() {
            while let Some(read) = replay.wants(replica) {
                let from = read.ring_block as usize * BLOCK;
                replay.give(replica, Some(&bytes[from..from + read.blocks as usize * BLOCK]));
            }
        }
    }
    let log = replay.finish();
    assert!(log.records.is_sorted_by(|a, b| {
        a.head.id.position + a.head.blocks() <= b.head.id.position && a.head.id.sequence < b.head.id.sequence
    }));
    assert!((first.position..=first.position + BLOCKS).contains(&log.closed.end));
}
