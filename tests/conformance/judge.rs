//! The judge's own tests. A mistake in what these look at would make scenarios that cannot fail.

#![allow(clippy::indexing_slicing, reason = "what is not there makes the test fail")]

use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use serde_json::{Value as Json, json};

use crate::driver::Driver;
use crate::fits::{fits, fits_in, is_answered};
use crate::options::Options;
use crate::planted;
use crate::play::{Failure, Manner, play};
use crate::processes::within_patience;
use crate::scenario::{Language, Plan, Scenario, ScriptedNode};
use crate::script::{Script, What};
use crate::step::{Order, What as Does};
use crate::table;

/// Longer than an answer takes that is there already.
const SOON: Duration = Duration::from_millis(300);

type Test = fn() -> Result<(), Failed>;

/// They are told as `judge::NAME`.
pub(crate) fn trials() -> Vec<Trial> {
    let all: [(&str, Test); 16] = [
        ("fits::each_type_is_one_of_its_own", each_type_is_one_of_its_own),
        ("fits::maps_may_have_more", maps_may_have_more),
        ("fits::lists_are_the_same", lists_are_the_same),
        ("fits::what_is_not_there_does_not_fit", what_is_not_there_does_not_fit),
        ("fits::an_error_is_no_success", an_error_is_no_success),
        ("script::the_last_answer_stays", the_last_answer_stays),
        ("script::answers_are_given_so_many_times", answers_are_given_so_many_times),
        ("script::answers_are_for_their_action", answers_are_for_their_action),
        ("file::what_differs_in_a_language_counts_there", what_differs_counts_there),
        ("file::unknown_words_are_refused", unknown_words_are_refused),
        ("file::deviations_need_a_finder", deviations_need_a_finder),
        ("table::rows_are_compared", rows_are_compared),
        ("options::are_read_or_refused", options_are_read_or_refused),
        ("driver::a_silent_one_fails_in_time", a_silent_driver_fails_in_time),
        ("play::what_is_wrong_is_found", what_is_wrong_is_found),
        ("planted::what_breaks_no_rule_is_missed", what_breaks_no_rule_is_missed),
    ];
    let trial = |(name, test): (&str, Test)| Trial::test(format!("judge::{name}"), test);
    all.into_iter().map(trial).collect()
}

fn each_type_is_one_of_its_own() -> Result<(), Failed> {
    let values = [
        json!(null),
        json!(true),
        json!(false),
        json!(0),
        json!(0.0),
        json!(1),
        json!(1.0),
        json!(-1),
        json!("1"),
        json!(""),
        json!([]),
        json!([1]),
        json!({}),
    ];
    for (index, expected) in values.iter().enumerate() {
        for (other, found) in values.iter().enumerate() {
            assert_eq!(fits(expected, found), index == other, "{expected} and {found}");
        }
    }
    // What a file says is compared with what a driver writes.
    let told: Json = toml::from_str("is = [1, 1.0, true, 300, 9007199254740993]")?;
    let written = r#"{"is": [1, 1.0, true, 300, 9007199254740993]}"#;
    assert!(fits(&told, &serde_json::from_str(written)?));
    let rounded = r#"{"is": [1, 1.0, true, 300, 9007199254740992]}"#;
    assert!(!fits(&told, &serde_json::from_str(rounded)?));
    Ok(())
}

fn maps_may_have_more() -> Result<(), Failed> {
    let found = json!({ "a": 1, "b": { "c": 2, "d": [3] } });
    assert!(fits(&json!({}), &found));
    assert!(fits(&json!({ "a": 1 }), &found));
    assert!(fits(&json!({ "b": { "d": [3] } }), &found));
    assert!(!fits(&json!({ "a": 2 }), &found));
    assert!(!fits(&json!({ "a": 1, "e": 1 }), &found));
    assert!(!fits(&json!({ "e": null }), &found), "what is null is there");
    assert!(!fits(&json!({ "b": { "c": 3, "d": [3] } }), &found));
    assert!(!fits(&json!({ "b": {} }), &json!({ "b": [] })));
    Ok(())
}

fn lists_are_the_same() -> Result<(), Failed> {
    let found = json!([1, { "a": 1, "b": 2 }]);
    assert!(fits(&json!([1, { "a": 1 }]), &found));
    assert!(!fits(&json!([1]), &found));
    assert!(!fits(&json!([1, { "a": 1 }, 3]), &found));
    assert!(!fits(&json!([{ "a": 1 }, 1]), &found));
    assert!(!fits(&json!([]), &found));
    assert!(!fits(&json!([1, { "a": true }]), &found));
    Ok(())
}

fn what_is_not_there_does_not_fit() -> Result<(), Failed> {
    assert!(!fits_in(&json!({}), None));
    assert!(!fits_in(&json!(null), None));
    assert!(fits_in(&json!(null), Some(&json!(null))));
    Ok(())
}

fn an_error_is_no_success() -> Result<(), Failed> {
    let (ok, error) = (json!({ "ok": { "value": 1 } }), json!({ "error": { "code": "denied" } }));
    let any = Order::default();
    assert!(is_answered(&any, &ok) && !is_answered(&any, &error));
    let of = |expect: Json| Order { expect: Some(expect), ..Order::default() };
    assert!(is_answered(&of(json!({ "value": 1 })), &ok));
    assert!(!is_answered(&of(json!({ "value": 2 })), &ok));
    assert!(!is_answered(&of(json!({})), &error));
    let of = |error: Json| Order { error: Some(error), ..Order::default() };
    assert!(is_answered(&of(json!({ "code": "denied" })), &error));
    assert!(!is_answered(&of(json!({ "code": "is_root" })), &error));
    assert!(!is_answered(&of(json!({})), &ok));
    assert!(!is_answered(&any, &json!({})) && !is_answered(&any, &json!(null)));
    Ok(())
}

/// The script of a node that is told so.
fn script(answers: &str) -> Result<Script, Failed> {
    let node: ScriptedNode = toml::from_str(&format!("name = \"s1\"\nanswers = [{answers}]"))?;
    Ok(Script::new(node.answers))
}

/// The values that a script replies to these requests, `none` where it has nothing for them.
fn values(script: &mut Script, actions: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for action in actions {
        found.push(match script.next(action) {
            Some(What::Reply { fields, .. }) => {
                fields.get("value").map_or_else(String::new, ToString::to_string)
            }
            Some(other) => format!("{other:?}"),
            None => "none".to_owned(),
        });
    }
    found
}

fn the_last_answer_stays() -> Result<(), Failed> {
    let mut one = script("{ reply = { value = 1 } }, { silence = true }, { garbage = \"c1ff\" }")?;
    let told = values(&mut one, &["x", "y", "x", "x"]);
    assert_eq!(told, ["1", "Silence", "Garbage([193, 255])", "Garbage([193, 255])"]);
    assert_eq!(values(&mut script("")?, &["x"]), ["none"]);
    Ok(())
}

fn answers_are_given_so_many_times() -> Result<(), Failed> {
    let mut one =
        script("{ reply = { value = 1 }, times = 3 }, { reset = true }, { silence = true }")?;
    let told = values(&mut one, &["x"; 6]);
    assert_eq!(told, ["1", "1", "1", "Reset", "Silence", "Silence"]);
    // Of the last one there is no end.
    let mut one = script("{ reply = { value = 1 }, times = 2 }")?;
    assert_eq!(values(&mut one, &["x"; 4]), ["1"; 4]);
    Ok(())
}

fn answers_are_for_their_action() -> Result<(), Failed> {
    let mut one = script(
        "{ action = 'a', reply = { value = 1 } }, { action = 'b', reply = { value = 2 } }, \
         { action = 'a', reply = { value = 3 } }, { reply = { value = 4 } }",
    )?;
    let told = values(&mut one, &["b", "a", "a", "a", "c", "b", "a"]);
    assert_eq!(told, ["2", "1", "3", "4", "4", "4", "4"]);
    let mut one = script("{ action = 'a', reply = { value = 1 } }")?;
    assert_eq!(values(&mut one, &["b", "a", "b"]), ["none", "1", "none"]);
    Ok(())
}

/// A scenario with one scripted node, and whatever else.
fn scripted(more: &str) -> Result<Scenario, String> {
    Scenario::parse("07-x", &format!("number = 7\ntitle = 't'\n{more}\n[[node]]\nname = 's1'\n"))
}

const STEP: &str = "[[step]]\ndo = 'get'\npath = 'p'\n";

fn what_differs_counts_there() -> Result<(), Failed> {
    let text = format!(
        "[config]\ntry_deadline = 1.0\n[clients.b]\nlate = true\nbusy_at = 4\n{STEP}\
         expect = {{ value = 1 }}\ngo = {{ error = {{ code = 'x' }}, path = 'q' }}\n\
         [[step]]\ndo = 'view'\nclient = 'c'\nlanguages = ['go', 'rust']\n"
    );
    let scenario = scripted(&text)?;
    let [python, go, rust] = Language::ALL.map(|language| &scenario.plans[&language]);
    assert_eq!([python.steps.len(), go.steps.len(), rust.steps.len()], [1, 2, 2]);
    assert_eq!([python.left_out, go.left_out, rust.left_out], [1, 0, 0]);
    assert_eq!([python.otherwise, go.otherwise, rust.otherwise], [0, 1, 0]);
    let names: Vec<_> = python.clients.keys().collect();
    assert_eq!(names, ["a", "b"], "nobody needs c");
    assert_eq!(go.clients.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
    let b = &go.clients["b"];
    assert!(b.late && b.refused.is_none() && !go.clients["c"].late);
    assert_eq!(Json::from(b.config.clone()), json!({ "try_deadline": 1.0, "busy_at": 4 }));
    let order = |plan: &Plan| match &plan.steps[0].what {
        Does::Order(order) => (order.order["path"].clone(), order.error.clone()),
        _ => (Json::Null, None),
    };
    assert_eq!(order(python), (json!("p"), None));
    assert_eq!(order(go), (json!("q"), Some(json!({ "code": "x" }))));
    Ok(())
}

fn unknown_words_are_refused() -> Result<(), Failed> {
    scripted(STEP)?;
    let real = |more: &str| {
        Scenario::parse("07-x", &format!("number = 7\ntitle = 't'\ncluster = 2\n{more}"))
    };
    real(STEP)?;
    let node = |answer: &str| scripted(&format!("{STEP}[[node]]\nname = 's2'\n{answer}"));
    node("answers = [{ silence = true, times = 2 }]")?;
    let refused = [
        ("no step", scripted("")),
        ("a field of the file", scripted(&format!("colour = 1\n{STEP}"))),
        ("a field of an order", scripted(&format!("{STEP}expcet = {{}}\n"))),
        ("another order's field", scripted(&format!("{STEP}hex = '00'\n"))),
        ("an order", scripted("[[step]]\ndo = 'gett'\n")),
        ("an event", scripted("[[step]]\nkil = 's1'\n")),
        ("two events", scripted("[[step]]\ndown = 's1'\nconnect = 'a'\n")),
        ("an order and an event", scripted(&format!("{STEP}down = 's1'\n"))),
        ("a scripted node is killed", scripted("[[step]]\nkill = 's1'\n")),
        ("there is no such node", scripted("[[step]]\ndown = 's9'\n")),
        ("a real node is asked", real("[[step]]\naccepted = 'n1'\nmost = 1\n")),
        ("there is no such real node", real("[[step]]\nkill = 'n3'\n")),
        ("no key to replace", real("[[step]]\nrotate = true\n")),
        ("a field of a question", scripted("[[step]]\naccepted = 's1'\nmots = 1\n")),
        ("no count", scripted("[[step]]\nrequests = 's1'\naction = 'x'\n")),
        ("a language", scripted(&format!("{STEP}languages = ['rusty']\n"))),
        ("a type", scripted(&format!("{STEP}until = 1\n"))),
        ("real and scripted", scripted(&format!("cluster = 1\n{STEP}"))),
        ("a scripted node with TLS", scripted(&format!("tls = true\n{STEP}"))),
        ("its number", Scenario::parse("08-x", "number = 7\ntitle = 't'\ncluster = 1\n")),
        ("no answer", node("answers = [{ times = 2 }]")),
        ("two answers", node("answers = [{ silence = true, reset = true }]")),
        ("a field of an answer", node("answers = [{ silence = true, tims = 2 }]")),
        ("never", node("answers = [{ silence = true, times = 0 }]")),
        ("garbage by halves", node("answers = [{ garbage = 'c' }]")),
        ("silence in pieces", node("answers = [{ silence = true, split = 1 }]")),
    ];
    for (what, told) in refused {
        assert!(told.is_err(), "not refused: {what}");
    }
    Ok(())
}

fn deviations_need_a_finder() -> Result<(), Failed> {
    let scenarios = [scripted(&format!("languages = ['go']\n{STEP}"))?];
    let told = |found_by: &str, languages: &str| {
        let text = format!(
            "[[deviation]]\nname = 'n'\nfound_by = '{found_by}'\nlanguages = [{languages}]\n"
        );
        planted::parse(&text, &scenarios).map(|all| all.len())
    };
    assert_eq!(told("07-x", "'go'"), Ok(1));
    assert!(told("08-x", "'go'").is_err());
    assert!(told("07-x", "'go', 'rust'").is_err());
    assert!(told("07-x", "").is_err());
    Ok(())
}

fn rows_are_compared() -> Result<(), Failed> {
    let one = scripted(&format!("languages = ['go', 'rust']\n{STEP}rust = {{ path = 'q' }}\n"))?;
    let row = "| 7 | t | scripted | – | ✓ | ✓, 1 otherwise |";
    assert!(
        table::differences(&format!("text\n{row}\ntext"), std::slice::from_ref(&one)).is_empty()
    );
    let wrong = row.replace("1 other", "2 other");
    assert_eq!(table::differences(&wrong, std::slice::from_ref(&one)).len(), 2);
    assert_eq!(table::differences(row, &[]).len(), 1);
    assert_eq!(table::differences("", &[one]).len(), 1);
    Ok(())
}

fn options_are_read_or_refused() -> Result<(), Failed> {
    let with = |told: &[(&str, &str)]| {
        Options::from(|name| {
            let name = name.strip_prefix("DISTKV_CONFORMANCE_")?;
            told.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    };
    let plain = with(&[("RUNS", ""), ("GO", " ")])?;
    assert_eq!(plain.drivers.keys().collect::<Vec<_>>(), [&Language::Rust]);
    assert_eq!((plain.runs, plain.storm, plain.is_planted, &plain.only), (1, None, false, &None));
    let all = with(&[
        ("GO", "driver -x"),
        ("RUNS", "20"),
        ("STORM", "30"),
        ("PLANTED", "1"),
        ("ONLY", "07-x 08-y"),
    ])?;
    assert_eq!(all.command(Language::Go), Ok("driver -x"));
    assert!(all.command(Language::Rust).is_err());
    assert_eq!((all.runs, all.storm, all.is_planted), (20, Some(30.0), true));
    let scenario = scripted(STEP)?;
    assert!(all.wants(&scenario) && plain.wants(&scenario));
    assert!(!with(&[("ONLY", "08-y")])?.wants(&scenario));
    assert!(all.check(&[scenario]).is_err(), "there is no 08-y");
    for wrong in [("RUNS", "0"), ("RUNS", "x"), ("STORM", "-1"), ("STORM", "nan"), ("PLANTED", "2")]
    {
        assert!(with(&[wrong]).is_err(), "{wrong:?}");
    }
    Ok(())
}

fn a_silent_driver_fails_in_time() -> Result<(), Failed> {
    let begun = Instant::now();
    let mut driver =
        Driver::start("sh -c 'echo lost >&2; read line; read line'", None, begun + SOON)?;
    let failed = driver.tell(&json!({ "do": "view" }));
    assert!(matches!(failed, Err(Failure::Client(told)) if told.starts_with("time is up")));
    assert!(begun.elapsed() >= SOON);
    // It may be slower than that to begin.
    assert!(within_patience(|| driver.log() == "lost\n"), "{}", driver.log());
    let mut driver = Driver::start("true", None, begun + 100 * SOON)?;
    // It may still take the order, and is gone then.
    let failed = driver.tell(&json!({ "do": "view" }));
    assert!(matches!(failed, Err(Failure::Client(told)) if told.contains("has ended")));
    let command = r#"sh -c 'read line; echo "{\"ok\": \"$DISTKV_PLANTED\"}"'"#;
    let mut driver = Driver::start(command, Some("a rule"), begun + 100 * SOON)?;
    assert_eq!(driver.tell(&json!({ "do": "view" }))?, json!({ "ok": "a rule" }));
    let mut driver = Driver::start("sh -c 'read line; echo yes'", None, begun + 100 * SOON)?;
    assert!(matches!(driver.tell(&json!({})), Err(Failure::Client(_))));
    Ok(())
}

/// A driver that answers each order with one of these lines, one after the other.
fn parrot(lines: &[&str]) -> String {
    let said: Vec<String> = lines.iter().map(|line| format!("read line; echo {line:?}")).collect();
    format!("sh -c '{}; read line'", said.join("; "))
}

fn what_is_wrong_is_found() -> Result<(), Failed> {
    let played = |scenario: &Scenario, lines: &[&str]| {
        let command = parrot(lines);
        let manner = Manner { command: &command, planted: None, storm: None };
        play(scenario, &scenario.plans[&Language::Rust], &manner)
    };
    let (yes, error) = (r#"{"ok": {}}"#, r#"{"error": {"code": "x"}}"#);
    let one = scripted(&format!("{STEP}expect = {{ value = 1 }}\n"))?;
    let answer = r#"{"ok": {"value": 1}}"#;
    played(&one, &[yes, answer, yes])?;
    assert!(played(&one, &[yes, r#"{"ok": {"value": true}}"#, yes]).is_err());
    assert!(played(&one, &[error, answer, yes]).is_err(), "it does not connect");
    assert!(played(&one, &[yes, answer, error]).is_err(), "it does not close");
    let refused = scripted(&format!("[clients.a]\nrefused = {{ code = 'x' }}\n{STEP}"))?;
    played(&refused, &[error, yes])?;
    assert!(played(&refused, &[yes, yes]).is_err(), "it is not refused");
    let until = "until = true\nnever = { value = 2 }\n";
    let until = scripted(&format!("{STEP}expect = {{ value = 1 }}\n{until}"))?;
    played(&until, &[yes, error, r#"{"ok": {"value": 3}}"#, answer, yes])?;
    assert!(played(&until, &[yes, r#"{"ok": {"value": 2}}"#, answer, yes]).is_err());
    // A node that was asked nothing, and connected to by nobody.
    let asked = "[[step]]\nrequests = 's1'\naction = 'get_value'\n";
    played(&scripted(&format!("{asked}count = 0\n"))?, &[])?;
    assert!(played(&scripted(&format!("{asked}count = 1\n"))?, &[]).is_err());
    assert!(played(&scripted(&format!("{asked}count = 0\nsame_id = true\n"))?, &[]).is_err());
    played(&scripted("[[step]]\naccepted = 's1'\nmost = 0\n")?, &[])?;
    Ok(())
}

fn what_breaks_no_rule_is_missed() -> Result<(), Failed> {
    let scenarios = [scripted(&format!("{STEP}expect = {{ value = 1 }}\n"))?];
    let text = "[[deviation]]\nname = 'n'\nfound_by = '07-x'\nlanguages = ['rust']\n";
    let deviations = planted::parse(text, &scenarios)?;
    let find = |value: &str| {
        let command = parrot(&[r#"{"ok": {}}"#, value, r#"{"ok": {}}"#]);
        planted::find(&deviations[0], &scenarios, Language::Rust, &command)
    };
    find(r#"{"ok": {"value": 2}}"#)?;
    let missed = find(r#"{"ok": {"value": 1}}"#).map_err(|missed| missed.failure);
    assert!(matches!(missed, Err(Failure::Client(told)) if told.contains("is not found")));
    Ok(())
}
