//! Recovers units of a content from other contents, because the content's own disk is slow.

use std::sync::Arc;

use arena::IoBuf;
use pool_seam::UNIT;

use super::{Columns, RecoveredColumns, bits};
use crate::cache::Cached;
use crate::owner::Inner;
use crate::view::{Member, Route};
use crate::write::Target;

impl Inner {
    /// The units of the target's content, recovered without a read of their own disk; `None` if that is not possible.
    /// Takes no lock, and repairs nothing: the caller verifies the checksums.
    pub(crate) async fn from_others(
        self: &Arc<Inner>,
        target: &Target,
        at: &Route,
        cached: &Arc<Cached>,
    ) -> Option<Vec<IoBuf>> {
        let (code, content) = (at.code?, usize::from(target.column));
        let others = |contents: u32| contents & !(1 << content);
        let is_usable = |member: &&Member| {
            let port = member.membership.and_then(|of| self.ports.get(member.disk, of));
            member.counts && port.is_some_and(|port| !port.is_avoided())
        };
        let usable = bits(at.members.iter().filter(is_usable).map(|m| usize::from(m.content)));
        // With a local code, the contents of the local group; otherwise as few as suffice, data first.
        let near = code.near(content).map(others).filter(|near| near & !usable == 0);
        let wanted = near.or_else(|| {
            let all = others(usable);
            let without = |have: u32, c: usize| {
                if code.decodes(have & !(1 << c)) { have & !(1 << c) } else { have }
            };
            code.decodes(all).then(|| (0..code.columns()).rev().fold(all, without))
        })?;
        let columns: Columns = vec![vec![None; target.units.len()]; code.columns()];
        let (mut recovered, mut bad) = (RecoveredColumns { columns, rewritten: 0, unread: None }, Vec::new());
        if !self.read_columns(target, at, cached, wanted, &mut recovered, &mut bad).await.ok()? {
            return None;
        }
        let one = |unit: usize| {
            let mut stripe: Vec<Option<IoBuf>> =
                recovered.columns.iter().map(|column| column[unit].clone()).collect();
            let is_made = code.recover(UNIT as usize, &mut stripe, 1 << content);
            stripe.swap_remove(content).filter(|_| is_made)
        };
        (0..target.units.len()).map(one).collect()
    }
}
