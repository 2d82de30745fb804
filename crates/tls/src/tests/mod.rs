//! TLS between two channels, without sockets.

mod certificates;
mod fitness;
mod handshake;
mod hostile;
mod records;
mod tickets;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::ca::{Ca, Identity, Period};
use crate::server::{ClientRoots, ServerTls};
use crate::trust::{ClientTls, Trust};
use crate::{Channel, Clock, TlsError};

/// 2027-01-15.
const NOW: u64 = 1_800_000_000;
const DAY: u64 = 86_400;

/// A clock that stands still until it is set.
#[derive(Clone)]
struct Hand(Arc<AtomicU64>);

impl Hand {
    fn at(now: u64) -> Self {
        Self(Arc::new(AtomicU64::new(now)))
    }

    fn set(&self, now: u64) {
        self.0.store(now, Ordering::Relaxed);
    }

    fn clock(&self) -> Clock {
        let now = Arc::clone(&self.0);
        Clock::new(move || now.load(Ordering::Relaxed))
    }
}

fn clock() -> Clock {
    Clock::new(|| NOW)
}

/// A node of the network `plant` with the names `n1` and 10.0.0.5, which takes its CA's client certificates.
fn node(ca: &Ca) -> ServerTls {
    let identity = ca.issue_node(&["n1", "10.0.0.5"], NOW).unwrap();
    ServerTls::new(&identity, &ClientRoots::none().with_ca(ca).unwrap(), clock()).unwrap()
}

fn client_of(ca: &Ca) -> ClientTls {
    client_with(ca, None)
}

fn client_with(ca: &Ca, identity: Option<&Identity>) -> ClientTls {
    ClientTls::new(Trust::hash(ca.hash()), identity, clock()).unwrap()
}

/// Moves bytes both ways until nothing moves any more. What a side says before it fails still arrives.
fn pump(a: &mut Channel, b: &mut Channel) -> [Result<(), TlsError>; 2] {
    pump_in(a, b, usize::MAX)
}

/// The same in pieces of at most so many bytes.
fn pump_in(a: &mut Channel, b: &mut Channel, piece: usize) -> [Result<(), TlsError>; 2] {
    let mut results = [Ok(()), Ok(())];
    for _ in 0..1_000_000 {
        let mut moved = 0;
        for index in 0..2 {
            let (from, to) = if index == 0 { (&mut *a, &mut *b) } else { (&mut *b, &mut *a) };
            let bytes = from.outgoing();
            let bytes = &bytes[..bytes.len().min(piece)];
            match to.feed(bytes) {
                Ok(count) => {
                    from.sent(count);
                    moved += count;
                }
                Err(error) => {
                    let all = from.outgoing().len();
                    from.sent(all);
                    moved += all;
                    results[1 - index] = Err(error);
                }
            }
        }
        if moved == 0 {
            return results;
        }
    }
    panic!("the two never come to an end");
}

/// A session of this client at this node, connected to as `host`.
fn meet(
    client: &ClientTls,
    server: &ServerTls,
    host: &str,
) -> (Channel, Channel, [Result<(), TlsError>; 2]) {
    let mut a = client.connect(host).unwrap();
    let mut b = server.accept().unwrap();
    let results = pump(&mut a, &mut b);
    (a, b, results)
}

/// A session in which nothing has been said yet.
fn open_pair() -> (Channel, Channel) {
    let ca = Ca::make("plant", NOW).unwrap();
    let (a, b, results) = meet(&client_of(&ca), &node(&ca), "n1");
    assert_eq!(results, [Ok(()), Ok(())]);
    assert!(a.is_open() && b.is_open());
    (a, b)
}

/// What the client was told, as it fails before the node knows.
fn client_error(client: &ClientTls, server: &ServerTls, host: &str) -> TlsError {
    let (a, b, results) = meet(client, server, host);
    assert!(!b.is_open(), "the node took a client that does not believe it");
    let [Err(error), _] = results else { panic!("the client believed the node") };
    assert_eq!(a.failure(), Some(&error));
    assert!(matches!(results_of(&b), Some(TlsError::Refused { .. })), "{b:?} was not told");
    error
}

fn results_of(channel: &Channel) -> Option<TlsError> {
    channel.failure().cloned()
}
