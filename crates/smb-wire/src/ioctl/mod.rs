//! Input and output data of an IOCTL, by FSCTL (MS-SMB2 2.2.31, 2.2.32; MS-FSCC 2.3).
//!
//! FSCTL_PIPE_TRANSCEIVE has no structure: its input and output are the pipe's bytes.

mod copychunk;
mod network;
mod pipe;
mod ranges;
mod reparse;
mod volume;

pub use copychunk::{
    CopyChunk, CopyChunkRequest, CopyChunkResponse, CopyChunks, RESUME_KEY_LEN, ResumeKey, SnapshotArray,
};
pub use network::{
    InterfaceCapability, MAX_INTERFACES, NetworkInterface, NetworkInterfaces, ValidateNegotiateRequest,
    ValidateNegotiateResponse, put_interfaces,
};
pub use pipe::{PipePeek, PipeWait};
pub use ranges::sparse_requested;
pub use ranges::{
    AllocatedRange, AllocatedRanges, FileLevelTrim, TrimRange, TrimRanges, TrimResponse, ZeroData,
};
pub use reparse::{ReparseBuffer, ReparseTag, SymlinkReparse};
pub use volume::{
    DuplicateExtents, GetIntegrity, IntegrityFlags, ObjectIdBuffer, ResiliencyRequest, SetIntegrity,
};
