//! Enumerations for administrators (MS-SRVS 3.1.4.1, 3.1.4.2, 3.1.4.5).

use smb_wire::rpc::srvsvc::{
    self, ConnectionEntry, Entry, Enumeration, FileEntry, SessionEntry, Win32, share_type,
};
use smb_wire::{AccessMask, Utf16Le, WireError};

use crate::TransportKind;
use crate::pipes::{Context, OUTPUT_MAX};
use crate::server::SessionInfo;

/// Characters of a qualifier at most, terminator included.
const QUALIFIER_MAX: usize = 1024;

/// A qualifier as text; an empty one is none.
///
/// # Errors
/// INVALID_PARAMETER when it is too long.
fn qualifier(q: Option<Utf16Le<'_>>) -> Result<Option<String>, Win32> {
    match q {
        Some(q) if q.len() / 2 >= QUALIFIER_MAX => Err(Win32::INVALID_PARAMETER),
        Some(q) if !q.is_empty() => Ok(Some(q.to_string_lossy())),
        _ => Ok(None),
    }
}

fn admit<E: Entry>(c: &Context<'_>, e: Enumeration) -> Result<(), Win32> {
    if !c.caller.is_administrator() {
        return Err(Win32::ACCESS_DENIED);
    }
    if E::has_level(e.level) { Ok(()) } else { Err(Win32::INVALID_LEVEL) }
}

/// Appends the entries that fit, starting at the resume handle, which is an index; on an error, its status.
fn put<E: Entry>(entries: Result<Vec<E>, Win32>, e: Enumeration, out: &mut Vec<u8>) -> Result<(), WireError> {
    let entries = match entries {
        Ok(entries) => entries,
        Err(status) => return srvsvc::put_entries::<E>(out, e.level, &[], 0, e.resume_handle, status),
    };
    let from = e.resume_handle.unwrap_or_default() as usize;
    let rest = entries.get(from..).unwrap_or_default();
    let room = OUTPUT_MAX.min(e.preferred_maximum_length as usize);
    let mut used = 0;
    let fit = rest.iter().take_while(|entry| {
        used += entry.encoded_len(e.level);
        used <= room
    });
    let page = &rest[..fit.count()];
    let status = match page.len() {
        n if n == rest.len() => Win32::SUCCESS,
        0 => Win32::NERR_BUF_TOO_SMALL,
        _ => Win32::MORE_DATA,
    };
    let resume =
        e.resume_handle.map(|_| if status == Win32::SUCCESS { 0 } else { (from + page.len()) as u32 });
    srvsvc::put_entries(out, e.level, page, rest.len() as u32, resume, status)
}

/// The client of a session, as these calls show it.
fn client_of(session: &SessionInfo) -> String {
    let address = session.channels.first().map(|c| c.peer.ip().to_canonical().to_string());
    format!("\\\\{}", address.unwrap_or_default())
}

pub(super) fn sessions(
    c: &Context<'_>,
    client: Option<Utf16Le<'_>>,
    user: Option<Utf16Le<'_>>,
    e: Enumeration,
    out: &mut Vec<u8>,
) -> Result<(), WireError> {
    let list = || {
        admit::<SessionEntry>(c, e)?;
        let (client, user) = (qualifier(client)?, qualifier(user)?);
        if client.as_ref().is_some_and(|client| !client.starts_with("\\\\")) {
            return Err(Win32::NERR_INVALID_COMPUTER);
        }
        let fits = |wanted: &Option<String>, has: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(has))
        };
        let found: Vec<_> = c
            .server
            .sessions()
            .iter()
            .map(session_entry)
            .filter(|s| fits(&client, &s.client) && fits(&user, &s.user))
            .collect();
        match (found.is_empty(), client, user) {
            (true, Some(_), _) => Err(Win32::NERR_CLIENT_NAME_NOT_FOUND),
            (true, None, Some(_)) => Err(Win32::NERR_USER_NOT_FOUND),
            _ => Ok(found),
        }
    };
    put(list(), e, out)
}

fn session_entry(s: &SessionInfo) -> SessionEntry {
    SessionEntry {
        client: client_of(s),
        user: s.user.clone(),
        opens: s.opens as u32,
        age_s: s.age.as_secs() as u32,
        idle_s: s.idle.as_secs() as u32,
        transport: match s.channels.first().map(|c| c.transport) {
            Some(TransportKind::Tcp) => "TCP",
            Some(TransportKind::Rdma) => "RDMA",
            None => "",
        },
    }
}

pub(super) fn files(
    c: &Context<'_>,
    base_path: Option<Utf16Le<'_>>,
    user: Option<Utf16Le<'_>>,
    e: Enumeration,
    out: &mut Vec<u8>,
) -> Result<(), WireError> {
    let list = || {
        admit::<FileEntry>(c, e)?;
        let (base, user) = (qualifier(base_path)?, qualifier(user)?);
        let opens = c.server.opens().into_iter().map(|o| FileEntry {
            id: o.id.0 as u32,
            permissions: permissions(o.access),
            locks: o.locks as u32,
            path: format!("{}\\{}", o.share, o.path).trim_end_matches('\\').to_owned(),
            user: o.user,
        });
        let below = |path: &str| {
            base.as_ref().is_none_or(|base| {
                let base = base.trim_end_matches('\\').to_uppercase();
                path.to_uppercase().strip_prefix(&base).is_some_and(|r| r.is_empty() || r.starts_with('\\'))
            })
        };
        let of_user = |name: &str| user.as_ref().is_none_or(|user| user.eq_ignore_ascii_case(name));
        Ok(opens.filter(|f| below(&f.path) && of_user(&f.user)).collect())
    };
    put(list(), e, out)
}

/// PERM_FILE_READ, PERM_FILE_WRITE, PERM_FILE_CREATE (MS-SRVS 2.2.4.7).
fn permissions(access: u32) -> u32 {
    let has = |right: AccessMask| access & right.bits() != 0;
    u32::from(has(AccessMask::READ_DATA))
        | u32::from(has(AccessMask::WRITE_DATA)) << 1
        | u32::from(has(AccessMask::APPEND_DATA)) << 2
}

pub(super) fn connections(
    c: &Context<'_>,
    q: Option<Utf16Le<'_>>,
    e: Enumeration,
    out: &mut Vec<u8>,
) -> Result<(), WireError> {
    let list = || {
        admit::<ConnectionEntry>(c, e)?;
        let wanted = qualifier(q)?.ok_or(Win32::INVALID_PARAMETER)?;
        let by_client = wanted.starts_with("\\\\");
        let mut found = Vec::new();
        for session in c.server.sessions() {
            let client = client_of(&session);
            for tree in c.server.trees_of(session.id) {
                let has = if by_client { &client } else { &tree.share };
                if !has.eq_ignore_ascii_case(&wanted) {
                    continue;
                }
                found.push(ConnectionEntry {
                    id: tree.id,
                    share_type: if tree.pipes { share_type::IPC } else { share_type::DISK },
                    opens: tree.opens as u32,
                    age_s: session.age.as_secs() as u32,
                    user: session.user.clone(),
                    // MS-SRVS 2.2.4.2: the name that is not the qualifier.
                    net_name: if by_client { tree.share } else { client.clone() },
                });
            }
        }
        Ok(found)
    };
    put(list(), e, out)
}
