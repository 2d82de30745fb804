//! The reading half of a connection: bytes to messages, messages to the tasks that wait for them.

use std::net::Shutdown;
use std::sync::Arc;

use async_channel::{Receiver, Sender, TrySendError};

use super::line::Arrival;
use super::shared::{Shared, Waiter};
use crate::error::ClientError;
use crate::message::{Greeting, Message};
use crate::splitter::Splitter;
use crate::wire::Wire;

/// Bytes that are read at a time.
const READ_BYTES: usize = 64 << 10;

/// Messages from a socket.
pub(super) struct Incoming {
    wire: Wire,
    address: String,
    splitter: Splitter,
    chunk: Vec<u8>,
    /// Something was read since this was last looked at.
    has_heard: bool,
    arrival: Arc<Arrival>,
}

impl Incoming {
    pub(super) fn new(wire: Wire, address: String) -> Incoming {
        let (splitter, chunk) = (Splitter::new(), vec![0; READ_BYTES]);
        let arrival = Arc::default();
        Incoming { wire, address, splitter, chunk, has_heard: false, arrival }
    }

    /// Whether a message is arriving.
    pub(super) fn arrival(&self) -> Arc<Arrival> {
        Arc::clone(&self.arrival)
    }

    /// What is to be written besides requests goes here, as an empty batch.
    pub(super) fn writer_is(&mut self, outgoing: &Sender<Vec<u8>>) {
        self.wire.writer_is(outgoing);
    }

    /// The node's first message.
    pub(super) async fn greeting(&mut self) -> Result<Greeting, ClientError> {
        let message = self.next().await?;
        if let Some(error) = message.error() {
            // A node that serves clients by TLS only, and this client does not use it: it is as well refused a moment later.
            return Err(match error.shuts_out() {
                true => ClientError::NoAccess {
                    address: self.address.clone(),
                    reason: error.text,
                    code: error.code.map(Into::into),
                    greeted: false,
                },
                false => error.into(),
            });
        }
        Greeting::decode(&message)
            .ok_or_else(|| self.protocol_error("its first message is no greeting"))
    }

    /// Hands out messages until the connection ends; then reports the end to all waiting tasks, and to the one that
    /// writes what is queued.
    pub(super) async fn read_all(mut self, shared: Arc<Shared>, queue: Receiver<Vec<u8>>) {
        let reason = loop {
            let handed_out = match self.next().await {
                Ok(message) => {
                    if std::mem::take(&mut self.has_heard) {
                        shared.on_heard();
                    }
                    self.hand_out(message, &shared).await
                }
                Err(error) => Err(error),
            };
            if let Err(reason) = handed_out {
                break reason;
            }
        };
        shared.end(reason);
        queue.close();
        let _ = self.wire.stream().shutdown(Shutdown::Both);
    }

    /// The next message.
    async fn next(&mut self) -> Result<Message, ClientError> {
        loop {
            match self.splitter.next_value() {
                Ok(Some(value)) => {
                    let message = Message::new(value);
                    return message.map_err(|error| self.protocol_error(&error.to_string()));
                }
                Ok(None) => self.arrival.note(self.splitter.has_part()),
                Err(error) => return Err(self.protocol_error(&error.to_string())),
            }
            let count = match self.wire.read(&mut self.chunk).await {
                Ok(0) => return Err(self.lost("the node closed it")),
                Ok(count) => count,
                Err(error) => return Err(Wire::lost(&error, self.address.clone())),
            };
            self.has_heard = true;
            self.splitter.push(self.chunk.get(..count).unwrap_or_default());
        }
    }

    /// Gives a message to the task that waits for it. A message for which no task waits any more is
    /// dropped.
    async fn hand_out(&self, message: Message, shared: &Shared) -> Result<(), ClientError> {
        let seq = message.seq();
        if seq == 0 {
            return match message.error() {
                // Its last words: it says why, and closes.
                Some(error) => {
                    shared.on_last_words(&error);
                    Err(self.lost(&format!("the node says: {error}")))
                }
                None => Ok(()),
            };
        }
        if let Some(clock) = shared.clock.get() {
            clock.hear(message.tock());
        }
        let waiting = match shared.waiting(seq) {
            None => return Ok(()),
            Some(Waiter::Stream(waiting)) => waiting,
            Some(Waiter::Once(slot)) => {
                // Nobody takes more than one, so without flow control further ones are dropped.
                return match slot.put(message) || shared.window.is_none() {
                    true => Ok(()),
                    false => Err(self.protocol_error("it does not heed flow control")),
                };
            }
        };
        match waiting.try_send(message) {
            Ok(()) | Err(TrySendError::Closed(_)) => Ok(()),
            Err(TrySendError::Full(_)) if shared.window.is_some() => {
                Err(self.protocol_error("it does not heed flow control"))
            }
            Err(TrySendError::Full(message)) => {
                // Without flow control there is only one way to slow a stream down. The stream's end, and the connection's,
                // end this, too.
                let _ = waiting.send(message).await;
                // Meanwhile nothing was read, which says nothing about the node.
                shared.on_heard();
                Ok(())
            }
        }
    }

    fn lost(&self, reason: &str) -> ClientError {
        ClientError::Lost { address: self.address.clone(), reason: reason.to_owned() }
    }

    fn protocol_error(&self, reason: &str) -> ClientError {
        ClientError::Protocol { address: self.address.clone(), reason: reason.to_owned() }
    }
}
