//! The client of the control interface: one connection for each request, for the command line.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::net::UnixStream;

use super::types::Fault;

/// The longest response, in bytes: enough for some hundred thousand opens.
const LONGEST: usize = 64 << 20;

/// Why a request failed.
#[derive(Debug, Error)]
pub enum ControlError {
    /// No server listens there.
    #[error("no server answers on {}", socket.display())]
    NotRunning {
        /// The control socket.
        socket: PathBuf,
    },
    /// The user has no permission to open the socket.
    #[error("this user has no permission to open {}", socket.display())]
    Denied {
        /// The control socket.
        socket: PathBuf,
    },
    /// The connection failed.
    #[error("{}: {source}", socket.display())]
    Connection {
        /// The control socket.
        socket: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The server does not speak this protocol.
    #[error("the program that listens on {} is not a causeway server: {source}", socket.display())]
    Protocol {
        /// The control socket.
        socket: PathBuf,
        /// The error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The connection was closed before the response.
    #[error("the server on {} ended during the command", socket.display())]
    Ended {
        /// The control socket.
        socket: PathBuf,
        /// Whether the command may have changed something.
        may_have_changed: bool,
    },
    /// A server listens there and does not respond.
    #[error("the server on {} did not answer within {seconds} s", socket.display())]
    Silent {
        /// The control socket.
        socket: PathBuf,
        /// How long the caller waited.
        seconds: u64,
    },
    /// The server refused the request.
    #[error("{}", fault.error)]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The error and its cure.
        fault: Fault,
    },
}

impl ControlError {
    /// The action that helps.
    pub fn cure(&self) -> Option<String> {
        match self {
            ControlError::NotRunning { .. } => {
                Some("is it running? systemctl status causeway, or pass --control".to_owned())
            }
            ControlError::Denied { .. } => {
                Some("run this as the user that the server runs as (sudo), or pass --control".to_owned())
            }
            ControlError::Connection { .. } => Some("pass the server's socket with --control".to_owned()),
            ControlError::Protocol { .. } => Some(
                "pass the server's socket with --control; client and server should have the same version"
                    .to_owned(),
            ),
            ControlError::Ended { may_have_changed: false, .. } => {
                Some("is it running? systemctl status causeway".to_owned())
            }
            ControlError::Ended { .. } => Some(
                "it is unknown whether the command took effect: when the server runs again (systemctl status causeway), check with \
                 the commands list and show before you repeat it"
                    .to_owned(),
            ),
            ControlError::Silent { .. } => {
                Some("it may be stopped or overloaded: see its log: journalctl -u causeway".to_owned())
            }
            ControlError::Refused { fault, .. } => fault.cure.clone(),
        }
    }
}

/// A server's control socket.
pub struct ControlClient {
    socket: PathBuf,
}

impl ControlClient {
    /// A client for the server at `socket`; opens nothing yet.
    pub fn new(socket: &Path) -> ControlClient {
        ControlClient { socket: socket.to_owned() }
    }

    /// `GET`.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ControlError> {
        self.request(Method::GET, path, None::<&()>).await
    }

    /// `POST`.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ControlError> {
        self.request(Method::POST, path, Some(body)).await
    }

    /// `PUT`.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub async fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ControlError> {
        self.request(Method::PUT, path, Some(body)).await
    }

    /// `PATCH`.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub async fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ControlError> {
        self.request(Method::PATCH, path, Some(body)).await
    }

    /// `DELETE`.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, ControlError> {
        self.request(Method::DELETE, path, None::<&()>).await
    }

    /// The message for a server that took longer than `patience`.
    pub fn silent(&self, patience: Duration) -> ControlError {
        ControlError::Silent { socket: self.socket.clone(), seconds: patience.as_secs() }
    }

    async fn request<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, ControlError> {
        let protocol = |source| ControlError::Protocol { socket: self.socket.clone(), source };
        let may_have_changed = method != Method::GET;
        let failed = |source: hyper::Error| match has_ended(&source) {
            true => ControlError::Ended { socket: self.socket.clone(), may_have_changed },
            false => protocol(source.into()),
        };
        let stream = UnixStream::connect(&self.socket).await.map_err(|e| self.unreachable(e))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|e| protocol(e.into()))?;
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, "localhost");
        let body = match body {
            Some(b) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                serde_json::to_vec(b).map_err(|e| protocol(e.into()))?
            }
            None => Vec::new(),
        };
        let request = request.body(Full::new(Bytes::from(body))).map_err(|e| protocol(e.into()))?;
        let exchange = async {
            let response = sender.send_request(request).await.map_err(failed)?;
            let status = response.status();
            let body = Limited::new(response.into_body(), LONGEST).collect().await;
            let body = body.map_err(|e| match e.downcast::<hyper::Error>() {
                Ok(e) => failed(*e),
                Err(e) => protocol(e),
            })?;
            Ok((status, body.to_bytes()))
        };
        let (exchange, connection) = (pin!(exchange), Box::pin(connection));
        let (status, body) = match select(exchange, connection).await {
            Either::Left((done, _)) => done?,
            // The exchange has the response, or the reason why there is none. `select` has dropped the connection, which
            // ends a request that was not sent.
            Either::Right((Ok(()), exchange)) => exchange.await?,
            Either::Right((Err(source), _)) => return Err(failed(source)),
        };
        if status.is_success() {
            serde_json::from_slice(&body).map_err(|e| protocol(e.into()))
        } else {
            Err(refused(status, &body))
        }
    }

    fn unreachable(&self, source: io::Error) -> ControlError {
        let socket = self.socket.clone();
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ControlError::NotRunning { socket },
            io::ErrorKind::PermissionDenied => ControlError::Denied { socket },
            _ => ControlError::Connection { socket, source },
        }
    }
}

/// Whether the peer closed the connection.
fn has_ended(error: &hyper::Error) -> bool {
    let source = std::error::Error::source(error).and_then(|s| s.downcast_ref::<io::Error>());
    let ends = [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe, io::ErrorKind::UnexpectedEof];
    error.is_incomplete_message()
        || error.is_canceled()
        || error.is_closed()
        || source.is_some_and(|s| ends.contains(&s.kind()))
}

fn refused(status: StatusCode, body: &[u8]) -> ControlError {
    let fault = serde_json::from_slice(body).unwrap_or_else(|_| Fault {
        error: format!(
            "the server answered {status}: {}",
            String::from_utf8_lossy(&body[..body.len().min(200)])
        ),
        cure: None,
    });
    ControlError::Refused { status: status.as_u16(), fault }
}

/// A path component of a request, percent-encoded.
pub fn segment(text: &str) -> String {
    use std::fmt::Write;
    let mut out = String::with_capacity(text.len());
    for b in text.bytes() {
        if b.is_ascii_alphanumeric() || b"-._~".contains(&b) {
            out.push(char::from(b));
        } else {
            let _ = write!(out, "%{b:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_encoded() {
        assert_eq!(segment("files"), "files");
        assert_eq!(segment("a b/ü$"), "a%20b%2F%C3%BC%24");
    }

    #[test]
    fn refusals_without_json_are_shown_as_they_are() {
        let e = refused(StatusCode::NOT_FOUND, b"nothing here");
        assert_eq!(e.to_string(), "the server answered 404 Not Found: nothing here");
        let e = refused(StatusCode::CONFLICT, br#"{"error":"taken","cure":"another name"}"#);
        assert_eq!((e.to_string(), e.cure()), ("taken".to_owned(), Some("another name".to_owned())));
    }
}
