//! The control interface: HTTP with JSON over a Unix socket that only the server's own user may open.
//!
//! | method and path | what |
//! |---|---|
//! | `GET /v1/server` | [`types::ServerStatus`] |
//! | `GET, POST /v1/shares`, `DELETE /v1/shares/{name}` | [`types::ShareStatus`], [`types::NewShare`] |
//! | `GET, PUT /v1/shares/{name}/acl` | [`types::ShareAccess`], [`types::NewAcl`] |
//! | `GET /v1/sessions`, `DELETE /v1/sessions/{id}` | [`types::SessionStatus`] |
//! | `GET /v1/opens`, `DELETE /v1/opens/{id}` | [`types::OpenStatus`] |
//! | `GET, POST /v1/users`, `PUT, DELETE /v1/users/{name}` | [`types::UserStatus`], [`types::NewUser`] |
//! | `PATCH /v1/users/{name}` | [`types::UserChange`] |
//! | `GET, POST /v1/groups`, `DELETE /v1/groups/{name}` | [`types::GroupStatus`], [`types::NewGroup`] |
//! | `PUT, DELETE /v1/groups/{name}/members/{user}` | adds or removes a member |
//! | `/v1/disks`, `/v1/pools`, `/v1/spaces`, `/v1/jobs`, `/v1/health`, `/v1/events` | see [`storage`] |
//! | `POST /v1/reload` | reads users and shares again, like SIGHUP |
//! | `GET /v1/counters`, also `/counters` | [`counters::Snapshot`] |
//! | `GET /metrics` | the counters for Prometheus |
//!
//! The response to a failed request is a [`types::Fault`]. Changes of shares and users are written to the configuration
//! and the users file before the response.

pub mod client;
pub mod events;
pub mod health;
pub mod metrics;
pub mod server;
pub mod storage;
pub mod types;
