//! The manager's task: watches the cluster view of one node after the other.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt;
use futures::future::{Either, select};
use futures::stream::FuturesUnordered;

use super::view::ToldView;
use super::{Shared, TopologyConfig};
use crate::connection::{ReplyStream, StreamEvent};
use crate::error::ClientError;
use crate::message::Fields;
use crate::model::host_port::HostPort;
use crate::model::ids::Millis;
use crate::rt;

/// A candidate that tells which nodes there are.
struct Begun {
    candidate: HostPort,
    stream: ReplyStream,
    told: ToldView,
}

/// Why a candidate does not.
enum Unusable {
    /// It has no view to watch.
    Unsupported,
    /// It cannot know the others yet.
    NotReady,
    /// It could not be reached.
    Failed(ClientError),
}

/// What came of candidates that are not usable.
#[derive(Default)]
struct Round {
    is_old: bool,
    not_ready: bool,
    failure: Option<ClientError>,
    /// One might let this client in.
    is_hope: bool,
    /// One could not be asked, because this process has no file descriptor left: so it is with all.
    is_starved: bool,
}

impl Round {
    fn note(&mut self, unusable: Unusable) {
        match unusable {
            Unusable::Unsupported => self.is_old = true,
            Unusable::NotReady => (self.not_ready, self.is_hope) = (true, true),
            Unusable::Failed(error) => {
                self.is_hope |= !is_refusal(&error);
                self.is_starved |= matches!(error, ClientError::NoDescriptor { .. });
                // A refusal, and that there is no file descriptor, say more than that somebody else cannot be reached.
                if self.failure.as_ref().is_none_or(|known| weight(known) < weight(&error).max(1)) {
                    self.failure = Some(error);
                }
            }
        }
    }

    /// Whether there is something better than to wait for those that are silent.
    fn has_way_out(&self) -> bool {
        self.is_old || self.not_ready
    }
}

/// Runs until it is dropped.
pub(super) async fn follow_views(shared: &Shared) {
    let mut delay = shared.config.retry_delay;
    let mut last: Option<HostPort> = None;
    // In the second round a view of a node that is not ready is better than none.
    let mut takes_any = false;
    loop {
        let mut round = Round::default();
        let candidates = candidates(shared, last.as_ref());
        if let Some(begun) = ask(shared, &candidates, takes_any, &mut round).await {
            last = Some(begun.candidate.clone());
            let since = rt::now();
            let end = follow(shared, begun).await;
            shared.state.lock().watching = None;
            shared.lost.fetch_add(1, Ordering::Relaxed);
            takes_any = false;
            let lasted = rt::now().saturating_sub(since);
            let has_lasted = lasted >= rt::millis(shared.config.retry_delay_max);
            if has_lasted {
                delay = shared.config.retry_delay;
            }
            // One that breaks again and again, as behind something that cuts it off, counts as a round in vain.
            if !has_lasted && end == End::Lost {
                pause(shared, &mut delay).await;
            }
            continue;
        }
        takes_any = round.not_ready;
        if round.is_old && !round.not_ready {
            shared.apply_seeds();
            rt::sleep(shared.config.old_nodes_delay).await;
            continue;
        }
        if let Some(failure) = round.failure {
            shared.on_failure(failure, !round.is_hope || round.is_starved);
        }
        pause(shared, &mut delay).await;
    }
}

/// Waits before the next round, each time longer.
async fn pause(shared: &Shared, delay: &mut Duration) {
    rt::sleep(spread(*delay)).await;
    *delay = (*delay * 2).min(shared.config.retry_delay_max);
}

/// Asks candidates, each when the one before has failed, until one is usable. Before the first view, one that is silent
/// must not take the time of the others: the next one is asked too, so that all have their turn before the client gives up.
async fn ask(
    shared: &Shared,
    candidates: &[HostPort],
    takes_any: bool,
    round: &mut Round,
) -> Option<Begun> {
    let mut asked = FuturesUnordered::new();
    for (number, candidate) in candidates.iter().enumerate() {
        asked.push(async move { (number, begin(shared, candidate, takes_any).await) });
        let mut turn = std::pin::pin!(turn(share(shared, candidates.len() - number)));
        while let Either::Left((Some((of, result)), _)) = select(asked.next(), &mut turn).await {
            match result {
                Ok(begun) => return Some(begun),
                Err(unusable) => round.note(unusable),
            }
            if of == number {
                break;
            }
        }
    }
    while !round.has_way_out()
        && let Some((_, result)) = asked.next().await
    {
        match result {
            Ok(begun) => return Some(begun),
            Err(unusable) => round.note(unusable),
        }
    }
    round.is_hope |= !asked.is_empty();
    None
}

/// How long the next of so many candidates may be silent before the one behind it is asked, too; none: as long as it takes.
fn share(shared: &Shared, to_ask: usize) -> Option<Duration> {
    let until = shared.first_view_by.filter(|_| shared.routing().view.epoch == 0)?;
    let left = until.saturating_sub(rt::now());
    // One more, so that the last one has some time when the others have had theirs.
    let share = left / (to_ask as Millis + 1);
    (left > 0).then(|| Duration::from_millis(share))
}

async fn turn(share: Option<Duration>) {
    match share {
        Some(share) => rt::sleep(share).await,
        None => std::future::pending().await,
    }
}

/// How much an error says of why there is no view.
fn weight(error: &ClientError) -> u8 {
    match error {
        ClientError::NoDescriptor { .. } => 2,
        error => u8::from(is_refusal(error)),
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

/// Asks one node for its view. When this is dropped, its connection goes on to be made.
async fn begin(shared: &Shared, candidate: &HostPort, takes_any: bool) -> Result<Begun, Unusable> {
    shared.asked.fetch_add(1, Ordering::Relaxed);
    let TopologyConfig { first_view_timeout, only_seeds, .. } = shared.config;
    let beginning = async {
        let used = shared.pool.get(candidate).await?;
        if only_seeds {
            return Ok(None);
        }
        let mut stream = used.connection().own_stream("watch_cluster", &Fields::new()).await?;
        let told = next_view(&mut stream).await?;
        Ok::<_, ClientError>(Some((stream, told)))
    };
    let silent = || ClientError::Connect {
        address: candidate.to_string(),
        reason: String::from("it does not tell which nodes there are"),
    };
    let begun = rt::timeout(first_view_timeout, beginning).await;
    let (stream, told) = match begun.unwrap_or_else(|| Err(silent())) {
        Ok(Some((stream, Some(told)))) => (stream, told),
        Ok(Some((_, None))) => return Err(Unusable::Failed(silent())),
        Ok(None) => return Err(Unusable::Unsupported),
        Err(ClientError::Server(error)) if is_unknown_action(&error) => {
            return Err(Unusable::Unsupported);
        }
        Err(error) => return Err(Unusable::Failed(error)),
    };
    if !told.is_of_ready_node() && !takes_any {
        return Err(Unusable::NotReady);
    }
    Ok(Begun { candidate: candidate.clone(), stream, told })
}

/// Why a view is not watched any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The node, or its view, is lost.
    Lost,
    /// Another node may know better. [`Doubts`](super::doubt::Doubts) limits how often.
    Doubted,
}

/// Watches the view of one node, until that ends.
async fn follow(shared: &Shared, Begun { candidate, mut stream, told }: Begun) -> End {
    shared.state.lock().watching = Some(candidate);
    let mut doubt = shared.doubts.next();
    shared.apply_view(told);
    loop {
        match select(std::pin::pin!(next_view(&mut stream)), &mut doubt).await {
            Either::Left((Ok(Some(told)), _)) => shared.apply_view(told),
            Either::Left((Ok(None) | Err(_), _)) => return End::Lost,
            Either::Right(((), _)) => return End::Doubted,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(is_refusal: bool) -> Unusable {
        let (address, reason) = (String::from("h:1"), String::from("no"));
        Unusable::Failed(match is_refusal {
            true => ClientError::NoAccess { address, reason, code: None, greeted: true },
            false => ClientError::Connect { address, reason },
        })
    }

    #[test]
    fn who_is_refused_has_hope_while_another_node_becomes_ready() {
        let mut round = Round::default();
        round.note(failed(true));
        assert!(!round.is_hope && !round.has_way_out());
        round.note(Unusable::NotReady);
        assert!(round.is_hope && round.has_way_out());
        let mut round = Round::default();
        round.note(failed(true));
        round.note(failed(false));
        assert!(round.is_hope && round.failure.as_ref().is_some_and(is_refusal));
    }
}
