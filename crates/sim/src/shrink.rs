//! Makes a failing run shorter: leaves out steps as long as it still fails in the same way.

use super::profile::Options;
use super::run_without;

/// Steps that can be left out of a run so that it fails in the same way: by step, true to leave it
/// out. None if the seed does not fail.
#[must_use]
pub fn shrink(seed: u64, options: &Options) -> Option<Vec<bool>> {
    let whole = run_without(seed, options, &[], false);
    let check = whole.failure?.check;
    let mut skipped = vec![false; whole.steps];
    let fails = |skipped: &[bool]| {
        run_without(seed, options, skipped, false).failure.is_some_and(|f| f.check == check)
    };
    // Runs of steps first, ever shorter ones.
    let mut length = whole.steps.div_ceil(2);
    loop {
        let mut found = false;
        for from in (0..skipped.len()).step_by(length.max(1)) {
            let to = (from + length).min(skipped.len());
            if skipped[from..to].iter().all(|s| *s) {
                continue;
            }
            let before = skipped.clone();
            skipped[from..to].fill(true);
            if fails(&skipped) {
                found = true;
            } else {
                skipped = before;
            }
        }
        if length > 1 {
            length = length.div_ceil(2);
        } else if !found {
            return Some(skipped);
        }
    }
}
