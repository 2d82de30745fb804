//! Connections of strangers, who have not shown yet that they may be here: never more than there may be. Where one more
//! comes, one that is there gives way: the oldest of the address with most. So whoever opens many and says nothing keeps
//! out nobody but itself. ([`shares`] is about those that are known: what one has, it keeps.)
//!
//! The client port has two such crowds, of TLS handshakes and of clients that have not logged in; the gossip port has one,
//! of connections that have not greeted; and the HTTP port has one of all its connections, whose requests may say who asks.
//!
//! Where connections do something between, those give way first that wait. One whose request is being answered goes before
//! them only if more are at work than wait, and none that waits is of a greedier address: then that is the crowd. It never
//! goes for an address that has one waiting itself.
//!
//! Addresses are compared by group first: an IPv6 /64 is one, because whoever has one of its addresses has all of them,
//! and so is this machine. Within a group, the address with most gives way, so that a host in a network of IPv6 does not
//! keep the others out.
//!
//! Of the one that is greediest itself, only those give way that were here for a while. Otherwise many clients that come
//! back at once from one address would push each other out before any of them is done.

pub mod shares;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use distkv_model as model;
use parking_lot::Mutex;

use crate::model::host_port::host_of;
use crate::model::ids::Millis;

/// One in so many places is for this machine's own, who do not give way to others then: whoever looks after the node gets
/// in.
const KEPT_FOR_HOME: usize = 16;
/// All of this machine's loopback addresses.
const HOME: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// What a connection does, and so when it gives way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Does {
    /// It waits for its client: it is among the first to give way.
    Wait,
    /// What it has asked for is being done, and may take long: it gives way where those that wait are not the crowd.
    Work,
    /// What it has asked for is being done, and will not take long: it gives way to nobody.
    Finish,
    /// Something of which there are only so many: it gives way to nobody, and does not count for its address.
    Stand,
}

/// See the crate.
pub struct Crowd {
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
    /// Invariant: what `members` has of those that count, and none is 0.
    groups: HashMap<IpAddr, usize>,
    addresses: HashMap<IpAddr, usize>,
}

struct Member {
    number: u64,
    address: IpAddr,
    /// The time from which it is as old as the others of its kind.
    since: Millis,
    does: Does,
    /// Ends its connection.
    end: Box<dyn Fn() + Send>,
}

impl Crowd {
    /// For so many at most; each has so many ms at least before it gives way to others of its own address.
    #[must_use]
    pub fn new(most: usize, grace_ms: Millis) -> Arc<Self> {
        let state = State { most, ..State::default() };
        Arc::new(Self { grace_ms, state: Mutex::new(state) })
    }

    /// From now on there may be so many. Those that are there stay.
    pub fn set_most(&self, most: usize) {
        self.state.lock().most = most;
    }

    /// Takes in a connection from this address at this time; `end` ends it, should it have to give way. None if nobody
    /// gives way for it.
    pub fn enter(
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
        state.count(address);
        let (does, end) = (Does::Wait, Box::new(end));
        state.members.push(Member { number, address, since: now, does, end });
        Some(Place { crowd: Arc::clone(self), number })
    }

    /// Lets one give way for a connection from this address, also if there may be more of them: there is no room for
    /// others. Whether one does.
    pub fn make_room(&self, address: IpAddr, now: Millis) -> bool {
        self.end_one(&mut self.state.lock(), canonical(address), now)
    }

    /// How many there may be.
    #[must_use]
    pub fn most(&self) -> usize {
        self.state.lock().most
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.state.lock().members.len()
    }

    /// Ends all of them.
    pub fn end_all(&self) {
        let mut state = self.state.lock();
        while let Some(at) = state.members.len().checked_sub(1) {
            (state.remove(at).end)();
        }
    }

    fn end_one(&self, state: &mut State, address: IpAddr, now: Millis) -> bool {
        let one = state.gives_way(address, now.checked_sub(self.grace_ms));
        if let Some(at) = one {
            (state.remove(at).end)();
        }
        one.is_some()
    }
}

/// The one of its kind that gives way before all others.
#[derive(Clone, Copy)]
struct First {
    at: usize,
    /// How greedy its address is.
    rank: (usize, usize),
    since: Millis,
}

impl State {
    /// How greedy an address is.
    fn rank(&self, address: IpAddr) -> (usize, usize) {
        let count = |of: &HashMap<IpAddr, usize>, key| of.get(&key).copied().unwrap_or(0);
        (count(&self.groups, host_of(address)), count(&self.addresses, address))
    }

    /// Who gives way to one from this address; of those that are no greedier, only who has come by this time.
    fn gives_way(&self, address: IpAddr, come_by: Option<Millis>) -> Option<usize> {
        let (at_home, kept) = (self.rank(HOME).0, self.most / KEPT_FOR_HOME);
        // A place that is kept for it is nobody else's, however little the others have.
        let has_kept = address == HOME && at_home < kept;
        let own = if has_kept { (0, 0) } else { self.rank(address) };
        let is_kept = if address == HOME { has_kept } else { at_home <= kept };
        let [(waiting, first_waiting), (working, first_working)] =
            [Does::Wait, Does::Work].map(|does| self.first_of(does, is_kept));
        let greed = |first: Option<First>| first.map_or((0, 0), |first| first.rank);
        let work_first = working > waiting && greed(first_working) >= greed(first_waiting);
        let must = |first: &First| {
            let had_its_time = come_by.is_some_and(|by| first.since <= by);
            first.rank > own || (first.rank == own && had_its_time)
        };
        // Whoever has one that waits may ask by that one.
        let group = host_of(address);
        let waits = |one: &Member| one.does == Does::Wait && host_of(one.address) == group;
        let wait = first_waiting.filter(must);
        let work = first_working.filter(must).filter(|_| !self.members.iter().any(waits));
        let first = if work_first { work.or(wait) } else { wait.or(work) };
        first.map(|first| first.at)
    }

    /// How many do this, and which of them is the first to give way; not counting those at home if they are kept.
    fn first_of(&self, does: Does, is_kept: bool) -> (usize, Option<First>) {
        let (mut count, mut first) = (0, None::<First>);
        // Most have the address of the one before: looking each one up would take long, in a flood of all times.
        let mut last = (HOME, self.rank(HOME));
        for (at, one) in self.members.iter().enumerate() {
            if one.does != does || (is_kept && one.address == HOME) {
                continue;
            }
            count += 1;
            if last.0 != one.address {
                last = (one.address, self.rank(one.address));
            }
            let (rank, since) = (last.1, one.since);
            // Of equals that have waited equally long, the first one.
            let is_before =
                |first: &First| rank > first.rank || (rank == first.rank && since < first.since);
            if first.as_ref().is_none_or(is_before) {
                first = Some(First { at, rank, since });
            }
        }
        (count, first)
    }

    fn count(&mut self, address: IpAddr) {
        *self.groups.entry(host_of(address)).or_default() += 1;
        *self.addresses.entry(address).or_default() += 1;
    }

    fn discount(&mut self, address: IpAddr) {
        for (counts, key) in [(&mut self.groups, host_of(address)), (&mut self.addresses, address)]
        {
            if let Some(count) = counts.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&key);
                }
            }
        }
    }

    fn remove(&mut self, at: usize) -> Member {
        let one = self.members.remove(at);
        if one.does != Does::Stand {
            self.discount(one.address);
        }
        one
    }

    /// This one does that from now on; since when, if it is to be as old as that. Whether it is there.
    fn set(&mut self, number: u64, does: Does, since: Option<Millis>) -> bool {
        let Some(one) = self.find(number).and_then(|at| self.members.get_mut(at)) else {
            return false;
        };
        let (address, before) = (one.address, std::mem::replace(&mut one.does, does));
        one.since = since.unwrap_or(one.since);
        match (before == Does::Stand, does == Does::Stand) {
            (false, true) => self.discount(address),
            (true, false) => self.count(address),
            _ => {}
        }
        true
    }

    fn find(&self, number: u64) -> Option<usize> {
        self.members.binary_search_by_key(&number, |one| one.number).ok()
    }
}

/// What stands for all addresses that count as one host's.
#[must_use]
pub fn group_of(address: IpAddr) -> IpAddr {
    host_of(canonical(address))
}

/// An IPv4 address as such, and one for all of this machine's.
fn canonical(address: IpAddr) -> IpAddr {
    let address = address.to_canonical();
    if address.is_loopback() { HOME } else { address }
}

/// A connection's place, until this is dropped.
pub struct Place {
    crowd: Arc<Crowd>,
    number: u64,
}

impl Place {
    /// Whether it had to give way to another one.
    #[must_use]
    pub fn gave_way(&self) -> bool {
        self.crowd.state.lock().find(self.number).is_none()
    }

    /// Whether what it has asked for is being done: meanwhile it does not give way. False: it had to already.
    pub fn set_busy(&self, is_busy: bool) -> bool {
        let does = if is_busy { Does::Finish } else { Does::Wait };
        self.crowd.state.lock().set(self.number, does, None)
    }

    /// It does this from now on. False: it had to give way already.
    pub fn set(&self, does: Does, now: Millis) -> bool {
        self.crowd.state.lock().set(self.number, does, Some(now))
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

    #[test]
    fn whoever_comes_without_need_cuts_nothing_that_is_being_done() {
        let test = Test::new();
        let honest: Vec<_> = (0..9).map(|_| test.enter("10.0.0.1", 0).unwrap()).collect();
        honest.iter().for_each(|place| assert!(place.set(Does::Work, 0)));
        let greedy = test.fill(|_| "10.0.0.2".into());
        // The greediest pushes out its own, and none of them before its time.
        assert!(test.enter("10.0.0.2", GRACE_MS - 1).is_none());
        let _next = test.enter("10.0.0.2", GRACE_MS).unwrap();
        // Others find those that wait.
        let others: Vec<_> =
            (0..9).map(|n| test.enter(&format!("10.1.0.{n}"), 0).unwrap()).collect();
        assert_eq!(gone(&greedy), (0..10).collect::<Vec<_>>());
        // Nor do many with one each, of whom none is greedier.
        drop(greedy);
        let many: Vec<_> = (0..200).map(|n| test.enter(&format!("10.2.0.{n}"), 0)).collect();
        assert!(many.iter().flatten().any(Place::gave_way), "there were more than there may be");
        assert!(test.enter("10.2.0.199", 0).is_none(), "it has one that waits");
        assert!(gone(&honest).is_empty());
        drop(others);
    }

    #[test]
    fn where_none_waits_the_oldest_request_of_the_greediest_gives_way() {
        let test = Test::new();
        let all = test.fill(|n| ["10.0.0.1", "10.0.0.1", "10.0.0.2"][n % 3].into());
        for (n, place) in all.iter().enumerate() {
            // The first one has just asked again.
            place.set(Does::Work, if n == 0 { 9 } else { 5 });
        }
        let probe = test.enter("10.0.0.2", 9).unwrap();
        assert_eq!(gone(&all), [1]);
        assert!(test.enter("10.0.0.2", 9).is_none(), "it has one that has not asked yet");
        probe.set(Does::Work, 9);
        test.enter("10.0.0.2", 9).unwrap();
        assert_eq!(gone(&all), [1, 3]);
    }

    #[test]
    fn where_many_requests_take_long_who_has_just_come_is_no_victim() {
        let test = Test::new();
        let far = test.enter("10.0.0.1", 0).unwrap();
        let busy = |address: String| {
            let place = test.enter(&address, 1)?;
            place.set(Does::Work, 1);
            Some(place)
        };
        let flood: Vec<_> = (0..200).map(|n| busy(format!("10.1.0.{n}")).unwrap()).collect();
        assert_eq!(gone(&flood).len(), 200 - (MOST - 1));
        assert!(!far.gave_way());
        drop(flood);
        // Who comes from a greedier address and says nothing goes first all the same.
        let silent = [0, 0].map(|now| test.enter("10.0.0.2", now).unwrap());
        let work: Vec<_> = (0..61).map(|n| busy(format!("10.1.0.{n}")).unwrap()).collect();
        let _probe = test.enter("10.0.0.3", 1).unwrap();
        assert_eq!((gone(&silent), gone(&work)), (vec![0], vec![]));
    }

    #[test]
    fn what_has_a_bound_of_its_own_stays_and_does_not_make_its_address_greedy() {
        let test = Test::new();
        let streams: Vec<_> = (0..40).map(|_| test.enter("10.0.0.1", 0).unwrap()).collect();
        streams.iter().for_each(|place| assert!(place.set(Does::Stand, 0)));
        let others = test.fill(|n| format!("10.0.1.{}", n % 12));
        let probe = test.enter("10.0.0.1", 0).unwrap();
        assert_eq!(gone(&others), [0]);
        drop(others);
        drop(probe);
        for (n, place) in streams.iter().enumerate() {
            place.set(Does::Wait, n as Millis);
            place.set(Does::Wait, 40 - n as Millis);
        }
        let _herd = test.fill(|_| "10.0.0.1".into());
        assert!(test.enter("10.0.0.2", 0).is_some(), "they count again");
        test.crowd.end_all();
        assert_eq!(gone(&streams).len(), streams.len());
        let state = test.crowd.state.lock();
        assert!(state.members.is_empty() && state.groups.is_empty() && state.addresses.is_empty());
    }

    #[test]
    fn this_machine_gets_its_own_places_from_those_who_have_one_each() {
        let test = Test::new();
        let _others = test.fill(|n| format!("10.0.0.{n}"));
        let home: Vec<_> =
            (0..MOST / KEPT_FOR_HOME).map(|_| test.enter("127.0.0.1", 0).unwrap()).collect();
        assert!(gone(&home).is_empty());
        assert!(test.enter("127.0.0.1", 0).is_none(), "these it has");
    }
}
