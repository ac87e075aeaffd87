use super::*;
use crate::Geometry;

struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Tree {
        Tree(tempfile::tempdir().expect("a folder"))
    }

    fn put(&self, path: &str, text: &[u8]) -> &Tree {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().expect("it has one")).expect("made");
        fs::write(path, text).expect("written");
        self
    }

    fn link(&self, from: &str, to: &str) -> &Tree {
        let from = self.0.path().join(from);
        fs::create_dir_all(from.parent().expect("it has one")).expect("made");
        std::os::unix::fs::symlink(self.0.path().join(to), from).expect("linked");
        self
    }

    /// A disk at `devices/NAME` with number 8:0, and its attributes.
    fn disk(name: &str, attributes: &[(&str, &str)]) -> (Tree, Device) {
        let tree = Tree::new();
        let folder = format!("devices/{name}");
        tree.put(&format!("{folder}/size"), b"8192\n").put(&format!("{folder}/dev"), b"8:0\n");
        for (attribute, text) in attributes {
            tree.put(&format!("{folder}/{attribute}"), text.as_bytes());
        }
        tree.link("dev/block/8:0", &folder).link(&format!("block/{name}"), &folder);
        let device = Sysfs::at(tree.0.path()).device(8, 0).expect("it is there");
        (tree, device)
    }
}

fn id(kind: IdKind, value: &str) -> Option<DiskId> {
    Some(DiskId { kind, value: value.into() })
}

#[test]
fn an_nvme_disk() {
    let (tree, d) = Tree::disk(
        "nvme0n1",
        &[
            ("wwid", "eui.0025385b71b03efe\n"),
            ("device/model", "Samsung SSD 990 PRO 2TB                 \n"),
            ("device/serial", "S6Z2NJ0TB12345 \n"),
            ("device/firmware_rev", "4B2QJXD7\n"),
            ("queue/rotational", "0\n"),
            ("queue/write_cache", "write back\n"),
            ("queue/nr_requests", "1023\n"),
            ("queue/dma_alignment", "3\n"),
            ("queue/atomic_write_unit_max_bytes", "4096\n"),
        ],
    );
    assert_eq!(d.id(), id(IdKind::Wwn, "eui.0025385b71b03efe"));
    assert_eq!((d.model().as_str(), d.serial().as_str()), ("Samsung SSD 990 PRO 2TB", "S6Z2NJ0TB12345"));
    assert_eq!((d.firmware().as_str(), d.media(), d.rotational()), ("4B2QJXD7", Media::Nvme, false));
    assert_eq!((d.write_cache(), d.queue_depth()), (WriteCache::Volatile, Some(1023)));
    assert_eq!((d.dma_alignment(), d.atomic_write(), d.enclosure()), (Some(4), Some(4096), None));
    let geometry = Geometry {
        size: 8192 * 512,
        logical_block: 512,
        physical_block: 512,
        atomic_write: 4096,
        dma_alignment: 4,
    };
    let info = crate::file::of_device(Path::new("/dev/nvme0n1"), geometry, Some(&d));
    assert_eq!((info.id, info.geometry, info.removable), (d.id().expect("one"), geometry, false));
    let listed = Sysfs::at(tree.0.path()).disks()[0].info().expect("it has a size");
    assert_eq!((listed.path.as_path(), listed.geometry), (Path::new("/dev/nvme0n1"), geometry));
}

#[test]
fn zram_takes_whole_pages_whatever_it_says() {
    let (_tree, d) = Tree::disk("zram0", &[("queue/dma_alignment", "511\n")]);
    assert_eq!((d.id(), d.dma_alignment()), (None, Some(4096)));
}

#[test]
fn a_sas_disk_in_an_enclosure_and_its_partition() {
    let (tree, d) = Tree::disk(
        "sdb",
        &[
            ("device/wwid", "naa.5000c500a1b2c3d4\n"),
            ("device/vendor", "SEAGATE \n"),
            ("device/model", "ST16000NM004J   \n"),
            ("device/rev", "E004\n"),
            ("device/queue_depth", "64\n"),
            ("queue/rotational", "1\n"),
            ("queue/write_cache", "write through\n"),
            ("queue/physical_block_size", "4096\n"),
            ("alignment_offset", "0\n"),
            ("sdb1/alignment_offset", "3584\n"),
            ("sdb1/partition", "1\n"),
            ("sdb1/dev", "8:1\n"),
            ("sdb1/ro", "1\n"),
        ],
    );
    let mut page = vec![0, 0x80, 0, 8];
    page.extend(b"ZL2ABCDE\0");
    tree.put("devices/sdb/device/vpd_pg80", &page);
    tree.put("devices/enclosure/id", b"0x500304801234abcd\n")
        .put("devices/enclosure/Slot 07/status", b"OK\n");
    tree.link("devices/sdb/device/enclosure_device:Slot 07", "devices/enclosure/Slot 07");
    tree.put("devices/sdb/sdb1/holders/md0", b"").link("dev/block/8:1", "devices/sdb/sdb1");
    assert_eq!((d.model().as_str(), d.serial().as_str()), ("SEAGATE ST16000NM004J", "ZL2ABCDE"));
    assert_eq!(d.atomic_write(), Some(4096));
    assert_eq!((d.media(), d.write_cache(), d.queue_depth()), (Media::Hdd, WriteCache::None, Some(64)));
    let slot = EnclosureSlot { enclosure: "0x500304801234abcd".into(), slot: "Slot 07".into() };
    assert_eq!(d.enclosure(), Some(slot));
    assert_eq!(d.numbers(), ["8:0", "8:1"]);
    assert_eq!(d.nodes(), [Path::new("/dev/sdb"), Path::new("/dev/sdb1")]);
    let part = Sysfs::at(tree.0.path()).device(8, 1).expect("it is there");
    assert_eq!(part.id(), id(IdKind::Wwn, "naa.5000c500a1b2c3d4-part1"));
    assert_eq!(part.atomic_write(), None, "its blocks lie across the disk's");
    assert_eq!((part.all_holders(), d.all_holders()), (vec!["md0".into()], vec!["md0".into()]));
    assert_eq!((part.media(), part.read_only(), d.read_only()), (Media::Hdd, true, false));
}

#[test]
fn others() {
    let (_t, virtual_disk) = Tree::disk("vda", &[("serial", "disk-1\n"), ("queue/rotational", "1\n")]);
    assert_eq!(virtual_disk.id(), id(IdKind::Serial, "disk-1"));
    assert_eq!((virtual_disk.media(), virtual_disk.write_cache()), (Media::Unspecified, WriteCache::Unknown));
    let (_t, zeros) =
        Tree::disk("nvme1n1", &[("nguid", "00000000-0000-0000-0000-000000000000"), ("wwid", "")]);
    assert_eq!(zeros.id(), None, "an identity of zeros is everybody's");
    let (_t, qemu) = Tree::disk("sda", &[("device/vendor", "QEMU"), ("device/model", "QEMU HARDDISK")]);
    assert_eq!((qemu.media(), qemu.id()), (Media::Unspecified, None));
    let (_t, ssd) =
        Tree::disk("sda", &[("device/vendor", "ATA"), ("device/model", "INTEL SSD"), ("removable", "1")]);
    assert_eq!((ssd.media(), ssd.model().as_str(), ssd.removable()), (Media::Ssd, "INTEL SSD", true));
    let (tree, _) = Tree::disk("loop0", &[("size", "0\n"), ("wwid", "x1")]);
    assert!(Sysfs::at(tree.0.path()).disks().is_empty(), "one without a size is not a disk");
    assert_eq!(Sysfs::at(tree.0.path()).device(8, 0).and_then(|d| d.id()), None);
    assert!(Sysfs::at(tree.0.path()).device(9, 9).is_none());
}

/// The trees have the structure of Linux 6.12 with targets of each kind.
#[test]
fn network_disks_are_detected() {
    let scsi = |host: &str| {
        let (tree, _) = Tree::disk("sdb", &[]);
        let at = format!("devices/{host}/target2:0:0/2:0:0:1");
        tree.put(&format!("{at}/model"), b"LUN\n").link("devices/sdb/device", &at);
        let device = Sysfs::at(tree.0.path()).device(8, 0).expect("it is there");
        device.network()
    };
    assert_eq!(scsi("platform/host2/session1"), Some("iSCSI"));
    assert_eq!(scsi("pci0000:00/0000:03:00.0/host2/rport-2:0-1"), Some("Fibre Channel"));
    assert_eq!(scsi("pci0000:00/0000:00:1f.2/ata1/host2"), None);
    let nvme = |attribute, transport| Tree::disk("nvme0n1", &[(attribute, transport)]).1.network();
    assert_eq!(nvme("device/transport", "pcie\n"), None);
    assert_eq!(nvme("device/transport", "rdma\n"), Some("NVMe over RDMA"));
    assert_eq!(nvme("device/nvme3/transport", "tcp\n"), Some("NVMe over TCP"), "with multipathing");
    let (tree, multipath) = Tree::disk("dm-0", &[("slaves/readme", "")]);
    assert_eq!(multipath.network(), None);
    tree.put("devices/host2/session1/sdc/device/model", b"LUN\n");
    tree.link("devices/dm-0/slaves/sdc", "devices/host2/session1/sdc");
    assert_eq!(multipath.network(), Some("iSCSI"), "of one of its paths");
}
