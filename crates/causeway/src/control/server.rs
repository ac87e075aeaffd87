//! The server of the control interface.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path as Segment, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use axum::{Json, Router};
use counters::Snapshot;
use env::Env;
use rustix::fs::Mode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use super::types::{
    Changed, Fault, GroupStatus, NewAcl, NewGroup, NewShare, NewUser, OpenStatus, ServerStatus,
    SessionStatus, ShareAccess, ShareStatus, UserChange, UserStatus,
};
use crate::daemon::{AdminError, Daemon};

/// Serves until the task is dropped.
pub async fn serve(listener: UnixListener, daemon: Arc<Daemon>) -> io::Result<()> {
    axum::serve(listener, router(daemon)).await
}

/// How long a server on the socket may take to answer, and how often a stopping one is checked.
const ANSWER: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(50);

/// Binds the socket, readable and writable for its owner only. A stale socket without a listener is replaced;
/// the call waits for a killed server that has not ended yet.
///
/// # Errors
/// `AddrInUse` when a server answers on it; else the system's.
pub async fn bind(path: &Path, env: &Env) -> io::Result<UnixListener> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let patience = env.now() + ANSWER;
    loop {
        match UnixStream::connect(path).await {
            Ok(stream) => {
                if env.now() >= patience || answers(stream).await {
                    return Err(io::ErrorKind::AddrInUse.into());
                }
                env.sleep(AGAIN).await;
            }
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => break std::fs::remove_file(path)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => break,
            Err(e) => return Err(e),
        }
    }
    // The socket has the right mode from the start. No other thread creates files yet.
    let before = rustix::process::umask(Mode::RWXG | Mode::RWXO | Mode::XUSR);
    let listener = UnixListener::bind(path);
    rustix::process::umask(before);
    listener
}

/// Whether a live server is behind a connection: the connection of a killed one closes when the system has
/// ended the process.
async fn answers(mut stream: UnixStream) -> bool {
    let ask = async {
        stream.write_all(b"GET /v1/server HTTP/1.0\r\n\r\n").await?;
        stream.read_u8().await
    };
    tokio::time::timeout(ANSWER, ask).await.map_or(true, |said| said.is_ok())
}

fn router(daemon: Arc<Daemon>) -> Router {
    Router::new()
        .route("/v1/server", get(server))
        .route("/v1/shares", get(shares).post(add_share))
        .route("/v1/shares/{name}", delete(remove_share))
        .route("/v1/shares/{name}/acl", get(share_acl).put(set_share_acl))
        .route("/v1/sessions", get(sessions))
        .route("/v1/sessions/{id}", delete(close_session))
        .route("/v1/opens", get(opens))
        .route("/v1/opens/{id}", delete(close_open))
        .route("/v1/users", get(users).post(add_user))
        .route("/v1/users/{name}", put(change_password).patch(change_user).delete(remove_user))
        .route("/v1/groups", get(groups).post(add_group))
        .route("/v1/groups/{name}", delete(remove_group))
        .route("/v1/groups/{name}/members/{user}", put(add_member).delete(remove_member))
        .merge(super::storage::routes::router())
        .route("/v1/reload", post(reload))
        .route("/v1/counters", get(counted))
        .route("/counters", get(counted))
        .route("/metrics", get(super::metrics::metrics))
        .fallback(|| async {
            let error = "there is no such resource".to_owned();
            (StatusCode::NOT_FOUND, Json(Fault { error, cure: None }))
        })
        .with_state(daemon)
}

type Answer<T> = Result<Json<T>, AdminError>;

async fn server(State(d): State<Arc<Daemon>>) -> Json<ServerStatus> {
    Json(d.status())
}

async fn counted(State(d): State<Arc<Daemon>>) -> Json<Snapshot> {
    Json(d.counters())
}

async fn shares(State(d): State<Arc<Daemon>>) -> Json<Vec<ShareStatus>> {
    Json(d.shares())
}

async fn add_share(State(d): State<Arc<Daemon>>, Json(new): Json<NewShare>) -> Answer<Changed> {
    d.add_share(new).await.map(Json)
}

async fn remove_share(State(d): State<Arc<Daemon>>, Segment(name): Segment<String>) -> Answer<Changed> {
    d.remove_share(&name).await.map(Json)
}

async fn sessions(State(d): State<Arc<Daemon>>) -> Json<Vec<SessionStatus>> {
    Json(d.sessions())
}

async fn close_session(State(d): State<Arc<Daemon>>, Segment(id): Segment<String>) -> Answer<Changed> {
    d.close_session(&id).await.map(Json)
}

async fn opens(State(d): State<Arc<Daemon>>) -> Json<Vec<OpenStatus>> {
    Json(d.opens())
}

async fn close_open(State(d): State<Arc<Daemon>>, Segment(id): Segment<u64>) -> Answer<Changed> {
    d.close_open(id).await.map(Json)
}

async fn users(State(d): State<Arc<Daemon>>) -> Answer<Vec<UserStatus>> {
    d.users().await.map(Json)
}

async fn add_user(State(d): State<Arc<Daemon>>, Json(new): Json<NewUser>) -> Answer<Changed> {
    d.add_user(new).await.map(Json)
}

async fn change_password(
    State(d): State<Arc<Daemon>>,
    Segment(name): Segment<String>,
    Json(new): Json<NewUser>,
) -> Answer<Changed> {
    d.change_password(NewUser { name, ..new }).await.map(Json)
}

async fn change_user(
    State(d): State<Arc<Daemon>>,
    Segment(name): Segment<String>,
    Json(change): Json<UserChange>,
) -> Answer<Changed> {
    d.change_user(name, change).await.map(Json)
}

async fn remove_user(State(d): State<Arc<Daemon>>, Segment(name): Segment<String>) -> Answer<Changed> {
    d.remove_user(name).await.map(Json)
}

async fn share_acl(State(d): State<Arc<Daemon>>, Segment(name): Segment<String>) -> Answer<Vec<ShareAccess>> {
    d.share_acl(&name).map(Json)
}

async fn set_share_acl(
    State(d): State<Arc<Daemon>>,
    Segment(name): Segment<String>,
    Json(new): Json<NewAcl>,
) -> Answer<Changed> {
    d.set_share_acl(&name, new).await.map(Json)
}

async fn groups(State(d): State<Arc<Daemon>>) -> Answer<Vec<GroupStatus>> {
    d.groups().await.map(Json)
}

async fn add_group(State(d): State<Arc<Daemon>>, Json(new): Json<NewGroup>) -> Answer<Changed> {
    d.add_group(new.name).await.map(Json)
}

async fn remove_group(State(d): State<Arc<Daemon>>, Segment(name): Segment<String>) -> Answer<Changed> {
    d.remove_group(name).await.map(Json)
}

async fn add_member(
    State(d): State<Arc<Daemon>>,
    Segment((group, user)): Segment<(String, String)>,
) -> Answer<Changed> {
    d.change_member(group, user, true).await.map(Json)
}

async fn remove_member(
    State(d): State<Arc<Daemon>>,
    Segment((group, user)): Segment<(String, String)>,
) -> Answer<Changed> {
    d.change_member(group, user, false).await.map(Json)
}

async fn reload(State(d): State<Arc<Daemon>>) -> Answer<Changed> {
    d.reload().await.map(Json)
}

impl IntoResponse for AdminError {
    fn into_response(self) -> Response {
        (self.status(), Json(Fault { error: self.to_string(), cure: self.cure() })).into_response()
    }
}
