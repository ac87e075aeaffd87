//! Two connected ends: over the simulated fabric, under faults and attack, over `iwarp`.

mod connection;
mod counters;
mod faults;
mod iwarp;
mod pair;
