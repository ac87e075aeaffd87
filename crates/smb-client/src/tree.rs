//! A share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use smb_wire::context::{
    CreateContextsBuf, CreateRequestContext, CreateResponseContext, DurableFlags, DurableRequestV2,
};
use smb_wire::fscc::{FsFullSizeInformation, FsInfoClass};
use smb_wire::msg::{
    CreateOptions, CreateRequest, CreateResponse, FsctlCode, ImpersonationLevel, InfoType, IoctlFlags,
    IoctlRequest, IoctlResponse, OplockLevel, ShareFlags, ShareType, TreeConnectRequest, TreeConnectResponse,
    TreeDisconnectRequest,
};
use smb_wire::{Command, FileId, Guid, NtStatus, Utf16Buf};

use crate::client::Client;
use crate::connection::{Call, Counted, Request, Response};
use crate::file::File;
use crate::link::Link;
use crate::{Dir, Metadata, OpenOptions, RequestError, Space, path};

/// A tree connect: a share as one session sees it. Cloning is cheap; dropping the last clone disconnects.
#[derive(Clone)]
pub struct Tree {
    inner: Arc<Inner>,
}

struct Inner {
    client: Client,
    id: u32,
    kind: ShareType,
    encrypt: bool,
    gone: AtomicBool,
    counted: Arc<Counted>,
}

impl Tree {
    pub(crate) async fn connect(client: &Client, share: &str) -> Result<Tree, RequestError> {
        let name = format!(r"\\{}\{share}", client.inner.host());
        let path = Utf16Buf::from(name.as_str());
        let body = TreeConnectRequest { path: path.as_utf16(), ..TreeConnectRequest::default() };
        let mut request = Request::new(Command::TREE_CONNECT, &body)?;
        // MS-SMB2 3.2.4.1.1: in 3.1.1 this request is signed even if signing is not required.
        request.sign = client.inner.dialect() >= 0x0311;
        let response = client.call(request, |link, r| link.connection.call(r)).await?;
        let answer: TreeConnectResponse = response.body()?;
        let encrypt = answer.share_flags.contains(ShareFlags::ENCRYPT_DATA);
        // MS-SMB2 3.2.5.5: refuses a share that demands encryption if the connection does not support it.
        if encrypt && !client.inner.can_encrypt() {
            return Err(RequestError::Status(NtStatus::ACCESS_DENIED));
        }
        let inner = Inner {
            client: client.clone(),
            id: response.header.tree_id,
            kind: answer.share_type,
            encrypt,
            gone: AtomicBool::new(false),
            counted: Arc::new(Counted {
                clock: client.registry().clock().clone(),
                instance: client.registry().client_shares.permanent(&name, &[client.inner.host(), share]),
            }),
        };
        Ok(Tree { inner: Arc::new(inner) })
    }

    /// The session.
    pub fn client(&self) -> &Client {
        &self.inner.client
    }

    /// Disk, pipe or printer.
    pub fn kind(&self) -> ShareType {
        self.inner.kind
    }

    /// Whether messages to this share are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.inner.encrypt || self.inner.client.inner.encrypts()
    }

    /// Opens a file. Paths are relative to the share's root, with either separator.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn open(&self, path: &str, options: OpenOptions) -> Result<File, RequestError> {
        let name = path::encode(path)?;
        let mut contexts = CreateContextsBuf::new();
        if options.persistent {
            let create_guid = Guid(self.inner.client.inner.env.random());
            let durable = DurableRequestV2 { timeout_ms: 0, flags: DurableFlags::PERSISTENT, create_guid };
            contexts.request(&CreateRequestContext::DurableV2(durable)).map_err(RequestError::Unencodable)?;
        }
        let body = CreateRequest {
            oplock_level: OplockLevel::NONE,
            impersonation_level: ImpersonationLevel::IMPERSONATION,
            desired_access: options.access,
            file_attributes: options.attributes,
            share_access: options.share,
            create_disposition: options.disposition,
            create_options: options.options,
            name: name.as_utf16(),
            contexts: contexts.as_contexts(),
            ..CreateRequest::default()
        };
        let response = self.call(Request::new(Command::CREATE, &body)?).await?;
        let answer: CreateResponse<'_> = response.body()?;
        let mut persistent = false;
        for context in answer.contexts.responses() {
            if let CreateResponseContext::DurableV2(granted) = context? {
                persistent = granted.flags.contains(DurableFlags::PERSISTENT);
            }
        }
        Ok(File::new(self.clone(), answer.file_id, Metadata::from(&answer), persistent))
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// [`RequestError`]; STATUS_OBJECT_NAME_COLLISION if the name exists.
    pub async fn create_dir(&self, path: &str) -> Result<(), RequestError> {
        self.open(path, OpenOptions::new_directory()).await?.close().await
    }

    /// Removes a file.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn remove_file(&self, path: &str) -> Result<(), RequestError> {
        self.remove(path, CreateOptions::NON_DIRECTORY_FILE).await
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`RequestError`]; STATUS_DIRECTORY_NOT_EMPTY if it is not empty.
    pub async fn remove_dir(&self, path: &str) -> Result<(), RequestError> {
        self.remove(path, CreateOptions::DIRECTORY_FILE).await
    }

    async fn remove(&self, path: &str, kind: CreateOptions) -> Result<(), RequestError> {
        // Removes a link itself, not its target.
        let options = OpenOptions::delete(kind | CreateOptions::OPEN_REPARSE_POINT);
        let file = self.open(path, options).await?;
        let marked = file.set_delete_pending(true).await;
        let closed = file.close().await;
        marked.and(closed)
    }

    /// Renames or moves a file or directory. If `replace` is set, an existing file of the new name is replaced.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn rename(&self, from: &str, to: &str, replace: bool) -> Result<(), RequestError> {
        let options = OpenOptions::delete(CreateOptions::OPEN_REPARSE_POINT);
        let file = self.open(from, options).await?;
        let renamed = file.rename(to, replace).await;
        let closed = file.close().await;
        renamed.and(closed)
    }

    /// Returns the attributes of a file or directory.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn stat(&self, path: &str) -> Result<Metadata, RequestError> {
        // The response to CREATE contains the attributes; the handle is closed without waiting.
        Ok(*self.open(path, OpenOptions::attributes()).await?.opened())
    }

    /// Like [`Tree::stat`], but does not follow a link.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn stat_link(&self, path: &str) -> Result<Metadata, RequestError> {
        let mut options = OpenOptions::attributes();
        options.options |= CreateOptions::OPEN_REPARSE_POINT;
        Ok(*self.open(path, options).await?.opened())
    }

    /// Lists a directory: returns the names that match `pattern` (`*` for all), in batches.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn read_dir(&self, path: &str, pattern: &str) -> Result<Dir, RequestError> {
        let file = self.open(path, OpenOptions::list()).await?;
        Ok(Dir::new(file, pattern))
    }

    /// Returns the total and free space of the share's volume.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn space(&self) -> Result<Space, RequestError> {
        let root = self.open("", OpenOptions::attributes()).await?;
        let len = FsFullSizeInformation::LEN as u32;
        let response = root.query(InfoType::FILESYSTEM, FsInfoClass::FULL_SIZE.0, len).await?;
        let i = FsFullSizeInformation::decode(&response)?;
        let unit = u64::from(i.sectors_per_allocation_unit) * u64::from(i.bytes_per_sector);
        Ok(Space {
            total: i.total_allocation_units.saturating_mul(unit),
            available: i.caller_available_allocation_units.saturating_mul(unit),
            free: i.actual_available_allocation_units.saturating_mul(unit),
        })
    }

    /// Disconnects; the server closes the open files.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn disconnect(&self) -> Result<(), RequestError> {
        self.inner.gone.store(true, Ordering::Relaxed);
        self.call(Request::new(Command::TREE_DISCONNECT, &TreeDisconnectRequest {})?).await?.success()
    }

    pub(crate) fn id(&self) -> u32 {
        self.inner.id
    }

    /// The connection to use now.
    pub(crate) fn link(&self) -> Arc<Link> {
        self.inner.client.inner.link()
    }

    fn prepare(&self, mut request: Request) -> Request {
        request.counted = Some(Arc::clone(&self.inner.counted));
        request.tree_id = self.inner.id;
        request.encrypt = self.inner.encrypt;
        request
    }

    /// Sends a request without payload on this share.
    pub(crate) async fn call(&self, request: Request) -> Result<Response, RequestError> {
        self.client().call(request, |link, r| self.send(link, r)).await
    }

    /// Sends a request on this connection, once.
    pub(crate) fn send(&self, link: &Link, request: Request) -> Call {
        link.connection.call(self.prepare(request))
    }

    /// Sends a request and ignores its response.
    pub(crate) fn send_detached(&self, request: Request) {
        self.link().connection.send_detached(self.prepare(request));
    }

    /// IOCTL (MS-SMB2 3.2.4.20): returns the output, of at most `most` bytes.
    pub(crate) async fn fsctl(
        &self,
        ctl_code: FsctlCode,
        file_id: FileId,
        input: &[u8],
        most: u32,
    ) -> Result<Vec<u8>, RequestError> {
        let body = IoctlRequest {
            ctl_code,
            file_id,
            input,
            max_output_response: most,
            flags: IoctlFlags::IS_FSCTL,
            ..IoctlRequest::default()
        };
        let request = Request::new(Command::IOCTL, &body)?.charged(input.len().max(most as usize));
        let response = self.call(request).await?;
        // A pipe's message is longer than the output buffer: the caller must read the rest.
        if response.header.status != NtStatus::BUFFER_OVERFLOW {
            response.success()?;
        }
        let answer = <IoctlResponse<'_> as smb_wire::Decode<'_>>::decode(response.bytes())?;
        Ok(answer.output.to_vec())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.gone.load(Ordering::Relaxed)
            && let Ok(mut request) = Request::new(Command::TREE_DISCONNECT, &TreeDisconnectRequest {})
        {
            request.tree_id = self.id;
            request.encrypt = self.encrypt;
            self.client.inner.link().connection.send_detached(request);
        }
    }
}
