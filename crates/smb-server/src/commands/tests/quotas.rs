//! Quotas on volumes that have none (MS-SMB2 3.3.5.20.4, 3.3.5.21.4).

use smb_wire::msg::{QueryInfoRequest, QueryInfoResponse, QueryQuotaInfo};

use super::*;

const INDEX: &str = "$Extend\\$Quota:$Q:$INDEX_ALLOCATION";
const EVERYONE: [u8; 12] = [1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];

fn asked_for(next: u8) -> Vec<u8> {
    [&[next, 0, 0, 0, 12, 0, 0, 0][..], &EVERYONE].concat()
}

async fn query(
    w: &World,
    file_id: FileId,
    info: QueryQuotaInfo,
    sids: &[u8],
    room: u32,
) -> (NtStatus, Vec<u8>) {
    let mut input = Vec::new();
    info.encode(&mut input);
    input.extend(sids);
    let q = QueryInfoRequest {
        info_type: InfoType::QUOTA,
        output_buffer_length: room,
        input: &input,
        file_id,
        ..Default::default()
    };
    let reply = crate::commands::query_info::handle(w.request(&q)).await;
    let bytes = success::<QueryInfoResponse<'_>>(&reply).map(|a| a.buffer.to_vec());
    (reply.status, bytes.unwrap_or_default())
}

#[tokio::test]
async fn users_have_no_quota() {
    let w = World::new();
    let list = |length| QueryQuotaInfo { sid_list_length: length, ..QueryQuotaInfo::default() };
    let sids = [asked_for(20), asked_for(0)].concat();
    let entry = |next: u8| [&[next, 0, 0, 0, 12, 0, 0, 0][..], &[0; 32], &EVERYONE].concat();
    for name in [INDEX, ""] {
        let open = w.create(name, How::OPEN).await;
        let both = [entry(56), vec![0; 4], entry(0)].concat();
        assert_eq!(query(&w, open, list(40), &sids, 108).await, (NtStatus::SUCCESS, both));
        // One entry, because only one fits or only one is requested.
        assert_eq!(query(&w, open, list(40), &sids, 107).await, (NtStatus::SUCCESS, entry(0)));
        let single = QueryQuotaInfo { return_single: true, ..list(40) };
        assert_eq!(query(&w, open, single, &sids, 108).await, (NtStatus::SUCCESS, entry(0)));
        assert_eq!(query(&w, open, list(40), &sids, 51).await.0, NtStatus::BUFFER_TOO_SMALL);
        for (length, sids) in [(44, &sids[..]), (38, &sids[..38]), (16, &sids[..16])] {
            assert_eq!(query(&w, open, list(length), sids, 108).await.0, NtStatus::INVALID_PARAMETER);
        }
    }
}

#[tokio::test]
async fn there_is_no_quota_to_list_or_to_set() {
    let w = World::new();
    let open = w.create(INDEX, How::OPEN).await;
    let all = QueryQuotaInfo { restart_scan: true, ..QueryQuotaInfo::default() };
    assert_eq!(query(&w, open, all, &[], 4096).await, (NtStatus::NO_MORE_ENTRIES, Vec::new()));
    assert_eq!(query(&w, open, all, &[], 47).await.0, NtStatus::BUFFER_TOO_SMALL);
    let from = QueryQuotaInfo { start_sid_length: 12, ..QueryQuotaInfo::default() };
    assert_eq!(query(&w, open, from, &EVERYONE, 4096).await.0, NtStatus::INVALID_PARAMETER);
    let q =
        SetInfoRequest { info_type: InfoType::QUOTA, file_id: open, buffer: &[0; 56], ..Default::default() };
    assert_eq!(crate::commands::set_info::handle(w.request(&q)).await.status, NtStatus::ACCESS_DENIED);
}
