//! `/dev/ublk-control`: commands to the driver. Each command blocks a thread of its own, so that the caller's
//! thread can continue to serve.

use std::fs::{File, OpenOptions};
use std::io;
use std::sync::Arc;
use std::thread;

use tokio::sync::oneshot;

use crate::abi::{
    ADD_DEVICE, ANY_DEVICE, DELETE_DEVICE, DELETE_DEVICE_SOON, DEVICE_INFO_BYTES, DeviceInfo,
    FEATURE_COMMANDS_ENCODED, FEATURE_UPDATE_SIZE, FEATURE_USER_COPY, GET_DEVICE_INFO, GET_FEATURES,
    Parameters, SECTOR, SET_PARAMETERS, START_DEVICE, STATE_DEAD, STOP_DEVICE, UPDATE_SIZE,
};
use crate::{Error, QUEUE_DEPTH, ring};

const CONTROL: &str = "/dev/ublk-control";
/// Identifies our devices in the driver's user data: half of `causeway`, followed by the process ID.
const OURS: u32 = u32::from_be_bytes(*b"cswy");

#[derive(Clone)]
pub(crate) struct Control {
    file: Arc<File>,
    features: u64,
}

impl Control {
    /// Opens the driver and checks its features.
    ///
    /// # Errors
    /// `NoDriver`, `NotAllowed`, `NoRing`, `TooOld`.
    pub(crate) async fn open() -> Result<Control, Error> {
        let file = OpenOptions::new().read(true).write(true).open(CONTROL).map_err(unavailable)?;
        let mut control = Control { file: Arc::new(file), features: 0 };
        let asked = control.ask(GET_FEATURES, 0, 0, [0; 8]).await;
        let features = match asked {
            Ok(bytes) => u64::from_ne_bytes(bytes),
            Err(e) if lacks_the_query(&e) => return Err(Error::TooOld),
            Err(e) => return Err(refused("report its features", e)),
        };
        check_features(features)?;
        control.features = features;
        Ok(control)
    }

    /// Adds a device; returns its number.
    ///
    /// # Errors
    /// `NotAllowed`, `Command`.
    pub(crate) async fn add(&self, transfer_max: u32) -> Result<u32, Error> {
        let info = DeviceInfo {
            queues: 1,
            depth: QUEUE_DEPTH,
            state: STATE_DEAD,
            transfer_max,
            device: ANY_DEVICE,
            flags: FEATURE_USER_COPY | self.features & FEATURE_UPDATE_SIZE,
            own: own(std::process::id()),
        };
        let added = self.ask(ADD_DEVICE, ANY_DEVICE, 0, info.encode()).await;
        let info = DeviceInfo::decode(&added.map_err(|e| refused("add a device", e))?);
        let is_as_asked = (info.queues, info.depth) == (1, QUEUE_DEPTH) && info.transfer_max == transfer_max;
        if is_as_asked && info.flags & FEATURE_USER_COPY != 0 {
            return Ok(info.device);
        }
        self.delete(info.device).await?;
        Err(Error::TooOld)
    }

    pub(crate) async fn describe(&self, device: u32, parameters: &Parameters) -> Result<(), Error> {
        let set = self.ask(SET_PARAMETERS, device, 0, parameters.encode()).await;
        set.map(drop).map_err(|e| refused("set the disk's geometry", e))
    }

    /// Starts the block device. It returns after the kernel has scanned for partitions, so requests must be
    /// served meanwhile.
    pub(crate) async fn start(&self, device: u32) -> Result<(), Error> {
        let started = self.ask(START_DEVICE, device, u64::from(std::process::id()), []).await;
        started.map(drop).map_err(|e| refused("start the device", e))
    }

    /// Whether [`Control::resize`] is possible.
    pub(crate) fn can_resize(&self) -> bool {
        self.features & FEATURE_UPDATE_SIZE != 0
    }

    /// Sets the size of a started device, in bytes. The kernel notifies the users of the block device.
    pub(crate) async fn resize(&self, device: u32, size: u64) -> Result<(), Error> {
        let resized = self.ask(UPDATE_SIZE, device, size / SECTOR, []).await;
        resized.map(drop).map_err(|e| refused("change the size of the device", e))
    }

    /// Stops the block device after the page cache was written back, so requests must be served meanwhile. A
    /// missing device counts as stopped.
    pub(crate) async fn stop(&self, device: u32) -> Result<(), Error> {
        ignore_missing(self.ask(STOP_DEVICE, device, 0, []).await).map_err(|e| refused("stop the device", e))
    }

    /// Deletes a device. A mounted file system still keeps its number; before Linux 6.7 this call waits for
    /// that. A missing device counts as deleted.
    pub(crate) async fn delete(&self, device: u32) -> Result<(), Error> {
        let deleted = match self.ask(DELETE_DEVICE_SOON, device, 0, []).await {
            Err(e) if lacks_the_query(&e) => self.ask(DELETE_DEVICE, device, 0, []).await,
            other => other,
        };
        ignore_missing(deleted).map_err(|e| refused("delete the device", e))
    }

    /// The state of a device. Returns `None` if there is no device with that number.
    pub(crate) async fn info(&self, device: u32) -> Option<DeviceInfo> {
        let info = self.ask(GET_DEVICE_INFO, device, 0, [0; DEVICE_INFO_BYTES]).await;
        info.ok().map(|bytes| DeviceInfo::decode(&bytes))
    }

    async fn ask<const N: usize>(
        &self,
        number: u32,
        device: u32,
        value: u64,
        buffer: [u8; N],
    ) -> io::Result<[u8; N]> {
        let file = Arc::clone(&self.file);
        on_own_thread(move || ring::control(&file, number, device, value, buffer)).await
    }
}

/// Runs `work`, which may wait for a device, on a separate thread, because this thread may have to serve that
/// device.
pub(crate) async fn on_own_thread<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (answer, answered) = oneshot::channel();
    let work = move || {
        let _ = answer.send(work());
    };
    thread::Builder::new().name("ublk control".into()).spawn(work)?;
    answered.await.unwrap_or_else(|_| Err(io::Error::other("the thread that sent the command has panicked")))
}

/// The process that serves or served a device. Returns `None` if the device is not ours.
pub(crate) fn process(info: &DeviceInfo) -> Option<u32> {
    (info.own >> 32 == u64::from(OURS)).then_some(info.own as u32)
}

fn own(process: u32) -> u64 {
    u64::from(OURS) << 32 | u64::from(process)
}

fn check_features(features: u64) -> Result<(), Error> {
    let needed = FEATURE_COMMANDS_ENCODED | FEATURE_USER_COPY;
    if features & needed == needed { Ok(()) } else { Err(Error::TooOld) }
}

/// Drivers before Linux 6.5 do not support the query.
fn lacks_the_query(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ENODEV))
}

fn unavailable(e: io::Error) -> Error {
    match e.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => Error::NoDriver,
        Some(libc::EACCES | libc::EPERM) => Error::NotAllowed(e),
        _ => Error::Node { path: CONTROL.into(), source: e },
    }
}

fn refused(what: &'static str, e: io::Error) -> Error {
    match e.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => Error::NotAllowed(e),
        // Errors of the ring: ENOSYS if the kernel lacks io_uring; a sysctl that forbids it causes EPERM.
        Some(libc::ENOSYS) => Error::NoRing(e),
        _ => Error::Command { what, source: e },
    }
}

fn ignore_missing<const N: usize>(result: io::Result<[u8; N]>) -> io::Result<()> {
    match result {
        Err(e) if e.raw_os_error() != Some(libc::ENODEV) => Err(e),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_without_the_driver_is_told_how_to_get_it() {
        let errno = io::Error::from_raw_os_error;
        let none = unavailable(errno(libc::ENOENT));
        assert!(matches!(none, Error::NoDriver));
        assert!(none.cure().expect("a cure").contains("modprobe ublk_drv"));
        let denied = unavailable(errno(libc::EACCES));
        assert!(matches!(denied, Error::NotAllowed(_)));
        assert!(denied.cure().expect("a cure").contains("root"));
        assert!(matches!(refused("x", errno(libc::EPERM)), Error::NotAllowed(_)));
        let no_ring = refused("x", errno(libc::ENOSYS));
        assert!(matches!(no_ring, Error::NoRing(_)) && no_ring.cure().is_some());
        assert!(matches!(unavailable(errno(libc::EMFILE)), Error::Node { .. }));
    }

    #[test]
    fn old_drivers_are_refused() {
        for errno in [libc::EOPNOTSUPP, libc::EINVAL] {
            assert!(lacks_the_query(&io::Error::from_raw_os_error(errno)));
        }
        assert!(check_features(FEATURE_COMMANDS_ENCODED | FEATURE_USER_COPY | 1).is_ok());
        for features in [0, FEATURE_USER_COPY, FEATURE_COMMANDS_ENCODED] {
            assert!(matches!(check_features(features), Err(Error::TooOld)), "{features:x}");
        }
        assert!(Error::TooOld.cure().expect("a cure").contains("6.5"));
    }

    #[test]
    fn a_device_names_its_process() {
        let mut info = DeviceInfo::decode(&[0; DEVICE_INFO_BYTES]);
        assert_eq!(process(&info), None);
        info.own = own(4711);
        assert_eq!(process(&info), Some(4711));
        info.own ^= 1 << 63;
        assert_eq!(process(&info), None);
    }

    #[test]
    fn a_missing_device_needs_no_deletion() {
        let gone = |e| ignore_missing::<0>(Err(io::Error::from_raw_os_error(e)));
        assert!(gone(libc::ENODEV).is_ok());
        assert!(gone(libc::EBUSY).is_err());
    }
}
