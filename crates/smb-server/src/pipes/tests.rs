use smb_wire::msg::EchoRequest;
use smb_wire::rpc::ndr::NdrWriter;
use smb_wire::rpc::pdu::{BindAck, fault_status, put_bind, put_request, response_stub};
use smb_wire::rpc::srvsvc::{OP_SHARE_ENUM, ShareEnumResponse, Win32, put_share_enum_request};

use super::*;
use crate::commands::tests::{World, user};

mod names;
mod sessions;

fn bound(server: &Arc<Server>) -> Pipe {
    bound_to(server, "SrvSvc", SyntaxId::SRVSVC, &user(1000))
}

/// A pipe on which the interface is bound.
fn bound_to(server: &Arc<Server>, name: &str, interface: SyntaxId, caller: &User) -> Pipe {
    let pipe = Pipe::open(server, name, caller).expect("exists");
    let mut bind = Vec::new();
    put_bind(&mut bind, 1, 4280, interface).expect("fits");
    let (answer, more) = exchange(&pipe, &bind, 4096).expect("answered");
    let pdu = Pdu::decode(&answer).expect("a PDU");
    assert_eq!((pdu.pdu_type, more), (PduType::BIND_ACK, false));
    let ack = BindAck::decode(pdu.body).expect("well-formed");
    assert!(ack.results().all(|r| r == ContextResult::ACCEPTED));
    pipe
}

/// A call: the stub of its answer, from as many fragments as it has.
fn call(pipe: &Pipe, opnum: u16, stub: &[u8]) -> Result<Vec<u8>, FaultStatus> {
    let mut request = Vec::new();
    put_request(&mut request, 7, 0, opnum, stub).expect("fits");
    pipe.write(&request).expect("taken");
    let mut answer = Vec::new();
    while let Ok((message, false)) = pipe.try_read(usize::from(FRAGMENT_MAX)) {
        let pdu = Pdu::decode(&message).expect("a PDU");
        if pdu.pdu_type == PduType::FAULT {
            return Err(fault_status(&pdu).expect("a fault"));
        }
        answer.extend_from_slice(response_stub(&pdu).expect("a response"));
    }
    Ok(answer)
}

/// A stub.
fn stub(fill: impl FnOnce(&mut NdrWriter<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    fill(&mut NdrWriter::new(&mut out));
    out
}

/// The status at the end of an answer.
fn status(answer: &[u8]) -> u32 {
    u32::from_le_bytes(*answer.last_chunk().expect("a status"))
}

/// Writes a message and reads the answer.
fn exchange(pipe: &Pipe, message: &[u8], max: usize) -> Result<(Vec<u8>, bool), NtStatus> {
    pipe.write(message)?;
    pipe.try_read(max)
}

fn share_enum() -> Vec<u8> {
    let (mut stub, mut call) = (Vec::new(), Vec::new());
    put_share_enum_request(&mut stub, "\\\\TEST", 1, None).expect("fits");
    put_request(&mut call, 2, 0, OP_SHARE_ENUM, &stub).expect("fits");
    call
}

#[tokio::test(start_paused = true)]
async fn shares_are_listed() {
    let w = World::new();
    let pipe = bound(&w.server);
    let (answer, _) = exchange(&pipe, &share_enum(), 4096).expect("answered");
    let stub = response_stub(&Pdu::decode(&answer).expect("a PDU")).expect("a response");
    let list = ShareEnumResponse::decode(stub).expect("well-formed");
    let names: Vec<_> = list.shares().map(|s| s.expect("well-formed").name.to_string_lossy()).collect();
    assert_eq!((names, list.status), (vec!["IPC$".to_owned(), "files".to_owned()], Win32::SUCCESS));
    assert!(Pipe::open(&w.server, "spoolss", &user(1000)).is_none());
}

// The rest of a message that does not fit stays readable; a request written in pieces is reassembled; an earlier answer
// must be read first.
#[tokio::test(start_paused = true)]
async fn messages_in_pieces() {
    let w = World::new();
    let pipe = bound(&w.server);
    let call = share_enum();
    let (head, tail) = call.split_at(10);
    assert_eq!(pipe.write(head), Ok(10));
    assert_eq!(pipe.try_read(10), Err(NtStatus::PIPE_EMPTY));
    pipe.write(tail).expect("the rest");
    assert_eq!(
        pipe.transceive(&w.request(&EchoRequest {}), &call, 10).await.err(),
        Some(NtStatus::PIPE_BUSY)
    );
    let total = pipe.peek().first;
    let (first, more) = pipe.try_read(7).expect("the beginning");
    assert!(more && first.len() == 7);
    let (rest, more) = pipe.try_read(4096).expect("the rest");
    assert!(!more && rest.len() == total - 7);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_done() {
    let w = World::new();
    let pipe = bound(&w.server);
    for (context, opnum, stub, status) in [
        (0, 200, &[][..], FaultStatus::OP_RANGE_ERROR),
        (0, OP_SHARE_ENUM, &[1, 2, 3][..], FaultStatus::BAD_STUB_DATA),
        (7, OP_SHARE_ENUM, &[][..], FaultStatus::UNKNOWN_INTERFACE),
    ] {
        let mut call = Vec::new();
        put_request(&mut call, 3, context, opnum, stub).expect("fits");
        let (answer, _) = exchange(&pipe, &call, 4096).expect("answered");
        assert_eq!(fault_status(&Pdu::decode(&answer).expect("a PDU")).expect("a fault"), status);
    }
    assert_eq!(pipe.write(b"this is no PDU of anything, surely"), Err(NtStatus::PIPE_DISCONNECTED));
    assert_eq!(pipe.write(&share_enum()), Err(NtStatus::PIPE_DISCONNECTED));
    assert_eq!(pipe.try_read(1), Err(NtStatus::PIPE_DISCONNECTED));
}

// Memory is bounded whatever a client sends: fragments without end, a PDU that is too long, answers that the client
// does not read.
#[tokio::test(start_paused = true)]
async fn bounds() {
    let w = World::new();
    let pipe = bound(&w.server);
    let mut fragment = Vec::new();
    put_request(&mut fragment, 4, 0, OP_SHARE_ENUM, &[0; 4000]).expect("fits");
    fragment[3] = PduFlags::FIRST_FRAG.bits();
    pipe.write(&fragment).expect("taken");
    fragment[3] = 0;
    let fault = (0..2 * STUB_MAX / 4000).find_map(|_| {
        pipe.write(&fragment).expect("taken");
        pipe.try_read(4096).ok()
    });
    let (fault, _) = fault.expect("refused at some point");
    assert_eq!(
        fault_status(&Pdu::decode(&fault).expect("a PDU")).expect("a fault"),
        FaultStatus::BAD_STUB_DATA
    );
    let unread = bound(&w.server);
    let call = share_enum();
    let refused = (0..OUTPUT_MAX).find_map(|_| unread.write(&call).err());
    assert_eq!(refused, Some(NtStatus::INSUFFICIENT_RESOURCES));
    let mut long = call;
    long[8..10].copy_from_slice(&(FRAGMENT_MAX + 1).to_le_bytes());
    assert_eq!(pipe.write(&long[..20]), Err(NtStatus::PIPE_DISCONNECTED));
}

// MS-SMB2 3.3.4.2, 3.3.5.12: a read of an empty pipe waits, with an interim response, for a message, a cancel or the
// close of the pipe.
#[tokio::test(start_paused = true)]
async fn reads_wait() {
    let w = World::new();
    let pipe = bound(&w.server);
    let r = w.request(&EchoRequest {});
    let call = share_enum();
    let (read, ()) = tokio::join!(pipe.read(&r, 4096), async {
        tokio::task::yield_now().await;
        assert_eq!(r.pending.inbox.take_pending().len(), 1, "announced once");
        pipe.write(&call[..10]).expect("a part");
        tokio::task::yield_now().await;
        pipe.write(&call[10..]).expect("the rest");
    });
    assert!(read.is_ok());
    assert!(r.pending.inbox.take_pending().is_empty(), "announced once");
    let (read, ()) = tokio::join!(pipe.read(&r, 4096), async { r.cancel.cancel() });
    assert_eq!(read.err(), Some(NtStatus::CANCELLED));
    let r = w.request(&EchoRequest {});
    let (read, ()) = tokio::join!(pipe.read(&r, 4096), async { pipe.close() });
    assert_eq!(read.err(), Some(NtStatus::PIPE_BROKEN));
}
