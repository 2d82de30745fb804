//! Who belongs to a network, and where: what its nodes tell of each other. In a large network a node knows the addresses
//! of those that it is linked to, and no others; so whoever wants all asks each one that is found, too.

use std::collections::{BTreeMap, BTreeSet};

use crate::client::message::array_items;
use crate::client::{HostPort, Message};

/// What the nodes that were asked tell of a member.
#[derive(Default)]
pub(super) struct Member {
    /// As `members` has it, of the last other one that told; empty if none has.
    pub(super) state: String,
    /// For clients; none if none of those that were asked is linked to it.
    pub(super) address: Option<HostPort>,
}

/// See the module.
pub(super) struct Roster {
    max: usize,
    /// By name. Invariant: at most `max`.
    members: BTreeMap<String, Member>,
    /// Names beyond that.
    left_out: BTreeSet<String>,
    /// Who was asked, or is about to be.
    asked: BTreeSet<String>,
}

impl Roster {
    /// Of at most so many. `asked`: whom the caller asks by itself.
    pub(super) fn new(max: usize, asked: impl IntoIterator<Item = String>) -> Self {
        Self {
            max,
            members: BTreeMap::new(),
            left_out: BTreeSet::new(),
            asked: asked.into_iter().collect(),
        }
    }

    /// Takes in a node's answer to `members`.
    pub(super) fn note(&mut self, reply: &Message) {
        let rows = array_items(reply.get("result").unwrap_or_default());
        for row in rows.filter_map(|row| Message::new(row).ok()) {
            let (Some(name), Some(state)) = (row.str("name"), row.str("state")) else { continue };
            if state == "left" {
                continue;
            }
            if !self.members.contains_key(name) && self.members.len() >= self.max {
                self.left_out.insert(name.to_owned());
                continue;
            }
            let member = self.members.entry(name.to_owned()).or_default();
            if state != "self" {
                state.clone_into(&mut member.state);
            }
            let address = row.str("client").and_then(|text| HostPort::parse(text, None).ok());
            member.address = address.or(member.address.take());
        }
    }

    /// Those to ask next: their addresses are known, they were not asked, and the caller wants them. That they are given
    /// counts as asking them, so that this ends: there is none left when all were.
    pub(super) fn take_new(
        &mut self,
        is_wanted: impl Fn(&Member) -> bool,
    ) -> Vec<(String, HostPort)> {
        let mut new = Vec::new();
        for (name, member) in &self.members {
            let Some(address) = member.address.as_ref().filter(|_| is_wanted(member)) else {
                continue;
            };
            if self.asked.insert(name.clone()) {
                new.push((name.clone(), address.clone()));
            }
        }
        new
    }

    /// All that were told of, by name.
    pub(super) fn members(&self) -> &BTreeMap<String, Member> {
        &self.members
    }

    /// Those that were not asked.
    pub(super) fn not_asked(&self) -> impl Iterator<Item = (&String, &Member)> {
        self.members.iter().filter(|(name, _)| !self.asked.contains(*name))
    }

    /// How many there are beyond those.
    pub(super) fn left_out(&self) -> usize {
        self.left_out.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Fields;

    fn reply(rows: &[(&str, &str, Option<&str>)]) -> Message {
        let row = |(name, state, client): &(&str, &str, Option<&str>)| {
            let mut fields = Fields::new();
            fields.str("name", name).str("state", state);
            if let Some(client) = client {
                fields.str("client", client);
            }
            fields.encode()
        };
        let count = u8::try_from(rows.len()).unwrap();
        let list = [vec![0x90 | count], rows.iter().flat_map(row).collect()].concat();
        Message::new(&Fields::new().raw("result", &list).encode()).unwrap()
    }

    #[test]
    fn each_is_given_once_when_its_address_is_known() {
        let mut roster = Roster::new(9, ["a".to_owned()]);
        let taken = |roster: &mut Roster| -> Vec<String> {
            roster.take_new(|member| member.state != "down").into_iter().map(|(n, _)| n).collect()
        };
        roster.note(&reply(&[
            ("a", "self", Some("h:1")),
            ("b", "up", Some("h:2")),
            ("c", "up", None),
            ("d", "down", Some("h:4")),
            ("e", "left", Some("h:5")),
        ]));
        assert_eq!(taken(&mut roster), ["b"]);
        // An address that is known stays known.
        roster.note(&reply(&[("a", "up", None), ("c", "up", Some("h:3")), ("f", "up", None)]));
        assert_eq!(taken(&mut roster), ["c"]);
        roster.note(&reply(&[("a", "self", None)]));
        let a = &roster.members()["a"];
        assert!(a.address.is_some() && a.state == "up", "as the others see it");
        let rest: Vec<_> = roster.not_asked().map(|(name, _)| name.as_str()).collect();
        assert_eq!(rest, ["d", "f"]);
    }

    #[test]
    fn those_beyond_the_most_are_counted_once() {
        let mut roster = Roster::new(2, []);
        let all = [("a", "up", None), ("b", "up", None), ("c", "up", None), ("d", "up", None)];
        roster.note(&reply(&all));
        roster.note(&reply(&all));
        assert_eq!((roster.members().len(), roster.left_out()), (2, 2));
    }
}
