//! An asynchronous SMB client: dialects 2.1 to 3.1.1, over TCP and SMB Direct.
//!
//! **What it is.** [`Client::connect`] negotiates and logs on; [`Client::tree`] opens a share; [`Tree::open`] a file;
//! [`File::submit_read`] and [`File::submit_write`] put I/O in flight, as deep as the server's credits allow. Where the
//! server announces RDMA, an SMB Direct connection joins the session as a second channel and takes the I/O; where not,
//! [`TransportReport::why_not_rdma`] says why.
//!
//! **What it is not.** It keeps no cache, takes no oplocks or leases, and follows no DFS referrals. When its
//! only connection breaks, the caller gets an error and decides. When the SMB Direct channel breaks, READs,
//! WRITEs and other idempotent requests continue by TCP, and the channel is made again, unless the session is
//! signed with AES-GMAC ([`WhyNotRdma::BoundOnce`]). An expired session is renewed.
//!
//! **Layout.** `connection/` is one connection: a core without I/O and the task that drives it. `setup/`
//! makes a session out of connections, `repair.rs` keeps it going. `client.rs`, `tree.rs`, `file.rs`,
//! `directory.rs`, `pipe.rs` and `transfer.rs` are what callers use.
//!
//! **How a value lives.** Payload is in arena buffers and is not copied: a READ's answer is given out as the buffers
//! that it was received or placed into, a WRITE's buffers are held until its answer is there. On SMB Direct they are
//! exposed for that one request, and out of the server's reach again before it completes.
//!
//! **I/O model.** One task per connection, started with [`env::Env::spawn`]; calls are futures and may be
//! dropped at any time, which cancels them. All types are `Send`.
//!
//! **Errors.** [`ConnectError`] until there is a session, [`RequestError`] afterwards; [`Lost`] says what ended a
//! connection.

mod client;
mod connection;
mod directory;
mod error;
mod file;
mod io;
mod link;
mod metadata;
mod open;
mod options;
mod path;
mod pipe;
mod repair;
mod setup;
mod sparse;
mod transfer;
mod tree;

pub use client::{Client, TransportKind, TransportReport};
pub use directory::{Dir, DirEntry};
pub use error::{ConnectError, Lost, RequestError, WhyNotRdma};
pub use file::File;
pub use io::{ReadCall, WriteCall};
pub use metadata::{Metadata, Space, Times};
pub use open::OpenOptions;
pub use options::{ConnectOptions, TransportChoice};
pub use pipe::Share;
pub use transfer::{Download, Upload};
pub use tree::Tree;

pub use smb_auth::crypt::Cipher;
pub use smb_auth::ntlm::NtHash;
pub use smb_auth::ntlm::initiate::Credentials;
pub use smb_auth::sign::SigningAlgorithm;
pub use smb_direct::Counters;
pub use smb_wire::msg::{CreateDisposition, CreateOptions, ShareType};
pub use smb_wire::{AccessMask, FileAttributes, FileTime, NtStatus, ShareAccess};
