//! What a node counts and notices about itself, besides what its parts count anyway: all of it off the way that
//! changes take.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use distkv_metrics::{Histogram, HistogramNumbers, Name};
use parking_lot::Mutex;

use super::live::Live;
use super::split::unheard::{LinkSince, Unheard};
use super::split::unlinked::Unlinked;
use super::split::unseen::Unseen;
use super::split::{Network, News, SplitWatch};
use crate::membership::MemberInfo;
use crate::model::ids::{Incarnation, Millis, NodeName, Tick};
use crate::rt;
use crate::server::SilentInfo;

/// Most samples of the own tick that are kept: one each second in which it has changed.
const SAMPLES_MAX: usize = 3_600;

/// What went over all links, as it passes the network.
#[derive(Default)]
pub(in crate::node) struct LinkTraffic {
    received: AtomicU64,
    sent: AtomicU64,
}

impl LinkTraffic {
    pub(in crate::node) fn note_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(in crate::node) fn note_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes received and sent.
    pub(in crate::node) fn bytes(&self) -> (u64, u64) {
        (self.received.load(Ordering::Relaxed), self.sent.load(Ordering::Relaxed))
    }
}

/// See the module.
pub(in crate::node) struct Observed {
    /// What went over links.
    pub(in crate::node) link_traffic: Arc<LinkTraffic>,
    /// When the node's timer last fired.
    beat: AtomicU64,
    tick_delay: Histogram,
    failed_catch_ups: AtomicU64,
    link_ends: Mutex<BTreeMap<&'static str, u64>>,
    splits: Mutex<SplitWatch>,
    unlinked: Mutex<Unlinked>,
    unheard: Mutex<Unheard>,
    /// It began alone although it has peers, and has been linked with none since.
    is_alone: AtomicBool,
    lag: Mutex<Lag>,
    /// What is kept for pages.
    pub(in crate::node) live: Live,
}

impl Default for Observed {
    fn default() -> Self {
        Self {
            link_traffic: Arc::default(),
            beat: AtomicU64::new(rt::now()),
            tick_delay: Histogram::of(Name::TickDelaySeconds),
            failed_catch_ups: AtomicU64::new(0),
            link_ends: Mutex::default(),
            splits: Mutex::default(),
            unlinked: Mutex::default(),
            unheard: Mutex::default(),
            is_alone: AtomicBool::new(false),
            lag: Mutex::default(),
            live: Live::default(),
        }
    }
}

impl Observed {
    /// The node's timer has fired, that much too late.
    pub(in crate::node) fn note_tick(&self, now: Millis, late_ms: Millis) {
        self.beat.store(now, Ordering::Relaxed);
        self.tick_delay.add_us(late_ms.saturating_mul(1_000));
    }

    /// When the node's timer last fired.
    pub(in crate::node) fn beat(&self) -> Millis {
        self.beat.load(Ordering::Relaxed)
    }

    /// How late the timer was.
    pub(in crate::node) fn tick_delay(&self) -> HistogramNumbers {
        self.tick_delay.numbers()
    }

    pub(in crate::node) fn note_failed_catch_up(&self) {
        self.failed_catch_ups.fetch_add(1, Ordering::Relaxed);
    }

    pub(in crate::node) fn failed_catch_ups(&self) -> u64 {
        self.failed_catch_ups.load(Ordering::Relaxed)
    }

    /// A link has ended, for the reason that this word says.
    pub(in crate::node) fn note_link_end(&self, reason: &'static str) {
        *self.link_ends.lock().entry(reason).or_default() += 1;
    }

    /// How many links have ended, by reason.
    pub(in crate::node) fn link_ends(&self) -> BTreeMap<&'static str, u64> {
        self.link_ends.lock().clone()
    }

    /// See [`SplitWatch::look`].
    pub(in crate::node) fn look_for_splits(
        &self,
        network: &Network,
        forget_after_ms: Millis,
        now: Millis,
    ) -> Vec<News> {
        self.splits.lock().look(network, forget_after_ms, now)
    }

    /// See [`Unlinked::look`].
    pub(in crate::node) fn look_for_links(
        &self,
        network: &Network,
        is_wanted: impl Fn(&NodeName) -> bool,
        why: impl Fn(&NodeName) -> Option<String>,
        now: Millis,
    ) -> Option<News> {
        self.unlinked.lock().look(network, is_wanted, why, now)
    }

    /// A line for people about members that are up and have had no link for long.
    pub(in crate::node) fn unlinked(&self, now: Millis) -> Option<String> {
        self.unlinked.lock().text(now)
    }

    /// See [`Unheard::look`].
    pub(in crate::node) fn look_for_datagrams(
        &self,
        links: &[LinkSince],
        members: &[MemberInfo],
        now: Millis,
    ) -> Option<News> {
        self.unheard.lock().look(links, members, now)
    }

    /// A line for people about linked members whose datagrams do not come through.
    pub(in crate::node) fn unheard(&self, now: Millis) -> Option<String> {
        self.unheard.lock().text(now)
    }

    /// When membership last had a linked member up; since when it is linked, if never.
    pub(in crate::node) fn last_heard(&self, name: &NodeName) -> Option<Millis> {
        self.unheard.lock().last_heard(name)
    }

    /// This node begins to serve alone, though it has peers; or it has a link now.
    pub(in crate::node) fn note_alone(&self, is_alone: bool) {
        self.is_alone.store(is_alone, Ordering::Relaxed);
    }

    /// Whether it began to serve alone, though it has peers, and has had no link since.
    pub(in crate::node) fn is_alone(&self) -> bool {
        self.is_alone.load(Ordering::Relaxed)
    }

    /// Whom this node knew when it was started.
    pub(in crate::node) fn expect(&self, unseen: Unseen) {
        self.splits.lock().expect(unseen);
    }

    /// Whom this node knew when it was started, and has not met since.
    pub(in crate::node) fn unmet(&self) -> BTreeSet<NodeName> {
        self.splits.lock().unmet()
    }

    /// That life of a member has said farewell over its link.
    pub(in crate::node) fn note_farewell(&self, name: NodeName, life: Incarnation) {
        self.splits.lock().note_farewell(name, life);
    }

    /// So many changes were known here when something last came over the link of a member, which ends now.
    pub(in crate::node) fn note_last_word(&self, name: NodeName, known: u64, now: Millis) {
        self.splits.lock().note_last_word(name, known, now);
    }

    /// Who has said farewell over its link, and is not back.
    pub(in crate::node) fn parted(&self) -> BTreeSet<NodeName> {
        self.splits.lock().parted()
    }

    /// Who is not missed any more, and not back.
    pub(in crate::node) fn given_up(&self) -> BTreeSet<NodeName> {
        self.splits.lock().given_up()
    }

    /// An operator says that a member does not come back.
    pub(in crate::node) fn give_up(&self, name: &NodeName) {
        self.splits.lock().give_up(name);
    }

    /// The Delete group has these members now.
    pub(in crate::node) fn note_group(&self, members: impl Iterator<Item = NodeName>) {
        self.splits.lock().note_listed(members.collect());
    }

    /// Who is silent.
    pub(in crate::node) fn silent(&self, now: Millis) -> Option<SilentInfo> {
        self.splits.lock().silent(now)
    }

    /// How often members have gone silent.
    pub(in crate::node) fn splits(&self) -> u64 {
        self.splits.lock().count()
    }

    /// What is behind, and since when.
    pub(in crate::node) fn lag(&self) -> parking_lot::MutexGuard<'_, Lag> {
        self.lag.lock()
    }
}

/// When this node made its changes, to within the time between two samples, and since when changes are missing.
#[derive(Default)]
pub(in crate::node) struct Lag {
    own: Incarnation,
    /// The own tick, and when it was first seen; rising.
    samples: VecDeque<(Tick, Millis)>,
    missing_since: Option<Millis>,
}

impl Lag {
    /// To be called every second: the own life and its last tick, and whether changes are missing here.
    pub(in crate::node) fn sample(
        &mut self,
        own: Incarnation,
        tick: Tick,
        is_missing: bool,
        now: Millis,
    ) {
        if self.own != own {
            self.own = own;
            self.samples.clear();
        }
        if self.samples.back().is_none_or(|(last, _)| *last < tick) {
            self.samples.push_back((tick, now));
        }
        while self.samples.len() > SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.missing_since = is_missing.then(|| self.missing_since.unwrap_or(now));
    }

    /// The age of the oldest own change that a peer with this acknowledgement lacks, milliseconds; at most as
    /// old as the samples.
    pub(in crate::node) fn behind_ms(&self, acked: Tick, now: Millis) -> Millis {
        let place = self.samples.partition_point(|(tick, _)| *tick <= acked);
        self.samples.get(place).map_or(0, |(_, at)| now.saturating_sub(*at))
    }

    /// For how long without pause changes have been missing, milliseconds.
    pub(in crate::node) fn missing_ms(&self, now: Millis) -> Millis {
        self.missing_since.map_or(0, |since| now.saturating_sub(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(number: u64) -> Tick {
        Tick::new(number).unwrap()
    }

    #[test]
    fn a_peer_is_behind_since_the_first_change_that_it_has_not_confirmed() {
        let mut lag = Lag::default();
        let own = Incarnation(7);
        for second in 0..10 {
            // Five changes each second, until second 6.
            lag.sample(own, tick(1 + 5 * second.min(6)), false, second * 1_000);
        }
        assert_eq!(lag.behind_ms(tick(31), 9_500), 0);
        assert_eq!(lag.behind_ms(tick(30), 9_500), 3_500);
        assert_eq!(lag.behind_ms(tick(6), 9_500), 7_500);
        assert_eq!(lag.behind_ms(Tick::default(), 9_500), 9_500);
        lag.sample(Incarnation(8), tick(1), false, 20_000);
        assert_eq!(lag.behind_ms(Tick::default(), 20_500), 500, "another life counts anew");
    }

    #[test]
    fn samples_are_bounded_and_missing_is_counted_without_pause() {
        let mut lag = Lag::default();
        for second in 1..=2 * SAMPLES_MAX as u64 {
            lag.sample(Incarnation(7), tick(second), second % 10 != 0, second * 1_000);
        }
        assert_eq!(lag.samples.len(), SAMPLES_MAX);
        assert_eq!(lag.missing_ms(9_999_000), 0);
        lag.sample(Incarnation(7), tick(9_000), true, 10_000_000);
        lag.sample(Incarnation(7), tick(9_000), true, 10_005_000);
        assert_eq!(lag.missing_ms(10_006_000), 6_000);
    }
}
