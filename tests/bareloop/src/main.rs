//! Measures the minimum cost of an I/O over TCP without SMB: receive a request with the size of SMB2's,
//! `pread` or `pwrite`, send a response with the size of SMB2's. There is no protocol and no buffer
//! management, only one thread with blocking calls. This is a lower bound for any server that answers each
//! request separately.
//!
//! Two processes communicate over loopback: the server, which is measured, and the driver, which sends
//! requests at a given rate (open loop, up to a queue depth). The rate matters because the cost of an I/O
//! depends on how often the server has to be woken for it.
//!
//! `splice` is `write` with the payload spliced from the socket to the file: the kernel copies it once
//! instead of twice. User space never sees it, so it could be neither signed nor encrypted.
//!
//! usage: `bareloop FILE read|write|splice BLOCK_BYTES QUEUE_DEPTH RATE SECONDS`, prints one line of JSON
#![allow(clippy::disallowed_methods, reason = "it measures real time; nothing here is replayed from a seed")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, pipe, splice};

/// Bytes around the payload of SMB2 READ and WRITE requests and responses: length prefix, header and fixed
/// part (MS-SMB2 2.2.19 to 2.2.22).
const READ_SIZES: Sizes = Sizes { request: 117, response: 84 };
const WRITE_SIZES: Sizes = Sizes { request: 116, response: 84 };

/// Bytes of a request and a response in addition to the payload.
#[derive(Clone, Copy)]
struct Sizes {
    request: usize,
    response: usize,
}

/// The parameters of a run.
#[derive(Clone)]
struct Job {
    file: String,
    write: bool,
    /// A write whose payload does not pass through user space.
    splice: bool,
    block: usize,
    depth: u64,
    /// Requests per second.
    rate: f64,
    seconds: f64,
}

impl Job {
    fn parse(arguments: &[String]) -> Option<Job> {
        let [file, mode, block, depth, rate, seconds] = arguments else { return None };
        let (write, splice) = match mode.as_str() {
            "read" => (false, false),
            "write" => (true, false),
            "splice" => (true, true),
            _ => return None,
        };
        let job = Job {
            file: file.clone(),
            write,
            splice,
            block: block.parse().ok()?,
            depth: depth.parse().ok()?,
            rate: rate.parse().ok()?,
            seconds: seconds.parse().ok()?,
        };
        (job.block > 0 && job.depth > 0 && job.rate > 0.0).then_some(job)
    }

    fn request_bytes(&self) -> usize {
        if self.write { WRITE_SIZES.request + self.block } else { READ_SIZES.request }
    }

    fn response_bytes(&self) -> usize {
        if self.write { WRITE_SIZES.response } else { READ_SIZES.response + self.block }
    }
}

/// Receives requests, does the I/O and responds, until the driver disconnects.
fn serve(job: &Job) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    io::stdout().flush()?;
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let file = OpenOptions::new().read(true).write(job.write).open(&job.file)?;
    if job.splice {
        return serve_spliced(job, stream, &file);
    }
    let size = job.request_bytes();
    let mut input = vec![0; (1 << 20).max(size * 2)];
    let mut output = vec![0; job.response_bytes()];
    let (mut start, mut end) = (0, 0);
    loop {
        if end - start < size {
            input.copy_within(start..end, 0);
            (start, end) = (0, end - start);
            match stream.read(&mut input[end..])? {
                0 => return Ok(()),
                more => end += more,
            }
            continue;
        }
        let request = &input[start..start + size];
        let offset = u64::from_le_bytes(request[8..16].try_into().unwrap_or_default());
        output[..8].copy_from_slice(&request[..8]);
        if job.write {
            file.write_all_at(&request[WRITE_SIZES.request..], offset)?;
        } else {
            file.read_exact_at(&mut output[READ_SIZES.response..], offset)?;
        }
        stream.write_all(&output)?;
        start += size;
    }
}

/// Like [`serve`], but moves the payload from the socket through a pipe to the file.
fn serve_spliced(job: &Job, mut stream: TcpStream, file: &File) -> io::Result<()> {
    let (from, into) = pipe()?;
    fcntl_setpipe_size(&into, 1 << 20)?;
    let mut head = [0; WRITE_SIZES.request];
    let mut output = vec![0; job.response_bytes()];
    loop {
        stream.read_exact(&mut head)?;
        output[..8].copy_from_slice(&head[..8]);
        let mut offset = u64::from_le_bytes(head[8..16].try_into().unwrap_or_default());
        let mut left = job.block;
        while left > 0 {
            let mut held = splice(&stream, None, &into, None, left, SpliceFlags::MOVE)?;
            if held == 0 {
                return Ok(());
            }
            left -= held;
            while held > 0 {
                held -= splice(&from, None, file, Some(&mut offset), held, SpliceFlags::MOVE)?;
            }
        }
        stream.write_all(&output)?;
    }
}

/// Sends requests at the rate; returns the number of responses and the seconds taken.
fn drive(job: &Job, stream: TcpStream, file_bytes: u64) -> io::Result<(u64, f64)> {
    stream.set_nodelay(true)?;
    rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1)).ok();
    let answered = Arc::new(AtomicU64::new(0));
    let done = Arc::new(AtomicBool::new(false));
    let receiver = {
        let (answered, done, size) = (answered.clone(), done.clone(), job.response_bytes());
        let sender = thread::current();
        let mut stream = BufReader::with_capacity(1 << 20, stream.try_clone()?);
        thread::spawn(move || -> io::Result<()> {
            let mut buffer = vec![0; size];
            while !done.load(Ordering::Relaxed) {
                stream.read_exact(&mut buffer)?;
                answered.fetch_add(1, Ordering::Relaxed);
                if stream.buffer().len() < size {
                    sender.unpark();
                }
            }
            Ok(())
        })
    };
    let blocks = file_bytes / job.block as u64;
    let mut requests = Vec::new();
    let (mut sent, mut chance, mut stream) = (0u64, 0x9E37_79B9_7F4A_7C15u64, stream);
    let began = Instant::now();
    let length = Duration::from_secs_f64(job.seconds);
    while began.elapsed() < length {
        let due = (began.elapsed().as_secs_f64() * job.rate) as u64;
        let room = job.depth.saturating_sub(sent - answered.load(Ordering::Relaxed));
        let now = due.saturating_sub(sent).min(room);
        if now == 0 {
            // Waits until a response makes room, or until the next request is due.
            let next = Duration::from_secs_f64((sent + 1) as f64 / job.rate).saturating_sub(began.elapsed());
            thread::park_timeout(if room == 0 { Duration::from_millis(1) } else { next });
            continue;
        }
        // Requests that became due while this thread slept are sent together.
        requests.clear();
        for number in sent..sent + now {
            chance ^= chance << 13;
            chance ^= chance >> 7;
            chance ^= chance << 17;
            requests.extend_from_slice(&number.to_le_bytes());
            requests.extend_from_slice(&((chance % blocks) * job.block as u64).to_le_bytes());
            requests.resize(requests.len() + job.request_bytes() - 16, 0);
        }
        stream.write_all(&requests)?;
        sent += now;
    }
    let (count, seconds) = (answered.load(Ordering::Relaxed), began.elapsed().as_secs_f64());
    done.store(true, Ordering::Relaxed);
    stream.shutdown(std::net::Shutdown::Both)?;
    // The receiver ends in the middle of a response, which is no failure of the run.
    let _ = receiver.join();
    Ok((count, seconds))
}

/// User and system time of a process, in microseconds, with a resolution of one tick (10 ms).
fn cpu_us(pid: u32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |n: usize| fields.get(n).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
    Ok((ticks(11) + ticks(12)) * 1_000_000 / rustix::param::clock_ticks_per_second())
}

fn start_server(arguments: &[String]) -> io::Result<(Child, u16)> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("--serve")
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line)?;
    }
    let port = line.trim().parse().map_err(|_| io::Error::other("the server did not say its port"))?;
    Ok((child, port))
}

fn measure(job: &Job, arguments: &[String]) -> io::Result<()> {
    let file_bytes = File::open(&job.file)?.metadata()?.len();
    if file_bytes < job.block as u64 {
        return Err(io::Error::other("the file is shorter than a block"));
    }
    let (mut server, port) = start_server(arguments)?;
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    let before = cpu_us(server.id())?;
    let outcome = drive(job, stream, file_bytes);
    let after = cpu_us(server.id())?;
    server.kill()?;
    server.wait()?;
    let (ios, seconds) = outcome?;
    let line = serde_json::json!({
        "ios": ios,
        "iops": ios as f64 / seconds,
        "server_cpu_us": (after - before) as f64 / ios.max(1) as f64,
    });
    println!("{line}");
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (serving, rest) = match arguments.split_first() {
        Some((first, rest)) if first == "--serve" => (true, rest),
        _ => (false, arguments.as_slice()),
    };
    let Some(job) = Job::parse(rest) else {
        eprintln!("usage: bareloop FILE read|write|splice BLOCK_BYTES QUEUE_DEPTH RATE SECONDS");
        return ExitCode::from(2);
    };
    let outcome = if serving { serve(&job) } else { measure(&job, rest) };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // The driver disconnected.
        Err(error) if serving && error.kind() != io::ErrorKind::NotFound => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bareloop: {}: {error}", job.file);
            ExitCode::FAILURE
        }
    }
}
