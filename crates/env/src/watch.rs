//! A watched value, like `tokio::sync::watch`. Tokio wakes waiters in a random order (it spreads them over
//! eight queues), so a simulation with it is not repeatable. Here waiters are woken in the order in which
//! they began to wait.

use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::Notify;

/// Changes the value. After the sender is dropped the value is final.
pub struct Sender<T>(Arc<Shared<T>>);

/// Reads the value and waits for changes.
#[derive(Clone)]
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen_version: u64,
}

/// The sender was dropped: the value does not change any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the value does not change any more")]
pub struct SenderDropped;

struct Shared<T> {
    state: RwLock<State<T>>,
    changed: Notify,
}

struct State<T> {
    value: T,
    version: u64,
    is_final: bool,
}

/// A sender and a receiver of a new value.
pub fn channel<T: Clone>(value: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender::new(value);
    let receiver = sender.subscribe();
    (sender, receiver)
}

impl<T: Clone> Sender<T> {
    /// A sender with this initial value.
    pub fn new(value: T) -> Sender<T> {
        let state = RwLock::new(State { value, version: 0, is_final: false });
        Sender(Arc::new(Shared { state, changed: Notify::new() }))
    }

    /// The current value.
    pub fn get(&self) -> T {
        self.0.state.read().value.clone()
    }

    /// A receiver that has already seen the current value.
    pub fn subscribe(&self) -> Receiver<T> {
        Receiver { seen_version: self.0.state.read().version, shared: Arc::clone(&self.0) }
    }

    /// Replaces the value; returns the previous one.
    pub fn send_replace(&self, value: T) -> T {
        let mut before = value;
        self.send_modify(|present| std::mem::swap(present, &mut before));
        before
    }

    /// Changes the value.
    pub fn send_modify(&self, change: impl FnOnce(&mut T)) {
        self.send_if_modified(|value| {
            change(value);
            true
        });
    }

    /// Calls `change`, which returns whether it changed the value; receivers are woken only then. Returns the
    /// same.
    pub fn send_if_modified(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        {
            let mut state = self.0.state.write();
            if !change(&mut state.value) {
                return false;
            }
            state.version += 1;
        }
        self.0.changed.notify_waiters();
        true
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.state.write().is_final = true;
        self.0.changed.notify_waiters();
    }
}

impl<T: Clone> Receiver<T> {
    /// The current value.
    pub fn get(&self) -> T {
        self.shared.state.read().value.clone()
    }

    /// Waits for a change that this receiver has not seen. Cancel-safe: after a dropped call, the next call
    /// still sees the change.
    ///
    /// # Errors
    /// [`SenderDropped`] if the sender was dropped and no unseen change remains.
    pub async fn changed(&mut self) -> Result<(), SenderDropped> {
        loop {
            let mut changed = std::pin::pin!(self.shared.changed.notified());
            changed.as_mut().enable();
            let (version, is_final) = {
                let state = self.shared.state.read();
                (state.version, state.is_final)
            };
            if version != self.seen_version {
                self.seen_version = version;
                return Ok(());
            }
            if is_final {
                return Err(SenderDropped);
            }
            changed.await;
        }
    }

    /// Waits until `is_so` holds for the value, and returns it.
    ///
    /// # Errors
    /// [`SenderDropped`] if the sender was dropped and the final value does not satisfy `is_so`.
    pub async fn wait_for(&mut self, mut is_so: impl FnMut(&T) -> bool) -> Result<T, SenderDropped> {
        loop {
            {
                let state = self.shared.state.read();
                self.seen_version = state.version;
                if is_so(&state.value) {
                    return Ok(state.value.clone());
                }
            }
            self.changed().await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_receiver_sees_each_change_once() {
        let (sender, mut receiver) = channel(1);
        assert!(sender.send_if_modified(|value| std::mem::replace(value, 2) != 2));
        assert!(!sender.send_if_modified(|value| std::mem::replace(value, 2) != 2));
        receiver.changed().await.expect("one");
        assert_eq!((receiver.get(), sender.send_replace(3), sender.get()), (2, 2, 3));
        assert_eq!(receiver.wait_for(|value| *value == 3).await, Ok(3));
        let waits =
            tokio::spawn(async move { (receiver.changed().await, receiver.wait_for(|v| *v == 9).await) });
        tokio::task::yield_now().await;
        drop(sender);
        assert_eq!(waits.await.expect("it ends"), (Err(SenderDropped), Err(SenderDropped)));
    }

    /// `tokio::sync::watch` wakes its receivers in a random order.
    #[tokio::test]
    async fn waiters_are_woken_in_their_order() {
        let (sender, receiver) = channel(false);
        let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let waiters: Vec<_> = (0..40)
            .map(|number| {
                let (mut receiver, order) = (receiver.clone(), Arc::clone(&order));
                tokio::spawn(async move {
                    receiver.wait_for(|value| *value).await.expect("it changes");
                    order.lock().push(number);
                })
            })
            .collect();
        tokio::task::yield_now().await;
        sender.send_replace(true);
        for waiter in waiters {
            waiter.await.expect("it ends");
        }
        assert!(order.lock().iter().copied().eq(0..40));
    }
}
