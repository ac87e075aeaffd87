//! `causeway bench listen`: the server of the targets without SMB, `iwarp://` and `tcp://`.

use std::io::{self, Write};

use bench::fabric::{Bounds, FabricAddress, FabricTransport, Listener, ListenerEvent};
use clap::Parser;

use crate::config::parse_size;
use crate::failure::Failure;
use crate::output::complain;

/// The upper limit of `--block`, in bytes.
const BLOCK_MAX: u64 = 256 << 20;
/// The upper limit of `--depth`: the limit of a thread of bench.
const DEPTH_MAX: i64 = bench::options::OUTSTANDING_MAX as i64;

/// Serve the targets iwarp://HOST:PORT and tcp://HOST:PORT of causeway bench, without SMB, until Ctrl-C. Reads
/// return zeros, and written data is dropped. The measured rate is the upper limit for an SMB server
///
/// Clients are not authenticated.
#[derive(Debug, Parser)]
#[command(name = "causeway bench listen", no_binary_name = true)]
pub(super) struct ListenArgs {
    /// Addresses to listen on, such as iwarp://127.0.0.1:5447 or tcp://[::]:5448; port 0 selects a free port
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<FabricAddress>,
    /// Size that the targets report
    #[arg(long, value_name = "BYTES", default_value = "1TiB", value_parser = size)]
    size: u64,
    /// Longest I/O that is accepted
    #[arg(long, value_name = "BYTES", default_value = "16MiB", value_parser = block)]
    block: u32,
    /// Maximum number of outstanding I/Os of a connection
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=DEPTH_MAX))]
    depth: u32,
    /// Maximum number of connections at a time; each has a thread and takes at most 9 MiB, and 4 KiB for each
    /// outstanding I/O
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=8192))]
    connections: u32,
}

fn size(text: &str) -> Result<u64, String> {
    let size = parse_size(text).filter(|n| *n > 0);
    size.ok_or_else(|| "write it like 64KiB, 512MiB or 1TiB".to_owned())
}

fn block(text: &str) -> Result<u32, String> {
    let block = size(text)?;
    let block = u32::try_from(block).ok().filter(|n| u64::from(*n) <= BLOCK_MAX);
    block.ok_or_else(|| "the maximum is 256MiB".to_owned())
}

/// Listens until the process is stopped.
///
/// # Errors
/// An address cannot be listened on.
pub(super) fn run(words: &[String]) -> Result<(), Failure> {
    let args = match ListenArgs::try_parse_from(words) {
        Ok(args) => args,
        Err(e) => e.exit(),
    };
    let bounds =
        Bounds { size: args.size, block: args.block, depth: args.depth, connections: args.connections };
    let listener = Listener::bind(&args.places, bounds)
        .map_err(|(place, source)| Failure::Fabric { place: place.to_string(), source: Box::new(source) })?;
    let at = |(transport, address): &(FabricTransport, _)| format!("{} {address}", transport.scheme());
    let addresses: Vec<String> = listener.addresses()?.iter().map(at).collect();
    writeln!(io::stdout(), "ready: {}", addresses.join(", "))?;
    listener.run(|heard| match heard {
        ListenerEvent::Ended(peer, Err(why)) => complain(&format!("{peer}: {why}")),
        ListenerEvent::AcceptFailed(why) => complain(&format!("a connection could not be accepted: {why}")),
        ListenerEvent::Connected(_) | ListenerEvent::Ended(_, Ok(())) => {}
    });
    Ok(())
}
