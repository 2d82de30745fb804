//! Says in the log what operators must know of data that controls servers of the original: that no client
//! is served because authorisation is switched on, and what the data asks for that is not enforced.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Closed, Engine};
use crate::model::ids::Millis;
use crate::node::link::Links;
use crate::rt;
use crate::server::{ignored_login, unenforced_warning};

/// The time between two looks, besides those when clients begin or cease to be served.
const INTERVAL: Duration = Duration::from_secs(10);
/// While no client is served, that is repeated this often.
const SAY_AGAIN_MS: Millis = 600_000;

/// Looks until the node ends.
pub(in crate::node) async fn watch_auth(links: Arc<Links>) {
    let mut watch = AuthWatch::default();
    loop {
        let changed = links.hub.closing.changed.listen();
        let ready = links.hub.became_ready.listen();
        // The tree is walked outside of the guard.
        let look = |engine: &Engine| (engine.closed(), engine.is_ready(), engine.tree().clone());
        let (closed, is_ready, tree) = links.hub.read(look);
        match watch.look(closed, rt::now()) {
            Some(Notice::Closed(closed)) => {
                if closed.login.is_known() {
                    tracing::info!("{closed}");
                } else {
                    tracing::error!("clients are refused; replication goes on: {closed}");
                }
            }
            Some(Notice::Open) => tracing::info!("logins are off: clients are served again"),
            None => {}
        }
        if is_ready {
            let asks_for_login = links.hub.closing.is_closed();
            let ignored = ignored_login(&tree, asks_for_login);
            for warning in
                watch.news(ignored.into_iter().chain(unenforced_warning(&tree)).collect())
            {
                tracing::warn!("{warning}");
            }
        }
        drop(tree);
        let event = futures::future::select(changed, ready);
        if links.stop.or(rt::timeout(INTERVAL, event)).await.is_none() {
            return;
        }
    }
}

/// What is worth a line in the log.
#[derive(PartialEq, Eq, Debug)]
enum Notice {
    Closed(Closed),
    Open,
}

#[derive(Default)]
struct AuthWatch {
    /// The last warning, and its time, while no client is served.
    closed: Option<(Closed, Millis)>,
    warned: Vec<String>,
}

impl AuthWatch {
    fn look(&mut self, closed: Option<Closed>, now: Millis) -> Option<Notice> {
        let Some(closed) = closed else { return self.closed.take().map(|_| Notice::Open) };
        let is_told = self
            .closed
            .as_ref()
            .is_some_and(|(told, at)| *told == closed && now.saturating_sub(*at) < SAY_AGAIN_MS);
        if is_told {
            return None;
        }
        self.closed = Some((closed.clone(), now));
        Some(Notice::Closed(closed))
    }

    /// The warnings that were not logged before.
    fn news(&mut self, warnings: Vec<String>) -> Vec<String> {
        let news = warnings.iter().filter(|w| !self.warned.contains(w)).cloned().collect();
        self.warned = warnings;
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::meta::Login;

    #[test]
    fn what_closes_a_node_is_told_at_once_and_every_ten_minutes_and_so_is_its_end() {
        let mut watch = AuthWatch::default();
        let closed = || Some(Closed { login: Login::Method("root".into()) });
        assert_eq!(watch.look(None, 0), None);
        assert_eq!(watch.look(closed(), 1_000), closed().map(Notice::Closed));
        assert_eq!(watch.look(closed(), SAY_AGAIN_MS), None);
        assert_eq!(watch.look(closed(), 1_000 + SAY_AGAIN_MS), closed().map(Notice::Closed));
        let other = || Some(Closed { login: Login::Unreadable });
        assert_eq!(watch.look(other(), 1_001 + SAY_AGAIN_MS), other().map(Notice::Closed));
        assert_eq!(watch.look(None, 2_000_000), Some(Notice::Open));
        assert_eq!(watch.look(None, 2_000_001), None);
    }

    #[test]
    fn a_warning_is_told_once_while_it_lasts() {
        let mut watch = AuthWatch::default();
        let warnings = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        assert_eq!(watch.news(warnings(&["a", "b"])), ["a", "b"]);
        assert_eq!(watch.news(warnings(&["b", "c"])), ["c"]);
        assert_eq!(watch.news(warnings(&[])), Vec::<String>::new());
        assert_eq!(watch.news(warnings(&["b"])), ["b"]);
    }
}
