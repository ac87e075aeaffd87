//! A sorted map that is cheap to clone: a B+-tree whose clones share nodes until one of them changes a node.
//!
//! A clone copies one pointer. A change copies the nodes on the path to its key that are shared with another
//! clone (a few KiB, whatever the size), and works in place otherwise. So the metadata of a large pool is in
//! memory once, although several readers see it in different versions.
//!
//! Invariants:
//! 1. All leaves have the same depth. A node has at most [`NODE_MAX`] entries; it is empty only if the tree
//!    is.
//! 2. The key beside a child is at most the lowest key in it, and above all keys of the children before. The
//!    key of the first child is unused.

use std::fmt;
use std::ops::{Bound, Index, RangeBounds};
use std::sync::Arc;

use smallvec::SmallVec;

/// Maximum entries per node: a leaf of rows then has 2 KiB.
const NODE_MAX: usize = 64;

/// A node with fewer entries is merged with a neighbour.
const NODE_FEW: usize = NODE_MAX / 4;

/// The number of entries by which a node's capacity grows: small, because unused capacity costs as much as
/// entries.
const GROWTH: usize = 8;

/// See the module documentation.
#[derive(Clone)]
pub struct Tree<K, V> {
    root: Arc<Node<K, V>>,
    len: usize,
}

#[derive(Clone)]
enum Node<K, V> {
    Leaf(Vec<(K, V)>),
    Inner(Children<K, V>),
}

type Child<K, V> = (K, Arc<Node<K, V>>);

type Children<K, V> = Vec<Child<K, V>>;

impl<K, V> Default for Tree<K, V> {
    fn default() -> Tree<K, V> {
        Tree { root: Arc::new(Node::Leaf(Vec::new())), len: 0 }
    }
}

impl<K: Ord + Copy, V> Tree<K, V> {
    /// The number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        let mut node = &*self.root;
        loop {
            match node {
                Node::Leaf(entries) => return entries.get(find(entries, key).ok()?).map(|(_, v)| v),
                Node::Inner(children) => node = &*children.get(child_of(children, key))?.1,
            }
        }
    }

    /// Whether the key is there.
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// All entries, in key order.
    pub fn iter(&self) -> Iter<'_, K, V> {
        self.range(..)
    }

    /// All keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(k, _)| k)
    }

    /// All values, in key order.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, v)| v)
    }

    /// The entries of a range, in key order.
    pub fn range(&self, range: impl RangeBounds<K>) -> Iter<'_, K, V> {
        let start = range.start_bound();
        let before = |k: &K| match start {
            Bound::Unbounded => false,
            Bound::Included(from) => k < from,
            Bound::Excluded(from) => k <= from,
        };
        let mut iter = Iter { inner: SmallVec::new(), leaf: [].iter(), end: range.end_bound().cloned() };
        let mut node = &*self.root;
        loop {
            match node {
                Node::Leaf(entries) => {
                    iter.leaf = entries[entries.partition_point(|(k, _)| before(k))..].iter();
                    return iter;
                }
                Node::Inner(children) => {
                    let at = match start {
                        Bound::Unbounded => 0,
                        Bound::Included(from) | Bound::Excluded(from) => child_of(children, from),
                    };
                    let mut rest = children[at..].iter();
                    let Some((_, child)) = rest.next() else { return iter };
                    iter.inner.push(rest);
                    node = &**child;
                }
            }
        }
    }
}

impl<K: Ord + Copy, V: Clone> Tree<K, V> {
    /// Sets the value of a key; returns the previous one.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let (old, split) = put(Arc::make_mut(&mut self.root), key, value);
        if let Some(right) = split {
            let left = std::mem::replace(&mut self.root, Arc::new(Node::Leaf(Vec::new())));
            self.root = Arc::new(Node::Inner(vec![(right.0, left), right]));
        }
        self.len += usize::from(old.is_none());
        old
    }

    /// The value of a key, mutable.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        // A missing key must not cause shared nodes to be copied.
        self.get(key)?;
        let mut node = Arc::make_mut(&mut self.root);
        loop {
            match node {
                Node::Leaf(entries) => {
                    let at = find(entries, key).ok()?;
                    return entries.get_mut(at).map(|(_, v)| v);
                }
                Node::Inner(children) => {
                    let at = child_of(children, key);
                    node = Arc::make_mut(&mut children.get_mut(at)?.1);
                }
            }
        }
    }

    /// Removes a key; returns its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        self.get(key)?;
        let old = take(Arc::make_mut(&mut self.root), key)?;
        self.len -= 1;
        while let Node::Inner(children) = &*self.root {
            let root = match children.as_slice() {
                [] => Arc::new(Node::Leaf(Vec::new())),
                [(_, only)] => Arc::clone(only),
                _ => break,
            };
            self.root = root;
        }
        Some(old)
    }
}

impl<K, V> Node<K, V> {
    fn len(&self) -> usize {
        match self {
            Node::Leaf(entries) => entries.len(),
            Node::Inner(children) => children.len(),
        }
    }
}

fn find<K: Ord, V>(entries: &[(K, V)], key: &K) -> Result<usize, usize> {
    entries.binary_search_by(|(k, _)| k.cmp(key))
}

/// The child that may contain the key (invariant 2).
fn child_of<K: Ord, V>(children: &[(K, V)], key: &K) -> usize {
    children.get(1..).map_or(0, |others| others.partition_point(|(k, _)| k <= key))
}

/// The result of splitting a node: its right part, and the lowest key there.
type Split<K, V> = Option<Child<K, V>>;

fn put<K: Ord + Copy, V: Clone>(node: &mut Node<K, V>, key: K, value: V) -> (Option<V>, Split<K, V>) {
    match node {
        Node::Leaf(entries) => match find(entries, &key) {
            Ok(at) => (Some(std::mem::replace(&mut entries[at].1, value)), None),
            Err(at) => {
                let right = add(entries, at, (key, value));
                (None, right.map(|right| (right[0].0, Arc::new(Node::Leaf(right)))))
            }
        },
        Node::Inner(children) => {
            let at = child_of(children, &key);
            let (old, split) = put(Arc::make_mut(&mut children[at].1), key, value);
            let right = split.and_then(|right| add(children, at + 1, right));
            (old, right.map(|right| (right[0].0, Arc::new(Node::Inner(right)))))
        }
    }
}

/// Inserts an entry; if there are too many, splits the node and returns its right part. An entry appended at
/// the end gets a node of its own, so that filling in key order leaves full nodes.
fn add<T>(entries: &mut Vec<T>, at: usize, entry: T) -> Option<Vec<T>> {
    if entries.len() < NODE_MAX {
        if entries.len() == entries.capacity() {
            entries.reserve_exact(GROWTH.min(NODE_MAX - entries.len()));
        }
        entries.insert(at, entry);
        return None;
    }
    if at == entries.len() {
        return Some(vec![entry]);
    }
    let mut right = entries.split_off(NODE_MAX / 2);
    entries.shrink_to_fit();
    match at.checked_sub(entries.len()) {
        Some(at) => drop(add(&mut right, at, entry)),
        None => drop(add(entries, at, entry)),
    }
    Some(right)
}

fn take<K: Ord + Copy, V: Clone>(node: &mut Node<K, V>, key: &K) -> Option<V> {
    match node {
        Node::Leaf(entries) => find(entries, key).ok().map(|at| entries.remove(at).1),
        Node::Inner(children) => {
            let at = child_of(children, key);
            let old = take(Arc::make_mut(&mut children.get_mut(at)?.1), key)?;
            tidy(children, at);
            Some(old)
        }
    }
}

/// Removes an empty child, or merges a child that has few entries with a neighbour that has room.
fn tidy<K: Ord + Copy, V: Clone>(children: &mut Children<K, V>, at: usize) {
    let len = children[at].1.len();
    if len == 0 {
        children.remove(at);
        return;
    }
    let fits = |other: &Child<K, V>| len + other.1.len() <= NODE_MAX - NODE_FEW;
    let left = match at {
        _ if len >= NODE_FEW => return,
        at if at > 0 && fits(&children[at - 1]) => at - 1,
        at if children.get(at + 1).is_some_and(fits) => at,
        _ => return,
    };
    let (from, right) = children.remove(left + 1);
    match (Arc::make_mut(&mut children[left].1), Arc::unwrap_or_clone(right)) {
        (Node::Leaf(left), Node::Leaf(right)) => left.extend(right),
        (Node::Inner(left), Node::Inner(mut right)) => {
            // The node is no longer the first child: its unused key must become a bound, the one beside its
            // parent.
            right[0].0 = from;
            left.extend(right);
        }
        _ => unreachable!("all leaves are equally deep"),
    }
}

/// Iterates over the entries of a range in key order.
#[derive(Clone)]
pub struct Iter<'a, K, V> {
    inner: SmallVec<[std::slice::Iter<'a, Child<K, V>>; 4]>,
    leaf: std::slice::Iter<'a, (K, V)>,
    end: Bound<K>,
}

impl<'a, K: Ord + Copy, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<(&'a K, &'a V)> {
        loop {
            if let Some((k, v)) = self.leaf.next() {
                let inside = match &self.end {
                    Bound::Unbounded => true,
                    Bound::Included(end) => k <= end,
                    Bound::Excluded(end) => k < end,
                };
                if inside {
                    return Some((k, v));
                }
                (self.inner, self.leaf) = (SmallVec::new(), [].iter());
                return None;
            }
            match self.inner.last_mut()?.next() {
                None => drop(self.inner.pop()),
                Some((_, child)) => match &**child {
                    Node::Leaf(entries) => self.leaf = entries.iter(),
                    Node::Inner(children) => self.inner.push(children.iter()),
                },
            }
        }
    }
}

impl<'a, K: Ord + Copy, V> IntoIterator for &'a Tree<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;

    fn into_iter(self) -> Iter<'a, K, V> {
        self.iter()
    }
}

impl<K: Ord + Copy, V: Clone> FromIterator<(K, V)> for Tree<K, V> {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(entries: T) -> Tree<K, V> {
        let mut tree = Tree::default();
        for (k, v) in entries {
            tree.insert(k, v);
        }
        tree
    }
}

/// Like indexing a slice: panics if the key is missing.
impl<K: Ord + Copy, V> Index<&K> for Tree<K, V> {
    type Output = V;

    fn index(&self, key: &K) -> &V {
        self.get(key).expect("the key is there")
    }
}

impl<K: Ord + Copy, V: PartialEq> PartialEq for Tree<K, V> {
    fn eq(&self, other: &Tree<K, V>) -> bool {
        self.len == other.len && (Arc::ptr_eq(&self.root, &other.root) || self.iter().eq(other.iter()))
    }
}

impl<K: Ord + Copy, V: Eq> Eq for Tree<K, V> {}

impl<K: Ord + Copy + fmt::Debug, V: fmt::Debug> fmt::Debug for Tree<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests;
