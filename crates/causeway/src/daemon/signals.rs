//! SIGTERM, SIGINT and SIGHUP.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Daemon;

/// The signals of the process.
pub(super) struct Signals {
    terminate: tokio::sync::Mutex<Signal>,
    interrupt: tokio::sync::Mutex<Signal>,
    hangup: tokio::sync::Mutex<Signal>,
}

impl Signals {
    /// Catches the signals: from here on they no longer end the process by themselves.
    pub(super) fn new() -> io::Result<Signals> {
        let get = |kind| signal(kind).map(tokio::sync::Mutex::new);
        Ok(Signals {
            terminate: get(SignalKind::terminate())?,
            interrupt: get(SignalKind::interrupt())?,
            hangup: get(SignalKind::hangup())?,
        })
    }

    /// Waits for a signal to stop; reloads on SIGHUP.
    pub(super) async fn until_stop(&self, daemon: &Daemon) {
        loop {
            tokio::select! {
                () = self.stop() => return,
                () = wait(&self.hangup) => {
                    match daemon.reload().await {
                        Ok(changed) => {
                            tracing::info!("{}", changed.done);
                            for note in changed.notes {
                                tracing::warn!("{note}");
                            }
                        }
                        Err(error) => tracing::error!("the configuration was not reloaded: {error}"),
                    }
                }
            }
        }
    }

    /// Waits for the server's outstanding requests, unless a second signal ends the wait.
    pub(super) async fn drain(&self, daemon: &Daemon) {
        let limit = daemon.config().server.drain;
        let connections = daemon.server.connections();
        tracing::info!(connections, "draining for at most {} s", limit.as_secs());
        tokio::select! {
            () = daemon.server.drain(limit) => {}
            () = self.stop() => {
                tracing::warn!("stopped by a second signal: outstanding requests are dropped, open files are closed");
                daemon.server.drain(Duration::ZERO).await;
            }
        }
        let left = daemon.server.connections();
        if left > 0 {
            tracing::warn!(connections = left, "some connections did not close in time and are closed now");
        }
    }

    async fn stop(&self) {
        tokio::select! {
            () = wait(&self.terminate) => {}
            () = wait(&self.interrupt) => {}
        }
    }
}

async fn wait(signal: &tokio::sync::Mutex<Signal>) {
    signal.lock().await.recv().await;
}
