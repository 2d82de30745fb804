//! What goes on at the same time, counted: so that closing can wait until nothing is left. A client has one group for
//! its tasks, and one for the calls that are open.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use event_listener::Event;

use crate::rt;

/// See the module; clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Group {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    members: AtomicUsize,
    /// Notified when the last member has left.
    is_empty: Event,
}

/// Something that goes on. Dropping it tells that it is over.
#[derive(Debug)]
pub(crate) struct Member {
    group: Arc<Inner>,
}

impl Group {
    /// Something begins.
    pub(crate) fn begin(&self) -> Member {
        self.inner.members.fetch_add(1, Ordering::SeqCst);
        Member { group: Arc::clone(&self.inner) }
    }

    /// Starts a task.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let member = self.begin();
        rt::spawn(async move {
            work.await;
            drop(member);
        });
    }

    /// How many go on.
    pub(crate) fn len(&self) -> usize {
        self.inner.members.load(Ordering::SeqCst)
    }

    /// Waits until none goes on.
    pub(crate) async fn empty(&self) {
        loop {
            let listener = self.inner.is_empty.listen();
            if self.len() == 0 {
                return;
            }
            listener.await;
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if self.group.members.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.group.is_empty.notify(usize::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_empty_when_the_last_one_has_ended() {
        rt::block_on(async {
            let group = Group::default();
            group.empty().await;
            let (begin, wait) = async_channel::bounded::<()>(1);
            let member = group.begin();
            group.spawn(async move {
                let _ = wait.recv().await;
            });
            assert_eq!(group.len(), 2);
            drop(member);
            let clone = group.clone();
            let waiting = rt::spawn(async move { clone.empty().await });
            assert_eq!(group.len(), 1);
            drop(begin);
            waiting.await;
            assert_eq!(group.len(), 0);
        });
    }
}
