//! Validates profiles from any source: DiskSPD's rules, and limits on a run's resources.

use super::OptionError;
use crate::profile::{CacheMode, Content, Distribution, FlushMode, Profile, Target, TimeSpan, Unit};

/// Maximum threads of a run.
pub const THREADS_MAX: u64 = 8192;
/// Maximum outstanding I/Os of a thread: the size of one io_uring.
pub const OUTSTANDING_MAX: u64 = 32_768;
/// The longest phase, in seconds: 30 days.
pub const PHASE_MAX_S: u32 = 30 * 24 * 3600;
/// Maximum intervals of `-D` in a run.
pub const INTERVALS_MAX: u64 = 1_000_000;
/// The largest write buffer (`-Z<size>`), in bytes.
pub const WRITE_BUFFER_MAX: u64 = 16 << 30;

/// Checks a profile; returns warnings for options without effect.
///
/// # Errors
/// See [`OptionError`].
pub fn validate(profile: &Profile) -> Result<Vec<String>, OptionError> {
    let mut warnings = Vec::new();
    if profile.timespans.is_empty() {
        return Err(OptionError::NoTarget);
    }
    for span in &profile.timespans {
        check_span(span)?;
        for target in &span.targets {
            check_target(span, target, &mut warnings)?;
            if target.is_template() && !profile.profile_only {
                return Err(OptionError::Template(target.path.clone()));
            }
        }
    }
    warnings.dedup();
    Ok(warnings)
}

fn check_span(span: &TimeSpan) -> Result<(), OptionError> {
    if span.targets.is_empty() {
        return Err(OptionError::NoTarget);
    }
    if span.disable_affinity && !span.affinity.is_empty() {
        return Err(OptionError::Conflict("-n turns affinity off and -a sets it: leave one out"));
    }
    most("threads (-t, -F)", span.threads(), THREADS_MAX)?;
    for (what, seconds) in [
        ("seconds of -d", span.duration_s),
        ("seconds of -W", span.warmup_s),
        ("seconds of -C", span.cooldown_s),
    ] {
        most(what, seconds.into(), PHASE_MAX_S.into())?;
    }
    let intervals = (u64::from(span.duration_s) * 1000).div_ceil(u64::from(span.bucket_ms.max(1)));
    if span.iops_std_dev {
        most("intervals of -D (make it longer)", intervals, INTERVALS_MAX)?;
    }
    let outstanding = if span.pooled() {
        u64::from(span.request_count)
    } else if span.thread_count > 0 {
        span.targets.iter().map(|t| u64::from(t.outstanding)).sum()
    } else {
        span.targets.iter().map(|t| u64::from(t.outstanding)).max().unwrap_or(0)
    };
    most("outstanding I/Os of a thread (-o, -O)", outstanding, OUTSTANDING_MAX)
}

fn most(what: &'static str, value: u64, most: u64) -> Result<(), OptionError> {
    if value > most { Err(OptionError::TooMuch { what, value, most }) } else { Ok(()) }
}

fn conflict(holds: bool, text: &'static str) -> Result<(), OptionError> {
    if holds { Err(OptionError::Conflict(text)) } else { Ok(()) }
}

fn check_target(span: &TimeSpan, target: &Target, warnings: &mut Vec<String>) -> Result<(), OptionError> {
    conflict(
        span.thread_count > 0 && target.threads_per_file > 1,
        "-F sets the total number of threads and -t the number for each target: leave one out",
    )?;
    conflict(
        target.rate.is_some() && span.completion_routines,
        "-g cannot be used with -x completion routines: leave -x out",
    )?;
    conflict(
        (target.burst > 0) != (target.think_ms > 0),
        "-i sets the number of I/Os in a burst and -j the pause after it: give both",
    )?;
    if target.rate.is_some() && target.burst > 0 {
        warnings.push("-g sets the rate; the bursts of -i and -j have no effect".to_owned());
    }
    if span.pooled() {
        conflict(
            target.rate.is_some(),
            "-g limits a target, and -O shares I/Os over targets: leave one out",
        )?;
        conflict(
            target.think_ms > 0,
            "-j pauses on a target, and -O shares I/Os over targets: leave one out",
        )?;
        conflict(
            target.parallel,
            "-p keeps an offset for each I/O of a target, and -O shares I/Os over targets: leave one out",
        )?;
        conflict(target.weight == 0, "a target of a thread pool must have a Weight of at least 1")?;
        conflict(
            target.thread_targets.iter().any(|t| t.thread >= span.thread_count),
            "a ThreadTarget names a thread that does not exist: threads have the numbers 0 to ThreadCount - 1",
        )?;
    } else {
        conflict(
            !target.thread_targets.is_empty(),
            "ThreadTargets need ThreadCount and RequestCount in their time span",
        )?;
    }
    if span.thread_count == 0 && span.request_count > 0 {
        warnings.push("-O has no effect without -F; -o counts I/Os of each target".to_owned());
    }
    check_pattern(span, target, warnings)?;
    if let Some(distribution) = &target.distribution {
        check_distribution(distribution, target.block).map_err(OptionError::Distribution)?;
    }
    check_caching(span, target)?;
    if let Content::Buffer { size, .. } = target.content {
        if size < u64::from(target.block) {
            return Err(OptionError::WriteBuffer { buffer: size, block: target.block });
        }
        most("bytes of a write buffer (-Z)", size, WRITE_BUFFER_MAX)?;
    }
    conflict(
        target.max_size != 0 && target.max_size <= target.base,
        "-f sets the end of the range and -B its beginning: -f must be larger",
    )
}

fn check_pattern(span: &TimeSpan, target: &Target, warnings: &mut Vec<String>) -> Result<(), OptionError> {
    if target.random_percent > 0 {
        conflict(
            target.thread_stride > 0,
            "-T sets the distance of sequential threads, and -r is random: leave one out",
        )?;
        conflict(target.interlocked, "-si is sequential, and -r is random: leave one out")?;
        return conflict(target.parallel, "-p is sequential, and -r is random: leave one out");
    }
    conflict(target.distribution.is_some(), "-rd distributes random I/O: add -r, or leave it out")?;
    if target.parallel && target.outstanding == 1 {
        warnings.push("-p has no effect unless more than one I/O is outstanding (-o)".to_owned());
    }
    let many = span.thread_count > 1 || target.threads_per_file > 1;
    if target.interlocked {
        conflict(
            target.thread_stride > 0,
            "-si shares one offset, and -T sets the distance of threads: leave one out",
        )?;
        conflict(target.parallel, "-si shares one offset, and -p has one for each I/O: leave one out")?;
        if !many {
            warnings.push("-si has no effect with one thread".to_owned());
        }
    } else if many && target.thread_stride == 0 {
        warnings.push(
            "all threads use the same offsets, so the I/O is not one sequential stream: consider -si or -T"
                .to_owned(),
        );
    } else if !many {
        conflict(
            target.thread_stride > 0,
            "-T sets the distance of threads, and there is only one thread: add -t or leave -T out",
        )?;
    }
    Ok(())
}

fn check_caching(span: &TimeSpan, target: &Target) -> Result<(), OptionError> {
    if !target.mapped {
        return conflict(target.flush.is_some(), "-N sets how a mapping is flushed: add -Sm or leave -N out");
    }
    conflict(span.completion_routines, "-x cannot be used with a mapping (-Sm): leave one out")?;
    conflict(
        target.cache == CacheMode::Unbuffered,
        "-Su and -Sh forbid the cache, and a mapping (-Sm) is the cache: leave one out",
    )?;
    conflict(
        matches!(target.flush, Some(FlushMode::NonVolatileMemory | FlushMode::NonVolatileMemoryNoDrain)),
        "-Nn and -Ni flush persistent memory with a Windows call: use -Nv (msync), which is durable on DAX too",
    )
}

fn check_distribution(distribution: &Distribution, block: u32) -> Result<(), String> {
    let (mut io, mut part) = (0u32, 0u64);
    let last = distribution.ranges.len().saturating_sub(1);
    for (at, range) in distribution.ranges.iter().enumerate() {
        let open_end = range.length == 0 && at == last;
        if distribution.unit == Unit::Absolute && !open_end && range.length < u64::from(block) {
            return Err(format!(
                "a part of {} bytes is smaller than a block ({block} bytes): make it larger",
                range.length
            ));
        }
        if io.saturating_add(range.io_percent) > 100 {
            let left = 100 - io.min(100);
            return Err(format!("IO% {}: only {left} of 100 remain", range.io_percent));
        }
        if distribution.unit == Unit::Percent {
            if part.saturating_add(range.length) > 100 {
                return Err(format!("target% {}: only {} of 100 remain", range.length, 100 - part));
            }
            if part + range.length == 100 && io + range.io_percent < 100 {
                let left = 100 - io - range.io_percent;
                return Err(format!("the whole target is covered, but {left}% of the I/O has no part"));
            }
        }
        io += range.io_percent;
        part = part.saturating_add(range.length);
    }
    if distribution.unit == Unit::Percent && part != 100 {
        return Err(format!("target% add up to {part}, not to 100"));
    }
    Ok(())
}
