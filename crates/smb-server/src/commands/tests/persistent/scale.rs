//! Many persistent opens at once.

use super::*;

/// Opens of files of their own, and opens that share a file.
const ALONE: usize = 10_000;
const TOGETHER: usize = 1000;

/// All opens are restored at once, with their leases and locks, and each is found by its CreateGuid.
#[tokio::test(start_paused = true)]
async fn ten_thousand_opens() {
    let run = Run::new();
    let a = run.client(1);
    let alone = a.create("0", How::CREATE, persistent(1, RWH)).await.expect("made");
    assert_eq!(a.lock(alone.id, 0, 0x11, false).await, NtStatus::SUCCESS);
    let together = a.create("all", How::CREATE, persistent(2, RH)).await.expect("made");
    let (alone, together) = (alone.id.persistent, together.id.persistent);
    let (alone, together) = (run.journal.record(alone), run.journal.record(together));
    let (alone, together) = (alone.expect("stored"), together.expect("stored"));
    for n in 1..ALONE {
        let path = n.to_string();
        let made = a.w.create(&path, How::CREATE).await;
        let key =
            run.w.server.opens.find(made.persistent).and_then(|o| Some(o.file()?.file.id())).expect("open");
        a.w.close(made).await;
        let caching = match alone.caching.clone() {
            Some(CachingRecord::Lease { state, v2, .. }) => CachingRecord::Lease { key: name(n), state, v2 },
            other => panic!("{other:?}"),
        };
        let record = OpenRecord {
            id: (5 << 32) | n as u64,
            path,
            file: (format!("{:x}", key.volume), format!("{:x}", key.file)),
            create_guid: name(n),
            caching: Some(caching),
            ..alone.clone()
        };
        run.journal.put(&record).await.expect("stored");
    }
    for n in 1..TOGETHER {
        let record =
            OpenRecord { id: (6 << 32) | n as u64, create_guid: name(ALONE + n), ..together.clone() };
        run.journal.put(&record).await.expect("stored");
    }
    let (run, restored) = run.restarted().await;
    assert_eq!((restored, run.w.server.files.open_files()), (ALONE + TOGETHER, ALONE + 1));
    assert_eq!(run.w.server.opens().iter().map(|o| o.locks).sum::<usize>(), ALONE);
    for n in (1..ALONE).step_by(97) {
        let found = run.w.server.find_persistent(Guid(name(n))).expect("its CreateGuid");
        assert_eq!(found.persistent, (5 << 32) | n as u64);
        let held = found.file().and_then(|f| f.file.held(f.holder?)).expect("a lease");
        assert_eq!(held.state, RWH);
    }
}

/// A CreateGuid or lease key of a number.
fn name(n: usize) -> [u8; 16] {
    let mut bytes = [7; 16];
    bytes[..8].copy_from_slice(&n.to_le_bytes());
    bytes
}
