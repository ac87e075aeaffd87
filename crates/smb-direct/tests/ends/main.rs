//! Two connected ends: over the simulated fabric, with faults and attacks, and over `iwarp`.

mod connection;
mod counters;
mod faults;
mod iwarp;
mod pair;
