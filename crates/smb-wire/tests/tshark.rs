//! An independent decoder checks the codec's output: the test writes a conversation as a capture, and tshark must
//! identify every packet and report none as malformed.

use std::path::Path;
use std::process::Command as Process;

use smb_wire::context::*;
use smb_wire::fscc::notify::{Change, ChangeList, NotifyAction};
use smb_wire::fscc::*;
use smb_wire::ioctl::*;
use smb_wire::msg::*;
use smb_wire::rpc::{ContextHandle, SidNameUse, SyntaxId, lsarpc, ndr::NdrWriter, pdu, samr, srvsvc, wkssvc};
use smb_wire::security::{Ace, AceFlags, AceType, AclBuf, SecurityDescriptorBuf, Sid};
use smb_wire::*;

/// A capture of one TCP connection to port 445, in libpcap's classic format with raw IP packets.
struct Conversation {
    capture: Vec<u8>,
    sequence: [u32; 2],
    message_id: u64,
}

impl Conversation {
    fn new() -> Self {
        let words = [0xA1B2_C3D4u32, 0x0004_0002, 0, 0, 0x4_0000, 101];
        Self {
            capture: words.iter().flat_map(|w| w.to_le_bytes()).collect(),
            sequence: [1, 1],
            message_id: 0,
        }
    }

    fn packet(&mut self, from_client: bool, message: &[u8]) {
        let (ports, hosts, own) = match from_client {
            true => ([50_000u16, 445], [[10, 0, 0, 1], [10, 0, 0, 2]], 0),
            false => ([445, 50_000], [[10, 0, 0, 2], [10, 0, 0, 1]], 1),
        };
        let mut tcp: Vec<u8> = ports.iter().flat_map(|p| p.to_be_bytes()).collect();
        tcp.extend(self.sequence[own].to_be_bytes());
        tcp.extend(self.sequence[1 - own].to_be_bytes());
        tcp.extend([0x50, 0x18, 0xFF, 0xFF, 0, 0, 0, 0]);
        tcp.extend(frame::encode(message.len()).unwrap());
        tcp.extend(message);
        self.sequence[own] += (tcp.len() - 20) as u32;
        let len = 20 + tcp.len();
        self.capture.extend([0; 8]);
        self.capture.extend((len as u32).to_le_bytes().repeat(2));
        self.capture.extend([0x45, 0]);
        self.capture.extend((len as u16).to_be_bytes());
        self.capture.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        self.capture.extend(hosts.concat());
        self.capture.extend(tcp);
    }

    fn exchange(&mut self, command: Command, request: &dyn Encode, response: &dyn Encode) {
        self.exchange_with(command, request, response, NtStatus::SUCCESS);
    }

    fn exchange_with(
        &mut self,
        command: Command,
        request: &dyn Encode,
        response: &dyn Encode,
        status: NtStatus,
    ) {
        let message_id = self.message_id;
        self.message_id += 1;
        let header =
            Header { command, message_id, credits: 1, tree_id: 5, session_id: 7, ..Header::default() };
        let reply = header.response(status, 1);
        for (from_client, header, body) in [(true, header, request), (false, reply, response)] {
            let mut out = Vec::new();
            let mut m = MessageBuilder::new(&mut out);
            m.push(&header, body).unwrap();
            m.finish();
            self.packet(from_client, &out);
        }
    }

    fn ioctl(&mut self, ctl_code: FsctlCode, file_id: FileId, input: &[u8], output: &[u8]) {
        let max_output_response = 65_536;
        let flags = IoctlFlags::IS_FSCTL;
        let request =
            IoctlRequest { ctl_code, file_id, input, max_output_response, flags, ..Default::default() };
        self.exchange(
            Command::IOCTL,
            &request,
            &IoctlResponse { ctl_code, file_id, output, ..Default::default() },
        );
    }

    /// Adds a call on a pipe and its response.
    fn call(&mut self, pipe: FileId, opnum: u16, request: &[u8], response: &[u8]) {
        let call_id = self.message_id as u32;
        let (mut input, mut output) = (Vec::new(), Vec::new());
        pdu::put_request(&mut input, call_id, 0, opnum, request).unwrap();
        pdu::put_response(&mut output, call_id, 0, response, 4280).unwrap();
        self.ioctl(FsctlCode::PIPE_TRANSCEIVE, pipe, &input, &output);
    }

    fn open_pipe(&mut self, name: &str, file_id: FileId, interface: SyntaxId) {
        let wide = Utf16Buf::from(name);
        let request = CreateRequest { name: wide.as_utf16(), ..Default::default() };
        self.exchange(Command::CREATE, &request, &CreateResponse { file_id, ..Default::default() });
        let (mut bind, mut ack) = (Vec::new(), Vec::new());
        pdu::put_bind(&mut bind, 1, 4280, interface).unwrap();
        let address = format!(r"\PIPE\{name}");
        let accepted = [pdu::ContextResult::ACCEPTED];
        pdu::BindAck::put(&mut ack, pdu::PduType::BIND_ACK, 1, 4280, 5, &address, &accepted).unwrap();
        self.ioctl(FsctlCode::PIPE_TRANSCEIVE, file_id, &bind, &ack);
    }

    fn query(&mut self, info_type: InfoType, info_class: u8, fill: impl FnOnce(&mut Vec<u8>)) {
        let mut buffer = Vec::new();
        fill(&mut buffer);
        let request = QueryInfoRequest {
            info_type,
            info_class,
            output_buffer_length: 9999,
            additional_information: SecurityInformation::OWNER | SecurityInformation::DACL,
            file_id: FILE,
            ..Default::default()
        };
        self.exchange(Command::QUERY_INFO, &request, &QueryInfoResponse { buffer: &buffer });
    }

    /// Returns tshark's summary line of each packet, after a check that no packet is malformed; `None` if tshark is
    /// missing.
    fn dissected(&self, name: &str) -> Option<Vec<String>> {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&path, &self.capture).unwrap();
        let tshark = |arguments: &[&str]| {
            let output = Process::new("tshark").arg("-r").arg(&path).args(arguments).output().ok()?;
            let complaint = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "tshark: {complaint}");
            Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect::<Vec<_>>())
        };
        let Some(lines) = tshark(&["-T", "fields", "-e", "_ws.col.Info"]) else {
            eprintln!("SKIPPED: tshark is not installed, so no other program parses our output");
            return None;
        };
        let bad = tshark(&["-Y", "_ws.malformed || _ws.expert.severity >= 6291456"]).unwrap();
        let version = tshark(&["--version"]).unwrap().concat();
        let bad: Vec<String> = bad.into_iter().filter(|line| !is_tsharks_fault(&version, line)).collect();
        assert!(bad.is_empty(), "malformed:\n{}", bad.join("\n"));
        Some(lines)
    }
}

/// TShark 4.2 to 4.4 reports these as malformed even if Samba sends them; 4.0 does not. Every version parses only
/// the count in a SamrLookupIdsInDomain request, even in rpcclient's.
fn is_tsharks_fault(version: &str, line: &str) -> bool {
    let line = |words: [&str; 3]| words.iter().all(|w| line.contains(w));
    if line(["SAMR", "LookupRids request", "[Long frame"]) {
        return true;
    }
    ["4.2.", "4.4."].iter().any(|v| version.contains(&format!("(Wireshark) {v}")))
        && (line(["SRVSVC", "NetShare", "response[Malformed Packet]"])
            || line(["WKSSVC", "NetWkstaGetInfo request", "[Long frame"]))
}

const FILE: FileId = FileId { persistent: 1, volatile: 2 };
const KEY: Guid = Guid([9; 16]);

fn descriptor() -> Vec<u8> {
    let mut dacl = AclBuf::new();
    dacl.push(&Ace::new(
        AceType::ACCESS_ALLOWED,
        AceFlags::empty(),
        AccessMask::FILE_ALL_ACCESS,
        Sid::EVERYONE,
    ))
    .unwrap();
    let (owner, group) = (Some(Sid::BUILTIN_ADMINISTRATORS), Some(Sid::BUILTIN_USERS));
    let mut out = Vec::new();
    SecurityDescriptorBuf { owner, group, dacl: Some(dacl), ..Default::default() }.encode(&mut out);
    out
}

/// TShark 4.4 doubles backslashes in this column; older versions do not.
fn has(lines: &[String], wanted: &[(usize, &str)]) {
    let single = |text: &str| text.replace(r"\\", r"\");
    for (at, text) in wanted {
        assert!(single(&lines[*at]).contains(&single(text)), "line {at}: {:?} has not {text:?}", lines[*at]);
    }
}

#[test]
fn contexts() {
    let mut c = Conversation::new();
    let mut contexts = NegotiateContextsBuf::new();
    contexts
        .preauth(&[HashAlgorithm::SHA_512], &[7; 32])
        .and_then(|c| c.encryption(&[Cipher::AES_128_GCM, Cipher::AES_256_CCM]))
        .and_then(|c| c.compression(CompressionFlags::CHAINED, &[CompressionAlgorithm::LZ77]))
        .and_then(|c| c.net_name("server"))
        .and_then(|c| c.transport(TransportFlags::ACCEPT_TRANSPORT_LEVEL_SECURITY))
        .and_then(|c| c.rdma_transform(&[RdmaTransform::ENCRYPTION]))
        .and_then(|c| c.signing(&[SigningAlgorithm::AES_GMAC]))
        .unwrap();
    let (dialects, contexts) = (Dialects::all(), contexts.as_contexts());
    let request = NegotiateRequest { dialects, contexts, ..Default::default() };
    let response = NegotiateResponse { dialect: Dialect::SMB_3_1_1, contexts, ..Default::default() };
    c.exchange(Command::NEGOTIATE, &request, &response);

    use CreateRequestContext as Q;
    use CreateResponseContext as R;
    let lease = Lease { key: KEY, state: LeaseState::READ_CACHING, ..Default::default() };
    let lease_v2 = Lease { v2: Some(LeaseV2::default()), ..lease };
    let mut asked = CreateContextsBuf::new();
    for context in [
        Q::Durable,
        Q::DurableReconnect(FILE),
        Q::AllocationSize(4096),
        Q::MaximalAccess(None),
        Q::MaximalAccess(Some(FileTime(5))),
        Q::QueryOnDiskId,
        Q::Lease(lease),
        Q::Lease(lease_v2),
        Q::DurableV2(DurableRequestV2 { timeout_ms: 5, flags: DurableFlags::PERSISTENT, create_guid: KEY }),
        Q::DurableReconnectV2(DurableReconnectV2 {
            file_id: FILE,
            create_guid: KEY,
            flags: DurableFlags::empty(),
        }),
        Q::AppInstanceId(KEY),
        Q::SecurityDescriptor(&descriptor()),
    ] {
        asked.request(&context).unwrap();
    }
    let mut given = CreateContextsBuf::new();
    for context in [
        R::MaximalAccess(MaximalAccess {
            query_status: NtStatus::SUCCESS,
            access: AccessMask::FILE_ALL_ACCESS,
        }),
        R::OnDiskId(DiskId { disk_file_id: 3, volume_id: 4 }),
        R::Lease(lease),
        R::Lease(lease_v2),
        R::DurableV2(DurableResponseV2 { timeout_ms: 1, flags: DurableFlags::empty() }),
        R::Durable,
    ] {
        given.response(&context).unwrap();
    }
    let name = Utf16Buf::from(r"dir\file");
    let request =
        CreateRequest { name: name.as_utf16(), contexts: asked.as_contexts(), ..Default::default() };
    let response = CreateResponse { file_id: FILE, contexts: given.as_contexts(), ..Default::default() };
    c.exchange(Command::CREATE, &request, &response);

    let link =
        SymlinkReparse { substitute_name: name.as_utf16(), print_name: name.as_utf16(), relative: true };
    let (mut data, mut contexts) = (Vec::new(), Vec::new());
    SymlinkError { unparsed_path_length: 0, link }.encode(&mut data).unwrap();
    RawErrorContext { id: ErrorId::DEFAULT, data: &data }.encode(&mut contexts, 0).unwrap();
    let error = ErrorResponse { context_count: 1, data: &contexts };
    c.exchange_with(Command::CREATE, &request, &error, NtStatus::STOPPED_ON_SYMLINK);

    let Some(lines) = c.dissected("contexts.pcap") else { return };
    let wanted = [
        (0, "Negotiate Protocol Request"),
        (2, r"dir\file"),
        (3, "Create Response"),
        (5, "STATUS_STOPPED_ON_SYMLINK"),
    ];
    has(&lines, &wanted);
}

#[test]
fn remote_procedure_calls() {
    let mut c = Conversation::new();
    let path = Utf16Buf::from(r"\\server\IPC$");
    let request = TreeConnectRequest { path: path.as_utf16(), ..Default::default() };
    let response = TreeConnectResponse { share_type: ShareType::PIPE, ..Default::default() };
    c.exchange(Command::TREE_CONNECT, &request, &response);

    let pipe = FileId { persistent: 3, volatile: 4 };
    c.open_pipe("srvsvc", pipe, SyntaxId::SRVSVC);
    let sd = descriptor();
    let share = srvsvc::ShareInfo {
        name: "data",
        remark: "what it is",
        path: "/srv",
        security_descriptor: Some(&sd),
        ..Default::default()
    };
    let shares = [share, srvsvc::ShareInfo { name: "IPC$", share_type: 0x8000_0003, ..Default::default() }];
    for level in [0, 1, 2, 501, 502] {
        let (mut asked, mut given) = (Vec::new(), Vec::new());
        srvsvc::put_share_enum_request(&mut asked, r"\\server", level, Some(0)).unwrap();
        srvsvc::put_share_enum(&mut given, level, &shares, 2, Some(0), srvsvc::Win32::SUCCESS).unwrap();
        c.call(pipe, srvsvc::OP_SHARE_ENUM, &asked, &given);
    }
    for level in [0, 1, 2, 501, 502, 1005] {
        let (mut asked, mut given) = (Vec::new(), Vec::new());
        let mut w = NdrWriter::new(&mut asked);
        w.unique_string(Some(r"\\server")).and_then(|()| w.string("data")).unwrap();
        w.u32(level);
        srvsvc::put_share_get_info(&mut given, level, Ok(&share)).unwrap();
        c.call(pipe, srvsvc::OP_SHARE_GET_INFO, &asked, &given);
    }
    let server =
        srvsvc::ServerInfo { name: "server", version_major: 6, server_type: 3, ..Default::default() };
    let machine = wkssvc::WorkstationInfo { computer_name: "server", domain: "GROUP", ..Default::default() };
    let other = FileId { persistent: 5, volatile: 6 };
    c.open_pipe("wkssvc", other, SyntaxId::WKSSVC);
    for level in [100, 101, 102] {
        let (mut asked, mut given) = (Vec::new(), Vec::new());
        let mut w = NdrWriter::new(&mut asked);
        w.unique_string(Some(r"\\server")).unwrap();
        w.u32(level);
        srvsvc::put_server_get_info(&mut given, level, &server).unwrap();
        c.call(pipe, srvsvc::OP_SERVER_GET_INFO, &asked, &given);
        given.clear();
        wkssvc::put_wksta_get_info(&mut given, level, &machine).unwrap();
        c.call(other, wkssvc::OP_WKSTA_GET_INFO, &asked, &given);
    }

    let Some(lines) = c.dissected("rpc.pcap") else { return };
    for (text, count) in [
        ("NetShareEnumAll request", 5),
        ("NetShareEnumAll response", 5),
        ("NetShareGetInfo response", 6),
        ("NetSrvGetInfo response", 3),
        ("NetWkstaGetInfo response", 3),
        ("1 results: Acceptance", 2),
    ] {
        assert_eq!(lines.iter().filter(|l| l.contains(text)).count(), count, "{text}: {lines:#?}");
    }
}

/// Builds a request stub.
fn stub(fill: impl FnOnce(&mut NdrWriter<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    fill(&mut NdrWriter::new(&mut out));
    out
}

/// Builds a response stub.
fn answer(fill: impl FnOnce(&mut Vec<u8>) -> Result<(), WireError>) -> Vec<u8> {
    let mut out = Vec::new();
    fill(&mut out).unwrap();
    out
}

const HANDLE: ContextHandle = ContextHandle { attributes: 0, uuid: Guid([7; 16]) };

#[test]
fn sessions_and_the_clock() {
    let mut c = Conversation::new();
    let pipe = FileId { persistent: 3, volatile: 4 };
    c.open_pipe("srvsvc", pipe, SyntaxId::SRVSVC);
    let (user, client) = ("alice".to_owned(), r"\\10.0.0.1".to_owned());
    let ask = |strings: usize, level: u32| {
        stub(|w| {
            w.unique_string(Some(r"\\server")).unwrap();
            (0..strings).for_each(|_| w.unique_string(Some("files")).unwrap());
            w.u32(level);
            w.u32(level);
            w.pointer(true);
            w.u32(0);
            w.pointer(false);
            w.u32(u32::MAX);
            w.pointer(false);
        })
    };
    let ok = srvsvc::Win32::SUCCESS;
    let session = srvsvc::SessionEntry {
        client: client.clone(),
        user: user.clone(),
        opens: 3,
        age_s: 60,
        ..Default::default()
    };
    for level in [0, 1, 2, 10, 502] {
        let entries = [session.clone(), session.clone()];
        let given = answer(|out| srvsvc::put_entries(out, level, &entries, 2, None, ok));
        c.call(pipe, srvsvc::OP_SESSION_ENUM, &ask(2, level), &given);
    }
    let file = srvsvc::FileEntry {
        id: 9,
        permissions: 3,
        locks: 1,
        path: r"files\a".to_owned(),
        user: user.clone(),
    };
    for level in [2, 3] {
        let given = answer(|out| srvsvc::put_entries(out, level, std::slice::from_ref(&file), 1, None, ok));
        c.call(pipe, srvsvc::OP_FILE_ENUM, &ask(2, level), &given);
    }
    let tree = srvsvc::ConnectionEntry { id: 4, opens: 1, user, net_name: client, ..Default::default() };
    for level in [0, 1] {
        let given = answer(|out| srvsvc::put_entries(out, level, std::slice::from_ref(&tree), 1, None, ok));
        c.call(pipe, srvsvc::OP_CONNECTION_ENUM, &ask(1, level), &given);
    }
    let (mut given, asked) = (Vec::new(), stub(|w| w.pointer(false)));
    let (now, up) = (std::time::Duration::from_secs(1_700_000_000), std::time::Duration::from_secs(5));
    srvsvc::put_time_of_day(&mut given, now, up);
    c.call(pipe, srvsvc::OP_REMOTE_TOD, &asked, &given);
    let Some(lines) = c.dissected("sessions.pcap") else { return };
    for (text, count) in [
        ("NetSessEnum response", 5),
        ("NetFileEnum response", 2),
        ("NetConnEnum response", 2),
        ("NetRemoteTOD response", 1),
    ] {
        assert_eq!(lines.iter().filter(|l| l.contains(text)).count(), count, "{text}: {lines:#?}");
    }
}

#[test]
fn names_of_sids() {
    let mut c = Conversation::new();
    let pipe = FileId { persistent: 3, volatile: 4 };
    c.open_pipe("lsarpc", pipe, SyntaxId::LSARPC);
    let asked = stub(|w| {
        w.unique_string(Some(r"\\server")).unwrap();
        (0..6).for_each(|_| w.u32(0));
        w.u32(0x0200_0000);
    });
    let mut given = Vec::new();
    lsarpc::put_handle(&mut given, HANDLE, NtStatus::SUCCESS);
    c.call(pipe, lsarpc::OP_OPEN_POLICY_2, &asked, &given);

    let machine: Sid = "S-1-5-21-1-2-3".parse().unwrap();
    let alice: Sid = "S-1-5-21-1-2-3-1000".parse().unwrap();
    let domain = lsarpc::PolicyInformation::Domain { name: "SERVER", sid: Some(machine) };
    let role = lsarpc::PolicyInformation::ServerRole(3);
    let dns = lsarpc::PolicyInformation::DnsDomain { name: "GROUP" };
    for (class, information) in
        [(3, Ok(domain)), (5, Ok(domain)), (6, Ok(role)), (12, Ok(dns)), (2, Err(NtStatus::ACCESS_DENIED))]
    {
        let asked = stub(|w| {
            w.handle(HANDLE);
            w.u16(class);
        });
        let given = answer(|out| lsarpc::put_policy_information(out, class, information));
        c.call(pipe, lsarpc::OP_QUERY_INFORMATION_POLICY_2, &asked, &given);
    }
    let domains = [
        lsarpc::ReferencedDomain { name: "SERVER", sid: machine },
        lsarpc::ReferencedDomain { name: "BUILTIN", sid: "S-1-5-32".parse().unwrap() },
    ];
    let some = NtStatus::SOME_NOT_MAPPED;
    let names = [
        lsarpc::TranslatedName { usage: SidNameUse::USER, name: "alice", domain: Some(0) },
        lsarpc::TranslatedName { usage: SidNameUse::ALIAS, name: "Users", domain: Some(1) },
        lsarpc::TranslatedName { usage: SidNameUse::UNKNOWN, name: "", domain: None },
    ];
    for opnum in [lsarpc::OP_LOOKUP_SIDS, lsarpc::OP_LOOKUP_SIDS_2] {
        let asked = stub(|w| {
            w.handle(HANDLE);
            w.sid_array(&[alice, Sid::BUILTIN_USERS, Sid::EVERYONE]).unwrap();
            w.u32(0);
            w.pointer(false);
            w.u16(1);
            (0..if opnum == lsarpc::OP_LOOKUP_SIDS { 1 } else { 3 }).for_each(|_| w.u32(0));
        });
        let given = answer(|out| lsarpc::put_lookup_sids(out, opnum, &domains, &names, some));
        c.call(pipe, opnum, &asked, &given);
    }
    let sids = [
        lsarpc::TranslatedSid { usage: SidNameUse::USER, sid: Some(alice), domain: Some(0) },
        lsarpc::TranslatedSid { usage: SidNameUse::UNKNOWN, sid: None, domain: None },
    ];
    for opnum in [lsarpc::OP_LOOKUP_NAMES, lsarpc::OP_LOOKUP_NAMES_2, lsarpc::OP_LOOKUP_NAMES_3] {
        let asked = stub(|w| {
            w.handle(HANDLE);
            w.u32(2);
            w.u32(2);
            ["alice", "nobody"].iter().for_each(|s| w.string_header(s).unwrap());
            ["alice", "nobody"].iter().for_each(|s| w.string_buffer(s).unwrap());
            w.u32(0);
            w.pointer(false);
            w.u16(1);
            (0..if opnum == lsarpc::OP_LOOKUP_NAMES { 1 } else { 3 }).for_each(|_| w.u32(0));
        });
        let given = answer(|out| lsarpc::put_lookup_names(out, opnum, &domains, &sids, some));
        c.call(pipe, opnum, &asked, &given);
    }
    let asked = stub(|w| {
        w.handle(HANDLE);
        w.u32(0);
        w.u32(8192);
    });
    let given = answer(|out| lsarpc::put_accounts(out, 2, &[Sid::EVERYONE, alice], NtStatus::SUCCESS));
    c.call(pipe, lsarpc::OP_ENUMERATE_ACCOUNTS, &asked, &given);
    let asked = stub(|w| {
        w.pointer(false);
        w.pointer(false);
        w.pointer(true);
        w.pointer(false);
    });
    let given = answer(|out| lsarpc::put_user_name(out, "alice", Some("SERVER")));
    c.call(pipe, lsarpc::OP_GET_USER_NAME, &asked, &given);
    let Some(lines) = c.dissected("lsarpc.pcap") else { return };
    for (text, count) in [
        ("lsa_OpenPolicy2 response", 1),
        ("lsa_QueryInfoPolicy2 response", 5),
        ("lsa_LookupSids response", 1),
        ("lsa_LookupSids2 response", 1),
        ("lsa_LookupNames response", 1),
        ("lsa_LookupNames2 response", 1),
        ("lsa_LookupNames3 response", 1),
        ("lsa_EnumAccounts response", 1),
        ("lsa_GetUserName response", 1),
    ] {
        assert_eq!(lines.iter().filter(|l| l.contains(text)).count(), count, "{text}: {lines:#?}");
    }
}

#[test]
fn accounts() {
    let mut c = Conversation::new();
    let pipe = FileId { persistent: 3, volatile: 4 };
    c.open_pipe("samr", pipe, SyntaxId::SAMR);
    let ok = NtStatus::SUCCESS;
    let with = |values: &[u32]| {
        stub(|w| {
            w.handle(HANDLE);
            values.iter().for_each(|v| w.u32(*v));
        })
    };
    let class_of = |class: u16| {
        stub(|w| {
            w.handle(HANDLE);
            w.u16(class);
        })
    };
    let asked = stub(|w| {
        w.pointer(false);
        [0x0200_0000, 1, 1, 3, 0].iter().for_each(|v| w.u32(*v));
    });
    let mut given = Vec::new();
    samr::put_connect_5(&mut given, HANDLE, ok);
    c.call(pipe, samr::OP_CONNECT_5, &asked, &given);
    let entries = [samr::Entry { id: 1000, name: "alice" }, samr::Entry { id: 1001, name: "bob" }];
    for (opnum, values) in [
        (samr::OP_ENUMERATE_DOMAINS, &[0, 1000][..]),
        (samr::OP_ENUMERATE_USERS, &[0, 0, 1000]),
        (samr::OP_ENUMERATE_GROUPS, &[0, 1000]),
        (samr::OP_ENUMERATE_ALIASES, &[0, 1000]),
    ] {
        let given = answer(|out| samr::put_enumeration(out, 1001, Ok(&entries), ok));
        c.call(pipe, opnum, &with(values), &given);
    }
    let domain = samr::DomainInformation { name: "SERVER", users: 2, groups: 1, aliases: 0 };
    for class in [1, 2, 3, 5, 7, 8, 9, 77] {
        let given = answer(|out| samr::put_domain(out, class, Ok(&domain)));
        c.call(pipe, samr::OP_QUERY_INFORMATION_DOMAIN, &class_of(class), &given);
    }
    let user = samr::UserInformation {
        name: "alice",
        full_name: "Alice Liddell",
        id: 1000,
        primary_group: 513,
        account_control: samr::NORMAL_ACCOUNT,
    };
    for class in [1, 6, 7, 8, 9, 16, 17, 21] {
        let given = answer(|out| samr::put_user(out, class, Ok(&user)));
        c.call(pipe, samr::OP_QUERY_INFORMATION_USER, &class_of(class), &given);
    }
    for class in [1, 2, 3] {
        let given = answer(|out| samr::put_alias(out, class, Ok(("Users", 2, "everybody"))));
        c.call(pipe, samr::OP_QUERY_INFORMATION_ALIAS, &class_of(class), &given);
    }
    let asked = stub(|w| {
        w.handle(HANDLE);
        [2, 1000, 0, 2, 1000, 77].iter().for_each(|v| w.u32(*v));
    });
    let found = [("alice", SidNameUse::USER), ("", SidNameUse::UNKNOWN)];
    let given = answer(|out| samr::put_names(out, &found, NtStatus::SOME_NOT_MAPPED));
    c.call(pipe, samr::OP_LOOKUP_IDS, &asked, &given);
    let asked = stub(|w| {
        w.handle(HANDLE);
        [1, 1000, 0, 1].iter().for_each(|v| w.u32(*v));
        w.unicode_string("alice").unwrap();
    });
    let given = answer(|out| samr::put_ids(out, &[(1000, SidNameUse::USER)], ok));
    c.call(pipe, samr::OP_LOOKUP_NAMES, &asked, &given);
    let given = answer(|out| samr::put_members(out, &[Sid::EVERYONE, Sid::LOCAL_SYSTEM], ok));
    c.call(pipe, samr::OP_GET_MEMBERS_IN_ALIAS, &with(&[]), &given);
    let given = answer(|out| samr::put_groups(out, Ok(&[513])));
    c.call(pipe, samr::OP_GET_GROUPS_FOR_USER, &with(&[]), &given);
    let asked = stub(|w| {
        w.handle(HANDLE);
        w.sid_array(&[Sid::EVERYONE]).unwrap();
    });
    let given = answer(|out| samr::put_membership(out, &[545], ok));
    c.call(pipe, samr::OP_GET_ALIAS_MEMBERSHIP, &asked, &given);
    for class in [1, 2, 3, 4, 5] {
        let given = answer(|out| samr::put_group(out, class, Ok(("None", 2))));
        c.call(pipe, samr::OP_QUERY_INFORMATION_GROUP, &class_of(class), &given);
    }
    let given = answer(|out| samr::put_group_members(out, Ok(&[1000, 1001])));
    c.call(pipe, samr::OP_GET_MEMBERS_IN_GROUP, &with(&[]), &given);
    let entries = [(1, "alice", "Alice Liddell"), (2, "bob", "")].map(|(index, name, full_name)| {
        samr::Display { index, id: 999 + index, control: 16, name, full_name }
    });
    let page = samr::DisplayPage { available: 200, returned: 100, entries: &entries };
    for class in [1, 2, 3, 4, 5] {
        let asked = stub(|w| {
            w.handle(HANDLE);
            w.u16(class);
            [0, 100, 1000].iter().for_each(|v| w.u32(*v));
        });
        let given = answer(|out| samr::put_display(out, class, Ok(&page), ok));
        c.call(pipe, samr::OP_QUERY_DISPLAY_INFORMATION, &asked, &given);
    }
    let mut given = Vec::new();
    samr::put_password_information(&mut given, ok);
    c.call(pipe, samr::OP_GET_USER_DOMAIN_PASSWORD_INFORMATION, &with(&[]), &given);
    let Some(lines) = c.dissected("samr.pcap") else { return };
    for (text, count) in [
        ("Connect5 response", 1),
        ("EnumDomains response", 1),
        ("EnumDomainUsers response", 1),
        ("EnumDomainGroups response", 1),
        ("EnumDomainAliases response", 1),
        ("QueryDomainInfo response", 8),
        ("QueryUserInfo response", 8),
        ("QueryAliasInfo response", 3),
        ("LookupRids response", 1),
        ("LookupNames response", 1),
        ("GetMembersInAlias response", 1),
        ("GetGroupsForUser response", 1),
        ("GetAliasMembership response", 1),
        ("QueryGroupInfo response", 5),
        ("QueryGroupMember response", 1),
        ("QueryDisplayInfo response", 5),
        ("GetUserPwInfo response", 1),
    ] {
        assert_eq!(lines.iter().filter(|l| l.contains(text)).count(), count, "{text}: {lines:#?}");
    }
}

#[test]
fn information() {
    let mut c = Conversation::new();
    let (first, second, short) =
        (Utf16Buf::from("file one.txt"), Utf16Buf::from("b"), Utf16Buf::from("FILEON~1"));
    let (first, second, stream) = (first.as_utf16(), second.as_utf16(), Utf16Buf::from("::$DATA"));
    let pattern = Utf16Buf::from("*");
    for class in [1, 2, 3, 12, 37, 38, 60, 63] {
        let mut buffer = Vec::new();
        let mut list = DirectoryList::new(&mut buffer, FileInfoClass(class), 9999).unwrap();
        for name in [first, second] {
            let entry =
                DirectoryEntry { name, short_name: short.as_utf16(), file_id: 77, ..Default::default() };
            assert_eq!(list.push(&entry), Ok(Fits::Yes));
        }
        let request = QueryDirectoryRequest {
            info_class: class,
            file_id: FILE,
            pattern: pattern.as_utf16(),
            output_buffer_length: 9999,
            ..Default::default()
        };
        c.exchange(Command::QUERY_DIRECTORY, &request, &QueryDirectoryResponse { buffer: &buffer });
    }

    use InfoType as T;
    c.query(T::FILE, 18, |out| FileAllInformation { name: first, ..Default::default() }.encode(out).unwrap());
    c.query(T::FILE, 34, |out| FileNetworkOpenInformation::default().encode(out));
    c.query(T::FILE, 59, |out| FileIdInformation::default().encode(out));
    c.query(T::FILE, 22, |out| {
        let mut list = StreamList::new(out, 999);
        for _ in 0..2 {
            let entry = StreamEntry { size: 1, allocation_size: 2, name: stream.as_utf16() };
            assert_eq!(list.push(&entry), Ok(Fits::Yes));
        }
    });
    c.query(T::FILE, 15, |out| {
        let mut list = EaList::new(out, 999);
        for name in [b"first", b"other"] {
            assert_eq!(list.push(&FullEa { name, value: b"value", ..Default::default() }), Ok(Fits::Yes));
        }
    });
    c.query(T::SECURITY, 0, |out| out.extend(descriptor()));
    c.query(T::FILESYSTEM, 1, |out| {
        FsVolumeInformation { label: second, ..Default::default() }.encode(out).unwrap()
    });
    c.query(T::FILESYSTEM, 6, |out| FsControlInformation::default().encode(out));
    c.query(T::FILESYSTEM, 7, |out| FsFullSizeInformation::default().encode(out));
    c.query(T::FILESYSTEM, 8, |out| FsObjectIdInformation::default().encode(out));
    c.query(T::FILESYSTEM, 11, |out| FsSectorSizeInformation::default().encode(out));

    let mut buffer = Vec::new();
    let rename = FileRenameInformation { replace_if_exists: true, root_directory: 0, name: first };
    rename.encode(&mut buffer).unwrap();
    let request = SetInfoRequest {
        info_type: T::FILE,
        info_class: FileInfoClass::RENAME.0,
        file_id: FILE,
        buffer: &buffer,
        ..Default::default()
    };
    c.exchange(Command::SET_INFO, &request, &SetInfoResponse {});

    let mut elements = Vec::new();
    LockElement { offset: 1, length: 2, flags: LockFlags::EXCLUSIVE_LOCK }.encode(&mut elements);
    let locks = LockElements::from_bytes(&elements).unwrap();
    c.exchange(Command::LOCK, &LockRequest { lock_sequence: 0, file_id: FILE, locks }, &LockResponse {});

    buffer.clear();
    let mut list = ChangeList::new(&mut buffer, 999);
    for name in [first, second] {
        assert_eq!(list.push(&Change { action: NotifyAction::ADDED, name }), Ok(Fits::Yes));
    }
    let request = ChangeNotifyRequest { file_id: FILE, ..Default::default() };
    c.exchange(Command::CHANGE_NOTIFY, &request, &ChangeNotifyResponse { buffer: &buffer });

    let interface = NetworkInterface {
        if_index: 1,
        capability: InterfaceCapability::RDMA_CAPABLE,
        link_speed_bits_per_second: 10_000_000_000,
        address: Some("10.1.2.3:0".parse().unwrap()),
    };
    let sixth = NetworkInterface { address: Some("[fe80::1]:0".parse().unwrap()), ..interface };
    buffer.clear();
    put_interfaces(&mut buffer, &[interface, sixth]);
    c.ioctl(FsctlCode::QUERY_NETWORK_INTERFACE_INFO, FileId::NONE, &[], &buffer);
    let mut asked = Vec::new();
    let dialects = Dialects::all();
    ValidateNegotiateRequest { dialects, ..Default::default() }.encode(&mut asked).unwrap();
    buffer.clear();
    ValidateNegotiateResponse { dialect: Dialect::SMB_3_0, ..Default::default() }.encode(&mut buffer);
    c.ioctl(FsctlCode::VALIDATE_NEGOTIATE_INFO, FileId::NONE, &asked, &buffer);

    let link = SymlinkReparse { substitute_name: second, print_name: first, relative: true };
    let mut data = Vec::new();
    link.encode(&mut data).unwrap();
    for tag in [ReparseTag::SYMLINK, ReparseTag::NFS, ReparseTag(0x1234)] {
        buffer.clear();
        let guid = Guid([7; 16]);
        ReparseBuffer { tag, guid, data: &data }.encode(&mut buffer).unwrap();
        c.ioctl(FsctlCode::SET_REPARSE_POINT, FILE, &buffer, &[]);
        c.ioctl(FsctlCode::GET_REPARSE_POINT, FILE, &[], &buffer);
    }

    let Some(lines) = c.dissected("information.pcap") else { return };
    let wanted = [
        (8, "SMB2_FIND_ID_BOTH_DIRECTORY_INFO"),
        (16, "SMB2_FILE_ALL_INFO"),
        (24, "SMB2_FILE_FULL_EA_INFO"),
        (36, "FileFsSectorSizeInformation"),
        (38, "NewName:file one.txt"),
        (44, "FSCTL_QUERY_NETWORK_INTERFACE_INFO"),
        (46, "FSCTL_VALIDATE_NEGOTIATE_INFO"),
        (48, "FSCTL_SET_REPARSE_POINT"),
        (51, "FSCTL_GET_REPARSE_POINT"),
    ];
    has(&lines, &wanted);
}
