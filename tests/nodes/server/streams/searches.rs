//! Who asks for much that may not be shown: it is looked through, and nobody else waits for that.

use distkv::server::ServerConfig;

use crate::server::access::Place;
use crate::harness::{Client, Node, path, text};

/// More than a stream passes over in a few turns.
const HIDDEN: usize = 4_200;

/// A node with entries that the users of [`asker`] may list, and none of which they may see.
fn place(config: ServerConfig) -> Place {
    let place = Place::of(Node::found_with("n1", config));
    for i in 0..HIDDEN {
        place.put(&format!("shut:{i}"), Some(1.into()));
    }
    place
}

fn asker(place: &Place, name: &str) -> Client {
    place.user(name, &[("shut", "xe")])
}

fn ask(client: &mut Client, count: usize) -> Vec<u64> {
    (0..count).map(|_| client.start(map! {"action": "get_tree", "path": path("shut")})).collect()
}

#[test]
fn nobody_waits_until_all_has_been_looked_through() {
    const STREAMS: usize = 300;
    let mut place = place(ServerConfig::default());
    // More than there are threads.
    let mut askers: Vec<_> =
        (0..2 * num_cpus()).map(|n| asker(&place, &format!("joe{n}"))).collect();
    let firsts: Vec<u64> = askers.iter_mut().map(|asker| ask(asker, STREAMS)[0]).collect();
    for (asker, first) in askers.iter_mut().zip(&firsts) {
        assert_eq!(asker.reply(*first)["state"], "start".into());
    }
    for _ in 0..20 {
        assert_eq!(place.admin.get("shut:1"), Some(1.into()));
    }
    // None has come to its end meanwhile, not even the first one, which has the others' turns in between.
    for (asker, first) in askers.iter_mut().zip(&firsts) {
        asker.silence(*first);
    }
}

#[test]
fn what_was_asked_before_the_client_s_end_is_answered() {
    let place = place(ServerConfig::default());
    let mut asker = asker(&place, "joe");
    let asked = ask(&mut asker, 20);
    asker.finish();
    for seq in asked {
        assert_eq!(asker.reply(seq)["state"], "start".into());
        assert!(asker.rest(seq).is_empty());
    }
    assert!(asker.receive().is_none());
}

#[test]
fn for_a_client_that_is_gone_nothing_is_looked_for_any_longer() {
    let place = place(ServerConfig { search_after_end_ms: 0, ..ServerConfig::default() });
    let mut asker = asker(&place, "joe");
    let asked = ask(&mut asker, 20);
    asker.finish();
    // It says that this was not all.
    let last = asker.rest(asked[19]).pop().expect("an error");
    assert_eq!(text(&last, "code"), "not_ready");
    assert!(asker.receive().is_none());
}

fn num_cpus() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}
