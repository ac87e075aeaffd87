//! Listing shares: requests of the `smb2` crate's client, responses of this crate's server.

use proptest::collection::vec;
use proptest::prelude::*;
use smb_wire::rpc::SyntaxId;
use smb_wire::rpc::pdu::{self, Bind, BindAck, ContextResult, Pdu, PduType};
use smb_wire::rpc::srvsvc::{self, Request, ShareInfo, Win32};
use smb2::rpc as theirs;

#[test]
fn bind() {
    let bytes = theirs::build_srvsvc_bind(7);
    let frame = Pdu::decode(&bytes).unwrap();
    assert_eq!((frame.pdu_type, frame.call_id), (PduType::BIND, 7));
    let bind = Bind::decode(frame.body).unwrap();
    let answers: Vec<_> =
        bind.contexts().map(|c| ContextResult::answer(&c.unwrap(), &[SyntaxId::SRVSVC])).collect();
    assert!(answers.contains(&ContextResult::ACCEPTED));
    let mut out = Vec::new();
    BindAck::put(&mut out, PduType::BIND_ACK, 7, 4280, 1, r"\PIPE\srvsvc", &answers).unwrap();
    theirs::parse_bind_ack(&out).unwrap();

    let refused: Vec<_> =
        bind.contexts().map(|c| ContextResult::answer(&c.unwrap(), &[SyntaxId::WKSSVC])).collect();
    out.clear();
    BindAck::put(&mut out, PduType::BIND_ACK, 7, 4280, 1, r"\PIPE\srvsvc", &refused).unwrap();
    assert!(theirs::parse_bind_ack(&out).is_err());
}

proptest! {
    #[test]
    fn share_enum(server in "[a-z0-9.]{1,20}", shares in vec(("[A-Za-z$]{1,12}", 0u32..4, "\\PC{0,20}"), 0..8)) {
        let bytes = theirs::srvsvc::build_net_share_enum_all(3, &server);
        let frame = Pdu::decode(&bytes).unwrap();
        let request = pdu::Request::decode(&frame).unwrap();
        let decoded = Request::decode(request.opnum, request.stub).unwrap();
        let Request::ShareEnum { level: 1, resume_handle, .. } = decoded else {
            panic!("{decoded:?}");
        };

        let infos: Vec<_> = shares
            .iter()
            .map(|(name, kind, remark)| ShareInfo { name, share_type: *kind, remark, ..Default::default() })
            .collect();
        let mut stub = Vec::new();
        let total = infos.len() as u32;
        srvsvc::put_share_enum(&mut stub, 1, &infos, total, resume_handle, Win32::SUCCESS).unwrap();
        let mut out = Vec::new();
        pdu::put_response(&mut out, frame.call_id, request.context_id, &stub, 4280).unwrap();
        let read = theirs::srvsvc::parse_net_share_enum_all_response(&out).unwrap();
        let read: Vec<_> = read.into_iter().map(|s| (s.name, s.share_type, s.comment)).collect();
        prop_assert_eq!(read, shares);
    }
}
