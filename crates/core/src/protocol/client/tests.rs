//! Requests and replies in bytes: as in the original's transcripts, and whatever else can come.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::chain::{ChainField, Names};
use super::reply::{
    Greeting, LoginOffer, StreamTag, write_error, write_greeting, write_state, write_ticks,
};
use super::request::{ChainLength, RequestPath, WatchConflicts};
use super::shorten::Shortener;
use super::*;
use crate::model::chain::Chain;
use crate::model::entry::{Entry, EntryParts};
use crate::model::ids::{Event, Incarnation, NodeId, NodeIndex, NodeName, NodeTable, Tick, Tock};
use crate::model::lengthen::Lengthener;
use crate::model::limits::CHAIN_LEN_MAX;
use crate::model::path::Path;
use crate::model::spelling::LifeRef;
use crate::model::value::Reader;

fn hex(text: &str) -> Vec<u8> {
    let digit = |b: u8| char::from(b).to_digit(16).unwrap() as u8;
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn request(message: &[u8]) -> (u64, Request<'_>) {
    match decode(message).unwrap() {
        ClientMessage::Request { seq, request, .. } => (seq, request),
        other => panic!("{other:?}"),
    }
}

fn refused(message: &[u8]) -> BadMessage {
    decode(message).unwrap_err()
}

fn tock(tock: u64) -> Tock {
    Tock::new(tock).unwrap()
}

#[test]
fn the_clients_first_messages_are_understood() {
    let settings = hex("82a373657100a4716c656e0a");
    assert!(matches!(decode(&settings), Ok(ClientMessage::Settings { qlen: 10, nowait: false })));
    // {action: watch, nchain: 3, path: .distkv.config, fetch: true, wseq: 1, seq: 1}
    let watch =
        hex("86a6616374696f6ea57761746368a66e636861696e03a470617468c70f03a72e646973746b76a6636f6e\
         666967a56665746368c3a47773657101a373657101");
    let (seq, Request::Watch { scope, fetch: true, restart: false, conflicts }) = request(&watch)
    else {
        panic!("no watch");
    };
    assert_eq!((seq, scope.chain, scope.depth_max), (1, ChainLength::of(3), None));
    assert_eq!(conflicts, WatchConflicts::Without);
    assert_eq!(scope.path.path.to_path().to_string(), ":.distkv.config");
    assert!(scope.path.path.is_borrowed());
    let ack = hex("83a373657103a57374617465a361636ba361636b04");
    assert!(matches!(decode(&ack), Ok(ClientMessage::Ack { seq: 3, ack: 4 })));
}

fn life(name: &str, incarnation: u64) -> LifeRef<'_> {
    LifeRef { name, incarnation: Incarnation(incarnation) }
}

#[test]
fn a_chain_of_a_bare_name_is_refused_and_the_error_says_what_to_write() {
    // As a server of the original has it: {…, chain: {node: n1, tick: 167, prev: nil}, …}
    let set = hex(
        "86a470617468c70c03a9683431626434623362a163a576616c756502a66e636861696e02a5636861696e83\
         a46e6f6465a26e31a47469636bcca7a470726576c0a6616374696f6ea97365745f76616c7565a373657105",
    );
    let error = refused(&set).error;
    assert_eq!(error.code, ErrorCode::BadRequest);
    assert!(error.text.contains("'chain'") && error.text.contains("n1~LIFE"), "{}", error.text);
}

#[test]
fn a_set_with_a_chain_is_understood() {
    // {path: h41bd4b3b.c, value: 2, nchain: 2, chain: {node: n1~ab, tick: 167, prev: nil}, …}
    let set = hex(
        "86a470617468c70c03a9683431626434623362a163a576616c756502a66e636861696e02a5636861696e83\
         a46e6f6465a56e317e6162a47469636bcca7a470726576c0a6616374696f6ea97365745f76616c7565a373\
         657105",
    );
    let (5, Request::Write(write)) = request(&set) else { panic!("no write") };
    assert_eq!(write.value, Some(&[2][..]));
    assert_eq!(write.chain, ChainField::Newest { life: life("n1", 0xab), tick: 167 });
    assert_eq!((write.reply_chain, write.copies, write.idempotent), (ChainLength::of(2), 0, false));
    let RequestPath { path, internal: false } = write.path else { panic!("internal") };
    assert_eq!(path.len(), 2);
}

#[test]
fn conflicts_are_asked_for_with_little() {
    let bare = b"\x82\xa6action\xa9conflicts\xa3seq\x01";
    let (1, Request::Conflicts { scope, since: 0, limit: None }) = request(bare) else {
        panic!("no conflicts");
    };
    assert!(scope.path.path.is_root());
    assert_eq!(scope.chain, ChainLength::of(1), "who made the versions belongs to it");
    let more = b"\x86\xa6action\xa9conflicts\xa3seq\x01\xa4path\x91\xa1a\xa5since\x05\
                 \xa5limit\x02\xa6nchain\xff";
    let (_, Request::Conflicts { scope, since: 5, limit: Some(2) }) = request(more) else {
        panic!("no conflicts");
    };
    assert_eq!((scope.path.path.len(), scope.chain), (1, ChainLength::WHOLE));
    let watch = |conflicts: &[u8]| {
        let head = b"\x84\xa6action\xa5watch\xa3seq\x01\xa4path\x90\xa9conflicts";
        [&head[..], conflicts].concat()
    };
    for (word, wanted) in [
        (&b"\xc0"[..], WatchConflicts::Without),
        (b"\xc2", WatchConflicts::Without),
        (b"\xc3", WatchConflicts::With),
        (b"\x01", WatchConflicts::With),
        (b"\xa4only", WatchConflicts::Only),
    ] {
        let message = watch(word);
        let (_, Request::Watch { conflicts, .. }) = request(&message) else { panic!("no watch") };
        assert_eq!(conflicts, wanted);
    }
    let error = refused(&watch(b"\xa3all"));
    assert!(error.in_stream && error.error.text.contains("conflicts"), "{error:?}");
}

#[test]
fn ticks_by_node_come_as_they_are_told() {
    let ask = |nodes: &[u8]| {
        let head = b"\x83\xa6action\xadcheck_deleted\xa3seq\x01\xa5nodes";
        [&head[..], nodes].concat()
    };
    let message = ask(b"\x82\xa1a\x92\x92\x01\x04\x07\xa1b\x90");
    let (_, Request::CheckDeleted { nodes }) = request(&message) else { panic!("no check") };
    let shown: Vec<_> = nodes.iter().map(|(n, t)| (*n, t.iter().collect::<Vec<_>>())).collect();
    assert_eq!(shown, [("a", vec![1, 2, 3, 7]), ("b", vec![])]);
    for bad in [
        &b"\x90"[..],
        b"\x81\x05\x90",
        b"\x81\xa1a\x05",
        b"\x81\xa1a\x91\x00",
        b"\x81\xa1a\x91\xa1x",
        b"\x81\xa1a\x91\x93\x01\x02\x03",
        b"\x81\xa1a\x91\x92\x01\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x81\xa1a\x91\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
    ] {
        assert!(refused(&ask(bad)).error.text.contains("'nodes'"), "{bad:?}");
    }
}

#[test]
fn the_last_of_a_repeated_field_counts_and_keys_that_are_no_strings_do_not() {
    let message = b"\x84\xa3seq\x01\xa6action\xa8get_tock\xa3seq\x02\x05\x06";
    assert!(matches!(request(message), (2, Request::GetTock)));
}

#[test]
fn an_error_names_the_request_wherever_its_number_stands() {
    let bad = refused(b"\x83\xa4path\x05\xa6action\xa9get_value\xa3seq\x07");
    assert_eq!((bad.seq, bad.in_stream, bad.is_fatal), (Some(7), false, false));
    assert_eq!(bad.error.code, ErrorCode::BadRequest);
    assert!(bad.error.text.contains("'path'"), "{}", bad.error);
    let bad = refused(b"\x82\xa6action\xa5watch\xa3seq\x07");
    assert_eq!((bad.seq, bad.in_stream), (Some(7), true));
    let bad = refused(b"\x81\xa6action\xa8get_tock");
    assert_eq!((bad.seq, bad.is_fatal), (None, false));
    assert!(refused(b"\x91\x01").is_fatal);
}

#[test]
fn every_action_is_known_by_its_name() {
    for name in ["get_value", "enum", "enumerate", "get_tree_internal", "test_acl", "status"] {
        let action = Action::of(name.as_bytes()).unwrap();
        assert!(name.starts_with(action.name()), "{name}");
    }
    assert_eq!(Action::of(b"enumerate").map(Action::name), Some("enum"));
    assert_eq!(Action::of(b"Get_value"), None);
}

#[test]
fn messages_are_the_originals_byte_for_byte() {
    let mut out = Vec::new();
    let (tick, tock_26) = (Tick::new(1), tock(26));
    let unnamed = Greeting { node: "n1", network: "", tick, tock: tock_26, qlen: 10, clock: 5 };
    write_greeting(&unnamed, &LoginOffer::default(), &mut out);
    let greeting =
        "86a373657100a776657273696f6e93004100a46e6f6465a26e31a47469636b01a4746f636b1aa4716c656e0a";
    let greeting = greeting.replacen("86", "87", 1) + "a5636c6f636b05";
    assert_eq!(out, hex(&greeting), "the original's clients ignore what they do not know");
    out.clear();
    let named = Greeting { network: "plant", ..unnamed };
    write_greeting(&named, &LoginOffer::default(), &mut out);
    let named = greeting.replacen("87", "88", 1) + "a76e6574776f726ba5706c616e74";
    assert_eq!(out, hex(&named));
    out.clear();
    write_state("uptodate", StreamTag { seq: 1, wseq: Some(2) }, tock(30), &mut out);
    assert_eq!(out, hex("84a57374617465a87570746f64617465a373657101a47773657102a4746f636b1e"));
    out.clear();
    write_error(&ClientError::bad_request("x"), None, tock(3), &mut out);
    assert_eq!(out, b"\x83\xa5error\xa1x\xa4code\xabbad_request\xa4tock\x03");
    out.clear();
    let ticks = [1, 2, 4, 6, 7].into_iter().map(|t| Tick::new(t).unwrap()).collect();
    write_ticks(&ticks, &mut out);
    assert_eq!(out, [0x93, 0x92, 1, 3, 4, 0x92, 6, 8]);
}

/// A chain of the newest events of n0, n1, … with a table that knows them.
fn chain_of(count: usize, cut: bool) -> (NodeTable, Entry) {
    let mut table = NodeTable::new();
    let events: Vec<Event> = (0..count)
        .map(|i| {
            let name = NodeName::new(&format!("n{i}")).unwrap();
            let node = table.intern(&NodeId { name, incarnation: Incarnation(1) }).unwrap();
            Event { node, tick: Tick::new(i as u64 + 1).unwrap() }
        })
        .collect();
    let chain = Chain::from_events(events, cut).unwrap();
    let entry = Entry::new(&EntryParts {
        value: None,
        chain: &chain,
        tock: tock(1),
        origin: None,
        time: None,
        extra: &[],
    });
    (table, entry)
}

/// The nodes of an encoded chain, and whether it has an end (a `prev` that is nil).
fn shape(bytes: &[u8]) -> (Vec<String>, bool) {
    let mut reader = Reader::new(bytes);
    let mut nodes = Vec::new();
    loop {
        if reader.take_nil() {
            return (nodes, true);
        }
        let fields = reader.read_map_len().unwrap();
        assert_eq!(reader.read_str().unwrap(), "node");
        nodes.push(reader.read_str().unwrap().to_owned());
        assert_eq!(reader.read_str().unwrap(), "tick");
        reader.read_u64().unwrap();
        if fields == 2 {
            reader.finish().unwrap();
            return (nodes, false);
        }
        assert_eq!(reader.read_str().unwrap(), "prev");
    }
}

fn encoded(entry: &Entry, table: &NodeTable, killed: &BTreeSet<NodeName>, n: usize) -> Vec<u8> {
    let mut out = Vec::new();
    Names { table, killed }.write_chain(entry, ChainLength::of(n), &mut out);
    out
}

#[test]
fn a_chain_that_is_cut_off_has_no_end_for_who_wants_one_event_or_all() {
    let nobody = BTreeSet::new();
    let (table, whole) = chain_of(3, false);
    let (cut_table, cut) = chain_of(3, true);
    // Events wanted; whether the chain ends where the entry has the whole of it, and where it has not.
    let cases = [(1, false, false), (CHAIN_LEN_MAX + 1, true, false), (usize::MAX, true, false)];
    for (wanted, whole_ends, cut_ends) in cases {
        let (nodes, ends) = shape(&encoded(&whole, &table, &nobody, wanted));
        assert_eq!((nodes.len(), ends), (wanted.min(3), whole_ends));
        let (nodes, ends) = shape(&encoded(&cut, &cut_table, &nobody, wanted));
        assert_eq!((nodes.len(), ends), (wanted.min(3), cut_ends));
    }
}

/// A mirror of the original asks for three, and dies where the end is not there.
#[test]
fn a_chain_of_two_events_or_more_always_ends() {
    let (nobody, killed) = (BTreeSet::new(), BTreeSet::from([NodeName::new("n1").unwrap()]));
    for is_cut in [false, true] {
        let (table, entry) = chain_of(4, is_cut);
        for wanted in 2..=CHAIN_LEN_MAX {
            let (nodes, ends) = shape(&encoded(&entry, &table, &nobody, wanted));
            assert_eq!((nodes.len(), ends), (wanted.min(4), true));
            let (nodes, ends) = shape(&encoded(&entry, &table, &killed, wanted));
            assert_eq!((nodes.len(), ends), (wanted.min(3), true));
        }
    }
}

#[test]
fn killed_nodes_drop_out_of_chains_but_the_newest_event_stays() {
    let (table, entry) = chain_of(3, false);
    let kill = |names: &[&str]| names.iter().map(|n| NodeName::new(n).unwrap()).collect();
    let (nodes, ends) = shape(&encoded(&entry, &table, &kill(&["n1"]), 9));
    assert_eq!((nodes, ends), (vec!["n0~1".into(), "n2~1".into()], true));
    let (nodes, ends) = shape(&encoded(&entry, &table, &kill(&["n0", "n1", "n2"]), 9));
    assert_eq!((nodes, ends), (vec!["n0~1".into()], true));
}

#[test]
fn a_deletions_event_is_told_in_the_message_itself() {
    let nobody = BTreeSet::new();
    let (table, entry) = chain_of(2, false);
    let told = |wanted| {
        let mut out = Vec::new();
        let mut message = MessageWriter::new(&mut out);
        let names = Names { table: &table, killed: &nobody };
        names.add_event_fields(&entry, ChainLength::of(wanted), &mut message);
        out
    };
    assert_eq!(told(1), b"\x82\xa4node\xa4n0~1\xa4tick\x01");
    let whole =
        b"\x83\xa4node\xa4n0~1\xa4tick\x01\xa4prev\x83\xa4node\xa4n1~1\xa4tick\x02\xa4prev\xc0";
    assert_eq!(told(2), whole);
    assert_eq!(told(usize::MAX), whole);
    let (table, longer) = chain_of(3, false);
    let mut out = Vec::new();
    let names = Names { table: &table, killed: &nobody };
    names.add_event_fields(&longer, ChainLength::of(2), &mut MessageWriter::new(&mut out));
    assert_eq!(out, whole, "what is cut off ends, too");
}

#[test]
fn a_chain_field_is_looked_at_only_as_far_as_needed() {
    let decode = |bytes: &'static [u8]| ChainField::decode(Some(bytes));
    assert_eq!(decode(b"\xc0"), Ok(ChainField::New));
    assert_eq!(decode(b"\x80"), Ok(ChainField::New));
    let newest = Ok(ChainField::Newest { life: life("a", 0xb), tick: 5 });
    assert_eq!(decode(b"\x82\xa4node\xa3a~b\xa4tick\x05"), newest);
    assert_eq!(decode(b"\x84\x01\x02\xa4tick\x05\xa4prev\x91\xc0\xa4node\xa3a~b"), newest);
    for bad in [
        &b"\x05"[..],
        b"\x90",
        b"\x81\xa4node\xa3a~b",
        b"\x82\xa4node\x01\xa4tick\x05",
        b"\x82\xa4node\xa1a\xa4tick\x05",
        b"\x82\xa4node\xa4a~0b\xa4tick\x05",
    ] {
        assert!(ChainField::decode(Some(bad)).unwrap_err().text.contains("'chain'"));
    }
}

#[test]
fn a_chain_of_any_length_is_within_a_messages_depth() {
    let (table, entry) = chain_of(CHAIN_LEN_MAX, false);
    let bytes = encoded(&entry, &table, &BTreeSet::new(), usize::MAX);
    assert_eq!(shape(&bytes).0.len(), CHAIN_LEN_MAX);
    assert_eq!(table.get(NodeIndex(0)).map(|id| id.name.as_str()), Some("n0"));
}

proptest! {
    #[test]
    fn paths_that_are_shortened_and_lengthened_are_the_same(
        paths in proptest::collection::vec(crate::model::path::arbitrary::path(), 1..20),
    ) {
        let mut shortener = Shortener::new(&Path::root());
        let mut lengthener = Lengthener::default();
        for path in paths {
            let mut out = Vec::new();
            shortener.add_path(&path, &mut MessageWriter::new(&mut out));
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.read_map_len(), Ok(2));
            prop_assert_eq!(reader.read_str(), Ok("path"));
            let short = reader.read_raw().unwrap();
            prop_assert_eq!(reader.read_str(), Ok("depth"));
            let depth = reader.read_u64().unwrap();
            prop_assert_eq!(lengthener.lengthen(short, depth).unwrap(), path.as_bytes());
        }
    }

    #[test]
    fn a_message_has_any_number_of_fields(count in 0usize..=40, before in 0usize..4) {
        let mut out = vec![0xc0; before];
        let mut message = MessageWriter::new(&mut out);
        for field in 0..count {
            message.u64("n", field as u64);
        }
        let mut reader = Reader::new(&out);
        for _ in 0..before {
            reader.read_raw().unwrap();
        }
        prop_assert_eq!(reader.read_map_len().unwrap(), count);
        for field in 0..count {
            prop_assert_eq!(reader.read_str(), Ok("n"));
            prop_assert_eq!(reader.read_u64(), Ok(field as u64));
        }
        prop_assert!(reader.is_at_end());
    }

    #[test]
    fn no_message_makes_the_decoder_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let _ = decode(&bytes);
    }

    #[test]
    fn no_damage_to_a_message_makes_the_decoder_panic(
        at in 0usize..200, byte in any::<u8>(), cut in 0usize..200, which in 0usize..4,
    ) {
        let messages: [&[u8]; 4] = [
            b"\x86\xa6action\xa5watch\xa3seq\x01\xa4path\xc7\x04\x03\xa1a\xa1b\xa6nchain\x03\
              \xa9min_depth\x01\xa5fetch\xc3",
            b"\x87\xa6action\xa9set_value\xa3seq\x01\xa4path\x92\xa1a\x05\xa5value\x91\xc0\
              \xa5chain\x82\xa4node\xa3n~1\xa4tick\x05\xa6copies\x02\xa7timeout\xca\x3f\x80\x00\x00",
            b"\x84\xa6action\xa8msg_send\xa3seq\x01\xa5topic\x92\xa1a\xc3\xa3raw\xc4\x01\xff",
            b"\x85\xa6action\xa9get_value\xa3seq\x01\xa4node\xa2n1\xa4tick\xcf\xff\xff\xff\xff\
              \xff\xff\xff\xff\xa6nchain\xff",
        ];
        let mut damaged = messages[which].to_vec();
        damaged.truncate(damaged.len().saturating_sub(cut % 8));
        let len = damaged.len();
        damaged[at % len] = byte;
        let _ = decode(&damaged);
    }
}
