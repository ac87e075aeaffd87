//! Executes random operations on one file and compares it with a model in memory after each. The file system
//! must return what was written, whatever the order of writes, truncations, reopenings and renames.
//!
//! Runs inside the guest of the system tests, on a mounted share. It uses only the standard library, so that
//! one static binary runs there. A run is reproducible from its seed. The first difference ends it: it prints
//! the last operations and exits with status 1.
//!
//! usage: `fsx FOLDER SEED OPERATIONS [direct]`

use std::collections::VecDeque;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The maximum size of the file, in bytes.
const SIZE_MAX: u64 = 3 << 20;
/// The maximum length of a read or write, in bytes.
const LENGTH_MAX: u64 = 300_000;
/// The number of operations shown after a failure.
const HISTORY: usize = 30;
/// `O_DIRECT` on x86-64 and arm64 differ; the guest is x86-64.
const O_DIRECT: i32 = 0o40000;

/// The xorshift64* generator: random enough here, and without a crate.
struct Chance(u64);

impl Chance {
    /// A number below `bound`, which is not 0.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16) % bound
    }
}

/// A file and its expected contents.
struct Run {
    folder: PathBuf,
    name: u32,
    direct: bool,
    file: File,
    model: Vec<u8>,
    chance: Chance,
    history: VecDeque<String>,
}

/// Why a run ended early.
#[derive(Debug)]
enum Wrong {
    /// The file system refused an operation.
    Io(io::Error),
    /// A read that began at `start` differs; `at` is the offset of the first wrong byte.
    Data { start: u64, at: u64, want: u8, got: u8 },
    /// The length of a read or of the file differs from the model.
    Length { want: u64, got: u64 },
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Io(error) => write!(f, "{error}"),
            Wrong::Data { start, at, want, got } => {
                write!(f, "byte {at} of a read from {start} is {got:#04x}, written was {want:#04x}")
            }
            Wrong::Length { want, got } => write!(f, "length {got}, should be {want}"),
        }
    }
}

impl From<io::Error> for Wrong {
    fn from(error: io::Error) -> Self {
        Wrong::Io(error)
    }
}

impl Run {
    fn new(folder: &Path, seed: u64, direct: bool) -> io::Result<Run> {
        let folder = folder.to_owned();
        let file = open(&folder.join("fsx-0"), direct)?;
        let chance = Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        Ok(Run { folder, name: 0, direct, file, model: Vec::new(), chance, history: VecDeque::new() })
    }

    fn path(&self) -> PathBuf {
        self.folder.join(format!("fsx-{}", self.name))
    }

    fn note(&mut self, operation: String) {
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(operation);
    }

    /// Executes one random operation.
    fn step(&mut self) -> Result<(), Wrong> {
        match self.chance.below(100) {
            0..40 => self.write(),
            40..75 => self.read(),
            75..85 => self.truncate(),
            85..90 => self.flush(),
            90..95 => self.reopen(),
            95..98 => self.rename(),
            _ => self.check(),
        }
    }

    /// A random length, often at sizes where transports switch methods, often unaligned.
    fn length(&mut self) -> u64 {
        match self.chance.below(4) {
            0 => self.chance.below(4096) + 1,
            1 => (self.chance.below(16) + 1) * 4096,
            2 => 4096 + self.chance.below(3) - 1,
            _ => self.chance.below(LENGTH_MAX) + 1,
        }
    }

    fn write(&mut self) -> Result<(), Wrong> {
        let (offset, length) = (self.chance.below(SIZE_MAX - LENGTH_MAX), self.length().min(LENGTH_MAX));
        self.note(format!("write {length} at {offset}"));
        let first = self.chance.below(256) as u8;
        let data: Vec<u8> = (0..length).map(|n| first.wrapping_add((n % 251) as u8)).collect();
        self.file.write_all_at(&data, offset)?;
        let end = (offset + length) as usize;
        if self.model.len() < end {
            self.model.resize(end, 0);
        }
        self.model[offset as usize..end].copy_from_slice(&data);
        Ok(())
    }

    fn read(&mut self) -> Result<(), Wrong> {
        let (offset, length) = (self.chance.below(SIZE_MAX), self.length());
        self.note(format!("read {length} at {offset}"));
        self.compare(offset, length)
    }

    fn compare(&self, offset: u64, length: u64) -> Result<(), Wrong> {
        let size = self.model.len() as u64;
        let (start, end) = (offset.min(size) as usize, (offset + length).min(size) as usize);
        let want = &self.model[start..end];
        let mut got = vec![0xA5; length as usize];
        let mut filled = 0;
        while filled < got.len() {
            match self.file.read_at(&mut got[filled..], offset + filled as u64)? {
                0 => break,
                more => filled += more,
            }
        }
        if filled != want.len() {
            return Err(Wrong::Length { want: want.len() as u64, got: filled as u64 });
        }
        match want.iter().zip(&got).position(|(w, g)| w != g) {
            Some(at) => {
                Err(Wrong::Data { start: offset, at: offset + at as u64, want: want[at], got: got[at] })
            }
            None => Ok(()),
        }
    }

    fn truncate(&mut self) -> Result<(), Wrong> {
        let size = self.chance.below(SIZE_MAX);
        self.note(format!("truncate to {size}, from {}", self.model.len()));
        self.file.set_len(size)?;
        self.model.resize(size as usize, 0);
        self.check_length()
    }

    fn flush(&mut self) -> Result<(), Wrong> {
        self.note("flush".into());
        Ok(self.file.sync_all()?)
    }

    fn reopen(&mut self) -> Result<(), Wrong> {
        self.note("reopen".into());
        self.file = open(&self.path(), self.direct)?;
        self.check_length()
    }

    fn rename(&mut self) -> Result<(), Wrong> {
        let old = self.path();
        self.name += 1;
        self.note(format!("rename to fsx-{}", self.name));
        fs::rename(old, self.path())?;
        self.check_length()
    }

    fn check_length(&self) -> Result<(), Wrong> {
        let got = fs::metadata(self.path())?.len();
        let want = self.model.len() as u64;
        if got == want { Ok(()) } else { Err(Wrong::Length { want, got }) }
    }

    /// Checks the whole file, and that the folder contains nothing else.
    fn check(&mut self) -> Result<(), Wrong> {
        self.note("check".into());
        self.check_length()?;
        self.compare(0, SIZE_MAX + LENGTH_MAX)?;
        let files = fs::read_dir(&self.folder)?.count() as u64;
        if files == 1 { Ok(()) } else { Err(Wrong::Length { want: 1, got: files }) }
    }
}

fn open(path: &Path, direct: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    if direct {
        options.custom_flags(O_DIRECT);
    }
    options.open(path)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let (Some(folder), Some(Ok(seed)), Some(Ok(operations))) = (
        arguments.get(1),
        arguments.get(2).map(|a| a.parse::<u64>()),
        arguments.get(3).map(|a| a.parse::<u64>()),
    ) else {
        eprintln!("usage: fsx FOLDER SEED OPERATIONS [direct]");
        return ExitCode::from(2);
    };
    let direct = arguments.get(4).is_some_and(|a| a == "direct");
    let mut run = match Run::new(Path::new(folder), seed, direct) {
        Ok(run) => run,
        Err(error) => {
            eprintln!("fsx: {folder}: {error}");
            return ExitCode::from(2);
        }
    };
    for number in 0..operations {
        let done = run.step().and_then(|()| if number + 1 == operations { run.check() } else { Ok(()) });
        if let Err(wrong) = done {
            println!("fsx: seed {seed}, operation {number}: {wrong}; the last operations:");
            run.history.iter().for_each(|operation| println!("  {operation}"));
            return ExitCode::FAILURE;
        }
    }
    println!("fsx: {operations} operations, {} bytes at the end, as the model has them", run.model.len());
    match fs::remove_file(run.path()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("fsx: remove: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("fsx-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_local_file_system_agrees_with_the_model() {
        let folder = folder("agrees");
        let mut run = Run::new(&folder, 1, false).unwrap();
        for _ in 0..300 {
            run.step().unwrap();
        }
        run.check().unwrap();
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_changed_byte_is_found() {
        let folder = folder("byte");
        let mut run = Run::new(&folder, 2, false).unwrap();
        while run.model.len() < 5000 {
            run.step().unwrap();
        }
        run.file.write_all_at(&[run.model[4321] ^ 1], 4321).unwrap();
        assert!(matches!(run.check(), Err(Wrong::Data { at: 4321, .. })));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_lost_end_is_found() {
        let folder = folder("end");
        let mut run = Run::new(&folder, 3, false).unwrap();
        while run.model.len() < 5000 {
            run.step().unwrap();
        }
        run.file.set_len(run.model.len() as u64 - 1).unwrap();
        assert!(matches!(run.check(), Err(Wrong::Length { .. })));
        fs::remove_dir_all(folder).unwrap();
    }
}
