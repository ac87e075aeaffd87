//! ChannelSequence (MS-SMB2 3.3.5.2.10): a change that a client sent through a channel that it has lost must not
//! overwrite its later changes.
//!
//! A client counts the channels it has lost and puts the count into each request. An open keeps the newest number it
//! has received; a change with an older one is refused. A replayed change is refused, and its client retries, while
//! requests with an older number are still running: one of those may be the original of the replay.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smb_wire::{Command, Header, HeaderFlags};

use super::Open;

/// The state of an open (MS-SMB2 3.3.1.10): [`Counts`] in one word, so that a request takes no lock.
pub(crate) struct Sequence(AtomicU64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    /// Open.ChannelSequence.
    newest: u16,
    /// Open.OutstandingRequestCount: running requests with the newest number. There are fewer than 2^24: clients have
    /// credits for far fewer.
    outstanding: u32,
    /// Open.OutstandingPreRequestCount: running requests with an older number.
    before: u32,
}

/// A running request of an open, counted until this is dropped.
pub(crate) struct Sequenced {
    open: Arc<Open>,
    sequence: u16,
}

impl Sequenced {
    /// Begins a request of `open`: `Ok(None)` for one that may run without being counted, an error for one that must
    /// fail with STATUS_FILE_NOT_AVAILABLE.
    pub(crate) fn begin(open: Arc<Open>, header: &Header) -> Result<Option<Sequenced>, StaleSequence> {
        let sequence = header.channel_sequence();
        let replay = header.flags.contains(HeaderFlags::REPLAY);
        let counted = open.sequence.change(|counts| counts.begin(sequence, replay));
        let changes = matches!(header.command, Command::WRITE | Command::SET_INFO | Command::IOCTL);
        match counted {
            // LOCK and CHANGE_NOTIFY may wait indefinitely for other clients. They change no data, and must not delay
            // replays: not counted.
            true if matches!(header.command, Command::LOCK | Command::CHANGE_NOTIFY) => {
                open.sequence.change(|counts| counts.end(sequence));
                Ok(None)
            }
            true => Ok(Some(Sequenced { open, sequence })),
            false if changes => Err(StaleSequence),
            false => Ok(None),
        }
    }
}

/// A change that is stale, or a replay whose original may still be running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StaleSequence;

impl Drop for Sequenced {
    fn drop(&mut self) {
        self.open.sequence.change(|counts| counts.end(self.sequence));
    }
}

impl Sequence {
    /// The state of an open that a request with this number created.
    pub(crate) fn new(newest: u16) -> Sequence {
        Sequence(AtomicU64::new(Counts { newest, outstanding: 0, before: 0 }.packed()))
    }

    /// Whether this is the newest number received.
    pub(crate) fn is_newest(&self, sequence: u16) -> bool {
        Counts::unpacked(self.0.load(Ordering::Acquire)).newest == sequence
    }

    fn change<T>(&self, change: impl Fn(&mut Counts) -> T) -> T {
        let mut now = self.0.load(Ordering::Relaxed);
        loop {
            let mut counts = Counts::unpacked(now);
            let result = change(&mut counts);
            match self.0.compare_exchange_weak(now, counts.packed(), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return result,
                Err(other) => now = other,
            }
        }
    }
}

/// Bits of a count in a [`Sequence`].
const COUNT_BITS: u32 = 24;
const COUNT_MAX: u32 = (1 << COUNT_BITS) - 1;

impl Counts {
    fn packed(self) -> u64 {
        let [outstanding, before] = [self.outstanding, self.before].map(|n| u64::from(n.min(COUNT_MAX)));
        u64::from(self.newest) << (2 * COUNT_BITS) | outstanding << COUNT_BITS | before
    }

    fn unpacked(word: u64) -> Counts {
        let count = |at: u32| (word >> at) as u32 & COUNT_MAX;
        Counts { newest: (word >> (2 * COUNT_BITS)) as u16, outstanding: count(COUNT_BITS), before: count(0) }
    }

    /// Counts the request; false if it is stale, or a replay while older requests are running.
    fn begin(&mut self, sequence: u16, replay: bool) -> bool {
        let ahead = sequence.wrapping_sub(self.newest);
        if ahead > 0x7FFF {
            return false;
        }
        if ahead > 0 {
            self.before += self.outstanding;
            self.outstanding = 0;
            self.newest = sequence;
        }
        if replay && self.before > 0 {
            return false;
        }
        self.outstanding += 1;
        true
    }

    /// A counted request is answered or dropped (MS-SMB2 3.3.4.1).
    fn end(&mut self, sequence: u16) {
        let count = if sequence == self.newest { &mut self.outstanding } else { &mut self.before };
        *count = count.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(newest: u16) -> Counts {
        Counts { newest, outstanding: 0, before: 0 }
    }

    #[test]
    fn one_word_holds_all() {
        for counts in [counts(0xFFFF), Counts { newest: 1, outstanding: COUNT_MAX, before: 2 }] {
            assert_eq!(Counts::unpacked(counts.packed()), counts);
        }
        let sequence = Sequence::new(3);
        assert!(sequence.change(|c| c.begin(4, false)) && sequence.is_newest(4) && !sequence.is_newest(3));
    }

    #[test]
    fn older_ones_are_out_of_turn() {
        let mut c = counts(0xFFFF);
        assert!(c.begin(0xFFFF, false) && c.begin(0, false), "it wraps");
        assert!(!c.begin(0xFFFF, false) && !c.begin(0xFFFF, true));
        assert_eq!(c, Counts { newest: 0, outstanding: 1, before: 1 });
        assert!(c.begin(0x7FFF, false) && !c.begin(0xFFFF, false));
    }

    #[test]
    fn a_replay_waits_for_what_was_sent_before() {
        let mut c = counts(0);
        assert!(c.begin(0, false));
        assert!(!c.begin(1, true), "the number is taken all the same");
        assert_eq!(c, Counts { newest: 1, outstanding: 0, before: 1 });
        assert!(c.begin(1, false) && !c.begin(1, true));
        c.end(0);
        assert!(c.begin(1, true));
        c.end(1);
        c.end(1);
        assert_eq!(c, counts(1));
    }
}
