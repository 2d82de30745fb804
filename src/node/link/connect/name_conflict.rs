//! That another living node has our name: what others say of it, which may be out of date, and what
//! the holder says itself, which is sure.

use crate::model::ids::Millis;
use crate::node::lifecycle::stop::StopReason;
use crate::node::link::Links;
use crate::protocol::peer::greeting::Hello;
use crate::rt;

/// Our name counts as free again when no node says otherwise for this long; attempts are at most 5
/// s apart.
const TROUBLE_MS: Millis = 10_000;
/// The node that has our name must say so itself twice within this time before we believe it: one
/// greeting may have crossed a change of our own incarnation.
const NAME_HELD_TWICE_MS: Millis = 60_000;

/// Our name is taken, according to others.
#[derive(Clone, Debug)]
pub(in crate::node) struct NameTrouble {
    /// Since when, without a link in between.
    pub(in crate::node) since: Millis,
    /// The time of the last report.
    pub(in crate::node) last: Millis,
    /// In their words.
    pub(in crate::node) told: String,
}

impl Links {
    /// Whether others say that our name is taken, and no link stands.
    pub(in crate::node) fn name_trouble(&self) -> Option<NameTrouble> {
        let mut trouble = self.name_trouble.lock();
        if trouble.as_ref().is_some_and(|t| rt::now().saturating_sub(t.last) >= TROUBLE_MS) {
            *trouble = None;
        }
        trouble.clone()
    }

    /// A node reports that our name is taken.
    pub(in crate::node) fn note_name_trouble(&self, told: String) {
        let known = self.name_trouble().map(|known| known.since);
        let last = rt::now();
        let since = known.unwrap_or(last);
        *self.name_trouble.lock() = Some(NameTrouble { since, last, told });
    }

    /// The living node that has our name has said itself, in a greeting, that it keeps it. That is
    /// no rumour: this node gives way, even if it has already served clients.
    pub(in crate::node) fn note_name_held(&self, holder: &str) {
        let told = format!("a node of that name is running at {holder}");
        let now = rt::now();
        let before = self.name_held.lock().replace(now);
        let is_sure = before.is_some_and(|at| now.saturating_sub(at) < NAME_HELD_TWICE_MS);
        if is_sure {
            self.give_up_name(told);
        } else {
            self.note_name_trouble(told);
        }
    }

    /// The node ends, because another one has its name.
    pub(in crate::node) fn give_up_name(&self, told: String) {
        self.stop.request(StopReason::NameInUse {
            name: self.me.name.to_string(),
            network: self.me.network.clone(),
            told,
            has_directory: self.hub.read(|engine| engine.store().is_some()),
        });
    }

    /// A greeting has shown another living node of our own name. Returns whether this node gives
    /// way.
    pub(super) fn gives_way(&self, own: &Hello, other: &Hello) -> bool {
        let gives_way = !own.keeps_name_against(other);
        if gives_way {
            self.note_name_held(&other.gossip);
        } else {
            let text = format!(
                "another node named {} is running at {}; this one has served for longer and keeps \
                 the name, the other one ends; give it another --name",
                self.me.name, other.gossip
            );
            self.complain(&other.gossip, "name_held", &text);
        }
        gives_way
    }
}
