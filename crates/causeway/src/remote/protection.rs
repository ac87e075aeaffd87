//! Whether two security descriptors protect a file in the same way (MS-DTYP 2.4.6).

/// ACE flag: inherited from the directory (MS-DTYP 2.4.4.1).
const INHERITED: u8 = 0x10;

/// Whether owner, group and access control list are equal, ignoring whether an entry was inherited. An invalid
/// descriptor is not equal to any other.
pub(super) fn is_same(a: &[u8], b: &[u8]) -> bool {
    match (parts(a), parts(b)) {
        (Some(a), Some(b)) => a == b,
        _ => false,
    }
}

/// Owner, group, and the entries of the access control list. Without a list (`None`) all access is allowed.
type Parts<'a> = (&'a [u8], &'a [u8], Option<Vec<Vec<u8>>>);

fn parts(descriptor: &[u8]) -> Option<Parts<'_>> {
    Some((sid(descriptor, 4)?, sid(descriptor, 8)?, entries(descriptor)?))
}

/// The SID at the offset that is stored at `at`; empty if the offset is 0.
fn sid(descriptor: &[u8], at: usize) -> Option<&[u8]> {
    let start = offset(descriptor, at)?;
    if start == 0 {
        return Some(&[]);
    }
    let subauthorities = usize::from(*descriptor.get(start + 1)?);
    descriptor.get(start..start + 8 + 4 * subauthorities)
}

fn entries(descriptor: &[u8]) -> Option<Option<Vec<Vec<u8>>>> {
    let start = offset(descriptor, 16)?;
    if start == 0 {
        return Some(None);
    }
    let acl = descriptor.get(start..)?;
    let mut at = 8;
    let mut list = Vec::new();
    for _ in 0..short(acl, 4)? {
        let length = short(acl, at + 2)?;
        let mut entry = acl.get(at..at + length)?.to_vec();
        *entry.get_mut(1)? &= !INHERITED;
        at += length;
        list.push(entry);
    }
    Some(Some(list))
}

fn offset(bytes: &[u8], at: usize) -> Option<usize> {
    let four: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
    usize::try_from(u32::from_le_bytes(four)).ok().filter(|n| *n <= bytes.len())
}

fn short(bytes: &[u8], at: usize) -> Option<usize> {
    let two: [u8; 2] = bytes.get(at..at + 2)?.try_into().ok()?;
    Some(usize::from(u16::from_le_bytes(two)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Owner S-1-5-`owner`, no group, and a list with an entry of these flags and this mask.
    fn descriptor(owner: u8, flags: u8, mask: u8) -> Vec<u8> {
        let mut d = vec![1, 0, 4, 0x80, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0];
        d.extend([1, 1, 0, 0, 0, 0, 0, 5, owner, 0, 0, 0]);
        d.extend([2, 0, 28, 0, 1, 0, 0, 0]);
        d.extend([0, flags, 20, 0, mask, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
        d
    }

    #[test]
    fn owner_and_entries_count_and_where_they_are_from_does_not() {
        let one = descriptor(18, 0, 7);
        assert!(is_same(&one, &descriptor(18, INHERITED, 7)));
        assert!(!is_same(&one, &descriptor(19, 0, 7)) && !is_same(&one, &descriptor(18, 0, 3)));
        assert!(!is_same(&one, &descriptor(18, 3, 7)));
        for cut in 0..one.len() {
            assert!(!is_same(&one[..cut], &one[..cut]), "{cut}");
        }
    }
}
