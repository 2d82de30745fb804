//! Who has how much of what a node allows only so many of, all clients together, so that nobody takes all of it.
//!
//! A holder may have no more than are left for all others. So one alone has half at most, and whoever comes next at most
//! half of the rest: it takes more than ten that want all to leave nothing. What is there stays: nobody gives way, because a
//! watch that ends costs its client a new start.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use crate::model::invariant::OrBroken;

/// Whose share it is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Holder {
    /// A user's, over all connections.
    User {
        /// The method of its login.
        method: Arc<str>,
        /// Its name.
        name: Arc<str>,
    },
    /// That of all who have the cluster's key.
    KeyHolder,
    /// That of all clients that have not logged in, from one host: an IPv4 address, the first one of an IPv6 /64, or a
    /// loopback address.
    Host(IpAddr),
}

/// As the beginning of a sentence.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User { name, .. } => write!(f, "the user '{name}' has"),
            Self::KeyHolder => f.write_str("those who have the cluster's key have"),
            Self::Host(host) if host.is_loopback() => f.write_str("clients on this machine have"),
            Self::Host(host @ IpAddr::V4(_)) => write!(f, "clients at {host} have"),
            Self::Host(host @ IpAddr::V6(_)) => write!(f, "clients at {host}/64 have"),
        }
    }
}

/// Why one more is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// There are as many as the node allows.
    Full,
    /// This holder has so many already, of so many that the node allows.
    ShareTaken {
        /// Who.
        holder: Arc<Holder>,
        /// How many it has.
        own: usize,
        /// How many all may have together.
        max: usize,
    },
}

impl Refusal {
    /// What the client is told; `what` they are, in the plural.
    #[must_use]
    pub fn text(&self, what: &str) -> String {
        match self {
            Self::Full => {
                format!("this node has as many {what} as it allows, all clients together")
            }
            Self::ShareTaken { holder, own, max } => format!(
                "{holder} {own} of the {max} {what} that this node allows for all clients, and may have no more than are \
                 left for the others; end some, or ask another node"
            ),
        }
    }
}

/// What a holder's share of relies on.
const COUNTED: &str = "what is given back was taken";

/// See the module. By default there is nothing to take.
#[derive(Default)]
pub struct Shares {
    /// No more than these, all together.
    max: usize,
    /// Invariant: the sum over `by_holder`, and at most `max`.
    total: usize,
    /// None is 0.
    by_holder: HashMap<Arc<Holder>, usize>,
}

impl Shares {
    /// So many are there to be taken, all together.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { max, total: 0, by_holder: HashMap::new() }
    }

    /// Takes one; returns to whom it is to be given back.
    ///
    /// # Errors
    /// There is none left, or none for this holder; nothing was taken.
    pub fn take(&mut self, holder: &Holder) -> Result<Arc<Holder>, Refusal> {
        let left = self.max.saturating_sub(self.total);
        if left == 0 {
            return Err(Refusal::Full);
        }
        let (holder, own) = match self.by_holder.get_key_value(holder) {
            Some((holder, own)) => (Arc::clone(holder), *own),
            None => (Arc::new(holder.clone()), 0),
        };
        if own >= left {
            return Err(Refusal::ShareTaken { holder, own, max: self.max });
        }
        self.by_holder.insert(Arc::clone(&holder), own + 1);
        self.total += 1;
        Ok(holder)
    }

    /// Gives one back that this holder has taken.
    pub fn give_back(&mut self, holder: &Holder) {
        let own = self.by_holder.get_mut(holder).or_broken(COUNTED);
        *own -= 1;
        if *own == 0 {
            self.by_holder.remove(holder);
        }
        self.total -= 1;
    }

    /// What operators are warned of where nearly all are taken, or nearly all that one holder may have. `what` they are,
    /// in the plural.
    #[must_use]
    pub fn scarce(&self, what: &str) -> Option<String> {
        let max = self.max;
        let (count, own) = (self.total, self.by_holder.values().max().copied().unwrap_or(0));
        if count >= max - max / 10 {
            return Some(format!(
                "clients have {count} of the {max} {what} that a node allows, and then no further one begins: \
                 `distkv-node clients` says whose they are"
            ));
        }
        let left = max.saturating_sub(count);
        // With each one that it takes, one less is left.
        let share = own + left.saturating_sub(own).div_ceil(2);
        (own >= share - share / 10).then(|| {
            format!(
                "one user, or the clients of one address, have {own} of the {share} {what} that they may have while others \
                 have {}, and then no further one of theirs begins: `distkv-node clients` says whose they are",
                count - own
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(last: u8) -> Holder {
        Holder::Host([10, 0, 0, last].into())
    }

    fn take_all(shares: &mut Shares, holder: &Holder) -> usize {
        (0..).take_while(|_| shares.take(holder).is_ok()).count()
    }

    #[test]
    fn whoever_takes_all_that_it_may_leaves_as_much_to_others() {
        let mut shares = Shares::new(64);
        let taken: Vec<usize> = (0..8).map(|n| take_all(&mut shares, &host(n))).collect();
        assert_eq!(taken, [32, 16, 8, 4, 2, 1, 1, 0]);
        assert_eq!(shares.take(&host(9)), Err(Refusal::Full));
        // Also the greatest one has room again only when there is more left than it has.
        for _ in 0..16 {
            shares.give_back(&host(1));
        }
        let own = Refusal::ShareTaken { holder: host(0).into(), own: 32, max: 64 };
        assert_eq!(shares.take(&host(0)), Err(own));
        assert_eq!(take_all(&mut shares, &host(9)), 8);
    }

    #[test]
    fn what_is_given_back_can_be_taken_again_and_leaves_nothing_behind() {
        let mut shares = Shares::new(8);
        for _ in 0..3 {
            let taken = take_all(&mut shares, &host(1));
            assert_eq!((taken, take_all(&mut shares, &Holder::KeyHolder)), (4, 2));
            (0..4).for_each(|_| shares.give_back(&host(1)));
            (0..2).for_each(|_| shares.give_back(&Holder::KeyHolder));
        }
        assert!(shares.total == 0 && shares.by_holder.is_empty());
    }

    #[test]
    fn operators_are_warned_before_a_share_or_all_is_taken() {
        let mut shares = Shares::new(1000);
        assert_eq!(shares.scarce("watches"), None);
        (0..449).for_each(|_| _ = shares.take(&host(0)).unwrap());
        assert_eq!(shares.scarce("watches"), None);
        shares.take(&host(0)).unwrap();
        let told = shares.scarce("watches").unwrap();
        assert!(told.contains("have 450 of the 500 watches that they may have"), "{told}");
        // What others have is not left.
        (1..=100).for_each(|n| _ = shares.take(&host(n)).unwrap());
        let told = shares.scarce("watches").unwrap();
        assert!(told.contains("have 450 of the 450") && told.contains("others have 100"), "{told}");
        (0..100).for_each(|_| shares.give_back(&host(0)));
        assert_eq!(shares.scarce("watches"), None);
        // Nobody has much.
        let mut shares = Shares::new(1000);
        (0..899).for_each(|n| _ = shares.take(&host((n % 200) as u8)).unwrap());
        assert_eq!(shares.scarce("watches"), None);
        shares.take(&host(200)).unwrap();
        let told = shares.scarce("watches").unwrap();
        assert!(told.contains("clients have 900 of the 1000 watches"), "{told}");
    }

    #[test]
    fn it_is_said_whose_share_is_taken() {
        let told = |holder: Holder| {
            Refusal::ShareTaken { holder: holder.into(), own: 4, max: 8 }.text("watches")
        };
        let user = Holder::User { method: "token".into(), name: "joe".into() };
        assert!(told(user).starts_with("the user 'joe' has 4 of the 8 watches that this node"));
        for (address, words) in [
            ("10.0.0.1", "clients at 10.0.0.1 have 4"),
            ("2001:db8::", "clients at 2001:db8::/64 have 4"),
            ("127.0.0.1", "clients on this machine have 4"),
        ] {
            assert!(told(Holder::Host(address.parse().unwrap())).starts_with(words));
        }
    }
}
