//! One try of a call: on which connection, how long, and until when the node may carry it out (docs/client-protocol.md, "The
//! time of a try").

use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::connection::Use;
use crate::connection::line::sending;
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

/// How long a try may take.
#[derive(Debug, Clone, Copy)]
pub(in crate::smart) struct TryTime {
    /// When it has begun, by [`rt::now_us`].
    pub(in crate::smart) started_us: u64,
    /// From then on, where there is not much to send.
    pub(in crate::smart) patience: Duration,
    /// The same with all that has to be sent before, and while the answer arrives.
    pub(in crate::smart) longest: Duration,
    /// So many bytes are sent.
    pub(in crate::smart) bytes: usize,
    /// For how long the node may carry out what is sent, and no longer than the try; none: whenever it comes.
    pub(in crate::smart) counts_for: Option<Duration>,
}

impl TryTime {
    /// What is left of a time, once what is to be sent has got through.
    fn left_of(self, time: Duration, sent_us: u64, ahead: usize) -> Duration {
        let sending = sending(ahead.saturating_add(self.bytes));
        let waited = Duration::from_micros(sent_us.saturating_sub(self.started_us));
        time.saturating_add(sending).min(self.longest).saturating_sub(waited)
    }
}

impl Inner {
    /// One try, within the given time, on a connection that has a place for what is wanted.
    pub(in crate::smart) async fn try_at<T, F, Fut>(
        &self,
        target: &Target,
        wanted: Use,
        time: TryTime,
        try_once: &F,
    ) -> Result<(T, Arc<PooledConnection>), Failed>
    where
        F: Fn(Try) -> Fut,
        Fut: Future<Output = Result<T, ClientError>>,
    {
        target.counts.on_try();
        let result = self.try_on(target, wanted, time, try_once).await;
        if result.is_err() {
            target.counts.on_failure();
        }
        result
    }

    async fn try_on<T, F, Fut>(
        &self,
        target: &Target,
        wanted: Use,
        time: TryTime,
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
        let (used, sent_us) = match self.pool.plan(address, expected, wanted) {
            pool::Plan::Use(used) => (Ok(used), time.started_us),
            pool::Plan::Fail(error) => (Err(error), time.started_us),
            // However long the work itself may take.
            pool::Plan::Wait(attempt) => {
                let patience = time.patience.min(self.config.retry.try_deadline);
                let coming = self.pool.come_about(attempt, expected, wanted);
                match rt::timeout(patience, coming).await {
                    Some(result) => (result, rt::now_us()),
                    None => return Err(unavailable(slow("no connection", patience))),
                }
            }
        };
        let used = used.map_err(unavailable)?;
        let Some(ahead) = used.connection().unanswered_bytes() else {
            return Err(unavailable(slow("no connection that lasts", time.patience)));
        };
        let left = time.left_of(time.patience, sent_us, ahead);
        let is_old = used.identity().incarnation.is_none();
        let counts_for = time.counts_for.map(|of| left.min(time.left_of(of, sent_us, ahead)));
        let this = Try { used: Arc::clone(&used), counts_for };
        let longest = time.left_of(Duration::MAX, sent_us, 0);
        match used.connection().while_arriving(left, longest, try_once(this)).await {
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
                    (address.to_string(), format!("no answer within {:?}", time.patience));
                let error = ClientError::Silent { address, reason };
                Err(Failed { error, class: ErrorClass::TryDeadline, is_old })
            }
        }
    }
}
