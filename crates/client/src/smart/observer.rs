//! What an observer is told of calls: their beginning, each try, their end. Without one, that costs nothing.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::error::ClientError;
use crate::retry::ErrorClass;
use crate::rt;
use crate::smart::error::{CallError, Fate};

/// Is told of a client's calls, for metrics and traces: set it with
/// [`ClientConfig::observer`](crate::ClientConfig::observer). Its methods run in the task that makes the call: they
/// must be quick and must not block. If one panics, that stops nothing.
///
/// With the feature `tracing`, `TracingObserver` makes a span of each call.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use distkv_client::{CallEnd, CallObserver, ClientConfig, Observer};
///
/// /// Counts the calls that failed.
/// #[derive(Clone, Default)]
/// struct Errors(Arc<AtomicU64>);
///
/// impl Observer for Errors {
///     fn call_begins(&self, _action: &str) -> Option<Box<dyn CallObserver>> {
///         Some(Box::new(self.clone()))
///     }
/// }
///
/// impl CallObserver for Errors {
///     fn call_ends(&mut self, end: &CallEnd<'_>) {
///         if end.error.is_some() {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
///
/// let errors = Errors::default();
/// let config = ClientConfig::new().observer(errors.clone());
/// # let _ = config;
/// ```
pub trait Observer: Send + Sync {
    /// A call begins; `action` is the protocol's word for it (`get_value`, `set_value`, `batch` …). What this
    /// returns is told the rest; with none, this call is not observed further.
    fn call_begins(&self, action: &str) -> Option<Box<dyn CallObserver>>;
}

impl<T: Observer + ?Sized> Observer for Arc<T> {
    fn call_begins(&self, action: &str) -> Option<Box<dyn CallObserver>> {
        (**self).call_begins(action)
    }
}

/// Is told of one call. It is dropped when the call has ended; without [`CallObserver::call_ends`] before that, if the
/// call was given up by its caller.
pub trait CallObserver: Send {
    /// A try goes to a node, which is told by its name. The first try is 1.
    fn try_begins(&mut self, node: &str, attempt: u32) {
        let _ = (node, attempt);
    }

    /// That try has failed; `class` says what follows from that. The error's text may be the node's, and name paths and
    /// values; its [`ClientError::code`] does not.
    fn try_failed(&mut self, node: &str, attempt: u32, class: ErrorClass, error: &ClientError) {
        let _ = (node, attempt, class, error);
    }

    /// The call has ended.
    fn call_ends(&mut self, end: &CallEnd<'_>) {
        let _ = end;
    }
}

/// How a call ended.
#[derive(Debug, Clone, Copy)]
pub struct CallEnd<'a> {
    /// The protocol's word for what it did.
    pub action: &'a str,
    /// How long it took, all tries and pauses included.
    pub took: Duration,
    /// Tries, the last one included.
    pub attempts: u32,
    /// How it failed; none: it succeeded.
    pub error: Option<&'a CallError>,
}

impl CallEnd<'_> {
    /// What is known of a call that failed.
    #[must_use]
    pub fn fate(&self) -> Option<Fate> {
        self.error.map(CallError::fate)
    }
}

/// The observer of a client, if it has one.
#[derive(Clone, Default)]
pub(in crate::smart) struct Observing(Option<Arc<dyn Observer>>);

impl Observing {
    pub(in crate::smart) fn by(observer: impl Observer + 'static) -> Observing {
        Observing(Some(Arc::new(observer)))
    }

    /// A call begins.
    pub(in crate::smart) fn begin<'a>(&self, action: &'a str) -> Option<Observed<'a>> {
        let observer = self.0.as_ref()?;
        let call = guard(|| observer.call_begins(action)).flatten()?;
        Some(Observed { call, action, started_us: rt::now_us() })
    }
}

impl fmt::Debug for Observing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Some(_)" } else { "None" })
    }
}

impl PartialEq for Observing {
    fn eq(&self, other: &Observing) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}

/// One observed call.
pub(in crate::smart) struct Observed<'a> {
    call: Box<dyn CallObserver>,
    action: &'a str,
    started_us: u64,
}

impl Observed<'_> {
    pub(in crate::smart) fn on_try(&mut self, node: &str, attempt: u32) {
        guard(|| self.call.try_begins(node, attempt));
    }

    pub(in crate::smart) fn on_failure(
        &mut self,
        node: &str,
        attempt: u32,
        class: ErrorClass,
        error: &ClientError,
    ) {
        guard(|| self.call.try_failed(node, attempt, class, error));
    }

    pub(in crate::smart) fn on_end(mut self, attempts: u32, error: Option<&CallError>) {
        let took = Duration::from_micros(rt::now_us().saturating_sub(self.started_us));
        let end = CallEnd { action: self.action, took, attempts, error };
        guard(|| self.call.call_ends(&end));
    }
}

/// What an observer panics with was reported by the hook; the call goes on.
fn guard<T>(tell: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(tell)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody;

    impl Observer for Nobody {
        fn call_begins(&self, _: &str) -> Option<Box<dyn CallObserver>> {
            None
        }
    }

    #[test]
    fn what_is_not_observed_allocates_nothing() {
        let (none, nobody) = (Observing::default(), Observing::by(Nobody));
        let used = allocation_counter::measure(|| {
            for observing in [&none, &nobody] {
                assert!(observing.begin("get_value").is_none());
            }
        });
        assert_eq!(used.count_total, 0);
        assert_eq!(none, Observing::default());
        assert_ne!(none, nobody);
        assert_eq!(nobody, nobody.clone());
        assert_eq!(format!("{none:?} {nobody:?}"), "None Some(_)");
    }
}
