//! Case-insensitive comparison of names: simple uppercase of each character, as in NTFS's upcase table.

/// The form of a name under which it is looked up: characters whose uppercase is a single character are replaced by
/// it (`ß` stays, `ﬁ` stays), the others are kept.
pub(crate) fn fold(name: &str) -> String {
    if name.is_ascii() { name.to_ascii_uppercase() } else { name.chars().map(fold_char).collect() }
}

/// Whether `name`, when folded, equals `folded`.
pub(crate) fn is_folded(name: &str, folded: &str) -> bool {
    if name.is_ascii() {
        name.eq_ignore_ascii_case(folded)
    } else {
        name.chars().map(fold_char).eq(folded.chars())
    }
}

pub(crate) fn fold_char(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_uppercase();
    }
    let mut upper = c.to_uppercase();
    match (upper.next(), upper.next()) {
        // The dotless i and the long s are unchanged, as in NTFS: no other character is equal to an ASCII one.
        (Some(single), None) if !single.is_ascii() => single,
        _ => c,
    }
}

#[cfg(test)]
mod tests {
    use super::{fold, is_folded};

    #[test]
    fn simple_uppercase() {
        assert_eq!(fold("Straße.TXT"), "STRAßE.TXT");
        assert_eq!(fold("žluťoučký"), fold("ŽLUŤOUČKÝ"));
        assert_eq!(fold("ﬁ"), "ﬁ");
        assert_ne!(fold("a"), fold("ä"));
        assert_eq!(fold("ıſ"), "ıſ");
        for (name, other) in [
            ("a", "b"),
            ("Straße", "STRASSE"),
            ("ab", "a"),
            ("a", "ab"),
            ("é", "É"),
            ("x", "X"),
            ("ı", "I"),
            ("ſ", "s"),
        ] {
            assert_eq!(is_folded(name, &fold(other)), fold(name) == fold(other), "{name} {other}");
        }
    }
}
