//! Opens a space: becomes its first owner, or the successor of another owner.
//!
//! An opening fences the disks, reads their marks and the log, and prepares the log's entries for the tables
//! ([`overlay`](crate::overlay)). Nothing else is read or written before the space serves calls.

use std::sync::Arc;
use std::time::Duration;

use disk::{DiskError, IoRange, Op};
use env::{Ctx, Epoch};
use futures_util::future::join_all;
use pool_seam::{Absence, DiskNumber, LogState, OwnerOp, Row, RowNumber, SeamError, SpaceView};

use crate::SpaceError;
use crate::log::ring::Ring;
use crate::log::{BLOCK, LogSettings, OpenError, Replica, Required, SpaceLog};
use crate::marks::Mark;
use crate::owner::{Inner, Settings, Space};
use crate::source::WeakSpace;

/// Blocks of the ring of a space's log, if half of a slab has room for them.
const RING_BLOCKS: u64 = 16_384;

impl Space {
    /// Whether all calls fail, because the space was closed or has another owner.
    pub fn has_ended(&self) -> bool {
        self.0.writes.is_closed() || self.0.log().has_ended()
    }

    /// Becomes the owner of a space: creates its log, if it has none, or reads it. Then the space is ready for reads
    /// and writes. After an error another owner can try again.
    ///
    /// # Panics
    /// If the view has no row for the log.
    pub async fn open(settings: Settings, view: Arc<SpaceView>) -> Result<Space, SpaceError> {
        let env = settings.env.clone();
        env.run(async move {
            let hang = settings.hang;
            let inner = Inner::new(settings, view);
            inner.fence(hang).await?;
            let view = inner.view.get().value;
            let marks = inner.read_marks(&view).await?;
            let view = inner.view.get().value;
            let row = view.log_row().expect("a space has a row for its log");
            let (settings, replicas) = (inner.log_settings(hang), inner.replicas(&view, row));
            let failed = |error| inner.log_error(row, error);
            let (mut ops, mut rolled_back) = (Vec::new(), Vec::new());
            let (log, last) = if row.is_new {
                let blocks = RING_BLOCKS.min(view.slab_bytes / BLOCK as u64 / 2);
                let ring = Ring::new(blocks).expect("a slab has room");
                let log = SpaceLog::create(settings, ring, replicas, 1).await.map_err(failed)?;
                ops.push(OwnerOp::Ready { row: RowNumber::LOG, birth: row.birth, written: Vec::new() });
                (log, 0)
            } else {
                let state = (view.record.log.epoch.0, view.record.log.sequence);
                let mark = marks.iter().filter_map(|(_, mark)| Some((*mark)?.mark)).max().unwrap_or(0);
                let required = Required { state, mark };
                let (log, opened) = SpaceLog::open(settings, replicas, required).await.map_err(failed)?;
                inner.active.restore(opened.log.entries().map(|(_, entry)| &entry.change));
                inner.overlay.restore(&view, &opened.log, &opened.payloads);
                inner.marks.restore(opened.log.entries().map(|(_, entry)| &entry.change));
                let view = inner.view.get().value;
                rolled_back = inner.stale_disk_ops(&view, &marks);
                let records = opened.log.lost();
                if records > 0 {
                    tracing::error!(
                        space = view.space.0,
                        records,
                        "records are missing from all replicas of the log: the last writes may be lost or stale; \
                         causeway space repair finds which"
                    );
                    ops.push(OwnerOp::Lost(view.record.loss.with_unknown(records)));
                }
                (log, opened.first.sequence - 1)
            };
            assert!(inner.log.set(log).is_ok(), "a space has one log");
            inner.unplaced.allow(inner.log().carries());
            if !rolled_back.is_empty() {
                // Committed before unaccounted disks are judged: a rolled-back disk is no source for them.
                inner.commit(rolled_back).await?;
            }
            inner.note_unaccounted(&inner.view.get().value);
            inner.account().await?;
            let state = LogState { epoch: inner.owner.epoch, sequence: last, is_closed: false };
            ops.push(OwnerOp::Log(state));
            inner.commit(ops).await?;
            inner.follow_replicas(&inner.view.get().value);
            inner.env.spawn(Inner::keep(Arc::downgrade(&inner)));
            Ok(Space(inner))
        })
        .await
    }
}

impl Inner {
    /// Ends all I/O of earlier owners (rule 15), and flushes the disks: this owner relies on the data that it reads
    /// there, which may still be in volatile caches.
    async fn fence(&self, hang: Duration) -> Result<(), SpaceError> {
        for (disk, of) in self.view.get().value.members() {
            if self.ports.get(disk, of).is_none() {
                // Without a port, this owner cannot keep the disk's copies current.
                let error = DiskError::Gone { at: IoRange::whole(Op::Read) };
                self.remove_from_service(disk, of, Absence::Gone, error).await?;
            }
        }
        let ports = self.ports.all();
        let epoch = Epoch(self.owner.epoch.0);
        let fences = ports.iter().map(|port| async move {
            let c = Ctx { deadline: Some(self.env.now() + hang), ..Ctx::default() };
            port.disk().fence(&c, epoch).wait().await?;
            port.flush().await
        });
        for (port, fenced) in ports.iter().zip(join_all(fences).await) {
            match fenced {
                Ok(()) => {}
                Err(DiskError::Fenced { .. }) => return Err(SeamError::Deposed(self.owner.epoch).into()),
                // An earlier owner may still write there.
                Err(error) => {
                    self.remove_from_service(port.number(), port.membership(), Absence::Gone, error).await?
                }
            }
        }
        Ok(())
    }

    /// The marks of all disks that are present.
    async fn read_marks(&self, view: &SpaceView) -> Result<Vec<(DiskNumber, Option<Mark>)>, SpaceError> {
        let mut marks = Vec::new();
        for port in self.ports.all() {
            match self.read_mark(view, &port).await {
                Ok(mark) => marks.push((port.number(), mark)),
                Err(error) => {
                    self.remove_from_service(port.number(), port.membership(), Absence::Gone, error).await?
                }
            }
        }
        Ok(marks)
    }

    fn log_settings(self: &Arc<Inner>, hang: Duration) -> LogSettings {
        let link = Arc::new(WeakSpace(Arc::downgrade(self)));
        LogSettings {
            env: self.env.clone(),
            arena: self.arena.clone(),
            pool: self.view.get().value.pool,
            space: self.owner.space,
            epoch: self.owner.epoch.0,
            hang,
            coordination: Arc::<WeakSpace>::clone(&link),
            source: link,
        }
    }

    /// The complete replicas of the log that can be opened.
    fn replicas(&self, view: &SpaceView, row: &Row) -> Vec<Replica> {
        let replica = |(_, copy): (usize, &pool_seam::SlabCopy)| {
            let disk = view.disks.get(&copy.place.disk)?;
            let port = self.ports.get(copy.place.disk, disk.membership?)?;
            let offset = disk.areas.data(copy.place.slab).offset;
            self.replicas.begin(copy.generation, Arc::clone(&port));
            Some(Replica { allocation: copy.generation, port, offset })
        };
        row.copies().filter(|(_, copy)| copy.stale_regions == 0).filter_map(replica).collect()
    }

    fn log_error(&self, row: &Row, error: OpenError) -> SpaceError {
        match error {
            OpenError::Replica { allocation, error } => {
                let copy = row.copies().find(|(_, copy)| copy.generation == allocation);
                let (_, copy) = copy.expect("a replica that was given");
                SpaceError::Disk { disk: copy.place.disk, error }
            }
            OpenError::Deposed(_) | OpenError::NewerOwner(_) => SeamError::Deposed(self.owner.epoch).into(),
            error => error.into(),
        }
    }
}
