//! Share modes: whether two opens of one file may coexist (MS-FSA 2.1.5.1.2.2).

use smb_wire::{AccessMask, ShareAccess};

const READS: AccessMask = AccessMask::READ_DATA.union(AccessMask::EXECUTE);
const WRITES: AccessMask = AccessMask::WRITE_DATA.union(AccessMask::APPEND_DATA);

/// The access of an open, and the access that it shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShareMode {
    pub(crate) access: AccessMask,
    pub(crate) share: ShareAccess,
}

impl ShareMode {
    /// An open that neither reads, writes nor deletes never conflicts with another.
    fn takes_part(self) -> bool {
        self.access.intersects(READS | WRITES | AccessMask::DELETE)
    }

    /// Whether both may be open at once.
    pub(crate) fn compatible(self, other: ShareMode) -> bool {
        !self.takes_part() || !other.takes_part() || (self.permits(other) && other.permits(self))
    }

    /// Whether an open of another stream with this mode may have its file deleted by `deleter` (MS-FSA 2.1.5.1.2.1).
    pub(crate) fn permits_deletion(self, deleter: ShareMode) -> bool {
        !deleter.access.contains(AccessMask::DELETE)
            || !self.takes_part()
            || self.share.contains(ShareAccess::DELETE)
    }

    fn permits(self, other: ShareMode) -> bool {
        let allowed =
            |used: AccessMask, bit: ShareAccess| !other.access.intersects(used) || self.share.contains(bit);
        allowed(READS, ShareAccess::READ)
            && allowed(WRITES, ShareAccess::WRITE)
            && allowed(AccessMask::DELETE, ShareAccess::DELETE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // MS-FSA 2.1.5.1.2.2, all combinations against the rule written per bit.
    #[test]
    fn the_whole_matrix() {
        let uses = [(READS, 1), (WRITES, 2), (AccessMask::DELETE, 4)];
        let access = |bits: u32| {
            uses.iter().filter(|(_, b)| bits & b != 0).fold(AccessMask::READ_ATTRIBUTES, |a, (m, _)| a | *m)
        };
        for a in 0..8u32 {
            for sa in 0..8u32 {
                for b in 0..8u32 {
                    for sb in 0..8u32 {
                        let x = ShareMode { access: access(a), share: ShareAccess::from_bits_retain(sa) };
                        let y = ShareMode { access: access(b), share: ShareAccess::from_bits_retain(sb) };
                        let expected = a == 0 || b == 0 || (b & !sa == 0 && a & !sb == 0);
                        assert_eq!(x.compatible(y), expected, "{x:?} {y:?}");
                        assert_eq!(x.compatible(y), y.compatible(x));
                    }
                }
            }
        }
    }
}
