//! Where the one answer to a request is put, for the task that waits for it. A channel would do the same, with three
//! times as much memory to ask for and several counters to keep; most calls are of this kind.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use parking_lot::Mutex;

use crate::message::Message;

/// What both sides share.
#[derive(Debug, Default)]
struct State {
    message: Option<Message>,
    /// Whoever waits for it.
    waker: Option<Waker>,
    /// Nothing comes any more.
    is_over: bool,
}

/// The side that has the answer. Dropping it without one tells that none comes.
#[derive(Debug)]
pub(super) struct Giver(Arc<Mutex<State>>);

/// The side that waits.
#[derive(Debug)]
pub(super) struct Answer(Arc<Mutex<State>>);

/// A place for an answer.
pub(super) fn place() -> (Giver, Answer) {
    let state = Arc::<Mutex<State>>::default();
    (Giver(Arc::clone(&state)), Answer(state))
}

impl Giver {
    /// Another handle to the same place, by which it can be given while the first one is kept elsewhere.
    pub(super) fn slot(&self) -> Slot {
        Slot(Arc::clone(&self.0))
    }
}

impl Drop for Giver {
    fn drop(&mut self) {
        let waker = {
            let mut state = self.0.lock();
            state.is_over = true;
            state.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

/// Where to put the answer.
#[derive(Debug)]
pub(super) struct Slot(Arc<Mutex<State>>);

impl Slot {
    /// Puts it there; false if one is there that was not taken yet.
    pub(super) fn put(&self, message: Message) -> bool {
        let waker = {
            let mut state = self.0.lock();
            if state.message.is_some() {
                return false;
            }
            state.message = Some(message);
            state.waker.take()
        };
        // Not while it is locked: whoever is woken looks at once.
        waker.into_iter().for_each(Waker::wake);
        true
    }
}

impl Answer {
    /// Waits for it; none if none comes.
    pub(super) async fn take(&self) -> Option<Message> {
        poll_fn(|cx| {
            let mut state = self.0.lock();
            if let Some(message) = state.message.take() {
                return Poll::Ready(Some(message));
            }
            if state.is_over {
                return Poll::Ready(None);
            }
            match &mut state.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rt;

    fn message() -> Message {
        Message::new(b"\x81\xa3seq\x05").unwrap()
    }

    #[test]
    fn an_answer_reaches_the_task_that_waits_for_it() {
        rt::block_on(async {
            let (giver, answer) = place();
            let waiting = rt::spawn(async move { (answer.take().await, answer.take().await) });
            rt::sleep(std::time::Duration::from_millis(2)).await;
            assert!(giver.slot().put(message()));
            drop(giver);
            assert_eq!(waiting.await, (Some(message()), None));
        });
    }

    #[test]
    fn it_can_be_taken_after_the_end_and_there_is_one_at_a_time() {
        let (giver, answer) = place();
        assert!(giver.slot().put(message()));
        assert!(!giver.slot().put(message()));
        drop(giver);
        assert_eq!(rt::block_on(answer.take()), Some(message()));
        assert_eq!(rt::block_on(answer.take()), None);
    }

    #[test]
    fn whoever_waits_is_told_that_none_comes() {
        let (giver, answer) = place();
        let waiting = rt::spawn(async move { answer.take().await });
        drop(giver);
        assert_eq!(rt::block_on(waiting), None);
    }
}
