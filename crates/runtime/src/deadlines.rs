//! When waits give up. Hardly any of them does: what was waited for comes first, millions of times a minute. So a
//! deadline that is set and given up again costs an entry in a table, and neither a system call nor a thread that
//! wakes up; the reactor's own timers cost both each time. One task sleeps until the earliest deadline of the table
//! was due when it last looked.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::{Either, select};
use futures::task::AtomicWaker;

use super::{now_ns, sleep, spawn};

/// The future's output, or `None` when it took longer than `duration`; then it was dropped.
pub async fn timeout<F, T>(duration: Duration, future: F) -> Option<T>
where
    F: Future<Output = T>,
{
    // The future goes first: a result that is ready in time is returned, however late it is polled.
    match select(pin!(future), Deadline::after(duration)).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(_) => None,
    }
}

/// Ends at a moment.
struct Deadline {
    /// In nanoseconds of [`now_ns`].
    at: u64,
    /// Its number in the table, and whom that wakes, once it was polled.
    entry: Option<(u64, Waker)>,
}

impl Deadline {
    fn after(duration: Duration) -> Deadline {
        let duration = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Deadline { at: now_ns().saturating_add(duration), entry: None }
    }
}

impl Future for Deadline {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if now_ns() >= self.at {
            return Poll::Ready(());
        }
        let waker = cx.waker();
        match &mut self.entry {
            Some((_, known)) if known.will_wake(waker) => {}
            Some((number, known)) => {
                known.clone_from(waker);
                let number = *number;
                let before = table().waiting.insert((self.at, number), waker.clone());
                // Not while the table is locked: it may be the last handle of a task, which may wait itself.
                drop(before);
            }
            None => {
                let number = table().begin(self.at, waker);
                self.entry = Some((number, waker.clone()));
            }
        }
        Poll::Pending
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        if let Some((number, _)) = self.entry {
            let waker = table().waiting.remove(&(self.at, number));
            // Not while the table is locked: it may be the last handle of a task.
            drop(waker);
        }
    }
}

/// All deadlines that are waited for. As many as futures that wait: whoever starts those has a bound.
struct Table {
    /// By moment and number.
    waiting: BTreeMap<(u64, u64), Waker>,
    last_number: u64,
    /// When the task looks again at the latest.
    looks_at: u64,
}

static TABLE: Mutex<Table> =
    Mutex::new(Table { waiting: BTreeMap::new(), last_number: 0, looks_at: u64::MAX });
/// Wakes the task that wakes the others.
static EARLIER: AtomicWaker = AtomicWaker::new();

fn table() -> MutexGuard<'static, Table> {
    // Nothing that is done with it panics half-way.
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Table {
    /// Adds one.
    fn begin(&mut self, at: u64, waker: &Waker) -> u64 {
        static TASK: OnceLock<()> = OnceLock::new();
        TASK.get_or_init(|| drop(spawn(keep())));
        self.last_number += 1;
        self.waiting.insert((at, self.last_number), waker.clone());
        if at < self.looks_at {
            self.looks_at = at;
            EARLIER.wake();
        }
        self.last_number
    }

    /// Takes out whoever is due, and says when to look again.
    fn take_due(&mut self, now: u64) -> (Vec<Waker>, u64) {
        let later = self.waiting.split_off(&(now.saturating_add(1), 0));
        let due = std::mem::replace(&mut self.waiting, later).into_values().collect();
        self.looks_at = self.waiting.keys().next().map_or(u64::MAX, |(at, _)| *at);
        (due, self.looks_at)
    }
}

/// Wakes who is due, for as long as the process lives.
async fn keep() {
    loop {
        let now = now_ns();
        let (due, next) = table().take_due(now);
        due.into_iter().for_each(Waker::wake);
        let is_earlier = std::future::poll_fn(|cx| {
            EARLIER.register(cx.waker());
            if table().looks_at < next { Poll::Ready(()) } else { Poll::Pending }
        });
        match next {
            u64::MAX => is_earlier.await,
            _ => {
                let pause = sleep(Duration::from_nanos(next.saturating_sub(now)));
                select(pin!(pause), is_earlier).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;
    use std::task::Wake;

    use super::super::{block_on, spawn, yield_now};
    use super::*;

    #[test]
    fn a_future_that_is_too_slow_times_out() {
        assert_eq!(block_on(timeout(Duration::from_millis(1), pending::<()>())), None);
        assert_eq!(block_on(timeout(Duration::from_secs(60), async { 5 })), Some(5));
        // A later one before, and a time that never comes.
        let slow = spawn(timeout(Duration::MAX, pending::<()>()));
        let late = spawn(timeout(Duration::from_secs(600), pending::<()>()));
        assert_eq!(block_on(timeout(Duration::from_millis(5), pending::<()>())), None);
        block_on(async { (slow.cancel().await, late.cancel().await) });
    }

    #[test]
    fn none_is_early_and_a_later_one_delays_none() {
        // The longest first, so that each next one is earlier than what is slept until.
        let tasks: Vec<_> = (1..=20_u64)
            .rev()
            .map(|number| {
                spawn(async move {
                    let (began, time) = (now_ns(), Duration::from_millis(10 * number));
                    assert!(timeout(time, pending::<()>()).await.is_none());
                    assert!(u128::from(now_ns() - began) >= time.as_nanos());
                })
            })
            .collect();
        tasks.into_iter().for_each(block_on);
    }

    #[test]
    fn what_was_given_up_is_forgotten() {
        let before = table().waiting.len();
        for _ in 0..1_000 {
            let soon = async { yield_now().await };
            assert!(block_on(timeout(Duration::from_secs(3_600), soon)).is_some());
        }
        // Other tests run beside this one.
        assert!(table().waiting.len() < before + 100);
    }

    #[test]
    fn whoever_polls_it_last_is_woken() {
        block_on(async {
            let mut deadline = Box::pin(Deadline::after(Duration::from_millis(20)));
            // Another task polls it first, and ends.
            let polled = spawn(async move {
                let once =
                    |cx: &mut Context<'_>| Poll::Ready(deadline.as_mut().poll(cx).is_pending());
                assert!(std::future::poll_fn(once).await);
                [deadline]
            });
            let [deadline] = polled.await;
            deadline.await;
        });
    }

    /// As the last handle of a task that waits itself, whose end takes its deadline out of the table.
    struct LastHandle(std::sync::mpsc::Sender<()>);

    impl Wake for LastHandle {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for LastHandle {
        fn drop(&mut self) {
            drop(table());
            let _ = self.0.send(());
        }
    }

    #[test]
    fn whoever_polled_it_before_is_dropped_without_the_table() {
        let (dropped, is_dropped) = std::sync::mpsc::channel();
        // On a thread of its own, which would wait for itself for ever.
        std::thread::spawn(move || {
            let mut deadline = Deadline::after(Duration::from_secs(3_600));
            let first = Waker::from(Arc::new(LastHandle(dropped)));
            assert!(Pin::new(&mut deadline).poll(&mut Context::from_waker(&first)).is_pending());
            drop(first);
            assert!(
                Pin::new(&mut deadline).poll(&mut Context::from_waker(Waker::noop())).is_pending()
            );
        });
        assert_eq!(is_dropped.recv_timeout(Duration::from_secs(60)), Ok(()));
    }
}
