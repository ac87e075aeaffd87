//! Enclosures with SES that the system reports (`/sys/class/enclosure`): their slots, the disks in them, and
//! the locate light.
//!
//! The kernel's `ses` driver creates a folder for each enclosure, in it one for each component, and in that
//! `locate`, `status`, `slot` and a link `device` to the installed device
//! (`Documentation/ABI/testing/sysfs-class`, enclosure). A machine without enclosures has no such folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::EnclosureSlot;

/// The folder of the kernel's enclosure class.
const ROOT: &str = "/sys/class/enclosure";

/// One enclosure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enclosure {
    /// Its SES logical identifier, as in [`EnclosureSlot::enclosure`].
    pub id: String,
    /// Vendor and model; empty if unknown.
    pub model: String,
    /// Its disk slots, by name.
    pub slots: Vec<Slot>,
}

/// A slot of an enclosure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its name, as in [`EnclosureSlot::slot`].
    pub name: String,
    /// Its status as the enclosure reports it, such as `OK` or `not installed`.
    pub status: String,
    /// The block device in it, such as `sda`.
    pub device: Option<String>,
    /// Whether its locate light is on; `None` if it has none.
    pub locate: Option<bool>,
}

/// All enclosures that the system reports, sorted by identifier.
pub fn list() -> Vec<Enclosure> {
    list_at(Path::new(ROOT))
}

/// Switches a slot's light on or off.
///
/// # Errors
/// `NotFound` if there is no such enclosure or slot, or if the slot has no light; otherwise the system's
/// error.
pub fn locate(at: &EnclosureSlot, on: bool) -> io::Result<()> {
    locate_at(Path::new(ROOT), at, on)
}

fn list_at(root: &Path) -> Vec<Enclosure> {
    let mut all: Vec<Enclosure> = folders(root).iter().filter_map(|f| enclosure(f)).collect();
    all.sort_by(|a, b| a.id.cmp(&b.id));
    all
}

fn locate_at(root: &Path, at: &EnclosureSlot, on: bool) -> io::Result<()> {
    let folders = folders(root);
    let enclosure = folders.iter().find(|f| text(&f.join("id")).is_some_and(|id| id == at.enclosure));
    let none =
        || io::Error::new(io::ErrorKind::NotFound, "the system reports no such slot, or it has no light");
    let light = enclosure.ok_or_else(none)?.join(&at.slot).join("locate");
    // The enclosure chooses the slot's name, so it is untrusted: it must be a single path component.
    if !light.exists() || Path::new(&at.slot).components().count() != 1 {
        return Err(none());
    }
    fs::write(light, if on { "1" } else { "0" })
}

fn enclosure(folder: &Path) -> Option<Enclosure> {
    let id = text(&folder.join("id"))?;
    let words = ["device/vendor", "device/model"].map(|a| text(&folder.join(a)));
    let model = words.into_iter().flatten().collect::<Vec<_>>().join(" ");
    let mut slots: Vec<Slot> = folders(folder).iter().filter_map(|f| slot(f)).collect();
    slots.sort_by(|a, b| a.name.cmp(&b.name));
    Some(Enclosure { id, model, slots })
}

fn slot(folder: &Path) -> Option<Slot> {
    let kind = text(&folder.join("type"))?;
    if kind != "device" && kind != "array device" {
        return None;
    }
    let locate = text(&folder.join("locate")).map(|l| l != "0");
    let device = folders(&folder.join("device/block")).first().and_then(|f| name(f));
    Some(Slot {
        name: name(folder)?,
        status: text(&folder.join("status")).unwrap_or_default(),
        device,
        locate,
    })
}

fn folders(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut all: Vec<_> = entries.filter_map(|e| Some(e.ok()?.path())).filter(|p| p.is_dir()).collect();
    all.sort();
    all
}

fn name(path: &Path) -> Option<String> {
    path.file_name()?.to_str().map(str::to_owned)
}

fn text(path: &Path) -> Option<String> {
    let text = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&text[..text.len().min(4096)]).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }

    #[test]
    fn slots_and_their_lights() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path();
        assert_eq!(list_at(&root.join("none")), []);
        for (path, text) in [
            ("0:0:8:0/id", "0x5000c500a1b2c3d4\n"),
            ("0:0:8:0/device/vendor", "ACME    \n"),
            ("0:0:8:0/device/model", "JBOD60  \n"),
            ("0:0:8:0/Slot 01/type", "array device\n"),
            ("0:0:8:0/Slot 01/status", "OK\n"),
            ("0:0:8:0/Slot 01/locate", "0\n"),
            ("0:0:8:0/Slot 01/device/block/sda/size", "1\n"),
            ("0:0:8:0/Slot 02/type", "device\n"),
            ("0:0:8:0/Slot 02/status", "not installed\n"),
            ("0:0:8:0/Fan 1/type", "cooling\n"),
            ("0:0:9:0/components", "4\n"),
        ] {
            put(root, path, text);
        }
        let found = list_at(root);
        assert_eq!(found.len(), 1, "one without an identity is none: {found:?}");
        assert_eq!((found[0].id.as_str(), found[0].model.as_str()), ("0x5000c500a1b2c3d4", "ACME JBOD60"));
        let [first, second] = &found[0].slots[..] else { panic!("{found:?}") };
        assert_eq!((first.device.as_deref(), first.locate), (Some("sda"), Some(false)));
        assert_eq!((second.status.as_str(), &second.device, second.locate), ("not installed", &None, None));

        let at = |slot: &str| EnclosureSlot { enclosure: found[0].id.clone(), slot: slot.into() };
        locate_at(root, &at("Slot 01"), true).expect("it has a light");
        assert_eq!(list_at(root)[0].slots[0].locate, Some(true));
        locate_at(root, &at("Slot 01"), false).expect("it has a light");
        assert_eq!(list_at(root)[0].slots[0].locate, Some(false));
        for slot in ["Slot 02", "Slot 09", "../0:0:8:0/Slot 01"] {
            assert_eq!(locate_at(root, &at(slot), true).map_err(|e| e.kind()), Err(io::ErrorKind::NotFound));
        }
        let elsewhere = EnclosureSlot { enclosure: "0x1".into(), slot: "Slot 01".into() };
        assert!(locate_at(root, &elsewhere, true).is_err());
    }
}
