//! Whole files, many requests at a time.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use arena::{Sg, sg_len, sg_slice};

use crate::io::{ReadCall, WriteCall};
use crate::{File, RequestError};

/// Bytes asked for in one request at most.
const PIECE: u32 = 1 << 20;
/// Bytes in flight.
const WINDOW: u64 = 8 << 20;

/// Reads a range of a file in order, ahead of its user.
pub struct Download {
    file: File,
    /// Where the next request begins, and where the last one ends.
    next: u64,
    end: u64,
    in_flight: u64,
    calls: VecDeque<(u64, u32, ReadCall)>,
}

impl Download {
    /// From `start` to `end`, or to where the file ends. Nothing is asked for yet.
    pub fn new(file: &File, start: u64, end: u64) -> Download {
        Download { file: file.clone(), next: start, end, in_flight: 0, calls: VecDeque::new() }
    }

    /// The next bytes and their offset; `None` at the end. Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`RequestError`]; the download is of no more use then.
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
            // Fewer than asked for need not be the end.
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

/// Writes a file in order, without waiting for each piece.
pub struct Upload {
    file: File,
    next: u64,
    /// Up to here everything is written.
    written: u64,
    in_flight: u64,
    calls: VecDeque<(u64, Sg, WriteCall)>,
}

impl Upload {
    /// Begins at `offset`.
    pub fn new(file: &File, offset: u64) -> Upload {
        Upload { file: file.clone(), next: offset, written: offset, in_flight: 0, calls: VecDeque::new() }
    }

    /// Appends `data`; waits while too much is in flight. Up to which offset everything is written. If the future is
    /// dropped, how much of `data` was taken is not known.
    ///
    /// # Errors
    /// [`RequestError`]; the upload is of no more use then.
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

    /// Waits until all is written: up to which offset.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn finish(&mut self) -> Result<u64, RequestError> {
        self.drain(0).await?;
        Ok(self.written)
    }

    /// Up to which offset everything is written.
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
            // The rest again, before what comes after it counts as written.
            let rest = sg_slice(&data, count, length - count);
            let at = offset + count as u64;
            self.in_flight += (length - count) as u64;
            let call = self.file.submit_write(at, rest.clone());
            self.calls.push_front((at, rest, call));
        }
        Poll::Ready(Ok(()))
    }
}
