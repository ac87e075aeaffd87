//! Header, NEGOTIATE, SESSION_SETUP, TREE_CONNECT, errors, and the messages without fields.

use proptest::collection::vec;
use proptest::prelude::*;
use smb_wire::context::{self, NegotiateContextsBuf};
use smb_wire::msg::*;
use smb_wire::{AccessMask, Command, FileTime, Header, HeaderFlags, NtStatus, Utf16Buf};
use smb2::msg as theirs;
use smb2::pack::{ReadCursor, Unpack};
use smb2::types as their_types;
use smb2::types::flags as their_flags;

use crate::{agree, guid, packed};

#[test]
fn messages_without_content() {
    agree(&LogoffRequest {}, &theirs::logoff::LogoffRequest, &mut Vec::new());
    agree(&LogoffResponse {}, &theirs::logoff::LogoffResponse, &mut Vec::new());
    agree(&TreeDisconnectRequest {}, &theirs::tree_disconnect::TreeDisconnectRequest, &mut Vec::new());
    agree(&TreeDisconnectResponse {}, &theirs::tree_disconnect::TreeDisconnectResponse, &mut Vec::new());
    agree(&EchoRequest {}, &theirs::echo::EchoRequest, &mut Vec::new());
    agree(&EchoResponse {}, &theirs::echo::EchoResponse, &mut Vec::new());
    agree(&CancelRequest {}, &theirs::cancel::CancelRequest, &mut Vec::new());
    agree(&FlushResponse {}, &theirs::flush::FlushResponse, &mut Vec::new());
    agree(&LockResponse {}, &theirs::lock::LockResponse, &mut Vec::new());
    agree(&SetInfoResponse {}, &theirs::set_info::SetInfoResponse, &mut Vec::new());
}

/// The five dialects, as both crates name them.
fn dialects() -> impl Strategy<Value = Vec<(Dialect, their_types::Dialect)>> {
    use their_types::Dialect as D;
    let all = vec![
        (Dialect::SMB_2_0_2, D::Smb2_0_2),
        (Dialect::SMB_2_1, D::Smb2_1),
        (Dialect::SMB_3_0, D::Smb3_0),
        (Dialect::SMB_3_0_2, D::Smb3_0_2),
        (Dialect::SMB_3_1_1, D::Smb3_1_1),
    ];
    proptest::sample::subsequence(all, 1..=5)
}

/// A list of contexts in both crates. The `smb2` crate supports four types; it decodes the others as unknown.
fn contexts(
    salt: &[u8],
    ids: &[u16],
    flags: u32,
) -> (NegotiateContextsBuf, Vec<theirs::negotiate::NegotiateContext>) {
    use theirs::negotiate::NegotiateContext as C;
    let mut ours = NegotiateContextsBuf::new();
    ours.preauth(&[context::HashAlgorithm::SHA_512], salt)
        .and_then(|c| c.encryption(&ids.iter().map(|&i| context::Cipher(i)).collect::<Vec<_>>()))
        .and_then(|c| {
            let algorithms: Vec<_> = ids.iter().map(|&i| context::CompressionAlgorithm(i)).collect();
            c.compression(context::CompressionFlags::from_bits_retain(flags), &algorithms)
        })
        .and_then(|c| c.net_name("server"))
        .and_then(|c| c.signing(&ids.iter().map(|&i| context::SigningAlgorithm(i)).collect::<Vec<_>>()))
        .unwrap();
    let name = "server".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let list = vec![
        C::PreauthIntegrity { hash_algorithms: vec![1], salt: salt.to_vec() },
        C::Encryption { ciphers: ids.to_vec() },
        C::Compression { flags, algorithms: ids.to_vec() },
        C::Unknown { context_type: 5, data: name },
        C::Signing { algorithms: ids.to_vec() },
    ];
    (ours, list)
}

proptest! {
    #[test]
    fn header(
        a in any::<(u16, u32, u16, u32, u64)>(),
        command in 0u16..19,
        ids in any::<(u32, u64, u64)>(),
        is_async in any::<bool>(),
        signature in any::<[u8; 16]>(),
    ) {
        let (credit_charge, status, credits, next_command, message_id) = a;
        let (tree_id, async_id, session_id) = ids;
        let ours = Header {
            credit_charge,
            status: NtStatus(status),
            command: Command(command),
            credits,
            flags: if is_async { HeaderFlags::ASYNC } else { HeaderFlags::SIGNED },
            next_command,
            message_id,
            process_id: 0,
            tree_id: if is_async { 0 } else { tree_id },
            async_id: if is_async { async_id } else { 0 },
            session_id,
            signature,
        };
        let mut bytes = Vec::new();
        ours.encode(&mut bytes);
        let their = theirs::header::Header::unpack(&mut ReadCursor::new(&bytes)).unwrap();
        prop_assert_eq!(their.credit_charge.0, credit_charge);
        prop_assert_eq!(their.status.0, status);
        prop_assert_eq!(their.command as u16, command);
        prop_assert_eq!((their.credits, their.next_command, their.message_id.0), (credits, next_command, message_id));
        prop_assert_eq!(their.tree_id.map(|t| t.0), (!is_async).then_some(tree_id));
        prop_assert_eq!(their.async_id, is_async.then_some(async_id));
        prop_assert_eq!((their.session_id.0, their.signature), (session_id, signature));
        prop_assert_eq!(Header::decode(&packed(&their)), Ok(ours));
    }

    #[test]
    fn negotiate_request(
        dialects in dialects(),
        numbers in any::<(u16, u32, [u8; 16], u32)>(),
        salt in vec(any::<u8>(), 0..40),
        ids in vec(any::<u16>(), 0..6),
    ) {
        let (mode, capabilities, id, flags) = numbers;
        let wire: Vec<u8> = dialects.iter().flat_map(|(d, _)| d.0.to_le_bytes()).collect();
        let (buf, list) = contexts(&salt, &ids, flags);
        let with_contexts = dialects.iter().any(|(d, _)| *d == Dialect::SMB_3_1_1);
        let (our_guid, their_guid) = guid(id);
        let ours = NegotiateRequest {
            security_mode: SecurityMode::from_bits_retain(mode),
            capabilities: Capabilities::from_bits_retain(capabilities),
            client_guid: our_guid,
            dialects: Dialects::from_bytes(&wire).unwrap(),
            contexts: if with_contexts { buf.as_contexts() } else { Default::default() },
        };
        let their = theirs::negotiate::NegotiateRequest {
            security_mode: their_flags::SecurityMode::new(mode),
            capabilities: their_flags::Capabilities::new(capabilities),
            client_guid: their_guid,
            dialects: dialects.iter().map(|(_, d)| *d).collect(),
            negotiate_contexts: if with_contexts { list } else { vec![] },
        };
        agree(&ours, &their, &mut Vec::new());
    }

    #[test]
    fn negotiate_response(
        dialect in dialects(),
        numbers in any::<(u16, u32, [u8; 16], u32, u32, u32, u64, u64)>(),
        token in vec(any::<u8>(), 0..100),
        salt in vec(any::<u8>(), 0..40),
    ) {
        let (mode, capabilities, id, transact, read, write, now, start) = numbers;
        let (dialect, their_dialect) = dialect[0];
        let (buf, list) = contexts(&salt, &[2], 1);
        let with_contexts = dialect == Dialect::SMB_3_1_1;
        let (our_guid, their_guid) = guid(id);
        let ours = NegotiateResponse {
            security_mode: SecurityMode::from_bits_retain(mode),
            dialect,
            server_guid: our_guid,
            capabilities: Capabilities::from_bits_retain(capabilities),
            max_transact_size: transact,
            max_read_size: read,
            max_write_size: write,
            system_time: FileTime(now),
            server_start_time: FileTime(start),
            security_buffer: &token,
            contexts: if with_contexts { buf.as_contexts() } else { Default::default() },
        };
        let their = theirs::negotiate::NegotiateResponse {
            security_mode: their_flags::SecurityMode::new(mode),
            dialect_revision: their_dialect,
            server_guid: their_guid,
            capabilities: their_flags::Capabilities::new(capabilities),
            max_transact_size: transact,
            max_read_size: read,
            max_write_size: write,
            system_time: now,
            server_start_time: start,
            security_buffer: token.clone(),
            negotiate_contexts: if with_contexts { list } else { vec![] },
        };
        agree(&ours, &their, &mut Vec::new());
    }

    #[test]
    fn session_setup(
        numbers in any::<(u8, u8, u32, u32, u64, u16)>(),
        token in vec(any::<u8>(), 1..300),
    ) {
        let (flags, mode, capabilities, channel, previous, session_flags) = numbers;
        let ours = SessionSetupRequest {
            flags: SessionSetupFlags::from_bits_retain(flags),
            security_mode: SecurityMode::from_bits_retain(mode.into()),
            capabilities: Capabilities::from_bits_retain(capabilities),
            channel,
            previous_session_id: previous,
            security_buffer: &token,
        };
        let their = theirs::session_setup::SessionSetupRequest {
            flags: theirs::session_setup::SessionSetupRequestFlags(flags),
            security_mode: their_flags::SecurityMode::new(mode.into()),
            capabilities: their_flags::Capabilities::new(capabilities),
            channel,
            previous_session_id: previous,
            security_buffer: token.clone(),
        };
        agree(&ours, &their, &mut Vec::new());
        let ours = SessionSetupResponse {
            session_flags: SessionFlags::from_bits_retain(session_flags),
            security_buffer: &token,
        };
        let their = theirs::session_setup::SessionSetupResponse {
            session_flags: theirs::session_setup::SessionFlags(session_flags),
            security_buffer: token.clone(),
        };
        agree(&ours, &their, &mut Vec::new());
    }

    #[test]
    fn tree_connect(path in "\\PC{1,60}", numbers in any::<(u32, u32, u32)>(), kind in 1u8..4) {
        let wide = Utf16Buf::from(path.as_str());
        let ours = TreeConnectRequest { path: wide.as_utf16(), ..Default::default() };
        let their = theirs::tree_connect::TreeConnectRequest { flags: Default::default(), path: path.clone() };
        agree(&ours, &their, &mut Vec::new());

        let (flags, capabilities, access) = numbers;
        let ours = TreeConnectResponse {
            share_type: ShareType(kind),
            share_flags: ShareFlags::from_bits_retain(flags),
            capabilities: ShareCapabilities::from_bits_retain(capabilities),
            maximal_access: AccessMask::from_bits_retain(access),
        };
        let their = theirs::tree_connect::TreeConnectResponse {
            share_type: theirs::tree_connect::ShareType::try_from_u8(kind).unwrap(),
            share_flags: their_flags::ShareFlags::new(flags),
            capabilities: their_flags::ShareCapabilities::new(capabilities),
            maximal_access: access,
        };
        agree(&ours, &their, &mut Vec::new());
    }

    #[test]
    fn error(context_count in any::<u8>(), data in vec(any::<u8>(), 0..64)) {
        let ours = ErrorResponse { context_count, data: &data };
        let their = theirs::header::ErrorResponse { error_context_count: context_count, error_data: data.clone() };
        agree(&ours, &their, &mut Vec::new());
    }
}
