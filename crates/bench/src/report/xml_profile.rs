//! The profile as DiskSPD's XML.

use super::xml_writer::Writer;
use crate::profile::{
    CacheMode, Content, FlushMode, Format, Precreate, Priority, Profile, Rate, Target, TimeSpan, Unit,
};

/// Writes `<Profile>`.
pub(super) fn profile(w: &mut Writer, profile: &Profile) {
    w.node("Profile", |w| {
        w.leaf("Progress", profile.progress);
        if profile.experiment_flags != 0 {
            w.leaf("ExperimentFlags", profile.experiment_flags);
        }
        // The schema allows only these two.
        w.leaf("ResultFormat", if profile.format == Format::Xml { "xml" } else { "text" });
        w.leaf("Verbose", profile.verbose);
        if profile.verbose_stats {
            w.leaf("VerboseStats", true);
        }
        if let Some(precreate) = profile.precreate {
            let word = match precreate {
                Precreate::UseMaxSize => "UseMaxSize",
                Precreate::OnlyFilesWithConstantSizes => "CreateOnlyFilesWithConstantSizes",
                Precreate::OnlyFilesWithConstantOrZeroSizes => "CreateOnlyFilesWithConstantOrZeroSizes",
            };
            w.leaf("PrecreateFiles", word);
        }
        w.node("TimeSpans", |w| profile.timespans.iter().for_each(|s| time_span(w, s)));
    });
}

fn time_span(w: &mut Writer, span: &TimeSpan) {
    w.node("TimeSpan", |w| {
        w.leaf("CompletionRoutines", span.completion_routines);
        w.leaf("MeasureLatency", span.measure_latency);
        w.leaf("CalculateIopsStdDev", span.iops_std_dev);
        w.leaf("DisableAffinity", span.disable_affinity);
        w.leaf("Duration", span.duration_s);
        w.leaf("Warmup", span.warmup_s);
        w.leaf("Cooldown", span.cooldown_s);
        w.leaf("ThreadCount", span.thread_count);
        w.leaf("RequestCount", span.request_count);
        w.leaf("IoBucketDuration", span.bucket_ms);
        w.leaf("RandSeed", span.seed);
        // DiskSPD reads this element but does not write it; without it -Zr would be lost.
        if span.random_write_data {
            w.leaf("RandomWriteData", true);
        }
        if !span.affinity.is_empty() {
            w.node("Affinity", |w| {
                for a in &span.affinity {
                    let attributes = [("Group", a.group.to_string()), ("Processor", a.processor.to_string())];
                    w.empty("AffinityGroupAssignment", &attributes);
                }
            });
        }
        w.node("Targets", |w| span.targets.iter().for_each(|t| target(w, t)));
    });
}

fn target(w: &mut Writer, target: &Target) {
    w.node("Target", |w| {
        w.leaf("Path", &target.path);
        w.leaf("BlockSize", target.block);
        w.leaf("BaseFileOffset", target.base);
        w.leaf("SequentialScan", target.sequential_hint);
        w.leaf("RandomAccess", target.random_hint);
        w.leaf("TemporaryFile", target.temporary_hint);
        w.leaf("UseLargePages", target.large_pages);
        match target.cache {
            CacheMode::Cached => {}
            CacheMode::NoLocalCache => w.leaf("DisableLocalCache", true),
            CacheMode::Unbuffered => w.leaf("DisableOSCache", true),
        }
        if target.write_through {
            w.leaf("WriteThrough", true);
        }
        if target.mapped {
            w.leaf("MemoryMappedIo", true);
        }
        if let Some(flush) = target.flush {
            let word = match flush {
                FlushMode::ViewOfFile => "ViewOfFile",
                FlushMode::NonVolatileMemory => "NonVolatileMemory",
                FlushMode::NonVolatileMemoryNoDrain => "NonVolatileMemoryNoDrain",
            };
            w.leaf("FlushType", word);
        }
        content(w, &target.content);
        w.leaf("ParallelAsyncIO", target.parallel);
        if target.burst > 0 {
            w.leaf("BurstSize", target.burst);
        }
        if target.think_ms > 0 {
            w.leaf("ThinkTime", target.think_ms);
        }
        if let Some(size) = target.create {
            w.leaf("FileSize", size);
        }
        pattern(w, target);
        w.leaf("ThreadStride", target.thread_stride);
        w.leaf("MaxFileSize", target.max_size);
        w.leaf("RequestCount", target.outstanding);
        w.leaf("WriteRatio", target.write_percent);
        match target.rate {
            Some(Rate::Iops(n)) => w.leaf_with("Throughput", &[("unit", "IOPS".to_owned())], n),
            Some(Rate::BytesPerMs(n)) => w.leaf("Throughput", n),
            None => w.leaf("Throughput", 0),
        }
        w.leaf("ThreadsPerFile", target.threads_per_file);
        let priority = match target.priority {
            Priority::VeryLow => 1,
            Priority::Low => 2,
            Priority::Normal => 3,
        };
        w.leaf("IOPriority", priority);
        w.leaf("Weight", target.weight);
        if !target.thread_targets.is_empty() {
            w.node("ThreadTargets", |w| {
                for t in &target.thread_targets {
                    w.node("ThreadTarget", |w| {
                        w.leaf("Thread", t.thread);
                        if t.weight != 0 {
                            w.leaf("Weight", t.weight);
                        }
                    });
                }
            });
        }
    });
}

fn content(w: &mut Writer, content: &Content) {
    w.node("WriteBufferContent", |w| match content {
        Content::Zero => w.leaf("Pattern", "zero"),
        Content::Sequential => w.leaf("Pattern", "sequential"),
        Content::Buffer { size, file } => {
            w.leaf("Pattern", "random");
            w.node("RandomDataSource", |w| {
                w.leaf("SizeInBytes", size);
                if let Some(file) = file {
                    w.leaf("FilePath", file);
                }
            });
        }
    });
}

fn pattern(w: &mut Writer, target: &Target) {
    if target.random_percent == 0 {
        w.leaf("StrideSize", target.alignment());
        w.leaf("InterlockedSequential", target.interlocked);
        return;
    }
    w.leaf("Random", target.alignment());
    if target.random_percent != 100 {
        w.leaf("RandomRatio", target.random_percent);
    }
    let Some(distribution) = &target.distribution else { return };
    let unit = match distribution.unit {
        Unit::Percent => "Percent",
        Unit::Absolute => "Absolute",
    };
    w.node("Distribution", |w| {
        w.node(unit, |w| {
            for r in &distribution.ranges {
                w.leaf_with("Range", &[("IO", r.io_percent.to_string())], r.length);
            }
        });
    });
}
