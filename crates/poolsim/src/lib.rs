//! A pool's coordinator and the owners of its spaces together, on simulated disks: tests only.
//!
//! **What it is.** `pool` and `space` do not know each other (`docs/0004-spaces.md`, section B); this crate links them as
//! `pool-local` does for the server, and runs both on one [`disk::sim::Machine`] in virtual time: everything waits in the
//! same runtime, and a power cut loses what the metadata and the spaces have not flushed alike.
//!
//! **What it is not.** It has no product code, and no coordinator of its own: what `space` is tested with alone is
//! `space::rig`.

#[cfg(test)]
mod history;
#[cfg(test)]
mod model;
#[cfg(test)]
mod process;
#[cfg(test)]
mod rates;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;
