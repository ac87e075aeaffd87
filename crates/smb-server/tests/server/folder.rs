//! Directories for shares on the machine's own file system.

use std::sync::Arc;
use vfs::Vfs;

/// A directory that every user may read and change.
pub fn open_to_all(folder: &std::path::Path) -> Arc<dyn Vfs> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).expect("ours");
    vfs::HostDir::open(folder, vfs::HostDirOptions::default()).expect("a directory")
}
