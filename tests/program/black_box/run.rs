//! One run: a network drawn from a seed, a load, a few of all the things that go wrong, and the
//! wait until everything agrees again. Gives the history; who is right is for the checker.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use rmpv::Value;

use super::clients::{Load, TOP};
use super::history::{History, Tree};
use super::hosts::client_addr;
use super::processes::field;
use super::rng::Rng;
use super::session::Session;
use super::world::{Store, World};

/// How long nodes may take to agree when nothing is in their way any more.
const AGREE_WITHIN: Duration = Duration::from_secs(60);
/// Load before the first fault: what is written here has had time to spread.
const WARM_UP: Duration = Duration::from_secs(5);

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    Kill,
    Terminate,
    Pause,
    Cut,
    CutWithTrouble,
    Unplug,
    OneWay,
    CardDown,
    Flap,
    FullDisk,
    TornLog,
    TakeImage,
    RollBack,
    RollBackCutOff,
    Twin,
    Wipe,
    Save,
    Restore,
    Forget,
}

impl Fault {
    pub const ALL: [Self; 19] = [
        Self::Kill,
        Self::Terminate,
        Self::Pause,
        Self::Cut,
        Self::CutWithTrouble,
        Self::Unplug,
        Self::OneWay,
        Self::CardDown,
        Self::Flap,
        Self::FullDisk,
        Self::TornLog,
        Self::TakeImage,
        Self::RollBack,
        Self::RollBackCutOff,
        Self::Twin,
        Self::Wipe,
        Self::Save,
        Self::Restore,
        Self::Forget,
    ];
}

/// A run of a seed with that many faults; prints what is done.
pub fn run(seed: u64, faults: usize, folder: &Path) -> (History, Vec<Fault>) {
    let mut rng = Rng::new(seed);
    let count = 3 + rng.index(3);
    let switches: Vec<usize> = (0..count).map(|_| rng.index(2)).collect();
    let in_memory = rng.below(3);
    let stores: Vec<Store> = (0..count)
        .map(|_| match in_memory {
            0 => Store::Memory,
            1 => Store::Disk(rng.pick(&["never", "every-second", "every-batch"])),
            _ if rng.chance(50) => Store::Memory,
            _ => Store::Disk(rng.pick(&["every-second", "every-batch"])),
        })
        .collect();
    let faults: Vec<Fault> = (0..faults).map(|_| rng.pick(&Fault::ALL)).collect();
    run_with(seed, &switches, &stores, &faults, folder)
}

/// A run with all of that chosen.
pub fn run_with(
    seed: u64,
    switches: &[usize],
    stores: &[Store],
    faults: &[Fault],
    folder: &Path,
) -> (History, Vec<Fault>) {
    let mut rng = Rng::new(seed);
    let mut world = World::start(switches, stores, folder);
    world.say(&format!("seed {seed}: {stores:?}, switches {switches:?}"));
    let mut load = Load::start(seed, &world.addresses(), &world.lives);
    std::thread::sleep(WARM_UP);
    let mut done = Vec::new();
    for fault in faults {
        if inflict(&mut world, *fault, &mut rng) {
            done.push(*fault);
        }
        std::thread::sleep(rng.millis(100, 3_000));
    }
    for node in 0..stores.len() {
        if !world.is_running(node) && !world.nodes[node].is_forgotten {
            world.relaunch(node, &mut rng);
        }
    }
    let mut history = load.stop_writing();
    let trees = agree(&mut world);
    history.watches = load.stop_watching();
    history.trees = trees;
    history.conflicts = world.conflicts();
    history.disturbances = std::mem::take(&mut world.disturbances);
    history.losses = std::mem::take(&mut world.losses);
    history.complaints.append(&mut world.complaints);
    (history, done)
}

/// Lets something go wrong, and puts it right; tells whether it could be done.
fn inflict(world: &mut World, fault: Fault, rng: &mut Rng) -> bool {
    let running: Vec<usize> = (0..world.nodes.len()).filter(|n| world.is_running(*n)).collect();
    let on_disk = |n: &usize| matches!(world.nodes[*n].store, Store::Disk(_));
    let disks: Vec<usize> = running.iter().copied().filter(on_disk).collect();
    let imaged: Vec<usize> = disks.iter().copied().filter(|n| world.has_image(*n)).collect();
    let of = match fault {
        Fault::FullDisk | Fault::TornLog | Fault::TakeImage | Fault::Twin => &disks,
        Fault::RollBack | Fault::RollBackCutOff => &imaged,
        Fault::Forget if running.len() < 4 => return false,
        _ => &running,
    };
    let Some(node) = (!of.is_empty()).then(|| of[rng.index(of.len())]) else { return false };
    let began = Instant::now();
    world.say(&format!("-- {fault:?} n{node}"));
    match fault {
        Fault::Kill | Fault::Terminate => {
            world.end(node, if fault == Fault::Kill { "KILL" } else { "TERM" });
            std::thread::sleep(rng.millis(10, 4_000));
            world.relaunch(node, rng);
            world.wait_ready(node);
        }
        Fault::Pause => {
            world.signal(node, "STOP");
            std::thread::sleep(rng.millis(500, 9_000));
            world.signal(node, "CONT");
        }
        Fault::Cut => {
            world.hosts.cut();
            // Long enough now and then for deletions to be purged on one side.
            std::thread::sleep(rng.millis(500, 16_000));
            world.hosts.mend();
        }
        Fault::CutWithTrouble => {
            world.hosts.cut();
            std::thread::sleep(rng.millis(500, 5_000));
            trouble(world, node, rng);
            std::thread::sleep(rng.millis(500, 5_000));
            world.hosts.mend();
        }
        Fault::Unplug => {
            world.hosts.unplug(node);
            std::thread::sleep(rng.millis(500, 9_000));
            world.hosts.plug_in(node);
        }
        Fault::OneWay => {
            let other = running[rng.index(running.len())];
            if other == node {
                return false;
            }
            world.hosts.cut_one_way(node, other);
            std::thread::sleep(rng.millis(500, 9_000));
            world.hosts.mend_one_way(node, other);
        }
        Fault::CardDown => {
            world.hosts.card_down(node);
            std::thread::sleep(rng.millis(500, 6_000));
            world.hosts.card_up(node);
        }
        Fault::Flap => {
            for _ in 0..4 + rng.below(12) {
                world.hosts.cut();
                std::thread::sleep(rng.millis(30, 500));
                world.hosts.mend();
                std::thread::sleep(rng.millis(30, 500));
            }
        }
        Fault::FullDisk => {
            world.fill(node);
            std::thread::sleep(rng.millis(1_000, 4_000));
            if rng.chance(40) {
                world.end(node, "KILL");
                world.unfill_and_restart(node, rng);
            } else {
                world.unfill(node);
            }
        }
        Fault::TornLog => {
            world.end(node, "KILL");
            world.tear(node, rng);
            world.relaunch(node, rng);
            world.wait_ready(node);
        }
        Fault::TakeImage => {
            world.end(node, if rng.chance(70) { "TERM" } else { "KILL" });
            world.take_image(node);
            world.relaunch(node, rng);
            world.wait_ready(node);
        }
        Fault::RollBack => {
            roll_back(world, node, rng);
            world.wait_ready(node);
        }
        Fault::RollBackCutOff => {
            world.hosts.unplug(node);
            std::thread::sleep(rng.millis(10, 3_000));
            roll_back(world, node, rng);
            std::thread::sleep(rng.millis(1_000, 6_000));
            world.hosts.plug_in(node);
        }
        Fault::Twin => world.start_twin(node, rng.millis(1_000, 4_000)),
        Fault::Wipe => {
            world.end(node, if rng.chance(50) { "TERM" } else { "KILL" });
            world.wipe(node);
            world.relaunch(node, rng);
            world.wait_ready(node);
        }
        Fault::Save => world.save(node),
        Fault::Restore => world.restore(node),
        Fault::Forget => {
            world.end(node, "KILL");
            std::thread::sleep(rng.millis(10, 9_000));
            let at = running.iter().copied().find(|n| *n != node);
            world.forget(node, at.expect("there are others"));
        }
    }
    world.disturbed_since(began);
    true
}

/// Something more, while the network is cut in two.
fn trouble(world: &mut World, node: usize, rng: &mut Rng) {
    match rng.below(4) {
        0 if world.has_image(node) => roll_back(world, node, rng),
        1 => {
            world.signal(node, "STOP");
            std::thread::sleep(rng.millis(100, 2_000));
            world.signal(node, "CONT");
        }
        n => {
            world.end(node, if n == 2 { "TERM" } else { "KILL" });
            world.relaunch(node, rng);
        }
    }
}

fn roll_back(world: &mut World, node: usize, rng: &mut Rng) {
    world.end(node, if rng.chance(50) { "TERM" } else { "KILL" });
    world.roll_back(node);
    world.relaunch(node, rng);
}

/// Waits until all nodes hold the same and miss nothing; their trees. Complains when they never do.
fn agree(world: &mut World) -> BTreeMap<usize, Tree> {
    let living: Vec<usize> =
        (0..world.nodes.len()).filter(|n| !world.nodes[*n].is_forgotten).collect();
    let deadline = Instant::now() + AGREE_WITHIN;
    let mut trees: BTreeMap<usize, Tree> = BTreeMap::new();
    let mut state = String::from("never asked");
    while Instant::now() < deadline {
        match look(&living) {
            Ok(now) => {
                let is_one = now.values().all(|tree| Some(tree) == now.values().next());
                let is_settled = now == trees;
                trees = now;
                if is_one && is_settled {
                    world.say("all nodes agree");
                    verify(world, &living);
                    return trees;
                }
                state = if is_one { "they still change".into() } else { difference(&trees) };
            }
            Err(why) => state = why,
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    world.complaints.push(format!("nodes do not agree after {AGREE_WITHIN:?}: {state}"));
    trees
}

/// The trees of all nodes, where each serves and misses nothing.
fn look(nodes: &[usize]) -> Result<BTreeMap<usize, Tree>, String> {
    let mut trees = BTreeMap::new();
    for node in nodes {
        let silent = |_| format!("n{node} does not answer");
        let mut session = Session::connect(client_addr(*node)).map_err(silent)?;
        let fields = [("missing", Value::from(true))];
        let reply = session.call("get_state", &fields).map_err(silent)?;
        match field(&reply, "missing") {
            Some(Value::Map(missing)) if missing.is_empty() => {}
            _ => return Err(format!("n{node} misses changes: {reply}")),
        }
        // A node that is alone agrees with itself; it must see the others.
        let members = session.call("members", &[]).map_err(silent)?;
        let members = field(&members, "result").unwrap_or(Value::Nil);
        let linked = |m: &&Value| field(m, "linked") == Some(Value::Boolean(true));
        let links = members.as_array().map_or(0, |m| m.iter().filter(linked).count());
        if links + 1 < nodes.len() {
            return Err(format!("n{node} has {links} links: {members}"));
        }
        trees.insert(*node, session.tree(TOP).map_err(silent)?);
    }
    Ok(trees)
}

fn difference(trees: &BTreeMap<usize, Tree>) -> String {
    let paths: std::collections::BTreeSet<&String> = trees.values().flat_map(Tree::keys).collect();
    for path in paths {
        let versions: Vec<_> = trees.iter().map(|(n, tree)| (n, tree.get(path))).collect();
        if versions.iter().any(|(_, v)| *v != versions[0].1) {
            return format!("{path}: {versions:?}");
        }
    }
    String::from("no difference")
}

/// The program's own comparison must say the same.
fn verify(world: &mut World, nodes: &[usize]) {
    for pair in nodes.windows(2) {
        let (a, b) = (client_addr(pair[0]).to_string(), client_addr(pair[1]).to_string());
        let output = world.ask(pair[0], &["verify", &a, &b, "--patience", "20s"]);
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            world.complaints.push(format!("verify: {}: {said}{error}", output.status));
        }
    }
}
