//! The only file that names the async runtime and the clock, and the only one that starts tasks
//! and threads (docs/decisions/0002-async-runtime.md). What does not depend on the runtime (channels, locks,
//! events, stream adaptors) is used directly from its own crate.

mod deadlines;
mod threads;

use std::collections::hash_map::RandomState;
use std::future::{Future, pending};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_executor::Executor;
use async_io::{Async, Timer};
use distkv_model as model;
use futures::future::FutureExt;
use futures::task::AtomicWaker;
use rustix::time::{ClockId, clock_gettime};

use crate::model::host_port::HostPort;
use crate::model::ids::Millis;
pub use deadlines::timeout;
pub use threads::{compute, node_threads, start, start_for_node, start_if_needed};

/// All tasks of the process.
static EXECUTOR: Executor<'static> = Executor::new();

/// The executor of all tasks; starts the runtime if necessary and possible.
fn executor() -> &'static Executor<'static> {
    // Where that fails, tasks wait, and the next one tries again.
    let _ = start_if_needed();
    &EXECUTOR
}

/// Has the calling thread run tasks for as long as the process lives. Those that panic are caught; the reactor may panic.
fn run_tasks() {
    async_io::block_on(EXECUTOR.run(pending::<()>()));
}

/// As above, until the other side of a channel is dropped.
fn run_tasks_until(is_over: &async_channel::Receiver<()>) {
    let _ = async_io::block_on(EXECUTOR.run(is_over.recv()));
}

/// Has the reactor begin, which panics where the system does not give it what it needs.
fn begin_reactor() {
    let mut timer = Timer::after(Duration::from_secs(1));
    let _ = timer.poll_unpin(&mut Context::from_waker(Waker::noop()));
}

/// A running task: its result can be awaited. Dropping it lets the task go on.
#[derive(Debug)]
pub struct Task<T> {
    /// None only once it is dropped or cancelled.
    inner: Option<async_executor::Task<T>>,
}

impl<T> Task<T> {
    fn of(inner: async_executor::Task<T>) -> Task<T> {
        Task { inner: Some(inner) }
    }

    /// Stops the task at its next await and waits for that; its result, if it had one already.
    pub async fn cancel(mut self) -> Option<T> {
        match self.inner.take() {
            Some(task) => task.cancel().await,
            None => None,
        }
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        if let Some(task) = self.inner.take() {
            task.detach();
        }
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        match &mut self.inner {
            Some(task) => task.poll_unpin(cx),
            None => Poll::Pending,
        }
    }
}

/// Starts a task on the runtime's threads. It must not block them: see [`spawn_blocking`].
pub fn spawn<F, T>(future: F) -> Task<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    Task::of(executor().spawn(future))
}

/// Runs `work` where it may block or compute: files, name look-ups, dropping something big. If the
/// system has no more threads, it waits for an existing one; work that may take as long as a client
/// likes needs a thread of its own, see [`spawn_work`].
pub fn spawn_blocking<F, T>(work: F) -> Task<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    Task::of(blocking::unblock(work))
}

/// Starts a thread of its own, with a name that debuggers and `top -H` show.
///
/// # Errors
/// The system has no thread to give.
pub fn spawn_thread<F, T>(name: &str, work: F) -> io::Result<thread::JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    thread::Builder::new().name(name.to_owned()).spawn(work)
}

/// As above, for long computations that can wait: threads that serve clients go first, if the
/// system lets threads differ in priority.
///
/// # Errors
/// The system has no thread to give.
pub fn spawn_background_thread<F, T>(name: &str, work: F) -> io::Result<thread::JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    spawn_thread(name, move || {
        // Elsewhere it would apply to the whole process. If it fails, others only wait longer.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::nice(BACKGROUND_NICE);
        work()
    })
}

/// Runs `work` on a thread of its own; its result can be awaited.
///
/// # Errors
/// The system has no thread to give; then `work` was dropped.
pub fn spawn_work<F, T>(name: &str, work: F) -> io::Result<Work<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let (sender, result) = async_channel::bounded(1);
    spawn_thread(name, move || {
        // A caller that does not wait any more needs no result.
        let _ = sender.try_send(work());
    })?;
    Ok(Work { result })
}

/// Work that was started by [`spawn_work`]. Dropping it lets the work go on.
#[derive(Debug)]
pub struct Work<T> {
    result: async_channel::Receiver<T>,
}

impl<T> Work<T> {
    /// Waits for the result; none if the work panicked.
    pub async fn done(self) -> Option<T> {
        self.result.recv().await.ok()
    }
}

/// The priority of background threads, in the system's terms.
#[cfg(target_os = "linux")]
const BACKGROUND_NICE: i32 = 15;

/// Runs a future to its end on this thread. Not from within a task. The threads that run tasks see to the sockets: a
/// thread that waits here is woken once it can go on, and not to hand on what concerns others.
pub fn block_on<F, T>(future: F) -> T
where
    F: Future<Output = T>,
{
    let _ = executor();
    futures_lite::future::block_on(future)
}

/// Waits. Others go first, however short the time is: a loop that waits in each of its rounds never keeps its thread to
/// itself.
pub async fn sleep(duration: Duration) {
    let mut timer = Timer::after(duration);
    match futures_lite::future::poll_once(&mut timer).await {
        Some(_) => yield_now().await,
        None => drop(timer.await),
    }
}

/// Ends at a moment, or after a while; for libraries that want to be given such timers.
#[derive(Debug)]
pub struct Alarm(Timer);

impl Alarm {
    /// One that ends after so long.
    #[must_use]
    pub fn after(duration: Duration) -> Alarm {
        Alarm(Timer::after(duration))
    }

    /// One that ends at a moment of the steady clock.
    #[must_use]
    pub fn at(moment: Instant) -> Alarm {
        Alarm(Timer::at(moment))
    }
}

impl Future for Alarm {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_unpin(cx).map(drop)
    }
}

/// Keeps this thread from doing anything for a while. Not in a task: see [`sleep`].
pub fn pause(duration: Duration) {
    thread::sleep(duration);
}

/// Keeps this thread from ever doing anything again.
pub fn stand_still() -> ! {
    loop {
        thread::park();
    }
}

/// Lets other tasks go first.
pub async fn yield_now() {
    let mut has_waited = false;
    std::future::poll_fn(|cx| {
        if has_waited {
            return Poll::Ready(());
        }
        has_waited = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A TCP connection; clones are of the same one. One task may read and another one write.
///
/// The runtime's own stream asks the system at every poll, and twice after a wake-up. This one asks
/// while there is data, then arms the reactor, and asks again only when the reactor has fired: a
/// task that also waits for other things is often polled because of those.
#[derive(Clone, Debug)]
pub struct TcpStream {
    inner: Arc<Stream>,
}

#[derive(Debug)]
struct Stream {
    socket: Async<std::net::TcpStream>,
    reader: Arc<Reader>,
    /// Wakes the reader.
    waker: Waker,
}

/// The task that waits for data.
#[derive(Debug)]
struct Reader {
    task: AtomicWaker,
    /// There may be something: the reactor has said so since it was armed, or is not armed.
    may_read: AtomicBool,
}

impl Wake for Reader {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.may_read.store(true, Ordering::Release);
        self.task.wake();
    }
}

impl TcpStream {
    fn new(socket: Async<std::net::TcpStream>) -> TcpStream {
        let (task, may_read) = (AtomicWaker::new(), AtomicBool::new(true));
        let reader = Arc::new(Reader { task, may_read });
        let waker = Waker::from(Arc::clone(&reader));
        TcpStream { inner: Arc::new(Stream { socket, reader, waker }) }
    }

    /// Connects to an address.
    ///
    /// # Errors
    /// What the system said.
    pub async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
        Async::<std::net::TcpStream>::connect(address).await.map(TcpStream::new)
    }

    /// This side's address.
    ///
    /// # Errors
    /// What the system said.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket().local_addr()
    }

    /// The other side's address.
    ///
    /// # Errors
    /// What the system said.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket().peer_addr()
    }

    /// Whether small writes go out at once.
    ///
    /// # Errors
    /// What the system said.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.socket().set_nodelay(nodelay)
    }

    /// Ends one direction, or both; tasks that wait on it are woken.
    ///
    /// # Errors
    /// The system's error: mostly that the connection had ended.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket().shutdown(how)
    }

    /// Writes as many of the bytes as the system takes at once.
    ///
    /// # Errors
    /// The system's: `WouldBlock` where it takes none now.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.socket().write(bytes)
    }

    /// Whether, as far as is known now, the other side has ended or lost the connection; consumes
    /// no data.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        match self.socket().peek(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    fn socket(&self) -> &std::net::TcpStream {
        self.inner.socket.get_ref()
    }
}

impl AsFd for TcpStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}

impl futures::io::AsyncRead for &TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let Stream { socket, reader, waker } = &*self.inner;
        reader.task.register(cx.waker());
        if !reader.may_read.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        loop {
            match socket.get_ref().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                done => return Poll::Ready(done),
            }
            // Before it is armed, so that its next event is not lost.
            reader.may_read.store(false, Ordering::Release);
            let cx = &mut Context::from_waker(waker);
            // The first time it may be ready because of data that was read since. The second time
            // that is forgotten, and the reactor is armed; it also reports data that has arrived by
            // then.
            let armed = match socket.poll_readable(cx) {
                Poll::Ready(Ok(())) => socket.poll_readable(cx),
                other => other,
            };
            if armed.is_pending() {
                return Poll::Pending;
            }
            reader.may_read.store(true, Ordering::Release);
            if let Poll::Ready(Err(error)) = armed {
                return Poll::Ready(Err(error));
            }
        }
    }
}

impl futures::io::AsyncWrite for &TcpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut &self.inner.socket).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shutdown(Shutdown::Write))
    }
}

impl futures::io::AsyncRead for TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut &*self).poll_read(cx, buffer)
    }
}

impl futures::io::AsyncWrite for TcpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut &*self).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut &*self).poll_flush(cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut &*self).poll_close(cx)
    }
}

/// A port that takes TCP connections.
#[derive(Debug)]
pub struct TcpListener {
    socket: Async<std::net::TcpListener>,
}

impl TcpListener {
    /// Opens a port: `host:port`; port 0 takes a free one.
    ///
    /// # Errors
    /// What the system said, or that the name has no address.
    pub async fn bind(address: &str) -> io::Result<TcpListener> {
        let address = address.to_owned();
        let bound = spawn_blocking(move || std::net::TcpListener::bind(address)).await?;
        TcpListener::of(bound)
    }

    /// Takes over a port that is open.
    ///
    /// # Errors
    /// The reactor cannot watch it.
    pub fn of(listener: std::net::TcpListener) -> io::Result<TcpListener> {
        Ok(TcpListener { socket: Async::new(listener)? })
    }

    /// The address that it has, with its port.
    ///
    /// # Errors
    /// What the system said.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.get_ref().local_addr()
    }

    /// The next connection, and its address.
    ///
    /// # Errors
    /// The system's error, which is often temporary.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (socket, from) = self.socket.accept().await?;
        Ok((TcpStream::new(socket), from))
    }
}

/// How long a name look-up may take. The system's resolver can hang far longer than one of several
/// peers is worth.
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

/// Whether a look-up failed because there is no such name, or none with an address, and not because the name
/// service could not tell. The standard library keeps the system's code to itself, so its words (those of
/// glibc, musl and the BSDs) must do; with others, it is taken for a failure that passes.
#[must_use]
pub fn is_unknown_name(error: &io::Error) -> bool {
    let text = error.to_string();
    ["not known", "does not resolve", "No address associated", "has no address"]
        .iter()
        .any(|words| text.contains(words))
}

/// Milliseconds since this was first called in the process; never goes back.
#[must_use]
pub fn now() -> Millis {
    millis(elapsed())
}

/// A duration in the unit of [`now`]; the greatest there is for longer ones.
#[must_use]
pub fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX)
}

/// As [`now`], but it also counts the time for which the machine was suspended, where the system tells it.
#[must_use]
pub fn awake_or_not() -> Millis {
    static START: OnceLock<Duration> = OnceLock::new();
    let boot = clock_gettime(ClockId::Boottime);
    let since_boot = Duration::try_from(boot).unwrap_or_default();
    millis(since_boot.saturating_sub(*START.get_or_init(|| since_boot)))
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
    millis(since)
}

/// 64 random bits, from the system's generator.
#[must_use]
pub fn random_u64() -> u64 {
    // Where the system has none to give, the standard library's keys are the next best.
    getrandom::u64().unwrap_or_else(|_| RandomState::new().build_hasher().finish())
}

/// Random bytes that nobody can guess, for keys and nonces.
///
/// # Errors
/// The system has none to give.
pub fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}

/// How long ago the clock was first looked at.
#[allow(clippy::disallowed_methods, reason = "this is the place")]
fn elapsed() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_give_back_what_they_made() {
        let sum = block_on(async { spawn(async { 2 }).await + spawn_blocking(|| 3).await });
        assert_eq!(sum, 5);
    }

    #[test]
    fn a_connection_tells_what_came_whoever_waits_and_however_often() {
        use futures::io::{AsyncReadExt, AsyncWriteExt};
        block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (far, from) = listener.accept().await.unwrap();
            assert_eq!(from, near.local_addr().unwrap());
            let (mut far, mut buffer) = (far, [0; 8]);
            for round in 0..100_u8 {
                // Sometimes it is there before it is asked for; a wait that is dropped consumes
                // nothing.
                if round % 3 == 0 {
                    let waited = timeout(Duration::from_micros(50), far.read(&mut buffer)).await;
                    assert!(waited.is_none());
                }
                near.write_all(&[round]).await.unwrap();
                if round % 5 == 0 {
                    // Read by another task, as the reactor reports that it can be read.
                    let mut other = far.clone();
                    let other = spawn(async move { other.read(&mut [0; 8]).await.unwrap() });
                    assert_eq!(other.await, 1);
                } else {
                    assert_eq!(far.read(&mut buffer).await.unwrap(), 1);
                    assert_eq!(buffer[0], round);
                }
            }
            assert!(!far.is_ended());
            let ending = spawn(async move {
                sleep(Duration::from_millis(5)).await;
                near.close().await.unwrap();
            });
            assert_eq!(far.read(&mut buffer).await.unwrap(), 0);
            assert!(far.is_ended());
            ending.await;
        });
    }

    #[test]
    fn who_waits_for_no_time_at_all_lets_others_go_first() {
        for time in [Duration::ZERO, Duration::from_nanos(1)] {
            let mut waiting = std::pin::pin!(sleep(time));
            let cx = &mut Context::from_waker(Waker::noop());
            assert!(waiting.as_mut().poll(cx).is_pending());
            assert!(waiting.as_mut().poll(cx).is_ready());
        }
    }

    #[test]
    fn the_clock_never_goes_back() {
        let (first, second) = (now_us(), now_us());
        assert!(second >= first);
        assert!(now() <= now_us() / 1000 + 1);
    }
}
