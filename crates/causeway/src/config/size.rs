//! Sizes with units, such as `512MiB`.

/// Units by suffix, largest first, for printing.
const UNITS: [(&str, u64); 6] = [
    ("EiB", 1 << 60),
    ("PiB", 1 << 50),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
];

/// A number of bytes: `"512MiB"`, `"4 GiB"`, `"1.5GiB"`, `"10GB"` (decimal), `"4G"` (binary), `"65536"`.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "p" | "pib" => 1 << 50,
        "e" | "eib" => 1 << 60,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "pb" => 1_000_000_000_000_000,
        "eb" => 1_000_000_000_000_000_000,
        _ => return None,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale);
    }
    let bytes = number.parse::<f64>().ok()? * scale as f64;
    (bytes.is_finite() && (0.0..9e18).contains(&bytes)).then_some(bytes as u64)
}

/// The shortest exact form, such as `512MiB`; bytes if it is not a whole number of any unit.
pub fn format_size(bytes: u64) -> String {
    for (name, scale) in UNITS {
        if bytes >= scale && bytes.is_multiple_of(scale) {
            return format!("{}{name}", bytes / scale);
        }
    }
    bytes.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_both_ways() {
        for (text, bytes) in [
            ("1GiB", 1 << 30),
            ("64 MiB", 64 << 20),
            ("1.5GiB", 3 << 29),
            ("4096", 4096),
            ("10GB", 10_000_000_000),
            ("2g", 2 << 30),
            ("7KiB", 7168),
            ("1 PiB", 1 << 50),
            ("1.5p", 3 << 49),
            ("15EiB", 15 << 60),
            ("2PB", 2_000_000_000_000_000),
        ] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
            assert_eq!(parse_size(&format_size(bytes)), Some(bytes), "{text}");
        }
        for bad in ["", "GiB", "-1", "1XiB", "1..5G", "99999999999TiB", "16EiB", "1e9"] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
        assert_eq!(format_size(1 << 30), "1GiB");
        assert_eq!(format_size(1000), "1000");
    }
}
