//! What is measured, what came of it in each round, and the table.

use distkv_command::error::CliError;
use distkv_command::output::{Output, Table};
use serde_json::{Value as Json, json};

use crate::stores::{Kind, Store};

/// Rows that are measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Group {
    /// GET and SET at one server: CPU, rate, latency; memory per entry
    Requests,
    /// From a set until a watcher of another node has it
    Propagation,
    /// What sets cost all three nodes
    Replication,
    /// How long a fresh node takes until it has everything
    Fresh,
    /// 100 watchers, one writer
    Watchers,
    /// Listing 100,000 entries
    Listing,
    /// How long it takes until all know of a crash (ours alone)
    Crash,
}

/// Connections, requests in flight on each, the share of reads.
pub(super) const WORK: [(usize, usize, f64); 6] =
    [(50, 1, 1.0), (50, 1, 0.0), (50, 16, 1.0), (50, 16, 0.0), (1, 100, 1.0), (1, 100, 0.0)];

impl Group {
    pub(super) const ALL: [Self; 7] = [
        Self::Requests,
        Self::Propagation,
        Self::Replication,
        Self::Fresh,
        Self::Watchers,
        Self::Listing,
        Self::Crash,
    ];

    /// Its rows: what each is, and digits behind the point.
    pub(super) fn rows(self) -> Vec<(String, usize)> {
        let named = |rows: &[(&str, usize)]| -> Vec<(String, usize)> {
            rows.iter().map(|(name, digits)| ((*name).to_owned(), *digits)).collect()
        };
        match self {
            Self::Requests => {
                let mut rows = named(&[("memory per entry, bytes", 0)]);
                for (connections, depth, reads) in WORK {
                    let what = if reads > 0.5 { "GET" } else { "SET" };
                    let name = format!("{what}, {connections} x {depth} in flight");
                    rows.push((format!("{name}: server CPU s per million"), 2));
                    rows.push((format!("{name}: thousand per second"), 0));
                    rows.push((format!("{name}: p99, us"), 0));
                }
                rows
            }
            Self::Propagation => named(&[
                ("3 nodes: set to visible at another, p50, us", 0),
                ("3 nodes: set to visible at another, p99, us", 0),
            ]),
            Self::Replication => named(&[
                ("3 nodes: CPU s of all per million sets, 50 x 16 in flight", 2),
                ("3 nodes: thousand sets per second, 50 x 16 in flight", 0),
            ]),
            Self::Fresh => named(&[("fresh node fetches everything, s", 2)]),
            Self::Watchers => named(&[
                ("100 watchers, 1 writer with 100 in flight: million deliveries per second", 2),
                ("100 watchers: server CPU s per million deliveries", 3),
            ]),
            Self::Listing => named(&[("list 100,000 entries, s", 3)]),
            Self::Crash => named(&[("crash seen by all of 5 nodes, s", 2)]),
        }
    }
}

/// A figure of a server, from each round.
#[derive(Debug, Clone, Default)]
pub(crate) struct Series(pub(crate) Vec<f64>);

impl Series {
    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    pub(crate) fn median(&self) -> Option<f64> {
        let sorted = self.sorted();
        sorted.get(sorted.len() / 2).copied()
    }

    pub(crate) fn show(&self, digits: usize) -> String {
        let sorted = self.sorted();
        match (sorted.first(), self.median(), sorted.last()) {
            (Some(only), _, _) if sorted.len() == 1 => format!("{only:.digits$}"),
            (Some(least), Some(median), Some(greatest)) => {
                format!("{median:.digits$} ({least:.digits$}–{greatest:.digits$})")
            }
            _ => String::new(),
        }
    }

    pub(crate) fn json(&self) -> Json {
        let sorted = self.sorted();
        json!({"median": self.median(), "min": sorted.first(), "max": sorted.last()})
    }
}

/// A server, and what is known of it.
pub(super) struct Contender {
    pub(super) store: Store,
    /// By the row of the table.
    series: Vec<Series>,
}

impl Contender {
    pub(super) fn new(store: Store, groups: &[Group]) -> Self {
        Self { store, series: vec![Series::default(); rows(groups).len()] }
    }

    /// Takes in what a round has found of a group.
    pub(super) fn add(&mut self, groups: &[Group], of: Group, found: &[Option<f64>]) {
        let before = groups.iter().take_while(|group| **group != of);
        let skipped = before.map(|group| group.rows().len()).sum();
        let series = self.series.iter_mut().skip(skipped);
        series.zip(found).for_each(|(series, figure)| series.0.extend(figure));
    }

    fn name(&self) -> &'static str {
        self.store.kind.program()
    }
}

fn rows(groups: &[Group]) -> Vec<(String, usize)> {
    groups.iter().flat_map(|group| group.rows()).collect()
}

/// How it is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Table,
    Markdown,
    Json,
}

/// Prints what all rounds came to. The first of the contenders is ours.
pub(super) fn print(
    contenders: &[Contender],
    groups: &[Group],
    form: Form,
    about: &Json,
) -> Result<(), CliError> {
    let mut output = Output::new(form == Form::Json);
    if form == Form::Json {
        for contender in contenders {
            let figures = rows(groups).into_iter().zip(&contender.series);
            let figures = figures.filter(|(_, series)| !series.0.is_empty());
            let figures: serde_json::Map<_, _> =
                figures.map(|((name, _), series)| (name, series.json())).collect();
            let mut line = about.clone();
            if let Some(line) = line.as_object_mut() {
                line.insert("program".to_owned(), json!(contender.name()));
                line.insert("figures".to_owned(), Json::Object(figures));
            }
            output.line(&line.to_string())?;
        }
        return output.flush();
    }
    let (head, lines) = cells(contenders, groups);
    if form == Form::Markdown {
        let line = |cells: &[String]| format!("| {} |", cells.join(" | "));
        output.line(&line(&head))?;
        output.line(&line(&vec!["---".to_owned(); head.len()]))?;
        lines.iter().try_for_each(|cells| output.line(&line(cells)))?;
        return output.flush();
    }
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let mut table = Table::with_head(&head);
    lines.into_iter().for_each(|cells| table.row(cells));
    table.print(&mut output)?;
    output.flush()
}

/// The table's head and lines: ours, then each other one with the ratio of ours to it.
fn cells(contenders: &[Contender], groups: &[Group]) -> (Vec<String>, Vec<Vec<String>>) {
    let mut head = vec!["FIGURE".to_owned()];
    for contender in contenders {
        head.push(contender.name().to_owned());
        if contender.store.kind != Kind::Ours {
            head.push("RATIO".to_owned());
        }
    }
    let Some((ours, others)) = contenders.split_first() else { return (head, Vec::new()) };
    let mut lines = Vec::new();
    for (index, (name, digits)) in rows(groups).into_iter().enumerate() {
        let our = ours.series.get(index).cloned().unwrap_or_default();
        let mut cells = vec![name, our.show(digits)];
        for other in others {
            let their = other.series.get(index).cloned().unwrap_or_default();
            let ratio = our.median().zip(their.median()).map(|(a, b)| format!("{:.2}", a / b));
            cells.extend([their.show(digits), ratio.unwrap_or_default()]);
        }
        lines.push(cells);
    }
    (head, lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_medians_with_their_ends() {
        let series = Series(vec![3.0, 1.0, 2.0]);
        assert_eq!(series.show(1), "2.0 (1.0–3.0)");
        assert_eq!(Series(vec![1.25]).show(2), "1.25");
        assert_eq!(Series::default().show(1), "");
    }

    #[test]
    fn a_group_s_figures_stand_in_its_rows_and_ratios_are_ours_by_theirs() {
        let groups = [Group::Propagation, Group::Fresh];
        let store = |kind| Store { kind, program: "x".into() };
        let new = |kind| Contender::new(store(kind), &groups);
        let mut contenders = [new(Kind::Ours), new(Kind::Redis)];
        let [ours, theirs] = &mut contenders;
        ours.add(&groups, Group::Fresh, &[Some(1.0)]);
        ours.add(&groups, Group::Propagation, &[Some(50.0), None]);
        theirs.add(&groups, Group::Fresh, &[Some(2.0)]);
        let (head, lines) = cells(&contenders, &groups);
        assert_eq!(head, ["FIGURE", "distkv-node", "redis-server", "RATIO"]);
        assert_eq!(lines[0][1..], ["50", "", ""]);
        assert_eq!(lines[1][1..], ["", "", ""]);
        assert_eq!(lines[2][1..], ["1.00", "2.00", "0.50"]);
    }
}
