//! Connection-oriented PDUs (C706 chapter 12, MS-RPCE 2.2.2).
//!
//! ```text
//! 0 version 5   1 minor 0   2 type   3 flags   4 data representation (4)   8 fragment length   10 auth length
//! 12 call id    16 body by type   [authentication trailer]
//! ```

use super::SyntaxId;
use crate::cursor::{Field, Reader, fit_u16, pad};
use crate::macros::{flag_set, open_enum, record};
use crate::{Guid, WireError};

/// Length of the common header in bytes.
pub const PDU_HEADER_LEN: usize = 16;
/// Maximum number of presentation contexts in one bind; clients offer up to three for each interface.
pub const MAX_CONTEXTS: usize = 32;
/// Maximum number of transfer syntaxes in one presentation context.
pub const MAX_TRANSFER_SYNTAXES: usize = 16;
/// Offset of the stub in a request without object UUID, and in a response.
pub const STUB_OFFSET: usize = PDU_HEADER_LEN + 8;
/// Fragment length in bytes that every implementation must accept (C706 12.6.3.3).
pub const MUST_RECEIVE_FRAGMENT: u16 = 1432;

open_enum! {
    /// PDU type.
    pub struct PduType(u8) {
        /// Request.
        REQUEST = 0,
        /// Response.
        RESPONSE = 2,
        /// Fault.
        FAULT = 3,
        /// Bind.
        BIND = 11,
        /// Response to a bind.
        BIND_ACK = 12,
        /// Refusal of a bind.
        BIND_NAK = 13,
        /// More presentation contexts.
        ALTER_CONTEXT = 14,
        /// Response to ALTER_CONTEXT.
        ALTER_CONTEXT_RESP = 15,
        /// Third leg of an authentication.
        AUTH3 = 16,
        /// Cancel.
        CO_CANCEL = 18,
        /// Orphaned.
        ORPHANED = 19,
    }
}

flag_set! {
    /// PDU flags.
    pub struct PduFlags: u8 {
        /// First fragment.
        const FIRST_FRAG = 0x01;
        /// Last fragment.
        const LAST_FRAG = 0x02;
        /// Cancel pending; in a bind: header signing.
        const PENDING_CANCEL = 0x04;
        /// Concurrent calls.
        const CONC_MPX = 0x10;
        /// Fault: the call was not executed.
        const DID_NOT_EXECUTE = 0x20;
        /// Maybe semantics.
        const MAYBE = 0x40;
        /// An object UUID is present.
        const OBJECT_UUID = 0x80;
    }
}

open_enum! {
    /// Status of a fault (MS-RPCE 2.2.2.11, C706 appendix E).
    pub struct FaultStatus(u32) {
        /// The interface has no such operation.
        OP_RANGE_ERROR = 0x1C01_0002,
        /// The presentation context is unknown.
        UNKNOWN_INTERFACE = 0x1C01_0003,
        /// Protocol error.
        PROTOCOL_ERROR = 0x1C01_000B,
        /// The context handle is unknown.
        CONTEXT_MISMATCH = 0x1C00_001A,
        /// The stub could not be decoded.
        BAD_STUB_DATA = 0x0000_06F7,
        /// Access denied.
        ACCESS_DENIED = 0x0000_0005,
    }
}

/// The common header and the body of a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pdu<'a> {
    /// Type.
    pub pdu_type: PduType,
    /// Flags.
    pub flags: PduFlags,
    /// Identifier of the call.
    pub call_id: u32,
    /// Length of the fragment in bytes, including the header: offset of the next one.
    pub fragment_length: u16,
    /// The body, without the authentication trailer.
    pub body: &'a [u8],
}

impl<'a> Pdu<'a> {
    /// Decodes the PDU at the start of `bytes`.
    ///
    /// # Errors
    /// `Truncated` if the PDU is incomplete: a pipe is a byte stream, so the caller may wait for more bytes.
    /// `Malformed` for another version, or a data representation other than little-endian.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        const WHAT: &str = "RPC PDU";
        let mut r = Reader::new(bytes, WHAT);
        let version: [u8; 2] = r.array()?;
        let (pdu_type, flags) = (r.get()?, r.get()?);
        let [representation, ..] = r.array::<4>()?;
        let (fragment_length, auth_length): (u16, u16) = (r.get()?, r.get()?);
        let call_id = r.get()?;
        if version[0] != 5 || version[1] > 1 || representation != 0x10 {
            return Err(WireError::malformed("RPC version or data representation"));
        }
        let Some(len) = usize::from(fragment_length).checked_sub(PDU_HEADER_LEN) else {
            return Err(WireError::malformed("RPC fragment length"));
        };
        let mut body = r.take(len)?;
        if auth_length != 0 {
            // MS-RPCE 2.2.2.11: padding; eight bytes, the third of which is the padding's length; then the token.
            let trailer = len.checked_sub(usize::from(auth_length) + 8);
            let Some((rest, trailer)) = trailer.and_then(|at| body.split_at_checked(at)) else {
                return Err(WireError::malformed("RPC auth length"));
            };
            let stub = rest.len().checked_sub(trailer[2].into());
            body = &rest[..stub.ok_or(WireError::malformed("RPC auth padding"))?];
        }
        Ok(Self { pdu_type, flags, call_id, fragment_length, body })
    }
}

/// Appends a PDU: the header, then the body that `body` writes; then patches the length.
fn put_pdu(
    out: &mut Vec<u8>,
    pdu_type: PduType,
    flags: PduFlags,
    call_id: u32,
    body: impl FnOnce(&mut Vec<u8>, usize) -> Result<(), WireError>,
) -> Result<(), WireError> {
    let start = out.len();
    [5, 0].put(out);
    pdu_type.put(out);
    flags.put(out);
    [0x10, 0, 0, 0].put(out);
    [0u8; 4].put(out);
    call_id.put(out);
    let written = body(out, start).and_then(|()| fit_u16(out.len() - start, "RPC fragment"));
    match written {
        Ok(len) => out[start + 8..start + 10].copy_from_slice(&len.to_le_bytes()),
        Err(e) => {
            out.truncate(start);
            return Err(e);
        }
    }
    Ok(())
}

const WHOLE: PduFlags = PduFlags::FIRST_FRAG.union(PduFlags::LAST_FRAG);

/// The body of BIND and ALTER_CONTEXT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bind<'a> {
    /// Maximum fragment length that the client sends, in bytes.
    pub max_xmit_frag: u16,
    /// Maximum fragment length that the client receives, in bytes.
    pub max_recv_frag: u16,
    /// Association group; 0 for a new one.
    pub assoc_group_id: u32,
    /// The announced number of presentation contexts.
    pub context_count: u8,
    contexts: &'a [u8],
}

/// A presentation context that a client offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PresentationContext<'a> {
    /// Identifier of the context.
    pub context_id: u16,
    /// The interface.
    pub abstract_syntax: SyntaxId,
    transfer_syntaxes: &'a [u8],
}

impl PresentationContext<'_> {
    /// The offered transfer syntaxes.
    pub fn transfer_syntaxes(&self) -> impl Iterator<Item = SyntaxId> {
        self.transfer_syntaxes.chunks_exact(SyntaxId::LEN).map(|c| SyntaxId::decode(c).unwrap_or_default())
    }
}

impl<'a> Bind<'a> {
    /// Decodes a body.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn decode(body: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(body, "RPC bind");
        let (max_xmit_frag, max_recv_frag, assoc_group_id) = (r.get()?, r.get()?, r.get()?);
        let context_count: u8 = r.get()?;
        r.skip(3)?;
        if usize::from(context_count) > MAX_CONTEXTS {
            let len = context_count.into();
            return Err(WireError::TooLarge { what: "RPC presentation contexts", len, max: MAX_CONTEXTS });
        }
        Ok(Self { max_xmit_frag, max_recv_frag, assoc_group_id, context_count, contexts: r.rest() })
    }

    /// The presentation contexts; ends after the first error.
    pub fn contexts(&self) -> impl Iterator<Item = Result<PresentationContext<'a>, WireError>> + 'a {
        let mut r = Reader::new(self.contexts, "RPC presentation context");
        let mut left = self.context_count;
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let mut step = || {
                let context_id = r.get()?;
                let count = usize::from(r.get::<u8>()?);
                r.skip(1)?;
                if count > MAX_TRANSFER_SYNTAXES {
                    let max = MAX_TRANSFER_SYNTAXES;
                    return Err(WireError::TooLarge { what: "RPC transfer syntaxes", len: count, max });
                }
                let abstract_syntax = r.get()?;
                let transfer_syntaxes = r.take(count * SyntaxId::LEN)?;
                Ok(PresentationContext { context_id, abstract_syntax, transfer_syntaxes })
            };
            Some(step().inspect_err(|_| left = 0))
        })
    }
}

/// Appends a BIND that offers one interface with 32-bit NDR.
///
/// # Errors
/// Does not fail in practice.
pub fn put_bind(
    out: &mut Vec<u8>,
    call_id: u32,
    max_frag: u16,
    interface: SyntaxId,
) -> Result<(), WireError> {
    put_pdu(out, PduType::BIND, WHOLE, call_id, |out, _| {
        max_frag.put(out);
        max_frag.put(out);
        0u32.put(out);
        [1, 0, 0, 0].put(out); // one context
        0u16.put(out);
        [1, 0].put(out); // one transfer syntax
        interface.put(out);
        SyntaxId::NDR32.put(out);
        Ok(())
    })
}

record! {
    /// The response to one presentation context.
    pub struct ContextResult [24] {
        /// 0 accepted, 2 refused, 3 features (MS-RPCE 2.2.2.4).
        pub result: u16,
        /// If refused: 1 unknown interface, 2 no supported transfer syntax. With result 3: the features.
        pub reason: u16,
        /// The accepted transfer syntax.
        pub transfer_syntax: SyntaxId,
    }
}

impl ContextResult {
    /// Accepted, with 32-bit NDR.
    pub const ACCEPTED: Self = Self { result: 0, reason: 0, transfer_syntax: SyntaxId::NDR32 };

    /// The response of a server that has the given interfaces and supports 32-bit NDR (C706 12.6.3.4). Bind-time
    /// features are declined (MS-RPCE 3.3.1.5.3).
    pub fn answer(offer: &PresentationContext<'_>, interfaces: &[SyntaxId]) -> Self {
        const NO_SYNTAX: SyntaxId = SyntaxId { uuid: Guid([0; 16]), major: 0, minor: 0 };
        if offer.transfer_syntaxes().any(|t| t.bind_time_features().is_some()) {
            return Self { result: 3, reason: 0, transfer_syntax: NO_SYNTAX };
        }
        let known =
            |i: &SyntaxId| i.uuid == offer.abstract_syntax.uuid && i.major == offer.abstract_syntax.major;
        if !interfaces.iter().any(known) {
            return Self { result: 2, reason: 1, transfer_syntax: NO_SYNTAX };
        }
        if !offer.transfer_syntaxes().any(|t| t == SyntaxId::NDR32) {
            return Self { result: 2, reason: 2, transfer_syntax: NO_SYNTAX };
        }
        Self::ACCEPTED
    }
}

/// The body of BIND_ACK and ALTER_CONTEXT_RESP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindAck<'a> {
    /// Maximum fragment length that the server sends, in bytes.
    pub max_xmit_frag: u16,
    /// Maximum fragment length that the server receives, in bytes.
    pub max_recv_frag: u16,
    /// Association group.
    pub assoc_group_id: u32,
    /// The pipe's name, `\PIPE\srvsvc`, without terminator; empty in ALTER_CONTEXT_RESP.
    pub secondary_address: &'a [u8],
    results: &'a [u8],
}

impl<'a> BindAck<'a> {
    /// Decodes a body.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn decode(body: &'a [u8]) -> Result<Self, WireError> {
        let mut r = Reader::new(body, "RPC bind ack");
        let (max_xmit_frag, max_recv_frag, assoc_group_id) = (r.get()?, r.get()?, r.get()?);
        let len: u16 = r.get()?;
        let address = r.take(len.into())?;
        r.align(4);
        let count: u8 = r.get()?;
        r.skip(3)?;
        let results = r.take(usize::from(count) * ContextResult::LEN)?;
        let secondary_address = address.strip_suffix(&[0]).unwrap_or(address);
        Ok(Self { max_xmit_frag, max_recv_frag, assoc_group_id, secondary_address, results })
    }

    /// The responses, in the order of the offers.
    pub fn results(&self) -> impl ExactSizeIterator<Item = ContextResult> + 'a {
        self.results.chunks_exact(ContextResult::LEN).map(|c| ContextResult::decode(c).unwrap_or_default())
    }

    /// Appends a BIND_ACK or ALTER_CONTEXT_RESP.
    ///
    /// # Errors
    /// `Unencodable`.
    pub fn put(
        out: &mut Vec<u8>,
        pdu_type: PduType,
        call_id: u32,
        max_frag: u16,
        assoc_group_id: u32,
        secondary_address: &str,
        results: &[ContextResult],
    ) -> Result<(), WireError> {
        put_pdu(out, pdu_type, WHOLE, call_id, |out, start| {
            max_frag.put(out);
            max_frag.put(out);
            assoc_group_id.put(out);
            if secondary_address.is_empty() {
                0u16.put(out);
            } else {
                fit_u16(secondary_address.len() + 1, "RPC secondary address")?.put(out);
                out.extend_from_slice(secondary_address.as_bytes());
                out.push(0);
            }
            pad(out, start, 4);
            let count = u8::try_from(results.len()).map_err(|_| WireError::Unencodable {
                what: "RPC results",
                len: results.len(),
                max: 255,
            })?;
            [count, 0, 0, 0].put(out);
            results.iter().for_each(|result| result.put(out));
            Ok(())
        })
    }
}

/// Appends a BIND_NAK (C706 12.6.4.5): reason 0 not specified, 4 unsupported protocol version.
///
/// # Errors
/// Does not fail in practice.
pub fn put_bind_nak(out: &mut Vec<u8>, call_id: u32, reason: u16) -> Result<(), WireError> {
    put_pdu(out, PduType::BIND_NAK, WHOLE, call_id, |out, _| {
        reason.put(out);
        [1, 5, 0].put(out); // one version: 5.0
        Ok(())
    })
}

/// The body of a REQUEST fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// The presentation context.
    pub context_id: u16,
    /// The operation.
    pub opnum: u16,
    /// The operation's stub, or a fragment of it.
    pub stub: &'a [u8],
}

impl<'a> Request<'a> {
    /// Decodes a fragment.
    ///
    /// # Errors
    /// Malformed input from the peer.
    pub fn decode(pdu: &Pdu<'a>) -> Result<Self, WireError> {
        let mut r = Reader::new(pdu.body, "RPC request");
        r.skip(4)?; // alloc_hint: not trusted
        let (context_id, opnum) = (r.get()?, r.get()?);
        if pdu.flags.contains(PduFlags::OBJECT_UUID) {
            r.skip(16)?;
        }
        Ok(Self { context_id, opnum, stub: r.rest() })
    }
}

/// Appends a request in one fragment.
///
/// # Errors
/// `Unencodable` if the stub does not fit into one fragment; the stubs of this crate's calls are short.
pub fn put_request(
    out: &mut Vec<u8>,
    call_id: u32,
    context_id: u16,
    opnum: u16,
    stub: &[u8],
) -> Result<(), WireError> {
    put_pdu(out, PduType::REQUEST, WHOLE, call_id, |out, _| {
        (stub.len() as u32).put(out);
        context_id.put(out);
        opnum.put(out);
        out.extend_from_slice(stub);
        Ok(())
    })
}

/// Returns the stub of a RESPONSE, or its fragment.
///
/// # Errors
/// `Truncated`.
pub fn response_stub<'a>(pdu: &Pdu<'a>) -> Result<&'a [u8], WireError> {
    let mut r = Reader::new(pdu.body, "RPC response");
    r.skip(8)?;
    Ok(r.rest())
}

/// Appends a response in as many fragments as `max_frag` (the client's `max_recv_frag`) requires.
///
/// # Errors
/// `Unencodable` if the stub exceeds 4 GiB.
pub fn put_response(
    out: &mut Vec<u8>,
    call_id: u32,
    context_id: u16,
    stub: &[u8],
    max_frag: u16,
) -> Result<(), WireError> {
    crate::cursor::fit_u32(stub.len(), "RPC stub")?;
    // A multiple of 8, so that fragments keep the alignment.
    let room = (usize::from(max_frag.max(MUST_RECEIVE_FRAGMENT)) - STUB_OFFSET) & !7;
    let mut rest = stub;
    let mut flags = PduFlags::FIRST_FRAG;
    loop {
        let (fragment, more) = rest.split_at(rest.len().min(room));
        flags.set(PduFlags::LAST_FRAG, more.is_empty());
        put_pdu(out, PduType::RESPONSE, flags, call_id, |out, _| {
            (rest.len() as u32).put(out);
            context_id.put(out);
            0u16.put(out);
            out.extend_from_slice(fragment);
            Ok(())
        })?;
        if more.is_empty() {
            return Ok(());
        }
        (rest, flags) = (more, PduFlags::empty());
    }
}

/// Returns the status of a FAULT.
///
/// # Errors
/// `Truncated`.
pub fn fault_status(pdu: &Pdu<'_>) -> Result<FaultStatus, WireError> {
    let mut r = Reader::new(pdu.body, "RPC fault");
    r.skip(8)?;
    r.get()
}

/// Appends a fault for a call that was not executed.
///
/// # Errors
/// Does not fail in practice.
pub fn put_fault(
    out: &mut Vec<u8>,
    call_id: u32,
    context_id: u16,
    status: FaultStatus,
) -> Result<(), WireError> {
    put_pdu(out, PduType::FAULT, WHOLE | PduFlags::DID_NOT_EXECUTE, call_id, |out, _| {
        32u32.put(out);
        context_id.put(out);
        0u16.put(out);
        status.put(out);
        0u32.put(out);
        Ok(())
    })
}
