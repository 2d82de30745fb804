//! What a measurement looks like: a table and two plots for people, one object for programs.

use hdrhistogram::Histogram;
use serde_json::{Value as Json, json};

use crate::args::Shape;
use crate::command::error::CliError;
use crate::command::output::{Output, Table};
use crate::command::units::show_bytes;
use crate::measure::Measured;

/// The percentiles that are shown.
const PERCENTILES: [(&str, f64); 5] =
    [("P50", 50.0), ("P90", 90.0), ("P99", 99.0), ("P99.9", 99.9), ("P99.99", 99.99)];
/// Heights of a bar, lowest first.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Most columns of the plot of latencies.
const PLOT_COLUMNS: usize = 50;

/// Prints what one run of load came to.
///
/// # Errors
/// Standard output cannot be written to.
pub fn load(shape: &Shape, measured: &Measured, json: bool) -> Result<(), CliError> {
    let mut output = Output::new(json);
    if json {
        output.line(&load_json(shape, measured).to_string())?;
        return output.flush();
    }
    let tally = &measured.tally;
    let head = ["", "REQUESTS", "PER SECOND"];
    let head: Vec<&str> =
        head.into_iter().chain(PERCENTILES.iter().map(|p| p.0)).chain(["MAX"]).collect();
    let mut table = Table::with_head(&head);
    let seconds = tally.spent.max(1) as f64 / 1e9;
    for (name, times) in [("reads", &tally.reads), ("writes", &tally.writes)] {
        if !times.is_empty() {
            table.row(latency_cells(name, times, seconds));
        }
    }
    if !tally.reads.is_empty() && !tally.writes.is_empty() {
        let mut all = tally.reads.clone();
        if all.add(&tally.writes).is_ok() {
            table.row(latency_cells("all", &all, seconds));
        }
    }
    table.print(&mut output)?;
    output.line("")?;
    let (bytes_in, bytes_out) = (tally.bytes_in as f64 / seconds, tally.bytes_out as f64 / seconds);
    let (bytes_in, bytes_out) = (show_bytes(bytes_in as u64), show_bytes(bytes_out as u64));
    output.line(&format!("errors  {}", tally.errors))?;
    output.line(&format!("bytes   {bytes_out}/s sent, {bytes_in}/s received"))?;
    match (measured.cpu_s, measured.cpu_per_million(), measured.resident) {
        (Some(cpu), Some(per_million), Some(resident)) => {
            let resident = show_bytes(resident);
            output.line(&format!(
                "server  {cpu:.2} s of CPU, {per_million:.2} s per million requests, {:.0} % of a \
                 core; {resident} resident",
                cpu / seconds * 100.0
            ))?;
        }
        _ => output.line("server  not on this machine: nothing is known of its CPU and memory")?,
    }
    if let Some(line) = over_time(&tally.pieces) {
        output.line(&format!("\nrequests over time\n  {line}"))?;
    }
    for (name, times) in [("reads", &tally.reads), ("writes", &tally.writes)] {
        if !times.is_empty() {
            output.line(&format!("\nlatencies of {name}"))?;
            plot(times).iter().try_for_each(|line| output.line(line))?;
        }
    }
    output.flush()
}

fn latency_cells(name: &str, times: &Histogram<u64>, seconds: f64) -> Vec<String> {
    let count = times.len();
    let mut cells =
        vec![name.to_owned(), count.to_string(), format!("{:.0}", count as f64 / seconds)];
    cells.extend(PERCENTILES.iter().map(|p| show_ns(times.value_at_percentile(p.1))));
    cells.push(show_ns(times.max()));
    cells
}

/// For programs: latencies in microseconds.
#[must_use]
pub fn latency_json(times: &Histogram<u64>) -> Json {
    let mut object = serde_json::Map::new();
    object.insert("count".into(), json!(times.len()));
    object.insert("mean_us".into(), json!(times.mean() / 1e3));
    for (name, percentile) in PERCENTILES {
        let value = times.value_at_percentile(percentile) as f64 / 1e3;
        object.insert(format!("{}_us", name.to_lowercase()), json!(value));
    }
    object.insert("max_us".into(), json!(times.max() as f64 / 1e3));
    Json::Object(object)
}

/// All of it for programs.
fn load_json(shape: &Shape, measured: &Measured) -> Json {
    let tally = &measured.tally;
    json!({
        "connections": shape.connections, "depth": shape.depth, "threads": shape.threads,
        "keys": shape.keys, "value_bytes": shape.value, "read_share": shape.reads,
        "seconds": tally.spent as f64 / 1e9, "requests": tally.answers(),
        "per_second": measured.per_second(), "errors": tally.errors,
        "bytes_sent": tally.bytes_out, "bytes_received": tally.bytes_in,
        "reads": latency_json(&tally.reads), "writes": latency_json(&tally.writes),
        "server_cpu_s": measured.cpu_s,
        "server_cpu_s_per_million": measured.cpu_per_million(),
        "server_resident_bytes": measured.resident,
    })
}

/// A line of bars; none if it was over too soon.
fn over_time(pieces: &[u64]) -> Option<String> {
    let end = pieces.iter().rposition(|&n| n > 0)? + 1;
    let pieces = pieces.get(..end).filter(|pieces| pieces.len() > 1)?;
    let max = pieces.iter().copied().max()?.max(1);
    Some(pieces.iter().map(|&n| bar(n, max)).collect())
}

fn bar(n: u64, max: u64) -> char {
    let place = (n * (BARS.len() as u64 - 1)).div_ceil(max) as usize;
    BARS.get(place).copied().unwrap_or(' ')
}

/// How many had which latency: a line for each step of a doubling, from the least to the greatest.
fn plot(times: &Histogram<u64>) -> Vec<String> {
    let mut rows: Vec<(u64, u64)> = Vec::new();
    for bucket in times.iter_log(1, 2.0) {
        rows.push((bucket.value_iterated_to(), bucket.count_since_last_iteration()));
    }
    let is_some = |row: &(u64, u64)| row.1 > 0;
    let first = rows.iter().position(is_some).unwrap_or_default();
    let last = rows.iter().rposition(is_some).unwrap_or_default();
    let max = rows.iter().map(|row| row.1).max().unwrap_or(1).max(1);
    let total = times.len().max(1) as f64;
    let rows = rows.get(first..=last).unwrap_or_default();
    let line = |(to, count): &(u64, u64)| {
        let columns = (count * PLOT_COLUMNS as u64).div_ceil(max) as usize;
        let (bars, share) = ("█".repeat(columns), *count as f64 / total * 100.0);
        format!("  to {:>8}  {bars:<PLOT_COLUMNS$} {share:6.2} %", show_ns(to + 1))
    };
    rows.iter().map(line).collect()
}

/// Nanoseconds for people.
#[must_use]
pub fn show_ns(ns: u64) -> String {
    let us = ns as f64 / 1e3;
    match us {
        ..10.0 => format!("{us:.1} us"),
        10.0..1e4 => format!("{us:.0} us"),
        1e4..1e7 => format!("{:.1} ms", us / 1e3),
        _ => format!("{:.1} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plots_show_where_latencies_are() {
        let mut times: Histogram<u64> = Histogram::new_with_bounds(1, 1 << 40, 3).unwrap();
        times.record_n(100_000, 90).unwrap();
        times.record_n(1_000_000, 10).unwrap();
        let lines = plot(&times);
        assert_eq!(lines.len(), 4, "{lines:#?}");
        assert!(lines[0].contains("90.00 %") && lines[0].contains(&"█".repeat(50)), "{lines:#?}");
        assert!(lines.last().unwrap().contains("10.00 %"), "{lines:#?}");
    }

    #[test]
    fn rates_over_time_are_bars() {
        assert_eq!(over_time(&[8, 4, 0, 8, 0, 0]).unwrap(), "█▅▁█");
        assert_eq!(over_time(&[5, 0]), None);
        assert_eq!(over_time(&[]), None);
    }

    #[test]
    fn times_have_a_unit_that_fits() {
        let shown = [7_500, 123_456, 12_345_678, 15_000_000_000].map(show_ns);
        assert_eq!(shown, ["7.5 us", "123 us", "12.3 ms", "15.0 s"]);
    }
}
