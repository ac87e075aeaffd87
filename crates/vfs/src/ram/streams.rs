//! The named streams of a file or directory.

use std::sync::Arc;

use super::inode::{INODE_COST, Inode, State, name_cost};
use crate::{Kind, StreamInfo, StreamName, Timestamp, VfsError, VfsResult};

impl Inode {
    /// A named stream, and its name as stored.
    pub(super) fn stream(&self, name: &StreamName) -> Option<(StreamName, Arc<Inode>)> {
        let state = self.state.lock();
        position(&state, name).map(|at| state.streams[at].clone())
    }

    /// Adds a stream, whose name is free.
    pub(super) fn add_stream(&self, name: &StreamName, data: Inode, now: Timestamp) -> VfsResult<Arc<Inode>> {
        let (mut state, data) = (self.state.lock(), Arc::new(data));
        self.recharge(&mut state, 0, stream_cost(name))?;
        state.streams.push((name.clone(), Arc::clone(&data)));
        state.data_changed(now);
        Ok(data)
    }

    pub(super) fn streams(&self) -> Vec<StreamInfo> {
        let state = self.state.lock();
        let info =
            |name, state: &State| StreamInfo { name, size: state.size, allocation: state.allocation() };
        let unnamed = (self.kind == Kind::File).then(|| info(None, &state));
        let named = state.streams.iter().map(|(name, data)| info(Some(name.clone()), &data.state.lock()));
        unnamed.into_iter().chain(named).collect()
    }

    pub(super) fn remove_stream(&self, name: &StreamName, now: Timestamp) -> VfsResult<()> {
        let mut state = self.state.lock();
        let at = position(&state, name).ok_or(VfsError::NotFound)?;
        let (name, _) = state.streams.remove(at);
        state.data_changed(now);
        self.recharge(&mut state, stream_cost(&name), 0)
    }

    /// See [`crate::Node::rename_stream`].
    pub(super) fn rename_stream(
        &self,
        from: &StreamName,
        to: Option<&StreamName>,
        replace: bool,
        now: Timestamp,
    ) -> VfsResult<()> {
        let mut state = self.state.lock();
        let at = position(&state, from).ok_or(VfsError::NotFound)?;
        let Some(to) = to else { return self.move_to_unnamed(&mut state, at, replace, now) };
        let other = position(&state, to).filter(|other| *other != at);
        if let Some(other) = other {
            let size = state.streams[other].1.state.lock().size;
            check_replaceable_at(size, replace)?;
        }
        let before =
            stream_cost(&state.streams[at].0) + other.map_or(0, |o| stream_cost(&state.streams[o].0));
        self.recharge(&mut state, before, stream_cost(to))?;
        state.streams[at].0 = to.clone();
        if let Some(other) = other {
            state.streams.remove(other);
        }
        state.data_changed(now);
        Ok(())
    }

    fn move_to_unnamed(&self, state: &mut State, at: usize, replace: bool, now: Timestamp) -> VfsResult<()> {
        if self.kind == Kind::Directory {
            return Err(VfsError::InvalidArgument);
        }
        check_replaceable_at(state.size, replace)?;
        let (name, data) = state.streams.remove(at);
        {
            let mut stream = data.state.lock();
            std::mem::swap(&mut stream.content, &mut state.content);
            std::mem::swap(&mut stream.size, &mut state.size);
        }
        state.data_changed(now);
        self.recharge(state, stream_cost(&name), 0)
    }
}

fn position(state: &State, name: &StreamName) -> Option<usize> {
    state.streams.iter().position(|(n, _)| n == name)
}

/// Whether a stream of `size` bytes may be replaced by a renamed one (MS-FSA 2.1.5.15.12.1).
fn check_replaceable_at(size: u64, replace: bool) -> VfsResult<()> {
    match (replace, size) {
        (false, _) => Err(VfsError::Exists),
        (true, 0) => Ok(()),
        (true, _) => Err(VfsError::InvalidArgument),
    }
}

/// The charge for a stream in addition to its data, in bytes.
fn stream_cost(name: &StreamName) -> u64 {
    INODE_COST + name_cost(name.as_str())
}
