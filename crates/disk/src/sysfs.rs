//! Reads the description of a block device from `/sys`. A partition has its disk's identity plus its number.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{DiskId, DiskInfo, EnclosureSlot, Geometry, IdKind, Media, WriteCache, file};

/// The sysfs tree; tests use another root.
pub(crate) struct Sysfs {
    root: PathBuf,
}

/// One device in the tree.
pub(crate) struct Device {
    /// The device's folder.
    pub(crate) folder: PathBuf,
    /// The folder of the whole disk: the same, or the parent for a partition.
    pub(crate) disk: PathBuf,
    pub(crate) name: String,
}

impl Sysfs {
    pub(crate) fn system() -> Sysfs {
        Sysfs { root: PathBuf::from("/sys") }
    }

    #[cfg(test)]
    pub(crate) fn at(root: &Path) -> Sysfs {
        Sysfs { root: root.into() }
    }

    /// The block device with this number.
    pub(crate) fn device(&self, major: u32, minor: u32) -> Option<Device> {
        let folder = fs::canonicalize(self.root.join(format!("dev/block/{major}:{minor}"))).ok()?;
        Device::new(folder)
    }

    /// Whole disks, sorted by name; none of size 0 (an empty drive, an unused loop device).
    pub(crate) fn disks(&self) -> Vec<Device> {
        let Ok(entries) = fs::read_dir(self.root.join("block")) else { return Vec::new() };
        let folders = entries.filter_map(|e| fs::canonicalize(e.ok()?.path()).ok());
        let mut out: Vec<_> =
            folders.filter_map(Device::new).filter(|d| d.number("size") > Some(0)).collect();
        out.sort_by(|a, b| a.name.cmp(&b.name));
        out
    }
}

impl Device {
    fn new(folder: PathBuf) -> Option<Device> {
        let name = folder.file_name()?.to_str()?.to_owned();
        let whole = !folder.join("partition").exists();
        let disk = if whole { folder.clone() } else { folder.parent()?.to_path_buf() };
        Some(Device { folder, disk, name })
    }

    /// An attribute of the whole disk, trimmed; `None` if it is missing or empty.
    fn text(&self, attribute: &str) -> Option<String> {
        read(&self.disk.join(attribute))
    }

    fn number(&self, attribute: &str) -> Option<u64> {
        self.text(attribute)?.parse().ok()
    }

    /// The first of these attributes that exists.
    fn first(&self, attributes: &[&str]) -> Option<String> {
        attributes.iter().find_map(|a| self.text(a))
    }

    fn is(&self, prefix: &str) -> bool {
        self.disk.file_name().is_some_and(|n| n.to_string_lossy().starts_with(prefix))
    }

    /// The world wide name, or model and serial number; with the partition number if it is a partition.
    pub(crate) fn id(&self) -> Option<DiskId> {
        let zeros = |s: &String| s.chars().any(|c| c.is_ascii_hexdigit() && c != '0');
        let wwn = ["wwid", "nguid", "eui", "uuid", "device/wwid", "dm/uuid", "md/uuid"];
        let wwn = wwn.iter().find_map(|a| self.text(a).filter(zeros));
        let part = read(&self.folder.join("partition")).map_or(String::new(), |n| format!("-part{n}"));
        let serial = || {
            let parts = [self.model(), Some(self.serial()).filter(|s| !s.is_empty())?];
            Some(parts.iter().filter(|p| !p.is_empty()).cloned().collect::<Vec<_>>().join("_"))
        };
        let (kind, value) = match wwn {
            // Loop devices and the like have no permanent identity.
            _ if self.is("loop") || self.is("zram") || self.is("ram") => return None,
            Some(wwn) => (IdKind::Wwn, wwn),
            None => (IdKind::Serial, serial()?),
        };
        let value = value.split_whitespace().collect::<Vec<_>>().join("_");
        Some(DiskId { kind, value: value + &part })
    }

    pub(crate) fn model(&self) -> String {
        let vendor = self.text("device/vendor").filter(|v| v != "ATA" && !v.starts_with("0x"));
        match (vendor, self.text("device/model")) {
            (Some(vendor), Some(model)) => format!("{vendor} {model}"),
            (_, Some(model)) => model,
            _ => String::new(),
        }
    }

    pub(crate) fn serial(&self) -> String {
        self.first(&["serial", "device/serial"])
            .or_else(|| page_80(&self.disk.join("device/vpd_pg80")))
            .unwrap_or_default()
    }

    pub(crate) fn firmware(&self) -> String {
        self.first(&["device/firmware_rev", "device/rev"]).unwrap_or_default()
    }

    /// Flash or magnetic, by the bus and the kernel's rotational flag; unknown for a virtual disk.
    pub(crate) fn media(&self) -> Media {
        if self.is("nvme") {
            Media::Nvme
        } else if self.is("pmem") {
            Media::Scm
        } else if self.is("sd") && !self.is_virtual() {
            if self.rotational() { Media::Hdd } else { Media::Ssd }
        } else {
            Media::Unspecified
        }
    }

    fn is_virtual(&self) -> bool {
        let model = self.model().to_ascii_lowercase();
        ["qemu", "virtual", "vmware", "msft"].iter().any(|v| model.contains(v))
    }

    pub(crate) fn rotational(&self) -> bool {
        self.number("queue/rotational") == Some(1)
    }

    pub(crate) fn removable(&self) -> bool {
        self.number("removable") == Some(1)
    }

    pub(crate) fn read_only(&self) -> bool {
        let own = read(&self.folder.join("ro"));
        own.as_deref() == Some("1") || self.number("ro") == Some(1)
    }

    /// The network that connects the disk, if any: other machines may have access too. For device mapper and
    /// RAID, that of any member disk.
    pub(crate) fn network(&self) -> Option<&'static str> {
        // The device's path in the tree names the SCSI transport (`scsi_transport_iscsi.c`,
        // `scsi_transport_fc.c`).
        let at = fs::canonicalize(self.disk.join("device")).unwrap_or_default();
        let by = |prefix: &str| {
            let number = |name: &str| {
                name.strip_prefix(prefix).is_some_and(|n| n.starts_with(|c: char| c.is_ascii_digit()))
            };
            at.iter().any(|part| part.to_str().is_some_and(number))
        };
        let below = || {
            let parts = names(&self.disk.join("slaves")).into_iter();
            let folder = |name: String| fs::canonicalize(self.disk.join("slaves").join(name)).ok();
            parts.filter_map(folder).filter_map(Device::new).find_map(|d| d.network())
        };
        // With NVMe multipathing the device is the subsystem, which contains the controllers.
        let controllers = names(&self.disk.join("device")).into_iter().filter(|n| n.starts_with("nvme"));
        let transports = controllers.map(|name| format!("device/{name}/transport"));
        let mut transports = std::iter::once("device/transport".to_owned()).chain(transports);
        match transports.find_map(|t| self.text(&t)).as_deref() {
            Some("tcp") => Some("NVMe over TCP"),
            Some("rdma") => Some("NVMe over RDMA"),
            Some("fc") => Some("NVMe over Fibre Channel"),
            _ if by("session") => Some("iSCSI"),
            _ if by("rport-") => Some("Fibre Channel"),
            _ if self.is("nbd") => Some("a network block device (NBD)"),
            _ if self.is("rbd") => Some("Ceph RBD"),
            _ if self.is("drbd") => Some("DRBD"),
            _ => below(),
        }
    }

    pub(crate) fn write_cache(&self) -> WriteCache {
        match self.text("queue/write_cache").as_deref() {
            Some("write back") => WriteCache::Volatile,
            Some("write through") => WriteCache::None,
            _ => WriteCache::Unknown,
        }
    }

    pub(crate) fn queue_depth(&self) -> Option<u32> {
        let told = self.number("device/queue_depth").or_else(|| self.number("queue/nr_requests"))?;
        u32::try_from(told).ok().filter(|n| *n > 0)
    }

    /// The kernel reports a mask. That of zram is wrong (Linux 6.18): for a buffer that does not start on a
    /// page, it writes to the beginning of the page.
    pub(crate) fn dma_alignment(&self) -> Option<u32> {
        if self.is("zram") {
            return Some(4096);
        }
        u32::try_from(self.number("queue/dma_alignment")?).ok()?.checked_add(1)
    }

    /// The atomic write size that the kernel reports: the largest atomic write, or, if aligned, the physical
    /// block, documented as "the smallest unit a physical storage device can write atomically" (sysfs-block).
    /// For NVMe the kernel limits that to the power-fail atomic unit (AWUPF).
    pub(crate) fn atomic_write(&self) -> Option<u32> {
        let aligned = read(&self.folder.join("alignment_offset")).is_none_or(|offset| offset == "0");
        let physical = self.number("queue/physical_block_size").filter(|_| aligned);
        let told = self.number("queue/atomic_write_unit_max_bytes").max(physical)?;
        u32::try_from(told).ok().filter(|n| *n > 0)
    }

    pub(crate) fn enclosure(&self) -> Option<EnclosureSlot> {
        let entries = fs::read_dir(self.disk.join("device")).ok()?;
        let mut links: Vec<_> = entries.filter_map(Result::ok).collect();
        links.sort_by_key(fs::DirEntry::file_name);
        links.iter().find_map(|link| {
            let slot = link.file_name().to_str()?.strip_prefix("enclosure_device:")?.to_owned();
            let enclosure = fs::canonicalize(link.path()).ok()?.parent()?.to_path_buf();
            Some(EnclosureSlot { enclosure: read(&enclosure.join("id"))?, slot })
        })
    }

    /// The names of devices on top of it or its partitions: device mapper, RAID and the like.
    pub(crate) fn all_holders(&self) -> Vec<String> {
        let mut out: Vec<_> = self.folders().iter().flat_map(|f| names(&f.join("holders"))).collect();
        out.sort();
        out.dedup();
        out
    }

    /// The folders of the disk and its partitions.
    fn folders(&self) -> Vec<PathBuf> {
        let inside = names(&self.folder).into_iter().map(|n| self.folder.join(n));
        std::iter::once(self.folder.clone()).chain(inside.filter(|f| f.join("partition").exists())).collect()
    }

    /// The device files of the disk and its partitions, by their kernel names.
    pub(crate) fn nodes(&self) -> Vec<PathBuf> {
        let name = |f: PathBuf| Some(Path::new("/dev").join(f.file_name()?));
        self.folders().into_iter().filter_map(name).collect()
    }

    /// The disk's device file.
    pub(crate) fn path(&self) -> PathBuf {
        Path::new("/dev").join(&self.name)
    }

    /// The file behind a loop device.
    pub(crate) fn backing_file(&self) -> Option<PathBuf> {
        self.text("loop/backing_file").map(PathBuf::from)
    }

    /// Whether it has zones that must be written sequentially.
    pub(crate) fn zoned(&self) -> bool {
        self.text("queue/zoned").is_some_and(|z| z != "none")
    }

    /// Describes the disk without opening it. Returns `None` if the system does not report its size.
    pub(crate) fn info(&self) -> Option<DiskInfo> {
        let number = |attribute| u32::try_from(self.number(attribute)?).ok().filter(|n| n.is_power_of_two());
        let logical_block = number("queue/logical_block_size").unwrap_or(512).max(512);
        // The kernel counts sectors of 512 bytes for every disk.
        let sectors: u64 = read(&self.folder.join("size"))?.parse().ok()?;
        let size = sectors.checked_mul(512)?;
        let geometry = Geometry {
            size: size - size % u64::from(logical_block),
            logical_block,
            physical_block: number("queue/physical_block_size").unwrap_or(0).max(logical_block),
            atomic_write: file::atomic(logical_block, Some(self)),
            dma_alignment: file::alignment(self.dma_alignment(), logical_block),
        };
        Some(file::of_device(&self.path(), geometry, Some(self)))
    }

    /// The numbers of the disk and its partitions as `MAJOR:MINOR`.
    pub(crate) fn numbers(&self) -> Vec<String> {
        self.folders().into_iter().filter_map(|f| read(&f.join("dev"))).collect()
    }
}

fn read(path: &Path) -> Option<String> {
    let text = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&text[..text.len().min(4096)]).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// Reads the unit serial number page of SCSI (SPC-6 7.7.18): four bytes of header, then the number.
fn page_80(path: &Path) -> Option<String> {
    let page = fs::read(path).ok()?;
    let serial = String::from_utf8_lossy(page.get(4..)?).trim_matches(['\0', ' ']).to_owned();
    (!serial.is_empty()).then_some(serial)
}

fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut out: Vec<_> = entries.filter_map(|e| e.ok()?.file_name().into_string().ok()).collect();
    out.sort();
    out
}

#[cfg(test)]
mod tests;
