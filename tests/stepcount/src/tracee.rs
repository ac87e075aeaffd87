//! Stops and single-steps a thread of another process.
#![allow(unsafe_code)] // see the crate's documentation

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The longest instruction, in bytes.
const INSTRUCTION_MAX: usize = 15;

/// See the module. Dropping it resumes the thread.
pub struct Tracee {
    thread: i32,
    memory: File,
    /// A signal to deliver with the next step.
    signal: i32,
}

/// The registers used for counting.
pub struct Registers {
    pub instruction_pointer: u64,
    pub stack_pointer: u64,
    pub accumulator: u64,
}

impl Tracee {
    /// Stops the thread.
    ///
    /// # Errors
    /// The system's error if the thread does not exist or may not be traced.
    pub fn attach(process: i32, thread: i32) -> io::Result<Tracee> {
        let memory = File::open(format!("/proc/{process}/mem"))?;
        let tracee = Tracee { thread, memory, signal: 0 };
        tracee.request(libc::PTRACE_SEIZE, 0)?;
        tracee.request(libc::PTRACE_INTERRUPT, 0)?;
        tracee.stopped()?;
        Ok(tracee)
    }

    /// Runs one instruction.
    ///
    /// # Errors
    /// The system's error; also if the thread has ended.
    pub fn step(&mut self) -> io::Result<()> {
        let signal = std::mem::take(&mut self.signal);
        self.request(libc::PTRACE_SINGLESTEP, signal as usize)?;
        let by = self.stopped()?;
        if by != libc::SIGTRAP && by != libc::SIGSTOP {
            self.signal = by;
        }
        Ok(())
    }

    /// The current registers.
    ///
    /// # Errors
    /// The system's error.
    pub fn registers(&self) -> io::Result<Registers> {
        // SAFETY: all zeros is a valid value of this structure of integers.
        let mut all: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        self.request(libc::PTRACE_GETREGS, std::ptr::from_mut(&mut all) as usize)?;
        Ok(Registers { instruction_pointer: all.rip, stack_pointer: all.rsp, accumulator: all.rax })
    }

    /// The bytes of the instruction at `address`, and some following bytes.
    ///
    /// # Errors
    /// The system's error.
    pub fn code(&self, address: u64) -> io::Result<Vec<u8>> {
        let mut code = vec![0; INSTRUCTION_MAX];
        // Shorter at the end of a mapping.
        let read = self.memory.read_at(&mut code, address)?;
        code.truncate(read);
        Ok(code)
    }

    fn stopped(&self) -> io::Result<i32> {
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        let waited = unsafe { libc::waitpid(self.thread, &raw mut status, libc::__WALL) };
        if waited < 0 {
            return Err(io::Error::last_os_error());
        }
        if !libc::WIFSTOPPED(status) {
            return Err(io::Error::other("the thread has ended"));
        }
        Ok(libc::WSTOPSIG(status))
    }

    fn request(&self, request: libc::c_uint, data: usize) -> io::Result<()> {
        // SAFETY: of the requests made here only PTRACE_GETREGS writes to `data`, which then points to such a
        // structure.
        let done = unsafe { libc::ptrace(request, self.thread, 0usize, data) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        let _ = self.request(libc::PTRACE_DETACH, self.signal as usize);
    }
}
