//! An open file.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arena::{Sg, SgMut, sg_len, sg_slice};
use smb_wire::fscc::{
    FileBasicInformation, FileDispositionInformation, FileEndOfFileInformation, FileInfoClass,
    FileNetworkOpenInformation, FileRenameInformation,
};
use smb_wire::msg::{
    CloseFlags, CloseRequest, CloseResponse, FlushRequest, FlushResponse, InfoType, QueryInfoRequest,
    QueryInfoResponse, SecurityInformation, SetInfoRequest,
};
use smb_wire::{Command, FileAttributes, FileId, FileTime};

use crate::connection::Request;
use crate::io::{self, ReadCall, WriteCall};
use crate::tree::Tree;
use crate::{Metadata, RequestError, Times, path};

/// The longest security descriptor that is read: the maximum that MS-SMB2 lets a server store.
const SECURITY_MOST: u32 = 64 << 10;

/// An open file or directory. Cloning is cheap. Dropping the last clone closes it without waiting; [`File::close`]
/// waits.
#[derive(Clone)]
pub struct File {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) tree: Tree,
    pub(crate) id: FileId,
    opened: Metadata,
    persistent: bool,
    closed: AtomicBool,
}

impl File {
    pub(crate) fn new(tree: Tree, id: FileId, opened: Metadata, persistent: bool) -> File {
        let closed = AtomicBool::new(false);
        File { inner: Arc::new(Inner { tree, id, opened, persistent, closed }) }
    }

    /// Whether the server keeps the handle through its own restart: see [`crate::OpenOptions::persistent`].
    /// This client does not reclaim it yet.
    pub fn is_persistent(&self) -> bool {
        self.inner.persistent
    }

    /// The attributes at the time of the open.
    pub fn opened(&self) -> &Metadata {
        &self.inner.opened
    }

    /// The share.
    pub fn tree(&self) -> &Tree {
        &self.inner.tree
    }

    /// Maximum number of bytes for one [`File::submit_read`]; may grow while the server grants more credits.
    pub fn max_read(&self) -> u32 {
        io::max_read(&self.inner.tree, &self.inner.tree.link())
    }

    /// Maximum number of bytes for one [`File::submit_write`].
    pub fn max_write(&self) -> u32 {
        io::max_write(&self.inner.tree, &self.inner.tree.link())
    }

    /// Sends a READ of up to `length` bytes (at most [`File::max_read`]) from `offset`. The result is shorter at
    /// the end of the file, and empty beyond it.
    pub fn submit_read(&self, offset: u64, length: u32) -> ReadCall {
        io::read(self, offset, length, None)
    }

    /// Sends a WRITE of at most the first [`File::max_write`] bytes of `data`. The result is the number of bytes
    /// written.
    pub fn submit_write(&self, offset: u64, data: Sg) -> WriteCall {
        io::write(self, offset, data)
    }

    /// Reads `length` bytes with as many parallel requests as needed. The result is shorter at the end of the file.
    ///
    /// # Errors
    /// [`RequestError`]; [`RequestError::NoMemory`] if the result needs more than half of the arena.
    pub async fn read_at(&self, offset: u64, length: u32) -> Result<Sg, RequestError> {
        if length > io::memory_share(&self.inner.tree) {
            return Err(RequestError::NoMemory { needed: length });
        }
        let most = self.max_read();
        if length <= most {
            return self.submit_read(offset, length).await;
        }
        let mut calls = Vec::with_capacity((length / most + 1) as usize);
        let mut at = 0;
        while at < length {
            let n = most.min(length - at);
            calls.push((n, self.submit_read(offset + u64::from(at), n)));
            at += n;
        }
        let mut out = Sg::new();
        for (n, call) in calls {
            let piece = call.await?;
            let short = sg_len(&piece) < n as usize;
            out.extend(piece);
            if short {
                break;
            }
        }
        Ok(out)
    }

    /// Reads up to `length` bytes into the caller's buffers with one request; zero-copy with RDMA. Returns the
    /// buffers, with their filled lengths set, and the number of bytes read. If the SMB Direct channel is lost
    /// meanwhile, other buffers of the same size are returned.
    ///
    /// # Errors
    /// [`RequestError`]; the buffers return to their arena.
    pub async fn read_into(
        &self,
        offset: u64,
        buffers: SgMut,
        length: u32,
    ) -> Result<(SgMut, u32), RequestError> {
        io::read(self, offset, length, Some(buffers)).into_buffers().await
    }

    /// Writes `data` with as many parallel requests as needed; returns the number of bytes written.
    ///
    /// # Errors
    /// [`RequestError`]; parts may have been written.
    pub async fn write_at(&self, offset: u64, data: Sg) -> Result<u64, RequestError> {
        let (most, length) = (self.max_write() as usize, sg_len(&data));
        if length <= most {
            return self.submit_write(offset, data).await.map(u64::from);
        }
        let mut calls = Vec::with_capacity(length / most + 1);
        let mut at = 0;
        while at < length {
            let n = most.min(length - at);
            calls.push((n, self.submit_write(offset + at as u64, sg_slice(&data, at, n))));
            at += n;
        }
        let mut written = 0;
        for (n, call) in calls {
            let count = call.await?;
            written += u64::from(count);
            if (count as usize) < n {
                break;
            }
        }
        Ok(written)
    }

    /// Makes earlier writes durable.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn flush(&self) -> Result<(), RequestError> {
        let body = FlushRequest { file_id: self.inner.id };
        let response = self.inner.tree.call(Request::new(Command::FLUSH, &body)?).await?;
        response.body::<FlushResponse>().map(|_| ())
    }

    /// Returns the current attributes.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn metadata(&self) -> Result<Metadata, RequestError> {
        let len = FileNetworkOpenInformation::LEN as u32;
        let bytes = self.query(InfoType::FILE, FileInfoClass::NETWORK_OPEN.0, len).await?;
        Ok(Metadata::from(&FileNetworkOpenInformation::decode(&bytes)?))
    }

    /// Truncates the file or extends it with zeros, to `length` bytes.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn set_len(&self, length: u64) -> Result<(), RequestError> {
        let mut buffer = Vec::with_capacity(8);
        FileEndOfFileInformation { end_of_file: length }.encode(&mut buffer);
        self.set_info(FileInfoClass::END_OF_FILE, &buffer).await
    }

    /// Sets times.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn set_times(&self, times: Times) -> Result<(), RequestError> {
        self.set_basic(times, FileAttributes::empty()).await
    }

    /// Sets attributes; an empty set becomes [`FileAttributes::NORMAL`].
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn set_attributes(&self, attributes: FileAttributes) -> Result<(), RequestError> {
        let attributes = if attributes.is_empty() { FileAttributes::NORMAL } else { attributes };
        self.set_basic(Times::default(), attributes).await
    }

    /// MS-FSCC 2.4.7: a time of zero and an empty set of attributes leave the value unchanged.
    async fn set_basic(&self, times: Times, file_attributes: FileAttributes) -> Result<(), RequestError> {
        let or_zero = |t: Option<FileTime>| t.unwrap_or(FileTime::ZERO);
        let mut buffer = Vec::with_capacity(FileBasicInformation::LEN);
        FileBasicInformation {
            creation_time: or_zero(times.created),
            last_access_time: or_zero(times.accessed),
            last_write_time: or_zero(times.modified),
            change_time: or_zero(times.changed),
            file_attributes,
        }
        .encode(&mut buffer);
        self.set_info(FileInfoClass::BASIC, &buffer).await
    }

    /// Returns the security descriptor (MS-DTYP 2.4.6, self-relative): owner, group and access control list. Needs
    /// READ_CONTROL.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn security(&self) -> Result<Vec<u8>, RequestError> {
        let parts = SecurityInformation::OWNER | SecurityInformation::GROUP | SecurityInformation::DACL;
        self.query_parts(InfoType::SECURITY, 0, parts, SECURITY_MOST).await
    }

    /// Replaces the access control list by that of `descriptor`. Needs WRITE_DAC.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn set_access(&self, descriptor: &[u8]) -> Result<(), RequestError> {
        self.set(InfoType::SECURITY, 0, SecurityInformation::DACL, descriptor).await
    }

    /// Sets whether the file is deleted when its last handle closes, for example at the end of the connection
    /// (MS-FSCC 2.4.11). Needs DELETE access.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn set_delete_pending(&self, delete_pending: bool) -> Result<(), RequestError> {
        let mut buffer = Vec::with_capacity(1);
        FileDispositionInformation { delete_pending }.encode(&mut buffer);
        self.set_info(FileInfoClass::DISPOSITION, &buffer).await
    }

    /// Renames or moves the file. If `replace` is set, an existing file of the new name is replaced. Needs DELETE
    /// access.
    ///
    /// # Errors
    /// [`RequestError`]; STATUS_OBJECT_NAME_COLLISION if a file of that name exists and is not to be replaced.
    pub async fn rename(&self, to: &str, replace: bool) -> Result<(), RequestError> {
        let name = path::encode(to)?;
        let mut buffer = Vec::new();
        let encoded =
            FileRenameInformation { replace_if_exists: replace, root_directory: 0, name: name.as_utf16() };
        encoded.encode(&mut buffer).map_err(RequestError::Unencodable)?;
        self.set_info(FileInfoClass::RENAME, &buffer).await
    }

    /// Closes the file: every later request on it fails.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn close(&self) -> Result<(), RequestError> {
        if self.inner.closed.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let response = self.inner.tree.call(close(self.inner.id)?).await?;
        response.body::<CloseResponse>().map(|_| ())
    }

    pub(crate) async fn set_info(&self, class: FileInfoClass, buffer: &[u8]) -> Result<(), RequestError> {
        self.set(InfoType::FILE, class.0, SecurityInformation::empty(), buffer).await
    }

    async fn set(
        &self,
        info_type: InfoType,
        info_class: u8,
        additional_information: SecurityInformation,
        buffer: &[u8],
    ) -> Result<(), RequestError> {
        let body =
            SetInfoRequest { info_type, info_class, additional_information, file_id: self.inner.id, buffer };
        let request = Request::new(Command::SET_INFO, &body)?.charged(buffer.len());
        self.inner.tree.call(request).await?.success()
    }

    pub(crate) async fn query(
        &self,
        info_type: InfoType,
        info_class: u8,
        most: u32,
    ) -> Result<Vec<u8>, RequestError> {
        self.query_parts(info_type, info_class, SecurityInformation::empty(), most).await
    }

    async fn query_parts(
        &self,
        info_type: InfoType,
        info_class: u8,
        additional_information: SecurityInformation,
        most: u32,
    ) -> Result<Vec<u8>, RequestError> {
        let body = QueryInfoRequest {
            info_type,
            info_class,
            additional_information,
            output_buffer_length: most,
            file_id: self.inner.id,
            ..QueryInfoRequest::default()
        };
        let request = Request::new(Command::QUERY_INFO, &body)?.charged(most as usize);
        let response = self.inner.tree.call(request).await?;
        Ok(response.body::<QueryInfoResponse<'_>>()?.buffer.to_vec())
    }
}

fn close(file_id: FileId) -> Result<Request, RequestError> {
    Request::new(Command::CLOSE, &CloseRequest { flags: CloseFlags::empty(), file_id })
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.closed.load(Ordering::Relaxed)
            && let Ok(request) = close(self.id)
        {
            self.tree.send_detached(request);
        }
    }
}
