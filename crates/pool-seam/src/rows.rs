//! The rows of a space: `docs/on-disk-format.md`, records "row", "slab" and "moving".

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::SlabPlace;

/// One slab of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabCopy {
    /// Where it lies.
    pub place: SlabPlace,
    /// Its allocation: blocks with another one are not its own.
    pub generation: u32,
    /// Regions whose newest writes it does not have, by bit; all bits: everything, in slabs of any size. Of a slab of the
    /// log 0 or all bits.
    pub missed: u64,
}

/// Which resiliency of its space a row has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// The space's.
    #[default]
    Present,
    /// The one that the space had: a job has not given the row the present one yet. Of the log: it is to get more replicas.
    Former,
}

/// A row: the slabs of a multiple of the space's row size. `column * copies + copy` of a mirror; of a coded row data
/// columns first, then parity columns; of the log one for each replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The generation with which it was allocated; a move of a slab does not change it.
    pub birth: u32,
    /// Its shape.
    pub shape: Shape,
    /// Its blocks are not written yet: it holds nothing, whatever its slabs have (rule 18).
    pub is_new: bool,
    /// One for each column and copy.
    pub slabs: Slabs,
    /// Few rows have one: the others have a pointer's room for it.
    moving: Option<Box<Moving>>,
}

/// The slabs of a row. There are millions: rows that are clones share them until one of them is changed.
#[derive(Clone, PartialEq, Eq)]
pub struct Slabs(Arc<[SlabCopy]>);

/// A slab on its way to another place: until the new one has all that the old one has, both are copies, and
/// get every write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moving {
    /// The slab of the row that it will be.
    pub index: u8,
    /// It. Where an operation names a copy of the row by its index, it is the one after the last.
    pub copy: SlabCopy,
}

impl Deref for Slabs {
    type Target = [SlabCopy];

    fn deref(&self) -> &[SlabCopy] {
        &self.0
    }
}

impl fmt::Debug for Slabs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Row {
    /// A new row of these slabs, none of which moves, in the space's present shape.
    pub fn new(birth: u32, slabs: impl IntoIterator<Item = SlabCopy>) -> Row {
        let slabs = Slabs(slabs.into_iter().collect());
        Row { birth, shape: Shape::Present, is_new: true, slabs, moving: None }
    }

    /// The same row in the space's present shape, with these slabs, none of which moves.
    pub fn reshaped(&self, slabs: impl IntoIterator<Item = SlabCopy>) -> Row {
        Row { is_new: self.is_new, ..Row::new(self.birth, slabs) }
    }

    /// Where one of its slabs is moving to.
    pub fn moving(&self) -> Option<Moving> {
        self.moving.as_deref().copied()
    }

    /// Begins or ends a move.
    pub fn set_moving(&mut self, moving: Option<Moving>) {
        self.moving = moving.map(Box::new);
    }

    /// Every copy with its index: the row's slabs, then where one of them is moving to.
    pub fn copies(&self) -> impl Iterator<Item = (usize, &SlabCopy)> + Clone {
        self.slabs.iter().chain(self.moving.as_deref().map(|m| &m.copy)).enumerate()
    }

    /// The copy of an index.
    pub fn copy(&self, index: usize) -> Option<&SlabCopy> {
        let moving = || self.moving.as_deref().map(|m| &m.copy).filter(|_| index == self.slabs.len());
        self.slabs.get(index).or_else(moving)
    }

    /// The copy of an index, to change.
    pub fn copy_mut(&mut self, index: usize) -> Option<&mut SlabCopy> {
        if index < self.slabs.len() {
            return Arc::make_mut(&mut self.slabs.0).get_mut(index);
        }
        self.moving.as_deref_mut().map(|m| &mut m.copy).filter(|_| index == self.slabs.len())
    }

    /// Which of the row's slabs a copy is, or will be.
    pub fn slab_of(&self, index: usize) -> usize {
        match &self.moving {
            Some(m) if index == self.slabs.len() => usize::from(m.index),
            _ => index,
        }
    }
}

#[cfg(test)]
mod tests;
