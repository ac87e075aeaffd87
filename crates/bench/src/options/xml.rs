//! DiskSPD's XML profiles. Unknown elements are refused, as when validating against its schema.

mod fields;

use roxmltree::Node;
use thiserror::Error;

use self::fields::{Fields, child, line, misplaced, repeated, value};
use super::diskspd::refuse_windows_path;
use crate::profile::{
    Affinity, CacheMode, Content, Distribution, FlushMode, Format, Precreate, Priority, Profile, Rate,
    Target, ThreadTarget, TimeSpan, Unit,
};

/// The longest profile, in bytes.
const LENGTH_MAX: usize = 16 << 20;
/// Maximum repetitions: time spans, targets of a time span, ranges, assignments.
const REPEATS_MAX: usize = 16_384;

/// Why a text is not a valid profile.
#[derive(Debug, Error)]
pub enum XmlError {
    /// Not XML.
    #[error("not valid XML: {0}")]
    Syntax(#[from] roxmltree::Error),
    /// The text is too long.
    #[error("longer than {LENGTH_MAX} bytes")]
    TooLong,
    /// An element that the schema does not allow there.
    #[error("line {line}: <{element}> does not belong in <{parent}>")]
    Element {
        /// Line number, from 1.
        line: u32,
        /// The element.
        element: String,
        /// Its parent element.
        parent: String,
    },
    /// A second element where only one is allowed.
    #[error("line {line}: a second <{element}>")]
    Twice {
        /// Line number, from 1.
        line: u32,
        /// The element.
        element: String,
    },
    /// A required element is missing.
    #[error("line {line}: <{parent}> has no <{element}>")]
    Missing {
        /// Line number, from 1.
        line: u32,
        /// The element.
        element: &'static str,
        /// Its parent element.
        parent: String,
    },
    /// A value of the wrong type.
    #[error("line {line}: <{element}>{value}</{element}>: expected {expected}")]
    Value {
        /// Line number, from 1.
        line: u32,
        /// The element.
        element: String,
        /// The value.
        value: String,
        /// The valid form.
        expected: &'static str,
    },
    /// Contradicting settings.
    #[error("line {line}: {why}")]
    Conflict {
        /// Line number, from 1.
        line: u32,
        /// The settings, and what to do.
        why: &'static str,
    },
    /// A Windows path.
    #[error("line {line}: {why}")]
    Path {
        /// Line number, from 1.
        line: u32,
        /// The path, and the valid form.
        why: String,
    },
    /// A template without a path, such as `*3` when only two paths were given.
    #[error("template {0} has no path: name one more target after the options")]
    NoSubstitute(String),
    /// There are more paths than templates.
    #[error("{0}: the profile has no template for this path: leave it out")]
    UnusedSubstitute(String),
}

/// Parses a profile. `substitutes` are the paths for `*1`, `*2` …; if there are none, templates are kept.
///
/// # Errors
/// See [`XmlError`].
pub fn read(text: &str, substitutes: &[String], warnings: &mut Vec<String>) -> Result<Profile, XmlError> {
    if text.len() > LENGTH_MAX {
        return Err(XmlError::TooLong);
    }
    let document = roxmltree::Document::parse(text)?;
    let root = document.root_element();
    let root = match root.tag_name().name() {
        "Profile" => root,
        // A result document contains its profile.
        "Results" => child(root, "Profile")?,
        other => {
            return Err(XmlError::Element {
                line: line(root),
                element: other.to_owned(),
                parent: "/".to_owned(),
            });
        }
    };
    let mut profile = Profile::default();
    let mut fields = Fields::new(root, &PROFILE)?;
    if let Some(text) = fields.text("ResultFormat") {
        profile.format = match text.trim() {
            "xml" => Format::Xml,
            "text" => Format::Text,
            _ => return Err(fields.bad("ResultFormat", "text or xml")),
        };
    }
    profile.verbose = fields.boolean("Verbose")?.unwrap_or(false);
    profile.verbose_stats = fields.boolean("VerboseStats")?.unwrap_or(false);
    profile.progress = fields.number("Progress")?.unwrap_or(0);
    profile.experiment_flags = fields.number("ExperimentFlags")?.unwrap_or(0);
    profile.precreate = match fields.text("PrecreateFiles").map(str::trim) {
        None => None,
        Some("UseMaxSize") => Some(Precreate::UseMaxSize),
        Some("CreateOnlyFilesWithConstantSizes") => Some(Precreate::OnlyFilesWithConstantSizes),
        Some("CreateOnlyFilesWithConstantOrZeroSizes") => Some(Precreate::OnlyFilesWithConstantOrZeroSizes),
        Some(_) => {
            return Err(fields.bad(
                "PrecreateFiles",
                "UseMaxSize, CreateOnlyFilesWithConstantSizes or CreateOnlyFilesWithConstantOrZeroSizes",
            ));
        }
    };
    if fields.node("ETW").is_some() {
        warnings.push("<ETW> is ignored: only Windows has event tracing".to_owned());
    }
    let spans = fields.required("TimeSpans")?;
    for node in repeated(spans, "TimeSpan")? {
        profile.timespans.push(time_span(node)?);
    }
    substitute(&mut profile, substitutes)?;
    Ok(profile)
}

fn substitute(profile: &mut Profile, paths: &[String]) -> Result<(), XmlError> {
    let mut used = vec![false; paths.len()];
    let targets = profile.timespans.iter_mut().flat_map(|s| &mut s.targets);
    for target in targets.filter(|t| t.is_template()) {
        let digits = &target.path[1..];
        let all_digits = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let number = digits.parse::<usize>().ok().filter(|n| all_digits && *n > 0);
        let number = number.ok_or_else(|| XmlError::NoSubstitute(target.path.clone()))?;
        if paths.is_empty() {
            continue;
        }
        let path = paths.get(number - 1).ok_or_else(|| XmlError::NoSubstitute(target.path.clone()))?;
        used[number - 1] = true;
        target.path = path.clone();
    }
    match used.iter().position(|u| !u) {
        Some(at) => Err(XmlError::UnusedSubstitute(paths[at].clone())),
        None => Ok(()),
    }
}

fn time_span(node: Node<'_, '_>) -> Result<TimeSpan, XmlError> {
    let mut f = Fields::new(node, &TIME_SPAN)?;
    let d = TimeSpan::default();
    let bucket_ms = f.number("IoBucketDuration")?.unwrap_or(d.bucket_ms);
    if bucket_ms == 0 {
        return Err(f.bad("IoBucketDuration", "at least one millisecond"));
    }
    let mut span = TimeSpan {
        duration_s: f.number("Duration")?.unwrap_or(d.duration_s),
        warmup_s: f.number("Warmup")?.unwrap_or(d.warmup_s),
        cooldown_s: f.number("Cooldown")?.unwrap_or(d.cooldown_s),
        seed: f.number("RandSeed")?.unwrap_or(d.seed),
        thread_count: f.number("ThreadCount")?.unwrap_or(0),
        request_count: f.number("RequestCount")?.unwrap_or(0),
        disable_affinity: f.boolean("DisableAffinity")?.unwrap_or(false),
        affinity: Vec::new(),
        completion_routines: f.boolean("CompletionRoutines")?.unwrap_or(false),
        measure_latency: f.boolean("MeasureLatency")?.unwrap_or(false),
        iops_std_dev: f.boolean("CalculateIopsStdDev")?.unwrap_or(false),
        bucket_ms,
        random_write_data: f.boolean("RandomWriteData")?.unwrap_or(false),
        targets: Vec::new(),
    };
    f.boolean("GroupAffinity")?;
    if let Some(node) = f.node("Affinity") {
        for n in node.children().filter(Node::is_element).take(REPEATS_MAX) {
            span.affinity.push(assignment(n)?);
        }
    }
    for node in repeated(f.required("Targets")?, "Target")? {
        span.targets.push(target(node)?);
    }
    Ok(span)
}

fn assignment(node: Node<'_, '_>) -> Result<Affinity, XmlError> {
    let number = |text: Option<&str>, most: u32| {
        let n = text.and_then(|t| t.trim().parse::<u32>().ok()).filter(|n| *n <= most);
        n.ok_or_else(|| value(node, "a group, and a processor from 0 to 255"))
    };
    match node.tag_name().name() {
        "AffinityAssignment" => Ok(Affinity { group: 0, processor: number(node.text(), 255)? as u8 }),
        "AffinityGroupAssignment" => Ok(Affinity {
            group: number(node.attribute("Group"), u16::MAX.into())? as u16,
            processor: number(node.attribute("Processor"), 255)? as u8,
        }),
        _ => Err(misplaced(node)),
    }
}

fn target(node: Node<'_, '_>) -> Result<Target, XmlError> {
    let mut f = Fields::new(node, &TARGET)?;
    let d = Target::default();
    let path = f.required("Path")?.text().unwrap_or_default().to_owned();
    refuse_windows_path(&path).map_err(|e| XmlError::Path { line: line(node), why: e.to_string() })?;
    let block = f.number("BlockSize")?.unwrap_or(d.block);
    if block == 0 || block == u32::MAX {
        return Err(f.bad("BlockSize", "at least one byte and less than 4 GiB"));
    }
    let (stride, random, ratio) =
        (f.long("StrideSize")?, f.long("Random")?, f.percent("RandomRatio", 1, 99)?);
    if stride.is_some() && (random.is_some() || ratio.is_some()) {
        let why = "<StrideSize> is sequential, <Random> and <RandomRatio> are random: leave one out";
        return Err(XmlError::Conflict { line: line(node), why });
    }
    let mut target = Target {
        path,
        block,
        alignment: stride.or(random).unwrap_or(0),
        random_percent: ratio.unwrap_or(if random.is_some() { 100 } else { 0 }),
        base: f.long("BaseFileOffset")?.unwrap_or(0),
        max_size: f.long("MaxFileSize")?.unwrap_or(0),
        interlocked: f.boolean("InterlockedSequential")?.unwrap_or(false),
        thread_stride: f.long("ThreadStride")?.unwrap_or(0),
        parallel: f.boolean("ParallelAsyncIO")?.unwrap_or(false),
        write_percent: f.percent("WriteRatio", 0, 100)?.unwrap_or(0),
        outstanding: f.number("RequestCount")?.unwrap_or(d.outstanding),
        threads_per_file: f.number("ThreadsPerFile")?.unwrap_or(d.threads_per_file),
        create: f.long("FileSize")?,
        sequential_hint: f.boolean("SequentialScan")?.unwrap_or(false),
        random_hint: f.boolean("RandomAccess")?.unwrap_or(false),
        temporary_hint: f.boolean("TemporaryFile")?.unwrap_or(false),
        large_pages: f.boolean("UseLargePages")?.unwrap_or(false),
        burst: f.number("BurstSize")?.unwrap_or(0),
        think_ms: f.number("ThinkTime")?.unwrap_or(0),
        weight: f.number("Weight")?.unwrap_or(d.weight),
        write_through: f.boolean("WriteThrough")?.unwrap_or(false),
        mapped: f.boolean("MemoryMappedIo")?.unwrap_or(false),
        ..d
    };
    if target.outstanding == 0 || target.threads_per_file == 0 {
        let why = "<RequestCount> and <ThreadsPerFile> of a target must be at least 1";
        return Err(XmlError::Conflict { line: line(node), why });
    }
    if f.boolean("DisableOSCache")? == Some(true) {
        target.cache = CacheMode::Unbuffered;
    }
    if f.boolean("DisableAllCache")? == Some(true) {
        (target.cache, target.write_through) = (CacheMode::Unbuffered, true);
    }
    if f.boolean("DisableLocalCache")? == Some(true) {
        target.cache = CacheMode::NoLocalCache;
    }
    target.flush = match f.text("FlushType").map(str::trim) {
        None => None,
        Some("ViewOfFile") => Some(FlushMode::ViewOfFile),
        Some("NonVolatileMemory") => Some(FlushMode::NonVolatileMemory),
        Some("NonVolatileMemoryNoDrain") => Some(FlushMode::NonVolatileMemoryNoDrain),
        Some(_) => return Err(f.bad("FlushType", "ViewOfFile")),
    };
    target.priority = match f.number("IOPriority")? {
        Some(1) => Priority::VeryLow,
        Some(2) => Priority::Low,
        None | Some(0 | 3) => Priority::Normal,
        Some(_) => return Err(f.bad("IOPriority", "0 to 3")),
    };
    if let Some(n) = f.number("Throughput")? {
        let unit = f.node("Throughput").and_then(|n| n.attribute("unit")).unwrap_or("BPMS");
        target.rate = match (unit, n) {
            (_, 0) => None,
            ("IOPS", n) => Some(Rate::Iops(n)),
            ("BPMS", n) => Some(Rate::BytesPerMs(n)),
            _ => return Err(f.bad("Throughput", "a unit of IOPS or BPMS")),
        };
    }
    if let Some(node) = f.node("WriteBufferContent") {
        target.content = content(node)?;
    }
    if let Some(node) = f.node("Distribution") {
        target.distribution = Some(distribution(node)?);
    }
    if let Some(node) = f.node("ThreadTargets") {
        for node in repeated(node, "ThreadTarget")? {
            let mut f = Fields::new(node, &["Thread", "Weight"])?;
            f.required("Thread")?;
            let (thread, weight) = (f.number("Thread")?.unwrap_or(0), f.number("Weight")?.unwrap_or(0));
            target.thread_targets.push(ThreadTarget { thread, weight });
        }
    }
    Ok(target)
}

fn content(node: Node<'_, '_>) -> Result<Content, XmlError> {
    let mut f = Fields::new(node, &["Pattern", "RandomDataSource"])?;
    f.required("Pattern")?;
    match f.text("Pattern").map(str::trim) {
        Some("sequential") => Ok(Content::Sequential),
        Some("zero") => Ok(Content::Zero),
        Some("random") => {
            let mut f = Fields::new(f.required("RandomDataSource")?, &["SizeInBytes", "FilePath"])?;
            f.required("SizeInBytes")?;
            let size = f.long("SizeInBytes")?.unwrap_or(0);
            Ok(Content::Buffer { size, file: f.text("FilePath").map(str::to_owned) })
        }
        _ => Err(f.bad("Pattern", "sequential, zero or random")),
    }
}

fn distribution(node: Node<'_, '_>) -> Result<Distribution, XmlError> {
    let f = Fields::new(node, &["Percent", "Absolute"])?;
    let (unit, node) = match (f.node("Percent"), f.node("Absolute")) {
        (Some(n), None) => (Unit::Percent, n),
        (None, Some(n)) => (Unit::Absolute, n),
        _ => {
            let why = "<Distribution> must contain either <Percent> or <Absolute>";
            return Err(XmlError::Conflict { line: line(node), why });
        }
    };
    let mut pairs = Vec::new();
    for range in repeated(node, "Range")? {
        let io = range.attribute("IO").and_then(|t| t.trim().parse::<u32>().ok()).filter(|n| *n <= 100);
        let length = range.text().and_then(|t| t.trim().parse::<u64>().ok());
        match (io, length, unit) {
            (Some(io), Some(n), Unit::Absolute) => pairs.push((io, n)),
            (Some(io), Some(n @ 1..=100), Unit::Percent) => pairs.push((io, n)),
            _ => return Err(value(range, "IO=\"0 to 100\" and a part: 1 to 100 percent, or bytes")),
        }
    }
    Ok(Distribution::new(unit, &pairs))
}

const PROFILE: [&str; 8] = [
    "TimeSpans",
    "Verbose",
    "VerboseStats",
    "Progress",
    "ExperimentFlags",
    "ResultFormat",
    "ETW",
    "PrecreateFiles",
];

const TIME_SPAN: [&str; 15] = [
    "Targets",
    "Duration",
    "Warmup",
    "Cooldown",
    "RandSeed",
    "RandomWriteData",
    "ThreadCount",
    "RequestCount",
    "GroupAffinity",
    "Affinity",
    "DisableAffinity",
    "CompletionRoutines",
    "MeasureLatency",
    "CalculateIopsStdDev",
    "IoBucketDuration",
];

const TARGET: [&str; 32] = [
    "Distribution",
    "Path",
    "BlockSize",
    "StrideSize",
    "InterlockedSequential",
    "BaseFileOffset",
    "SequentialScan",
    "RandomAccess",
    "TemporaryFile",
    "UseLargePages",
    "RequestCount",
    "Random",
    "DisableAllCache",
    "DisableLocalCache",
    "DisableOSCache",
    "WriteThrough",
    "MemoryMappedIo",
    "FlushType",
    "WriteBufferContent",
    "BurstSize",
    "ThinkTime",
    "Throughput",
    "ThreadsPerFile",
    "FileSize",
    "MaxFileSize",
    "WriteRatio",
    "RandomRatio",
    "ParallelAsyncIO",
    "ThreadStride",
    "IOPriority",
    "Weight",
    "ThreadTargets",
];
