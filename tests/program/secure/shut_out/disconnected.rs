//! An admin ends the open connections of a user at all nodes, by the command: with the user's secret as it is, and with another one.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use distkv::client::{Access, Connection, Fields, HostPort, Options};
use distkv::rt;
use distkv::testing::PATIENCE;

use crate::http::asking::{Events, ask};
use crate::processes::{NodeProcess, PROGRAM, wait_until};
use crate::secure::{Keys, program, wait_for_links};

/// Two nodes with a key, and the file with the ticket of a user at the second one.
struct Place {
    keys: Keys,
    key: String,
    nodes: [NodeProcess; 2],
    file: String,
}

impl Place {
    fn start() -> Self {
        let keys = Keys::new();
        let (key, _) = keys.make("key");
        let audit = keys.path("audit.log");
        let first = keys.run("n1", &["--key", &key, "--audit", &audit]);
        let second = keys.join("n2", &first, &["--key", &key, "--http", "127.0.0.1:0"]);
        let nodes = [first, second];
        wait_for_links(&nodes.each_ref(), true);
        let file = keys.path("joe.ticket");
        let place = Self { keys, key, nodes, file };
        place.as_admin(&["acl", "set", "site", "site", "rxen"]);
        place.as_admin(&["acl", "set", "site", "site.#", "rwcdxen"]);
        place.as_admin(&["user", "add", "joe", "--method", "token", "--acl", "site"]);
        place.new_ticket(&[]);
        place
    }

    /// What a command of an admin at the first node says.
    fn as_admin(&self, arguments: &[&str]) -> String {
        let address = self.nodes[0].client.to_string();
        let own = ["--connect", &address, "--key", &self.key];
        let (code, said) = program(&[arguments, &own[..]].concat());
        assert_eq!(code, Some(0), "{said}");
        said
    }

    fn new_ticket(&self, more: &[&str]) -> String {
        let address = self.nodes[1].client.to_string();
        let to = ["user", "ticket", "joe", "--to", &self.file, "--force", "--address", &address];
        self.as_admin(&[&to[..], more].concat())
    }

    /// The text in the ticket's file.
    fn ticket(&self) -> String {
        fs::read_to_string(&self.file).unwrap().trim().to_owned()
    }

    /// Who has this ticket, at the second node, once that knows of it.
    fn visit(&self, ticket: &str) -> Visit {
        let access = Access::of_ticket(&ticket.parse().unwrap()).unwrap();
        let to = HostPort::from(self.nodes[1].client);
        let idle = wait_until("the ticket lets its user in", || {
            let options = Options { access: access.clone(), ..Options::default() };
            rt::block_on(Connection::connect(&to, options)).ok()
        });
        let http =
            ask(self.nodes[1].http.unwrap(), "GET", "/v1/kv/site?watch&fetch").bearer(ticket);
        let mut stream = http.events();
        while stream.next().expect("it begins").0 != "uptodate" {}
        Visit { idle, stream }
    }

    fn http_status(&self, ticket: &str) -> u16 {
        let http = ask(self.nodes[1].http.unwrap(), "GET", "/v1/kv/site/lamp").bearer(ticket);
        http.send().status
    }
}

/// An idle connection, and a stream by HTTP.
struct Visit {
    idle: Connection,
    stream: Events,
}

impl Visit {
    /// Both are told why they end.
    fn expect_ended(mut self) {
        let ended = rt::block_on(rt::timeout(PATIENCE, self.idle.closed())).expect("it ends");
        assert!(ended.to_string().contains("log in again"), "{ended}");
        let last = self.stream.expect("failed");
        assert_eq!(last["code"], "auth_required", "{last}");
        assert_eq!(self.stream.next(), None);
    }
}

/// `watch`, with the lines that it prints.
struct Watch {
    child: Child,
    lines: Receiver<String>,
}

impl Watch {
    fn start(ticket: &str) -> Self {
        let mut command = Command::new(PROGRAM);
        command.args(["watch", "site", "--fetch", "--json", "--ticket", ticket]);
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let out: ChildStdout = child.stdout.take().unwrap();
        let (to, lines) = channel();
        thread::spawn(move || {
            BufReader::new(out).lines().map_while(Result::ok).all(|line| to.send(line).is_ok())
        });
        Self { child, lines }
    }

    fn sees(&self, word: &str) {
        while !self.lines.recv_timeout(PATIENCE).expect("it goes on").contains(word) {}
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A thief with joe's token, who sets other tokens at the second node all the time. Gives why it could not go on.
fn change_all_the_time(to: &HostPort, access: Access) -> thread::JoinHandle<String> {
    let options = Options { access, ..Options::default() };
    let thief = wait_until("the thief is let in", || {
        rt::block_on(Connection::connect(to, options.clone())).ok()
    });
    thread::spawn(move || {
        for n in 0_u64.. {
            let mut change = Fields::new();
            change.str("typ", "token").str("ident", "joe").str("secret", &format!("{n:040}"));
            match rt::block_on(thief.request("auth_set", &change)) {
                Err(error) if error.server().is_none() => return error.to_string(),
                Err(error) if error.server().unwrap().code.as_deref() == Some("auth_required") => {
                    return error.to_string();
                }
                _ => {}
            }
        }
        unreachable!("it goes on for ever")
    })
}

#[test]
fn a_thief_who_changes_the_secret_at_another_node_all_the_time_is_out_with_one_command() {
    let place = Place::start();
    let second = HostPort::from(place.nodes[1].client);
    for n in 0..6 {
        let access = || Access::of_ticket(&place.ticket().parse().unwrap()).unwrap();
        let thief = change_all_the_time(&second, access());
        let said = place.new_ticket(&["--disconnect"]);
        assert!(said.contains("joe.ticket; its open connections are ended"), "{n}: {said}");
        let ended = thief.join().unwrap();
        assert!(ended.contains("log in again") || ended.contains("lost"), "{n}: {ended}");
        // Of the tokens, the command's is the one that counts.
        let options = Options { access: access(), ..Options::default() };
        wait_until("the new ticket lets its user in", || {
            rt::block_on(Connection::connect(&second, options.clone())).ok()
        });
    }
}

#[test]
fn who_has_a_stolen_ticket_is_out_everywhere_with_one_command_and_others_log_in_again() {
    let place = Place::start();
    let stolen = place.ticket();
    place.as_admin(&["set", "site.lamp", "\"first\""]);
    let mut thief = place.visit(&stolen);
    let watch = Watch::start(&stolen);
    watch.sees("first");

    // Without another secret: all have to log in again, and do.
    let said = place.as_admin(&["user", "disconnect", "joe"]);
    assert_eq!(said, "joe (token): its open connections are ended\n");
    thief.expect_ended();
    place.as_admin(&["set", "site.lamp", "\"second\""]);
    watch.sees("second");
    thief = place.visit(&stolen);

    // With another one: nobody with the old one comes back.
    let said = place.new_ticket(&["--disconnect"]);
    assert!(said.contains("joe.ticket; its open connections are ended"), "{said}");
    thief.expect_ended();
    let mut watch = watch;
    let code = wait_until("the watch of the thief ends", || watch.child.try_wait().unwrap());
    assert_eq!(code.code(), Some(3));
    assert_eq!(place.http_status(&stolen), 401);
    let own = place.visit(&place.ticket());
    rt::block_on(own.idle.request("get_tock", &Fields::new())).unwrap();
    assert_eq!(place.http_status(&place.ticket()), 200);

    let audit = place.keys.path("audit.log");
    let lines = || fs::read_to_string(&audit).unwrap();
    for detail in ["method token, connections ended", "method token, new secret, connections ended"]
    {
        let is_told = |line: &str| {
            ["\"action\":\"auth_disconnect\"", "\"target\":\"joe\"", "\"outcome\":\"done\""]
                .iter()
                .all(|field| line.contains(field))
                && line.contains(&format!("\"detail\":\"{detail}\""))
        };
        wait_until("the audit log tells", || lines().lines().any(is_told).then_some(()));
    }
}

/// `--disconnect` ends the connections before the new ticket is in its file, so a watch that connects again looks for it for a
/// second, as every client whose ticket a node had taken.
#[test]
fn a_watch_whose_connection_is_ended_waits_for_another_ticket_in_its_file() {
    let place = Place::start();
    place.as_admin(&["set", "site.lamp", "\"first\""]);
    let mut watch = Watch::start(&format!("@{}", place.file));
    watch.sees("first");
    // Once more: it has connected again by then.
    for n in 0..2 {
        place.as_admin(&["user", "disconnect", "joe"]);
        place.as_admin(&["set", "site.lamp", &format!("\"after {n}\"")]);
        watch.sees(&format!("after {n}"));
    }
    let began = Instant::now();
    // The new secret never comes into the file.
    place.as_admin(&["user", "token", "joe", "--disconnect"]);
    let ended = wait_until("the watch ends", || watch.child.try_wait().unwrap());
    let took = began.elapsed();
    assert!(ended.code() == Some(3) && took >= Duration::from_secs(1), "{ended} after {took:?}");
}

#[test]
fn users_end_their_own_connections_and_those_of_nobody_else() {
    let place = Place::start();
    let (old, new) = (place.keys.path("old"), place.keys.path("new"));
    place.as_admin(&["user", "add", "amy", "--acl", "site", "--new-secret-file", &old]);
    let address = place.nodes[0].client.to_string();
    let as_amy = |arguments: &[&str], secret: &str| {
        let own = ["--connect", &*address, "--user", "amy", "--secret-file", secret];
        program(&[arguments, &own[..]].concat())
    };
    // How amy logs in, the node knows; an admin is asked only if there are several of that name. Whether the change stands
    // everywhere, amy may not see.
    let (code, said) = as_amy(&["user", "disconnect", "amy"], &old);
    let ended = "amy (password): its open connections are ended at n1, and end at the others as";
    assert!(code == Some(0) && said.starts_with(ended), "{said}");
    let (code, said) = as_amy(&["user", "disconnect", "joe"], &old);
    assert_eq!(code, Some(3), "{said}");
    let password = ["user", "password", "amy", "--disconnect", "--new-secret-file", &new, "--json"];
    let (code, said) = as_amy(&password, &old);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("\"changed\":true") && said.contains("\"disconnected\":true"), "{said}");
    assert_eq!(as_amy(&["whoami"], &old).0, Some(3));
    assert_eq!(as_amy(&["whoami"], &new).0, Some(0));

    let said = place.as_admin(&["user", "token", "joe", "--disconnect"]);
    assert!(
        said.starts_with("joe (token) has a new token; its open connections are ended; "),
        "{said}"
    );
    let token = place.keys.path("token");
    fs::write(&token, said.lines().last().unwrap()).unwrap();
    let as_joe = ["--user", "joe", "--login", "token", "--secret-file", &token];
    let (code, said) = program(&[&["whoami", "--connect", &address], &as_joe[..]].concat());
    assert_eq!(code, Some(0), "{said}");
    let admin = ["--connect", &address, "--key", &place.key];
    let (code, said) = program(&[&["user", "disconnect", "nobody"], &admin[..]].concat());
    assert!(code == Some(1) && said.contains("there is no user \"nobody\""), "{said}");
}
