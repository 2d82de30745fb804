//! The cluster at one moment, as JSON for pages. Moments are told instead of durations, so that what stays as it is
//! need not be told again.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use crate::engine::view::PeerView;
use crate::model::ids::Millis;
use crate::node::Inner;
use crate::node::link::LinkInfo;
use crate::node::membership::identity::SOFTWARE;
use crate::rt;
use crate::server::{MemberInfo, SilentInfo, Warning, WarningKind};

/// A moment that is told moves by less than this only because two clocks were read one after the other.
const SAME_MOMENT_MS: u64 = 1_000;

/// See the module. The members are apart, because there may be hundreds of which few change.
pub(super) struct View {
    /// All but the members.
    pub(super) cluster: Json,
    /// By name.
    pub(super) members: BTreeMap<String, Json>,
}

/// How much was missing at most since the present healing began, and when members came to be as they are.
#[derive(Default)]
pub(super) struct Peak {
    began: u64,
    total: u64,
    since: BTreeMap<String, u64>,
    /// Those of the view that is being made.
    fresh: BTreeMap<String, u64>,
}

impl Peak {
    /// How many events a healing has to fetch, as far as is known.
    fn total(&mut self, began: u64, remaining: u64) -> u64 {
        if self.began.abs_diff(began) > SAME_MOMENT_MS {
            (self.began, self.total) = (began, 0);
        }
        self.total = self.total.max(remaining);
        self.total
    }

    /// The same moment as last time, if it is.
    fn moment(&mut self, of: &str, at: u64) -> u64 {
        let known =
            self.since.get(of).copied().filter(|known| known.abs_diff(at) <= SAME_MOMENT_MS);
        *self.fresh.entry(of.to_owned()).or_insert(known.unwrap_or(at))
    }

    /// A view was made: what it did not need is forgotten.
    fn end(&mut self) {
        self.since = std::mem::take(&mut self.fresh);
    }
}

pub(super) fn view(inner: &Inner, peak: &mut Peak, now: Millis) -> View {
    let wall = rt::wall_clock_ms();
    let info = inner.server.info();
    let taken = inner.hub.read(|engine| Taken {
        is_ready: engine.is_ready(),
        is_read_only: engine.is_read_only(),
        keepers: engine.housekeepers().iter().map(ToString::to_string).collect(),
        group: engine.group_view(now),
        peers: engine.peer_views(),
        seen: engine.seen().clone(),
        resync: engine.resync_view(now),
        conflicts: engine.counters().conflicts,
        entries: engine.tree().live_len(),
    });
    let silent = info.silent();
    let members = info.members();
    let links = inner.links.infos();
    let rows = members.iter().map(|member| {
        let since = peak.moment(&member.name, wall.saturating_sub(member.since_ms));
        (member.name.clone(), row(inner, &taken, &links, member, (since, now)))
    });
    let rows = rows.collect();
    let split = silent.map(|silent| split(&silent, wall, peak));
    let healing = taken.resync.as_ref().map(|resync| {
        let began = wall.saturating_sub(resync.lasts_ms);
        let total = peak.total(began, resync.remaining);
        json!({
            "began": peak.began,
            "ours": resync.ours.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "driver": resync.driver.as_ref().map(ToString::to_string),
            "driver_remaining": resync.driver_remaining,
            "driver_entries": resync.driver_entries,
            "remaining": resync.remaining,
            "total": total,
            "entries": resync.entries,
        })
    });
    peak.end();
    // A split has a place of its own on the page, and who looks may be no admin.
    let is_shown = |warning: &Warning| warning.kind != WarningKind::Split && warning.is_told(None);
    let warnings = inner.server.warnings(now).into_iter().filter(is_shown);
    let mut warnings: Vec<String> = warnings.map(|warning| warning.text).collect();
    if taken.is_read_only {
        warnings
            .push(String::from("the node was started with --read-only: clients change nothing"));
    }
    let cluster = json!({
        "node": inner.me.name.as_str(),
        "network": inner.me.network,
        "version": SOFTWARE,
        "ready": taken.is_ready,
        "secured": inner.links.keys.is_some(),
        "warnings": warnings,
        "split": split,
        "healing": healing,
        "conflicts": taken.conflicts,
        "entries": taken.entries,
    });
    View { cluster, members: rows }
}

/// What is taken of the engine, at one moment.
struct Taken {
    is_ready: bool,
    is_read_only: bool,
    keepers: Vec<String>,
    group: crate::engine::delete::GroupView,
    peers: Vec<PeerView>,
    seen: crate::model::seen::Seen,
    resync: Option<crate::engine::ResyncView>,
    conflicts: u64,
    entries: usize,
}

fn row(
    inner: &Inner,
    taken: &Taken,
    links: &[LinkInfo],
    member: &MemberInfo,
    (since, now): (u64, Millis),
) -> Json {
    let name = member.name.as_str();
    let link = links.iter().find(|link| link.peer.name.as_str() == name);
    let peer = link.and_then(|link| taken.peers.iter().find(|peer| peer.link == link.id));
    let behind = peer.map(|peer| taken.seen.difference(&peer.seen).count());
    let behind_ms = peer.map(|peer| inner.links.observed.lag().behind_ms(peer.acked, now));
    let keeper = taken.keepers.iter().position(|keeper| keeper == name).map(|at| at + 1);
    let listed = taken.group.config.iter().flat_map(|config| config.members());
    let in_group = listed.clone().any(|listed| listed.name.as_str() == name);
    json!({
        "name": name,
        "state": member.state.word(),
        "since": since,
        "linked": link.is_some(),
        "ready": member.if_known(member.ready),
        "lagging": member.lagging,
        "secured": member.if_known(member.secured),
        "behind": behind,
        "behind_s": behind_ms.map(|ms| ms / 1_000),
        "queue": link.map(|link| link.queue_bytes),
        "keeper": keeper,
        "group": in_group,
        "client": member.client,
        "gossip": member.gossip,
        "software": member.software,
    })
}

fn split(silent: &SilentInfo, wall: u64, peak: &mut Peak) -> Json {
    let together = silent.together.iter().map(|members| {
        let began = wall.saturating_sub(members.since_ms);
        // Its members went at that time, as far as this node knows.
        let first =
            members.names.first().map(|name| peak.moment(&format!("split of {name}"), began));
        json!({
            "names": members.names,
            "since": first.unwrap_or(began),
            "changes": members.changes,
        })
    });
    json!({"together": together.collect::<Vec<_>>(), "with": silent.with})
}
