//! Parity of a stripe: the exclusive or of each group of data units, and a Reed-Solomon sum of all data units
//! over GF(2^8). Pure functions.
//!
//! A [`Code`] divides the data columns into one or more consecutive groups. With `D0..Dk` the data units of a
//! stripe, its parity units are, in this order:
//!
//! * for each group the exclusive or of its data units, `P = Da + ... + Db`;
//! * if the code has a global parity, `Q = g^0 D0 + g^1 D1 + ... + g^k Dk`, where `+` is exclusive or,
//!   `g = 2` and the field's polynomial is `x^8 + x^4 + x^3 + x^2 + 1`.
//!
//! With one group that is RAID 5, and with Q RAID 6; with two groups and Q it is a local reconstruction code:
//! LRC (8,2,1), LRC (12,2,1).
//!
//! Lost units are recovered as follows; if this fails, they cannot be recovered ([`Code::decodes`]). A group
//! that lost one unit, data or P, computes it from the others of the group. If one group lost two, all other
//! groups are complete after that step, so Q is an equation for this group alone. If P and `Dx` are lost, Q
//! yields `g^x Dx`. If `Dx` and `Dy` are lost, P yields `Dx + Dy` and Q yields `g^x Dx + g^y Dy`. These are
//! independent because the powers of 2 up to the 254th differ. A lost Q is computed from the data. So each
//! group may lose one unit, and one more unit may be lost anywhere: every loss of two is recoverable, and
//! many losses of three. With more losses there are fewer equations than unknowns, because P and Q are the
//! only equations about a group's units.
//!
//! The code is linear: a change of a unit changes Q and its group's P by a multiple of the difference, and no
//! other group's P. A unit that was never written counts as zeros.
//!
//! Eight bytes are processed per word, without tables, so that the compiler can vectorise the loops.

mod field;
#[cfg(test)]
mod tests;

use field::{inverse, power};

/// The maximum number of data units of a stripe.
pub const DATA_MAX: usize = 16;

/// The maximum number of units of a stripe, parity included.
pub const COLUMNS_MAX: usize = 18;

/// The parity units of a stripe. Columns are numbered in this order: data, one local parity for each group,
/// the global parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    data: usize,
    groups: usize,
    global: usize,
}

/// The bytes of a column, in any container.
pub trait Unit: AsRef<[u8]> + From<Vec<u8>> {}

impl<T: AsRef<[u8]> + From<Vec<u8>>> Unit for T {}

impl Code {
    /// A code with `data` data columns in `groups` groups of the same size, with or without a global parity.
    ///
    /// # Panics
    /// If there is no group, the groups differ in size or have less than two columns, or there are more
    /// columns than [`DATA_MAX`] or [`COLUMNS_MAX`].
    pub fn new(data: usize, groups: usize, global: bool) -> Code {
        let code = Code { data, groups, global: usize::from(global) };
        assert!(groups > 0 && data.is_multiple_of(groups) && data / groups > 1, "{code:?}");
        assert!(data <= DATA_MAX && code.columns() <= COLUMNS_MAX, "{code:?}");
        code
    }

    /// The number of data columns.
    pub fn data(self) -> usize {
        self.data
    }

    /// The number of parity columns.
    pub fn parity(self) -> usize {
        self.groups + self.global
    }

    /// The number of all columns.
    pub fn columns(self) -> usize {
        self.data + self.parity()
    }

    /// Bitmask of all columns.
    pub fn all(self) -> u32 {
        (1 << self.columns()) - 1
    }

    /// Bitmask of the data columns that a parity column is computed from; for a data column, its own bit.
    pub fn covers(self, column: usize) -> u32 {
        let size = self.data / self.groups;
        match column.checked_sub(self.data) {
            None => 1 << column,
            Some(group) if group < self.groups => ((1 << size) - 1) << (group * size),
            Some(_) => (1 << self.data) - 1,
        }
    }

    /// Bitmask of the parity columns that depend on any of these data columns.
    pub fn parities_of(self, data: u32) -> u32 {
        let touched = |c: &usize| self.covers(*c) & data != 0;
        (self.data..self.columns()).filter(touched).fold(0, |all, c| all | 1 << c)
    }

    /// Bitmask of the smallest set of columns that includes `column` and can rebuild it if no other column of
    /// the set is lost. Returns `None` if this set is all columns.
    pub fn near(self, column: usize) -> Option<u32> {
        if self.groups == 1 {
            return None;
        }
        let near = match self.group_of(column) {
            Some(group) => self.members(group),
            None => self.covers(column) | 1 << column,
        };
        Some(near)
    }

    /// Whether all columns can be computed from those in the bitmask `have`.
    pub fn decodes(self, have: u32) -> bool {
        self.excess(self.all() & !have) <= self.global
    }

    /// How many more columns, whichever they are, may be lost from those in the bitmask `have`. Returns
    /// `None` if too many are already lost.
    pub fn spare(self, have: u32) -> Option<usize> {
        let lost = self.all() & !have;
        // The number of further losses, beyond the first in a group, after which decoding fails.
        let left = (self.global + 1).checked_sub(self.excess(lost)).filter(|left| *left > 0)?;
        let any_group = (0..self.groups).any(|g| self.members(g) & lost != 0);
        // The first loss in a group costs nothing. A loss of the global parity does, but there is only one.
        Some(if any_group { left - 1 } else { left })
    }

    /// The number of losses beyond the first of each group.
    fn excess(self, lost: u32) -> usize {
        let of = |group| ((lost & self.members(group)).count_ones() as usize).saturating_sub(1);
        let global = (lost >> (self.data + self.groups)).count_ones() as usize;
        (0..self.groups).map(of).sum::<usize>() + global
    }

    /// Bitmask of a group's data columns and its parity column.
    fn members(self, group: usize) -> u32 {
        self.covers(self.data + group) | 1 << (self.data + group)
    }

    fn group_of(self, column: usize) -> Option<usize> {
        (0..self.groups).find(|g| self.members(*g) & 1 << column != 0)
    }

    /// The factor of data column `column` in parity `parity`.
    fn factor(self, parity: usize, column: usize) -> u8 {
        match self.covers(self.data + parity) & 1 << column {
            0 => 0,
            _ if parity < self.groups => 1,
            _ => power(column),
        }
    }

    /// Adds the content of a data column, or the difference between new and old content, to parity unit
    /// `parity` (counted from the first parity column).
    ///
    /// # Panics
    /// If the lengths differ or are not multiples of 8.
    pub fn add(self, parity: usize, column: usize, bytes: &[u8], to: &mut [u8]) {
        match self.factor(parity, column) {
            0 => assert!(bytes.len() == to.len()),
            factor => field::mul_add(to, bytes, factor),
        }
    }

    /// Computes the parity units of a stripe; `None` stands for zeros.
    pub fn encode(self, length: usize, data: &[Option<&[u8]>]) -> Vec<Vec<u8>> {
        let mut out = vec![vec![0; length]; self.parity()];
        for (j, to) in out.iter_mut().enumerate() {
            for (i, bytes) in data.iter().enumerate() {
                if let Some(bytes) = bytes {
                    self.add(j, i, bytes, to);
                }
            }
        }
        out
    }

    /// Computes the missing units in the bitmask `wanted`; it may compute other missing units too. Returns
    /// false, and changes nothing, if too few units are present.
    pub fn recover<U: Unit>(self, length: usize, columns: &mut [Option<U>], wanted: u32) -> bool {
        let missing =
            columns.iter().enumerate().filter(|(_, c)| c.is_none()).fold(0_u32, |m, (c, _)| m | 1 << c);
        let alone = |g: &usize| {
            let lost = missing & self.members(*g);
            (lost.count_ones() == 1 && lost & wanted != 0).then_some((*g, lost))
        };
        let near: Vec<(usize, u32)> = (0..self.groups).filter_map(|g| alone(&g)).collect();
        let left = near.iter().fold(missing, |left, (_, lost)| left & !lost);
        if left & wanted != 0 && !self.decodes(!missing) {
            return false;
        }
        // A group with one loss does not need the other columns.
        let whole = if left & wanted == 0 {
            near
        } else {
            (0..self.groups).map(|g| (g, missing & self.members(g))).collect()
        };
        let needed =
            |lost: u32| lost.count_ones() == 1 && lost & (wanted | self.covers(self.columns() - 1)) != 0;
        for (group, lost) in whole.iter().filter(|(_, lost)| needed(*lost)) {
            let mut sum = vec![0; length];
            for c in bits(self.members(*group) & !lost) {
                field::mul_add(&mut sum, columns[c].as_ref().expect("one is missing").as_ref(), 1);
            }
            columns[lost.trailing_zeros() as usize] = Some(sum.into());
        }
        if left & wanted == 0 {
            return true;
        }
        if let Some((group, lost)) = whole.iter().find(|(_, lost)| lost.count_ones() == 2) {
            self.recover_two(length, columns, *group, *lost);
        }
        // All data columns are present now.
        for j in 0..self.parity() {
            if columns[self.data + j].is_none() && wanted & 1 << (self.data + j) != 0 {
                columns[self.data + j] = Some(self.rest(j, length, columns).into());
            }
        }
        true
    }

    /// Recovers two units of a group, at least one of which is data, with the global parity. The data of all
    /// other groups is present.
    fn recover_two<U: Unit>(self, length: usize, columns: &mut [Option<U>], group: usize, lost: u32) {
        let q = self.groups;
        let data: Vec<usize> = bits(lost & self.covers(self.data + group)).collect();
        match data[..] {
            [x] => {
                let mut found = vec![0; length];
                field::mul_add(&mut found, &self.rest(q, length, columns), inverse(self.factor(q, x)));
                columns[x] = Some(found.into());
            }
            [x, y] => {
                // a = Dx + Dy, b = g^x Dx + g^y Dy: so (g^x + g^y) Dx = b + g^y a.
                let (a, mut b) = (self.rest(group, length, columns), self.rest(q, length, columns));
                let (fx, fy) = (self.factor(q, x), self.factor(q, y));
                field::mul_add(&mut b, &a, fy);
                let mut first = vec![0; length];
                field::mul_add(&mut first, &b, inverse(fx ^ fy));
                let mut second = a;
                field::mul_add(&mut second, &first, 1);
                (columns[x], columns[y]) = (Some(first.into()), Some(second.into()));
            }
            _ => unreachable!("a group has one parity"),
        }
    }

    /// The sum of the missing units among a parity unit and the data units that it covers: adds up the parity
    /// unit (zeros if it is missing) and all present data units.
    fn rest<U: Unit>(self, parity: usize, length: usize, columns: &[Option<U>]) -> Vec<u8> {
        let mut rest =
            columns[self.data + parity].as_ref().map_or_else(|| vec![0; length], |u| u.as_ref().to_vec());
        for (i, bytes) in columns[..self.data].iter().enumerate() {
            if let Some(bytes) = bytes {
                self.add(parity, i, bytes.as_ref(), &mut rest);
            }
        }
        rest
    }
}

/// The indexes of the set bits.
fn bits(set: u32) -> impl Iterator<Item = usize> {
    (0..u32::BITS as usize).filter(move |b| set & 1 << b != 0)
}
