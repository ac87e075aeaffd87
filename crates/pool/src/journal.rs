//! The journal of a parity space: changes that must be atomic are written here first.
//!
//! It lies in a mirrored space of its own, made with the parity space and numbered next to it, in as many
//! copies as it takes to survive what the parity space promises. [`record`] has the bytes, [`ring`] what is
//! where and what may be reused; both without I/O.

pub mod record;
pub(crate) mod ring;
