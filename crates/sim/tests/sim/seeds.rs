//! Whole clusters in the simulator: fixed seeds that must not fail, and planted defects that must
//! be found. `cargo nextest run -p distkv-sim` builds them optimised.
//!
//! `cargo run --profile sim -p distkv-sim --example simulate` runs any number of other seeds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use distkv_model::defects::{Defect, Defects};
use distkv_sim::{
    FOUND_BY_OTHER_TESTS, Family, Focus, HELD_UP_FROM, Options, Outcome, SOUGHT, run,
};

/// Runs seeds on all processors until one fails; gives back the first failure that was met.
fn first_failure(options: &Options, from: u64, count: u64) -> Option<Outcome> {
    let next = AtomicU64::new(from);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= from + count {
                return None;
            }
            let outcome = run(seed, options);
            if outcome.failure.is_some() {
                next.store(from + count, Ordering::Relaxed);
                return Some(outcome);
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().filter_map(|w| w.join().unwrap()).min_by_key(|o| o.seed)
    })
}

fn assert_agree(options: &Options, from: u64, count: u64) {
    if let Some(outcome) = first_failure(options, from, count) {
        let failure = outcome.failure.unwrap();
        panic!("seed {} of {options:?}: {}: {}", outcome.seed, failure.check, failure.detail);
    }
}

/// The defect is found within as many seeds as [`SOUGHT`] says, and the seed that shows it is good without it.
fn assert_found(defect: Defect) {
    let sought = SOUGHT.iter().find(|sought| sought.defect == defect).unwrap();
    let options = |defects| Options { family: sought.family, focus: sought.focus, defects };
    let planted = options(Defects::default().with(defect));
    let found = first_failure(&planted, sought.from, sought.seeds);
    let found =
        found.unwrap_or_else(|| panic!("{defect:?} is not found within {} seeds", sought.seeds));
    let clean = run(found.seed, &options(Defects::default()));
    assert!(clean.failure.is_none(), "seed {} fails without a defect, too", found.seed);
    let check = found.failure.unwrap().check;
    let (first, judged) = documented(defect);
    assert_eq!((found.seed, check), (first, judged), "{defect:?}, and docs/simulator.md");
}

/// The first seed that finds a defect, and what the judge says of it, by the table in docs/simulator.md.
fn documented(defect: Defect) -> (u64, &'static str) {
    let start = format!("| `{}` |", defect.name());
    let mut rows = include_str!("../../../../docs/simulator.md").lines();
    let row = rows.find(|line| line.starts_with(&start));
    let row = row.unwrap_or_else(|| panic!("{defect:?} has no row in docs/simulator.md"));
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    (cells[3].parse().unwrap(), cells[5])
}

#[test]
fn small_networks_come_to_agree() {
    let options = Options { family: Family::Small, ..Options::default() };
    assert_agree(&options, 0, 10_000);
}

#[test]
fn whole_networks_come_to_agree() {
    let options = Options { family: Family::Whole, ..Options::default() };
    assert_agree(&options, 0, 1_000);
}

#[test]
fn whole_nodes_keep_what_users_are_promised() {
    let options = Options { family: Family::Nodes, ..Options::default() };
    assert_agree(&options, 0, 400);
    // Here tries of clients are held up on their way, and come when nobody waits for them.
    assert_agree(&options, HELD_UP_FROM, 200);
}

#[test]
fn networks_that_seek_one_kind_of_trouble_come_to_agree() {
    for (_, focus) in Focus::ALL {
        for (family, count) in [(Family::Small, 1_000), (Family::Whole, 60)] {
            let options = Options { family, focus: *focus, ..Options::default() };
            assert_agree(&options, 1_000_000, count);
        }
    }
}

#[test]
fn events_used_twice_leave_no_silent_difference() {
    let mut differed = 0;
    for (family, count) in [(Family::Small, 500), (Family::Whole, 20)] {
        for seed in 0..count {
            let options = Options { family, focus: Focus::Rollbacks, ..Options::default() };
            let outcome = run(seed, &options);
            assert!(outcome.failure.is_none(), "seed {seed} of {options:?}: {:?}", outcome.failure);
            differed += outcome.stats.contents_differed;
        }
    }
    assert!(differed > 5, "only {differed} differences were made and told");
}

/// Here a node that was offered announcements which it could not apply asked again, got the same, and so
/// on, at one moment of the virtual clock.
#[test]
fn nodes_do_not_answer_each_other_for_ever() {
    let options = Options { focus: Focus::Overflows, ..Options::default() };
    assert_agree(&options, 7_000_644, 1);
}

/// Here announcements of purges were more than the link's queue held. They were dropped, with the answer that
/// they were part of; the node that was behind waited, asked again, and was sent the same.
#[test]
fn a_node_that_gets_no_answer_does_not_ask_the_same_for_ever() {
    let options = Options { family: Family::Nodes, ..Options::default() };
    assert_agree(&options, 40_047_008, 1);
}

/// Here a client's write was made at one node and overwritten; another node deleted what had overwritten it, and made
/// the write once more. The first node put what it held on top of that copy, and so undid the deletion.
#[test]
fn a_copy_of_a_write_that_was_made_after_a_deletion_does_not_undo_it() {
    let options = Options { family: Family::Nodes, ..Options::default() };
    assert_agree(&options, 41_058_072, 1);
}

/// Here a write was sent to two nodes, and overwritten twice between its copies: each of two versions had overwritten the
/// other, as far as the nodes could tell, and they put one above the other without end.
#[test]
fn versions_are_not_put_on_top_of_each_other_for_ever() {
    let options = Options { family: Family::Nodes, ..Options::default() };
    assert_agree(&options, 41_085_576, 1);
}

/// Here one node believed that another was down, that one remembered that the first had left, and neither had the
/// other's address any more. All others saw both.
#[test]
fn those_that_others_see_see_each_other() {
    let options = Options { family: Family::Nodes, ..Options::default() };
    assert_agree(&options, 41_081_903, 1);
}

/// Here the node that made the copy had itself overwritten the first one, before another node deleted that; so the copy's
/// chain named what was deleted by the copy alone.
#[test]
fn nor_does_a_copy_whose_maker_had_overwritten_the_first() {
    let options = Options { family: Family::Nodes, ..Options::default() };
    assert_agree(&options, 41_535_475, 1);
}

/// Here copies of both nodes' directories came up elsewhere and gave way. Each node had dropped the other's address then,
/// and none called: they were linked, and down for each other. In the second one, an address that a link had told was
/// dropped before it was tried.
#[test]
fn two_nodes_of_which_copies_came_up_call_each_other_where_they_were() {
    let options = Options { family: Family::Nodes, ..Options::default() };
    for seed in [41_555_523, 41_639_626] {
        assert_agree(&options, seed, 1);
    }
}

/// Here a node put its value on top again (rule 2), whose deletion another node had overwritten, and what had overwritten it had
/// lost to a third node's deletion by then. The value was told to have won over that one; the judge asked for the first.
#[test]
fn a_value_that_wins_over_the_last_deletion_is_told_to_be_back() {
    let options = Options { family: Family::Nodes, ..Options::default() };
    assert_agree(&options, 41_762_070, 1);
}

/// The same, but the third node's deletion lost to a fourth node's value first, and the value that was put on top again won
/// over that one: two reports tell it, of which the judge knew the second only.
#[test]
fn a_value_that_wins_over_what_won_over_the_last_deletion_is_told_to_be_back() {
    let options = Options { family: Family::Nodes, ..Options::default() };
    assert_agree(&options, 41_914_711, 1);
}

/// Here a watch asked its node what had become of a path, and was told more than its stream had told by then. The stream's own,
/// older version came next, and the judge took that for the wrong order.
#[test]
fn an_answer_may_be_ahead_of_the_stream() {
    let options = Options { family: Family::Nodes, ..Options::default() };
    assert_agree(&options, 41_820_005, 1);
}

/// Here the only node that agreed to a purge had not seen the version that came back. It saw it later, and agreed to the
/// next purge: the judge took that for the purge of the deletion, which nobody could have told.
#[test]
fn what_nobody_had_seen_when_a_deletion_was_purged_is_not_undone_in_silence() {
    let options = Options { family: Family::Small, ..Options::default() };
    assert_agree(&options, 20_809_885, 1);
}

/// One test per defect: what it is. Where it is sought, and in how many seeds it must be found: [`SOUGHT`].
macro_rules! found {
    ($($name:ident: $defect:ident;)*) => {$(
        #[test]
        fn $name() {
            assert_found(Defect::$defect);
        }
    )*};
}

found! {
    knowledge_before_data_is_found: KnowledgeBeforeData;
    ties_decided_by_arrival_are_found: TiesByArrival;
    a_tick_used_again_after_a_restart_is_found: TickReused;
    snapshot_and_seen_not_of_one_moment_are_found: KnowledgeAfterSnapshot;
    rule_4a_left_out_is_found: NoDrop;
    rule_4a_dropping_what_was_never_seen_is_found: DropUnseen;
    rule_4b_left_out_is_found: NoReissue;
    a_clipped_list_off_by_one_is_found: ListOffByOne;
    a_resync_that_stops_with_its_housekeeper_is_found: ResyncStops;
    a_queue_that_overflows_in_silence_is_found: LagNotMarked;
    pushes_not_refused_below_the_mark_are_found: PushNotRefused;
    an_announcement_taken_without_having_seen_v_is_found: PurgeUnseen;
    an_own_tock_not_raised_to_the_mark_is_found: TockNotRaised;
    a_mark_raised_before_the_end_is_found: MarkBeforeEnd;
    two_sides_of_a_forced_change_in_one_lineage_are_found: OneLineage;
    a_coordinator_that_comes_back_older_is_found: CoordinatorOlder;
    an_incarnation_kept_without_proof_is_found: IncarnationKept;
    contents_that_nobody_compares_are_found: ContentsNotCompared;
    a_list_clipped_across_a_purge_is_found: KnownClipped;
    sums_that_leave_the_ticks_out_are_found: SumsWithoutTicks;
    a_purged_deletion_undone_in_silence_is_found: UndoneInSilence;
    a_batch_that_is_told_before_its_sync_is_found: BatchBeforeSync;
    a_snapshot_whose_seen_is_newer_than_its_data_is_found: SnapshotKnowsMore;
    files_that_are_removed_before_the_snapshot_is_there_are_found: PruneBeforeSnapshot;
    a_life_that_is_used_again_after_a_restart_is_found: LifeReused;
    a_log_queue_that_drops_and_goes_on_is_found: LogQueueDrops;
    a_watch_that_overflows_in_silence_is_found: WatchNotLapsed;
    a_watch_that_is_not_told_what_is_gone_is_found: ResumeSkipsGone;
    a_watch_that_starts_over_too_late_is_found: ResumeSkipsLost;
    an_overlay_that_falls_apart_is_found: OverlayLosesWay;
    a_log_that_begins_anew_without_its_data_is_found: AnewWithoutData;
    a_client_whose_newer_change_is_older_is_found: DeafToClients;
    a_write_that_is_made_though_it_was_given_up_is_found: GivenUpIsMade;
}

#[test]
fn every_defect_that_can_be_planted_is_sought() {
    let tests = include_str!("seeds.rs");
    for defect in Defect::ALL {
        let is_sought = SOUGHT.iter().any(|sought| sought.defect == *defect);
        let is_elsewhere = FOUND_BY_OTHER_TESTS.iter().any(|(other, _)| other == defect);
        assert!(is_sought != is_elsewhere, "{defect:?} is sought once, or found by other tests");
        let has_test = tests.contains(&format!(": {defect:?};"));
        assert_eq!(is_sought, has_test, "{defect:?} has a test");
    }
}
