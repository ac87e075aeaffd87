//! The performance counters for Prometheus: OpenMetrics text, on the control socket and, if configured, over
//! TCP.
//!
//! TCP clients can only read the metrics. The number and the duration of connections are limited.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use counters::{Kind, SETS, Set, Snapshot, Unit};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::daemon::Daemon;
use crate::daemon::descriptors::FailedAccepts;

/// The content type (OpenMetrics 1.0).
const CONTENT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Maximum number of TCP connections at a time.
const CONNECTIONS: usize = 32;
/// How long a connection may be idle, and how long it may last.
const SILENCE: Duration = Duration::from_secs(30);
const LIFE: Duration = Duration::from_secs(600);
/// The pause after an accept that failed because descriptors or memory ran out.
const PAUSE: Duration = Duration::from_millis(100);

/// `GET /metrics`.
pub(super) async fn metrics(State(daemon): State<Arc<Daemon>>) -> Response {
    match text(daemon.counters()) {
        Ok(text) => ([(CONTENT_TYPE, CONTENT)], text).into_response(),
        // Writing to a string does not fail.
        Err(e) => (axum::http::StatusCode::INTERNAL_SERVER_ERROR, e.to_string()).into_response(),
    }
}

/// Binds the TCP port.
///
/// # Errors
/// The system's.
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Serves `/metrics` over TCP until the task is dropped.
pub async fn serve(listener: TcpListener, daemon: Arc<Daemon>) {
    let router = Router::new().route("/metrics", get(metrics)).with_state(Arc::clone(&daemon));
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let mut failed = FailedAccepts::default();
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, peer)) => {
                let router = router.clone();
                tokio::spawn(async move {
                    if let Err(error) = connection(stream, router).await {
                        tracing::debug!(%peer, "metrics: {error}");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                if let Some(failures) = failed.add(daemon.env().now()) {
                    tracing::warn!(%error, failures, "cannot accept connections for metrics");
                }
                daemon.env().sleep(PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, router: Router) -> Result<(), hyper::Error> {
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(SILENCE);
    let served = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::time::timeout(LIFE, served).await.unwrap_or(Ok(()))
}

/// A snapshot as OpenMetrics text.
fn text(snapshot: Snapshot) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Collected(snapshot)));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Collected(Snapshot);

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for set in SETS {
            for metric in set.metrics() {
                let kind = match metric.kind {
                    Kind::Counter => MetricType::Counter,
                    Kind::Gauge => MetricType::Gauge,
                    Kind::Histogram => MetricType::Histogram,
                };
                let name = set.prometheus(metric);
                let mut family = encoder.encode_descriptor(&name, metric.help, None, kind)?;
                for instance in self.0.of(set) {
                    let labels = labels(set, &instance.labels);
                    let mut encoder = family.encode_family(&labels)?;
                    if metric.kind == Kind::Histogram {
                        let (sum_s, buckets) = histogram(instance.latencies.get(metric.name));
                        let count = buckets.iter().map(|(_, n)| n).sum();
                        encoder.encode_histogram::<NoLabelSet>(sum_s, count, &buckets, None)?;
                        continue;
                    }
                    let value = instance.values.get(metric.name).copied().unwrap_or(0);
                    value_of(metric, value).encode(encoder)?;
                }
            }
        }
        Ok(())
    }
}

/// Labels in the set's order, escaped for the text format.
fn labels(set: &Set, of: &std::collections::BTreeMap<String, String>) -> Vec<(&'static str, String)> {
    let escaped = |text: &String| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    set.labels.iter().map(|l| (*l, of.get(*l).map(escaped).unwrap_or_default())).collect()
}

/// The sum in seconds, and the buckets: upper bound in seconds and count, one for each power of two nanoseconds from
/// 8 µs to 17 s.
fn histogram(of: Option<&std::collections::BTreeMap<u64, u64>>) -> (f64, Vec<(f64, u64)>) {
    let mut buckets: Vec<_> = (13..=34).map(|power| ((1u64 << power) as f64 / 1e9, 0)).collect();
    buckets.push((f64::MAX, 0));
    let mut sum_s = 0.0;
    for (ns, n) in of.into_iter().flatten() {
        let power = ns.checked_ilog2().unwrap_or(0) as usize;
        buckets[(power + 1).saturating_sub(13).min(22)].1 += n;
        sum_s += counters::io::middle_of(*ns) as f64 * *n as f64 / 1e9;
    }
    (sum_s, buckets)
}

enum Value {
    Counter(u64),
    Seconds(f64),
    Gauge(i64),
}

fn value_of(metric: &counters::Metric, value: u64) -> Value {
    match (metric.kind, metric.unit) {
        (Kind::Gauge | Kind::Histogram, _) => Value::Gauge(value as i64),
        (Kind::Counter, Unit::Nanoseconds) => Value::Seconds(value as f64 / 1e9),
        (Kind::Counter, _) => Value::Counter(value),
    }
}

impl EncodeMetric for Value {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        match self {
            Value::Counter(n) => {
                encoder.encode_counter::<prometheus_client::encoding::NoLabelSet, _, u64>(n, None)
            }
            Value::Seconds(s) => {
                encoder.encode_counter::<prometheus_client::encoding::NoLabelSet, _, u64>(s, None)
            }
            Value::Gauge(n) => encoder.encode_gauge(n),
        }
    }

    fn metric_type(&self) -> MetricType {
        match self {
            Value::Counter(_) | Value::Seconds(_) => MetricType::Counter,
            Value::Gauge(_) => MetricType::Gauge,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_metric_per_definition_and_odd_names_escaped() {
        let registry = counters::Registry::new(env::Env::real());
        registry.server_shares.permanent("files", &["files"]).add(counters::requests::FILES_OPEN, 3);
        let _session = registry.sessions.open("0a", &["0a", "o\"d\\d\nname", "::1"]);
        let text = text(registry.snapshot()).expect("text");
        assert!(text.contains("causeway_smb_server_share_open_files{share=\"files\"} 3\n"), "{text}");
        assert!(text.contains("causeway_smb_server_share_read_bytes_total{share=\"files\"} 0\n"));
        assert!(text.contains("causeway_smb_server_share_read_time_seconds_total{share=\"files\"} 0.0\n"));
        assert!(text.contains(r#"{session="0a",user="o\"d\\d\nname",client="::1"}"#));
        for set in SETS {
            for m in set.metrics() {
                assert!(text.contains(&format!("# TYPE {} ", set.prometheus(m))), "{}", m.name);
            }
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
