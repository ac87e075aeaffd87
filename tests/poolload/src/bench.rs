//! A pool with its spaces.

use std::sync::Arc;

use arena::{Arena, Class, IoBuf};
use disk::Disk;
use env::{Ctx, Env, IoFlags};
use pool::format::Claimant;
use pool::{CreateOptions, NewDisk, Pool, Resiliency, SpaceRecord};
use pool_local::{LocalOptions, LocalPool, TableBudget};
use serde::Deserialize;

use crate::Failure;
use crate::devices::{Counted, Counts};

/// The description of the pool and spaces to create.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// `simple`, `mirror` (two copies) or `parity` (one parity column).
    pub resiliency: String,
    pub columns: u8,
    /// Size of each space, in bytes.
    pub size: u64,
    /// Whether each space is written completely once before the measurement.
    #[serde(default = "yes")]
    pub fill: bool,
    /// The number of spaces.
    #[serde(default = "one")]
    pub spaces: usize,
    /// Memory for checksum tables in bytes; default: as in the server.
    pub tables: Option<usize>,
    pub devices: Vec<String>,
}

fn yes() -> bool {
    true
}

fn one() -> usize {
    1
}

/// An open pool with its spaces.
pub struct Bench {
    pub env: Env,
    pub arena: Arena,
    pub pool: Pool,
    owners: Arc<LocalPool>,
    /// The spaces as disks, as in the server; most loads use the first one.
    pub spaces: Vec<Arc<dyn Disk>>,
    pub devices: Vec<Arc<Counted>>,
    /// The data of writes: random bytes, a different part for each write.
    pub source: IoBuf,
}

const ARENA: usize = 256 << 20;
/// Bytes of random data, which limits the length of a write.
pub const SOURCE: usize = 4 << 20;
const INTERLEAVE: u32 = 256 << 10;
const FILL_AT_ONCE: u64 = 8;

/// A context for writes that are durable on completion, or not.
pub fn context(through: bool) -> Ctx {
    Ctx { flags: IoFlags { write_through: through, ..IoFlags::default() }, ..Ctx::default() }
}

impl Bench {
    /// Creates the pool and its spaces.
    pub async fn create(shape: &Shape) -> Result<Bench, Failure> {
        let (env, arena) = (Env::real(), Arena::new(ARENA)?);
        let devices = shape
            .devices
            .iter()
            .map(|path| Counted::open(&env, &arena, path))
            .collect::<Result<Vec<_>, _>>()?;
        let new =
            |d: &Arc<Counted>| NewDisk { overwrite: true, ..NewDisk::new(Arc::clone(d) as Arc<dyn Disk>) };
        let disks: Vec<NewDisk> = devices.iter().map(new).collect();
        let by =
            Claimant { host: "bench".into(), machine: [1; 16], boot: [1; 16], process: std::process::id() };
        let options = CreateOptions::new("bench", by);
        let pool = Pool::create(&env, &arena, &disks, options).await?;
        let resiliency = match shape.resiliency.as_str() {
            "simple" => Resiliency::Simple,
            "mirror" => Resiliency::Mirror { copies: 2 },
            "parity" => Resiliency::Parity { parity: 1 },
            other => return Err(format!("no resiliency is called {other}").into()),
        };
        let record = SpaceRecord {
            size: shape.size,
            resiliency,
            interleave: INTERLEAVE,
            columns: shape.columns,
            ..SpaceRecord::default()
        };
        let mut options = LocalOptions::default();
        if let Some(bytes) = shape.tables {
            options.tables = TableBudget::new(bytes);
        }
        let owners = LocalPool::open(&env, &arena, &pool, options).await;
        let mut spaces: Vec<Arc<dyn Disk>> = Vec::new();
        for number in 0..shape.spaces {
            let record = SpaceRecord { name: format!("space{number}"), ..record.clone() };
            spaces.push(Arc::new(owners.disk(owners.create(record).await?)?));
        }
        let mut source = arena.try_alloc_run(SOURCE, Class::Payload).ok_or("no memory")?;
        source.set_len(SOURCE);
        env.fill_random(source.filled_mut());
        let bench = Bench { env, arena, pool, owners, spaces, devices, source: source.freeze() };
        if shape.fill {
            for space in &bench.spaces {
                bench.fill(space, shape.size).await?;
            }
        }
        Ok(bench)
    }

    /// Writes all of a space once.
    async fn fill(&self, space: &Arc<dyn Disk>, size: u64) -> Result<(), Failure> {
        let mut at = 0;
        while at < size {
            let mut writes = Vec::new();
            for _ in 0..FILL_AT_ONCE {
                let length = (size - at).min(SOURCE as u64);
                if length > 0 {
                    let src = [self.source.slice(0..length as usize)].into_iter().collect();
                    writes.push(space.write(&Ctx::default(), at, src).wait());
                }
                at += length;
            }
            futures_util::future::try_join_all(writes).await?;
        }
        Ok(space.flush(&Ctx::default()).wait().await?)
    }

    /// The sums of all I/O to the disks so far.
    pub fn counts(&self) -> Counts {
        let sum = |sum: Counts, d: &Arc<Counted>| sum.each(d.counts(), |a, b| a + b);
        self.devices.iter().fold(Counts::default(), sum)
    }

    /// Closes the spaces and exports the pool.
    pub async fn close(&self) -> Result<(), Failure> {
        self.owners.close().await?;
        Ok(self.pool.export().await?)
    }
}
