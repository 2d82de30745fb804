//! Which nodes may come in: an address has one identity, a name has one live node.

use foca::{Member, State};

use super::identity::Identity;

/// What to do with the sender of a datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub(in crate::membership) enum Admission {
    /// Let foca have it.
    Admit,
    /// Its address is known under an identity that beats the one it uses: a process restarted with
    /// a random incarnation, or one that missed its own renewal. When it learns of the holder, it
    /// renews itself above that.
    AddrHeld(Identity),
    /// It is not a member, and another live member has its name.
    NameHeld(Identity),
    /// It has our own name.
    OurName,
}

/// Decides about a sender that is not at our own address. `members` are all that foca knows,
/// those that are down included.
pub(in crate::membership) fn decide_admission<'a>(
    me: &Identity,
    sender: &Identity,
    members: impl Iterator<Item = &'a Member<Identity>>,
) -> Admission {
    if sender.name == me.name {
        return Admission::OurName;
    }
    let mut is_member = false;
    let mut name_holder = None;
    for member in members {
        let known = member.id();
        let is_live = member.state() != State::Down && !known.leaving;
        if known.addr == sender.addr {
            if known == sender {
                // Alive, or declared down: then foca reports it, and it renews itself.
                return Admission::Admit;
            }
            if known.beats(sender) {
                return Admission::AddrHeld(known.clone());
            }
            is_member = is_live && known.is_same_process(sender);
        } else if is_live && known.name == sender.name {
            name_holder = Some(known);
        }
    }
    match name_holder {
        // Not held against one that is a member already, under this generation or an older one:
        // two members of one name settle it between themselves, and a third that went deaf towards
        // one of them would only make it flap.
        Some(holder) if !is_member => Admission::NameHeld(holder.clone()),
        Some(_) | None => Admission::Admit,
    }
}

/// Which of two live nodes of one name goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(in crate::membership) enum Rivalry {
    /// We stay; the rival has to go.
    WeStay,
    /// We have to go.
    WeYield,
}

/// Decides between us and a rival. A node that has its place in the network comes before one that
/// is only joining; otherwise seniority decides. Both sides come to the same result from the same
/// facts.
pub(in crate::membership) fn decide_rivalry(
    me: (&Identity, bool),
    rival: (&Identity, bool),
) -> Rivalry {
    let we_yield = match (me.1, rival.1) {
        (true, false) => false,
        (false, true) => true,
        (true, true) | (false, false) => me.0.seniority() > rival.0.seniority(),
    };
    if we_yield { Rivalry::WeYield } else { Rivalry::WeStay }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::{Incarnation, NodeName};

    fn identity(name: &str, host: u8, incarnation: u64) -> Identity {
        let addr = std::net::SocketAddr::from(([10, 0, 0, host], 5));
        Identity::new(addr, NodeName::new(name).unwrap(), Incarnation(incarnation))
    }

    #[test]
    fn an_address_and_a_live_name_are_held_against_newcomers() {
        let me = identity("me", 1, 1);
        let a = identity("a", 2, 50);
        let decide = |sender: &Identity, members: &[Member<Identity>]| {
            decide_admission(&me, sender, members.iter())
        };
        let alive = [Member::alive(a.clone())];
        let down = [Member::down(a.clone())];

        assert_eq!(decide(&a, &[]), Admission::Admit);
        assert_eq!(decide(&a, &alive), Admission::Admit);
        assert_eq!(decide(&a, &down), Admission::Admit, "foca answers that it is down");
        assert_eq!(decide(&identity("me", 3, 9), &alive), Admission::OurName);

        assert_eq!(decide(&identity("a", 2, 60), &alive), Admission::Admit, "a restart that wins");
        let loses = identity("a", 2, 40);
        assert_eq!(decide(&loses, &alive), Admission::AddrHeld(a.clone()));
        assert_eq!(decide(&loses, &down), Admission::AddrHeld(a.clone()));

        let elsewhere = identity("a", 3, 60);
        assert_eq!(decide(&elsewhere, &alive), Admission::NameHeld(a.clone()));
        assert_eq!(decide(&elsewhere, &down), Admission::Admit, "the name is free again");
        let both = [Member::alive(a.clone()), Member::alive(elsewhere.clone())];
        assert_eq!(decide(&elsewhere, &both), Admission::Admit, "they settle it themselves");
    }

    #[test]
    fn exactly_one_of_two_rivals_goes() {
        let (a, b) = (identity("a", 2, 50), identity("a", 3, 50));
        for (a_established, b_established) in
            [(true, true), (true, false), (false, true), (false, false)]
        {
            let one = decide_rivalry((&a, a_established), (&b, b_established));
            let other = decide_rivalry((&b, b_established), (&a, a_established));
            assert_ne!(one, other);
        }
        assert_eq!(decide_rivalry((&b, true), (&a, false)), Rivalry::WeStay, "the joiner goes");
        let renewed = b.renewed_above(0).unwrap();
        let declared_down = decide_rivalry((&renewed, true), (&identity("a", 9, 99), true));
        assert_eq!(declared_down, Rivalry::WeYield);
    }
}
