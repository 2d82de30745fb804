//! The end of a client: nothing new begins, open calls may end, and nothing is left behind.

use std::fmt;
use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use event_listener::Event;
use futures::future::BoxFuture;

use crate::rt;
use crate::smart::{Client, Inner};

/// Whether a client is being closed.
#[derive(Debug, Default)]
pub(in crate::smart) struct Door {
    is_closing: AtomicBool,
    /// Notified when it is.
    closing: Event,
}

impl Door {
    pub(in crate::smart) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::SeqCst)
    }

    /// Ends when the client is being closed.
    pub(in crate::smart) async fn closing(&self) {
        loop {
            let listener = self.closing.listen();
            if self.is_closing() {
                return;
            }
            listener.await;
        }
    }

    fn close(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
        self.closing.notify(usize::MAX);
    }
}

/// A client that is being closed: see [`Client::close`].
pub struct Closing {
    client: Arc<Inner>,
    grace: Duration,
}

impl Closing {
    /// How long open calls may go on, instead of what the configuration says; zero: they fail at once.
    #[must_use = "without `.await`, open calls fail at once"]
    pub fn grace(mut self, grace: Duration) -> Closing {
        self.grace = grace;
        self
    }
}

impl fmt::Debug for Closing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closing").field("grace", &self.grace).finish_non_exhaustive()
    }
}

impl IntoFuture for Closing {
    type Output = ();
    type IntoFuture = BoxFuture<'static, ()>;

    fn into_future(self) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let client = Arc::clone(&self.client);
            let _ended = rt::timeout(self.grace, client.calls.empty()).await;
            // Also if the caller does not wait so long.
            drop(self);
            client.pool.tasks().empty().await;
        })
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.client.finish();
    }
}

impl Client {
    /// Closes the client, with all its clones: nothing new begins, watches and monitors end at once, and open calls
    /// may go on for [`ClientConfig::close_grace`](crate::ClientConfig::close_grace) (1 s); what is open then fails
    /// with [`CallError::Closed`](crate::CallError::Closed), and may have been done. When this returns, no task and no
    /// socket of the client is left. It may be called again.
    ///
    /// Without `.await`, and if that future is dropped, everything ends at once, and nobody waits for it.
    ///
    /// ```
    /// # use distkv::testing::{TestCluster, block_on};
    /// use std::time::Duration;
    /// use distkv_client::{Client, ClientConfig};
    ///
    /// # block_on(async {
    /// # let cluster = TestCluster::start(1).await?;
    /// # let seeds = cluster.seeds();
    /// let client = Client::connect(seeds, ClientConfig::new()).await?;
    /// client.close().grace(Duration::from_secs(5)).await;
    /// assert!(client.is_closed());
    /// # cluster.shutdown().await;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub fn close(&self) -> Closing {
        self.inner.begin_closing();
        Closing { client: Arc::clone(&self.inner), grace: self.inner.config.close_grace }
    }

    /// Whether it was closed, or is being closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner.door.is_closing()
    }
}

impl Inner {
    fn begin_closing(&self) {
        self.door.close();
        self.pool.end_endless();
    }

    /// Everything ends now.
    fn finish(&self) {
        self.table.close();
        self.topology.stop();
        self.pool.close();
    }
}
