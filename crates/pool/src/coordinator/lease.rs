//! The pool's lease, for owners of spaces in this process.

use std::sync::Arc;

use env::Io;
use pool_seam::{Lease, SeamError};

use super::answers::suspended;
use crate::authority::Tenure;

/// See the module.
pub struct PoolLease(pub(super) Arc<Tenure>);

impl Lease for PoolLease {
    fn holds(&self) -> bool {
        self.0.holds()
    }

    fn hold(&self) -> Io<Result<(), SeamError>> {
        if self.0.holds() {
            return Io::Done(Ok(()));
        }
        let tenure = Arc::clone(&self.0);
        Io::pending(async move { tenure.hold().await.map_err(|why| suspended(&why)) })
    }
}
