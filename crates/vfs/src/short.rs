//! 8.3 names (MS-FSCC 2.1.5.2.1): a second, short name of a file, made from the long one.
//!
//! A short name is not stored: it is computed from the long name, so that every listing shows the same one. If two
//! names of a directory have the same short name, neither can be opened by it.

/// The most characters before and behind the period.
const BASE_MAX: usize = 8;
const EXTENSION_MAX: usize = 3;
/// The digits of a hash: base 36, so that six of them give two thousand million names.
const DIGITS: &[u8; 36] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// The short name of a file; `None` if its name is one already.
pub fn short_name(name: &str) -> Option<String> {
    if is_short(name) {
        return None;
    }
    let (base, extension) = match name.rsplit_once('.') {
        Some((base, extension)) if !base.is_empty() => (base, extension),
        _ => (name, ""),
    };
    let mut hash = hash(name);
    let mut digit = || {
        let d = DIGITS[(hash % 36) as usize];
        hash /= 36;
        char::from(d)
    };
    let mut short = String::with_capacity(BASE_MAX + 1 + EXTENSION_MAX);
    short.push(legal(base).next().unwrap_or('_'));
    short.extend((0..5).map(|_| digit()));
    short.push('~');
    short.push(digit());
    let mut extension = legal(extension).take(EXTENSION_MAX).peekable();
    if extension.peek().is_some() {
        short.push('.');
        short.extend(extension);
    }
    Some(short)
}

/// Whether a name may be a result of [`short_name`].
pub(crate) fn is_generated(name: &str) -> bool {
    name.as_bytes().get(6) == Some(&b'~') && is_short(name)
}

/// Whether a name is already an 8.3 name.
pub fn is_short(name: &str) -> bool {
    let (base, extension) = name.split_once('.').unwrap_or((name, "x"));
    let part = |p: &str, max| (1..=max).contains(&p.len()) && p.chars().all(is_legal);
    part(base, BASE_MAX) && part(extension, EXTENSION_MAX)
}

fn legal(part: &str) -> impl Iterator<Item = char> + '_ {
    part.chars().filter(|c| is_legal(*c)).map(|c| c.to_ascii_uppercase())
}

fn is_legal(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'()-@^_`{}~".contains(c)
}

/// FNV-1a of the folded name.
fn hash(name: &str) -> u32 {
    crate::fold::fold(name).bytes().fold(0x811C_9DC5, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    // MS-FSCC 2.1.5.2.1
    #[test]
    fn short_names() {
        for name in ["a", "README.TXT", "bufsize.txt", "12345678.123", "~$a.b", "x~1"] {
            assert_eq!(short_name(name), None, "{name}");
        }
        for name in ["123456789", "a.html", ".a", "a.b.c", "a b", "ä", "a.", "a+b", ""] {
            assert!(!is_short(name), "{name}");
        }
        let short = short_name("testsmb2_file.data").expect("long");
        assert!(short.starts_with('T') && short.ends_with(".DAT"), "{short}");
        assert_eq!(short_name("TestSMB2_File.Data"), Some(short));
        assert!(short_name(".äö").expect("long").starts_with('_'));
    }

    #[test]
    fn generated_names_are_short_and_recognized() {
        for name in
            ["", " ", ".", "...", "a b", "long name.with.dots", "\u{f022}", "x.ä", "日本語.txt", "a.+++b+c+d"]
        {
            let short = short_name(name).expect("not one");
            assert!(
                is_short(&short) && is_generated(&short) && is_generated(&short.to_lowercase()),
                "{short}"
            );
        }
    }
}
