//! Whether the disks are still those that were opened: files can be removed, truncated or overwritten behind our back,
//! and reads and writes go on as if nothing had happened.

use std::sync::Arc;

use disk::{DiskError, Op, Place};
use futures_util::future::join_all;

use super::DataPath;
use crate::Absence;
use crate::disks::DataDisk;
use crate::format::{Areas, FrameError, LabelError};
use crate::metadata::DiskIo;
use crate::pool::labels;
use crate::space::SpaceError;

impl DataPath {
    /// Looks at every disk and its labels once. One that is not what was opened is removed from service, unless it has
    /// the only copy of some data; then it counts as failing.
    ///
    /// # Errors
    /// When the metadata cannot be changed.
    pub async fn check_disks(&self) -> Result<(), SpaceError> {
        let io = DiskIo::new(&self.env, &self.io.arena, self.io.epoch);
        let looks = self.disks().into_iter().map(async |disk| {
            let found = self.check(&io, &disk).await;
            (disk, found)
        });
        for (disk, found) in join_all(looks).await {
            if let Err(error) = found {
                self.fail(&disk, &error, Absence::Gone, None).await?;
            }
        }
        Ok(())
    }

    async fn check(&self, io: &DiskIo, disk: &DataDisk) -> Result<(), DiskError> {
        let member = &disk.member;
        member.disk.check(&io.ctx(false)).wait().await?;
        let foreign = match labels::read(io, &member.disk).await {
            Ok(label) => (label.pool, label.id, label.number) != (self.pool, member.id, member.number),
            Err(LabelError::Frame(FrameError::Blank | FrameError::Foreign)) => true,
            // Damage is a scrub's to find and to mend, and a disk that does not answer shows it by other I/O.
            Err(_) => false,
        };
        match foreign && self.book.members().get(member.number).is_some_and(|now| Arc::ptr_eq(now, member)) {
            true => Err(DiskError::Gone {
                at: Place::new(Op::Check, Areas::LABEL_A.offset, Areas::LABEL_A.length),
            }),
            false => Ok(()),
        }
    }
}
