//! Membership: SWIM, by foca, wrapped as data in, data out. Pure: no socket, thread or clock.
//!
//! [`Swim::handle`] takes a [`SwimInput`] and the time and appends [`SwimOutput`]s. Its only
//! interface to the rest of the node is [`SwimOutput::MemberUp`] and [`SwimOutput::MemberDown`],
//! each given once per change, and it carries no data.
//!
//! # Driving it
//!
//! The owner is one thread of the operating system with one UDP socket, and does nothing else: a
//! node that is busy serving clients must still answer probes, or load is mistaken for death. To
//! reach it from elsewhere, put a command into a channel and send an empty datagram to its own
//! socket, which ends the wait and does nothing else.
//!
//! ```no_run
//! use distkv_core::membership::{DATAGRAM_BYTES_MAX, Swim, SwimInput, SwimOutput};
//! use distkv_model::ids::Millis;
//! use std::{io, net::UdpSocket, sync::mpsc::Receiver, time::Duration};
//!
//! /// Most datagrams taken before timers are looked at again.
//! const DATAGRAMS_PER_TURN: usize = 256;
//!
//! fn own(
//!     mut swim: Swim,
//!     socket: UdpSocket,
//!     commands: Receiver<SwimInput<'static>>,
//!     clock: impl Fn() -> Millis,
//!     report: impl Fn(SwimOutput),
//! ) -> io::Result<()> {
//!     // One byte more than a datagram may have, so that one cut short is seen to be too long.
//!     let mut buffer = [0; DATAGRAM_BYTES_MAX + 1];
//!     let mut out = Vec::new();
//!     while let Some(deadline) = swim.next_deadline() {
//!         let wait = deadline.saturating_sub(clock()).max(1);
//!         socket.set_read_timeout(Some(Duration::from_millis(wait)))?;
//!         // First all that has come, then the timers: an answer that is here already counts.
//!         for _ in 0..DATAGRAMS_PER_TURN {
//!             // Nothing (more) there, or an error that concerns one datagram.
//!             let Ok((len, from)) = socket.recv_from(&mut buffer) else { break };
//!             let bytes = &buffer[..len];
//!             swim.handle(SwimInput::Datagram { from, bytes }, clock(), &mut out);
//!             socket.set_nonblocking(true)?;
//!         }
//!         socket.set_nonblocking(false)?;
//!         for command in commands.try_iter() {
//!             swim.handle(command, clock(), &mut out);
//!         }
//!         swim.handle(SwimInput::Tick, clock(), &mut out);
//!         for output in out.drain(..) {
//!             match output {
//!                 SwimOutput::Send { to, bytes } => drop(socket.send_to(&bytes, to)),
//!                 other => report(other),
//!             }
//!         }
//!     }
//!     Ok(()) // said goodbye, or was refused
//! }
//! ```
//!
//! Addresses come out in canonical form: an owner with a dual-stack IPv6 socket maps IPv4 targets
//! back into IPv6. [`Swim::peers`] is worth storing now and then (those that `was_up`), to be given
//! back as [`SwimInput::KnownPeer`] after a restart, before anything else.
//!
//! # Rules
//!
//! - **Identity** is (address, name, incarnation, generation). foca keeps one per address, the one
//!   of the highest (generation, incarnation). A process that is told that it is down takes the
//!   next generation. One that restarted has a random incarnation and generation 0, and may be
//!   beaten by what the others remember; foca would only ignore it. So a node that gets a datagram
//!   from a beaten identity answers with a conflict notice that names the holder, and the restarted
//!   process renews itself above the holder's generation and calls again: it is in after one round
//!   trip.
//! - **A renewal is not a change**; a new incarnation is [`DownReason::Replaced`] and then up.
//! - **A name has one live node.** Members do not let in a newcomer whose name a live member has,
//!   and say so; the newcomer asks the holder itself, whose answer is final
//!   ([`SwimOutput::Refused`]). If the holder is silent it is either dead, which the members know
//!   in seconds and then let the newcomer in, or cut off; so the newcomer gives up after
//!   `REFUSAL_PATIENCE_MS`. If both have their place in the network (two halves met), the one
//!   that was declared down less often stays.
//! - **The durable list of peers** never forgets a member that did not leave, except for one that
//!   came up at another address. Even if foca is idle for lack of members, one of the missing peers
//!   is called every second.
//! - **Networks never mix**: each datagram carries the network's name.
//! - Nothing is authenticated yet. A sender of datagrams to a member can forge anything, but cannot
//!   make it panic or fill its memory.
//!
//! # Traps in foca 2.0, all met here
//!
//! - With no active members it is idle and calls no other node; after it has removed the dead,
//!   halves never meet. Hence the durable list.
//! - When a suspect's time is up it is told that it is down even if it has refuted that long ago,
//!   and needlessly renews itself: at 2 % loss in a cluster of two, every 15 s. Such timers are not
//!   fired.
//! - A suspicion is spread a few times when it is new and then no more, nor does an answer end it.
//!   A suspect that missed the news remains one until the next lost probe finishes it. So suspects
//!   are told directly, every second.
//! - Timers that became void stay with the caller; a peer could pile them up. Hence one slot each.
//! - "Down" does not say why. Hence the leaving flag in the identity.
//! - It accepts calls only to the advertised address; see `readdress` in `receive.rs`.
//!
//! # Measured
//!
//! Virtual clock, 1–3 ms delay, [`SwimConfig::lan`], by this module's tests:
//!
//! | nodes | crash seen, median / worst of all nodes and seeds | all see all after joining at once | split in halves healed, median / worst | at rest, B/s per node |
//! |---|---|---|---|---|
//! | 2 | 3.6 / 3.8 s | 6 ms | 0.4 / 1.0 s | 290 |
//! | 3 | 3.7 / 4.6 s | 0.1 s | | |
//! | 5 | 3.7 / 4.7 s | 0.2 s | 0.3 / 0.8 s | 297 |
//! | 48 | 3.8 / 4.9 s | 0.4 s | 0.8 / 0.8 s | 403 |
//! | 100 | 4.5 / 4.8 s | 0.7 s | 0.9 / 1.0 s | 405 |
//!
//! 2 % loss changes none of it, and for an hour no node is taken for dead or renews itself; nor in
//! half an hour at 20 %. Other settings, 5 nodes, suspicion of 3 s: probes every 500 / 200 ms: 3.8
//! / 5.3 s; 600 / 200: 4.0 / 5.4 s; 700 / 300, gossip every 200 ms: 4.2 / 6.0 s.

mod config;
mod effects;
mod error;
mod io;
mod members;
mod receive;
mod swim;
mod timers;
mod wire;

pub use config::SwimConfig;
pub use error::MembershipError;
pub use io::{DownReason, MemberInfo, MemberState, PeerInfo, SwimCounters, SwimInput, SwimOutput};
pub use members::identity::{Identity, NetworkName};
pub use members::peers::PEERS_MAX;
pub use swim::Swim;
pub use wire::datagram::{DATAGRAM_BYTES_MAX, TAG_BYTES};

#[cfg(test)]
mod tests;
