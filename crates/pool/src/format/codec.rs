//! The codec of bodies: little-endian numbers, counted lists, tagged choices, one after the other without padding.

use std::collections::{BTreeMap, BTreeSet};

use crate::state::Tree;
use crate::{DiskId, DiskNumber, PoolId, RowNumber, SpaceId};

/// The bytes are no valid encoding, although their checksum matches: a bug of the program that wrote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are invalid")]
pub struct Malformed;

/// The bytes of a body that are not read yet.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

/// A value with exactly one encoding on disk.
pub(crate) trait Wire: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn get(r: &mut Reader<'_>) -> Result<Self, Malformed>;
}

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.0.split_at_checked(n).ok_or(Malformed)?;
        self.0 = rest;
        Ok(head)
    }

    /// Checks that no bytes remain.
    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed) }
    }

    /// Reads `count` values. Does not reserve memory for values that may not exist.
    pub(crate) fn list<T: Wire>(&mut self, count: usize) -> Result<Vec<T>, Malformed> {
        let mut out = Vec::new();
        for _ in 0..count {
            out.push(T::get(self)?);
        }
        Ok(out)
    }
}

macro_rules! numbers {
    ($($t:ty),*) => {$(
        impl Wire for $t {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn get(r: &mut Reader<'_>) -> Result<$t, Malformed> {
                let bytes = r.take(size_of::<$t>())?;
                Ok(<$t>::from_le_bytes(bytes.try_into().map_err(|_| Malformed)?))
            }
        }
    )*};
}
numbers!(u8, u16, u32, u64);

macro_rules! wrapped {
    ($($t:ident),*) => {$(
        impl $crate::format::codec::Wire for $t {
            fn put(&self, out: &mut Vec<u8>) {
                $crate::format::codec::Wire::put(&self.0, out);
            }
            fn get(r: &mut $crate::format::codec::Reader<'_>) -> Result<$t, $crate::format::codec::Malformed> {
                $crate::format::codec::Wire::get(r).map($t)
            }
        }
    )*};
}
wrapped!(DiskNumber, SpaceId, RowNumber, PoolId, DiskId);

impl Wire for [u8; 16] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
    fn get(r: &mut Reader<'_>) -> Result<[u8; 16], Malformed> {
        r.take(16)?.try_into().map_err(|_| Malformed)
    }
}

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn get(r: &mut Reader<'_>) -> Result<bool, Malformed> {
        match u8::get(r)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }
}

/// At most 255 bytes of UTF-8, after their number. Longer names are refused earlier ([`crate::InvalidOp::BadName`]);
/// a longer string would be truncated at a character.
impl Wire for String {
    fn put(&self, out: &mut Vec<u8>) {
        let mut end = self.len().min(255);
        while !self.is_char_boundary(end) {
            end -= 1;
        }
        out.push(end as u8);
        out.extend_from_slice(&self.as_bytes()[..end]);
    }
    fn get(r: &mut Reader<'_>) -> Result<String, Malformed> {
        let length = u8::get(r)?;
        let bytes = r.take(usize::from(length))?;
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| Malformed)
    }
}

/// The byte 0; or the byte 1 and the value.
impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        self.iter().for_each(|value| value.put(out));
    }
    fn get(r: &mut Reader<'_>) -> Result<Option<T>, Malformed> {
        Ok(if bool::get(r)? { Some(T::get(r)?) } else { None })
    }
}

/// Short lists: a byte with the number of elements, and the elements.
impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        let count = self.len().min(255);
        out.push(count as u8);
        self[..count].iter().for_each(|v| v.put(out));
    }
    fn get(r: &mut Reader<'_>) -> Result<Vec<T>, Malformed> {
        let count = u8::get(r)?;
        r.list(usize::from(count))
    }
}

impl<T: Wire + Ord + Copy> Wire for BTreeSet<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().copied().collect::<Vec<T>>().put(out);
    }
    fn get(r: &mut Reader<'_>) -> Result<BTreeSet<T>, Malformed> {
        let list = Vec::<T>::get(r)?;
        if !list.is_sorted_by(|a, b| a < b) {
            return Err(Malformed);
        }
        Ok(list.into_iter().collect())
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }
    fn get(r: &mut Reader<'_>) -> Result<(A, B), Malformed> {
        Ok((A::get(r)?, B::get(r)?))
    }
}

/// Long tables: a 32-bit number of entries, then each key and value, by key.
impl<K: Wire + Ord + Clone, V: Wire> Wire for BTreeMap<K, V> {
    fn put(&self, out: &mut Vec<u8>) {
        put_table(self.len(), self, out);
    }
    fn get(r: &mut Reader<'_>) -> Result<BTreeMap<K, V>, Malformed> {
        get_table(r)
    }
}

impl<K: Wire + Ord + Copy, V: Wire + Clone> Wire for Tree<K, V> {
    fn put(&self, out: &mut Vec<u8>) {
        put_table(self.len(), self, out);
    }
    fn get(r: &mut Reader<'_>) -> Result<Tree<K, V>, Malformed> {
        get_table(r)
    }
}

fn put_table<'a, K: Wire + 'a, V: Wire + 'a>(
    len: usize,
    entries: impl IntoIterator<Item = (&'a K, &'a V)>,
    out: &mut Vec<u8>,
) {
    (len as u32).put(out);
    for (k, v) in entries {
        k.put(out);
        v.put(out);
    }
}

fn get_table<K: Wire + Ord + Clone, V: Wire, T: FromIterator<(K, V)>>(
    r: &mut Reader<'_>,
) -> Result<T, Malformed> {
    let (count, mut last) = (u32::get(r)?, None);
    let entry = |_| {
        let (k, v) = (K::get(r)?, V::get(r)?);
        // Keys must be in order and unique, so that each value has one encoding.
        if last.replace(k.clone()).is_some_and(|last| last >= k) { Err(Malformed) } else { Ok((k, v)) }
    };
    (0..count).map(entry).collect()
}

/// Encodes the fields of a record in the order of the list. Derived fields are not encoded, and are empty after
/// reading.
macro_rules! record {
    ($t:ident { $($f:ident),* $(,)? } $(, derived $d:ident)*) => {
        impl $crate::format::codec::Wire for $t {
            fn put(&self, out: &mut Vec<u8>) {
                $($crate::format::codec::Wire::put(&self.$f, out);)*
            }
            fn get(r: &mut $crate::format::codec::Reader<'_>) -> Result<$t, $crate::format::codec::Malformed> {
                Ok($t { $($f: $crate::format::codec::Wire::get(r)?,)* $($d: Default::default()),* })
            }
        }
    };
}

/// Encodes a choice: a byte for the variant, then its fields.
macro_rules! choice {
    ($t:ident { $($tag:literal => $v:ident $({ $($f:ident),* })? $(($g:ident))? ),* $(,)? }) => {
        impl $crate::format::codec::Wire for $t {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $($t::$v $({ $($f),* })? $(($g))? => {
                        out.push($tag);
                        $($($crate::format::codec::Wire::put($f, out);)*)?
                        $($crate::format::codec::Wire::put($g, out);)?
                    })*
                }
            }
            fn get(r: &mut $crate::format::codec::Reader<'_>) -> Result<$t, $crate::format::codec::Malformed> {
                match <u8 as $crate::format::codec::Wire>::get(r)? {
                    $($tag => {
                        $($(let $f = $crate::format::codec::Wire::get(r)?;)*)?
                        $(let $g = $crate::format::codec::Wire::get(r)?;)?
                        Ok($t::$v $({ $($f),* })? $(($g))?)
                    })*
                    _ => Err($crate::format::codec::Malformed),
                }
            }
        }
    };
}
pub(crate) use {choice, record, wrapped};
