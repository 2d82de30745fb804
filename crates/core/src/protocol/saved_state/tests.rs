//! The two files that a Python DistKV wrote, and damaged ones.

use super::*;
use crate::tree::Tree;

const SAVED: &[u8] = include_bytes!("../../../../../tests/fixtures/distkv-files/saved-state.bin");
const LOG: &[u8] = include_bytes!("../../../../../tests/fixtures/distkv-files/change-log.bin");

/// Written by a server of the original with these elements below `el`, and more elements below each; some
/// were sent as paths within paths.
const ARRAYS: &[u8] = include_bytes!("../../../../../tests/fixtures/distkv-files/arrays-state.bin");
/// The log of the same changes.
const ARRAYS_LOG: &[u8] =
    include_bytes!("../../../../../tests/fixtures/distkv-files/arrays-log.bin");
const ARRAY_ELEMENTS: [&str; 16] = [
    ":'t',1",
    ":('t',)",
    ":()",
    ":'a:.b','c::d:_e'",
    ":(b'x',:_1)",
    ":1,b'\\x00\\xff'",
    ":(1,:_2),'x'",
    ":True,None,False",
    ":0:.5,inf",
    ":'p','q'",
    ":('r',),2",
    ":'p',('q',:_'r')",
    ":1,(2,:_3)",
    ":0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33,34,35,\
     36,37,38,39",
    ":('ü',)",
    ":((((('deep',),),),),)",
];

struct File {
    states: Vec<SavedState>,
    entries: Vec<SavedEntry>,
    unusable: Vec<(u64, UnusableEntry)>,
}

fn read(bytes: &[u8]) -> File {
    let mut file = File { states: vec![], entries: vec![], unusable: vec![] };
    for record in SavedStateReader::read_all(bytes) {
        match record.unwrap() {
            SavedRecord::State(state) => file.states.push(state),
            SavedRecord::Entry(entry) => file.entries.push(entry),
            SavedRecord::Unusable { offset, reason } => file.unusable.push((offset, reason)),
        }
    }
    file
}

fn name(name: &str) -> SavedNode {
    SavedNode::new(name).unwrap()
}

fn tick(tick: u64) -> Tick {
    Tick::new(tick).unwrap()
}

fn at<'f>(file: &'f File, path: &str) -> Vec<&'f SavedEntry> {
    let path: Path = path.parse().unwrap();
    file.entries.iter().filter(|entry| entry.path == path).collect()
}

#[test]
fn a_saved_state_of_the_original_is_read() {
    let file = read(SAVED);
    assert_eq!((file.states.len(), file.entries.len(), file.unusable.len()), (1, 1306, 0));
    let state = &file.states[0];
    assert_eq!((state.node.to_string().as_str(), state.tock.get()), ("n1", 4412));
    let nodes = [(name("n1"), Some(tick(1357))), (name("n3"), None), (name("n2"), None)];
    assert_eq!(state.nodes, nodes);
    let (node, known) = &state.known[0];
    assert_eq!((node.to_string().as_str(), known.count(), known.max()), ("n1", 36, 1334));
    let deleted: Vec<_> = state.deleted[0].1.ranges().collect();
    assert_eq!(deleted[..3], [(172, 173), (176, 177), (184, 186)]);
    let root = at(&file, ":");
    assert_eq!(root[0].value, Some(Value::nil()));
    assert_eq!((root[0].tock.get(), root[0].offset), (3, 173));
    let entry = at(&file, "hf4e31b06.sv.a.b.c");
    assert_eq!(entry[0].value.as_ref().unwrap().as_bytes(), [3]);
    assert_eq!(entry[0].chain, [(name("n1"), tick(1354))]);
    assert!(!entry[0].is_chain_cut);
}

#[test]
fn an_entry_that_cannot_be_one_here_is_named_and_does_no_harm_to_the_next() {
    // In the place of a number within an array, an empty map.
    let at_array = SAVED.windows(4).position(|bytes| bytes == b"\x92\xa1t\x01").unwrap();
    let mut content = SAVED.to_vec();
    content[at_array + 3] = 0x80;
    let file = read(&content);
    let (offset, reason) = &file.unusable[0];
    assert_eq!(file.unusable.len(), 1);
    assert!(*offset > 0 && *offset < at_array as u64);
    assert!(reason.to_string().contains("map"), "{reason}");
    // After it, shortened against it.
    assert_eq!(at(&file, "h7bbb7033.pe.0").len(), 1);
}

#[test]
fn arrays_in_paths_are_read_as_the_original_wrote_them() {
    let value = |file: &File, path: &str| {
        let found = at(file, path);
        found
            .last()
            .unwrap_or_else(|| panic!("no {path}"))
            .value
            .as_ref()
            .map(|v| v.as_bytes().to_vec())
    };
    assert_eq!(value(&read(SAVED), "h7bbb7033.pe:'t',1"), Some(b"\x92\xa1v\x0d".to_vec()));
    for content in [ARRAYS, ARRAYS_LOG] {
        let file = read(content);
        assert!(file.unusable.is_empty());
        for (number, element) in ARRAY_ELEMENTS.iter().enumerate() {
            let number = number as u8;
            assert_eq!(value(&file, &format!("el{element}")), Some(vec![number]));
            assert_eq!(value(&file, &format!("el{element}.below")), Some(vec![0x91, number]));
        }
        assert!(value(&file, ":'first',1.x:'last',2").unwrap().ends_with(b"both ends"));
    }
    assert_eq!(at(&read(ARRAYS), "el:'gone',1").len(), 0);
    assert_eq!(value(&read(ARRAYS_LOG), "el:'gone',1"), None);
}

#[test]
fn a_change_log_of_the_original_is_read() {
    let file = read(LOG);
    assert_eq!((file.states.len(), file.entries.len(), file.unusable.len()), (2, 1310, 0));
    assert_eq!(file.states[1].tock.get(), 4423);
    let twice = at(&file, "ha9210dd7.lg.a");
    assert_eq!(twice.len(), 2);
    assert_eq!(twice[0].value.as_ref().unwrap().as_bytes(), [1]);
    assert_eq!((twice[1].value.is_none(), twice[1].tock.get()), (true, 4432));
    assert!(twice[1].chain[0].1 > twice[0].chain[0].1);
}

#[test]
fn a_file_may_come_in_pieces_of_any_size() {
    let whole: Vec<_> = SavedStateReader::read_all(LOG).map(Result::unwrap).collect();
    let mut reader = SavedStateReader::new();
    let mut pieces = Vec::new();
    for piece in LOG.chunks(1000) {
        reader.feed(piece);
        while let Some(record) = reader.next_record().unwrap() {
            pieces.push(record);
        }
    }
    reader.finish().unwrap();
    assert_eq!(pieces, whole);
}

fn error_of(bytes: &[u8]) -> SavedStateError {
    SavedStateReader::read_all(bytes).last().unwrap().unwrap_err()
}

#[test]
fn a_file_that_is_cut_off_says_where() {
    let error = error_of(&SAVED[..200]);
    assert_eq!((error.offset, &error.problem), (173, &SavedStateProblem::CutOff(27)));
    assert!(error.to_string().starts_with("at byte 173 "), "{error}");
}

#[test]
fn damage_is_refused_and_says_where() {
    let record_at = 173;
    for (at, byte) in [(0, 0xc1), (1, 0x05), (8, 0xcf)] {
        let mut damaged = SAVED.to_vec();
        damaged[record_at + at] = byte;
        let error = error_of(&damaged);
        assert!(error.offset <= record_at as u64, "{error}");
    }
    assert!(matches!(error_of(b"\x01").problem, SavedStateProblem::Read(_)));
    assert!(matches!(error_of(b"\xdf\xff\xff\xff\xff").problem, SavedStateProblem::Skip(_)));
    assert_eq!(error_of(b"\x80").problem, SavedStateProblem::Missing("tock"));
    assert_eq!(error_of(b"\x81\xa4tock\x01").problem, SavedStateProblem::Missing("path"));
    let deep = b"\x83\xa4tock\x01\xa4path\x90\xa5depth\x01";
    assert!(matches!(error_of(deep).problem, SavedStateProblem::Path(_)));
}

#[test]
fn no_bytes_make_it_panic() {
    // Each byte of the first records in turn, to values that mean something to MessagePack.
    for at in 0..400 {
        for byte in [0x00, 0x80, 0x9f, 0xa5, 0xc0, 0xc1, 0xc7, 0xcf, 0xdd, 0xdf, 0xff] {
            let mut damaged = SAVED[..1000].to_vec();
            damaged[at] = byte;
            let _ = SavedStateReader::read_all(&damaged).count();
        }
    }
}

#[test]
fn chains_are_cut_to_what_a_chain_may_be() {
    let mut record = b"\x85\xa5value\x01\xa4tock\x05\xa4path\x90\xa5depth\x00\xa5chain".to_vec();
    for i in 0..10u8 {
        record.extend_from_slice(b"\x83\xa4node\xa2n");
        record.push(b'0' + i);
        record.extend_from_slice(b"\xa4tick\x03\xa4prev");
    }
    record.push(0xc0);
    let file = read(&record);
    assert_eq!((file.entries[0].chain.len(), file.entries[0].is_chain_cut), (CHAIN_LEN_MAX, true));
}

/// Writes a file's changes again, each with the version that it replaced.
fn rewrite_log(file: &File) -> Vec<u8> {
    use crate::model::chain::Chain;
    use crate::model::entry::{Entry, EntryParts};
    use crate::model::ids::{Event, Incarnation, NodeId, NodeTable};
    let mut table = NodeTable::new();
    let mut index = |node: &SavedNode| {
        let id = NodeId { name: node.name().clone(), incarnation: Incarnation(1) };
        table.intern(&id).unwrap()
    };
    let mut entry = |saved: &SavedEntry| {
        let events =
            saved.chain.iter().map(|(node, tick)| Event { node: index(node), tick: *tick });
        Entry::new(&EntryParts {
            value: saved.value.as_ref().map(Value::as_bytes),
            chain: &Chain::from_events(events, saved.is_chain_cut).unwrap(),
            tock: saved.tock,
            origin: None,
            time: None,
            extra: &[],
        })
    };
    let entries: Vec<(Path, Entry)> =
        file.entries.iter().map(|saved| (saved.path.clone(), entry(saved))).collect();
    let own = table.get(crate::model::ids::NodeIndex(0)).unwrap().name.clone();
    let mut writer = SavedStateWriter::new(&own);
    let mut out = Vec::new();
    writer.write_state(&writer::StateRecord::default(), &table, &mut out);
    let mut tree = Tree::new(1);
    for (path, entry) in &entries {
        let replaced = tree.insert(path, entry.clone());
        assert!(writer.write_change(path, entry, replaced.as_ref(), &tree, &table, &mut out));
    }
    out
}

#[test]
fn a_change_log_comes_out_as_it_went_in() {
    let file = read(LOG);
    let again = read(&rewrite_log(&file));
    // The original knows no lives; here they are named.
    let comparable = |entries: &[SavedEntry], is_ours: bool| -> Vec<SavedEntry> {
        let bare = |(node, tick): &(SavedNode, Tick)| {
            assert_eq!(node.life(), is_ours.then_some(crate::model::ids::Incarnation(1)));
            (SavedNode::from(node.name().clone()), *tick)
        };
        let chain = |e: &SavedEntry| e.chain.iter().map(bare).collect();
        entries.iter().map(|e| SavedEntry { offset: 0, chain: chain(e), ..e.clone() }).collect()
    };
    assert_eq!(comparable(&again.entries, true), comparable(&file.entries, false));
    // After the deletion: which ticks are gone, including the replaced change's.
    let gone = again.states.iter().find(|state| !state.deleted.is_empty()).unwrap();
    let ticks: Vec<u64> = gone.deleted[0].1.iter().collect();
    assert_eq!((again.states.len(), ticks), (2, vec![1359, 1361]));
}

#[test]
fn a_change_is_written_as_the_original_writes_it() {
    // The last change of the fixture is one that sets a value, from the empty path.
    let file = read(LOG);
    let last = file.entries.iter().rfind(|entry| entry.value.is_some()).unwrap();
    let only = File { states: vec![], entries: vec![last.clone()], unusable: vec![] };
    let written = rewrite_log(&only);
    let record = b"\x87\xa4node\xa4n1~1\xa4tick\xcd\x05\x50\xa4prev\xc0\xa4path\xc7\x0f\x03\xa9ha9210dd7\xa2lg\xa1b\xa5value\x02\xa4tock\xcd\x11\x4d\xa5depth\x00";
    assert!(written.ends_with(record), "{written:x?}");
}

#[test]
fn a_life_is_spelled_the_same_when_another_one_becomes_known() {
    use crate::model::chain::Chain;
    use crate::model::entry::{Entry, EntryParts};
    use crate::model::ids::{Event, Incarnation, NodeId, NodeName, NodeTable};
    let id = |incarnation| NodeId {
        name: NodeName::new("n1").unwrap(),
        incarnation: Incarnation(incarnation),
    };
    let mut table = NodeTable::new();
    let first = table.intern(&id(0x1111)).unwrap();
    let mut writer = SavedStateWriter::new(&id(0x1111).name);
    let change = |events: Vec<Event>| {
        Entry::new(&EntryParts {
            value: Some(&[5]),
            chain: &Chain::from_events(events, true).unwrap(),
            tock: Tock::new(9).unwrap(),
            origin: None,
            time: None,
            extra: &[],
        })
    };
    let mut out = Vec::new();
    let alone = change(vec![Event { node: first, tick: tick(4) }]);
    writer.write_entry(&"b".parse().unwrap(), &alone, &table, &mut out);
    assert_eq!(read(&out).entries[0].chain, [(name("n1~1111"), tick(4))]);
    let second = table.intern(&id(0x2222)).unwrap();
    let events = [Event { node: second, tick: tick(1) }, Event { node: first, tick: tick(4) }];
    let entry = change(events.to_vec());
    let tree = Tree::new(1);
    writer.write_change(&"a".parse().unwrap(), &entry, None, &tree, &table, &mut out);
    writer.write_entry(&"a".parse().unwrap(), &entry, &table, &mut out);
    for saved in &read(&out).entries[1..] {
        assert_eq!(saved.chain, [(name("n1~2222"), tick(1)), (name("n1~1111"), tick(4))]);
        assert!(saved.is_chain_cut);
    }
}

#[test]
fn what_the_original_forgets_with_a_deletion_is_written_again() {
    use crate::model::chain::Chain;
    use crate::model::entry::{Entry, EntryParts};
    use crate::model::ids::{Event, Incarnation, NodeId, NodeName, NodeTable};
    let id = NodeId { name: NodeName::new("n1").unwrap(), incarnation: Incarnation(1) };
    let mut table = NodeTable::new();
    let node = table.intern(&id).unwrap();
    let mut next = 0;
    let mut entry = |value: Option<&[u8]>| {
        next += 1;
        Entry::new(&EntryParts {
            value,
            chain: &Chain::first(Event { node, tick: tick(next) }),
            tock: Tock::new(next).unwrap(),
            origin: None,
            time: None,
            extra: &[],
        })
    };
    let mut tree = Tree::new(1);
    // What Python cannot hold is not there to keep its parents.
    for (path, value) in [
        ("x", &[1][..]),
        ("x.y", &[1]),
        ("x.y.gone", &[1]),
        ("x.y.gone.a", &[1]),
        ("x.y.gone.a.b", &[1]),
        ("x.y.bad", b"\xa1\xff"),
        ("x.z", &[1]),
    ] {
        tree.insert(&path.parse().unwrap(), entry(Some(value)));
    }
    let written = |gone: &str, tree: &mut Tree, entry: &mut dyn FnMut(Option<&[u8]>) -> Entry| {
        let path: Path = gone.parse().unwrap();
        let (tombstone, mut out) = (entry(None), Vec::new());
        let replaced = tree.insert(&path, tombstone.clone());
        let mut writer = SavedStateWriter::new(&id.name);
        let told =
            writer.write_change(&path, &tombstone, replaced.as_ref(), tree, &table, &mut out);
        let paths = read(&out).entries.into_iter().map(|e| e.path.to_string()).collect::<Vec<_>>();
        (told, paths)
    };
    let (told, paths) = written("x.y.gone", &mut tree, &mut entry);
    assert!(told);
    assert_eq!(paths, ["x.y.gone", "x.y", "x.y.gone.a", "x.y.gone.a.b"]);
    assert_eq!(written("x.z", &mut tree, &mut entry).1, ["x.z"]);
    tree.insert(&Path::root(), entry(Some(&[1])));
    assert_eq!(written(":", &mut tree, &mut entry).1, [":"]);
    for i in 0..10_001 {
        tree.insert(&format!("much.below:{i}").parse().unwrap(), entry(Some(&[1])));
    }
    assert_eq!(written("much", &mut tree, &mut entry), (false, vec![String::from("much")]));
}
