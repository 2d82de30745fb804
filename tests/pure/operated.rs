//! What is made for those who operate nodes: the page of metrics against the table of the sources, alerts and
//! dashboard against both, and Prometheus' own tool on the alerts.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use distkv_metrics::{Kind, METRICS, page};

const PAGE: &str = "docs/metrics.md";
const MARK: &str = "<!-- the table -->\n";
const ALERTS: &str = "packaging/alerts.yml";
const ALERT_CASES: &str = "packaging/alerts.test.yml";
const DASHBOARD: &str = "packaging/dashboard.json";

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(file(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn the_page_of_metrics_has_the_table_of_the_sources() {
    let old = text(PAGE);
    let (head, table) = old.split_once(MARK).expect("the page has a place for the table");
    let rows = format!("\n{}", page::rows());
    if std::env::var_os("DISTKV_WRITE_METRICS").is_some() {
        fs::write(file(PAGE), format!("{head}{MARK}{rows}")).unwrap();
        return;
    }
    assert_eq!(table, rows, "write it anew: DISTKV_WRITE_METRICS=1 cargo test --test pure metrics");
}

/// The names of series that a text speaks of.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("distkv_") || word.starts_with("process_")).collect()
}

/// The names of all series that there are.
fn series() -> BTreeSet<String> {
    let of = |metric: &distkv_metrics::Metric| match metric.kind {
        Kind::Counter => vec![format!("{}_total", metric.text)],
        Kind::Gauge => vec![metric.text.to_owned()],
        Kind::Histogram(_) => {
            ["bucket", "sum", "count"].map(|part| format!("{}_{part}", metric.text)).to_vec()
        }
    };
    METRICS.iter().flat_map(of).collect()
}

#[test]
fn alerts_and_dashboard_ask_for_series_that_there_are() {
    let series = series();
    for name in [ALERTS, ALERT_CASES, DASHBOARD] {
        let text = text(name);
        let unknown: Vec<_> =
            names(&text).into_iter().filter(|name| !series.contains(*name)).collect();
        assert_eq!(unknown, Vec::<&str>::new(), "{name}");
        assert!(names(&text).len() > 10, "{name}: where are they?");
    }
    let misspelled = names("rate(distkv_conflict_total[5m])");
    assert!(misspelled.iter().all(|name| !series.contains(*name)));
}

#[test]
fn the_dashboard_is_one() {
    let dashboard: serde_json::Value = serde_json::from_str(&text(DASHBOARD)).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{panel}");
        for target in targets {
            let expression = target["expr"].as_str().unwrap();
            assert!(expression.contains("$instance"), "{expression}: for all nodes?");
        }
    }
    assert!(panels.len() >= 12);
}

#[test]
fn each_alert_has_a_case_in_which_it_fires_and_says_what_to_do() {
    let (alerts, cases) = (text(ALERTS), text(ALERT_CASES));
    let names: Vec<&str> =
        alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert_eq!(names.len(), 15, "{names:?}");
    for name in names {
        let firing = format!("alertname=\"{name}\"");
        assert!(cases.contains(&firing), "{name} has no case in {ALERT_CASES}");
    }
    assert_eq!(alerts.matches("summary: ").count(), 15);
    assert_eq!(alerts.matches("description: ").count(), 15);
    assert!(cases.contains("exp_samples: []"), "there is a case in which nothing fires");
}

/// Kinds of warnings that raise an alert by another series, or none, each with the reason.
const OTHERWISE_TOLD: [(&str, &str); 5] = [
    ("memory", "DistkvMemoryNearLimit, before it is full"),
    ("purge", "DistkvPurgeBlocked, once it has lasted"),
    ("split", "DistkvSplit and DistkvDown"),
    ("grace", "somebody has chosen it, and its end"),
    ("unenforced", "somebody has loaded it, and nobody can mend it"),
];

/// The words of the alerts' `kind=~"…"` and `kind="…"`, or else those of their `kind!~"…"`.
fn kinds(alerts: &str, operators: &[&str]) -> Vec<String> {
    let expressions = alerts.lines().filter(|line| line.trim().starts_with("expr: "));
    let lists = expressions.flat_map(|line| {
        let of = |operator: &&str| line.split_once(&format!("{{kind{operator}\""));
        operators.iter().filter_map(of).filter_map(|(_, rest)| rest.split_once('"'))
    });
    lists.flat_map(|(list, _)| list.split('|').map(str::to_owned)).collect()
}

#[test]
fn each_kind_of_warning_raises_one_alert_or_stands_here_with_the_reason() {
    let metric = METRICS.iter().find(|metric| metric.text == "distkv_warnings").unwrap();
    let [distkv_metrics::Label::Fixed("kind", all)] = metric.labels else { panic!() };
    let alerts = text(ALERTS);
    let (own, left_out) = (kinds(&alerts, &["=~", "="]), kinds(&alerts, &["!~"]));
    let otherwise: Vec<&str> = OTHERWISE_TOLD.iter().map(|(kind, _)| *kind).collect();
    let times = |list: &[String], kind: &str| list.iter().filter(|word| *word == kind).count();
    // An alert that leaves some kinds out is for all others.
    let for_others = usize::from(!left_out.is_empty());
    for kind in *all {
        let by_others = for_others.saturating_sub(times(&left_out, kind));
        let expected = usize::from(!otherwise.contains(kind));
        assert_eq!(times(&own, kind) + by_others, expected, "{kind}");
    }
    let named = own.iter().chain(&left_out).map(String::as_str).chain(otherwise);
    let unknown: Vec<&str> = named.filter(|word| !all.contains(word)).collect();
    assert_eq!(unknown, [""; 0], "no kinds of warnings");
}

/// Debian's package `prometheus` has it; `.ci/run` installs it.
#[test]
fn prometheus_finds_nothing_wrong_with_the_alerts_and_each_fires_in_its_case_only() {
    for arguments in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts.test.yml"]] {
        let mut command = Command::new("promtool");
        command.args(arguments).current_dir(file("packaging"));
        let output = command.output().unwrap_or_else(|error| {
            panic!(
                "promtool ({error}) is needed: apt-get install --no-install-recommends prometheus"
            )
        });
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "promtool {arguments:?}: {said}");
        assert!(said.contains("SUCCESS"), "{said}");
    }
}
