//! From an address to a session: negotiation, log-on, and further channels.

mod log_on;
mod negotiate;
pub(crate) mod rdma;

pub(crate) use log_on::{LoggedOn, bind, log_on};
pub(crate) use negotiate::{Negotiated, negotiate, validate};
