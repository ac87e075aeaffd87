//! Measures the cost of opening and closing files: DEPTH tasks in parallel, each opens and closes its own existing
//! file in a loop.
//! `handles HOST:PORT SHARE [ordinary|persistent] [DEPTH] [SECONDS]`, with the user in `SMB_USER` and the password
//! in `SMB_PASSWORD`. It fails if persistent handles are requested but the share does not support them.

mod user;

use std::error::Error;
use std::time::{Duration, Instant};

use arena::Arena;
use env::Env;
use futures_util::future::try_join_all;
use smb_client::{Client, OpenOptions, RequestError, TransportChoice, Tree};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, share, rest @ ..] = &arguments[..] else {
        return Err("usage: handles HOST:PORT SHARE [ordinary|persistent] [DEPTH] [SECONDS]".into());
    };
    let persistent = rest.first().is_some_and(|kind| kind == "persistent");
    let depth: usize = rest.get(1).map_or(Ok(64), |n| n.parse())?;
    let seconds = rest.get(2).map_or(Ok(3), |n| n.parse())?;
    let mut options = user::options()?;
    let (host, port) = server.rsplit_once(':').ok_or("HOST:PORT")?;
    options.port = port.parse()?;
    options.transport = TransportChoice::Tcp;
    let env = Env::real();
    let client = Client::connect(host, options, Arena::new(64 << 20)?, env.clone()).await?;
    let tree = client.tree(share).await?;
    for n in 0..depth {
        tree.open(&name(n), OpenOptions::create()).await?.close().await?;
    }
    let began = env.now();
    let end = began + Duration::from_secs(seconds);
    let done = try_join_all((0..depth).map(|n| in_turns(&env, &tree, name(n), persistent, end))).await?;
    let took = env.now() - began;
    println!("{:.0} opens and closes per second", done.iter().sum::<u64>() as f64 / took.as_secs_f64());
    client.logoff().await?;
    Ok(())
}

fn name(n: usize) -> String {
    format!("handle-{n}")
}

/// Opens and closes a file until a given time; returns how often.
async fn in_turns(
    env: &Env,
    tree: &Tree,
    name: String,
    persistent: bool,
    end: Instant,
) -> Result<u64, RequestError> {
    let options = OpenOptions { persistent, ..OpenOptions::write() };
    let mut done = 0;
    while env.now() < end {
        let file = tree.open(&name, options).await?;
        assert_eq!(file.is_persistent(), persistent, "the share has no persistent handles");
        file.close().await?;
        done += 1;
    }
    Ok(done)
}
