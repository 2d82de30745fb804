//! What nodes of a [`Net`] are made to believe: long histories, and what was never said.

use super::super::hand::digest;
use super::{Net, write};
use crate::engine::*;
use crate::model::chain::Chain;
use crate::model::entry::EntryParts;
use crate::model::ids::{NodeId, NodeName};
use crate::model::mark::Mark;
use crate::model::tick_set::TickSet;
use crate::protocol::peer::PeerMessage;

fn life(name: &str, incarnation: u64) -> NodeId {
    NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(incarnation) }
}

impl Net {
    /// A node takes in so many entries whose maker made a second change between each two that was
    /// overwritten, without what their maker knew: a range of its own for each.
    pub(crate) fn load_every_other(&mut self, node: usize, name: &str, keys: u64) {
        let mut out = Outbox::new();
        let engine = &mut self.nodes[node].engine;
        let maker = engine.replica.intern(&life(name, 77)).unwrap();
        for key in 0..keys {
            let path = format!("{name}.{key}").parse::<Path>().unwrap();
            let tick = Tick::new(2 * key + 1).unwrap();
            let chain = Chain::from_events([Event { node: maker, tick }], false).unwrap();
            let (value, tock) = (Some(&[1][..]), Tock::new(key + 1).unwrap());
            let parts =
                EntryParts { value, chain: &chain, tock, origin: None, time: None, extra: &[] };
            engine.take_entry(&path, &Entry::new(&parts), &Mark::default(), &mut out);
        }
        self.perform(node, out);
    }

    /// A node knows of so many lives that are over and own nothing, each with three ticks.
    pub(crate) fn make_history(&mut self, node: usize, name: &str, lives: u64) {
        let replica = &mut self.nodes[node].engine.replica;
        for incarnation in 1..=lives {
            let index = replica.intern(&life(name, incarnation << 32)).unwrap();
            for tick in 1..4 {
                replica.account_for(Event { node: index, tick: Tick::new(tick).unwrap() });
            }
        }
    }

    pub(crate) fn account_for(&mut self, node: usize, event: Event) {
        self.nodes[node].engine.replica.account_for(event);
    }

    pub(crate) fn forge_digest(&mut self, from: usize, to: usize, name: &str, highest: u64) {
        let seen = vec![(life(name, 1), TickSet::range(1, highest + 1).unwrap())];
        let digest = digest(seen, Mark::default());
        let link = self.link_there(from, to);
        let messages = vec![PeerMessage::Digest(digest)];
        self.handle(to, Input::Messages { link, messages });
    }

    /// A change of a node that is not here, passed on by another.
    pub(crate) fn forge_change(&mut self, from: usize, to: usize, name: &str, tick: u64) {
        let config = self.config(&life(name, 1).name, 1, &self.delete);
        let mut maker = Engine::new(config);
        maker.handle(Input::Found, 0, &mut Outbox::new());
        let peer = self.engine(from).id().clone();
        maker.handle(Input::LinkUp { link: LinkId(0), peer }, 0, &mut Outbox::new());
        let mut out = Outbox::new();
        for n in 0..tick {
            out = Outbox::new();
            maker.write(&mut write("forged", Some(&[n as u8])), false, &mut out).unwrap();
        }
        let frame = out.drain().find_map(|output| match output {
            Output::Broadcast { frame } => Some(frame),
            _ => None,
        });
        let there = self.link_there(from, to);
        self.arrive(from, to, there, &frame.unwrap());
    }
}
