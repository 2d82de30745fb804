//! A stream of what comes in future: nothing may come for hours, so a node that is silent is asked whether it is still there.
//!
//! A node that is frozen, or whose machine has lost its power, closes no connection.

use std::pin::pin;
use std::time::Duration;

use distkv_client::{ClientError, Connection, ReplyStream, StreamEvent};
use distkv_runtime as rt;
use futures::future::{Either, select};

/// See the module. Dropping it makes the node stop.
pub struct Following {
    stream: ReplyStream,
    connection: Connection,
    /// After so much silence the node is asked, and for so long its answer is waited for.
    patience: Duration,
}

impl Following {
    /// Follows this stream of this connection.
    pub(crate) fn new(stream: ReplyStream, connection: Connection, patience: Duration) -> Self {
        Self { stream, connection, patience }
    }

    /// The next message; `None` after the last. Waits for as long as the node is alive. Dropping the future loses
    /// nothing.
    ///
    /// # Errors
    /// The node's error, or how the connection ended; it also ends here when the node does not answer. Nothing more
    /// comes after it.
    pub async fn next(&mut self) -> Result<Option<StreamEvent>, ClientError> {
        let silence = silence(&self.connection, self.patience);
        match select(pin!(self.stream.next()), pin!(silence)).await {
            Either::Left((next, _)) => next,
            Either::Right(((), next)) => {
                self.connection.close("the node does not answer");
                next.await
            }
        }
    }
}

/// Waits until the node neither says anything nor answers.
async fn silence(connection: &Connection, patience: Duration) {
    let mut asked_at = 0;
    loop {
        let silent_for = rt::now().saturating_sub(connection.heard_at().max(asked_at));
        let rest = patience.saturating_sub(Duration::from_millis(silent_for));
        if !rest.is_zero() {
            rt::sleep(rest).await;
            continue;
        }
        asked_at = rt::now();
        if !connection.is_alive(patience).await {
            return;
        }
    }
}
