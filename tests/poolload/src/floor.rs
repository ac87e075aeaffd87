//! Measures the minimum cost under a pool: the same I/Os as fio on raw disks, plus CRC32C of every 4 KiB
//! unit, and nothing else. One thread, one ring, registered memory and files, completions taken in batches.
//! The units of a read are checked after it completes; those of a write before it is sent to every disk. The
//! difference between a pool and this is the pool's cost. The difference between this and fio is the cost of
//! reading the bytes and writing them twice.
//!
//! usage: `poolload floor '{"write": true, "block": BYTES, "depth": N, "seconds": S, "from": BYTES, "size": BYTES, "devices": [...]}'`, prints one line of JSON
//!
//! **Unsafe**: the kernel reads and writes this memory. It stays mapped as long as the ring exists, and the
//! program does not access a place's bytes while the place has an outstanding I/O.
#![allow(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "it measures real time; nothing here is replayed from a seed")]

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use disk::{CRC_BLOCK, crc32c_of_block, crc32c_of_four};
use io_uring::types::Fixed;
use io_uring::{IoUring, opcode};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Failure;
use crate::load::{cpu, xorshift};

/// The load on the disks.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Floor {
    /// Writes go to all devices at once, reads to one device after another.
    write: bool,
    block: usize,
    depth: usize,
    seconds: f64,
    /// The range on each device, in bytes.
    from: u64,
    size: u64,
    devices: Vec<String>,
}

/// One outstanding I/O.
struct Place {
    began: Instant,
    /// The number of devices whose completion is outstanding.
    left: usize,
}

struct Run<'a> {
    floor: &'a Floor,
    ring: IoUring,
    memory: *mut u8,
    places: Vec<Place>,
    random: u64,
    turn: usize,
    ios: u64,
    sum: u32,
    latencies: Vec<u32>,
}

impl Floor {
    /// Runs for the given time.
    pub fn run(&self) -> Result<Value, Failure> {
        let open = |path: &String| {
            OpenOptions::new().read(true).write(self.write).custom_flags(libc::O_DIRECT).open(path)
        };
        let files = self.devices.iter().map(open).collect::<Result<Vec<File>, _>>()?;
        let entries = (self.depth * files.len()).next_power_of_two() as u32;
        let ring = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(entries)?;
        let bytes = self.block * self.depth;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address of the new mapping, which lasts until the process ends.
        let memory = unsafe {
            mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE | MapFlags::POPULATE)?
        };
        let all = libc::iovec { iov_base: memory, iov_len: bytes };
        // SAFETY: the memory stays mapped, as above.
        unsafe { ring.submitter().register_buffers(&[all])? };
        ring.submitter().register_files(&files.iter().map(AsRawFd::as_raw_fd).collect::<Vec<_>>())?;
        let places = (0..self.depth).map(|_| Place { began: Instant::now(), left: 0 }).collect();
        let memory = memory.cast();
        let latencies = Vec::with_capacity(1 << 20);
        let run = Run { floor: self, ring, memory, places, random: 1, turn: 0, ios: 0, sum: 0, latencies };
        run.run()
    }
}

impl Run<'_> {
    fn run(mut self) -> Result<Value, Failure> {
        let (began, before) = (Instant::now(), cpu());
        let length = Duration::from_secs_f64(self.floor.seconds);
        for place in 0..self.floor.depth {
            self.start(place)?;
        }
        let (mut flying, mut ended) = (self.floor.depth, Vec::new());
        while flying > 0 {
            self.ring.submit_and_wait(1)?;
            ended.extend(self.ring.completion().map(|c| (c.user_data() as usize, c.result())));
            let now = Instant::now();
            for (place, result) in ended.drain(..) {
                if result != self.floor.block as i32 {
                    return Err(format!("an I/O ended with {result}").into());
                }
                self.places[place].left -= 1;
                if self.places[place].left > 0 {
                    continue;
                }
                if !self.floor.write {
                    self.check(place);
                }
                self.ios += 1;
                let took = (now - self.places[place].began).as_micros();
                self.latencies.push(u32::try_from(took).unwrap_or(u32::MAX));
                if now - began < length {
                    self.start(place)?;
                } else {
                    flying -= 1;
                }
            }
        }
        let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu() - before);
        std::hint::black_box(self.sum);
        self.latencies.sort_unstable();
        let ios = self.ios as f64;
        Ok(
            json!({"ios": self.ios, "seconds": seconds, "cpu_s": cpu, "iops": ios / seconds, "cpu_us": cpu / ios * 1e6,
            "per_core": ios / cpu, "p99_us": self.latencies[self.latencies.len() * 99 / 100]}),
        )
    }

    fn start(&mut self, place: usize) -> Result<(), Failure> {
        let floor = self.floor;
        let chance = xorshift(&mut self.random);
        let at = floor.from + (chance >> 16) % (floor.size / floor.block as u64) * floor.block as u64;
        if floor.write {
            self.check(place);
        }
        // SAFETY: the place lies within the mapping.
        let memory = unsafe { self.memory.add(place * floor.block) };
        let devices = if floor.write { 0..floor.devices.len() } else { self.turn..self.turn + 1 };
        self.turn = (self.turn + 1) % floor.devices.len();
        self.places[place] = Place { began: Instant::now(), left: devices.len() };
        for device in devices {
            let (file, length) = (Fixed(device as u32), floor.block as u32);
            let entry = if floor.write {
                opcode::WriteFixed::new(file, memory, length, 0).offset(at).build()
            } else {
                opcode::ReadFixed::new(file, memory, length, 0).offset(at).build()
            };
            // SAFETY: the memory and the file are registered, and the place has no outstanding I/O.
            unsafe { self.ring.submission().push(&entry.user_data(place as u64))? };
        }
        Ok(())
    }

    /// Computes the CRC of each unit, as a pool does.
    fn check(&mut self, place: usize) {
        // SAFETY: within the mapping, and the place has no outstanding I/O.
        let bytes = unsafe {
            std::slice::from_raw_parts(self.memory.add(place * self.floor.block), self.floor.block)
        };
        let (units, _) = bytes.as_chunks::<CRC_BLOCK>();
        let (fours, rest) = units.as_chunks::<4>();
        self.sum ^= fours.iter().flat_map(crc32c_of_four).fold(0, |a, b| a ^ b);
        self.sum ^= rest.iter().map(crc32c_of_block).fold(0, |a, b| a ^ b);
    }
}
