//! Failed log-ons: their delay, and their messages in the log.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use env::Env;
use futures_util::stream::{FuturesUnordered, StreamExt};
use smb_server::Limits;
use smb_wire::NtStatus;
use tokio::time::Instant;

use crate::raw::Raw;
use crate::world::World;

fn world() -> World {
    World::new(Env::real(), 64 << 20, Limits::default())
}

/// A log-on on a connection of its own.
async fn log_on(world: &World, user: &str) -> NtStatus {
    let mut raw = Raw::new(world.dial().await.0);
    raw.negotiate(0x0311, 1).await;
    raw.log_on(user, None).await
}

/// The lines that this thread logs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn start(&self) -> tracing::subscriber::DefaultGuard {
        let log = self.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).without_time().with_writer(move || log.clone());
        tracing::subscriber::set_default(subscriber.finish())
    }

    fn lines(&self) -> Vec<String> {
        let bytes = self.0.lock().expect("no panic");
        String::from_utf8(bytes.clone()).expect("text").lines().map(str::to_owned).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// MS-SMB2 3.3.5.16: a CANCEL names any request by its MessageId, but not one that has no session.
#[tokio::test]
async fn what_is_held_back_is_not_cancelled() {
    let world = world();
    for _ in 0..3 {
        assert_eq!(log_on(&world, "mallory").await, NtStatus::LOGON_FAILURE);
    }
    let mut raw = Raw::new(world.dial().await.0);
    raw.cancels_log_on = true;
    raw.negotiate(0x0311, 1).await;
    let begun = Instant::now();
    assert_eq!(raw.log_on("mallory", None).await, NtStatus::LOGON_FAILURE);
    assert!(begun.elapsed() >= Duration::from_millis(500));
}

#[tokio::test]
async fn the_fourth_failure_is_held_back() {
    let (world, log) = (world(), Log::default());
    let _guard = log.start();
    for _ in 0..3 {
        assert_eq!(log_on(&world, "mallory").await, NtStatus::LOGON_FAILURE);
    }
    let begun = Instant::now();
    assert_eq!(log_on(&world, "mallory").await, NtStatus::LOGON_FAILURE);
    assert!(begun.elapsed() >= Duration::from_millis(500));
    // A successful log-on clears the failures of its own account, not those of another one.
    assert_eq!(log_on(&world, "alice").await, NtStatus::SUCCESS);
    assert_eq!(log_on(&world, "mallory").await, NtStatus::LOGON_FAILURE);
    let lines = log.lines();
    let refused: Vec<_> = lines.iter().filter(|l| l.contains("log-on refused")).collect();
    for (line, count) in refused.iter().zip([1, 2, 3, 4, 5]) {
        let count = format!("failures={count}");
        assert!(["peer=127.0.0.1:", r#"user="mallory""#, &count].iter().all(|p| line.contains(p)), "{line}");
    }
    assert_eq!(refused.len(), 5);
}

/// Failed log-ons on many connections are answered one after the other, and soon refused; waiting answers are dropped
/// with their connections.
#[tokio::test]
async fn many_guesses_at_once_are_refused() {
    let world = world();
    let mut guesses: FuturesUnordered<_> = (0..40).map(|_| log_on(&world, "mallory")).collect();
    let mut failures = 0;
    while let Some(status) = guesses.next().await {
        match status {
            NtStatus::LOGON_FAILURE => failures += 1,
            status => {
                assert_eq!(status, NtStatus::REQUEST_NOT_ACCEPTED);
                break;
            }
        }
    }
    assert!((3..20).contains(&failures), "{failures} guesses");
    assert_eq!(log_on(&world, "alice").await, NtStatus::REQUEST_NOT_ACCEPTED, "the address waits");
    drop(guesses);
    while world.server.connections() > 0 {
        tokio::task::yield_now().await;
    }
}

/// A user name sent by a client cannot add a line or a field to the log.
#[tokio::test]
async fn names_are_escaped() {
    let (world, log) = (world(), Log::default());
    let _guard = log.start();
    let name = "eve\n INFO session set up peer=1.2.3.4 \"\u{1b}[31m\u{202e}";
    assert_eq!(log_on(&world, name).await, NtStatus::LOGON_FAILURE);
    let lines = log.lines();
    let [line] = &lines[..] else { panic!("{lines:?}") };
    let expected = r#"user="eve\n INFO session set up peer=1.2.3.4 \"\u{1b}[31m\u{202e}""#;
    assert!(line.contains(expected), "{line}");
}
