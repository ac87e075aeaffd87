//! Search patterns (MS-FSA 2.1.4.4): `*` and `?`, and the three that stand for DOS's idea of them.
//!
//! - `*` any characters, `?` one character.
//! - `<` (DOS_STAR) any characters up to the last period of the name, not that.
//! - `>` (DOS_QM) one character, or none at a period or the name's end.
//! - `"` (DOS_DOT) a period, or nothing at the name's end.

/// Longest pattern, in characters: names are not longer.
pub(super) const PATTERN_MAX: usize = 255;

/// A search pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    text: String,
    /// Folded.
    expression: Vec<char>,
}

impl Pattern {
    /// `None` when it is longer than names are. The empty pattern means all.
    pub(crate) fn new(text: &str) -> Option<Pattern> {
        let text = if text.is_empty() { "*" } else { text };
        let expression: Vec<char> = text.chars().map(fold).collect();
        (expression.len() <= PATTERN_MAX).then(|| Pattern { text: text.to_owned(), expression })
    }

    /// The one name it matches, when it has no wildcard.
    pub(crate) fn literal(&self) -> Option<&str> {
        (!self.text.contains(['*', '?', '<', '>', '"'])).then_some(self.text.as_str())
    }

    /// Whether a name matches, without regard to case.
    pub(crate) fn matches(&self, name: &str) -> bool {
        if self.expression == ['*'] {
            return true;
        }
        let last_period = name.chars().enumerate().filter(|(_, c)| *c == '.').map(|(i, _)| i).last();
        // The set of places in the expression that what was read of the name may lead to.
        let mut places = vec![false; self.expression.len() + 1];
        places[0] = true;
        for (i, c) in name.chars().enumerate() {
            self.skip_empty(&mut places, Some(c));
            places = self.step(&places, fold(c), last_period == Some(i));
            if !places.contains(&true) {
                return false;
            }
        }
        self.skip_empty(&mut places, None);
        places[self.expression.len()]
    }

    /// Adds the places reached without reading: past `*` and `<`, past `>` before a period or the end, past `"` at
    /// the end.
    fn skip_empty(&self, places: &mut [bool], next: Option<char>) {
        for (i, e) in self.expression.iter().enumerate() {
            let empty = match e {
                '*' | '<' => true,
                '>' => matches!(next, None | Some('.')),
                '"' => next.is_none(),
                _ => false,
            };
            if places[i] && empty {
                places[i + 1] = true;
            }
        }
    }

    fn step(&self, places: &[bool], c: char, is_last_period: bool) -> Vec<bool> {
        let mut next = vec![false; places.len()];
        for (i, e) in self.expression.iter().enumerate().filter(|(i, _)| places[*i]) {
            match e {
                '*' => next[i] = true,
                '<' if !is_last_period => next[i] = true,
                '<' => {}
                '?' => next[i + 1] = true,
                '>' => next[i + 1] |= c != '.',
                '"' => next[i + 1] |= c == '.',
                _ => next[i + 1] |= *e == c,
            }
        }
        next
    }
}

/// Simple uppercase, as NTFS's table has it.
fn fold(c: char) -> char {
    let mut upper = c.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(single), None) => single,
        _ => c,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        Pattern::new(pattern).expect("short").matches(name)
    }

    // MS-FSA 2.1.4.4
    #[test]
    fn wildcards() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*", "a.b.c", true),
            ("", "anything", true),
            ("abc", "ABC", true),
            ("äÖ", "ÄÖ", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("?", "", false),
            ("*.txt", "a.b.TXT", true),
            ("*.txt", "atxt", false),
            ("*.*", "noperiod", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b*", "xxbxxaxx", false),
            // "*." of a DOS program: names without an extension.
            ("<", "noperiod", true),
            ("<\"", "noperiod", true),
            ("<\"*", "a.b", true),
            ("<.txt", "a.b.txt", true),
            ("<.b", "a.b.txt", false),
            ("<", "a.b", false),
            ("<", "a.", false),
            // "f??.c" of a DOS program.
            ("f>>.c", "f.c", true),
            ("f>>.c", "fab.c", true),
            ("f>>.c", "fabc.c", false),
            ("a>>>", "a", true),
            ("a\"b", "a.b", true),
            ("a\"", "a", true),
            ("a\"", "a.", true),
            ("a\"\"", "a", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern:?} {name:?}");
        }
        assert!(Pattern::new(&"*".repeat(256)).is_none());
    }

    #[test]
    fn literals() {
        assert_eq!(Pattern::new("a b.c").expect("short").literal(), Some("a b.c"));
        for wild in ["*", "a?", "<", ">", "\""] {
            assert_eq!(Pattern::new(wild).expect("short").literal(), None, "{wild}");
        }
    }

    /// The naive model: try every way.
    fn model(e: &[char], n: &[char]) -> bool {
        let Some((head, rest)) = e.split_first() else { return n.is_empty() };
        let last_period = n.first() == Some(&'.') && !n[1..].contains(&'.');
        match head {
            '*' => model(rest, n) || (!n.is_empty() && model(e, &n[1..])),
            '<' => model(rest, n) || (!n.is_empty() && !last_period && model(e, &n[1..])),
            '?' => !n.is_empty() && model(rest, &n[1..]),
            '>' => match n.first() {
                None | Some('.') => model(rest, n),
                Some(_) => model(rest, &n[1..]),
            },
            '"' => match n.first() {
                None => model(rest, n),
                Some('.') => model(rest, &n[1..]),
                Some(_) => false,
            },
            c => n.first() == Some(c) && model(rest, &n[1..]),
        }
    }

    proptest! {
        #[test]
        fn as_the_naive_model(e in "[*?<>\"A.]{0,7}", n in "[AB.]{0,7}") {
            let (ec, nc): (Vec<char>, Vec<char>) = (e.chars().collect(), n.chars().collect());
            prop_assert_eq!(matches(&e, &n), e.is_empty() || model(&ec, &nc));
        }
    }
}
