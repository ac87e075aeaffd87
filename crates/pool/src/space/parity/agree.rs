//! Whether the columns of stripes agree with each other, and not only each with its own sums: for scrubs.
//!
//! They always do, but where a disk lost what it had acknowledged, data and block, and the power went before
//! anybody noticed (`docs/0002-parity.md`, "Blocks, and disks that lose writes"). Then what is read would be
//! another thing when a disk is lost.

use std::ops::Range;

use arena::IoBuf;

use super::Striped;
use super::columns::Columns;
use super::rebuild::{Healed, Part};
use super::table::RowGroup;
use crate::UNIT;
use crate::blocks::Units;
use crate::events::{Finding, Found};
use crate::parity::Code;
use crate::space::SpaceError;

impl Striped {
    /// Compares every unit of some stripes with its sum, and the parity with the data: how many stripes were
    /// healed, and lost. The caller has their lock, and they are ready.
    ///
    /// # Errors
    /// As for [`Striped::heal`].
    pub(super) async fn check(
        &self,
        group: &RowGroup,
        range: Range<usize>,
    ) -> Result<(u64, u64), SpaceError> {
        let (mut healed, mut lost) = (0, 0);
        let Some(columns) = self.columns(group.key.row) else { return Ok((0, 0)) };
        let all = self.p.code.all();
        let parts = self.parts(group, &columns, all, range.start, range.end).await;
        let there = group.state.lock().any();
        for unit in range.clone().filter(|u| there.has(*u)) {
            let stripe: Vec<Part> = parts.iter().map(|p| p[unit - range.start].clone()).collect();
            let Some(bad) = stripe.iter().position(|p| p.bad().is_some()) else {
                healed += u64::from(self.agree(group, &columns, unit, &stripe).await?);
                continue;
            };
            let lacking: Vec<usize> = (0..self.p.data()).filter(|c| stripe[*c].bytes().is_none()).collect();
            let mut looked = self.heal_stripe(group, &columns, bad, unit, stripe, all).await?;
            if matches!(looked, Healed::Again) {
                let again = self.heal(group, bad, &Units::range(unit, unit + 1)).await?;
                looked = Healed::As(again.into_iter().next().and_then(|(_, bytes)| bytes));
            }
            if matches!(looked, Healed::As(Some(_))) {
                healed += 1;
                continue;
            }
            lost += u64::from(bad < self.p.data());
            // Each of the others separately: it may be lost with that one, or be computed from fewer columns.
            for column in lacking.into_iter().filter(|c| *c != bad) {
                let again = self.heal(group, column, &Units::range(unit, unit + 1)).await?;
                let is_lost = again.iter().any(|(_, bytes)| bytes.is_none());
                lost += u64::from(is_lost);
                healed += again.len() as u64 - u64::from(is_lost);
            }
        }
        Ok((healed, lost))
    }

    /// Makes the columns of a stripe agree, each of which matches its sum; returns whether they did not. A
    /// single column that differs from all others is computed from them. If that column cannot be identified,
    /// the parity is computed from the data, because users have read the data.
    async fn agree(
        &self,
        group: &RowGroup,
        columns: &Columns,
        unit: usize,
        stripe: &[Part],
    ) -> Result<bool, SpaceError> {
        let Some(units) = stripe.iter().map(Part::bytes).collect::<Option<Vec<IoBuf>>>() else {
            return Ok(false);
        };
        let units: Vec<&[u8]> = units.iter().map(|u| &u[..]).collect();
        let Some(wrong) = wrong(self.p.code, &units) else { return Ok(false) };
        let (row, number) = (group.key.row, group.key.first() + unit as u32);
        let region = self.regions(&(number..number + 1));
        for (c, bytes) in wrong {
            let (disk, space) = (columns[c].number, self.space.inner.id);
            let address = self.address(row, c, number);
            self.space.path.events.add(Finding { found: Found::Unsettled, disk, space, address });
            // A slab that the column moves to may have the unit as it was. A unit that is zeros, for nothing
            // was written there, has no sum.
            if self.targets(row).is_none_or(|t| t.len() != columns.len())
                || !matches!(stripe[c], Part::Good(_))
            {
                continue;
            }
            group.state.lock().lost[c].insert(unit);
            self.put_back(group, &columns[c], unit, region, IoBuf::from(bytes)).await?;
        }
        Ok(true)
    }
}

/// The wrong units of a stripe, with their valid contents; `None` if there is none.
fn wrong(code: Code, units: &[&[u8]]) -> Option<Vec<(usize, Vec<u8>)>> {
    let differ = |units: &[&[u8]]| {
        let data: Vec<Option<&[u8]>> = units[..code.data()].iter().copied().map(Some).collect();
        let parity = (code.data()..).zip(code.encode(UNIT as usize, &data));
        parity.filter(|(c, want)| units[*c] != &want[..]).collect::<Vec<_>>()
    };
    let parity = differ(units);
    if parity.is_empty() {
        return None;
    }
    let without = |c: usize| {
        let mut rest: Vec<Option<Vec<u8>>> = units.iter().map(|u| Some(u.to_vec())).collect();
        rest[c] = None;
        code.recover(UNIT as usize, &mut rest, 1 << c).then(|| rest[c].take()).flatten()
    };
    let mut suspects = (0..units.len()).filter_map(|c| {
        let made = without(c)?;
        let mut whole = units.to_vec();
        whole[c] = &made;
        differ(&whole).is_empty().then_some((c, made))
    });
    match (suspects.next(), suspects.next()) {
        (Some(one), None) => Some(vec![one]),
        _ => Some(parity),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripe(code: Code) -> Vec<Vec<u8>> {
        let mut units: Vec<Vec<u8>> =
            (0..code.data()).map(|c| vec![c as u8 * 7 + 1; UNIT as usize]).collect();
        let data: Vec<Option<&[u8]>> = units.iter().map(|u| Some(&u[..])).collect();
        let parity = code.encode(UNIT as usize, &data);
        units.extend(parity);
        units
    }

    fn found(code: Code, units: &[Vec<u8>]) -> Option<Vec<usize>> {
        let units: Vec<&[u8]> = units.iter().map(|u| &u[..]).collect();
        wrong(code, &units).map(|w| w.into_iter().map(|(c, _)| c).collect())
    }

    #[test]
    fn one_that_differs_is_found_where_the_others_tell() {
        for (code, tells) in
            [(Code::new(4, 1, false), false), (Code::new(4, 1, true), true), (Code::new(8, 2, true), true)]
        {
            let good = stripe(code);
            assert_eq!(found(code, &good), None);
            for c in 0..good.len() {
                let mut units = good.clone();
                units[c][100] ^= 0x40;
                let expected = if tells { vec![c] } else { vec![code.data()] };
                assert_eq!(found(code, &units), Some(expected), "{code:?}, column {c}");
                let made =
                    wrong(code, &units.iter().map(|u| &u[..]).collect::<Vec<_>>()).expect("it differs");
                assert!(!tells || made[0].1 == good[c]);
            }
        }
    }

    /// Two that differ: the data is believed.
    #[test]
    fn parity_follows_the_data_where_nobody_can_tell() {
        let code = Code::new(4, 1, true);
        let mut units = stripe(code);
        units[0][0] ^= 1;
        units[2][0] ^= 2;
        assert_eq!(found(code, &units), Some(vec![4, 5]));
    }
}
