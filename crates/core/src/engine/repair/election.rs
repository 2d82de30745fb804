//! The two elections that a node takes part in: the housekeepers, which drive the healing of
//! splits, and the Delete group's coordinator. `actor` elects; this feeds it and acts on its
//! results.

use crate::actor::{Actor, ActorConfig, ActorEvent, ActorOutput, Role};
use crate::engine::{Engine, LinkId, Outbox, Output, Report};
use crate::model::ids::{Millis, NodeName};
use crate::model::ping::{ConfigVersion, GroupId, Ping};
use crate::protocol::peer::PeerMessage;

const HOUSEKEEPERS: GroupId = GroupId(1);
const DELETE_GROUP: GroupId = GroupId(2);

/// The coordinator's turns have ten gaps.
const DELETE_GAPS: Millis = 10;

/// This node's part in both elections.
pub(in crate::engine) struct Elections {
    housekeepers: Actor,
    delete: Actor,
}

impl Elections {
    /// The seed keeps nodes that start together from claiming a turn together.
    pub(in crate::engine) fn new(name: &NodeName, seed: u64, delete_cycle_ms: Millis) -> Self {
        let gap_ms = delete_cycle_ms / DELETE_GAPS;
        let delete =
            ConfigVersion { version: 0, cycle_ms: delete_cycle_ms, gap_ms, list_len: 4 }.clamped();
        let actor = |group, shared, role, seed| {
            Actor::new(ActorConfig { group, shared }, name.clone(), role, seed)
        };
        // Nodes may be made with the same seed in tests; their names differ.
        let seed = name.as_str().bytes().fold(seed, |seed, byte| {
            (seed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(5)
        });
        Self {
            housekeepers: actor(HOUSEKEEPERS, ConfigVersion::DEFAULT, Role::Active, seed),
            delete: actor(DELETE_GROUP, delete, Role::Passive, !seed),
        }
    }
}

impl Engine {
    /// The elected housekeepers, newest turn first: the first of them is whose turn it is.
    #[must_use]
    pub fn housekeepers(&self) -> Vec<NodeName> {
        self.elections.housekeepers.list().cloned().collect()
    }

    /// Whether this node coordinates the Delete group now.
    pub(in crate::engine) fn is_elected_coordinator(&self) -> bool {
        self.elections.delete.is_tagged()
    }

    pub(in crate::engine) fn on_election_tick(&mut self, now: Millis, out: &mut Outbox) {
        let me = self.as_member();
        let is_member = self.group().is_some_and(|config| config.members().contains(&me));
        let role = if is_member { Role::Active } else { Role::Passive };
        self.elections.delete.set_role(role);
        self.elections.delete.set_ready(self.ready);
        self.elections.housekeepers.set_ready(self.ready);
        let mut outputs = Vec::new();
        self.elections.housekeepers.on_tick(now, &mut outputs);
        self.on_housekeepers(&mut outputs, now, out);
        self.elections.delete.on_tick(now, &mut outputs);
        self.on_delete_election(&mut outputs, out);
    }

    pub(in crate::engine) fn on_ping(&mut self, ping: &Ping, now: Millis, out: &mut Outbox) {
        let mut outputs = Vec::new();
        match ping.group {
            HOUSEKEEPERS => {
                self.elections.housekeepers.on_ping(ping, now, &mut outputs);
                self.on_housekeepers(&mut outputs, now, out);
            }
            DELETE_GROUP => {
                self.elections.delete.on_ping(ping, now, &mut outputs);
                self.on_delete_election(&mut outputs, out);
            }
            _ => {}
        }
    }

    /// Tells a peer whose link has just come up what this node knows, so that a healed split is
    /// noticed at once.
    pub(in crate::engine) fn greet_elections(&self, link: LinkId, out: &mut Outbox) {
        for actor in [&self.elections.housekeepers, &self.elections.delete] {
            self.send(link, &PeerMessage::Ping(actor.greeting()), out);
        }
    }

    /// A node cannot be reached any more: no node need wait for its turn.
    pub(in crate::engine) fn on_name_gone(&mut self, name: &NodeName) {
        if self.is_linked(name) || self.is_there_unlinked(name) {
            return;
        }
        self.elections.housekeepers.on_member_down(name);
        self.elections.delete.on_member_down(name);
    }

    fn on_housekeepers(&mut self, outputs: &mut Vec<ActorOutput>, now: Millis, out: &mut Outbox) {
        for output in outputs.drain(..) {
            match output {
                ActorOutput::Send(ping) => self.flood(&PeerMessage::Ping(ping), true, out),
                ActorOutput::Event(ActorEvent::ListChanged(list)) => {
                    out.push(Output::Report(Report::HousekeepersChanged { list }));
                }
                ActorOutput::Event(ActorEvent::Recover { priority, ours, theirs }) => {
                    self.on_recover(priority, ours, theirs, now, out);
                }
                ActorOutput::Event(
                    ActorEvent::Tagged | ActorEvent::Untagged | ActorEvent::ConfigChanged(_),
                ) => {}
            }
        }
    }

    /// The coordinator is looked up when a round is due.
    fn on_delete_election(&mut self, outputs: &mut Vec<ActorOutput>, out: &mut Outbox) {
        for output in outputs.drain(..) {
            if let ActorOutput::Send(ping) = output {
                self.flood(&PeerMessage::Ping(ping), true, out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Config, Input};
    use crate::model::ids::{Incarnation, NodeId};

    #[test]
    fn who_is_gone_is_off_both_lists_at_once() {
        let id =
            |name: &str| NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(1) };
        let mut engine = Engine::new(Config::new(id("me"), 1));
        let link = LinkId(1);
        engine.handle(Input::LinkUp { link, peer: id("peer") }, 0, &mut Outbox::new());
        let history = [id("peer").name, id("other").name];
        for group in [HOUSEKEEPERS, DELETE_GROUP] {
            let ping = Ping {
                group,
                sender: history[0].clone(),
                turn: 9,
                value: Some(1),
                history: history.to_vec(),
                meetings: Vec::new(),
                config: ConfigVersion::DEFAULT,
            };
            let messages = vec![PeerMessage::Ping(ping)];
            engine.handle(Input::Messages { link, messages }, 0, &mut Outbox::new());
        }
        let lists = |engine: &Engine| {
            let Elections { housekeepers, delete } = &engine.elections;
            [housekeepers, delete].map(|actor| actor.list().cloned().collect::<Vec<_>>())
        };
        assert_eq!(lists(&engine), [history.to_vec(), history.to_vec()]);
        engine.handle(Input::LinkDown { link }, 100, &mut Outbox::new());
        assert_eq!(lists(&engine), [vec![history[1].clone()], vec![history[1].clone()]]);
    }
}
