//! The first part of the text report: the requested run.

use super::distribution;
use super::size::size;
use crate::profile::{CacheMode, Content, FlushMode, Priority, Profile, Rate, Target, TimeSpan};

/// `Input parameters`, preceded by the command line.
pub(super) fn profile(profile: &Profile) -> String {
    let mut out = format!("\nCommand Line: {}\n\n", profile.command_line);
    if profile.experiment_flags != 0 {
        let flags = profile.experiment_flags;
        out.push_str(&format!("Experiment Flags: 0x{flags:x} ({flags})\n\n"));
    }
    out.push_str("Input parameters:\n\n");
    if profile.verbose {
        out.push_str("\tusing verbose mode\n");
    }
    for (n, span) in profile.timespans.iter().enumerate() {
        out.push_str(&format!("\ttimespan: {:3}\n\t-------------\n", n + 1));
        time_span(&mut out, span);
        out.push('\n');
    }
    out
}

fn time_span(out: &mut String, span: &TimeSpan) {
    let mut line = |text: &str| {
        out.push('\t');
        out.push_str(text);
        out.push('\n');
    };
    line(&format!("duration: {}s", span.duration_s));
    line(&format!("warm up time: {}s", span.warmup_s));
    line(&format!("cool down time: {}s", span.cooldown_s));
    if span.disable_affinity {
        line("affinity disabled");
    }
    if span.measure_latency {
        line("measuring latency");
    }
    if span.iops_std_dev {
        line(&format!("gathering IOPS at intervals of {}ms", span.bucket_ms));
    }
    line(&format!("random seed: {}", span.seed));
    if span.thread_count != 0 {
        line(&format!("thread pool with {} threads", span.thread_count));
        line(&format!("number of outstanding I/O operations per thread: {}", span.request_count));
    }
    if !span.affinity.is_empty() {
        let all: Vec<String> = span.affinity.iter().map(|a| format!("{}/{}", a.group, a.processor)).collect();
        line(&format!("advanced affinity round robin (group/core): {}", all.join(", ")));
    }
    if span.random_write_data {
        line("generating random data for each write IO");
        line("  WARNING: this increases the CPU cost of issuing writes and should only");
        line("           be compared to other results using the -Zr flag");
    }
    for target in &span.targets {
        out.push_str(&self::target(span, target));
    }
}

/// A target with its options.
pub(super) fn target(span: &TimeSpan, target: &Target) -> String {
    let path = match target.path.strip_prefix('*') {
        Some(number) => format!("\tpath: template target '{number}'\n"),
        None => format!("\tpath: '{}'\n", target.path),
    };
    let mut out = path;
    let mut line = |text: &str| {
        out.push_str("\t\t");
        out.push_str(text);
        out.push('\n');
    };
    line(&format!("think time: {}ms", target.think_ms));
    line(&format!("burst size: {}", target.burst));
    caching(target, &mut line);
    match &target.content {
        Content::Sequential => {}
        Content::Zero => line("zeroing write buffers"),
        Content::Buffer { size: bytes, file } => {
            line(&format!("write buffer size: {}", size(*bytes)));
            match file {
                Some(file) => line(&format!("write buffer source: '{file}'")),
                None => line("write buffer source: random fill"),
            }
        }
    }
    if target.parallel {
        line("using parallel async I/O");
    }
    match target.write_percent {
        0 => line("performing read test"),
        100 => line("performing write test"),
        n => line(&format!("performing mix test (read/write ratio: {}/{n})", 100 - n)),
    }
    line(&format!("block size: {}", size(target.block.into())));
    let align = size(target.alignment());
    match target.random_percent {
        100 => line(&format!("using random I/O (alignment: {align})")),
        0 => {
            let interlocked = if target.interlocked { " interlocked" } else { "" };
            line(&format!("using{interlocked} sequential I/O (stride: {align})"));
        }
        n => line(&format!("using mixed random/sequential I/O ({n}% random) (alignment/stride: {align})")),
    }
    if span.pooled() {
        line(&format!("relative IO weight in thread pool: {}", target.weight));
    } else {
        line(&format!("number of outstanding I/O operations per thread: {}", target.outstanding));
    }
    if target.base != 0 {
        line(&format!("base file offset: {}", size(target.base)));
    }
    if target.max_size != 0 {
        line(&format!("max file size: {}", size(target.max_size)));
    }
    if target.thread_stride != 0 {
        line(&format!("thread stride size: {}", size(target.thread_stride)));
    }
    if target.sequential_hint {
        line("using FILE_FLAG_SEQUENTIAL_SCAN hint");
    }
    if target.random_hint {
        line("using FILE_FLAG_RANDOM_ACCESS hint");
    }
    if target.temporary_hint {
        line("using FILE_ATTRIBUTE_TEMPORARY hint");
    }
    if span.thread_count == 0 {
        line(&format!("threads per file: {}", target.threads_per_file));
        if target.outstanding > 1 {
            // DiskSPD's texts, for programs that parse them; the actual I/O method is printed after the
            // results.
            line(if span.completion_routines {
                "using completion routines (ReadFileEx/WriteFileEx)"
            } else {
                "using I/O Completion Ports"
            });
        }
    }
    line(match target.priority {
        Priority::VeryLow => "IO priority: very low",
        Priority::Low => "IO priority: low",
        Priority::Normal => "IO priority: normal",
    });
    match target.rate {
        Some(Rate::Iops(n)) => line(&format!("throughput rate-limited to {n} IOPS")),
        Some(Rate::BytesPerMs(n)) => line(&format!("throughput rate-limited to {n} B/ms")),
        None => {}
    }
    if let Some(d) = &target.distribution {
        line("IO Distribution:");
        out.push_str(&distribution::lines(d, "\t\t"));
    }
    out
}

fn caching(target: &Target, line: &mut impl FnMut(&str)) {
    line(match target.cache {
        CacheMode::Cached => "using software cache",
        CacheMode::NoLocalCache => "local software cache disabled, remote cache enabled",
        CacheMode::Unbuffered => "software cache disabled",
    });
    line(match (target.write_through, target.cache) {
        (false, _) => "using hardware write cache, writethrough off",
        (true, CacheMode::Unbuffered) => "hardware write cache disabled, writethrough on",
        (true, _) => "hardware and software write caches disabled, writethrough on",
    });
    if target.mapped {
        let flush = match target.flush {
            None => "",
            Some(FlushMode::ViewOfFile) => ", flush mode: FlushViewOfFile",
            Some(FlushMode::NonVolatileMemory) => ", flush mode: FlushNonVolatileMemory",
            Some(FlushMode::NonVolatileMemoryNoDrain) => ", flush mode: FlushNonVolatileMemory with no drain",
        };
        line(&format!("memory mapped I/O enabled{flush}"));
    }
}
