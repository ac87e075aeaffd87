//! The activity log of one disk: which regions may have writes in flight. [`Core`] decides and does no I/O;
//! `log` writes what it says.

mod core;
mod log;
#[cfg(test)]
mod tests;

pub use self::core::{Begun, Core, Full, LogWrite};
pub(crate) use self::log::{Log, Mark, NotMarked};
