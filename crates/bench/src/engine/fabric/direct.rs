//! The initiator over RDMA: a queue pair for each target of the thread.
//!
//! An I/O costs the minimum of SMB Direct: one registration and one Send; the peer's Send invalidates the
//! registration. A read's memory stays with its slot and is registered again for each I/O.

use std::borrow::Cow;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use arena::{Arena, CHUNK_MIN, Class, IoBuf, IoBufMut, Sg, SgMut, sg_slice};
use counters::{Block, transfers as t};
use env::Env;
use rdma::iwarp::{IwarpQueuePair, Options, SetupError, connect};
use rdma::{Done, Exposed, QueuePair, Rights, Stag, Wr, WrId};
use tokio::runtime::Runtime;

use super::{admitted, extent};
use crate::engine::backend::{Backend, Completion, Fault, Io, Payload, Setup, WorkRequests};
use crate::engine::error::OpenError;
use crate::engine::offsets::Kind;
use crate::engine::payload::{gathered, memory, runtime};
use crate::fabric::wire::{Hello, REPLY, Reply, Request};
use crate::fabric::{FabricAddress, FabricError};

/// Time limit for closing the connections.
const END: Duration = Duration::from_secs(2);

/// See the module.
pub(super) struct Direct {
    runtime: Runtime,
    env: Env,
    arena: Arena,
    ends: Ends,
    /// I/Os that could not be submitted.
    failed: Vec<usize>,
}

/// The connections with their slots.
struct Ends {
    lanes: Vec<Lane>,
    slots: Vec<Slot>,
    polled: Vec<rdma::Completion>,
}

struct Lane {
    qp: IwarpQueuePair,
    /// The connection is lost: nothing completes any more.
    lost: bool,
    size: u64,
    source: Sg,
    counters: Option<Arc<Block>>,
    invalidated: u64,
    /// Work requests posted while opening.
    before: WorkRequests,
}

struct Slot {
    room: u32,
    /// The data of the next write, if it is not the source.
    buffer: Vec<u8>,
    /// The memory for reads; empty while it is registered.
    sink: SgMut,
    in_flight: Option<InFlight>,
}

#[derive(Clone, Copy)]
struct InFlight {
    lane: usize,
    stag: Stag,
    length: u32,
}

impl Direct {
    pub(super) fn open(setup: Setup, places: &[FabricAddress]) -> Result<Direct, OpenError> {
        let (runtime, env) = (runtime()?, Env::real());
        let held: usize = setup.slots.iter().map(|s| (*s as usize).max(CHUNK_MIN) * 2 + CHUNK_MIN).sum();
        let sources: usize = setup.lanes.iter().map(|l| l.source.bytes().len()).sum();
        let arena = memory((held * setup.lanes.len().max(1) + sources) * 9 / 8)?;
        let mut lanes = Vec::with_capacity(places.len());
        for (lane, place) in setup.lanes.iter().zip(places) {
            let failed = |source| OpenError::Fabric { place: place.to_string(), source: Box::new(source) };
            let lane = runtime
                .block_on(Lane::connect(place, extent(&setup), &arena, &env, lane.source.bytes()))
                .map_err(failed)?;
            lanes.push(lane);
        }
        let slot = |room: &u32| Slot { room: *room, buffer: Vec::new(), sink: SgMut::new(), in_flight: None };
        let slots = setup.slots.iter().map(slot).collect();
        let ends = Ends { lanes, slots, polled: Vec::new() };
        Ok(Direct { runtime, env, arena, ends, failed: Vec::new() })
    }

    /// Registers memory and sends the request. Returns `None` if the connection is lost or memory is
    /// exhausted.
    fn start(&mut self, io: &Io) -> Option<InFlight> {
        let Direct { ends: Ends { lanes, slots, .. }, arena, .. } = self;
        let (lane, slot) = (&mut lanes[io.lane], &mut slots[io.slot]);
        let (what, rights) = match io.kind {
            Kind::Read => {
                let mut bufs = std::mem::take(&mut slot.sink);
                if bufs.is_empty() {
                    bufs = arena.try_alloc_sg(slot.room as usize, Class::Payload)?;
                }
                (Exposed::Sink { bufs, length: io.length }, Rights::RemoteWrite)
            }
            Kind::Write => {
                let bytes = match io.payload {
                    Payload::Source(at) => sg_slice(&lane.source, at, io.length as usize),
                    Payload::Buffer => gathered(arena, &slot.buffer[..io.length as usize]),
                };
                (Exposed::Source(bytes), Rights::RemoteRead)
            }
        };
        let exposure = lane.qp.expose(what, rights).ok()?;
        let request = Request {
            id: io.slot as u32,
            kind: io.kind,
            offset: io.offset,
            length: io.length,
            stag: exposure.stag.0,
            address: exposure.offset,
        };
        let sg = Sg::from_iter([IoBuf::from(request.to_bytes().to_vec())]);
        lane.qp.post(WrId(0), Wr::Send { sg, invalidate: None }).ok()?;
        Some(InFlight { lane: io.lane, stag: exposure.stag, length: io.length })
    }
}

impl Ends {
    /// Ready when an I/O has completed.
    fn poll(&mut self, cx: &mut Context<'_>, done: &mut Vec<Completion>) -> Poll<()> {
        let Ends { lanes, slots, polled } = self;
        for (at, lane) in lanes.iter_mut().enumerate() {
            while !lane.lost && done.is_empty() {
                let fault = match lane.qp.poll(cx, polled) {
                    Poll::Pending => break,
                    Poll::Ready(Ok(())) => {
                        let mut taken = polled.drain(..);
                        taken.try_for_each(|c| lane.completed(at, slots, c, done)).err()
                    }
                    Poll::Ready(Err(_)) => Some(Fault::Lost),
                };
                if let Some(fault) = fault {
                    lane.lost = true;
                    lane.qp.close();
                    for (slot, s) in slots.iter_mut().enumerate() {
                        if s.in_flight.take_if(|i| i.lane == at).is_some() {
                            done.push(Completion { slot, result: Err(fault), at: None });
                        }
                    }
                }
            }
        }
        if done.is_empty() { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl Lane {
    async fn connect(
        place: &FabricAddress,
        (block, depth): (u32, u32),
        arena: &Arena,
        env: &Env,
        source: &[u8],
    ) -> Result<Lane, FabricError> {
        let hello = Hello::new(block, depth).to_bytes();
        let outstanding = depth as usize;
        // A Send for each I/O, and as many again for Sends whose completions were not processed yet.
        let options =
            Options { max_wr: outstanding * 2 + 16, max_regions: outstanding, ..Options::default() };
        let (mut qp, answer) =
            connect(place.address()?, env.clone(), &hello, options).await.map_err(|e| match e {
                // A refusal contains the listener's reason.
                SetupError::Rejected(answer) => {
                    admitted(&answer).err().unwrap_or(FabricError::UnknownProtocol)
                }
                SetupError::Transport(kind) => FabricError::Unreachable(kind.into()),
                SetupError::Frame(_) => FabricError::UnknownProtocol,
                other => FabricError::Setup(other),
            })?;
        let size = admitted(&answer)?;
        for _ in 0..depth {
            let none = || FabricError::Memory(io::ErrorKind::OutOfMemory.into());
            let buf = arena.try_alloc(REPLY, Class::Payload).ok_or_else(none)?;
            let posted = qp.post(WrId(0), Wr::Recv(buf));
            posted.map_err(|_| FabricError::Unreachable(io::ErrorKind::ConnectionAborted.into()))?;
        }
        let counters = qp.counters();
        let source = gathered(arena, source);
        let mut lane =
            Lane { qp, lost: false, size, source, counters, invalidated: 0, before: WorkRequests::default() };
        lane.before = lane.posted().unwrap_or_default();
        Ok(lane)
    }

    fn posted(&self) -> Option<WorkRequests> {
        let block = self.counters.as_ref()?;
        let now = WorkRequests {
            register: block.get(t::WR_REGISTER),
            send: block.get(t::WR_SEND) + block.get(t::WR_SEND_INVALIDATE),
            local_invalidate: block.get(t::WR_LOCAL_INVALIDATE),
            receive: block.get(t::WR_RECEIVE),
            remote_invalidations: self.invalidated,
        };
        Some(now.since(&self.before))
    }

    /// Processes a work request's completion.
    ///
    /// # Errors
    /// The peer violated the protocol, or the connection ended.
    fn completed(
        &mut self,
        at: usize,
        slots: &mut [Slot],
        completion: rdma::Completion,
        done: &mut Vec<Completion>,
    ) -> Result<(), Fault> {
        let (mut buf, invalidated) = match completion.result {
            Ok(Done::Recv { buf, invalidated }) => (buf, invalidated),
            // Flushed requests: the end of the connection is reported separately.
            Ok(_) | Err(_) => return Ok(()),
        };
        let reply = Reply::parse(&buf).ok_or(Fault::Protocol)?;
        let slot = slots.get_mut(reply.id as usize).ok_or(Fault::Protocol)?;
        let io = slot.in_flight.filter(|i| i.lane == at && i.length == reply.length);
        let io = io.ok_or(Fault::Protocol)?;
        // An I/O is complete only when the peer can no longer access its memory.
        let (_, exposed) = invalidated.filter(|(stag, _)| *stag == io.stag).ok_or(Fault::Protocol)?;
        self.invalidated += 1;
        if let Exposed::Sink { bufs, .. } = exposed {
            let came: usize = bufs.iter().map(|b: &IoBufMut| b.len()).sum();
            slot.sink = bufs;
            if came != io.length as usize {
                return Err(Fault::Protocol);
            }
        }
        slot.in_flight = None;
        done.push(Completion { slot: reply.id as usize, result: Ok(io.length), at: None });
        buf.set_len(0);
        self.qp.post(WrId(0), Wr::Recv(buf)).map_err(|_| Fault::Lost)
    }
}

impl Backend for Direct {
    fn size(&self, lane: usize) -> u64 {
        self.ends.lanes[lane].size
    }

    fn buffer(&mut self, slot: usize) -> &mut [u8] {
        let slot = &mut self.ends.slots[slot];
        slot.buffer.resize(slot.room as usize, 0);
        &mut slot.buffer
    }

    fn submit(&mut self, io: &Io) {
        let started = self.start(io);
        self.ends.slots[io.slot].in_flight = started;
        if started.is_none() {
            self.failed.push(io.slot);
        }
    }

    fn complete(&mut self, until: Instant, done: &mut Vec<Completion>) -> io::Result<()> {
        done.extend(self.failed.drain(..).map(|slot| Completion {
            slot,
            result: Err(Fault::Lost),
            at: None,
        }));
        if !done.is_empty() {
            return Ok(());
        }
        let Direct { runtime, env, ends, .. } = self;
        runtime.block_on(async {
            tokio::select! {
                biased;
                () = poll_fn(|cx| ends.poll(cx, done)) => {}
                () = env.sleep_until(until) => {}
            }
        });
        Ok(())
    }

    fn data(&mut self, _: usize, _: usize) -> Cow<'_, [u8]> {
        Cow::Borrowed(&[]) // unused: `--verify` is refused
    }

    fn describe(&self) -> String {
        "RDMA over iWARP, without SMB".to_owned()
    }

    fn posted(&self) -> Option<WorkRequests> {
        let mut all = None;
        for posted in self.ends.lanes.iter().filter_map(Lane::posted) {
            all.get_or_insert(WorkRequests::default()).merge(&posted);
        }
        all
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        let Direct { runtime, env, ends, .. } = self;
        runtime.block_on(async {
            let late = env.now() + END;
            for lane in &mut ends.lanes {
                lane.qp.close();
                let over = async { while poll_fn(|cx| lane.qp.poll(cx, &mut ends.polled)).await.is_ok() {} };
                tokio::select! {
                    () = over => {}
                    () = env.sleep_until(late) => {}
                }
            }
        });
    }
}
