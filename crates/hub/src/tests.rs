//! The hub as its users see it: order, overflow, starting over.

use super::*;
use crate::engine::changes::{MintTock, SendTopic};
use crate::engine::{Config, Input, TICK_INTERVAL_MS, WriteOp};
use crate::gone::{GONE_LOG_MAX, GoneLook};
use crate::inbox::{MONITOR_QUEUE_MAX, WATCH_QUEUE_MAX, Waiting, WatchItem};
use crate::log_queue::LogItem;
use crate::model::chain::Chain;
use crate::model::entry::{Entry, EntryParts};
use crate::model::ids::{Event, Incarnation, NodeId, NodeIndex, NodeName, Tick, Tock};
use crate::replica::Committed;
use crate::replica::apply::Conflict;
use crate::replica::watch::{WATCHES_MAX, Watchers};
use crate::storage::{Batch, Op};

const HOLDER: Holder = Holder::KeyHolder;

fn hub() -> Hub {
    let id = NodeId { name: NodeName::new("a").unwrap(), incarnation: Incarnation(1) };
    let config = Config::new(id, 1);
    let hub = Hub::new(Engine::new(config));
    hub.handle(Input::Found, 0);
    hub
}

fn write<'a>(path: &str, value: Option<&'a [u8]>) -> Write<'a> {
    Write::new(path.parse::<Path>().unwrap(), value)
}

fn send(hub: &Hub, topic: &str, data: &[u8]) {
    hub.handle(SendTopic { topic: &topic.parse().unwrap(), data }, 0);
}

fn set(hub: &Hub, path: &str, value: Option<&[u8]>) {
    hub.write(write(path, value), false).0.unwrap();
}

/// A version that is in no tree: usually, its event is one that no node has made.
fn version(path: &str, tick: u64, value: Option<&[u8]>) -> Committed {
    let event = Event { node: NodeIndex(0), tick: Tick::new(tick).unwrap() };
    let chain = Chain::first(event);
    let tock = Tock::new(tick).unwrap();
    let parts = EntryParts { value, chain: &chain, tock, origin: None, time: None, extra: &[] };
    Committed { path: path.parse().unwrap(), entry: Entry::new(&parts) }
}

fn tombstone(path: &str, tick: u64) -> Committed {
    version(path, tick, None)
}

/// Both versions are the same; the hub does not compare them.
fn conflict(path: &str, value: &[u8]) -> Report {
    let Committed { path, entry } = version(path, 9, Some(value));
    let (winner, loser) = (entry.clone(), entry);
    Report::Conflict(Box::new(Conflict { path, winner, loser, took_theirs: true }))
}

fn notify(out: &mut Outbox, watcher: WatchId, change: Committed) {
    out.push(Output::Notify { watchers: vec![watcher].into(), change });
}

/// Lets time go by until all tombstones are purged.
fn purge(hub: &Hub) {
    // Alone, it is the Delete group's only member before long.
    let ticks = (1..=100_000).map(|n| n * TICK_INTERVAL_MS);
    let purged_at = ticks.into_iter().find(|now| {
        hub.handle(Input::Tick, *now);
        hub.read(|engine| engine.tree().tombstone_len()) == 0
    });
    assert!(purged_at.is_some());
}

fn texts(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| format!("a.{name}")).collect()
}

/// What waits for a watch: paths of changes, numbers of conflicts.
fn taken(inbox: &Inbox, id: WatchId) -> Vec<String> {
    let Waiting::Items(items) = inbox.take_items(id) else { panic!("overflowed") };
    let shown = |item: &WatchItem| match item {
        WatchItem::Changes(bundle) => bundle.changes().iter().map(|c| c.path.to_string()).collect(),
        WatchItem::ConflictsUpTo(number) => vec![number.to_string()],
    };
    items.iter().flat_map(shown).collect()
}

/// Starts a watch of "a" over: what its client must be told is gone, and what of the snapshot it
/// gets.
fn resume(hub: &Hub, id: WatchId, inbox: &Inbox) -> (Vec<String>, Vec<String>) {
    assert!(matches!(inbox.take_items(id), Waiting::Overflowed));
    let Some(Resumption::From(mut walk)) = hub.resume_watch(id, inbox) else { panic!("lost") };
    let mut gone = Vec::new();
    loop {
        match walk.look(&scope("a")) {
            GoneLook::Tell(deletion) => gone.push(deletion.path.to_string()),
            GoneLook::Skip => {}
            GoneLook::End => break,
        }
    }
    let entries = walk.tree().subtree(&"a".parse().unwrap());
    let has = entries.filter(|(_, entry)| !walk.had().contains(entry.newest()));
    (gone, has.map(|(path, _)| path.to_string()).collect())
}

fn scope(top: &str) -> WatchScope {
    WatchScope { top: top.parse().unwrap(), depth_min: 0, depth_max: None }
}

#[test]
fn a_watch_gets_what_its_snapshot_lacks_and_nothing_else() {
    let hub = hub();
    set(&hub, "a.old", Some(&[1]));
    let inbox = Arc::new(Inbox::new());
    let (id, snapshot) = hub.watch(scope("a"), WatchContent::Changes, &inbox, &HOLDER).unwrap();
    set(&hub, "a.new", Some(&[2]));
    set(&hub, "b", Some(&[3]));
    assert_eq!(snapshot.len(), 1);
    assert_eq!(taken(&inbox, id), ["a.new"]);
    hub.unwatch(id);
    set(&hub, "a.new", Some(&[4]));
    assert_eq!(inbox.bytes(), 0);
}

#[test]
fn a_watch_that_looks_again_knows_what_of_its_queue_is_older_than_what_it_sees() {
    let hub = hub();
    let inbox = Arc::new(Inbox::new());
    let (id, _) = hub.watch(scope("a"), WatchContent::Changes, &inbox, &HOLDER).unwrap();
    set(&hub, "a.old", Some(&[1]));
    set(&hub, "a.older", Some(&[1]));
    let (tree, older) = hub.look_again(id, &inbox).unwrap();
    set(&hub, "a.new", Some(&[2]));
    assert_eq!((tree.len(), older), (2, 2));
    let Waiting::Items(items) = inbox.take_first(id, older) else { panic!("overflowed") };
    assert_eq!(items.len(), older);
    assert_eq!(taken(&inbox, id), ["a.new"]);
    for _ in 0..=WATCH_QUEUE_MAX {
        set(&hub, "a.busy", Some(&[3]));
    }
    assert!(hub.look_again(id, &inbox).is_none());
    resume(&hub, id, &inbox);
    assert_eq!(hub.look_again(id, &inbox).unwrap().1, 0);
    hub.unwatch(id);
    assert!(hub.look_again(id, &inbox).is_none());
}

#[test]
fn what_a_watch_withholds_is_charged_until_it_ends() {
    let hub = hub();
    let inbox = Arc::new(Inbox::new());
    let account = hub.client_memory().open(&inbox, 0);
    let (id, _) = hub.watch(scope("a"), WatchContent::Changes, &inbox, &HOLDER).unwrap();
    inbox.note_withheld(id, 100_000);
    assert_eq!((hub.client_memory().used(), account.bytes()), (100_000, (0, 100_000)));
    inbox.note_withheld(id, 50_000);
    assert_eq!(hub.client_memory().used(), 50_000);
    hub.unwatch(id);
    assert_eq!((hub.client_memory().used(), account.bytes()), (0, (0, 0)));
}

#[test]
fn a_watch_that_overflows_starts_over_and_misses_nothing() {
    let hub = hub();
    set(&hub, "a.before", Some(&[1]));
    set(&hub, "a.gone", Some(&[1]));
    let inbox = Arc::new(Inbox::new());
    let (id, _) = hub.watch(scope("a"), WatchContent::Changes, &inbox, &HOLDER).unwrap();
    set(&hub, "a.first", Some(&[2]));
    set(&hub, "a.gone", None);
    for i in 0..=WATCH_QUEUE_MAX {
        set(&hub, "a.busy", Some(&[(i & 0x7f) as u8]));
    }
    set(&hub, "a.last", Some(&[3]));
    assert!(matches!(inbox.take_items(id), Waiting::Overflowed));
    assert_eq!(inbox.bytes(), 0, "memory stays bounded");
    assert_eq!(resume(&hub, id, &inbox), (vec![], texts(&["busy", "first", "gone", "last"])));
    set(&hub, "a.after", Some(&[4]));
    assert_eq!(taken(&inbox, id), ["a.after"]);
}

#[test]
fn changes_of_the_moment_in_which_a_watch_overflows_are_not_missed_either() {
    let hub = hub();
    let inbox = Arc::new(Inbox::new());
    let (id, _) = hub.watch(scope("a"), WatchContent::Changes, &inbox, &HOLDER).unwrap();
    for _ in 0..WATCH_QUEUE_MAX {
        set(&hub, "a.busy", Some(&[1]));
    }
    // As when a peer's frames come together: the engine has seen all of them when the first is
    // pushed.
    hub.change(|engine, out| {
        for path in ["a.one", "a.two", "a.three"] {
            write_one(engine, write(path, Some(&[2])), false, out).unwrap();
        }
    });
    assert_eq!(resume(&hub, id, &inbox), (vec![], texts(&["busy", "one", "three", "two"])));
}

#[test]
fn a_purge_is_told_only_to_a_watch_that_starts_over_and_a_dropped_value_to_all() {
    let hub = hub();
    let (quick, slow) = (Arc::new(Inbox::new()), Arc::new(Inbox::new()));
    let (quick_id, _) = hub.watch(scope("a"), WatchContent::Changes, &quick, &HOLDER).unwrap();
    let (slow_id, _) = hub.watch(scope("a"), WatchContent::Changes, &slow, &HOLDER).unwrap();
    // A deletion with an event that was seen before: the client has been told.
    set(&hub, "b.first", Some(&[1]));
    let known = tombstone("a.known", 1);
    hub.change(|_, out| {
        for _ in 0..=WATCH_QUEUE_MAX {
            notify(out, slow_id, version("b.busy", 1 << 20, Some(&[1])));
        }
    });
    let news = tombstone("a.news", 1 << 21);
    let value = version("a.value", 1, Some(&[3]));
    set(&hub, "a.again", Some(&[7]));
    let again = tombstone("a.again", 1 << 23);
    let elsewhere = tombstone("c", 1 << 24);
    let old_news = tombstone("a.too", 1 << 25);
    hub.change(|_, out| {
        let purged = vec![known, news, again, elsewhere];
        out.push(Output::Gone { purged, dropped: vec![old_news, value] });
    });
    assert_eq!(taken(&quick, quick_id), texts(&["again", "value"]), "tombstones were told before");
    let told = resume(&hub, slow_id, &slow);
    assert_eq!(told, (texts(&["news", "value", "too"]), texts(&["again"])));
}

#[test]
fn what_the_node_itself_purges_is_told_to_a_watch_that_starts_over() {
    let hub = hub();
    set(&hub, "a.kept", Some(&[1]));
    set(&hub, "a.gone", Some(&[1]));
    let inbox = Arc::new(Inbox::new());
    let (id, _) = hub.watch(scope("a"), WatchContent::Changes, &inbox, &HOLDER).unwrap();
    for _ in 0..=WATCH_QUEUE_MAX {
        set(&hub, "a.busy", Some(&[1]));
    }
    set(&hub, "a.gone", None);
    purge(&hub);
    assert_eq!(resume(&hub, id, &inbox), (texts(&["gone"]), texts(&["busy"])));
}

#[test]
fn a_deletion_that_waited_when_the_watch_overflowed_is_told_though_it_was_purged_before() {
    let hub = hub();
    let inbox = Arc::new(Inbox::new());
    let (id, _) = hub.watch(scope("a"), WatchContent::Changes, &inbox, &HOLDER).unwrap();
    // Deleted, and the deletion waits in the queue; purged; only then too much comes.
    let deletion = tombstone("a.gone", 1 << 20);
    hub.change(|_, out| {
        notify(out, id, deletion.clone());
        out.push(Output::Gone { purged: vec![deletion], dropped: Vec::new() });
    });
    for _ in 0..WATCH_QUEUE_MAX {
        set(&hub, "a.busy", Some(&[1]));
    }
    assert_eq!(resume(&hub, id, &inbox), (texts(&["gone"]), texts(&["busy"])));
}

#[test]
fn a_dropped_value_is_told_once_to_a_watch_that_overflows_in_that_moment() {
    let hub = hub();
    let inbox = Arc::new(Inbox::new());
    let (id, _) = hub.watch(scope("a"), WatchContent::Changes, &inbox, &HOLDER).unwrap();
    for _ in 0..WATCH_QUEUE_MAX {
        set(&hub, "a.busy", Some(&[1]));
    }
    let values = [version("a.x", 1 << 20, Some(&[1])), version("a.y", 1 << 21, Some(&[1]))];
    hub.change(|_, out| {
        out.push(Output::Gone { purged: Vec::new(), dropped: values.to_vec() });
    });
    assert_eq!(resume(&hub, id, &inbox), (texts(&["x", "y"]), texts(&["busy"])));
}

#[test]
fn what_many_watches_lose_in_one_moment_is_kept_and_counted_once() {
    const WATCHES: usize = 64;
    let (hub, inbox) = (hub(), Arc::new(Inbox::new()));
    let account = hub.client_memory().open(&inbox, 0);
    let watch = || hub.watch(scope("a"), WatchContent::Changes, &inbox, &HOLDER).unwrap().0;
    let watches: Vec<WatchId> = (0..WATCHES).map(|_| watch()).collect();
    let count = WATCH_QUEUE_MAX as u64 + 1;
    let deletions: Vec<_> =
        (0..count).map(|n| tombstone(&format!("a.gone:{n}"), (1 << 20) + n)).collect();
    let size = |d: &Committed| d.path.as_bytes().len() + d.entry.memory_bytes() + 64;
    let bytes: usize = deletions.iter().map(size).sum();
    let watchers = Watchers::from(watches.clone());
    hub.change(|_, out| {
        for change in deletions {
            out.push(Output::Notify { watchers: watchers.clone(), change });
        }
    });
    let kept = hub.client_memory().used();
    assert!((bytes..2 * bytes).contains(&kept), "{kept} bytes for {bytes} bytes of deletions");
    assert!(account.bytes().1 >= WATCHES * bytes, "each of them keeps all of it alive");
    // Each starts over by itself; the first to do so takes nothing from the others.
    let (gone, has) = resume(&hub, watches[0], &inbox);
    assert_eq!((gone.len(), has.len()), (count as usize, 0));
    let (gone, _) = resume(&hub, watches[1], &inbox);
    assert_eq!(gone.len(), count as usize);
    watches.iter().for_each(|id| hub.unwatch(*id));
    drop((account, inbox));
    assert_eq!(hub.client_memory().used(), 0);
}

#[test]
fn a_deletion_that_was_dropped_is_told_once_though_it_is_purged_while_the_watch_is_lapsed() {
    // One watch, of which it is asked what its client knows; and so many that nobody asks.
    for count in [1, 65] {
        let hub = hub();
        set(&hub, "a.gone", Some(&[1]));
        let inbox = Arc::new(Inbox::new());
        let watch = || hub.watch(scope("a"), WatchContent::Changes, &inbox, &HOLDER).unwrap().0;
        let watches: Vec<WatchId> = (0..count).map(|_| watch()).collect();
        set(&hub, "a.gone", None);
        let watchers = Watchers::from(watches.clone());
        hub.change(|_, out| {
            for n in 0..WATCH_QUEUE_MAX as u64 {
                let change = version("a.busy", (1 << 21) + n, Some(&[1]));
                out.push(Output::Notify { watchers: watchers.clone(), change });
            }
        });
        purge(&hub);
        for id in watches {
            assert_eq!(resume(&hub, id, &inbox), (texts(&["gone"]), vec![]));
        }
    }
}

#[test]
fn a_watch_for_which_too_much_is_gone_is_lost_and_says_so() {
    let hub = hub();
    let inbox = Arc::new(Inbox::new());
    let (id, _) = hub.watch(scope("a"), WatchContent::Changes, &inbox, &HOLDER).unwrap();
    for _ in 0..=WATCH_QUEUE_MAX {
        set(&hub, "a.busy", Some(&[1]));
    }
    let purged: Vec<_> = (0..=GONE_LOG_MAX as u64)
        .map(|n| tombstone(&format!("a.gone:{n}"), (1 << 20) + n))
        .collect();
    hub.queue(Output::Gone { purged, dropped: Vec::new() });
    assert!(matches!(inbox.take_items(id), Waiting::Overflowed));
    assert!(matches!(hub.resume_watch(id, &inbox), Some(Resumption::Lost)));
    hub.unwatch(id);
}

#[test]
fn a_watch_hears_of_conflicts_if_it_wants_to_each_after_its_change() {
    let hub = hub();
    let watch = |content| {
        let inbox = Arc::new(Inbox::new());
        let (id, _) = hub.watch(scope("a"), content, &inbox, &HOLDER).unwrap();
        (inbox, id)
    };
    let both = watch(WatchContent::ChangesAndConflicts);
    let only = watch(WatchContent::Conflicts);
    let none = watch(WatchContent::Changes);
    let watchers = Watchers::from(vec![both.1, only.1, none.1]);
    let found = |path: &str, number| {
        hub.change(|_, out| {
            let (watchers, change) = (watchers.clone(), version(path, 9, Some(&[1])));
            out.push(Output::Notify { watchers: watchers.clone(), change });
            out.push(Output::NotifyConflict { watchers, number });
        });
    };
    // Conflicts that the list had when the watch began are reported all the same, if the client has
    // not had them.
    assert_eq!(taken(&both.0, both.1), ["0"]);
    found("a.x", 4);
    found("a.y", 5);
    assert_eq!(taken(&both.0, both.1), ["a.x", "4", "a.y", "5"]);
    assert_eq!(taken(&only.0, only.1), ["5"]);
    assert_eq!(taken(&none.0, none.1), ["a.x", "a.y"]);
}

#[test]
fn a_watch_that_starts_over_is_told_of_conflicts_again() {
    let hub = hub();
    let inbox = Arc::new(Inbox::new());
    let content = WatchContent::ChangesAndConflicts;
    let (id, _) = hub.watch(scope("a"), content, &inbox, &HOLDER).unwrap();
    for _ in 0..=WATCH_QUEUE_MAX {
        set(&hub, "a.busy", Some(&[1]));
    }
    hub.queue(Output::NotifyConflict { watchers: vec![id].into(), number: 7 });
    assert_eq!(resume(&hub, id, &inbox), (vec![], texts(&["busy"])));
    assert_eq!(taken(&inbox, id), ["0"], "the last number of the engine's list");
}

#[test]
fn reports_that_wait_for_the_log_are_bounded_in_bytes_too() {
    let hub = hub();
    let big = vec![0; 3 << 20];
    for _ in 0..4 {
        hub.queue(Output::Report(conflict("a", &big)));
    }
    let (reports, dropped) = hub.take_reports();
    assert_eq!((reports.len(), dropped), (2, 2));
    assert_eq!(hub.take_reports().1, 0);
}

#[test]
fn messages_reach_the_monitors_of_their_topic() {
    let hub = hub();
    let inbox = Arc::new(Inbox::new());
    let id = hub.monitor("t.#".parse().unwrap(), &inbox, &HOLDER).unwrap();
    send(&hub, "t.x", &[1]);
    send(&hub, "u", &[2]);
    let messages = inbox.take_messages(id, 10);
    assert_eq!((messages.len(), messages[0].dropped), (1, 0));
    hub.unmonitor(id);
    send(&hub, "t", &[3]);
    assert_eq!(inbox.take_messages(id, 10).len(), 0);
}

#[test]
fn each_gap_between_messages_is_counted_at_the_message_behind_it() {
    let hub = hub();
    let inbox = Arc::new(Inbox::new());
    let id = hub.monitor("t".parse().unwrap(), &inbox, &HOLDER).unwrap();
    let send_many = |count: usize| (0..count).for_each(|_| send(&hub, "t", &[9]));
    send_many(MONITOR_QUEUE_MAX + 5);
    assert_eq!(inbox.take_messages(id, 1).len(), 1);
    send(&hub, "t", &[1]);
    send_many(7);
    let before = inbox.take_messages(id, MONITOR_QUEUE_MAX - 1);
    assert!(before.iter().all(|heard| heard.dropped == 0), "these came before the first gap");
    send(&hub, "t", &[2]);
    let behind = inbox.take_messages(id, 10);
    let told: Vec<_> = behind.iter().map(|heard| (heard.message.data[0], heard.dropped)).collect();
    assert_eq!(told, [(1, 5), (2, 7)]);
}

#[test]
fn what_waited_for_a_watch_or_a_monitor_is_handed_out_when_it_ends() {
    let (hub, inbox) = (hub(), Arc::new(Inbox::new()));
    let (watch, _) = hub.watch(scope("a"), WatchContent::Changes, &inbox, &HOLDER).unwrap();
    let monitor = hub.monitor("t".parse().unwrap(), &inbox, &HOLDER).unwrap();
    set(&hub, "a.x", Some(&[1]));
    send(&hub, "t", &[0; 1000]);
    let used = || hub.client_memory().used();
    let both = used();
    let queue = inbox.remove_watch(watch);
    let messages = inbox.remove_monitor(monitor);
    assert_eq!((inbox.bytes(), used()), (0, both), "nothing was freed under the lock");
    drop(queue);
    assert!((1000..both).contains(&used()));
    drop(messages);
    assert_eq!(used(), 0);
}

/// As many as are let in.
fn all<T>(mut begin: impl FnMut() -> Result<T, Refusal>) -> Vec<T> {
    std::iter::from_fn(|| begin().ok()).collect()
}

#[test]
fn one_holder_leaves_watches_to_others_and_gets_its_own_back_when_they_end() {
    let (hub, inbox) = (hub(), Arc::new(Inbox::new()));
    let others = Holder::Host([10, 0, 0, 1].into());
    let watch = |holder| hub.watch(scope("a"), WatchContent::Changes, &inbox, holder);
    for _ in 0..2 {
        let own = all(|| watch(&HOLDER));
        assert_eq!((own.len(), hub.scarce().len()), (WATCHES_MAX / 2, 1));
        let theirs = all(|| watch(&others));
        assert_eq!(theirs.len(), WATCHES_MAX / 4);
        for (id, _) in own.iter().chain(&theirs) {
            hub.unwatch(*id);
            // It has ended already.
            hub.unwatch(*id);
        }
        assert_eq!((hub.read(Engine::watch_count), hub.scarce().len()), (0, 0));
    }
}

#[test]
fn one_holder_leaves_monitors_to_others_and_gets_its_own_back_when_they_end() {
    let (hub, inbox) = (hub(), Arc::new(Inbox::new()));
    let others = Holder::Host([10, 0, 0, 1].into());
    let monitor = |holder| hub.monitor("t".parse().unwrap(), &inbox, holder);
    for _ in 0..2 {
        let own = all(|| monitor(&HOLDER));
        assert_eq!((own.len(), hub.scarce().len()), (MONITORS_MAX / 2, 1));
        let theirs = all(|| monitor(&others));
        assert_eq!(theirs.len(), MONITORS_MAX / 4);
        for id in own.iter().chain(&theirs) {
            hub.unmonitor(*id);
            hub.unmonitor(*id);
        }
        assert_eq!((hub.monitor_count(), hub.scarce().len()), (0, 0));
    }
}

fn logged(gates: bool) -> (Hub, Arc<LogQueue>) {
    let id = NodeId { name: NodeName::new("a").unwrap(), incarnation: Incarnation(1) };
    let log = Arc::new(LogQueue::new(gates));
    let hub = Hub::with_log(Engine::new(Config::new(id, 1)), Some(Arc::clone(&log)));
    hub.handle(Input::Found, 0);
    (hub, log)
}

#[test]
fn what_one_change_does_is_one_batch_of_the_log_and_reading_is_none() {
    let (hub, log) = logged(false);
    assert_eq!(log.appended(), 0, "to be ready is nothing to write down");
    let (_, number) = hub.change(|engine, out| {
        write_one(engine, write("a", Some(&[1])), false, out).unwrap();
        write_one(engine, write("b", Some(&[1])), false, out).unwrap();
        out.push(Output::Gone { purged: vec![tombstone("c", 3)], dropped: Vec::new() });
        out.push(Output::Knowledge);
    });
    let (_, none) = hub.handle_logged(MintTock, 0);
    hub.cut_log(CutPurpose::Rotate);
    set(&hub, "d", None);
    set(&hub, "d", Some(&[2]));
    assert_eq!((number, none, log.appended()), (1, 0, 2));
    let items = log.take(std::time::Duration::ZERO).items;
    let [LogItem::Batch { batch: first, .. }, LogItem::Cut(cut), LogItem::Batch { batch, .. }] =
        items.as_slice()
    else {
        panic!("{} items", items.len())
    };
    let ops = |batch: &Batch| -> Vec<String> {
        let show = |op: &Op| match op {
            Op::Put(change) => format!("put {}", change.path),
            Op::Gone { path, .. } => format!("gone {path}"),
        };
        batch.ops.iter().map(show).collect()
    };
    assert_eq!(ops(first), ["put a", "put b", "gone c"]);
    assert_eq!(first.knowledge.as_ref().unwrap().tick, Tick::new(2).unwrap());
    assert_eq!(cut.image.replica.tree.len(), 2);
    assert_eq!((ops(batch), batch.knowledge.is_none()), (vec!["put d".to_owned()], true));
}

#[test]
fn the_log_has_a_change_before_anybody_can_see_it() {
    let (hub, log) = logged(true);
    let (link, queue) = hub.add_link();
    let peer = NodeId { name: NodeName::new("b").unwrap(), incarnation: Incarnation(2) };
    hub.handle(Input::LinkUp { link, peer }, 0);
    let hub = Arc::new(hub);
    let writer = {
        let hub = Arc::clone(&hub);
        std::thread::spawn(move || {
            (0..2_000).for_each(|n| set(&hub, &format!("k:{n}"), Some(&[1])))
        })
    };
    let mut frames = 0;
    while !writer.is_finished() {
        if let link_queue::LinkWork::Frames(taken) = queue.next(1) {
            frames += taken.len() as u64;
            // Greetings are frames, too.
            assert!(log.appended() + 8 >= frames, "{frames} frames, {} batches", log.appended());
        }
    }
    writer.join().unwrap();
}

#[test]
fn after_its_last_record_a_node_makes_no_event_and_another_log_ends_by_itself() {
    let (hub, log) = logged(false);
    let extra = Arc::new(LogQueue::new(false));
    hub.add_extra_log(&extra);
    set(&hub, "a", Some(&[1]));
    hub.remove_extra_log(&extra);
    set(&hub, "b", Some(&[1]));
    hub.stop_log();
    let refused = hub.write(write("a", Some(&[2])), false).0;
    assert!(refused.is_err());
    assert_eq!((log.appended(), extra.appended()), (2, 1));
    let items = extra.take(std::time::Duration::ZERO).items;
    let [LogItem::Cut(first), LogItem::Batch { .. }, LogItem::Cut(last)] = items.as_slice() else {
        panic!("{} items", items.len())
    };
    assert_eq!((first.image.replica.tree.len(), last.purpose), (0, CutPurpose::Stop));
}

#[test]
fn only_few_links_that_were_idle_make_who_changes_something_wait() {
    let hub = hub();
    let peer = |n: u64| NodeId {
        name: NodeName::new(&format!("p{n}")).unwrap(),
        incarnation: Incarnation(n),
    };
    set(&hub, "a", Some(&[1]));
    assert_eq!(hub.woke_few_links(), 0, "there is none");
    let mut queues = Vec::new();
    let empty = |queues: &[Arc<LinkQueue>]| {
        for queue in queues {
            while !matches!(queue.next(usize::MAX), link_queue::LinkWork::Wait) {}
        }
    };
    for n in 0..=FEW_LINKS as u64 {
        let (link, queue) = hub.add_link();
        hub.handle(Input::LinkUp { link, peer: peer(n + 2) }, 0);
        queues.push(queue);
        empty(&queues);
        let before = hub.woke_few_links();
        set(&hub, "a", Some(&[1]));
        let woken = hub.woke_few_links();
        assert_eq!(woken > before, queues.len() <= FEW_LINKS, "{} links", queues.len());
        set(&hub, "a", Some(&[2]));
        assert_eq!(hub.woke_few_links(), woken, "they have enough to do");
    }
}

#[test]
fn after_a_panic_under_the_exclusive_guard_nobody_enters_again() {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    let hub = hub();
    set(&hub, "a", Some(&[1]));
    let under_guard = || hub.read(|_| panic!("while others read"));
    assert!(catch_unwind(AssertUnwindSafe(under_guard)).is_err());
    assert_eq!(hub.read(|engine| engine.tree().len()), 1, "nothing was half changed");
    let under_guard = || hub.change(|_, _| panic!("half way through"));
    assert!(catch_unwind(AssertUnwindSafe(under_guard)).is_err());
    for entered in [
        catch_unwind(AssertUnwindSafe(|| hub.read(|engine| engine.tree().len()))).err(),
        catch_unwind(AssertUnwindSafe(|| hub.change(|engine, _| engine.tree().len()))).err(),
    ] {
        let text = entered.expect("nobody enters").downcast::<String>().unwrap();
        assert!(text.starts_with("broken invariant: nothing has panicked under"), "{text}");
    }
}

#[test]
fn what_was_checked_against_policies_that_are_out_of_date_is_not_carried_out() {
    let hub = hub();
    let paths = ["a", ":n.acl.x", "b"];
    let value = [0xa1, b'r'];
    let op = |path: &&str| Operation::Write(WriteOp::new(write(path, Some(&value))));
    let checked = Some(hub.policies.now());
    let terms = BatchTerms { checked, ..BatchTerms::WHOLE };
    let listening = hub.policies.changed.listen();
    let (done, _) = hub.write_batch(paths.iter().map(op), terms);
    // The change of the policy itself was allowed; what comes after it must be checked again.
    assert_eq!((done.outcomes.len(), done.is_outdated), (2, true));
    assert!(
        event_listener::Listener::wait_timeout(listening, std::time::Duration::ZERO).is_some(),
        "its listeners were woken"
    );
    let (done, _) = hub.write_batch(paths.iter().skip(2).map(op), terms);
    assert_eq!((done.outcomes.len(), done.is_outdated), (0, true));
    assert!(hub.read(|engine| engine.get(&[0xa1, b'b']).is_none()));
    let terms = BatchTerms { checked: Some(hub.policies.now()), ..terms };
    let (done, _) = hub.write_batch(paths.iter().skip(2).map(op), terms);
    assert_eq!((done.outcomes.len(), done.is_outdated), (1, false));
}

#[test]
fn the_sums_over_an_inbox_are_those_of_its_queues_whatever_happens_to_them() {
    let hub = hub();
    let inbox = Arc::new(Inbox::new());
    let content = WatchContent::ChangesAndConflicts;
    let watches: Vec<WatchId> =
        (0..3).map(|_| hub.watch(scope("a"), content, &inbox, &HOLDER).unwrap().0).collect();
    let monitor = hub.monitor("t".parse().unwrap(), &inbox, &HOLDER).unwrap();
    let check = |at: &str| assert_eq!((inbox.bytes(), inbox.held()), inbox.recount(), "{at}");
    set(&hub, "a.x", Some(&[1]));
    hub.queue(Output::NotifyConflict { watchers: watches.clone().into(), number: 1 });
    send(&hub, "t", &[1; 100]);
    check("queued");
    taken(&inbox, watches[0]);
    inbox.note_withheld(watches[0], 77);
    inbox.take_messages(monitor, 9);
    check("taken");
    for _ in 0..=WATCH_QUEUE_MAX {
        set(&hub, "a.busy", Some(&[1]));
    }
    check("overflowed");
    resume(&hub, watches[0], &inbox);
    set(&hub, "a.y", Some(&[1]));
    taken(&inbox, watches[0]);
    check("started over");
    send(&hub, "t", &[1; 100]);
    hub.unwatch(watches[1]);
    check("one has ended");
    hub.unwatch(watches[0]);
    hub.unwatch(watches[2]);
    hub.unmonitor(monitor);
    check("all have ended");
    assert_eq!(inbox.held(), 0);
}
