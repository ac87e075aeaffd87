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
    /// The generation of its allocation: blocks with another generation do not belong to it.
    pub generation: u32,
    /// Bitmask of the stale regions; all 64 bits: everything is stale, for slabs of any size. For a slab of
    /// the log only 0 or all bits.
    pub stale_regions: u64,
}

/// Which of its space's resiliencies a row has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// The space's current resiliency.
    #[default]
    Current,
    /// The space's former resiliency: a job has not converted the row yet. For the log: it is to get more
    /// replicas.
    Former,
}

/// A row: the slabs of one row-sized part of the space. A mirror's slab index is `column * copies + copy`. A
/// coded row has data columns first, then parity columns. The log has one slab for each replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The generation with which it was allocated; a move of a slab does not change it.
    pub birth: u32,
    /// Its shape.
    pub shape: Shape,
    /// Its blocks have not been written yet: it holds no data, whatever its slabs contain (rule 18).
    pub is_new: bool,
    /// One for each column and copy.
    pub slabs: Slabs,
    /// Boxed because few rows have one: the others need only a pointer.
    moving: Option<Box<Moving>>,
}

/// The slabs of a row. There are millions, so cloned rows share them until one is changed.
#[derive(Clone, PartialEq, Eq)]
pub struct Slabs(Arc<[SlabCopy]>);

/// A slab being moved: until the new slab has all data of the old one, both are copies and get every write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moving {
    /// The index of the slab that it will replace.
    pub index: u8,
    /// The new slab. Where an operation names a copy by index, it has the index after the last slab.
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
    /// A new row of these slabs, with no move in progress and the space's current resiliency.
    pub fn new(birth: u32, slabs: impl IntoIterator<Item = SlabCopy>) -> Row {
        let slabs = Slabs(slabs.into_iter().collect());
        Row { birth, shape: Shape::Current, is_new: true, slabs, moving: None }
    }

    /// The same row with these slabs, no move in progress and the space's current resiliency.
    pub fn reshaped(&self, slabs: impl IntoIterator<Item = SlabCopy>) -> Row {
        Row { is_new: self.is_new, ..Row::new(self.birth, slabs) }
    }

    /// The move in progress, if any.
    pub fn moving(&self) -> Option<Moving> {
        self.moving.as_deref().copied()
    }

    /// Begins or ends a move.
    pub fn set_moving(&mut self, moving: Option<Moving>) {
        self.moving = moving.map(Box::new);
    }

    /// Every copy with its index: the row's slabs, then the moving copy if any.
    pub fn copies(&self) -> impl Iterator<Item = (usize, &SlabCopy)> + Clone {
        self.slabs.iter().chain(self.moving.as_deref().map(|m| &m.copy)).enumerate()
    }

    /// The copy with this index.
    pub fn copy(&self, index: usize) -> Option<&SlabCopy> {
        let moving = || self.moving.as_deref().map(|m| &m.copy).filter(|_| index == self.slabs.len());
        self.slabs.get(index).or_else(moving)
    }

    /// The copy with this index, mutable.
    pub fn copy_mut(&mut self, index: usize) -> Option<&mut SlabCopy> {
        if index < self.slabs.len() {
            return Arc::make_mut(&mut self.slabs.0).get_mut(index);
        }
        self.moving.as_deref_mut().map(|m| &mut m.copy).filter(|_| index == self.slabs.len())
    }

    /// The index of the slab that a copy is or will replace.
    pub fn slab_of(&self, index: usize) -> usize {
        match &self.moving {
            Some(m) if index == self.slabs.len() => usize::from(m.index),
            _ => index,
        }
    }
}

#[cfg(test)]
mod tests;
