//! Shares (MS-SRVS 2.2.4.22 to 2.2.4.33).

use super::Win32;
use crate::WireError;
use crate::cursor::fit_u32;
use crate::rpc::ndr::NdrWriter;

/// A share, for all levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ShareInfo<'a> {
    /// Name.
    pub name: &'a str,
    /// One of [`share_type`].
    pub share_type: u32,
    /// Remark.
    pub remark: &'a str,
    /// Maximum number of connections; all ones for no limit.
    pub max_uses: u32,
    /// Number of connections.
    pub current_uses: u32,
    /// Path on the server; empty if it is not disclosed.
    pub path: &'a str,
    /// Flags of levels 501 and 1005: the low half of [`crate::msg::ShareFlags`].
    pub flags: u32,
    /// Security descriptor, self-relative, of levels 502 and 503.
    pub security_descriptor: Option<&'a [u8]>,
}

/// Whether NetrShareEnum supports the level.
pub const fn is_share_enum_level(level: u32) -> bool {
    matches!(level, 0 | 1 | 2 | 501 | 502 | 503)
}

impl ShareInfo<'_> {
    /// Writes the part of the structure that is in the array.
    fn put_fixed(&self, w: &mut NdrWriter<'_>, level: u32) {
        if level == 1005 {
            w.u32(self.flags);
            return;
        }
        w.pointer(true);
        if level == 0 {
            return;
        }
        w.u32(self.share_type);
        w.pointer(true);
        match level {
            501 => w.u32(self.flags),
            2 | 502 | 503 => {
                w.u32(0); // permissions: of share-level security, which no longer exists
                w.u32(self.max_uses);
                w.u32(self.current_uses);
                w.pointer(true);
                w.pointer(false); // password
            }
            _ => {}
        }
        if level == 503 {
            w.pointer(true);
        }
        if level >= 502 {
            w.u32(self.security_descriptor.map_or(0, |sd| sd.len() as u32));
            w.pointer(self.security_descriptor.is_some());
        }
    }

    /// Writes the strings and the descriptor that the pointers refer to.
    fn put_deferred(&self, w: &mut NdrWriter<'_>, level: u32) -> Result<(), WireError> {
        if level == 1005 {
            return Ok(());
        }
        w.string(self.name)?;
        if level == 0 {
            return Ok(());
        }
        w.string(self.remark)?;
        if matches!(level, 2 | 502 | 503) {
            w.string(self.path)?;
        }
        if level == 503 {
            w.string("*")?; // the server's name: any
        }
        match self.security_descriptor {
            Some(sd) if level >= 502 => w.bytes(sd),
            _ => Ok(()),
        }
    }
}

/// Appends the response stub of NetrShareEnum. For a level for which [`is_share_enum_level`] is false the response
/// has no entries, whatever `shares` contains: pass [`Win32::INVALID_LEVEL`] as `status`.
///
/// # Errors
/// `Unencodable`.
pub fn put_share_enum(
    out: &mut Vec<u8>,
    level: u32,
    shares: &[ShareInfo<'_>],
    total_entries: u32,
    resume_handle: Option<u32>,
    status: Win32,
) -> Result<(), WireError> {
    let mut w = NdrWriter::new(out);
    w.u32(level);
    w.u32(level);
    let known = is_share_enum_level(level);
    w.pointer(known);
    if known {
        let count = fit_u32(shares.len(), "shares")?;
        w.u32(count);
        w.pointer(true);
        w.u32(count);
        shares.iter().for_each(|share| share.put_fixed(&mut w, level));
        shares.iter().try_for_each(|share| share.put_deferred(&mut w, level))?;
    }
    w.u32(total_entries);
    w.pointer(resume_handle.is_some());
    if let Some(resume) = resume_handle {
        w.u32(resume);
    }
    w.u32(status.0);
    Ok(())
}

/// Appends the response stub of NetrShareGetInfo: the share, or the error.
///
/// # Errors
/// `Unencodable`.
pub fn put_share_get_info(
    out: &mut Vec<u8>,
    level: u32,
    share: Result<&ShareInfo<'_>, Win32>,
) -> Result<(), WireError> {
    let share = share.and_then(|share| {
        if level == 1005 || is_share_enum_level(level) { Ok(share) } else { Err(Win32::INVALID_LEVEL) }
    });
    let mut w = NdrWriter::new(out);
    w.u32(level);
    w.pointer(share.is_ok());
    if let Ok(share) = share {
        share.put_fixed(&mut w, level);
        share.put_deferred(&mut w, level)?;
    }
    w.u32(share.err().unwrap_or(Win32::SUCCESS).0);
    Ok(())
}
