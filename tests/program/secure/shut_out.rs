//! A client of the library that one node does not let in, and one that no node lets in.

use std::fs;
use std::time::Duration;

use distkv::client::smart::{Watch, WatchEvent, WatchOptions};
use distkv::client::{CallError, Client, ClientConfig, PoolConfig, PutOptions};
use distkv::model::path::Path;
use distkv::rt;
use distkv::testing::{PATIENCE, block_on, wait_until};
use distkv_tls::ticket::Ticket;

use super::{Keys, program, wait_for_links};
use crate::processes::NodeProcess;

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

    /// A client as a user that is made now.
    async fn client_of(&self, user: &str) -> Client {
        let secret = self.keys.path("secret");
        fs::write(&secret, "a secret of joe\n").unwrap();
        self.as_admin(&["acl", "set", "site", "site", "xen"]);
        self.as_admin(&["acl", "set", "site", "site.#", "rwcdxen"]);
        self.as_admin(&["user", "add", user, "--acl", "site", "--new-secret-file", &secret]);
        let address = self.nodes[0].client.to_string();
        let (code, ticket) = program(&[
            "ticket", "new", &address, "--key", &self.key, "--user", user, "--secret", &secret,
            "--method", "password",
        ]);
        assert_eq!(code, Some(0), "{ticket}");
        let ticket: Ticket = ticket.trim().parse().unwrap();
        // A failure is hardly remembered: so each call may ask each node again.
        let memory = Duration::from_millis(1);
        let pool = PoolConfig {
            failure_memory: memory,
            failure_memory_max: memory,
            ..PoolConfig::default()
        };
        let config = ClientConfig::new().pool(pool);
        let client = Client::connect_with_ticket(&ticket, config).await.unwrap();
        let sees_all = || client.cluster_view().nodes.iter().filter(|n| n.is_live()).count() == 3;
        assert!(wait_until(PATIENCE, sees_all).await);
        // The other nodes have heard of the user.
        client.put_with(&at(-1), &0, &PutOptions::new().copies(2)).await.unwrap();
        client
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
        let ended = loop {
            match next(&mut watch).await {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert!(matches!(ended, CallError::NoAccess { .. } | CallError::Refused { .. }), "{ended}");
        // Nodes let those wait who guess: it is still refused.
        for _ in 0..12 {
            let error = client.get::<i64>(&at(0)).await.unwrap_err();
            assert!(
                matches!(error, CallError::NoAccess { .. } | CallError::Refused { .. }),
                "{error}"
            );
            assert!(error.attempts() <= 3, "{error}");
        }
        client.close().await;
    });
}
