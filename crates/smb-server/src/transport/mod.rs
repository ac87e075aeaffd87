//! Moving messages between an engine and a socket or a queue pair.

mod direct;
mod tcp;
