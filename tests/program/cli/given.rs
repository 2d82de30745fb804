//! What a command is given to log in with: it may come out of a pipe, so it is read once; and a file may be replaced while
//! the command runs, so it is read anew.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStderr, ChildStdout, Command};

use serde_json::Value as Json;

use crate::cli::command::{Done, note, program, run};
use crate::processes::{NodeProcess, PROGRAM};

const SECRET: &str = "geheim12";

/// A node at which clients must log in, as "boss" with [`SECRET`]. It keeps its data, so it can be started again.
struct Place {
    folder: tempfile::TempDir,
    node: NodeProcess,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let first = NodeProcess::run("n1");
        let (client, gossip, network) = (first.client, first.gossip, first.network.clone());
        drop(first);
        let node = Self::start(&folder, &network, [client, gossip].map(|at| at.to_string()));
        let place = Place { folder, node };
        fs::write(place.path("secret"), SECRET).unwrap();
        let secret = place.path("secret");
        place.ok(&["user", "add", "boss", "--new-secret-file", &secret], &[]);
        place.ok(&["user", "add", "robot", "--method", "token", "--role", "operator"], &[]);
        place.ok(&["user", "acl", "robot", "*"], &[]);
        place.ok(&["auth", "on", "password"], &[]);
        place
    }

    fn start(
        folder: &tempfile::TempDir,
        network: &str,
        [client, gossip]: [String; 2],
    ) -> NodeProcess {
        let data = folder.path().join("data");
        let data = data.to_str().unwrap();
        let own = ["run", "--peer-wait", "0s", "--client", &client, "--gossip", &gossip];
        let sync = ["--data-dir", data, "--sync", "every-batch"];
        NodeProcess::start_in(network, "n1", &[&own[..], &sync].concat())
    }

    /// The node is killed, and started where it was.
    fn restart(&mut self) {
        self.node.kill();
        let at = [self.node.client, self.node.gossip].map(|at| at.to_string());
        self.node = Self::start(&self.folder, &self.node.network, at);
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn address(&self) -> String {
        self.node.client.to_string()
    }

    /// Standard input has the secret.
    fn run(&self, arguments: &[&str], more: &[&str]) -> Done {
        let at = ["--connect", &self.address()];
        run(&[arguments, more, &at].concat(), &[("EDITOR", "sed -i s/5/6/")], SECRET.as_bytes())
    }

    fn ok(&self, arguments: &[&str], more: &[&str]) -> String {
        let done = self.run(arguments, more);
        assert_eq!(done.code, 0, "{arguments:?}: {}", done.stderr);
        done.stdout
    }
}

/// A watch, line by line. It is killed when this is dropped.
struct Watch {
    child: Child,
    lines: BufReader<ChildStdout>,
    said: BufReader<ChildStderr>,
}

impl Watch {
    fn of(mut command: Command) -> Watch {
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let said = BufReader::new(child.stderr.take().unwrap());
        let mut watch = Watch { child, lines, said };
        watch.heard("watching a at ");
        watch
    }

    /// The next line on standard error has this.
    fn heard(&mut self, what: &str) {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        assert!(line.contains(what), "{line}");
        assert!(!note(&line).is_empty());
    }

    fn value(&mut self) -> Json {
        let mut line = String::new();
        assert_ne!(self.lines.read_line(&mut line).unwrap(), 0, "it has ended");
        let line: Json = serde_json::from_str(&line).unwrap();
        line["value"].clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_secret_that_can_be_read_only_once_is_enough_for_commands_that_connect_twice() {
    let place = Place::new();
    for by in ["-", "/dev/stdin"] {
        let as_boss = ["--user", "boss", "--secret-file", by];
        let ok = |arguments: &[&str]| place.ok(arguments, &as_boss);
        ok(&["set", "a", "5"]);
        let top = ok(&["top", "--once", "--json", "--timeout", "60s"]);
        assert!(top.contains("\"answers\":true"), "{top}");
        ok(&["conflicts", "--all"]);
        ok(&["cp", "a", "b", "--force"]);
        ok(&["mv", "b", "c", "--force"]);
        ok(&["edit", "a"]);
        assert_eq!(ok(&["get", "a"]), "6\n");
        // Nobody can say where the secret ends and the value begins.
        for arguments in [
            &["set", "d", "--string", "-"][..],
            &["set", "d", "--raw-file", "/dev/stdin"],
            &["import", "-"],
            &["import", "/dev/stdin"],
            &["apply", "-"],
            &["apply", "/dev/stdin", "--delete", "--allow-empty"],
            &["diff", "/dev/fd/0"],
        ] {
            let done = place.run(arguments, &as_boss);
            assert_ne!(done.code, 0, "{arguments:?}: {}", done.stdout);
            assert!(done.stderr.contains("standard input"), "{arguments:?}: {}", done.stderr);
        }
        assert_eq!(place.run(&["get", "d"], &as_boss).code, 1);
        assert_eq!(ok(&["get", "a"]), "6\n");
        let own = ["user", "password", "boss", "--new-secret-file", "-"];
        let done = place.run(&own, &as_boss);
        assert_eq!(done.code, 2, "{}", done.stdout);
        assert!(done.stderr.contains("standard input"), "{}", done.stderr);
    }
}

#[test]
fn a_secret_s_file_that_is_standard_input_is_not_the_value_besides() {
    let place = Place::new();
    let script = "exec \"$0\" set d --connect \"$1\" --user boss --secret-file /dev/stdin \"$2\" \"$3\" <\"$4\"";
    for (option, value) in [("--string", "-"), ("--raw-file", "/dev/stdin")] {
        let mut bash = Command::new("bash");
        bash.args(["-c", script, PROGRAM, &place.address(), option, value, &place.path("secret")]);
        let done = bash.output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert!(!done.status.success() && said.contains("standard input was read"), "{said}");
        let as_boss = ["--user", "boss", "--secret-file", "-"];
        assert_eq!(place.run(&["get", "d"], &as_boss).code, 1);
    }
}

#[test]
fn a_watch_with_a_secret_out_of_a_pipe_goes_on_when_its_node_is_restarted() {
    let mut place = Place::new();
    let script = "exec \"$0\" watch a --json --connect \"$1\" --user boss --secret-file <(printf '%s' \"$2\")";
    let mut bash = Command::new("bash");
    bash.args(["-c", script, PROGRAM, &place.address(), SECRET]);
    bash.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut watch = Watch::of(bash);
    place.restart();
    watch.heard("connecting again");
    watch.heard("again: what changed meanwhile follows");
    place.ok(&["set", "a", "7"], &["--user", "boss", "--secret-file", "-"]);
    assert_eq!(watch.value(), 7);
}

#[test]
fn a_ticket_may_come_out_of_standard_input() {
    let place = Place::new();
    let (to, as_boss) = (place.path("ticket"), ["--user", "boss", "--secret-file", "-"]);
    place.ok(&["user", "ticket", "robot", "--to", &to], &as_boss);
    let ticket = fs::read(&to).unwrap();
    for by in ["@-", "@/dev/stdin"] {
        let top = ["top", "--once", "--json", "--timeout", "60s", "--ticket", by];
        let done = run(&top, &[], &ticket);
        assert!(done.code == 0 && done.stdout.contains("\"answers\":true"), "{}", done.stderr);
    }
}

#[test]
fn a_watch_heeds_a_ticket_s_file_that_was_replaced() {
    let mut place = Place::new();
    let (to, as_boss) = (place.path("ticket"), ["--user", "boss", "--secret-file", "-"]);
    let renew = |place: &Place| {
        place.ok(&["user", "ticket", "robot", "--to", &to, "--force"], &as_boss);
    };
    renew(&place);
    let ticket = format!("@{to}");
    let watching = program(&["watch", "a", "--json", "--ticket", &ticket]);
    let mut watch = Watch::of(watching);
    // From here on the ticket before is of no use.
    renew(&place);
    place.restart();
    watch.heard("connecting again");
    watch.heard("again: what changed meanwhile follows");
    place.ok(&["set", "a", "7"], &as_boss);
    assert_eq!(watch.value(), 7);
    // One that cannot be read says nothing new.
    fs::write(&to, "half of a tick").unwrap();
    place.restart();
    watch.heard("connecting again");
    watch.heard("again: what changed meanwhile follows");
    // What was told so far says nothing of another network.
    let other = run(&["ticket", "new", &place.address(), "--network", "other"], &[], b"").stdout;
    fs::write(&to, other).unwrap();
    place.restart();
    watch.heard("connecting again");
    let mut rest = String::new();
    watch.said.read_to_string(&mut rest).unwrap();
    assert_eq!(watch.child.wait().unwrap().code(), Some(2), "{rest}");
    assert!(rest.contains("the ticket is of the network \\\"other\\\" by now"), "{rest}");
}

/// What a usage error tells programs to type instead; null if it says nothing.
fn tip_of(done: &Done) -> Json {
    let error: Json = serde_json::from_str(&done.stderr).unwrap_or_else(|_| panic!("{done:?}"));
    assert_eq!((done.code, &error["outcome"]), (2, &"usage".into()), "{done:?}");
    assert!(error.get("tip") != Some(&Json::Null), "{done:?}");
    error["tip"].clone()
}

#[test]
fn a_tip_is_a_field_for_programs_where_people_get_one() {
    for (typed, expected) in [
        ("memberz --json", Json::from("a similar subcommand exists: 'members'")),
        ("snapshot save --format jsnl --json", "a similar value exists: 'jsonl'".into()),
        ("bench --conn n1 --json", "a similar argument exists: '--connect'".into()),
        (
            "get -dash --json",
            "to pass '-dash' as a value, use '-- -dash' behind all options".into(),
        ),
        // Nothing is like it, or the text itself says it all.
        ("get --json", Json::Null),
        ("status a --json", Json::Null),
        ("get a --timeout x --json", Json::Null),
        ("keys --json", Json::Null),
    ] {
        let words: Vec<&str> = typed.split(' ').collect();
        let done = run(&words, &[], b"");
        assert_eq!(tip_of(&done), expected, "{typed}: {done:?}");
        let people: Vec<&str> = words.into_iter().filter(|word| *word != "--json").collect();
        let said = run(&people, &[], b"").stderr;
        let tip = said.lines().find_map(|line| line.trim_start().strip_prefix("tip: "));
        assert_eq!(tip, expected.as_str(), "{typed}: {said}");
    }
}

/// The tip was `-- -x.dkv`, which is no option's value.
#[test]
fn of_an_option_whose_value_looks_like_an_option_the_tip_is_what_works() {
    for (typed, tip) in [
        ("snapshot save --to -x.dkv", "--to=-x.dkv"),
        ("snapshot save --to -x", "--to=-x"),
        ("snapshot save --to --x", "--to=--x"),
        ("set a --raw-file -x", "--raw-file=-x"),
        ("undo --below a --at -5m", "--at=-5m"),
        ("import f --below -q", "--below=-q"),
        ("import f --below -quiet", "--below=-quiet"),
        ("tree --max-depth -1", "--max-depth=-1"),
        ("user add joe --role -r", "--role=-r"),
        ("user --connect -n1 list", "--connect=-n1"),
        ("--connect -n1 get a", "--connect=-n1"),
        // The first letter is an option.
        ("get a --connect -host", "--connect=-host"),
        ("snapshot save --to -nightly", "--to=-nightly"),
    ] {
        let words: Vec<&str> = typed.split(' ').collect();
        let done = run(&words, &[], b"");
        assert_eq!(done.code, 2, "{done:?}");
        assert!(done.stderr.contains(&format!(" use '{tip}'\n")), "{typed}: {}", done.stderr);
        let tip_for_programs = tip_of(&run(&[&words[..], &["--json"]].concat(), &[], b""));
        assert!(tip_for_programs.as_str().unwrap().ends_with(&format!(" use '{tip}'")), "{typed}");
    }
    // An option that has no value.
    for typed in ["get a --chain -dash", "get -dash"] {
        let done = run(&typed.split(' ').collect::<Vec<_>>(), &[], b"");
        assert!(done.stderr.contains("use '-- -dash'"), "{}", done.stderr);
    }
    // The tip is what works.
    let folder = tempfile::tempdir().unwrap();
    let node = NodeProcess::run("n1");
    let mut save = program(&["snapshot", "save", "--to=-x.dkv"]);
    save.args(["--connect", &node.client.to_string()]).current_dir(&folder);
    assert!(save.output().unwrap().status.success());
    assert!(folder.path().join("-x.dkv").is_file());
}

/// The command that was advised took the name for an option.
#[test]
fn a_file_whose_name_begins_like_an_option_is_advised_so_that_it_can_be_typed() {
    let folder = tempfile::tempdir().unwrap();
    let node = NodeProcess::run("n1");
    let connect = node.client.to_string();
    let here = |arguments: &[&str]| {
        let done = program(arguments).current_dir(&folder).output().unwrap();
        let [out, said] = [done.stdout, done.stderr].map(|it| String::from_utf8(it).unwrap());
        (done.status.code(), out, said)
    };
    let (code, out, said) = here(&["key", "new", "--network", "plant", "--to=-x.key"]);
    assert!(code == Some(0) && out.ends_with("--key ./-x.key\n"), "{out}{said}");
    assert!(out.contains("is in -x.key\n"), "{out}");

    set(&node, "1");
    let save = ["snapshot", "save", "--to=-x.dkv", "--connect", &connect];
    assert_eq!(here(&save).0, Some(0));
    set(&node, "2");
    let (code, out, _) = here(&["snapshot", "restore", "--connect", &connect, "--", "-x.dkv"]);
    let advised = "`distkv-node snapshot convert ./-x.dkv --to - --format jsonl --below PATH | ";
    assert!(code == Some(0) && out.contains(advised), "{out}");
    let convert = ["snapshot", "convert", "./-x.dkv", "--to", "-", "--format", "jsonl"];
    let (code, lines, said) = here(&convert);
    assert!(code == Some(0) && lines.contains("\"a\""), "{lines}{said}");

    // A tip names a file like that, too, where one is meant.
    for typed in ["snapshot convert -x.dkv --to y", "snapshot inspect -x.dkv", "import -x.jsonl"] {
        let words: Vec<&str> = typed.split(' ').collect();
        let name = words.iter().find(|word| word.starts_with("-x")).unwrap();
        let said = here(&words).2;
        assert!(
            said.contains(&format!("tip: to name the file '{name}', type './{name}'")),
            "{said}"
        );
    }
}

fn set(node: &NodeProcess, value: &str) {
    crate::cli::command::ok(node, &["set", "a", value]);
}
