use super::*;
use crate::files::tests::{FILE, join_at, member, path, share};

// A result of the backend from before a name change is not used after it.
#[tokio::test]
async fn an_open_that_a_change_overtook_starts_again() {
    let (t, n, s) = (FileTable::default(), Namespace::default(), share());
    let before = n.snapshot();
    let mut change = n.begin_change(&s).await;
    change.touch(&path("F"), FILE);
    assert_eq!(join_at(&t, &n, FILE, before, member(1, &s, "f")).err(), Some(None));
    let during = n.snapshot();
    drop(change);
    assert_eq!(join_at(&t, &n, FILE, during, member(1, &s, "f")).err(), Some(None));
    assert_eq!(t.open_files(), 0, "a refused open leaves nothing");
    join_at(&t, &n, FILE, n.snapshot(), member(1, &s, "f")).expect("nothing changed since");
}

// A rename changes the paths of its opens in its own share and leaves other names of the file unchanged; opens below a
// directory prevent its rename.
#[tokio::test]
async fn renames() {
    let (t, n, s, other) = (FileTable::default(), Namespace::default(), share(), share());
    let id = |file| FileKey { volume: 1, file };
    let at = |file, m| join_at(&t, &n, id(file), n.snapshot(), m);
    let f = at(2, member(2, &s, "d\\f")).expect("joins");
    at(2, member(3, &s, "x")).expect("joins");
    at(2, member(4, &other, "d\\f")).expect("joins");
    let mut change = n.begin_rename(&s, &f.file, true).await;
    assert!(change.hold_directory(&t, &path("d"), &path("g")).is_err());
    change.renamed(&t, id(2), &path("d\\f"), &path("g"));
    assert_eq!([2, 3, 4].map(|v| f.file.path_of(v)), ["g", "x", "d\\f"].map(path));
    assert!(change.hold_directory(&t, &path("d"), &path("g")).is_ok(), "nothing is below it in this share");
    assert_eq!(at(5, member(5, &s, "d\\new")).err(), Some(None));
    at(6, member(6, &s, "dd")).expect("beside it");
    drop(change);
    at(5, member(5, &s, "d\\new")).expect("moved by now");
}

// A hanging change in one share delays name changes of that share, and opens below a directory that it moves, and
// nothing else.
#[tokio::test]
async fn a_change_that_hangs_holds_up_its_own_share_only() {
    let (t, n, s, other) = (FileTable::default(), Namespace::default(), share(), share());
    let (d, e) = (FileKey { volume: 1, file: 2 }, FileKey { volume: 2, file: 2 });
    let f = join_at(&t, &n, d, n.snapshot(), member(1, &s, "d")).expect("the first");
    let g = join_at(&t, &n, e, n.snapshot(), member(2, &other, "e")).expect("the first");
    let mut hangs = n.begin_rename(&s, &f.file, true).await;
    assert!(hangs.hold_directory(&t, &path("d"), &path("g")).is_ok());
    assert!(futures_util::poll!(std::pin::pin!(n.begin_change(&s))).is_pending());
    assert!(futures_util::poll!(std::pin::pin!(n.wait_for_directory_renames(&s))).is_pending());
    n.wait_for_directory_renames(&other).await;
    drop(n.begin_change(&other).await);
    let mut moves = n.begin_rename(&other, &g.file, true).await;
    assert!(moves.hold_directory(&t, &path("e"), &path("g")).is_ok());
    let again = |share, at| join_at(&t, &n, FILE, n.snapshot(), member(3, share, at)).err();
    assert_eq!(again(&s, "d\\f"), Some(None));
    assert_eq!(again(&other, "e\\f"), Some(None));
    drop(moves);
    assert_eq!(again(&s, "d\\f"), Some(None), "it still hangs");
    assert_eq!(again(&other, "e\\f"), None);
}

// Changes of names in other directories, of other shares and of other files do not invalidate an open; a change of
// another name of the file does.
#[tokio::test]
async fn a_change_concerns_its_name_and_its_file() {
    let (t, n, s, other) = (FileTable::default(), Namespace::default(), share(), share());
    let id = |file| FileKey { volume: 1, file };
    let snapshot = n.snapshot();
    let mut change = n.begin_change(&s).await;
    change.touch(&path("a\\f"), id(2));
    drop(change);
    join_at(&t, &n, id(3), snapshot, member(1, &s, "b\\f")).expect("another directory");
    join_at(&t, &n, id(4), snapshot, member(2, &other, "a\\f")).expect("another share");
    assert_eq!(n.lost_races(), 0);
    assert_eq!(join_at(&t, &n, id(5), snapshot, member(3, &s, "A\\F")).err(), Some(None));
    assert_eq!(join_at(&t, &n, id(2), snapshot, member(4, &other, "x")).err(), Some(None));
    assert_eq!(n.lost_races(), 2);
}

// The rename of a directory concerns the names below its former and its new path, and no others.
#[tokio::test]
async fn a_moved_directory_concerns_the_names_below_it() {
    let (t, n, s) = (FileTable::default(), Namespace::default(), share());
    let id = |file| FileKey { volume: 1, file };
    let f = join_at(&t, &n, id(2), n.snapshot(), member(1, &s, "a\\d")).expect("the first");
    let snapshot = n.snapshot();
    let mut change = n.begin_rename(&s, &f.file, true).await;
    change.touch(&path("a\\d"), id(2));
    assert!(change.hold_directory(&t, &path("a\\d"), &path("g")).is_ok());
    change.renamed(&t, id(2), &path("a\\d"), &path("g"));
    drop(change);
    for (file, name) in [(3, "a"), (4, "a\\f"), (5, "a\\dd\\f"), (6, "gg"), (7, "b\\d\\f")] {
        join_at(&t, &n, id(file), snapshot, member(file as u64, &s, name)).expect(name);
    }
    assert_eq!(n.lost_races(), 0);
    for name in ["a\\d\\f", "A\\D\\e\\f", "g", "G\\f", "g\\e\\f"] {
        assert_eq!(join_at(&t, &n, id(8), snapshot, member(8, &s, name)).err(), Some(None), "{name}");
    }
}

// An open that takes longer than the log covers has to assume that every name has changed.
#[tokio::test]
async fn the_log_is_bounded() {
    let (n, s) = (Namespace::default(), share());
    let (first, one) = (n.snapshot(), FileKey { volume: 1, file: 2 });
    let mut changes = 0;
    while n.is_current(first, &s, &path("b"), FILE) {
        n.begin_change(&s).await.touch(&path("a"), one);
        changes += 1;
    }
    assert_eq!(changes, log::ENTRIES_MAX / 4 + 1);
    assert!(n.is_current(n.snapshot(), &s, &path("b"), FILE));
}

// An open that holds the lock on its share's names is not invalidated by changes, and waits for those that have begun.
#[tokio::test]
async fn holding() {
    let (n, s) = (Namespace::default(), share());
    let change = n.begin_change(&s).await;
    let mut hold = std::pin::pin!(n.hold(&s));
    assert!(futures_util::poll!(hold.as_mut()).is_pending());
    drop(change);
    let hold = hold.await;
    assert!(futures_util::poll!(std::pin::pin!(n.begin_change(&s))).is_pending());
    drop(hold);
    n.begin_change(&s).await;
}
