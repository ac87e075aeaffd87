//! A load on a space, in the process that has its pool: the server's data path without a client.
//!
//! Creates a pool on the given disks (their data is lost), and a space (or `"spaces"` of them) of the
//! requested size, and writes all of it once unless `"fill"` is false. Then it reads commands, one JSON
//! object per line, and answers each with a line. Between commands the disks are idle, so that another
//! program can measure them. Like the server it has one thread with a current-thread runtime for all disks.
//!
//! usage: `poolload '{"resiliency": "mirror", "columns": 1, "size": BYTES, "tables": BYTES, "devices": [...]}'`, then on its standard input
//! `{"do": "load", "write": true, "random": true, "block": BYTES, "depth": N, "seconds": S, "sync": "through"}`, `{"do": "repair", "disk": N, "load": {...}, "target": S}`,
//! `{"do": "checksums"}`, `{"do": "threads", ...}` as a load. And without a pool: see [`floor`] and [`code`].
#![allow(clippy::print_stdout, reason = "its answers")]

mod bench;
mod code;
mod devices;
mod floor;
mod load;
mod memory;
mod repair;

use std::io::BufRead;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use bench::{Bench, Shape};
use floor::Floor;
use load::Load;

#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
enum Command {
    Load(Load),
    /// On each space, from its own thread.
    Threads(Load),
    Checksums,
    Repair {
        disk: u16,
        load: Load,
        /// In seconds.
        target: Option<f64>,
    },
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: poolload code | poolload [floor] SHAPE";
    let first = arguments.next().ok_or(usage)?;
    if first == "code" {
        say(&code::run());
        return Ok(());
    }
    if first == "floor" {
        let floor: Floor = serde_json::from_str(&arguments.next().ok_or(usage)?)?;
        say(&floor.run()?);
        return Ok(());
    }
    let shape: Shape = serde_json::from_str(&first)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let bench = Arc::new(Bench::create(&shape).await?);
        say(&json!({"ready": shape.size}));
        // Reading blocks the only thread, so nothing else runs between commands.
        for line in std::io::stdin().lock().lines() {
            let answer = match serde_json::from_str(&line?)? {
                Command::Load(load) => load.run(&bench).await?.to_json(),
                Command::Threads(load) => json!({"iops": load.run_on_threads(&bench).await?}),
                Command::Checksums => json!({"us": load::checksum_us(&bench)}),
                Command::Repair { disk, load, target } => {
                    repair::run(&bench, disk, &load, target.map(Duration::from_secs_f64)).await?
                }
            };
            say(&answer);
        }
        bench.close().await
    })
}

fn say(answer: &Value) {
    println!("{answer}");
}
