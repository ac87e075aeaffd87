//! An open file of a server.

use arena::{IoBuf, Sg, sg_len};
use smb_client::File;

use super::failed;
use crate::failure::Failure;
use crate::transfer::checkpoint::Version;

/// An open file of a server.
pub struct RemoteFile {
    pub(super) file: File,
    pub(super) place: String,
}

impl RemoteFile {
    /// In bytes, when it was opened.
    pub fn size(&self) -> u64 {
        self.file.opened().size
    }

    /// Which contents it had when it was opened.
    pub fn version(&self) -> Version {
        Version { size: self.size(), changed: self.file.opened().modified.0 as i64 }
    }

    /// Reads exactly `length` bytes.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn read(&self, at: u64, length: u32) -> Result<Sg, Failure> {
        let bytes = self.file.read_at(at, length).await.map_err(failed(self.place.clone()))?;
        if sg_len(&bytes) < length as usize {
            return Err(Failure::Shorter { place: self.place.clone() });
        }
        Ok(bytes)
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn write(&self, at: u64, bytes: Sg) -> Result<(), Failure> {
        self.file.write_at(at, bytes).await.map(|_| ()).map_err(failed(self.place.clone()))
    }

    /// Makes what was written durable.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn flush(&self) -> Result<(), Failure> {
        self.file.flush().await.map_err(failed(self.place.clone()))
    }

    /// Sets the end of the file.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn set_length(&self, length: u64) -> Result<(), Failure> {
        self.file.set_len(length).await.map_err(failed(self.place.clone()))
    }

    /// Replaces what it holds by a small text.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn rewrite(&self, text: &[u8]) -> Result<(), Failure> {
        let bytes: Sg = [IoBuf::from(text.to_vec())].into_iter().collect();
        self.write(0, bytes).await?;
        self.set_length(text.len() as u64).await
    }

    /// Closes it. What went wrong before was told; a server closes it anyway.
    pub async fn close(self) {
        let _ = self.file.close().await;
    }
}
