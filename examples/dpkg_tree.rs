//! Loads the package database of a Debian system (dpkg's status file) as a tree, one entry per
//! package and field, through one node, and reads it back from another, until they agree.
//!
//! ```sh
//! cargo run --release -- demo &
//! cargo run --release --example dpkg_tree -- 127.0.0.1:27586 127.0.0.1:27596
//! ```
//!
//! Arguments: the node to write to, the node to read from, and the status file (if it is not
//! `/var/lib/dpkg/status`).

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use distkv::client::{ClientError, Connection, Fields, HostPort, Options, StreamEvent};
use distkv::model::path::Path;
use distkv::model::value::{Reader, write_str};
use distkv::rt;
use futures::StreamExt;

/// Where the tree goes: `dpkg.<package>.<field>`.
const TOP: &str = "dpkg";
/// Requests that wait for their replies at once.
const IN_FLIGHT: usize = 128;
/// How long the other node may take until it has everything.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (write_to, read_from, file) = match arguments.as_slice() {
        [w, r] => (w, r, "/var/lib/dpkg/status"),
        [w, r, f] => (w, r, f.as_str()),
        _ => {
            eprintln!("usage: dpkg_tree WRITE_TO READ_FROM [STATUS_FILE]");
            return ExitCode::from(2);
        }
    };
    match rt::block_on(run(write_to, read_from, file)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dpkg_tree: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(write_to: &str, read_from: &str, file: &str) -> Result<(), String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("cannot read {file}: {e}"))?;
    let entries = parse(&text);
    let packages = entries.keys().filter(|path| path.ends_with("\u{0}Package")).count();
    println!("{file}: {packages} packages, {} fields", entries.len());

    let writer = connect(write_to).await?;
    let started = now();
    let results: Vec<Result<(), ClientError>> = futures::stream::iter(&entries)
        .map(|(path, value)| set(&writer, path, value))
        .buffer_unordered(IN_FLIGHT)
        .collect()
        .await;
    for result in results {
        result.map_err(|e| format!("writing to {write_to}: {e}"))?;
    }
    report("written through", write_to, entries.len(), started);

    let reader = connect(read_from).await?;
    let deadline = now() + PATIENCE;
    loop {
        let started = now();
        let found = read_back(&reader).await.map_err(|e| format!("reading {read_from}: {e}"))?;
        if found == entries {
            report("read back from", read_from, found.len(), started);
            println!("the two agree, entry by entry");
            return Ok(());
        }
        if now() > deadline {
            let (have, want) = (found.len(), entries.len());
            return Err(format!("{read_from} has {have} of {want} entries after {PATIENCE:?}"));
        }
        rt::sleep(Duration::from_millis(20)).await;
    }
}

#[allow(clippy::disallowed_methods, reason = "an example measures with its own clock")]
fn now() -> Instant {
    Instant::now()
}

fn report(what: &str, node: &str, count: usize, started: Instant) {
    let seconds = started.elapsed().as_secs_f64();
    let rate = count as f64 / seconds;
    println!("{count} entries {what} {node} in {seconds:.3} s ({rate:.0} per second)");
}

async fn connect(address: &str) -> Result<Connection, String> {
    let to = HostPort::parse(address, Some(27586)).map_err(|e| e.to_string())?;
    Connection::connect(&to, Options::default()).await.map_err(|e| e.to_string())
}

/// The fields of all packages by `package NUL field`. A field's further lines belong to it.
fn parse(text: &str) -> BTreeMap<String, String> {
    let mut entries = BTreeMap::new();
    for stanza in text.split("\n\n") {
        let mut fields: Vec<(&str, String)> = Vec::new();
        for line in stanza.lines() {
            if line.starts_with([' ', '\t']) {
                if let Some((_, value)) = fields.last_mut() {
                    value.push('\n');
                    value.push_str(line);
                }
            } else if let Some((name, value)) = line.split_once(':') {
                fields.push((name, value.trim().to_owned()));
            }
        }
        let Some((_, package)) = fields.iter().find(|(name, _)| *name == "Package") else {
            continue;
        };
        // The same package may be installed for several architectures.
        let architecture = fields.iter().find(|(name, _)| *name == "Architecture");
        let key = format!("{package}:{}", architecture.map_or("", |(_, value)| value));
        for (name, value) in fields {
            entries.insert(format!("{key}\u{0}{name}"), value);
        }
    }
    entries
}

fn tree_path(key: &str) -> Option<Path> {
    let (package, field) = key.split_once('\u{0}')?;
    Path::root().push(TOP).and_then(|p| p.push(package)).and_then(|p| p.push(field)).ok()
}

async fn set(connection: &Connection, key: &str, value: &str) -> Result<(), ClientError> {
    let Some(path) = tree_path(key) else { return Ok(()) };
    let mut raw = Vec::new();
    write_str(value, &mut raw);
    let mut fields = Fields::at(&path);
    fields.raw("value", &raw).u64("nchain", 0);
    connection.request("set_value", &fields).await.map(drop)
}

async fn read_back(connection: &Connection) -> Result<BTreeMap<String, String>, ClientError> {
    let top = Path::root().push(TOP).unwrap_or_default();
    let mut found = BTreeMap::new();
    let mut stream = connection.stream("get_tree", &Fields::at(&top)).await?;
    while let Some(event) = stream.next().await? {
        let StreamEvent::Item { path: Some(path), message } = event else { continue };
        let mut elements = path.elements();
        let (Some(package), Some(field)) = (elements.next(), elements.next()) else { continue };
        let (Some(package), Some(field)) = (as_text(&package), as_text(&field)) else { continue };
        let Some(Ok(value)) = message.get("value").map(|v| Reader::new(v).read_str()) else {
            continue;
        };
        found.insert(format!("{package}\u{0}{field}"), value.to_owned());
    }
    Ok(found)
}

fn as_text<'a>(element: &distkv::model::path::Element<'a>) -> Option<&'a str> {
    match element {
        distkv::model::path::Element::Str(text) => Some(text),
        _ => None,
    }
}
