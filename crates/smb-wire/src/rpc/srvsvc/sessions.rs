//! Sessions, opens and tree connects (MS-SRVS 2.2.4.1 to 2.2.4.20).

use super::Win32;
use crate::WireError;
use crate::cursor::fit_u32;
use crate::rpc::ndr::NdrWriter;

/// One element of an enumeration.
pub trait Entry {
    /// Whether the enumeration supports the level.
    fn has_level(level: u32) -> bool;

    /// Writes the part of the structure that is in the array.
    fn put_fixed(&self, w: &mut NdrWriter<'_>, level: u32);

    /// The strings that the pointers refer to, in order.
    fn strings(&self, level: u32) -> Vec<&str>;

    /// Length of the entry in a response, in bytes, or slightly more.
    fn encoded_len(&self, level: u32) -> usize {
        /// Length of the longest fixed part; `STRING` is the length of the counts, terminator and padding of a
        /// string.
        const FIXED: usize = 40;
        const STRING: usize = 16;
        self.strings(level).iter().map(|s| STRING + 2 * s.len()).sum::<usize>() + FIXED
    }
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionEntry {
    /// The client, in the form `\\address`.
    pub client: String,
    /// The user.
    pub user: String,
    /// Number of open files.
    pub opens: u32,
    /// Seconds since the session started.
    pub age_s: u32,
    /// Seconds since its last request.
    pub idle_s: u32,
    /// The transport.
    pub transport: &'static str,
}

impl Entry for SessionEntry {
    fn has_level(level: u32) -> bool {
        matches!(level, 0 | 1 | 2 | 10 | 502)
    }

    fn put_fixed(&self, w: &mut NdrWriter<'_>, level: u32) {
        w.pointer(true);
        if level == 0 {
            return;
        }
        w.pointer(true);
        if level != 10 {
            w.u32(self.opens);
        }
        w.u32(self.age_s);
        w.u32(self.idle_s);
        if level != 10 {
            w.u32(0); // flags: not a guest, the password was encrypted
        }
        if matches!(level, 2 | 502) {
            w.pointer(true);
        }
        if level == 502 {
            w.pointer(true);
        }
    }

    fn strings(&self, level: u32) -> Vec<&str> {
        match level {
            0 => vec![&self.client],
            2 => vec![&self.client, &self.user, ""],
            502 => vec![&self.client, &self.user, "", self.transport],
            _ => vec![&self.client, &self.user],
        }
    }
}

/// An open file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileEntry {
    /// Its id.
    pub id: u32,
    /// 1 read, 2 write, 4 create.
    pub permissions: u32,
    /// Number of locks.
    pub locks: u32,
    /// Its path.
    pub path: String,
    /// The user.
    pub user: String,
}

impl Entry for FileEntry {
    fn has_level(level: u32) -> bool {
        matches!(level, 2 | 3)
    }

    fn put_fixed(&self, w: &mut NdrWriter<'_>, level: u32) {
        w.u32(self.id);
        if level == 3 {
            w.u32(self.permissions);
            w.u32(self.locks);
            w.pointer(true);
            w.pointer(true);
        }
    }

    fn strings(&self, level: u32) -> Vec<&str> {
        if level == 3 { vec![&self.path, &self.user] } else { Vec::new() }
    }
}

/// A tree connect.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConnectionEntry {
    /// Its id.
    pub id: u32,
    /// One of [`super::share_type`].
    pub share_type: u32,
    /// Number of open files.
    pub opens: u32,
    /// Seconds since the tree connect.
    pub age_s: u32,
    /// The user.
    pub user: String,
    /// The client if the request names a share; the share if it names a client.
    pub net_name: String,
}

impl Entry for ConnectionEntry {
    fn has_level(level: u32) -> bool {
        level <= 1
    }

    fn put_fixed(&self, w: &mut NdrWriter<'_>, level: u32) {
        w.u32(self.id);
        if level == 1 {
            for value in [self.share_type, self.opens, 1, self.age_s] {
                w.u32(value); // the third value is the number of users
            }
            w.pointer(true);
            w.pointer(true);
        }
    }

    fn strings(&self, level: u32) -> Vec<&str> {
        if level == 1 { vec![&self.user, &self.net_name] } else { Vec::new() }
    }
}

/// Appends the response stub of an enumeration: the entries, or the error.
///
/// # Errors
/// `Unencodable`.
pub fn put_entries<E: Entry>(
    out: &mut Vec<u8>,
    level: u32,
    entries: &[E],
    total_entries: u32,
    resume_handle: Option<u32>,
    status: Win32,
) -> Result<(), WireError> {
    let mut w = NdrWriter::new(out);
    w.u32(level);
    w.u32(level);
    let known = E::has_level(level);
    w.pointer(known);
    if known {
        let count = fit_u32(entries.len(), "entries")?;
        w.u32(count);
        w.pointer(count != 0);
        if count != 0 {
            w.u32(count);
        }
        entries.iter().for_each(|entry| entry.put_fixed(&mut w, level));
        for entry in entries {
            entry.strings(level).into_iter().try_for_each(|s| w.string(s))?;
        }
    }
    w.u32(total_entries);
    w.pointer(resume_handle.is_some());
    if let Some(resume) = resume_handle {
        w.u32(resume);
    }
    w.u32(status.0);
    Ok(())
}
