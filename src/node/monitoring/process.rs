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

/// As Linux tells it. Counting needs one descriptor itself.
fn open_fds() -> usize {
    let Ok(all) = std::fs::read_dir("/proc/self/fd") else { return 0 };
    all.take(COUNTED_FDS_MAX).count().saturating_sub(1)
}
