//! Runs structures that several threads of the server or a space use concurrently under loom. Loom explores
//! every order of their threads' steps with at most `LOOM_MAX_PREEMPTIONS` (3) preemptions; `make loom`
//! allows 4.
//!
//! The structures are the crates' own source files, compiled here with loom's primitives as their
//! `crate::sync`.
#![cfg(test)]

#[path = "../../../crates/space/src/view/current.rs"]
mod current;
#[path = "../../../crates/smb-server/src/mailbox.rs"]
mod mailbox;
#[path = "../../../crates/smb-server/src/opens.rs"]
mod opens;
#[path = "../../../crates/smb-server/src/open/ownership.rs"]
mod ownership;
mod sync;

mod inbox;
mod open_table;
mod owner_view;

/// Runs `model` in all orders.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new(); // reads LOOM_MAX_PREEMPTIONS
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(model);
}
