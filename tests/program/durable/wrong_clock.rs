//! The past of a node whose clock was wrong for a while: what it knows surely can be undone, saved and replayed, and what is in
//! doubt is told.

use distkv::engine::batch::write_one;
use distkv::engine::{Config, Engine, Input, Outbox, Output};
use distkv::model::ids::{Incarnation, NodeId, NodeName};
use distkv::model::path::Path;
use distkv::replica::write::Write;
use distkv::rt::wall_clock_ms;
use distkv::storage::{Batch, DataDir, FileHeader, LogStart, Op};
use serde_json::Value as Json;

use super::place::Place;
use crate::cli::command::{at, cli, note, ok};

const MINUTE_MS: u64 = 60_000;

/// What a change at `path` has logged.
fn set(engine: &mut Engine, path: &str, value: u8) -> Vec<Op> {
    let mut out = Outbox::new();
    let (path, value): (Path, _) = (path.parse().unwrap(), [value]);
    write_one(engine, Write::new(path, Some(&value)), false, &mut out).unwrap();
    let commit = |output: Output| match output {
        Output::Commit(change) => Some(Op::Put(change)),
        _ => None,
    };
    out.drain().filter_map(commit).collect()
}

/// A directory whose node ran for an hour, which began three hours ago. Then its clock was set back by half an hour, and was
/// right again two minutes later. `k` was set once a minute, to 1, 2, 3 …
fn place(begun_ms: u64) -> Place {
    let place = Place::new("n1", "every-batch");
    let id = NodeId { name: NodeName::new("n1").unwrap(), incarnation: Incarnation(0x1234) };
    let mut engine = Engine::new(Config::new(id.clone(), 1));
    engine.handle(Input::Found, 0, &mut Outbox::new());
    let network = place.network.clone();
    let header = FileHeader { number: 1, network, id, store: 1, time_ms: begun_ms };
    let (knowledge, table) = (engine.knowledge(), engine.table().clone());
    let dir = DataDir::open(&place.dir).unwrap();
    let mut log = dir.begin_log(&header, LogStart::Empty, &knowledge, &table).unwrap();
    for (value, minute) in (1..).zip((1..=60).chain([30, 31, 32]).chain(63..=70)) {
        let (ops, time_ms) = (set(&mut engine, "k", value), begun_ms + minute * MINUTE_MS);
        log.append(&Batch { time_ms, ops, table: engine.table().clone(), knowledge: None })
            .unwrap();
    }
    log.sync().unwrap();
    place
}

fn json(text: &str) -> Json {
    serde_json::from_str(text.lines().last().unwrap_or_default()).expect(text)
}

/// A time as commands take it.
fn moment(ms: u64) -> String {
    format!("@{}.{:03}", ms / 1_000, ms % 1_000)
}

#[test]
fn what_a_clock_that_was_set_back_leaves_in_doubt_is_told_and_nothing_else_is_lost() {
    let begun_ms = wall_clock_ms() - 180 * MINUTE_MS;
    let place = place(begun_ms);
    let minute = |minute: u64| moment(begun_ms + minute * MINUTE_MS);
    let node = place.run_alone();
    assert_eq!(ok(&node, &["get", "k"]), "71\n");
    let undo = |moment: &str, more: &[&str]| {
        at(&node, &[&["undo", "--below", "k", "--overwrite", "--at", moment][..], more].concat())
    };

    // The clock showed it once, before it was set back.
    let done = undo(&minute(45), &[]);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{}", done.stdout);
    assert_eq!(ok(&node, &["get", "k"]), "45\n");

    // It showed this twice.
    let refused = undo(&minute(30), &[]);
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""), "{}", refused.stderr);
    let parts =
        ["clock was set back from 20", "nothing was", "before 20", "--connect", "--allow-gap"];
    for part in parts {
        assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
    }
    assert_eq!(ok(&node, &["get", "k"]), "45\n");
    // Who only looks is told of it.
    let shown = undo(&minute(30), &["--dry-run", "--json"]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    let told = note(shown.stderr.lines().next().unwrap());
    assert!(told.contains("clock was set back from 20"), "{told}");
    let shown = json(&shown.stdout);
    let gap = &shown["gap"];
    assert!(gap["clock"] == true && shown["restored"] == 1, "{shown}");
    let end = |name: &str| gap[name].as_str().unwrap();
    assert!(end("from") < end("to") && refused.stderr.contains(end("from")), "{gap}");
    // Outside of what is told there is no doubt.
    for clear in [end("to"), &moment(begun_ms + 30 * MINUTE_MS - 1)] {
        let done = undo(clear, &["--dry-run"]);
        assert!(done.code == 0 && !done.stderr.contains("set back"), "{clear}: {}", done.stderr);
    }
    // It went over this at once.
    let refused = undo(&minute(61), &[]);
    assert!(
        refused.code == 1 && refused.stderr.contains("clock leapt ahead"),
        "{}",
        refused.stderr
    );

    // The same by other ways.
    let file = place.dir.with_extension("dkv");
    let to = ["--to", file.to_str().unwrap(), "--force", "--json"];
    let saved = at(&node, &[&["snapshot", "save", "--at", &minute(30)][..], &to].concat());
    assert_eq!((saved.code, &json(&saved.stdout)["gap"]), (0, gap), "{saved:?}");
    assert!(note(saved.stderr.lines().next().unwrap()).contains("set back"), "{}", saved.stderr);
    let (dir, log) = (place.dir.to_str().unwrap(), place.dir.join("log-1.dkv"));
    for from in [dir, log.to_str().unwrap()] {
        let until = minute(30);
        let replay = [&["log", "replay", from, "--until-time", &until][..], &to].concat();
        let replayed = cli(&replay);
        assert_eq!((replayed.code, &json(&replayed.stdout)["gap"]), (0, gap), "{replayed:?}");
        let notes: Vec<String> = replayed.stderr.lines().map(note).collect();
        assert!(notes.len() == 1 && notes[0].contains("set back"), "{notes:?}");
        let clear = cli(&[&["log", "replay", from, "--until-time", &minute(45)][..], &to].concat());
        assert!(clear.stderr.is_empty() && json(&clear.stdout).get("gap").is_none(), "{clear:?}");
    }
    let since = ok(&node, &["history", "k", "--since", &minute(45), "--json"]);
    let first: Json = serde_json::from_str(since.lines().next().unwrap()).unwrap();
    assert_eq!((&first["before"], &first["after"]), (&44.into(), &45.into()), "{first}");

    let done = undo(&minute(30), &["--allow-gap"]);
    assert!(done.code == 0 && done.stderr.contains("set back"), "{}", done.stderr);
    assert_eq!(ok(&node, &["get", "k"]), "61\n", "that is the last time");
}
