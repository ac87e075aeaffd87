//! Tests the core over virtual byte streams, with golden bytes and with attacks; tests the whole provider over
//! loopback; has tshark dissect its output.

mod dissected;
mod endings;
mod golden;
mod hostile;
mod loopback;
mod pairs;
mod setups;

use arena::{Arena, Class};
use env::Env;

use super::core::{Config, Core};
use super::mpa::{self, Ready};
use crate::{Completion, Exposed, Exposure, Rights, Wr, WrId};

/// A core; the test transfers its bytes.
struct Peer {
    core: Core,
    /// Bytes that have arrived but are not yet used.
    held: Vec<u8>,
    done: Vec<Completion>,
}

fn config() -> Config {
    Config {
        crc: false,
        max_ulpdu: mpa::max_ulpdu(1448),
        ird: 2,
        ord: 2,
        max_wr: 256,
        max_regions: 64,
        wait: false,
        ready: Ready::default(),
    }
}

fn memory() -> Arena {
    Arena::new(64 << 20).expect("a mapping")
}

impl Peer {
    fn new(seed: u64, config: Config) -> Peer {
        Peer { core: Core::new(Env::simulated(seed), config), held: Vec::new(), done: Vec::new() }
    }

    fn post(&mut self, id: u64, wr: Wr) {
        self.core.post(WrId(id), wr).map_err(|(e, _)| e).expect("the request is taken");
    }

    fn receive(&mut self, arena: &Arena, id: u64, len: usize) {
        self.post(id, Wr::Recv(arena.try_alloc(len, Class::Payload).expect("memory")));
    }

    fn sink(&mut self, arena: &Arena, length: usize) -> Exposure {
        let bufs = arena.try_alloc_sg(length, Class::Payload).expect("memory");
        let what = Exposed::Sink { bufs, length: length as u32 };
        self.core.expose(what, Rights::RemoteWrite).expect("there is room")
    }

    fn source(&mut self, bytes: &[u8]) -> Exposure {
        let sg = [bytes.to_vec().into()].into_iter().collect();
        self.core.expose(Exposed::Source(sg), Rights::RemoteRead).expect("there is room")
    }

    /// Takes up to `most` bytes of the core's output.
    fn say(&mut self, most: usize) -> Vec<u8> {
        let mut out: Vec<u8> = self.core.output().iter().flat_map(|s| s.iter().copied()).collect();
        out.truncate(most);
        self.core.written(out.len());
        out
    }

    /// Takes all of the core's output.
    fn say_all(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let more = self.say(usize::MAX);
            if more.is_empty() {
                return all;
            }
            all.extend(more);
        }
    }

    /// Feeds bytes to the core, through its buffer.
    fn hear(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
        let used = self.core.input(&self.held);
        self.held.drain(..used);
        self.core.drain(&mut self.done);
    }

    /// Feeds bytes to the core, placed directly into the target if possible.
    fn hear_directly(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        if self.held.is_empty() {
            for t in self.core.direct(1).unwrap_or_default() {
                let (now, later) = rest.split_at(t.len().min(rest.len()));
                t[..now.len()].copy_from_slice(now);
                rest = later;
            }
            self.core.placed_directly(bytes.len() - rest.len());
        }
        self.hear(rest);
    }
}

/// Splits a stream into its FPDUs.
fn fpdus(mut stream: &[u8]) -> Vec<&[u8]> {
    let mut out = Vec::new();
    while let Some(len) = stream.first_chunk() {
        let (fpdu, rest) = stream.split_at(mpa::fpdu_len(u16::from_be_bytes(*len).into()));
        out.push(fpdu);
        stream = rest;
    }
    out
}

fn unhex(s: &str) -> Vec<u8> {
    let digits: Vec<u8> = s.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
    digits.chunks(2).map(|d| d[0] << 4 | d[1]).collect()
}
