//! The load: workers that set, delete, compare-and-set and read, and watchers, each at one node
//! for as long as that node lives, and again when it is back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::history::{EventId, History, Watch, Wish};
use super::rng::Rng;
use super::session::Session;

/// Below this, all entries of a run lie.
pub const TOP: &str = "t";
/// Paths that all workers write.
const SHARED: u64 = 10;
/// Paths that one worker writes alone.
const OWN: u64 = 5;
/// Workers at each node.
const WORKERS: usize = 2;

/// How often each node was started: labels what its clients saw.
pub type Lives = Arc<Vec<AtomicU64>>;

pub struct Load {
    stop_writing: Arc<AtomicBool>,
    stop_watching: Arc<AtomicBool>,
    workers: Vec<JoinHandle<History>>,
    watchers: Vec<JoinHandle<Vec<Watch>>>,
}

impl Load {
    pub fn start(seed: u64, addresses: &[SocketAddr], lives: &Lives) -> Self {
        let (stop_writing, stop_watching) = (Arc::default(), Arc::default());
        let (mut workers, mut watchers) = (Vec::new(), Vec::new());
        for (node, address) in addresses.iter().copied().enumerate() {
            for worker in 0..WORKERS {
                let (lives, stop) = (Arc::clone(lives), Arc::clone(&stop_writing));
                let number = node * WORKERS + worker;
                let rng = Rng::new(seed.wrapping_mul(1_000).wrapping_add(number as u64));
                let worker = Worker { node, number, address, lives, stop, rng, count: 0 };
                workers.push(std::thread::spawn(move || worker.work()));
            }
            let (lives, stop) = (Arc::clone(lives), Arc::clone(&stop_watching));
            watchers.push(std::thread::spawn(move || watch(node, address, &lives, &stop)));
        }
        Self { stop_writing, stop_watching, workers, watchers }
    }

    /// Ends the writing; what the workers saw.
    pub fn stop_writing(&mut self) -> History {
        self.stop_writing.store(true, Ordering::Relaxed);
        let mut history = History::default();
        for worker in self.workers.drain(..) {
            history.add(worker.join().expect("a worker is well"));
        }
        history
    }

    /// Ends the watching, after all else.
    pub fn stop_watching(&mut self) -> Vec<Watch> {
        self.stop_watching.store(true, Ordering::Relaxed);
        self.watchers.drain(..).flat_map(|w| w.join().expect("a watcher is well")).collect()
    }
}

/// Connects to a node, and tells which life of it this is; none while nobody is there.
fn connect(node: usize, address: SocketAddr, lives: &Lives) -> Option<(Session, u64)> {
    let life = lives[node].load(Ordering::SeqCst);
    let session = Session::connect(address).ok()?;
    // Started again in between: one cannot say which of the two it was.
    (life > 0 && lives[node].load(Ordering::SeqCst) == life).then_some((session, life))
}

fn watch(node: usize, address: SocketAddr, lives: &Lives, stop: &AtomicBool) -> Vec<Watch> {
    let mut watches = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        match connect(node, address, lives) {
            Some((session, life)) => {
                let watch = session.watch((node, life), TOP, stop);
                if watch.up_to_date.is_some() {
                    watches.push(watch);
                }
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    watches
}

struct Worker {
    node: usize,
    number: usize,
    address: SocketAddr,
    lives: Lives,
    stop: Arc<AtomicBool>,
    rng: Rng,
    count: u64,
}

impl Worker {
    fn work(mut self) -> History {
        let mut history = History::default();
        while !self.stop.load(Ordering::Relaxed) {
            match connect(self.node, self.address, &self.lives) {
                Some((session, life)) => self.use_session(session, life, &mut history),
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        history
    }

    fn use_session(&mut self, mut session: Session, life: u64, history: &mut History) {
        let at = (self.node, life);
        let mut known: Option<(String, Option<EventId>)> = None;
        while !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(self.rng.millis(3, 25));
            let path = match self.rng.below(3) {
                0 => format!("{TOP}.own{}.k{}", self.number, self.rng.below(OWN)),
                _ => format!("{TOP}.shared.k{}", self.rng.below(SHARED)),
            };
            let dice = self.rng.below(100);
            if dice < 35 {
                let Ok(read) = session.read(at, &path) else { return };
                let Some(read) = read else { continue };
                let event = read.version.as_ref().map(|v| v.event().clone());
                known = Some((path, event));
                history.reads.push(read);
                continue;
            }
            let (path, wish) = match (dice, known.take()) {
                // What was read a moment ago, or longer: others may have written since.
                (35..60, Some((path, Some(event)))) => (path, Wish::SetIf(event)),
                (35..60, Some((path, None))) => (path, Wish::SetNew),
                // Some are never deleted: there, nothing may be found missing.
                (60..72, _) if !path.ends_with("k0") => (path, Wish::Delete),
                _ => (path, Wish::Set),
            };
            self.count += 1;
            let value = format!("w{}-{}-{}", self.number, life, self.count);
            let value = (wish != Wish::Delete).then_some(value);
            let (write, is_well) = session.write(at, &path, wish, value);
            history.writes.push(write);
            if !is_well {
                return;
            }
        }
    }
}
