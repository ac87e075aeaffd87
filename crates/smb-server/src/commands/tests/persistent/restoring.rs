//! The state that survives a restart of the server.

use super::*;

/// Lease, locks and their sequence numbers are restored; only the client that had the open can reconnect it.
#[tokio::test(start_paused = true)]
async fn an_open_with_a_lease_and_a_lock() {
    let run = Run::new();
    let a = run.client(1);
    let made = a.create("f", How::CREATE, persistent(1, RWH)).await.expect("made");
    assert!(made.durable && made.state() == RWH);
    assert_eq!(a.lock(made.id, 0, 0x11, false).await, NtStatus::SUCCESS);
    let (run, restored) = run.restarted().await;
    assert_eq!((restored, run.w.server.opens().len(), run.w.server.opens()[0].locks), (1, 1, 1));
    let stranger = run.client(9).reconnect("f", made.id, persistent(1, RWH)).await;
    assert_eq!(stranger.expect_err("another client's"), NtStatus::OBJECT_NAME_NOT_FOUND);
    let a = run.client(1);
    let wrong = a.reconnect("f", made.id, persistent(2, RWH)).await;
    assert_eq!(wrong.expect_err("another CreateGuid"), NtStatus::OBJECT_NAME_NOT_FOUND);
    let again = a.reconnect("f", made.id, persistent(1, RWH)).await.expect("its own");
    assert_eq!((again.id.persistent, again.state(), again.epoch()), (made.id.persistent, RWH, made.epoch()));
    assert!(again.then.is_none());
    assert_eq!(a.lock(again.id, 0, 0x11, false).await, NtStatus::SUCCESS, "sent again");
    assert_eq!(run.w.server.opens()[0].locks, 1);
    assert_eq!(a.lock(again.id, 0, 0x12, true).await, NtStatus::SUCCESS);
    assert_eq!(a.lock(again.id, 0, 0x13, true).await, NtStatus::RANGE_NOT_LOCKED);
    a.w.close(again.id).await;
    assert_eq!((run.journal.len(), run.restarted().await.1), (0, 0));
}

/// An open of a disconnected client keeps its file (MS-SMB2 3.3.5.9 <301>) until its timeout.
#[tokio::test(start_paused = true)]
async fn an_open_whose_client_does_not_come_back() {
    let run = Run::new();
    run.client(1).create("f", How::CREATE, persistent(1, R)).await.expect("made");
    let (run, _) = run.restarted().await;
    let b = run.client(2);
    let refused = b.create("f", How::OPEN, PLAIN).await;
    assert_eq!(refused.expect_err("it is not there yet"), NtStatus::FILE_NOT_AVAILABLE);
    run.w.server.env.sleep(Duration::from_secs(61)).await;
    b.create("f", How::OPEN, PLAIN).await.expect("its time is over");
    assert_eq!(run.journal.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_was_renamed() {
    let run = Run::new();
    let a = run.client(1);
    let made = a.create("f", How::CREATE, persistent(1, RH)).await.expect("made");
    let other = a.create("f", How::OPEN, persistent(2, R)).await.expect("opened");
    a.rename(made.id, "g").await;
    a.w.create("f", How::CREATE).await;
    for id in [made.id, other.id] {
        assert_eq!(run.journal.record(id.persistent).expect("stored").path, "g");
    }
    let (run, restored) = run.restarted().await;
    assert_eq!(restored, 2);
    let a = run.client(1);
    a.reconnect("g", made.id, persistent(1, RH)).await.expect("under its new name");
    let old = a.reconnect("f", other.id, persistent(2, R)).await;
    assert_eq!(old.expect_err("not its name"), NtStatus::INVALID_PARAMETER);
}

/// Before a rename both paths are stored: after a crash the file is found under the one that it has.
#[tokio::test(start_paused = true)]
async fn a_rename_that_a_crash_interrupts() {
    for is_done in [false, true] {
        let run = Run::new();
        let a = run.client(1);
        let made = a.create("f", How::CREATE, persistent(1, RH)).await.expect("made");
        run.journal.hold(true);
        let stored = async {
            let records = loop {
                let delayed = run.journal.delayed();
                if !delayed.is_empty() {
                    break delayed;
                }
                run.w.server.env.sleep(Duration::from_millis(1)).await;
            };
            assert!(run.w.exists("f").await, "not before it is stored");
            run.journal.hold(false);
            records
        };
        let ((), records) = tokio::join!(a.rename(made.id, "g"), stored);
        assert_eq!((records[0].path.as_str(), records[0].renamed_to.as_deref()), ("f", Some("g")));
        if !is_done {
            a.rename(made.id, "f").await;
        }
        run.journal.put(&records[0]).await.expect("stored");
        let (run, restored) = run.restarted().await;
        assert_eq!(restored, 1);
        let name = if is_done { "g" } else { "f" };
        run.client(1).reconnect(name, made.id, persistent(1, RH)).await.expect("under its name");
    }
}

/// MS-SMB2 3.3.5.9: a crash after the file was created and before the record of its open was durable. The replay of the
/// CREATE gets the file as the one that it created; other CREATEs find it as an existing one.
#[tokio::test(start_paused = true)]
async fn a_create_that_a_crash_interrupts() {
    let read_only = How { attributes: FileAttributes::READONLY, ..How::CREATE };
    let or_overwrite = How { disposition: CreateDisposition::OVERWRITE_IF, ..How::CREATE };
    let replay = Ask { replay: true, ..persistent(1, RH) };
    for (path, how) in [
        ("f", How::CREATE),
        ("f", read_only),
        ("f", How::MKDIR),
        ("f", How::OPEN_IF),
        ("f", or_overwrite),
        ("f:stream", How::CREATE),
    ] {
        let run = Run::new();
        run.journal.hold(true);
        let mut making = run.client(1).create(path, how, persistent(1, RH));
        assert!(poll_immediate(&mut making).await.is_none());
        assert!(run.w.exists(path).await, "it has its name, and no record");
        let (run, restored) = run.restarted().await;
        assert_eq!(restored, 0);
        let a = run.client(1);
        if how.disposition == CreateDisposition::CREATE {
            let refused = [
                ("not a replay", a.create(path, how, persistent(1, RH)).await),
                ("another CREATE", a.create(path, how, Ask { replay: true, ..persistent(2, RH) }).await),
                ("another client", run.client(2).create(path, how, replay).await),
            ];
            for (why, refused) in refused {
                assert_eq!(refused.expect_err(why), NtStatus::OBJECT_NAME_COLLISION, "{why}");
            }
        }
        let made = a.create(path, how, replay).await.expect("its own file");
        assert_eq!(made.action, CreateAction::CREATED, "{path}");
        assert!(made.durable);
        // It is stored as any other: after the next restart it is found by its CreateGuid.
        let (run, restored) = run.restarted().await;
        assert_eq!(restored, 1);
        let again = run.client(1).create(path, how, replay).await.expect("its own open");
        assert_eq!(again.id.persistent, made.id.persistent);
    }
}

/// A replay does not get a file that has been written to, nor one that the same run of the server created and closed.
#[tokio::test(start_paused = true)]
async fn a_create_that_was_answered() {
    let run = Run::new();
    let a = run.client(1);
    let replay = Ask { replay: true, ..persistent(1, RH) };
    let made = a.create("f", How::CREATE, persistent(1, RH)).await.expect("made");
    a.w.close(made.id).await;
    let refused = a.create("f", How::CREATE, replay).await;
    assert_eq!(refused.expect_err("of this run"), NtStatus::OBJECT_NAME_COLLISION);
    let written = a.create("f", How::OPEN, PLAIN).await.expect("opened");
    assert_eq!(
        a.w.set(written.id, FileInfoClass::END_OF_FILE.0, &[1, 0, 0, 0, 0, 0, 0, 0]).await,
        NtStatus::SUCCESS
    );
    a.w.close(written.id).await;
    let (run, restored) = run.restarted().await;
    assert_eq!(restored, 0);
    let refused = run.client(1).create("f", How::CREATE, replay).await;
    assert_eq!(refused.expect_err("it has data"), NtStatus::OBJECT_NAME_COLLISION);
}

/// The share's directory is empty at one start, because its file system was not mounted: the open is restored later.
#[tokio::test(start_paused = true)]
async fn a_file_system_that_comes_later() {
    let run = Run::new();
    let made = run.client(1).create("f", How::CREATE, persistent(1, RH)).await.expect("made");
    let elsewhere = RamFs::new(&Env::simulated(8), RamOptions::default()).expect("address space");
    let other = Run::on(run.journal.reopened(), elsewhere, run.boot + 1);
    assert_eq!(other.w.server.restore_opens().await, (0, 1));
    let back = Run::on(other.journal.reopened(), Arc::clone(&run.vfs), run.boot + 2);
    assert_eq!(back.w.server.restore_opens().await, (1, 0));
    back.client(1).reconnect("f", made.id, persistent(1, RH)).await.expect("it is there again");
}

/// The delete disposition of a file applies to all its opens: the file is deleted with the last one, and no open is
/// added.
#[tokio::test(start_paused = true)]
async fn a_file_that_is_to_be_deleted() {
    let run = Run::new();
    let a = run.client(1);
    let made = a.create("f", How::CREATE, persistent(1, RH)).await.expect("made");
    let other = a.create("f", How::OPEN, persistent(2, R)).await.expect("opened");
    let on_close = a.create("g", DELETE_ON_CLOSE, persistent(3, RH)).await.expect("made");
    a.delete(made.id).await;
    let (run, _) = run.restarted().await;
    let a = run.client(1);
    let made = a.reconnect("f", made.id, persistent(1, RH)).await.expect("its own");
    let other = a.reconnect("f", other.id, persistent(2, R)).await.expect("its own");
    let on_close = a.reconnect("g", on_close.id, persistent(3, RH)).await.expect("its own");
    a.w.create("g", How::OPEN).await;
    a.w.close(made.id).await;
    assert_eq!(a.w.try_create("f", How::OPEN).await, Err(NtStatus::DELETE_PENDING));
    a.w.close(other.id).await;
    assert!(!a.w.exists("f").await);
    a.w.close(on_close.id).await;
    assert_eq!(a.w.try_create("g", How::OPEN).await, Err(NtStatus::DELETE_PENDING));
}

/// A delete disposition that was cleared is not restored.
#[tokio::test(start_paused = true)]
async fn a_file_that_is_spared() {
    let run = Run::new();
    let a = run.client(1);
    let made = a.create("f", How::CREATE, persistent(1, RH)).await.expect("made");
    a.delete(made.id).await;
    let mut spare = Vec::new();
    FileDispositionInformation { delete_pending: false }.encode(&mut spare);
    assert_eq!(a.w.set(made.id, FileInfoClass::DISPOSITION.0, &spare).await, NtStatus::SUCCESS);
    let (run, _) = run.restarted().await;
    let a = run.client(1);
    let made = a.reconnect("f", made.id, persistent(1, RH)).await.expect("its own");
    a.w.close(made.id).await;
    assert!(a.w.exists("f").await);
}

/// A named stream has its own lease, and is deleted alone.
#[tokio::test(start_paused = true)]
async fn a_named_stream() {
    let run = Run::new();
    let a = run.client(1);
    let gone = a.create("f:gone", How::CREATE, persistent(2, RWH)).await.expect("made");
    a.delete(gone.id).await;
    let kept = a.create("f:kept", How::CREATE, persistent(1, RWH)).await.expect("made");
    let (run, restored) = run.restarted().await;
    assert_eq!(restored, 2);
    let a = run.client(1);
    let kept = a.reconnect("f", kept.id, persistent(1, RWH)).await.expect("its own");
    let gone = a.reconnect("f", gone.id, persistent(2, RWH)).await.expect("its own");
    assert_eq!((kept.state(), gone.state()), (RWH, RWH));
    a.w.close(kept.id).await;
    a.w.close(gone.id).await;
    assert!(a.w.exists("f:kept").await && !a.w.exists("f:gone").await);
}

/// POSIX extensions belong to the open: its file may be removed while it is open, also after a restart.
#[tokio::test(start_paused = true)]
async fn an_open_with_posix_extensions() {
    let run = Run::new();
    let a = run.client(1);
    let ask = Ask { posix: true, ..persistent(1, RH) };
    let made = a.create("a:b*", How::CREATE, ask).await.expect("made");
    let (run, restored) = run.restarted().await;
    assert_eq!(restored, 1, "the name is one for POSIX only");
    let open = run.w.server.opens.find(made.id.persistent).expect("restored");
    assert!(open.file().expect("a file").posix);
    let a = run.client(1);
    let made = a.reconnect("a:b*", made.id, ask).await.expect("its own");
    let how = How { access: AccessMask::DELETE, ..How::OPEN };
    let other = a.create("a:b*", how, Ask { posix: true, ..PLAIN }).await.expect("opened");
    a.delete(other.id).await;
    a.w.close(other.id).await;
    a.create("a:b*", How::CREATE, Ask { posix: true, ..PLAIN }).await.expect("the name is free");
    a.w.close(made.id).await;
}

/// Leases of two clients, as in their records; a client that may have missed a change purges its cache because of the
/// epoch (MS-SMB2 3.2.5.7.5).
#[tokio::test(start_paused = true)]
async fn leases_that_share() {
    let run = Run::new();
    let (a, b) = (run.client(1), run.client(2));
    let first = a.create("f", How::CREATE, persistent(1, RH)).await.expect("made");
    let second = b.create("f", How::OPEN, persistent(2, RH)).await.expect("opened");
    let again =
        a.create("f", How::OPEN, Ask { create: Some(3), ..persistent(1, RH) }).await.expect("its own");
    let (run, restored) = run.restarted().await;
    assert_eq!(restored, 3);
    let (a, b) = (run.client(1), run.client(2));
    for (client, before, name) in [(&a, &first, 1), (&b, &second, 2)] {
        let now = client.reconnect("f", before.id, persistent(name, RH)).await.expect("its own");
        assert_eq!((now.state(), now.epoch()), (RH, before.epoch() + 2));
    }
    let ask = Ask { create: Some(3), ..persistent(1, RH) };
    let now = a.reconnect("f", again.id, ask).await.expect("its own");
    assert_eq!(now.epoch(), first.epoch() + 2);
}

/// MS-SMB2 3.3.5.9: a CREATE that is sent again finds its open by the CreateGuid, over any connection; but not while
/// another session has the open.
#[tokio::test(start_paused = true)]
async fn taking_over() {
    let run = Run::new();
    let (old, new) = (run.client(1), run.client(1));
    let ask = Ask { replay: true, ..persistent(1, RWH) };
    let made = old.create("f", How::CREATE, persistent(1, RWH)).await.expect("made");
    let busy = new.create("f", How::CREATE, ask).await;
    assert_eq!(busy.expect_err("the old connection is there"), NtStatus::DUPLICATE_OBJECTID);
    let busy = new.reconnect("f", made.id, persistent(1, RWH)).await;
    assert_eq!(busy.expect_err("the old connection is there"), NtStatus::OBJECT_NAME_NOT_FOUND);
    old.lose_connection().await;
    let stranger = run.client(1);
    let user = run.w.another(1001);
    let stranger = Client { w: World { facts: Arc::clone(&stranger.w.facts), ..user }, ..stranger };
    let refused = stranger.create("f", How::CREATE, ask).await;
    assert_eq!(refused.expect_err("another user"), NtStatus::ACCESS_DENIED);
    let other = Ask { replay: true, ..persistent(1, RWH) };
    let how = How { access: AccessMask::READ_DATA, ..How::CREATE };
    assert_eq!(new.create("f", how, other).await.expect_err("not its CREATE"), NtStatus::CONTEXT_MISMATCH);
    let taken = new.create("f", How::CREATE, ask).await.expect("taken over");
    assert_eq!((taken.id.persistent, taken.state()), (made.id.persistent, RWH));
    assert_eq!(new.lock(taken.id, 0, 0x11, false).await, NtStatus::SUCCESS);
    let stale = old.lock(made.id, 20, 0x21, false).await;
    assert_eq!(stale, NtStatus::FILE_CLOSED, "its FileId is another now");

    let (run, _) = run.restarted().await;
    let new = run.client(1);
    let taken = new.create("f", How::CREATE, ask).await.expect("after a restart too");
    assert_eq!((taken.id.persistent, taken.state()), (made.id.persistent, RWH));
    assert_eq!(run.w.server.opens()[0].locks, 1);
}

/// An open that is closed during a reconnect is not returned.
#[tokio::test(start_paused = true)]
async fn closed_while_it_is_taken_over() {
    let run = Run::new();
    let (old, new) = (run.client(1), run.client(1));
    let made = old.create("f", How::CREATE, persistent(1, RWH)).await.expect("made");
    old.lose_connection().await;
    run.journal.hold(true);
    let mut taking = new.create("f", How::CREATE, Ask { replay: true, ..persistent(1, RWH) });
    assert!(poll_immediate(&mut taking).await.is_none(), "its record is being stored");
    let closing = run.w.server.close_open(made.id.persistent);
    let (closed, taken, ()) = tokio::join!(closing, taking, async {
        tokio::task::yield_now().await;
        run.journal.hold(false);
    });
    assert!(closed);
    assert_eq!(taken.expect_err("closed"), NtStatus::FILE_CLOSED);
    assert_eq!(run.journal.len(), 0);
}

/// A name that is marked in another share may be another link: the restored open does not mark its own.
#[tokio::test(start_paused = true)]
async fn a_name_that_is_marked_in_another_share() {
    let run = Run::new();
    let a = run.client(1);
    run.w.server.add_share(ShareConfig::new("other", Arc::clone(&run.vfs))).expect("another name");
    let share = run.w.server.share("other").expect("added");
    let tree = a.w.session.add_tree(2, |id| Tree::new(id, share, ALL.bits())).expect("the second");
    let made = a.create("a", How::CREATE, persistent(1, R)).await.expect("made");
    assert_eq!(super::super::renaming::link(&a.w, made.id, "b", false).await, NtStatus::SUCCESS);
    let (server, facts) = (Arc::clone(&a.w.server), Arc::clone(&a.w.facts));
    let other = World { server, facts, session: Arc::clone(&a.w.session), tree };
    let b = other.create("b", How::OPEN).await;
    assert_eq!(other.set(b, FileInfoClass::DISPOSITION.0, &[1]).await, NtStatus::SUCCESS);
    assert!(!run.journal.record(made.id.persistent).expect("stored").delete_pending);
    let (run, _) = run.restarted().await;
    let a = run.client(1);
    let made = a.reconnect("a", made.id, persistent(1, R)).await.expect("its own");
    a.w.close(made.id).await;
    assert!(a.w.exists("a").await);
}
