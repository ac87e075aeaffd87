//! Recovery of a session: it is authenticated again when it has expired, and works without its SMB Direct
//! channel until that is restored.
//!
//! Invariants:
//! 1. A session is authenticated again once for all requests that failed because it had expired.
//! 2. `ChannelSequence` counts the lost channels: it increases before anything is sent again (MS-SMB2
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

/// The SMB Direct channel beside the first connection.
#[derive(Default)]
pub(crate) struct Second {
    link: Option<Arc<Link>>,
    /// We have dialled it, and so can do it again.
    ours: bool,
    why_not: Option<WhyNotRdma>,
}

/// How long until a lost channel is sought again; each attempt in vain doubles it, up to the other.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

impl Second {
    pub(crate) fn none(why_not: Option<WhyNotRdma>) -> Second {
        Second { why_not, ..Second::default() }
    }

    /// Takes a channel; false: there is one already.
    pub(crate) fn set(&mut self, link: Link, ours: bool) -> bool {
        if self.link.as_ref().is_some_and(|l| l.connection.ended().is_none()) {
            return false;
        }
        *self = Second { link: Some(Arc::new(link)), ours, why_not: None };
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
    /// The connection to use now: SMB Direct while there is one.
    pub(crate) fn link(&self) -> Arc<Link> {
        let mut second = self.second.lock();
        let Some(link) = &second.link else { return Arc::clone(&self.first) };
        let Some(lost) = link.connection.ended() else {
            let ended = self.first.connection.ended();
            if ended.is_some_and(|why| why != Lost::Closed) && !self.first_lost.swap(true, Ordering::Relaxed)
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
            if second.ours {
                self.env.spawn(rejoin(self.me.clone(), self.env.clone()));
            }
        }
        *second = Second::none(Some(WhyNotRdma::Lost(lost)));
        Arc::clone(&self.first)
    }

    /// Whether what was sent by `link` and lost can be sent again by another: then that is ready.
    pub(crate) fn has_alternative(&self, link: &Arc<Link>) -> bool {
        !Arc::ptr_eq(link, &self.first)
            && !Arc::ptr_eq(link, &self.link())
            && self.first.connection.ended().is_none()
    }

    /// Closes the session's connections.
    pub(crate) async fn close(&self) {
        let second = self.second.lock().link.clone();
        for link in std::iter::once(&self.first).chain(&second) {
            link.connection.close();
            link.connection.closed().await;
        }
    }

    /// How often the session has been authenticated again: see [`Inner::renew`].
    pub(crate) fn renewals(&self) -> u64 {
        self.renewals.load(Ordering::Acquire)
    }

    /// Authenticates again, unless that was done since `renewals` was read. The session ends when it fails
    /// (MS-SMB2 3.2.5.1.6).
    pub(crate) async fn renew(&self, renewals: u64) -> Result<(), RequestError> {
        let _one = self.renewing.lock().await;
        if self.renewals() != renewals {
            return Ok(());
        }
        let link = self.link();
        let (host, options) = (self.host(), &self.options);
        let again = setup::log_on_again(&link.connection, host, options, &self.negotiated, &self.env);
        match setup::within(&self.env, options.connect_timeout, again).await {
            Ok(()) => {
                tracing::info!(host, "the session had expired and was authenticated again");
                self.renewals.fetch_add(1, Ordering::AcqRel);
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
    /// Authenticates the session again, which happens automatically when it has expired (MS-SMB2 3.2.5.1.6).
    ///
    /// # Errors
    /// [`RequestError`]; the session is over then.
    pub async fn authenticate_again(&self) -> Result<(), RequestError> {
        self.inner.renew(self.inner.renewals()).await
    }

    /// Sends a request without payload, and again where it must be and may be.
    pub(crate) async fn call(
        &self,
        request: Request,
        send: impl Fn(&Link, Request) -> Call,
    ) -> Result<Response, RequestError> {
        let inner = &self.inner;
        let command = Command(u16::from_le_bytes([request.message[12], request.message[13]]));
        let harmless = matches!(command, Command::QUERY_INFO | Command::FLUSH);
        let (again, renewals, link) = (request.again(), inner.renewals(), inner.link());
        match send(&link, request).await {
            Ok(response) if response.header.status == NtStatus::NETWORK_SESSION_EXPIRED => {
                inner.renew(renewals).await?;
            }
            Err(RequestError::Lost(_)) if harmless && inner.has_alternative(&link) => {}
            done => return done,
        }
        send(&inner.link(), again).await
    }
}

/// Seeks the SMB Direct channel again until it is there, the client is gone, or the session may not be joined any more.
async fn rejoin(client: Weak<Inner>, env: Env) {
    let mut pause = FIRST_PAUSE;
    loop {
        env.sleep(pause).await;
        let Some(inner) = client.upgrade().filter(|i| i.first.connection.ended().is_none()) else { return };
        let client = Client { inner };
        match client.join_rdma().await {
            Ok(()) => {
                tracing::info!(host = client.inner.host(), "SMB Direct is used again");
                return;
            }
            Err(why) => {
                tracing::debug!(host = client.inner.host(), "SMB Direct cannot be used again yet: {why}");
                let never = why == WhyNotRdma::BoundOnce;
                client.inner.second.lock().set_why_not(why);
                if never {
                    return;
                }
            }
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
