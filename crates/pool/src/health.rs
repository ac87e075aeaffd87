//! The health of a pool: status words for its parts, the failures that it survives, and its faults. Pure functions over
//! a snapshot.
//!
//! * [`of_pool`], [`of_disk`] and [`of_space`] return the industry's two words, OperationalStatus and HealthStatus.
//! * [`can_lose`] counts the simultaneous failures that the pool survives, by disk and by fault domain.
//! * [`faults`] lists the faults, each root cause once, with its consequences ([`Fault::consequences`]).

mod cause;
mod fault;
mod lose;
mod status;

pub use crate::domains::Level;
pub use cause::{faults, fill};
pub use fault::{Fault, FaultKind, FaultObject, Severity, Snapshot};
pub use lose::{CanLose, Limit, can_lose};
pub use status::{
    Health, Problems, may_grow, may_leave, of_disk, of_pool, of_space, rows_that_fit, rows_to_grow,
};
