//! The paths of the control interface for storage.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path as Segment, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};

use super::{
    Attach, ClearRequest, DiskChange, DiskDetail, DiskStatus, EnclosureStatus, Identify, ImportRequest,
    JobChange, JobStatus, NewDisks, NewFiles, NewPool, NewSpace, PoolChange, PoolDetail, PoolStatus,
    Qualified, QualifyRequest, ReturnRequest, SpaceChange, SpaceDetail, SpaceStatus,
};
use crate::control::events::{Event, EventQuery, QUERY};
use crate::control::health::HealthReport;
use crate::control::types::{Changed, Fault};
use crate::daemon::{Daemon, StorageError};

/// All paths.
pub fn router() -> Router<Arc<Daemon>> {
    Router::new()
        .route("/v1/disks", get(disks))
        .route("/v1/disks/{disk}", get(disk))
        .route("/v1/disks/return", post(return_disk))
        .route("/v1/disks/files", post(create_files))
        .route("/v1/disks/qualify", post(qualify))
        .route("/v1/pools", get(pools).post(create_pool))
        .route("/v1/pools/import", post(import))
        .route("/v1/pools/{name}", get(pool).patch(change_pool).delete(destroy_pool))
        .route("/v1/pools/{name}/export", post(export))
        .route("/v1/pools/{name}/optimize", post(optimize))
        .route("/v1/disks/identify", post(identify))
        .route("/v1/enclosures", get(enclosures))
        .route("/v1/pools/{name}/disks", post(add_disks))
        .route("/v1/pools/{name}/disks/{disk}", delete(remove_disk).patch(change_disk))
        .route("/v1/pools/{name}/disks/{disk}/replace", post(replace_disk))
        .route("/v1/pools/{name}/disks/{disk}/offline", post(take_offline))
        .route("/v1/pools/{name}/clear", post(clear))
        .route("/v1/spaces", get(spaces).post(create_space))
        .route("/v1/spaces/{name}", get(space).patch(change_space).delete(destroy_space))
        .route("/v1/spaces/{name}/attachment", post(attach).delete(detach))
        .route("/v1/spaces/{name}/repair", post(repair))
        .route("/v1/health", get(health))
        .route("/v1/events", get(events))
        .route("/v1/jobs", get(jobs))
        .route("/v1/jobs/{id}/{change}", post(change_job))
}

type Daemons = State<Arc<Daemon>>;
type Answer<T> = Result<Json<T>, StorageError>;

async fn disks(State(d): Daemons) -> Answer<Vec<DiskStatus>> {
    d.storage().run_on_thread(|s| async move { Ok(s.disks().await) }).await.map(Json)
}

async fn disk(State(d): Daemons, Segment(disk): Segment<String>) -> Answer<DiskDetail> {
    d.storage().run_on_thread(|s| async move { s.disk(&disk).await }).await.map(Json)
}

async fn return_disk(State(d): Daemons, Json(request): Json<ReturnRequest>) -> Answer<Changed> {
    d.storage().run_on_thread(|s| async move { s.return_disk(request).await }).await.map(Json)
}

async fn create_files(State(d): Daemons, Json(new): Json<NewFiles>) -> Answer<Changed> {
    d.storage().run_on_thread(|s| async move { s.create_files(new).await }).await.map(Json)
}

async fn qualify(State(d): Daemons, Json(request): Json<QualifyRequest>) -> Answer<Qualified> {
    d.storage().run_on_thread(|s| async move { s.qualify(request).await }).await.map(Json)
}

async fn pools(State(d): Daemons) -> Answer<Vec<PoolStatus>> {
    d.storage().run_on_thread(|s| async move { Ok(s.pools()) }).await.map(Json)
}

async fn create_pool(State(d): Daemons, Json(new): Json<NewPool>) -> Answer<Changed> {
    d.storage().run_on_thread(|s| async move { s.create_pool(new).await }).await.map(Json)
}

async fn import(State(d): Daemons, Json(request): Json<ImportRequest>) -> Answer<Changed> {
    d.storage().run_on_thread(|s| async move { s.import(request).await }).await.map(Json)
}

async fn pool(State(d): Daemons, Segment(name): Segment<String>) -> Answer<PoolDetail> {
    d.storage().run_on_thread(|s| async move { s.pool(&name) }).await.map(Json)
}

async fn change_pool(
    State(d): Daemons,
    Segment(name): Segment<String>,
    Json(change): Json<PoolChange>,
) -> Answer<Changed> {
    d.storage().run_on_thread(|s| async move { s.change_pool(&name, change).await }).await.map(Json)
}

async fn destroy_pool(State(d): Daemons, Segment(name): Segment<String>) -> Answer<Changed> {
    d.storage().run_on_thread(|s| async move { s.destroy_pool(&name).await }).await.map(Json)
}

async fn export(State(d): Daemons, Segment(name): Segment<String>) -> Answer<Changed> {
    d.storage().run_on_thread(|s| async move { s.export(&name).await }).await.map(Json)
}

async fn add_disks(
    State(d): Daemons,
    Segment(name): Segment<String>,
    Json(new): Json<NewDisks>,
) -> Answer<Changed> {
    d.storage().run_on_thread(|s| async move { s.add_disks(&name, new).await }).await.map(Json)
}

async fn remove_disk(State(d): Daemons, Segment((name, disk)): Segment<(String, String)>) -> Answer<Changed> {
    d.storage().run_on_thread(|s| async move { s.remove_disk(&name, &disk).await }).await.map(Json)
}

async fn change_disk(
    State(d): Daemons,
    Segment((name, disk)): Segment<(String, String)>,
    Json(change): Json<DiskChange>,
) -> Answer<Changed> {
    d.storage().run_on_thread(|s| async move { s.change_disk(&name, &disk, change).await }).await.map(Json)
}

async fn replace_disk(
    State(d): Daemons,
    Segment((name, disk)): Segment<(String, String)>,
    Json(new): Json<NewDisks>,
) -> Answer<Changed> {
    d.storage().run_on_thread(|s| async move { s.replace_disk(&name, &disk, new).await }).await.map(Json)
}

async fn optimize(State(d): Daemons, Segment(name): Segment<String>) -> Answer<Changed> {
    d.storage().run_on_thread(|s| async move { s.optimize_pool(&name).await }).await.map(Json)
}

async fn identify(State(d): Daemons, Json(request): Json<Identify>) -> Answer<Changed> {
    d.storage().run_on_thread(|s| async move { s.identify(request).await }).await.map(Json)
}

async fn enclosures(State(d): Daemons) -> Answer<Vec<EnclosureStatus>> {
    d.storage().run_on_thread(|s| async move { Ok(s.enclosures()) }).await.map(Json)
}

async fn take_offline(
    State(d): Daemons,
    Segment((name, disk)): Segment<(String, String)>,
) -> Answer<Changed> {
    d.storage().run_on_thread(|s| async move { s.take_offline(&name, &disk).await }).await.map(Json)
}

async fn clear(
    State(d): Daemons,
    Segment(name): Segment<String>,
    Json(request): Json<ClearRequest>,
) -> Answer<Changed> {
    d.storage().run_on_thread(|s| async move { s.clear(&name, request).await }).await.map(Json)
}

async fn spaces(State(d): Daemons) -> Answer<Vec<SpaceStatus>> {
    d.storage().run_on_thread(|s| async move { Ok(s.spaces()) }).await.map(Json)
}

async fn create_space(State(d): Daemons, Json(new): Json<NewSpace>) -> Answer<Changed> {
    d.storage().run_on_thread(|s| async move { s.create_space(new).await }).await.map(Json)
}

async fn space(State(d): Daemons, Segment(name): Segment<String>) -> Answer<SpaceDetail> {
    d.storage().run_on_thread(|s| async move { s.space(&name) }).await.map(Json)
}

async fn change_space(
    State(d): Daemons,
    Segment(name): Segment<String>,
    Json(change): Json<SpaceChange>,
) -> Answer<Changed> {
    d.storage().run_on_thread(move |s| async move { s.change_space(&name, change).await }).await.map(Json)
}

async fn destroy_space(State(d): Daemons, Segment(name): Segment<String>) -> Answer<Changed> {
    d.storage().run_on_thread(|s| async move { s.destroy_space(&name).await }).await.map(Json)
}

async fn attach(
    State(d): Daemons,
    Segment(name): Segment<String>,
    Json(attach): Json<Attach>,
) -> Answer<Changed> {
    d.storage().run_on_thread(|s| async move { s.attach(&name, attach).await }).await.map(Json)
}

async fn detach(State(d): Daemons, Segment(name): Segment<String>) -> Answer<Changed> {
    d.storage().run_on_thread(|s| async move { s.detach(&name).await }).await.map(Json)
}

async fn repair(State(d): Daemons, Segment(name): Segment<String>) -> Answer<Changed> {
    d.storage().run_on_thread(|s| async move { s.repair_space(&name).await }).await.map(Json)
}

async fn jobs(State(d): Daemons) -> Answer<Vec<JobStatus>> {
    d.storage().run_on_thread(|s| async move { Ok(s.jobs()) }).await.map(Json)
}

async fn health(State(d): Daemons) -> Answer<HealthReport> {
    d.storage().run_on_thread(|s| async move { Ok(s.health().await) }).await.map(Json)
}

/// Lists events; does not wait for busy pools. The pools are queried only if no event has the name of the pool.
async fn events(
    State(d): Daemons,
    query: Result<Query<EventQuery>, QueryRejection>,
) -> Result<Json<Vec<Event>>, Response> {
    let Query(query) = query.map_err(|why| {
        let what = std::error::Error::source(&why).map_or_else(|| why.to_string(), |s| s.to_string());
        let fault = Fault { error: format!("the query is wrong: {what}"), cure: Some(QUERY.to_owned()) };
        (StatusCode::BAD_REQUEST, Json(fault)).into_response()
    })?;
    if let Some(pool) = query.pool.clone().filter(|p| !d.events().knows(p)) {
        let known = d.storage().run_on_thread(move |s| async move { s.pool(&pool).map(drop) }).await;
        known.map_err(IntoResponse::into_response)?;
    }
    Ok(Json(d.events().list(&query)))
}

async fn change_job(State(d): Daemons, Segment((id, change)): Segment<(u64, JobChange)>) -> Answer<Changed> {
    d.storage().run_on_thread(move |s| async move { s.change_job(id, change) }).await.map(Json)
}

impl IntoResponse for StorageError {
    fn into_response(self) -> Response {
        (self.status(), Json(Fault { error: self.to_string(), cure: self.cure() })).into_response()
    }
}
