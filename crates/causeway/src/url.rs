//! The location of a file: `smb://[user@]host[:port]/share/path`, `\\host\share\path`, `//host/share/path`.
//!
//! A URL is percent-encoded; a UNC path is not. `DOMAIN;user@` contains a domain. A password in a URL is refused,
//! because it would be visible in the history of the shell and in the list of processes.

use std::fmt;

use thiserror::Error;
use vfs::VfsPath;

/// The port of SMB over TCP.
pub const PORT: u16 = 445;

/// The characters that make a name a pattern (MS-FSA 2.1.4.4); file names cannot contain them.
const WILD: [char; 2] = ['*', '?'];

/// A place on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Name or address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// The user, if named.
    pub user: Option<String>,
    /// The user's domain, if named.
    pub domain: Option<String>,
    /// The share; none: the server as a whole.
    pub share: Option<String>,
    /// The path in the share; the root when there is none.
    pub path: VfsPath,
    /// The text ended in a separator: a directory is meant.
    pub directory: bool,
}

/// Why a text is not a valid location.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UrlError {
    /// Neither a URL nor a UNC path.
    #[error(
        "{0:?} is not a path on a server: write smb://[user@]host[:port]/share/path or //host/share/path"
    )]
    NotRemote(String),
    /// Another scheme.
    #[error("{scheme}:// is not supported: write smb://")]
    Scheme {
        /// The scheme.
        scheme: String,
    },
    /// No host.
    #[error("{0:?} names no server: write smb://host/share/path")]
    NoHost(String),
    /// An invalid port.
    #[error("{port:?} is not a port: use 1 to 65535")]
    Port {
        /// The text.
        port: String,
    },
    /// A password in the text.
    #[error(
        "a password in a URL is visible to other users: remove it, and set CAUSEWAY_PASSWORD or pass --password-stdin"
    )]
    Password,
    /// A percent sign without two hexadecimal digits.
    #[error("{0:?} has a % without two hexadecimal digits after it: write a percent sign as %25")]
    Percent(String),
    /// A pattern where a name is needed.
    #[error("{0:?} is a pattern: only causeway ls accepts * and ?, and only in the last name")]
    Pattern(String),
    /// A path that is invalid on a share.
    #[error("{:?}: {source}", shortened(path))]
    Path {
        /// The path.
        path: String,
        /// The reason.
        source: vfs::PathError,
    },
    /// A share is needed, but the text names none.
    #[error("{0} names no share: add /share")]
    NoShare(String),
    /// A path is needed, but the text names none.
    #[error("{0} names no file: add its path")]
    NoPath(String),
}

impl Location {
    /// Whether a text is a URL or UNC path, rather than a file of this machine.
    pub fn is_remote(text: &str) -> bool {
        text.contains("://") || text.starts_with("\\\\") || text.starts_with("//")
    }

    /// Reads a text.
    ///
    /// # Errors
    /// See [`UrlError`].
    pub fn parse(text: &str) -> Result<Location, UrlError> {
        if let Some((scheme, rest)) = text.split_once("://") {
            if !scheme.eq_ignore_ascii_case("smb") {
                return Err(UrlError::Scheme { scheme: scheme.to_owned() });
            }
            return parse_url(text, rest);
        }
        for (start, separators) in [("\\\\", &['\\', '/'][..]), ("//", &['/', '\\'][..])] {
            if let Some(rest) = text.strip_prefix(start) {
                let mut parts = rest.split(separators);
                return build(text, parts.next().unwrap_or_default(), parts.map(str::to_owned).collect());
            }
        }
        Err(UrlError::NotRemote(text.to_owned()))
    }

    /// Reads a text whose last name may be a pattern with `*` and `?`: then returns the directory and the pattern.
    ///
    /// # Errors
    /// See [`UrlError`].
    pub fn parse_pattern(text: &str) -> Result<(Location, Option<String>), UrlError> {
        let is_url = text.contains("://");
        let separators: &[char] = if is_url { &['/'] } else { &['/', '\\'] };
        let Some(at) = text.rfind(separators) else { return Ok((Location::parse(text)?, None)) };
        let last = &text[at + 1..];
        let last = if is_url { decode(last)? } else { last.to_owned() };
        if !last.contains(WILD) {
            return Ok((Location::parse(text)?, None));
        }
        let directory = Location::parse(&text[..=at])?;
        directory.share()?;
        // Apart from its wildcards, it must be a valid name.
        directory.join(&last.replace(WILD, "_"))?;
        Ok((directory, Some(last)))
    }

    /// The share.
    ///
    /// # Errors
    /// [`UrlError::NoShare`].
    pub fn share(&self) -> Result<&str, UrlError> {
        self.share.as_deref().ok_or_else(|| UrlError::NoShare(self.to_string()))
    }

    /// The name that the path ends in.
    ///
    /// # Errors
    /// [`UrlError::NoShare`], [`UrlError::NoPath`].
    pub fn file_name(&self) -> Result<&str, UrlError> {
        self.share()?;
        self.path.name().ok_or_else(|| UrlError::NoPath(self.to_string()))
    }

    /// The place `name` in this directory.
    ///
    /// # Errors
    /// [`UrlError::Path`] when no file can have the name.
    pub fn join(&self, name: &str) -> Result<Location, UrlError> {
        let path = self.path.join(name).map_err(|source| UrlError::Path { path: name.to_owned(), source })?;
        Ok(Location { path, directory: false, ..self.clone() })
    }

    /// Whether two places are on one share of one server, as one user.
    pub fn same_share(&self, other: &Location) -> bool {
        let key = |l: &Location| {
            (l.host.to_lowercase(), l.port, l.user.clone(), l.share.as_ref().map(|s| s.to_lowercase()))
        };
        key(self) == key(other)
    }
}

fn parse_url(text: &str, rest: &str) -> Result<Location, UrlError> {
    // A `?` or `#` is an ordinary character of names here; only `/` ends the authority.
    let (authority, path) = rest.split_once('/').map_or((rest, None), |(a, p)| (a, Some(p)));
    let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(u, h)| (Some(u), h));
    let parts = path.map_or_else(|| Ok(Vec::new()), |p| p.split('/').map(decode).collect())?;
    let mut location = build(text, host, parts)?;
    if let Some(user) = user {
        if user.contains(':') {
            return Err(UrlError::Password);
        }
        let user = decode(user)?;
        let (domain, user) = match user.split_once([';', '\\']) {
            Some((d, u)) => (Some(d.to_owned()), u.to_owned()),
            None => (None, user),
        };
        location.domain = domain.filter(|d| !d.is_empty());
        location.user = Some(user).filter(|u| !u.is_empty());
    }
    Ok(location)
}

fn build(text: &str, authority: &str, mut parts: Vec<String>) -> Result<Location, UrlError> {
    let (host, port) = split_port(authority)?;
    if host.is_empty() || host.contains(char::is_whitespace) {
        return Err(UrlError::NoHost(text.to_owned()));
    }
    let directory = parts.last().is_some_and(String::is_empty);
    parts.retain(|p| !p.is_empty());
    let share = (!parts.is_empty()).then(|| parts.remove(0));
    let mut path = VfsPath::root();
    for part in &parts {
        if part.contains(WILD) {
            return Err(UrlError::Pattern(part.clone()));
        }
        path = path.join(part).map_err(|source| UrlError::Path { path: part.clone(), source })?;
    }
    Ok(Location { host: host.to_owned(), port, user: None, domain: None, share, path, directory })
}

/// `host`, `host:port`, `[v6]`, `[v6]:port`, or a bare v6 address, which has no port.
fn split_port(authority: &str) -> Result<(&str, u16), UrlError> {
    let port = |text: &str| match text.parse::<u16>() {
        Ok(p) if p > 0 => Ok(p),
        _ => Err(UrlError::Port { port: text.to_owned() }),
    };
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or_else(|| UrlError::NoHost(authority.to_owned()))?;
        return match after.strip_prefix(':') {
            Some(p) => Ok((host, port(p)?)),
            None if after.is_empty() => Ok((host, PORT)),
            None => Err(UrlError::NoHost(authority.to_owned())),
        };
    }
    match authority.split_once(':') {
        Some((_, rest)) if rest.contains(':') => Ok((authority, PORT)),
        Some((host, p)) => Ok((host, port(p)?)),
        None => Ok((authority, PORT)),
    }
}

/// A name for a message; a very long name is cut.
fn shortened(name: &str) -> String {
    const SHOWN: usize = 60;
    match name.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}...", &name[..at]),
        None => name.to_owned(),
    }
}

/// Decodes `%XX`.
fn decode(text: &str) -> Result<String, UrlError> {
    let wrong = || UrlError::Percent(text.to_owned());
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        if b != b'%' {
            out.push(b);
            continue;
        }
        let mut digit = || bytes.next().and_then(|d| char::from(d).to_digit(16)).ok_or_else(wrong);
        out.push((digit()? * 16 + digit()?) as u8);
    }
    String::from_utf8(out).map_err(|_| wrong())
}

impl fmt::Display for Location {
    /// Formats the place as a URL that can be parsed again to the same place.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use crate::control::client::segment;
        f.write_str("smb://")?;
        if let Some(user) = &self.user {
            if let Some(domain) = &self.domain {
                write!(f, "{};", segment(domain))?;
            }
            write!(f, "{}@", segment(user))?;
        }
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?
        } else {
            f.write_str(&self.host)?
        }
        if self.port != PORT {
            write!(f, ":{}", self.port)?;
        }
        for part in self.share.iter().chain(self.path.components()) {
            // Only characters that would not read back the same are encoded.
            f.write_str("/")?;
            for c in part.chars() {
                match c {
                    '%' => f.write_str("%25")?,
                    ' ' => f.write_str("%20")?,
                    c => write!(f, "{c}")?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(l: &Location) -> String {
        l.path.to_string()
    }

    #[test]
    fn urls() {
        let l = Location::parse("smb://alice@files:4450/share/a%20b/c").expect("a place");
        assert_eq!((l.host.as_str(), l.port, l.user.as_deref()), ("files", 4450, Some("alice")));
        assert_eq!((l.share.as_deref(), path(&l).as_str(), l.directory), (Some("share"), "a b\\c", false));

        let l = Location::parse("SMB://host").expect("a place");
        assert_eq!((l.port, l.share.clone(), l.user.clone()), (445, None, None));
        assert_eq!(l.share(), Err(UrlError::NoShare("smb://host".to_owned())));

        let l = Location::parse("smb://CORP;bob@host/s/").expect("a place");
        assert_eq!((l.domain.as_deref(), l.user.as_deref()), (Some("CORP"), Some("bob")));
        assert!(l.path.is_root() && l.directory);
        assert_eq!(l.file_name(), Err(UrlError::NoPath("smb://CORP;bob@host/s".to_owned())));

        let l = Location::parse("smb://[::1]:5/s/x").expect("a place");
        assert_eq!((l.host.as_str(), l.port), ("::1", 5));
        let l = Location::parse("smb://user%40corp@h/s/what?#1").expect_err("? is in no name");
        assert_eq!(l, UrlError::Pattern("what?#1".to_owned()));
    }

    #[test]
    fn patterns() {
        let read = |text: &str| {
            let (l, pattern) = Location::parse_pattern(text)?;
            Ok::<_, UrlError>((l.to_string(), pattern))
        };
        let found = |place: &str, pattern: &str| Ok((place.to_owned(), Some(pattern.to_owned())));
        assert_eq!(read("smb://h/s/d/*.iso"), found("smb://h/s/d", "*.iso"));
        assert_eq!(read("smb://h/s/a%20?%2A"), found("smb://h/s", "a ?*"));
        assert_eq!(read("//h/s\\d\\x?"), found("smb://h/s/d", "x?"));
        for plain in ["smb://h/s/d/", "smb://h/s", "//h/s/x", "smb://h"] {
            assert_eq!(read(plain), Ok((Location::parse(plain).expect("a place").to_string(), None)));
        }
        assert_eq!(read("smb://h/s/*/x"), Err(UrlError::Pattern("*".to_owned())));
        assert_eq!(read("smb://h/*"), Err(UrlError::NoShare("smb://h".to_owned())));
        assert!(matches!(read("smb://h/s/*<"), Err(UrlError::Path { .. })));
        assert!(matches!(read("smb://h/s/%zz*"), Err(UrlError::Percent(_))));
        assert!(matches!(read("*"), Err(UrlError::NotRemote(_))));
        assert!(read("//*").is_err() && read("smb://*").is_err());
    }

    #[test]
    fn unc_paths() {
        for text in ["\\\\host\\share\\dir\\file 100%", "//host/share/dir/file 100%"] {
            let l = Location::parse(text).expect("a place");
            assert_eq!(
                (l.host.as_str(), l.share.as_deref(), path(&l).as_str()),
                ("host", Some("share"), "dir\\file 100%")
            );
        }
        assert_eq!(Location::parse("//h:4450/s").expect("a place").port, 4450);
        assert_eq!(Location::parse("//fe80::1/s").expect("a place").host, "fe80::1");
    }

    #[test]
    fn errors_name_the_cure() {
        let said = |text: &str| Location::parse(text).expect_err("no place").to_string();
        assert!(said("/srv/x").contains("write smb://"));
        assert!(said("http://h/s").contains("write smb://"));
        assert!(said("smb:///s").contains("names no server"));
        assert!(said("smb://h:x/s").contains("1 to 65535"));
        assert!(said("smb://h:0/s").contains("1 to 65535"));
        assert!(said("smb://u:secret@h/s").contains("CAUSEWAY_PASSWORD"));
        assert!(!said("smb://u:secret@h/s").contains("secret"));
        assert!(said("smb://h/s/%zz").contains("%25"));
        assert!(said("smb://h/s/%ff").contains("%25")); // not UTF-8
        assert!(said("smb://h/s/../x").contains("'..'"));
        assert!(said("smb://h/s/%2e%2e/x").contains("'..'"));
        assert!(said("smb://h/s/a%5cb").contains("not allowed"));
    }

    proptest! {
        #[test]
        fn a_place_reads_back(
            user in proptest::option::of("[a-z%@ ]{1,8}"),
            host in "[a-z][a-z0-9.-]{0,8}",
            port in 1u16..,
            parts in proptest::collection::vec("[a-zA-Z0-9 %äß漢._-]{1,8}[a-z]", 0..4),
        ) {
            let mut path = VfsPath::root();
            for p in parts.iter().skip(1) {
                path = path.join(p).expect("a name");
            }
            let share = parts.first().cloned();
            let l = Location { host, port, user, domain: None, share, path, directory: false };
            prop_assert_eq!(Location::parse(&l.to_string()), Ok(l));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _ = Location::parse(&text);
            let _ = Location::parse(&format!("smb://{text}"));
            let _ = Location::parse_pattern(&format!("smb://h/s/{text}"));
            let _ = Location::parse_pattern(&text);
        }
    }
}
