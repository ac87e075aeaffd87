//! The description of a run: DiskSPD's profile, with its names and defaults.
//!
//! A [`Profile`] is a list of [`TimeSpan`]s that run one after another, each with its [`Target`]s. It comes
//! from a command line ([`crate::options`]) or an XML file and is printed as text, XML or JSON
//! ([`crate::report`]). It is plain data, independent of how I/O is done.

use serde::Serialize;

/// The default block size, in bytes (DiskSPD `-b`).
pub const BLOCK_DEFAULT: u32 = 64 * 1024;

/// The complete run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Profile {
    /// The command line as given, for the report.
    pub command_line: String,
    /// `-v`.
    pub verbose: bool,
    /// `-vs`: wait statistics.
    pub verbose_stats: bool,
    /// `-P`: the number of a thread's I/Os for each dot; 0: none.
    pub progress: u32,
    /// `-R`.
    pub format: Format,
    /// `-Rp`: print this profile and do not run it.
    pub profile_only: bool,
    /// `-:`: DiskSPD's experiment flags, kept for the report.
    pub experiment_flags: u32,
    /// XML only: which files are created before the first time span.
    pub precreate: Option<Precreate>,
    /// The time spans, run one after another.
    pub timespans: Vec<TimeSpan>,
}

/// The format of the results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// DiskSPD's tables.
    #[default]
    Text,
    /// DiskSPD's XML.
    Xml,
    /// This crate's JSON.
    Json,
}

/// Which files are created before the first time span (XML `PrecreateFiles`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Precreate {
    /// All files, each with its largest size in any time span.
    UseMaxSize,
    /// Files whose size is the same in all time spans.
    OnlyFilesWithConstantSizes,
    /// Files whose size is the same in all time spans that specify one.
    OnlyFilesWithConstantOrZeroSizes,
}

/// One run: warm-up, measurement, cool-down.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimeSpan {
    /// `-d`, in seconds.
    pub duration_s: u32,
    /// `-W`, in seconds.
    pub warmup_s: u32,
    /// `-C`, in seconds.
    pub cooldown_s: u32,
    /// `-z`.
    pub seed: u32,
    /// `-F`: total number of threads; 0: `threads_per_file` of each target.
    pub thread_count: u32,
    /// `-O`: outstanding I/Os of each thread, with `-F`; 0: that of each target.
    pub request_count: u32,
    /// `-n`.
    pub disable_affinity: bool,
    /// `-a`: group and processor; empty: round robin over all.
    pub affinity: Vec<Affinity>,
    /// `-x`: accepted, but has no effect.
    pub completion_routines: bool,
    /// `-L`.
    pub measure_latency: bool,
    /// `-D` given.
    pub iops_std_dev: bool,
    /// `-D`, in milliseconds.
    pub bucket_ms: u32,
    /// `-Zr`.
    pub random_write_data: bool,
    /// The targets of I/O.
    pub targets: Vec<Target>,
}

/// A processor in Windows's notation, with groups of 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Affinity {
    /// Group.
    pub group: u16,
    /// Processor within it.
    pub processor: u8,
}

/// A target, and the I/O on it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Target {
    /// A file, a block device, `\\server\share\path`, `smb://server/share/path`, or `iwarp://host:port` or
    /// `tcp://host:port` for a fabric; `*1` in a template.
    pub path: String,
    /// `-b`, in bytes.
    pub block: u32,
    /// `-r`/`-s` alignment or stride, in bytes; 0: not given, which means the block size.
    pub alignment: u64,
    /// `-B`, in bytes.
    pub base: u64,
    /// `-f`/`-B:length`: I/O stays below this offset, in bytes; 0: the whole target.
    pub max_size: u64,
    /// 0: sequential; 100: random; between: `-rs`.
    pub random_percent: u32,
    /// `-rd`.
    pub distribution: Option<Distribution>,
    /// `-si`.
    pub interlocked: bool,
    /// `-T`, in bytes.
    pub thread_stride: u64,
    /// `-p`.
    pub parallel: bool,
    /// `-w`, percent.
    pub write_percent: u32,
    /// `-o`.
    pub outstanding: u32,
    /// `-t`.
    pub threads_per_file: u32,
    /// `-c`, in bytes.
    pub create: Option<u64>,
    /// SQLIO: `create` only if the file is missing or shorter.
    pub create_if_missing: bool,
    /// `-S`.
    pub cache: CacheMode,
    /// `-Sw`.
    pub write_through: bool,
    /// `-Sm`.
    pub mapped: bool,
    /// `-N`.
    pub flush: Option<FlushMode>,
    /// `-Z`, `-Z<size>`.
    pub content: Content,
    /// `-fs`.
    pub sequential_hint: bool,
    /// `-fr`.
    pub random_hint: bool,
    /// `-ft`.
    pub temporary_hint: bool,
    /// `-l`.
    pub large_pages: bool,
    /// `-i`: I/Os of a burst; 0: none.
    pub burst: u32,
    /// `-j`, in milliseconds.
    pub think_ms: u32,
    /// `-g`.
    pub rate: Option<Rate>,
    /// `-I`.
    pub priority: Priority,
    /// XML only: share of the I/Os of a `-F -O` thread pool.
    pub weight: u32,
    /// XML only: the threads of the pool that use this target; empty: all.
    pub thread_targets: Vec<ThreadTarget>,
}

/// A thread of the pool that uses a target, with its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ThreadTarget {
    /// The thread's number.
    pub thread: u32,
    /// Its weight; 0: the target's weight.
    pub weight: u32,
}

/// Which caches may serve I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum CacheMode {
    /// `-Sb`: all caches.
    #[default]
    Cached,
    /// `-Sr`: the server's cache, not the client's.
    NoLocalCache,
    /// `-Su`: no software cache.
    Unbuffered,
}

/// How a write to a mapping is made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum FlushMode {
    /// `-Nv`: `msync` on Linux.
    ViewOfFile,
    /// `-Nn`.
    NonVolatileMemory,
    /// `-Ni`.
    NonVolatileMemoryNoDrain,
}

/// The data of writes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub enum Content {
    /// 0, 1, 2 … 255, 0 …
    #[default]
    Sequential,
    /// `-Z`.
    Zero,
    /// `-Z<size>[,<file>]`: from a buffer of `size` bytes that is random or comes from a file.
    Buffer {
        /// The size of the buffer, in bytes.
        size: u64,
        /// The file with its content; `None`: random.
        file: Option<String>,
    },
}

/// The rate limit of each thread on each target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Rate {
    /// `-g<n>`.
    BytesPerMs(u32),
    /// `-g<n>i`.
    Iops(u32),
}

/// `-I`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Priority {
    /// 1.
    VeryLow,
    /// 2.
    Low,
    /// 3.
    #[default]
    Normal,
}

/// The distribution of I/O over parts of the target (`-rd`).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Distribution {
    /// The unit of `start` and `length` of the ranges.
    pub unit: Unit,
    /// The ranges in order; their shares add up to 100 %.
    pub ranges: Vec<Range>,
}

/// Units of a range of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Percent of the target.
    Percent,
    /// Bytes.
    Absolute,
}

/// A part of a target and its share of the I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Range {
    /// Its share of the I/O in percent; 0: a hole.
    pub io_percent: u32,
    /// Its start.
    pub start: u64,
    /// Its length; 0 with absolute units: up to the end.
    pub length: u64,
}

impl Default for TimeSpan {
    fn default() -> TimeSpan {
        TimeSpan {
            duration_s: 10,
            warmup_s: 5,
            cooldown_s: 0,
            seed: 0,
            thread_count: 0,
            request_count: 0,
            disable_affinity: false,
            affinity: Vec::new(),
            completion_routines: false,
            measure_latency: false,
            iops_std_dev: false,
            bucket_ms: 1000,
            random_write_data: false,
            targets: Vec::new(),
        }
    }
}

impl Default for Target {
    fn default() -> Target {
        Target {
            path: String::new(),
            block: BLOCK_DEFAULT,
            alignment: 0,
            base: 0,
            max_size: 0,
            random_percent: 0,
            distribution: None,
            interlocked: false,
            thread_stride: 0,
            parallel: false,
            write_percent: 0,
            outstanding: 2,
            threads_per_file: 1,
            create: None,
            create_if_missing: false,
            cache: CacheMode::Cached,
            write_through: false,
            mapped: false,
            flush: None,
            content: Content::Sequential,
            sequential_hint: false,
            random_hint: false,
            temporary_hint: false,
            large_pages: false,
            burst: 0,
            think_ms: 0,
            rate: None,
            priority: Priority::Normal,
            weight: 1,
            thread_targets: Vec::new(),
        }
    }
}

impl TimeSpan {
    /// The number of threads.
    pub fn threads(&self) -> u64 {
        match self.thread_count {
            0 => self.targets.iter().map(|t| u64::from(t.threads_per_file)).sum(),
            n => u64::from(n),
        }
    }

    /// Whether threads have one number of outstanding I/Os for all targets (`-F` with `-O`).
    pub fn pooled(&self) -> bool {
        self.thread_count > 0 && self.request_count > 0
    }
}

impl Target {
    /// Distance between offsets, in bytes; never 0.
    pub fn alignment(&self) -> u64 {
        if self.alignment == 0 { u64::from(self.block.max(1)) } else { self.alignment }
    }

    /// Whether its path is on a server: `\\server\share\path`, `//server/share/path` or a URL.
    pub fn is_remote(&self) -> bool {
        self.path.starts_with("\\\\") || self.path.starts_with("//") || self.path.contains("://")
    }

    /// Whether its path is a placeholder (`*1`), which must be replaced before a run.
    pub fn is_template(&self) -> bool {
        self.path.starts_with('*')
    }
}

impl Distribution {
    /// Makes a distribution from shares and lengths in order; the remaining share of the I/O goes to the rest
    /// of the target.
    pub fn new(unit: Unit, pairs: &[(u32, u64)]) -> Distribution {
        let mut ranges = Vec::with_capacity(pairs.len() + 1);
        let (mut io, mut at) = (0u32, 0u64);
        for &(io_percent, length) in pairs {
            ranges.push(Range { io_percent, start: at, length });
            io = io.saturating_add(io_percent);
            at = at.saturating_add(length);
        }
        if io < 100 {
            let length = if unit == Unit::Percent { 100u64.saturating_sub(at) } else { 0 };
            ranges.push(Range { io_percent: 100 - io, start: at, length });
        }
        Distribution { unit, ranges }
    }
}
