//! Counts what one thread of a running process executes for each request, by single-stepping: instructions in
//! user space, locked instructions (atomic read-modify-writes) and full fences, system calls, and calls of
//! the allocator, each with its callers. It does not sample or emulate: the process runs normally, only
//! slowly, and every instruction is counted.
//!
//! The thread must serve the same kind of request repeatedly. A system call that it makes once per request
//! marks the requests: counting starts at one of these calls and ends COUNT calls later, at the same place.
//!
//! usage: `stepcount PID THREAD_ID SYSCALL_NUMBER COUNT [ALLOCATOR_ADDRESS_HEX...]`; prints one line of JSON:
//! `{"requests", "instructions", "syscalls": {number: n}, "events": [{"kind", "stack": [address, ...], "n"}]}`. The stack has the
//! address of the instruction first, then the return addresses of its callers, innermost first. Linux on x86-64, as a user who may trace the process.
//!
//! **Unsafe.** `ptrace` has no safe wrapper among the workspace's crates; every call is here, in `tracee.rs`.

mod decode;
mod tracee;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::process::ExitCode;

use decode::Kind;
use tracee::Tracee;

/// The maximum number of callers recorded for an event.
const DEPTH: usize = 24;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(job) = Job::parse(&words) else {
        eprintln!("usage: stepcount PID THREAD_ID SYSCALL_NUMBER COUNT [ALLOCATOR_ADDRESS_HEX...]");
        return ExitCode::from(2);
    };
    match count(&job) {
        Ok(counts) => {
            println!("{}", counts.json(job.count));
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("stepcount: {e}");
            ExitCode::FAILURE
        }
    }
}

/// What to count.
struct Job {
    process: i32,
    thread: i32,
    /// The system call that is made once for each request.
    mark: u64,
    count: u64,
    /// The start addresses of the allocator's functions.
    allocator: Vec<u64>,
}

impl Job {
    fn parse(words: &[String]) -> Option<Job> {
        let [process, thread, mark, count, allocator @ ..] = words else { return None };
        Some(Job {
            process: process.parse().ok()?,
            thread: thread.parse().ok()?,
            mark: mark.parse().ok()?,
            count: count.parse().ok()?,
            allocator: allocator.iter().map(|a| u64::from_str_radix(a, 16)).collect::<Result<_, _>>().ok()?,
        })
    }
}

/// What was counted.
#[derive(Default)]
struct Counts {
    instructions: u64,
    syscalls: BTreeMap<u64, u64>,
    events: HashMap<(&'static str, Vec<u64>), u64>,
}

impl Counts {
    fn note(&mut self, kind: &'static str, address: u64, calls: &Calls) {
        let stack: Vec<u64> = std::iter::once(address).chain(calls.innermost()).collect();
        *self.events.entry((kind, stack)).or_default() += 1;
    }

    fn json(&self, requests: u64) -> serde_json::Value {
        let events: Vec<_> = self
            .events
            .iter()
            .map(|((kind, stack), n)| serde_json::json!({"kind": kind, "stack": stack, "n": n}))
            .collect();
        let syscalls: BTreeMap<String, u64> =
            self.syscalls.iter().map(|(k, n)| (k.to_string(), *n)).collect();
        serde_json::json!({
            "requests": requests,
            "instructions": self.instructions,
            "syscalls": syscalls,
            "events": events,
        })
    }
}

/// Calls that have not returned, of those whose start was observed: return address, and its position on the
/// stack.
#[derive(Default)]
struct Calls(Vec<(u64, u64)>);

impl Calls {
    /// Removes calls that have returned: those whose position is below the stack pointer.
    fn returned(&mut self, stack_pointer: u64) {
        while self.0.last().is_some_and(|(_, at)| *at < stack_pointer) {
            self.0.pop();
        }
    }

    fn innermost(&self) -> impl Iterator<Item = u64> {
        self.0.iter().rev().take(DEPTH).map(|(address, _)| *address)
    }
}

/// Steps the thread until its first marking call, and then for `count` more of them.
fn count(job: &Job) -> io::Result<Counts> {
    let mut tracee = Tracee::attach(job.process, job.thread)?;
    let mut kinds: HashMap<u64, (Kind, u64)> = HashMap::new();
    let (mut counts, mut calls) = (Counts::default(), Calls::default());
    let mut marks = 0;
    loop {
        let at = tracee.registers()?;
        calls.returned(at.stack_pointer);
        let (kind, length) = match kinds.get(&at.instruction_pointer) {
            Some(known) => *known,
            None => {
                let found = decode::kind(&tracee.code(at.instruction_pointer)?);
                kinds.insert(at.instruction_pointer, found);
                found
            }
        };
        if kind == Kind::Syscall && at.accumulator == job.mark {
            marks += 1;
            if marks > job.count {
                return Ok(counts);
            }
        }
        if marks > 0 {
            counts.instructions += 1;
            match kind {
                Kind::Locked => counts.note("locked", at.instruction_pointer, &calls),
                Kind::Fence => counts.note("fence", at.instruction_pointer, &calls),
                Kind::Syscall => *counts.syscalls.entry(at.accumulator).or_default() += 1,
                Kind::Call | Kind::Other => {}
            }
            if job.allocator.contains(&at.instruction_pointer) {
                counts.note("allocation", at.instruction_pointer, &calls);
            }
        }
        tracee.step()?;
        if kind == Kind::Call {
            calls.0.push((at.instruction_pointer + length, at.stack_pointer - 8));
        }
    }
}
