//! Commands of a test about disks, and the owner's way to open them.

use std::sync::Arc;

use disk::Disk;
use disk::sim::SlotId;
use pool_seam::{DiskNumber, Membership, Owner, RejoinState, SeamError, SpaceView};

use super::{Rig, State};

impl Rig {
    /// A handle of the disk with this membership, which may be the one that it is about to join with. `None`: the disk
    /// has another membership, or it is pulled, or the power is off.
    pub(crate) fn open_disk(&self, disk: DiskNumber, of: Membership) -> Option<Arc<dyn Disk>> {
        {
            let state = self.state.lock();
            if state.metadata.membership(disk) != Some(of) && state.joining != Some((disk, of)) {
                return None;
            }
        }
        let disk: Arc<dyn Disk> = self.machine.open(SlotId(disk.0.into())).ok()?;
        Some(disk)
    }

    /// Takes a disk out of service by command, and gives the owner the view.
    pub(crate) async fn remove_disk(&self, disk: DiskNumber) -> Result<Arc<SpaceView>, SeamError> {
        let of = self.state.lock().metadata.membership(disk);
        let Some(of) = of else { return Ok(self.view_now()) };
        let view = self.remove_from_service(disk, of).await?;
        self.update();
        Ok(view)
    }

    /// Reinserts an absent disk, asks the owner for its state, and lets it join with the next membership unless the
    /// answer is `OnlyCopy` or `Unreadable`. Returns the answer; the owner gets the view.
    pub(crate) async fn return_disk(&self, disk: DiskNumber) -> Result<RejoinState, SeamError> {
        self.machine.plug(SlotId(disk.0.into()));
        let (of, owner, delay) = {
            let mut state = self.state.lock();
            assert_eq!(state.metadata.membership(disk), None, "an absent disk returns");
            let of = state.metadata.next_membership(disk);
            state.joining = Some((disk, of));
            (of, state.owner().expect("an owner to ask"), state.faults.delay)
        };
        let returned = owner.disk_joining(disk, of).wait().await;
        self.env.sleep(delay).await;
        {
            let mut state = self.state.lock();
            state.joining = None;
            let returned = returned.as_ref().map_err(Clone::clone)?;
            state.running(self, state.metadata.owner().epoch)?;
            if matches!(returned, RejoinState::Proven { .. } | RejoinState::RolledBack) {
                state.record(&self.machine, |metadata| {
                    metadata.join(disk, of);
                    let was_unaccounted = metadata.record.unaccounted.remove(&disk).is_some();
                    assert!(
                        *returned == RejoinState::RolledBack || !was_unaccounted,
                        "an owner that can tell has told"
                    );
                    if *returned == RejoinState::RolledBack {
                        metadata.stale(disk);
                    }
                });
            }
        }
        self.update();
        returned
    }

    /// Removes a disk that is missing when the pool opens: it is absent, and unaccounted until the owner has read the
    /// log. Called before there is an owner.
    pub(crate) fn absent_at_opening(&self, disk: DiskNumber) {
        let mut state = self.state.lock();
        assert!(state.owner().is_none(), "the space is not open yet");
        state.record(&self.machine, |metadata| metadata.leave_unaccounted(disk));
    }

    /// Removes a disk in service without the owner's statement, as after a timeout of the owner. `false`: it is needed.
    pub(crate) fn remove_unaccounted(&self, disk: DiskNumber) -> bool {
        {
            let mut state = self.state.lock();
            if state.metadata.needs(disk) {
                return false;
            }
            state.record(&self.machine, |metadata| metadata.leave_unaccounted(disk));
        }
        self.update();
        true
    }

    /// Sends the current view to the owner.
    pub(crate) fn update(&self) {
        let (owner, view) = {
            let state = self.state.lock();
            (state.owner(), state.metadata.view())
        };
        if let Some(owner) = owner {
            owner.update(view);
        }
    }
}

impl State {
    pub(super) fn owner(&self) -> Option<Arc<dyn Owner>> {
        self.owner.as_ref()?.upgrade()
    }
}
