//! An open file of a server.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Range;

use arena::{IoBuf, Sg, sg_len};
use futures_util::stream::{self, Stream};
use smb_client::{File, FileAttributes, FileTime, NtStatus, RequestError, Times};
use vfs::VfsPath;

use super::{failed, protection};
use crate::failure::Failure;
use crate::transfer::checkpoint::Version;

/// An open file of a server.
pub struct RemoteFile {
    file: File,
    place: String,
    /// Whether this client made it a sparse file.
    sparse: Cell<bool>,
}

impl RemoteFile {
    pub(super) fn new(file: File, place: String) -> RemoteFile {
        RemoteFile { file, place, sparse: Cell::new(false) }
    }

    /// The size when it was opened, in bytes.
    pub fn size(&self) -> u64 {
        self.file.opened().size
    }

    /// The version of its contents when it was opened.
    pub fn version(&self) -> Version {
        Version { size: self.size(), changed: self.file.opened().modified.0 as i64 }
    }

    /// The modification time when it was opened; `None` if the server does not report it.
    pub fn modified(&self) -> Option<FileTime> {
        Some(self.file.opened().modified).filter(|t| t.is_time())
    }

    /// The parts of a range that hold data, in order; the rest reads as zeros. The whole range, if the server
    /// does not report holes.
    pub fn data(&self, range: Range<u64>) -> impl Stream<Item = Result<Range<u64>, Failure>> + '_ {
        let sparse = self.file.opened().attributes.contains(FileAttributes::SPARSE_FILE);
        let state = (range, VecDeque::new(), sparse);
        stream::try_unfold(state, async move |(mut left, mut known, sparse)| {
            if left.is_empty() {
                return Ok(None);
            }
            if !sparse {
                return Ok(Some((left.clone(), (left.end..left.end, known, sparse))));
            }
            if known.is_empty() {
                match self.file.allocated(left.clone()).await {
                    Ok(parts) => known.extend(parts),
                    Err(RequestError::Status(_)) => known.push_back(left.clone()),
                    Err(e) => return Err(failed(self.place.clone())(e)),
                }
            }
            let Some(part) = known.pop_front() else { return Ok(None) };
            left.start = part.end;
            Ok(Some((part, (left, known, sparse))))
        })
    }

    /// Makes it sparse; false if the server does not support sparse files.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn set_sparse(&self) -> Result<bool, Failure> {
        match self.file.set_sparse().await {
            Ok(()) => {
                self.sparse.set(true);
                Ok(true)
            }
            Err(RequestError::Status(_)) => Ok(false),
            Err(e) => Err(failed(self.place.clone())(e)),
        }
    }

    /// Sets the modification time; later writes through this handle do not change it.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn set_modified(&self, time: FileTime) -> Result<(), Failure> {
        let times = Times { modified: Some(time), ..Times::default() };
        self.file.set_times(times).await.map_err(failed(self.place.clone()))
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
        let length = sg_len(&bytes) as u64;
        match self.file.write_at(at, bytes).await {
            Ok(written) if written == length => Ok(()),
            // A server writes less than requested if the file system is full.
            Ok(_) => Err(failed(self.place.clone())(RequestError::Status(NtStatus::DISK_FULL))),
            Err(e) => Err(failed(self.place.clone())(e)),
        }
    }

    /// Makes the written data durable.
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

    /// Replaces its contents with a small text.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn rewrite(&self, text: &[u8]) -> Result<(), Failure> {
        let bytes: Sg = [IoBuf::from(text.to_vec())].into_iter().collect();
        self.write(0, bytes).await?;
        self.set_length(text.len() as u64).await
    }

    /// Sets whether it is deleted on close, including the end of the connection.
    ///
    /// # Errors
    /// See [`Failure`].
    pub(super) async fn set_temporary(&self, temporary: bool) -> Result<(), Failure> {
        self.file.set_delete_pending(temporary).await.map_err(failed(self.place.clone()))
    }

    /// Copies the access list and the user-visible attributes of `old`, which it will replace. False if they cannot be
    /// the same: another owner, another list, or a server that does not report them.
    ///
    /// # Errors
    /// A lost connection.
    pub async fn protect_as(&self, old: &RemoteFile) -> Result<bool, Failure> {
        let told = |result: Result<Vec<u8>, RequestError>| match result {
            Ok(descriptor) => Ok(Some(descriptor)),
            Err(RequestError::Status(_)) => Ok(None),
            Err(e) => Err(failed(self.place.clone())(e)),
        };
        let Some(wanted) = told(old.file.security().await)? else { return Ok(false) };
        let has = |descriptor: Option<Vec<u8>>| descriptor.is_some_and(|d| protection::is_same(&wanted, &d));
        let mut same = has(told(self.file.security().await)?);
        if !same && told(self.file.set_access(&wanted).await.map(|()| Vec::new()))?.is_some() {
            same = has(told(self.file.security().await)?);
        }
        let shown = old.file.opened().attributes & (FileAttributes::HIDDEN | FileAttributes::SYSTEM);
        if same && !shown.is_empty() {
            same = told(self.file.set_attributes(shown).await.map(|()| Vec::new()))?.is_some();
        }
        Ok(same)
    }

    /// Renames a file of [`super::Remote::create_beside`] to its target, replacing an existing file. On failure the new
    /// file is deleted on close.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn replace(&self, target: &VfsPath) -> Result<(), Failure> {
        self.set_temporary(false).await?;
        let renamed = self.file.rename(&target.to_string(), true).await;
        if renamed.is_err() {
            self.set_temporary(true).await?;
        }
        renamed.map_err(failed(self.place.clone()))?;
        if self.sparse.get() {
            // smbd clears this attribute on rename; the holes remain, but a reader does not see them.
            self.set_sparse().await?;
        }
        Ok(())
    }

    /// Closes it. Errors are ignored: earlier ones were reported, and the server closes the file anyway.
    pub async fn close(self) {
        let _ = self.file.close().await;
    }
}
