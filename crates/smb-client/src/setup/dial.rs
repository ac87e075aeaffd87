//! Resolves a name and connects.

use std::net::SocketAddr;
use std::time::Duration;

use arena::Arena;
use env::Env;
use smb_direct::SmbDirect;
use tokio::net::TcpStream;

use super::rdma::{self, DirectError};
use crate::{ConnectError, ConnectOptions, WhyNotRdma};

pub(crate) fn no_rdma(address: SocketAddr, announced: bool, error: &DirectError) -> ConnectError {
    let reason = error.to_string();
    ConnectError::NoRdma(Box::new(WhyNotRdma::ConnectFailed { address, announced, reason }))
}

async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, ConnectError> {
    let failed = |source| ConnectError::Resolve { host: host.to_owned(), source };
    let found: Vec<_> = tokio::net::lookup_host((host, port)).await.map_err(failed)?.collect();
    if found.is_empty() {
        return Err(failed(std::io::ErrorKind::NotFound.into()));
    }
    Ok(found)
}

/// Connects to the first of the host's addresses that answers.
pub(crate) async fn dial(host: &str, port: u16) -> Result<TcpStream, ConnectError> {
    let mut failure = None;
    for address in resolve(host, port).await? {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(source) => failure = Some(ConnectError::Unreachable { address, source }),
        }
    }
    Err(failure.unwrap_or(ConnectError::TimedOut))
}

pub(crate) async fn dial_direct(
    host: &str,
    options: &ConnectOptions,
    arena: &Arena,
    env: &Env,
) -> Result<SmbDirect, ConnectError> {
    let mut failure = None;
    for address in resolve(host, options.rdma_port).await? {
        match rdma::connect(address, arena.clone(), env.clone(), options.connect_timeout).await {
            Ok(direct) => return Ok(direct),
            Err(error) => failure = Some(no_rdma(address, false, &error)),
        }
    }
    Err(failure.unwrap_or(ConnectError::TimedOut))
}

/// Runs a step under a deadline.
pub(crate) async fn within<T>(
    env: &Env,
    time: Duration,
    step: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    tokio::select! {
        biased;
        done = step => done,
        () = env.sleep(time) => Err(ConnectError::TimedOut),
    }
}
