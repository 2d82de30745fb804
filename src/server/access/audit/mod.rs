//! The audit log: what a node does about who may do what, for those who must be able to say later who did it.
//!
//! | file | what |
//! |---|---|
//! | this one | the bounded queue to the thread that writes the file, which is the node's |
//! | [`record`] | one line |
//! | [`repeats`] | what may come thousands of times per second, as one line with a count |
//! | `witness` | what a connection's requests are, as records |
//!
//! Whoever is served never waits for it: what the queue has no room for is counted, and the count is written
//! when there is room again.

pub(crate) mod record;
pub(crate) mod repeats;
pub(in crate::server) mod witness;

use std::collections::VecDeque;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::model::count::count_of;
use crate::model::ids::Millis;
use crate::rt;
use record::{Entry, Event, Outcome, Record};
use repeats::{Bounds, Repeats};

/// The action of records about peers that this node has called.
const DIAL: &str = "dial";

/// Most records that wait for the disk; further ones are counted and lost.
pub(crate) const WAITING_MAX: usize = 4_096;
/// Most that wait where one more is taken that tells of nothing that was done: so a flood of logins and refusals takes no
/// room from changes.
const WAITING_UNDONE_MAX: usize = 3_072;
/// For so long it is a warning that records were lost.
const LOST_MEMORY_MS: Millis = 600_000;

/// What is recorded, and not written yet. Clones are one.
#[derive(Clone, Default)]
pub struct Audit(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    /// There is something for the writer.
    news: Condvar,
}

struct State {
    /// Invariant: at most [`WAITING_MAX`].
    waiting: VecDeque<Entry>,
    /// Of clients.
    repeats: Repeats,
    /// Good logins of clients: apart, because many more users log in than are refused.
    logins: Repeats,
    /// Of clients that have not logged in, and of refused peers: apart, so that neither takes room from the others, nor
    /// from what clients do.
    strangers: Repeats,
    peers: Repeats,
    /// Records that were lost and not told of yet: because the disk failed, before all that waits; and because too many
    /// waited, behind these.
    lost_on_disk: u64,
    lost: u64,
    /// All that were lost.
    lost_ever: u64,
    /// Those of late, by why.
    lately_on_disk: Lately,
    lately: Lately,
    /// All that were written.
    written: u64,
    /// Why the file is not, or not the one, where it should be: for people.
    place_trouble: Option<String>,
    wants_reopening: bool,
    is_closed: bool,
}

/// Records that were lost of late.
#[derive(Default)]
struct Lately {
    last: Option<Millis>,
    count: u64,
    /// The node's log tells of it.
    is_logged: bool,
}

impl Lately {
    fn note(&mut self, count: u64, now: Millis) {
        if self.count_at(now).is_none() {
            *self = Self::default();
        }
        self.last = Some(now);
        self.count = self.count.saturating_add(count);
    }

    /// How many there were, if the last one was not long ago.
    fn count_at(&self, now: Millis) -> Option<u64> {
        self.last.filter(|last| now.saturating_sub(*last) < LOST_MEMORY_MS).map(|_| self.count)
    }
}

impl Default for State {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            repeats: Repeats::new(Bounds::CLIENTS),
            logins: Repeats::new(Bounds::LOGINS),
            strangers: Repeats::new(Bounds::STRANGERS),
            peers: Repeats::new(Bounds::STRANGERS),
            lost_on_disk: 0,
            lost: 0,
            lost_ever: 0,
            lately_on_disk: Lately::default(),
            lately: Lately::default(),
            written: 0,
            place_trouble: None,
            wants_reopening: false,
            is_closed: false,
        }
    }
}

impl State {
    fn push(&mut self, entry: Entry, now: Millis) {
        let most = if entry.record.tells_of_a_deed() { WAITING_MAX } else { WAITING_UNDONE_MAX };
        if self.waiting.len() < most {
            self.waiting.push_back(entry);
        } else {
            self.lost = self.lost.saturating_add(entry.count);
            self.lost_ever = self.lost_ever.saturating_add(entry.count);
            self.lately.note(entry.count, now);
        }
    }

    fn push_due(&mut self, now: Millis, time_ms: Millis) {
        let kept = [&mut self.repeats, &mut self.logins, &mut self.strangers, &mut self.peers];
        let due: Vec<_> = kept.into_iter().flat_map(|repeats| repeats.take_due(now)).collect();
        for (record, count) in due {
            self.push(Entry { time_ms, record, count }, now);
        }
    }
}

/// What the writer is to do.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// To be written, in this order.
    pub(crate) entries: Vec<Entry>,
    /// Before that: the file is to be opened anew, because it was moved.
    pub(crate) reopen: bool,
    /// Too many wait, so some are lost, and the node's log does not tell of it yet: how many are lost in all.
    pub(crate) overrun: Option<u64>,
    /// This was the last.
    pub(crate) is_closed: bool,
}

impl Audit {
    /// Records what has happened at this moment. Quick: no waiting, no I/O.
    pub(crate) fn note(&self, record: Record) {
        self.note_at(record, rt::now(), rt::wall_clock_ms());
    }

    /// The same of what may come thousands of times per second: the first is written at once, and then, every ten
    /// seconds, how many there were.
    pub(crate) fn note_repeated(&self, record: Record) {
        self.note_repeated_at(record, rt::now(), rt::wall_clock_ms());
    }

    /// The same of a client that has logged in, or of a connection that is not its any more: whoever may log in can do it
    /// as often as it likes.
    pub(crate) fn note_login(&self, record: Record) {
        self.note_counted(record, rt::now(), rt::wall_clock_ms(), |state| &mut state.logins);
    }

    /// The same of clients that have not logged in, who can do it for as long as they like: the others are told as a
    /// count every ten minutes.
    pub(crate) fn note_stranger(&self, record: Record) {
        self.note_counted(record, rt::now(), rt::wall_clock_ms(), |state| &mut state.strangers);
    }

    /// Who called at the gossip port was refused, for a reason in the node's own words; `target`: what that one calls
    /// itself, or its key. The first of an address and a reason is written at once, the others as a count. Quick,
    /// also for the thread of membership.
    pub(crate) fn note_refused_peer(
        &self,
        address: IpAddr,
        reason: &'static str,
        target: Option<&str>,
    ) {
        self.note_peer(Record::peer_refused(address, reason), target);
    }

    /// The same of who was called by this node, and is not what it should be.
    pub(crate) fn note_dialled_peer(
        &self,
        address: IpAddr,
        reason: &'static str,
        target: Option<&str>,
    ) {
        let record = Record { action: Some(DIAL), ..Record::peer_refused(address, reason) };
        self.note_peer(record, target);
    }

    fn note_peer(&self, record: Record, target: Option<&str>) {
        let record = target.into_iter().fold(record, Record::target);
        self.note_counted(record, rt::now(), rt::wall_clock_ms(), |state| &mut state.peers);
    }

    fn note_at(&self, record: Record, now: Millis, time_ms: Millis) {
        let mut state = self.0.state.lock();
        // What was counted before this comes before it.
        state.push_due(now, time_ms);
        state.push(Entry { time_ms, record, count: 1 }, now);
        drop(state);
        self.0.news.notify_one();
    }

    fn note_repeated_at(&self, record: Record, now: Millis, time_ms: Millis) {
        self.note_counted(record, now, time_ms, |state| &mut state.repeats);
    }

    fn note_counted(
        &self,
        record: Record,
        now: Millis,
        time_ms: Millis,
        repeats: impl Fn(&mut State) -> &mut Repeats,
    ) {
        let mut state = self.0.state.lock();
        state.push_due(now, time_ms);
        let Some(record) = repeats(&mut state).note(record, now) else { return };
        state.push(Entry { time_ms, record, count: 1 }, now);
        drop(state);
        self.0.news.notify_one();
    }

    /// The file was moved by whoever keeps old logs: the writer opens it anew.
    pub(crate) fn reopen(&self) {
        self.0.state.lock().wants_reopening = true;
        self.0.news.notify_one();
    }

    /// Nothing comes any more but this: the writer ends once it has written what there is.
    pub(crate) fn close(&self, last: Option<Record>) {
        let mut state = self.0.state.lock();
        let time_ms = rt::wall_clock_ms();
        state.push_due(Millis::MAX, time_ms);
        if let Some(record) = last.filter(|_| !state.is_closed) {
            state.push(Entry { time_ms, record, count: 1 }, rt::now());
        }
        state.is_closed = true;
        drop(state);
        self.0.news.notify_one();
    }

    /// Waits for something to do, for this long at most; only for the thread that writes.
    #[must_use]
    pub(crate) fn next(&self, patience: Duration) -> Work {
        let mut state = self.0.state.lock();
        if state.waiting.is_empty() && !state.wants_reopening && !state.is_closed {
            let _ = self.0.news.wait_for(&mut state, patience);
        }
        let time_ms = rt::wall_clock_ms();
        state.push_due(rt::now(), time_ms);
        let dropped = |count| {
            let record = Record::new(Event::Audit, Outcome::Dropped);
            (count > 0).then_some(Entry { time_ms, record, count })
        };
        let before = dropped(std::mem::take(&mut state.lost_on_disk));
        let behind = dropped(std::mem::take(&mut state.lost));
        let waiting = std::mem::take(&mut state.waiting);
        let entries = before.into_iter().chain(waiting).chain(behind).collect();
        let reopen = std::mem::take(&mut state.wants_reopening);
        let is_news = state.lately.count > 0 && !state.lately.is_logged;
        state.lately.is_logged |= is_news;
        let overrun = is_news.then_some(state.lost_ever);
        Work { entries, reopen, overrun, is_closed: state.is_closed }
    }

    /// The writer tells what has become of some records: so many are written, and these could not be.
    pub(crate) fn wrote(&self, written: usize, lost: &[Entry]) {
        let mut state = self.0.state.lock();
        state.written = state.written.saturating_add(written as u64);
        for entry in lost {
            state.lost_on_disk = state.lost_on_disk.saturating_add(entry.count);
            // What is told as dropped was counted before.
            if entry.record.outcome != Outcome::Dropped {
                state.lost_ever = state.lost_ever.saturating_add(entry.count);
                state.lately_on_disk.note(entry.count, rt::now());
            }
        }
    }

    /// The writer tells whether the file is where it should be, and if not, why, for people. Whether that is news.
    pub(crate) fn note_place(&self, trouble: Option<String>) -> bool {
        let mut state = self.0.state.lock();
        let is_news = state.place_trouble != trouble;
        state.place_trouble = trouble;
        is_news
    }

    /// How many records were written, and how many were lost, since the start.
    #[must_use]
    pub(crate) fn counts(&self) -> (u64, u64) {
        let state = self.0.state.lock();
        (state.written, state.lost_ever)
    }

    /// What an operator should know: the file is not where it should be; records were lost of late.
    pub(crate) fn warnings(&self, now: Millis) -> Vec<String> {
        let state = self.0.state.lock();
        let of = |lately: &Lately, why: &str| {
            lately.count_at(now).map(|count| {
                let lost = count_of(count, "event is", "events are");
                format!(
                    "{lost} missing in the audit log, the last one of the last 10 minutes: {why}"
                )
            })
        };
        let disk = "it could not be written (the node's log says why)";
        let crowd =
            "more came at once than its disk takes; look in it for who or what caused so many";
        let lost = of(&state.lately_on_disk, disk).into_iter().chain(of(&state.lately, crowd));
        state.place_trouble.iter().cloned().chain(lost).collect()
    }
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Audit")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(user: &str) -> Record {
        Record::new(Event::Login, Outcome::Accepted).user(user)
    }

    fn next(audit: &Audit) -> Work {
        audit.next(Duration::ZERO)
    }

    #[test]
    fn records_come_out_in_their_order_and_what_has_no_room_is_counted_once() {
        let audit = Audit::default();
        let changed =
            |number: usize| Record::new(Event::User, Outcome::Done).target(&number.to_string());
        for number in 0..WAITING_MAX + 3 {
            audit.note_at(changed(number), 0, 7);
        }
        let work = next(&audit);
        assert_eq!(work.entries.len(), WAITING_MAX + 1);
        assert_eq!(work.entries[5], Entry { time_ms: 7, record: changed(5), count: 1 });
        let last = work.entries.last().unwrap();
        assert_eq!((last.record.event, last.record.outcome), (Event::Audit, Outcome::Dropped));
        assert_eq!(last.count, 3);
        assert!(next(&audit).entries.is_empty());
        assert_eq!(audit.counts(), (0, 3));
    }

    #[test]
    fn a_flood_leaves_room_for_what_was_done() {
        let audit = Audit::default();
        for number in 0..WAITING_MAX + 3 {
            audit.note_at(login(&number.to_string()), 0, 7);
        }
        let done = Record::new(Event::Acl, Outcome::Done);
        let begun = Record::new(Event::Admin, Outcome::Begun);
        audit.note_at(done.clone(), 0, 8);
        audit.note_at(begun.clone(), 0, 8);
        let work = next(&audit);
        let told: Vec<_> = work.entries.into_iter().map(|entry| entry.record).collect();
        assert!(told.contains(&done) && told.contains(&begun), "{:?}", told.last());
        assert_eq!(told.len(), WAITING_UNDONE_MAX + 3);
    }

    #[test]
    fn that_records_were_lost_is_told_once_and_a_warning_for_ten_minutes() {
        let audit = Audit::default();
        let flood = |now: Millis| {
            for number in 0..WAITING_UNDONE_MAX + 5 {
                audit.note_at(login(&number.to_string()), now, 0);
            }
            next(&audit).overrun
        };
        assert!(audit.warnings(0).is_empty());
        assert_eq!((flood(1_000), flood(2_000), flood(500_000)), (Some(5), None, None));
        let warnings = audit.warnings(LOST_MEMORY_MS + 499_999);
        assert!(
            matches!(&warnings[..], [text] if text.starts_with("15 events are missing")),
            "{warnings:?}"
        );
        assert!(audit.warnings(LOST_MEMORY_MS + 500_000).is_empty());
        assert_eq!(flood(LOST_MEMORY_MS + 600_000), Some(20), "it happens again");
        assert!(audit.warnings(LOST_MEMORY_MS + 600_000)[0].starts_with("5 events"));
    }

    #[test]
    fn what_the_disk_did_not_take_is_told_with_the_next() {
        let audit = Audit::default();
        audit.note_at(login("a"), 0, 0);
        audit.note_at(login("b"), 0, 0);
        let entries = next(&audit).entries;
        audit.wrote(1, &entries[1..]);
        for _ in 0..3 {
            // Also if the disk does not take that either.
            let entries = next(&audit).entries;
            assert_eq!(entries.len(), 1);
            assert_eq!((entries[0].record.outcome, entries[0].count), (Outcome::Dropped, 1));
            audit.wrote(0, &entries);
        }
        assert_eq!(audit.counts(), (1, 1));
        // Before what has come since.
        audit.note_at(login("c"), 0, 0);
        let entries = next(&audit).entries;
        let outcomes: Vec<_> = entries.iter().map(|entry| entry.record.outcome).collect();
        assert_eq!(outcomes, [Outcome::Dropped, Outcome::Accepted]);
    }

    #[test]
    fn the_writer_is_told_to_open_the_file_anew_once_and_to_end() {
        let audit = Audit::default();
        audit.reopen();
        assert!(next(&audit).reopen);
        assert!(!next(&audit).reopen);
        audit.note_repeated_at(login("a"), 0, 0);
        audit.note_repeated_at(login("a"), 1, 1);
        audit.note_repeated_at(login("a"), 2, 2);
        audit.close(Some(Record::new(Event::Audit, Outcome::Ended)));
        let work = next(&audit);
        // What was counted is not kept for later: there is none.
        assert_eq!(work.entries.iter().map(|entry| entry.count).collect::<Vec<_>>(), [1, 2, 1]);
        assert_eq!(work.entries[2].record.outcome, Outcome::Ended);
        assert!(work.is_closed);
    }
}
