//! Establishes a session at an address: negotiation, log-on, and further channels.

mod dial;
mod log_on;
mod negotiate;
pub(crate) mod rdma;

pub(crate) use dial::{dial, dial_direct, no_rdma, within};
pub(crate) use log_on::{LoggedOn, bind, log_on, reauthenticate};
pub(crate) use negotiate::{Negotiated, negotiate, validate};
