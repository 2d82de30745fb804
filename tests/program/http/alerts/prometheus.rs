//! Prometheus with the alerts of the package, over nodes that are scraped by TLS: which alerts fire, and when they began to.
//!
//! It scrapes and evaluates each second, and the alerts' times and some of their limits are smaller than in the package
//! ([`scaled`]), so that a case takes seconds. What an alert asks is not changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value as Json, json};

use super::super::asking::get;
use crate::processes::wait_until;

/// Where it listens: in a network of the test's own.
const ADDRESS: &str = "127.0.0.1:9090";
const ALERTS: &str = include_str!("../../../../packaging/alerts.yml");

/// `for` in the package, and here.
const TIMES: [(&str, &str); 4] = [("30s", "2s"), ("1m", "3s"), ("5m", "5s"), ("10m", "4s")];
/// What else is smaller: of which alert, what, and what in its place. A peer that is gone keeps its link for 15 s at most, so
/// what is behind for longer than that is a slow one: 5 s and 12 s.
const LIMITS: [(&str, &str, &str); 6] = [
    ("DistkvPeerBehind", "for: 3s", "for: 12s"),
    ("DistkvHealingSlow", "> 60", "> 4"),
    ("DistkvChangesMissing", "> 30", "> 8"),
    ("DistkvPurgeBlocked", "> 3600", "> 3"),
    ("DistkvConflicts", "[10m]", "[10s]"),
    ("DistkvSyncSlow", "[5m]", "[8s]"),
];

/// The rules of the package, with smaller times and limits.
fn scaled() -> String {
    let mut text = ALERTS.to_owned();
    for (times, shorter) in TIMES {
        let of_package = format!("for: {times}\n");
        assert!(text.contains(&of_package), "no alert waits for {times} any more");
        text = text.replace(&of_package, &format!("for: {shorter}\n"));
    }
    for (alert, limit, smaller) in LIMITS {
        let at = text.find(&format!("alert: {alert}\n")).unwrap();
        let (before, rest) = text.split_at(at);
        assert!(rest[5..].split("alert:").next().unwrap().contains(limit), "{alert}: no {limit}");
        text = format!("{before}{}", rest.replacen(limit, smaller, 1));
    }
    text
}

/// The names of all alerts of the package.
pub fn names() -> BTreeSet<&'static str> {
    ALERTS.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect()
}

/// A running Prometheus. It is killed when this is dropped.
pub struct Prometheus {
    folder: PathBuf,
    child: Child,
    /// The nodes that it scrapes, by name.
    targets: BTreeMap<String, SocketAddr>,
}

impl Prometheus {
    /// Starts it, with all of its files in this folder. `ca`: the file with the CA of the nodes.
    pub fn start(folder: &Path, ca: &str) -> Self {
        fs::write(folder.join("alerts.yml"), scaled()).unwrap();
        let config = json!({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": ["alerts.yml"],
            "scrape_configs": [{
                "job_name": "distkv",
                "scheme": "https",
                "tls_config": {"ca_file": ca},
                "file_sd_configs": [{"files": ["targets.json"], "refresh_interval": "1s"}],
            }],
        });
        // JSON is YAML.
        fs::write(folder.join("prometheus.yml"), config.to_string()).unwrap();
        let log = fs::File::create(folder.join("prometheus.log")).unwrap();
        let (config, data) = (folder.join("prometheus.yml"), folder.join("tsdb"));
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg(format!("--web.listen-address={ADDRESS}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("prometheus: apt-get install --no-install-recommends prometheus");
        let running = Self { folder: folder.to_owned(), child, targets: BTreeMap::new() };
        running.write_targets();
        wait_until("Prometheus is ready", || {
            std::net::TcpStream::connect(ADDRESS).ok()?;
            (get(ADDRESS.parse().unwrap(), "/-/ready").status == 200).then_some(())
        });
        running
    }

    fn write_targets(&self) {
        let target = |(name, address): (&String, &SocketAddr)| json!({"targets": [address.to_string()], "labels": {"instance": name}});
        let all: Vec<Json> = self.targets.iter().map(target).collect();
        let (new, place) = (self.folder.join("targets.new"), self.folder.join("targets.json"));
        fs::write(&new, json!(all).to_string()).unwrap();
        fs::rename(new, place).unwrap();
    }

    /// Scrapes this node from now on, and waits until it has.
    pub fn add(&mut self, name: &str, address: SocketAddr) {
        self.targets.insert(name.to_owned(), address);
        self.write_targets();
        let up = format!("up{{instance=\"{name}\"}} == 1");
        wait_until("the node is scraped", || (!self.query(&up).is_empty()).then_some(()));
    }

    /// Does not scrape it any more, as if its machine were taken out of service.
    pub fn remove(&mut self, name: &str) {
        self.targets.remove(name);
        self.write_targets();
        let up = format!("up{{instance=\"{name}\"}}");
        wait_until("the node is forgotten", || self.query(&up).is_empty().then_some(()));
    }

    fn api(&self, path: &str) -> Json {
        let answer = get(ADDRESS.parse().unwrap(), &format!("/api/v1/{path}"));
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let json: Json = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(json["status"], "success", "{json}");
        json["data"].clone()
    }

    fn query(&self, expression: &str) -> Vec<Json> {
        let data = self.api(&format!("query?query={}", encoded(expression)));
        data["result"].as_array().unwrap().clone()
    }

    /// The value of a series of one node.
    pub fn value(&self, expression: &str) -> Option<f64> {
        let found = self.query(expression);
        found.first()?["value"][1].as_str()?.parse().ok()
    }

    /// The alerts that fire now: `Name of whom`.
    pub fn firing(&self) -> BTreeSet<String> {
        let data = self.api("alerts");
        let alerts = data["alerts"].as_array().unwrap().iter();
        let firing = alerts.filter(|alert| alert["state"] == "firing");
        firing.map(|alert| spelled(&alert["labels"])).collect()
    }

    /// The alerts that fired between two moments (seconds since 1970), and how many seconds after the first they began to.
    pub fn fired(&self, from: f64, to: f64) -> BTreeMap<String, f64> {
        let expression = encoded("ALERTS{alertstate=\"firing\"}");
        let data =
            self.api(&format!("query_range?query={expression}&start={from}&end={to}&step=0.5"));
        let mut fired = BTreeMap::new();
        for series in data["result"].as_array().unwrap() {
            let first = series["values"][0][0].as_f64().unwrap() - from;
            let begun = fired.entry(spelled(&series["metric"])).or_insert(first);
            *begun = first.min(*begun);
        }
        fired
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An alert and whom it is about.
fn spelled(labels: &Json) -> String {
    let text = |name: &str| labels[name].as_str();
    let name = text("alertname").unwrap().trim_start_matches("Distkv");
    match text("instance").or(text("network")) {
        Some(whose) => format!("{name} {whose}"),
        None => name.to_owned(),
    }
}

/// A text in a URL.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte.is_ascii_alphanumeric() {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}
