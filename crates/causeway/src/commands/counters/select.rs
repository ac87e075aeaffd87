//! Selects counters by name or path.

use counters::{Counter, SETS, Set, find};

/// The selected sets, instances and counters.
pub(super) struct Selection {
    wanted: Vec<Wanted>,
}

struct Wanted {
    set: &'static Set,
    instance: String,
    counter: String,
}

impl Selection {
    /// `sets` are names or paths; an empty list selects all. `instance` restricts all of them. `None` if a name is
    /// unknown.
    pub(super) fn new(sets: &[String], instance: Option<&str>) -> Option<Selection> {
        let instance = instance.unwrap_or("*");
        let mut wanted = Vec::new();
        for text in sets {
            let (name, of, counter) = match path(text) {
                Some(p) => p,
                None => (text.as_str(), None, "*"),
            };
            let found = find(name);
            if found.is_empty() || !found.iter().any(|s| s.counters().any(|c| matches(counter, c.name))) {
                return None;
            }
            wanted.extend(found.into_iter().map(|set| Wanted {
                set,
                instance: of.unwrap_or(instance).to_owned(),
                counter: counter.to_owned(),
            }));
        }
        if sets.is_empty() {
            let all = |set| Wanted { set, instance: instance.to_owned(), counter: "*".to_owned() };
            wanted.extend(SETS.map(all));
        }
        Some(Selection { wanted })
    }

    /// The sets, each once.
    pub(super) fn sets(&self) -> impl Iterator<Item = &'static Set> {
        SETS.into_iter().filter(|s| self.wanted.iter().any(|w| w.set.name == s.name))
    }

    /// Whether an instance of a set is selected.
    pub(super) fn has_instance(&self, set: &Set, instance: &str) -> bool {
        self.wanted.iter().any(|w| w.set.name == set.name && matches(&w.instance, instance))
    }

    /// Whether a counter is selected, for `instance` if it is given.
    pub(super) fn has(&self, set: &Set, instance: Option<&str>, counter: &Counter) -> bool {
        self.wanted.iter().any(|w| {
            w.set.name == set.name
                && instance.is_none_or(|i| matches(&w.instance, i))
                && matches(&w.counter, counter.name)
        })
    }
}

/// The parts of `\Set(instance)\Counter`, with or without `\\HOST` in front; the instance is optional.
pub(super) fn path(text: &str) -> Option<(&str, Option<&str>, &str)> {
    let rest = match text.strip_prefix("\\\\") {
        Some(with_host) => with_host.split_once('\\')?.1,
        None => text.strip_prefix('\\')?,
    };
    // The name of an instance may contain backslashes and brackets; that of a counter brackets, but no backslash.
    let (object, counter) = rest.rsplit_once('\\')?;
    match object.split_once('(') {
        Some((set, instance)) => Some((set, Some(instance.strip_suffix(')')?), counter)),
        None => Some((object, None, counter)),
    }
}

/// Whether `text` matches `pattern`, ignoring case; `*` matches any characters.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.to_lowercase(), text.to_lowercase());
    let mut pieces = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(pieces.next().unwrap_or_default()) else { return false };
    let pieces: Vec<&str> = pieces.collect();
    let Some((last, middle)) = pieces.split_last() else { return rest.is_empty() };
    for piece in middle {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        assert_eq!(
            path(r"\SMB Server Shares(files)\Read Bytes/sec"),
            Some(("SMB Server Shares", Some("files"), "Read Bytes/sec"))
        );
        assert_eq!(
            path(r"\\HOST\SMB Client Shares(\\srv\a (1))\Avg. sec/Read"),
            Some(("SMB Client Shares", Some(r"\\srv\a (1)"), "Avg. sec/Read"))
        );
        assert_eq!(path(r"\RDMA Activity\*"), Some(("RDMA Activity", None, "*")));
        assert_eq!(
            path(r"\SMB Direct Connection(a/b)\Stalls (Send Queue)/sec"),
            Some(("SMB Direct Connection", Some("a/b"), "Stalls (Send Queue)/sec"))
        );
        for bad in ["SMB Server Shares", r"\SMB", r"\SMB(x\Counter", ""] {
            assert_eq!(path(bad), None, "{bad}");
        }
    }

    #[test]
    fn patterns() {
        for (pattern, text, yes) in [
            ("*", "", true),
            ("*", "files", true),
            ("FILES", "files", true),
            ("f*s", "files", true),
            ("f*s", "fil", false),
            ("*ile*", "files", true),
            ("files", "files2", false),
            ("a*a", "a", false),
            ("**", "x", true),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern, text), yes, "{pattern} {text}");
        }
    }

    #[test]
    fn names_and_paths_narrow() {
        let new =
            |sets: &[&str], i| Selection::new(&sets.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>(), i);
        assert_eq!(new(&[], None).expect("all").sets().count(), SETS.len());
        let s = new(&["smb server"], Some("fi*")).expect("two");
        assert_eq!(s.sets().count(), 2);
        let shares = find("SMB Server Shares")[0];
        assert!(s.has_instance(shares, "files") && !s.has_instance(shares, "ram"));
        let s = new(&[r"\SMB Server Shares(*)\read*"], None).expect("a path");
        let names: Vec<_> =
            shares.counters().filter(|c| s.has(shares, Some("x"), c)).map(|c| c.name).collect();
        assert!(names.len() > 2 && names.iter().all(|n| n.starts_with("Read")), "{names:?}");
        assert!(new(&["disks"], None).is_none() && new(&[r"\SMB Server Shares(*)\Nonsense"], None).is_none());
    }
}
