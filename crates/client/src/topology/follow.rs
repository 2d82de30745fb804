//! The manager's task: watches the cluster view of one node after the other.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::view::ToldView;
use super::{Shared, TopologyConfig};
use crate::connection::{ReplyStream, StreamEvent};
use crate::error::ClientError;
use crate::message::Fields;
use crate::model::host_port::HostPort;
use crate::rt;

/// How watching one candidate ended.
enum Outcome {
    /// It sent at least one view that was accepted.
    Followed,
    /// It has no view to watch.
    Unsupported,
    /// It cannot know the others yet.
    NotReady,
    /// It could not be reached.
    Failed(ClientError),
}

/// Runs until it is dropped.
pub(super) async fn follow_views(shared: &Shared) {
    let mut delay = shared.config.retry_delay;
    let mut last: Option<HostPort> = None;
    // In the second round a view of a node that is not ready is better than none.
    let mut takes_any = false;
    loop {
        let (mut followed, mut is_old, mut not_ready) = (false, false, false);
        let (mut failure, mut all_refuse) = (None, true);
        for candidate in candidates(shared, last.as_ref()) {
            let outcome = follow(shared, &candidate, takes_any).await;
            shared.state.lock().watching = None;
            match outcome {
                Outcome::Followed => {
                    shared.lost.fetch_add(1, Ordering::Relaxed);
                    last = Some(candidate);
                    followed = true;
                    break;
                }
                Outcome::Unsupported => is_old = true,
                Outcome::NotReady => not_ready = true,
                // A refusal says more than that somebody else cannot be reached.
                Outcome::Failed(error) => {
                    all_refuse &= is_refusal(&error);
                    if !failure.as_ref().is_some_and(is_refusal) {
                        failure = Some(error);
                    }
                }
            }
        }
        if followed {
            (delay, takes_any) = (shared.config.retry_delay, false);
            continue;
        }
        takes_any = not_ready;
        if is_old && !not_ready {
            shared.apply_seeds();
            rt::sleep(shared.config.old_nodes_delay).await;
            continue;
        }
        if let Some(failure) = failure {
            shared.on_failure(failure, all_refuse);
        }
        rt::sleep(spread(delay)).await;
        delay = (delay * 2).min(shared.config.retry_delay_max);
    }
}

/// Whether a node does not let this client in, or is of another network, and so it would be a moment later.
pub(super) fn is_refusal(error: &ClientError) -> bool {
    matches!(error, ClientError::NoAccess { .. } | ClientError::OtherNetwork { .. })
}

/// From half of a delay to all of it, so that many clients do not come at the same moment.
fn spread(delay: Duration) -> Duration {
    let share = (rt::random_u64() % 1024) as f64 / 2048.0;
    delay.mul_f64(0.5 + share)
}

/// Whom to ask, best first: live nodes from a random one on, so that clients spread; then the
/// others, and the seeds. The one that was lost just now, and those that fail, come last.
fn candidates(shared: &Shared, last: Option<&HostPort>) -> Vec<HostPort> {
    let routing = shared.routing();
    let mut targets: Vec<_> = routing.targets.iter().collect();
    if routing.view.epoch > 0 && !targets.is_empty() {
        let first = (rt::random_u64() % targets.len() as u64) as usize;
        targets.rotate_left(first);
    }
    targets.sort_by_key(|target| {
        let is_bad = Some(&target.address) == last || shared.pool.is_failing(&target.address);
        (is_bad, !target.is_live)
    });
    targets.into_iter().map(|target| target.address.clone()).collect()
}

/// Watches the view of one node, until that ends.
async fn follow(shared: &Shared, candidate: &HostPort, takes_any: bool) -> Outcome {
    let TopologyConfig { first_view_timeout, only_seeds, .. } = shared.config;
    let beginning = async {
        let used = shared.pool.get(candidate).await?;
        if only_seeds {
            return Ok(None);
        }
        let mut stream = used.connection().stream("watch_cluster", &Fields::new()).await?;
        let told = next_view(&mut stream).await?;
        Ok::<_, ClientError>(Some((stream, told)))
    };
    let silent = || ClientError::Connect {
        address: candidate.to_string(),
        reason: String::from("it does not tell which nodes there are"),
    };
    let begun = rt::timeout(first_view_timeout, beginning).await;
    let (mut stream, told) = match begun.unwrap_or_else(|| Err(silent())) {
        Ok(Some((stream, Some(told)))) => (stream, told),
        Ok(Some((_, None))) => return Outcome::Failed(silent()),
        Ok(None) => return Outcome::Unsupported,
        Err(ClientError::Server(error)) if is_unknown_action(&error) => {
            return Outcome::Unsupported;
        }
        Err(error) => return Outcome::Failed(error),
    };
    if !told.is_of_ready_node() && !takes_any {
        return Outcome::NotReady;
    }
    shared.state.lock().watching = Some(candidate.clone());
    shared.apply_view(told);
    while let Ok(Some(told)) = next_view(&mut stream).await {
        shared.apply_view(told);
    }
    Outcome::Followed
}

/// Whether a node does not know the action, as ours or as the original says it.
fn is_unknown_action(error: &crate::error::ServerError) -> bool {
    error.has_code("unknown_action") || error.code.is_none()
}

/// The next view of a stream; `None` at its end.
async fn next_view(stream: &mut ReplyStream) -> Result<Option<ToldView>, ClientError> {
    loop {
        match stream.next().await? {
            None => return Ok(None),
            Some(StreamEvent::Item { message, .. }) => {
                if let Some(told) = message.get("cluster").and_then(ToldView::decode) {
                    return Ok(Some(told));
                }
            }
            Some(StreamEvent::Start | StreamEvent::UpToDate | StreamEvent::State(..)) => {}
        }
    }
}
