//! An asynchronous SMB client: dialects 2.1 to 3.1.1, over TCP and SMB Direct.
//!
//! **What it is.** [`Client::connect`] negotiates and logs on, [`Client::tree`] opens a share, and [`Tree::open`]
//! opens a file. [`File::submit_read`] and [`File::submit_write`] send I/O, as many requests in parallel as the
//! server's credits allow. If the server announces RDMA, an SMB Direct connection becomes the second channel of the
//! session and carries the I/O. Otherwise [`TransportReport::why_not_rdma`] gives the reason.
//!
//! **What it is not.** It has no cache, requests no oplocks or leases, and does not follow DFS referrals. When its
//! only connection breaks, the caller gets an error. When the SMB Direct channel breaks, READs, WRITEs and other
//! idempotent requests continue over TCP. The client then restores the channel, unless the session is signed with
//! AES-GMAC ([`WhyNotRdma::BoundOnce`]). An expired session is authenticated again.
//!
//! **Layout.** `connection/` is one connection: a core without I/O, and the task that drives it. `setup/`
//! establishes sessions on connections; `repair.rs` recovers them. `client.rs`, `tree.rs`, `file.rs`,
//! `directory.rs`, `pipe.rs` and `transfer.rs` are the public interface.
//!
//! **Buffers.** Payload is in arena buffers and is not copied. A READ returns the buffers that received its
//! payload; a WRITE holds its buffers until the response. On SMB Direct they are exposed for that one request, and
//! the server's access ends before the request completes.
//!
//! **I/O model.** One task per connection, started with [`env::Env::spawn`]. Calls are futures; dropping one at any
//! time cancels it. All types are `Send`.
//!
//! **Errors.** [`ConnectError`] until there is a session, [`RequestError`] afterwards. [`Lost`] tells why a
//! connection ended.

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
