//! Over loopback: the conformance suite.

mod loopback;
