//! When an entry was changed: told by the node at which it was, and the same at every node, from disk, and after a
//! catch-up.

use std::fs;
use std::path::Path;

use serde_json::Value as Json;

use crate::cli::command::{at, cli, ok};
use crate::processes::{NodeProcess, wait_until};

fn json(text: &str) -> Json {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

fn with_data(name: &str, network: &str, dir: &Path) -> NodeProcess {
    let dir = dir.to_str().unwrap();
    let any = ["--client", "127.0.0.1:0", "--gossip", "127.0.0.1:0", "--peer-wait", "0s"];
    // It is killed, and has to have everything all the same.
    let run = ["run", "--data-dir", dir, "--sync", "every-batch"];
    NodeProcess::start_in(network, name, &[&run[..], &any].concat())
}

/// When an entry was changed, as `get --json` tells it; none if it does not.
fn time_of(node: &NodeProcess, path: &str) -> Option<String> {
    let told = json(&ok(node, &["get", path, "--json"]));
    told.get("time").map(|time| time.as_str().unwrap().to_owned())
}

fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

#[test]
fn every_node_tells_the_same_time_also_from_disk_and_after_a_catch_up() {
    let folder = tempfile::tempdir().unwrap();
    let network = format!("times-{}", std::process::id());
    let n1 = with_data("n1", &network, folder.path());
    let n2 = NodeProcess::join("n2", &[&n1]);
    ok(&n2, &["wait", "--members", "2"]);
    let before = now();
    ok(&n2, &["set", "site.lamp", "true", "--copies", "1"]);
    let after = now();
    ok(&n2, &["set", "gone", "1"]);
    ok(&n2, &["delete", "gone", "--copies", "1"]);
    let time = time_of(&n2, "site.lamp").expect("the node at which it was changed knows it");
    let moment: jiff::Timestamp = time.parse().unwrap();
    let ms = moment.as_millisecond();
    assert!((before.as_millisecond()..=after.as_millisecond()).contains(&ms), "{time}");

    // At the other node, in all that people look at.
    assert_eq!(time_of(&n1, "site.lamp").as_deref(), Some(&*time));
    let chain = ok(&n1, &["get", "site.lamp", "--chain"]);
    assert!(chain.starts_with("true\n# n2~") && chain.ends_with(&format!("  {time}\n")), "{chain}");
    let tree = ok(&n1, &["tree", "site", "--chain"]);
    assert!(tree.ends_with(&format!("  {time}]\n")), "{tree}");
    assert_eq!(json(&ok(&n1, &["tree", "site", "--json"]))["time"], *time);
    assert_eq!(ok(&n1, &["ls", "site", "--long"]), format!("site.lamp\ttrue\t({time})\n"));
    assert_eq!(json(&ok(&n1, &["ls", "site", "--json"]))["time"], *time);
    let watch = ok(&n1, &["watch", "site.lamp", "--fetch", "--count", "1", "--json"]);
    assert_eq!(json(watch.lines().next().unwrap())["time"], *time, "{watch}");
    let history = json(&ok(&n1, &["history", "site.lamp", "--json"]));
    assert_eq!(history["made"], *time);
    // Where nobody asks for it, nothing is different.
    assert_eq!(ok(&n1, &["get", "site.lamp"]), "true\n");
    assert_eq!(ok(&n1, &["tree", "site"]), "site.lamp  true\n");

    // A snapshot has it, and a log: the node starts once from either.
    ok(&n1, &["snapshot", "save"]);
    let lines = folder.path().join("lines");
    ok(&n1, &["snapshot", "save", "--format", "jsonl", "--to", lines.to_str().unwrap()]);
    let text = fs::read_to_string(&lines).unwrap();
    assert!(text.contains(&format!("\"time\":{ms}")), "{text}");
    ok(&n1, &["set", "site.fan", "1"]);
    let fan = time_of(&n1, "site.fan");
    assert!(fan.is_some());
    for mut node in [n2, n1] {
        node.kill();
    }
    let n1 = with_data("n1", &network, folder.path());
    assert_eq!(time_of(&n1, "site.lamp").as_deref(), Some(&*time));
    assert_eq!(time_of(&n1, "site.fan"), fan);

    // A node that has nothing fetches it.
    let n3 = NodeProcess::join("n3", &[&n1]);
    assert_eq!(time_of(&n3, "site.lamp").as_deref(), Some(&*time));
    assert_eq!(time_of(&n3, "site.fan"), fan);
    let same = cli(&["verify", &n1.client.to_string(), &n3.client.to_string()]);
    assert_eq!(same.code, 0, "{same:?}");
}

#[test]
fn what_was_written_before_times_were_kept_shows_none_until_it_is_changed() {
    let frozen = Path::new(env!("CARGO_MANIFEST_DIR")).join("snapshots/v1/good/killed");
    let folder = tempfile::tempdir().unwrap();
    for file in fs::read_dir(frozen).unwrap().map(|file| file.unwrap().path()) {
        let name = file.file_name().unwrap();
        if name.to_string_lossy().ends_with(".dkv") || name == "identity" {
            fs::copy(&file, folder.path().join(name)).unwrap();
        }
    }
    let old = with_data("a", "frozen", folder.path());
    assert_eq!(time_of(&old, "plant.belt"), None);
    let chain = ok(&old, &["get", "plant.belt", "--chain"]);
    assert_eq!(chain.lines().last().unwrap().split("  ").count(), 1, "{chain}");
    let history = at(&old, &["history", "plant.belt"]);
    assert!(history.code == 0 && !history.stdout.contains("made"), "{history:?}");
    let joined = NodeProcess::join("b", &[&old]);
    assert_eq!(time_of(&joined, "plant.belt"), None);
    ok(&joined, &["set", "plant.belt", "7", "--copies", "1"]);
    let time = time_of(&joined, "plant.belt");
    assert!(time.is_some());
    wait_until("it is told everywhere", || (time_of(&old, "plant.belt") == time).then_some(()));
}
