//! The events file: a line of JSON for each event, the newest last.
//!
//! At [`SIZE_MAX`] bytes it is renamed and replaces the older file; the two hold more than memory keeps. It
//! is only appended to. Lines that are no events are skipped on reading, such as an incomplete last line.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::EVENTS_MAX;
use crate::control::events::Event;

/// The maximum size of a file in bytes; the last event may exceed it.
const SIZE_MAX: u64 = 1 << 20;

/// The names of the current and the older file.
const NAME: &str = "events.jsonl";
const OLDER: &str = "events.jsonl.1";

/// See the module.
pub(super) struct EventFile {
    directory: PathBuf,
    open: Option<(File, u64)>,
    /// An event could not be written; this was logged.
    is_failing: bool,
}

impl EventFile {
    /// The file of a directory, and its newest events by number. The file is created with the first event.
    pub(super) fn open(directory: &Path) -> (EventFile, Vec<Event>) {
        let mut events = Vec::new();
        for path in [OLDER, NAME].map(|name| directory.join(name)) {
            match read(&path) {
                Ok((found, 0)) => events.extend(found),
                Ok((found, odd)) => {
                    events.extend(found);
                    tracing::warn!(path = %path.display(), lines = odd, "some lines of the events file cannot be read");
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::error!(path = %path.display(), %error, "the events file cannot be read: its events are not shown");
                }
            }
        }
        events.sort_by_key(|e| e.number);
        events.drain(..events.len().saturating_sub(EVENTS_MAX));
        (EventFile { directory: directory.to_owned(), open: None, is_failing: false }, events)
    }

    /// Appends an event; failures are logged.
    pub(super) fn append(&mut self, event: &Event) {
        match self.write(event) {
            Ok(()) if self.is_failing => {
                self.is_failing = false;
                tracing::info!("events are kept over a restart again");
            }
            Ok(()) => {}
            Err(error) => {
                // The next write may succeed.
                self.open = None;
                if !self.is_failing {
                    self.is_failing = true;
                    let path = self.directory.join(NAME);
                    tracing::error!(path = %path.display(), %error, "cannot write the events file: events are not kept over a restart; check server.state");
                }
            }
        }
    }

    fn write(&mut self, event: &Event) -> io::Result<()> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        let (mut file, size) = match self.open.take() {
            Some(open) => open,
            None => begin(&self.directory)?,
        };
        file.write_all(&line)?;
        let size = size + line.len() as u64;
        if size < SIZE_MAX {
            self.open = Some((file, size));
            return Ok(());
        }
        fs::rename(self.directory.join(NAME), self.directory.join(OLDER))
    }
}

/// Opens the file to append to it; returns it with its length. Completes an incomplete last line first.
fn begin(directory: &Path) -> io::Result<(File, u64)> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let mut file =
        OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(directory.join(NAME))?;
    let mut size = file.metadata()?.len();
    let mut last = [b'\n'];
    if size > 0 {
        file.read_exact_at(&mut last, size - 1)?;
    }
    if last != [b'\n'] {
        file.write_all(b"\n")?;
        size += 1;
    }
    Ok((file, size))
}

/// The events of a file, and the number of invalid lines. Of a file that is too long only the end is read.
fn read(path: &Path) -> io::Result<(Vec<Event>, usize)> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(2 * SIZE_MAX)))?;
    let mut bytes = Vec::new();
    file.take(2 * SIZE_MAX).read_to_end(&mut bytes)?;
    let (mut events, mut odd) = (Vec::new(), 0);
    for line in bytes.split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
        match serde_json::from_slice(line) {
            Ok(event) => events.push(event),
            Err(_) => odd += 1,
        }
    }
    Ok((events, odd))
}
