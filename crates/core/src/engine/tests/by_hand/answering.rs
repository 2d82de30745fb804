//! The answering side: a verdict is of the whole tree, and a snapshot is kept for as long as somebody
//! needs it.

use super::*;
use crate::protocol::peer::{CatchUpAsk, CatchUpNames};

fn ask(id: u64) -> PeerMessage<'static> {
    let (mark, contiguous) = (Mark::default(), Vec::new());
    PeerMessage::CatchUpAsk(CatchUpAsk { id, mark, contiguous, no_announcements: false })
}

fn discards(came: &Came) -> usize {
    came.0.iter().filter(|output| matches!(output, Output::Discard(_))).count()
}

#[test]
fn a_verdict_is_given_once_and_of_the_whole_tree() {
    const ENTRIES: u64 = 5_000;
    let mut me = Hand::with_peers(1);
    me.write("k0", Some(&[0]));
    for number in 0..ENTRIES {
        me.write(&format!("k{number}"), Some(&[1]));
    }
    me.hear(1, ask(4));
    let events = vec![(id("me"), TickSet::range(1, ENTRIES + 2).unwrap())];
    let names = CatchUpNames { id: 4, events, paths: vec![path("k0"), path("none")] };
    let verdicts = me.hear(1, PeerMessage::CatchUpNames(names)).served(|message| match message {
        PeerMessage::CatchUpVerdict(verdict) => (verdict.gone.clone(), verdict.empty.clone()),
        other => panic!("{other:?}"),
    });
    assert_eq!(verdicts, [(ticks("me", 1), vec![1])], "the first change is overwritten");
}

#[test]
fn a_snapshot_is_let_go_of_when_its_asker_is_done_asks_anew_is_gone_or_is_silent() {
    let mut me = Hand::with_peers(1);
    assert_eq!(discards(&me.hear(1, ask(4))), 0);
    assert_eq!(discards(&me.hear(1, PeerMessage::CatchUpDone { id: 3 })), 0, "another one");
    assert_eq!(discards(&me.hear(1, PeerMessage::CatchUpDone { id: 4 })), 1);
    me.hear(1, ask(5));
    assert_eq!(discards(&me.hear(1, ask(6))), 1);
    assert_eq!(discards(&me.tick_at(59_900)), 0);
    assert_eq!(discards(&me.tick_at(60_000)), 1);
    me.hear(1, ask(7));
    assert_eq!(discards(&me.input(Input::LinkDown { link: LinkId(1) })), 1);
}
