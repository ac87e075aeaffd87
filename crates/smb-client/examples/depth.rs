//! Measures the cost of an I/O for this client: random reads (or writes), DEPTH of them in flight, on one core.
//! `depth HOST:PORT SHARE PATH [read|write] [BYTES] [DEPTH] [SECONDS]`, with the user in `SMB_USER` and the
//! password in `SMB_PASSWORD`. `SMB_TRANSPORT=rdma` selects SMB Direct, on `SMB_RDMA_PORT`. The session is signed
//! if the server or `SMB_SIGN=1` demands it.

mod user;

use std::error::Error;
use std::time::Duration;

use arena::{Arena, Class, IoBufMut, Sg};
use env::Env;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use smb_client::{Client, File, OpenOptions, RequestError, TransportChoice};

/// Size of the file in bytes.
const FILE: u64 = 64 << 20;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, share, path, rest @ ..] = &arguments[..] else {
        return Err("usage: depth HOST:PORT SHARE PATH [read|write] [BYTES] [DEPTH] [SECONDS]".into());
    };
    let number = |i: usize, default: u64| rest.get(i).map_or(Ok(default), |n| n.parse());
    let writes = rest.first().is_some_and(|w| w == "write");
    let (bytes, depth, seconds) = (number(1, 8192)?, number(2, 32)?, number(3, 3)?);
    let mut options = user::options()?;
    let (host, port) = server.rsplit_once(':').ok_or("HOST:PORT")?;
    options.port = port.parse()?;
    options.require_signing = std::env::var("SMB_SIGN").is_ok();
    options.transport = TransportChoice::Tcp;
    if std::env::var("SMB_TRANSPORT").is_ok_and(|t| t == "rdma") {
        options.transport = TransportChoice::Rdma;
        options.rdma_port = std::env::var("SMB_RDMA_PORT")?.parse()?;
    }
    let (arena, env) = (Arena::new(256 << 20)?, Env::real());
    let client = Client::connect(host, options, arena.clone(), env.clone()).await?;
    let file = client.tree(share).await?.open(path, OpenOptions::open_or_create()).await?;
    let data: Sg = fill(&arena, 1 << 20).await;
    for at in (0..FILE).step_by(1 << 20) {
        file.write_at(at, data.clone()).await?;
    }
    let payload = arena::sg_slice(&data, 0, bytes as usize);

    let mut seed = env.random_u64() | 1;
    let mut next = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % (FILE / bytes) * bytes
    };
    let started = (env.now(), cpu());
    let end = started.0 + Duration::from_secs(seconds);
    let (mut done, mut in_flight) = (0u64, FuturesUnordered::new());
    for _ in 0..depth {
        in_flight.push(one(&file, writes, next(), bytes as u32, &payload));
    }
    while let Some(result) = in_flight.next().await {
        result?;
        done += 1;
        if done % 64 != 0 || env.now() < end {
            in_flight.push(one(&file, writes, next(), bytes as u32, &payload));
        } else {
            break;
        }
    }
    let (wall, used) = (env.now() - started.0, cpu() - started.1);
    println!(
        "{} {bytes} bytes, depth {depth}, {:?}: {:.0} I/O per second, {:.2} µs of this process's CPU each",
        if writes { "write" } else { "read" },
        client.transport().kind,
        done as f64 / wall.as_secs_f64(),
        used.as_secs_f64() * 1e6 / done as f64,
    );
    drop(in_flight);
    client.logoff().await?;
    Ok(())
}

async fn one(file: &File, write: bool, at: u64, bytes: u32, payload: &Sg) -> Result<(), RequestError> {
    if write {
        file.submit_write(at, payload.clone()).await.map(|_| ())
    } else {
        file.submit_read(at, bytes).await.map(|_| ())
    }
}

async fn fill(arena: &Arena, bytes: usize) -> Sg {
    let mut bufs = arena.alloc_sg(bytes, Class::Payload).await;
    bufs.iter_mut().for_each(|b| b.set_len(b.capacity()));
    bufs.into_iter().map(IoBufMut::freeze).collect()
}

/// Processor time of this process.
fn cpu() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}
