//! The cluster's keys, as admins see and change them: which keys the nodes have, and who would be shut out by
//! a change.

use std::fmt::Write as _;

use crate::model::group::GroupConfig;
use crate::model::ids::NodeName;
use crate::node::link::Links;
use crate::node::security::{Keys, Order, OrderError};
use crate::rt;
use crate::secure::hand_over::Report;
use crate::secure::key::{Key, KeyId};
use crate::secure::key_ring::{Applied, RingError, RingSummary, blocks_removal, blocks_use};
use crate::server::{KeyOrder, KeyRefusal, KeysView, MemberInfo, MemberState, NodeKeys};

/// A node of the network, and what it says of its keys.
struct Known {
    name: String,
    state: MemberState,
    report: Option<Report>,
}

impl Known {
    /// What it keeps over a restart; none if that is not known, or nothing.
    fn kept(&self) -> Option<&RingSummary> {
        self.report.as_ref().and_then(Report::kept)
    }
}

/// All nodes that count: the members, and those of which something was heard, unless they were forgotten.
fn known(links: &Links, keys: &Keys, members: Vec<MemberInfo>) -> Vec<Known> {
    let mut reports = keys.reports();
    let mut all = Vec::new();
    let mut add = |name: &str, state: MemberState| {
        let at = reports.iter().position(|report| report.name.as_str() == name);
        let report = at.map(|at| reports.swap_remove(at));
        let is_here = !matches!(state, MemberState::Down | MemberState::Left | MemberState::Away);
        let is_gone = report.as_ref().is_some_and(|report| report.is_gone);
        if is_here || !is_gone {
            let report = report.filter(|report| !report.is_gone);
            all.push(Known { name: name.to_owned(), state, report });
        }
    };
    members.iter().for_each(|member| add(&member.name, member.state));
    let group = links.hub.read(|engine| engine.group_view(rt::now())).config;
    let is_member = |name: &str| members.iter().any(|member| member.name == name);
    for listed in group.iter().flat_map(GroupConfig::members) {
        if !is_member(listed.name.as_str()) {
            add(listed.name.as_str(), MemberState::Away);
        }
    }
    let others = reports.into_iter().filter(|report| !report.is_gone);
    all.extend(others.map(|report| Known {
        name: report.name.to_string(),
        state: MemberState::Away,
        report: Some(report),
    }));
    all
}

/// Which keys the nodes have.
pub(super) fn view(links: &Links, members: Vec<MemberInfo>) -> Option<KeysView> {
    let keys = links.keys.as_deref()?;
    let ring = keys.ring();
    let shared = ring.keys().iter().map(Key::id).filter(|id| ring.is_shared(*id));
    let nodes = known(links, keys, members).into_iter().map(|node| {
        let (ring, trouble) = node.report.map(|report| (report.ring, report.trouble)).unzip();
        NodeKeys {
            name: node.name,
            state: node.state,
            primary: ring.as_ref().map(|ring| ring.primary.to_string()),
            ids: ring.map(|ring| ring.ids.iter().map(KeyId::to_string).collect()),
            trouble: trouble.flatten(),
        }
    });
    Some(KeysView { shared: shared.map(|id| id.to_string()).collect(), nodes: nodes.collect() })
}

/// The id of the key with these bytes; none if a key has another length.
pub(super) fn id_of(secret: &[u8]) -> Option<String> {
    let secret = secret.try_into().ok()?;
    Some(Key::new(secret).id().to_string())
}

/// Carries an order out, unless it would shut members out. Blocks.
pub(super) fn change(
    links: &Links,
    members: Vec<MemberInfo>,
    order: KeyOrder,
) -> Result<(String, bool), KeyRefusal> {
    let keys = links.keys.as_deref().ok_or(KeyRefusal::NoKey)?;
    let parse = |id: String| id.parse::<KeyId>().map_err(|_| bad_id(&id));
    let (id, order, force) = match order {
        KeyOrder::Add { secret } => {
            let key = Key::new(secret);
            (key.id(), Order::Add(key), false)
        }
        KeyOrder::Use { id, force } => {
            let id = parse(id)?;
            (id, Order::Use(id), force)
        }
        KeyOrder::Remove { id, force } => {
            let id = parse(id)?;
            (id, Order::Remove(id), force)
        }
    };
    let is_here = keys.ring().lookup(id).is_some();
    let known = known(links, keys, members);
    let elsewhere = if is_here { String::new() } else { holders(&known, id) };
    let is_ordered = keys.ring().removed().contains(&id) && keys.ring().is_shared(id);
    let order = match order {
        Order::Remove(id) if !elsewhere.is_empty() && !is_ordered => Order::RemoveElsewhere(id),
        order => order,
    };
    let may_shut_out = match order {
        Order::Add(_) => false,
        Order::Use(_) | Order::Remove(_) => is_here,
        Order::RemoveElsewhere(_) => true,
    };
    if may_shut_out && !force {
        let members = || known.iter().map(|node| (node, node.kept()));
        let (what, blocking) = match order {
            Order::Remove(_) | Order::RemoveElsewhere(_) => {
                ("removed", blocks_removal(id, members()))
            }
            Order::Use(_) | Order::Add(_) => ("used", blocks_use(id, members())),
        };
        if !blocking.is_empty() {
            return Err(KeyRefusal::Blocked(blocked(id, what, &blocking)));
        }
    }
    let what = match &order {
        Order::Add(_) => "added",
        Order::Use(_) => "in use",
        Order::Remove(_) | Order::RemoveElsewhere(_) => "removed",
    };
    let applied = keys.order(order).map_err(|error| match error {
        OrderError::Ring(RingError::Unknown(_)) if !elsewhere.is_empty() => {
            KeyRefusal::Unknown(format!("{error} of this node; it is at {elsewhere}"))
        }
        OrderError::Ring(RingError::Unknown(_)) => KeyRefusal::Unknown(error.to_string()),
        OrderError::Ring(_) => KeyRefusal::Blocked(error.to_string()),
        OrderError::NotKept(_) => KeyRefusal::NotKept(error.to_string()),
    })?;
    if applied == Applied::Changed {
        tracing::warn!(key = %id, force, "a client has changed the keys of the network: the key is {what}");
    }
    Ok((id.to_string(), applied == Applied::Changed))
}

/// A member does not come back.
pub(super) fn forget(links: &Links, members: &[MemberInfo], name: &NodeName) -> bool {
    let Some(keys) = links.keys.as_deref() else { return false };
    let member = members.iter().find(|member| member.name == name.as_str());
    // Who was killed just now counts as up, or suspect, for some seconds more. As long as it does, no step goes on without it.
    let may_be_gone = |state| !matches!(state, MemberState::Myself | MemberState::Joining);
    let reports = keys.reports();
    let report = reports.iter().find(|report| report.name == *name);
    let is_known = match (member, report) {
        // Once is enough.
        (_, Some(report)) if report.is_gone => false,
        (Some(member), _) => !member.linked && may_be_gone(member.state),
        (None, report) => report.is_some(),
    };
    if is_known {
        keys.forget(name);
    }
    is_known
}

/// The names of the nodes that have a key, as they have said last.
fn holders(nodes: &[Known], id: KeyId) -> String {
    let has = |node: &&Known| node.report.as_ref().is_some_and(|said| said.ring.ids.contains(&id));
    nodes.iter().filter(has).map(|node| node.name.as_str()).collect::<Vec<_>>().join(", ")
}

fn bad_id(id: &str) -> KeyRefusal {
    let shown: String = id.chars().take(16).collect();
    KeyRefusal::BadId(format!("bad field 'ident', {shown:?}: a key id is 8 hex digits"))
}

/// Names those who block a step, and says why, and how to go on.
fn blocked(id: KeyId, what: &str, nodes: &[&Known]) -> String {
    let mut text = format!("key {id} cannot be {what} yet: ");
    for (at, node) in nodes.iter().enumerate() {
        let separator = if at == 0 { "" } else { "; " };
        let state = node.state.word();
        // Writing to a string cannot fail.
        let _ = match &node.report {
            None => write!(text, "{separator}{} ({state}) was not heard of", node.name),
            Some(Report { trouble: Some(why), .. }) => {
                write!(text, "{separator}{} ({state}) cannot keep it: {why}", node.name)
            }
            Some(_) if what == "removed" => {
                write!(text, "{separator}{} ({state}) still uses it", node.name)
            }
            Some(_) => write!(text, "{separator}{} ({state}) does not have it", node.name),
        };
    }
    text.push_str(
        "; nothing was changed. Bring them back, or mend what keeps them, and try again; for one that does \
         not come back, type `distkv-node members forget NAME`; with --force, they are shut out until they \
         get the new key file by hand",
    );
    text
}
