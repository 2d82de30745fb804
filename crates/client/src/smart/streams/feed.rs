//! Streams without an end, which go on at another node when theirs is lost.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, Either, select};

use crate::connection::ReplyStream;
use crate::connection::Use;
use crate::error::ClientError;
use crate::message::Fields;
use crate::model::host_port::HostPort;
use crate::model::ids::Millis;
use crate::pool::{NodeIdentity, PooledConnection};
use crate::retry::{ErrorClass, RetryPolicy};
use crate::rt;
use crate::smart::Inner;
use crate::smart::choice::call::{Plan, Round};
use crate::smart::choice::refusals::Refusals;
use crate::smart::choice::tries::{Try, TryTime};
use crate::smart::error::{At, CallError, Fate};

/// A stream, and the node that sends it.
#[derive(Debug)]
pub(in crate::smart) struct Opened {
    pub(in crate::smart) stream: ReplyStream,
    /// The connection over which it comes, for further questions.
    pub(in crate::smart) used: Arc<PooledConnection>,
    pub(in crate::smart) node: NodeIdentity,
    pub(in crate::smart) address: HostPort,
    /// By [`rt::now`].
    since: Millis,
}

/// Work that survives cancellation: when the waiting call comes back, it continues where it was. A
/// future that is dropped again and again, in the arms of a `select`, must not make it begin anew
/// each time.
pub(in crate::smart) struct Pending<T>(BoxFuture<'static, T>);

impl<T> std::fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pending")
    }
}

impl<T> Pending<T> {
    pub(in crate::smart) fn new(work: impl Future<Output = T> + Send + 'static) -> Pending<T> {
        Pending(Box::pin(work))
    }

    /// Waits for its end. Not again after that.
    pub(in crate::smart) async fn wait(&mut self) -> T {
        (&mut self.0).await
    }
}

/// A search for a node, and how it ends.
pub(in crate::smart) type Searching = Pending<(Search, Result<Opened, CallError>)>;

/// Begins to search a node that streams this.
pub(super) fn begin_search(
    client: &Arc<Inner>,
    mut search: Search,
    shard: u16,
    action: &'static str,
    fields: &Fields,
) -> Searching {
    let (client, fields) = (Arc::clone(client), fields.clone());
    Pending::new(async move {
        let result = {
            let closing = std::pin::pin!(client.door.closing());
            let opening = std::pin::pin!(client.open_again(&mut search, shard, action, &fields));
            match select(closing, opening).await {
                Either::Right((result, _)) => result,
                Either::Left(_) => {
                    let at = At { node: None, attempts: 0, fate: Fate::NotDone };
                    Err(CallError::Closed(at))
                }
            }
        };
        (search, result)
    })
}

/// Where the search for a node stands.
#[derive(Debug, Default)]
pub(in crate::smart) struct Search {
    round: Round,
    /// Tries since a stream has lasted.
    attempts: u32,
}

impl Search {
    /// This stream has ended: other nodes come first. If it has lasted for as long as the longest pause, the next search
    /// begins without one; else it counts as a try that failed, so that a stream which breaks again and again is not
    /// opened without end.
    pub(super) fn on_lost(&mut self, opened: &Opened, policy: &RetryPolicy) {
        self.round.leave_out(&opened.address);
        if rt::now().saturating_sub(opened.since) >= rt::millis(policy.delay_max) {
            self.attempts = 0;
        }
    }
}

impl Inner {
    /// The first time: as any call, with its deadline. Nodes begin a stream before they refuse it, so this waits for what
    /// they say next.
    pub(super) async fn open_first(
        &self,
        shard: u16,
        action: &'static str,
        fields: &Fields,
    ) -> Result<Opened, CallError> {
        let home = self.home(shard);
        let plan = Plan { first: home.as_deref(), place: Use::Stream, ..Plan::read(action, shard) };
        // One that does not say either in this time has begun it.
        let patience = self.config.retry.try_deadline / 4;
        let begun = self.call(plan, |this| async move {
            let (mut stream, used) = open_on(this.used, action, fields).await?;
            rt::timeout(patience, stream.let_in()).await.unwrap_or(Ok(()))?;
            Ok((stream, used))
        });
        let served = begun.await?;
        let ((stream, used), served) = served.split();
        let (node, address) = (served.node().clone(), served.address().clone());
        Ok(Opened { stream, used, node, address, since: rt::now() })
    }

    /// Later: as long as it takes.
    ///
    /// # Errors
    /// A node refused for good, or the client was closed.
    async fn open_again(
        &self,
        search: &mut Search,
        shard: u16,
        action: &'static str,
        fields: &Fields,
    ) -> Result<Opened, CallError> {
        let policy = self.config.retry;
        let plan = Plan::read(action, shard);
        let mut refusals = Refusals::default();
        loop {
            if search.attempts > 0 {
                rt::sleep(policy.delay(search.attempts, rt::random_u64())).await;
            }
            if self.pool.is_closed() {
                let at = At { node: None, attempts: search.attempts, fate: Fate::NotDone };
                return Err(CallError::Closed(at));
            }
            search.attempts = search.attempts.saturating_add(1);
            let routing = self.topology.routing();
            let Some(target) = self.choose(&routing, &plan, &mut search.round) else {
                return Err(CallError::Usage(String::from("there is no node to ask")));
            };
            let open = |this: Try| open_on(this.used, action, fields);
            let time = TryTime {
                started_us: rt::now_us(),
                patience: policy.try_deadline,
                longest: policy.try_deadline.max(policy.total_deadline),
                bytes: 0,
                counts_for: None,
            };
            match self.try_at(target, Use::Stream, time, &open).await {
                Ok(((stream, used), _)) => {
                    let (node, address) = (used.identity().clone(), target.address.clone());
                    return Ok(Opened { stream, used, node, address, since: rt::now() });
                }
                Err(failed) => {
                    search.round.on_failed(target);
                    self.counts.on_failure(failed.class);
                    let attempts = search.attempts;
                    let at = |node| At { node: Some(node), attempts, fate: Fate::NotDone };
                    if failed.class == ErrorClass::Final {
                        return Err(failed.into_refusal(at(target.name.clone())));
                    }
                    refusals.on_failed(target, &failed.error, failed.class);
                    let refusal = refusals.verdict(&routing.targets);
                    if let Some((node, error)) = refusal.filter(|_| !self.pool.is_closed()) {
                        return Err(CallError::NoAccess { error, at: at(node) });
                    }
                }
            }
        }
    }
}

/// A stream on a connection.
async fn open_on(
    used: Arc<PooledConnection>,
    action: &'static str,
    fields: &Fields,
) -> Result<(ReplyStream, Arc<PooledConnection>), ClientError> {
    let stream = used.connection().endless(action, fields).await?;
    Ok((stream, used))
}

/// How long a search for late versions waits between two looks.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(50);
