//! One file per command. A handler gets an owned [`Request`] and returns a [`Reply`]; errors are replies.

pub(crate) mod close;
pub(crate) mod create;
pub(crate) mod flush;
pub(crate) mod ioctl;
pub(crate) mod lock;
pub(crate) mod notify;
pub(crate) mod oplock;
pub(crate) mod query_directory;
pub(crate) mod query_info;
pub(crate) mod read;
pub(crate) mod set_info;
pub(crate) mod tree;
pub(crate) mod write;
