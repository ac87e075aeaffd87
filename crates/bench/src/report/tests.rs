//! Compares reports with texts composed by hand from DiskSPD's documented layout.

use std::time::Duration;

use super::*;
use crate::engine::{
    CpuTimes, Fault, ProcessCpu, Processor, SpanResults, Tally, TargetResults, ThreadResults, Verified,
};
use crate::options::{ParseContext, parse, xml as read_xml};
use crate::profile::{Profile, Target, TimeSpan};

mod xml_layout;

const MS: fn(u64) -> Duration = Duration::from_millis;

fn system() -> SystemInfo {
    SystemInfo { processors: vec![Processor::default()], ..SystemInfo::default() }
}

fn cpu() -> Vec<CpuTimes> {
    vec![CpuTimes { user: 30, kernel: 25, idle: 45, steal: 0 }]
}

fn asked(words: &str) -> Profile {
    let args: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    let world = ParseContext { read: &|_| Err(std::io::ErrorKind::NotFound.into()), seed: 0 };
    parse(&args, &world).expect("accepted").profile
}

/// The example of the documentation: 16 I/Os in two minutes, a read in each interval of one second.
fn example() -> (Profile, SpanResults) {
    let span = TimeSpan { iops_std_dev: true, ..TimeSpan::default() };
    let profile = Profile { timespans: vec![span], ..Profile::default() };
    let mut read = Tally::new(false, Some((10, MS(1000))));
    (0..10).for_each(|n| read.add(0, Duration::ZERO, MS(n * 1000 + 500)));
    (read.ios, read.bytes) = (6, 4 << 20);
    let write = Tally { ios: 10, bytes: 2 << 20, ..Tally::default() };
    let target = TargetResults {
        path: "testfile1.dat".to_owned(),
        size: 10 << 20,
        read,
        write,
        ..TargetResults::default()
    };
    let threads = vec![ThreadResults { targets: vec![target], ..ThreadResults::default() }];
    let results = SpanResults { elapsed: MS(120_000), threads, cpu: cpu(), ..SpanResults::default() };
    (profile, results)
}

fn section(bytes: u64, ios: u64, rates: &str) -> String {
    format!(
        "thread |       bytes     |     I/Os     |    MiB/s   |  I/O per s | IopsStdDev |  file
-------------------------------------------------------------------------------------------
     0 | {bytes:>15} | {ios:>12} | {rates} |       0.00 | testfile1.dat (10MiB)
-------------------------------------------------------------------------------------------
total:   {bytes:>15} | {ios:>12} | {rates} |       0.00
"
    )
}

#[test]
fn the_example_as_text() {
    let (profile, results) = example();
    let expected = format!(
        "
Command Line: 

Input parameters:

\ttimespan:   1
\t-------------
\tduration: 10s
\twarm up time: 5s
\tcool down time: 0s
\tgathering IOPS at intervals of 1000ms
\trandom seed: 0

System information:

\tcomputer name: 
\tstart time: 

\tcpu count:\t\t1
\tcore count:\t\t1
\tgroup count:\t\t1
\tnode count:\t\t1
\tsocket count:\t\t1
\theterogeneous cores:\tn

\tactive power scheme:\t

Results for timespan 1:
*******************************************************************************

actual test time:\t120.00s
thread count:\t\t1

CPU |  Usage |  User  | Kernel |  Idle
----------------------------------------
   0|  55.00%|  30.00%|  25.00%|  45.00%
----------------------------------------
avg.|  55.00%|  30.00%|  25.00%|  45.00%

Total IO
{}
Read IO
{}
Write IO
{}",
        section(6_291_456, 16, "      0.05 |       0.13"),
        section(4_194_304, 6, "      0.03 |       0.05"),
        section(2_097_152, 10, "      0.02 |       0.08"),
    );
    let system = system();
    let report = Report { profile: &profile, system: &system, spans: &[results] };
    assert_eq!(text::report(&report), expected);
}

#[test]
fn a_profile_as_text() {
    let profile = asked("-b4K -r -rdpct90/10:0/10 -w30 -o8 -Sh -t2 -L -g100i -Z1M -B1M:9M -z3 -a0,1 f");
    let expected = "
Command Line: -b4K -r -rdpct90/10:0/10 -w30 -o8 -Sh -t2 -L -g100i -Z1M -B1M:9M -z3 -a0,1 f

Input parameters:

\ttimespan:   1
\t-------------
\tduration: 10s
\twarm up time: 5s
\tcool down time: 0s
\tmeasuring latency
\trandom seed: 3
\tadvanced affinity round robin (group/core): 0/0, 0/1
\tpath: 'f'
\t\tthink time: 0ms
\t\tburst size: 0
\t\tsoftware cache disabled
\t\thardware write cache disabled, writethrough on
\t\twrite buffer size: 1MiB
\t\twrite buffer source: random fill
\t\tperforming mix test (read/write ratio: 70/30)
\t\tblock size: 4KiB
\t\tusing random I/O (alignment: 4KiB)
\t\tnumber of outstanding I/O operations per thread: 8
\t\tbase file offset: 1MiB
\t\tmax file size: 10MiB
\t\tthreads per file: 2
\t\tusing I/O Completion Ports
\t\tIO priority: normal
\t\tthroughput rate-limited to 100 IOPS
\t\tIO Distribution:
\t\t    90% of IO => [ 0% -  10%) of target
\t\t     0% of IO => [10% -  20%) of target
\t\t    10% of IO => [20% - 100%) of target

";
    assert_eq!(text::profile(&profile), expected);
    let lines = |words: &str| text::profile(&asked(words));
    assert!(lines("-f2000K f").contains("\t\tmax file size: 1.95MiB\n"));
    assert!(lines("-F2 -O4 f g").contains("\t\trelative IO weight in thread pool: 1\n"));
    assert!(lines("-Sr f").contains("\t\tlocal software cache disabled, remote cache enabled\n"));
    assert!(lines("-Sbw f").contains("\t\thardware and software write caches disabled, writethrough on\n"));
    assert!(lines("-Sm -Nv f").contains("\t\tmemory mapped I/O enabled, flush mode: FlushViewOfFile\n"));
    assert!(
        lines("-rs30 -r4K f")
            .contains("\t\tusing mixed random/sequential I/O (30% random) (alignment/stride: 4KiB)\n")
    );
    assert!(lines("-si -t2 f").contains("\t\tusing interlocked sequential I/O (stride: 64KiB)\n"));
}

/// Two targets with latencies of 1 ms (reads) and 3 ms (a write).
fn with_latency() -> (Profile, SpanResults) {
    let profile = asked("-L -D -d2 -W0 -b4K a b");
    let shape = Some((2, MS(1000)));
    let target = |path: &str, writes: u64| {
        let (mut read, mut write) = (Tally::new(true, shape), Tally::new(true, shape));
        (0..4).for_each(|n| read.add(4096, MS(1), MS(500 * n)));
        (0..writes).for_each(|_| write.add(4096, MS(3), MS(1500)));
        TargetResults { path: path.to_owned(), size: 1 << 20, read, write, ..TargetResults::default() }
    };
    let targets = [target("a", 0), target("b", 1)];
    let threads = targets.map(|t| ThreadResults { targets: vec![t], ..ThreadResults::default() }).to_vec();
    let results = SpanResults { elapsed: MS(2000), threads, cpu: cpu(), ..SpanResults::default() };
    (profile, results)
}

#[test]
fn latencies_as_text() {
    let (profile, results) = with_latency();
    let system = system();
    let out = text::report(&Report { profile: &profile, system: &system, spans: &[results] });
    let write = "
Write IO
thread |       bytes     |     I/Os     |    MiB/s   |  I/O per s |  AvgLat  | IopsStdDev | LatStdDev |  file
------------------------------------------------------------------------------------------------------------------
     0 |               0 |            0 |       0.00 |       0.00 |    0.000 |       0.00 |       N/A | a (1MiB)
     1 |            4096 |            1 |       0.00 |       0.50 |    3.000 |       0.50 |     0.000 | b (1MiB)
------------------------------------------------------------------------------------------------------------------
total:              4096 |            1 |       0.00 |       0.50 |    3.000 |       0.50 |     0.000

Latency distribution: a
  %-ile |  Read (ms) | Write (ms) | Total (ms)
----------------------------------------------
    min |      1.000 |        N/A |      1.000
   25th |      1.000 |        N/A |      1.000
";
    assert!(out.contains(write), "{out}");
    let total = out.split("Total latency distribution:\n").nth(1).expect("the last chart");
    assert_eq!(total.lines().count(), 2 + 15);
    assert!(total.contains("\n7-nines |      "), "{total}");
    assert!(
        total.lines().last().is_some_and(|l| l.starts_with("    max |      1.000 |      3.000")),
        "{total}"
    );
}

#[test]
fn what_went_wrong_is_in_every_report() {
    let (profile, mut results) = example();
    results.engine = "io_uring".to_owned();
    results.unfinished = 2;
    let target = &mut results.threads[0].targets[0];
    target.short = 3;
    target.overdue = 9;
    target.errors.insert(Fault::System(5), 7);
    target.verified = Some(Verified { sectors: 11, mismatches: 1, ..Verified::default() });
    results.processes.push(ProcessCpu { pid: 42, name: "smbd".to_owned(), cpu_s: 0.8 });
    let system = system();
    let report = Report { profile: &profile, system: &system, spans: &[results] };
    let out = text::report(&report);
    for words in [
        "7 I/Os: Input/output error",
        "3 I/Os moved less",
        "2 I/Os did not complete",
        "9 I/Os were due",
        "11 sectors",
        "MISMATCH:\t\t1 sectors",
        "     42 |     0.80 |   0.01 |  50000.000 | smbd",
    ] {
        assert!(out.contains(words), "{words}: {out}");
    }
    let out = xml::report(&report);
    let document = roxmltree::Document::parse(&out).expect("XML");
    let names: Vec<_> =
        document.descendants().filter(|n| n.is_element()).map(|n| n.tag_name().name()).collect();
    for name in ["Failed", "ShortCount", "UnfinishedCount", "OverdueCount", "Verified", "Process"] {
        assert!(names.contains(&name), "{name}");
    }
    let out = json::report(&report, &[], &[]).expect("JSON");
    let json: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    let span = &json["timespans"][0];
    assert_eq!((span["errors"][0]["count"].as_u64(), span["short"].as_u64()), (Some(7), Some(3)));
    assert_eq!(span["processes"][0]["us_per_io"].as_f64(), Some(50_000.0));
    assert_eq!(span["verified"]["mismatches"].as_u64(), Some(1));
}

#[test]
fn a_profile_survives_xml() {
    for words in [
        "f",
        "-b4K -r -rdpct90/10:0/10 -w30 -o8 -Sh -t2 -L -D50 -g100i -Z1M,x -B1M:9M -z3 -a0,g1,1 -Zr f g",
        "-rs30 -r8K -Sr -ft -i3 -j4 -I1 -l -P9 -v -vs -:1 -C3 -W2 -c1G f",
        "-rdabs10/1M:20/2M -r -g7 -Sw f",
        "-si64K -t4 -Sm -Nv f",
        "-p -o4 -s128K -Z f",
        "-F3 -O7 -n *1 <&\">",
    ] {
        let args: Vec<String> = format!("-Rpxml {words}").split_whitespace().map(str::to_owned).collect();
        let world = ParseContext { read: &|_| Err(std::io::ErrorKind::NotFound.into()), seed: 0 };
        let mut profile = parse(&args, &world).expect("accepted").profile;
        let out = xml::profile(&profile);
        let mut again =
            read_xml::read(&out, &[], &mut Vec::new()).unwrap_or_else(|e| panic!("{words}: {e}\n{out}"));
        // The document does not contain these.
        (profile.command_line, profile.profile_only) = (String::new(), false);
        for span in profile.timespans.iter_mut().chain(&mut again.timespans) {
            span.targets.iter_mut().for_each(|t| t.alignment = t.alignment());
        }
        assert_eq!(again, profile, "{words}\n{out}");
    }
}

#[test]
fn templates_need_paths() {
    let profile = Profile {
        timespans: vec![TimeSpan {
            targets: vec![Target { path: "*2".to_owned(), ..Target::default() }],
            ..TimeSpan::default()
        }],
        ..Profile::default()
    };
    let text = xml::profile(&profile);
    let read = |paths: &[&str]| {
        let paths: Vec<String> = paths.iter().map(|p| (*p).to_owned()).collect();
        read_xml::read(&text, &paths, &mut Vec::new()).map(|p| p.timespans[0].targets[0].path.clone())
    };
    assert!(matches!(read(&["a", "b"]), Err(read_xml::XmlError::UnusedSubstitute(p)) if p == "a"));
    assert!(matches!(read(&["a"]), Err(read_xml::XmlError::NoSubstitute(_))));
    assert_eq!(read(&[]).expect("left as it is"), "*2");
    for bad in [
        "<Profile/>",
        "<Profile><TimeSpans><TimeSpan/></TimeSpans></Profile>",
        "<Profile><Verbose>perhaps</Verbose><TimeSpans><TimeSpan><Targets><Target><Path>f</Path></Target></Targets></TimeSpan></TimeSpans></Profile>",
        "<Profile><TimeSpans><TimeSpan><Targets><Target><Path>f</Path><Sheep>1</Sheep></Target></Targets></TimeSpan></TimeSpans></Profile>",
        "<Profile><TimeSpans><TimeSpan><Targets><Target><Path>f</Path><Path>g</Path></Target></Targets></TimeSpan></TimeSpans></Profile>",
        "<Profile><TimeSpans><TimeSpan><Targets><Target><Path>f</Path><StrideSize>1</StrideSize><Random>1</Random></Target></Targets></TimeSpan></TimeSpans></Profile>",
        "<!DOCTYPE a [<!ENTITY b 'c'>]><Profile>&b;</Profile>",
    ] {
        assert!(read_xml::read(bad, &[], &mut Vec::new()).is_err(), "{bad}");
    }
}

#[test]
fn several_time_spans_have_totals() {
    let (mut profile, results) = example();
    profile.timespans.push(profile.timespans[0].clone());
    let system = system();
    let out =
        text::report(&Report { profile: &profile, system: &system, spans: &[results.clone(), results] });
    let expected = "

Totals:
*******************************************************************************

type   |       bytes     |     I/Os     |    MiB/s   |  I/O per s
-------------------------------------------------------------------------------
write  |         4194304 |           20 |       0.02 |       0.08
read   |         8388608 |           12 |       0.03 |       0.05
-------------------------------------------------------------------------------
total  |        12582912 |           32 |       0.05 |       0.13

total test time:\t240.00s
";
    assert!(out.ends_with(expected), "{out}");
}

#[test]
fn sqlios_summary() {
    let (_, results) = with_latency();
    let out = sqlio::summary(&results);
    assert!(out.contains("IOs/sec:     4.50\nMBs/sec:     0.02\n"), "{out}");
    assert!(out.contains("ms:  0  1  2  3"), "{out}");
    assert!(out.contains("%:   0 89  0 11"), "{out}");
}

#[test]
fn dates() {
    assert_eq!(utc(0), "1970/01/01 00:00:00 UTC");
    assert_eq!(utc(951_868_799), "2000/02/29 23:59:59 UTC");
    assert_eq!(utc(1_795_277_270), "2026/11/21 16:07:50 UTC");
}
