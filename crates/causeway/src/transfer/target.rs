//! The sources and the destination of `get` and `put`.

use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::url::{Location, UrlError};

/// The arguments of `get`: URLs, then optionally a directory or a name on this machine.
#[derive(Debug, PartialEq, Eq)]
pub struct Gets {
    /// The sources.
    pub sources: Vec<Location>,
    /// The destination.
    pub target: PathBuf,
}

/// The arguments of `put`: files of this machine, then a URL.
#[derive(Debug, PartialEq, Eq)]
pub struct Puts {
    /// The sources.
    pub sources: Vec<PathBuf>,
    /// The destination.
    pub target: Location,
}

impl Gets {
    /// The last argument is the target unless it is a place on a server; then it is the current directory.
    ///
    /// # Errors
    /// A source is no place on a server, or there are several sources and the target is no directory.
    pub fn parse(arguments: &[String]) -> Result<Gets, Failure> {
        let (sources, target) = match arguments.split_last() {
            Some((last, rest)) if !rest.is_empty() && !Location::is_remote(last) => {
                (rest, PathBuf::from(last))
            }
            _ => (arguments, PathBuf::from(".")),
        };
        let sources = sources.iter().map(|s| Location::parse(s)).collect::<Result<Vec<_>, _>>()?;
        if sources.len() > 1 && !target.is_dir() {
            return Err(Failure::Usage(
                "several files need an existing directory as destination: create it first, or name one file",
            ));
        }
        one_share(&sources)?;
        Ok(Gets { sources, target })
    }

    /// The destination of a source: in the target if that is a directory, else the target itself.
    ///
    /// # Errors
    /// [`UrlError::NoPath`] for a whole share without a name for it.
    pub fn destination(&self, source: &Location) -> Result<PathBuf, UrlError> {
        if !self.target.is_dir() {
            return Ok(self.target.clone());
        }
        // A whole share is copied into a directory with its name.
        let name = source.path.name().map_or_else(|| source.share(), Ok)?;
        Ok(self.target.join(name))
    }
}

impl Puts {
    /// The last argument is the target.
    ///
    /// # Errors
    /// The target is no place on a server.
    pub fn parse(arguments: &[String]) -> Result<Puts, Failure> {
        let Some((target, sources)) = arguments.split_last().filter(|(_, s)| !s.is_empty()) else {
            return Err(Failure::Usage(
                "a source and a destination are needed: causeway put FILE smb://host/share/path",
            ));
        };
        if let Some(remote) = sources.iter().find(|s| Location::is_remote(s)) {
            let _ = Location::parse(remote)?;
            return Err(Failure::Usage(
                "put copies from this machine to a server: use causeway get to copy from a server",
            ));
        }
        let target = Location::parse(target)?;
        target.share()?;
        Ok(Puts { sources: sources.iter().map(PathBuf::from).collect(), target })
    }

    /// The destination of a source: in the target if that is a directory, else the target itself.
    ///
    /// # Errors
    /// The source has no name (`/`), or a name that is invalid on a share.
    pub fn destination(&self, source: &Path, target_is_directory: bool) -> Result<Location, Failure> {
        if !target_is_directory {
            return Ok(self.target.clone());
        }
        // `.` and `..` get the name of the directory that they refer to.
        let local = |source: std::io::Error| Failure::Local { path: PathBuf::from("."), source };
        let named = match source.file_name() {
            Some(n) => n.to_owned(),
            None => source.canonicalize().map_err(local)?.file_name().unwrap_or_default().to_owned(),
        };
        Ok(self.target.join(&named.to_string_lossy())?)
    }
}

/// Checks that all URLs of a command are on one share with one user; returns the first.
///
/// # Errors
/// When there are several.
pub fn one_share(places: &[Location]) -> Result<&Location, Failure> {
    let first = places.first().ok_or(Failure::Usage("a URL is needed: smb://host/share/path"))?;
    first.share()?;
    if places.iter().all(|p| p.same_share(first)) {
        Ok(first)
    } else {
        Err(Failure::Usage("all URLs of one command must be on one share: use a command for each share"))
    }
}

/// Reads URLs of files or directories: at least one, all on one share.
///
/// # Errors
/// There is no URL, a URL is invalid or has no path, or the URLs are on several shares.
pub fn named(arguments: &[String]) -> Result<Vec<Location>, Failure> {
    let places = arguments.iter().map(|p| Location::parse(p)).collect::<Result<Vec<_>, _>>()?;
    for place in &places {
        place.file_name()?;
    }
    one_share(&places)?;
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Scratch;

    fn strings(list: &[&str]) -> Vec<String> {
        list.iter().map(|s| (*s).to_owned()).collect()
    }

    #[test]
    fn gets_go_into_directories_and_to_names() {
        let dir = Scratch::new("gets");
        let into = dir.0.to_str().expect("UTF-8");
        let g = Gets::parse(&strings(&["//h/s/a/b.txt", into])).expect("right");
        assert_eq!(g.destination(&g.sources[0]).expect("a name"), dir.0.join("b.txt"));
        let g = Gets::parse(&strings(&["//h/s/a", "/nonexistent/new"])).expect("right");
        assert_eq!(g.destination(&g.sources[0]).expect("a name"), Path::new("/nonexistent/new"));
        let g = Gets::parse(&strings(&["//h/s/"])).expect("right");
        assert_eq!(g.destination(&g.sources[0]).expect("a name"), Path::new("./s"));
        assert!(Gets::parse(&strings(&["//h/s/a", "//h/s/b", "/nonexistent/new"])).is_err());
        assert!(Gets::parse(&strings(&["//h/s/a", "//h/t/b", into])).is_err());
        assert!(Gets::parse(&strings(&["a", into])).is_err());
    }

    #[test]
    fn named_places_are_of_one_share_and_have_names() {
        assert_eq!(named(&strings(&["//h/s/a", "//h/s/b/c"])).expect("right").len(), 2);
        for wrong in [&[][..], &["//h/s"], &["//h/s/a", "//h/t/b"], &["a"]] {
            assert!(named(&strings(wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn puts_go_into_directories_and_to_names() {
        let p = Puts::parse(&strings(&["x/a.txt", "b", "//h/s/d"])).expect("right");
        assert_eq!(p.sources.len(), 2);
        let to = |source: &str, directory| {
            p.destination(Path::new(source), directory).expect("a place").to_string()
        };
        assert_eq!(to("x/a.txt", true), "smb://h/s/d/a.txt");
        assert_eq!(to("x/a.txt", false), "smb://h/s/d");
        assert!(p.destination(Path::new("x/a:b"), true).is_err());
        assert!(Puts::parse(&strings(&["//h/s/d"])).is_err());
        assert!(Puts::parse(&strings(&["a", "b"])).is_err());
        assert!(Puts::parse(&strings(&["//h/s/a", "//h/s/b"])).is_err());
        assert!(Puts::parse(&strings(&["a", "//h"])).is_err());
    }
}
