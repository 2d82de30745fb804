//! Files of the original go in and come out again; what they cannot hold is reported.

use crate::engine::exchange::access::{AccessPart, without_access};
use crate::engine::exchange::entries_alone;
use crate::engine::exchange::lines::{LinesExport, LinesImport};
use crate::engine::exchange::saved_state_in::{SavedImage, image_of_saved_state};
use crate::engine::exchange::saved_state_out::{ExportReport, SavedStateExport};
use crate::engine::load::SavedFile;
use crate::engine::{Config, Engine, Image, Input, Outbox};
use crate::model::entry::Entry;
use crate::model::ids::{Event, Incarnation, NodeId, NodeName, Tick, Tock};
use crate::model::left_out::LeftOut;
use crate::model::path::Path;
use crate::protocol::saved_state::python::Inexpressible;
use crate::protocol::saved_state::{SavedNode, SavedRecord, SavedState, SavedStateReader};
use crate::replica::write::{ChainCondition, Precondition, Write};

const SAVED: &[u8] =
    include_bytes!("../../../../../../tests/fixtures/distkv-files/saved-state.bin");
const LOG: &[u8] = include_bytes!("../../../../../../tests/fixtures/distkv-files/change-log.bin");

fn image_of(content: &[u8]) -> SavedImage {
    image_of_saved_state(content, None).unwrap()
}

fn export(image: &Image) -> (Vec<u8>, ExportReport) {
    let mut export = SavedStateExport::new(image.clone());
    let mut out = Vec::new();
    while export.next_piece(&mut out) {}
    (out, export.report().clone())
}

/// Path, value, tock and chain of all entries with a value, in order.
fn entries(image: &Image) -> Vec<(Path, Vec<u8>, u64, String)> {
    let table = &image.replica.table;
    let chain = |entry: &Entry| -> String {
        entry.events().map(|e| format!("{} ", table.spell_event(e))).collect()
    };
    let with_value = image.replica.tree.subtree(&Path::root()).filter_map(|(path, entry)| {
        Some((path.clone(), entry.value()?.to_vec(), entry.tock().get(), chain(entry)))
    });
    with_value.collect()
}

fn state_of(content: &[u8]) -> SavedState {
    match SavedStateReader::read_all(content).next() {
        Some(Ok(SavedRecord::State(state))) => state,
        other => panic!("{other:?}"),
    }
}

fn node(name: &str, incarnation: u64) -> Engine {
    let id = NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(incarnation) };
    let mut engine = Engine::new(Config::new(id, 1));
    engine.handle(Input::Found, 0, &mut Outbox::new());
    engine
}

fn write(engine: &mut Engine, path: &Path, value: Option<&[u8]>) {
    let precondition = Precondition::chain(ChainCondition::Any);
    let mut write = Write { precondition, ..Write::new(path, value) };
    engine.write(&mut write, false, &mut Outbox::new()).unwrap();
}

fn set(engine: &mut Engine, path: &str, value: &[u8]) {
    write(engine, &path.parse().unwrap(), Some(value));
}

#[test]
fn the_original_s_files_come_out_as_they_went_in() {
    for (content, count) in [(SAVED, 1306), (LOG, 1308)] {
        let read = image_of(content);
        assert_eq!((read.unusable.len(), read.cut_off), (0, None));
        let (written, report) = export(&read.image);
        assert_eq!((report.entries, report.left_out, report.lives), (count, 0, 0));
        assert_eq!(report.missing, 0);
        let again = image_of(&written);
        assert!(again.unusable.is_empty());
        assert_eq!(entries(&again.image), entries(&read.image));
        let (old, new) = (state_of(content), state_of(&written));
        assert_eq!(new.node, old.node);
        // The life that the file's content gave to its node; and the bare name, for a server to start
        // under, as one that never wrote.
        let own = SavedNode::new(&read.image.id().to_string()).unwrap();
        let bare = SavedNode::from(read.image.id().name.clone());
        let tick = read.image.replica.tick;
        assert_eq!(new.nodes, [(own, Some(tick)), (bare, Some(Tick::default()))]);
        // The tick of the entry that has no place here is accounted for.
        let (known, deleted) = (&new.known[0].1, &new.deleted);
        assert!(known.count() >= old.known[0].1.difference(&old.deleted[0].1).count());
        assert!(deleted.len() <= 1);
    }
}

#[test]
fn arrays_in_paths_go_through_all_kinds_of_files() {
    let arrays = include_bytes!("../../../../../../tests/fixtures/distkv-files/arrays-state.bin");
    let read = image_of(arrays);
    assert_eq!((read.unusable.len(), read.image.replica.tree.live_len()), (0, 34));
    let (written, report) = export(&read.image);
    assert_eq!((report.entries, report.left_out), (34, 0));
    assert_eq!(entries(&image_of(&written).image), entries(&read.image));
    let mut lines = Vec::new();
    LinesExport::new(&read.image, &Path::root(), true).next_piece(&mut lines);
    let mut import = LinesImport::new();
    String::from_utf8(lines).unwrap().lines().for_each(|line| import.take(line).unwrap());
    let back = import.finish(NodeName::new("file").unwrap()).unwrap();
    assert_eq!(entries(&back), entries(&read.image));
}

#[test]
fn an_image_of_a_file_is_what_loading_the_file_makes() {
    for content in [SAVED, LOG] {
        let read = image_of(content);
        let mut from_image = node("x", 1);
        from_image.load_image(&read.image, &mut Outbox::new()).unwrap();
        let mut loaded = node("x", 1);
        let file = SavedFile::new(xxhash_rust::xxh64::xxh64(content, 0), None);
        let mut states = Vec::new();
        for record in SavedStateReader::read_all(content) {
            match record.unwrap() {
                SavedRecord::Entry(entry) => {
                    loaded.load_entry(&file, &entry, &mut Outbox::new()).unwrap();
                }
                SavedRecord::State(state) => states.push(state),
                SavedRecord::Unusable { .. } => {}
            }
        }
        states
            .iter()
            .for_each(|state| loaded.load_state(&file, state, &mut Outbox::new()).unwrap());
        let (a, b) = (from_image.image(), loaded.image());
        assert_eq!(entries(&a), entries(&b));
        assert_eq!(a.replica.tree.len(), b.replica.tree.len());
        assert_eq!(
            crate::model::seen::export_seen(&a.replica.table, &a.replica.seen),
            crate::model::seen::export_seen(&b.replica.table, &b.replica.seen)
        );
        assert_eq!(a.replica.tock, b.replica.tock);
    }
}

#[test]
fn a_log_can_be_read_up_to_a_tock() {
    let at = |tock| image_of_saved_state(LOG, Tock::new(tock)).unwrap();
    let a: Path = "ha9210dd7.lg.a".parse().unwrap();
    let value = |read: &SavedImage| {
        read.image.replica.tree.get(a.as_bytes()).map(|entry| entry.value().map(<[u8]>::to_vec))
    };
    assert_eq!(value(&at(4425)), None);
    assert_eq!(value(&at(4426)), Some(Some(vec![1])));
    assert_eq!(value(&at(4431)), Some(Some(vec![1])));
    let all = at(4432);
    assert_eq!((value(&all), all.changes.later), (Some(None), 0));
    assert!(at(4426).changes.later > 0);
    // The writer's knowledge at the end is more than the file's content then.
    let before = at(4425).image.replica;
    let n1 = before.table.find("n1", before.id.incarnation).unwrap();
    assert!(!before.seen.get(n1).unwrap().contains(crate::model::ids::Tick::new(1360).unwrap()));
}

#[test]
fn of_a_state_that_is_read_up_to_a_tock_no_more_is_known_than_its_entries_account_for() {
    let early = image_of_saved_state(SAVED, Tock::new(4_000)).unwrap();
    assert!(early.changes.later > 0);
    let replica = early.image.replica;
    let entries: Vec<(Path, Entry)> = replica.tree.all().collect();
    let events = entries.iter().flat_map(|(_, entry)| entry.events());
    let events: std::collections::BTreeSet<_> = events.map(|e| (e.node, e.tick)).collect();
    assert_eq!(replica.seen.count(), events.len() as u64, "what came later is not known");
}

#[test]
fn lives_of_one_name_are_told_apart_and_a_server_finds_its_name() {
    let (mut first, mut second) = (node("n1", 0x1111), node("n1", 0x2222));
    set(&mut first, "a", b"\x01");
    second.load_image(&first.image(), &mut Outbox::new()).unwrap();
    set(&mut second, "a", b"\x02");
    set(&mut second, "b", b"\x03");
    let (written, report) = export(&second.image());
    assert_eq!((report.entries, report.lives), (2, 2));
    let state = state_of(&written);
    let names: Vec<String> = state.nodes.iter().map(|(node, _)| node.to_string()).collect();
    assert_eq!(names, ["n1~2222", "n1~1111", "n1"]);
    assert_eq!(state.nodes[2].1.map(|tick| tick.get()), Some(0));
    assert_eq!(state.node.to_string(), "n1");
    let again = image_of(&written).image;
    assert_eq!(entries(&again), entries(&second.image()), "events keep their identity");
}

#[test]
fn a_file_of_ours_accounts_for_no_event_that_it_does_not_hold() {
    // n1 has a value that n2 has deleted; the tombstone has no place in the file.
    let (mut n1, mut n2) = (node("n1", 0x1111), node("n2", 0x2222));
    set(&mut n1, "gone", b"\x01");
    set(&mut n1, "stays", b"\x02");
    n2.load_image(&n1.image(), &mut Outbox::new()).unwrap();
    write(&mut n2, &"gone".parse().unwrap(), None);
    let (written, _) = export(&n2.image());
    let image = image_of(&written).image;
    let seen = |image: &Image, name: &str, life: u64| -> Vec<u64> {
        let node = image.replica.table.find(name, Incarnation(life));
        let ticks = node.and_then(|node| image.replica.seen.get(node));
        ticks.map(|ticks| ticks.iter().collect()).unwrap_or_default()
    };
    assert_eq!((seen(&image, "n1", 0x1111), seen(&image, "n2", 0x2222)), (vec![2], vec![]));
    let mut loaded = node("n3", 7);
    let file = SavedFile::new(xxhash_rust::xxh64::xxh64(&written, 0), Some(&state_of(&written)));
    for record in SavedStateReader::read_all(&written) {
        match record.unwrap() {
            SavedRecord::Entry(entry) => loaded.load_entry(&file, &entry, &mut Outbox::new()),
            SavedRecord::State(state) => loaded.load_state(&file, &state, &mut Outbox::new()),
            SavedRecord::Unusable { .. } => Ok(()),
        }
        .unwrap();
    }
    let loaded = loaded.image();
    assert_eq!((seen(&loaded, "n1", 0x1111), seen(&loaded, "n2", 0x2222)), (vec![2], vec![]));
    // So a node that has the value still learns of the deletion from n2, not only of its tick.
}

#[test]
fn a_server_that_was_given_the_name_of_a_life_is_not_that_life() {
    // `{nodes: {"n1~1111": 3}, node: "n1~1111", tock: 9}`, and an entry of it.
    let state = b"\x83\xa5nodes\x81\xa7n1~1111\x03\xa4node\xa7n1~1111\xa4tock\x09";
    let entry = b"\x85\xa5value\x05\xa5chain\x83\xa4node\xa7n1~1111\xa4tick\x03\xa4prev\xc0\xa4tock\x09\xa4path\x91\xa1a\xa5depth\x00";
    let image = image_of(&[&state[..], entry].concat()).image;
    let life = image.replica.table.get(image.replica.tree.all().next().unwrap().1.newest().node);
    let life = life.unwrap().clone();
    assert_eq!(life.name.as_str(), "n1");
    assert_ne!(life.incarnation, Incarnation(0x1111), "its events would stand for two changes");
    assert_eq!(image.id(), &life);
}

#[test]
fn what_python_cannot_hold_is_left_out_and_its_ticks_are_accounted_for() {
    let mut engine = node("n1", 7);
    set(&mut engine, "a:1", b"\x01");
    set(&mut engine, "a:t", b"\x02");
    set(&mut engine, "text", b"\xa1\xff");
    set(&mut engine, ":n.match.a", b"\x80");
    set(&mut engine, ":n.match.b", b"\x81\xa4type\xa3int");
    set(&mut engine, ":n.type.int", b"\x80");
    set(&mut engine, "gone", b"\x05");
    write(&mut engine, &"gone".parse().unwrap(), None);
    let (written, report) = export(&engine.image());
    assert_eq!((report.entries, report.left_out, report.tombstones), (3, 3, 1));
    let named: Vec<String> = report.named.iter().map(|(path, _)| path.to_string()).collect();
    assert_eq!(named, [":n.match.a", "a:t", "text"]);
    assert!(matches!(report.named[1].1, Inexpressible::SamePath(_)));
    let mut paths = Vec::new();
    for record in SavedStateReader::read_all(&written) {
        if let SavedRecord::Entry(entry) = record.unwrap() {
            paths.push(entry.path.to_string());
        }
    }
    assert_eq!(paths, ["a:1", ":n.type.int", ":n.match.b"], "what is referred to comes first");
    let state = state_of(&written);
    let known: Vec<u64> = state.known[0].1.iter().collect();
    assert_eq!(known, [2, 3, 4, 7]);
    assert_eq!(state.deleted[0].1.iter().collect::<Vec<_>>(), [8]);
}

#[test]
fn a_big_tree_comes_in_pieces() {
    let mut engine = node("n1", 7);
    let value = [&b"\xc5\x04\x00"[..], &[0; 1024]].concat();
    for i in 0..300 {
        set(&mut engine, &format!("a:{i}"), &value);
    }
    let mut export = SavedStateExport::new(engine.image());
    let (mut out, mut pieces) = (Vec::new(), 1);
    while export.next_piece(&mut out) {
        pieces += 1;
    }
    assert!(pieces > 4, "{pieces}");
    assert_eq!(entries(&image_of(&out).image).len(), 300);
}

#[test]
fn lines_give_back_the_tree() {
    let mut engine = node("n1", 7);
    engine.load_image(&image_of(LOG).image, &mut Outbox::new()).unwrap();
    set(&mut engine, "ha9210dd7.lg.b", b"\xcd\x00\x05");
    let image = engine.image();
    let mut export = LinesExport::new(&image, &Path::root(), true);
    let mut text = Vec::new();
    let mut count = 0;
    loop {
        let (more, lines) = export.next_piece(&mut text);
        count += lines;
        if !more {
            break;
        }
    }
    assert_eq!(count, 1309);
    let mut import = LinesImport::new();
    let text = String::from_utf8(text).unwrap();
    text.lines().for_each(|line| import.take(line).unwrap());
    let back = import.finish(NodeName::new("file").unwrap()).unwrap();
    assert_eq!(entries(&back), entries(&image));
    assert_eq!(back.replica.tree.len(), image.replica.tree.len());
    let below: Path = "ha9210dd7.lg".parse().unwrap();
    let mut export = LinesExport::new(&image, &below, false);
    let mut text = Vec::new();
    assert_eq!(export.next_piece(&mut text), (false, 2));
}

#[test]
fn a_bad_line_says_which_it_is() {
    let mut import = LinesImport::new();
    import.take("").unwrap();
    let error = import.take(r#"{"path":"a","value":1}"#).unwrap_err();
    assert!(error.to_string().starts_with("line 2: "), "{error}");
}

/// A file of lines as an image, after an edit of its text.
fn image_of_lines(image: &Image, edit: impl Fn(&str) -> String) -> Image {
    let mut text = Vec::new();
    LinesExport::new(image, &Path::root(), true).next_piece(&mut text);
    let mut import = LinesImport::new();
    edit(&String::from_utf8(text).unwrap()).lines().for_each(|line| import.take(line).unwrap());
    import.finish(NodeName::new("file").unwrap()).unwrap()
}

fn ticks(image: &Image, name: &str, life: u64) -> Vec<u64> {
    let node = image.replica.table.find(name, Incarnation(life)).unwrap();
    image.replica.seen.get(node).map(|ticks| ticks.iter().collect()).unwrap_or_default()
}

#[test]
fn who_has_entries_of_a_file_alone_accounts_for_the_oldest_that_they_stand_for() {
    let mut n1 = node("n1", 0x1111);
    // Its own event stands for the first one at that path, which its chain does not name.
    for value in [b"\x01", b"\x02", b"\x03"] {
        set(&mut n1, "a", value);
    }
    let image = n1.image();
    assert_eq!(ticks(&entries_alone(image.clone()), "n1", 0x1111), [1, 3]);
    assert_eq!(ticks(&image_of_lines(&image, str::to_owned), "n1", 0x1111), [1, 3]);
}

#[test]
fn an_edited_line_says_what_its_chain_leaves_out() {
    let mut n1 = node("n1", 0x1111);
    for value in [b"\x01", b"\x02", b"\x03"] {
        set(&mut n1, "a", value);
    }
    let edit = |text: &str| text.replace(r#""value":3"#, r#""value":4"#);
    let edited = image_of_lines(&n1.image(), edit);
    assert_eq!(ticks(&edited, "n1", 0x1111), [1, 3]);
    let (_, entry) = edited.replica.tree.all().next().unwrap();
    assert_eq!(entry.value(), Some(&[4][..]));
    let (left_out, below) = (LeftOut::of(&entry), entry.events().nth(1).unwrap());
    assert_eq!(left_out.oldest(1, below).map(|oldest| oldest.tick.get()), Some(1));

    // What was deleted before the edit does not come back by it.
    write(&mut n1, &"a".parse().unwrap(), None);
    let edited =
        image_of_lines(&n1.image(), |text| text.replace(r#""deleted":true"#, r#""value":5"#));
    let (_, entry) = edited.replica.tree.all().next().unwrap();
    assert_eq!(entry.value(), Some(&[5][..]));
    assert!(LeftOut::of(&entry).is_before_deletion(1));
}

fn lines_of(image: &Image) -> Vec<String> {
    let mut text = Vec::new();
    LinesExport::new(image, &Path::root(), true).next_piece(&mut text);
    String::from_utf8(text).unwrap().lines().map(str::to_owned).collect()
}

fn image_from(lines: &[String]) -> Image {
    let mut import = LinesImport::new();
    lines.iter().for_each(|line| import.take(line).unwrap());
    import.finish(NodeName::new("file").unwrap()).unwrap()
}

fn entry_of(image: &Image, path: &str) -> Entry {
    let path: Path = path.parse().unwrap();
    image.replica.tree.get(path.as_bytes()).unwrap().clone()
}

#[test]
fn each_edited_line_of_each_file_is_a_change_of_its_own_above_what_it_replaces() {
    let mut engine = node("n1", 7);
    for value in 1..4 {
        set(&mut engine, "a", &[value]);
        set(&mut engine, "b", &[value]);
    }
    let (image, lines) = (engine.image(), lines_of(&engine.image()));
    let edited = |value: &str| -> Vec<String> {
        let edit = |line: &String| line.replace("\"value\":3", &format!("\"value\":{value}"));
        lines.iter().map(edit).collect()
    };
    let files = [image_from(&edited("8")), image_from(&edited("9"))];
    let maker =
        |file: &Image, entry: &Entry| file.replica.table.get(entry.newest().node).unwrap().clone();
    for file in &files {
        let [a, b] = ["a", "b"].map(|path| entry_of(file, path));
        assert_eq!(maker(file, &a).name.as_str(), "edited");
        assert_ne!(a.newest(), b.newest(), "two changes");
        for (path, entry) in [("a", &a), ("b", &b)] {
            assert!(entry.tock() > entry_of(&image, path).tock(), "{path}");
            assert!(file.replica.tock >= entry.tock(), "{path}");
        }
    }
    let makers = files.each_ref().map(|file| maker(file, &entry_of(file, "a")));
    assert_ne!(makers[0], makers[1], "one event must not stand for what two files say");
    let unchanged = image_from(&lines);
    assert!(unchanged.replica.tock >= entry_of(&unchanged, "a").tock());
}

#[test]
fn of_two_versions_in_files_the_greater_stays_whichever_comes_first() {
    let mut engine = node("n1", 7);
    set(&mut engine, "a", b"\x01");
    let old = engine.image();
    set(&mut engine, "a", b"\x02");
    let new = engine.image();
    for images in [[&old, &new], [&new, &old]] {
        let lines = images.map(lines_of).concat();
        assert_eq!(entry_of(&image_from(&lines), "a").value(), Some(&b"\x02"[..]));
        let states = images.map(|image| export(image).0).concat();
        assert_eq!(entry_of(&image_of(&states).image, "a").value(), Some(&b"\x02"[..]));
    }
}

#[test]
fn a_file_that_ends_within_a_record_says_so_and_gives_what_is_before() {
    let read = image_of(&SAVED[..SAVED.len() - 3]);
    assert!(read.cut_off.is_some() && !read.is_log);
    assert_eq!(read.image.replica.tree.len(), image_of(SAVED).image.replica.tree.len() - 1);
}

#[test]
fn a_saved_state_that_was_cut_off_between_entries_lacks_changes_that_its_writer_knew() {
    let whole = image_of(SAVED);
    assert_eq!((whole.lacking, whole.is_log), (0, false));
    for bytes in [200, SAVED.len() / 2, SAVED.len() - 3] {
        let error = image_of(&SAVED[..bytes]).cut_off.unwrap();
        let border = usize::try_from(error.offset).unwrap();
        let read = image_of(&SAVED[..border]);
        assert!(read.cut_off.is_none() && read.lacking > 0, "{border}: {}", read.lacking);
    }
    // A log begins with what its writer knew before, and none of that is in it.
    let log = image_of(LOG);
    assert_eq!((log.lacking, log.is_log), (0, true));
    // `{nodes: {n1: 2^62 - 1, n2 …, n5}, node: "n1", tock: 9}`.
    let mut state = b"\x83\xa5nodes\x85".to_vec();
    for node in b'1'..=b'5' {
        state.extend([0xa2, b'n', node, 0xcf, 0x3f]);
        state.extend([0xff; 7]);
    }
    state.extend(b"\xa4node\xa2n1\xa4tock\x09");
    assert_eq!(image_of(&state).lacking, u64::MAX);
}

#[test]
fn of_a_node_without_ticks_a_file_says_nothing() {
    // `{nodes: {n1: 3, n2: 0}, node: "n1", tock: 9}`.
    let state = b"\x83\xa5nodes\x82\xa2n1\x03\xa2n2\x00\xa4node\xa2n1\xa4tock\x09";
    let replica = image_of(state).image.replica;
    let names: Vec<&str> = replica.table.iter().map(|(_, id)| id.name.as_str()).collect();
    assert_eq!(names, ["n1"]);
}

#[test]
fn a_life_that_owns_nothing_is_named_if_it_is_the_only_one_of_its_name() {
    let mut engine = node("n1", 0x1111);
    set(&mut engine, "a", b"\x01");
    for (name, life) in [("n1", 0x3333), ("n9", 0x9999)] {
        let id = NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(life) };
        let node = engine.replica.intern(&id).unwrap();
        engine.replica.account_for(Event { node, tick: Tick::new(1).unwrap() });
    }
    let (written, report) = export(&engine.image());
    assert_eq!(report.lives, 1, "of n1 there are two, of which one has a place in the file");
    let state = state_of(&written);
    let names: Vec<String> = state.nodes.iter().map(|(node, _)| node.to_string()).collect();
    assert_eq!(names, ["n1~1111", "n9~9999", "n1", "n9"]);
    // What it knows of n1 is in the entries.
    let known: Vec<String> = state.known.iter().map(|(node, _)| node.to_string()).collect();
    assert_eq!(known, ["n9~9999"]);
}

#[test]
fn an_image_without_access_has_no_user_login_or_list_and_claims_to_know_of_none() {
    let mut n1 = node("n1", 0x1111);
    set(&mut n1, "a", b"\x01");
    assert!(without_access(&n1.image()).is_none(), "there is nothing to leave out");
    for path in [
        ":n.auth",
        ":n.auth.password.user.joe",
        ":n.auth.password.user.joe.acl",
        ":n.auth.token.user.joe",
        ":n.acl.lamps.site",
        ":n.acl.lamps.site.lamp",
        ":n.acl.all",
        ":n.type.int",
    ] {
        set(&mut n1, path, b"\x01");
    }
    let image = n1.image();
    assert_eq!(AccessPart::of(&image.replica.tree), AccessPart { users: 2, lists: 2 });
    let rest = without_access(&image).unwrap();
    let paths: Vec<String> =
        entries(&rest).into_iter().map(|(path, ..)| path.to_string()).collect();
    assert_eq!(paths, [":n.type.int", "a"]);
    assert_eq!(AccessPart::of(&rest.replica.tree), AccessPart::default());
    assert_eq!(ticks(&rest, "n1", 0x1111), [1, 9], "what was left out can still be taken in");
}
