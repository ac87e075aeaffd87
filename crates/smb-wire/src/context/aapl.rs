//! Apple's create context `AAPL` (not MS-SMB2): a macOS client and a server exchange their capabilities in it when
//! the client opens a share for the first time.
//!
//! ```text
//! request    0 command (u32)   4 reserved   8 asked for (u64)   16 client's capabilities (u64)           = 24
//! response   0 command (u32)   4 reserved   8 answered (u64), then for each bit of that, in this order:
//!            server's capabilities (u64); the volume's (u64); reserved (u32), length (u32), model in UTF-16
//! ```

use crate::cursor::{Field, Reader, fit_u32};
use crate::macros::{flag_set, open_enum, record};
use crate::{Utf16Le, WireError};

open_enum! {
    /// The command of a context.
    pub struct AaplCommand(u32) {
        /// Queries the capabilities of server and volume.
        SERVER_QUERY = 1,
        /// Resolves a file's number to its path.
        RESOLVE_ID = 2,
    }
}

flag_set! {
    /// The parts of a server query.
    pub struct AaplParts: u64 {
        /// The server's capabilities.
        const SERVER_CAPABILITIES = 1;
        /// The volume's capabilities.
        const VOLUME_CAPABILITIES = 2;
        /// The machine's model.
        const MODEL = 4;
    }
}

flag_set! {
    /// The capabilities of a client or server.
    pub struct AaplCapabilities: u64 {
        /// Directory listings with macOS attributes.
        const READ_DIRECTORY_ATTRIBUTES = 1;
        /// Copies of whole files with FSCTL_SRV_COPYCHUNK.
        const COPY_FILE = 2;
        /// Names and permissions follow Unix conventions.
        const UNIX_BASED = 4;
        /// Access control lists contain POSIX modes.
        const NFS_ACE = 8;
    }
}

flag_set! {
    /// The capabilities of a volume.
    pub struct AaplVolumeCapabilities: u64 {
        /// Supports [`AaplCommand::RESOLVE_ID`].
        const RESOLVE_ID = 1;
        /// Names are case-sensitive.
        const CASE_SENSITIVE = 2;
        /// A flush writes to stable storage.
        const FULL_SYNC = 4;
    }
}

record! {
    /// A server query.
    pub struct AaplQuery [24] {
        /// The command.
        pub command: AaplCommand => pad 4,
        /// The requested parts.
        pub parts: AaplParts,
        /// The client's capabilities.
        pub client: AaplCapabilities,
    }
}

/// The answer to a server query; a part that is `None` was not requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AaplAnswer<'a> {
    /// The server's capabilities.
    pub server: Option<AaplCapabilities>,
    /// The volume's capabilities.
    pub volume: Option<AaplVolumeCapabilities>,
    /// The machine's model.
    pub model: Option<Utf16Le<'a>>,
}

impl<'a> AaplAnswer<'a> {
    /// Decodes the data of the context.
    ///
    /// # Errors
    /// Malformed input from the peer, and any command except a server query.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        const WHAT: &str = "AAPL answer";
        let mut r = Reader::new(bytes, WHAT);
        let command: AaplCommand = r.get()?;
        if command != AaplCommand::SERVER_QUERY {
            return Err(WireError::malformed("AAPL command"));
        }
        r.skip(4)?;
        let parts: AaplParts = r.get()?;
        let mut answer = Self::default();
        if parts.contains(AaplParts::SERVER_CAPABILITIES) {
            answer.server = Some(r.get()?);
        }
        if parts.contains(AaplParts::VOLUME_CAPABILITIES) {
            answer.volume = Some(r.get()?);
        }
        if parts.contains(AaplParts::MODEL) {
            r.skip(4)?;
            let length: u32 = r.get()?;
            answer.model = Some(Utf16Le::new(r.take(length as usize)?, WHAT)?);
        }
        Ok(answer)
    }

    /// Appends the data of the context to `out`.
    ///
    /// # Errors
    /// `Unencodable` if the model is too long for its field.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut parts = AaplParts::empty();
        parts.set(AaplParts::SERVER_CAPABILITIES, self.server.is_some());
        parts.set(AaplParts::VOLUME_CAPABILITIES, self.volume.is_some());
        parts.set(AaplParts::MODEL, self.model.is_some());
        AaplCommand::SERVER_QUERY.put(out);
        0u32.put(out);
        parts.put(out);
        if let Some(server) = self.server {
            server.put(out);
        }
        if let Some(volume) = self.volume {
            volume.put(out);
        }
        if let Some(model) = self.model {
            0u32.put(out);
            fit_u32(model.len(), "model")?.put(out);
            out.extend_from_slice(model.as_bytes());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Utf16Buf;

    /// The query of a macOS client: all three parts, and all of its capabilities.
    const QUERY: [u8; 24] = [
        1, 0, 0, 0, 0, 0, 0, 0, //
        7, 0, 0, 0, 0, 0, 0, 0, //
        15, 0, 0, 0, 0, 0, 0, 0,
    ];

    const ANSWER: [u8; 44] = [
        1, 0, 0, 0, 0, 0, 0, 0, //
        7, 0, 0, 0, 0, 0, 0, 0, //
        4, 0, 0, 0, 0, 0, 0, 0, //
        2, 0, 0, 0, 0, 0, 0, 0, //
        0, 0, 0, 0, 4, 0, 0, 0, b'P', 0, b'C', 0,
    ];

    #[test]
    fn golden() {
        let query = AaplQuery::decode(&QUERY).expect("sound");
        assert_eq!((query.command, query.parts.bits()), (AaplCommand::SERVER_QUERY, 7));
        assert!(query.client.contains(AaplCapabilities::READ_DIRECTORY_ATTRIBUTES));
        let mut out = Vec::new();
        query.encode(&mut out);
        assert_eq!(out, QUERY);

        let model = Utf16Buf::from("PC");
        let all = AaplAnswer {
            server: Some(AaplCapabilities::UNIX_BASED),
            volume: Some(AaplVolumeCapabilities::CASE_SENSITIVE),
            model: Some(model.as_utf16()),
        };
        out.clear();
        all.encode(&mut out).expect("short");
        assert_eq!(out, ANSWER);
        assert_eq!(AaplAnswer::decode(&ANSWER), Ok(all));
        for cut in 0..ANSWER.len() {
            assert!(AaplAnswer::decode(&ANSWER[..cut]).is_err(), "{cut} bytes");
        }
    }

    #[test]
    fn parts_that_were_not_asked_for() {
        let mut out = Vec::new();
        let only = AaplAnswer { volume: Some(AaplVolumeCapabilities::empty()), ..AaplAnswer::default() };
        only.encode(&mut out).expect("short");
        assert_eq!(out, [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(AaplAnswer::decode(&out), Ok(only));
        let resolve = [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert!(AaplAnswer::decode(&resolve).is_err());
    }
}
