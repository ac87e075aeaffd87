use super::*;

#[tokio::test(start_paused = true)]
async fn a_second_importer_is_refused_and_told_who_holds_it() {
    let w = World::new(2);
    let pool = w.create().await;
    let other = |o: &mut OpenOptions| o.by = host("b");
    let held = w.open_with(&[0, 1], other).await.map(|_| ());
    assert!(matches!(&held, Err(OpenError::Held { by, .. }) if *by == host("a")), "{held:?}");
    pool.export().await.unwrap();
    assert_eq!(pool.rename("x").await, Err(CommitError::Suspended(Suspension::Exported)));
    let second = w.open_with(&[0, 1], other).await.unwrap().pool;
    assert_eq!(second.epoch(), 2);
    // By force, and by a process of the same machine when the holder has ended.
    let forced = w.open_with(&[0, 1], |o| o.force = true).await.unwrap().pool;
    assert_eq!(forced.epoch(), 3);
    let next = |process, is_running: fn(u32) -> bool| {
        move |o: &mut OpenOptions| {
            o.by.process = process;
            o.is_running = is_running;
        }
    };
    assert!(matches!(w.open_with(&[0, 1], next(8, |_| true)).await, Err(OpenError::Held { .. })));
    assert_eq!(w.open_with(&[0, 1], next(8, |_| false)).await.unwrap().pool.epoch(), 4);
}
