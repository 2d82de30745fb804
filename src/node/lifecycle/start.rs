//! How a node comes to serve: alone, or after it has caught up with its network.

use std::sync::Arc;
use std::time::Duration;

use super::stop::StopReason;
use crate::engine::changes::InitRoot;
use crate::engine::{Engine, Input};
use crate::model::ids::{Millis, Tock};
use crate::model::value::Value;
use crate::node::Timing;
use crate::node::clients::load::{self, Loaded};
use crate::node::config::{Config, Start};
use crate::node::error::NodeError;
use crate::node::link::{Links, Refused, Trouble};
use crate::rt;
use crate::server::info::names_text;

/// How often what keeps a node from being ready is written to the log.
const PROGRESS_INTERVAL_MS: Millis = 5_000;
/// The time between two looks at a condition, besides looks after events.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// So many addresses stand in a line of the log, with what is wrong there.
const TROUBLES_SHOWN: usize = 16;

/// What a node does to come to serve; everything that can fail beforehand has been done.
pub(in crate::node) enum Plan {
    /// Be the first of a network, or join an existing one.
    Run {
        init: Option<Value>,
        loaded: Option<Loaded>,
        /// Whether it founds a network although none of the peers that it knows has answered.
        founds_unheard: bool,
    },
    /// Join.
    Join,
    /// Continue with the content of the data directory: join the network if it exists, and be it if
    /// not. It is the node's own data, so nothing is founded anew, and nodes that come later catch
    /// up in both directions.
    GoOn { init: Option<Value> },
}

impl Plan {
    /// # Errors
    /// [`NodeError::Load`], [`NodeError::LoadFile`].
    pub(in crate::node) async fn make(
        config: &Config,
        has_data: bool,
        knows_peers: bool,
    ) -> Result<Self, NodeError> {
        Ok(match &config.start {
            Start::Join if has_data => Self::GoOn { init: None },
            Start::Join => Self::Join,
            Start::ByWhatThereIs { found: false, .. } if !has_data => Self::Join,
            Start::Run { init, load } | Start::ByWhatThereIs { init, load, .. } if has_data => {
                if let Some(path) = load {
                    // Its deleted entries may be gone by now: it would bring them back.
                    let path = path.display();
                    tracing::info!(%path, "there is data already; the file is not loaded");
                }
                Self::GoOn { init: init.clone() }
            }
            Start::Run { init, load } | Start::ByWhatThereIs { init, load, .. } => {
                let loaded = match load {
                    Some(path) => {
                        config.phase.note("reading the file of --load");
                        Some(load::read(path).await?)
                    }
                    None => None,
                };
                let founds_unheard = matches!(config.start, Start::Run { .. });
                if knows_peers && !founds_unheard {
                    tracing::info!(
                        "this node has no data: it joins the network of the peers that it knows, or founds one once \
                         one of them answers and none has a network"
                    );
                }
                Self::Run { init: init.clone(), loaded, founds_unheard }
            }
        })
    }

    fn has_data(&self) -> bool {
        matches!(self, Self::GoOn { .. })
    }

    /// How long the node looks for its network before it continues alone. Not at all if it has data
    /// and knows no peer: all others have left, or there never were any.
    pub(in crate::node) fn patience_ms(&self, links: &Links, timing: &Timing) -> Millis {
        match (self, links.addresses().is_empty()) {
            (Self::Join, _) | (Self::Run { founds_unheard: false, .. }, false) => Millis::MAX,
            (_, false) => timing.no_answer_ms,
            (Self::GoOn { .. }, true) => 0,
            (Self::Run { .. }, true) => timing.called_ms,
        }
    }

    /// What the node tells peers that wait, too; see `Hello::may_begin`. `tock`: its own.
    pub(in crate::node) fn may_begin(&self, tock: Tock) -> Option<Tock> {
        match self {
            Self::Join => None,
            Self::Run { loaded: None, .. } => Some(Tock::default()),
            // Some data is more than none.
            Self::Run { .. } | Self::GoOn { .. } => Some(tock.max(Tock::new(1)?)),
        }
    }

    /// Brings the node to serve clients.
    pub(in crate::node) async fn carry_out(self, links: &Arc<Links>, timing: &Timing) {
        self.begin(links, timing).await;
        if links.hub.read(Engine::is_ready) {
            links.me.note_serving(rt::now());
        }
    }

    async fn begin(self, links: &Arc<Links>, timing: &Timing) {
        let (patience_ms, has_data) = (self.patience_ms(links, timing), self.has_data());
        let (init, loaded) = match self {
            Self::Join => return wait_for_network(links, timing).await,
            Self::Run { init, loaded, .. } => (init, loaded),
            Self::GoOn { init } => (init, None),
        };
        let founds =
            patience_ms == 0 || is_network_missing(links, patience_ms, timing, has_data).await;
        if links.stop.is_requested() {
            return;
        }
        if loaded.is_some() && !founds {
            tracing::warn!(
                "the network is there already, so the file is not loaded: it could bring back what was deleted since; \
                 see `distkv-node snapshot restore --help` for a file that is to be taken in all the same"
            );
        } else if let Some(loaded) = loaded
            && let Err(error) = load::take_in(&links.hub, loaded).await
        {
            let why = format!("the saved state was not taken in: {error}");
            return links.stop.request(StopReason::Load(why));
        }
        if founds {
            // Only now: clients must not see half of the file.
            links.hub.handle(Input::Found, rt::now());
        }
        if let Some(value) = init {
            set_root(links, &value);
        }
    }
}

/// What a first node has found about its known peers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Found {
    /// How long it has been looking.
    waited_ms: Millis,
    /// Since the first of them answered, if one did.
    answered_ms: Option<Millis>,
    /// One that serves clients is linked; or was, less than [`Timing::network_lost_ms`] ago.
    network_is_there: bool,
    /// All that are linked wait for a network and will not begin one.
    all_join: bool,
    /// Of all that are linked and wait, this node is the one to begin.
    is_first: bool,
}

/// What a first node with known peers does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
enum FirstStep {
    Wait,
    /// There is no network yet: found it.
    GoAlone,
}

/// Decides for a node that is not ready yet and may continue alone. If several nodes start together
/// and know each other, none is ready: the one with the greatest tock begins, of equal ones the one
/// with the smallest name ([`Hello::begins_before`](crate::protocol::peer::greeting::Hello)), and
/// the others catch up with it. `patience_ms`: how long it waits if no node answers.
fn decide_first_step(found: Found, patience_ms: Millis, timing: &Timing) -> FirstStep {
    let patience = match found.answered_ms {
        _ if found.network_is_there => return FirstStep::Wait,
        None => return go_if(found.waited_ms >= patience_ms),
        // No node there will ever have more than this one.
        Some(_) if found.all_join && found.waited_ms >= patience_ms => return FirstStep::GoAlone,
        Some(_) if found.is_first => timing.first_answer_ms,
        // Should the first not begin, for whatever reason.
        Some(_) => timing.first_answer_ms + timing.no_answer_ms,
    };
    go_if(found.answered_ms.is_some_and(|ms| ms >= patience))
}

fn go_if(go: bool) -> FirstStep {
    if go { FirstStep::GoAlone } else { FirstStep::Wait }
}

/// A node that may go on alone: waits until it has caught up with its network (false), or until it is
/// clear that there is none (true).
async fn is_network_missing(
    links: &Links,
    patience_ms: Millis,
    timing: &Timing,
    has_data: bool,
) -> bool {
    let knows_peers = !links.addresses().is_empty();
    let began = rt::now();
    let (mut answered_at, mut network_at, mut told_at) = (None, None::<Millis>, began);
    loop {
        let listener = links.changed.listen();
        let now = rt::now();
        if links.hub.read(Engine::is_ready) || links.stop.is_requested() {
            return false;
        }
        let infos = links.infos();
        if !infos.is_empty() {
            answered_at.get_or_insert(now);
        }
        if links.hub.read(Engine::has_ready_peer) {
            network_at = Some(now);
        }
        let since = |at: Millis| now.saturating_sub(at);
        let own = links.me.hello(&links.hub, None, std::iter::empty());
        let found = Found {
            waited_ms: since(began),
            answered_ms: answered_at.map(since),
            network_is_there: network_at.is_some_and(|at| since(at) < timing.network_lost_ms),
            all_join: infos.iter().all(|link| !link.peer.ready && link.peer.may_begin.is_none()),
            is_first: infos.iter().all(|link| own.begins_before(&link.peer)),
        };
        let goes_alone = decide_first_step(found, patience_ms, timing) == FirstStep::GoAlone;
        // Its data says which network it belongs to. Without, wrong names of peers would make a second network, which
        // nobody has asked for.
        let knows_nobody = !has_data && infos.is_empty() && links.unknown_by_all().is_some();
        if goes_alone
            // Two nodes of one name must not both found: the stay of the other decides.
            && links.name_trouble().is_none()
            // A node that knows of a network and belongs to another one was given the wrong name of
            // it.
            && (has_data || links.refused_by_all().is_none())
            && !knows_nobody
        {
            tell_alone(links, knows_peers, has_data, since(began));
            return true;
        }
        watch_name(links, timing);
        if !has_data {
            watch_refusals(links.refused_by_all(), links, timing);
        }
        if goes_alone && knows_nobody {
            watch_names(links, timing, true);
        }
        if patience_ms == Millis::MAX && links.count() == 0 {
            match links.knows_nobody_since() {
                // It is to found a network, and the list of its nodes has it alone.
                Some(at) if since(at) >= timing.called_ms => {
                    tracing::info!("this node is its own only peer: it founds the network");
                    return true;
                }
                Some(_) => {}
                None => watch_refusals(links.only_own(), links, timing),
            }
            watch_names(links, timing, true);
        }
        if since(told_at) >= PROGRESS_INTERVAL_MS {
            told_at = now;
            log_progress(links, since(began));
        }
        let _ = links.stop.or(rt::timeout(LOOK_INTERVAL, listener)).await;
    }
}

/// A joining node: waits, without limit, until it has caught up.
async fn wait_for_network(links: &Links, timing: &Timing) {
    let began = rt::now();
    let mut told_at = began;
    loop {
        let ready = links.hub.became_ready.listen();
        if links.hub.read(Engine::is_ready) || links.stop.is_requested() {
            return;
        }
        watch_name(links, timing);
        watch_refusals(links.refused_by_all(), links, timing);
        if links.count() == 0 {
            watch_refusals(links.only_own(), links, timing);
            watch_names(links, timing, false);
        }
        let now = rt::now();
        if now.saturating_sub(told_at) >= PROGRESS_INTERVAL_MS {
            told_at = now;
            log_progress(links, now.saturating_sub(began));
        }
        let pause = LOOK_INTERVAL * 4;
        let _ = links.stop.or(rt::timeout(pause, ready)).await;
    }
}

/// A newcomer whose name stays taken gives up: its former self would have been found dead by
/// now.
fn watch_name(links: &Links, timing: &Timing) {
    if let Some(trouble) = links.name_trouble()
        && rt::now().saturating_sub(trouble.since) >= timing.name_patience_ms
    {
        links.give_up_name(trouble.told);
    }
}

/// A newcomer that every peer refuses for good gives up: it was given the wrong network or address,
/// or runs other software.
fn watch_refusals(refused: Option<Refused>, links: &Links, timing: &Timing) {
    if let Some(refused) = refused
        && rt::now().saturating_sub(refused.since) >= timing.refused_patience_ms
    {
        let (address, why) = (refused.address, refused.why);
        let why = match why.strip_prefix("it is ") {
            Some(what) => format!("{address} is {what}"),
            None => format!("{address} says {why:?}"),
        };
        links.stop.request(StopReason::Refused { why });
    }
}

/// A newcomer that knows nobody but by names that do not exist gives up. Nothing says that they never will,
/// so it may be started again. `may_found`: it is one that founds a network where there is none.
fn watch_names(links: &Links, timing: &Timing, may_found: bool) {
    if let Some(unknown) = links.unknown_by_all()
        && rt::now().saturating_sub(unknown.since) >= timing.refused_patience_ms
    {
        let (address, why) = (unknown.address, unknown.why.to_string());
        links.stop.request(StopReason::UnknownPeers { address, why, may_found });
    }
}

/// Whether nobody has data: neither this node nor one of those that are linked and not ready. `may_begin`: what their greetings
/// say. Who has data may always begin, with a tock above 0.
fn is_all_new(has_data: bool, mut may_begin: impl Iterator<Item = Option<Tock>>) -> bool {
    !has_data && may_begin.all(|theirs| theirs.unwrap_or_default() == Tock::default())
}

/// Nobody was found who has a network.
fn tell_alone(links: &Links, knows_peers: bool, has_data: bool, waited_ms: Millis) {
    let entries = links.hub.read(|engine| engine.tree().len());
    let infos = links.infos();
    let linked: Vec<String> = infos.iter().map(|info| info.peer.name.to_string()).collect();
    let waited_s = waited_ms / 1_000;
    links.observed.note_alone(linked.is_empty() && knows_peers);
    if !linked.is_empty() && is_all_new(has_data, infos.iter().map(|info| info.peer.may_begin)) {
        tracing::info!(
            ?linked,
            waited_s,
            "all peers that answer wait for a network, and none has data; this node founds one"
        );
    } else if !linked.is_empty() {
        tracing::warn!(
            ?linked,
            entries,
            waited_s,
            "all peers that answer wait for a network; this node begins with what it has, and they \
             catch up with it"
        );
    } else if let Some(refusals) = refusals(&links.troubles()) {
        tracing::warn!(
            entries,
            waited_s,
            "no peer takes this node in: {refusals}; this node continues alone with what it has, and keeps calling"
        );
    } else if knows_peers {
        tracing::warn!(
            tried = ?links.addresses(),
            entries,
            waited_s,
            "no peer has answered; this node continues alone with what it has, and keeps calling"
        );
    } else {
        tracing::info!(
            waited_s,
            "no peer is known and none has called; this node founds a network"
        );
    }
}

/// What operators are told while no peer has taken in this node since it began alone.
pub(in crate::node) fn alone_warning(links: &Links) -> Option<String> {
    // In a network of one whose settings list all of its nodes, nobody is missing.
    if !links.observed.is_alone() || links.only_own().is_some() {
        return None;
    }
    let told = match refusals(&links.troubles()) {
        Some(refusals) => format!("no peer takes this node in: {refusals}"),
        None => {
            let tried = names_text(&links.addresses());
            format!("no peer has answered since this node was started: {tried}")
        }
    };
    Some(format!("{told}; it goes on alone, with what it has, and keeps calling"))
}

/// Which peers have answered that there will be no link as long as nothing is changed, and why; none if nobody has.
fn refusals(troubles: &[Trouble]) -> Option<String> {
    let lasting = troubles.iter().filter(|trouble| trouble.is_lasting).take(TROUBLES_SHOWN);
    let texts: Vec<String> = lasting.map(ToString::to_string).collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

fn log_progress(links: &Links, waited_ms: Millis) {
    let waited_s = waited_ms / 1_000;
    if let Some(progress) = links.hub.read(Engine::catch_up_progress) {
        let (link, entries) = (progress.link, progress.entries);
        let infos = links.infos();
        let peer = infos.iter().find(|info| info.id == link).map(|info| info.peer.name.to_string());
        tracing::info!(peer, entries, waited_s, "catching up");
        return;
    }
    let found = links.troubles();
    let troubles: Vec<String> =
        found.iter().take(TROUBLES_SHOWN).map(ToString::to_string).collect();
    let linked: Vec<String> = links.infos().iter().map(|info| info.peer.name.to_string()).collect();
    if !linked.is_empty() && !links.hub.read(Engine::has_ready_peer) {
        let mut able = links.infos().into_iter().map(|info| info.peer.may_begin.is_some());
        let one_begins = able.any(|may_begin| may_begin) || links.me.may_begin();
        tracing::info!(?linked, waited_s, "{}", what_is_missing(one_begins));
    } else if !linked.is_empty() {
        tracing::info!(?linked, waited_s, "waiting for a peer to send its data");
    } else if troubles.is_empty() {
        tracing::info!(tried = ?links.addresses(), waited_s, "no peer has answered yet; still trying");
    } else if let Some(refusals) = refusals(&found) {
        tracing::info!(waited_s, "no peer takes this node in; still trying: {refusals}");
    } else {
        tracing::info!(waited_s, "no peer has answered yet; still trying: {}", troubles.join("; "));
    }
}

/// What a node waits for whose peers do not serve either; `one_begins`: one of them may.
fn what_is_missing(one_begins: bool) -> &'static str {
    match one_begins {
        true => "waiting: the peers that answer do not serve yet either; one of us begins soon",
        false => {
            "waiting: the peers that answer have no data either; if no node of the network serves, \
             start one with `run`"
        }
    }
}

/// Sets the root's value, where it has none.
fn set_root(links: &Links, value: &Value) {
    match links.hub.handle(InitRoot(value.as_bytes()), rt::now()) {
        Ok(true) => {}
        Ok(false) => {
            tracing::info!("the root has a value already; the initial one is not needed");
        }
        Err(error) => tracing::error!("the root's initial value was not set: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_that_could_begin_are_not_said_to_have_no_data() {
        assert!(!what_is_missing(true).contains("no data"));
        assert!(what_is_missing(false).contains("start one with `run`"));
    }

    #[test]
    fn who_refuses_is_not_said_to_be_silent() {
        let trouble = |address: &str, is_lasting| Trouble {
            address: address.to_owned(),
            why: "because".into(),
            is_lasting,
        };
        assert_eq!(refusals(&[trouble("a:1", false)]), None);
        let some = [trouble("a:1", false), trouble("b:1", true), trouble("c:1", true)];
        assert_eq!(refusals(&some).unwrap(), "b:1: because; c:1: because");
    }

    #[test]
    fn only_where_nobody_has_data_a_beginning_is_nothing_to_warn_of() {
        let tock = |number| Some(Tock::new(number).unwrap());
        for (has_data, peers, expected) in [
            (false, &[None, tock(0)][..], true),
            (false, &[None, tock(1)], false),
            (true, &[None], false),
        ] {
            assert_eq!(is_all_new(has_data, peers.iter().copied()), expected, "{peers:?}");
        }
    }

    const NOTHING: Found = Found {
        waited_ms: 0,
        answered_ms: None,
        network_is_there: false,
        all_join: false,
        is_first: true,
    };

    fn decide(found: Found) -> FirstStep {
        decide_first_step(found, 10_000, &Timing::default())
    }

    #[test]
    fn a_first_node_goes_alone_when_nobody_answers() {
        assert_eq!(decide(Found { waited_ms: 9_999, ..NOTHING }), FirstStep::Wait);
        assert_eq!(decide(Found { waited_ms: 10_000, ..NOTHING }), FirstStep::GoAlone);
    }

    #[test]
    fn a_first_node_that_finds_its_network_never_founds_another() {
        let found = Found {
            waited_ms: 1_000_000,
            answered_ms: Some(999_000),
            network_is_there: true,
            all_join: false,
            is_first: true,
        };
        assert_eq!(decide(found), FirstStep::Wait);
    }

    #[test]
    fn of_nodes_that_start_together_one_begins() {
        let at = |ms, is_first| {
            decide(Found { waited_ms: ms, answered_ms: Some(ms), is_first, ..NOTHING })
        };
        assert_eq!(at(2_999, true), FirstStep::Wait);
        assert_eq!(at(3_000, true), FirstStep::GoAlone);
        let joiners = Found { answered_ms: Some(1), all_join: true, ..NOTHING };
        assert_eq!(decide(Found { waited_ms: 9_999, ..joiners }), FirstStep::Wait);
        assert_eq!(decide(Found { waited_ms: 10_000, ..joiners }), FirstStep::GoAlone);
        assert_eq!(at(12_999, false), FirstStep::Wait);
        assert_eq!(at(13_000, false), FirstStep::GoAlone, "should the first be stuck");
    }
}
