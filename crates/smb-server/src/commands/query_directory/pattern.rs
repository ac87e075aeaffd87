//! Search patterns (MS-FSA 2.1.4.4): `*` and `?`, and three wildcards with DOS semantics.
//!
//! - `*` any characters, `?` one character.
//! - `<` (DOS_STAR) any characters up to the last period of the name, not that.
//! - `>` (DOS_QM) one character, or none at a period or the name's end.
//! - `"` (DOS_DOT) a period, or nothing at the name's end.

/// The longest pattern, in characters: no name is longer. The number of positions, one more, fits [`Places`].
pub(super) const PATTERN_MAX: usize = 255;

/// A search pattern.
///
/// A name is matched in one pass without allocation, by simulating a nondeterministic automaton. The positions in the
/// expression that the characters read so far may lead to are a bitmask; each character moves all of them at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    text: String,
    /// Characters of the expression: the position of its end.
    length: usize,
    star: Places,
    dos_star: Places,
    question: Places,
    dos_question: Places,
    dos_dot: Places,
    /// The positions of each other character, folded; sorted.
    literals: Vec<(char, Places)>,
}

impl Pattern {
    /// `None` if it is longer than any name. The empty pattern matches all names.
    pub(crate) fn new(text: &str) -> Option<Pattern> {
        let text = if text.is_empty() { "*" } else { text };
        let mut p = Pattern {
            text: text.to_owned(),
            length: text.chars().count(),
            star: Places::NONE,
            dos_star: Places::NONE,
            question: Places::NONE,
            dos_question: Places::NONE,
            dos_dot: Places::NONE,
            literals: Vec::new(),
        };
        if p.length > PATTERN_MAX {
            return None;
        }
        for (place, c) in text.chars().enumerate() {
            match c {
                '*' => p.star.add(place),
                '<' => p.dos_star.add(place),
                '?' => p.question.add(place),
                '>' => p.dos_question.add(place),
                '"' => p.dos_dot.add(place),
                c => p.add_literal(fold(c), place),
            }
        }
        Some(p)
    }

    fn add_literal(&mut self, c: char, place: usize) {
        let at = self.literals.binary_search_by_key(&c, |(c, _)| *c).unwrap_or_else(|at| {
            self.literals.insert(at, (c, Places::NONE));
            at
        });
        self.literals[at].1.add(place);
    }

    /// The one name it matches, when it has no wildcard.
    pub(crate) fn literal(&self) -> Option<&str> {
        (!self.text.contains(['*', '?', '<', '>', '"'])).then_some(self.text.as_str())
    }

    /// Whether a name matches, without regard to case.
    pub(crate) fn matches(&self, name: &str) -> bool {
        if self.text == "*" {
            return true;
        }
        let last_period = name.rfind('.');
        let mut places = Places::NONE;
        places.add(0);
        for (i, c) in name.char_indices() {
            places = places.through(self.empty_before(Some(c)));
            places = self.step(places, fold(c), last_period == Some(i));
            if places == Places::NONE {
                return false;
            }
        }
        places.through(self.empty_before(None)).has(self.length)
    }

    /// The positions that may be passed without reading a character: `*` and `<` always, `>` before a period or the
    /// end, `"` at the end.
    fn empty_before(&self, next: Option<char>) -> Places {
        let always = self.star | self.dos_star;
        match next {
            None => always | self.dos_question | self.dos_dot,
            Some('.') => always | self.dos_question,
            Some(_) => always,
        }
    }

    /// The positions after reading a character.
    fn step(&self, places: Places, c: char, is_last_period: bool) -> Places {
        let stay = if is_last_period { self.star } else { self.star | self.dos_star };
        let literal = self.literals.binary_search_by_key(&c, |(c, _)| *c);
        let literal = literal.map_or(Places::NONE, |at| self.literals[at].1);
        let advance = self.question | literal | if c == '.' { self.dos_dot } else { self.dos_question };
        (places & stay) | (places & advance).next()
    }
}

/// A set of positions in an expression, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Places([u64; 4]);

impl Places {
    const NONE: Places = Places([0; 4]);

    fn add(&mut self, place: usize) {
        self.0[place / 64] |= 1 << (place % 64);
    }

    fn has(self, place: usize) -> bool {
        self.0[place / 64] & 1 << (place % 64) != 0
    }

    /// Every position moved by one.
    fn next(self) -> Places {
        let mut carry = 0;
        Places(self.0.map(|word| {
            let moved = word << 1 | carry;
            carry = word >> 63;
            moved
        }))
    }

    /// Adds the positions that can be reached through `empty` ones: adding a position to its run of empty positions
    /// carries a bit to the position behind the run.
    fn through(self, empty: Places) -> Places {
        let mut carry = false;
        let mut sum = empty;
        for (word, own) in sum.0.iter_mut().zip((self & empty).0) {
            let (added, first) = word.overflowing_add(own);
            let (added, second) = added.overflowing_add(u64::from(carry));
            (*word, carry) = (added, first || second);
        }
        self | Places(std::array::from_fn(|i| sum.0[i] ^ empty.0[i]))
    }
}

impl std::ops::BitOr for Places {
    type Output = Places;
    fn bitor(self, other: Places) -> Places {
        Places(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }
}

impl std::ops::BitAnd for Places {
    type Output = Places;
    fn bitand(self, other: Places) -> Places {
        Places(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }
}

/// Simple uppercase mapping, as in NTFS's table.
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
        assert!(matches(&"*".repeat(255), &"a".repeat(255)));
        assert!(matches(&"?".repeat(255), &"a".repeat(255)));
        assert!(!matches(&"?".repeat(255), &"a".repeat(254)));
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

        /// Expressions whose positions need more than one word: a prefix shifts all of them.
        #[test]
        fn as_the_naive_model_further_on(e in "[*?<>\"A.]{0,7}", n in "[AB.]{0,7}", before in 50..248usize) {
            let (ec, nc): (Vec<char>, Vec<char>) = (e.chars().collect(), n.chars().collect());
            let before = "x".repeat(before);
            prop_assert_eq!(matches(&format!("{before}{e}"), &format!("{before}{n}")), model(&ec, &nc));
        }
    }
}
