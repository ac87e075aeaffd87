//! The rate in bytes per second over the last few seconds.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The length of the window, and of its steps.
const WINDOW: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_millis(500);

/// See the module. Holds at most 21 steps.
#[derive(Debug, Default)]
pub(super) struct Rate {
    /// The beginning of each step, and its bytes.
    steps: VecDeque<(Instant, u64)>,
}

impl Rate {
    /// Adds completed bytes.
    pub(super) fn add(&mut self, bytes: u64, now: Instant) {
        self.forget(now);
        match self.steps.back_mut() {
            Some((began, done)) if now.saturating_duration_since(*began) < STEP => *done += bytes,
            _ => self.steps.push_back((now, bytes)),
        }
    }

    /// Bytes per second; 0 if nothing was completed recently.
    pub(super) fn per_second(&self, now: Instant) -> u64 {
        let recent = |(at, _): &&(Instant, u64)| now.saturating_duration_since(*at) <= WINDOW;
        let Some((began, _)) = self.steps.iter().find(recent) else { return 0 };
        let bytes: u64 = self.steps.iter().filter(recent).map(|(_, n)| n).sum();
        let time = now.saturating_duration_since(*began).max(STEP);
        (u128::from(bytes) * 1_000_000 / time.as_micros()) as u64
    }

    fn forget(&mut self, now: Instant) {
        while self.steps.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) > WINDOW) {
            self.steps.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
