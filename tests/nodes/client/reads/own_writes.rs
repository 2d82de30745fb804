//! What a client reads that has written itself, where the other nodes lack its write. The nodes are played.

use std::thread;
use std::time::Duration;

use distkv::client::{Client, ClientConfig, Fate, GetOptions, PutOptions, ReadMode, RetryPolicy};
use distkv::model::path::Path;
use distkv::rt;
use distkv::testing::{PATIENCE, block_on};

use super::super::ops::path;
use super::super::topology::scripted::Scripted;

/// No test waits for so long.
const FOR_EVER: Duration = Duration::from_secs(600);

fn config(retry: RetryPolicy) -> ClientConfig {
    ClientConfig::new().retry(retry).own_write_patience(FOR_EVER)
}

/// Time enough for an answer, also on a busy machine.
const SHORT: Duration = Duration::from_secs(1);

/// Tries are far apart, so that often none fits into the time that is left.
fn slow() -> RetryPolicy {
    RetryPolicy { initial_delay: SHORT / 2, delay_max: SHORT, ..RetryPolicy::default() }
}

/// Where a client's own write is: at one node only, which is not ready any more. All others hold an older version.
struct Place {
    client: Client,
    at: Path,
    home: Scripted,
    home_name: String,
    others: Vec<Scripted>,
}

impl Place {
    async fn new(count: usize, config: ClientConfig) -> Place {
        let names: Vec<_> = (1..=count).map(|number| format!("s{number}")).collect();
        let nodes: Vec<_> = names.iter().map(|name| Scripted::start(name)).collect();
        let places = nodes.iter().map(|node| node.address.clone());
        let told: Vec<_> = names.iter().cloned().zip(places).collect();
        for node in &nodes {
            node.change(|state| (state.told, state.held) = (told.clone(), Some(("new", 9))));
        }
        let client = Client::connect(nodes.iter().map(Scripted::seed), config).await.unwrap();
        let at = path("p");
        let home_name = client.put(&at, &"new").await.unwrap().node;
        let (homes, others): (Vec<_>, Vec<_>) =
            names.into_iter().zip(nodes).partition(|(name, _)| *name == home_name);
        let [(_, home)] = homes.try_into().unwrap_or_else(|_| panic!("one node took it"));
        home.change(|state| state.held = None);
        let others: Vec<_> = others.into_iter().map(|(_, node)| node).collect();
        for node in &others {
            node.change(|state| state.held = Some(("old", 1)));
        }
        Place { client, at, home, home_name, others }
    }

    /// What is read, and it must not take for ever.
    async fn read(&self, options: impl Into<GetOptions>) -> String {
        let reading = self.client.get_with::<String>(&self.at, options);
        let read = rt::timeout(PATIENCE, reading).await.expect("it is still waited for");
        read.unwrap().unwrap()
    }

    fn stale_taken(&self) -> u64 {
        self.client.stats().reads.stale_taken
    }
}

#[test]
fn a_read_takes_the_answer_that_it_has_where_no_further_try_fits_into_its_time() {
    block_on(async {
        let place = Place::new(3, config(slow())).await;
        for (round, millis) in [1_000, 1_250, 1_500, 1_750, 2_000].into_iter().enumerate() {
            let options = GetOptions::new().deadline(Duration::from_millis(millis));
            assert_eq!(place.read(options).await, "old");
            assert_eq!(place.stale_taken(), round as u64 + 1);
        }
        // It is still looked for.
        place.home.change(|state| state.held = Some(("new", 9)));
        assert_eq!(place.read(GetOptions::new()).await, "new");
        place.client.close().await;
    });
}

#[test]
fn a_read_without_a_time_of_its_own_ends_with_that_of_a_call() {
    block_on(async {
        let retry = RetryPolicy { total_deadline: SHORT, ..RetryPolicy::default() };
        let place = Place::new(3, config(retry)).await;
        assert_eq!(place.read(GetOptions::new()).await, "old");
        assert_eq!(place.read(ReadMode::Freshest).await, "old");
        assert_eq!(place.stale_taken(), 2);
        place.client.close().await;
    });
}

#[test]
fn an_answer_counts_when_the_patience_ends_also_where_no_other_one_comes() {
    block_on(async {
        let retry = RetryPolicy { total_deadline: FOR_EVER, ..RetryPolicy::default() };
        let patience = Duration::from_millis(200);
        let place = Place::new(2, config(retry).own_write_patience(patience)).await;
        place.others[0].change(|state| state.reads_left = Some(1));
        assert_eq!(place.read(GetOptions::new()).await, "old");
        assert_eq!(place.stale_taken(), 1);
        place.client.close().await;
    });
}

#[test]
fn a_majority_that_lacks_an_own_write_is_not_taken_while_another_node_may_have_it() {
    block_on(async {
        let place = Place::new(3, config(RetryPolicy::default())).await;
        // It is ready at the third look.
        let soon = vec!["not_ready"; 2];
        place.home.change(|state| (state.held, state.refuses) = (Some(("new", 9)), soon));
        assert_eq!(place.read(ReadMode::Freshest).await, "new");
        assert_eq!(place.stale_taken(), 0);
        // Who has answered, and lacks it, is asked again where nobody else is left.
        place.home.change(|state| state.held = Some(("old", 1)));
        let late = place.others[0].clone();
        late.change(|state| (state.held, state.refuses) = (Some(("new", 9)), vec!["not_ready"]));
        assert_eq!(place.read(ReadMode::Freshest).await, "new");
        assert_eq!(place.stale_taken(), 0);
        place.client.close().await;
    });
}

/// The node that took the write is away; the others hear of it a moment after they have answered.
#[test]
fn a_majority_that_lacks_an_own_write_is_asked_again_while_the_node_that_took_it_is_away() {
    block_on(async {
        for is_silent in [true, false] {
            let place = Place::new(3, config(RetryPolicy::default())).await;
            place.home.change(|state| state.is_silent = is_silent);
            let others = place.others.clone();
            let hearing = thread::spawn(move || {
                for node in &others {
                    while node.asked("get_value") == 0 {
                        thread::sleep(Duration::from_millis(1));
                    }
                }
                for node in &others {
                    node.change(|state| state.held = Some(("new", 9)));
                }
            });
            assert_eq!(place.read(ReadMode::Freshest).await, "new");
            assert_eq!(place.stale_taken(), 0);
            hearing.join().unwrap();
            place.client.close().await;
        }
    });
}

#[test]
fn who_refuses_a_read_of_a_majority_for_good_is_not_asked_again() {
    block_on(async {
        let place = Place::new(3, config(RetryPolicy::default())).await;
        place.home.change(|state| state.refuses = vec!["denied"; 100]);
        let late = place.others[0].clone();
        late.change(|state| (state.held, state.refuses) = (Some(("new", 9)), vec!["not_ready"]));
        // A majority needs both others, of which one is ready later.
        let before = place.home.asked("get_value");
        let read = place.client.get_with::<String>(&place.at, ReadMode::Freshest).await;
        assert_eq!(read.unwrap_err().code(), Some("denied"));
        late.change(|state| (state.held, state.refuses) = (Some(("old", 1)), vec![]));
        let brief = GetOptions::new().read_mode(ReadMode::Freshest);
        let read = place.read(brief.deadline(SHORT)).await;
        assert_eq!((read.as_str(), place.stale_taken()), ("old", 1));
        assert_eq!(place.home.asked("get_value"), before + 2);
        place.client.close().await;
    });
}

#[test]
fn what_is_sent_and_not_answered_is_told_as_that() {
    block_on(async {
        let retry = RetryPolicy { attempts_max: Some(1), ..RetryPolicy::default() };
        let place = Place::new(3, ClientConfig::new().retry(retry)).await;
        for node in place.others.iter().chain([&place.home]) {
            node.change(|state| state.is_silent = true);
        }
        let short = Duration::from_millis(200);
        let write = PutOptions::new().deadline(short);
        let error = place.client.put_with(&place.at, &1, &write).await.unwrap_err();
        let told = format!("{} is silent: no answer within 200ms", place.home.address);
        assert!(error.to_string().contains(&told), "{error}");
        assert_eq!((error.code(), error.fate()), (Some("fate_unknown"), Fate::Unknown));
        let read = GetOptions::new().deadline(short);
        let error = place.client.get_with::<u8>(&path("other"), read).await.unwrap_err();
        assert!(error.to_string().contains(" is silent: no answer within "), "{error}");
        assert!(!error.to_string().contains("cannot connect"), "{error}");
        // Without any time, nothing is sent.
        let none = GetOptions::new().deadline(Duration::ZERO);
        for options in [none, none.read_mode(ReadMode::Freshest)] {
            let error = place.client.get_with::<u8>(&place.at, options).await.unwrap_err();
            let told = "no node could do it in time; the last try: there was none, because the call had no time";
            assert_eq!(error.to_string(), format!("{told} (0 tries)"));
            assert_eq!(error.code(), Some("unavailable"));
        }
        place.client.close().await;
    });
}

#[test]
fn a_majority_that_lacks_an_own_write_counts_when_the_patience_or_the_time_ends() {
    block_on(async {
        let config = config(RetryPolicy::default());
        let place = Place::new(3, config.clone().own_write_patience(SHORT)).await;
        // As the client counts them: when the patience ends, a request may not have come to the node yet.
        let tries = || place.client.stats().router.nodes[&place.home_name].tries;
        let before = tries();
        assert_eq!(place.read(ReadMode::Freshest).await, "old");
        assert_eq!(place.stale_taken(), 1);
        assert!(tries() > before + 1, "tried {} times, {before} of them before", tries());
        // It is not looked for again.
        let before = tries();
        assert_eq!(place.read(ReadMode::Freshest).await, "old");
        assert!(tries() <= before + 1, "tried {} times, {before} of them before", tries());
        assert_eq!(place.stale_taken(), 1);
        place.client.close().await;

        let place = Place::new(3, config.clone()).await;
        let options = GetOptions::new().read_mode(ReadMode::Freshest).deadline(SHORT);
        for round in 1..=2 {
            assert_eq!(place.read(options).await, "old");
            assert_eq!(place.stale_taken(), round);
        }
        place.client.close().await;

        // So does it where there are to be no further tries.
        let retry = RetryPolicy { attempts_max: Some(1), ..RetryPolicy::default() };
        let place = Place::new(3, config.retry(retry)).await;
        assert_eq!(place.read(ReadMode::Freshest).await, "old");
        assert_eq!((place.stale_taken(), place.home.asked("get_value")), (1, 1));
        place.client.close().await;
    });
}
