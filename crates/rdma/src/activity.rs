//! The counters of a queue pair: its work requests by kind, and its provider's connections, bytes and frames.

use std::sync::Arc;

use counters::{Block, Cell, Instance, transfers as t};

use crate::{Down, Exposure, RdmaError, Wr};

/// The counters of one queue pair, for its lifetime.
pub(crate) struct Activity {
    block: Arc<Block>,
    provider: Arc<Instance>,
    over: bool,
}

/// Which side initiated a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Accepted,
    Initiated,
}

impl Activity {
    /// Counts a connection of `provider` that was established.
    pub(crate) fn new(provider: &str, role: Role) -> Activity {
        let (provider, block) = (counters::provider(provider), Arc::default());
        provider.join(&block);
        provider.add(if role == Role::Accepted { t::ACCEPTED } else { t::INITIATED }, 1);
        provider.add(t::ACTIVE, 1);
        Activity { block, provider, over: false }
    }

    /// Counts a connection of `provider` that could not be established.
    pub(crate) fn failed(provider: &str) {
        counters::provider(provider).add(t::FAILED_ATTEMPTS, 1);
    }

    pub(crate) fn block(&self) -> &Arc<Block> {
        &self.block
    }

    /// Posts a work request with `post`, and counts it if it is accepted.
    pub(crate) fn posting<E>(&self, wr: Wr, post: impl FnOnce(Wr) -> Result<(), E>) -> Result<(), E> {
        let kind = kind(&wr);
        post(wr).inspect(|()| self.block.add(kind, 1))
    }

    /// Counts a successful exposure: on a card it is also a work request.
    pub(crate) fn exposed(&self, result: Result<Exposure, RdmaError>) -> Result<Exposure, RdmaError> {
        result.inspect(|_| self.block.add(t::WR_REGISTER, 1))
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.block.add(t::IN_BYTES, bytes as u64);
    }

    pub(crate) fn sent(&self, bytes: usize) {
        self.block.add(t::OUT_BYTES, bytes as u64);
    }

    /// Sets the number of frames received and sent since the start.
    pub(crate) fn frames(&self, received: u64, sent: u64) {
        self.block.set(t::IN_FRAMES, received);
        self.block.set(t::OUT_FRAMES, sent);
    }

    /// Counts the end of the connection if it is an error. Further calls have no effect.
    pub(crate) fn ended(&mut self, why: &Down) {
        let error = !matches!(why, Down::Closed | Down::PeerClosed);
        if error && !std::mem::replace(&mut self.over, true) {
            self.provider.add(t::CONNECTION_ERRORS, 1);
        }
    }
}

fn kind(wr: &Wr) -> Cell {
    match wr {
        Wr::Send { invalidate: None, .. } => t::WR_SEND,
        Wr::Send { invalidate: Some(_), .. } => t::WR_SEND_INVALIDATE,
        Wr::Write { .. } => t::WR_WRITE,
        Wr::Read { .. } => t::WR_READ,
        Wr::Recv(_) => t::WR_RECEIVE,
        Wr::Invalidate(_) => t::WR_LOCAL_INVALIDATE,
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        self.provider.leave(&self.block);
        self.provider.sub(t::ACTIVE, 1);
    }
}
