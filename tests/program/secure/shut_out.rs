//! A client of the library that one node does not let in, and one that no node lets in.

use std::fs;
use std::time::Duration;

use distkv::client::smart::{Watch, WatchEvent, WatchOptions};
use distkv::client::{CallError, Client, ClientConfig, PoolConfig, PutOptions, RetryPolicy};
use distkv::model::path::Path;
use distkv::rt;
use distkv::testing::{PATIENCE, block_on, wait_until};
use distkv_tls::ticket::Ticket;
use futures::future::{join, join_all};

use super::{Keys, program, wait_for_links};
use crate::processes::NodeProcess;

mod disconnected;

fn at(number: i64) -> Path {
    Path::root().push("site").unwrap().push(number).unwrap()
}

/// Three nodes with a key, of which the last may have options of its own, a user, and that one's ticket for the first node.
struct Place {
    keys: Keys,
    key: String,
    nodes: Vec<NodeProcess>,
}

impl Place {
    fn start(of_last: impl FnOnce(&Keys) -> Vec<String>) -> Self {
        let keys = Keys::new();
        let (key, _) = keys.make("key");
        let own = of_last(&keys);
        let first = keys.run("n1", &["--key", &key]);
        let second = keys.join("n2", &first, &["--key", &key]);
        let options: Vec<&str> = own.iter().map(String::as_str).collect();
        let third = keys.join("n3", &first, &[&["--key", &key][..], &options].concat());
        let nodes = vec![first, second, third];
        wait_for_links(&nodes.iter().collect::<Vec<_>>(), true);
        Self { keys, key, nodes }
    }

    fn as_admin(&self, arguments: &[&str]) {
        let address = self.nodes[0].client.to_string();
        let own = ["--connect", &address, "--key", &self.key];
        let (code, said) = program(&[arguments, &own[..]].concat());
        assert_eq!(code, Some(0), "{said}");
    }

    /// Makes a user with the secret in this file.
    fn add(&self, user: &str, secret: &str) {
        self.as_admin(&["acl", "set", "site", "site", "xen"]);
        self.as_admin(&["acl", "set", "site", "site.#", "rwcdxen"]);
        self.as_admin(&["user", "add", user, "--acl", "site", "--new-secret-file", secret]);
    }

    /// The name of a file with a secret.
    fn secret(&self, secret: &str) -> String {
        let file = self.keys.path("secret");
        fs::write(&file, format!("{secret}\n")).unwrap();
        file
    }

    /// The ticket for a user with the secret in this file, at all nodes.
    fn ticket_of(&self, user: &str, secret: &str) -> Ticket {
        let at: Vec<String> = self.nodes.iter().map(|node| node.client.to_string()).collect();
        let by = ["--key", &self.key, "--user", user, "--secret", secret, "--method", "password"];
        let at: Vec<&str> = at.iter().map(String::as_str).collect();
        let (code, ticket) = program(&[&["ticket", "new"][..], &at, &by].concat());
        assert_eq!(code, Some(0), "{ticket}");
        ticket.trim().parse().unwrap()
    }

    /// A client as a user that is made now.
    async fn client_of(&self, user: &str) -> Client {
        let secret = self.secret("a secret of joe");
        self.add(user, &secret);
        // A failure is hardly remembered: so each call may ask each node again.
        let memory = Duration::from_millis(1);
        let pool = PoolConfig {
            failure_memory: memory,
            failure_memory_max: memory,
            ..PoolConfig::default()
        };
        self.connect(&self.ticket_of(user, &secret), ClientConfig::new().pool(pool)).await
    }

    /// A client that sees all nodes, and whom all have let in that hear of its user.
    async fn connect(&self, ticket: &Ticket, config: ClientConfig) -> Client {
        let config = config.connect_deadline(PATIENCE);
        let client = Client::connect_with_ticket(ticket, config).await.unwrap();
        let sees_all = || client.cluster_view().nodes.iter().filter(|n| n.is_live()).count() == 3;
        assert!(wait_until(PATIENCE, sees_all).await);
        // The other nodes have heard of the user.
        client.put_with(&at(-1), &0, &PutOptions::new().copies(2)).await.unwrap();
        client
    }
}

/// Whether it is the answer to who is let in nowhere.
fn is_refusal(error: &CallError) -> bool {
    matches!(error, CallError::NoAccess { .. } | CallError::Refused { .. })
}

/// What a watch ends with.
async fn end_of(watch: &mut Watch) -> CallError {
    loop {
        if let Err(error) = watch.next().await {
            return error;
        }
    }
}

async fn next(watch: &mut Watch) -> Result<WatchEvent, CallError> {
    rt::timeout(PATIENCE, watch.next()).await.expect("nothing came")
}

#[test]
fn a_node_that_does_not_let_a_client_in_is_as_good_as_down() {
    block_on(async {
        // A certificate that the network's CA has not signed.
        let place = Place::start(|keys| {
            let (other, _) = keys.make("other");
            let to = keys.path("foreign");
            let made = ["key", "cert", "--key", &other, "--server", "127.0.0.1", "--to", &to];
            let (code, said) = program(&made);
            assert_eq!(code, Some(0), "{said}");
            ["--cert", &format!("{to}.pem"), "--cert-key", &format!("{to}.key")]
                .map(String::from)
                .into()
        });
        let client = place.client_of("joe").await;
        for number in 0..100 {
            // A third of them prefer that node.
            client.put(&at(number), &number).await.unwrap();
        }
        let mut watches = Vec::new();
        for number in 0..30 {
            let options = WatchOptions { fetch: true, ..WatchOptions::default() };
            watches.push(client.watch(&at(number), options).await.unwrap());
        }
        for watch in &mut watches {
            while next(watch).await.unwrap() != WatchEvent::UpToDate {}
            assert_ne!(watch.node(), Some("n3"));
        }
        client.close().await;
    });
}

#[test]
fn who_is_removed_is_told_so_after_one_try_at_each_node_and_watches_end_with_it() {
    block_on(async {
        let place = Place::start(|_| Vec::new());
        let client = place.client_of("joe").await;
        let mut watch = client.watch(&at(0), WatchOptions::default()).await.unwrap();
        assert_eq!(next(&mut watch).await.unwrap(), WatchEvent::UpToDate);
        place.as_admin(&["user", "remove", "joe"]);
        let ended = rt::timeout(PATIENCE, end_of(&mut watch)).await.expect("it does not end");
        assert!(is_refusal(&ended), "{ended}");
        // Nodes let those wait who guess: it is still refused.
        for _ in 0..12 {
            let error = client.get::<i64>(&at(0)).await.unwrap_err();
            assert!(is_refusal(&error), "{error}");
            assert!(error.attempts() <= 3, "{error}");
        }
        client.close().await;
    });
}

/// As many as log in as one user: more than a node lets guess.
const CROWD: usize = 12;
/// So soon all of them are told; mostly it takes a second or two.
const SOON: Duration = Duration::from_secs(20);

#[test]
fn all_clients_of_a_user_that_is_removed_are_told_soon_however_many_they_are() {
    block_on(async {
        let place = Place::start(|_| Vec::new());
        let secret = place.secret("a secret of joe");
        place.add("joe", &secret);
        let ticket = place.ticket_of("joe", &secret);
        let mut clients = Vec::new();
        for number in 0..CROWD {
            // Longer than they may take to be told.
            let retry = RetryPolicy { total_deadline: 3 * SOON, ..RetryPolicy::default() };
            let client = place.connect(&ticket, ClientConfig::new().retry(retry)).await;
            let at = at(i64::try_from(number).unwrap());
            let mut watch = client.watch(&at, WatchOptions::default()).await.unwrap();
            assert_eq!(next(&mut watch).await.unwrap(), WatchEvent::UpToDate);
            clients.push((client, watch, at));
        }
        place.as_admin(&["user", "remove", "joe"]);
        let ends = clients.iter_mut().map(|(client, watch, at)| async {
            let watching = end_of(watch);
            let calling = async {
                loop {
                    // Until the nodes have heard of it.
                    if let Err(error) = client.get::<i64>(at).await {
                        return error;
                    }
                    rt::sleep(Duration::from_millis(10)).await;
                }
            };
            join(watching, calling).await
        });
        let ends = rt::timeout(SOON, join_all(ends)).await.expect("not all are told");
        for (watch, call) in ends {
            assert!(is_refusal(&watch) && is_refusal(&call), "{watch}; {call}");
        }
        for (client, ..) in clients {
            client.close().await;
        }
    });
}

#[test]
fn who_knows_a_changed_secret_stays_and_comes_in_while_others_try_the_old_one() {
    block_on(async {
        let place = Place::start(|_| Vec::new());
        let secret = place.secret("a secret of joe");
        place.add("joe", &secret);
        let old = place.ticket_of("joe", &secret);
        let before = place.connect(&old, ClientConfig::new()).await;
        let secret = place.secret("another secret of joe");
        place.as_admin(&["user", "password", "joe", "--new-secret-file", &secret]);
        let new = place.ticket_of("joe", &secret);
        let after = place.connect(&new, ClientConfig::new()).await;
        let mut watches = Vec::new();
        for client in [&before, &after] {
            let mut watch = client.watch(&at(0), WatchOptions::default()).await.unwrap();
            while next(&mut watch).await.unwrap() != WatchEvent::UpToDate {}
            watches.push(watch);
        }
        let brief = ClientConfig::new().connect_deadline(Duration::from_secs(2));
        // The old one again and again makes nobody wait; guesses do.
        let guess = |number| place.secret(&format!("guess {number}"));
        let guesses = (0..CROWD).map(|number| place.ticket_of("joe", &guess(number)));
        let wrong: Vec<Ticket> = std::iter::repeat_n(old, CROWD).chain(guesses).collect();
        let guesses = wrong.iter().map(|ticket| Client::connect_with_ticket(ticket, brief.clone()));
        let working = async {
            for number in 0..60 {
                for client in [&before, &after] {
                    client.put(&at(number), &number).await.unwrap();
                }
            }
        };
        let (guesses, ()) = join(join_all(guesses), working).await;
        assert!(guesses.iter().all(Result::is_err));
        // Who is made to wait is not refused.
        let waited = |guess: &&CallError| matches!(guess, CallError::Unavailable { .. });
        assert!(guesses.iter().filter_map(|guess| guess.as_ref().err()).filter(waited).count() > 0);
        // The nodes make this one wait, too, for some seconds.
        let patient = ClientConfig::new().connect_deadline(Duration::from_secs(120));
        let late = Client::connect_with_ticket(&new, patient).await.unwrap();
        late.put(&at(60), &60).await.unwrap();
        for client in [&before, &after, &late] {
            client.put(&at(0), &-1).await.unwrap();
        }
        for mut watch in watches {
            while !matches!(next(&mut watch).await.unwrap(), WatchEvent::Change(change) if change.value.is_some())
            {
            }
        }
        for client in [before, after, late] {
            client.close().await;
        }
    });
}
