//! SIGINT, SIGTERM and SIGHUP end a run early; a second signal exits at once and stops the started server.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{SignalKind, signal};

use crate::output::complain;

/// Starts to listen for the signals; the flag is set when the run is to stop.
pub(super) fn listen() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let set = stop.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate, mut hangup) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?)
    };
    std::thread::Builder::new().name("bench-signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = hangup.recv() => {}
                }
                if set.swap(true, Ordering::Relaxed) {
                    super::demo::leave(130);
                }
                complain("stopping; a second Ctrl-C exits at once without a report");
            }
        });
    })?;
    Ok(stop)
}
