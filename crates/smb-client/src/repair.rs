//! Recovery of a session: authenticates it again after it has expired, and uses the other channel while the SMB
//! Direct channel is lost.
//!
//! Invariants:
//! 1. A session is authenticated again once for all requests that failed because it had expired.
//! 2. `ChannelSequence` counts the lost channels. It increases before any request is sent again (MS-SMB2
//!    3.3.5.2.10), so that the server can recognise late requests of the old channel.
//! 3. Only idempotent requests are sent again: READ, WRITE of the same bytes, FLUSH and QUERY_INFO.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use env::Env;
use smb_wire::{Command, NtStatus};

use crate::client::{Client, Inner};
use crate::connection::{Call, Request, Response};
use crate::link::Link;
use crate::{ConnectError, Lost, RequestError, WhyNotRdma, setup};

/// The SMB Direct channel, in addition to the first connection.
#[derive(Default)]
pub(crate) struct RdmaChannel {
    link: Option<Arc<Link>>,
    /// Whether the client connected it itself, and so can reconnect.
    can_reconnect: bool,
    why_not: Option<WhyNotRdma>,
}

/// Delay before the client tries to restore a lost channel; each failed attempt doubles it, up to `LONGEST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

impl RdmaChannel {
    pub(crate) fn none(why_not: Option<WhyNotRdma>) -> RdmaChannel {
        RdmaChannel { why_not, ..RdmaChannel::default() }
    }

    /// Sets the channel. Returns false if there is one already.
    pub(crate) fn set(&mut self, link: Link, can_reconnect: bool) -> bool {
        if self.link.as_ref().is_some_and(|l| l.connection.ended().is_none()) {
            return false;
        }
        *self = RdmaChannel { link: Some(Arc::new(link)), can_reconnect, why_not: None };
        true
    }

    pub(crate) fn why_not(&self) -> Option<&WhyNotRdma> {
        self.why_not.as_ref()
    }

    pub(crate) fn set_why_not(&mut self, why: WhyNotRdma) {
        self.why_not = Some(why);
    }
}

impl Inner {
    /// The connection to use now: SMB Direct if available.
    pub(crate) fn link(&self) -> Arc<Link> {
        let mut rdma_channel = self.rdma_channel.lock();
        let Some(link) = &rdma_channel.link else { return Arc::clone(&self.primary) };
        let Some(lost) = link.connection.ended() else {
            let ended = self.primary.connection.ended();
            if ended.is_some_and(|why| why != Lost::Closed)
                && !self.primary_loss_counted.swap(true, Ordering::Relaxed)
            {
                self.session.sequence.fetch_add(1, Ordering::Relaxed);
            }
            return Arc::clone(link);
        };
        if lost != Lost::Closed {
            tracing::warn!(
                host = self.host(),
                "the SMB Direct connection was lost, and TCP is used instead: {lost}"
            );
            self.session.sequence.fetch_add(1, Ordering::Relaxed);
            if rdma_channel.can_reconnect {
                self.env.spawn(rejoin(self.me.clone(), self.env.clone()));
            }
        }
        *rdma_channel = RdmaChannel::none(Some(WhyNotRdma::Lost(lost)));
        Arc::clone(&self.primary)
    }

    /// Whether requests that were lost with `link` can be sent again on another connection.
    pub(crate) fn has_alternative(&self, link: &Arc<Link>) -> bool {
        !Arc::ptr_eq(link, &self.primary)
            && !Arc::ptr_eq(link, &self.link())
            && self.primary.connection.ended().is_none()
    }

    /// Closes the session's connections.
    pub(crate) async fn close(&self) {
        let rdma_channel = self.rdma_channel.lock().link.clone();
        for link in std::iter::once(&self.primary).chain(&rdma_channel) {
            link.connection.close();
            link.connection.closed().await;
        }
    }

    /// How often the session has been authenticated again: see [`Inner::reauthenticate`].
    pub(crate) fn reauthentications(&self) -> u64 {
        self.reauthentications.load(Ordering::Acquire)
    }

    /// Authenticates the session again, unless another caller did so after `reauthentications` was read. If this
    /// fails, the session ends (MS-SMB2 3.2.5.1.6).
    pub(crate) async fn reauthenticate(&self, reauthentications: u64) -> Result<(), RequestError> {
        let _one = self.reauthenticating.lock().await;
        if self.reauthentications() != reauthentications {
            return Ok(());
        }
        let link = self.link();
        let (host, options) = (self.host(), &self.options);
        let again = setup::reauthenticate(&link.connection, host, options, &self.negotiated, &self.env);
        match setup::within(&self.env, options.connect_timeout, again).await {
            Ok(()) => {
                tracing::info!(host, "the session had expired and was authenticated again");
                self.reauthentications.fetch_add(1, Ordering::AcqRel);
                Ok(())
            }
            Err(e) => {
                tracing::warn!(host, "the session has expired and cannot be renewed: {e}");
                self.close().await;
                Err(match e {
                    ConnectError::Request(e) => e,
                    ConnectError::LogOn(status) => RequestError::Status(status),
                    _ => RequestError::Status(NtStatus::NETWORK_SESSION_EXPIRED),
                })
            }
        }
    }
}

impl Client {
    /// Authenticates the session again. The client does this automatically when the session has expired (MS-SMB2
    /// 3.2.5.1.6).
    ///
    /// # Errors
    /// [`RequestError`]; the session has then ended.
    pub async fn reauthenticate(&self) -> Result<(), RequestError> {
        self.inner.reauthenticate(self.inner.reauthentications()).await
    }

    /// Sends a request without payload. Sends it again after the session was renewed, or if it is idempotent and
    /// its channel was lost.
    pub(crate) async fn call(
        &self,
        request: Request,
        send: impl Fn(&Link, Request) -> Call,
    ) -> Result<Response, RequestError> {
        let inner = &self.inner;
        let command = Command(u16::from_le_bytes([request.message[12], request.message[13]]));
        let harmless = matches!(command, Command::QUERY_INFO | Command::FLUSH);
        let (again, reauthentications, link) = (request.again(), inner.reauthentications(), inner.link());
        match send(&link, request).await {
            Ok(response) if response.header.status == NtStatus::NETWORK_SESSION_EXPIRED => {
                inner.reauthenticate(reauthentications).await?;
            }
            Err(RequestError::Lost(_)) if harmless && inner.has_alternative(&link) => {}
            done => return done,
        }
        send(&inner.link(), again).await
    }
}

/// Tries to restore the SMB Direct channel until it succeeds, the client is gone, or the session must not be joined
/// again.
async fn rejoin(client: Weak<Inner>, env: Env) {
    let mut pause = FIRST_PAUSE;
    loop {
        env.sleep(pause).await;
        let Some(inner) = client.upgrade().filter(|i| i.primary.connection.ended().is_none()) else { return };
        let client = Client { inner };
        match client.join_rdma().await {
            Ok(()) => {
                tracing::info!(host = client.inner.host(), "SMB Direct is used again");
                return;
            }
            Err(why) => {
                tracing::debug!(host = client.inner.host(), "SMB Direct cannot be used again yet: {why}");
                let never = why == WhyNotRdma::BoundOnce;
                client.inner.rdma_channel.lock().set_why_not(why);
                if never {
                    return;
                }
            }
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
