//! The view of a space's owner: I/O knows whether the view that it used is current, in every order of steps.

use loom::thread;

use crate::current::Current;
use crate::explore;
use crate::sync::Arc;

fn replace(current: &Current<u64>, value: u64) -> bool {
    current.replace(Arc::new(value), |present, new| present < new)
}

/// An I/O regards its view as current only while it is.
#[test]
fn a_replaced_view_is_not_current() {
    explore(|| {
        let current = Arc::new(Current::new(Arc::new(1)));
        let updater = {
            let current = Arc::clone(&current);
            thread::spawn(move || assert!(replace(&current, 2)))
        };
        let seen = current.get();
        // Reads the newest value; if it is another one, the first is not current.
        let later = current.get();
        assert!(*later.value >= *seen.value);
        assert!(!current.is_current(&seen) || *later.value == *seen.value);
        updater.join().expect("no panic");
        assert_eq!(current.is_current(&seen), *seen.value == 2);
        assert!(*current.get().value == 2);
    });
}

/// Two updates arrive in any order: the newer one stays, and a view read then is current.
#[test]
fn of_two_updates_the_newer_stays() {
    explore(|| {
        let current = Arc::new(Current::new(Arc::new(1)));
        let updater = {
            let current = Arc::clone(&current);
            thread::spawn(move || replace(&current, 2))
        };
        assert!(replace(&current, 3));
        let seen = current.get();
        updater.join().expect("no panic");
        assert!(*seen.value == 3 && current.is_current(&seen));
        assert!(!replace(&current, 2));
    });
}
