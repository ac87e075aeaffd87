//! A read that waits for its disk only: nearly every one, of units of one group that is ready.
//!
//! The caller processes the disk's result directly: a hand-written future, because each of nested async
//! functions is polled at every wake-up. Rare cases (it is slow, it fails, a checksum does not match)
//! continue in a boxed future.

use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use arena::SgMut;
use disk::{Place, Read};
use env::{BoxFuture, Env};
use futures_util::FutureExt;

use super::{Call, Space, SpaceError, told};
use crate::GROUP;
use crate::disks::Reading;
use crate::groups::{Group, GroupKey};
use crate::pulse::Came;

/// A read on its way from one disk.
pub(super) struct Direct {
    address: u64,
    length: u64,
    group: Arc<Group>,
    /// Of the column.
    units: Range<u32>,
    reading: Reading,
}

/// The wait for it; the read continues without a waiter.
pub(super) struct Wait(Stage);

enum Stage {
    OfDisk(Going),
    Otherwise(Env, BoxFuture<Read>),
    Ended,
}

struct Going {
    space: Space,
    direct: Direct,
    call: Call,
    at: Place,
}

impl Space {
    /// Starts a read within one ready group, which is nearly every read. Returns the buffers as an error if
    /// the read needs the general path.
    pub(super) fn start_read(&self, address: u64, length: u64, dst: SgMut) -> Result<Direct, SgMut> {
        let at = self.inner.layout.one_piece(address, length, GROUP).filter(|_| length > 0);
        let Some(at) = at else { return Err(dst) };
        let units = at.units(length);
        let regions = self.inner.regions.of(&units);
        let group = self.inner.groups.get(GroupKey::of(at));
        if !self.is_ready(&group, regions) {
            return Err(dst);
        }
        let Some(copies) = self.inner.route(&self.path, at.row, at.column) else { return Err(dst) };
        let now = self.path.env.moment();
        let Some(copy) = self.choose(now, &copies, &units) else { return Err(dst) };
        let Some(disk) = &copy.disk else { return Err(dst) };
        disk.pulse.count_user_read();
        let late = self.late(disk, &copies, &units);
        let reading = disk.start_read(now, copy.data_at(disk, units.start), dst, late);
        Ok(Direct { address, length, group, units, reading })
    }

    /// Waits for it, whatever comes of it.
    pub(super) async fn finish_read(&self, direct: &mut Direct) -> (Result<(), SpaceError>, SgMut) {
        let came = poll_fn(|context| direct.poll(context)).await;
        self.read_otherwise(direct, came).await
    }

    /// It is late, or has completed: returns its data if valid, otherwise that of other copies.
    async fn read_otherwise(&self, direct: &mut Direct, came: Came) -> (Result<(), SpaceError>, SgMut) {
        let Direct { address, length, group, units, reading, .. } = direct;
        let good = |dst: &mut SgMut| self.is_good(group, units, dst);
        let (row, column) = (group.key.row, group.key.column);
        let (result, mut dst) = match came {
            Came::Late => self.hedge(reading, row, column, units, &good).await,
            Came::Ended(answer) => reading.given(answer, &self.path.io, &self.path.env).await,
        };
        if result.is_ok() && good(&mut dst) {
            return (Ok(()), dst);
        }
        // Boxed: a rare case must not make every read large.
        Box::pin(self.read_whole(*address, *length, dst)).await
    }
}

impl Direct {
    fn poll(&self, context: &Context<'_>) -> Poll<Came> {
        self.reading.poll_first(context)
    }
}

impl Going {
    async fn otherwise(mut self, came: Came) -> Read {
        let (result, dst) = self.space.read_otherwise(&mut self.direct, came).await;
        drop(self.call);
        (told(&self.space, result, self.at), dst)
    }
}

impl Wait {
    pub(super) fn new(space: Space, direct: Direct, call: Call, at: Place) -> Wait {
        Wait(Stage::OfDisk(Going { space, direct, call, at }))
    }
}

impl Future for Wait {
    type Output = Read;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Read> {
        let stage = &mut self.get_mut().0;
        if let Stage::OfDisk(going) = stage {
            let mut came = ready!(going.direct.poll(context));
            let Going { space, direct, .. } = &*going;
            let good = match &mut came {
                Came::Ended(Some((Ok(()), dst))) if !dst.is_empty() => {
                    space.is_good(&direct.group, &direct.units, dst)
                }
                _ => false,
            };
            let Stage::OfDisk(going) = std::mem::replace(stage, Stage::Ended) else { unreachable!() };
            match came {
                Came::Ended(Some(answer)) if good => return Poll::Ready(answer),
                came => {
                    *stage = Stage::Otherwise(going.space.path.env.clone(), Box::pin(going.otherwise(came)));
                }
            }
        }
        let Stage::Otherwise(_, rest) = stage else { panic!("polled after its end") };
        let answer = ready!(rest.as_mut().poll(context));
        *stage = Stage::Ended;
        Poll::Ready(answer)
    }
}

/// Nothing of it is pinned in place: pinned parts are boxed.
impl Unpin for Wait {}

impl Drop for Wait {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.0, Stage::Ended) {
            Stage::Ended => {}
            Stage::OfDisk(going) => going.space.path.env.clone().spawn_if_running(async move {
                let came = poll_fn(|context| going.direct.poll(context)).await;
                drop(going.otherwise(came).await);
            }),
            Stage::Otherwise(env, rest) => env.spawn_if_running(rest.map(drop)),
        }
    }
}
