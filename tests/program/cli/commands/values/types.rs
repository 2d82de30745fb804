//! `type` and `match` against a real node: made, shown, obeyed, removed.

use serde_json::Value as Json;

use crate::cli::command::at;
use crate::processes::NodeProcess;

#[test]
fn a_type_is_made_asked_for_obeyed_and_removed() {
    let node = NodeProcess::run("n1");
    let schema = r#"{"type": "number", "minimum": 0, "maximum": 100}"#;
    let percent = ["type", "set", "percent", "--schema", schema];
    let done =
        at(&node, &[&percent[..], &["--good", "0", "--good", "99.5", "--bad", "5"]].concat());
    assert_eq!(done.code, 3, "{}", done.stdout);
    assert!(done.stderr.contains("did not fail on 5"), "{}", done.stderr);
    for few in [&["--good", "0", "--bad", "-1"][..], &["--good", "0", "--good", "1"], &[]] {
        let done = at(&node, &[&percent[..], few].concat());
        assert_eq!(done.code, 2, "{few:?}: {}", done.stderr);
        assert!(
            done.stderr.contains("at least 2 values that fit (--good) and 1"),
            "{}",
            done.stderr
        );
    }
    let good = ["--good", "0", "--good", "99.5", "--bad", "-1", "--bad", "\"a lot\""];
    let done = at(&node, &[&percent[..], &good].concat());
    assert_eq!((done.code, &*done.stdout), (0, "percent: set\n"), "{}", done.stderr);
    let done = at(&node, &["match", "set", "lamps.+.level", "nothing"]);
    assert!(done.code == 3 && done.stderr.contains("does not exist"), "{}", done.stderr);
    assert_eq!(at(&node, &["match", "set", "lamps.+.level", "percent"]).code, 0);

    let done = at(&node, &["set", "lamps.hall.level", "101"]);
    assert_eq!(done.code, 3, "{}", done.stdout);
    assert!(done.stderr.contains("101 is greater than the maximum of 100"), "{}", done.stderr);
    assert_eq!(at(&node, &["set", "lamps.hall.level", "100"]).code, 0);
    assert_eq!(at(&node, &["set", "lamps.hall.name", "\"hall\""]).code, 0);

    let done = at(&node, &["type"]);
    assert!(done.stdout.contains("percent") && done.stdout.contains("maximum"), "{}", done.stdout);
    let done = at(&node, &["match", "--json"]);
    let line: Json = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(
        (&line["pattern"], &line["value"]["type"]["$path"]),
        (&"lamps.+.level".into(), &"percent".into())
    );
    let done = at(&node, &["type", "show", "percent"]);
    assert!(done.stdout.contains("\"good\""), "{}", done.stdout);

    assert_eq!(at(&node, &["match", "delete", "lamps.+.level"]).code, 0);
    assert_eq!(at(&node, &["set", "lamps.hall.level", "101"]).code, 0);
    let done = at(&node, &["match", "delete", "lamps.+.level"]);
    assert!(done.code == 1 && done.stderr.contains("there is no pattern"), "{}", done.stderr);
    assert_eq!(at(&node, &["match"]).stdout, "no match is set\n");
    assert_eq!(at(&node, &["type", "show", "nothing"]).code, 1);
}
