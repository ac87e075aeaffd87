//! Compression by the file system (Btrfs): a flag of the inode, which new files inherit from their directory.

use rustix::fs::{IFlags, Statx, StatxAttributes};
use rustix::io::Errno;

use super::node::Open;
use crate::{VfsError, VfsResult};

/// `FS_NOCOMP_FL`. While it is set, the kernel refuses the compression flag.
const NEVER_COMPRESSED: IFlags = IFlags::from_bits_retain(0x400);

/// Whether the file system compresses the file's data, or new files in the directory.
pub(super) fn is_compressed(stat: &Statx) -> bool {
    stat.stx_attributes.contains(StatxAttributes::COMPRESSED)
}

impl Open {
    /// See [`crate::Node::set_compressed`].
    pub(super) fn set_compressed(&self, compressed: bool) -> VfsResult<()> {
        self.shared.tree.may_change()?;
        if !self.shared.device.compresses() {
            return Err(VfsError::Unsupported);
        }
        let before = rustix::fs::ioctl_getflags(&*self.fd)?;
        let mut flags = before;
        flags.set(IFlags::COMPRESSED, compressed);
        if compressed {
            flags.remove(NEVER_COMPRESSED);
        }
        if flags == before {
            return Ok(());
        }
        match rustix::fs::ioctl_setflags(&*self.fd, flags) {
            // A file that is never copied on write cannot be compressed.
            Err(Errno::INVAL) => Err(VfsError::Unsupported),
            done => Ok(done?),
        }
    }
}
