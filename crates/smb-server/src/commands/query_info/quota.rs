//! Quotas (MS-SMB2 3.3.5.20.4, MS-FSA 2.1.5.21), of which there are none: as on a volume of NTFS whose quotas are off.

use smb_wire::fscc::{Fits, GetQuotas, QuotaInformation, QuotaList};
use smb_wire::msg::{QueryInfoRequest, QueryInfoResponse, QueryQuotaInfo};
use smb_wire::{FileTime, NtStatus};

use crate::open::Open;
use crate::request::{Reply, Request};

/// A quota with the shortest SID.
const SHORTEST: usize = 48;

pub(super) async fn query(r: &Request, open: &Open, q: &QueryInfoRequest<'_>) -> Result<Reply, NtStatus> {
    if open.pipe().is_some() {
        return Err(NtStatus::NOT_SUPPORTED);
    }
    let wanted = QueryQuotaInfo::decode(q.input).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let output_max = q.output_buffer_length as usize;
    let mut bytes = Vec::new();
    if wanted.sid_list_length == 0 {
        if output_max < SHORTEST {
            return Err(NtStatus::BUFFER_TOO_SMALL);
        }
        // The user that an enumeration starts at must have a quota; no user has one.
        return match wanted.start_sid_length {
            0 => Ok(Reply::with_status(NtStatus::NO_MORE_ENTRIES, &QueryInfoResponse { buffer: &[] })),
            _ => Err(NtStatus::INVALID_PARAMETER),
        };
    }
    let sids = q.input.get(QueryQuotaInfo::LEN..).unwrap_or_default();
    let sids = sids.get(..wanted.sid_list_length as usize).ok_or(NtStatus::INVALID_PARAMETER)?;
    if sids.len() % 4 != 0 {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    let most = if wanted.return_single { 1 } else { usize::MAX };
    let mut list = QuotaList::new(&mut bytes, output_max);
    for sid in GetQuotas::new(sids).take(most) {
        let sid = sid.map_err(|_| NtStatus::INVALID_PARAMETER)?;
        let none =
            QuotaInformation { change_time: FileTime::default(), used: 0, threshold: 0, limit: 0, sid };
        if list.push(&none) == Fits::No {
            break;
        }
    }
    if bytes.is_empty() {
        return Err(NtStatus::BUFFER_TOO_SMALL);
    }
    Ok(Reply::ok(&QueryInfoResponse { buffer: &bytes }).charged(&r.server.arena, bytes.len()).await)
}
