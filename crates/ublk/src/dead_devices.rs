//! Deletes devices of servers that died.

use std::fs;
use std::path::Path;

use crate::Error;
use crate::abi::{DeviceInfo, STATE_DEAD};
use crate::control::{Control, process};

/// Where the driver's devices are listed.
const DEVICES: &str = "/sys/class/ublk-char";

/// Deletes the remains of our servers that ended without stopping their devices: dead numbers whose block
/// devices the kernel has already removed. Call it before this process starts its first device. Returns how
/// many it deleted; 0 without a driver.
///
/// # Errors
/// See [`Error`].
pub async fn delete_dead_devices() -> Result<usize, Error> {
    let numbers = numbers(Path::new(DEVICES));
    if numbers.is_empty() {
        return Ok(0);
    }
    let control = Control::open().await?;
    let mut deleted = 0;
    for number in numbers {
        let Some(info) = control.info(number).await else { continue };
        if is_dead_device(&info, std::process::id(), |p| Path::new(&format!("/proc/{p}")).exists()) {
            control.delete(number).await?;
            tracing::info!("ublk: device {number} of a server that has ended was deleted");
            deleted += 1;
        }
    }
    Ok(deleted)
}

fn numbers(folder: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let number = |e: fs::DirEntry| e.file_name().to_str()?.strip_prefix("ublkc")?.parse().ok();
    entries.flatten().filter_map(number).collect()
}

/// Whether a device is ours, dead, and not being started by a running server. This process has no device yet,
/// so a device with its process ID belonged to an earlier process.
fn is_dead_device(info: &DeviceInfo, this: u32, lives: impl Fn(u32) -> bool) -> bool {
    info.state == STATE_DEAD && process(info).is_some_and(|p| p == this || !lives(p))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::DEVICE_INFO_BYTES;

    fn info(state: u16, own: u64) -> DeviceInfo {
        DeviceInfo { state, own, ..DeviceInfo::decode(&[0; DEVICE_INFO_BYTES]) }
    }

    #[test]
    fn only_dead_devices_of_dead_servers_of_ours_go() {
        let ours = |process: u64| u64::from(u32::from_be_bytes(*b"cswy")) << 32 | process;
        let lives = |p| p == 20;
        assert!(is_dead_device(&info(0, ours(10)), 30, lives));
        assert!(is_dead_device(&info(0, ours(30)), 30, lives), "the number was another's before");
        assert!(!is_dead_device(&info(0, ours(20)), 30, lives), "about to be started by another server");
        assert!(!is_dead_device(&info(1, ours(10)), 30, lives), "in use");
        assert!(!is_dead_device(&info(0, 10), 30, lives), "another process's");
    }

    #[test]
    fn a_system_without_the_driver_has_none() {
        assert!(numbers(Path::new("/sys/class/there-is-no-such-class")).is_empty());
    }
}
