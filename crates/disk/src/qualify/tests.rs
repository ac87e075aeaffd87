use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::signature::{HEAD, TAIL};
use super::users::{mounted, swapped};
use super::*;
use crate::conformance::bytes;
use crate::loops::{LoopDevice, Mount, folder, skipped};

const SMALL: u64 = 32 << 20;

fn small() -> QualifyOptions {
    QualifyOptions { minimum: SMALL, ..QualifyOptions::default() }
}

fn names(q: &Qualification) -> Vec<&'static str> {
    q.reasons.iter().map(CannotPoolReason::name).collect()
}

fn file(folder: &tempfile::TempDir, name: &str, content: &[u8], size: u64) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, content).expect("written");
    std::fs::OpenOptions::new().write(true).open(&path).and_then(|f| f.set_len(size)).expect("its size");
    path
}

#[tokio::test]
async fn a_blank_file_can_be_pooled_and_stays_as_it_was() {
    let folder = folder();
    let path = file(&folder, "blank", &[0; 3 << 20], SMALL);
    let before = std::fs::read(&path).expect("read");
    let q = qualify(&Env::real(), &path, &small()).await.expect("it can be looked at");
    if q.info.id.kind == IdKind::Path {
        assert_eq!(names(&q), ["No unique ID"]);
        return skipped!("this file system keeps no extended attributes");
    }
    assert!(q.can_pool && q.reasons.is_empty() && q.signatures.is_empty(), "{q:?}");
    let flush = q.flush.expect("it was measured");
    assert!(flush.samples > 0 && flush.median <= flush.longest);
    assert_eq!(q.power_loss_protected, Some(flush.median < FLUSH_PROTECTED));
    assert!(std::fs::read(&path).expect("read") == before, "nothing on it changed");
    let unmeasured = QualifyOptions { measure: false, ..small() };
    let q = qualify(&Env::real(), &path, &unmeasured).await.expect("it can be looked at");
    assert!(q.can_pool && q.flush.is_none() && q.power_loss_protected.is_none());
}

/// A file with any contents is refused unless forced.
#[tokio::test]
async fn a_file_with_contents_is_not_taken() {
    let folder = folder();
    let env = Env::real();
    let mut tar = vec![0; 512];
    tar[257..262].copy_from_slice(b"ustar");
    let random = bytes(1, 4096);
    let cases: [(&str, &[u8], u64, &str); 5] = [
        ("tar", &tar, 0, "a tar archive (at 257)"),
        ("qcow2", b"QFI\xFB\0\0\0\x03", 0, "a QEMU disk image (qcow2) (at 0)"),
        ("sqlite", b"SQLite format 3\0", 0, "an SQLite database (at 0)"),
        ("random", &random, 8192, "data of an unknown kind (at 8192)"),
        ("one byte", b"x", (16 << 20) + 5, "data of an unknown kind (at 16777221)"),
    ];
    for (name, content, at, says) in cases {
        let path = file(&folder, name, &[], SMALL);
        let written = std::fs::OpenOptions::new().write(true).open(&path);
        written.and_then(|f| f.write_all_at(content, at)).expect("written");
        let q = qualify(&env, &path, &small()).await.expect("looked at");
        if q.info.id.kind == IdKind::Path {
            return skipped!("this file system keeps no extended attributes");
        }
        assert_eq!(names(&q), ["Not blank"], "{name}");
        assert_eq!(q.reasons[0].to_string(), format!("it contains {says}"));
        let forced =
            qualify(&env, &path, &QualifyOptions { force: true, ..small() }).await.expect("looked at");
        assert!(forced.can_pool, "{name}: {forced:?}");
    }
}

#[tokio::test]
async fn each_refusal_has_its_reason_and_a_cure() {
    let folder = folder();
    let env = Env::real();
    let path = file(&folder, "short", &[], SMALL - 4096);
    let q = qualify(&env, &path, &small()).await.expect("looked at");
    let (size, minimum) = (SMALL - 4096, SMALL);
    assert_eq!(q.reasons, [CannotPoolReason::InsufficientCapacity { size, minimum }]);
    assert!(!q.can_pool && q.flush.is_none(), "nothing is written to what is refused");

    let held = FileDisk::open(&env, &path, &FileOptions::default()).expect("opened");
    let q = qualify(&env, &path, &small()).await.expect("looked at");
    assert_eq!(names(&q), ["In use", "Insufficient capacity"], "all of them at once");
    let others = vec![held.info().id.clone()];
    drop(held);

    let path = file(&folder, "label", b"OURS", SMALL);
    let label: LabelReader =
        Arc::new(|head: &[u8]| head.starts_with(b"OURS").then(|| "pool tank".to_owned()));
    let q = qualify(&env, &path, &QualifyOptions { label: Some(label), ..small() }).await.expect("looked at");
    assert_eq!(q.reasons, [CannotPoolReason::InAPool { pool: "pool tank".into() }]);

    let path = file(&folder, "xfs", b"XFSB", SMALL);
    let q = qualify(&env, &path, &small()).await.expect("looked at");
    assert_eq!(q.reasons[0].to_string(), "it contains an XFS file system (at 0)");
    assert_eq!(names(&q), ["Not blank"]);
    let q = qualify(&env, &path, &QualifyOptions { force: true, ..small() }).await.expect("looked at");
    assert!(q.can_pool && q.signatures.len() == 1, "forced, and told all the same");

    let path = file(&folder, "short", &[], SMALL);
    let q = qualify(&env, &path, &QualifyOptions { others, ..small() }).await.expect("looked at");
    assert_eq!(names(&q), ["Duplicate ID"]);
    assert!(q.reasons.iter().all(|r| !r.cure().is_empty() && !r.to_string().is_empty()));
    assert!(qualify(&env, &folder.path().join("none"), &small()).await.is_err());
    assert!(qualify(&env, folder.path(), &small()).await.is_err());
}

#[test]
fn file_systems_of_a_network() {
    for (magic, name) in
        [(0x6969, Some("NFS")), (0xfe53_4d42_i64, Some("SMB")), (0xef53, None), (0x0102_1994, None)]
    {
        assert_eq!(network_file_system(magic), name, "{magic:x}");
    }
    assert_eq!(network_file_system(0xfe53_4d42_u32 as i32), Some("SMB"), "sign-extended");
    let here = rustix::fs::statfs(folder().path()).expect("a file system");
    assert_eq!(network_file_system(here.f_type), None);
}

#[tokio::test]
async fn a_mounted_device_says_where() {
    let device = match LoopDevice::new(64 << 20) {
        Ok(device) => device,
        Err(e) => return skipped!("no block device can be made here: {e}"),
    };
    // A loop device has no lasting identity.
    let q = qualify(&Env::real(), &device.path, &small()).await.expect("looked at");
    assert_eq!(names(&q), ["No unique ID"]);
    let Some(mount) = Mount::new(&device) else { return skipped!("nothing can be mounted here") };
    let at = mount.at().canonicalize().expect("it is there");
    let q = qualify(&Env::real(), &device.path, &small()).await;
    let behind =
        qualify(&Env::real(), &device.backing(), &QualifyOptions { measure: false, ..small() }).await;
    drop(mount);
    let q = q.expect("it can be looked at while it is mounted");
    let by = vec![User::Mounted { at: at.clone() }];
    assert_eq!(q.reasons[0], CannotPoolReason::InUse { by });
    assert_eq!(q.reasons[0].cure(), format!("umount {}", at.display()));
    assert!(q.signatures.iter().any(|s| s.name == "an ext2/3/4 file system"), "{:?}", q.signatures);
    let behind = behind.expect("looked at");
    let name = device.path.file_name().expect("it has one").to_string_lossy().into_owned();
    assert_eq!(behind.reasons[0], CannotPoolReason::InUse { by: vec![User::Loop { name }] });
}

#[tokio::test]
async fn a_protected_device_is_read_only() {
    let device = match LoopDevice::read_only(64 << 20) {
        Ok(device) => device,
        Err(e) => return skipped!("no block device can be made here: {e}"),
    };
    let q = qualify(&Env::real(), &device.path, &small()).await.expect("looked at");
    assert_eq!(names(&q), ["Read-only", "No unique ID"]);
    assert!(list().iter().any(|d| d.path == device.path && d.geometry == q.info.geometry), "{:?}", list());
}

/// Each signature is found alone, and none in blank or arbitrary bytes.
#[test]
fn marks_are_found_where_they_are() {
    let size = 64u64 << 20;
    let blank = || (vec![0; HEAD], vec![0; TAIL]);
    let find = |at: u64, mark: &[u8]| {
        let (mut head, mut tail) = blank();
        let start = size - TAIL as u64;
        let part = if at < start { &mut head[at as usize..] } else { &mut tail[(at - start) as usize..] };
        part[..mark.len()].copy_from_slice(mark);
        signatures(&head, &tail, size)
    };
    let md = [0xFC, 0x4E, 0x2B, 0xA9];
    let marks: &[(u64, &[u8], &str)] = &[
        (512, b"EFI PART", "a GPT partition table"),
        (4096, b"EFI PART", "a GPT partition table"),
        (510, &[0x55, 0xAA], "an MBR partition table or boot sector"),
        (1080, &[0x53, 0xEF], "an ext2/3/4 file system"),
        (0, b"XFSB", "an XFS file system"),
        (65600, b"_BHRfS_M", "a btrfs file system"),
        (512, b"LABELONE", "an LVM physical volume"),
        (0, &md, "a Linux RAID member (mdraid 1.1)"),
        (4096, &md, "a Linux RAID member (mdraid 1.2)"),
        (size - 8192, &md, "a Linux RAID member (mdraid 1.0)"),
        (size - 65536, &md, "a Linux RAID member (mdraid 0.90)"),
        (4086, b"SWAPSPACE2", "swap space"),
        (0, b"LUKS\xBA\xBE", "a LUKS container"),
        (131072 + 5 * 1024, &[0x0C, 0xB1, 0xBA, 0, 0, 0, 0, 0], "a ZFS pool member"),
        (393216, &[0, 0, 0, 0, 0, 0xBA, 0xB1, 0x0C], "a ZFS pool member"),
        (size - 512, b"EFI PART", "a backup GPT partition table"),
        (size - 4096, b"EFI PART", "a backup GPT partition table"),
        (3, b"NTFS    ", "an NTFS file system"),
        (0, b"bluestore block device", "a Ceph BlueStore device"),
    ];
    for (at, mark, name) in marks {
        assert_eq!(find(*at, mark), [Signature { name, offset: *at }]);
    }
    let (head, tail) = blank();
    assert_eq!(signatures(&head, &tail, size), []);
    // For any length: bytes beyond the end are not examined.
    for length in [0, 1, 511, 513, 4097, 70_000] {
        let short = bytes(length as u64, length);
        signatures(&short, &short, length as u64);
    }
}

#[test]
fn the_makers_of_file_systems_are_recognised() {
    let folder = folder();
    let makers: [(&str, &[&str], &str); 4] = [
        ("mkfs.ext4", &["-q", "-F"], "an ext2/3/4 file system"),
        ("mkfs.xfs", &["-q", "-f"], "an XFS file system"),
        ("mkfs.btrfs", &["-q", "-f"], "a btrfs file system"),
        ("mkswap", &[], "swap space"),
    ];
    for (program, arguments, name) in makers {
        let size = 512u64 << 20;
        let path = file(&folder, program, &[], size);
        let made = Command::new(program)
            .args(arguments)
            .arg(&path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !made.is_ok_and(|s| s.success()) {
            skipped!("no {program} here");
            continue;
        }
        let made = std::fs::File::open(&path).expect("it is there");
        let (mut head, mut tail) = (vec![0; HEAD], vec![0; TAIL]);
        made.read_exact_at(&mut head, 0).expect("read");
        made.read_exact_at(&mut tail, size - TAIL as u64).expect("read");
        let found = signatures(&head, &tail, size);
        assert!(found.iter().any(|s| s.name == name), "{program}: {found:?}");
    }
}

#[test]
fn users_are_read_from_the_systems_tables() {
    let mountinfo = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw\n\
        36 22 8:1 / /mnt/with\\040blank rw shared:3 master:2 - xfs /dev/sdb1 rw\n\
        37 22 0:40 /sub /srv rw - btrfs /dev/sdb2 rw\n\
        38 22 8:17 / /other rw - xfs /dev/sdc1 rw\n\
        nonsense\n\n- \n39 22 - \n";
    let (numbers, nodes) =
        (["8:0".to_owned(), "8:1".into()], ["/dev/sdb", "/dev/sdb1", "/dev/sdb2"].map(PathBuf::from));
    let at = |p: &str| User::Mounted { at: p.into() };
    assert_eq!(mounted(mountinfo, &numbers, &nodes), [at("/mnt/with blank"), at("/srv")]);
    let swaps = "Filename Type Size Used Priority\n/dev/sdb2 partition 100 0 -2\n/swapfile file 1 0 -3\n";
    assert_eq!(swapped(swaps, &nodes), [User::Swap { path: "/dev/sdb2".into() }]);
    assert_eq!(User::Holder { name: "md0".into() }.cure(), "mdadm --stop /dev/md0");
}

/// All reasons in a device's description are reported together.
#[test]
fn descriptions_speak() {
    let tree = tempfile::tempdir().expect("a folder");
    let put = |path: &str, text: &str| {
        let path = tree.path().join(path);
        std::fs::create_dir_all(path.parent().expect("it has one")).expect("made");
        std::fs::write(path, text).expect("written");
    };
    for (name, number) in [("sda", "8:0"), ("sdb", "8:16")] {
        for (attribute, text) in [
            ("size", "2048\n"),
            ("dev", number),
            ("removable", "1\n"),
            ("ro", "1\n"),
            ("queue/zoned", "host-managed\n"),
            ("device/wwid", "naa.5000c500a1b2c3d4\n"),
        ] {
            put(&format!("devices/{name}/{attribute}"), text);
        }
        for link in [format!("dev/block/{number}"), format!("block/{name}")] {
            let link = tree.path().join(link);
            std::fs::create_dir_all(link.parent().expect("it has one")).expect("made");
            std::os::unix::fs::symlink(tree.path().join("devices").join(name), link).expect("linked");
        }
    }
    let sysfs = Sysfs::at(tree.path());
    let device = sysfs.device(8, 0).expect("it is there");
    let info = device.info().expect("it has a size");
    let reasons = by_description(&info, Some(&device), &QualifyOptions::default(), &sysfs);
    assert_eq!(
        reasons,
        [
            CannotPoolReason::InsufficientCapacity { size: 1 << 20, minimum: DEVICE_MIN },
            CannotPoolReason::RemovableMedia,
            CannotPoolReason::ReadOnly,
            CannotPoolReason::HardwareNotCompliant { logical_block: 512 },
            CannotPoolReason::DuplicateId { id: info.id.clone(), other: Some("/dev/sdb".into()) },
        ]
    );
    let error = std::io::Error::from_raw_os_error(libc::ENXIO);
    let gone = offline("/dev/sda".into(), error, Some(&device)).expect("it is known");
    assert_eq!(gone.reasons, [CannotPoolReason::Offline { errno: libc::ENXIO }]);
    let denied = std::io::Error::from_raw_os_error(libc::EACCES);
    assert!(offline("/dev/sda".into(), denied, Some(&device)).is_err());
    let slow =
        FlushLatency { median: Duration::from_millis(2), longest: Duration::from_millis(9), samples: 32 };
    let told = warnings(&info, Some(&slow), Some(false));
    assert_eq!(
        told,
        [Warning::NoPowerLossProtection { median: slow.median }, Warning::SmallAtomicWrite { unit: 512 }]
    );
}
