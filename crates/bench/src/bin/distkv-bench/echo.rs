//! A server that gives back what it gets: what the load generator does against it is the most that it
//! can measure of another server.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::thread::JoinHandle;

use clap::Args;
use distkv_bench::args::Shape;
use distkv_bench::distkv::DistKv;
use distkv_bench::measure::measure;
use distkv_bench::report;
use distkv_command::error::CliError;
use distkv_command::output::Output;
use distkv_runtime as rt;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use serde_json::json;

/// So many bytes are read at once, and at most that many wait to be given back.
const BUFFER_BYTES: usize = 256 << 10;
/// The listener's token; connections count from 0.
const LISTENER: Token = Token(usize::MAX);

/// Measure the load generator itself, against a server that gives back each request
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-bench echo
  distkv-bench echo --depth 16

The echo server runs on a thread of this process, so the CPU seconds include the load \
generator. If these figures are not far above those of a server, you are measuring the \
generator there.")]
pub(super) struct EchoArgs {
    /// Only serve, until the process is ended, and say where: for a generator in another process
    #[arg(long)]
    serve: bool,

    #[command(flatten)]
    shape: Shape,

    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &EchoArgs) -> Result<(), CliError> {
    args.shape.check()?;
    let failed = |e: io::Error| CliError::Failure(format!("cannot start an echo: {e}"));
    let (address, thread) = start().map_err(failed)?;
    if args.serve {
        let mut output = Output::new(true);
        output.line(&json!({"client": address.to_string()}).to_string())?;
        output.flush()?;
        drop(output);
        // It ends with the process.
        drop(thread.join());
        return Ok(());
    }
    let shape = Shape { no_fill: true, ..args.shape.clone() };
    let measured = measure(&[address], DistKv::Root, &shape)?;
    report::load(&shape, &measured, args.json)
}

/// Starts one on a thread, on loopback; it runs as long as the process.
fn start() -> io::Result<(SocketAddr, JoinHandle<()>)> {
    let mut listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let address = listener.local_addr()?;
    let poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let thread = rt::spawn_thread("echo", move || serve(poll, &listener))?;
    Ok((address, thread))
}

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// What of the buffer is to be given back.
    rest: std::ops::Range<usize>,
}

fn serve(mut poll: Poll, listener: &TcpListener) {
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut events = Events::with_capacity(256);
    while poll.poll(&mut events, None).is_ok() {
        for event in &events {
            if event.token() == LISTENER {
                accept(&poll, listener, &mut connections);
            } else if let Some(place) = connections.get_mut(event.token().0)
                && let Some(connection) = place
                && connection.serve().is_err()
            {
                *place = None;
            }
        }
    }
}

fn accept(poll: &Poll, listener: &TcpListener, connections: &mut Vec<Option<Connection>>) {
    while let Ok((mut stream, _)) = listener.accept() {
        let token = Token(connections.len());
        let interest = Interest::READABLE | Interest::WRITABLE;
        let _ = stream.set_nodelay(true);
        if poll.registry().register(&mut stream, token, interest).is_ok() {
            let buffer = vec![0; BUFFER_BYTES];
            connections.push(Some(Connection { stream, buffer, rest: 0..0 }));
        }
    }
}

impl Connection {
    /// Gives back what is there, until there is no more or the other side takes no more.
    fn serve(&mut self) -> io::Result<()> {
        loop {
            while !self.rest.is_empty() {
                let rest = self.buffer.get(self.rest.clone()).unwrap_or_default();
                match self.stream.write(rest) {
                    Ok(length) => self.rest.start += length,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
            match self.stream.read(&mut self.buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.rest = 0..length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use distkv_bench::keys::{Distribution, Ops, Values};
    use distkv_bench::load::{self, Work};
    use distkv_bench::sockets::CONNECT_TIMEOUT;

    #[test]
    fn the_generator_counts_every_answer_once() {
        let target = start().unwrap().0;
        // Without and with a warm-up, whose requests are none of those that are wanted.
        for warm_up_ns in [0, 100_000_000] {
            let work = Work {
                secure: None,
                timeout: CONNECT_TIMEOUT,
                protocol: DistKv::Root,
                targets: vec![target; 3],
                depth: 7,
                ops: Ops::new(Distribution::Uniform, 1_000, 0.5, 1),
                values: Values::new(2_000, 1),
                counted_from: rt::now_ns() + warm_up_ns,
                end: u64::MAX / 2,
                count: Some(10_000),
            };
            let tally = load::run(work).unwrap();
            assert_eq!((tally.answers(), tally.errors), (10_000, 0));
            assert!(tally.reads.len() > 4_000 && tally.writes.len() > 4_000);
            if warm_up_ns == 0 {
                assert_eq!(tally.bytes_in, tally.bytes_out);
            }
            assert_eq!(tally.pieces.iter().sum::<u64>(), 10_000);
        }
    }

    #[test]
    fn what_is_set_to_the_end_ends_with_the_last_key() {
        let work = Work {
            secure: None,
            timeout: CONNECT_TIMEOUT,
            protocol: DistKv::Root,
            targets: vec![start().unwrap().0],
            depth: 16,
            ops: Ops::fill(0, 1_001, 1),
            values: Values::new(1, 1),
            counted_from: 0,
            end: u64::MAX / 2,
            count: None,
        };
        assert_eq!(load::run(work).unwrap().writes.len(), 1_001);
    }
}
