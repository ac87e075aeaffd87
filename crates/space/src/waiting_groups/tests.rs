use env::Env;
use pool_seam::RowNumber;

use super::*;
use crate::cache::{Budget, Cache, Need, Source};
use crate::table::{Table, TableId};
use crate::view::GroupKey;

#[tokio::test]
async fn a_write_that_holds_up_a_value_waits_for_flushes_and_they_for_it() {
    let cache: Cache<()> = Cache::new(Budget::new(1 << 20));
    let key = GroupKey { row: RowNumber(1), set: 0, group: 0 };
    let id = TableId { row: key.row, birth: 1, set: 0, group: 0 };
    let load = || async move { Ok((Table::empty(id, 1, 1, 2), Source::All)) };
    let cached = cache.get(&Env::real(), key, Need::Whole, load).wait().await.unwrap();
    let waiting = Arc::<WaitingGroups>::default();
    let write = waiting.begin_blocking_write(&cached);
    assert!(write.is_some());
    let (flush, blocking) = waiting.flush();
    assert!(blocking.len() == 1 && waiting.begin_blocking_write(&cached).is_none());
    drop((write, flush));
    let (flush, blocking) = waiting.flush();
    assert!(blocking.is_empty());
    drop(flush);
    assert!(waiting.begin_blocking_write(&cached).is_some());
}
