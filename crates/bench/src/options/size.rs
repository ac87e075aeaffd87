//! Numbers and sizes as DiskSPD writes them: `4096`, `64K`, `1G`, `8b` (blocks).

use super::OptionError;

/// Reads a number at the beginning of `text`; returns the rest too.
fn digits(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    Some((number.parse().ok()?, rest))
}

/// Reads a size at the beginning of `text`, in bytes; returns the rest too.
pub(super) fn size_prefix<'a>(
    option: &str,
    text: &'a str,
    block: u32,
) -> Result<(u64, &'a str), OptionError> {
    let bad = |why| OptionError::Value { option: option.to_owned(), value: text.to_owned(), why };
    let (number, rest) =
        digits(text).ok_or_else(|| bad("not a number: write bytes, or a number with K, M, G, T or b"))?;
    let mut chars = rest.chars();
    let unit = match chars.next().map(|c| c.to_ascii_uppercase()) {
        Some('K') => 1 << 10,
        Some('M') => 1 << 20,
        Some('G') => 1 << 30,
        Some('T') => 1 << 40,
        Some('B') => u64::from(block),
        _ => return Ok((number, rest)),
    };
    let bytes = number.checked_mul(unit).ok_or_else(|| bad("too large: a size must fit in 64 bits"))?;
    Ok((bytes, chars.as_str()))
}

/// Reads a size, in bytes.
pub(super) fn size(option: &str, text: &str, block: u32) -> Result<u64, OptionError> {
    match size_prefix(option, text, block)? {
        (bytes, "") => Ok(bytes),
        _ => Err(OptionError::Value {
            option: option.to_owned(),
            value: text.to_owned(),
            why: "not a size: only K, M, G, T (binary) or b (blocks, see -b) may follow the number",
        }),
    }
}

/// Reads a whole number between `least` and `most`.
pub(super) fn number(option: &str, text: &str, least: u32, most: u32) -> Result<u32, OptionError> {
    match text.parse() {
        Ok(n) if (least..=most).contains(&n) && !text.starts_with('+') => Ok(n),
        _ => Err(OptionError::Range { option: option.to_owned(), value: text.to_owned(), least, most }),
    }
}

/// Reads a whole number of 32 bits.
pub(super) fn number32(text: &str) -> Option<(u32, &str)> {
    let (number, rest) = digits(text)?;
    Some((u32::try_from(number).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary_and_blocks_are_the_block_size() {
        for (text, bytes) in [("0", 0), ("4096", 4096), ("4k", 4096), ("2M", 2 << 20), ("3g", 3 << 30)] {
            assert_eq!(size("-c", text, 512).ok(), Some(bytes), "{text}");
        }
        assert_eq!(size("-c", "1T", 512).ok(), Some(1 << 40));
        assert_eq!(size("-c", "8b", 4096).ok(), Some(32768));
    }

    #[test]
    fn invalid_sizes_are_refused() {
        for text in ["", "K", "-1", "1KB", "1.5G", "99999999999999999999", "18446744073709551615K", "4x"] {
            assert!(size("-c", text, 512).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_have_bounds() {
        assert_eq!(number("-t", "1", 1, 8).ok(), Some(1));
        for text in ["0", "9", "", "+1", "-1", "1x"] {
            assert!(number("-t", text, 1, 8).is_err(), "{text}");
        }
    }
}
