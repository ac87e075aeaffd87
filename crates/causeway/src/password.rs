//! Passwords: from the environment, standard input, or a prompt that does not show them. Never from the command
//! line, where every user of the machine could read them.

use std::io::{self, BufRead, IsTerminal};

use thiserror::Error;

/// The environment variable of the client commands.
pub const VARIABLE: &str = "CAUSEWAY_PASSWORD";

/// The longest password that is read, in bytes (Windows' limit is 256 UTF-16 units).
const LONGEST: u64 = 1024;

/// Why there is no password.
#[derive(Debug, Error)]
pub enum PasswordError {
    /// There is no terminal for a prompt.
    #[error("a password is needed, but there is no terminal to prompt for it")]
    NoTerminal,
    /// There is no terminal to prompt for a new password. A new password is never taken from the environment, which
    /// has the password for the log-on.
    #[error("a new password is needed, but there is no terminal to prompt for it")]
    NoTerminalForNew,
    /// Standard input or the terminal failed.
    #[error("cannot read the password: {0}")]
    Read(#[from] io::Error),
    /// It is empty.
    #[error("the password is empty")]
    Empty,
    /// It is longer than [`LONGEST`].
    #[error("the password is longer than {LONGEST} bytes")]
    Long,
    /// The repeated password differs.
    #[error("the two passwords differ")]
    Differ,
}

/// The first line of standard input, without its end of line.
///
/// # Errors
/// See [`PasswordError`].
pub fn from_stdin() -> Result<String, PasswordError> {
    first_line(&mut io::stdin().lock())
}

/// An existing password: from standard input if requested, else from the environment, else from the terminal.
///
/// # Errors
/// See [`PasswordError`].
pub fn existing(stdin: bool, prompt: &str) -> Result<String, PasswordError> {
    if stdin {
        return from_stdin();
    }
    if let Ok(p) = std::env::var(VARIABLE) {
        return Ok(p);
    }
    if !has_terminal() {
        return Err(PasswordError::NoTerminal);
    }
    Ok(rpassword::prompt_password(prompt)?)
}

/// A new password: from standard input if requested, else typed twice at the terminal.
///
/// # Errors
/// See [`PasswordError`].
pub fn new(stdin: bool, name: &str) -> Result<String, PasswordError> {
    let password = if stdin {
        from_stdin()?
    } else if !has_terminal() {
        return Err(PasswordError::NoTerminalForNew);
    } else {
        let first = rpassword::prompt_password(format!("New password for {name}: "))?;
        if rpassword::prompt_password("Repeat the password: ")? != first {
            return Err(PasswordError::Differ);
        }
        first
    };
    if password.is_empty() { Err(PasswordError::Empty) } else { Ok(password) }
}

fn first_line(input: &mut impl BufRead) -> Result<String, PasswordError> {
    let mut line = String::new();
    let n = io::Read::take(input, LONGEST).read_line(&mut line)?;
    if n as u64 == LONGEST && !line.ends_with('\n') {
        return Err(PasswordError::Long);
    }
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

/// Whether there is a terminal for the prompt, even if standard input is something else.
fn has_terminal() -> bool {
    io::stdin().is_terminal() || std::fs::File::open("/dev/tty").is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_without_its_end() {
        let line = |text: &str| first_line(&mut text.as_bytes());
        assert_eq!(line("secret\nmore\n").expect("a line"), "secret");
        assert_eq!(line("secret \r\n").expect("a line"), "secret ");
        assert_eq!(line("secret").expect("a line"), "secret");
        assert_eq!(line("").expect("a line"), "");
        assert!(matches!(line(&"x".repeat(5000)), Err(PasswordError::Long)));
    }
}
