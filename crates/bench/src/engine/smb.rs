//! Files on servers, through `smb_client`: a connection, a log-on and a runtime for each thread.
//!
//! The client has no cache, so `-Sb` and `-Sr` are equal: the server's cache is used. `-Su` bypasses that too
//! (NO_INTERMEDIATE_BUFFERING); `-Sw` opens the file with WRITE_THROUGH.

use std::borrow::Cow;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::Instant;

use arena::{Arena, Sg, sg_slice};
use env::Env;
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use smb_client::{
    Client, ConnectOptions, CreateOptions, File, FileAttributes, OpenOptions, RequestError, TransportKind,
};
use tokio::runtime::Runtime;

use super::backend::{Backend, Completion, Fault, Io, Payload, Setup, TargetLocation, WorkRequests};
use super::create::{Fill, PIECE};
use super::error::OpenError;
use super::offsets::Kind;
use super::payload::{gathered, memory, runtime};
use crate::profile::{CacheMode, Target};

/// Memory of a thread in addition to that of its I/Os, in bytes: the connection's receive buffers.
const MEMORY_BESIDE: usize = 64 << 20;
/// Outstanding writes while a file is created.
const CREATE_DEPTH: usize = 8;

/// A file on a server, with the data for connecting.
#[derive(Clone)]
pub struct SmbFile {
    /// Name or address.
    pub host: String,
    /// The share.
    pub share: String,
    /// The path in the share, with backslashes.
    pub path: String,
    /// User and credentials.
    pub options: ConnectOptions,
}

impl std::fmt::Debug for SmbFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.options.port {
            445 => write!(f, r"\\{}\{}\{}", self.host, self.share, self.path),
            port => write!(f, "smb://{}:{port}/{}/{}", self.host, self.share, self.path.replace('\\', "/")),
        }
    }
}

type Done = (usize, Result<Outcome, RequestError>);
type InFlight = FuturesUnordered<Pin<Box<dyn Future<Output = Done>>>>;

enum Outcome {
    Read(Sg),
    Written(u64),
}

/// See the module.
pub(super) struct Smb {
    runtime: Runtime,
    env: Env,
    arena: Arena,
    clients: Vec<Client>,
    lanes: Vec<LaneState>,
    buffers: Vec<Vec<u8>>,
    data: Vec<Sg>,
    keep: bool,
    in_flight: InFlight,
    description: String,
    /// Work requests posted while opening.
    before: WorkRequests,
}

struct LaneState {
    file: File,
    size: u64,
    source: Sg,
}

impl Smb {
    pub(super) fn open(setup: Setup) -> Result<Smb, OpenError> {
        let runtime = runtime()?;
        let env = Env::real();
        let held: usize = setup.slots.iter().map(|s| *s as usize * 2).sum();
        let arena = memory(held + MEMORY_BESIDE)?;
        let mut opened = Smb {
            runtime,
            env: env.clone(),
            arena: arena.clone(),
            clients: Vec::new(),
            lanes: Vec::new(),
            buffers: setup.slots.iter().map(|s| vec![0; *s as usize]).collect(),
            data: vec![Sg::new(); setup.slots.len()],
            keep: setup.verify,
            in_flight: InFlight::new(),
            description: String::new(),
            before: WorkRequests::default(),
        };
        for lane in &setup.lanes {
            let TargetLocation::Smb(place) = &lane.place else { return Err(OpenError::MixedPlaces) };
            let options = open_options(&lane.target, setup.verify);
            let (client, file) = opened.runtime.block_on(open(place, options, arena.clone(), env.clone()))?;
            let report = client.transport();
            opened.description = match report.kind {
                TransportKind::Rdma => "SMB over SMB Direct".to_owned(),
                TransportKind::Tcp => match report.why_not_rdma {
                    Some(why) => format!("SMB over TCP ({why})"),
                    None => "SMB over TCP".to_owned(),
                },
            };
            let size = file.opened().size;
            let source = gathered(&arena, lane.source.bytes());
            opened.lanes.push(LaneState { file, size, source });
            opened.clients.push(client);
        }
        opened.before = posted(&opened.clients).unwrap_or_default();
        Ok(opened)
    }
}

/// Creates a target's file on its server with `size` bytes; without a `fill` nothing is written. Returns
/// whether data was written.
///
/// # Errors
/// See [`OpenError`].
pub(super) fn create(
    place: &SmbFile,
    size: u64,
    only_if_shorter: bool,
    fill: Option<Fill>,
    mut done: impl FnMut(u64) -> bool,
) -> Result<bool, OpenError> {
    let runtime = runtime()?;
    let env = Env::real();
    let arena = memory(2 * CREATE_DEPTH * PIECE + MEMORY_BESIDE)?;
    let failed = |source| OpenError::Remote { place: format!("{place:?}"), source };
    runtime.block_on(async {
        let options = if only_if_shorter { OpenOptions::open_or_create() } else { OpenOptions::create() };
        let (client, file) = open(place, options, arena.clone(), env).await?;
        if only_if_shorter && file.opened().size >= size {
            let _ = client.logoff().await;
            return Ok(false);
        }
        let Some(fill) = fill else {
            file.set_sparse().await.map_err(failed)?;
            file.set_len(size).await.map_err(failed)?;
            file.close().await.map_err(failed)?;
            let _ = client.logoff().await;
            return Ok(false);
        };
        let mut at = 0;
        while at < size {
            let mut writes = Vec::with_capacity(CREATE_DEPTH);
            while at < size && writes.len() < CREATE_DEPTH {
                let n = usize::try_from(size - at).unwrap_or(PIECE).min(PIECE);
                let mut piece = vec![0; n];
                fill.fill(at, &mut piece);
                writes.push((n as u64, file.write_at(at, gathered(&arena, &piece))));
                at += n as u64;
            }
            for (_, written) in
                futures_util::future::join_all(writes.into_iter().map(|(n, w)| w.map(move |r| (n, r)))).await
            {
                written.map_err(failed)?;
            }
            if !done(at) {
                break;
            }
        }
        file.flush().await.map_err(failed)?;
        file.close().await.map_err(failed)?;
        let _ = client.logoff().await;
        Ok(true)
    })
}

/// The work requests that these clients have posted; `None` without RDMA.
fn posted(clients: &[Client]) -> Option<WorkRequests> {
    let mut all = None;
    for c in clients.iter().filter_map(Client::counters) {
        let w = c.work_requests;
        all.get_or_insert(WorkRequests::default()).merge(&WorkRequests {
            register: w.register,
            send: w.send + w.send_invalidate,
            local_invalidate: w.local_invalidate,
            receive: w.receive,
            remote_invalidations: c.remote_invalidations,
        });
    }
    all
}

async fn open(
    place: &SmbFile,
    options: OpenOptions,
    arena: Arena,
    env: Env,
) -> Result<(Client, File), OpenError> {
    let name = || format!("{place:?}");
    let client = Client::connect(&place.host, place.options.clone(), arena, env)
        .await
        .map_err(|source| OpenError::Connect { place: name(), source: Box::new(source) })?;
    let failed = |source| OpenError::Remote { place: name(), source };
    let tree = client.tree(&place.share).await.map_err(failed)?;
    let file = tree.open(&place.path, options).await.map_err(failed)?;
    Ok((client, file))
}

fn open_options(target: &Target, verify: bool) -> OpenOptions {
    let mut options =
        if target.write_percent > 0 || verify { OpenOptions::write() } else { OpenOptions::read() };
    if target.cache == CacheMode::Unbuffered {
        options = options.unbuffered();
    }
    if target.write_through {
        options = options.write_through();
    }
    if target.random_hint {
        options.options |= CreateOptions::RANDOM_ACCESS;
    }
    if target.sequential_hint {
        options.options |= CreateOptions::SEQUENTIAL_ONLY;
    }
    if target.temporary_hint {
        options.attributes |= FileAttributes::TEMPORARY;
    }
    options
}

impl Backend for Smb {
    fn size(&self, lane: usize) -> u64 {
        self.lanes[lane].size
    }

    fn buffer(&mut self, slot: usize) -> &mut [u8] {
        &mut self.buffers[slot]
    }

    fn submit(&mut self, io: &Io) {
        let (lane, slot) = (&self.lanes[io.lane], io.slot);
        let (offset, length) = (io.offset, io.length);
        match io.kind {
            // If one request is enough it is sent on submission.
            Kind::Read if length <= lane.file.max_read() => {
                let call = lane.file.submit_read(offset, length);
                self.in_flight.push(Box::pin(call.map(move |r| (slot, r.map(Outcome::Read)))));
            }
            Kind::Read => {
                let file = lane.file.clone();
                let read = async move { (slot, file.read_at(offset, length).await.map(Outcome::Read)) };
                self.in_flight.push(Box::pin(read));
            }
            Kind::Write => {
                let bytes = match io.payload {
                    Payload::Source(at) => sg_slice(&lane.source, at, length as usize),
                    Payload::Buffer => gathered(&self.arena, &self.buffers[slot][..length as usize]),
                };
                if length <= lane.file.max_write() {
                    let call = lane.file.submit_write(offset, bytes);
                    let call = call.map(move |r| (slot, r.map(|n| Outcome::Written(n.into()))));
                    self.in_flight.push(Box::pin(call));
                } else {
                    let file = lane.file.clone();
                    let write =
                        async move { (slot, file.write_at(offset, bytes).await.map(Outcome::Written)) };
                    self.in_flight.push(Box::pin(write));
                }
            }
        }
    }

    fn complete(&mut self, until: Instant, done: &mut Vec<Completion>) -> io::Result<()> {
        let Smb { runtime, in_flight, env, data, keep, .. } = self;
        runtime.block_on(async {
            let first = if in_flight.is_empty() {
                env.sleep_until(until).await;
                None
            } else {
                tokio::select! {
                    biased;
                    first = in_flight.next() => first,
                    () = env.sleep_until(until) => None,
                }
            };
            let mut next = first;
            while let Some((slot, outcome)) = next {
                let result = match outcome {
                    Ok(Outcome::Read(bytes)) => {
                        let n = arena::sg_len(&bytes) as u32;
                        data[slot] = if *keep { bytes } else { Sg::new() };
                        Ok(n)
                    }
                    Ok(Outcome::Written(n)) => Ok(u32::try_from(n).unwrap_or(u32::MAX)),
                    Err(e) => Err(fault(&e)),
                };
                done.push(Completion { slot, result, at: None });
                next = in_flight.next().now_or_never().flatten();
            }
        });
        Ok(())
    }

    fn data(&mut self, slot: usize, length: usize) -> Cow<'_, [u8]> {
        let mut bytes = Vec::with_capacity(length);
        for part in &std::mem::take(&mut self.data[slot]) {
            bytes.extend_from_slice(&part[..part.len().min(length - bytes.len())]);
        }
        Cow::Owned(bytes)
    }

    fn describe(&self) -> String {
        self.description.clone()
    }

    fn posted(&self) -> Option<WorkRequests> {
        posted(&self.clients).map(|all| all.since(&self.before))
    }
}

impl Drop for Smb {
    fn drop(&mut self) {
        self.in_flight = InFlight::new();
        let Smb { runtime, clients, lanes, .. } = self;
        runtime.block_on(async {
            for lane in lanes.iter() {
                let _ = lane.file.close().await; // errors do not matter: the session ends anyway
            }
            for client in clients.iter() {
                let _ = client.logoff().await;
            }
        });
    }
}

fn fault(e: &RequestError) -> Fault {
    match (e.status(), e) {
        (Some(status), _) => Fault::Status(status.0),
        (None, RequestError::Lost(_)) => Fault::Lost,
        (None, _) => Fault::Protocol,
    }
}
