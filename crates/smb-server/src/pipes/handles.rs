//! Context handles of one pipe, and the access that they were opened with.

use smb_wire::rpc::ContextHandle;
use smb_wire::rpc::pdu::FaultStatus;
use smb_wire::{Guid, NtStatus};

use crate::identity::User;

/// The most handles that are open on one pipe.
pub(super) const HANDLES_MAX: usize = 256;
/// MAXIMUM_ALLOWED and the generic rights (MS-DTYP 2.4.3).
const MAXIMUM_ALLOWED: u32 = 0x0200_0000;
const GENERIC_READ: u32 = 0x8000_0000;
const GENERIC_EXECUTE: u32 = 0x2000_0000;

/// The object that a handle stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    /// The policy (lsarpc).
    Policy,
    /// The server (samr).
    Server,
    /// The machine's domain, or BUILTIN.
    Domain { builtin: bool },
    /// A user of the machine.
    User { id: u32 },
    /// A group of the machine: the primary group of every account is the only one.
    Group,
    /// A local group of the machine, or of BUILTIN.
    Alias { builtin: bool, id: u32 },
}

impl Object {
    /// Access that every user has: to read and to execute, of the kind's own rights and READ_CONTROL (MS-LSAD 2.2.1.1.2,
    /// MS-SAMR 2.2.1.3 to 2.2.1.7).
    fn readable(self) -> u32 {
        match self {
            Object::Policy => 0x0002_0801,
            Object::Server => 0x0002_0031,
            Object::Domain { .. } => 0x0002_0385,
            Object::User { .. } => 0x0002_035B,
            Object::Group => 0x0002_0011,
            Object::Alias { .. } => 0x0002_000C,
        }
    }

    /// The access that `caller` gets for `desired`. An administrator gets all that it asks for, as nothing can be
    /// changed through this interface.
    fn grant(self, desired: u32, caller: &User) -> Result<u32, NtStatus> {
        let readable = self.readable();
        let named = desired & !(MAXIMUM_ALLOWED | GENERIC_READ | GENERIC_EXECUTE);
        if named & !readable != 0 && !caller.is_administrator() {
            return Err(NtStatus::ACCESS_DENIED);
        }
        Ok(if named == desired { named } else { named | readable })
    }
}

#[derive(Default)]
pub(super) struct Handles {
    open: Vec<Opened>,
    last: u64,
}

struct Opened {
    id: u64,
    object: Object,
    access: u32,
}

impl Handles {
    /// A new handle.
    ///
    /// # Errors
    /// ACCESS_DENIED, INSUFFICIENT_RESOURCES.
    pub(super) fn open(
        &mut self,
        object: Object,
        desired: u32,
        caller: &User,
    ) -> Result<ContextHandle, NtStatus> {
        let access = object.grant(desired, caller)?;
        if self.open.len() >= HANDLES_MAX {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        self.last += 1;
        self.open.push(Opened { id: self.last, object, access });
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&self.last.to_le_bytes());
        Ok(ContextHandle { attributes: 0, uuid: Guid(uuid) })
    }

    /// The object of a handle, and the access granted.
    ///
    /// # Errors
    /// A fault when the handle is not one of this pipe (MS-RPCE 3.3.1.5.1, C706 5.1.6).
    pub(super) fn get(&self, handle: ContextHandle) -> Result<(Object, u32), FaultStatus> {
        self.find(handle).map(|i| (self.open[i].object, self.open[i].access))
    }

    /// Closes a handle.
    ///
    /// # Errors
    /// The errors of [`Handles::get`].
    pub(super) fn close(&mut self, handle: ContextHandle) -> Result<(), FaultStatus> {
        let i = self.find(handle)?;
        self.open.swap_remove(i);
        Ok(())
    }

    fn find(&self, handle: ContextHandle) -> Result<usize, FaultStatus> {
        let (id, rest) = handle.uuid.0.split_at(8);
        let found = self.open.iter().position(|o| o.id.to_le_bytes() == id);
        found.filter(|_| handle.attributes == 0 && rest == [0; 8]).ok_or(FaultStatus::CONTEXT_MISMATCH)
    }
}

/// MS-LSAD 3.1.4.2.2, MS-SAMR 3.1.2.2: checks that a call's handle was opened with the access that the call needs.
///
/// # Errors
/// ACCESS_DENIED.
pub(super) fn need(access: u32, needed: u32) -> Result<(), NtStatus> {
    if access & needed == needed { Ok(()) } else { Err(NtStatus::ACCESS_DENIED) }
}
