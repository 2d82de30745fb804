//! `docs/metrics.md`, made of the table.

use std::fmt::Write;

use crate::table::{Kind, Label, METRICS, Metric};

/// The rows of the page's table, as Markdown.
#[must_use]
pub fn rows() -> String {
    let mut text = String::from("| metric | kind | labels | what it tells |\n|---|---|---|---|\n");
    for metric in METRICS {
        let total = if metric.kind == Kind::Counter { "_total" } else { "" };
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        };
        let (name, labels, help) = (metric.text, labels(metric), metric.help);
        // A string takes whatever is written to it.
        let _ = writeln!(text, "| `{name}{total}` | {kind} | {labels} | {help} |");
    }
    text
}

fn labels(metric: &Metric) -> String {
    let one = |label: &Label| match label {
        Label::Fixed(name, values) => {
            let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
            format!("`{name}`: {}", values.join(", "))
        }
        Label::Free(name) => format!("`{name}`"),
    };
    metric.labels.iter().map(one).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_name_kind_labels_and_help() {
        let rows = rows();
        assert!(
            rows.contains("| `distkv_conflicts_total` | counter |  | Conflicts that"),
            "{rows}"
        );
        assert!(rows.contains("| gauge | `kind`: `live`, `deleted` | Entries"), "{rows}");
        assert_eq!(rows.lines().count(), METRICS.len() + 2);
    }
}
