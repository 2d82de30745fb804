//! How long the whole answer to a `get_tree` takes to come.

use std::io::{self, Read};

use clap::Args;
use distkv_bench::load::LoadError;
use distkv_bench::measure::resolve;
use distkv_client::{Fields, Message};
use distkv_command::error::CliError;
use distkv_command::output::{Output, count_of};
use distkv_command::remote::RemoteArgs;
use distkv_model::path::Path;
use distkv_model::value::skip::skip_value;
use distkv_model::value::{SkipError, SkipLimits};
use distkv_runtime as rt;
use serde_json::json;

use super::streams::{Line, said_by, without_login};

/// So much is read at once.
const READ_BYTES: usize = 256 << 10;

/// Measure how long it takes to list a subtree, until all of it has come
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  distkv-bench --keys 100000 --reads 1 --count 1 --keep  # make entries
  distkv-bench tree --path distkv-bench                  # list them
  distkv-bench tree --path a.b --runs 20 --json
  distkv-node delete distkv-bench --recursive                 # tidy up

Without chains and without flow control; the time is from the request until the end has \
arrived. Each message is counted. There is no login and no TLS, so it is for nodes that \
ask for neither.")]
pub(super) struct TreeArgs {
    /// The subtree
    #[arg(long, value_name = "PATH", default_value = ":")]
    path: Path,

    /// How often
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,

    #[command(flatten)]
    remote: RemoteArgs,
}

pub(super) fn run(args: &TreeArgs) -> Result<(), CliError> {
    measure(args).map_err(without_login)
}

fn measure(args: &TreeArgs) -> Result<(), CliError> {
    let remote = &args.remote;
    let mut line = Line::connect(resolve(&remote.address()?)?)?;
    // The greeting comes by itself.
    line.until(|message| message.str("node").is_some())?;
    let mut output = Output::new(remote.json);
    let mut times = Vec::new();
    for run in 1..=u64::from(args.runs) {
        let mut fields = Fields::at(&args.path);
        let request = fields.u64("nchain", 0).encode_request(run, "get_tree");
        let began = rt::now_ns();
        line.send(&request)?;
        let (entries, bytes) = read_all(&mut line)?;
        let took = (rt::now_ns() - began) as f64 / 1e6;
        times.push(took);
        output.either(
            || json!({"run": run, "ms": took, "entries": entries, "bytes": bytes}),
            || format!("run {run}: {took:.1} ms, {}", count_of(entries, "entry", "entries")),
        )?;
        output.flush()?;
    }
    times.sort_by(f64::total_cmp);
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    output.either(|| json!({"median_ms": median}), || format!("median: {median:.1} ms"))?;
    output.flush()
}

/// Reads a stream to its end: how many messages it had between its start and end, and how many
/// bytes.
fn read_all(line: &mut Line) -> Result<(u64, u64), CliError> {
    let (address, bad) = (line.address, |why: String| CliError::Failure(why));
    let mut buffer = vec![0; READ_BYTES];
    let (mut begin, mut end, mut messages, mut bytes) = (0, 0, 0, 0);
    loop {
        if end == buffer.len() {
            buffer.copy_within(begin..end, 0);
            (begin, end) = (0, end - begin);
            buffer.resize(buffer.len().max(end * 2), 0);
        }
        let length = line.stream.read(buffer.get_mut(end..).unwrap_or_default());
        let length = length.map_err(|error| LoadError::Lost(address, error))?;
        if length == 0 {
            let gone = io::ErrorKind::UnexpectedEof.into();
            return Err(LoadError::Lost(address, gone).into());
        }
        end += length;
        bytes += length as u64;
        while let Some(rest) = buffer.get(begin..end).filter(|rest| !rest.is_empty()) {
            let length = match skip_value(rest, SkipLimits::NONE) {
                Ok(length) => length,
                Err(SkipError::Incomplete { .. }) => break,
                Err(error) => return Err(bad(format!("{address}: {error}"))),
            };
            begin += length;
            let whole = rest.get(..length).unwrap_or_default();
            // Those of entries begin with the value, and are only counted.
            if whole.get(1..).is_some_and(|fields| fields.starts_with(b"\xa5value")) {
                messages += 1;
                continue;
            }
            let message = Message::new(whole).map_err(|e| bad(format!("{address}: {e}")))?;
            if let Some(error) = message.error() {
                return Err(said_by(address, error));
            }
            if message.str("state") == Some("end") {
                return Ok((messages, bytes));
            }
        }
    }
}
