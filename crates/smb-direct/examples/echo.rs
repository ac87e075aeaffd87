//! Runs two ends in one process: a message and its echo, then an RDMA Write announced by a message.
//!
//! `cargo run -p smb-direct --example echo`

use arena::{Arena, Class, IoBuf, Sg, sg_to_vec};
use env::Env;
use rdma::sim::{self, Options};
use rdma::{Exposed, Rights};
use smb_direct::{BufferDescriptorV1, Event, SmbDirect, SmbDirectError, SmbDirectOptions};

fn text(s: &str) -> Sg {
    Sg::from_iter([IoBuf::from(s.as_bytes().to_vec())])
}

async fn server(mut end: SmbDirect) -> Result<(), SmbDirectError> {
    loop {
        let Event::Message { data, .. } = end.event().await? else { continue };
        let message = sg_to_vec(&data);
        match BufferDescriptorV1::decode_all(&message) {
            // The response arrives after the data, and invalidates the client's buffer.
            Some(to) if !to.is_empty() => {
                end.rdma_write(1, text("by RDMA Write"), &to)?;
                end.send(text("written"), Some(rdma::Stag(to[0].token)))?;
            }
            _ => end.send(data, None)?,
        }
    }
}

async fn client(mut end: SmbDirect, arena: Arena) -> Result<(), SmbDirectError> {
    end.send(text("hello"), None)?;
    if let Event::Message { data, .. } = end.event().await? {
        println!("echoed: {}", String::from_utf8_lossy(&sg_to_vec(&data)));
    }
    let bufs = arena.try_alloc_sg(4096, Class::Payload).ok_or(SmbDirectError::NoMemory)?;
    let exposure = end.expose(Exposed::Sink { bufs, length: 13 }, Rights::RemoteWrite)?;
    end.send(Sg::from_iter([IoBuf::from(BufferDescriptorV1::from(exposure).encode().to_vec())]), None)?;
    if let Event::Message { invalidated: Some((stag, Exposed::Sink { mut bufs, length })), .. } =
        end.event().await?
    {
        let data = &bufs[0].space()[..length as usize];
        println!("steering tag {:#010x}: {}", stag.0, String::from_utf8_lossy(data));
    }
    println!("{:#?}", end.counters());
    end.close();
    while end.event().await.is_ok() {}
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), SmbDirectError> {
    let (env, arena) = (Env::real(), Arena::new(4 << 20).expect("a small mapping"));
    let (a, b) = sim::pair(Options::new(env.clone()));
    let options = SmbDirectOptions::default();
    let (near, far) = tokio::join!(
        SmbDirect::connect(Box::new(a), arena.clone(), env.clone(), options.clone()),
        SmbDirect::accept(Box::new(b), arena.clone(), env, options),
    );
    let (done, over) = tokio::join!(client(near?, arena), server(far?));
    println!("the server's end: {}", over.expect_err("it serves until the client goes"));
    done
}
