//! Connections that have not become links yet: how many strangers there may be, and whom this
//! node is greeting at the moment.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use event_listener::Event;
use parking_lot::Mutex;

use crate::crowd::Crowd;
use crate::rt;

/// Most connections that have not become links yet. Each costs a socket for at most 5 s, and 4 KiB. Those that have not
/// greeted give way to newer ones.
pub(in crate::node) const GREETINGS_MAX: usize = 256;

/// All of a node's greetings under way.
pub(in crate::node::link) struct Greetings {
    /// Connections that were made to us and have not become links yet.
    pub(in crate::node::link) strangers: Arc<Crowd>,
    /// Where we are greeting whom we dialled; as many as there are dials under way.
    dialled: Mutex<Vec<SocketAddr>>,
    /// Fires when one of those came to something.
    ended: Event,
}

impl Default for Greetings {
    fn default() -> Self {
        Self {
            // A peer greets within milliseconds, so nobody needs time.
            strangers: Crowd::new(GREETINGS_MAX, 0),
            dialled: Mutex::default(),
            ended: Event::new(),
        }
    }
}

impl Greetings {
    /// We are greeting a peer that we dialled there, until the returned value is dropped.
    pub(in crate::node::link) fn begin(&self, addr: SocketAddr) -> UnderWay<'_> {
        self.dialled.lock().push(addr);
        UnderWay { greetings: self, addr }
    }

    /// Whether we are greeting a peer on this host.
    pub(in crate::node::link) fn is_greeting(&self, host: IpAddr) -> bool {
        self.dialled.lock().iter().any(|addr| addr.ip() == host)
    }

    /// Waits until we are not greeting anybody there (any more), or for `patience`.
    pub(in crate::node::link) async fn over(&self, addr: SocketAddr, patience: Duration) {
        let wait = async {
            loop {
                let listener = self.ended.listen();
                if !self.dialled.lock().contains(&addr) {
                    return;
                }
                listener.await;
            }
        };
        let _ = rt::timeout(patience, wait).await;
    }
}

/// We are greeting a peer.
pub(in crate::node::link) struct UnderWay<'a> {
    greetings: &'a Greetings,
    addr: SocketAddr,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut dialled = self.greetings.dialled.lock();
        if let Some(place) = dialled.iter().position(|addr| *addr == self.addr) {
            dialled.swap_remove(place);
        }
        drop(dialled);
        self.greetings.ended.notify(usize::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_greeting_goes_on_when_it_is_over_or_takes_too_long() {
        let greetings = Greetings::default();
        let [here, there] =
            ["10.0.0.1:1", "10.0.0.2:1"].map(|addr| addr.parse::<SocketAddr>().unwrap());
        let (first, second) = (greetings.begin(here), greetings.begin(here));
        assert!(greetings.is_greeting(here.ip()) && !greetings.is_greeting(there.ip()));
        let soon = Duration::from_secs(60);
        rt::block_on(async {
            greetings.over(there, soon).await;
            greetings.over(here, Duration::from_millis(1)).await;
            drop(first);
            let end = async {
                rt::yield_now().await;
                drop(second);
            };
            futures::future::join(greetings.over(here, soon), end).await;
        });
    }
}
