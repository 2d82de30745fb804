//! Measures how long a change takes to become visible: sets on one node, watches on another,
//! one at a time, and prints percentiles of the time from the reply of the set to the watcher's
//! hearing of it, and from sending the set to the watcher's hearing of it.
//!
//! ```sh
//! cargo run --release --example propagation -- 127.0.0.1:27586 127.0.0.1:27596 10000
//! ```
//!
//! Arguments: the node to set on, the node to watch on, how many changes (10,000).

use std::process::ExitCode;

use distkv::client::{ClientError, Connection, Fields, HostPort, Options, StreamEvent};
use distkv::model::path::Path;
use distkv::model::value::{Reader, write_u64};
use distkv::rt;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (set_on, watch_on, count) = match arguments.as_slice() {
        [s, w] => (s, w, Ok(10_000)),
        [s, w, n] => (s, w, n.parse::<u64>()),
        _ => {
            eprintln!("usage: propagation SET_ON WATCH_ON [COUNT]");
            return ExitCode::from(2);
        }
    };
    let Ok(count) = count else {
        eprintln!("propagation: COUNT is no number");
        return ExitCode::from(2);
    };
    match rt::block_on(run(set_on, watch_on, count)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("propagation: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(set_on: &str, watch_on: &str, count: u64) -> Result<(), ClientError> {
    let setter = connect(set_on).await?;
    let watcher = connect(watch_on).await?;
    let path = Path::root().push("propagation").unwrap_or_default();
    let mut watch = watcher.stream("watch", &Fields::at(&path)).await?;
    let (mut after_reply, mut after_send) = (Vec::new(), Vec::new());
    for number in 0..count {
        let mut value = Vec::new();
        write_u64(number, &mut value);
        let mut fields = Fields::at(&path);
        fields.raw("value", &value).u64("nchain", 0);
        let seen = async {
            while let Some(event) = watch.next().await? {
                let StreamEvent::Item { message, .. } = event else { continue };
                let value = message.get("value").map(|v| Reader::new(v).read_u64());
                if value == Some(Ok(number)) {
                    return Ok(rt::now_us());
                }
            }
            Err(watcher.closed().await)
        };
        let sent = rt::now_us();
        let set = async {
            setter.request("set_value", &fields).await?;
            Ok::<u64, ClientError>(rt::now_us())
        };
        let (replied, seen) = futures::try_join!(set, seen)?;
        // The watcher is often first: the push and the reply leave together.
        after_reply.push(seen.saturating_sub(replied));
        after_send.push(seen.saturating_sub(sent));
    }
    print("from the set's reply to the watcher", &mut after_reply);
    print("from sending the set to the watcher", &mut after_send);
    Ok(())
}

async fn connect(address: &str) -> Result<Connection, ClientError> {
    let to = HostPort::parse(address, Some(27586))
        .map_err(|e| ClientError::Connect { address: address.into(), reason: e.to_string() })?;
    Connection::connect(&to, Options::default()).await
}

fn print(what: &str, times: &mut [u64]) {
    times.sort_unstable();
    let at = |share: f64| {
        let index = (times.len() as f64 * share) as usize;
        times.get(index.min(times.len().saturating_sub(1))).copied().unwrap_or(0)
    };
    println!(
        "{what}: median {} us, p90 {} us, p99 {} us, max {} us ({} changes)",
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0),
        times.len()
    );
}
