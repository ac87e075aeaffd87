//! Tests the client with real peers: our own server in this process, a tampering proxy, and Samba's smbd.

mod exercise;
mod peer;
mod rdma;
mod repair;
mod samba;
mod tampering;
mod tcp;
