//! Reads typed values from a TOML table, and records every problem.

use std::borrow::Cow;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{AclEntry, Problem, ProblemKind, Problems, parse_size};

/// Keys whose values are strings.
const TEXTS: [&str; 16] = [
    "name",
    "control",
    "users",
    "state",
    "signing",
    "encryption",
    "min_dialect",
    "max_dialect",
    "memory",
    "metrics",
    "backend",
    "path",
    "snapshots",
    "comment",
    "pool",
    "resiliency",
];

/// A file being read: its lines, and the problems found so far.
pub(super) struct Source<'a> {
    file: &'a str,
    text: &'a str,
    problems: RefCell<Problems>,
}

/// One table of the file. Each key that is read counts as known; [`Table::finish`] reports the others.
pub(super) struct Table<'a, 't> {
    source: &'a Source<'a>,
    /// The name of its keys in messages: `server`, `share.files`.
    pub(super) section: String,
    at: Range<usize>,
    table: &'t DeTable<'t>,
    known: RefCell<Vec<&'static str>>,
}

/// A value and where it is.
pub(super) struct Found<T> {
    pub(super) value: T,
    pub(super) at: Range<usize>,
}

impl<'a> Source<'a> {
    pub(super) fn new(file: &'a str, text: &'a str) -> Source<'a> {
        Source { file, text, problems: RefCell::default() }
    }

    /// The line of a byte, from 1.
    pub(super) fn line(&self, at: usize) -> usize {
        self.text.as_bytes()[..at.min(self.text.len())].iter().filter(|b| **b == b'\n').count() + 1
    }

    /// Reports invalid TOML.
    pub(super) fn syntax(&self, at: usize, message: &str) {
        let line = self.text.lines().nth(self.line(at) - 1).unwrap_or_default();
        let unquoted = line.split_once('=').filter(|(_, value)| !value.contains(['"', '\'', '[', '{', '#']));
        let kind = match unquoted.map(|(key, value)| (key.trim(), value.trim())) {
            Some((_, text))
                if ["true", "false", "yes", "no", "on", "off"].contains(&&*text.to_lowercase()) =>
            {
                ProblemKind::Truth { text: text.to_owned() }
            }
            Some((key, text))
                if TEXTS.contains(&key) && text.starts_with(|c: char| c.is_alphabetic() || c == '/') =>
            {
                ProblemKind::Unquoted { key: key.to_owned(), text: text.to_owned() }
            }
            _ => ProblemKind::Syntax { message: message.replace('\n', ", ") },
        };
        self.report(at, String::new(), kind);
    }

    pub(super) fn report(&self, at: usize, key: String, kind: ProblemKind) {
        let problem = Problem { file: self.file.to_owned(), line: self.line(at), key, kind };
        self.problems.borrow_mut().0.push(problem);
    }

    /// All problems in the file's order.
    pub(super) fn finish(self) -> Problems {
        let mut problems = self.problems.into_inner();
        problems.0.sort_by_key(|p| p.line);
        // Other problems of a line with invalid TOML are dropped.
        let is_syntax = |p: &Problem| {
            matches!(
                p.kind,
                ProblemKind::Syntax { .. } | ProblemKind::Unquoted { .. } | ProblemKind::Truth { .. }
            )
        };
        let broken: Vec<usize> = problems.0.iter().filter(|p| is_syntax(p)).map(|p| p.line).collect();
        problems.0.retain(|p| is_syntax(p) || !broken.contains(&p.line));
        problems.0.dedup_by(|a, b| is_syntax(a) && a.line == b.line);
        problems
    }
}

impl<'a, 't> Table<'a, 't> {
    pub(super) fn new(
        source: &'a Source<'a>,
        section: &str,
        at: Range<usize>,
        table: &'t DeTable<'t>,
    ) -> Table<'a, 't> {
        Table { source, section: section.to_owned(), at, table, known: RefCell::default() }
    }

    pub(super) fn report(&self, at: &Range<usize>, key: &str, kind: ProblemKind) {
        let key = if self.section.is_empty() { key.to_owned() } else { format!("{}.{key}", self.section) };
        self.source.report(at.start, key, kind);
    }

    /// Reports that the table as a whole lacks `key`.
    pub(super) fn missing(&self, key: &str, example: &'static str) {
        self.report(&self.at, key, ProblemKind::Missing { example });
    }

    pub(super) fn line(&self, at: &Range<usize>) -> usize {
        self.source.line(at.start)
    }

    pub(super) fn at(&self) -> Range<usize> {
        self.at.clone()
    }

    pub(super) fn value(&self, key: &'static str) -> Option<&'t Spanned<DeValue<'t>>> {
        self.known.borrow_mut().push(key);
        self.table.get(key)
    }

    pub(super) fn string(&self, key: &'static str, example: &'static str) -> Option<Found<String>> {
        let v = self.value(key)?;
        match v.get_ref() {
            DeValue::String(s) => Some(Found { value: s.clone().into_owned(), at: v.span() }),
            other => self.wrong_type(key, &v.span(), other, "a string", example),
        }
    }

    pub(super) fn boolean(&self, key: &'static str, example: &'static str) -> Option<Found<bool>> {
        let v = self.value(key)?;
        match v.get_ref() {
            DeValue::Boolean(b) => Some(Found { value: *b, at: v.span() }),
            other => self.wrong_type(key, &v.span(), other, "true or false", example),
        }
    }

    pub(super) fn path(&self, key: &'static str, example: &'static str) -> Option<Found<PathBuf>> {
        let found = self.string(key, example)?;
        let value = PathBuf::from(found.value);
        if !value.is_absolute() {
            self.report(&found.at, key, ProblemKind::NotAbsolute { path: value });
            return None;
        }
        Some(Found { value, at: found.at })
    }

    /// A whole number in a range.
    pub(super) fn number(&self, key: &'static str, range: Range<u64>, example: &'static str) -> Option<u64> {
        let v = self.value(key)?;
        let DeValue::Integer(i) = v.get_ref() else {
            return self.wrong_type(key, &v.span(), v.get_ref(), "a whole number", example);
        };
        match u64::from_str_radix(i.as_str(), i.radix()) {
            Ok(n) if range.contains(&n) => Some(n),
            _ => {
                let (least, most) = (range.start.to_string(), (range.end - 1).to_string());
                self.report(&v.span(), key, ProblemKind::Range { found: i.to_string(), least, most });
                None
            }
        }
    }

    /// A size in bytes: a string with a unit, or a number.
    pub(super) fn size(&self, key: &'static str, range: Range<u64>, example: &'static str) -> Option<u64> {
        let v = self.value(key)?;
        let (text, bytes) = match v.get_ref() {
            DeValue::String(s) => (s.clone(), parse_size(s)),
            DeValue::Integer(i) => {
                (Cow::from(i.to_string()), u64::from_str_radix(i.as_str(), i.radix()).ok())
            }
            other => return self.wrong_type(key, &v.span(), other, "a size", example),
        };
        let Some(bytes) = bytes else {
            self.report(&v.span(), key, ProblemKind::Size { found: text.into_owned() });
            return None;
        };
        if !range.contains(&bytes) {
            let (least, most) = (super::format_size(range.start), super::format_size(range.end - 1));
            self.report(&v.span(), key, ProblemKind::Range { found: text.into_owned(), least, most });
            return None;
        }
        Some(bytes)
    }

    /// One of a list of words.
    pub(super) fn word<T: Copy>(
        &self,
        key: &'static str,
        words: &[(T, &'static str)],
        example: &'static str,
    ) -> Option<Found<T>> {
        let found = self.string(key, example)?;
        match words.iter().find(|(_, w)| *w == found.value) {
            Some((value, _)) => Some(Found { value: *value, at: found.at }),
            None => {
                let names: Vec<_> = words.iter().map(|(_, w)| *w).collect();
                let near = nearest(&found.value, &names);
                let kind = ProblemKind::Word { found: found.value, known: names.join(", "), near };
                self.report(&found.at, key, kind);
                None
            }
        }
    }

    /// An address with a port.
    pub(super) fn address(&self, key: &'static str, example: &'static str) -> Option<Found<SocketAddr>> {
        let v = self.value(key)?;
        let DeValue::String(s) = v.get_ref() else {
            return self.wrong_type(key, &v.span(), v.get_ref(), "an address", example);
        };
        match s.parse() {
            Ok(value) => Some(Found { value, at: v.span() }),
            Err(_) => {
                self.report(&v.span(), key, ProblemKind::Address { found: s.clone().into_owned(), example });
                None
            }
        }
    }

    /// A list of addresses.
    pub(super) fn addresses(
        &self,
        key: &'static str,
        example: &'static str,
    ) -> Option<Found<Vec<SocketAddr>>> {
        let v = self.value(key)?;
        let DeValue::Array(items) = v.get_ref() else {
            return self.wrong_type(key, &v.span(), v.get_ref(), "a list of addresses", example);
        };
        let mut out: Vec<SocketAddr> = Vec::new();
        for item in items.iter() {
            let DeValue::String(s) = item.get_ref() else {
                let _: Option<()> = self.wrong_type(key, &item.span(), item.get_ref(), "an address", example);
                continue;
            };
            match s.parse::<SocketAddr>() {
                Ok(address) if out.contains(&address) && address.port() != 0 => {
                    self.report(&item.span(), key, ProblemKind::AddressTwice { address });
                }
                Ok(address) => out.push(address),
                Err(_) => {
                    self.report(
                        &item.span(),
                        key,
                        ProblemKind::Address { found: s.clone().into_owned(), example },
                    );
                }
            }
        }
        Some(Found { value: out, at: v.span() })
    }

    /// A list of absolute paths or patterns of paths.
    pub(super) fn patterns(&self, key: &'static str, example: &'static str) -> Option<Vec<String>> {
        let v = self.value(key)?;
        let DeValue::Array(items) = v.get_ref() else {
            return self.wrong_type(key, &v.span(), v.get_ref(), "a list of paths", example);
        };
        let mut out: Vec<String> = Vec::new();
        for item in items.iter() {
            match item.get_ref() {
                DeValue::String(s) if !s.starts_with('/') => {
                    self.report(&item.span(), key, ProblemKind::NotAbsolute { path: PathBuf::from(&**s) });
                }
                DeValue::String(s) => out.push(s.clone().into_owned()),
                other => drop(self.wrong_type::<()>(key, &item.span(), other, "a path", example)),
            }
        }
        Some(out)
    }

    /// A list of permissions of a share.
    pub(super) fn acl(&self, key: &'static str, example: &'static str) -> Option<Vec<AclEntry>> {
        let v = self.value(key)?;
        let DeValue::Array(items) = v.get_ref() else {
            return self.wrong_type(key, &v.span(), v.get_ref(), "a list of strings", example);
        };
        let mut out = Vec::new();
        for item in items.iter() {
            let DeValue::String(s) = item.get_ref() else {
                let _ = self.wrong_type::<()>(key, &item.span(), item.get_ref(), "a string", example);
                continue;
            };
            match s.parse() {
                Ok(entry) => out.push(entry),
                Err(_) => self.report(&item.span(), key, ProblemKind::Acl { found: s.clone().into_owned() }),
            }
        }
        Some(out)
    }

    fn wrong_type<T>(
        &self,
        key: &str,
        at: &Range<usize>,
        found: &DeValue<'_>,
        wanted: &'static str,
        example: &'static str,
    ) -> Option<T> {
        let found = match found {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a number with a decimal point",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.report(at, key, ProblemKind::Type { found, wanted, example });
        None
    }

    /// Reports every key that was not read.
    pub(super) fn finish(self) {
        let known = self.known.borrow();
        for (key, _) in self.table.iter() {
            let name = key.get_ref().as_ref();
            if !known.contains(&name) {
                let kind = ProblemKind::UnknownKey { near: nearest(name, &known), known: known.join(", ") };
                self.report(&key.span(), name, kind);
            }
        }
    }
}

/// The known word that is most similar to a misspelled one.
pub(super) fn nearest(found: &str, known: &[&'static str]) -> Option<&'static str> {
    let found = found.to_lowercase().replace('-', "_");
    let (distance, best) = known.iter().map(|k| (edits(&found, k), *k)).min()?;
    (distance <= 1 + best.len() / 4).then_some(best)
}

/// The number of letters to insert, delete, replace or swap with their neighbour to get from `a` to `b`. Texts are cut
/// at 64 characters: longer ones are not typing mistakes.
fn edits(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().take(64).collect();
    let b: Vec<char> = b.chars().take(64).collect();
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_mistakes_find_their_word() {
        let known = ["read_only", "encrypt", "path", "name", "listen"];
        assert_eq!(nearest("read-only", &known), Some("read_only"));
        assert_eq!(nearest("pth", &known), Some("path"));
        assert_eq!(nearest("lsiten", &known), Some("listen"));
        assert_eq!(nearest("compression", &known), None);
        assert_eq!(edits("abcd", "acbd"), 1);
    }
}
