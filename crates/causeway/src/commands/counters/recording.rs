//! Recordings: written sample by sample, and read again.
//!
//! A file with the extension `.csv` has typeperf's layout: see `csv`. Any other has one line for each
//! snapshot, the unchanged document of `GET /v1/counters`: it holds every instance and every counter,
//! whenever they appear.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use counters::Snapshot;

use super::csv;
use super::select::Selection;
use super::series::{Series, series};
use crate::failure::Failure;

/// The longest line of a recording that is read, in bytes.
const LINE_MAX: u64 = 64 << 20;

/// A recording being written.
pub(super) struct Recorder<'a> {
    path: PathBuf,
    file: BufWriter<File>,
    csv: Option<csv::Writer<'a>>,
}

impl<'a> Recorder<'a> {
    /// Begins a recording; a file of the name is replaced.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn create(path: &Path, selection: &'a Selection) -> Result<Recorder<'a>, Failure> {
        let file = File::create(path).map_err(|source| Failure::Local { path: path.to_owned(), source })?;
        let csv = is_csv(path).then(|| csv::Writer::new(selection));
        Ok(Recorder { path: path.to_owned(), file: BufWriter::new(file), csv })
    }

    /// Adds a snapshot.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn write(&mut self, snapshot: &Snapshot) -> Result<(), Failure> {
        let Recorder { path, file, csv } = self;
        let written = match csv {
            Some(csv) => csv.write(file, snapshot),
            None => serde_json::to_writer(&mut *file, snapshot)
                .map_err(io::Error::from)
                .and_then(|()| file.write_all(b"\n")),
        };
        // Concurrent readers see whole lines.
        written.and_then(|()| file.flush()).map_err(|source| Failure::Local { path: path.clone(), source })
    }

    /// Ends the recording; prints how many instances have no column.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn finish(self) -> Result<(), Failure> {
        if let Some(late) = self.csv.map(|c| c.late()).filter(|n| *n > 0) {
            crate::output::complain(&format!(
                "{late} instances appeared after the start of the recording and have no column in {}: record without .csv to include them",
                self.path.display()
            ));
        }
        Ok(())
    }
}

/// Reads a recording of either form.
///
/// # Errors
/// The system's; [`io::ErrorKind::InvalidData`], with the number of the line, if it is no recording.
pub(super) fn load(path: &Path, selection: &Selection) -> Result<Vec<Series>, Failure> {
    let failed = |source| Failure::Local { path: path.to_owned(), source };
    let file = BufReader::new(File::open(path).map_err(failed)?);
    if is_csv(path) {
        return csv::read(file, selection).map_err(failed);
    }
    let snapshots = read(file).map_err(failed)?;
    Ok(series(&snapshots, selection))
}

fn read(mut file: impl BufRead) -> io::Result<Vec<Snapshot>> {
    let (mut snapshots, mut line) = (Vec::new(), String::new());
    for number in 1.. {
        line.clear();
        if file.by_ref().take(LINE_MAX).read_line(&mut line)? == 0 {
            break;
        }
        match serde_json::from_str(&line) {
            Ok(snapshot) => snapshots.push(snapshot),
            // The recording was interrupted within its last line.
            Err(_) if !line.ends_with('\n') && !snapshots.is_empty() => break,
            Err(e) => return Err(bad(number, &e.to_string())),
        }
    }
    Ok(snapshots)
}

pub(super) fn bad(line: usize, why: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("line {line}: this is not a recording of counters: {why}"),
    )
}

fn is_csv(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("csv"))
}

#[cfg(test)]
mod tests;
