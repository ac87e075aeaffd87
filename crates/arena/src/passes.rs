//! Counts passes over payload: how many bytes user space read or wrote, and why. Bytes touched per byte
//! transferred show whether a data path makes more passes than it needs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Why payload was touched in user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Copied from one buffer to another.
    Copy,
    /// Copied into its final buffer from a receive buffer, where a network adapter would place it by DMA.
    Place,
    /// Read for a CRC.
    Crc,
    /// Read for a signature.
    Mac,
    /// Encrypted or decrypted.
    Cipher,
}

/// Bytes touched since the process started, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// See [`Pass::Copy`].
    pub copy: u64,
    /// See [`Pass::Place`].
    pub place: u64,
    /// See [`Pass::Crc`].
    pub crc: u64,
    /// See [`Pass::Mac`].
    pub mac: u64,
    /// See [`Pass::Cipher`].
    pub cipher: u64,
}

/// Bytes by [`Pass`].
type Cells = [AtomicU64; 5];

/// The counts of threads that have ended.
static ENDED: Cells = [const { AtomicU64::new(0) }; 5];
/// The counters of running threads.
static RUNNING: Mutex<Vec<Arc<Cells>>> = Mutex::new(Vec::new());

/// The counters of one thread. Only that thread writes them, so counting needs no locked instruction.
struct ThreadCounters(Arc<Cells>);

thread_local! {
    static THREAD_COUNTERS: ThreadCounters = ThreadCounters::new();
}

impl ThreadCounters {
    fn new() -> ThreadCounters {
        let cells = Arc::<Cells>::default();
        RUNNING.lock().push(Arc::clone(&cells));
        ThreadCounters(cells)
    }
}

impl Drop for ThreadCounters {
    fn drop(&mut self) {
        let mut running = RUNNING.lock();
        running.retain(|cells| !Arc::ptr_eq(cells, &self.0));
        for (ended, own) in ENDED.iter().zip(&*self.0) {
            ended.fetch_add(own.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

/// Counts `bytes` of payload touched for `pass`.
pub fn count(pass: Pass, bytes: usize) {
    let own = THREAD_COUNTERS.try_with(|own| {
        let cell = &own.0[pass as usize];
        cell.store(cell.load(Ordering::Relaxed) + bytes as u64, Ordering::Relaxed);
    });
    if own.is_err() {
        // The thread is ending and its counters are gone.
        ENDED[pass as usize].fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// The current counts of all threads.
pub fn counts() -> Counts {
    let running = RUNNING.lock();
    let all = || running.iter().map(|cells| &**cells).chain([&ENDED]);
    let b = |p: Pass| all().map(|cells| cells[p as usize].load(Ordering::Relaxed)).sum();
    Counts {
        copy: b(Pass::Copy),
        place: b(Pass::Place),
        crc: b(Pass::Crc),
        mac: b(Pass::Mac),
        cipher: b(Pass::Cipher),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_threads_are_still_counted() {
        let before = counts().crc;
        count(Pass::Crc, 1);
        std::thread::spawn(|| count(Pass::Crc, 10)).join().expect("no panic");
        assert!(counts().crc >= before + 11);
    }
}
