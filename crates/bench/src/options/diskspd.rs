//! DiskSPD's command line, parsed in two passes as by DiskSPD: first the options on which others depend
//! (block size, targets, `-X`) and those allowed with an XML profile, then the rest.

use super::cache::CacheFlags;
use super::size::{number, size, size_prefix};
use super::{OptionError, ParseContext, Parsed, affinity, distribution, xml};
use crate::profile::{BLOCK_DEFAULT, Content, FlushMode, Format, Priority, Profile, Rate, Target, TimeSpan};

/// Maximum targets in a command line.
const TARGETS_MAX: usize = 4096;
/// The number of I/Os for each dot of `-P` without a number.
const PROGRESS_DEFAULT: u32 = 65_536;

/// The options that are valid with a command line and with an XML profile.
#[derive(Default)]
struct Shared {
    block: Option<u32>,
    cooldown: Option<u32>,
    duration: Option<u32>,
    warmup: Option<u32>,
    format: Option<Format>,
    profile_only: bool,
    verbose: bool,
    verbose_stats: bool,
    seed: Option<u32>,
    experiment: u32,
    xml: Option<String>,
    /// The first option that is not allowed with `-X`.
    not_with_xml: Option<String>,
    targets: Vec<String>,
}

pub(super) fn parse(args: &[String], context: &ParseContext<'_>) -> Result<Parsed, OptionError> {
    let shared = first_pass(args, context)?;
    let mut warnings = Vec::new();
    let mut profile = match &shared.xml {
        Some(path) => from_xml(path, &shared, context, &mut warnings)?,
        None => second_pass(args, &shared, &mut warnings)?,
    };
    for span in &mut profile.timespans {
        span.seed = shared.seed.unwrap_or(span.seed);
        span.warmup_s = shared.warmup.unwrap_or(span.warmup_s);
        span.duration_s = shared.duration.unwrap_or(span.duration_s);
        span.cooldown_s = shared.cooldown.unwrap_or(span.cooldown_s);
    }
    profile.format = shared.format.unwrap_or(profile.format);
    profile.profile_only = shared.profile_only;
    profile.verbose |= shared.verbose;
    profile.verbose_stats |= shared.verbose_stats;
    if shared.experiment != 0 {
        profile.experiment_flags = shared.experiment;
    }
    Ok(Parsed { profile, warnings, mappings: Vec::new() })
}

fn from_xml(
    path: &str,
    shared: &Shared,
    context: &ParseContext<'_>,
    warnings: &mut Vec<String>,
) -> Result<Profile, OptionError> {
    if let Some(option) = &shared.not_with_xml {
        return Err(OptionError::WithXml(option.clone()));
    }
    let text = (context.read)(path).map_err(|source| OptionError::Read { path: path.to_owned(), source })?;
    xml::read(&text, &shared.targets, warnings)
        .map_err(|source| OptionError::Xml { path: path.to_owned(), source })
}

/// Splits an option into its letter and value. Returns `None` for a target. A lone dash is an option without
/// a letter.
fn option(arg: &str) -> Option<(char, &str)> {
    let rest = arg.strip_prefix('-')?;
    let mut chars = rest.chars();
    let letter = chars.next().unwrap_or('-');
    Some((letter, chars.as_str()))
}

fn first_pass(args: &[String], context: &ParseContext<'_>) -> Result<Shared, OptionError> {
    let mut shared = Shared::default();
    for arg in args {
        let Some((letter, value)) = option(arg) else {
            if shared.targets.len() >= TARGETS_MAX {
                let (value, most) = (TARGETS_MAX as u64 + 1, TARGETS_MAX as u64);
                return Err(OptionError::TooMuch { what: "targets", value, most });
            }
            refuse_windows_path(arg)?;
            shared.targets.push(arg.clone());
            continue;
        };
        if !shared.targets.is_empty() {
            return Err(OptionError::AfterTarget(arg.clone()));
        }
        let seconds = |option| number(option, value, 0, u32::MAX);
        match letter {
            ':' => shared.experiment = number("-:", value, 0, u32::MAX)?,
            'b' => {
                let bytes = size("-b", value, BLOCK_DEFAULT)?;
                let block = u32::try_from(bytes).ok().filter(|b| (1..u32::MAX).contains(b));
                shared.block = Some(block.ok_or(OptionError::Value {
                    option: "-b".to_owned(),
                    value: value.to_owned(),
                    why: "a block has at least one byte and less than 4 GiB",
                })?);
                shared.not_with_xml.get_or_insert_with(|| arg.clone());
            }
            'C' => shared.cooldown = Some(seconds("-C")?),
            'd' => shared.duration = Some(seconds("-d")?),
            'W' => shared.warmup = Some(seconds("-W")?),
            'R' => format(value, &mut shared)?,
            'v' => match value {
                "" => shared.verbose = true,
                "s" => shared.verbose_stats = true,
                _ => return Err(OptionError::Unknown(arg.clone())),
            },
            'X' => {
                if value.is_empty() {
                    let (option, value) = ("-X".to_owned(), String::new());
                    return Err(OptionError::Value { option, value, why: "name the profile: -Xfile.xml" });
                }
                if shared.xml.replace(value.to_owned()).is_some() {
                    return Err(OptionError::Conflict("-X: one profile at a time; leave one out"));
                }
            }
            'z' if value.is_empty() => shared.seed = Some(context.seed),
            'z' => shared.seed = Some(number("-z", value, 0, u32::MAX)?),
            _ => {
                shared.not_with_xml.get_or_insert_with(|| arg.clone());
            }
        }
    }
    Ok(shared)
}

fn format(value: &str, shared: &mut Shared) -> Result<(), OptionError> {
    let (only, name) = value.strip_prefix('p').map_or((false, value), |rest| (true, rest));
    shared.profile_only |= only;
    match name {
        "text" => shared.format = Some(Format::Text),
        "xml" => shared.format = Some(Format::Xml),
        "json" => shared.format = Some(Format::Json),
        "" if only => {}
        _ => {
            let (option, value) = ("-R".to_owned(), value.to_owned());
            return Err(OptionError::Value { option, value, why: "write -R[p]text, -R[p]xml or -R[p]json" });
        }
    }
    Ok(())
}

pub(super) fn refuse_windows_path(path: &str) -> Result<(), OptionError> {
    let why = if path.is_empty() {
        "the path is empty"
    } else if path.starts_with('#') && path.len() > 1 && path[1..].bytes().all(|b| b.is_ascii_digit()) {
        "Linux has no drive numbers: write the block device, such as /dev/nvme0n1 (a file of this name: ./#0)"
    } else if path.len() == 2 && path.ends_with(':') && path.as_bytes()[0].is_ascii_alphabetic() {
        "Linux has no drive letters: write the block device, /dev/..., or a file (of this name: ./X:)"
    } else {
        return Ok(());
    };
    Err(OptionError::Path { path: path.to_owned(), why })
}

fn second_pass(args: &[String], shared: &Shared, warnings: &mut Vec<String>) -> Result<Profile, OptionError> {
    let mut run = Builder {
        profile: Profile::default(),
        span: TimeSpan::default(),
        target: Target { block: shared.block.unwrap_or(BLOCK_DEFAULT), ..Target::default() },
        cache: CacheFlags::default(),
        base_given: false,
        max_given: false,
        warnings,
    };
    for arg in args {
        if let Some((letter, value)) = option(arg) {
            run.option(arg, letter, value)?;
        }
    }
    if shared.targets.is_empty() {
        return Err(OptionError::NoTarget);
    }
    let Builder { mut profile, mut span, mut target, cache, .. } = run;
    cache.apply(&mut target);
    span.targets = shared.targets.iter().map(|p| Target { path: p.clone(), ..target.clone() }).collect();
    profile.timespans.push(span);
    Ok(profile)
}

/// The profile built so far. All targets of a command line have the same options.
struct Builder<'w> {
    profile: Profile,
    span: TimeSpan,
    target: Target,
    cache: CacheFlags,
    base_given: bool,
    max_given: bool,
    warnings: &'w mut Vec<String>,
}

impl Builder<'_> {
    fn option(&mut self, arg: &str, letter: char, value: &str) -> Result<(), OptionError> {
        let block = self.target.block;
        let (span, target) = (&mut self.span, &mut self.target);
        let count = |option| number(option, value, 1, u32::MAX);
        let flag = |set: &mut bool| {
            *set = true;
            if value.is_empty() { Ok(()) } else { Err(OptionError::Unknown(arg.to_owned())) }
        };
        match letter {
            // Processed in the first pass.
            ':' | 'b' | 'C' | 'd' | 'R' | 'v' | 'W' | 'X' | 'z' => {}
            'a' => affinity::parse(value, &mut span.affinity)?,
            'B' => self.base(value)?,
            'c' => target.create = Some(size("-c", value, block)?),
            'D' => {
                span.iops_std_dev = true;
                span.bucket_ms = if value.is_empty() { 1000 } else { count("-D")? };
            }
            'e' => {
                return Err(OptionError::NotHere {
                    option: arg.to_owned(),
                    why: "only Windows has event tracing (ETW); run perf or bpftrace at the same time",
                });
            }
            'f' => self.max_or_hints(value)?,
            'F' => span.thread_count = count("-F")?,
            'g' => target.rate = Some(rate(value)?),
            'h' if value.is_empty() => self.cache.unbuffered_write_through()?,
            'i' => target.burst = count("-i")?,
            'j' => target.think_ms = count("-j")?,
            'I' => {
                let levels = [Priority::VeryLow, Priority::Low, Priority::Normal];
                target.priority = levels[number("-I", value, 1, 3)? as usize - 1];
            }
            'l' => flag(&mut target.large_pages)?,
            'L' => flag(&mut span.measure_latency)?,
            'n' => flag(&mut span.disable_affinity)?,
            'N' => target.flush = Some(flush(value)?),
            'o' => target.outstanding = count("-o")?,
            'O' => span.request_count = count("-O")?,
            'p' => flag(&mut target.parallel)?,
            'P' => {
                let every = if value.is_empty() { PROGRESS_DEFAULT } else { count("-P")? };
                self.profile.progress = every;
            }
            'r' => self.random(value)?,
            's' => self.sequential(value)?,
            'S' => self.cache.add(value)?,
            't' => target.threads_per_file = count("-t")?,
            'T' => match size("-T", value, block)? {
                0 => {
                    let (option, value) = ("-T".to_owned(), value.to_owned());
                    return Err(OptionError::Value {
                        option,
                        value,
                        why: "the distance must be at least 1 byte",
                    });
                }
                bytes => target.thread_stride = bytes,
            },
            'w' if value.is_empty() => {
                let (option, value) = ("-w".to_owned(), String::new());
                return Err(OptionError::Value {
                    option,
                    value,
                    why: "write the percentage of writes: -w30",
                });
            }
            'w' => target.write_percent = number("-w", value, 0, 100)?,
            'x' => {
                flag(&mut span.completion_routines)?;
                self.warnings.push("-x has no effect: I/O completes in only one way here".to_owned());
            }
            'y' => {
                return Err(OptionError::NotHere {
                    option: arg.to_owned(),
                    why: "only Windows has named events; use a script to start and stop the run (SIGINT ends it early and reports the results)",
                });
            }
            'Z' => self.content(value)?,
            _ => return Err(OptionError::Unknown(arg.to_owned())),
        }
        Ok(())
    }

    fn base(&mut self, value: &str) -> Result<(), OptionError> {
        let bad = |why| OptionError::Value { option: "-B".to_owned(), value: value.to_owned(), why };
        if std::mem::replace(&mut self.base_given, true) {
            return Err(OptionError::Conflict("-B: given twice; leave one out"));
        }
        let (base, rest) = size_prefix("-B", value, self.target.block)?;
        self.target.base = base;
        if rest.is_empty() {
            return Ok(());
        }
        let length = rest.strip_prefix(':').ok_or_else(|| bad("write -Bbase or -Bbase:length"))?;
        self.max_once()?;
        let length = size("-B", length, self.target.block)?;
        self.target.max_size =
            base.checked_add(length).ok_or_else(|| bad("base plus length must fit in 64 bits"))?;
        if length == 0 {
            return Err(bad("the length must not be 0"));
        }
        Ok(())
    }

    fn max_once(&mut self) -> Result<(), OptionError> {
        if std::mem::replace(&mut self.max_given, true) {
            return Err(OptionError::Conflict(
                "-Bbase:length and -f<size> both set the end of the range: leave one out",
            ));
        }
        Ok(())
    }

    fn max_or_hints(&mut self, value: &str) -> Result<(), OptionError> {
        if value.starts_with(|c: char| c.is_ascii_digit()) {
            self.max_once()?;
            self.target.max_size = size("-f", value, self.target.block)?;
            return Ok(());
        }
        let bad = || OptionError::Value {
            option: "-f".to_owned(),
            value: value.to_owned(),
            why: "write a size, or hints: r (random), s (sequential), t (temporary)",
        };
        if value.is_empty() {
            return Err(bad());
        }
        for hint in value.chars() {
            match hint {
                'r' => self.target.random_hint = true,
                's' => self.target.sequential_hint = true,
                't' => self.target.temporary_hint = true,
                _ => return Err(bad()),
            }
        }
        Ok(())
    }

    fn random(&mut self, value: &str) -> Result<(), OptionError> {
        let target = &mut self.target;
        if let Some(percent) = value.strip_prefix('s') {
            let percent = number("-rs", percent, 1, 100)?;
            if target.random_percent == 0 && target.alignment != 0 {
                return Err(OptionError::Conflict(
                    "-rs: set the alignment of mixed I/O with -r<size>, not with -s",
                ));
            }
            if !matches!(target.random_percent, 0 | 100) {
                return Err(OptionError::Conflict("-rs: given twice; leave one out"));
            }
            target.random_percent = percent;
        } else if let Some(spec) = value.strip_prefix('d') {
            target.distribution = Some(distribution::parse(spec, target.block)?);
        } else {
            let align =
                if value.is_empty() { u64::from(target.block) } else { size("-r", value, target.block)? };
            if align == 0 {
                let (option, value) = ("-r".to_owned(), value.to_owned());
                return Err(OptionError::Value {
                    option,
                    value,
                    why: "the alignment must be at least 1 byte",
                });
            }
            if target.alignment != 0 {
                return Err(OptionError::Conflict("-r and -s both, or -r twice: leave one out"));
            }
            if target.random_percent == 0 {
                target.random_percent = 100;
            }
            target.alignment = align;
        }
        Ok(())
    }

    fn sequential(&mut self, value: &str) -> Result<(), OptionError> {
        let target = &mut self.target;
        let stride = value.strip_prefix('i').inspect(|_| target.interlocked = true).unwrap_or(value);
        if target.random_percent != 0 {
            return Err(OptionError::Conflict(
                "-s is sequential, -r and -rs are random: leave one out (-r<size> sets the alignment of -rs)",
            ));
        }
        let block = u64::from(target.block);
        target.alignment = if stride.is_empty() { block } else { size("-s", stride, target.block)? };
        Ok(())
    }

    fn content(&mut self, value: &str) -> Result<(), OptionError> {
        match value {
            "" => self.target.content = Content::Zero,
            "r" => self.span.random_write_data = true,
            _ => {
                let (bytes, file) = value.split_once(',').map_or((value, None), |(s, f)| (s, Some(f)));
                let size = size("-Z", bytes, self.target.block)?;
                let why = "the size must not be 0, and a file name must follow the comma";
                if size == 0 || file == Some("") {
                    let (option, value) = ("-Z".to_owned(), value.to_owned());
                    return Err(OptionError::Value { option, value, why });
                }
                self.target.content = Content::Buffer { size, file: file.map(str::to_owned) };
            }
        }
        Ok(())
    }
}

fn rate(value: &str) -> Result<Rate, OptionError> {
    Ok(match value.strip_suffix('i') {
        Some(iops) => Rate::Iops(number("-g", iops, 1, u32::MAX)?),
        None => Rate::BytesPerMs(number("-g", value, 1, u32::MAX)?),
    })
}

fn flush(value: &str) -> Result<FlushMode, OptionError> {
    match value {
        "v" | "V" => Ok(FlushMode::ViewOfFile),
        "n" | "N" => Ok(FlushMode::NonVolatileMemory),
        "i" | "I" => Ok(FlushMode::NonVolatileMemoryNoDrain),
        _ => Err(OptionError::Value {
            option: "-N".to_owned(),
            value: value.to_owned(),
            why: "write -Nv, -Nn or -Ni",
        }),
    }
}
