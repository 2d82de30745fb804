//! What the system says of the process. Where it does not say something, that is 0.

use distkv_metrics::{Name, Numbers};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Most descriptors that are counted: counting more takes longer than a scrape should.
const COUNTED_FDS_MAX: usize = 65_536;

/// Adds them.
pub(super) fn add(numbers: &mut Numbers) {
    numbers.set(Name::ProcessCpuSeconds, &[], cpu_seconds());
    numbers.set(Name::ProcessResidentMemoryBytes, &[], resident_bytes().unwrap_or(0));
    numbers.set(Name::ProcessOpenFds, &[], open_fds());
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    numbers.set(Name::ProcessMaxFds, &[], limit);
}

#[allow(clippy::cast_precision_loss, reason = "seconds of centuries are exact")]
fn cpu_seconds() -> f64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

/// As Linux tells it.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    pages.checked_mul(rustix::param::page_size() as u64)
}

/// As Linux tells it: since 6.2 as the length of their folder, before that one by one.
fn open_fds() -> usize {
    const FOLDER: &str = "/proc/self/fd";
    let told = std::fs::metadata(FOLDER).map_or(0, |folder| folder.len());
    match usize::try_from(told) {
        Ok(0) | Err(_) => {
            let Ok(all) = std::fs::read_dir(FOLDER) else { return 0 };
            // Counting needs one descriptor itself.
            all.take(COUNTED_FDS_MAX).count().saturating_sub(1)
        }
        Ok(told) => told,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptors_that_are_told_are_those_that_are_open() {
        // The other tests of this process open some, too, but not so many.
        let before = open_fds();
        let held: Vec<_> = (0..500).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        let with = open_fds();
        drop(held);
        assert!(before > 2 && (before + 250..before + 750).contains(&with), "{before} {with}");
    }
}
