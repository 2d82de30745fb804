//! What it costs to save a state, to start from a snapshot and to start from an event log, and how
//! long the files are; beside a redis-server of the same machine, in the same run.
//!
//! ```sh
//! cargo run --release --example storage_cost
//! cargo run --release --example storage_cost -- --entries 100000 --runs 3 --json
//! ```
//!
//! Entries have a key of 16 bytes and a value of 100 random bytes; they are written in an order
//! without order. *Save* is to write a snapshot and sync it (Redis: `SAVE`). *Start* is what a node
//! does before it can serve: read and check the files, and have the state in memory (Redis: what
//! its log says that loading took). Each log has one change per entry, as many single writes make
//! it (Redis: an append-only file without a preamble). Files are in the page cache, on both sides.
//! Medians of several runs; of Redis and of this in turn.

#![allow(clippy::disallowed_methods, reason = "it measures")]

mod support;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::Parser;
use distkv::engine::batch::write_one;
use distkv::engine::{Config, Engine, Image, Input, Outbox, Output};
use distkv::model::ids::{Incarnation, NodeId, NodeName};
use distkv::model::path::Path as KeyPath;
use distkv::replica::write::Write;
use distkv::storage::{
    Batch, DataDir, Directory, FileHeader, LogStart, LogWriter, Op, RecoverOptions, recover,
    verify_snapshot, write_snapshot,
};
use serde_json::json;
use support::figures::{bytes, median, thousands, time};
use support::redis::Redis;

/// The allocator of the real program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const NETWORK: &str = "cost";
const NAME: &str = "a";

/// Measure saving, loading and the files' lengths
#[derive(Parser)]
#[command(name = "storage_cost")]
struct Arguments {
    /// How many entries
    #[arg(long, default_value_t = 1_000_000)]
    entries: u64,

    /// So many bytes per value
    #[arg(long, default_value_t = 100)]
    value_bytes: usize,

    /// How often everything is measured
    #[arg(long, default_value_t = 5)]
    runs: usize,

    /// The Redis server to compare with
    #[arg(long, default_value = "redis-server")]
    redis: String,

    /// Where files are written; they are removed [default: the system's temporary directory]
    #[arg(long)]
    dir: Option<PathBuf>,

    /// Print one line of JSON
    #[arg(long)]
    json: bool,
}

/// What was measured, in microseconds and bytes; a list for each run.
#[derive(Default)]
struct Figures {
    save: Vec<f64>,
    verify: Vec<f64>,
    from_snapshot: Vec<f64>,
    write_log: Vec<f64>,
    from_log: Vec<f64>,
    snapshot_bytes: u64,
    log_bytes: u64,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("storage_cost: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let folder = match &arguments.dir {
        Some(dir) => tempfile::tempdir_in(dir),
        None => tempfile::tempdir(),
    };
    let folder = folder.map_err(|e| e.to_string())?;
    let redis_folder = folder.path().join("redis");
    std::fs::create_dir(&redis_folder).map_err(|e| e.to_string())?;
    let data = Data { entries: arguments.entries, value_bytes: arguments.value_bytes };
    let mut ours = Figures::default();
    let mut theirs = Figures::default();
    let version = prepare_redis(arguments, &redis_folder, &data)?;
    for _ in 0..arguments.runs {
        measure(folder.path(), &data, &mut ours).map_err(|e| e.to_string())?;
        if version.is_some() {
            measure_redis(arguments, &redis_folder, &mut theirs)?;
        }
    }
    report(arguments, &ours, version.as_deref().map(|version| (version, &theirs)));
    Ok(())
}

/// The entries: the same for both.
struct Data {
    entries: u64,
    value_bytes: usize,
}

impl Data {
    fn pairs(&self) -> impl Iterator<Item = (String, Vec<u8>)> + '_ {
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        // Coprime to the count, mostly: every key once, in an order without order.
        let step = 1 + self.entries * 618 / 1000 / 2 * 2;
        let step = (0..).map(|n| step + 2 * n).find(|s| gcd(*s, self.entries) == 1).unwrap_or(1);
        (0..self.entries).map(move |n| {
            let key = format!("key:{:012}", n.wrapping_mul(step) % self.entries);
            let mut value = Vec::with_capacity(self.value_bytes + 8);
            while value.len() < self.value_bytes {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                value.extend_from_slice(&random.to_le_bytes());
            }
            value.truncate(self.value_bytes);
            (key, value)
        })
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn id() -> NodeId {
    let name = NodeName::new(NAME).unwrap_or_else(|_| unreachable!());
    NodeId { name, incarnation: Incarnation(7) }
}

fn header(number: u64) -> FileHeader {
    FileHeader { number, network: NETWORK.into(), id: id(), store: 1, time_ms: 1 }
}

fn ready_engine() -> Engine {
    let mut engine = Engine::new(Config::new(id(), 0x5eed));
    engine.handle(Input::Found, 0, &mut Outbox::new());
    engine
}

/// One round of ours: write a log change by change, start from it, save a snapshot, start from it.
fn measure(
    folder: &Path,
    data: &Data,
    figures: &mut Figures,
) -> Result<(), Box<dyn std::error::Error>> {
    let path = folder.join("ours");
    let dir = DataDir::open(&path)?;
    let image = write_log(&dir, data, figures)?;
    figures.log_bytes = std::fs::metadata(path.join("log-1.dkv"))?.len();
    figures.from_log.push(start(&path, data)?);

    let disk = Directory::new(&path);
    let began = Instant::now();
    let info = write_snapshot(&disk, &header(2), &image, &mut |_| {})?;
    figures.save.push(microseconds(began));
    figures.snapshot_bytes = info.bytes;
    let began = Instant::now();
    let source = std::fs::File::open(path.join(&info.name))?;
    verify_snapshot(&info.name, Box::new(source), &mut |_| {})?;
    figures.verify.push(microseconds(began));
    figures.from_snapshot.push(start(&path, data)?);
    std::fs::remove_dir_all(&path)?;
    Ok(())
}

fn write_log(
    dir: &DataDir,
    data: &Data,
    figures: &mut Figures,
) -> Result<Image, Box<dyn std::error::Error>> {
    let mut engine = ready_engine();
    let mut out = Outbox::new();
    let knowledge = engine.knowledge();
    let mut log: LogWriter =
        dir.begin_log(&header(1), LogStart::Empty, &knowledge, engine.table())?;
    let mut spent = 0.0;
    for (n, (key, value)) in data.pairs().enumerate() {
        let path = KeyPath::root().push(key.as_str())?;
        let mut packed = vec![0xc4, value.len() as u8];
        if value.len() > 0xff {
            packed = vec![0xc6];
            packed.extend_from_slice(&(value.len() as u32).to_be_bytes());
        }
        packed.extend_from_slice(&value);
        let write = Write::new(path, Some(&packed));
        write_one(&mut engine, write, false, &mut out)?;
        let puts = out.drain().filter_map(|output| match output {
            Output::Commit(change) => Some(Op::Put(change)),
            _ => None,
        });
        let (ops, table) = (puts.collect(), Arc::clone(engine.table()));
        let batch = Batch { time_ms: n as u64 / 100, table, ops, knowledge: None };
        let began = Instant::now();
        log.append(&batch)?;
        spent += microseconds(began);
    }
    let began = Instant::now();
    log.sync()?;
    figures.write_log.push(spent + microseconds(began));
    Ok(engine.image())
}

/// What a node does before it can serve; microseconds.
fn start(path: &Path, data: &Data) -> Result<f64, Box<dyn std::error::Error>> {
    let disk = Directory::new(path);
    let options = RecoverOptions { hash_seed: 99, ..RecoverOptions::default() };
    let began = Instant::now();
    let recovered = recover(&disk, NETWORK, NAME, &options, &mut |_, _| {})?;
    let image = recovered.image.ok_or("nothing was recovered")?;
    let engine = Engine::restore(Config::new(id(), 99), &image, &mut Outbox::new());
    let engine = engine.ok_or("the node table is full")?;
    let spent = microseconds(began);
    if engine.tree().live_len() as u64 != data.entries {
        return Err(format!("{} entries came back", engine.tree().live_len()).into());
    }
    Ok(spent)
}

fn microseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}

/// Fills a Redis and leaves its files; its version, if there is one.
fn prepare_redis(
    arguments: &Arguments,
    folder: &Path,
    data: &Data,
) -> Result<Option<String>, String> {
    let Some(mut redis) = Redis::start(&arguments.redis, folder, true)? else { return Ok(None) };
    redis.fill(data.pairs())?;
    redis.call(&[b"SAVE"])?;
    Ok(Some(redis.version()))
}

fn measure_redis(
    arguments: &Arguments,
    folder: &Path,
    figures: &mut Figures,
) -> Result<(), String> {
    let gone = || String::from("redis-server is gone");
    let redis = Redis::start(&arguments.redis, folder, true)?.ok_or_else(gone)?;
    figures.from_log.push(redis.loading_us().ok_or_else(gone)? as f64);
    drop(redis);
    let mut redis = Redis::start(&arguments.redis, folder, false)?.ok_or_else(gone)?;
    figures.from_snapshot.push(redis.loading_us().ok_or_else(gone)? as f64);
    let began = Instant::now();
    redis.call(&[b"SAVE"])?;
    figures.save.push(microseconds(began));
    let length = |name: &str| std::fs::metadata(folder.join(name)).map_or(0, |m| m.len());
    figures.snapshot_bytes = length("dump.rdb");
    figures.log_bytes = length("appendonlydir/appendonly.aof.1.incr.aof");
    Ok(())
}

fn report(arguments: &Arguments, ours: &Figures, redis: Option<(&str, &Figures)>) {
    if arguments.json {
        let line = |f: &Figures| {
            json!({
                "save_us": median(&f.save), "verify_us": median(&f.verify),
                "start_from_snapshot_us": median(&f.from_snapshot),
                "write_log_us": median(&f.write_log), "start_from_log_us": median(&f.from_log),
                "snapshot_bytes": f.snapshot_bytes, "log_bytes": f.log_bytes,
            })
        };
        let redis = redis.map(|(version, f)| json!({"version": version, "figures": line(f)}));
        let all = json!({
            "entries": arguments.entries, "value_bytes": arguments.value_bytes,
            "runs": arguments.runs, "distkv": line(ours), "redis": redis,
        });
        println!("{all}");
        return;
    }
    let (entries, size) = (thousands(arguments.entries), arguments.value_bytes);
    println!("{entries} entries, keys of 16 bytes, values of {size}; {} runs", arguments.runs);
    let name =
        redis.map_or(String::from("no Redis here"), |(version, _)| format!("Redis {version}"));
    println!("{:<22} {:>12} {:>16} {:>8}", "", "distkv-node", name, "ratio");
    let row = |what: &str, pick: &dyn Fn(&Figures) -> f64, show: &dyn Fn(f64) -> String| {
        let (mine, other) = (pick(ours), redis.map(|(_, f)| pick(f)).filter(|f| *f > 0.0));
        let shown = other.map_or(String::from("-"), show);
        let ratio = other.map_or(String::from("-"), |other| format!("{:.2}", mine / other));
        println!("{what:<22} {:>12} {shown:>16} {ratio:>8}", show(mine));
    };
    let spent = |us: f64| time(us as u64);
    let long = |count: f64| bytes(count as u64);
    row("save", &|f| median(&f.save), &spent);
    row("verify", &|f| median(&f.verify), &spent);
    row("start from snapshot", &|f| median(&f.from_snapshot), &spent);
    row("write the log", &|f| median(&f.write_log), &spent);
    row("start from log", &|f| median(&f.from_log), &spent);
    row("snapshot", &|f| f.snapshot_bytes as f64, &long);
    row("log", &|f| f.log_bytes as f64, &long);
}
