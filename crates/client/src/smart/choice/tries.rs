//! One try of a call: on which connection, how long, and until when the node may carry it out (docs/client-protocol.md, "The
//! time of a try").

use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::error::ClientError;
use crate::message::{Fields, Message};
use crate::pool::{self, PooledConnection};
use crate::retry::{ErrorClass, Sent};
use crate::rt;
use crate::smart::Inner;
use crate::topology::Target;

/// A try on a connection.
#[derive(Debug, Clone)]
pub(in crate::smart) struct Try {
    pub(in crate::smart) used: Arc<PooledConnection>,
    /// For how long what it sends counts; none: whenever it comes.
    counts_for: Option<Duration>,
}

impl Deref for Try {
    type Target = Arc<PooledConnection>;

    fn deref(&self) -> &Arc<PooledConnection> {
        &self.used
    }
}

impl Try {
    /// Sends the request of a call, and waits for its one reply.
    ///
    /// # Errors
    /// The node's error, or how the connection ended.
    pub(in crate::smart) async fn request(
        &self,
        action: &str,
        fields: &Fields,
    ) -> Result<Message, ClientError> {
        self.connection().request_within(action, fields, self.counts_for).await
    }
}

/// How one try failed.
#[derive(Debug)]
pub(in crate::smart) struct Failed {
    pub(in crate::smart) error: ClientError,
    pub(in crate::smart) class: ErrorClass,
    /// The node has none of our actions, so it heeds no write ids either.
    pub(super) is_old: bool,
}

impl Inner {
    /// One try, within the given time, of which it is now `started_us` (by [`rt::now_us`]). `counts_for`: for
    /// how long the node may carry out what is sent, and no longer than the try; none: whenever it comes.
    pub(in crate::smart) async fn try_at<T, F, Fut>(
        &self,
        target: &Target,
        started_us: u64,
        patience: Duration,
        counts_for: Option<Duration>,
        try_once: &F,
    ) -> Result<(T, Arc<PooledConnection>), Failed>
    where
        F: Fn(Try) -> Fut,
        Fut: Future<Output = Result<T, ClientError>>,
    {
        target.counts.on_try();
        let result = self.try_on(target, started_us, patience, counts_for, try_once).await;
        if result.is_err() {
            target.counts.on_failure();
        }
        result
    }

    async fn try_on<T, F, Fut>(
        &self,
        target: &Target,
        started_us: u64,
        patience: Duration,
        counts_for: Option<Duration>,
        try_once: &F,
    ) -> Result<(T, Arc<PooledConnection>), Failed>
    where
        F: Fn(Try) -> Fut,
        Fut: Future<Output = Result<T, ClientError>>,
    {
        let address = &target.address;
        let slow = |what: &str, patience: Duration| ClientError::Connect {
            address: address.to_string(),
            reason: format!("{what} within {patience:?}"),
        };
        let unavailable = |error| Failed { error, class: ErrorClass::Unavailable, is_old: false };
        let expected = target.expected();
        let (used, sent_us) = match self.pool.plan(address, expected) {
            pool::Plan::Use(used) => (Ok(used), started_us),
            pool::Plan::Fail(error) => (Err(error), started_us),
            // However long the work itself may take.
            pool::Plan::Wait(attempt) => {
                let patience = patience.min(self.config.retry.try_deadline);
                match rt::timeout(patience, self.pool.come_about(&attempt, expected)).await {
                    Some(result) => (result, rt::now_us()),
                    None => return Err(unavailable(slow("no connection", patience))),
                }
            }
        };
        let used = used.map_err(unavailable)?;
        if used.connection().is_closed() {
            return Err(unavailable(slow("no connection that lasts", patience)));
        }
        let waited = Duration::from_micros(sent_us.saturating_sub(started_us));
        let left = patience.saturating_sub(waited);
        let is_old = used.identity().incarnation.is_none();
        let counts_for = counts_for.map(|time| left.min(time));
        let this = Try { used: Arc::clone(&used), counts_for };
        match rt::timeout(left, try_once(this)).await {
            Some(Ok(value)) => {
                target.counts.on_answer(rt::now_us().saturating_sub(sent_us));
                Ok((value, used))
            }
            Some(Err(error)) => {
                let class = ErrorClass::of(&error, Sent::Maybe);
                Err(Failed { error, class, is_old })
            }
            None => {
                self.pool.on_timeout(address, &used, sent_us / 1000);
                let (address, reason) =
                    (address.to_string(), format!("no answer within {patience:?}"));
                let error = ClientError::Silent { address, reason };
                Err(Failed { error, class: ErrorClass::TryDeadline, is_old })
            }
        }
    }
}
