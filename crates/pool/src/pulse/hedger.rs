//! Telling reads that they take long.
//!
//! One task for all reads of a data path, while some could be answered by another copy: a timer for each read
//! would be set and taken back for every one of them, and hardly any goes off. It sleeps until the first read
//! is late, or, as a read that begins meanwhile is late after [`HEDGE_LEAST`] at the earliest, for that time.

use std::sync::Arc;

use env::Env;

use super::HEDGE_LEAST;
use super::watch::{Running, Watch};

impl Watch {
    /// There is a read that wants to hear that it takes long.
    pub(super) fn wake_hedger(self: &Arc<Watch>, env: &Env) {
        if let Some(running) = self.start(|watch| &watch.hedges) {
            env.spawn_if_running(run(env.clone(), running));
        }
    }
}

async fn run(env: Env, running: Running) {
    let watch = Arc::clone(&running.watch);
    let Some(path) = watch.path.get().cloned() else { return };
    let mut quiet = false;
    loop {
        let (now, next) = {
            let Some(path) = path.upgrade() else { return };
            let now = env.moment();
            (now, path.all_disks().iter().filter_map(|d| d.pulse.wake_due(now)).min())
        };
        if next.is_none() && quiet {
            drop(running);
            // One that began since was not to start another task.
            let path = path.upgrade();
            if path.is_some_and(|p| p.all_disks().iter().any(|d| d.pulse.wake_due(now).is_some())) {
                watch.wake_hedger(&env);
            }
            return;
        }
        quiet = next.is_none();
        let latest = now.after(HEDGE_LEAST);
        env.sleep_until(env.instant(next.map_or(latest, |n| n.min(latest)))).await;
    }
}
