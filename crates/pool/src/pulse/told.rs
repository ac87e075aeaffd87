//! Data I/Os that complete by callback: without polling.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use disk::{DiskError, Place, Read, Then, Told, Written};
use env::Moment;

use super::Pulse;
use super::followed::{UnderWay, Waiter};
use super::landing::{Landing, Waits};

impl Pulse {
    /// Starts a write of data with a callback. `who` is called once, with the result, or with the removal of
    /// the disk.
    pub(crate) fn write_then(
        self: &Arc<Pulse>,
        began: Moment,
        at: Place,
        (who, which): (Arc<dyn Told<Written>>, usize),
        start: impl FnOnce(Then<Written>),
    ) {
        let waiter = Some(Waiter::Told(who, which));
        let slot = self.begin(UnderWay { began, at, counted: true, short: false, waiter, due: None });
        // After it is registered: an abandonment after this check calls back.
        if !self.abandoned.load(Ordering::Acquire) {
            let pulse: Arc<Pulse> = Arc::clone(self);
            return start(Then::new(pulse, slot as usize, at));
        }
        let begun = self.remove(&mut self.state.lock(), slot);
        if let Some(Waiter::Told(who, which)) = begun.and_then(|u| u.waiter) {
            who.told(which, Err(DiskError::Timeout { at }));
        }
    }

    /// Starts a read of data with a callback; the waiter is notified when it has taken as long as `late`.
    pub(crate) fn read_then(
        self: &Arc<Pulse>,
        began: Moment,
        at: Place,
        late: Option<Duration>,
        start: impl FnOnce(Then<Read>),
    ) -> Waits {
        let landing = Arc::<Landing>::default();
        let waiter = Some(Waiter::Reads(Arc::clone(&landing)));
        let due = late.map(|late| began.after(late));
        let slot = self.begin(UnderWay { began, at, counted: true, short: false, waiter, due });
        // After both are registered: the watch task checks once more when it ends, and an abandonment after
        // this check calls back.
        if due.is_some() {
            self.watch.wake_hedger(&self.env);
        }
        if self.abandoned.load(Ordering::Acquire) {
            drop(self.remove(&mut self.state.lock(), slot));
            landing.ends(None);
        } else {
            let pulse: Arc<Pulse> = Arc::clone(self);
            start(Then::new(pulse, slot as usize, at));
        }
        Waits::new(&landing)
    }
}

/// The callback of a disk for the write in slot `which`.
impl Told<Written> for Pulse {
    fn told(self: Arc<Pulse>, which: usize, result: Written) {
        if let Some(Waiter::Told(who, which)) = self.done(which as u32) {
            who.told(which, result);
        }
    }
}

/// The same of a read.
impl Told<Read> for Pulse {
    fn told(self: Arc<Pulse>, which: usize, answer: Read) {
        if let Some(Waiter::Reads(landing)) = self.done(which as u32) {
            landing.ends(Some(answer));
        }
    }
}
