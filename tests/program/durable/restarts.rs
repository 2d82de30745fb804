//! What a node is when it comes back.

use rmpv::Value;

use super::place::{POLICIES, Place, code, incarnation, status, storage};
use crate::processes::{NodeProcess, SAVED_STATE, field};

fn stop(node: &mut NodeProcess) {
    node.signal("TERM");
    assert!(node.wait().success(), "{:#?}", node.log());
}

#[test]
fn after_a_clean_stop_a_node_comes_back_with_everything_and_a_new_life() {
    for sync in POLICIES {
        let place = Place::new("n1", sync);
        let mut node = place.run();
        let mut client = node.connect();
        for n in 0..500 {
            assert_eq!(code(&client.set(&["k", &n.to_string()], Value::from(n))), None);
        }
        client.call("delete_value", &[("path", crate::processes::array(&["k", "7"]))]);
        let (before, life) = (client.tree(&[]), incarnation(&mut client));
        let store = storage(&mut client, "store");
        stop(&mut node);

        let node = place.run();
        let mut client = node.connect();
        assert_ne!(incarnation(&mut client), life, "{sync}: {:#?}", node.log());
        assert_eq!(status(&mut client, "tick").as_u64(), Some(0));
        assert_eq!(storage(&mut client, "store"), store);
        let values = |tree: &[(String, Value)]| -> Vec<(String, Option<Value>)> {
            tree.iter().map(|(path, entry)| (path.clone(), field(entry, "value"))).collect()
        };
        assert_eq!(values(&client.tree(&[])), values(&before));
        assert_eq!(client.get(&["k", "7"]), None);
        let next = client.set(&["k", "500"], Value::from(1));
        let chain = field(&next, "chain").unwrap();
        assert_eq!(field(&chain, "tick").unwrap().as_u64(), Some(1));
        assert!(!node.log().iter().any(|line| line.contains("WARN")), "{:#?}", node.log());
    }
}

#[test]
fn a_damaged_list_of_peers_keeps_no_node_with_data_away() {
    let place = Place::new("n1", "every-second");
    let mut node = place.run();
    node.connect().set(&["a"], Value::from(1));
    stop(&mut node);
    let peers = place.dir.join("peers");
    for damage in [&[0; 64][..], b"\xff\xfe", b"127.0.0.1:1 n2\n127.0.0.1:"] {
        std::fs::write(&peers, damage).unwrap();
        let mut node = place.run();
        assert_eq!(node.connect().get(&["a"]), Some(Value::from(1)));
        let warns = |line: &String| line.contains("WARN") && line.contains("peers");
        crate::processes::wait_until("it warns", || node.log().iter().any(warns).then_some(()));
        stop(&mut node);
    }
    // A list that somebody has named is not guessed at.
    let said = place.refusal_with(2, &["run", "--peer-file", "/no/such/directory/peers"]);
    assert!(said.contains("its directory is not there; make it"), "{said}");
    let said = place.refusal_with(2, &["run", "--peer-file", "/dev/null/peers"]);
    assert!(said.contains("cannot be read"), "{said}");
}

#[test]
fn a_node_goes_on_alone_with_what_it_has_also_if_it_had_joined() {
    let network = super::place::new_network();
    let places: Vec<Place> =
        ["n1", "n2"].map(|name| Place::in_network(&network, name, "every-second")).into();
    let mut first = places[0].run();
    let mut second = places[1].join(&[&first]);
    first.connect().set(&["a"], Value::from(1));
    let mut client = second.connect();
    crate::processes::wait_until("the second has it", || client.get(&["a"]));
    stop(&mut second);
    stop(&mut first);
    // All were stopped. Whichever comes first goes on, however it is started; the other one finds it.
    let mut second = places[1].start(&["join", "127.0.0.1:1"]);
    let mut client = second.connect();
    assert_eq!(client.get(&["a"]), Some(Value::from(1)));
    client.set(&["b"], Value::from(2));
    let address = second.gossip.to_string();
    let first = places[0].start(&["run", "--peer", &address]);
    assert_eq!(first.connect().get(&["b"]), Some(Value::from(2)));
    stop(&mut second);
}

#[test]
fn two_nodes_cannot_use_one_directory() {
    let place = Place::new("n1", "never");
    let node = place.run();
    let said = place.refusal(&["run"]);
    assert!(said.contains("another node uses this data directory"), "{said}");
    assert!(said.contains(&node.pid().to_string()), "{said}");
    node.connect().set(&["a"], Value::from(1));
}

#[test]
fn another_node_s_directory_is_refused() {
    let mut place = Place::new("n1", "never");
    let mut node = place.run();
    stop(&mut node);
    place.name = "n2".into();
    // It stays so: whoever started it is not to try again and again.
    let said = place.refusal_with(2, &["run"]);
    assert!(said.contains("it belongs to node \"n1\""), "{said}");
    assert!(said.contains(place.dir.to_str().unwrap()), "{said}");
    place.name = "n1".into();
    place.network = "other".into();
    assert!(place.refusal_with(2, &["run"]).contains("of network"));
}

#[test]
fn a_copy_of_a_directory_is_another_node_s_life_and_another_member() {
    let place = Place::new("n1", "every-second");
    let mut node = place.run();
    let mut client = node.connect();
    client.set(&["a"], Value::from(1));
    let (life, store) = (incarnation(&mut client), storage(&mut client, "store"));
    stop(&mut node);
    let copy = place.copy();

    let copied = copy.run_alone();
    let mut client = copied.connect();
    assert_eq!(client.get(&["a"]), Some(Value::from(1)));
    assert_ne!(incarnation(&mut client), life);
    assert_ne!(storage(&mut client, "store"), store);
    crate::processes::wait_until("it says so", || {
        copied.log().iter().any(|l| l.contains("was copied")).then_some(())
    });

    let node = place.run_alone();
    let mut client = node.connect();
    assert_ne!(incarnation(&mut client), life);
    assert_eq!(storage(&mut client, "store"), store, "the original is the member that it was");
}

#[test]
fn a_copy_that_lacks_the_newest_log_says_that_it_is_an_older_state() {
    let place = Place::new("n1", "every-batch");
    for value in 1..=2 {
        let mut node = place.run();
        node.connect().set(&["a"], Value::from(value));
        stop(&mut node);
    }
    let copy = place.copy();
    std::fs::remove_file(copy.dir.join("log-2.dkv")).unwrap();
    let node = copy.run_alone();
    assert_eq!(node.connect().get(&["a"]), Some(Value::from(1)));
    let log = crate::processes::wait_until("it says what it goes on with", || {
        let log = node.log().join("\n");
        log.contains("not stopped cleanly").then_some(log)
    });
    assert!(log.contains("was copied") && log.contains("had a log 2 once"), "{log}");
    assert!(log.contains("the log that is gone is missing"), "{log}");
    assert!(!log.contains("none that was acknowledged"), "{log}");
}

#[test]
fn a_directory_whose_files_are_gone_is_not_called_an_empty_one() {
    let place = Place::new("n1", "every-batch");
    let mut node = place.run();
    node.connect().set(&["a"], Value::from(1));
    stop(&mut node);
    std::fs::remove_file(place.dir.join("log-1.dkv")).unwrap();
    let node = place.run_alone();
    let log = crate::processes::wait_until("it says that it has started", || {
        let log = node.log().join("\n");
        log.contains("started version=").then_some(log)
    });
    assert!(log.contains("neither a log nor a snapshot any more"), "{log}");
    assert!(!log.contains("directory is empty"), "{log}");
}

#[test]
fn a_damaged_log_is_an_error_and_what_is_before_the_damage_can_be_gone_on_with() {
    let mut place = Place::new("n1", "every-batch");
    let mut node = place.run();
    let mut client = node.connect();
    for n in 0..100 {
        client.set(&["k", &n.to_string()], Value::from(vec![7_u8; 200]));
    }
    let store = storage(&mut client, "store");
    stop(&mut node);
    let log = place.dir.join("log-1.dkv");
    let mut bytes = std::fs::read(&log).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&log, bytes).unwrap();

    let said = place.refusal(&["run"]);
    assert!(said.contains("log-1.dkv") && said.contains("damaged at byte"), "{said}");
    assert!(said.contains("--discard-damaged"), "{said}");
    place.options = vec!["--discard-damaged".into()];
    let mut node = place.run();
    let mut client = node.connect();
    let left = client.tree(&["k"]).len();
    assert!((30..70).contains(&left), "{left}");
    assert_ne!(storage(&mut client, "store"), store, "it is not what the others agreed with");
    client.set(&["new"], Value::from(1));
    stop(&mut node);
    place.options.clear();
    let node = place.run();
    let mut client = node.connect();
    assert_eq!(client.tree(&["k"]).len(), left);
    assert_eq!(client.get(&["new"]), Some(Value::from(1)));
}

#[test]
fn what_a_node_was_told_to_begin_with_is_not_loaded_a_second_time() {
    let mut place = Place::new("n1", "never");
    place.options = vec!["--load".into(), SAVED_STATE.into(), "--init".into(), "5".into()];
    let mut node = place.run();
    let mut client = node.connect();
    let entries = status(&mut client, "live_entries").as_u64().unwrap();
    assert!(entries > 1_000);
    client.call("delete_tree", &[("path", crate::processes::array(&["hf4e31b06"]))]);
    let left = status(&mut client, "live_entries").as_u64().unwrap();
    assert!(left < entries);
    stop(&mut node);
    let node = place.run();
    let mut client = node.connect();
    assert_eq!(status(&mut client, "live_entries").as_u64(), Some(left));
}

#[test]
fn an_operator_sees_how_the_disk_is() {
    let place = Place::new("n1", "every-batch");
    let node = place.run();
    let mut client = node.connect();
    client.set(&["a"], Value::from(1));
    client.call("snapshot", &[]);
    let status = std::process::Command::new(crate::processes::PROGRAM)
        .args(["status", "--connect", &node.client.to_string()])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    let row =
        text.lines().find(|line| line.starts_with("data ")).unwrap_or_else(|| panic!("{text}"));
    assert!(row.contains(place.dir.to_str().unwrap()), "{row}");
    assert!(row.contains("every-batch") && row.contains("last snapshot"), "{row}");
    assert!(!text.contains("warning"), "{text}");
    // The node makes changes of its own, now and then.
    crate::processes::wait_until("all is synced", || {
        let [appended, synced] = ["appended", "synced"].map(|key| storage(&mut client, key));
        (appended == synced).then_some(())
    });
}

#[test]
fn a_write_that_comes_again_is_known_after_a_restart_from_a_log_and_from_a_snapshot() {
    let place = Place::new("n1", "every-batch");
    let write = |client: &mut crate::processes::Client, at: &str, value: Option<u64>| {
        let mut wid = at.as_bytes().to_vec();
        wid.resize(16, 0);
        let mut fields =
            vec![("path", crate::processes::array(&[at])), ("wid", Value::Binary(wid))];
        fields.extend(value.map(|value| ("value", Value::from(value))));
        let action = if value.is_some() { "set_value" } else { "delete_value" };
        client.call(action, &fields)
    };
    let is_repeated = |reply: &Value| field(reply, "repeated") == Some(Value::from(true));
    let node = place.run();
    let mut client = node.connect();
    assert!(!is_repeated(&write(&mut client, "a", Some(1))));
    client.set(&["b"], Value::from(1));
    assert!(!is_repeated(&write(&mut client, "b", None)));
    let chain = field(&write(&mut client, "a", Some(1)), "chain");
    drop(node); // killed

    // From the log, then from a snapshot.
    for _ in 0..2 {
        let node = place.run();
        let mut client = node.connect();
        let again = write(&mut client, "a", Some(1));
        assert!(is_repeated(&again), "{again}");
        let tick = |chain: &Option<Value>| field(chain.as_ref().unwrap(), "tick");
        assert_eq!(tick(&field(&again, "chain")), tick(&chain));
        assert!(is_repeated(&write(&mut client, "b", None)));
        assert_eq!(code(&write(&mut client, "a", Some(2))).as_deref(), Some("wid_reused"));
        assert_eq!(code(&client.call("snapshot", &[])), None);
        drop(node);
    }
}
