//! The threads that run tasks: how many there are, and what the first of them needs of the system.

use std::io;
use std::panic::{RefUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::{
    begin_reactor, millis, now, pause, run_tasks, run_tasks_until, spawn_blocking, spawn_thread,
};

/// The threads that run them.
static THREADS: Mutex<Threads> = Mutex::new(Threads { running: 0, chosen: None });
/// There is one at least.
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

/// Threads without which nothing works: one for tasks, the reactor's, and one for work that blocks.
const NEEDED: usize = 3;
/// A thread that panics more often than this pauses in between, so that its messages do not fill a disk.
const CALM: Duration = Duration::from_secs(1);
/// Doublings of a millisecond until that pause is the longest.
const PAUSE_DOUBLINGS: u32 = 10;
/// Most threads at a time that run tasks in the place of those that compute.
const STAND_INS_MAX: usize = 16;
/// So many there are.
static STAND_INS: AtomicUsize = AtomicUsize::new(0);

struct Threads {
    running: usize,
    /// How many there are to be, where the program has said so.
    chosen: Option<usize>,
}

/// Has this number of threads run tasks, or more where more were started before; what [`start_for_node`] asks for
/// later does not count. Without either there is one thread: a further one is woken for what the first could have
/// done, and waking it costs more than most tasks of a client.
pub fn start(threads: usize) {
    // Where that fails, it is tried again with the first task, and before each connection.
    let _ = start_threads(threads, true);
}

/// Has as many threads run tasks as a node needs that is part of a program: [`node_threads`].
pub fn start_for_node() {
    let _ = start_threads(node_threads(), false);
}

/// Half of the cores: the other half is for the system's part of each request, and for threads of their own.
#[must_use]
pub fn node_threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from).div_ceil(2)
}

/// Sees to it that tasks run. Where the system has not what that takes, they wait, and each further task tries again.
///
/// # Errors
/// What the system does not give: threads, or file descriptors. Nothing was started.
pub fn start_if_needed() -> io::Result<()> {
    match IS_RUNNING.load(Ordering::Acquire) {
        true => Ok(()),
        false => start_threads(1, false),
    }
}

fn start_threads(wanted: usize, is_chosen: bool) -> io::Result<()> {
    let mut threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    if is_chosen {
        threads.chosen = threads.chosen.max(Some(wanted));
    }
    let wanted = threads.chosen.unwrap_or(wanted).max(1);
    let is_first = threads.running == 0;
    if is_first {
        prepare()?;
    }
    while threads.running < wanted {
        match spawn_thread("tasks", || run_again_and_again(run_tasks)) {
            Ok(_) => threads.running += 1,
            Err(error) if threads.running == 0 => return Err(no_threads(&error)),
            // Where the system has fewer threads, fewer have to do.
            Err(_) => break,
        }
    }
    IS_RUNNING.store(true, Ordering::Release);
    drop(threads);
    if is_first {
        // The first thread for work that blocks, while the system certainly has one. It stays, so that
        // name look-ups and the like go on when there are no more threads to be had.
        drop(spawn_blocking(|| ()));
    }
    Ok(())
}

/// Computes for milliseconds or seconds in the midst of a task. Another thread runs the other tasks meanwhile; only
/// this one waits. Where there are sixteen such threads already, or the system has none to give, the others may wait, too.
pub fn compute<T>(work: impl FnOnce() -> T) -> T {
    let (_over, is_over) = async_channel::bounded::<()>(1);
    if let Some(place) = StandIn::take() {
        // Where the system has no thread to give, `place` is dropped with the rest.
        let _ = spawn_thread("stand-in", move || {
            let _place = place;
            run_again_and_again(|| run_tasks_until(&is_over));
        });
    }
    work()
}

/// One of those that are counted.
struct StandIn;

impl StandIn {
    fn take() -> Option<StandIn> {
        let more = |count| (count < STAND_INS_MAX).then_some(count + 1);
        STAND_INS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| StandIn)
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        STAND_INS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs this until it ends without a panic, with longer and longer pauses.
fn run_again_and_again(run: impl Fn() + RefUnwindSafe) {
    let mut panics = 0_u32;
    loop {
        let began = now();
        if catch_unwind(&run).is_ok() {
            return;
        }
        let is_calm = now().saturating_sub(began) >= millis(CALM);
        panics = if is_calm { 0 } else { (panics + 1).min(PAUSE_DOUBLINGS) };
        if panics > 0 {
            pause(Duration::from_millis(1 << panics));
        }
    }
}

/// Sees to it that the libraries have what they need to begin with: the reactor panics without it, and the pool of
/// threads for work that blocks turns in a circle.
fn prepare() -> io::Result<()> {
    have_threads(NEEDED).map_err(|error| no_threads(&error))?;
    have_descriptors().map_err(|error| lacks("file descriptor", &error))?;
    // Somebody else may have taken the last one meanwhile.
    catch_unwind(begin_reactor).map_err(|_| {
        io::Error::other("the system gives this process no thread, or no file descriptor")
    })
}

fn no_threads(error: &io::Error) -> io::Error {
    lacks("thread", error)
}

fn lacks(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("the system gives this process no {what}: {error}"))
}

/// Whether the system has so many threads at the same time.
fn have_threads(count: usize) -> io::Result<()> {
    let (open, gate) = async_channel::bounded::<()>(1);
    let wait = || {
        let gate = gate.clone();
        spawn_thread("probe", move || {
            let _ = gate.recv_blocking();
        })
    };
    let (waiting, result) = {
        let mut waiting = Vec::new();
        let result = (0..count).try_for_each(|_| wait().map(|thread| waiting.push(thread)));
        (waiting, result)
    };
    drop(open);
    for thread in waiting {
        // It does nothing that could panic.
        let _ = thread.join();
    }
    result
}

/// Whether the process may open what a reactor needs, which is up to three, and a socket.
fn have_descriptors() -> io::Result<()> {
    let _both = (io::pipe()?, io::pipe()?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::super::{block_on, spawn};
    use super::*;

    #[test]
    fn while_one_task_computes_others_go_on() {
        start(1);
        let (told, answer) = std::sync::mpsc::channel();
        let computing = spawn(async move {
            // It would wait for ever for a task that only its own thread could run.
            let begin = || answer.recv_timeout(Duration::from_secs(60));
            spawn(async move { told.send("told") });
            compute(begin)
        });
        assert_eq!(block_on(computing), Ok("told"));
    }

    #[test]
    fn where_too_many_compute_the_others_wait() {
        let places: Vec<_> = std::iter::from_fn(StandIn::take).collect();
        assert!(places.len() <= STAND_INS_MAX);
        assert_eq!(compute(|| 5), 5);
        drop(places);
        assert!(StandIn::take().is_some());
    }

    #[test]
    fn what_panics_again_and_again_is_begun_anew_after_a_pause() {
        let (runs, began) = (AtomicU32::new(0), now());
        run_again_and_again(|| assert!(runs.fetch_add(1, Ordering::SeqCst) >= 7));
        assert_eq!(runs.load(Ordering::SeqCst), 8);
        // 2, 4, 8 … 128 milliseconds.
        assert!(now() - began >= 254);
    }
}
