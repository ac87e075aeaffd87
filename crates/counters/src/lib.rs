//! Performance counters with Windows's names, always enabled.
//!
//! **What it is.** A [`Block`] holds the counters of one connection, or of one connection on one share, and
//! has a single writer: adding is a load and a store, without lock, allocation or lookup. Blocks are members
//! of an [`Instance`] (a share, a session, a connection, a provider, a pool); instances belong to a set in a
//! [`Registry`]. [`sets`] is the table of definitions: for each Windows counter its name, formula, unit and
//! meaning; for each metric its Prometheus name. A [`Snapshot`] has the counts at one time; [`sample`]
//! computes values from two of them. Each disk counts in an [`IoTally`], which also provides percentiles: see
//! [`io`].
//!
//! **What it is not.** It has no history, and no counters for features that do not exist here:
//! [`Set::absent`] lists the Windows counters that are left out, and why.
//!
//! **How a value lives.** A block joins its instances when its owner begins and leaves them when it ends. Its
//! counts are then added to the instance's own sum under the lock that readers take, so a reader never misses
//! or doubles them. Instances of shares exist as long as the registry: their counts never decrease. Instances
//! of connections and sessions are removed with them.
//!
//! **Time.** A request's time runs from the beginning of its connection's turn to its answer. Queue lengths
//! are time integrals that are valid at any time: see [`requests`].
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
pub use instance::{Instance, InstanceGuard, Instances, IoInstance};
pub use io::{IoKind, IoSource, IoTally, PendingIo};
pub use registry::{Clock, PHYSICAL_DISKS, Registry, STORAGE_POOLS, VIRTUAL_DISKS, pool_health, provider};
pub use requests::{Class, Tally};
pub use sets::{Counter, Formula, Kind, Metric, SETS, Set, Unit, find};
pub use sets::{health, levels};
pub use snapshot::{InstanceSnapshot, Level, SetSnapshot, Snapshot};
