//! Sparse files (MS-FSCC 2.3, MS-FSA 2.1.5.10).

use std::ops::Range;

use smb_wire::WireError;
use smb_wire::ioctl::{AllocatedRange, AllocatedRanges};
use smb_wire::msg::FsctlCode;

use crate::{File, RequestError, io};

/// Maximum number of ranges in one response.
const RANGES: u32 = 4096;

impl File {
    /// Makes the file sparse: it may have holes, which take no space and read as zeros (FSCTL_SET_SPARSE).
    ///
    /// # Errors
    /// [`RequestError`]; STATUS_INVALID_DEVICE_REQUEST or STATUS_NOT_SUPPORTED if the share does not support sparse
    /// files.
    pub async fn set_sparse(&self) -> Result<(), RequestError> {
        self.tree().fsctl(FsctlCode::SET_SPARSE, self.inner.id, &[1], 0).await.map(|_| ())
    }

    /// Returns the parts of `range` that hold data, in order and disjoint (FSCTL_QUERY_ALLOCATED_RANGES); the gaps
    /// read as zeros. If the file has many holes, only the first parts are returned: query again from the end of
    /// the last one. An empty result means that all of the range is zeros.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn allocated(&self, range: Range<u64>) -> Result<Vec<Range<u64>>, RequestError> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let mut input = Vec::with_capacity(AllocatedRange::LEN);
        AllocatedRange { file_offset: range.start, length: range.end - range.start }.encode(&mut input);
        let link = self.tree().link();
        let most = io::credit_limit(&link, link.max_transact);
        let most = most.min(RANGES * AllocatedRange::LEN as u32);
        let code = FsctlCode::QUERY_ALLOCATED_RANGES;
        let output = self.tree().fsctl(code, self.inner.id, &input, most).await?;
        let mut parts: Vec<Range<u64>> = Vec::new();
        for part in AllocatedRanges::from_bytes(&output)?.iter() {
            // Servers may report whole clusters, which extend beyond the requested range.
            let end = part.file_offset.checked_add(part.length).ok_or(DISORDER)?;
            let (start, end) = (part.file_offset.max(range.start), end.min(range.end));
            if parts.last().is_some_and(|p| start < p.end) {
                return Err(DISORDER.into());
            }
            if start < end {
                parts.push(start..end);
            }
        }
        Ok(parts)
    }
}

const DISORDER: WireError = WireError::Malformed { what: "allocated ranges" };
