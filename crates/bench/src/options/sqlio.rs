//! SQLIO's command line, translated to DiskSPD's options. Each translation is reported
//! ([`Parsed::mappings`]), because some options have no equivalent. `-T100` and the `R` and `T` of `-BYRT`
//! belong to an SQLIO that was never released; they are interpreted as by the demonstrations that used them.

use super::diskspd::refuse_windows_path;
use super::size::number;
use super::{OptionError, ParseContext, Parsed, validate};
use crate::profile::{Affinity, CacheMode, Profile, Target, TimeSpan};

/// Maximum lines of a parameter file.
const FILES_MAX: usize = 4096;

/// Parses a command line of SQLIO, without the program's name.
///
/// # Errors
/// See [`OptionError`].
pub fn parse(args: &[String], context: &ParseContext<'_>) -> Result<Parsed, OptionError> {
    let mut run = Sqlio::new();
    let (mut paths, mut parameter_file) = (Vec::new(), None);
    for arg in args {
        match arg.strip_prefix('-') {
            None => {
                refuse_windows_path(arg)?;
                paths.push(arg.clone());
            }
            Some(_) if !paths.is_empty() => return Err(OptionError::AfterTarget(arg.clone())),
            Some(rest) => match rest.strip_prefix('F') {
                Some(file) => parameter_file = Some(file.to_owned()),
                None => run.option(arg, rest)?,
            },
        }
    }
    let mut files: Vec<FileLine> =
        paths.into_iter().map(|path| FileLine { path, threads: None, mask: 0, megabytes: 0 }).collect();
    if let Some(file) = parameter_file {
        let text =
            (context.read)(&file).map_err(|source| OptionError::Read { path: file.clone(), source })?;
        let lines = parameter_lines(&file, &text)?;
        run.note(&format!("-F{file}"), &format!("{} targets, each with its threads and size", lines.len()));
        files.extend(lines);
    }
    if files.is_empty() {
        run.note("no file named", "testfile.dat, as SQLIO does");
        let path = "testfile.dat".to_owned();
        files.push(FileLine { path, threads: None, mask: 0, megabytes: 0 });
    }
    let (profile, mappings) = run.profile(files, args, context.seed);
    let warnings = validate(&profile)?;
    Ok(Parsed { profile, warnings, mappings })
}

/// A line of a parameter file: `<file> <threads> <mask> <size in MB>`.
struct FileLine {
    path: String,
    threads: Option<u32>,
    mask: u64,
    megabytes: u32,
}

fn parameter_lines(file: &str, text: &str) -> Result<Vec<FileLine>, OptionError> {
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(path) = words.first() else { continue };
        let bad = |why| OptionError::ParameterFile { path: file.to_owned(), line: at + 1, why };
        if words.len() > 4 || lines.len() >= FILES_MAX {
            return Err(bad("write one file on each line: <file> <threads> <mask> <size in MB>"));
        }
        refuse_windows_path(path)
            .map_err(|_| bad("Linux has no drive letters or drive numbers: write a path"))?;
        let threads = match words.get(1) {
            None => None,
            Some(n) => Some(number("", n, 1, 8192).map_err(|_| bad("threads: a number from 1 to 8192"))?),
        };
        let mask = match words.get(2) {
            None => 0,
            Some(m) => parse_mask(m).ok_or_else(|| bad("mask: a hexadecimal number like 0x3"))?,
        };
        let megabytes = match words.get(3) {
            None => 0,
            Some(n) => number("", n, 0, u32::MAX).map_err(|_| bad("size: a number of MB"))?,
        };
        lines.push(FileLine { path: (*path).to_owned(), threads, mask, megabytes });
    }
    Ok(lines)
}

fn parse_mask(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    (!digits.starts_with('+')).then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

fn processors(mask: u64) -> impl Iterator<Item = Affinity> {
    (0..64u8).filter(move |n| mask >> n & 1 == 1).map(|processor| Affinity { group: 0, processor })
}

enum Access {
    Random,
    Sequential,
    Stripe(u32),
}

struct Sqlio {
    write: bool,
    threads: u32,
    seconds: u32,
    outstanding: u32,
    block_kb: u32,
    access: Access,
    start_block: u64,
    buffering: String,
    latency: bool,
    affinity: Vec<Affinity>,
    mappings: Vec<String>,
}

impl Sqlio {
    fn new() -> Sqlio {
        Sqlio {
            write: false,
            threads: 1,
            seconds: 30,
            outstanding: 1,
            block_kb: 2,
            access: Access::Stripe(64),
            start_block: 0,
            buffering: "N".to_owned(),
            latency: false,
            affinity: Vec::new(),
            mappings: Vec::new(),
        }
    }

    fn note(&mut self, word: &str, meaning: &str) {
        self.mappings.push(format!("{word} -> {meaning}"));
    }

    fn option(&mut self, arg: &str, rest: &str) -> Result<(), OptionError> {
        let letter = rest.chars().next().unwrap_or(' ');
        let value = rest.get(letter.len_utf8()..).unwrap_or_default();
        let bad = |why| OptionError::Value { option: format!("-{letter}"), value: value.to_owned(), why };
        let not_here = |why| Err(OptionError::NotHere { option: arg.to_owned(), why });
        let count = |most| number(&format!("-{letter}"), value, 1, most);
        let meaning = match letter {
            'k' => {
                self.write = match value {
                    "R" => false,
                    "W" => true,
                    _ => return Err(bad("write -kR or -kW")),
                };
                if self.write { "-w100" } else { "-w0" }.to_owned()
            }
            't' => {
                self.threads = count(8192)?;
                format!("-t{}: threads for each file", self.threads)
            }
            's' => {
                self.seconds = count(u32::MAX)?;
                format!("-d{} -W0: no warm-up, as SQLIO has none", self.seconds)
            }
            'o' => {
                self.outstanding = count(32_768)?;
                format!("-o{}", self.outstanding)
            }
            'b' => {
                self.block_kb = count((u32::MAX >> 10) - 1)?;
                format!("-b{}K", self.block_kb)
            }
            'f' => match value {
                "random" => {
                    self.access = Access::Random;
                    "-r".to_owned()
                }
                "sequential" => {
                    self.access = Access::Sequential;
                    "-s".to_owned()
                }
                _ => {
                    let blocks = count(1 << 20)?;
                    self.access = Access::Stripe(blocks);
                    format!("-s{blocks}b: a stride of {blocks} blocks")
                }
            },
            'S' => {
                self.start_block = count(u32::MAX)?.into();
                format!("-B{}b: begins at this block", self.start_block)
            }
            'B' => {
                let known = matches!(value.chars().next(), Some('N' | 'Y' | 'H' | 'S'))
                    && value[1..].chars().all(|c| matches!(c, 'R' | 'T'))
                    && value.len() <= 3;
                if !known {
                    return Err(bad("write -BN, -BY, -BH, -BS or -BYRT"));
                }
                self.buffering = value.to_owned();
                return Ok(());
            }
            'L' => {
                let source = value.strip_suffix('i').unwrap_or(value);
                if !matches!(source, "" | "S" | "P") {
                    return Err(bad("write -LS or -LP"));
                }
                self.latency = true;
                "-L: there is only one clock".to_owned()
            }
            'a' => {
                let mask = value.trim_start_matches(['R', 'I']);
                let mask = parse_mask(mask)
                    .filter(|m| *m != 0)
                    .ok_or_else(|| bad("write a hexadecimal mask: -a0x3"))?;
                self.affinity = processors(mask).collect();
                format!("-a{}: threads use these processors in turn", list(&self.affinity))
            }
            'p' => {
                let cpu = number("-p", value.trim_start_matches('I'), 0, 63)?;
                self.affinity = processors(1 << cpu).collect();
                format!("-a{cpu}")
            }
            'i' => {
                count(u32::MAX)?;
                "no equivalent for runs of I/Os; the stride of -f is kept".to_owned()
            }
            'U' => "no effect: processors are always reported".to_owned(),
            'T' => {
                number("-T", value, 0, u32::MAX)?;
                "not documented; no effect".to_owned()
            }
            'v' | '6' => "a version; no effect".to_owned(),
            'm' => {
                return not_here("scatter/gather I/O is not supported: leave it out");
            }
            'd' => return not_here("Linux has no drive letters: name the files after the options"),
            'R' => return not_here("name raw drives as /dev/... after the options"),
            _ => return Err(OptionError::Unknown(arg.to_owned())),
        };
        self.note(arg, &meaning);
        Ok(())
    }

    fn profile(mut self, files: Vec<FileLine>, args: &[String], seed: u32) -> (Profile, Vec<String>) {
        let block = self.block_kb << 10;
        let bytes = u64::from(block);
        let mut affinity = std::mem::take(&mut self.affinity);
        let mut targets = Vec::new();
        for file in files {
            let mut target = Target {
                block,
                base: self.start_block * bytes,
                write_percent: if self.write { 100 } else { 0 },
                outstanding: self.outstanding,
                threads_per_file: file.threads.unwrap_or(self.threads),
                path: file.path,
                ..Target::default()
            };
            (target.random_percent, target.alignment) = match self.access {
                Access::Random => (100, bytes),
                Access::Sequential => (0, bytes),
                Access::Stripe(blocks) => (0, bytes * u64::from(blocks)),
            };
            if file.megabytes > 0 {
                target.create = Some(u64::from(file.megabytes) << 20);
                target.create_if_missing = true;
            }
            let meaning = self.buffer(&mut target);
            let word = format!("-B{}", self.buffering);
            if !self.mappings.iter().any(|m| m.starts_with(&format!("{word} -> {meaning}"))) {
                self.note(&word, meaning);
            }
            affinity.extend(processors(file.mask));
            targets.push(target);
        }
        let span = TimeSpan {
            duration_s: self.seconds,
            warmup_s: 0,
            measure_latency: self.latency,
            affinity,
            seed,
            targets,
            ..TimeSpan::default()
        };
        let mut profile = Profile { command_line: args.join(" "), ..Profile::default() };
        profile.timespans.push(span);
        (profile, self.mappings)
    }

    fn buffer(&self, target: &mut Target) -> &'static str {
        let mut letters = self.buffering.chars();
        let first = letters.next().unwrap_or('N');
        let hints: String = letters.collect();
        let remote = target.is_remote();
        match first {
            'N' => {
                (target.cache, target.write_through) = (CacheMode::Unbuffered, true);
                "-Sh: no cache, written through"
            }
            'H' => {
                target.cache = CacheMode::Unbuffered;
                "-Su: the drive's cache only"
            }
            'S' => {
                target.write_through = true;
                "-Sbw: the file cache, written through"
            }
            _ if !hints.is_empty() && remote => {
                target.cache = CacheMode::NoLocalCache;
                target.random_hint = hints.contains('R');
                target.temporary_hint = hints.contains('T');
                "-Sr: no local cache, the server's is used"
            }
            _ => {
                target.random_hint = hints.contains('R');
                target.temporary_hint = hints.contains('T');
                if hints.is_empty() {
                    "-Sb: all caches"
                } else {
                    "-Sb with hints -fr (R) and -ft (T): a local file has one cache"
                }
            }
        }
    }
}

fn list(affinity: &[Affinity]) -> String {
    let numbers: Vec<String> = affinity.iter().map(|a| a.processor.to_string()).collect();
    numbers.join(",")
}
