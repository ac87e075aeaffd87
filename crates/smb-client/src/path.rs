//! Paths in a share.

use smb_wire::Utf16Buf;

use crate::RequestError;

/// Encodes a path for the wire: separated by backslashes, without a leading one (MS-SMB2 2.2.13). Accepts both
/// kinds of separator.
///
/// # Errors
/// [`RequestError::Path`] for `.`, `..` and NUL: no server accepts them.
pub(crate) fn encode(path: &str) -> Result<Utf16Buf, RequestError> {
    let mut out = String::with_capacity(path.len());
    for part in path.split(['/', '\\']).filter(|p| !p.is_empty()) {
        if part == "." || part == ".." || part.contains('\0') {
            return Err(RequestError::Path(path.to_owned()));
        }
        if !out.is_empty() {
            out.push('\\');
        }
        out.push_str(part);
    }
    Ok(Utf16Buf::from(out.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_separators_and_no_dots() {
        let text = |p| encode(p).expect("a path").as_utf16().to_string().expect("UTF-16");
        assert_eq!(text("/a/b\\c/"), r"a\b\c");
        assert_eq!(text(""), "");
        assert_eq!(text("\\"), "");
        assert_eq!(text("a/.b/c.."), r"a\.b\c..");
        for bad in ["..", "a/../b", "./a", "a\0b"] {
            assert!(matches!(encode(bad), Err(RequestError::Path(_))), "{bad:?}");
        }
    }
}
