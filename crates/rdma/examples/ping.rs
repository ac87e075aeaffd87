//! Measures `iwarp` over loopback: Sends with an echo, and RDMA Writes and Reads of 512 KiB.
//!
//! `cargo run --release -p rdma --example ping [seconds per figure] [FPDU bytes]`. Two threads, one for each side;
//! figures with CRCs off and on.

use std::error::Error;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::Duration;

use arena::{Arena, Class, IoBuf, Sg, passes};
use env::Env;
use rdma::iwarp::{Crc, IwarpQueuePair, Listener, Options, connect};
use rdma::{Completion, Done, Exposed, QueuePair, Remote, Rights, Stag, Wr, WrId};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const BULK: usize = 512 << 10;
const DEPTH: u64 = 4;
const RECEIVES: u64 = 64;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let seconds: f64 = args.next().map_or(Ok(1.0), |a| a.parse())?;
    let max_fpdu: Option<usize> = args.next().map(|a| a.parse()).transpose()?;
    for crc in [Crc::IfRequested, Crc::Require] {
        println!("CRC {}", if crc == Crc::Require { "on" } else { "off" });
        let options = Options { crc, max_fpdu, ..Options::default() };
        let (tell, told) = mpsc::channel();
        let served = std::thread::spawn({
            let options = options.clone();
            move || runtime()?.block_on(serve(options, tell))
        });
        runtime()?.block_on(measure(told.recv()?, options, Duration::from_secs_f64(seconds)))?;
        served.join().map_err(|_| "the serving thread panicked")??;
    }
    Ok(())
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn post(qp: &mut IwarpQueuePair, id: u64, wr: Wr) -> Result<()> {
    qp.post(WrId(id), wr).map_err(|(e, _)| e.into())
}

/// Processor time of this process, both sides together, in seconds; Linux counts it in hundredths.
fn cpu() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit_once(')').map_or(&stat[..], |(_, rest)| rest);
    let ticks: u64 =
        after_name.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum();
    Ok(ticks as f64 / 100.0)
}

async fn next(qp: &mut IwarpQueuePair, out: &mut Vec<Completion>) -> Result<()> {
    Ok(poll_fn(|cx| qp.poll(cx, out)).await?)
}

/// Exposes a sink and a source, sends their addresses, and echoes what it receives until the connection ends.
async fn serve(options: Options, tell: mpsc::Sender<SocketAddr>) -> Result<()> {
    let arena = Arena::new(64 << 20)?;
    let listener = Listener::bind("127.0.0.1:0".parse()?, Env::real(), options).await?;
    tell.send(listener.local_addr()?)?;
    let incoming = listener.accept().await?.request().await?;
    let mut qp = incoming.accept(b"", 16, 16).await?;
    let bufs = arena.try_alloc_sg(BULK, Class::Payload).ok_or("no memory")?;
    let sink = qp.expose(Exposed::Sink { bufs, length: BULK as u32 }, Rights::RemoteWrite)?;
    let mut source = arena.try_alloc(BULK, Class::Payload).ok_or("no memory")?;
    source.space().fill(0x5A);
    source.set_len(BULK);
    let source = Exposed::Source([source.freeze()].into_iter().collect());
    let source = qp.expose(source, Rights::RemoteRead)?;
    for i in 0..RECEIVES {
        post(&mut qp, i, Wr::Recv(arena.try_alloc(4096, Class::Payload).ok_or("no memory")?))?;
    }
    let tags: Vec<u8> = [sink.stag, source.stag].iter().flat_map(|s| s.0.to_be_bytes()).collect();
    let tags: Sg = [IoBuf::from(tags)].into_iter().collect();
    post(&mut qp, 0, Wr::Send { sg: tags, invalidate: None })?;
    let mut out = Vec::new();
    while next(&mut qp, &mut out).await.is_ok() {
        for c in out.drain(..) {
            if let Ok(Done::Recv { buf, .. }) = c.result {
                post(&mut qp, 0, Wr::Recv(arena.try_alloc(4096, Class::Payload).ok_or("no memory")?))?;
                let sg = [buf.freeze()].into_iter().collect();
                post(&mut qp, 0, Wr::Send { sg, invalidate: None })?;
            }
        }
    }
    Ok(())
}

async fn measure(addr: SocketAddr, options: Options, time: Duration) -> Result<()> {
    let (env, arena) = (Env::real(), Arena::new(64 << 20)?);
    // The connecting side must send first; here a ready-to-receive message does that.
    let options = Options { peer_to_peer: true, ..options };
    let (mut qp, _) = connect(addr, env.clone(), b"", options).await?;
    for i in 0..RECEIVES {
        post(&mut qp, i, Wr::Recv(arena.try_alloc(4096, Class::Payload).ok_or("no memory")?))?;
    }
    let mut out = Vec::new();
    next(&mut qp, &mut out).await?;
    let tags = match out.pop().map(|c| c.result) {
        Some(Ok(Done::Recv { buf, .. })) => buf,
        other => return Err(format!("{other:?}").into()),
    };
    let at = |i: usize| -> Result<Remote> {
        let stag = Stag(u32::from_be_bytes(tags[i..i + 4].try_into()?));
        Ok(Remote { stag, offset: 0, length: BULK as u32 })
    };
    let (to, from) = (at(0)?, at(4)?);
    for size in [16, 4096] {
        let sg: Sg = [IoBuf::from(vec![1; size])].into_iter().collect();
        let (start, used, mut n) = (env.now(), cpu()?, 0u32);
        while env.now() - start < time {
            post(&mut qp, 0, Wr::Send { sg: sg.clone(), invalidate: None })?;
            post(&mut qp, 0, Wr::Recv(arena.try_alloc(4096, Class::Payload).ok_or("no memory")?))?;
            let mut back = false;
            while !back {
                next(&mut qp, &mut out).await?;
                back = out.drain(..).any(|c| matches!(c.result, Ok(Done::Recv { .. })));
            }
            n += 1;
        }
        let us = (env.now() - start).as_secs_f64() * 1e6 / f64::from(n);
        let used = (cpu()? - used) * 1e6 / f64::from(n);
        println!("  send {size:>4} bytes there and back  {us:>7.2} µs, processor {used:>7.2} µs");
    }
    let mut source = arena.try_alloc(BULK, Class::Payload).ok_or("no memory")?;
    source.space().fill(0xA5);
    source.set_len(BULK);
    let source = source.freeze();
    for reading in [false, true] {
        let before = passes::counts();
        let (start, used, mut started, mut done) = (env.now(), cpu()?, 0u64, 0u64);
        while env.now() - start < time {
            while started - done < DEPTH {
                let wr = if reading {
                    Wr::Read { sink: arena.try_alloc(BULK, Class::Payload).ok_or("no memory")?, from }
                } else {
                    Wr::Write { src: [source.clone()].into_iter().collect(), to }
                };
                post(&mut qp, 1, wr)?;
                started += 1;
            }
            next(&mut qp, &mut out).await?;
            for c in out.drain(..) {
                c.result?;
                done += 1;
            }
        }
        let took = (env.now() - start).as_secs_f64();
        let after = passes::counts();
        let bytes = (done as f64) * BULK as f64;
        println!(
            "  {} 512 KiB, {DEPTH} in flight     {:>7.1} µs, processor {:>7.1} µs, {:>6.0} MB/s; passes per byte: place {:.2}, CRC {:.2}",
            if reading { "read " } else { "write" },
            took * 1e6 / done as f64,
            (cpu()? - used) * 1e6 / done as f64,
            bytes / took / 1e6,
            (after.place - before.place) as f64 / bytes,
            (after.crc - before.crc) as f64 / bytes,
        );
        while done < started {
            next(&mut qp, &mut out).await?;
            done += out.drain(..).count() as u64;
        }
    }
    qp.close();
    while next(&mut qp, &mut out).await.is_ok() {}
    Ok(())
}
