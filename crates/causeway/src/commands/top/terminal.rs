//! The terminal: switched to the alternate screen, and restored on exit, on panic and on a signal.

use std::io::{self, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, Show};
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use tokio::signal::unix::{Signal, SignalKind, signal};

static TAKEN: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// Holds the terminal on the alternate screen until dropped.
#[derive(Debug)]
pub(super) struct Screen(());

impl Screen {
    /// Switches to the alternate screen and raw mode, and hides the cursor.
    ///
    /// # Errors
    /// The terminal's; it is restored then.
    pub(super) fn enter() -> io::Result<Screen> {
        // The message of a panic must appear on the normal screen.
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore();
                before(panic);
            }));
        });
        TAKEN.store(true, Ordering::SeqCst);
        let screen = Screen(()); // restores the terminal if the rest fails
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores the terminal once, for the first caller. Errors of a closed terminal are ignored.
fn restore() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = io::stdout().flush();
        let _ = disable_raw_mode();
    }
}

/// Signals that end the program.
pub(super) struct Stop {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Stop {
    /// Catches the signals: from here on they no longer end the process by themselves.
    pub(super) fn new() -> io::Result<Stop> {
        Ok(Stop {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for one.
    pub(super) async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::process::{Command, Stdio};

    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{LocalModes, tcgetattr};

    use super::*;

    const CHILD: &str = "CAUSEWAY_TEST_PANICS";

    /// Runs this test again on a new terminal, where it panics while the alternate screen is active.
    #[test]
    fn a_panic_gives_the_terminal_back_and_is_read_there() {
        if std::env::var_os(CHILD).is_some() {
            let _screen = Screen::enter().expect("a terminal");
            panic!("on purpose");
        }
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&master).expect("granted");
        unlockpt(&master).expect("unlocked");
        let name = ptsname(&master, Vec::new()).expect("a name").into_string().expect("UTF-8");
        let slave = File::options().read(true).write(true).open(name).expect("opened");
        let io = || Stdio::from(slave.try_clone().expect("cloned"));
        let test = "commands::top::terminal::tests::a_panic_gives_the_terminal_back_and_is_read_there";
        let mut child = Command::new("setsid")
            .arg("-c")
            .arg(std::env::current_exe().expect("this program"))
            .args([test, "--exact", "--nocapture"])
            .env(CHILD, "1")
            .stdin(io())
            .stdout(io())
            .stderr(io())
            .spawn()
            .expect("setsid of util-linux");
        let (mut master, mut screen, mut piece) = (File::from(master), String::new(), [0; 4096]);
        while !screen.contains("test result") {
            let n = master.read(&mut piece).expect("it is open");
            screen += &String::from_utf8_lossy(&piece[..n]);
        }
        assert!(!child.wait().expect("it ends").success());
        let at = |text: &str| screen.find(text).unwrap_or_else(|| panic!("{text:?} in {screen}"));
        assert!(at("\u{1b}[?1049h") < at("\u{1b}[?1049l"));
        assert!(at("\u{1b}[?1049l") < at("on purpose"), "said on the screen that stays: {screen}");
        assert!(tcgetattr(&slave).expect("a terminal").local_modes.contains(LocalModes::ICANON));
    }
}
