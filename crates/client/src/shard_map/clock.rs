//! Time, randomness and tasks, as a [`ShardMap`](super::ShardMap) sees them: the real ones, or those of a
//! test.

use std::future::Future;
use std::time::Duration;

use futures::future::BoxFuture;

use crate::rt;

/// What a map needs of its surroundings.
pub trait Clock: Send + Sync + 'static {
    /// Time since some fixed moment; never goes back.
    fn now(&self) -> Duration;

    /// Waits.
    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send;

    /// Any 64 bits, others each time.
    fn random(&self) -> u64;

    /// Has the task run to its end.
    fn spawn(&self, task: BoxFuture<'static, ()>);
}

/// The real ones.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        Duration::from_micros(rt::now_us())
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send {
        rt::sleep(duration)
    }

    fn random(&self) -> u64 {
        rt::random_u64()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        rt::spawn(task);
    }
}
