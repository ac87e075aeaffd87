//! Complete runs on local files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bench::engine::{self, MismatchKind, NoObserver, Observer, Phase, Settings, SpanResults, Tick};
use bench::options::{ParseContext, parse};
use bench::profile::Profile;

/// A folder that is removed on drop. It is beside the sources, on a file system with direct I/O, unlike some
/// `/tmp`.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("UTF-8").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn profile(options: &str, targets: &[&str]) -> Profile {
    let mut args: Vec<String> = options.split_whitespace().map(str::to_owned).collect();
    args.extend(targets.iter().map(|t| (*t).to_owned()));
    let world = ParseContext { read: &|path| std::fs::read_to_string(path), seed: 1 };
    parse(&args, &world).unwrap_or_else(|e| panic!("{options}: {e}")).profile
}

fn run(options: &str, targets: &[&str]) -> SpanResults {
    run_with(options, targets, &Settings::default())
}

fn run_with(options: &str, targets: &[&str], settings: &Settings) -> SpanResults {
    let result = engine::run(&profile(options, targets), settings, &mut NoObserver);
    result.unwrap_or_else(|e| panic!("{options}: {e}")).remove(0)
}

fn verify() -> Settings {
    Settings { verify: true, ..Settings::default() }
}

fn sums(r: &SpanResults) -> (u64, u64, u64, u64) {
    r.targets().fold((0, 0, 0, 0), |s, t| {
        (s.0 + t.read.ios, s.1 + t.read.bytes, s.2 + t.write.ios, s.3 + t.write.bytes)
    })
}

#[test]
fn a_mix_of_reads_and_writes_in_every_cache_mode() {
    let folder = Folder::new("modes");
    let file = folder.file("sub/folder/data");
    for mode in ["-Sb", "-Sbw", "-Su", "-Sh", "-Sm", "-Smw", "-Sm -Nv"] {
        let options = format!("-c2M -b8K -r4K -w40 -o4 -t2 -d1 -W0 -L -D100 {mode}");
        let found = run(&options, &[&file]);
        let (reads, read_bytes, writes, write_bytes) = sums(&found);
        assert_eq!(found.errors(), 0, "{mode}");
        assert!(reads > 10 && writes > 5, "{mode}: {reads} {writes}");
        assert_eq!((read_bytes, write_bytes), (reads * 8192, writes * 8192), "{mode}");
        assert_eq!(found.threads.len(), 2);
        assert_eq!(found.elapsed, Duration::from_secs(1));
        let target = &found.threads[1].targets[0];
        assert_eq!((target.size, target.read.latency.count()), (2 << 20, target.read.ios));
        assert_eq!(target.read.buckets.all().len(), 10);
        assert_eq!(target.read.buckets.all().iter().map(|b| b.count).sum::<u64>(), target.read.ios);
        assert!(target.read.latency.max_ms() > 0.0);
        assert_eq!((target.short, found.unfinished), (0, 0));
        assert!(!found.cpu.is_empty() && found.processes.len() == 1);
    }
}

#[test]
fn what_is_created_and_written_is_there() {
    let folder = Folder::new("contents");
    let file = folder.file("data");
    run("-c1000K -b4K -d0 -W0", &[&file]);
    let bytes = std::fs::read(&file).expect("readable");
    assert_eq!(bytes.len(), 1000 << 10);
    assert!(bytes.iter().enumerate().all(|(n, b)| *b == n as u8));
    run("-b4K -s -w100 -Z -d1 -W0 -o1", &[&file]);
    assert!(std::fs::read(&file).expect("readable").iter().all(|b| *b == 0), "sequential writes went around");
    run("-b4K -s -w100 -Zr -d1 -W0", &[&file]);
    let bytes = std::fs::read(&file).expect("readable");
    assert!(bytes.chunks(4096).all(|c| c[..8] != c[8..16]));
    std::fs::write(folder.file("source"), b"abc").expect("writable");
    let option = format!("-b1K -s -w100 -Z1K,{} -d1 -W0", folder.file("source"));
    run(&option, &[&file]);
    assert_eq!(&std::fs::read(&file).expect("readable")[..7], b"abcabca");
}

#[test]
fn base_and_length_bound_what_is_written() {
    let folder = Folder::new("range");
    let file = folder.file("data");
    std::fs::write(&file, vec![7; 64 << 10]).expect("writable");
    run("-b4K -r -w100 -Z -B16K:16K -d1 -W0", &[&file]);
    let bytes = std::fs::read(&file).expect("readable");
    assert!(bytes[16 << 10..32 << 10].iter().all(|b| *b == 0));
    assert!(bytes[..16 << 10].iter().chain(&bytes[32 << 10..]).all(|b| *b == 7));
}

#[test]
fn a_pool_of_threads_shares_targets() {
    let folder = Folder::new("pool");
    let (a, b) = (folder.file("a"), folder.file("b"));
    let found = run("-c1M -b4K -r -F2 -O8 -d1 -W0 -L", &[&a, &b]);
    assert_eq!(found.threads.len(), 2);
    assert!(found.threads.iter().all(|t| t.targets.len() == 2 && t.targets.iter().all(|t| t.read.ios > 0)));
    let found = run("-b4K -r -F2 -o3 -d1 -W0", &[&a, &b]);
    assert!(found.threads.iter().all(|t| t.targets.iter().all(|t| t.read.ios > 0)));
}

#[test]
fn warm_up_and_cool_down_do_not_count() {
    struct ListenerEvent(Vec<(Phase, u64)>);
    impl Observer for ListenerEvent {
        fn tick(&mut self, tick: &Tick) {
            self.0.push((tick.phase, tick.ios));
        }
    }
    let folder = Folder::new("phases");
    let file = folder.file("data");
    let mut heard = ListenerEvent(Vec::new());
    let options = "-c1M -b4K -r -g200i -W1 -d1 -C1";
    let found =
        engine::run(&profile(options, &[&file]), &Settings::default(), &mut heard).expect("a run").remove(0);
    // A rate makes the numbers predictable: 200 of the 600 I/Os complete in the middle second.
    assert!((195..=205).contains(&found.ios()), "{}", found.ios());
    let last = heard.0.last().expect("ticks");
    assert!(last.0 == Phase::CoolDown && last.1 >= 590, "{last:?}");
    assert!(heard.0.iter().any(|h| h.0 == Phase::WarmUp));
}

#[test]
fn verified_runs_find_nothing_wrong() {
    let folder = Folder::new("verified");
    let file = folder.file("data");
    for options in [
        "-c1M -b8K -r512 -w50 -o8 -t3 -d1 -W0",
        "-c1M -b4K -r -w50 -o8 -t2 -d1 -W0 -Su",
        "-c1M -b4K -w60 -r -t2 -d1 -W0 -Sm",
    ] {
        let found = run_with(options, &[&file], &verify());
        let v = found.verified().expect("verified");
        assert!(v.sectors > 1000, "{options}: {v:?}");
        assert_eq!((v.mismatches, v.unstamped, found.errors()), (0, 0, 0), "{options}: {v:?}");
    }
    // A later run accepts the stamps of an earlier one.
    let found = run_with("-b4K -r -d1 -W0", &[&file], &verify());
    assert_eq!(found.verified().map(|v| (v.mismatches, v.unstamped)), Some((0, 0)));
}

#[test]
fn a_corrupted_block_is_found_and_shown() {
    let folder = Folder::new("corrupt");
    let file = folder.file("data");
    run_with("-c256K -b4K -r -w100 -d1 -W0", &[&file], &verify());
    let mut bytes = std::fs::read(&file).expect("readable");
    bytes[100_000] ^= 4;
    std::fs::write(&file, &bytes).expect("writable");
    let found = run_with("-b4K -s -d1 -W0", &[&file], &verify()).verified().expect("verified");
    let first = found.first.expect("a mismatch");
    assert_eq!((first.offset, first.what), (100_000 / 512 * 512, MismatchKind::Checksum));
    assert!(found.mismatches > 0 && found.sectors > 0);
    assert!(first.to_string().contains("sector at 99840"), "{first}");
}

#[test]
fn a_misplaced_block_is_found() {
    let folder = Folder::new("misplaced");
    let file = folder.file("data");
    run_with("-c64K -b4K -r -d0 -W0", &[&file], &verify());
    let mut bytes = std::fs::read(&file).expect("readable");
    bytes.copy_within(0..4096, 8192);
    std::fs::write(&file, &bytes).expect("writable");
    let found = run_with("-b4K -s -d1 -W0", &[&file], &verify()).verified().expect("verified");
    assert_eq!(found.first.map(|f| (f.offset, f.what)), Some((8192, MismatchKind::Offset { found: 0 })));
}

#[test]
fn a_refused_run_gives_the_reason() {
    let folder = Folder::new("refused");
    let small = folder.file("small");
    std::fs::write(&small, [0; 100]).expect("writable");
    let refused = |options: &str, target: &str, settings: &Settings| {
        let result = engine::run(&profile(options, &[target]), settings, &mut NoObserver);
        result.err().unwrap_or_else(|| panic!("{options}: ran")).to_string()
    };
    let plain = Settings::default();
    assert!(refused("-t4 -d1", &folder.file("none"), &plain).contains("-c<size>"));
    assert!(refused("-d1", &small, &plain).contains("too few"));
    assert!(refused("-d1", &folder.0.to_string_lossy(), &plain).contains("neither a file"));
    assert!(refused("-Sr -b1 -d1", &small, &plain).contains("-Sb"));
    assert!(refused("-Su -b100 -d1", &small, &plain).contains("multiples of 512"));
    assert!(refused("-b100 -d1", &small, &verify()).contains("--verify"));
    assert!(refused("-b10 -a63 -t2 -d1", &small, &plain).contains("-n"));
    let no_process = Settings { pids: vec![u32::MAX], ..Settings::default() };
    assert!(refused("-b10 -d1", &small, &no_process).contains("process"));
}

#[test]
fn a_stopped_run_reports_what_it_has() {
    let folder = Folder::new("stopped");
    let file = folder.file("data");
    let stop = Arc::new(AtomicBool::new(false));
    let settings = Settings { stop: stop.clone(), ..Settings::default() };
    let stopper = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(700));
        stop.store(true, Ordering::Relaxed);
    });
    let found = run_with("-c1M -b4K -r -W0 -d60 -L", &[&file], &settings);
    stopper.join().expect("joined");
    assert!(found.stopped && found.ios() > 0);
    assert!(found.elapsed > Duration::from_millis(300) && found.elapsed < Duration::from_secs(20));
}

#[test]
fn time_spans_follow_each_other() {
    let folder = Folder::new("spans");
    let file = folder.file("data");
    let mut profile = profile("-c1M -b4K -r -d1 -W0", &[&file]);
    let mut second = profile.timespans[0].clone();
    second.targets[0].write_percent = 100;
    second.targets[0].create = None;
    profile.timespans.push(second);
    let found = engine::run(&profile, &Settings::default(), &mut NoObserver).expect("a run");
    assert_eq!(found.len(), 2);
    assert!(
        sums(&found[0]).0 > 0 && sums(&found[0]).2 == 0 && sums(&found[1]).2 > 0 && sums(&found[1]).0 == 0
    );
}
