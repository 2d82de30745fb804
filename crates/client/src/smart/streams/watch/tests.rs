//! A watch against a node that is played: what its stream still has is older than what it answers. The node says
//! everything at once, and the watch reads at its own pace, so nothing here depends on time.

use std::collections::VecDeque;

use futures::{AsyncReadExt, AsyncWriteExt};
use parking_lot::Mutex;

use super::*;
use crate::rt::{TcpListener, TcpStream};
use crate::smart::ClientConfig;
use crate::splitter::Splitter;

/// Longer than a watch waits for what a node has not heard of.
const PATIENCE: Duration = Duration::from_secs(30);

/// A version of the one entry: its value (none: it was deleted) and its tock.
type Told = (Option<u8>, u64);

/// What the node answers to the next question about the entry.
#[derive(Debug, Clone, Copy)]
enum Answer {
    /// It holds this.
    Holds(Told),
    /// Nothing is there any more; this is the node's tock.
    Gone(u64),
}

/// What the node does, in the order of what it is asked.
#[derive(Debug, Default)]
struct Script {
    /// Of each feed: the state, what comes behind it, and whether the connection ends then.
    feeds: VecDeque<(Vec<Told>, Vec<Told>, bool)>,
    answers: VecDeque<Answer>,
}

/// Fields of a version, as nodes send it.
fn version(fields: &mut Fields, (value, tock): Told) {
    let mut chain = Vec::new();
    Chain::of("maker~1", tock).encode(&mut chain);
    if let Some(value) = value {
        fields.raw("value", &[value]);
    }
    fields.raw("chain", &chain).u64("tock", tock);
}

fn reply(seq: u64) -> Fields {
    let mut fields = Fields::new();
    fields.u64("seq", seq);
    fields
}

fn error(seq: u64, code: &str) -> Vec<u8> {
    reply(seq).str("error", "that is not in the script").str("code", code).encode()
}

/// What a node says to a watch; true if it ends the connection then. A watch that comes once more is refused, so that a
/// test ends.
fn feed(script: &Mutex<Script>, seq: u64) -> (Vec<u8>, bool) {
    let Some((state, changes, is_end)) = script.lock().feeds.pop_front() else {
        return (error(seq, "bad_request"), false);
    };
    let word = |word| reply(seq).str("state", word).encode();
    let item = |told: Told| {
        let mut fields = reply(seq);
        fields.u64("depth", 0).path("path", &"x".parse().unwrap());
        version(&mut fields, told);
        fields.encode()
    };
    let mut said = word("start");
    state.into_iter().for_each(|told| said.extend(item(told)));
    said.extend(word("uptodate"));
    changes.into_iter().for_each(|told| said.extend(item(told)));
    (said, is_end)
}

async fn serve(mut stream: TcpStream, script: &Mutex<Script>) {
    let mut greeting = reply(0);
    greeting.raw("version", b"\x93\x00\x41\x00").str("node", "played").u64("tock", 2);
    stream.write_all(&greeting.u64("qlen", 0).encode()).await.unwrap();
    let (mut splitter, mut chunk) = (Splitter::new(), [0; 4096]);
    loop {
        while let Some(request) = splitter.next_value().unwrap() {
            let request = Message::new(request).unwrap();
            // Settings have none.
            let Some(seq @ 1..) = request.u64("seq") else { continue };
            let answer = match request.str("action") {
                Some("watch") => {
                    let (said, is_end) = feed(script, seq);
                    let _ = stream.write_all(&said).await;
                    if is_end {
                        let _ = stream.shutdown(std::net::Shutdown::Write);
                    }
                    continue;
                }
                Some("check_deleted") => reply(seq).raw("missing", b"\x80").encode(),
                Some("get_value") => {
                    let answer = script.lock().answers.pop_front();
                    let mut fields = reply(seq);
                    match answer {
                        Some(Answer::Holds(told)) => version(&mut fields, told),
                        Some(Answer::Gone(tock)) => _ = fields.u64("tock", tock),
                        None => _ = fields.str("error", "once more").str("code", "bad_request"),
                    }
                    fields.encode()
                }
                _ => error(seq, "unknown_action"),
            };
            let _ = stream.write_all(&answer).await;
        }
        match stream.read(&mut chunk).await {
            Ok(count @ 1..) => splitter.push(&chunk[..count]),
            _ => return,
        }
    }
}

/// The watch is told `before` at the first node. Then that one is gone, and the next one sends `state` and `changes`, and
/// answers its questions so. The changes that are told from then on, up to the one with the tock `last`.
fn told_after(
    before: &[Told],
    (state, changes): (&[Told], &[Told]),
    answers: &[Answer],
    last: u64,
) -> Vec<Told> {
    let first = (Vec::new(), before.to_vec(), true);
    let second = (state.to_vec(), changes.to_vec(), false);
    let script = Script { feeds: [first, second].into(), answers: answers.to_vec().into() };
    rt::block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().into();
        let script = Arc::new(Mutex::new(script));
        let its = Arc::clone(&script);
        let node = rt::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let its = Arc::clone(&its);
                let _detached = rt::spawn(async move { serve(stream, &its).await });
            }
        });
        let client = Client::connect([address], ClientConfig::new()).await.unwrap();
        let options = WatchOptions { fetch: true, ..WatchOptions::default() };
        let mut watch = client.watch(&"q".parse().unwrap(), options).await.unwrap();
        assert_eq!(watch.next().await, Ok(WatchEvent::UpToDate));
        let (mut told, mut resumed) = (Vec::new(), 0);
        while told.last().is_none_or(|(_, tock)| *tock != last) {
            let event = rt::timeout(PATIENCE, watch.next()).await;
            match event.unwrap_or_else(|| panic!("nothing came after {told:?}")).unwrap() {
                WatchEvent::Change(change) => told.push((change.get().unwrap(), change.tock)),
                WatchEvent::Resumed { .. } => resumed += 1,
                other => panic!("{other:?} after {told:?}"),
            }
        }
        assert_eq!((resumed, script.lock().answers.len()), (1, 0), "{told:?}");
        client.close();
        node.cancel().await;
        assert_eq!(told[..before.len()], *before);
        told.split_off(before.len())
    })
}

#[test]
fn what_a_node_has_answered_is_not_told_again_by_its_stream() {
    let changes = [(Some(2), 20), (Some(3), 30), (None, 40), (Some(5), 50)];
    let told = told_after(&[(Some(1), 10)], (&[], &changes), &[Answer::Holds((Some(3), 30))], 50);
    assert_eq!(told, [(Some(3), 30), (None, 40), (Some(5), 50)]);
}

#[test]
fn so_it_is_where_the_state_was_older_than_what_was_told() {
    // The state has it older than it was told; then it was written again.
    let changes = [(Some(2), 20), (Some(3), 30), (None, 40), (Some(5), 50)];
    let answers = [Answer::Holds((Some(3), 30))];
    let told = told_after(&[(Some(1), 10)], (&[(Some(0), 5)], &changes), &answers, 50);
    assert_eq!(told, [(Some(3), 30), (None, 40), (Some(5), 50)]);
    // It is asked about once, however often that came.
    let state = [(Some(0), 5), (Some(0), 6)];
    let told = told_after(&[(Some(1), 10)], (&state, &changes), &answers, 50);
    assert_eq!(told, [(Some(3), 30), (None, 40), (Some(5), 50)]);
}

#[test]
fn what_came_before_a_deletion_that_a_node_has_answered_is_not_told() {
    let changes = [(Some(2), 20), (Some(3), 30), (None, 40), (Some(4), 41), (Some(5), 61)];
    let gone = [Answer::Gone(60), Answer::Gone(60), Answer::Gone(60), Answer::Gone(60)];
    let told = told_after(&[(Some(1), 10)], (&[], &changes), &gone, 61);
    assert_eq!(told, [(None, 60), (Some(5), 61)]);
}

#[test]
fn what_is_created_again_by_a_node_whose_clock_is_behind_is_told() {
    let answers = [Answer::Gone(60), Answer::Holds((Some(2), 20)), Answer::Holds((Some(9), 90))];
    let told = told_after(&[(Some(1), 10)], (&[], &[(Some(2), 20)]), &answers[..2], 20);
    assert_eq!(told, [(None, 60), (Some(2), 20)]);
    // What it holds by then counts.
    let answers = [answers[0], answers[2]];
    let told = told_after(&[(Some(1), 10)], (&[], &[(Some(2), 20), (Some(9), 90)]), &answers, 90);
    assert_eq!(told, [(None, 60), (Some(9), 90)]);
}

#[test]
fn a_deletion_that_was_told_is_not_told_again_by_an_answer() {
    let before = [(Some(1), 10), (None, 30)];
    let told = told_after(&before, (&[(Some(2), 20)], &[(Some(5), 61)]), &[Answer::Gone(60)], 61);
    assert_eq!(told, [(Some(5), 61)]);
}
