//! Holes, reservations, copies.

use std::ops::Range;
use std::sync::Arc;

use env::Ctx;

use super::{Subject, pattern};
use crate::{Attributes, Node, VfsError};

/// Data far behind 4 GiB, without allocation before it.
pub(super) async fn sparse(s: &Subject) {
    const FAR: u64 = (4 << 30) + 5;
    let (c, f) = (Ctx::default(), s.file("f").await);
    f.node.set_sparse(&c, true).wait().await.expect("sparse");
    let data = pattern(12, 100_000);
    s.write(&*f.node, FAR, &data).await;
    s.write(&*f.node, 70_000, b"near").await;
    let stat = s.stat(&*f.node).await;
    assert_eq!(stat.size, FAR + 100_000);
    s.expect(&*f.node, FAR, 200_000, &data).await;
    s.expect(&*f.node, 69_998, 8, b"\0\0near\0\0").await;
    s.expect(&*f.node, FAR - 1000, 1000, &[0; 1000]).await;
    s.expect(&*f.node, 1 << 31, 100_000, &vec![0; 100_000]).await;
    if s.keeps_holes {
        assert!(stat.allocation < 8 << 20, "{} bytes taken", stat.allocation);
        let ranges = f.node.allocated(&c, 0..u64::MAX, 100).wait().await.expect("ranges");
        check(&ranges, 0..stat.size, &[70_000..70_004, FAR..FAR + 100_000]);
        let one = f.node.allocated(&c, 0..u64::MAX, 1).wait().await.expect("ranges");
        assert_eq!(one, ranges[..1]);
        let inside = f.node.allocated(&c, FAR + 10..FAR + 20, 9).wait().await.expect("ranges");
        assert_eq!(inside.as_slice(), std::slice::from_ref(&(FAR + 10..FAR + 20)));
        let hole = f.node.allocated(&c, 1 << 30..2 << 30, 9).wait().await.expect("ranges");
        assert_eq!(hole, []);
    }
    let past = f.node.allocated(&c, stat.size..u64::MAX, 9).wait().await.expect("ranges");
    assert_eq!(past, []);
}

/// Asserts that the ranges are in order, disjoint, inside `within`, and cover `data`.
fn check(ranges: &[Range<u64>], within: Range<u64>, data: &[Range<u64>]) {
    for pair in ranges.windows(2) {
        assert!(pair[0].end < pair[1].start, "{ranges:?}");
    }
    assert!(ranges.iter().all(|r| r.start < r.end && within.start <= r.start && r.end <= within.end));
    for d in data {
        assert!(ranges.iter().any(|r| r.start <= d.start && d.end <= r.end), "{d:?} is not in {ranges:?}");
    }
}

/// Zeroed ranges read as zero and the end of file stays.
pub(super) async fn zeroed(s: &Subject) {
    let (c, f) = (Ctx::default(), s.file("f").await);
    let mut data = pattern(13, 1 << 20);
    s.write(&*f.node, 0, &data).await;
    for range in [100..300u64, 65_536..262_144, 500_001..900_003, 1_048_000..2_000_000, 3_000_000..4_000_000]
    {
        f.node.zero(&c, range.clone()).wait().await.expect("zeroed");
        let (start, end) = (range.start.min(1 << 20) as usize, range.end.min(1 << 20) as usize);
        data[start..end].fill(0);
        s.expect(&*f.node, 0, 2 << 20, &data).await;
        assert_eq!(s.stat(&*f.node).await.size, 1 << 20);
    }
    if s.keeps_data {
        let ranges = f.node.allocated(&c, 0..1 << 20, 100).wait().await.expect("ranges");
        check(&ranges, 0..1 << 20, &[0..100, 300..65_536, 262_144..500_001, 900_003..1_048_000]);
    }
    f.node.zero(&c, 5..5).wait().await.expect("nothing to do");
    // No old data reappears behind the end.
    f.node.set_len(&c, 2 << 20).wait().await.expect("longer");
    s.expect(&*f.node, 1 << 20, 1 << 20, &vec![0; 1 << 20]).await;
}

/// A reservation does not move the end of file; a smaller one truncates the file.
pub(super) async fn reserved(s: &Subject) {
    let (c, f) = (Ctx::default(), s.file("f").await);
    let data = pattern(14, 10_000);
    s.write(&*f.node, 0, &data).await;
    f.node.set_allocation(&c, 1 << 20).wait().await.expect("room");
    assert_eq!(s.stat(&*f.node).await.size, 10_000);
    s.expect(&*f.node, 0, 20_000, &data).await;
    f.node.set_allocation(&c, 4000).wait().await.expect("less");
    assert_eq!(s.stat(&*f.node).await.size, 4000);
    s.expect(&*f.node, 0, 20_000, &data[..4000]).await;
}

/// Clones share blocks if the backend supports that, and writing one file does not change the other.
pub(super) async fn cloned(s: &Subject) {
    const UNIT: usize = 64 << 10;
    let (c, from, to) = (Ctx::default(), s.file("from").await, s.file("to").await);
    let data = pattern(16, 4 * UNIT);
    s.write(&*from.node, 0, &data).await;
    let clone = async |a: usize, node, b: usize, length: usize| {
        from.node.clone_to(&c, a as u64, node, b as u64, length as u64).wait().await
    };
    if !s.vfs.info().reflinks {
        assert_eq!(clone(0, &to.node, 0, UNIT).await, Err(VfsError::Unsupported));
        return;
    }
    assert_eq!(clone(UNIT, &to.node, 2 * UNIT, 2 * UNIT).await, Ok(()));
    assert_eq!(s.stat(&*to.node).await.size, 4 * UNIT as u64, "extended");
    assert_eq!(clone(3 * UNIT, &to.node, 0, UNIT).await, Ok(()));
    s.write(&*from.node, 0, &vec![1; 4 * UNIT]).await;
    let expected = [&data[3 * UNIT..], &vec![0; UNIT], &data[UNIT..3 * UNIT]].concat();
    s.expect(&*to.node, 0, 5 * UNIT as u32, &expected).await;
    for (a, length) in [(1, UNIT), (0, UNIT + 1), (4 * UNIT, UNIT), (3 * UNIT, 2 * UNIT)] {
        assert_eq!(clone(a, &to.node, 0, length).await, Err(VfsError::InvalidArgument), "{a} {length}");
    }
    s.expect(&*to.node, 0, 5 * UNIT as u32, &expected).await;
}

/// A file can be compressed if the backend supports that, and a new file inherits the flag from its directory.
pub(super) async fn compressed(s: &Subject) {
    let (c, directory, before) = (Ctx::default(), s.directory("d").await, s.file("d\\before").await);
    let set = async |node: &Arc<dyn Node>, compressed| node.set_compressed(&c, compressed).wait().await;
    let is = async |node: &Arc<dyn Node>| s.stat(&**node).await.attributes.contains(Attributes::COMPRESSED);
    assert!(!is(&before.node).await);
    if !s.vfs.info().compression {
        assert_eq!(set(&before.node, true).await, Err(VfsError::Unsupported));
        return;
    }
    assert_eq!(set(&directory.node, true).await, Ok(()));
    let inherits = s.file("d\\inherits").await;
    assert_eq!(
        (is(&directory.node).await, is(&before.node).await, is(&inherits.node).await),
        (true, false, true)
    );
    let data = vec![7; 100_000];
    s.write(&*inherits.node, 0, &data).await;
    assert_eq!(set(&inherits.node, false).await, Ok(()));
    assert!(!is(&inherits.node).await);
    s.expect(&*inherits.node, 0, 100_000, &data).await;
    assert_eq!(set(&directory.node, false).await, Ok(()));
    assert!(!is(&s.file("d\\after").await.node).await);
}

/// The backend copies ranges; it may refuse overlapping ones with `Unsupported`.
pub(super) async fn copied(s: &Subject) {
    let (c, from, to) = (Ctx::default(), s.file("from").await, s.file("to").await);
    let data = pattern(15, 2_500_000);
    s.write(&*from.node, 0, &data).await;
    let copy =
        async |a: u64, node, b: u64, length: u64| from.node.copy_to(&c, a, node, b, length).wait().await;
    assert_eq!(copy(0, &to.node, 0, 2_500_000).await, Ok(2_500_000));
    s.expect(&*to.node, 0, 3_000_000, &data).await;
    assert_eq!(copy(1_000_001, &to.node, 7, 70_000).await, Ok(70_000));
    s.expect(
        &*to.node,
        0,
        80_000,
        &[&data[..7], &data[1_000_001..1_070_001], &data[70_007..80_000]].concat(),
    )
    .await;
    assert_eq!(copy(2_400_000, &to.node, 3_000_000, 500_000).await, Ok(100_000), "up to the end");
    s.expect(&*to.node, 3_000_000, 200_000, &data[2_400_000..]).await;
    assert_eq!(copy(9_000_000, &to.node, 0, 10).await, Ok(0));
    assert_eq!(copy(0, &from.node, 2_600_000, 100_000).await, Ok(100_000), "within one file");
    s.expect(&*from.node, 2_600_000, 200_000, &data[..100_000]).await;
    match copy(0, &from.node, 50_000, 100_000).await {
        Err(e) => assert_eq!(e, VfsError::Unsupported, "overlapping"),
        Ok(n) => assert_eq!(n, 100_000),
    }
    let d = s.directory("d").await;
    assert_eq!(copy(0, &d.node, 0, 10).await, Err(VfsError::IsDirectory));
}
