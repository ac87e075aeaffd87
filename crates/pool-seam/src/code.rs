//! Parity of a stripe: the exclusive or of its data units, of all or of each half of them, and their
//! Reed-Solomon sum over GF(2^8). Pure.
//!
//! A [`Code`] divides the data columns into groups, one after the other. With `D0..Dk` the data units of a
//! stripe its parity units are, in this order:
//!
//! * of each group the exclusive or of its data units, `P = Da + ... + Db`;
//! * if the code has a global parity, `Q = g^0 D0 + g^1 D1 + ... + g^k Dk`, where `+` is exclusive or,
//!   `g = 2` and the field's polynomial is `x^8 + x^4 + x^3 + x^2 + 1`.
//!
//! With one group that is RAID 5, and with Q RAID 6; with two groups and Q it is a local reconstruction code:
//! LRC (8,2,1), LRC (12,2,1).
//!
//! Losses are decodable as follows, and if this fails, nothing helps ([`Code::decodes`]). A group that lost
//! one of its units, data or P, computes it from its others. If one group has lost two, all others are
//! complete by now, so Q is an equation for this group alone. If P is lost with `Dx`, it gives `g^x Dx`. If
//! `Dx` and `Dy` are, P gives `Dx + Dy` and Q `g^x Dx + g^y Dy`, and `g^x` is not `g^y`: the powers of 2 up
//! to the 254th differ. Q itself is computed from the data. So each group may lose one unit, and one more
//! unit may be lost anywhere: any two, and many threes. More losses have fewer equations than unknowns: a
//! group's P and Q are the only equations about its units.
//!
//! All is linear, so a change of a unit changes its group's P and Q by the difference alone, and no other
//! group's P. A unit that was never written is zeros.
//!
//! Bytes are handled eight to a word, without tables, so that the compiler makes vectors of it.

mod field;
#[cfg(test)]
mod tests;

use field::{inverse, power};

/// The most data units of a stripe.
pub const DATA_MAX: usize = 16;

/// The most units of a stripe, parity too.
pub const COLUMNS_MAX: usize = 18;

/// Which parity units a stripe has beside its data units. Columns are counted with those of data first, then
/// a local parity of each group, then the global one.
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
    /// A code with this many data columns in this many groups of the same size, with or without a global
    /// parity.
    ///
    /// # Panics
    /// When there is no group, a group would have less than two columns or more than another, or there are more columns than [`DATA_MAX`] and
    /// [`COLUMNS_MAX`] say.
    pub fn new(data: usize, groups: usize, global: bool) -> Code {
        let code = Code { data, groups, global: usize::from(global) };
        assert!(groups > 0 && data.is_multiple_of(groups) && data / groups > 1, "{code:?}");
        assert!(data <= DATA_MAX && code.columns() <= COLUMNS_MAX, "{code:?}");
        code
    }

    /// Data columns.
    pub fn data(self) -> usize {
        self.data
    }

    /// Parity columns.
    pub fn parity(self) -> usize {
        self.groups + self.global
    }

    /// All columns.
    pub fn columns(self) -> usize {
        self.data + self.parity()
    }

    /// All columns, by bit.
    pub fn all(self) -> u32 {
        (1 << self.columns()) - 1
    }

    /// Data columns that a parity column is made of, by bit; of a data column, itself.
    pub fn covers(self, column: usize) -> u32 {
        let size = self.data / self.groups;
        match column.checked_sub(self.data) {
            None => 1 << column,
            Some(group) if group < self.groups => ((1 << size) - 1) << (group * size),
            Some(_) => (1 << self.data) - 1,
        }
    }

    /// Parity columns that any of these data columns has a part in, by bit.
    pub fn parities_of(self, data: u32) -> u32 {
        let touched = |c: &usize| self.covers(*c) & data != 0;
        (self.data..self.columns()).filter(touched).fold(0, |all, c| all | 1 << c)
    }

    /// The columns, this one too, that it can be made from when it alone of them is lost, by bit: fewer than
    /// all. `None` where no fewer do.
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

    /// Whether all columns can be made from these, given by bit.
    pub fn decodes(self, have: u32) -> bool {
        self.excess(self.all() & !have) <= self.global
    }

    /// How many more columns may be lost, whichever they are, when these are there; `None` when too many are
    /// lost already.
    pub fn spare(self, have: u32) -> Option<usize> {
        let lost = self.all() & !have;
        // Losses beyond one of a group that are still to come until it is too much.
        let left = (self.global + 1).checked_sub(self.excess(lost)).filter(|left| *left > 0)?;
        let any_group = (0..self.groups).any(|g| self.members(g) & lost != 0);
        // The first loss of a group costs nothing; that of the global parity does, but there is only one.
        Some(if any_group { left - 1 } else { left })
    }

    /// Losses beyond the first of each group.
    fn excess(self, lost: u32) -> usize {
        let of = |group| ((lost & self.members(group)).count_ones() as usize).saturating_sub(1);
        let global = (lost >> (self.data + self.groups)).count_ones() as usize;
        (0..self.groups).map(of).sum::<usize>() + global
    }

    /// The data columns of a group and its parity, by bit.
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

    /// Adds what a data column has, or the difference between new and old, to parity unit `parity`, counted
    /// from the first parity column.
    ///
    /// # Panics
    /// When the lengths differ, or are not multiples of 8.
    pub fn add(self, parity: usize, column: usize, bytes: &[u8], to: &mut [u8]) {
        match self.factor(parity, column) {
            0 => assert!(bytes.len() == to.len()),
            factor => field::mul_add(to, bytes, factor),
        }
    }

    /// The parity units of a stripe; `None` is zeros.
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

    /// Fills in those missing units of a stripe that are `wanted`, by bit; others of them may be filled in
    /// too. False, with nothing changed, when too few are there.
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
        // All data is there.
        for j in 0..self.parity() {
            if columns[self.data + j].is_none() && wanted & 1 << (self.data + j) != 0 {
                columns[self.data + j] = Some(self.rest(j, length, columns).into());
            }
        }
        true
    }

    /// Makes two units of a group, of which at least one is data, with the global parity; all data of others is there.
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

    /// From a parity unit (zeros if it is missing) and all present units that it depends on: the sum of the
    /// missing ones.
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

/// The numbers of the bits that are set.
fn bits(set: u32) -> impl Iterator<Item = usize> {
    (0..u32::BITS as usize).filter(move |b| set & 1 << b != 0)
}
