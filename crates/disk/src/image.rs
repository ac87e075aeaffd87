//! A sparse image of a disk that is cheap to clone.
//!
//! Pages of 4 KiB that were never written are zeros and use no memory. Clones share pages, and tables of
//! pages, until one of them writes. With these two levels, cloning an image of some MiB increments a few
//! dozen reference counts.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The granularity of an image, in bytes.
pub const PAGE: usize = 4096;

const TABLE: u64 = 64;

type Page = Arc<[u8; PAGE]>;
type Table = [Option<Page>; TABLE as usize];

/// See the module.
#[derive(Clone, Default)]
pub struct Image {
    tables: BTreeMap<u64, Arc<Table>>,
}

impl Image {
    /// An image of zeros.
    pub fn new() -> Image {
        Image::default()
    }

    /// Copies the bytes at `offset` into `out`.
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        for (page, at, range) in pieces(offset, out.len()) {
            let piece = &mut out[range];
            match self.page(page) {
                Some(p) => piece.copy_from_slice(&p[at..at + piece.len()]),
                None => piece.fill(0),
            }
        }
    }

    /// The `length` bytes at `offset`.
    pub fn to_vec(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut out = vec![0; length];
        self.read(offset, &mut out);
        out
    }

    /// Replaces the bytes at `offset`.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (page, at, range) in pieces(offset, bytes.len()) {
            let piece = &bytes[range];
            let table =
                self.tables.entry(page / TABLE).or_insert_with(|| Arc::new([const { None }; TABLE as usize]));
            let slot = &mut Arc::make_mut(table)[(page % TABLE) as usize];
            let target = slot.get_or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(target)[at..at + piece.len()].copy_from_slice(piece);
        }
    }

    /// Sets the bytes to zero; whole pages are freed.
    pub fn zero(&mut self, offset: u64, length: u64) {
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let (page, within) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let n = (PAGE - within).min((end - at) as usize);
            match self.tables.get_mut(&(page / TABLE)) {
                // The table is missing: skip to the next one.
                None => at = (page / TABLE + 1) * TABLE * PAGE as u64,
                Some(table) => {
                    let slot = &mut Arc::make_mut(table)[(page % TABLE) as usize];
                    match slot {
                        Some(p) if n < PAGE => Arc::make_mut(p)[within..within + n].fill(0),
                        _ => *slot = None,
                    }
                    at += n as u64;
                }
            }
        }
    }

    /// Copies the `length` bytes at `offset` from `other`.
    pub fn copy_from(&mut self, other: &Image, offset: u64, length: u64) {
        let mut buffer = [0; PAGE];
        for (page, at, range) in pieces(offset, length as usize) {
            let piece = &mut buffer[..range.len()];
            let from = page * PAGE as u64 + at as u64;
            other.read(from, piece);
            self.write(from, piece);
        }
    }

    /// Flips bit `bit` (0 the lowest) of the byte at `offset`.
    pub fn flip(&mut self, offset: u64, bit: u8) {
        let mut byte = [0];
        self.read(offset, &mut byte);
        byte[0] ^= 1 << (bit & 7);
        self.write(offset, &byte);
    }

    /// The offsets of the pages that differ between two images, in order.
    pub fn differences(&self, other: &Image) -> Vec<u64> {
        let mut keys: Vec<u64> = self.tables.keys().chain(other.tables.keys()).copied().collect();
        keys.sort_unstable();
        keys.dedup();
        let mut out = Vec::new();
        for key in keys {
            let (a, b) = (self.tables.get(&key), other.tables.get(&key));
            if matches!((a, b), (Some(a), Some(b)) if Arc::ptr_eq(a, b)) {
                continue;
            }
            for page in key * TABLE..(key + 1) * TABLE {
                let (a, b) = (self.page(page), other.page(page));
                let same = match (a, b) {
                    (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a == b,
                    (Some(p), None) | (None, Some(p)) => p.iter().all(|b| *b == 0),
                    (None, None) => true,
                };
                if !same {
                    out.push(page * PAGE as u64);
                }
            }
        }
        out
    }

    /// The ranges whose pages are allocated, in order and disjoint.
    pub fn present(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut out: Vec<Range<u64>> = Vec::new();
        let tables = self.tables.range(range.start / PAGE as u64 / TABLE..=range.end / PAGE as u64 / TABLE);
        let pages = tables.flat_map(|(key, table)| (key * TABLE..).zip(table.iter()));
        for (page, _) in pages.filter(|(_, page)| page.is_some()) {
            let from = (page * PAGE as u64).max(range.start);
            let to = ((page + 1) * PAGE as u64).min(range.end);
            append(&mut out, from..to);
        }
        out
    }

    fn page(&self, page: u64) -> Option<&Page> {
        self.tables.get(&(page / TABLE))?[(page % TABLE) as usize].as_ref()
    }
}

impl PartialEq for Image {
    fn eq(&self, other: &Image) -> bool {
        self.differences(other).is_empty()
    }
}

impl Eq for Image {}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pages: usize = self.tables.values().map(|t| t.iter().flatten().count()).sum();
        write!(f, "Image({pages} pages)")
    }
}

/// Appends a range that begins at or after the end of the last one. Adjacent ranges are merged; empty ones
/// are ignored.
pub fn append(ranges: &mut Vec<Range<u64>>, next: Range<u64>) {
    match ranges.last_mut() {
        _ if next.is_empty() => {}
        Some(last) if last.end == next.start => last.end = next.end,
        _ => ranges.push(next),
    }
}

/// Splits a range at page boundaries: page, offset in the page, range within the whole.
fn pieces(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let at = offset + done as u64;
        let within = (at % PAGE as u64) as usize;
        let n = (PAGE - within).min(length - done);
        let range = done..done + n;
        done += n;
        Some((at / PAGE as u64, within, range))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with a plain vector; clones must not change.
    #[test]
    fn an_image_is_a_vector() {
        const SIZE: usize = 300 * PAGE;
        let (mut image, mut model, mut seed) = (Image::new(), vec![0u8; SIZE], 1u64);
        let mut next = |n: usize| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % n
        };
        let mut kept = Vec::new();
        for step in 0..300 {
            let (at, byte) = (next(SIZE - 20_000), next(255) as u8 + 1);
            let length = next(20_000);
            match next(4) {
                0 => {
                    image.zero(at as u64, length as u64);
                    model[at..at + length].fill(0);
                }
                1 => {
                    image.flip(at as u64, byte);
                    model[at] ^= 1 << (byte & 7);
                }
                _ => {
                    image.write(at as u64, &vec![byte; length]);
                    model[at..at + length].fill(byte);
                }
            }
            assert_eq!(image.to_vec(at as u64, length), model[at..at + length]);
            if step % 60 == 0 {
                kept.push((image.clone(), model.clone()));
            }
        }
        for (image, model) in &kept {
            assert_eq!(image.to_vec(0, SIZE), *model);
        }
        let (old, _) = &kept[0];
        let changed = image.differences(old);
        assert!(!changed.is_empty() && image != *old && image == image.clone());
        for at in changed {
            let mut copy = image.clone();
            copy.copy_from(old, at, PAGE as u64);
            assert!(!copy.differences(old).contains(&at));
        }
    }
}
