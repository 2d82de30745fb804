//! The text that scrapers read: OpenMetrics 1.0, or Prometheus' own format 0.0.4, as they ask for.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::numbers::{Number, Numbers};
use crate::table::{Kind, METRICS, Metric};

/// A text format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Prometheus' own, 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// The format that a request's `Accept` header prefers: OpenMetrics only if it is named, and not less
    /// wanted than the other.
    #[must_use]
    pub fn accepted(accept: &str) -> Self {
        let (mut open, mut plain) = (0.0_f32, None::<f32>);
        for part in accept.split(',') {
            let mut fields = part.split(';').map(str::trim);
            let kind = fields.next().unwrap_or_default().to_ascii_lowercase();
            let (mut weight, mut is_version_known) = (1.0_f32, true);
            for field in fields {
                match field.split_once('=') {
                    Some(("q", q)) => weight = q.parse().unwrap_or(0.0),
                    Some(("version", v)) => {
                        is_version_known =
                            matches!(v.trim_matches('"'), "1.0.0" | "0.0.1" | "0.0.4");
                    }
                    _ => {}
                }
            }
            match kind.as_str() {
                "application/openmetrics-text" if is_version_known => open = weight.max(open),
                "text/plain" => plain = Some(plain.unwrap_or(0.0).max(weight)),
                _ => {}
            }
        }
        if open > 0.0 && open >= plain.unwrap_or(0.0) {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// What the answer's `Content-Type` says.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The text of all metrics.
///
/// # Errors
/// None that is known: a string takes whatever is written to it.
pub fn text(numbers: Numbers, format: Format) -> Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Told(numbers)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(match format {
        Format::OpenMetrics => text,
        Format::Prometheus => as_prometheus(&text),
    })
}

/// Gives the library what it writes down.
#[derive(Debug)]
struct Told(Numbers);

impl Collector for Told {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        for metric in METRICS {
            let kind = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram(_) => MetricType::Histogram,
            };
            let mut of_metric = encoder.encode_descriptor(metric.text, metric.help, None, kind)?;
            for (values, number) in self.0.series(metric.name) {
                if values.is_empty() {
                    encode_number(&mut of_metric, metric, number)?;
                    continue;
                }
                let names = metric.labels.iter().map(|label| label.name());
                let labels: Vec<(&str, &str)> =
                    names.zip(values.iter().map(String::as_str)).collect();
                let mut of_series = of_metric.encode_family(&labels)?;
                encode_number(&mut of_series, metric, number)?;
            }
        }
        Ok(())
    }
}

fn encode_number(
    encoder: &mut MetricEncoder<'_>,
    metric: &Metric,
    number: &Number,
) -> Result<(), fmt::Error> {
    type NoLabels = [(&'static str, &'static str); 0];
    match (metric.kind, number) {
        (Kind::Counter, Number::Whole(n)) => encoder.encode_counter::<NoLabels, _, u64>(n, None),
        (Kind::Counter, Number::Real(n)) => encoder.encode_counter::<NoLabels, _, u64>(n, None),
        (_, Number::Whole(n)) => encoder.encode_gauge(n),
        (_, Number::Real(n)) => encoder.encode_gauge(n),
        (_, Number::Histogram(h)) => {
            encoder.encode_histogram::<NoLabels>(h.sum, h.count, &h.buckets, None)
        }
    }
}

/// OpenMetrics as Prometheus' own format: there a counter's whole name stands in the comments, and no end is
/// marked.
fn as_prometheus(open: &str) -> String {
    let mut text = String::with_capacity(open.len());
    let mut counters = METRICS.iter().filter(|metric| metric.kind == Kind::Counter).peekable();
    let mut of_counter = None;
    for line in open.lines() {
        if line == "# EOF" {
            continue;
        }
        let mut words = line.splitn(4, ' ');
        let comment = match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(what), Some(name), Some(rest)) => Some((what, name, rest)),
            _ => None,
        };
        match comment {
            Some((what, name, rest)) => {
                if let Some(counter) = counters.next_if(|counter| counter.text == name) {
                    of_counter = Some(counter.text);
                }
                let total = if of_counter == Some(name) { "_total" } else { "" };
                text.push_str(&format!("# {what} {name}{total} {rest}\n"));
            }
            None => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Name;

    fn example() -> Numbers {
        let mut numbers = Numbers::default();
        numbers.set(Name::NodeInfo, &["n1", "a \"b\"\\\n", "memory"], 1_u64);
        numbers.set(Name::Conflicts, &[], 3_u64);
        numbers.set(Name::ResyncSeconds, &[], 1.5);
        numbers
    }

    #[test]
    fn both_formats_tell_the_same_series() {
        let open = text(example(), Format::OpenMetrics).unwrap();
        let plain = text(example(), Format::Prometheus).unwrap();
        let series = |text: &str| {
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(series(&open), series(&plain));
        assert!(open.ends_with("# EOF\n") && !plain.contains("# EOF"));
        assert!(open.contains("# TYPE distkv_conflicts counter\n"), "{open}");
        assert!(
            plain.contains("# TYPE distkv_conflicts_total counter\ndistkv_conflicts_total 3\n")
        );
        assert!(plain.contains("# TYPE distkv_resync_seconds gauge\ndistkv_resync_seconds 1.5\n"));
        assert!(plain.contains("{node=\"n1\",network=\"a \\\"b\\\"\\\\\\n\",sync=\"memory\"} 1\n"));
        assert!(plain.contains("distkv_log_sync_seconds_bucket{le=\"+Inf\"} 0\n"), "{plain}");
    }

    #[test]
    fn every_metric_has_its_comments_and_every_known_series_is_there() {
        let plain = text(Numbers::default(), Format::Prometheus).unwrap();
        for metric in METRICS {
            let total = if metric.kind == Kind::Counter { "_total" } else { "" };
            for what in ["HELP", "TYPE"] {
                let comment = format!("# {what} {}{total} ", metric.text);
                assert_eq!(plain.matches(&comment).count(), 1, "{comment}");
            }
        }
        assert!(plain.contains("distkv_members{state=\"up\"} 0\n"));
    }

    #[test]
    fn who_asks_for_openmetrics_gets_it() {
        use Format::{OpenMetrics, Prometheus};
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;\
                          version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(Format::accepted(prometheus), OpenMetrics);
        assert_eq!(Format::accepted("application/openmetrics-text; version=1.0.0"), OpenMetrics);
        assert_eq!(Format::accepted(""), Prometheus);
        assert_eq!(Format::accepted("*/*"), Prometheus);
        assert_eq!(Format::accepted("text/plain"), Prometheus);
        let less = "application/openmetrics-text;q=0.2, text/plain;q=0.9";
        assert_eq!(Format::accepted(less), Prometheus);
        assert_eq!(Format::accepted("application/openmetrics-text;version=9.0.0"), Prometheus);
        assert_eq!(Format::accepted("application/openmetrics-text;q=0"), Prometheus);
        assert_eq!(Format::accepted(";;,=,;q=x"), Prometheus);
    }
}
