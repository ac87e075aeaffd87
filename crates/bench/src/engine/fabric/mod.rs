//! Targets on a fabric: `direct` over RDMA, `socket` over TCP. The peer is in [`crate::fabric`].
//!
//! The peer stores nothing, so verifying reads (`--verify`) and creating a file (`-c`) are refused. Data of
//! reads is received but not examined.

mod direct;
mod socket;

use super::backend::{Backend, Setup, TargetLocation};
use super::error::OpenError;
use crate::fabric::wire::Welcome;
use crate::fabric::{FabricAddress, FabricError, FabricTransport};

/// Opens all targets of a thread.
///
/// # Errors
/// See [`OpenError`].
pub(super) fn open(setup: Setup) -> Result<Box<dyn Backend>, OpenError> {
    for lane in &setup.lanes {
        let unfit = [(setup.verify, "--verify"), (lane.target.mapped, "-Sm")];
        if let Some((_, option)) = unfit.into_iter().find(|(given, _)| *given) {
            return Err(OpenError::KeepsNothing { place: lane.target.path.clone(), option });
        }
    }
    let places: Vec<FabricAddress> = setup.lanes.iter().filter_map(|l| fabric(&l.place)).cloned().collect();
    let over =
        |transport| places.len() == setup.lanes.len() && places.iter().all(|p| p.transport == transport);
    if over(FabricTransport::Iwarp) {
        Ok(Box::new(direct::Direct::open(setup, &places)?))
    } else if over(FabricTransport::Tcp) {
        Ok(Box::new(socket::Sockets::open(setup, &places)?))
    } else {
        Err(OpenError::MixedPlaces)
    }
}

fn fabric(place: &TargetLocation) -> Option<&FabricAddress> {
    if let TargetLocation::Fabric(place) = place { Some(place) } else { None }
}

/// The size of the listener's store in bytes, if it accepted the connection.
fn admitted(answer: &[u8]) -> Result<u64, FabricError> {
    let welcome = Welcome::parse(answer).ok_or(FabricError::UnknownProtocol)?;
    welcome.verdict.map_err(FabricError::Refused)?;
    Ok(welcome.size)
}

/// The longest I/O, and the number of outstanding I/Os of a thread.
fn extent(setup: &Setup) -> (u32, u32) {
    (setup.slots.iter().copied().max().unwrap_or(0), setup.slots.len() as u32)
}
