//! The only file that names the async runtime and the clock, and the only one that starts tasks
//! and threads (DESIGN, dependencies). What does not depend on the runtime (channels, locks,
//! events, stream adaptors) is used directly from its own crate.

use std::future::Future;
use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_io::Async;
pub use async_std::net::UdpSocket;
/// A running task. Dropping it detaches it; [`Task::cancel`] stops it at its next await.
pub use async_std::task::JoinHandle as Task;
use futures::task::AtomicWaker;

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
    // The first thread for work that blocks, while the system certainly has one. It stays, so that
    // name look-ups and the like go on when there are no more threads to be had.
    drop(spawn_blocking(|| ()));
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

/// Runs `work` where it may block or compute: files, name look-ups, dropping something big. If the
/// system has no more threads, it waits for one that is there; what may take as long as a client
/// likes belongs on a thread of its own, see [`spawn_work`].
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
        // Who does not wait any more needs no result.
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

/// Keeps this thread from doing anything for a while. Not in a task: see [`sleep`].
pub fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

/// Keeps this thread from ever doing anything again.
pub fn stand_still() -> ! {
    loop {
        std::thread::park();
    }
}

/// Ends the process at once: nothing is dropped, flushed or waited for.
pub fn exit_now(code: u8) -> ! {
    signal_hook::low_level::exit(code.into())
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

/// A TCP connection; clones are of the same one. One task may read and another one write.
///
/// The runtime's own asks the system at every poll, and twice where it was woken before. This one asks
/// while something comes, then arms the reactor, and asks again only when the reactor has spoken:
/// who waits for other things too is often polled because of those.
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

/// Who waits for something to read.
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

    /// Ends one direction, or both; who waits on it is woken.
    ///
    /// # Errors
    /// What the system said: mostly that it had ended.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket().shutdown(how)
    }

    /// Whether, as far as is known now, the other side has ended or lost the connection; takes nothing
    /// of what has come.
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
            // Before it is armed, so that what it says then is not lost.
            reader.may_read.store(false, Ordering::Release);
            let cx = &mut Context::from_waker(waker);
            // The first time it may be ready because of what was read since. The second time that is
            // forgotten, and the reactor is armed; it tells also of what has come by then.
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

    /// The next connection, and who made it.
    ///
    /// # Errors
    /// What the system said, which often passes.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (socket, from) = self.socket.accept().await?;
        Ok((TcpStream::new(socket), from))
    }
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
    fn a_connection_tells_what_came_whoever_waits_and_however_often() {
        use futures::io::{AsyncReadExt, AsyncWriteExt};
        block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (far, from) = listener.accept().await.unwrap();
            assert_eq!(from, near.local_addr().unwrap());
            let (mut far, mut buffer) = (far, [0; 8]);
            for round in 0..100_u8 {
                // Sometimes it is there before it is asked for; a wait that is dropped takes nothing.
                if round % 3 == 0 {
                    let waited = timeout(Duration::from_micros(50), far.read(&mut buffer)).await;
                    assert!(waited.is_none());
                }
                near.write_all(&[round]).await.unwrap();
                if round % 5 == 0 {
                    // Read by somebody else, as the reactor is told that it can be read.
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
    fn the_clock_never_goes_back() {
        let (first, second) = (now_us(), now_us());
        assert!(second >= first);
        assert!(now() <= now_us() / 1000 + 1);
    }
}
