//! Negotiation of the export and its properties (NBD, "Fixed newstyle negotiation").
//!
//! Sans-IO: bytes go in with [`Handshake::handle`], which appends the answers. Invariants:
//! 1. Input is buffered only until an option is complete. An option has at most [`OPTION_MAX`] bytes; a
//!    longer one is answered and skipped.
//! 2. After [`NextStep::Transmission`] or [`NextStep::Close`] no more input is accepted; the remaining bytes
//!    are [`Handshake::rest`].

mod context;
#[cfg(test)]
mod tests;

use crate::OPTION_MAX;

const NBD_MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 2;

const OPTION_EXPORT_NAME: u32 = 1;
const OPTION_ABORT: u32 = 2;
const OPTION_LIST: u32 = 3;
const OPTION_INFO: u32 = 6;
const OPTION_GO: u32 = 7;
const OPTION_STRUCTURED_REPLY: u32 = 8;
const OPTION_LIST_META_CONTEXT: u32 = 9;
const OPTION_SET_META_CONTEXT: u32 = 10;

const REPLY_ACK: u32 = 1;
const REPLY_SERVER: u32 = 2;
const REPLY_INFO: u32 = 3;
const ERROR_UNSUPPORTED: u32 = 1 << 31 | 1;
const ERROR_INVALID: u32 = 1 << 31 | 3;
const ERROR_UNKNOWN: u32 = 1 << 31 | 6;
const ERROR_BLOCK_SIZE_REQUIRED: u32 = 1 << 31 | 8;
const ERROR_TOO_BIG: u32 = 1 << 31 | 9;

const INFO_EXPORT: u16 = 0;
const INFO_NAME: u16 = 1;
const INFO_BLOCK_SIZE: u16 = 3;

const FLAG_HAS_FLAGS: u16 = 1;
const FLAG_READ_ONLY: u16 = 2;
const FLAG_SEND_FLUSH: u16 = 4;
const FLAG_SEND_FUA: u16 = 8;
const FLAG_ROTATIONAL: u16 = 16;
const FLAG_SEND_TRIM: u16 = 32;
const FLAG_SEND_WRITE_ZEROES: u16 = 64;
const FLAG_SEND_DF: u16 = 128;
const FLAG_CAN_MULTI_CONN: u16 = 256;

/// Maximum options that a client may send before it chooses an export.
const OPTIONS_MAX: u32 = 256;
const OPTION_HEAD: usize = 16;

/// An export as described to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The name that clients request; the empty name means the first export.
    pub name: String,
    /// In bytes.
    pub size: u64,
    /// The block size: every offset and length is a multiple.
    pub block: u32,
    /// The longest READ or WRITE, in bytes.
    pub payload_max: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// Whether the access time depends on the position of the data.
    pub rotational: bool,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// More input is needed.
    More,
    /// The client has chosen an export and will send requests.
    Transmission(Negotiated),
    /// The connection ends for this reason after the answers so far are sent.
    Close(&'static str),
}

/// The result of a negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// The export, by index.
    pub export: usize,
    /// READ is answered with structured replies.
    pub structured: bool,
    /// BLOCK_STATUS is supported, with the context `base:allocation`.
    pub status: bool,
}

/// One client's negotiation.
pub struct Handshake {
    exports: Vec<Description>,
    input: Vec<u8>,
    /// Bytes of an oversized option that are still to be skipped.
    skip: u64,
    flags: Option<u32>,
    options: u32,
    /// The client accepts structured replies.
    structured: bool,
    /// The export for which it selected the context `base:allocation`.
    status: Option<usize>,
}

struct GoRequest<'a> {
    name: &'a [u8],
    wants_block_size: bool,
    wants_name: bool,
}

impl Handshake {
    /// A negotiation about these exports.
    pub fn new(exports: Vec<Description>) -> Handshake {
        let (input, skip, flags, options) = (Vec::new(), 0, None, 0);
        Handshake { exports, input, skip, flags, options, structured: false, status: None }
    }

    /// The server's first message.
    pub fn greeting() -> [u8; 18] {
        let mut b = [0; 18];
        b[..8].copy_from_slice(&NBD_MAGIC.to_be_bytes());
        b[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
        b[16..].copy_from_slice(&(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
        b
    }

    /// Processes bytes from the client; appends answers to `out`.
    pub fn handle(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> NextStep {
        let skipped = self.skip.min(bytes.len() as u64) as usize;
        self.skip -= skipped as u64;
        self.input.extend_from_slice(&bytes[skipped..]);
        loop {
            let outcome = if self.flags.is_none() { self.client_flags() } else { self.option(out) };
            match outcome {
                Some(NextStep::More) => {}
                Some(end) => return end,
                None => return NextStep::More,
            }
        }
    }

    /// The bytes after the end of the negotiation.
    pub fn rest(self) -> Vec<u8> {
        self.input
    }

    fn client_flags(&mut self) -> Option<NextStep> {
        let flags = u32::from_be_bytes(self.input.get(..4)?.try_into().ok()?);
        self.input.drain(..4);
        self.flags = Some(flags);
        if flags & u32::from(FIXED_NEWSTYLE) == 0 {
            return Some(NextStep::Close("the client does not support the fixed newstyle negotiation"));
        }
        if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
            return Some(NextStep::Close("the client set unknown flags"));
        }
        Some(NextStep::More)
    }

    /// Processes one option. Returns `None` if it is incomplete.
    fn option(&mut self, out: &mut Vec<u8>) -> Option<NextStep> {
        let head = self.input.get(..OPTION_HEAD)?;
        let magic = u64::from_be_bytes(head[..8].try_into().ok()?);
        let option = u32::from_be_bytes(head[8..12].try_into().ok()?);
        let length = u32::from_be_bytes(head[12..16].try_into().ok()?);
        if magic != OPTION_MAGIC {
            return Some(NextStep::Close("an option has no valid magic number"));
        }
        if length > OPTION_MAX {
            if option == OPTION_EXPORT_NAME {
                return Some(NextStep::Close("the export's name is too long"));
            }
            let here = (self.input.len() - OPTION_HEAD).min(length as usize);
            self.input.drain(..OPTION_HEAD + here);
            self.skip = u64::from(length) - here as u64;
            answer(out, option, ERROR_TOO_BIG, b"the option is too long");
            return Some(self.counted());
        }
        let end = OPTION_HEAD + length as usize;
        if self.input.len() < end {
            return None;
        }
        let mut data: Vec<u8> = self.input.drain(..end).collect();
        data.drain(..OPTION_HEAD);
        Some(match option {
            OPTION_EXPORT_NAME => self.export_name(&data, out),
            OPTION_ABORT => {
                answer(out, option, REPLY_ACK, &[]);
                NextStep::Close("the client ended the negotiation without choosing an export")
            }
            OPTION_LIST => {
                self.list(&data, out);
                self.counted()
            }
            OPTION_INFO | OPTION_GO => match self.info(option, &data, out) {
                Some(export) if option == OPTION_GO => NextStep::Transmission(self.agreed(export)),
                _ => self.counted(),
            },
            OPTION_STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                answer(out, option, REPLY_ACK, &[]);
                self.counted()
            }
            OPTION_STRUCTURED_REPLY => {
                answer(out, option, ERROR_INVALID, b"NBD_OPT_STRUCTURED_REPLY must not have data");
                self.counted()
            }
            OPTION_LIST_META_CONTEXT | OPTION_SET_META_CONTEXT => {
                self.contexts(option, &data, out);
                self.counted()
            }
            _ => {
                answer(out, option, ERROR_UNSUPPORTED, &[]);
                self.counted()
            }
        })
    }

    fn agreed(&self, export: usize) -> Negotiated {
        Negotiated { export, structured: self.structured, status: self.status == Some(export) }
    }

    fn counted(&mut self) -> NextStep {
        self.options += 1;
        if self.options >= OPTIONS_MAX {
            NextStep::Close("the client sent too many options without choosing an export")
        } else {
            NextStep::More
        }
    }

    fn find(&self, name: &[u8]) -> Option<usize> {
        if name.is_empty() && !self.exports.is_empty() {
            return Some(0);
        }
        self.exports.iter().position(|e| e.name.as_bytes() == name)
    }

    /// The old way to choose an export: it can report neither an error nor the block size.
    fn export_name(&self, name: &[u8], out: &mut Vec<u8>) -> NextStep {
        let Some(index) = self.find(name) else { return NextStep::Close("there is no such export") };
        let export = &self.exports[index];
        if export.block > 1 {
            return NextStep::Close(
                "the client is too old: it uses NBD_OPT_EXPORT_NAME, which does not report the block size",
            );
        }
        out.extend_from_slice(&export.size.to_be_bytes());
        out.extend_from_slice(&export.flags(self.structured).to_be_bytes());
        if self.flags.unwrap_or(0) & u32::from(NO_ZEROES) == 0 {
            out.extend_from_slice(&[0; 124]);
        }
        NextStep::Transmission(self.agreed(index))
    }

    fn list(&self, data: &[u8], out: &mut Vec<u8>) {
        if !data.is_empty() {
            return answer(out, OPTION_LIST, ERROR_INVALID, b"NBD_OPT_LIST must not have data");
        }
        for export in &self.exports {
            let mut entry = (export.name.len() as u32).to_be_bytes().to_vec();
            entry.extend_from_slice(export.name.as_bytes());
            answer(out, OPTION_LIST, REPLY_SERVER, &entry);
        }
        answer(out, OPTION_LIST, REPLY_ACK, &[]);
    }

    fn info(&self, option: u32, data: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let Some(request) = GoRequest::decode(data) else {
            answer(
                out,
                option,
                ERROR_INVALID,
                b"the name and the list of requests do not match the length of the option",
            );
            return None;
        };
        let Some(index) = self.find(request.name) else {
            answer(out, option, ERROR_UNKNOWN, b"there is no such export");
            return None;
        };
        let export = &self.exports[index];
        let mut told = INFO_EXPORT.to_be_bytes().to_vec();
        told.extend_from_slice(&export.size.to_be_bytes());
        told.extend_from_slice(&export.flags(self.structured).to_be_bytes());
        answer(out, option, REPLY_INFO, &told);
        if request.wants_name {
            let mut told = INFO_NAME.to_be_bytes().to_vec();
            told.extend_from_slice(export.name.as_bytes());
            answer(out, option, REPLY_INFO, &told);
        }
        let mut told = INFO_BLOCK_SIZE.to_be_bytes().to_vec();
        for size in [export.block, export.block.max(PREFERRED_BLOCK), export.payload_max] {
            told.extend_from_slice(&size.to_be_bytes());
        }
        answer(out, option, REPLY_INFO, &told);
        // NBD, NBD_OPT_GO: a client that did not request the block sizes has not agreed to obey them.
        if option == OPTION_GO && export.block > 1 && !request.wants_block_size {
            answer(out, option, ERROR_BLOCK_SIZE_REQUIRED, b"the client must request NBD_INFO_BLOCK_SIZE");
            return None;
        }
        answer(out, option, REPLY_ACK, &[]);
        Some(index)
    }
}

/// The preferred write size in bytes, if the block size is smaller.
const PREFERRED_BLOCK: u32 = 4096;

impl Description {
    fn flags(&self, structured: bool) -> u16 {
        let mut flags = FLAG_HAS_FLAGS | FLAG_SEND_FLUSH | FLAG_CAN_MULTI_CONN;
        if self.read_only {
            flags |= FLAG_READ_ONLY;
        } else {
            flags |= FLAG_SEND_FUA | FLAG_SEND_TRIM | FLAG_SEND_WRITE_ZEROES;
        }
        if structured {
            flags |= FLAG_SEND_DF;
        }
        if self.rotational {
            flags |= FLAG_ROTATIONAL;
        }
        flags
    }
}

impl<'a> GoRequest<'a> {
    /// Name length u32, name, number of requests u16, each u16.
    fn decode(data: &'a [u8]) -> Option<GoRequest<'a>> {
        let (length, rest) = data.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (name, rest) = rest.split_at_checked(length)?;
        let (count, wants) = rest.split_first_chunk::<2>()?;
        if wants.len() != 2 * usize::from(u16::from_be_bytes(*count)) {
            return None;
        }
        let wants = |what: u16| wants.chunks_exact(2).any(|w| w == what.to_be_bytes());
        Some(GoRequest { name, wants_block_size: wants(INFO_BLOCK_SIZE), wants_name: wants(INFO_NAME) })
    }
}

fn answer(out: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    out.extend_from_slice(&REPLY_MAGIC.to_be_bytes());
    out.extend_from_slice(&option.to_be_bytes());
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    out.extend_from_slice(data);
}
