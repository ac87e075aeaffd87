#![allow(missing_docs, unused)]
use std::sync::Arc;
use disk::Disk;
use pool_seam::{Membership, OwnerId};
use crate::{CommitError, DiskNumber, Pool};
impl Pool {
    pub fn disk_of(&self, owner: OwnerId, disk: DiskNumber, of: Membership) -> Option<Arc<dyn Disk>> {
        let below = self.member_disk(disk, of)?;
        Some(Arc::new(Handle { below, gate: Arc::default(), epoch: Epoch(self.epoch()) }))
    }
    pub async fn check_disks(&self) -> Result<(), CommitError> { Ok(()) }
    pub fn release_absent(&self) {}
}
use arena::{Sg, SgMut};
use disk::{DiskError, DiskInfo, Gate, Op, Place};
use env::{Ctx, Epoch, Io};
struct Handle { below: Arc<dyn Disk>, gate: Arc<Gate>, epoch: Epoch }
impl Handle { fn c(&self, c: &Ctx) -> Ctx { Ctx { epoch: self.epoch, ..*c } } }
impl Disk for Handle {
    fn info(&self) -> &DiskInfo { self.below.info() }
    fn read(&self, c: &Ctx, offset: u64, dst: SgMut) -> Io<(Result<(), DiskError>, SgMut)> {
        match self.gate.enter(c, Place::new(Op::Read, offset, 0)) { Ok(p) => self.below.read(&self.c(c), offset, dst).map(move |r| { drop(p); r }), Err(e) => Io::Done((Err(e), dst)) }
    }
    fn write(&self, c: &Ctx, offset: u64, src: Sg) -> Io<Result<(), DiskError>> {
        match self.gate.enter(c, Place::new(Op::Write, offset, 0)) { Ok(p) => self.below.write(&self.c(c), offset, src).map(move |r| { drop(p); r }), Err(e) => Io::Done(Err(e)) }
    }
    fn flush(&self, c: &Ctx) -> Io<Result<(), DiskError>> {
        match self.gate.enter(c, Place::whole(Op::Flush)) { Ok(p) => self.below.flush(&self.c(c)).map(move |r| { drop(p); r }), Err(e) => Io::Done(Err(e)) }
    }
    fn discard(&self, c: &Ctx, offset: u64, length: u64) -> Io<Result<(), DiskError>> {
        match self.gate.enter(c, Place::new(Op::Discard, offset, length)) { Ok(p) => self.below.discard(&self.c(c), offset, length).map(move |r| { drop(p); r }), Err(e) => Io::Done(Err(e)) }
    }
    fn fence(&self, c: &Ctx, epoch: Epoch) -> Io<Result<(), DiskError>> { self.gate.fence(epoch) }
}
