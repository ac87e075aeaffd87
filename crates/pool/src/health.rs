//! How a pool is: words for its parts, what it can lose, and what is wrong with it. Pure functions over what
//! is known at one moment.
//!
//! * [`of_pool`], [`of_disk`] and [`of_space`] give the field's two words, OperationalStatus and HealthStatus.
//! * [`can_lose`] counts what may fail at the same moment, by disk and by fault domain.
//! * [`faults`] lists the faults, each root cause once, with its consequences ([`Fault::consequences`]).

mod cause;
mod fault;
mod lose;
mod status;

pub use crate::domains::Level;
pub use cause::{faults, fill};
pub use fault::{Fault, FaultKind, Place, Severity, Snapshot};
pub use lose::{CanLose, Limit, can_lose};
pub use status::{
    Health, Troubled, may_grow, may_leave, of_disk, of_pool, of_space, rows_that_fit, rows_to_grow,
};
