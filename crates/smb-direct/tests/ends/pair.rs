//! Two connected ends in one task.

use std::future::poll_fn;
use std::task::Poll;

use arena::{Arena, Class, IoBuf, Sg, SgMut, sg_to_vec};
use env::Env;
use rdma::sim::{self, Options};
use smb_direct::{Event, SmbDirect, SmbDirectError, SmbDirectOptions};

pub const CLIENT: usize = 0;
pub const SERVER: usize = 1;

/// Client and server.
pub struct Ends {
    pub ends: [SmbDirect; 2],
    pub arena: Arena,
}

impl Ends {
    /// Connects two ends over `sim`.
    pub async fn new(fabric: Options, options: SmbDirectOptions) -> Ends {
        let arena = Arena::new(32 << 20).expect("a mapping");
        Ends::try_new(fabric, [options.clone(), options], arena).await.expect("a connection")
    }

    pub async fn try_new(
        fabric: Options,
        options: [SmbDirectOptions; 2],
        arena: Arena,
    ) -> Result<Ends, SmbDirectError> {
        let env = fabric.env.clone();
        let (a, b) = sim::pair(fabric);
        let [client, server] = options;
        let (client, server) = tokio::join!(
            SmbDirect::connect(Box::new(a), arena.clone(), env.clone(), client),
            SmbDirect::accept(Box::new(b), arena.clone(), env, server),
        );
        Ok(Ends { ends: [client?, server?], arena })
    }

    /// The next event of either end, and the index of that end.
    pub async fn next(&mut self) -> (usize, Result<Event, SmbDirectError>) {
        poll_fn(|cx| {
            for (i, end) in self.ends.iter_mut().enumerate() {
                if let Poll::Ready(event) = end.poll_event(cx) {
                    return Poll::Ready((i, event));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next event, which is `side`'s.
    pub async fn of(&mut self, side: usize) -> Event {
        match self.next().await {
            (i, Ok(event)) if i == side => event,
            other => panic!("an event of end {side} is expected, not {other:?}"),
        }
    }

    /// The next event, which is a message to `side`.
    pub async fn message(&mut self, side: usize) -> Vec<u8> {
        match self.of(side).await {
            Event::Message { data, invalidated: None } => sg_to_vec(&data),
            other => panic!("a message is expected, not {other:?}"),
        }
    }

    pub fn client(&mut self) -> &mut SmbDirect {
        &mut self.ends[CLIENT]
    }

    pub fn server(&mut self) -> &mut SmbDirect {
        &mut self.ends[SERVER]
    }

    pub fn sinks(&self, length: usize) -> SgMut {
        self.arena.try_alloc_sg(length, Class::Payload).expect("there is memory")
    }
}

pub fn env() -> Env {
    Env::simulated(1)
}

/// A pattern of `length` bytes that differs by position and `salt`.
pub fn bytes(length: usize, salt: usize) -> Vec<u8> {
    (0..length).map(|i| ((i + salt) * 31 + (i >> 8)) as u8).collect()
}

/// Splits `data` into a payload of `piece`-byte buffers.
pub fn payload(data: &[u8], piece: usize) -> Sg {
    data.chunks(piece).map(|c| IoBuf::from(c.to_vec())).collect()
}
