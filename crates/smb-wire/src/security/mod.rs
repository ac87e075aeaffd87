//! Security descriptors, self-relative (MS-DTYP 2.4).
//!
//! [`SecurityDescriptor`] borrows what a peer sent; [`SecurityDescriptorBuf`] owns one that is being built, and is
//! what a server keeps.

mod acl;
mod descriptor;
mod sid;

pub use acl::{Ace, AceFlags, AceType, Acl, AclBuf, MAX_ACES};
pub use descriptor::{ControlFlags, MAX_SECURITY_DESCRIPTOR, SecurityDescriptor, SecurityDescriptorBuf};
pub use sid::{MAX_SUB_AUTHORITIES, Sid};

#[cfg(test)]
mod tests;
