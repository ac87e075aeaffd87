//! Named pipes: FSCTL_PIPE_PEEK and FSCTL_PIPE_WAIT (MS-FSCC 2.3).

use crate::cursor::{Field, Reader, fit_u32};
use crate::{Utf16Le, WireError};

/// FSCTL_PIPE_PEEK reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PipePeek<'a> {
    /// 3 connected, 4 closing.
    pub named_pipe_state: u32,
    /// Number of bytes available for reading.
    pub read_data_available: u32,
    /// Number of messages available for reading.
    pub number_of_messages: u32,
    /// Length of the first message in bytes.
    pub message_length: u32,
    /// The data in the pipe, as much as fits into the buffer.
    pub data: &'a [u8],
}

impl<'a> PipePeek<'a> {
    /// Decodes the output.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn decode(output: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(output, "FSCTL_PIPE_PEEK reply");
        Ok(Self {
            named_pipe_state: r.get()?,
            read_data_available: r.get()?,
            number_of_messages: r.get()?,
            message_length: r.get()?,
            data: r.rest(),
        })
    }

    /// Appends the output to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.named_pipe_state.put(out);
        self.read_data_available.put(out);
        self.number_of_messages.put(out);
        self.message_length.put(out);
        out.extend_from_slice(self.data);
    }
}

/// FSCTL_PIPE_WAIT request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PipeWait<'a> {
    /// How long to wait, in units of 100 ns; `None` for the pipe's default.
    pub timeout_100ns: Option<u64>,
    /// Name of the pipe, without a prefix.
    pub name: Utf16Le<'a>,
}

impl<'a> PipeWait<'a> {
    /// Decodes the input.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn decode(input: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(input, "FSCTL_PIPE_WAIT request");
        let timeout = r.get()?;
        let len: u32 = r.get()?;
        let specified: bool = r.get()?;
        r.skip(1)?;
        let name = Utf16Le::new(r.take(len as usize)?, "pipe name")?;
        Ok(Self { timeout_100ns: specified.then_some(timeout), name })
    }

    /// Appends the input to `out`.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let len = fit_u32(self.name.len(), "pipe name")?;
        self.timeout_100ns.unwrap_or(0).put(out);
        len.put(out);
        self.timeout_100ns.is_some().put(out);
        0u8.put(out);
        out.extend_from_slice(self.name.as_bytes());
        Ok(())
    }
}
