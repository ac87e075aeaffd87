//! Performance counters in Windows's words, always on.
//!
//! **What it is.** A [`Block`] holds the cells of one connection, or of what one connection does on one share, and has
//! one writer: adding is a load and a store, without lock, allocation or lookup. Blocks are members of an [`Instance`]
//! (a share, a session, a connection, a provider, a pool), instances belong to a set in a [`Registry`]. [`sets`] is the one
//! table of definitions: for each Windows counter its name, how it is computed from which metrics, its unit and what
//! it means; for each metric its Prometheus name. [`Snapshot`] is what was counted at one moment; [`sample`] makes
//! values of two of them. Disks count in an [`IoTally`] each, which also knows percentiles: see [`io`].
//!
//! **What it is not.** No history, no names for what does not exist here yet: [`Set::absent`] says
//! which of Windows's counters are left out, and why.
//!
//! **How a value lives.** A block joins its instances when its owner begins and leaves them when it ends; what it
//! counted is then added to the instance's own sum under the lock that readers take, so that a reader never misses
//! or doubles it. Instances of shares stay for as long as the registry lives: their counts never go back. Instances
//! of connections and sessions go with them.
//!
//! **Time.** A request's time runs from when its connection's turn began to its answer. Queue lengths are time integrals
//! that are right at any moment: see [`requests`].
//!
//! **Errors.** None: counting cannot fail.

mod block;
mod instance;
pub mod io;
mod registry;
pub mod requests;
pub mod sample;
mod sets;
mod snapshot;
pub mod transfers;

pub use block::{Block, CELLS, Cell, Update, Values};
pub use instance::{Instance, Instances, IoInstance, Opened};
pub use io::{IoBegun, IoKind, IoSource, IoTally};
pub use registry::{Clock, PHYSICAL_DISKS, Registry, STORAGE_POOLS, VIRTUAL_DISKS, pool_health, provider};
pub use requests::{Class, Tally};
pub use sets::{Counter, How, Kind, Metric, SETS, Set, Unit, find};
pub use sets::{health, levels};
pub use snapshot::{InstanceSnapshot, Level, SetSnapshot, Snapshot};
