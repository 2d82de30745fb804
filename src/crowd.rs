//! Connections of strangers, who have not shown yet that they may be here: never more than there may be. Where one more
//! comes, one that is there gives way: the oldest of the address with most. So whoever opens many and says nothing keeps
//! out nobody but itself.
//!
//! The client port has two such crowds, of TLS handshakes and of clients that have not logged in; the gossip port has one,
//! of connections that have not greeted.
//!
//! Addresses are compared by group first: an IPv6 /64 is one, because whoever has one of its addresses has all of them,
//! and so is this machine. Within a group, the address with most gives way, so that a host in a network of IPv6 does not
//! keep the others out.
//!
//! Of the one that is greediest itself, only those give way that were here for a while. Otherwise many clients that come
//! back at once from one address would push each other out before any of them is done.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::model::host_port::host_of;
use crate::model::ids::Millis;

/// One in so many places is for this machine's own, who do not give way to others then: whoever looks after the node gets
/// in.
const KEPT_FOR_HOME: usize = 16;
/// All of this machine's loopback addresses.
const HOME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// See the module.
pub(crate) struct Crowd {
    /// How long one has at least before it gives way to others of its own address, ms.
    grace_ms: Millis,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    most: usize,
    next: u64,
    /// By arrival. None is added where there are as many as there may be.
    members: Vec<Member>,
    /// Invariant: what `members` has, and none is 0.
    groups: HashMap<IpAddr, usize>,
    addresses: HashMap<IpAddr, usize>,
}

struct Member {
    number: u64,
    address: IpAddr,
    since: Millis,
    /// What it has asked for is being done, so it does not give way.
    is_busy: bool,
    /// Ends its connection.
    end: Box<dyn Fn() + Send>,
}

impl Crowd {
    /// For so many at most; each has so many ms at least before it gives way to others of its own address.
    pub(crate) fn new(most: usize, grace_ms: Millis) -> Arc<Self> {
        let state = State { most, ..State::default() };
        Arc::new(Self { grace_ms, state: Mutex::new(state) })
    }

    /// From now on there may be so many. Those that are there stay.
    pub(crate) fn set_most(&self, most: usize) {
        self.state.lock().most = most;
    }

    /// Takes in a connection from this address at this time; `end` ends it, should it have to give way. None if nobody
    /// gives way for it.
    pub(crate) fn enter(
        self: &Arc<Self>,
        address: IpAddr,
        now: Millis,
        end: impl Fn() + Send + 'static,
    ) -> Option<Place> {
        let address = canonical(address);
        let mut state = self.state.lock();
        if state.members.len() >= state.most && !self.end_one(&mut state, address, now) {
            return None;
        }
        let number = state.next;
        state.next += 1;
        *state.groups.entry(host_of(address)).or_default() += 1;
        *state.addresses.entry(address).or_default() += 1;
        let end = Box::new(end);
        state.members.push(Member { number, address, since: now, is_busy: false, end });
        Some(Place { crowd: Arc::clone(self), number })
    }
}

impl Crowd {
    /// Lets one give way for a connection from this address, also if there may be more of them: there is no room for
    /// others. Whether one does.
    pub(crate) fn make_room(&self, address: IpAddr, now: Millis) -> bool {
        self.end_one(&mut self.state.lock(), canonical(address), now)
    }

    /// How many there may be.
    pub(crate) fn most(&self) -> usize {
        self.state.lock().most
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.state.lock().members.len()
    }

    fn end_one(&self, state: &mut State, address: IpAddr, now: Millis) -> bool {
        let one = state.gives_way(address, now.checked_sub(self.grace_ms));
        if let Some(at) = one {
            (state.remove(at).end)();
        }
        one.is_some()
    }
}

impl State {
    /// How greedy an address is.
    fn rank(&self, address: IpAddr) -> (usize, usize) {
        let count = |of: &HashMap<IpAddr, usize>, key| of.get(&key).copied().unwrap_or(0);
        (count(&self.groups, host_of(address)), count(&self.addresses, address))
    }

    /// Who gives way to one from this address; of those that are no greedier, only who has come by this time.
    fn gives_way(&self, address: IpAddr, come_by: Option<Millis>) -> Option<usize> {
        let own = self.rank(address);
        let is_kept = self.rank(HOME).0 <= self.most / KEPT_FOR_HOME && address != HOME;
        let is_possible = |one: &Member| !(one.is_busy || is_kept && one.address == HOME);
        // Most have the address of the one before: looking each one up would take long, in a flood of all times.
        let mut last = (address, own);
        let mut rank = |of: IpAddr| {
            if last.0 != of {
                last = (of, self.rank(of));
            }
            last.1
        };
        let candidates = self.members.iter().enumerate().filter(|(_, one)| is_possible(one));
        let ranked = candidates.map(|(at, one)| (rank(one.address), at, one));
        // Of equals the first one, which is the oldest.
        let (rank, at, one) = ranked.min_by_key(|(rank, _, _)| Reverse(*rank))?;
        let had_its_time = come_by.is_some_and(|by| one.since <= by);
        (rank > own || (rank == own && had_its_time)).then_some(at)
    }

    fn remove(&mut self, at: usize) -> Member {
        let one = self.members.remove(at);
        for (counts, key) in
            [(&mut self.groups, host_of(one.address)), (&mut self.addresses, one.address)]
        {
            if let Some(count) = counts.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&key);
                }
            }
        }
        one
    }

    fn find(&self, number: u64) -> Option<usize> {
        self.members.binary_search_by_key(&number, |one| one.number).ok()
    }
}

/// What stands for all addresses that count as one host's.
pub(crate) fn group_of(address: IpAddr) -> IpAddr {
    host_of(canonical(address))
}

/// An IPv4 address as such, and one for all of this machine's.
fn canonical(address: IpAddr) -> IpAddr {
    let address = address.to_canonical();
    if address.is_loopback() { HOME } else { address }
}

/// A connection's place, until this is dropped.
pub(crate) struct Place {
    crowd: Arc<Crowd>,
    number: u64,
}

impl Place {
    /// Whether it had to give way to another one.
    pub(crate) fn gave_way(&self) -> bool {
        self.crowd.state.lock().find(self.number).is_none()
    }

    /// Whether what it has asked for is being done: meanwhile it does not give way. False: it had to already.
    pub(crate) fn set_busy(&self, is_busy: bool) -> bool {
        let mut state = self.crowd.state.lock();
        let own = state.find(self.number).and_then(|at| state.members.get_mut(at));
        own.map(|one| one.is_busy = is_busy).is_some()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.crowd.state.lock();
        if let Some(at) = state.find(self.number) {
            state.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const MOST: usize = 64;
    const GRACE_MS: Millis = 1_000;

    struct Test {
        crowd: Arc<Crowd>,
        ended: Arc<AtomicUsize>,
    }

    impl Test {
        fn new() -> Self {
            Self { crowd: Crowd::new(MOST, GRACE_MS), ended: Arc::default() }
        }

        fn enter(&self, address: &str, now: Millis) -> Option<Place> {
            let ended = Arc::clone(&self.ended);
            let end = move || {
                ended.fetch_add(1, Ordering::Relaxed);
            };
            self.crowd.enter(address.parse().unwrap(), now, end)
        }

        fn fill(&self, address: impl Fn(usize) -> String) -> Vec<Place> {
            let left = MOST - self.crowd.state.lock().members.len();
            (0..left).map(|n| self.enter(&address(n), 0).unwrap()).collect()
        }
    }

    fn gone(places: &[Place]) -> Vec<usize> {
        (0..places.len()).filter(|at| places[*at].gave_way()).collect()
    }

    #[test]
    fn the_oldest_of_the_greediest_address_gives_way_and_no_other() {
        let test = Test::new();
        let honest = test.enter("10.0.0.1", 0).unwrap();
        let greedy = test.fill(|n| format!("10.0.1.{}", n % 3));
        let mut others =
            vec![test.enter("10.0.0.1", 0).unwrap(), test.enter("10.0.0.2", 0).unwrap()];
        assert_eq!(gone(&greedy).len(), 2);
        others.extend((0..16).map(|n| test.enter(&format!("10.0.2.{n}"), 0).unwrap()));
        assert!(!honest.gave_way() && gone(&others).is_empty());
        assert_eq!(gone(&greedy), (0..18).collect::<Vec<_>>(), "all of them equally greedy");
        assert_eq!(test.ended.load(Ordering::Relaxed), 18);
        assert_eq!(test.crowd.state.lock().members.len(), MOST);
        drop((honest, greedy, others));
        let state = test.crowd.state.lock();
        assert!(state.members.is_empty() && state.groups.is_empty() && state.addresses.is_empty());
    }

    #[test]
    fn those_of_one_address_do_not_push_each_other_out_at_once() {
        let test = Test::new();
        let herd = test.fill(|_| "10.0.0.1".into());
        assert!(test.enter("10.0.0.1", GRACE_MS - 1).is_none());
        assert!(test.enter("::ffff:10.0.0.1", GRACE_MS - 1).is_none(), "the same address");
        assert_eq!(gone(&herd), [0; 0]);
        assert!(test.enter("10.0.0.1", GRACE_MS).is_some());
        assert_eq!(gone(&herd), [0]);
    }

    #[test]
    fn a_network_of_ipv6_is_one_and_its_hosts_do_not_keep_each_other_out() {
        let test = Test::new();
        let greedy = test.fill(|n| format!("2001:db8::{n:x}"));
        let other = test.enter("2001:db9::1", 0).unwrap();
        let neighbour = test.enter("2001:db8::ffff", 0).unwrap();
        let again = test.enter("2001:db8::ffff", 0);
        assert_eq!(gone(&greedy), [0, 1]);
        assert!(again.is_none(), "it has as many as the greediest, and each had no time yet");
        assert!(!other.gave_way() && !neighbour.gave_way());
    }

    #[test]
    fn some_clients_of_this_machine_stay_whoever_comes() {
        let test = Test::new();
        let home: Vec<_> = (0..MOST / KEPT_FOR_HOME)
            .map(|n| test.enter(["127.0.0.1", "127.9.9.9", "::1"][n % 3], 0).unwrap())
            .collect();
        let mut others = test.fill(|n| format!("10.0.0.{n}"));
        others.extend((0..99).map(|n| test.enter(&format!("10.1.0.{n}"), 9_999).unwrap()));
        assert!(gone(&home).is_empty());
        let one_more = test.enter("127.0.0.1", 9_999).unwrap();
        assert_eq!(gone(&home), [0], "it has most");
        assert!(!one_more.gave_way());
    }

    #[test]
    fn addresses_of_one_host_count_as_one() {
        let group = |text: &str| group_of(text.parse().unwrap()).to_string();
        for (address, expected) in [
            ("10.0.0.1", "10.0.0.1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("2001:db8:0:1::ffff", "2001:db8:0:1::"),
            ("127.9.9.9", "127.0.0.1"),
            ("::1", "127.0.0.1"),
        ] {
            assert_eq!(group(address), expected, "{address}");
        }
    }

    #[test]
    fn how_many_there_may_be_can_be_set() {
        let test = Test::new();
        test.crowd.set_most(2);
        let all: Vec<_> = (1..=3).map(|n| test.enter("10.0.0.1", n * GRACE_MS).unwrap()).collect();
        assert_eq!(gone(&all), [0]);
    }

    #[test]
    fn who_is_being_served_does_not_give_way() {
        let test = Test::new();
        let greedy = test.fill(|_| "10.0.0.1".into());
        for place in &greedy[..9] {
            place.set_busy(true);
        }
        greedy[3].set_busy(false);
        let first = test.enter("10.0.0.2", 0).unwrap();
        let second = test.enter("10.0.0.3", 0).unwrap();
        assert_eq!(gone(&greedy), [3, 9]);
        for place in &greedy {
            place.set_busy(true);
        }
        assert!(test.enter("10.0.0.2", 0).is_none(), "the one that is left is not greedier");
        assert!(test.enter("10.0.0.4", 0).is_some());
        assert!(first.gave_way() && !second.gave_way());
    }
}
