//! Runs of the simulator, few enough for every test run; `crates/sim/tests/sim/seeds.rs` has more of them.

use super::*;

#[test]
fn small_networks_come_to_agree() {
    for seed in 0..200 {
        let outcome = run(seed, &Options::default());
        assert_eq!(outcome.failure, None, "seed {seed}");
    }
}

#[test]
fn events_used_twice_leave_no_silent_difference() {
    let mut differed = 0;
    for seed in 0..60 {
        let options = Options { focus: Focus::Rollbacks, ..Options::default() };
        let outcome = run(seed, &options);
        assert_eq!(outcome.failure, None, "seed {seed}");
        differed += outcome.stats.contents_differed;
    }
    assert!(differed > 0, "no difference was made and told");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..20 {
        let options = Options::default();
        let runs = [(); 2].map(|()| run_without(seed, &options, &[], true));
        assert_eq!(runs[0].script, runs[1].script);
        assert!(runs[0].script.len() > 100);
        assert_eq!(runs[0].stats, run(seed, &options).stats, "with or without a script");
    }
}
