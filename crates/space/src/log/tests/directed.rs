//! One history for each rule of a replay.

use pool_seam::RowNumber;

use super::history::{History, Payload, Replica};
use super::model::replay;
use super::{Chance, hash};
use crate::log::BLOCK;
use crate::log::entry::{Change, FirstStripe, RedoStripe, Stripe, UnitPlace};
use crate::log::header::{Header, Key, Segment};
use crate::log::record::{self, RecordId};
use crate::log::replay::{Finding, Log, NoHeader, READ_BLOCKS, READS_AHEAD, Replay};
use crate::log::ring::{Point, Ring};

fn read(history: &History) -> Log {
    replay(&history.replicas, 5, &mut Chance(1)).unwrap()
}

fn sequences(history: &History, log: &Log) -> Vec<u64> {
    let first = history.written[0].id.sequence;
    log.records.iter().map(|r| r.head.id.sequence - first).collect()
}

/// Destroys the first block of a record on these replicas.
fn behead(history: &mut History, record: usize, replicas: &[usize]) {
    let block = history.ring.block(history.written[record].id.position);
    for replica in replicas {
        history.replicas[*replica].at(block).fill(0xee);
    }
}

/// Two replicas, a ring of 64 blocks and records 0 to `n - 1` of two blocks, each confirmed by the next.
fn history(n: usize) -> History {
    let mut history = History::new(7, 64, 2);
    for _ in 0..n {
        history.append(&[Payload::Random], 0, 0);
    }
    history
}

#[test]
fn the_newest_record_is_unconfirmed() {
    let history = history(3);
    let log = read(&history);
    assert_eq!(sequences(&history, &log), [0, 1, 2]);
    assert_eq!(log.records.iter().map(|r| r.confirmed).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!((log.next, log.closed.confirmed), (history.end, history.confirmed));
    assert_eq!(log.findings, []);
}

/// Step 2: each record is taken from a replica that has it; the other replica has lost a write.
#[test]
fn the_union_of_the_replicas() {
    let mut history = history(4);
    behead(&mut history, 0, &[0]);
    behead(&mut history, 1, &[1]);
    behead(&mut history, 3, &[0]);
    let log = read(&history);
    assert_eq!(sequences(&history, &log), [0, 1, 2, 3]);
    assert_eq!(log.records.iter().map(|r| r.replica).collect::<Vec<_>>(), [1, 0, 0, 1]);
    let first = history.written[0].id.sequence;
    let lacks = |replica, at| Finding::Lacks { replica, records: 1, first: first + at, last: first + at };
    assert_eq!(
        log.findings,
        [lacks(0, 0), lacks(1, 1)],
        "record 3 may be torn: it is neither confirmed nor followed"
    );
    assert_eq!(log.records[3].lacking, [0]);
}

/// Step 3: a record after a gap proves that a durable one was lost.
#[test]
fn the_search_after_a_gap() {
    let mut history = history(5);
    behead(&mut history, 1, &[0, 1]);
    behead(&mut history, 2, &[0, 1]);
    let log = read(&history);
    assert_eq!(sequences(&history, &log), [0, 3, 4]);
    let at = |record: usize| {
        let id = &history.written[record].id;
        Point { position: id.position, sequence: id.sequence }
    };
    assert_eq!(log.findings, [Finding::Gap { from: at(1), to: at(3) }]);
    assert_eq!(log.next, history.end);
}

/// A record lost at the end of a closed segment: the header shows that there was one.
#[test]
fn a_gap_at_the_end_of_a_closed_segment() {
    let mut history = history(3);
    let log = read(&history);
    history.recover(&log, 0);
    behead(&mut history, 2, &[0, 1]);
    let log = read(&history);
    let lost = history.written[2].id;
    let from = Point { position: lost.position, sequence: lost.sequence };
    assert_eq!((log.findings, log.next), (vec![Finding::Gap { from, to: history.end }], history.end));
}

/// A head is valid only at its own position: a copy of it in payload, with the key and an expected sequence, is no
/// record.
#[test]
fn payload_that_copies_the_log() {
    for seed in 0..20 {
        let mut history = History::new(seed, 64, 2);
        history.append(&[], 0, 0);
        let first = history.end;
        history.append(&[Payload::CopyOfRecord, Payload::CopyOfHeader, Payload::CopyOfRecord], 0, 0);
        behead(&mut history, 0, &[0, 1]);
        behead(&mut history, 1, &[0, 1]);
        let log = read(&history);
        assert_eq!((log.records, log.findings), (vec![], vec![]));
        assert!(log.next.position < first.position, "the end is before everything that was lost");
    }
}

/// A torn record's payload that imitates a head at its own position, made with an older key or a guessed one.
#[test]
fn payload_that_imitates_the_log() {
    for seed in 0..20 {
        let mut history = History::new(seed, 64, 1);
        let log = read(&history);
        history.recover(&log, 0);
        history.append(&[], 0, 0);
        let end = history.end;
        history.append(&[Payload::Forged; 4], 0, 0);
        behead(&mut history, 1, &[0]);
        let log = read(&history);
        assert_eq!((log.records.len(), log.next), (1, end));
        assert_eq!(log.findings, []);
    }
}

/// A head with the right key and position, but of another epoch or with an earlier sequence, is no record.
#[test]
fn a_record_of_another_epoch_or_sequence() {
    for (epochs, records, is_found) in [(0, 0, true), (1, 0, false), (0, 1, false)] {
        let mut history = history(2);
        let last = history.written.pop().unwrap();
        let (epoch, sequence) = (last.id.epoch - epochs, last.id.sequence - records);
        let id = RecordId { epoch, sequence, confirmed: 0, ..last.id };
        let head = record::encode(&id, &history.segments[0].key, &last.entries);
        for replica in &mut history.replicas {
            replica.at(history.ring.block(last.id.position)).copy_from_slice(&head);
        }
        let log = read(&history);
        assert_eq!((log.records.len(), &log.findings[..]), (1 + usize::from(is_found), &[][..]));
    }
}

/// A segment ends at the position in its header: a record that the next owner did not find is not replayed later.
#[test]
fn a_record_after_the_end_of_its_segment() {
    let mut history = history(3);
    let image: Vec<_> = history.replicas.iter().map(|r| r.ring.clone()).collect();
    behead(&mut history, 2, &[0, 1]);
    let log = read(&history);
    history.recover(&log, 4);
    for (replica, ring) in history.replicas.iter_mut().zip(image) {
        replica.ring = ring;
    }
    let log = read(&history);
    assert_eq!(sequences(&history, &log), [0, 1]);
    assert_eq!((log.next, log.findings), (history.end, vec![]));
    history.append(&[], 0, 0);
    let log = read(&history);
    assert_eq!((log.records.len(), log.next, log.findings), (3, history.end, vec![]));
}

/// The head from one replica and the body from another are not accepted as a record.
#[test]
fn parts_of_two_replicas() {
    let mut history = history(1);
    history.append(&[], 9000, 0);
    let block = history.ring.block(history.written[1].id.position);
    history.replicas[0].at(block + 1).fill(0);
    history.replicas[1].at(block)[..56].fill(0);
    assert_eq!(read(&history).records.len(), 1);
}

/// Records with a valid checksum that would exceed the ring's end or overlap the tail: a replay does not accept them
/// and does not wait for more than the ring has.
#[test]
fn a_record_longer_than_its_place() {
    for (tail, position, is_found) in [(14, 14, false), (20, 32, false), (21, 32, true)] {
        let place = |content| UnitPlace { row: RowNumber(1), birth: 2, content, unit: 3 };
        let sums = (0..4).map(|c| crc_fast::crc32_iscsi(&[0; BLOCK]) ^ hash(&place(c))).collect();
        let stripe = Stripe { written: 1, known: 0b1111, sums };
        let first = FirstStripe { row: RowNumber(1), birth: 2, unit: 3 };
        let redo = Change::Redo { first, stripes: vec![RedoStripe { stripe, payload: 0b1111 }] };
        let (key, ring) = (Key([5; 16]), Ring::new(16).unwrap());
        let id = RecordId { epoch: 1, sequence: 1, position, confirmed: 0 };
        let tail = Point { position: tail, sequence: 1 };
        let segments = vec![Segment { epoch: 1, log: 1, key, first: tail, closed: None }];
        let header = Header { serial: 1, ring, tail, joined: 0, segments };
        let mut replica = Replica { headers: [None, Some(header)], ring: vec![0; 16 * BLOCK] };
        replica.at(ring.block(position)).copy_from_slice(&record::encode(&id, &key, &[redo.into()]));
        let log = replay(&[replica], 4, &mut Chance(1)).unwrap();
        assert_eq!(log.records.len(), usize::from(is_found), "tail {tail:?}");
    }
}

/// A record that does not fit before the ring's end begins at block 0: no gap.
#[test]
fn a_skipped_end_of_the_ring() {
    let mut history = History::new(3, 16, 1);
    for _ in 0..40 {
        history.append(&[Payload::Random; 4], 0, 0);
        let log = read(&history);
        assert_eq!((log.next, log.findings), (history.end, vec![]));
        history.checkpoint(1);
    }
    assert!(history.written.windows(2).any(|w| w[0].id.position + 5 < w[1].id.position), "one was skipped");
}

/// No record before `joined` is taken from a replica, whatever its ring contains, and none is reported as missing.
#[test]
fn a_replica_that_joined() {
    let mut history = history(3);
    history.replace(1);
    history.append(&[], 0, 0);
    behead(&mut history, 1, &[0]);
    let log = read(&history);
    assert_eq!(sequences(&history, &log), [0, 2, 3]);
    assert!(matches!(log.findings[..], [Finding::Gap { .. }]), "{:?}", log.findings);
}

/// Rule 13: records that a segment left unconfirmed stay unconfirmed, although a later owner confirms higher sequences.
#[test]
fn unconfirmed_in_a_closed_segment() {
    let mut history = history(3);
    let log = read(&history);
    history.recover(&log, 0);
    history.append(&[], 0, 0);
    history.append(&[], 0, 0);
    let log = read(&history);
    let confirmed: Vec<_> = log.records.iter().map(|r| r.confirmed).collect();
    assert_eq!(confirmed, [true, true, false, true, false]);
    assert_eq!(log.findings, []);
}

/// Step 1: a replica with an older header, and one without a header.
#[test]
fn headers_that_were_lost() {
    let mut history = history(2);
    history.torn_checkpoint(1, 0b01);
    let log = read(&history);
    assert_eq!(log.findings, [], "one serial behind: the writer was cut between two replicas");
    assert_eq!(sequences(&history, &log), [1], "the tail of the newest header counts");
    history.torn_checkpoint(1, 0b01);
    let log = read(&history);
    let newest = history.replicas[0].newest().unwrap().age();
    let has = (newest.0, newest.1 - 2);
    assert_eq!(log.findings, [Finding::OlderHeader { replica: 1, has, newest }]);
    history.replicas[0].headers = [None, None];
    let log = read(&history);
    assert_eq!(log.findings, [Finding::Unusable { replica: 0 }]);
    assert_eq!(sequences(&history, &log), [0, 1]);
    history.replicas[1].headers = [None, None];
    assert_eq!(replay(&history.replicas, 5, &mut Chance(1)), Err(NoHeader));
}

/// Step 5: a rolled-back log is detected.
#[test]
fn a_log_that_was_rolled_back() {
    let history = history(3);
    let log = read(&history);
    let (epoch, last) = (log.header.open().epoch, history.end.sequence - 1);
    assert!(!log.is_rolled_back((epoch, last), last));
    assert!(
        !log.is_rolled_back((epoch - 1, last + 9), 0),
        "of an earlier owner, who wrote more than was durable"
    );
    assert!(log.is_rolled_back((epoch, last + 1), 0));
    assert!(log.is_rolled_back((epoch + 1, 0), 0));
    assert!(log.is_rolled_back((epoch, last), last + 1));
}

/// A ring of full size: each block is read once, in reads of 1 MiB, and no replica runs ahead of the others.
#[test]
fn reads_are_bounded() {
    let mut history = History::new(5, 16_384, 2);
    history.append(&[Payload::Random; 4], 60_000, 0);
    history.append(&[Payload::Random], 0, 0);
    let headers: Vec<_> = history.replicas.iter().map(|r| r.newest().cloned()).collect();
    let mut replay = Replay::begin(&headers, READ_BLOCKS, hash).unwrap();
    let ahead: u64 = std::iter::from_fn(|| replay.wants(0)).map(|read| read.blocks).sum();
    assert!(ahead <= READS_AHEAD * READ_BLOCKS, "nothing is examined before replica 1 was read");
    let mut replay = Replay::begin(&headers, READ_BLOCKS, hash).unwrap();
    let mut seen = vec![false; 16_384];
    while !replay.is_done() {
        // Replica 0 cannot be read at all.
        while replay.wants(0).is_some() {
            replay.give(0, None);
        }
        while let Some(read) = replay.wants(1) {
            assert!(read.blocks <= READ_BLOCKS && read.ring_block + read.blocks <= 16_384);
            for block in read.ring_block..read.ring_block + read.blocks {
                assert!(!std::mem::replace(&mut seen[block as usize], true), "block {block} is read again");
            }
            let from = read.ring_block as usize * BLOCK;
            replay.give(1, Some(&history.replicas[1].ring[from..from + read.blocks as usize * BLOCK]));
        }
    }
    assert!(seen.iter().all(|seen| *seen));
    let log = replay.finish();
    assert_eq!(sequences(&history, &log), [0, 1]);
    assert!(
        matches!(log.findings[..], [Finding::Lacks { replica: 0, records: 1, .. }]),
        "{:?}",
        log.findings
    );
}
