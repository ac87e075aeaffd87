use super::pdu::{self, BindAck, ContextResult, FaultStatus, Pdu, PduFlags, PduType};
use super::srvsvc::{self, Request, ServerInfo, ShareEnumResponse, ShareInfo, Win32, share_type};
use super::*;
use crate::WireError;

fn shares() -> [ShareInfo<'static>; 3] {
    [
        ShareInfo {
            name: "data",
            remark: "Daten für alle",
            path: "/srv/data",
            max_uses: u32::MAX,
            ..Default::default()
        },
        ShareInfo { name: "x", security_descriptor: Some(&[1, 2, 3, 4, 5]), ..Default::default() },
        ShareInfo { name: "IPC$", share_type: share_type::IPC | share_type::SPECIAL, ..Default::default() },
    ]
}

#[test]
fn a_list_of_shares_there_and_back() {
    let mut stub = Vec::new();
    srvsvc::put_share_enum_request(&mut stub, r"\\server", 1, Some(0)).unwrap();
    let mut wire = Vec::new();
    pdu::put_request(&mut wire, 3, 0, srvsvc::OP_SHARE_ENUM, &stub).unwrap();
    let frame = Pdu::decode(&wire).unwrap();
    let request = pdu::Request::decode(&frame).unwrap();
    let expected =
        Request::ShareEnum { level: 1, preferred_maximum_length: u32::MAX, resume_handle: Some(0) };
    assert_eq!(Request::decode(request.opnum, request.stub), Ok(expected));

    let mut stub = Vec::new();
    srvsvc::put_share_enum(&mut stub, 1, &shares(), 3, Some(0), Win32::SUCCESS).unwrap();
    let response = ShareEnumResponse::decode(&stub).unwrap();
    assert_eq!((response.total_entries, response.resume_handle), (3, Some(0)));
    assert_eq!(response.status, Win32::SUCCESS);
    let read: Vec<_> = response.shares().map(Result::unwrap).collect();
    assert_eq!(read.len(), 3);
    for (read, share) in read.iter().zip(shares()) {
        assert!(read.name.eq_str(share.name) && read.remark.eq_str(share.remark));
        assert_eq!(read.share_type, share.share_type);
    }
}

/// MS-SRVS 2.2.4.22 to 2.2.4.27: the bytes of one short share in each level, written by hand.
#[test]
fn levels_byte_by_byte() {
    let share = ShareInfo { name: "ab", remark: "c", path: "d", flags: 0x11, ..shares()[1] };
    let u = |values: &[u32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let string = |s: &str| {
        let len = s.len() as u32 + 1;
        let mut out = u(&[len, 0, len]);
        crate::put_str(&mut out, s);
        out.extend([0, 0]);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    };
    let names = |list: &[&str]| list.iter().flat_map(|s| string(s)).collect::<Vec<u8>>();
    let r = |n: u32| 0x0002_0000 + 4 * n;
    let descriptor = [&u(&[5])[..], &[1, 2, 3, 4, 5, 0, 0, 0]].concat();
    let cases = [
        (0, [u(&[r(2)]), names(&["ab"])].concat()),
        (1, [u(&[r(2), 0, r(3)]), names(&["ab", "c"])].concat()),
        (2, [u(&[r(2), 0, r(3), 0, 0, 0, r(4), 0]), names(&["ab", "c", "d"])].concat()),
        (501, [u(&[r(2), 0, r(3), 0x11]), names(&["ab", "c"])].concat()),
        (
            502,
            [u(&[r(2), 0, r(3), 0, 0, 0, r(4), 0, 5, r(5)]), names(&["ab", "c", "d"]), descriptor].concat(),
        ),
    ];
    for (level, entry) in cases {
        let mut out = Vec::new();
        srvsvc::put_share_enum(&mut out, level, &[share], 1, None, Win32::SUCCESS).unwrap();
        let expected = [u(&[level, level, r(0), 1, r(1), 1]), entry, u(&[1, 0, 0])].concat();
        assert_eq!(out, expected, "level {level}");
    }
    let mut out = Vec::new();
    srvsvc::put_share_enum(&mut out, 7, &[share], 0, None, Win32::INVALID_LEVEL).unwrap();
    assert_eq!(out, u(&[7, 7, 0, 0, 0, 124]));
    out.clear();
    srvsvc::put_share_get_info(&mut out, 1005, Ok(&share)).unwrap();
    assert_eq!(out, u(&[1005, r(0), 0x11, 0]));
    out.clear();
    srvsvc::put_share_get_info(&mut out, 1, Err(Win32::NERR_NET_NAME_NOT_FOUND)).unwrap();
    assert_eq!(out, u(&[1, 0, 2310]));

    let server = ServerInfo { name: "ab", comment: "c", version_major: 6, version_minor: 1, server_type: 3 };
    out.clear();
    srvsvc::put_server_get_info(&mut out, 101, &server).unwrap();
    let fixed = u(&[101, r(0), 500, r(1), 6, 1, 3, r(2)]);
    assert_eq!(out, [fixed, names(&["ab", "c"]), u(&[0])].concat());
    out.clear();
    srvsvc::put_server_get_info(&mut out, 599, &server).unwrap();
    assert_eq!(out, u(&[599, 0, 124]));

    let machine =
        wkssvc::WorkstationInfo { computer_name: "ab", domain: "c", version_major: 6, version_minor: 1 };
    out.clear();
    wkssvc::put_wksta_get_info(&mut out, 102, &machine).unwrap();
    let fixed = u(&[102, r(0), 500, r(1), r(2), 6, 1, r(3), 0]);
    assert_eq!(out, [fixed, names(&["ab", "c", ""]), u(&[0])].concat());
}

/// C706 12.6.3.3: no fragment exceeds the client's limit; the first and the last are marked.
#[test]
fn a_long_response_is_fragmented() {
    let stub: Vec<u8> = (0..10_000u32).map(|i| i as u8).collect();
    let mut wire = Vec::new();
    pdu::put_response(&mut wire, 9, 0, &stub, 4280).unwrap();
    let (mut rest, mut read, mut flags) = (&wire[..], Vec::new(), Vec::new());
    while !rest.is_empty() {
        let frame = Pdu::decode(rest).unwrap();
        assert!(frame.fragment_length <= 4280);
        assert_eq!((frame.pdu_type, frame.call_id), (PduType::RESPONSE, 9));
        read.extend_from_slice(pdu::response_stub(&frame).unwrap());
        flags.push(frame.flags);
        rest = &rest[usize::from(frame.fragment_length)..];
    }
    assert_eq!(read, stub);
    assert_eq!(flags, [PduFlags::FIRST_FRAG, PduFlags::empty(), PduFlags::LAST_FRAG]);
}

/// MS-RPCE 3.3.1.5.3: NDR64 is refused; feature negotiation is answered with no feature.
#[test]
fn presentation_contexts_are_answered_one_by_one() {
    let mut features = SyntaxId { uuid: crate::Guid([0; 16]), major: 1, minor: 0 };
    features.uuid.0[..10].copy_from_slice(&[0x2C, 0x1C, 0xB7, 0x6C, 0x12, 0x98, 0x40, 0x45, 3, 0]);
    let mut body = vec![0xB8, 0x10, 0xB8, 0x10, 0, 0, 0, 0, 4, 0, 0, 0];
    let offers = [
        (SyntaxId::SRVSVC, SyntaxId::NDR32),
        (SyntaxId::SRVSVC, SyntaxId::NDR64),
        (SyntaxId::SRVSVC, features),
        (SyntaxId::WKSSVC, SyntaxId::NDR32),
    ];
    for (i, (interface, transfer)) in offers.iter().enumerate() {
        body.extend([i as u8, 0, 1, 0]);
        interface.encode(&mut body);
        transfer.encode(&mut body);
    }
    let bind = pdu::Bind::decode(&body).unwrap();
    let answers: Vec<_> =
        bind.contexts().map(|c| ContextResult::answer(&c.unwrap(), &[SyntaxId::SRVSVC])).collect();
    let results: Vec<_> = answers.iter().map(|a| (a.result, a.reason)).collect();
    assert_eq!(results, [(0, 0), (2, 2), (3, 0), (2, 1)]);

    let mut wire = Vec::new();
    BindAck::put(&mut wire, PduType::BIND_ACK, 1, 4280, 77, r"\PIPE\srvsvc", &answers).unwrap();
    let ack = BindAck::decode(Pdu::decode(&wire).unwrap().body).unwrap();
    assert_eq!((ack.secondary_address, ack.assoc_group_id), (&br"\PIPE\srvsvc"[..], 77));
    assert!(ack.results().eq(answers));
}

#[test]
fn a_fault_says_why() {
    let mut wire = Vec::new();
    pdu::put_fault(&mut wire, 5, 0, FaultStatus::OP_RANGE_ERROR).unwrap();
    let frame = Pdu::decode(&wire).unwrap();
    assert_eq!(
        (frame.pdu_type, pdu::fault_status(&frame)),
        (PduType::FAULT, Ok(FaultStatus::OP_RANGE_ERROR))
    );
    assert_eq!(wire.len(), 32);
}

#[test]
fn an_authentication_trailer_is_not_part_of_the_stub() {
    let mut wire = Vec::new();
    pdu::put_request(&mut wire, 1, 0, 15, b"stubpad!").unwrap();
    wire.extend([10, 6, 4, 0, 0, 0, 0, 0]); // type, level, padding 4, reserved, context id
    wire.extend(b"token");
    let len = wire.len() as u16;
    wire[8..10].copy_from_slice(&len.to_le_bytes());
    wire[10..12].copy_from_slice(&5u16.to_le_bytes());
    let frame = Pdu::decode(&wire).unwrap();
    assert_eq!(pdu::Request::decode(&frame).unwrap().stub, b"stub");
    wire[10..12].copy_from_slice(&5000u16.to_le_bytes());
    assert!(Pdu::decode(&wire).is_err());
}

#[test]
fn part_of_a_pdu_is_truncated_not_malformed() {
    let mut wire = Vec::new();
    pdu::put_bind(&mut wire, 1, 4280, SyntaxId::SRVSVC).unwrap();
    for len in 0..wire.len() {
        assert!(matches!(Pdu::decode(&wire[..len]), Err(WireError::Truncated { .. })), "{len}");
    }
    assert!(Pdu::decode(&wire).is_ok());
}
