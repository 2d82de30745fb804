//! A connection for what is done once: one request and its answer, a stream that is waited for.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use distkv_bench::load::LoadError;
use distkv_bench::wire::{Protocol, Tag, WireError, connection_number};
use distkv_command::error::CliError;
use distkv_runtime as rt;

use super::lab::PATIENCE;
use crate::store_protocol::{StoreProtocol, contains};

/// So much is read at once.
const READ_BYTES: usize = 256 << 10;
/// How long an answer is waited for before the question is asked again.
const AGAIN: Duration = Duration::from_millis(5);

/// A connection whose reads block.
pub(crate) struct Talk {
    protocol: StoreProtocol,
    pub(crate) address: SocketAddr,
    pub(crate) stream: TcpStream,
    /// Its number, for [`Protocol::hello`].
    pub(crate) number: u64,
    seq: u64,
    /// What has come and was not looked at yet.
    waiting: Vec<u8>,
    buffer: Vec<u8>,
}

impl Talk {
    pub(crate) fn connect(protocol: StoreProtocol, address: SocketAddr) -> Result<Self, CliError> {
        let connect = || {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            io::Result::Ok(stream)
        };
        let stream = connect().map_err(|error| LoadError::Connect(address, error))?;
        let (waiting, buffer) = (Vec::new(), vec![0; READ_BYTES]);
        let number = connection_number();
        let mut talk = Self { protocol, address, stream, number, seq: 0, waiting, buffer };
        let mut hello = Vec::new();
        protocol.hello(number, &mut hello);
        talk.send(&hello)?;
        Ok(talk)
    }

    /// The same, but answers are waited for so long.
    pub(super) fn with_patience(self, patience: Duration) -> Result<Self, CliError> {
        let set = self.stream.set_read_timeout(Some(patience));
        set.map_err(|error| self.lost(error))?;
        Ok(self)
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        self.stream.write_all(bytes).map_err(|error| self.lost(error))
    }

    /// Sends a request and gives the whole answer; one that is an error is an error.
    pub(crate) fn asks(
        &mut self,
        request: impl FnOnce(Tag, &mut Vec<u8>),
    ) -> Result<Vec<u8>, CliError> {
        self.begins(request)?;
        self.ends()
    }

    /// Sends a request.
    pub(super) fn begins(
        &mut self,
        request: impl FnOnce(Tag, &mut Vec<u8>),
    ) -> Result<(), CliError> {
        self.seq += 1;
        let mut out = Vec::new();
        request(Tag { connection: self.number, seq: self.seq }, &mut out);
        self.send(&out)
    }

    /// Waits for the answer to the last request.
    pub(super) fn ends(&mut self) -> Result<Vec<u8>, CliError> {
        loop {
            let answer = self.protocol.answer(&self.waiting);
            let address = self.address;
            let Some(answer) = answer.map_err(|e| LoadError::Wire(address, e))? else {
                self.read()?;
                continue;
            };
            let bytes: Vec<u8> = self.waiting.drain(..answer.bytes).collect();
            if answer.seq.is_some_and(|seq| seq != self.seq) {
                continue;
            }
            return if answer.is_error { Err(LoadError::Refused(1).into()) } else { Ok(bytes) };
        }
    }

    /// Asks to be told of all changes, and waits until that has begun.
    pub(super) fn watch(&mut self) -> Result<(), CliError> {
        let mut out = Vec::new();
        self.protocol.watch(self.number, &mut out);
        self.send(&out)?;
        while !self.protocol.has_begun(&self.waiting) {
            self.read()?;
        }
        self.waiting.clear();
        Ok(())
    }

    /// Reads until some bytes have come; what was before them is forgotten.
    pub(super) fn until(&mut self, wanted: &[u8]) -> Result<(), CliError> {
        while !contains(&self.waiting, wanted) {
            self.read()?;
        }
        self.waiting.clear();
        Ok(())
    }

    /// Reads until some bytes have come so often.
    pub(crate) fn until_counted(&mut self, wanted: &[u8], count: u64) -> Result<u64, CliError> {
        let mut counter = Counter::new(wanted);
        let mut found = counter.count(&std::mem::take(&mut self.waiting));
        while found < count {
            let length = self.read_some()?;
            found += counter.count(self.buffer.get(..length).unwrap_or_default());
        }
        Ok(found)
    }

    /// Asks the same thing, each time anew, until the answer is what was waited for; tells whether it came.
    pub(crate) fn asked_until(
        &mut self,
        request: &[u8],
        again: Option<Duration>,
        is_it: impl Fn(&[u8]) -> bool,
    ) -> Result<bool, CliError> {
        let again = again.unwrap_or(AGAIN);
        let until = rt::now_ns() + PATIENCE.as_nanos() as u64;
        while rt::now_ns() < until {
            self.send(request)?;
            self.waiting.clear();
            let next = rt::now_ns() + again.as_nanos() as u64;
            while rt::now_ns() < next {
                let left = Duration::from_nanos(next.saturating_sub(rt::now_ns()).max(1_000_000));
                self.stream.set_read_timeout(Some(left)).map_err(|error| self.lost(error))?;
                match self.stream.read(&mut self.buffer) {
                    Ok(0) => return Err(self.lost(io::ErrorKind::UnexpectedEof.into())),
                    Ok(length) => {
                        self.waiting.extend(self.buffer.iter().take(length));
                        if is_it(&self.waiting) {
                            return Ok(true);
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(self.lost(error)),
                }
            }
        }
        Ok(false)
    }

    /// Reads until `parse` gives something, and how many bytes it is.
    pub(crate) fn values<T>(
        &mut self,
        parse: impl Fn(&[u8]) -> Result<Option<(T, usize)>, WireError>,
    ) -> Result<T, CliError> {
        loop {
            let address = self.address;
            let parsed = parse(&self.waiting);
            let parsed = parsed.map_err(|e| LoadError::Wire(address, e))?;
            if let Some((found, bytes)) = parsed {
                self.waiting.drain(..bytes);
                return Ok(found);
            }
            self.read()?;
        }
    }

    fn read(&mut self) -> Result<(), CliError> {
        let length = self.read_some()?;
        self.waiting.extend(self.buffer.iter().take(length));
        Ok(())
    }

    fn read_some(&mut self) -> Result<usize, CliError> {
        match self.stream.read(&mut self.buffer) {
            Ok(0) => Err(self.lost(io::ErrorKind::UnexpectedEof.into())),
            Ok(length) => Ok(length),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(LoadError::Silence.into())
            }
            Err(error) => Err(self.lost(error)),
        }
    }

    fn lost(&self, error: io::Error) -> CliError {
        LoadError::Lost(self.address, error).into()
    }
}

/// Counts how often some bytes come in a stream, over the borders of its pieces.
pub(crate) struct Counter {
    wanted: Vec<u8>,
    /// The end of the last piece, where the wanted may have begun.
    rest: Vec<u8>,
}

impl Counter {
    pub(crate) fn new(wanted: &[u8]) -> Self {
        Self { wanted: wanted.to_vec(), rest: Vec::new() }
    }

    pub(crate) fn count(&mut self, bytes: &[u8]) -> u64 {
        let Some((&first, others)) = self.wanted.split_first() else { return 0 };
        let kept = others.len();
        let head = bytes.get(..kept.min(bytes.len())).unwrap_or_default();
        self.rest.extend_from_slice(head);
        let across = self.rest.windows(kept + 1).filter(|found| **found == *self.wanted).count();
        let mut found = across as u64;
        for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == first) {
            found += u64::from(bytes.get(at + 1..at + 1 + kept) == Some(others));
        }
        if let Some(end) = bytes.len().checked_sub(kept).filter(|end| *end > 0) {
            self.rest.clear();
            self.rest.extend_from_slice(bytes.get(end..).unwrap_or_default());
        }
        let too_many = self.rest.len().saturating_sub(kept);
        self.rest.drain(..too_many);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_found_wherever_a_piece_ends() {
        let text = b"key-0key-1 xkkey-2key-";
        for size in 1..=text.len() {
            let mut counter = Counter::new(b"key-");
            let found: u64 = text.chunks(size).map(|piece| counter.count(piece)).sum();
            assert_eq!(found, 4, "{size}");
        }
    }
}
