//! Transfers of whole files, with many requests in parallel.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use arena::{Sg, sg_len, sg_slice};

use crate::io::{ReadCall, WriteCall};
use crate::{File, RequestError};

/// Maximum length of one request in bytes.
const PIECE: u32 = 1 << 20;
/// Maximum bytes in flight.
const WINDOW: u64 = 8 << 20;

/// Reads a range of a file in order, with read-ahead.
pub struct Download {
    file: File,
    /// Offset of the next request; `end` is the end of the range.
    next: u64,
    end: u64,
    in_flight: u64,
    calls: VecDeque<(u64, u32, ReadCall)>,
}

impl Download {
    /// Starts a download from `start` to `end`, or to the end of the file. Sends no request yet.
    pub fn new(file: &File, start: u64, end: u64) -> Download {
        Download { file: file.clone(), next: start, end, in_flight: 0, calls: VecDeque::new() }
    }

    /// Returns the next bytes and their offset; `None` at the end. Dropping the future loses no data.
    ///
    /// # Errors
    /// [`RequestError`]; the download must then not be used again.
    pub async fn next(&mut self) -> Result<Option<(u64, Sg)>, RequestError> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<(u64, Sg)>, RequestError>> {
        self.fill();
        let Some((offset, length, call)) = self.calls.front_mut() else { return Poll::Ready(Ok(None)) };
        let data = ready!(Pin::new(call).poll(cx))?;
        let (offset, length, got) = (*offset, *length, sg_len(&data) as u32);
        self.calls.pop_front();
        self.in_flight -= u64::from(length);
        if got == 0 {
            self.next = self.end;
            self.calls.clear();
            self.in_flight = 0;
            return Poll::Ready(Ok(None));
        }
        if got < length {
            // A short read is not necessarily the end of the file.
            let (at, rest) = (offset + u64::from(got), length - got);
            self.in_flight += u64::from(rest);
            self.calls.push_front((at, rest, self.file.submit_read(at, rest)));
        }
        self.fill();
        Poll::Ready(Ok(Some((offset, data))))
    }

    fn fill(&mut self) {
        while self.next < self.end && (self.in_flight < WINDOW || self.calls.is_empty()) {
            let most = PIECE.min(self.file.max_read());
            let length = u64::from(most).min(self.end - self.next) as u32;
            self.calls.push_back((self.next, length, self.file.submit_read(self.next, length)));
            self.next += u64::from(length);
            self.in_flight += u64::from(length);
        }
    }
}

/// Writes a file in order, with several requests in flight.
pub struct Upload {
    file: File,
    next: u64,
    /// All bytes up to this offset are written.
    written: u64,
    in_flight: u64,
    calls: VecDeque<(u64, Sg, WriteCall)>,
}

impl Upload {
    /// Starts an upload at `offset`.
    pub fn new(file: &File, offset: u64) -> Upload {
        Upload { file: file.clone(), next: offset, written: offset, in_flight: 0, calls: VecDeque::new() }
    }

    /// Appends `data`; waits while too many bytes are in flight. Returns the offset up to which all bytes are
    /// written. If the future is dropped, it is unknown how much of `data` was accepted.
    ///
    /// # Errors
    /// [`RequestError`]; the upload must then not be used again.
    pub async fn push(&mut self, data: Sg) -> Result<u64, RequestError> {
        let (mut at, length) = (0, sg_len(&data));
        while at < length {
            let n = (PIECE.min(self.file.max_write()) as usize).min(length - at);
            self.submit(self.next, sg_slice(&data, at, n));
            self.next += n as u64;
            at += n;
            self.drain(WINDOW).await?;
        }
        Ok(self.written)
    }

    /// Waits until all bytes are written; returns the offset of the end.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn finish(&mut self) -> Result<u64, RequestError> {
        self.drain(0).await?;
        Ok(self.written)
    }

    /// The offset up to which all bytes are written.
    pub fn written(&self) -> u64 {
        self.written
    }

    fn submit(&mut self, offset: u64, data: Sg) {
        self.in_flight += sg_len(&data) as u64;
        let call = self.file.submit_write(offset, data.clone());
        self.calls.push_back((offset, data, call));
    }

    /// Waits until at most `left` bytes are in flight.
    async fn drain(&mut self, left: u64) -> Result<(), RequestError> {
        while self.in_flight > left {
            poll_fn(|cx| self.poll_front(cx)).await?;
        }
        Ok(())
    }

    fn poll_front(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RequestError>> {
        let Some((_, _, call)) = self.calls.front_mut() else { return Poll::Ready(Ok(())) };
        let count = ready!(Pin::new(call).poll(cx))? as usize;
        let Some((offset, data, _)) = self.calls.pop_front() else { return Poll::Ready(Ok(())) };
        let length = sg_len(&data);
        self.in_flight -= length as u64;
        if count == 0 && length > 0 {
            return Poll::Ready(Err(RequestError::Status(smb_wire::NtStatus::DISK_FULL)));
        }
        self.written = offset + count as u64;
        if count < length {
            // Writes the rest of a short write before later data counts as written.
            let rest = sg_slice(&data, count, length - count);
            let at = offset + count as u64;
            self.in_flight += (length - count) as u64;
            let call = self.file.submit_write(at, rest.clone());
            self.calls.push_front((at, rest, call));
        }
        Poll::Ready(Ok(()))
    }
}
