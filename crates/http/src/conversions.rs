//! Turns of long conversions between JSON and values, so that one client's values take neither the node's time nor its memory
//! from all others. Other tasks run in between, or on other threads.

use std::sync::Arc;

use distkv_crowd::shares::Holder;

use crate::rt;
use crate::turns::{Turn, Turns};

/// Most long values that are worked on at once to write them as JSON; others wait for their turn. One user, or one host where
/// clients need not log in, may have no more than are left for all others.
const HTTP_WRITTEN_MAX: usize = 4;
/// Most long bodies of JSON that are turned into values at once: each takes a thread for up to some hundred ms. Others wait for
/// their turn; of one user, or one host where clients need not log in, there is one at a time.
const HTTP_PARSED_MAX: usize = 2;

/// See the module.
#[derive(Clone)]
pub struct Conversions {
    written: Arc<Turns>,
    parsed: Arc<Turns>,
}

impl Default for Conversions {
    fn default() -> Self {
        Self { written: Turns::new(HTTP_WRITTEN_MAX), parsed: Turns::new(HTTP_PARSED_MAX) }
    }
}

impl Conversions {
    /// A turn to write a long value as JSON. To be held while that is worked on, with [`others_first`] now and then, and not
    /// while its client reads.
    pub async fn turn_to_write(&self, holder: &Holder) -> Turn {
        // Whoever waits is there before the one that had the last turn.
        rt::yield_now().await;
        Turns::wait(&self.written, holder, &mut None).await
    }

    /// Waits for a turn to make a value of a long body of JSON, and does it; other threads run the tasks of others meanwhile.
    pub async fn parse<T>(&self, holder: &Holder, work: impl FnOnce() -> T) -> T {
        let _turn = Turns::wait(&self.parsed, holder, &mut None).await;
        rt::compute(work)
    }
}

/// Lets all tasks that can go on do so first.
pub async fn others_first() {
    rt::yield_now().await;
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Duration;

    use futures::future::poll_immediate;

    use super::*;

    #[test]
    fn of_one_holder_a_few_are_worked_on_and_others_are_not_kept_out() {
        let (conversions, own) = (Conversions::default(), Holder::KeyHolder);
        let other = Holder::Host([10, 0, 0, 1].into());
        let mut turns: Vec<_> =
            (0..2).map(|_| rt::block_on(conversions.turn_to_write(&own))).collect();
        let mut third = pin!(conversions.turn_to_write(&own));
        let mut others = pin!(conversions.turn_to_write(&other));
        // The first time each of them lets others go first.
        for _ in 0..2 {
            assert!(rt::block_on(poll_immediate(&mut third)).is_none());
        }
        turns.push(rt::block_on(&mut others));
        turns.clear();
        turns.push(rt::block_on(third));
    }

    #[test]
    fn of_one_holder_one_body_is_worked_on_and_others_are_not_kept_out() {
        let (conversions, own) = (Conversions::default(), Holder::KeyHolder);
        let other = Holder::Host([10, 0, 0, 1].into());
        let work = || {
            let mut second = pin!(conversions.parse(&own, || 2));
            assert!(rt::block_on(poll_immediate(&mut second)).is_none());
            rt::block_on(conversions.parse(&other, || 3))
        };
        assert_eq!(rt::block_on(conversions.parse(&own, work)), 3);
    }

    #[test]
    fn while_a_body_is_worked_on_other_tasks_run() {
        let (told, answer) = std::sync::mpsc::channel();
        let parsing = rt::spawn(async move {
            let work = move || {
                // The node has one thread for tasks, unless it is told otherwise.
                drop(rt::spawn(async move { told.send("told") }));
                answer.recv_timeout(Duration::from_secs(60))
            };
            Conversions::default().parse(&Holder::KeyHolder, work).await
        });
        assert_eq!(rt::block_on(parsing), Ok("told"));
    }
}
