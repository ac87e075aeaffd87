//! Which files go where.

use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::url::{Location, UrlError};

/// The arguments of `get`: places, then perhaps a directory or a name of this machine.
#[derive(Debug, PartialEq, Eq)]
pub struct Gets {
    /// Where from.
    pub sources: Vec<Location>,
    /// Where to.
    pub target: PathBuf,
}

/// The arguments of `put`: files of this machine, then a place.
#[derive(Debug, PartialEq, Eq)]
pub struct Puts {
    /// Where from.
    pub sources: Vec<PathBuf>,
    /// Where to.
    pub target: Location,
}

impl Gets {
    /// The last argument is the target unless it is a place on a server; then it is the current directory.
    ///
    /// # Errors
    /// Something that is no place, or several sources for a target that is no directory.
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
                "several files go into a directory only: make it first, or name one file",
            ));
        }
        one_share(&sources)?;
        Ok(Gets { sources, target })
    }

    /// Where a source goes: into the target where that is a directory, else to it.
    ///
    /// # Errors
    /// [`UrlError::NoPath`] for a whole share without a name for it.
    pub fn destination(&self, source: &Location) -> Result<PathBuf, UrlError> {
        if !self.target.is_dir() {
            return Ok(self.target.clone());
        }
        // A whole share goes into a directory of its name.
        let name = source.path.name().map_or_else(|| source.share(), Ok)?;
        Ok(self.target.join(name))
    }
}

impl Puts {
    /// The last argument is the target.
    ///
    /// # Errors
    /// A target that is no place.
    pub fn parse(arguments: &[String]) -> Result<Puts, Failure> {
        let Some((target, sources)) = arguments.split_last().filter(|(_, s)| !s.is_empty()) else {
            return Err(Failure::Usage(
                "name what to copy and where to: causeway put FILE smb://host/share/path",
            ));
        };
        if let Some(remote) = sources.iter().find(|s| Location::is_remote(s)) {
            let _ = Location::parse(remote)?;
            return Err(Failure::Usage(
                "put copies from this machine to a server: use get for the other way",
            ));
        }
        let target = Location::parse(target)?;
        target.share()?;
        Ok(Puts { sources: sources.iter().map(PathBuf::from).collect(), target })
    }

    /// Where a source goes: into the target where that is a directory, else to it.
    ///
    /// # Errors
    /// When the source has no name (`/`), or one that no share takes.
    pub fn destination(&self, source: &Path, target_is_directory: bool) -> Result<Location, Failure> {
        if !target_is_directory {
            return Ok(self.target.clone());
        }
        // `.` and `..` have the name of the directory that they stand for.
        let local = |source: std::io::Error| Failure::Local { path: PathBuf::from("."), source };
        let named = match source.file_name() {
            Some(n) => n.to_owned(),
            None => source.canonicalize().map_err(local)?.file_name().unwrap_or_default().to_owned(),
        };
        Ok(self.target.join(&named.to_string_lossy())?)
    }
}

/// One command speaks with one share, as one user.
///
/// # Errors
/// When there are several.
pub fn one_share(places: &[Location]) -> Result<&Location, Failure> {
    let first = places.first().ok_or(Failure::Usage("name a place: smb://host/share/path"))?;
    first.share()?;
    if places.iter().all(|p| p.same_share(first)) {
        Ok(first)
    } else {
        Err(Failure::Usage("all places of one command must be on one share: use a command for each share"))
    }
}

/// Places that each name a file or directory, one of them at least, all on one share.
///
/// # Errors
/// When there is none, one is no place or has no path, or they are on several shares.
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
