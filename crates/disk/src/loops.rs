//! Folders, loop devices and mounts for tests, removed on drop.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Reports why a test or a part of it is skipped; visible even if the output of passing tests is hidden.
macro_rules! skipped {
    ($($reason:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "SKIPPED: {}", format_args!($($reason)*));
    }};
}
pub(crate) use skipped;

/// A folder beside the build, on a file system on disk.
pub(crate) fn folder() -> TempDir {
    let target = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target");
    std::fs::create_dir_all(&target).expect("a folder for the build");
    tempfile::Builder::new().prefix("disk-test").tempdir_in(target).expect("a folder")
}

/// A loop device, detached on drop.
pub(crate) struct LoopDevice {
    pub(crate) path: PathBuf,
    folder: TempDir,
}

impl LoopDevice {
    pub(crate) fn new(size: u64) -> Result<LoopDevice, String> {
        LoopDevice::with(size, &[])
    }

    pub(crate) fn read_only(size: u64) -> Result<LoopDevice, String> {
        LoopDevice::with(size, &["--read-only"])
    }

    fn with(size: u64, options: &[&str]) -> Result<LoopDevice, String> {
        let folder = folder();
        let file = folder.path().join("backing");
        std::fs::File::create(&file).and_then(|f| f.set_len(size)).map_err(|e| e.to_string())?;
        let made = Command::new("losetup")
            .args(options)
            .args(["--find", "--show"])
            .arg(&file)
            .output()
            .map_err(|e| e.to_string())?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into_owned());
        }
        let path = PathBuf::from(String::from_utf8_lossy(&made.stdout).trim());
        Ok(LoopDevice { path, folder })
    }

    /// The file behind it.
    pub(crate) fn backing(&self) -> PathBuf {
        self.folder.path().join("backing")
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).status();
    }
}

/// A file system on a loop device, mounted until drop.
pub(crate) struct Mount(TempDir);

impl Mount {
    /// Returns `None` if the system does not permit it.
    pub(crate) fn new(device: &LoopDevice) -> Option<Mount> {
        let at = folder();
        let made = run("mkfs.ext4", &["-q".as_ref(), device.path.as_ref()])
            && run("mount", &[device.path.as_ref(), at.path().as_ref()]);
        made.then_some(Mount(at))
    }

    /// The mount point.
    pub(crate) fn at(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        run("umount", &[self.at().as_ref()]);
    }
}

fn run(program: &str, arguments: &[&OsStr]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|o| o.status.success())
}
