//! Create contexts (MS-SMB2 2.2.13.2, 2.2.14.2).
//!
//! ```text
//! 0 Next (u32)   4 NameOffset (u16)   6 NameLength (u16)   8 reserved (u16)
//! 10 DataOffset (u16)   12 DataLength (u32)   16 name, then data, 8-byte aligned
//! ```

use super::{DurableReconnectV2, DurableRequestV2, DurableResponseV2, Lease};
use crate::cursor::{Field, Reader, fit_u16, fit_u32, pad, patch_u32, slice};
use crate::macros::record;
use crate::{AccessMask, FileId, FileTime, Guid, NtStatus, WireError};

/// Maximum number of contexts in one message. The specification has no limit and about fifteen types.
pub const MAX_CREATE_CONTEXTS: usize = 64;

/// Names of create contexts.
pub mod name {
    /// Extended attributes.
    pub const EXT_A: &[u8] = b"ExtA";
    /// Security descriptor.
    pub const SEC_D: &[u8] = b"SecD";
    /// Durable handle request.
    pub const DHN_Q: &[u8] = b"DHnQ";
    /// Durable handle reconnect.
    pub const DHN_C: &[u8] = b"DHnC";
    /// Allocation size.
    pub const AL_SI: &[u8] = b"AlSi";
    /// Maximal access.
    pub const MX_AC: &[u8] = b"MxAc";
    /// Timewarp: a snapshot.
    pub const TW_RP: &[u8] = b"TWrp";
    /// Identifiers on disk.
    pub const Q_FID: &[u8] = b"QFid";
    /// Lease.
    pub const RQ_LS: &[u8] = b"RqLs";
    /// Durable handle request, version 2.
    pub const DH2_Q: &[u8] = b"DH2Q";
    /// Durable handle reconnect, version 2.
    pub const DH2_C: &[u8] = b"DH2C";
    /// Application instance.
    pub const APP_INSTANCE_ID: &[u8] =
        &[0x45, 0xBC, 0xA6, 0x6A, 0xEF, 0xA7, 0xF7, 0x4A, 0x90, 0x08, 0xFA, 0x46, 0x2E, 0x14, 0x4D, 0x74];
    /// Application instance version.
    pub const APP_INSTANCE_VERSION: &[u8] =
        &[0xB9, 0x82, 0xD0, 0xB7, 0x3B, 0x56, 0x07, 0x4F, 0xA0, 0x7B, 0x52, 0x4A, 0x81, 0x16, 0xA0, 0x10];
    /// Shared virtual disk.
    pub const SVHDX_OPEN_DEVICE: &[u8] =
        &[0x9C, 0xCB, 0xCF, 0x9E, 0x04, 0xC1, 0xE6, 0x43, 0x98, 0x0E, 0x15, 0x8D, 0xA1, 0xF6, 0xEC, 0x83];
    /// Apple's extensions (not MS-SMB2).
    pub const AAPL: &[u8] = b"AAPL";
    /// POSIX extensions (not MS-SMB2).
    pub const POSIX: &[u8] =
        &[0x93, 0xAD, 0x25, 0x50, 0x9C, 0xB4, 0x11, 0xE7, 0xB4, 0x23, 0x83, 0xDE, 0x96, 0x8B, 0xCD, 0x7C];
}

/// The contexts of a message, undecoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CreateContexts<'a>(&'a [u8]);

impl<'a> CreateContexts<'a> {
    /// Wraps an encoded list of contexts; empty bytes are an empty list.
    pub const fn from_bytes(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// The contexts; ends after the first error.
    pub fn raw(self) -> impl Iterator<Item = Result<RawCreateContext<'a>, WireError>> + 'a {
        let mut rest = Some(self.0).filter(|bytes| !bytes.is_empty());
        let mut count = 0;
        std::iter::from_fn(move || {
            let bytes = rest.take()?;
            count += 1;
            if count > MAX_CREATE_CONTEXTS {
                let max = MAX_CREATE_CONTEXTS;
                return Some(Err(WireError::TooLarge { what: "create contexts", len: count, max }));
            }
            Some(RawCreateContext::take(bytes).map(|(context, next)| {
                rest = next;
                context
            }))
        })
    }

    /// The decoded contexts of a request. Ends after the first error in the list, but not after an error inside a
    /// context.
    pub fn requests(self) -> impl Iterator<Item = Result<CreateRequestContext<'a>, WireError>> + 'a {
        self.raw().map(|raw| raw.and_then(CreateRequestContext::parse))
    }

    /// The decoded contexts of a response. Ends after the first error in the list, but not after an error inside a
    /// context.
    pub fn responses(self) -> impl Iterator<Item = Result<CreateResponseContext<'a>, WireError>> + 'a {
        self.raw().map(|raw| raw.and_then(CreateResponseContext::parse))
    }
}

/// An undecoded context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawCreateContext<'a> {
    /// The name: one of [`name`], or an unknown one.
    pub name: &'a [u8],
    /// Its data.
    pub data: &'a [u8],
}

impl<'a> RawCreateContext<'a> {
    /// Returns the context at the start of `bytes`, and the bytes from the next context on, if there is one.
    fn take(bytes: &'a [u8]) -> Result<(Self, Option<&'a [u8]>), WireError> {
        const WHAT: &str = "create context";
        let mut r = Reader::new(bytes, WHAT);
        let next = r.get::<u32>()? as usize;
        let (name_at, name_len): (u16, u16) = (r.get()?, r.get()?);
        r.skip(2)?;
        let (data_at, data_len): (u16, u32) = (r.get()?, r.get()?);
        let rest = match next {
            0 => None,
            // MS-SMB2 2.2.13.2: the next context is 8-byte aligned and follows this one.
            _ if !next.is_multiple_of(8) || next < r.position() => {
                return Err(WireError::malformed("create context Next"));
            }
            _ => Some(slice(bytes, next, bytes.len().saturating_sub(next), WHAT)?),
        };
        if rest.is_some_and(<[u8]>::is_empty) {
            return Err(WireError::Truncated { what: WHAT, need: next + 16, have: bytes.len() });
        }
        // MS-SMB2 3.3.5.9: a name has at least 4 bytes.
        if name_len < 4 {
            return Err(WireError::malformed("create context NameLength"));
        }
        let own = Reader::new(if next == 0 { bytes } else { &bytes[..next] }, WHAT);
        let name = own.range(name_at.into(), name_len.into(), "create context name")?;
        let data = own.range(data_at.into(), data_len as usize, "create context data")?;
        Ok((Self { name, data }, rest))
    }
}

record! {
    /// MxAc response (MS-SMB2 2.2.14.2.5).
    pub struct MaximalAccess [8] {
        /// Whether `access` is known.
        pub query_status: NtStatus,
        /// The maximal access of the user.
        pub access: AccessMask,
    }
}

record! {
    /// QFid response (MS-SMB2 2.2.14.2.9).
    pub struct DiskId [32] {
        /// The file's number on its volume.
        pub disk_file_id: u64,
        /// The volume's number.
        pub volume_id: u64 => pad 16,
    }
}

record! {
    /// SMB2_CREATE_APP_INSTANCE_ID (MS-SMB2 2.2.13.2.13).
    pub struct AppInstanceId [20] {
        /// 20.
        pub structure_size: u16 => pad 2,
        /// The application.
        pub app_instance_id: Guid,
    }
}

record! {
    /// SMB2_CREATE_APP_INSTANCE_VERSION (MS-SMB2 2.2.13.2.15).
    pub struct AppInstanceVersion [24] {
        /// 24.
        pub structure_size: u16 => pad 6,
        /// High half.
        pub high: u64,
        /// Low half.
        pub low: u64,
    }
}

/// A context of a CREATE request, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateRequestContext<'a> {
    /// Extended attributes: FILE_FULL_EA_INFORMATION ([`crate::fscc`]).
    ExtendedAttributes(&'a [u8]),
    /// Security descriptor ([`crate::security`]).
    SecurityDescriptor(&'a [u8]),
    /// DHnQ.
    Durable,
    /// DHnC.
    DurableReconnect(FileId),
    /// Number of bytes to allocate.
    AllocationSize(u64),
    /// Query of the maximal access; with a time, only if the file has changed since.
    MaximalAccess(Option<FileTime>),
    /// Open of the snapshot of that time.
    Timewarp(FileTime),
    /// Query of the identifiers on disk.
    QueryOnDiskId,
    /// Request for a lease.
    Lease(Lease),
    /// DH2Q.
    DurableV2(DurableRequestV2),
    /// DH2C.
    DurableReconnectV2(DurableReconnectV2),
    /// Application instance.
    AppInstanceId(Guid),
    /// Application instance version.
    AppInstanceVersion(AppInstanceVersion),
    /// Shared virtual disk.
    SvhdxOpenDevice(&'a [u8]),
    /// Apple's extensions.
    Aapl(&'a [u8]),
    /// POSIX extensions.
    Posix(&'a [u8]),
    /// Unknown; the receiver must ignore it.
    Unknown(RawCreateContext<'a>),
}

impl<'a> CreateRequestContext<'a> {
    /// Decodes the data.
    ///
    /// # Errors
    /// Malformed input from the peer; an unknown name is not an error.
    pub fn parse(raw: RawCreateContext<'a>) -> Result<Self, WireError> {
        let mut r = Reader::new(raw.data, "create context data");
        Ok(match raw.name {
            name::EXT_A => Self::ExtendedAttributes(raw.data),
            name::SEC_D => Self::SecurityDescriptor(raw.data),
            name::DHN_Q => {
                r.skip(16)?;
                Self::Durable
            }
            name::DHN_C => Self::DurableReconnect(r.get()?),
            name::AL_SI => Self::AllocationSize(r.get()?),
            name::MX_AC if raw.data.is_empty() => Self::MaximalAccess(None),
            name::MX_AC => Self::MaximalAccess(Some(r.get()?)),
            name::TW_RP => Self::Timewarp(r.get()?),
            name::Q_FID => Self::QueryOnDiskId,
            name::RQ_LS => Self::Lease(Lease::decode(raw.data)?),
            name::DH2_Q => Self::DurableV2(r.get()?),
            name::DH2_C => Self::DurableReconnectV2(r.get()?),
            name::APP_INSTANCE_ID => Self::AppInstanceId(r.get::<AppInstanceId>()?.app_instance_id),
            name::APP_INSTANCE_VERSION => Self::AppInstanceVersion(r.get()?),
            name::SVHDX_OPEN_DEVICE => Self::SvhdxOpenDevice(raw.data),
            name::AAPL => Self::Aapl(raw.data),
            name::POSIX => Self::Posix(raw.data),
            _ => Self::Unknown(raw),
        })
    }
}

/// A context of a CREATE response, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateResponseContext<'a> {
    /// DHnQ granted.
    Durable,
    /// Maximal access.
    MaximalAccess(MaximalAccess),
    /// Identifiers on disk.
    OnDiskId(DiskId),
    /// The lease granted.
    Lease(Lease),
    /// DH2Q granted.
    DurableV2(DurableResponseV2),
    /// Shared virtual disk.
    SvhdxOpenDevice(&'a [u8]),
    /// Apple's extensions.
    Aapl(&'a [u8]),
    /// POSIX extensions.
    Posix(&'a [u8]),
    /// Unknown; the receiver must ignore it.
    Unknown(RawCreateContext<'a>),
}

impl<'a> CreateResponseContext<'a> {
    /// Decodes the data.
    ///
    /// # Errors
    /// Malformed input from the peer; an unknown name is not an error.
    pub fn parse(raw: RawCreateContext<'a>) -> Result<Self, WireError> {
        let mut r = Reader::new(raw.data, "create context data");
        Ok(match raw.name {
            name::DHN_Q => {
                r.skip(8)?;
                Self::Durable
            }
            name::MX_AC => Self::MaximalAccess(r.get()?),
            name::Q_FID => Self::OnDiskId(r.get()?),
            name::RQ_LS => Self::Lease(Lease::decode(raw.data)?),
            name::DH2_Q => Self::DurableV2(r.get()?),
            name::SVHDX_OPEN_DEVICE => Self::SvhdxOpenDevice(raw.data),
            name::AAPL => Self::Aapl(raw.data),
            name::POSIX => Self::Posix(raw.data),
            _ => Self::Unknown(raw),
        })
    }
}

/// Builds the contexts of a message.
#[derive(Debug, Clone, Default)]
pub struct CreateContextsBuf {
    bytes: Vec<u8>,
    last: Option<usize>,
}

impl CreateContextsBuf {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Borrows the contexts for a message.
    pub fn as_contexts(&self) -> CreateContexts<'_> {
        CreateContexts(&self.bytes)
    }

    /// Appends a context of any type.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn push(&mut self, name: &[u8], data: &[u8]) -> Result<&mut Self, WireError> {
        let name_len = fit_u16(name.len(), "create context name")?;
        let data_len = fit_u32(data.len(), "create context data")?;
        let data_at = match data_len {
            0 => 0,
            _ => fit_u16((16 + name.len()).next_multiple_of(8), "create context name")?,
        };
        let out = &mut self.bytes;
        if let Some(last) = self.last {
            pad(out, 0, 8);
            let next = out.len() - last;
            patch_u32(out, last, next as u32);
        }
        let start = out.len();
        self.last = Some(start);
        0u32.put(out);
        16u16.put(out);
        name_len.put(out);
        0u16.put(out);
        data_at.put(out);
        data_len.put(out);
        out.extend_from_slice(name);
        pad(out, start, 8);
        out.extend_from_slice(data);
        Ok(self)
    }

    /// Appends a context of a request.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn request(&mut self, context: &CreateRequestContext<'_>) -> Result<&mut Self, WireError> {
        use CreateRequestContext as C;
        let mut data = Vec::new();
        let name = match context {
            C::ExtendedAttributes(bytes) => return self.push(name::EXT_A, bytes),
            C::SecurityDescriptor(bytes) => return self.push(name::SEC_D, bytes),
            C::SvhdxOpenDevice(bytes) => return self.push(name::SVHDX_OPEN_DEVICE, bytes),
            C::Aapl(bytes) => return self.push(name::AAPL, bytes),
            C::Posix(bytes) => return self.push(name::POSIX, bytes),
            C::Unknown(raw) => return self.push(raw.name, raw.data),
            C::QueryOnDiskId | C::MaximalAccess(None) => {
                let query_id = matches!(context, C::QueryOnDiskId);
                return self.push(if query_id { name::Q_FID } else { name::MX_AC }, &[]);
            }
            C::Durable => put(&mut data, name::DHN_Q, &[0u8; 16]),
            C::DurableReconnect(file_id) => put(&mut data, name::DHN_C, file_id),
            C::AllocationSize(bytes) => put(&mut data, name::AL_SI, bytes),
            C::MaximalAccess(Some(since)) => put(&mut data, name::MX_AC, since),
            C::Timewarp(at) => put(&mut data, name::TW_RP, at),
            C::Lease(lease) => {
                lease.encode(&mut data);
                name::RQ_LS
            }
            C::DurableV2(x) => put(&mut data, name::DH2_Q, x),
            C::DurableReconnectV2(x) => put(&mut data, name::DH2_C, x),
            C::AppInstanceId(id) => {
                let x = AppInstanceId { structure_size: AppInstanceId::LEN as u16, app_instance_id: *id };
                put(&mut data, name::APP_INSTANCE_ID, &x)
            }
            C::AppInstanceVersion(x) => put(&mut data, name::APP_INSTANCE_VERSION, x),
        };
        self.push(name, &data)
    }

    /// Appends a context of a response.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn response(&mut self, context: &CreateResponseContext<'_>) -> Result<&mut Self, WireError> {
        use CreateResponseContext as C;
        let mut data = Vec::new();
        let name = match context {
            C::SvhdxOpenDevice(bytes) => return self.push(name::SVHDX_OPEN_DEVICE, bytes),
            C::Aapl(bytes) => return self.push(name::AAPL, bytes),
            C::Posix(bytes) => return self.push(name::POSIX, bytes),
            C::Unknown(raw) => return self.push(raw.name, raw.data),
            C::Durable => put(&mut data, name::DHN_Q, &[0u8; 8]),
            C::MaximalAccess(x) => put(&mut data, name::MX_AC, x),
            C::OnDiskId(x) => put(&mut data, name::Q_FID, x),
            C::Lease(lease) => {
                lease.encode(&mut data);
                name::RQ_LS
            }
            C::DurableV2(x) => put(&mut data, name::DH2_Q, x),
        };
        self.push(name, &data)
    }
}

fn put(out: &mut Vec<u8>, name: &'static [u8], value: &impl Field) -> &'static [u8] {
    value.put(out);
    name
}
