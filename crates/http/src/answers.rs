//! What each path answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_lock::Semaphore;
use distkv_metrics::{Format, Name, text};
use hyper::header::{
    ACCEPT, ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue,
    VARY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode};

use crate::gate::Refusal;
use crate::message::{Content, Outgoing, Reply, Request};
use crate::slots::{Busy, Slots};
use crate::turns::Turns;
use crate::{Check, Source, page, rt};

/// What is at `/`, besides the page.
const INDEX: &str = "\
/metrics       numbers for Prometheus
/livez         whether the process works: if not, start it again
/readyz        whether the node serves clients
/readyz?write  whether clients can change data
/v1/           the data, and what the node knows of its network, as JSON
";
/// What answers in parts are called where there are too many.
const STREAMS: &str = "streams, trees and lists of conflicts by HTTP";
const TEXT: &str = "text/plain; charset=utf-8";

/// Requests by the class of their answer.
#[derive(Default)]
pub(crate) struct Counts {
    ok: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

impl Counts {
    /// One more was refused.
    pub(crate) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// Answers requests.
pub(crate) struct Answers {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) scrapes: Semaphore,
    /// Places for answers in parts.
    pub(crate) streams: Arc<Turns>,
    pub(crate) counts: Counts,
    pub(crate) slots: Arc<Slots>,
}

impl Answers {
    /// The answer to a request, or why it is refused. `busy`: its connection is closed for another one only if none
    /// waits.
    pub(crate) async fn answer(
        &self,
        request: Request,
        refusal: Option<Refusal>,
        busy: Arc<Busy>,
    ) -> Response<Outgoing> {
        let takes_parts = request.takes_parts;
        let reply = match refusal {
            Some(refusal) => refused(&refusal),
            None => self.of_path(request).await,
        };
        let reply = match reply.content {
            Content::Parts(..) if !takes_parts => {
                let text = "this answer comes in parts: ask by HTTP/1.1; to HTTP/1.0, one that was cut would look whole";
                Reply::error(StatusCode::BAD_REQUEST, "bad_request", text)
            }
            _ => reply,
        };
        let response = self.response(reply, busy);
        let count = match response.status().as_u16() {
            0..400 => &self.counts.ok,
            400..500 => &self.counts.refused,
            _ => &self.counts.failed,
        };
        count.fetch_add(1, Ordering::Relaxed);
        response
    }

    async fn of_path(&self, request: Request) -> Reply {
        let query = request.query.as_deref().unwrap_or_default();
        match (request.path.as_str(), query) {
            // Whoever does not say that a page is wanted gets what can be read without a browser.
            ("/", _) if !wants_page(&request) => Reply::new(StatusCode::OK, TEXT, INDEX),
            ("/metrics", _) => self.metrics(&request).await,
            ("/livez", _) => health(&self.source.live()),
            ("/readyz", "") => health(&self.source.ready()),
            ("/readyz", "write") => {
                let mut checks = self.source.ready();
                checks.extend(self.source.writable());
                health(&checks)
            }
            ("/readyz", _) => Reply::error(
                StatusCode::BAD_REQUEST,
                "bad_request",
                "/readyz takes nothing but ?write",
            ),
            (path, _) if path == "/v1" || path.starts_with("/v1/") => {
                self.source.api(request).await
            }
            (path, _) => match page::file(path) {
                Some(reply) => reply,
                None => {
                    let text = "there is no such page; / and /v1/ list what there is";
                    Reply::error(StatusCode::NOT_FOUND, "not_found", text)
                }
            },
        }
    }

    /// As it goes out. An answer in parts needs a place of its own.
    fn response(&self, reply: Reply, busy: Arc<Busy>) -> Response<Outgoing> {
        let (reply, place) = match &reply.content {
            Content::Parts(_, holder) => match Turns::take(&self.streams, holder) {
                Ok(place) => (reply, Some(place)),
                Err(why) => {
                    let (status, text) = (StatusCode::TOO_MANY_REQUESTS, why.text(STREAMS));
                    (Reply::error(status, "too_many", &text), None)
                }
            },
            _ => (reply, None),
        };
        if place.is_some() {
            busy.streams();
        }
        let Reply { status, fields, content } = reply;
        let mut response = Response::new(Outgoing::new(content, busy, place));
        *response.status_mut() = status;
        // No browser is to keep it, guess what it is, or show it inside of another page.
        let of_all: [(HeaderName, &'static str); 3] = [
            (CACHE_CONTROL, "no-store"),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        ];
        for (name, value) in of_all {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        for (name, value) in fields {
            response.headers_mut().insert(name, value);
        }
        response
    }

    async fn metrics(&self, request: &Request) -> Reply {
        let accept: Vec<&str> = request
            .headers
            .get_all(ACCEPT)
            .iter()
            .filter_map(|field| field.to_str().ok())
            .collect();
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
            Ok(text) => Reply::new(StatusCode::OK, format.content_type(), text)
                .with(VARY, HeaderValue::from_static("Accept")),
            Err(_) => {
                let why = "no metrics were written";
                Reply::error(StatusCode::INTERNAL_SERVER_ERROR, "broken", why)
            }
        }
    }
}

/// Whether it is a browser that asks.
fn wants_page(request: &Request) -> bool {
    let accepted = request.headers.get_all(ACCEPT).iter().filter_map(|field| field.to_str().ok());
    accepted.into_iter().any(|accepted| accepted.contains("text/html"))
}

/// 200 if nothing is wrong, else 503; a line for each check.
fn health(checks: &[Check]) -> Reply {
    let is_fine = checks.iter().all(|check| check.fault.is_none());
    let status = if is_fine { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let line = |check: &Check| match &check.fault {
        None => format!("{}: {}\n", check.what, one_line(check.note.as_deref().unwrap_or("ok"))),
        Some(fault) => format!("{}: {}\n", check.what, one_line(fault)),
    };
    Reply::new(status, TEXT, checks.iter().map(line).collect::<String>())
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

fn refused(refusal: &Refusal) -> Reply {
    let mut reply = Reply::error(refusal.status, refusal.code, &refusal.text);
    if refusal.status == StatusCode::METHOD_NOT_ALLOWED {
        reply = reply.with(ALLOW, HeaderValue::from_static(refusal.allow));
    }
    if refusal.closes {
        reply = reply.with(CONNECTION, HeaderValue::from_static("close"));
    }
    reply
}
