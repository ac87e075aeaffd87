//! When a write through an open changes the last write time that the open shows (MS-FSA 2.1.4.17).
//!
//! The file system stamps every write at once. Windows delays it, and programs depend on that: the first write shows
//! after [`DELAY`], or at once when FLUSH, SET_INFO or CLOSE comes first. Later writes show at those points only; the
//! last write time is then the time of the CLOSE, unless FLUSH or SET_INFO made the write visible before.
//! Other opens and directory listings show the file system's time.
//!
//! | phase      | last write time shown                   | a write leads to |
//! |------------|-----------------------------------------|------------------|
//! | `CLEAN`    | the file system's                       | `DELAYED`        |
//! | `DELAYED`  | the one before the write, until `due`   | `DELAYED`        |
//! | `VISIBLE`  | the file system's                       | `DEFERRED`       |
//! | `DEFERRED` | the one before the write                | `DEFERRED`       |

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use env::Moment;
use parking_lot::Mutex;
use vfs::Timestamp;

/// How long the first write stays invisible.
const DELAY: Duration = Duration::from_secs(2);

const CLEAN: u8 = 0;
const DELAYED: u8 = 1;
const VISIBLE: u8 = 2;
const DEFERRED: u8 = 3;

/// See the module.
pub(crate) struct WriteTime {
    /// Changes under the lock of `before`; read without it on the path of every WRITE.
    phase: AtomicU8,
    before: Mutex<PreviousTime>,
}

/// The time that is shown instead of the file system's.
struct PreviousTime {
    written: Timestamp,
    due: Moment,
}

/// The metadata changes due at close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CloseUpdate {
    /// Data was written.
    pub(crate) written: bool,
    /// The last write time becomes the time of closing.
    pub(crate) time: bool,
}

impl Default for WriteTime {
    fn default() -> WriteTime {
        let before = PreviousTime { written: Timestamp::default(), due: Moment::START };
        WriteTime { phase: AtomicU8::new(CLEAN), before: Mutex::new(before) }
    }
}

impl WriteTime {
    /// A write begins. `written` returns the current last write time, or `None` if that is not available without
    /// waiting.
    pub(crate) fn write(&self, now: impl FnOnce() -> Moment, written: impl FnOnce() -> Option<Timestamp>) {
        if matches!(self.phase.load(Ordering::Relaxed), DELAYED | DEFERRED) {
            return;
        }
        let mut before = self.before.lock();
        let phase = match self.phase.load(Ordering::Relaxed) {
            CLEAN => DELAYED,
            VISIBLE => DEFERRED,
            _ => return,
        };
        let phase = match written() {
            Some(written) => {
                *before = PreviousTime { written, due: now().after(DELAY) };
                phase
            }
            // There is no earlier time to show: the write is visible at once.
            None => {
                before.due = Moment::START;
                DELAYED
            }
        };
        self.phase.store(phase, Ordering::Relaxed);
    }

    /// The size was changed: this change and earlier writes are visible at once.
    pub(crate) fn change(&self) {
        let _before = self.before.lock();
        self.phase.store(VISIBLE, Ordering::Relaxed);
    }

    /// Makes earlier writes visible (FLUSH, SET_INFO).
    pub(crate) fn flush(&self) {
        if self.phase.load(Ordering::Relaxed) != CLEAN {
            self.change();
        }
    }

    /// The last write time to show; `None` for the file system's.
    pub(crate) fn shown(&self, now: Moment) -> Option<Timestamp> {
        let before = self.before.lock();
        match self.phase.load(Ordering::Relaxed) {
            DELAYED if now < before.due => Some(before.written),
            DELAYED => {
                self.phase.store(VISIBLE, Ordering::Relaxed);
                None
            }
            DEFERRED => Some(before.written),
            _ => None,
        }
    }

    /// The metadata changes due at close; a second call returns none.
    pub(crate) fn close(&self) -> CloseUpdate {
        let _before = self.before.lock();
        let phase = self.phase.swap(CLEAN, Ordering::Relaxed);
        CloseUpdate { written: phase != CLEAN, time: phase == DEFERRED }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::START.after(Duration::from_secs(seconds))
    }

    fn time(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanoseconds: 0 }
    }

    fn write(w: &WriteTime, now: u64, written: i64) {
        w.write(|| at(now), || Some(time(written)));
    }

    // MS-FSA 2.1.4.17
    #[test]
    fn the_first_write_shows_after_two_seconds_and_the_second_at_close() {
        let w = WriteTime::default();
        assert_eq!(w.shown(at(0)), None);
        write(&w, 10, 1);
        write(&w, 11, 10);
        assert_eq!(w.shown(at(11)), Some(time(1)));
        assert_eq!(w.shown(at(12)), None);
        write(&w, 13, 11);
        assert_eq!(w.shown(at(100)), Some(time(11)));
        assert_eq!(w.close(), CloseUpdate { written: true, time: true });
        assert_eq!(w.close(), CloseUpdate { written: false, time: false });
    }

    #[test]
    fn flush_and_set_info_make_it_visible() {
        let w = WriteTime::default();
        w.flush();
        assert_eq!(w.close(), CloseUpdate { written: false, time: false });
        write(&w, 10, 1);
        w.flush();
        assert_eq!(w.shown(at(10)), None);
        write(&w, 11, 10);
        w.change();
        assert_eq!(w.shown(at(11)), None);
        assert_eq!(w.close(), CloseUpdate { written: true, time: false });
    }

    #[test]
    fn a_time_that_is_not_known_is_not_shown() {
        let w = WriteTime::default();
        w.write(|| at(10), || None);
        assert_eq!(w.shown(at(10)), None);
        w.write(|| at(11), || None);
        assert_eq!(w.shown(at(11)), None);
        assert_eq!(w.close(), CloseUpdate { written: true, time: false });
    }
}
