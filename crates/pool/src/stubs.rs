#![allow(missing_docs, unused)]
use crate::jobs::{Evacuated, Job};
use crate::{CommitError, DiskNumber, Pool, SpaceId};
use disk::Disk;
use pool_seam::{Membership, OwnerId, SeamError};
use std::sync::Arc;
impl Pool {
    pub fn disk_of(&self, owner: OwnerId, disk: DiskNumber, of: Membership) -> Option<Arc<dyn Disk>> {
        None
    }
    pub async fn check_disks(&self) -> Result<(), CommitError> {
        Ok(())
    }
    pub fn release_absent(&self) {}
        Ok(())
    }
        false
    }
        Ok(())
    }
        Ok(Evacuated::default())
    }
        Ok(())
    }
        Ok(0)
    }
        &self,
        space: SpaceId,
        repair: bool,
        anew: bool,
        job: &Job,
    ) -> Result<bool, SeamError> {
        Ok(true)
    }
        Ok(())
    }
}
