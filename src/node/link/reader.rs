//! Reads a link: cuts frames apart and decodes them outside of any lock, then hands all that
//! came together to the engine.

use std::time::Duration;

use futures::io::AsyncReadExt;

use super::Links;
use super::arrivals::Arrivals;
use super::catch_up_pacing::Pace;
use super::link::{Link, LinkEnd};
use super::liveness::is_sign_of_life;
use super::slow::UNDER_WAY_MS;
use super::writer::own_tick;
use crate::engine::Input;
use crate::hub::Hub;
use crate::model::ids::Millis;
use crate::node::security::Keys;
use crate::protocol::frame::{BODY_BYTES_MAX, split_frame};
use crate::protocol::peer::{ARRIVING_FRAME, KEYS_FRAME, PeerMessage, read_arriving};
use crate::rt;
use crate::secure::link::{Opener, RecordError};

/// What a busy link reads into.
const BUFFER_BYTES: usize = 64 << 10;
/// What an idle one keeps.
const BUFFER_IDLE_BYTES: usize = 4 << 10;
/// This many small reads in a row make a link an idle one.
const IDLE_READS: u32 = 64;
/// A read of this size is a sign that much comes.
const FLOW_BYTES: usize = 32 << 10;
/// Most messages that the engine takes under one guard, so that others get their turn.
const MESSAGES_MAX: usize = 256;

/// A buffer that adapts to the size of the reads.
struct Buffer {
    bytes: Vec<u8>,
    filled: usize,
    small_reads: u32,
}

impl Buffer {
    fn new(leftover: &[u8]) -> Self {
        let mut bytes = vec![0; BUFFER_IDLE_BYTES.max(leftover.len())];
        if let Some(start) = bytes.get_mut(..leftover.len()) {
            start.copy_from_slice(leftover);
        }
        Self { bytes, filled: leftover.len(), small_reads: 0 }
    }

    fn content(&self) -> &[u8] {
        self.bytes.get(..self.filled).unwrap_or_default()
    }

    /// Room to read into; grows if the last read, or the present frame, needs more. A frame that is
    /// only announced costs nothing: the buffer doubles as its bytes arrive.
    fn room(&mut self) -> &mut [u8] {
        if self.filled == self.bytes.len() {
            let size = (self.bytes.len() * 2).max(BUFFER_BYTES);
            self.bytes.resize(size, 0);
        } else if self.filled == 0 && self.small_reads >= IDLE_READS {
            if self.bytes.len() > BUFFER_IDLE_BYTES {
                self.bytes = vec![0; BUFFER_IDLE_BYTES];
            }
        } else if self.filled == 0 && self.bytes.len() > BUFFER_BYTES {
            self.bytes = vec![0; BUFFER_BYTES];
        }
        self.bytes.get_mut(self.filled..).unwrap_or_default()
    }

    /// Appends what records contain. An idle link's buffer becomes small first.
    fn append<T>(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        self.bytes.truncate(self.filled);
        if self.filled == 0 {
            let is_idle = self.small_reads >= IDLE_READS;
            self.bytes.shrink_to(if is_idle { BUFFER_IDLE_BYTES } else { BUFFER_BYTES });
        }
        let result = fill(&mut self.bytes);
        let count = self.bytes.len().saturating_sub(self.filled);
        self.note_read(count);
        result
    }

    fn note_read(&mut self, count: usize) {
        self.filled += count;
        let small = count < BUFFER_IDLE_BYTES;
        self.small_reads = if small { self.small_reads.saturating_add(1) } else { 0 };
    }

    /// Removes bytes that were taken from the front.
    fn consume(&mut self, count: usize) {
        if count > 0 {
            self.bytes.copy_within(count..self.filled, 0);
            self.filled -= count;
        }
    }
}

/// Where a link's frames come from.
pub(super) struct Source {
    plain: Buffer,
    /// Of a sealed link: what opens its records, and what was received and is not a whole one yet.
    sealed: Option<(Opener, Buffer)>,
    /// When the message began that is under way, if one is.
    began: Millis,
}

impl Source {
    /// `raw`: received and not opened yet; `plain`: received behind the greeting.
    pub(super) fn new(opener: Option<Opener>, raw: Vec<u8>, plain: &[u8]) -> Self {
        let sealed = opener.map(|opener| (opener, Buffer::new(&raw)));
        Self { plain: Buffer::new(plain), sealed, began: 0 }
    }

    /// Where to read into.
    fn room(&mut self) -> &mut [u8] {
        match &mut self.sealed {
            None => self.plain.room(),
            Some((_, raw)) => raw.room(),
        }
    }

    /// So much was read into the room.
    fn note_read(&mut self, count: usize) {
        match &mut self.sealed {
            None => self.plain.note_read(count),
            Some((_, raw)) => raw.note_read(count),
        }
    }

    /// Opens what whole records there are.
    fn open(&mut self) -> Result<(), RecordError> {
        let Some((opener, raw)) = &mut self.sealed else { return Ok(()) };
        let opened = self.plain.append(|plain| opener.open(raw.content(), plain))?;
        raw.consume(opened);
        Ok(())
    }
}

impl Source {
    /// Whether a message is under way: a part of it has come.
    fn is_amid(&self) -> bool {
        self.plain.filled > 0 || self.sealed.as_ref().is_some_and(|(_, raw)| raw.filled > 0)
    }

    /// The length of the message that is under way, as far as it is known.
    fn announced(&self) -> usize {
        let header = self.plain.content().first_chunk::<4>();
        header.map_or(0, |header| u32::from_be_bytes(*header) as usize)
    }
}

/// Reads until the link ends, and says why it did.
pub(super) async fn read_link(links: &Links, link: &Link, mut source: Source) -> LinkEnd {
    let end = read(links, link, &mut source).await;
    if source.is_amid() && rt::now().saturating_sub(source.began) >= UNDER_WAY_MS {
        links.note_given_up(link, true, source.announced());
    }
    end
}

async fn read(links: &Links, link: &Link, source: &mut Source) -> LinkEnd {
    let hub = &*links.hub;
    // What is said about keys counts where it is sealed.
    let keys = links.keys.as_deref().filter(|_| link.key.is_some());
    let mut stream = &link.stream;
    // What lies before a record that does not open is genuine.
    let mut opened = source.open();
    let (mut pace, mut arrivals) = (Pace::default(), Arrivals::default());
    // What was read last, and whether a message was under way before.
    let (mut count, mut was_amid) = (0, false);
    loop {
        if let Some(log) = hub.log() {
            // For this node's disk, before the guard is taken: no other task waits for it.
            log.room().await;
        }
        let began = rt::now_us();
        let taken = match take_in(hub, keys, link, source.plain.content()) {
            Ok(taken) => taken,
            Err(end) => return end,
        };
        source.plain.consume(taken.bytes);
        if taken.bytes > 0 || !was_amid {
            source.began = rt::now();
        }
        if taken.has_part {
            let worked = Duration::from_micros(rt::now_us().saturating_sub(began));
            match pace.rest(own_tick(hub), rt::now(), worked) {
                Some(rest) => rt::sleep(rest).await,
                None => rt::yield_now().await,
            }
            // More may have come already.
            continue;
        }
        if let Err(error) = opened {
            return LinkEnd::Malformed(error.to_string());
        }
        let is_amid = source.is_amid();
        if count > 0
            && let Some(news) = arrivals.on_read(count, was_amid || is_amid, rt::now())
        {
            link.trust(news.until);
            if news.tell {
                link.tell_arriving(news.until);
            }
            if let Some(bytes) = news.passed {
                hub.handle(Input::Passing { link: link.id, bytes }, rt::now());
            }
        }
        was_amid = is_amid;
        // Other tasks get their turn, even if a peer always has more; and data that arrives
        // meanwhile saves a wake-up.
        rt::yield_now().await;
        match stream.read(source.room()).await {
            Ok(0) => return LinkEnd::Gone,
            Ok(read) => {
                count = read;
                link.note_heard(rt::now());
                link.traffic.note_received(count);
                source.note_read(count);
                opened = source.open();
                if count >= FLOW_BYTES {
                    link.note_flow(0, rt::now());
                }
            }
            Err(error) => return LinkEnd::Broken(error.to_string()),
        }
    }
}

/// What the engine received.
struct Taken {
    bytes: usize,
    /// Whether a part of a catch-up was in it.
    has_part: bool,
}

/// Hands whole frames to the engine: all of them, or those up to a part of a catch-up, so that many
/// parts that arrived together do not keep all others waiting.
fn take_in(hub: &Hub, keys: Option<&Keys>, link: &Link, bytes: &[u8]) -> Result<Taken, LinkEnd> {
    let malformed = |error: &dyn std::error::Error| LinkEnd::Malformed(error.to_string());
    // A node that is not ready serves no client that could wait.
    let (mut at, mut messages, mut arriving) = (0, Vec::new(), None);
    let (mut bad, mut has_part, is_ready) = (None, false, own_tick(hub).is_some());
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        match split_frame(rest, BODY_BYTES_MAX) {
            Ok(Some(frame)) => {
                at += frame.length;
                if frame.kind == KEYS_FRAME {
                    // Over a link that is not sealed nobody speaks of keys.
                    if let (Some(keys), Some(by)) = (keys, link.key)
                        && let Err(error) = keys.hear(link.id, by, frame.body)
                    {
                        bad = Some(malformed(&error));
                        break;
                    }
                    continue;
                }
                if frame.kind == ARRIVING_FRAME {
                    match read_arriving(frame.body) {
                        Ok(for_ms) => arriving = Some(for_ms),
                        Err(error) => {
                            bad = Some(malformed(&error));
                            break;
                        }
                    }
                    continue;
                }
                match PeerMessage::decode(&frame) {
                    Ok(Some(message)) if is_sign_of_life(&message) => link.on_sign(rt::now()),
                    Ok(Some(message)) => {
                        has_part = is_ready && matches!(message, PeerMessage::CatchUpPart { .. });
                        messages.push(message);
                    }
                    // Of a later version; ours to ignore.
                    Ok(None) => {}
                    Err(error) => bad = Some(malformed(&error)),
                }
            }
            Ok(None) => break,
            Err(error) => bad = Some(malformed(&error)),
        }
        if bad.is_some() || has_part {
            break;
        }
        if messages.len() >= MESSAGES_MAX {
            let messages = std::mem::take(&mut messages);
            hub.handle(Input::Messages { link: link.id, messages }, rt::now());
        }
    }
    if let Some(for_ms) = arriving {
        let bytes = link.on_arriving(for_ms, rt::now());
        hub.handle(Input::Passing { link: link.id, bytes }, rt::now());
    }
    // The messages before a malformed one are valid.
    if !messages.is_empty() {
        hub.handle(Input::Messages { link: link.id, messages }, rt::now());
    }
    bad.map_or(Ok(Taken { bytes: at, has_part }), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(buffer: &mut Buffer, count: usize) {
        let room = buffer.room().len();
        assert!(room > 0);
        buffer.note_read(count.min(room));
    }

    #[test]
    fn the_buffer_follows_what_is_read_and_shrinks_when_idle() {
        let mut buffer = Buffer::new(&[1, 2, 3]);
        assert_eq!(buffer.content(), [1, 2, 3]);
        read(&mut buffer, usize::MAX);
        assert_eq!(buffer.bytes.len(), BUFFER_IDLE_BYTES);
        read(&mut buffer, 10);
        assert_eq!(buffer.bytes.len(), BUFFER_BYTES);
        while buffer.bytes.len() < 1 << 20 {
            read(&mut buffer, usize::MAX);
        }
        buffer.consume(buffer.filled);
        read(&mut buffer, 10);
        assert_eq!(buffer.bytes.len(), BUFFER_BYTES, "a long frame's room is given back");
        for _ in 0..=IDLE_READS {
            buffer.consume(buffer.filled);
            read(&mut buffer, 10);
        }
        assert_eq!(buffer.bytes.len(), BUFFER_IDLE_BYTES);
    }

    #[test]
    fn what_is_not_consumed_stays_in_front() {
        let mut buffer = Buffer::new(&[1, 2, 3, 4]);
        buffer.consume(3);
        assert_eq!(buffer.content(), [4]);
        buffer.consume(1);
        assert_eq!(buffer.content(), [0; 0]);
    }
}
