//! SMB Direct on an accepted TCP connection: iWARP set-up, SMB Direct negotiation, then the server.

use std::net::SocketAddr;

use rdma::iwarp::{self, Options, SetupError};
use smb_direct::{SmbDirect, SmbDirectError, SmbDirectOptions};
use smb_server::{Admitted, SetupEnded};
use thiserror::Error;
use tokio::net::TcpStream;

use super::worker::Context;

/// Why a connection failed.
#[derive(Debug, Error)]
enum DirectError {
    /// The set-up took too long, or the server is stopping.
    #[error(transparent)]
    Ended(SetupEnded),
    /// The TCP connection ended.
    #[error("transport: {0}")]
    Transport(#[from] std::io::Error),
    /// The iWARP set-up (MPA) failed.
    #[error("iWARP: {0}")]
    Setup(#[from] SetupError),
    /// The negotiation of SMB Direct failed.
    #[error("SMB Direct: {0}")]
    Direct(#[from] SmbDirectError),
}

/// The number of concurrent RDMA Reads for a peer that does not report its limit: one is always valid.
const READS_UNKNOWN: u32 = 1;

/// Serves a connection until it ends. A failed set-up is logged.
pub(super) async fn serve(admitted: Admitted, stream: TcpStream, peer: SocketAddr, context: Context) {
    match admitted
        .set_up(establish(stream, &context))
        .await
        .map_err(DirectError::Ended)
        .and_then(|set_up| set_up)
    {
        Ok((direct, local)) => admitted.serve_direct(direct, peer, local).await,
        Err(error) => tracing::warn!(%peer, "cannot set up an SMB Direct connection: {error}"),
    }
}

async fn establish(stream: TcpStream, context: &Context) -> Result<(SmbDirect, SocketAddr), DirectError> {
    let local = stream.local_addr()?;
    let options = Options::default();
    let (ird, ord) = (options.ird, options.ord);
    let incoming = iwarp::respond(stream, context.env.clone(), options).await?;
    let said = depths(&incoming.private_data);
    let ord = ord.min(incoming.ird.or(said.map(|(ird, _)| ird)).unwrap_or(READS_UNKNOWN));
    // A peer that sends its depths in private data expects the server's depths there too.
    let reply = said.map_or_else(Vec::new, |_| [ird.to_be_bytes(), ord.to_be_bytes()].concat());
    let queue_pair = Box::new(incoming.accept(&reply, ird, ord).await?);
    let (arena, env) = (context.arena.clone(), context.env.clone());
    let direct = SmbDirect::accept(queue_pair, arena, env, SmbDirectOptions::server()).await?;
    Ok((direct, local))
}

/// The number of concurrent RDMA Reads that a peer answers (IRD) and starts (ORD). Linux's SMB Direct sends them in the
/// private data of MPA revision 1, which has no fields for them: two big-endian 32-bit numbers.
fn depths(private_data: &[u8]) -> Option<(u32, u32)> {
    let (ird, ord) = private_data.split_at_checked(4)?;
    Some((u32::from_be_bytes(ird.try_into().ok()?), u32::from_be_bytes(ord.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths_are_two_numbers_or_nothing() {
        assert_eq!(depths(&[0, 0, 0, 32, 0, 0, 0, 1]), Some((32, 1)));
        assert_eq!(depths(&[]), None);
        assert_eq!(depths(&[0, 0, 0, 32]), None);
        assert_eq!(depths(&[0; 12]), None);
    }
}
