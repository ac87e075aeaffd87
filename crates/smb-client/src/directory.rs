//! Lists a directory (MS-SMB2 3.2.4.17).

use smb_wire::fscc::{DirectoryEntries, FileInfoClass};
use smb_wire::msg::{QueryDirectoryFlags, QueryDirectoryRequest, QueryDirectoryResponse};
use smb_wire::{Command, NtStatus, Utf16Buf};

use crate::connection::Request;
use crate::file::File;
use crate::{Metadata, RequestError, io};

/// An open directory and the state of its listing.
pub struct Dir {
    file: File,
    pattern: Utf16Buf,
    done: bool,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name. Invalid UTF-16 is replaced by U+FFFD.
    pub name: String,
    /// The file's number, unique in its volume; 0 if the server has none.
    pub file_id: u64,
    /// Its attributes.
    pub metadata: Metadata,
}

/// The maximum size of one request, in bytes.
const BATCH: u32 = 256 << 10;
/// The listing ends after this many consecutive batches with only `.` and `..`.
const EMPTY_MAX: u32 = 4;

impl Dir {
    pub(crate) fn new(file: File, pattern: &str) -> Dir {
        Dir { file, pattern: Utf16Buf::from(if pattern.is_empty() { "*" } else { pattern }), done: false }
    }

    /// Returns the next entries, without `.` and `..`; an empty list at the end.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn next_batch(&mut self) -> Result<Vec<DirEntry>, RequestError> {
        let class = FileInfoClass::ID_FULL_DIRECTORY;
        let mut empty = 0;
        while !self.done {
            let tree = self.file.tree();
            let link = tree.link();
            let most = io::credit_limit(&link, link.max_transact.min(BATCH));
            let body = QueryDirectoryRequest {
                info_class: class.0,
                flags: QueryDirectoryFlags::empty(),
                file_index: 0,
                file_id: self.file.inner.id,
                pattern: self.pattern.as_utf16(),
                output_buffer_length: most,
            };
            let request = Request::new(Command::QUERY_DIRECTORY, &body)?.charged(most as usize);
            let response = tree.call(request).await?;
            // MS-SMB2 3.3.5.18: the server returns NO_SUCH_FILE if no name matches.
            if matches!(response.header.status, NtStatus::NO_MORE_FILES | NtStatus::NO_SUCH_FILE) {
                self.done = true;
                break;
            }
            let answer: QueryDirectoryResponse<'_> = response.body()?;
            let mut out = Vec::new();
            for entry in DirectoryEntries::new(answer.buffer, class).into_iter().flatten() {
                let entry = entry?;
                let name = entry.name.to_string_lossy();
                if name != "." && name != ".." {
                    out.push(DirEntry {
                        name,
                        file_id: entry.file_id as u64,
                        metadata: Metadata::from(&entry),
                    });
                }
            }
            if !out.is_empty() {
                return Ok(out);
            }
            empty += 1;
            self.done = empty == EMPTY_MAX;
        }
        Ok(Vec::new())
    }

    /// Returns all remaining entries.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn all(&mut self) -> Result<Vec<DirEntry>, RequestError> {
        let mut out = Vec::new();
        loop {
            let batch = self.next_batch().await?;
            if batch.is_empty() {
                return Ok(out);
            }
            out.extend(batch);
        }
    }

    /// The open directory.
    pub fn file(&self) -> &File {
        &self.file
    }
}
