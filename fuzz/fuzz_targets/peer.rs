//! Whatever a peer sends: frames, greetings and messages must be decoded or refused, and what
//! is decoded must not upset an engine.
#![no_main]

use distkv_core::engine::{Config, Engine, Input, LinkId, Outbox};
use distkv_model::ids::{Incarnation, NodeId, NodeName};
use distkv_core::protocol::frame::{BODY_BYTES_MAX, split_frame};
use distkv_core::protocol::peer::PeerMessage;
use distkv_core::protocol::peer::greeting::Greeting;
use libfuzzer_sys::fuzz_target;

fn id(name: &str) -> NodeId {
    NodeId { name: NodeName::new(name).expect("a valid name"), incarnation: Incarnation(1) }
}

fuzz_target!(|data: &[u8]| {
    let config = Config::new(id("me"), 1);
    let mut engine = Engine::new(config);
    let mut out = Outbox::new();
    let link = LinkId(1);
    engine.handle(Input::Found, 0, &mut out);
    engine.handle(Input::LinkUp { link, peer: id("you") }, 0, &mut out);
    let mut rest = data;
    let mut now = 0;
    while let Ok(Some(frame)) = split_frame(rest, BODY_BYTES_MAX) {
        rest = &rest[frame.length..];
        let _ = Greeting::decode(&frame);
        if let Ok(Some(message)) = PeerMessage::decode(&frame) {
            engine.handle(Input::Messages { link, messages: vec![message] }, now, &mut out);
        }
        now += 300;
        engine.handle(Input::Tick, now, &mut out);
        out.drain().for_each(drop);
    }
});
