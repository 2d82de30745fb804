//! What is wrong with a configuration file's text: all of it, each with its line.
//!
//! A start stops at the first error. Here each key is read alone; then a node's settings are made of those that can be
//! read, and whatever makes no sense is taken out until the rest does; then the node looks at what the settings refer to.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue, Deserializer};

use serde::Deserialize as _;

use super::logging;
use super::node_args::host_name;
use super::settings::problem::problem_of;
use super::settings::{Settings, StartKind};
use crate::cli::error::CliError;
use crate::cli::files::directory::{LEFT_NOTE, check_identity, has_left, owner_of, read_as_start};
use crate::node::NodeError;
use crate::node::check::{self, Data};
use crate::node::config::{Config, DataConfig};
use crate::rt;
use crate::storage::{Directory, StorageError, only_foreign};

/// One thing that is wrong, or may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    /// From 1; none for what no line says.
    pub(super) line: Option<usize>,
    /// The setting.
    pub(super) key: Option<String>,
    /// What is wrong there, and what to do.
    pub(super) text: String,
    /// It does not keep a node from starting.
    pub(super) is_warning: bool,
}

/// A key of the file that can be read.
struct Part {
    key: String,
    line: usize,
    settings: Settings,
}

/// Checks a file's text, in the order of its lines. `is_json`: nobody looks at how far it is.
pub(super) fn check_text(text: &str, is_json: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut bad: BTreeMap<String, usize> = BTreeMap::new();
    let mut parts = read_keys(text, &mut findings, &mut bad);
    // What cannot be read may be any setting.
    let hides = findings.iter().any(|finding| finding.key.is_none());
    let mut name_of_host: fn() -> String = host_name;
    let config = loop {
        match config_of(&parts, name_of_host) {
            Ok(config) => break Some(config),
            Err(error) => {
                let text = error.to_string();
                let culprit = culprit(&parts, &text, name_of_host).map(|at| parts.remove(at));
                let is_hidden = hides && culprit.is_none();
                let is_new = !is_hidden && !bad.keys().any(|key| is_asked_for(&text, key));
                let part = culprit.as_ref().map(|Part { key, line, .. }| (*line, key.clone()));
                let told = text.clone();
                if is_new {
                    let (line, key) = part.clone().unzip();
                    findings.push(Finding { line, key, text, is_warning: false });
                }
                match part {
                    Some((line, key)) => drop(bad.insert(key, line)),
                    // It is of this machine's name, which no key gives. With another one, the rest is checked.
                    None if has_other_error(&parts, stand_in, &told) => name_of_host = stand_in,
                    None => break None,
                }
            }
        }
    };
    if let Some(config) = config {
        let lines = parts.iter().map(|part| (part.key.as_str(), part.line)).collect();
        look_further(&config, &lines, &bad, hides, is_json, &mut findings);
    }
    findings.sort_by_key(|finding| (finding.line.is_none(), finding.line));
    findings
}

/// What each of the file's keys sets.
fn read_keys(
    text: &str,
    findings: &mut Vec<Finding>,
    bad: &mut BTreeMap<String, usize>,
) -> Vec<Part> {
    let line_at = |at: usize| 1 + text.get(..at).unwrap_or_default().matches('\n').count();
    let (table, errors) = DeTable::parse_recoverable(text);
    let table = table.into_inner();
    let lines_of = |key: &Spanned<_>, value: &Spanned<_>| {
        let (key, value): (Range<usize>, Range<usize>) = (key.span(), value.span());
        let (start, end) = (key.start.min(value.start), key.end.max(value.end));
        line_at(start)..=line_at(end)
    };
    let values: Vec<_> = table.iter().map(|(key, value)| lines_of(key, value)).collect();
    let mut broken: Vec<usize> = Vec::new();
    let mut errors: Vec<_> = errors
        .iter()
        .map(|error| (error.span().map(|span| line_at(span.start)), problem_of(error)))
        .collect();
    errors.sort_by_key(|(line, _)| *line);
    for (line, text) in errors {
        // What follows from an error on the same line, or in the same value, says nothing new.
        let is_same = |before: &usize| {
            Some(*before) == line
                || values.iter().any(|value| {
                    value.contains(before) && line.is_some_and(|line| value.contains(&line))
                })
        };
        if !broken.iter().any(is_same) {
            findings.push(Finding { line, key: None, text, is_warning: false });
        }
        broken.extend(line);
    }
    let mut parts = Vec::new();
    for (key, value) in table {
        let line = line_at(key.span().start);
        let name = key.get_ref().to_string();
        let lines = lines_of(&key, &value);
        if broken.iter().any(|line| lines.contains(line)) {
            bad.insert(name, line);
            continue;
        }
        let inner: Vec<String> = match value.get_ref() {
            DeValue::Table(table) => table.keys().map(|key| key.get_ref().to_string()).collect(),
            _ => Vec::new(),
        };
        let span = key.span().start..value.span().end;
        let alone: DeTable<'_> = [(key, value)].into_iter().collect();
        let alone = Deserializer::from(Spanned::new(span, alone));
        match Settings::deserialize(alone) {
            Ok(settings) => parts.push(Part { key: name, line, settings }),
            Err(error) => {
                let line = error.span().map_or(line, |span| line_at(span.start));
                let text = problem_of(&error);
                findings.push(Finding {
                    line: Some(line),
                    key: Some(name.clone()),
                    text,
                    is_warning: false,
                });
                bad.insert(name, line);
                // What stands below a head that no file has would be settings without it.
                bad.extend(inner.into_iter().map(|key| (key, line)));
            }
        }
    }
    if !broken.is_empty() {
        note_hidden(text, &broken, &parts, bad);
    }
    parts
}

/// Words that may be settings, which were not read: all on a line that is no TOML, and each that begins a line, which may
/// have become part of another value, or was passed over.
fn note_hidden(text: &str, broken: &[usize], parts: &[Part], bad: &mut BTreeMap<String, usize>) {
    for (line, content) in (1..).zip(text.lines()) {
        let words = content.split('#').next().unwrap_or_default();
        let words = words.split(|c: char| !c.is_alphanumeric() && c != '-');
        let words = words.filter(|word| !word.is_empty());
        let count = if broken.contains(&line) { usize::MAX } else { 1 };
        for word in words.take(count) {
            if !parts.iter().any(|part| part.key == word) {
                bad.entry(word.to_owned()).or_insert(line);
            }
        }
    }
}

/// What a node would be started with.
fn config_of(parts: &[Part], host_name: fn() -> String) -> Result<Config, CliError> {
    let all = parts.iter().map(|part| part.settings.clone());
    let mut settings = all.fold(Settings::default(), Settings::or);
    if let Some(level) = settings.log.take() {
        logging::check_level(&level)?;
    }
    settings.threads()?;
    settings.into_config(StartKind::Check, host_name)
}

/// The key without which the error is not there any more; of several, the one that it names. If none is enough, the
/// first that it names.
fn culprit(parts: &[Part], error: &str, host_name: fn() -> String) -> Option<usize> {
    let is_gone = |at: usize| {
        let others = parts.iter().enumerate().filter(|(other, _)| *other != at);
        let others: Vec<Part> = others
            .map(|(_, part)| Part {
                key: part.key.clone(),
                line: part.line,
                settings: part.settings.clone(),
            })
            .collect();
        has_other_error(&others, host_name, error)
    };
    let found: Vec<usize> = (0..parts.len()).filter(|at| is_gone(*at)).collect();
    let is_said = |at: &&usize, before: &str| {
        parts.get(**at).is_some_and(|part| is_named(error, before, &part.key))
    };
    let all: Vec<usize> = (0..parts.len()).collect();
    let named = found.iter().find(|at| is_said(at, "--"));
    let named = named.or_else(|| found.iter().find(|at| is_said(at, "")));
    named.or(found.first()).or_else(|| all.iter().find(|at| is_said(at, "--"))).copied()
}

/// Whether there is no error any more, or another one.
fn has_other_error(parts: &[Part], host_name: fn() -> String, error: &str) -> bool {
    config_of(parts, host_name).err().is_none_or(|other| other.to_string() != error)
}

/// A name of a machine that is good for a node.
fn stand_in() -> String {
    String::from("n")
}

/// Whether an error names a key with this before it, as a whole word.
fn is_named(error: &str, before: &str, key: &str) -> bool {
    let is_of_word = |c: char| c.is_alphanumeric() || c == '-';
    // Lists are named in the singular, as options are.
    [key, key.trim_end_matches('s')].iter().any(|key| {
        let name = format!("{before}{key}");
        error.match_indices(&name).any(|(at, _)| {
            let (ahead, behind) = (error.get(..at), error.get(at + name.len()..));
            !ahead.is_some_and(|ahead| ahead.ends_with(is_of_word))
                && !behind.is_some_and(|behind| behind.starts_with(is_of_word))
        })
    })
}

/// Whether an error names a setting that was left out, as an option or as a line of the file: then it may come of that
/// alone.
fn is_asked_for(error: &str, key: &str) -> bool {
    is_named(error, "--", key) || error.contains(&format!("`{key} = "))
}

/// What the settings refer to. `hides`: not all of the file could be read.
fn look_further(
    config: &Config,
    lines: &BTreeMap<&str, usize>,
    bad: &BTreeMap<String, usize>,
    hides: bool,
    is_json: bool,
    findings: &mut Vec<Finding>,
) {
    let (data, trouble) = data_of(config, is_json);
    let found = rt::block_on(check::check(config, data));
    for problem in trouble.into_iter().chain(found) {
        // It may come of what was left out.
        if problem.keys.iter().any(|key| bad.contains_key(*key)) {
            continue;
        }
        let set = problem.keys.iter().find(|key| lines.contains_key(**key));
        // Or of what could not be read.
        if hides && set.is_none() {
            continue;
        }
        findings.push(Finding {
            line: set.and_then(|key| lines.get(key).copied()),
            key: set.map(|key| (*key).to_owned()),
            text: problem.text,
            is_warning: problem.is_warning,
        });
    }
}

/// What is in the data directory, and what is wrong with it.
fn data_of(config: &Config, is_json: bool) -> (Data, Option<check::Problem>) {
    let Some(DataConfig { dir, discard_damaged, .. }) = &config.data else {
        return (Data::None, None);
    };
    match fs::metadata(dir) {
        Ok(found) if found.is_dir() => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return (Data::None, None),
        // That is told with the other files.
        Ok(_) | Err(_) => return (Data::Unknown, None),
    }
    let error = |text: String| Some(check::Problem::error(&["data-dir", "name", "network"], text));
    let disk = Directory::new(dir);
    if has_left(&disk) {
        // Whosever it is, and in whatever state.
        let text = format!("{}: {LEFT_NOTE}", dir.display());
        return (Data::None, Some(check::Problem::warning(&["data-dir"], text)));
    }
    let refused = |why: StorageError| {
        let refused = NodeError::Storage { dir: dir.clone(), source: Box::new(why) };
        error(refused.to_string())
    };
    match check_identity(&disk).and_then(|()| owner_of(&disk)) {
        Ok(None) => match only_foreign(dir) {
            Ok(Some(names)) => {
                let directory = dir.display().to_string();
                let why = StorageError::Foreign { directory, names };
                (Data::None, error(why.to_string()))
            }
            // What cannot be listed was told already.
            Ok(None) | Err(_) => (Data::None, None),
        },
        Ok(Some(owner)) => {
            let (name, network) = (owner.name.as_str(), owner.network.as_str());
            let is_other = name != config.name.as_str() || network != config.network;
            if is_other {
                let text = format!(
                    "{}: the data is of node {name} in network {network:?}, not of {} in {:?}",
                    dir.display(),
                    config.name,
                    config.network
                );
                // A key file has the network's name in it.
                let keys = &["data-dir", "name", "network", "key"];
                return (Data::Some, Some(check::Problem::error(keys, text)));
            }
            // What it would only warn of, it tells when it starts.
            match read_as_start(dir, &owner, *discard_damaged, is_json) {
                Ok(found) if !found.has_data => (Data::None, None),
                Ok(_) => (Data::Some, None),
                Err(why) => (Data::Some, refused(why)),
            }
        }
        Err(why) => (Data::Unknown, refused(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(Option<usize>, Option<String>)> {
        let findings = check_text(text, true).into_iter();
        let errors = findings.filter(|finding| !finding.is_warning);
        errors.map(|finding| (finding.line, finding.key)).collect()
    }

    fn at(line: usize, key: &str) -> (Option<usize>, Option<String>) {
        (Some(line), Some(key.to_owned()))
    }

    const PORTS: &str = "client = \"127.0.0.1:0\"\ngossip = \"127.0.0.1:0\"\n";

    #[test]
    fn what_is_well_is_not_complained_of() {
        assert_eq!(found(&format!("{PORTS}name = \"n1\"\nfound = true\n")), []);
    }

    #[test]
    fn every_error_is_told_with_its_line_and_key() {
        let text = format!(
            "{PORTS}name = \"n 1\"\nfound = true\nkeep-snapshots = 3\nnmae = \"x\"\nthreads = \"two\"\n\
             ready-wait = \"2h\"\nlog = \"loud\"\n"
        );
        let expected = [
            at(3, "name"),
            at(5, "keep-snapshots"),
            at(6, "nmae"),
            at(7, "threads"),
            at(8, "ready-wait"),
            at(9, "log"),
        ];
        assert_eq!(found(&text), expected);
    }

    #[test]
    fn one_error_hides_none_of_another_setting() {
        let base = format!("{PORTS}name = \"n1\"\nfound = true\n");
        // Two of one kind, and what goes with them.
        let data = "data-dir = \"/proc/no\"\nlog-rotate-bytes = 1\nsnapshot-after = 1\nkeep-snapshots = 0\n";
        let expected = [
            at(5, "data-dir"),
            at(6, "log-rotate-bytes"),
            at(7, "snapshot-after"),
            at(8, "keep-snapshots"),
        ];
        assert_eq!(found(&format!("{base}{data}")), expected);
        // What is wrong itself, and what goes with it.
        let more = "snapshot-schedule = \"never\"\nsnapshot-keep = 0\nhttp = \"x\"\nhttp-names = [\"a b\"]\n\
                    cert = \"/no/cert\"\nclient-plaintext = [\"x\"]\n";
        let expected = [
            at(5, "snapshot-schedule"),
            at(6, "snapshot-keep"),
            at(7, "http"),
            at(8, "http-names"),
            at(9, "cert"),
            at(10, "client-plaintext"),
        ];
        assert_eq!(found(&format!("{base}{more}")), expected);
        // All of a list.
        let findings =
            check_text(&format!("{base}peers = [\"a:x\", \"127.0.0.1:1\", \"b:y\"]\n"), true);
        assert!(findings.len() == 1, "{findings:?}");
        let text = &findings[0].text;
        assert!(text.contains("a:x") && text.contains("b:y"), "{text}");
    }

    #[test]
    fn a_line_that_is_no_toml_hides_no_other() {
        let text = format!("{PORTS}found = true\nname = \nmax-connections = 0\n");
        assert_eq!(found(&text), [(Some(4), None), at(5, "max-connections")]);
    }

    #[test]
    fn nothing_follows_from_a_line_that_cannot_be_read() {
        let base = format!("{PORTS}name = \"n1\"\n");
        let line = |line| vec![(Some(line), None)];
        for bad in
            ["found true", "found", "[found", "name = \"n2\" found = true", "this is no TOML"]
        {
            assert_eq!(found(&format!("{base}{bad}\n")), line(4), "{bad}");
        }
        let section = format!("{base}[section]\nfound = true\n");
        assert_eq!(found(&section), [at(4, "section")]);
        // It would be the key of the port, or the file that goes with the other setting.
        let open =
            "name = \"n1\"\nfound = true\ngossip = \"0.0.0.0:0\"\nclient = \"127.0.0.1:0\"\n";
        assert_eq!(found(&format!("{open}key /etc/key\n")), line(5));
        let http = format!("{base}found = true\nhttp = \"127.0.0.1:0\"\nhttp-write = true\n");
        assert_eq!(found(&format!("{http}http-token-file \"/x\"\n")), line(7));
        // What came after it became part of the value.
        for list in ["peers = [\"127.0.0.1:3\",", "peers = [\"127.0.0.1:3\""] {
            let text = format!("{base}{list}\nmax-connections = 5\nlog = \"info\"\n");
            assert_eq!(found(&text).len(), 1, "{list}: {:?}", found(&text));
        }
        let text = format!("{base}peers = \"\"\"a\nfound = true\n");
        assert_eq!(found(&text).len(), 1, "{:?}", found(&text));
        // What is wrong elsewhere is told all the same.
        let text = format!("{base}max-connections = 0\nfound true\n");
        assert_eq!(found(&text), [at(4, "max-connections"), (Some(5), None)]);
    }

    #[test]
    fn of_an_address_of_another_machine_the_port_is_told_and_what_to_do() {
        let text = "client = \"192.0.2.1:5001\"\ngossip = \"192.0.2.1:5002\"\nhttp = \"192.0.2.1:5003\"\nname = \"n1\"\n\
                    found = true\ninsecure = true\n";
        let findings = check_text(text, true);
        assert_eq!(findings.len(), 3, "{findings:?}");
        for (finding, port) in findings.iter().zip(5001..) {
            let text = &finding.text;
            assert!(text.contains(&format!("192.0.2.1:{port} ")), "{text}");
            assert!(text.contains("give an address of this machine"), "{text}");
        }
    }

    #[test]
    fn a_peer_file_without_a_directory_is_refused_and_one_that_cannot_be_written_is_warned_of() {
        let folder = tempfile::tempdir().unwrap();
        let of = |path: &std::path::Path, more: &str| {
            let path = path.display();
            let text =
                format!("{PORTS}name = \"n1\"\nfound = true\npeer-file = \"{path}\"\n{more}");
            check_text(&text, true)
        };
        assert_eq!(of(&folder.path().join("peers"), ""), []);
        let findings = of(&folder.path().join("none/peers"), "");
        assert_eq!(findings.len(), 1, "{findings:?}");
        let Finding { line, key, text, is_warning } = &findings[0];
        assert_eq!((*line, key.as_deref(), *is_warning), (Some(5), Some("peer-file"), false));
        assert!(text.contains("directory is not there") && text.contains("none"), "{text}");
        let findings = of(std::path::Path::new("/proc/peers"), "");
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].is_warning && findings[0].text.contains("cannot be written"));
        // It is made with the data directory.
        let data = format!("data-dir = \"{}\"\n", folder.path().join("none").display());
        assert_eq!(of(&folder.path().join("none/peers"), &data), []);
    }

    #[test]
    fn nothing_follows_from_a_key_that_was_left_out() {
        // Without its key, the port would be unprotected.
        let text = "found = true\nname = \"n1\"\nkey = \"/nowhere/key\"\ngossip = \"0.0.0.0:0\"\n";
        assert_eq!(found(text), [at(3, "key")]);
    }

    #[test]
    fn an_error_is_of_the_setting_that_it_names_and_others_that_ask_for_that_say_nothing() {
        let base = format!("{PORTS}name = \"n1\"\nfound = true\n");
        let http = format!("{base}http = \"127.0.0.1:0\"\nhttp-write = true\n");
        let token = "http-token-file = \"/no/such/token\"\n";
        assert_eq!(found(&format!("{http}{token}")), [at(7, "http-token-file")]);
        assert_eq!(found(&http), [at(6, "http-write")]);
        // Either needs what is not there; one of them says so, and the rest is checked.
        let text = format!("{base}http-write = true\n{token}audit = \"/no/such/audit\"\n");
        assert_eq!(found(&text), [at(6, "http-token-file"), at(7, "audit")]);
        // It would need the directory that is not read.
        let text = format!("{base}snapshot-dir = 5\nsnapshot-schedule = \"daily 03:00\"\n");
        assert_eq!(found(&text), [at(5, "snapshot-dir")]);
        let text = format!("{PORTS}name = \"n1\"\nfound = 5\ninit = 5\n");
        assert_eq!(found(&text), [at(4, "found")]);
    }

    #[test]
    fn a_setting_is_named_by_whole_words_only() {
        let error = "--http-write and --http-token-file go together";
        assert!(is_named(error, "--", "http-write") && !is_named(error, "--", "http"));
        assert!(
            is_named("peer: x", "", "peers") && is_named("--max-requests: x", "--", "max-requests")
        );
        assert!(!is_named("a snapshot", "", "snap") && !is_named("keys", "", "key"));
    }

    #[test]
    fn what_is_wrong_with_a_network_s_name_is_said() {
        let findings =
            check_text(&format!("{PORTS}name = \"n1\"\nnetwork = \"a\\tb\"\nfound = true\n"), true);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].text.contains(r"contains '\t'"), "{}", findings[0].text);
    }

    #[test]
    fn a_node_that_would_have_nothing_to_start_with_is_told_of() {
        assert_eq!(found(&format!("{PORTS}name = \"n1\"\n")), [(None, None)]);
    }

    #[test]
    fn ports_of_which_a_node_could_open_one_only_are_told_of() {
        let text = "client = \"127.0.0.1:5001\"\ngossip = \"127.0.0.1:5001\"\nname = \"n1\"\nfound = true\n";
        assert_eq!(found(text), [at(1, "client")]);
        let http = text.replace("gossip = \"127.0.0.1:5001", "http = \"127.0.0.1:5001");
        assert_eq!(found(&http), [at(2, "http")]);
        assert_eq!(found(&text.replacen("5001", "5002", 1)), []);
        // One of all addresses takes those of its kind, and that of IPv6 takes both.
        let both = |client: &str, gossip: &str| {
            let text = text.replacen("127.0.0.1", client, 1).replacen("127.0.0.1", gossip, 1);
            found(&format!("{text}insecure = true\n"))
        };
        for (client, gossip) in [("0.0.0.0", "127.0.0.1"), ("127.0.0.1", "[::]")] {
            assert_eq!(both(client, gossip), [at(1, "client")], "{client} {gossip}");
        }
        for (client, gossip) in [("0.0.0.0", "[::1]"), ("[::1]", "0.0.0.0")] {
            assert_eq!(both(client, gossip), [], "{client} {gossip}");
        }
    }
}
