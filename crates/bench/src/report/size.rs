//! Formats sizes like DiskSPD.

/// Uses the largest binary unit that does not exceed the size, with two decimals unless it is a whole number.
pub(super) fn size(bytes: u64) -> String {
    padded(bytes, 0)
}

/// Like [`size`], with the number padded to `width` characters.
pub(super) fn padded(bytes: u64, width: usize) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        let one = 1u64 << shift;
        if bytes >= one {
            return if bytes.is_multiple_of(one) {
                format!("{:width$}{unit}", bytes >> shift)
            } else {
                format!("{:width$.2}{unit}", bytes as f64 / one as f64)
            };
        }
    }
    bytes.to_string()
}
