//! The only file that names the async runtime and the clock, and the only one that starts tasks
//! and threads (DESIGN, dependencies). What does not depend on the runtime (channels, locks,
//! events, stream adaptors) is used directly from its own crate.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub use async_std::net::{TcpListener, TcpStream, UdpSocket};
/// A running task. Dropping it detaches it; [`Task::cancel`] stops it at its next await.
pub use async_std::task::JoinHandle as Task;

use crate::model::host_port::HostPort;
use crate::model::ids::Millis;

/// Starts the runtime with so many threads for tasks. To be called before anything else of it;
/// later it does nothing. Otherwise there are as many as cores. `ASYNC_STD_THREAD_COUNT` in the
/// environment wins.
pub fn start(threads: usize) {
    let config = async_global_executor::GlobalExecutorConfig::default()
        .with_env_var("ASYNC_STD_THREAD_COUNT")
        .with_min_threads(threads)
        .with_max_threads(threads)
        .with_thread_name_fn(|| String::from("tasks"));
    async_global_executor::init_with_config(config);
}

/// Starts a task on the runtime's threads. It must not block them: see [`spawn_blocking`].
#[allow(clippy::disallowed_methods, reason = "this is the place")]
pub fn spawn<F, T>(future: F) -> Task<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    async_std::task::spawn(future)
}

/// Runs `work` where it may block or compute for long: files, name look-ups, dropping something
/// big.
pub fn spawn_blocking<F, T>(work: F) -> Task<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    async_std::task::spawn_blocking(work)
}

/// Starts a thread of its own, with a name that debuggers and `top -H` show.
///
/// # Errors
/// The system has no thread to give.
pub fn spawn_thread<F, T>(name: &str, work: F) -> io::Result<std::thread::JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    std::thread::Builder::new().name(name.to_owned()).spawn(work)
}

/// The same for work that computes for long and has time: whoever serves somebody goes before it,
/// where the system lets threads differ in that.
///
/// # Errors
/// The system has no thread to give.
pub fn spawn_background_thread<F, T>(name: &str, work: F) -> io::Result<std::thread::JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    spawn_thread(name, move || {
        // Elsewhere it would be of the whole process. If it fails, others only wait longer.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::nice(BACKGROUND_NICE);
        work()
    })
}

/// How far behind others what has time stands, in the system's terms.
#[cfg(target_os = "linux")]
const BACKGROUND_NICE: i32 = 15;

/// Runs a future to its end on this thread. Not from within a task.
pub fn block_on<F, T>(future: F) -> T
where
    F: Future<Output = T>,
{
    async_std::task::block_on(future)
}

/// Waits.
pub async fn sleep(duration: Duration) {
    async_std::task::sleep(duration).await;
}

/// Lets other tasks go first.
pub async fn yield_now() {
    async_std::task::yield_now().await;
}

/// The future's output, or `None` when it took longer than `duration`; then it was dropped.
pub async fn timeout<F, T>(duration: Duration, future: F) -> Option<T>
where
    F: Future<Output = T>,
{
    async_std::future::timeout(duration, future).await.ok()
}

/// How long a name look-up may take. The system's resolver can hang far longer than anybody
/// wants to wait for one of several peers.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 16;

/// All addresses that a host has now, in the system's order; at least one.
///
/// # Errors
/// What the system said, that it took too long, or that the name has no address.
pub async fn resolve(to: &HostPort) -> io::Result<Vec<SocketAddr>> {
    if let Some(address) = to.numeric() {
        return Ok(vec![address]);
    }
    let target = (to.host.clone(), to.port);
    let look_up = spawn_blocking(move || target.to_socket_addrs());
    let found = timeout(RESOLVE_TIMEOUT, look_up)
        .await
        .ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, "no answer in time"))??;
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in found.take(ADDRESSES_MAX) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    }
    Ok(addresses)
}

/// Milliseconds since this was first called in the process; never goes back.
#[must_use]
pub fn now() -> Millis {
    u64::try_from(elapsed().as_millis()).unwrap_or(Millis::MAX)
}

/// Microseconds since this was first called in the process; never goes back. For measuring.
#[must_use]
pub fn now_us() -> u64 {
    u64::try_from(elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// Nanoseconds since this was first called in the process; never goes back. For measuring.
#[must_use]
pub fn now_ns() -> u64 {
    u64::try_from(elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Milliseconds since 1970, for people to read. No decision about data may depend on it.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "this is the place")]
pub fn wall_clock_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// 64 random bits, from the system's generator.
#[must_use]
pub fn random_u64() -> u64 {
    rand::random()
}

/// How long ago the clock was first looked at.
#[allow(clippy::disallowed_methods, reason = "this is the place")]
fn elapsed() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// What the system, or the person at the terminal, tells the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT: Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP.
    HangUp,
}

/// Calls `handler` for each signal from now on, on a thread of its own (so that signals are
/// heard also when the runtime is not). The default action of these signals is off from here on,
/// also where that would be none, as in a container's first process.
///
/// # Errors
/// The system refuses the handlers or the thread.
pub fn on_signals(mut handler: impl FnMut(Signal) + Send + 'static) -> io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    spawn_thread("signals", move || {
        for number in signals.forever() {
            match number {
                SIGINT => handler(Signal::Interrupt),
                SIGTERM => handler(Signal::Terminate),
                SIGHUP => handler(Signal::HangUp),
                _ => {}
            }
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_future_that_is_too_slow_times_out() {
        let never = std::future::pending::<()>();
        assert_eq!(block_on(timeout(Duration::from_millis(1), never)), None);
        assert_eq!(block_on(timeout(Duration::from_secs(60), async { 5 })), Some(5));
    }

    #[test]
    fn tasks_give_back_what_they_made() {
        let sum = block_on(async { spawn(async { 2 }).await + spawn_blocking(|| 3).await });
        assert_eq!(sum, 5);
    }

    #[test]
    fn the_clock_never_goes_back() {
        let (first, second) = (now_us(), now_us());
        assert!(second >= first);
        assert!(now() <= now_us() / 1000 + 1);
    }
}
