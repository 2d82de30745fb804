//! Programs that have their ticket in a file go on when their secret is replaced there.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use distkv::client::smart::{WatchEvent, WatchOptions};
use distkv::client::{CallError, Client, ClientConfig, PoolConfig, RetryPolicy};
use distkv::model::path::Path;
use distkv::rt;
use distkv::testing::{PATIENCE, block_on};
use futures::future::join_all;

use super::{Keys, program};
use crate::processes::{NodeProcess, PROGRAM};

fn path() -> Path {
    "site.lamp".parse().unwrap()
}

/// A node with a key, which can be started again where it was, and the file with the ticket of its one user.
struct Place {
    keys: Keys,
    node: NodeProcess,
    options: Vec<String>,
    key: String,
    file: String,
}

impl Place {
    fn start() -> Place {
        let keys = Keys::new();
        let (key, _) = keys.make("key");
        let own = ["--key", &key, "--data-dir", &keys.path("data")].map(str::to_owned);
        let node = keys.run("n1", &own.each_ref().map(String::as_str));
        let [client, gossip] = [node.client.to_string(), node.gossip.to_string()];
        let at = ["run", "--peer-wait", "0s", "--client", &client, "--gossip", &gossip];
        let options = at.map(str::to_owned).into_iter().chain(own).collect();
        let file = keys.path("joe.ticket");
        let place = Place { keys, node, options, key, file };
        place.as_admin(&["acl", "set", "site", "site", "xen"]);
        place.as_admin(&["acl", "set", "site", "site.#", "rwcdxen"]);
        place.as_admin(&["user", "add", "joe", "--method", "token", "--acl", "site"]);
        place.replace();
        place
    }

    fn as_admin(&self, arguments: &[&str]) {
        let address = self.node.client.to_string();
        let own = ["--connect", &address, "--key", &self.key];
        let (code, said) = program(&[arguments, &own[..]].concat());
        assert_eq!(code, Some(0), "{said}");
    }

    /// Gives the user a new secret, and writes it into the file.
    fn replace(&self) {
        self.as_admin(&["user", "ticket", "joe", "--to", &self.file, "--force"]);
    }

    fn restart(&mut self) {
        // In order, so that it knows what was changed last.
        self.node.signal("TERM");
        self.node.wait();
        let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        self.node = NodeProcess::start_in(&self.keys.network, "n1", &options);
    }

    async fn connect(&self) -> Client {
        // A failure is hardly remembered, and a restart takes its time.
        let memory = Duration::from_millis(1);
        let (failure_memory, failure_memory_max) = (memory, memory);
        let pool = PoolConfig { failure_memory, failure_memory_max, ..PoolConfig::default() };
        let retry = RetryPolicy { total_deadline: PATIENCE, ..RetryPolicy::default() };
        let config = ClientConfig::new().pool(pool).retry(retry).connect_deadline(PATIENCE);
        Client::connect_with_ticket_file(&self.file, config).await.unwrap()
    }
}

#[test]
fn a_secret_that_is_replaced_in_its_file_is_taken_once_the_node_refuses_the_old_one() {
    block_on(async {
        let mut place = Place::start();
        let client = place.connect().await;
        client.put(&path(), &1).await.unwrap();
        let mut watch = client.watch(&path(), WatchOptions::default()).await.unwrap();
        assert_eq!(watch.next().await.unwrap(), WatchEvent::UpToDate);
        place.replace();
        // What is open stays.
        client.put(&path(), &2).await.unwrap();
        place.restart();
        client.put(&path(), &3).await.unwrap();
        let sees = async {
            while !matches!(watch.next().await.unwrap(), WatchEvent::Change(change) if change.get() == Ok(Some(3)))
            {
            }
        };
        rt::timeout(PATIENCE, sees).await.expect("the watch does not go on");
        // Of half a file nothing is taken.
        place.replace();
        let whole = fs::read(&place.file).unwrap();
        fs::write(&place.file, &whole[..whole.len() / 2]).unwrap();
        place.restart();
        let error = client.get::<i64>(&path()).await.unwrap_err();
        assert!(matches!(error, CallError::NoAccess { .. }), "{error}");
        fs::write(&place.file, &whole).unwrap();
        let lets_in = async {
            while client.get::<i64>(&path()).await.is_err() {
                rt::sleep(Duration::from_millis(20)).await;
            }
        };
        rt::timeout(PATIENCE, lets_in).await.expect("it is not let in any more");
        client.close().await;
        assert_eq!(client.stats().tasks, 0);
    });
}

/// As many as use one ticket: more than a node lets guess.
const CROWD: usize = 12;

#[test]
fn all_who_have_the_same_file_go_on_though_the_node_makes_logins_with_the_old_secret_wait() {
    block_on(async {
        let mut place = Place::start();
        let clients = join_all((0..CROWD).map(|_| place.connect())).await;
        for client in &clients {
            client.put(&path(), &1).await.unwrap();
        }
        place.replace();
        place.restart();
        let at = path();
        let calls = clients.iter().map(|client| client.get::<i64>(&at));
        for found in join_all(calls).await {
            assert_eq!(found.unwrap(), Some(1));
        }
        for client in clients {
            client.close().await;
        }
    });
}

/// A command that goes on until it is killed.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_command_that_watches_goes_on_with_a_secret_that_was_replaced() {
    block_on(async {
        let mut place = Place::start();
        let client = place.connect().await;
        client.put(&path(), &1).await.unwrap();
        let at = place.node.client.to_string();
        // With two addresses, it looks for a node that is up by itself.
        let (both, ticket) = (format!("{at},{at}"), format!("@{}", place.file));
        let mut command = Command::new(PROGRAM);
        command.args(["watch", "site", "--fetch", "--connect", &both, "--ticket", &ticket]);
        let mut running = Running(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut lines = BufReader::new(running.0.stdout.take().unwrap()).lines();
        let mut wait_for = move |word: &str| {
            assert!(lines.any(|line| line.unwrap().contains(word)), "it ended before {word}");
        };
        client.put(&path(), &"first").await.unwrap();
        wait_for("first");
        place.replace();
        place.restart();
        client.put(&path(), &"second").await.unwrap();
        wait_for("second");
        client.close().await;
    });
}
