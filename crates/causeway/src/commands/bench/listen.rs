//! `causeway bench listen`: the other end of targets without SMB, `iwarp://` and `tcp://`.

use std::io::{self, Write};

use bench::fabric::{Bounds, Carrier, FabricPlace, Heard, Listener};
use clap::Parser;

use crate::config::parse_size;
use crate::failure::Failure;
use crate::output::complain;

/// The longest I/O that can be allowed, in bytes.
const BLOCK_MAX: u64 = 256 << 20;
/// The highest allowed number of outstanding I/Os: that of a thread of bench.
const DEPTH_MAX: i64 = bench::options::OUTSTANDING_MAX as i64;

/// Answer targets iwarp://HOST:PORT and tcp://HOST:PORT of causeway bench: reads return zeros, writes are
/// dropped, and there is no SMB. The result is the upper limit for a server. It runs until Ctrl-C
///
/// Clients are not authenticated, and received data is dropped.
#[derive(Debug, Parser)]
#[command(name = "causeway bench listen", no_binary_name = true)]
pub(super) struct ListenArgs {
    /// Where to listen: iwarp://127.0.0.1:5447, tcp://[::]:5448; port 0 selects a free one
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<FabricPlace>,
    /// The size that targets report
    #[arg(long, value_name = "BYTES", default_value = "1TiB", value_parser = size)]
    size: u64,
    /// The longest I/O that is accepted
    #[arg(long, value_name = "BYTES", default_value = "16MiB", value_parser = block)]
    block: u32,
    /// I/Os outstanding that a connection may have
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=DEPTH_MAX))]
    depth: u32,
    /// Connections at a time; each has a thread and at most 9 MiB, and 4 KiB for each I/O outstanding
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=8192))]
    connections: u32,
}

fn size(text: &str) -> Result<u64, String> {
    let size = parse_size(text).filter(|n| *n > 0);
    size.ok_or_else(|| "a size is needed: a number with KiB, MiB, GiB or TiB".to_owned())
}

fn block(text: &str) -> Result<u32, String> {
    let block = size(text)?;
    let block = u32::try_from(block).ok().filter(|n| u64::from(*n) <= BLOCK_MAX);
    block.ok_or_else(|| "256MiB at most".to_owned())
}

/// Runs it.
///
/// # Errors
/// That a place cannot be listened on.
pub(super) fn run(words: &[String]) -> Result<(), Failure> {
    let args = match ListenArgs::try_parse_from(words) {
        Ok(args) => args,
        Err(e) => e.exit(),
    };
    let bounds =
        Bounds { size: args.size, block: args.block, depth: args.depth, connections: args.connections };
    let listener = Listener::bind(&args.places, bounds)
        .map_err(|(place, source)| Failure::Fabric { place: place.to_string(), source: Box::new(source) })?;
    let at = |(carrier, address): &(Carrier, _)| format!("{} {address}", carrier.scheme());
    let addresses: Vec<String> = listener.addresses()?.iter().map(at).collect();
    writeln!(io::stdout(), "ready: {}", addresses.join(", "))?;
    listener.run(|heard| match heard {
        Heard::Ended(peer, Err(why)) => complain(&format!("{peer}: {why}")),
        Heard::NotTaken(why) => complain(&format!("a connection could not be accepted: {why}")),
        Heard::Came(_) | Heard::Ended(_, Ok(())) => {}
    });
    Ok(())
}
