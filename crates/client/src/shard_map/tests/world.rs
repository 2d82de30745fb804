//! A world for the tests: virtual time, an executor that polls one task after the other on the test's
//! thread, and a lister whose answers the test gives, when it likes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Context;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::task::{ArcWake, waker_ref};
use futures_channel::oneshot;
use parking_lot::Mutex;

use crate::shard_map::{
    Clock, ListShards, Page, ShardMap, ShardMapConfig, ShardMapState, ShardRow,
};

pub(super) type Map = ShardMap<Lister, World>;
type Reply = Result<Page, String>;

/// Clones are the same world.
#[derive(Debug, Clone, Default)]
pub(super) struct World {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    now: Duration,
    sleepers: Vec<(Duration, oneshot::Sender<()>)>,
    tasks: Vec<Arc<Task>>,
    asked: VecDeque<Asked>,
    /// All questions so far: when, and behind what.
    questions: Vec<(Duration, Option<u128>)>,
    random: u64,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("now", &self.now).finish_non_exhaustive()
    }
}

/// A question of the lister that waits for its answer.
struct Asked {
    after: Option<u128>,
    reply: oneshot::Sender<Reply>,
}

struct Task {
    future: Mutex<Option<BoxFuture<'static, ()>>>,
    is_woken: AtomicBool,
}

impl ArcWake for Task {
    fn wake_by_ref(task: &Arc<Task>) {
        task.is_woken.store(true, Ordering::SeqCst);
    }
}

impl Clock for World {
    fn now(&self) -> Duration {
        self.state.lock().now
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send {
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = self.state.lock();
            let until = state.now.saturating_add(duration);
            state.sleepers.push((until, sender));
        }
        async move {
            let _ = receiver.await;
        }
    }

    fn random(&self) -> u64 {
        self.state.lock().random
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let task = Task { future: Mutex::new(Some(task)), is_woken: AtomicBool::new(true) };
        self.state.lock().tasks.push(Arc::new(task));
    }
}

/// Puts each question into the world, where the test answers it.
#[derive(Debug)]
pub(super) struct Lister(World);

impl ListShards for Lister {
    type Error = String;

    fn list(&self, after: Option<u128>) -> impl Future<Output = Reply> + Send {
        let (reply, answer) = oneshot::channel();
        {
            let mut state = self.0.state.lock();
            let now = state.now;
            state.questions.push((now, after));
            state.asked.push_back(Asked { after, reply });
        }
        async move { answer.await.unwrap_or_else(|_| Err("nobody answers".to_owned())) }
    }
}

impl World {
    /// A map in a new world, at one second after its beginning, with the longest jitter.
    pub(super) fn new(config: ShardMapConfig) -> (World, Arc<Map>) {
        let world = World::default();
        world.state.lock().random = u64::MAX;
        world.advance(Duration::from_secs(1));
        let map = ShardMap::new(Lister(world.clone()), world.clone(), config);
        (world, Arc::new(map))
    }

    /// A map that has this table.
    pub(super) fn ready(rows: Vec<ShardRow>) -> (World, Arc<Map>) {
        let (world, map) = World::new(ShardMapConfig::default());
        map.start().unwrap();
        world.settle();
        world.answer_all(rows);
        assert_eq!(map.state(), ShardMapState::Ready);
        (world, map)
    }

    pub(super) fn set_random(&self, random: u64) {
        self.state.lock().random = random;
    }

    /// Polls all tasks that were woken, until none is.
    pub(super) fn settle(&self) {
        loop {
            let tasks = self.state.lock().tasks.clone();
            let mut was_woken = false;
            for task in tasks {
                if task.is_woken.swap(false, Ordering::SeqCst) {
                    was_woken = true;
                    let mut future = task.future.lock();
                    let waker = waker_ref(&task);
                    let mut context = Context::from_waker(&waker);
                    let is_over = future
                        .as_mut()
                        .is_some_and(|future| future.as_mut().poll(&mut context).is_ready());
                    if is_over {
                        *future = None;
                    }
                }
            }
            if !was_woken {
                return;
            }
        }
    }

    /// Lets time pass, from one sleeper's moment to the next.
    pub(super) fn advance(&self, duration: Duration) {
        let end = self.state.lock().now + duration;
        loop {
            self.settle();
            let mut state = self.state.lock();
            // Those who gave up their sleep.
            state.sleepers.retain(|(_, sender)| !sender.is_canceled());
            let next = state.sleepers.iter().enumerate().min_by_key(|(_, (until, _))| *until);
            let Some((index, until)) = next.map(|(i, (until, _))| (i, *until)) else {
                state.now = end;
                break;
            };
            if until > end {
                state.now = end;
                break;
            }
            state.now = state.now.max(until);
            let (_, sender) = state.sleepers.remove(index);
            drop(state);
            let _ = sender.send(());
        }
        self.settle();
    }

    /// Answers the question that waits for longest; what it asked for.
    pub(super) fn answer(&self, reply: Reply) -> Option<u128> {
        let asked = self.state.lock().asked.pop_front().expect("nothing was asked");
        let _ = asked.reply.send(reply);
        self.settle();
        asked.after
    }

    /// Answers the question that waits, by what it asks for.
    pub(super) fn answer_with(&self, page: impl FnOnce(Option<u128>) -> Page) {
        let after = self.state.lock().asked.front().expect("nothing was asked").after;
        self.answer(Ok(page(after)));
    }

    /// Answers with one page that has all.
    pub(super) fn answer_all(&self, rows: Vec<ShardRow>) {
        assert_eq!(self.answer(Ok(Page { rows, next: None })), None);
    }

    /// How many questions wait for an answer.
    pub(super) fn open_questions(&self) -> usize {
        self.state.lock().asked.iter().filter(|asked| !asked.reply.is_canceled()).count()
    }

    /// The questions for a first page so far: when.
    pub(super) fn fetches(&self) -> Vec<Duration> {
        let state = self.state.lock();
        state.questions.iter().filter(|(_, after)| after.is_none()).map(|(at, _)| *at).collect()
    }

    /// How many tasks have not ended.
    pub(super) fn tasks(&self) -> usize {
        self.state.lock().tasks.iter().filter(|task| task.future.lock().is_some()).count()
    }

    /// Runs a future as a task; what it will have given.
    pub(super) fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Arc<Mutex<Option<T>>> {
        let slot = Arc::new(Mutex::new(None));
        let result = Arc::clone(&slot);
        self.spawn(Box::pin(async move {
            let output = future.await;
            *slot.lock() = Some(output);
        }));
        self.settle();
        result
    }
}
