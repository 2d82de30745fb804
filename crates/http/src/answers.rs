//! What each path answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_lock::Semaphore;
use bytes::Bytes;
use distkv_metrics::{Format, Name, text};
use http_body_util::Full;
use hyper::header::{
    ACCEPT, ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName,
    HeaderValue, VARY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use serde_json::json;

use crate::gate::Refusal;
use crate::slots::Slots;
use crate::{Check, Source, rt};

/// What is at `/`.
const INDEX: &str = "\
/metrics       numbers for Prometheus
/livez         whether the process works: if not, start it again
/readyz        whether the node serves clients
/readyz?write  whether clients can change data
";
const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// Requests by the class of their answer.
#[derive(Default)]
pub(crate) struct Counts {
    ok: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

/// Answers requests.
pub(crate) struct Answers {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) scrapes: Semaphore,
    pub(crate) counts: Counts,
    pub(crate) slots: Arc<Slots>,
}

impl Answers {
    /// The answer to a request, or why it is refused.
    pub(crate) async fn answer(
        &self,
        head: &Parts,
        refusal: Option<Refusal>,
    ) -> Response<Full<Bytes>> {
        let response = match refusal {
            Some(refusal) => refused(&refusal),
            None => self.of_path(head).await,
        };
        let count = match response.status().as_u16() {
            0..400 => &self.counts.ok,
            400..500 => &self.counts.refused,
            _ => &self.counts.failed,
        };
        count.fetch_add(1, Ordering::Relaxed);
        response
    }

    async fn of_path(&self, head: &Parts) -> Response<Full<Bytes>> {
        let query = head.uri.query().unwrap_or_default();
        match (head.uri.path(), query) {
            ("/", _) => response(StatusCode::OK, TEXT, INDEX),
            ("/metrics", _) => self.metrics(head).await,
            ("/livez", _) => health(&self.source.live()),
            ("/readyz", "") => health(&self.source.ready()),
            ("/readyz", "write") => {
                let mut checks = self.source.ready();
                checks.extend(self.source.writable());
                health(&checks)
            }
            ("/readyz", _) => {
                error(StatusCode::BAD_REQUEST, "bad_request", "/readyz takes nothing but ?write")
            }
            _ => error(StatusCode::NOT_FOUND, "not_found", "there is no such page; / lists all"),
        }
    }

    async fn metrics(&self, head: &Parts) -> Response<Full<Bytes>> {
        let accept: Vec<&str> =
            head.headers.get_all(ACCEPT).iter().filter_map(|field| field.to_str().ok()).collect();
        let format = Format::accepted(&accept.join(","));
        let _turn = self.scrapes.acquire().await;
        let source = Arc::clone(&self.source);
        let mut numbers = rt::spawn_blocking(move || source.numbers()).await;
        numbers.set(Name::HttpConnections, &[], self.slots.len());
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        numbers.set(Name::HttpRequests, &["ok"], count(&self.counts.ok));
        numbers.set(Name::HttpRequests, &["refused"], count(&self.counts.refused));
        numbers.set(Name::HttpRequests, &["failed"], count(&self.counts.failed));
        match text(numbers, format) {
            Ok(text) => {
                let mut response = response(StatusCode::OK, format.content_type(), text);
                response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
                response
            }
            Err(_) => error(StatusCode::INTERNAL_SERVER_ERROR, "broken", "no metrics were written"),
        }
    }
}

/// 200 if nothing is wrong, else 503; a line for each check.
fn health(checks: &[Check]) -> Response<Full<Bytes>> {
    let is_fine = checks.iter().all(|check| check.fault.is_none());
    let status = if is_fine { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let line = |check: &Check| match &check.fault {
        None => format!("{}: ok\n", check.what),
        Some(fault) => format!("{}: {}\n", check.what, fault.replace(['\n', '\r'], " ")),
    };
    response(status, TEXT, checks.iter().map(line).collect::<String>())
}

fn refused(refusal: &Refusal) -> Response<Full<Bytes>> {
    let mut response = error(refusal.status, refusal.code, &refusal.text);
    if refusal.status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    if refusal.closes {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn error(status: StatusCode, code: &str, text: &str) -> Response<Full<Bytes>> {
    response(status, JSON, format!("{}\n", json!({"code": code, "error": text})))
}

fn response(
    status: StatusCode,
    kind: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    // No browser is to keep it, guess what it is, or show it inside of another page.
    let fields: [(HeaderName, &'static str); 4] = [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    ];
    for (name, value) in fields {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
