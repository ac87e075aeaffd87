//! A pool's coordinator and the owners of its spaces together, on simulated disks: tests only.
//!
//! **What it is.** `pool` and `space` do not depend on each other (`docs/0004-spaces.md`, section B); this crate
//! links them as `pool-local` does for the server. Both run on one [`disk::sim::Machine`] in virtual time and in one
//! runtime. A power cut loses the unflushed writes of both the metadata and the spaces.
//!
//! **What it is not.** It has no product code, and no coordinator of its own: tests of `space` alone use
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
