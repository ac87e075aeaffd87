//! Contexts: the extensible parts of NEGOTIATE ([`negotiate`]) and CREATE ([`create`]).
//!
//! A message borrows the bytes of its contexts; iterating decodes them one by one. An unknown context is returned
//! as such, and the receiver must ignore it (MS-SMB2 2.2.3.1, 2.2.13.2).

mod aapl;
pub mod create;
mod durable;
mod lease;
pub mod negotiate;

pub use aapl::{AaplAnswer, AaplCapabilities, AaplCommand, AaplParts, AaplQuery, AaplVolumeCapabilities};
pub use create::{
    AppInstanceId, AppInstanceVersion, CreateContexts, CreateContextsBuf, CreateRequestContext,
    CreateResponseContext, DiskId, MAX_CREATE_CONTEXTS, MaximalAccess, RawCreateContext,
};
pub use durable::{DurableFlags, DurableReconnectV2, DurableRequestV2, DurableResponseV2};
pub use lease::{Lease, LeaseFlags, LeaseV2};
pub use negotiate::{
    Cipher, CompressionAlgorithm, CompressionFlags, HashAlgorithm, IdList, MAX_NEGOTIATE_CONTEXTS,
    NegotiateContext, NegotiateContextType, NegotiateContexts, NegotiateContextsBuf, RawNegotiateContext,
    RdmaTransform, SigningAlgorithm, TransportFlags,
};
