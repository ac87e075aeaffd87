//! The handle of a simulated disk.

use std::sync::Arc;

use arena::{Sg, SgMut, sg_len};
use env::{Ctx, Epoch, Io};
use tokio::sync::oneshot;

use super::slot::Call;
use super::{Machine, SlotId};
use crate::deadline::within;
use crate::store::Change;
use crate::{Disk, DiskError, DiskInfo, FlushLatch, Gate, GateGuard, IoRange, Op};

/// One opening of a disk of a [`Machine`]. Without delays every call completes immediately; otherwise each
/// runs in its own task on the caller's runtime.
pub struct FaultyDisk {
    machine: Machine,
    slot: SlotId,
    info: DiskInfo,
    power_cycle: u64,
    gate: Arc<Gate>,
    latch: Arc<FlushLatch>,
}

impl FaultyDisk {
    pub(super) fn new(machine: Machine, slot: SlotId, info: DiskInfo, power_cycle: u64) -> FaultyDisk {
        FaultyDisk { machine, slot, info, power_cycle, gate: Arc::default(), latch: Arc::default() }
    }

    /// The slot that the disk is in.
    pub fn slot(&self) -> SlotId {
        self.slot
    }

    fn call(&self, op: Op, offset: u64, length: u64) -> Call {
        Call { slot: self.slot, power_cycle: self.power_cycle, at: IoRange::new(op, offset, length) }
    }

    fn enter(&self, c: &Ctx, call: &Call) -> Result<GateGuard, DiskError> {
        self.info.geometry.check(call.at)?;
        self.gate.enter(c, call.at)
    }

    /// Runs `act` after `delay`, whether or not the caller still waits for it.
    fn later<T: Send + 'static>(
        &self,
        c: &Ctx,
        delay: std::time::Duration,
        pass: GateGuard,
        act: impl FnOnce(&Machine) -> T + Send + 'static,
        late: T,
    ) -> Io<T> {
        let (send, receive) = oneshot::channel();
        let machine = self.machine.clone();
        self.machine.env.spawn(async move {
            machine.env.sleep(delay).await;
            let result = act(&machine);
            drop(pass);
            let _ = send.send(result);
        });
        Io::pending(within(self.machine.env.clone(), c.deadline, receive, late))
    }

    fn change(&self, c: &Ctx, call: Call, change: impl FnOnce() -> Arc<Change>) -> Io<Result<(), DiskError>> {
        let through = c.flags.write_through && call.at.op == Op::Write;
        let begun = self.enter(c, &call).and_then(|pass| {
            if through {
                self.latch.check()?;
            }
            let (delay, _) = self.machine.state.lock().begin(&call)?;
            Ok((pass, delay))
        });
        let (pass, delay) = match begun {
            Ok(begun) => begun,
            Err(e) => return Io::Done(Err(e)),
        };
        let change = change();
        let Some(delay) = delay else {
            return Io::Done(self.machine.state.lock().change(&call, None, &change, through));
        };
        let in_flight = self.machine.state.lock().add_in_flight(&call, &change);
        let act = move |m: &Machine| m.state.lock().change(&call, Some(in_flight), &change, through);
        self.later(c, delay, pass, act, Err(DiskError::Timeout { at: call.at }))
    }
}

impl Disk for FaultyDisk {
    fn info(&self) -> &DiskInfo {
        &self.info
    }

    fn read(&self, c: &Ctx, offset: u64, mut dst: SgMut) -> Io<(Result<(), DiskError>, SgMut)> {
        let call = self.call(Op::Read, offset, dst.iter().map(|b| b.len() as u64).sum());
        let begun = self.enter(c, &call).and_then(|pass| {
            let (delay, _) = self.machine.state.lock().begin(&call)?;
            Ok((pass, delay))
        });
        match begun {
            Err(e) => Io::Done((Err(e), dst)),
            Ok((_, None)) => {
                let result = self.machine.state.lock().read(&call, &mut dst);
                Io::Done((result, dst))
            }
            Ok((pass, Some(delay))) => {
                let act = move |m: &Machine| {
                    let result = m.state.lock().read(&call, &mut dst);
                    (result, dst)
                };
                self.later(c, delay, pass, act, (Err(DiskError::Timeout { at: call.at }), SgMut::new()))
            }
        }
    }

    fn write(&self, c: &Ctx, offset: u64, src: Sg) -> Io<Result<(), DiskError>> {
        self.change(c, self.call(Op::Write, offset, sg_len(&src) as u64), || Change::write(offset, &src))
    }

    fn flush(&self, c: &Ctx) -> Io<Result<(), DiskError>> {
        let call = self.call(Op::Flush, 0, 0);
        let begun = self.enter(c, &call).and_then(|pass| {
            self.latch.check()?;
            let (delay, mark) = self.machine.state.lock().begin(&call)?;
            Ok((pass, delay, mark))
        });
        match begun {
            Err(e) => Io::Done(Err(e)),
            Ok((_, None, mark)) => {
                let result = self.machine.state.lock().flush(&call, mark);
                Io::Done(self.latch.record(result))
            }
            Ok((pass, Some(delay), mark)) => {
                let latch = Arc::clone(&self.latch);
                let act = move |m: &Machine| {
                    let result = m.state.lock().flush(&call, mark);
                    latch.record(result)
                };
                self.later(c, delay, pass, act, Err(DiskError::Timeout { at: call.at }))
            }
        }
    }

    fn discard(&self, c: &Ctx, offset: u64, length: u64) -> Io<Result<(), DiskError>> {
        self.change(c, self.call(Op::Discard, offset, length), || Change::zeros(offset, length))
    }

    fn fence(&self, _: &Ctx, epoch: Epoch) -> Io<Result<(), DiskError>> {
        let call = self.call(Op::Fence, 0, 0);
        match self.machine.state.lock().alive(&call) {
            Ok(_) => self.gate.fence(epoch),
            Err(e) => Io::Done(Err(e)),
        }
    }

    fn check(&self, _: &Ctx) -> Io<Result<(), DiskError>> {
        let call = self.call(Op::Check, 0, 0);
        Io::Done(self.machine.state.lock().alive(&call).map(drop))
    }
}
