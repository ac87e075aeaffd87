//! Security descriptors, self-relative (MS-DTYP 2.4).
//!
//! [`SecurityDescriptor`] borrows a peer's bytes; [`SecurityDescriptorBuf`] owns a descriptor that is being built
//! or stored by a server.

mod acl;
mod descriptor;
mod sid;

pub use acl::{Ace, AceFlags, AceType, Acl, AclBuf, MAX_ACES};
pub use descriptor::{ControlFlags, MAX_SECURITY_DESCRIPTOR, SecurityDescriptor, SecurityDescriptorBuf};
pub use sid::{MAX_SUB_AUTHORITIES, Sid};

#[cfg(test)]
mod tests;
