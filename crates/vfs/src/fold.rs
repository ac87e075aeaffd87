//! When two names are the same: simple uppercase of each character, as NTFS's upcase table does.

/// The form of a name under which it is looked up: characters whose uppercase is a single character are replaced by
/// it (`ß` stays, `ﬁ` stays), the others are kept.
pub(crate) fn fold(name: &str) -> String {
    if name.is_ascii() { name.to_ascii_uppercase() } else { name.chars().map(fold_char).collect() }
}

fn fold_char(c: char) -> char {
    let mut upper = c.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(single), None) => single,
        _ => c,
    }
}

#[cfg(test)]
mod tests {
    use super::fold;

    #[test]
    fn simple_uppercase() {
        assert_eq!(fold("Straße.TXT"), "STRAßE.TXT");
        assert_eq!(fold("žluťoučký"), fold("ŽLUŤOUČKÝ"));
        assert_eq!(fold("ﬁ"), "ﬁ");
        assert_ne!(fold("a"), fold("ä"));
    }
}
