use proptest::prelude::*;

use super::*;
use crate::profile::*;

fn no_files(_: &str) -> io::Result<String> {
    Err(io::ErrorKind::NotFound.into())
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn diskspd(text: &str) -> Result<Parsed, OptionError> {
    parse(&words(text), &ParseContext { read: &no_files, seed: 77 })
}

fn old(text: &str) -> Result<Parsed, OptionError> {
    sqlio::parse(&words(text), &ParseContext { read: &no_files, seed: 0 })
}

fn target(text: &str) -> Target {
    let parsed = diskspd(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    parsed.profile.timespans[0].targets[0].clone()
}

fn span(text: &str) -> TimeSpan {
    diskspd(text).unwrap_or_else(|e| panic!("{text}: {e}")).profile.timespans[0].clone()
}

fn refused(text: &str) -> String {
    match diskspd(text) {
        Err(e) => e.to_string(),
        Ok(_) => panic!("{text}: accepted"),
    }
}

#[test]
fn defaults_are_diskspds() {
    let span = span("file");
    assert_eq!(
        span,
        TimeSpan {
            targets: vec![Target { path: "file".into(), ..Target::default() }],
            ..TimeSpan::default()
        }
    );
    assert_eq!((span.duration_s, span.warmup_s, span.cooldown_s, span.seed), (10, 5, 0, 0));
    assert_eq!(
        (span.targets[0].block, span.targets[0].outstanding, span.targets[0].threads_per_file),
        (65536, 2, 1)
    );
}

#[test]
fn the_examples_of_its_usage() {
    let t = target("-c8192K -d1 testfile.dat");
    assert_eq!(t.create, Some(8 << 20));
    let t = target("-b4K -t2 -r -o32 -d10 -Sh testfile.dat");
    assert_eq!((t.block, t.threads_per_file, t.random_percent, t.outstanding), (4096, 2, 100, 32));
    assert_eq!((t.cache, t.write_through), (CacheMode::Unbuffered, true));
    let s = span("-c1G -b4K -t2 -d10 -a0,1 testfile1.dat testfile2.dat");
    assert_eq!(s.targets.len(), 2);
    assert_eq!(s.affinity, vec![Affinity { group: 0, processor: 0 }, Affinity { group: 0, processor: 1 }]);
    assert_eq!(s.threads(), 4);
}

#[test]
fn blocks_count_wherever_b_stands() {
    assert_eq!(target("-c8b -b4k f").create, Some(32768));
    assert_eq!(target("-b4k -B2b:8b f").base, 8192);
    assert_eq!(target("-b4k -B2b:8b f").max_size, 40960);
    assert_eq!(target("-b8k -s2b f").alignment, 16384);
}

#[test]
fn patterns() {
    let t = target("-r4K -rs70 -b8K f");
    assert_eq!((t.random_percent, t.alignment), (70, 4096));
    let t = target("-rs70 -r4K f");
    assert_eq!((t.random_percent, t.alignment), (70, 4096));
    assert_eq!(target("-rs100 -r4K f").random_percent, 100);
    assert!(target("-si4K -t2 f").interlocked);
    assert_eq!(target("-s0 f").alignment(), 65536);
    let d = target("-r -b4K -rdpct90/10:0/10:5/20 f").distribution.expect("a distribution");
    assert_eq!(d.ranges.last(), Some(&Range { io_percent: 5, start: 40, length: 60 }));
    let d = target("-r -b4K -rdabs90/10G:0/10G f").distribution.expect("a distribution");
    assert_eq!(d.ranges[2], Range { io_percent: 10, start: 20 << 30, length: 0 });
}

#[test]
fn everything_else_that_is_accepted() {
    let s = span("-F4 -O16 -L -D250 -n -z9 -Zr -W1 -C2 -d3 f g");
    assert_eq!((s.thread_count, s.request_count, s.bucket_ms, s.seed), (4, 16, 250, 9));
    assert!(s.measure_latency && s.iops_std_dev && s.disable_affinity && s.random_write_data && s.pooled());
    assert_eq!((s.warmup_s, s.cooldown_s, s.duration_s), (1, 2, 3));
    assert_eq!(span("-z f").seed, 77);
    assert_eq!(span("-ag f").affinity, vec![]);
    assert_eq!(span("-ag0,0,1,g1,2 f").affinity[2], Affinity { group: 1, processor: 2 });
    let t = target("-g80 -w30 -Z1M,data -I1 -l -frst f");
    assert_eq!((t.rate, t.write_percent, t.priority), (Some(Rate::BytesPerMs(80)), 30, Priority::VeryLow));
    assert_eq!(t.content, Content::Buffer { size: 1 << 20, file: Some("data".into()) });
    assert!(t.large_pages && t.random_hint && t.sequential_hint && t.temporary_hint);
    assert_eq!(target("-g500i f").rate, Some(Rate::Iops(500)));
    let t = target("-Smw -Nv -i5 -j10 f");
    assert!(t.mapped && t.write_through && t.flush == Some(FlushMode::ViewOfFile));
    assert_eq!((t.burst, t.think_ms), (5, 10));
    assert_eq!(target("-S f").cache, CacheMode::Unbuffered);
    assert_eq!(target("-h f").cache, CacheMode::Unbuffered);
    let p = diskspd("-Rpxml -P -v -vs -:1 -x f").expect("accepted").profile;
    assert!(p.profile_only && p.verbose && p.verbose_stats && p.format == Format::Xml);
    assert_eq!((p.progress, p.experiment_flags), (65536, 1));
    assert_eq!(diskspd("-Rjson f").expect("accepted").profile.format, Format::Json);
}

#[test]
fn conflicts_are_refused_with_the_cure() {
    for (text, says) in [
        ("-t2 -F2 f", "-F sets the total"),
        ("-g5 -x f", "-x"),
        ("-i5 f", "give both"),
        ("-j5 f", "give both"),
        ("-F2 -O4 -g5 f", "-O"),
        ("-F2 -O4 -i2 -j5 f", "-O"),
        ("-F2 -O4 -p f", "-O"),
        ("-r -T4K -t2 f", "-T"),
        ("-rs50 -si f", "-s"),
        ("-r -p f", "-p"),
        ("-s -r f", "leave one out"),
        ("-r -s f", "leave one out"),
        ("-r -r f", "leave one out"),
        ("-s4K -rs50 f", "-r<size>"),
        ("-rs50 -rs60 f", "twice"),
        ("-rdpct50/50:50/50 f", "add -r"),
        ("-si -T4K -t2 f", "-si"),
        ("-si -p -t2 f", "-si"),
        ("-T4K f", "add -t"),
        ("-n -a0 f", "-n"),
        ("-Sbu f", "keep one"),
        ("-Sh -Sw f", "-Sh is -Suw"),
        ("-Sw -Sh f", "leave one out"),
        ("-Sum f", "mapping"),
        ("-Smu f", "mapping"),
        ("-Sm -x f", "-x"),
        ("-Nv f", "add -Sm"),
        ("-Sm -Nn f", "-Nv"),
        ("-B1M -f1M f", "larger"),
        ("-B0:1M -f1M f", "leave one out"),
        ("-B0 -B1 f", "twice"),
        ("-Z1K -b4K f", "smaller than a block of 4096"),
        ("-rdabs50/1K:50/1M -r -b4K f", "smaller than a block"),
        ("-r -rdpct50/100:50/100 f", "has no part"),
        ("-r -rdpct60/50:60/50 f", "only 40"),
        ("-Xa.xml -b4K f", "XML profile"),
        ("-Xa.xml -Xb.xml f", "one profile"),
        ("-eDISK_IO f", "perf"),
        ("-ysevent f", "script"),
        ("-b4K", "at least one target"),
        ("f -b4K", "before the targets"),
        ("#1", "/dev/"),
        ("C:", "/dev/"),
        ("-w f", "-w30"),
        ("-w101 f", "0 to 100"),
        ("-t0 f", "1 to"),
        ("-t4x f", "1 to"),
        ("-q f", "no such option"),
        ("-Rcsv f", "-R[p]json"),
        ("-ag0 f", "before those of group"),
        ("-o99999 f", "outstanding"),
        ("-t9000 f", "threads"),
        ("-D1 -d100000 f", "intervals"),
        ("-b0 f", "block"),
        ("*1", "template"),
        ("-", "no such option"),
    ] {
        let text_refused = refused(text);
        assert!(text_refused.contains(says), "{text}: {text_refused}");
    }
}

#[test]
fn options_without_effect_are_reported() {
    for (text, says) in [
        ("-p -o1 f", "-p has no effect"),
        ("-si f", "one thread"),
        ("-t2 f", "consider -si"),
        ("-O4 f", "without -F"),
        ("-g5 -i2 -j5 f", "bursts"),
    ] {
        let warnings = diskspd(text).expect("accepted").warnings;
        assert!(warnings.iter().any(|w| w.contains(says)), "{text}: {warnings:?}");
    }
}

#[test]
fn sqlio_of_the_demonstrations() {
    let parsed = old("-s1000 -T100 -t1 -o16 -b8 -a0x4 -BN -LS -frandom /mnt/Test1.dat").expect("accepted");
    let s = &parsed.profile.timespans[0];
    let t = &s.targets[0];
    assert_eq!((s.duration_s, s.warmup_s, s.measure_latency), (1000, 0, true));
    assert_eq!(s.affinity, vec![Affinity { group: 0, processor: 2 }]);
    assert_eq!((t.block, t.outstanding, t.random_percent, t.write_percent), (8192, 16, 100, 0));
    assert_eq!((t.cache, t.write_through), (CacheMode::Unbuffered, true));
    for word in ["-s1000", "-T100", "-t1", "-o16", "-b8", "-a0x4", "-BN", "-LS", "-frandom"] {
        assert!(parsed.mappings.iter().any(|m| m.starts_with(word)), "{word}: {:?}", parsed.mappings);
    }
    let local = old("-BYRT -frandom small.dat").expect("accepted");
    let t = &local.profile.timespans[0].targets[0];
    assert_eq!((t.cache, t.random_hint, t.temporary_hint), (CacheMode::Cached, true, true));
    let remote = old(r"-BYRT -frandom \\server\share\small.dat").expect("accepted");
    assert_eq!(remote.profile.timespans[0].targets[0].cache, CacheMode::NoLocalCache);
}

#[test]
fn sqlio_defaults_and_parameter_files() {
    let t = &old("").expect("accepted").profile.timespans[0].targets[0];
    assert_eq!((t.path.as_str(), t.block, t.alignment, t.outstanding), ("testfile.dat", 2048, 131_072, 1));
    let read = |_: &str| Ok("a.dat 2 0x3 100\n# nothing\nb.dat 4 0x0 8 # eight\n".to_owned());
    let context = ParseContext { read: &read, seed: 0 };
    let parsed = sqlio::parse(&words("-kW -s5 -b64 -fsequential -Fparam.txt"), &context).expect("accepted");
    let s = &parsed.profile.timespans[0];
    assert_eq!(s.threads(), 6);
    assert_eq!(s.targets[1].create, Some(8 << 20));
    assert!(s.targets[1].create_if_missing);
    assert_eq!(s.affinity.len(), 2);
    let read = |_: &str| Ok("a.dat many\n".to_owned());
    let e = sqlio::parse(&words("-Fp"), &ParseContext { read: &read, seed: 0 }).expect_err("refused");
    assert!(e.to_string().contains("line 1"), "{e}");
    for text in ["-dD", "-R0", "-mC4", "-kX", "-BQ", "-a0", "-Q", "f -kR"] {
        assert!(old(text).is_err(), "{text}");
    }
}

proptest! {
    /// No arguments make the parsers panic, and accepted ones satisfy the limits.
    #[test]
    fn any_words(args in proptest::collection::vec("-?[a-zA-Z:#*/\\\\]{0,3}[0-9]{0,12}[KMGTbirsg:/,x.%é]{0,4}", 0..8)) {
        let read = |_: &str| Ok("<Profile><TimeSpans/></Profile>".to_owned());
        let context = ParseContext { read: &read, seed: 1 };
        for parsed in [parse(&args, &context), sqlio::parse(&args, &context)].into_iter().flatten() {
            for span in &parsed.profile.timespans {
                prop_assert!(span.threads() <= validate::THREADS_MAX && !span.targets.is_empty());
                for t in &span.targets {
                    prop_assert!(t.block > 0 && t.alignment() > 0 && t.write_percent <= 100);
                }
            }
        }
    }

    #[test]
    fn any_text_as_a_profile(text in "(<[A-Za-z]{1,12}( [A-Z]{1,4}=\"[0-9]{1,3}\")?/?>|</?[A-Z]{1,4}>|[a-z0-9*]{1,6}){0,20}") {
        let _ = xml::read(&text, &["x".to_owned()], &mut Vec::new());
    }
}
