//! `[storage]`: where disks of pools are.

use super::reader::Table;

/// `[storage]`. Without the section nothing is looked for: to open a pool is to take it, and a server that was started to share a
/// directory takes nobody's disks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageSection {
    /// Absolute paths of disks, with `*` and `?` for letters of a name: where they are looked for at the start.
    pub devices: Vec<String>,
}

/// Where a section that names no places looks.
const USUAL: [&str; 2] = ["/dev/disk/by-id/*", "/var/lib/causeway/disks/*.disk"];

pub(super) fn read_storage(t: Table<'_, '_>) -> StorageSection {
    let devices = t.patterns("devices", "devices = [\"/dev/disk/by-id/*\"]");
    t.finish();
    StorageSection { devices: devices.unwrap_or_else(|| USUAL.map(str::to_owned).to_vec()) }
}
