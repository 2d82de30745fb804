//! Made the frozen files in `snapshots/v1/`: data directories of format version 1, good and damaged
//! ones, each with what a start makes of it. They never change again; this is kept to show how they
//! came to be, and as a start for the next version's.
//!
//! ```sh
//! cargo run --example freeze_storage_v1 -- /tmp/v1
//! ```
//!
//! The same files come out each time: they are written to a disk in memory, whose file ids are
//! numbers that count.

use std::path::Path as FilePath;
use std::process::ExitCode;
use std::sync::Arc;

use distkv::engine::batch::write_one;
use distkv::engine::delete::DeleteSettings;
use distkv::engine::{Config, Decided, Engine, Image, Input, Outbox, Output};
use distkv::model::chain::Chain;
use distkv::model::change_time::ChangeTime;
use distkv::model::entry::{Entry, EntryParts};
use distkv::model::group::{GroupConfig, Member};
use distkv::model::ids::{Event, Incarnation, NodeId, NodeName, NodeTable, Tick, Tock};
use distkv::model::mark::Component;
use distkv::model::path::{Element, Path};
use distkv::model::seen::{Lineage, Mark, Seen};
use distkv::model::tick_set::TickSet;
use distkv::replica::come_back::ReplicaImage;
use distkv::replica::purge::TockPair;
use distkv::replica::write::Write;
use distkv::storage::listing::list_image;
use distkv::storage::memory_disk::MemoryDisk;
use distkv::storage::{
    Batch, DataDir, Disk, FileHeader, LogStart, LogWriter, Op, RecoverOptions, recover,
};
use distkv::tree::Tree;
use xxhash_rust::xxh64::xxh64;

const NETWORK: &str = "frozen";
const NAME: &str = "a";
const STORE: u64 = 0x5704_e000_0000_0001;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let Some(folder) = std::env::args().nth(1) else {
        eprintln!("usage: freeze_storage_v1 FOLDER");
        return ExitCode::FAILURE;
    };
    match freeze(FilePath::new(&folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("freeze_storage_v1: {error}");
            ExitCode::FAILURE
        }
    }
}

fn freeze(folder: &FilePath) -> Result<(), Failure> {
    let good = folder.join("good");
    put(&good, "begun", &begun()?)?;
    let worked = worked()?;
    put(&good, "killed", &worked)?;
    put(&good, "stopped", &stopped()?)?;
    put(&good, "every-kind", &every_kind()?)?;
    put(&good, "torn-tail", &changed(&worked, "log-3.dkv", |log| log.truncate(log.len() - 5)))?;
    put(&good, "lost-page", &lost_page()?)?;
    put(&good, "unborn-log", &with(&worked, "log-4.dkv", &[0; 100]))?;
    let bad_snapshot = changed(&worked, "snapshot-2.dkv", |snapshot| flip(snapshot, 150));
    put(&good, "bad-snapshot-but-all-logs", &bad_snapshot)?;
    put(&good, "with-times", &with_times()?)?;
    damaged(&folder.join("damaged"), &worked)
}

fn damaged(folder: &FilePath, worked: &MemoryDisk) -> Result<(), Failure> {
    // Only the snapshot has what came before it.
    let pruned = worked.fork();
    pruned.remove("log-1.dkv")?;
    let length = |disk: &MemoryDisk, name| disk.content(name).map_or(0, |content| content.len());
    let (snapshot, log) = (length(&pruned, "snapshot-2.dkv"), length(&pruned, "log-2.dkv"));
    for (name, at) in [
        ("snapshot-flipped-in-its-first-length", 1),
        ("snapshot-flipped-in-its-header", 30),
        ("snapshot-flipped-in-what-was-known", snapshot / 3),
        ("snapshot-flipped-in-an-entry", snapshot * 2 / 3),
        ("snapshot-flipped-at-its-end", snapshot - 1),
    ] {
        put(folder, name, &changed(&pruned, "snapshot-2.dkv", |content| flip(content, at)))?;
    }
    let cut = |name, at: usize| changed(&pruned, name, |content| content.truncate(at));
    put(folder, "snapshot-cut", &cut("snapshot-2.dkv", snapshot / 2))?;
    put(folder, "snapshot-empty", &cut("snapshot-2.dkv", 0))?;
    let trailing = changed(&pruned, "snapshot-2.dkv", |content| content.push(0));
    put(folder, "snapshot-with-something-behind-it", &trailing)?;
    put(folder, "snapshot-with-an-entry-twice", &entry_twice(&pruned))?;
    put(folder, "snapshot-with-another-count", &other_count(&pruned))?;
    put(folder, "snapshot-of-a-later-version", &later(&pruned, "snapshot-2.dkv", "snapshot"))?;
    let rubbish = changed(&pruned, "snapshot-2.dkv", |content| content.fill(0x55));
    put(folder, "snapshot-of-rubbish", &rubbish)?;

    for (name, at) in [
        ("log-flipped-in-its-header", 20),
        ("log-flipped-in-the-middle", log / 2),
        ("log-flipped-at-its-end-but-not-the-last", log - 1),
    ] {
        put(folder, name, &changed(&pruned, "log-2.dkv", |content| flip(content, at)))?;
    }
    put(folder, "log-cut-but-not-the-last", &cut("log-2.dkv", log - 1))?;
    let ends = frame_ends(&pruned, "log-2.dkv");
    let end = ends.get(ends.len() - 2).copied().unwrap_or(0);
    put(folder, "log-cut-between-frames-but-not-the-last", &cut("log-2.dkv", end))?;
    let third = length(&pruned, "log-3.dkv");
    let flipped = changed(&pruned, "log-3.dkv", |content| flip(content, third / 2));
    put(folder, "last-log-flipped-in-the-middle", &flipped)?;
    put(folder, "log-of-a-later-version", &later(&pruned, "log-3.dkv", "log"))?;
    let missing = pruned.fork();
    missing.remove("log-2.dkv")?;
    put(folder, "log-missing", &missing)?;
    let renamed = pruned.fork();
    renamed.rename("log-2.dkv", "log-3.dkv")?;
    put(folder, "log-under-another-number", &renamed)?;
    let rootless = pruned.fork();
    rootless.remove("snapshot-2.dkv")?;
    put(folder, "log-without-its-snapshot", &rootless)?;
    let stopped = stopped()?;
    let last = length(&stopped, "log-3.dkv");
    let flipped = changed(&stopped, "log-3.dkv", |content| flip(content, last - 1));
    put(folder, "log-flipped-at-its-end-after-a-stop", &flipped)?;
    put(folder, "identity-flipped", &changed(&pruned, "identity", |content| flip(content, 20)))?;
    put(folder, "of-another-network", &begun_as("another")?)?;
    Ok(())
}

/// Writes a disk's files to a folder, and what a start says of them.
fn put(folder: &FilePath, name: &str, disk: &MemoryDisk) -> Result<(), Failure> {
    let folder = folder.join(name);
    std::fs::create_dir_all(&folder)?;
    for entry in disk.list()? {
        let content = disk.content(&entry.name).unwrap_or_default();
        std::fs::write(folder.join(&entry.name), content)?;
    }
    // In the repository they are copies, so that is what they must be here.
    let options = RecoverOptions::default();
    match recover(&disk.copy(), NETWORK, NAME, &options, &mut |_, _| {}) {
        Ok(recovered) => {
            let listing = recovered.image.as_ref().map(list_image).unwrap_or_default();
            std::fs::write(folder.join("listing.txt"), listing)?;
            let warnings = recovered.warnings.iter().map(|warning| format!("{warning}\n"));
            std::fs::write(folder.join("warnings.txt"), warnings.collect::<String>())?;
        }
        Err(error) => std::fs::write(folder.join("error.txt"), format!("{error}\n"))?,
    }
    Ok(())
}

fn with(disk: &MemoryDisk, name: &str, content: &[u8]) -> MemoryDisk {
    let disk = disk.fork();
    disk.put(name, content);
    disk
}

fn changed(disk: &MemoryDisk, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> MemoryDisk {
    let mut content = disk.content(name).unwrap_or_default();
    change(&mut content);
    with(disk, name, &content)
}

fn flip(content: &mut [u8], at: usize) {
    if let Some(byte) = content.get_mut(at) {
        *byte ^= 0x04;
    }
}

// Frames, taken apart and put together again as the format's description says.

fn frame(payload: &[u8], position: u64) -> Vec<u8> {
    let length = (payload.len() as u32).to_le_bytes();
    let check = (xxh64(&length, position) as u32).to_le_bytes();
    let hash = xxh64(payload, position).to_le_bytes();
    [&length[..], &check, payload, &hash].concat()
}

fn payloads(content: &[u8]) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    let mut rest = content;
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        payloads.push(behind.get(4..4 + length).unwrap_or_default().to_vec());
        rest = behind.get(4 + length + 8..).unwrap_or_default();
    }
    payloads
}

fn frame_ends(disk: &MemoryDisk, name: &str) -> Vec<usize> {
    let mut ends = vec![0];
    for payload in payloads(&disk.content(name).unwrap_or_default()) {
        ends.push(ends.last().copied().unwrap_or(0) + payload.len() + 16);
    }
    ends
}

fn of_payloads(payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut content = Vec::new();
    for payload in payloads {
        let framed = frame(payload, content.len() as u64);
        content.extend_from_slice(&framed);
    }
    content
}

fn entry_twice(disk: &MemoryDisk) -> MemoryDisk {
    changed(disk, "snapshot-2.dkv", |content| {
        let mut payloads = payloads(content);
        let entries = payloads.iter().position(|p| p.first() == Some(&4)).unwrap_or(0);
        if let Some(twice) = payloads.get(entries).cloned() {
            payloads.insert(entries, twice);
        }
        *content = of_payloads(&payloads);
    })
}

fn other_count(disk: &MemoryDisk) -> MemoryDisk {
    changed(disk, "snapshot-2.dkv", |content| {
        let mut payloads = payloads(content);
        if let Some(count) = payloads.last_mut().and_then(|end| end.get_mut(1)) {
            *count += 1;
        }
        *content = of_payloads(&payloads);
    })
}

fn later(disk: &MemoryDisk, name: &str, kind: &str) -> MemoryDisk {
    let magic = format!("distkv-{kind}");
    let text = [&[0xa0 | magic.len() as u8][..], magic.as_bytes(), &[2, 0xa3], b"new"].concat();
    changed(disk, name, |content| *content = of_payloads(&[text]))
}

// The nodes that write them.

fn id(name: &str, incarnation: u64) -> NodeId {
    let name = NodeName::new(name).unwrap_or_else(|_| unreachable!());
    NodeId { name, incarnation: Incarnation(incarnation) }
}

fn header(number: u64) -> FileHeader {
    FileHeader {
        number,
        network: NETWORK.into(),
        id: id(NAME, 0xa1),
        store: STORE,
        time_ms: 1_700_000_000_000 + number * 1_000,
    }
}

/// A node, its data directory and its log.
struct Node {
    disk: MemoryDisk,
    dir: DataDir,
    engine: Engine,
    log: LogWriter,
    now: u64,
}

impl Node {
    fn begin(network: &str) -> Result<Self, Failure> {
        let mut config = Config::new(id(NAME, 0xa1), 1);
        config.delete = DeleteSettings {
            interval_ms: 100,
            found_after_ms: 100,
            cycle_ms: 200,
            ..DeleteSettings::default()
        };
        let mut engine = Engine::new(config);
        engine.handle(Input::Found, 0, &mut Outbox::new());
        let disk = MemoryDisk::new();
        let dir = DataDir::on(Arc::new(disk.clone()));
        let header = FileHeader { network: network.into(), ..header(1) };
        let knowledge = engine.knowledge();
        let log = dir.begin_log(&header, LogStart::Empty, &knowledge, engine.table())?;
        Ok(Self { disk, dir, engine, log, now: 0 })
    }

    /// One change, logged and synced.
    fn change(&mut self, change: impl FnOnce(&mut Engine, &mut Outbox)) -> Result<(), Failure> {
        let mut out = Outbox::new();
        change(&mut self.engine, &mut out);
        let (mut ops, mut is_more) = (Vec::new(), false);
        for output in out.drain() {
            match output {
                Output::Commit(change) => ops.push(Op::Put(change)),
                Output::Gone { purged, dropped } => {
                    is_more = true;
                    ops.extend(purged.iter().chain(&dropped).map(Op::gone));
                }
                Output::Report(_) => is_more = true,
                _ => {}
            }
        }
        if ops.is_empty() && !is_more {
            return Ok(());
        }
        let knowledge = is_more.then(|| self.engine.knowledge());
        let table = Arc::clone(self.engine.table());
        let time_ms = 1_700_000_000_000 + self.now;
        self.log.append(&Batch { time_ms, table, ops, knowledge })?;
        Ok(self.log.sync()?)
    }

    fn set(&mut self, path: &str, value: Option<&[u8]>) -> Result<(), Failure> {
        self.set_at(path, value, None)
    }

    fn set_at(&mut self, path: &str, value: Option<&[u8]>, ms: Option<u64>) -> Result<(), Failure> {
        let path: Path = path.parse()?;
        let write = Write { time: ms.and_then(ChangeTime::new), ..Write::new(path, value) };
        self.change(|engine, out| drop(write_one(engine, write, false, out)))
    }

    fn wait(&mut self, lasting: u64) -> Result<(), Failure> {
        for _ in 0..lasting / 50 {
            self.now += 50;
            let now = self.now;
            self.change(|engine, out| engine.handle(Input::Tick, now, out))?;
        }
        Ok(())
    }

    fn rotate(mut self, number: u64) -> Result<Self, Failure> {
        let knowledge = self.engine.knowledge();
        self.log = self.dir.rotate(self.log, &header(number), &knowledge, self.engine.table())?;
        Ok(self)
    }

    /// Three logs and a snapshot, with a purge among them.
    fn work(mut self) -> Result<Self, Failure> {
        self.set("plant.oven.temperature", Some(&[0xcb, 0x40, 0x59, 0, 0, 0, 0, 0, 0]))?;
        self.set("plant.oven.door", Some(b"\xa6closed"))?;
        self.set("plant.lamp", Some(&[0xc3]))?;
        self.set("plant.lamp", None)?;
        self.wait(500)?;
        self = self.rotate(2)?;
        let image = self.engine.image();
        self.dir.save(&header(2), &image, &mut |_| {})?;
        self.set("plant.oven.door", Some(b"\xa4open"))?;
        self.set("plant.oven.fan", Some(&[0x92, 1, 2]))?;
        self.set("plant.oven.temperature", None)?;
        self = self.rotate(3)?;
        self.set("plant.oven.fan", Some(&[0xc0]))?;
        self.wait(300)?;
        self.set("plant.belt", Some(&[0x81, 0xa1, b'v', 0x05]))?;
        self.set("plant.lamp", Some(&[0xc2]))?;
        Ok(self)
    }
}

/// Entries with and without times, in a snapshot and in a log. Frozen later than the others.
fn with_times() -> Result<MemoryDisk, Failure> {
    let mut node = Node::begin(NETWORK)?;
    node.set_at("plant.belt", Some(&[1]), Some(1_700_000_000_007))?;
    node.set_at("plant.door", Some(b"\xa4open"), Some(0))?;
    node.set("plant.lamp", Some(&[0xc3]))?;
    node.set_at("plant.oven", Some(&[0xc2]), Some(253_370_764_799_999))?;
    node = node.rotate(2)?;
    let image = node.engine.image();
    node.dir.save(&header(2), &image, &mut |_| {})?;
    node.set("plant.belt", Some(&[2]))?;
    node.set_at("plant.door", None, Some(1_700_000_000_500))?;
    node.set_at("plant.lamp", Some(&[0xc2]), Some(1_700_000_000_400))?;
    Ok(node.disk)
}

fn begun() -> Result<MemoryDisk, Failure> {
    begun_as(NETWORK)
}

fn begun_as(network: &str) -> Result<MemoryDisk, Failure> {
    Ok(Node::begin(network)?.disk)
}

fn worked() -> Result<MemoryDisk, Failure> {
    Ok(Node::begin(NETWORK)?.work()?.disk)
}

fn stopped() -> Result<MemoryDisk, Failure> {
    let node = Node::begin(NETWORK)?.work()?;
    let knowledge = node.engine.knowledge();
    let time_ms = 1_700_000_009_000;
    node.dir.stop(node.log, time_ms, &knowledge, node.engine.table())?;
    Ok(node.disk)
}

/// Three changes that were not synced when the power failed: of the second, the middle was lost.
fn lost_page() -> Result<MemoryDisk, Failure> {
    let mut node = Node::begin(NETWORK)?;
    node.set("before", Some(&[1]))?;
    let mut changes = Vec::new();
    for n in 0..3_u8 {
        let mut value = vec![0xc5, 0x1f, 0x40];
        value.extend(std::iter::repeat_n(n + 1, 0x1f40));
        let mut out = Outbox::new();
        let path: Path = format!("big.{n}").parse()?;
        let write = Write::new(path, Some(&value));
        write_one(&mut node.engine, write, false, &mut out)?;
        let puts = out.drain().filter_map(|output| match output {
            Output::Commit(change) => Some(Op::Put(change)),
            _ => None,
        });
        changes.extend(puts);
    }
    for op in changes {
        let table = Arc::clone(node.engine.table());
        node.log.append(&Batch {
            time_ms: 1_700_000_000_500,
            table,
            ops: vec![op],
            knowledge: None,
        })?;
    }
    node.log.flush()?;
    Ok(changed(&node.disk, "log-1.dkv", |log| {
        if let Some(page) = log.get_mut(12_288..16_384) {
            page.fill(0);
        }
    }))
}

/// A snapshot that has everything that a snapshot can have.
fn every_kind() -> Result<MemoryDisk, Failure> {
    let mut table = NodeTable::new();
    let mut nodes = Vec::new();
    for (name, incarnation) in [(NAME, 0xa1), ("b", u64::MAX), ("b", 2), ("ofen-süd", 3)] {
        nodes.push(table.intern(&id(name, incarnation)).ok_or("the table is full")?);
    }
    let event = |node: usize, tick| {
        let node = nodes.get(node).copied().ok_or("no such node")?;
        Ok::<_, Failure>(Event { node, tick: Tick::new(tick).ok_or("no such tick")? })
    };
    let mut tree = Tree::new(1);
    let values: [&[u8]; 12] = [
        &[0xc0],
        &[0xc3],
        &[0xff],
        &[0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        &[0xca, 0x3f, 0x80, 0, 0],
        b"\xa5gr\xc3\xbcn",
        &[0xc4, 3, 0, 1, 2],
        &[0x93, 1, 0xa1, b'x', 0x90],
        &[0x82, 0xa1, b'k', 1, 2, 0x80],
        &[0xd6, 0xff, 0x65, 0x53, 0xf1, 0x00],
        &[0xcc, 0x05],
        &[0xd9, 0x01, b'y'],
    ];
    for (at, value) in values.into_iter().enumerate() {
        let path: Path = format!("value.{at}").parse()?;
        let chain = Chain::from_events([event(0, at as u64 + 1)?], at % 2 == 1);
        let parts = EntryParts {
            value: Some(value),
            chain: &chain.ok_or("no chain")?,
            tock: Tock::new(100 + at as u64).ok_or("no such tock")?,
            origin: None,
            time: None,
            extra: if at == 3 { &[1, 5, 0xc4, 2, 8, 9] } else { &[] },
        };
        tree.insert(&path, Entry::new(&parts));
    }
    let elements = [
        vec![],
        vec![Element::Nil, Element::Str("system")],
        vec![Element::Bool(true)],
        vec![Element::Int(-7), Element::Int(i128::from(u64::MAX))],
        vec![Element::Float(1.5)],
        vec![Element::Str(""), Element::Str("a.b:c")],
        vec![Element::Bin(&[0, 255])],
    ];
    for (at, elements) in elements.into_iter().enumerate() {
        let path = Path::from_elements(elements)?;
        let value = [at as u8];
        let events = [event(1, 1 << 40)?, event(2, at as u64 + 1)?, event(3, (1 << 62) - 1)?];
        let chain = Chain::from_events(events, false).ok_or("no chain")?;
        let parts = EntryParts {
            value: value.get(..1 - at % 2).filter(|value| !value.is_empty()),
            chain: &chain,
            tock: Tock::new((1 << 62) - 9).ok_or("no such tock")?,
            origin: if at == 4 { Some(event(2, 77)?) } else { None },
            time: None,
            extra: &[],
        };
        tree.insert(&path, Entry::new(&parts));
    }
    let mut big = vec![0xc6, 0, 1, 0x11, 0x70];
    big.extend((0..70_000_u32).map(|n| (n % 251) as u8));
    let chain = Chain::first(event(0, 13)?);
    let tock = Tock::new(200).ok_or("no such tock")?;
    let parts =
        EntryParts { value: Some(&big), chain: &chain, tock, origin: None, time: None, extra: &[] };
    tree.insert(&"big".parse()?, Entry::new(&parts));

    let image = known(table, &nodes, tree)?;
    let disk = MemoryDisk::new();
    let dir = DataDir::on(Arc::new(disk.clone()));
    dir.save(&header(5), &image, &mut |_| {})?;
    let (knowledge, table) = (image.knowledge(), &image.replica.table);
    dir.begin_log(&header(5), LogStart::Snapshot, &knowledge, table)?;
    Ok(disk)
}

/// The tree's image, with everything that a node can know.
fn known(
    table: NodeTable,
    nodes: &[distkv::model::ids::NodeIndex],
    tree: Tree,
) -> Result<Image, Failure> {
    let mut seen = Seen::new();
    for (at, node) in nodes.iter().enumerate() {
        let mut ticks = TickSet::range(1, 20).ok_or("no ticks")?;
        for n in 0..at as u64 * 2_000 {
            ticks.insert_range(100 + 3 * n, 101 + 3 * n);
        }
        ticks.insert_range((1 << 62) - 3, 1 << 62);
        seen.union_node(*node, &ticks);
    }
    let tick = |tick| Tick::new(tick).ok_or("no such tick");
    let tock = |tock| Tock::new(tock).ok_or("no such tock");
    let lineage = Lineage(Some((id("gone", 9), tick(4)?)));
    let member = |name, durable| Member { name: id(name, 0).name, store: STORE, durable };
    let group = GroupConfig::new(3, lineage.clone(), vec![member("a", true), member("c", false)]);
    let next = GroupConfig::new(4, lineage.clone(), vec![member("a", true)]);
    let mut agreed = Seen::new();
    if let Some(node) = nodes.first() {
        agreed.union_node(*node, &TickSet::range(1, 9).ok_or("no ticks")?);
    }
    let pair = TockPair {
        lineage: lineage.clone(),
        from: Component::new(tock(50)?, None),
        to: tock(60)?,
        id: None,
        base: Vec::new(),
        seen: agreed,
    };
    let replica = ReplicaImage {
        id: id(NAME, 0xa1),
        table: Arc::new(table),
        tree,
        seen,
        mark: Mark::from_components([(Lineage(None), tock(40)?), (lineage, tock(50)?)]),
        tick: tick((1 << 62) - 1)?,
        tock: tock((1 << 62) - 5)?,
    };
    Ok(Image { replica, group, decided: Some(Decided { pair, next }) })
}
