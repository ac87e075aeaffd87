//! One slot: its disk, cache and rules, and the effect of a call. No time passes here.
//!
//! Invariants:
//! 1. a call of another life than the slot's has no effect;
//! 2. a write that was started and has not taken effect is in `in_flight`, and a power cut treats it like an
//!    unflushed one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arena::SgMut;

use super::crash_point::DiskState;
use super::rules::ActiveRule;
use super::{Counts, Fault, Injected, Rule, SlotId, State};
use crate::random::Random;
use crate::store::{Change, Content, Store, read_image};
use crate::{DiskError, DiskInfo, Image, IoRange, Op, PowerCut, WriteCache};

#[derive(Clone)]
pub(super) struct Slot {
    pub(super) info: DiskInfo,
    pub(super) store: Store,
    pub(super) mark: Image,
    pub(super) present: bool,
    /// Incremented whenever the disk loses power.
    pub(super) power_cycle: u64,
    pub(super) shuffle: Option<Duration>,
    pub(super) bad: BTreeSet<u64>,
    pub(super) in_flight: BTreeMap<u64, Arc<Change>>,
    pub(super) next: u64,
    pub(super) rules: Vec<ActiveRule>,
    pub(super) rules_added: u64,
    pub(super) delays: Random,
    pub(super) counts: Counts,
    pub(super) number: usize,
}

/// A call, with the disk and the power cycle of the disk that it belongs to.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) slot: SlotId,
    pub(super) power_cycle: u64,
    pub(super) at: IoRange,
}

impl Slot {
    pub(super) fn new(info: DiskInfo, image: Image, seed: u64, slot: usize) -> Slot {
        Slot {
            info,
            store: Store::new(image),
            mark: Image::new(),
            present: true,
            power_cycle: 0,
            shuffle: None,
            bad: BTreeSet::new(),
            in_flight: BTreeMap::new(),
            next: 0,
            rules: Vec::new(),
            rules_added: 0,
            delays: Random::stream(seed, (slot as u64) << 32),
            counts: Counts::default(),
            number: slot,
        }
    }

    pub(super) fn add_rule(&mut self, rule: Rule, seed: u64) {
        self.rules_added += 1;
        let name = (self.number as u64) << 32 | self.rules_added;
        self.rules.push(ActiveRule::new(rule, Random::stream(seed, name)));
    }

    pub(super) fn clear_rules(&mut self) {
        self.rules.clear();
    }

    pub(super) fn power_off(&mut self, cut: PowerCut) {
        self.power_cycle += 1;
        let in_flight: Vec<_> = std::mem::take(&mut self.in_flight).into_values().collect();
        self.store = Store::new(self.store.cut(&self.info.geometry, &in_flight, cut));
    }

    pub(super) fn overwrite(&mut self, change: Change) {
        self.store.apply(Arc::new(change), true);
    }

    pub(super) fn make_bad(&mut self, offset: u64, length: u64) {
        let block = u64::from(self.info.geometry.physical_block);
        self.bad.extend((offset / block..(offset + length).div_ceil(block)).map(|b| b * block));
    }

    pub(super) fn snapshot(&self) -> DiskState {
        DiskState {
            info: self.info.clone(),
            store: self.store.clone(),
            in_flight: self.in_flight.values().cloned().collect(),
            bad: self.bad.clone(),
            present: self.present,
        }
    }

    /// Evaluates every rule, so that each counts all of its calls; the first that fires determines the fault.
    fn fault(&mut self, at: IoRange, slow: bool) -> Option<(Fault, &mut Random)> {
        let rules = self.rules.iter_mut().filter(|r| r.is_slow() == slow);
        rules.fold(None, |first, rule| {
            let fires = rule.fires(at);
            first.or(fires)
        })
    }

    fn first_bad(&self, at: IoRange) -> Option<u64> {
        let block = u64::from(self.info.geometry.physical_block);
        self.bad.range(at.offset / block * block..at.offset + at.length).next().copied()
    }

    fn another_offset(&self, at: IoRange, random: &mut Random) -> u64 {
        let g = &self.info.geometry;
        let unit = u64::from(g.atomic_write);
        random.below((g.size - at.length) / unit + 1) * unit
    }
}

impl State {
    /// The slot of a call, if the disk is still the one that the call was made for.
    pub(super) fn alive(&mut self, call: &Call) -> Result<&mut Slot, DiskError> {
        let slot = &mut self.slots[call.slot.0];
        if !self.on || !slot.present || slot.power_cycle != call.power_cycle {
            return Err(DiskError::Gone { at: call.at });
        }
        Ok(slot)
    }

    /// Starts a call. Returns its delay, if any, and the mark for a flush.
    pub(super) fn begin(&mut self, call: &Call) -> Result<(Option<Duration>, u64), DiskError> {
        let slot = self.alive(call)?;
        slot.counts.add(call.at);
        let mark = slot.store.mark();
        let mut delay = slot
            .shuffle
            .map(|longest| Duration::from_millis(slot.delays.below(longest.as_millis() as u64 + 1)));
        if let Some((fault @ Fault::Slow(by), _)) = slot.fault(call.at, true) {
            delay = Some(delay.unwrap_or_default() + by);
            self.note(call, fault);
        }
        Ok((delay, mark))
    }

    /// Registers a delayed change as outstanding.
    pub(super) fn add_in_flight(&mut self, call: &Call, change: &Arc<Change>) -> u64 {
        let slot = &mut self.slots[call.slot.0];
        slot.next += 1;
        slot.in_flight.insert(slot.next, Arc::clone(change));
        slot.next
    }

    pub(super) fn read(&mut self, call: &Call, dst: &mut SgMut) -> Result<(), DiskError> {
        let (fault, mut random) = self.draw(call)?;
        let slot = self.alive(call)?;
        if let Some(bad) = slot.first_bad(call.at) {
            let length = u64::from(slot.info.geometry.physical_block);
            return Err(DiskError::Medium { at: IoRange::new(Op::Read, bad, length) });
        }
        match fault {
            Some(Fault::Stale) => read_image(&slot.mark, call.at.offset, dst),
            Some(Fault::Misdirected) => {
                let from = slot.another_offset(call.at, &mut random);
                slot.store.read(from, dst);
            }
            _ => slot.store.read(call.at.offset, dst),
        }
        if fault == Some(Fault::Flipped) {
            let mut at = random.below(call.at.length.max(1)) as usize;
            for b in dst {
                if at < b.len() {
                    b.filled_mut()[at] ^= 1 << random.below(8);
                    break;
                }
                at -= b.len();
            }
        }
        Ok(())
    }

    /// A write or discard takes effect; `in_flight` is its number if it was delayed.
    pub(super) fn change(
        &mut self,
        call: &Call,
        in_flight: Option<u64>,
        change: &Arc<Change>,
        through: bool,
    ) -> Result<(), DiskError> {
        self.alive(call)?;
        // With or without a delay it is outstanding at the time of a cut.
        let number = in_flight.unwrap_or_else(|| self.add_in_flight(call, change));
        let drawn = if self.event() { self.draw(call) } else { Err(DiskError::Gone { at: call.at }) };
        self.slots[call.slot.0].in_flight.remove(&number);
        let (fault, mut random) = match drawn {
            // A failed write leaves each atomic unit old or new.
            Err(e @ DiskError::Medium { .. }) => (Some(Err(e)), Random::stream(self.seed, self.events)),
            Err(e) => return Err(e),
            Ok((fault, random)) => (fault.map(Ok), random),
        };
        let slot = self.alive(call)?;
        let durable = through || slot.info.write_cache == WriteCache::None;
        let unit = u64::from(slot.info.geometry.atomic_write);
        let put = |slot: &mut Slot, change: Arc<Change>| {
            let block = u64::from(slot.info.geometry.physical_block);
            let (start, end) = change.range();
            slot.bad.retain(|bad| *bad < start || bad + block > end);
            slot.store.apply(change, durable);
        };
        match fault {
            Some(Ok(Fault::Lost)) => {}
            Some(Ok(Fault::Partial) | Err(_)) => {
                for (start, end) in change.units(unit).filter(|_| random.below(2) == 0).collect::<Vec<_>>() {
                    put(slot, change.part(start, end));
                }
            }
            Some(Ok(Fault::Misdirected)) => {
                let offset = slot.another_offset(call.at, &mut random);
                put(slot, Arc::new(Change { offset, content: change.content.clone() }));
            }
            Some(Ok(Fault::Flipped)) => put(slot, Arc::new(flipped(change, &mut random))),
            Some(Ok(Fault::Garbage)) if call.at.op == Op::Discard => {
                let bytes = (0..call.at.length).map(|_| random.next() as u8).collect();
                put(slot, Arc::new(Change { offset: call.at.offset, content: Content::Bytes(bytes) }));
            }
            _ => put(slot, Arc::clone(change)),
        }
        match fault {
            Some(Err(e)) => Err(e),
            _ => Ok(()),
        }
    }

    pub(super) fn flush(&mut self, call: &Call, mark: u64) -> Result<(), DiskError> {
        self.alive(call)?;
        if !self.event() {
            return Err(DiskError::Gone { at: call.at });
        }
        let (fault, _) = self.draw(call)?;
        if fault != Some(Fault::Lost) {
            self.alive(call)?.store.flush(mark);
        }
        Ok(())
    }

    /// Returns the fault of a call if a rule fires, or the error that the caller gets.
    fn draw(&mut self, call: &Call) -> Result<(Option<Fault>, Random), DiskError> {
        let slot = self.alive(call)?;
        let Some((fault, random)) = slot.fault(call.at, false) else { return Ok((None, Random::new(0))) };
        let random = Random::new(random.next());
        self.note(call, fault);
        if let Fault::Vanish(cut) = fault {
            self.pull(call.slot.0, cut);
        }
        if let Fault::CutPower(cut) = fault {
            self.power_off(cut);
        }
        fault.error(call.at).map_or(Ok((Some(fault), random)), Err)
    }

    fn note(&mut self, call: &Call, fault: Fault) {
        self.log.push(Injected { event: self.events, slot: call.slot, at: call.at, fault });
    }
}

fn flipped(change: &Change, random: &mut Random) -> Change {
    let mut changed = change.clone();
    if let Content::Bytes(b) = &mut changed.content
        && !b.is_empty()
    {
        let at = random.below(b.len() as u64) as usize;
        b[at] ^= 1 << random.below(8);
    }
    changed
}
