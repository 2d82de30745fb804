//! Spans of calls for `tracing`. Names are those of OpenTelemetry's conventions for databases.

use tracing::field::Empty;
use tracing::{Level, Span, debug, span};

use crate::error::ClientError;
use crate::retry::ErrorClass;
use crate::smart::observer::{CallEnd, CallObserver, Observer};

/// Makes a span of each call (`distkv.call`, at level `INFO`, a child of the caller's span), and an event of each try
/// that failed (`DEBUG`). Neither paths nor values are told, so no text of an error is, which may be a node's: its code is. Where nobody listens to such spans, it costs a look at an
/// atomic variable.
///
/// ```
/// use distkv_client::{ClientConfig, TracingObserver};
///
/// let config = ClientConfig::new().observer(TracingObserver::new());
/// # let _ = config;
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct TracingObserver;

impl TracingObserver {
    /// One for the subscriber that is there when a call begins.
    #[must_use]
    pub fn new() -> TracingObserver {
        TracingObserver
    }
}

impl Observer for TracingObserver {
    fn call_begins(&self, action: &str) -> Option<Box<dyn CallObserver>> {
        let span = span!(
            Level::INFO,
            "distkv.call",
            "otel.kind" = "client",
            "otel.status_code" = Empty,
            "db.system.name" = "distkv",
            "db.operation.name" = action,
            "distkv.node" = Empty,
            "distkv.attempts" = Empty,
            "distkv.fate" = Empty,
            "error.type" = Empty,
        );
        (!span.is_disabled()).then(|| Box::new(Traced(span)) as Box<dyn CallObserver>)
    }
}

/// One call.
struct Traced(Span);

impl CallObserver for Traced {
    fn try_begins(&mut self, node: &str, attempt: u32) {
        self.0.record("distkv.node", node).record("distkv.attempts", attempt);
    }

    fn try_failed(&mut self, node: &str, attempt: u32, class: ErrorClass, error: &ClientError) {
        let (class, code) = (class.as_str(), error.code());
        debug!(
            parent: &self.0,
            distkv.node = node,
            distkv.attempt = attempt,
            distkv.class = class,
            error.type = code,
            "a try has failed"
        );
    }

    fn call_ends(&mut self, end: &CallEnd<'_>) {
        if let Some(error) = end.error {
            self.0.record("error.type", error.code().unwrap_or("refused"));
            self.0.record("distkv.fate", error.fate().as_str());
            self.0.record("otel.status_code", "ERROR");
        }
    }
}
