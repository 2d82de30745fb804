//! A node for tests: a real engine, whose changes go to a data directory on a disk in memory.

use std::sync::Arc;

use crate::batch::{Batch, Op};
use crate::engine::batch::write_one;
use crate::engine::delete::DeleteSettings;
use crate::engine::{Config, Engine, Image, Input, Outbox, Output};
use crate::header::FileHeader;
use crate::listing::list_image;
use crate::model::ids::{Incarnation, Millis, NodeId, NodeName};
use crate::model::path::Path;
use crate::model::value::write_u64;
use crate::replica::write::Write;

pub(super) const NETWORK: &str = "plant";
pub(super) const NAME: &str = "a";
pub(super) const STORE: u64 = 0x5704_e000;

pub(super) fn node_id(name: &str, incarnation: u64) -> NodeId {
    NodeId { name: NodeName::new(name).unwrap(), incarnation: Incarnation(incarnation) }
}

pub(super) fn header(number: u64, incarnation: u64) -> FileHeader {
    let id = node_id(NAME, incarnation);
    FileHeader { number, network: NETWORK.into(), id, store: STORE, time_ms: 1_000 + number }
}

/// An engine that purges soon, alone.
pub(super) struct TestNode {
    pub(super) engine: Engine,
    now: Millis,
}

impl TestNode {
    /// A first node, ready.
    pub(super) fn new(incarnation: u64) -> Self {
        let mut node = Self { engine: Engine::new(config(incarnation)), now: 0 };
        node.batch(|engine, out| engine.handle(Input::Found, 0, out));
        node
    }

    /// A node that comes back.
    pub(super) fn restored(image: &Image, incarnation: u64) -> Self {
        let mut out = Outbox::new();
        let engine = Engine::restore(config(incarnation), image, &mut out).unwrap();
        assert!(image.decided.is_some() || out.is_empty());
        let mut node = Self { engine, now: 0 };
        node.batch(|engine, out| engine.handle(Input::Found, 0, out));
        node
    }

    pub(super) fn incarnation(&self) -> u64 {
        self.engine.id().incarnation.0
    }

    /// What one change did.
    pub(super) fn batch(&mut self, change: impl FnOnce(&mut Engine, &mut Outbox)) -> Batch {
        let mut out = Outbox::new();
        let before = self.engine.knowledge();
        change(&mut self.engine, &mut out);
        let mut ops = Vec::new();
        let mut is_more = false;
        for output in out.drain() {
            match output {
                Output::Commit(change) => ops.push(Op::Put(change)),
                Output::Gone { purged, dropped } => {
                    is_more = true;
                    ops.extend(purged.iter().chain(&dropped).map(Op::gone));
                }
                Output::Persist { .. } => is_more = true,
                _ => {}
            }
        }
        let after = self.engine.knowledge();
        let changed = before.group != after.group
            || before.mark != after.mark
            || before.decided != after.decided
            || before.id != after.id
            || ops.is_empty() && before.seen != after.seen;
        Batch {
            time_ms: 1_000_000 + self.now,
            table: Arc::clone(self.engine.table()),
            ops,
            knowledge: (is_more || changed).then_some(after),
        }
    }

    pub(super) fn set(&mut self, path: &str, value: Option<u64>) -> Batch {
        let mut bytes = Vec::new();
        if let Some(value) = value {
            write_u64(value, &mut bytes);
        }
        self.batch(|engine, out| write(engine, path, value.map(|_| &bytes[..]), out))
    }

    /// Lets time pass; every step is a batch, if anything happened.
    pub(super) fn wait(&mut self, lasting: Millis) -> Vec<Batch> {
        let until = self.now + lasting;
        let mut batches = Vec::new();
        while self.now < until {
            self.now += 50;
            let now = self.now;
            batches.push(self.batch(|engine, out| engine.handle(Input::Tick, now, out)));
        }
        batches.retain(|batch| !batch.ops.is_empty() || batch.knowledge.is_some());
        batches
    }

    pub(super) fn image(&self) -> Image {
        self.engine.image()
    }

    pub(super) fn listing(&self) -> String {
        list_image(&self.engine.image())
    }
}

/// A client's write.
pub(super) fn write(engine: &mut Engine, path: &str, value: Option<&[u8]>, out: &mut Outbox) {
    let path: Path = path.parse().unwrap();
    write_one(engine, Write::new(path, value), false, out).unwrap();
}

fn config(incarnation: u64) -> Config {
    let mut config = Config::new(node_id(NAME, incarnation), 1);
    config.delete = DeleteSettings {
        interval_ms: 100,
        found_after_ms: 100,
        cycle_ms: 200,
        ..DeleteSettings::default()
    };
    config
}
