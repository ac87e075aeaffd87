//! `[storage]`: where disks of pools are.

use super::reader::Table;

/// `[storage]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageSection {
    /// Absolute paths of disks, with `*` and `?` for letters of a name: where they are looked for at the start.
    pub devices: Vec<String>,
}

impl Default for StorageSection {
    fn default() -> StorageSection {
        let devices = ["/dev/disk/by-id/*", "/var/lib/causeway/disks/*.disk"];
        StorageSection { devices: devices.map(str::to_owned).to_vec() }
    }
}

pub(super) fn read_storage(t: Table<'_, '_>) -> StorageSection {
    let mut s = StorageSection::default();
    if let Some(devices) = t.patterns("devices", "devices = [\"/dev/disk/by-id/*\"]") {
        s.devices = devices;
    }
    t.finish();
    s
}
