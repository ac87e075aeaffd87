//! Compares the tree with the standard library's map.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Checks the invariants; returns the depth of the leaves.
fn check<V>(node: &Node<u32, V>, from: Option<u32>, to: Option<u32>, root: bool) -> usize {
    assert!(node.len() <= NODE_MAX && (root || node.len() > 0));
    let inside = |k: u32| from.is_none_or(|f| f <= k) && to.is_none_or(|t| k < t);
    match node {
        Node::Leaf(entries) => {
            assert!(entries.is_sorted_by(|a, b| a.0 < b.0) && entries.iter().all(|(k, _)| inside(*k)));
            1
        }
        Node::Inner(children) => {
            let bound = |at: usize| children.get(at).map(|(k, _)| *k);
            let depth = |at: usize| {
                let from = if at == 0 { from } else { bound(at) };
                check(&children[at].1, from, bound(at + 1).or(to), false)
            };
            let depths: Vec<usize> = (0..children.len()).map(depth).collect();
            assert!(depths.windows(2).all(|d| d[0] == d[1]), "{depths:?}");
            depths[0] + 1
        }
    }
}

fn same(tree: &Tree<u32, u64>, model: &BTreeMap<u32, u64>) {
    check(&tree.root, None, None, true);
    assert_eq!(tree.len(), model.len());
    assert!(tree.iter().eq(model.iter()));
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u32, u64),
    InsertRun(u32, u32),
    Remove(u32),
    RemoveRun(u32, u32),
    Change(u32),
    Keep,
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..3000_u32;
    prop_oneof![
        8 => (key.clone(), any::<u64>()).prop_map(|(k, v)| Step::Insert(k, v)),
        2 => (key.clone(), 0..600_u32).prop_map(|(k, n)| Step::InsertRun(k, n)),
        8 => key.clone().prop_map(Step::Remove),
        2 => (key.clone(), 0..600_u32).prop_map(|(k, n)| Step::RemoveRun(k, n)),
        4 => key.prop_map(Step::Change),
        1 => Just(Step::Keep),
    ]
}

proptest! {
    #[test]
    fn it_is_the_map(steps in prop::collection::vec(step(), 1..80), from in 0..3000_u32, to in 0..3000_u32) {
        let (mut tree, mut model) = (Tree::default(), BTreeMap::new());
        let mut kept = Vec::new();
        for step in steps {
            match step {
                Step::Insert(k, v) => assert_eq!(tree.insert(k, v), model.insert(k, v)),
                Step::InsertRun(k, n) => {
                    (k..k + n).for_each(|k| assert_eq!(tree.insert(k, 1), model.insert(k, 1)));
                }
                Step::Remove(k) => assert_eq!(tree.remove(&k), model.remove(&k)),
                Step::RemoveRun(k, n) => {
                    (k..k + n).rev().for_each(|k| assert_eq!(tree.remove(&k), model.remove(&k)));
                }
                Step::Change(k) => {
                    let (a, b) = (tree.get_mut(&k), model.get_mut(&k));
                    assert_eq!(a, b);
                    a.into_iter().chain(b).for_each(|v| *v ^= 1);
                }
                Step::Keep => kept.push((tree.clone(), model.clone())),
            }
            same(&tree, &model);
        }
        // Clones do not contain later changes.
        kept.iter().for_each(|(tree, model)| same(tree, model));
        for k in 0..3000 {
            prop_assert_eq!(tree.get(&k), model.get(&k));
        }
        if from <= to {
            prop_assert!(tree.range(from..to).eq(model.range(from..to)));
            prop_assert!(tree.range(from..=to).eq(model.range(from..=to)));
        } else {
            prop_assert!(tree.range(from..to).next().is_none());
        }
        prop_assert!(tree.range(from..).eq(model.range(from..)));
    }
}

#[test]
fn equal_is_what_has_the_same_entries() {
    let up: Tree<u32, u64> = (0..1000).map(|k| (k, 1)).collect();
    let down: Tree<u32, u64> = (0..1000).rev().map(|k| (k, 1)).collect();
    assert_eq!(up, down, "however they came there");
    let mut other = up.clone();
    assert_eq!(up, other);
    *other.get_mut(&500).expect("it is there") = 2;
    assert!(up != other && up[&500] == 1);
}

#[test]
fn a_change_copies_one_way_down_and_no_more() {
    let tree: Tree<u32, u64> = (0..100_000).map(|k| (k, 1)).collect();
    let mut changed = tree.clone();
    *changed.get_mut(&50_000).expect("it is there") = 2;
    let nodes = |tree: &Tree<u32, u64>| {
        fn count<V>(node: &Arc<Node<u32, V>>, seen: &mut Vec<*const Node<u32, V>>) {
            seen.push(Arc::as_ptr(node));
            if let Node::Inner(children) = &**node {
                children.iter().for_each(|(_, child)| count(child, seen));
            }
        }
        let mut seen = Vec::new();
        count(&tree.root, &mut seen);
        seen
    };
    let (before, after) = (nodes(&tree), nodes(&changed));
    let depth = check(&tree.root, None, None, true);
    let own = before.iter().zip(&after).filter(|(a, b)| a != b).count();
    assert_eq!((before.len(), own), (after.len(), depth));
    assert!(
        before.len() < 100_000 / NODE_MAX * 11 / 10,
        "filled in order, it is full: {} nodes",
        before.len()
    );
}
