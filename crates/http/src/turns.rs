//! Something of which there are only so many at once, in [shares](distkv_crowd::shares): each holder may have no more than are left for all
//! others.

use std::sync::Arc;

use distkv_crowd::shares::{Holder, Refusal, Shares};
use event_listener::Event;
use parking_lot::Mutex;

/// See the module.
pub(crate) struct Turns {
    shares: Mutex<Shares>,
    given_back: Event,
}

impl Turns {
    /// So many at once.
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { shares: Mutex::new(Shares::new(max)), given_back: Event::new() })
    }

    /// One of them.
    ///
    /// # Errors
    /// There is none left, or none for this holder.
    pub(crate) fn take(turns: &Arc<Self>, holder: &Holder) -> Result<Turn, Refusal> {
        let holder = turns.shares.lock().take(holder)?;
        Ok(Turn { turns: Arc::clone(turns), holder })
    }

    /// One of them, as soon as it may be had; meanwhile `waits_for` says why not yet.
    pub(crate) async fn wait(
        turns: &Arc<Self>,
        holder: &Holder,
        waits_for: &mut Option<Refusal>,
    ) -> Turn {
        loop {
            let given_back = turns.given_back.listen();
            match Self::take(turns, holder) {
                Ok(turn) => {
                    *waits_for = None;
                    return turn;
                }
                Err(why) => *waits_for = Some(why),
            }
            given_back.await;
        }
    }
}

/// One of them, until this is dropped.
pub struct Turn {
    turns: Arc<Turns>,
    holder: Arc<Holder>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.shares.lock().give_back(&self.holder);
        // Whoever waits may have a share of its own, so the first one need not be it.
        self.turns.given_back.notify(usize::MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::FutureExt as _;
    use futures::future::poll_immediate;

    use super::*;
    use crate::rt::block_on;

    fn host(last: u8) -> Holder {
        Holder::Host([10, 0, 0, last].into())
    }

    #[test]
    fn who_has_its_share_waits_until_it_has_less_and_knows_why() {
        let turns = Turns::new(4);
        let mut own: Vec<_> = (0..2).map(|_| Turns::take(&turns, &host(1)).ok().unwrap()).collect();
        let mut why = None;
        assert!(Turns::wait(&turns, &host(1), &mut why).now_or_never().is_none());
        let text = why.take().unwrap().text("bodies");
        assert!(text.starts_with("clients at 10.0.0.1 have 2 of the 4 bodies"), "{text}");
        let others = (Turns::take(&turns, &host(2)).ok().unwrap(), Turns::take(&turns, &host(3)));
        assert!(others.1.is_ok());
        assert_eq!(Turns::take(&turns, &host(4)).err(), Some(Refusal::Full));
        let holder = host(1);
        {
            let mut waiting = pin!(Turns::wait(&turns, &holder, &mut why));
            assert!(block_on(poll_immediate(&mut waiting)).is_none());
            own.pop();
            // There is one, and it is left for others: of those it may have no more than are left.
            assert!(block_on(poll_immediate(&mut waiting)).is_none());
            drop(others);
            own.push(block_on(waiting));
        }
        assert_eq!((own.len(), why), (2, None));
    }
}
