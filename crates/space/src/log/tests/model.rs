//! Random histories of a log: a replay finds exactly what byte comparison with the written records finds.

use std::collections::VecDeque;

use proptest::collection::vec;
use proptest::prelude::*;

use super::history::{History, Payload, Replica, Written, id};
use super::{Chance, hash};
use crate::log::BLOCK;
use crate::log::header::{Closed, Header};
use crate::log::record::Head;
use crate::log::replay::{Finding, Log, NoHeader, READS_AHEAD, Read, Replay, Replayed};
use crate::log::ring::Point;

/// Reads the replicas in any order of completions.
pub(super) fn replay(replicas: &[Replica], read_blocks: u64, chance: &mut Chance) -> Result<Log, NoHeader> {
    let decoded = |index: usize, header: &Option<Header>| {
        let block = header.as_ref()?.encode(&id(index));
        Header::decode(&block, &id(index)).ok()
    };
    let headers: Vec<_> = replicas
        .iter()
        .enumerate()
        .map(|(index, replica)| Header::newest(replica.headers.each_ref().map(|h| decoded(index, h))))
        .collect();
    let mut replay = Replay::begin(&headers, read_blocks, hash)?;
    let mut outstanding: Vec<VecDeque<Read>> = vec![VecDeque::new(); replicas.len()];
    let mut idle = 0;
    while !replay.is_done() {
        let replica = chance.below(replicas.len() as u64) as usize;
        let queue = &mut outstanding[replica];
        let ends_read = chance.one_in(2);
        if !ends_read && queue.len() < READS_AHEAD as usize {
            queue.extend(replay.wants(replica));
        } else if let Some(Read { ring_block, blocks }) = queue.pop_front() {
            assert!(blocks <= read_blocks);
            let bytes = &replicas[replica].ring[ring_block as usize * BLOCK..][..blocks as usize * BLOCK];
            replay.give(replica, Some(bytes));
            idle = 0;
        }
        idle += 1;
        assert!(idle < 10_000, "a replay that waits for nothing");
    }
    Ok(replay.finish())
}

/// The log that a replay must find, from the written records and the present bytes.
fn expected(history: &History) -> Option<Log> {
    let newest: Vec<Option<&Header>> = history.replicas.iter().map(Replica::newest).collect();
    let age = newest.iter().flatten().map(|h| h.age()).max()?;
    let header = (*newest.iter().flatten().find(|h| h.age() == age).unwrap()).clone();
    let mut findings = Vec::new();
    for (replica, own) in newest.iter().enumerate() {
        match own.map(|own| (own.age(), own.serial)) {
            None => findings.push(Finding::Unusable { replica }),
            Some((has, serial)) if has < age && serial + 1 != header.serial => {
                findings.push(Finding::OlderHeader { replica, has, newest: age })
            }
            Some(_) => {}
        }
    }
    let segment_of = |w: &Written| {
        let at = w.id.position;
        let i = header.segments.iter().rposition(|s| s.first.position <= at)?;
        let segment = &header.segments[i];
        let whole = segment.closed.is_none_or(|closed| at + w.blocks() <= closed.end);
        (segment.epoch == w.id.epoch && whole).then_some(i)
    };
    let limit = header.tail.position + history.ring.blocks();
    let takes_part = |replica: usize, w: &Written| newest[replica].is_some_and(|h| h.joined <= w.id.position);
    let is_there = |replica: &Replica, w: &Written| {
        let from = history.ring.block(w.id.position) as usize * BLOCK;
        replica.ring[from..from + w.bytes.len()] == w.bytes
    };
    let mut found: Vec<(usize, &Written, Vec<usize>)> = Vec::new();
    for w in &history.written {
        let Some(segment) = segment_of(w) else { continue };
        if w.id.position < header.tail.position || w.id.position + w.blocks() > limit {
            continue;
        }
        let asked = (0..newest.len()).filter(|r| takes_part(*r, w));
        let (has, lacks): (Vec<usize>, Vec<usize>) = asked.partition(|r| is_there(&history.replicas[*r], w));
        if !has.is_empty() {
            found.push((segment, w, lacks));
        }
    }
    found.sort_by_key(|(_, w, _)| w.id.position);

    let first = header.open().first;
    let last_segment = header.segments.len() - 1;
    let newest_open = found.iter().rfind(|(segment, ..)| *segment == last_segment);
    let confirmed = newest_open.map_or(first.sequence - 1, |(_, w, _)| w.id.confirmed);
    let (mut after, mut records) = (header.tail, Vec::new());
    let mut lacks = vec![Vec::new(); newest.len()];
    for (segment, w, lacking) in &found {
        let to = Point { position: w.id.position, sequence: w.id.sequence };
        if to.sequence != after.sequence {
            findings.push(Finding::Gap { from: after, to });
        }
        after = Point { position: to.position + w.blocks(), sequence: to.sequence + 1 };
        let closed = header.segments[*segment].closed;
        let is_confirmed = to.sequence <= closed.map_or(confirmed, |c| c.confirmed);
        let successors = match header.segments.get(segment + 1) {
            Some(next) => next.first.sequence - 1,
            None => newest_open.unwrap().1.id.sequence,
        };
        if is_confirmed || to.sequence < successors {
            lacking.iter().for_each(|replica| lacks[*replica].push(to.sequence));
        }
        let key = &header.segments[*segment].key;
        let asked = (0..newest.len()).filter(|r| takes_part(*r, w));
        let replica = asked.into_iter().find(|r| !lacking.contains(r)).unwrap();
        records.push(Replayed {
            head: Head::decode(&w.bytes, key).unwrap(),
            entries: w.entries.clone(),
            replica,
            lacking: lacking.clone(),
            confirmed: is_confirmed,
        });
    }
    if after.sequence < first.sequence {
        findings.push(Finding::Gap { from: after, to: first });
    }
    for (replica, sequences) in lacks.iter().enumerate().filter(|(_, s)| !s.is_empty()) {
        let (records, first, last) = (sequences.len() as u64, sequences[0], *sequences.last().unwrap());
        findings.push(Finding::Lacks { replica, records, first, last });
    }
    let joined = newest.iter().flatten().map(|h| h.joined).max().unwrap();
    let (end, sequence) = (after.position.max(first.position), after.sequence.max(first.sequence));
    let next = Point { position: end.max(joined), sequence };
    let closed = Closed { end, confirmed };
    Some(Log { header, records, findings, closed, next })
}

#[derive(Clone, Debug)]
enum Step {
    Append { payload: Vec<Payload>, annex: usize, unconfirmed: u64 },
    Checkpoint { keep: usize },
    Image { replica: usize },
    Replace { replica: usize },
    Crash(Crash),
}

#[derive(Clone, Debug)]
struct Crash {
    torn: Option<(Vec<Payload>, usize, u64)>,
    /// The number of records that stay, and the replicas (bits) that get the header.
    torn_header: Option<(usize, u64)>,
    /// The replicas (bits) that are rolled back, and by how many images.
    rolled_back: (u64, usize),
    /// Damage to the newest records: to their heads or other blocks, of how many records, on which replicas (bits).
    damage: Option<(bool, usize, u64)>,
    no_header: Option<usize>,
    /// Whether replicas with findings are replaced.
    replace: bool,
}

fn payload() -> impl Strategy<Value = Vec<Payload>> {
    let kind = prop_oneof![
        1 => Just(Payload::Random),
        1 => Just(Payload::Zeros),
        3 => Just(Payload::CopyOfRecord),
        1 => Just(Payload::CopyOfHeader),
        3 => Just(Payload::Forged),
    ];
    vec(kind, 0..4)
}

fn annex() -> impl Strategy<Value = usize> {
    prop_oneof![2 => Just(0_usize), 1 => 3900..4100_usize, 1 => 1..9000_usize]
}

fn crash() -> impl Strategy<Value = Crash> {
    let rolled_back = prop_oneof![3 => Just((0, 0)), 1 => (any::<u64>(), 0..3_usize)];
    (
        prop::option::of((payload(), annex(), 0..5_u64)),
        prop::option::weighted(0.2, (0..4_usize, any::<u64>())),
        rolled_back,
        prop::option::weighted(0.3, (any::<bool>(), 1..4_usize, any::<u64>())),
        prop::option::weighted(0.05, 0..3_usize),
        any::<bool>(),
    )
        .prop_map(|(torn, torn_header, rolled_back, damage, no_header, replace)| Crash {
            torn,
            torn_header,
            rolled_back,
            damage,
            no_header,
            replace,
        })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (payload(), annex(), 0..5_u64)
            .prop_map(|(payload, annex, unconfirmed)| Step::Append { payload, annex, unconfirmed }),
        1 => (0..6_usize).prop_map(|keep| Step::Checkpoint { keep }),
        1 => (0..3_usize).prop_map(|replica| Step::Image { replica }),
        1 => (0..3_usize).prop_map(|replica| Step::Replace { replica }),
        2 => crash().prop_map(Step::Crash),
    ]
}

/// Damages the replicas after the writer stopped. Returns whether a durable write was lost.
fn break_down(history: &mut History, images: &[Vec<Replica>], crash: &Crash) -> bool {
    let mut broken = false;
    if let Some((keep, on)) = crash.torn_header {
        history.torn_checkpoint(keep, on);
    }
    if let Some((payload, annex, unconfirmed)) = &crash.torn {
        history.torn_append(payload, *annex, *unconfirmed);
    }
    for (replica, images) in images.iter().enumerate() {
        let ago = crash.rolled_back.1.min(images.len().saturating_sub(1));
        if crash.rolled_back.0 & 1 << replica != 0 && !images.is_empty() {
            history.replicas[replica] = images[images.len() - 1 - ago].clone();
            broken = true;
        }
    }
    if let Some((heads, records, on)) = crash.damage {
        let from = history.written.len().saturating_sub(records);
        let newest: Vec<Written> = history.written[from..].to_vec();
        for w in newest {
            let block = if heads { 0 } else { history.chance.below(w.blocks()) };
            for replica in (0..history.replicas.len()).filter(|r| on & 1 << r != 0) {
                let byte = history.chance.next() as u8;
                let block = history.ring.block(w.id.position + block);
                history.replicas[replica].at(block).fill(byte);
                broken = true;
            }
        }
    }
    if let Some(replica) = crash.no_header.filter(|r| *r < history.replicas.len()) {
        history.replicas[replica].headers = [None, None];
        broken = true;
    }
    broken
}

/// Checks the log against the writer's history alone: unless a replica lost a durable write, every record that was
/// durable on all of them is found, and every confirmed one is found as confirmed.
fn kept(history: &History, log: &Log, torn: bool) {
    let open = log.header.open();
    let ours = |w: &&Written| w.id.epoch == open.epoch && w.id.position >= log.header.tail.position;
    let written: Vec<&Written> = history.written.iter().filter(ours).collect();
    let durable = &written[..written.len() - usize::from(torn && !written.is_empty())];
    let known = durable.last().map_or(0, |w| w.id.confirmed);
    for w in durable {
        let found = log.records.iter().find(|r| r.head.id == w.id).expect("a durable record is found");
        assert_eq!(found.entries, w.entries);
        assert!(found.confirmed || w.id.sequence > known, "a confirmed record is called confirmed");
        assert!(found.lacking.is_empty(), "every replica has it");
    }
}

fn run(seed: u64, blocks: u64, replicas: usize, read_blocks: u64, steps: &[Step]) {
    let mut history = History::new(seed, blocks, replicas);
    let mut images: Vec<Vec<Replica>> = vec![Vec::new(); replicas];
    let mut broken = false;
    for step in steps {
        match step {
            Step::Append { payload, annex, unconfirmed } => history.append(payload, *annex, *unconfirmed),
            Step::Checkpoint { keep } => history.checkpoint(*keep),
            Step::Image { replica } if *replica < replicas => {
                images[*replica].push(history.replicas[*replica].clone());
            }
            // The last replica with all records is not replaced before a checkpoint has passed it.
            Step::Replace { replica } if *replica < replicas => {
                if replicas == 1 {
                    history.checkpoint(0);
                }
                history.replace(*replica);
                broken = true;
            }
            Step::Image { .. } | Step::Replace { .. } => {}
            Step::Crash(crash) => {
                broken |= break_down(&mut history, &images, crash);
                let mut chance = Chance(history.chance.next());
                let log = replay(&history.replicas, read_blocks, &mut chance);
                let Some(expected) = expected(&history) else {
                    assert_eq!(log, Err(NoHeader));
                    return;
                };
                let log = log.unwrap();
                let summary = |log: &Log| {
                    let records: Vec<_> = log.records.iter().map(|r| (r.head.id, r.confirmed)).collect();
                    (records, log.findings.clone(), log.closed, log.next)
                };
                assert_eq!(summary(&log), summary(&expected), "{:?}", expected.header);
                assert!(log == expected, "entries or replicas of records");
                if !broken {
                    kept(&history, &log, crash.torn.is_some());
                }
                let skip = if history.chance.one_in(4) { history.chance.below(4) } else { 0 };
                history.recover(&log, skip);
                broken = false;
                for replica in 0..replicas {
                    let named = |f: &Finding| match f {
                        Finding::Unusable { replica: r } => *r == replica,
                        Finding::OlderHeader { replica: r, .. } => *r == replica,
                        Finding::Lacks { replica: r, .. } => *r == replica,
                        Finding::Gap { .. } => false,
                    };
                    if crash.replace && log.findings.iter().any(named) {
                        history.replace(replica);
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn a_replay_finds_exactly_what_is_there(
        seed in any::<u64>(),
        blocks in 14..60_u64,
        replicas in 1..=3_usize,
        read_blocks in 1..20_u64,
        steps in vec(step(), 1..60),
    ) {
        let last = Step::Crash(Crash {
            torn: None, torn_header: None, rolled_back: (0, 0), damage: None, no_header: None, replace: false,
        });
        run(seed, blocks, replicas, read_blocks, &[&steps[..], &[last]].concat());
    }
}
